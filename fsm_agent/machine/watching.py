"""Watch the steps of every process in the OS process; for tests and tools."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from fsm_agent._internal.instrument import Instrument
from fsm_agent.messages.event import Stepped

Watch: TypeAlias = Callable[[Stepped], object]

TableWatch: TypeAlias = Callable[[Any, Stepped], object]

STEP_WATCHES = Instrument[tuple[Watch, ...]]("fsm_agent_step_watches", ())

TABLE_WATCHES = Instrument[tuple[TableWatch, ...]]("fsm_agent_table_watches", ())


def watched_steps(watch: Watch) -> AbstractContextManager[None]:
    """Call ``watch`` with each step inside the context, just before it is taken; an exception prevents the step."""
    return STEP_WATCHES.set((*STEP_WATCHES.get(), watch))


def watched_tables(watch: TableWatch) -> AbstractContextManager[None]:
    """Call ``watch`` with the owner and each step of a user's table inside the context, before the step is taken."""
    return TABLE_WATCHES.set((*TABLE_WATCHES.get(), watch))
