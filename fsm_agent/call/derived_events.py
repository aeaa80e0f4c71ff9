"""Derive the changes of dialogs from the records before and after steps, for listeners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsm_agent.call.composite import inside
from fsm_agent.call.delegation.process_record import ProcessRecord
from fsm_agent.call.process import SEPARATOR, Process, along
from fsm_agent.call.record import CallRecord
from fsm_agent.messages.events import Event, HistoryChanged, Inside, Stepped


def with_history(process: Process, before: Any, events: Sequence[Event]) -> Sequence[Event]:
    """Return events, with a `HistoryChanged` before the first step of each call whose history the steps have changed.

    Args:
        process: The process that is driven, after the steps.
        before: Its record before them.
        events: The steps of one `advance`, possibly with other events among them.
    """
    if len(events) == 1 and type(events[0]) is Stepped and type(before) is CallRecord:
        change = history_change(before, process.record)
        return events if change is None else (change, *events)
    if not hasattr(process, "inside_of"):
        return events
    told = set[str]()
    found: list[Event] = []
    for event in events:
        path, step = (event.path, event.event) if type(event) is Inside else ("", event)
        if type(step) is Stepped and path not in told:
            told.add(path)
            if (change := _change_at(process, before, path)) is not None:
                found.append(inside(path, change) if path else change)
        found.append(event)
    return found


def history_change(before: CallRecord | None, after: CallRecord) -> HistoryChanged | None:
    """Return the change between two records of a call; None: the history is the same.

    Args:
        before: The earlier record; None: the call has begun since.
        after: The later record.
    """
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
