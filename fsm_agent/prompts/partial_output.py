"""Reads the output in a reply that is still arriving, as far as it is complete and valid.

Each reply is searched for one document: the first whose beginning fits the type.  The output only grows: objects get
more fields, lists get more items, and the last string gets longer.  Numbers and the members of an `Enum` or a `Literal`
appear only once they are complete.  Fields that the type ignores are included as they arrive.

Reading takes time linear in the length of the reply.  After `_FINE` characters, the document is read again only when it
has grown by an eighth, and after `_COARSE` characters only when it has doubled.  Output stops after `_MOST` characters
or at the maximum length of an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import ValidationError, from_json, to_json

from fsm_agent.functions.arguments import expanded, has
from fsm_agent.prompts.json_in_text import closing
from fsm_agent.prompts.output import Output
from fsm_agent.prompts.repairs import MISSING, UNCLEAR, Schema

NOTHING: Any = object()
UNDECIDED: Any = object()

_FINE = 2000  # characters up to which a document is read again at every piece
_COARSE = 16_000
_MOST = 250_000  # characters of a reply
_MAX_DEPTH = 100  # of a document
_MAX_RESTARTS = 8  # after open brackets that are not JSON; keeps the search linear
_MAX_TRIED = 100  # documents
_TAIL = 200  # characters to keep in case an opening is split
_BRACKET = re.compile(r"[{\[]")
_NUMBER = "+-.0123456789eE"
_MORE = "\ue000"  # fits no enumeration, date or pattern
_UNFINISHED = (*MISSING, "too_short", "union_tag_not_found", UNCLEAR, "value_error", "assertion_error")


class PartialReader:
    """Reads the output from one reply, whose text arrives in pieces.

    ``opening`` is a regular expression for the text before the document.  An empty one matches anywhere.
    """

    def __init__(
        self,
        output: Output,
        opening: str = "",
        context: Mapping[str, Any] | None = None,
        max_length: int | None = None,
    ) -> None:
        self.output = output
        self.context = context or {}
        self._is_ambiguous = output.is_wrapped and _has_field("value", output.read_schema)
        self._opening = re.compile(opening + r"\s*+(?=[{\[])") if opening else _BRACKET
        self._left = min(_MOST, output.max_length if max_length is None else max_length)  # characters
        self._tail = "\n"  # the end of the searched text
        self._document: _Document | None = None
        self._tried = self._restarts = 0
        self._last: Any = NOTHING  # the last output
        self._is_over = False

    def feed(self, piece: str) -> tuple[Any] | None:
        """Read the next piece of text.

        Returns:
            The output so far in a 1-tuple, or None if this piece did not change it.

        Raises:
            Exception: If a validator refused part of the output.  You can still feed the next piece.
        """
        self._left -= len(piece)
        self._is_over = self._is_over or self._left < 0
        while not self._is_over:
            if self._document is None:
                found = self._find_start(piece)
                if found is None:
                    return None
                self._document, piece = _Document(), found
            document = self._document
            rest = document.add(piece)
            if rest is None and not document.is_due:
                return None
            self._is_over = rest is not None
            value = self._value(document)
            if value is not NOTHING:
                return self._extend_value(value)
            if self._last is not NOTHING:
                break
            self._tried += 1
            self._restarts += rest is None
            if self._tried == _MAX_TRIED or self._restarts == _MAX_RESTARTS:
                break
            if rest is None:  # it is open
                rest = document.text[1:]
            self._document, self._tail, piece, self._is_over = None, "", rest, False
        self._is_over = True
        self._document = None
        return None

    def _find_start(self, piece: str) -> str | None:
        text = self._tail + piece
        found = self._opening.search(text)
        if found is not None:
            return text[found.start() if self._opening is _BRACKET else found.end() :]
        self._tail = text[-_TAIL:]
        return None

    def _extend_value(self, value: Any) -> tuple[Any] | None:
        if value is UNDECIDED or value in ({}, []) or (value == self._last and self._last is not NOTHING):
            return None
        if self._last is not NOTHING and not extends(self._last, value):
            self._is_over = True
            return None
        self._last = value
        return (value,)

    def _value(self, document: _Document) -> Any:
        """Return the output so far, `NOTHING` if the document does not fit, or `UNDECIDED` if it may still fit."""
        try:
            firm, whole = document.read()
        except (ValueError, TypeError, RecursionError):  # not JSON; half a surrogate pair
            return NOTHING
        depth = document.depth
        if not self.output.is_wrapped or not isinstance(whole, dict) or next(iter(whole), "value") != "value":
            return self._valid(firm, whole, depth)
        if not whole:
            return UNDECIDED if depth else self._valid(firm, whole, depth)
        inner = self._valid(firm.get("value", NOTHING), whole["value"], depth - 1) if len(whole) == 1 else NOTHING
        if not self._is_ambiguous:
            return inner
        if depth:
            return UNDECIDED  # the type itself has a field with this name
        return self._valid(firm, whole, depth) if inner is NOTHING else inner

    def _valid(self, firm: Any, whole: Any, depth: int) -> Any:
        """Return the valid output so far.

        The output includes an unfinished string at its end only if any string is valid there.

        ``firm`` is the value without that string, and ``whole`` is the value with it.
        """
        if firm is whole or firm == whole:
            return whole if self._may_come_right(whole, depth) else NOTHING
        # A string with `_MORE` appended is no enum member or date and fits no pattern, so a type that accepts it
        # accepts any string.  Without that test, "good" would pass as a member although "goodish" may follow.
        if self._may_come_right(_with_more(whole, _MORE), depth):
            return whole
        if firm is NOTHING:
            return UNDECIDED
        return firm if self._may_come_right(firm, depth) else NOTHING

    def _may_come_right(self, value: Any, depth: int) -> bool:
        problem = self._problem(value)
        return not problem or _is_unfinished(value, problem, depth)

    def _problem(self, value: Any) -> list[tuple[Sequence[Any], str]]:
        document = to_json(value, inf_nan_mode="constants").decode()
        try:
            self.output.bare_validated(document, self.context)
        except ValidationError as error:
            items = error.errors(include_url=False, include_context=False, include_input=False)
            return [(item["loc"], item["type"]) for item in items]
        return []


class _Document:
    """A document whose beginning has arrived.  ``depth`` is the number of its containers that are still open."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._due_at = 1  # characters
        self._begun = ""  # a backslash at the end, whose escaped character has not arrived
        self._in_text = False
        self.depth = 0

    @property
    def text(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def is_due(self) -> bool:
        """Whether the document has grown enough to be read again."""
        if self._length < self._due_at:
            return False
        growth = (self._length - _FINE) // 8 if self._length < _COARSE else self._length
        self._due_at = self._length + max(1, growth)
        return True

    def add(self, piece: str) -> str | None:
        """Take the next piece.  Return what follows the document if it is now complete, otherwise None."""
        scanned = self._begun + piece
        whole = len(scanned) - (len(scanned) - len(scanned.rstrip("\\"))) % 2
        end, self.depth, self._in_text = closing(scanned[:whole], 0, self.depth, self._in_text)
        kept = piece if end is None else piece[: end - len(self._begun)]
        self._begun = scanned[whole:]
        self._pieces.append(kept)
        self._length += len(kept)
        return None if end is None else piece[len(kept) :]

    def read(self) -> tuple[Any, Any]:
        """Return `(firm, whole)`: the value so far without and with any unfinished string at its end.

        An unfinished number is left out.
        """
        if self.depth > _MAX_DEPTH:
            raise ValueError("nested too deep")
        text = self.text
        if not self.depth:
            value = from_json(text)
            return value, value
        if self._in_text:
            whole = from_json(text, allow_partial="trailing-strings")
            return from_json(text, allow_partial=True), whole
        value = from_json(text.rstrip(_NUMBER), allow_partial=True)
        return value, value


def _is_unfinished(value: Any, problem: Iterable[tuple[Sequence[Any], str]], depth: int) -> bool:
    """Return whether the rest of the reply could still resolve all these errors.

    ``depth`` is the number of containers that are open, counting this value and those inside it.
    """
    inside = dict[Any, list[tuple[Sequence[Any], str]]]()
    members = dict[Any, list[tuple[Sequence[Any], str]]]()  # of unions, one of which must fit
    for position, kind in problem:
        is_absent = not has(value, position[0]) if position else True
        if not position or (kind in MISSING and len(position) == 1 and is_absent):
            if depth <= 0 or kind not in _UNFINISHED:
                return False
        else:
            (members if is_absent else inside).setdefault(position[0], []).append((position[1:], kind))
    last = _last_step(value)
    for step, errors in inside.items():
        if not _is_unfinished(value[step], errors, depth - 1 if step == last else 0):
            return False
    return not members or any(_is_unfinished(value, errors, depth) for errors in members.values())


def _last_step(value: Any) -> Any:
    return (
        next(reversed(value), None) if isinstance(value, dict) else len(value) - 1 if isinstance(value, list) else None
    )


def _with_more(value: Any, more: str) -> Any:
    if isinstance(value, str):
        return value + more
    if isinstance(value, dict) and value:
        step = _last_step(value)
        return {**value, step: _with_more(value[step], more)}
    if isinstance(value, list) and value:
        return [*value[:-1], _with_more(value[-1], more)]
    return value


def _has_field(name: str, schema: Schema) -> bool:
    found = expanded([schema], schema)
    return any(name in s.get("properties", ()) or s.get("additionalProperties") or not s for s in found)


def extends(before: Any, after: Any) -> bool:
    """Return whether ``after`` only adds fields, items or text to ``before``."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(
            name in after and extends(item, after[name]) for name, item in before.items()
        )
    if isinstance(before, list):
        return (
            isinstance(after, list)
            and len(before) <= len(after)
            and all(extends(x, y) for x, y in zip(before, after, strict=False))
        )
    if isinstance(before, str):
        return isinstance(after, str) and after.startswith(before)
    return type(before) is type(after) and (before == after or before != before)  # noqa: PLR0124  # not a number
