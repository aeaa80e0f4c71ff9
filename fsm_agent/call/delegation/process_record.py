"""Records of processes inside of an agent call: those of agent calls, and those of others, with their own JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.values import Read, Value, Written, from_data, from_json, to_json
from fsm_agent.messages.reply import Usage

if TYPE_CHECKING:
    from fsm_agent.call import record as records
else:
    records = deferred("fsm_agent.call.record")  # whose records these are part of


class ProcessRecord(Written):
    """The record of a process inside of a call that is not an agent call, such as a run of a flow.

    A record that was read from JSON holds only an outline, until its process is made.

    Args:
        record: The process's own record, or the outline; other attributes are looked up there.
        write: Returns the record as JSON; None: ``document`` is given.
        document: The JSON.
    """

    __slots__ = ("_document", "_write", "record")

    def __init__(self, record: Any, write: Callable[[Any], str] | None, document: str = "") -> None:
        self.record = record
        self._write = write
        self._document = document

    @property
    def is_outline(self) -> bool:
        """True if it was read from JSON, and its process was not made yet."""
        return self._write is None

    @property
    def document(self) -> str:
        """The record as JSON."""
        if not self._document and self._write is not None:
            self._document = self._write(self.record)
        return self._document

    def changed(self, **changes: Any) -> ProcessRecord:
        """Return a copy whose record differs in these fields."""
        return ProcessRecord(self.record.changed(**changes), self._write)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "record"), name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessRecord):
            return NotImplemented
        if self.is_outline or other.is_outline:
            return self.document == other.document
        return bool(self.record == other.record)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ProcessRecord({self.record!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.document,)


class _Outline(Value, frozen=True):
    """The part of a record that the call around it needs before its process is made."""

    depth: int
    total_usage: Usage


def _used(data: Mapping[str, Any]) -> Usage:
    """Return the tokens of a record in JSON and of the records inside of it."""
    used: Usage = from_data(data.get("usage", {}), Usage)
    inside = [child.get("record", child) for child in data.get("children", {}).values()]
    return sum([_used(child) for child in inside], used)


def _unpickled(document: str) -> Any:
    return _inner(from_json(document, Any))


class InnerRecords(dict[str, Any], Read):
    """The records of the processes inside of a call, read from JSON."""

    @classmethod
    def read(cls, data: Any) -> InnerRecords:
        return cls({name: _inner(child) for name, child in from_data(data, dict[str, Any]).items()})


def _inner(data: Any) -> Any:
    """Read the record of an agent call or of another process."""
    if isinstance(data, dict) and "dialog" not in data and isinstance(inner := data.get("record"), dict):
        depth = from_data(inner.get("depth", 0), int)
        return ProcessRecord(_Outline(depth, _used(inner)), None, to_json(data))
    return from_data(data, records.CallRecord)
