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
    """Call ``watch`` inside the context with each step, just before it is taken: what it raises prevents the step."""
    return STEP_WATCHES.set((*STEP_WATCHES.get(), watch))


def watched_tables(watch: TableWatch) -> AbstractContextManager[None]:
    """Call ``watch`` inside the context with each step of a table of the user's own, and what owns the table.

    As of `watched_steps`, it is called before the step is taken.
    """
    return TABLE_WATCHES.set((*TABLE_WATCHES.get(), watch))
