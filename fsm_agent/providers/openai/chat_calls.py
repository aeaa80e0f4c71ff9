"""Function calls assembled from the pieces of a chat completion's stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.messages.event import ArgumentsDelta, Delta, FunctionCallCompleted, FunctionCallStarted
from fsm_agent.messages.message import FunctionCall
from fsm_agent.providers.openai.parts import text_or_none
from fsm_agent.providers.streams import ArrivingText


class _Call:
    """A function call that is still arriving."""

    __slots__ = ("arguments", "id", "index", "is_completed", "is_whole", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ArrivingText()
        self.index: int | None = None  # among the calls of the reply, once its name is known
        self.is_completed = False
        self.is_whole = False  # its first piece was a whole JSON object


class ArrivingCalls:
    """The function calls of a reply, in the order in which their names arrived."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_key: dict[Any, _Call] = {}
        self._last: _Call | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def has_nameless(self) -> bool:
        """True if arguments have arrived of a call without a name."""
        return any(call.index is None and call.arguments for call in self._by_key.values())

    def parts(self) -> Iterator[FunctionCall]:
        """Yield the calls as parts of a message."""
        for call in self._calls:
            yield FunctionCall(name=call.name, arguments_json=str(call.arguments), provider_id=call.id or None)

    def end(self) -> list[Delta]:
        """Take the end of the reply; return the deltas that complete its calls."""
        return [delta for call in self._calls for delta in _completed(call)]

    def take(self, entry: Mapping[str, Any], *, is_whole: bool) -> list[Delta]:
        """Take a call, or the next piece of one; return its deltas."""
        function = entry.get("function")
        if not isinstance(function, dict) or not (function.get("name") or function.get("arguments")):
            custom = entry.get("custom")
            if isinstance(custom, dict) and custom.get("name"):
                function = {"name": custom["name"], "arguments": custom.get("input")}
        if not isinstance(function, dict):
            function = {}
        id, name = text_or_none(entry.get("id")), text_or_none(function.get("name"))
        arguments = function.get("arguments")
        text = (
            arguments
            if isinstance(arguments, str)
            else ""
            if arguments is None
            else pydantic_core.to_json(arguments).decode()
        )
        call = self._call(None if is_whole else entry.get("index"), id, name, text, is_whole)
        call.id = call.id or id or ""
        call.name = call.name or name or ""
        if text:
            call.is_whole = call.is_whole or (not call.arguments and _is_object(text))
            call.is_completed = False
            text = call.arguments.add(text)
        if not call.name:
            return []
        if call.index is None:
            return self._started(call)
        return [ArgumentsDelta(call.index, text)] if text else []

    def _started(self, call: _Call) -> list[Delta]:
        """Announce a call whose name is known; the one before it is complete if its arguments look so."""
        is_next = bool(self._calls) and _is_object(str(self._calls[-1].arguments))
        deltas = _completed(self._calls[-1]) if is_next else []
        call.index = len(self._calls)
        self._calls.append(call)
        deltas.append(FunctionCallStarted(call.index, call.name, call.id or None))
        if text := str(call.arguments):
            deltas.append(ArgumentsDelta(call.index, text))
        return deltas

    def _call(self, index: Any, id: str | None, name: str | None, text: str, is_new: bool) -> _Call:
        """Return the call that a piece belongs to: by index, else by id, else the last one.

        Some services give all parallel calls one index, so another name or id, or a second complete set of
        arguments, also begins a call; others repeat name and id with every piece.
        """
        key = index if isinstance(index, int | str) else id
        candidate = self._by_key.get(key) if key is not None else None if name else self._last
        if candidate and not is_new:
            is_other = name and (
                (id and candidate.id and id != candidate.id)
                or (candidate.name and name != candidate.name)
                or (candidate.is_whole and _is_object(text))
            )
            if not is_other:
                return candidate
        call = self._last = _Call()
        self._by_key[key if not is_new and key is not None else object()] = call
        return call


def _completed(call: _Call) -> list[Delta]:
    """Return the deltas of a call that is complete."""
    if call.index is None or call.is_completed:
        return []
    call.is_completed = True
    rest = call.arguments.end()
    return [*([ArgumentsDelta(call.index, rest)] if rest else []), FunctionCallCompleted(call.index)]


def _is_object(text: str) -> bool:
    if not text.startswith("{") or not text.endswith("}"):
        return False
    try:
        pydantic_core.from_json(text)
    except ValueError:
        return False
    return True
