"""Events derived from records: changes to dialogs, starts and ends of agents used as functions, and the last event.

`fsm_agent.context.fitting` reports what a request masks or leaves out.  `fsm_agent.runtime.call_activities` reports
loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fsm_agent.call.effects import RunFunction
from fsm_agent.call.journal import stored_name
from fsm_agent.call.process import (
    SEPARATOR,
    Process,
    along,
    inside,
    open_effects,
    process_at,
    questions_of,
    subject_of,
    wakes_at_s,
)
from fsm_agent.call.record import CallRecord, ProcessRecord
from fsm_agent.messages.events import (
    Done,
    Event,
    FunctionEnded,
    FunctionStarted,
    HistoryChanged,
    Stepped,
    Suspended,
    unwrapped,
)
from fsm_agent.messages.message import FunctionCall

_ENDS = ("returned", "function_failed")


def last_event(process: Process) -> Event:
    """Return the last event: `Done`, or `Suspended` with the open questions."""
    if process.effects:
        keys = [effect.key for effect in open_effects(process)]
        run_id = stored_name(process.journal)
        return Suspended(tuple(keys), wakes_at_s(process), questions_of(process), run_id)
    return Done(process.result_so_far)


def with_history(process: Process, before: Any, events: Sequence[Event]) -> Sequence[Event]:
    """Add a `HistoryChanged` before the first step of each call whose history has changed, and return the events."""
    if len(events) == 1 and type(events[0]) is Stepped and type(before) is CallRecord:
        change = history_change(before, process.record)
        return events if change is None else (change, *events)
    told = set[str]()
    found: list[Event] = []
    for event in events:
        path, step = unwrapped(event)
        if type(step) is Stepped and path not in told:
            told.add(path)
            if (change := _change_at(process, before, path)) is not None:
                found.append(inside(path, change))
        found.append(event)
    return found


def history_change(before: CallRecord | None, after: CallRecord) -> HistoryChanged | None:
    """Return how the history has changed between two records of a call, or None if it has not changed."""
    kept, end = len(after.dialog), len(after.dialog) + len(after.branch)
    length, branch = (after.seeded_with, 0) if before is None else (len(before.dialog), len(before.branch))
    if kept == length and len(after.branch) >= branch:  # the branch only grows, or is pruned as a whole
        length, branch = length + branch, 0
    if length == end and not branch:
        return None
    return HistoryChanged((length, end), (length, length + branch))


def _change_at(process: Process, before: Any, path: str) -> HistoryChanged | None:
    owner, earlier = process, before
    names = path.split(SEPARATOR) if path else []
    for name, (inner, _) in zip(names, along(process, path), strict=True):
        owner = inner.process
        if earlier is not None:
            earlier = earlier.children.get(name)
        if isinstance(earlier, ProcessRecord):
            earlier = inner.process.begun_with if earlier.is_outline else earlier.record
    record = owner.record
    return history_change(earlier, record) if type(record) is CallRecord else None


def with_functions(outer: Any, steps: Sequence[Event]) -> Iterator[Event]:
    """Yield the steps, with `FunctionStarted` before an inner agent's first step and `FunctionEnded` after its last."""
    for event in steps:
        path, step = unwrapped(event)
        if isinstance(step, Stepped):
            around, _, name = path.rpartition(SEPARATOR)
            if step.trigger == "begun" and name.startswith(f"{RunFunction.prefix}:"):
                f = _requested(process_at(outer, around), name)
                yield inside(around, FunctionStarted(f.id, f.name, f.arguments_json))
            if step.trigger in _ENDS and (inner := process_at(outer, path).inners.get(step.key)) is not None:
                f = _requested(process_at(outer, path), step.key)
                duration_s = step.at_s - inner.process.record.started_at_s
                yield inside(
                    path, FunctionEnded(f.id, f.name, f.error or f.result or "", f.error is not None, duration_s)
                )
        yield event


def _requested(call: Any, name: str) -> FunctionCall:
    id, record = subject_of(name), call.record
    for f in (*record.round, *reversed(record.function_calls)):
        if f.id == id:
            return f  # type: ignore[no-any-return]
    raise AssertionError(f"{call} has the nested process {name!r}, but no function call with its id")
