"""Watch the steps of every process in the OS process; for tests and tools."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from fsm_agent._internal.instrument import Instrument
from fsm_agent.messages.event import Stepped

Watch: TypeAlias = Callable[[Stepped], object]

STEP_WATCHES = Instrument[tuple[Watch, ...]]("fsm_agent_step_watches", ())


def watched_steps(watch: Watch) -> AbstractContextManager[None]:
    """Call ``watch`` inside the context with each step, just before it is taken: what it raises prevents the step."""
    return STEP_WATCHES.set((*STEP_WATCHES.get(), watch))
