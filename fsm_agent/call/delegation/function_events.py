"""Derive the starts and ends of functions that are agents from the steps of the calls inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fsm_agent.call.composite import inside
from fsm_agent.call.effects import RunFunction
from fsm_agent.call.process import SEPARATOR, along, prefix_of
from fsm_agent.messages.events import Event, FunctionEnded, FunctionStarted, Inside, Stepped
from fsm_agent.messages.message import FunctionCall

if TYPE_CHECKING:
    from fsm_agent.call.call import AgentCall
    from fsm_agent.call.process import Process

_ENDS = ("returned", "function_failed")


def with_functions(outer: Process, steps: Sequence[Event]) -> Iterator[Event]:
    """Yield steps, with `FunctionStarted` before the first and `FunctionEnded` after the last of an agent inside."""
    for event in steps:
        path, step = (event.path, event.event) if isinstance(event, Inside) else ("", event)
        if isinstance(step, Stepped):
            around, _, name = path.rpartition(SEPARATOR)
            if step.trigger == "begun" and prefix_of(name) == RunFunction.prefix:
                f = _requested(_at(outer, around), name)
                yield _inside_of(around, FunctionStarted(f.id, f.name, f.arguments_json))
            if step.trigger in _ENDS and (inner := _inside(_at(outer, path), step.key)) is not None:
                f = _requested(_at(outer, path), step.key)
                duration_s = step.at_s - inner.record.started_at_s
                yield _inside_of(
                    path, FunctionEnded(f.id, f.name, f.error or f.result or "", f.error is not None, duration_s)
                )
        yield event


def _at(outer: Process, path: str) -> Any:
    process = outer
    for inner, _ in along(outer, path):
        process = inner.process
    return process


def _inside(call: Any, name: str) -> Any:
    """Return the agent call that performed a function; None: no agent did, or it never started."""
    found = getattr(call, "inners", {}).get(name)
    return None if found is None else found[1]


def _requested(call: AgentCall, name: str) -> FunctionCall:
    id, record = name.partition(":")[2], call.record
    for f in (*record.round, *reversed(record.function_calls)):
        if f.id == id:
            return f
    raise AssertionError(f"{call} has the agent {name!r} inside, and no function call is it")


def _inside_of(path: str, event: Event) -> Event:
    return inside(path, event) if path else event
