"""The output in a reply that is still arriving, as far as it is there and valid.

One document is followed for each reply: the first whose beginning fits the type.  What is given out of it only grows,
because text only comes to its end: objects get more fields, lists more items, and the last text becomes longer.
Numbers, words and the members of an `Enum` or a `Literal` are given when they are complete.

The time that it takes is linear in the reply: beyond `_FINE` characters the document is read again whenever it has
grown by an eighth, and beyond `_COARSE` when it has doubled.  Beyond `_MOST`, or the length at which the reply is
refused, nothing is given any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic_core import ValidationError, from_json, to_json

from fsm_agent.prompts.output import Output
from fsm_agent.prompts.repairs import UNCLEAR, Schema, expanded

_NARROW = ("enum", "const", "pattern", "format", "contentEncoding", "contentMediaType")  # not any text
_SHAPES = ("type", "$ref", "anyOf", "oneOf", "allOf", "properties", *_NARROW)
NOTHING: Any = object()
UNDECIDED: Any = object()


class Position:
    """A position in the values of a type: the schemas that hold there.

    Args:
        schemas: JSON schemas; one of them is to fit.
        root: The one with the definitions.
    """

    def __init__(self, schemas: Iterable[Any], root: Schema) -> None:
        self._root = root
        self._schemas = expanded(schemas, root)
        self._named: dict[str, Position | None] = {}

    def named(self, name: str) -> Position | None:
        """Return the position of the field ``name``; None: there is none, and it is ignored."""
        if name not in self._names:
            return self._others
        if name not in self._named:
            inner = [s["properties"][name] for s in self._schemas if name in s.get("properties", ())]
            self._named[name] = Position([*inner, *self._any_name], self._root)
        return self._named[name]

    def item(self, index: int) -> Position:
        """Return the position of the item ``index`` of a list."""
        return self._prefix[index] if index < len(self._prefix) else self._items

    def takes_text(self, text: str) -> bool:
        """Return whether any text that begins so may stand here."""
        return any(
            s.get("type") == "string"
            and not any(word in s for word in _NARROW)
            and len(text) <= s.get("maxLength", len(text))
            for s in self._schemas
        ) or any(map(_is_any, self._schemas))

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset([name for s in self._schemas for name in s.get("properties", ())])

    @cached_property
    def _any_name(self) -> list[Any]:
        found: list[Any] = []
        for s in self._schemas:
            others = s.get("additionalProperties", _is_any(s) or (s.get("type") == "object" and "properties" not in s))
            found += [{} if others is True else others] if others or others == {} else []
            found += s.get("patternProperties", {}).values()
        return found

    @cached_property
    def _others(self) -> Position | None:
        is_forbidden = any(s.get("additionalProperties") is False for s in self._schemas)
        return Position(self._any_name, self._root) if self._any_name or is_forbidden else None

    @cached_property
    def _prefix(self) -> list[Position]:
        longest = max([len(s.get("prefixItems", ())) for s in self._schemas], default=0)
        return [Position([_item_schema(s, n) for s in self._schemas], self._root) for n in range(longest)]

    @cached_property
    def _items(self) -> Position:
        return Position([_item_schema(s, len(self._prefix)) for s in self._schemas], self._root)


def _is_any(schema: Schema) -> bool:
    return not any(word in schema for word in _SHAPES)


def _item_schema(schema: Schema, index: int) -> Any:
    prefix = schema.get("prefixItems", ())
    if index < len(prefix):
        return prefix[index]
    return schema.get("items", {} if schema.get("type") == "array" or _is_any(schema) else None)


def known(value: Any, position: Position, depth: int, opened: dict[int, Any]) -> Any:
    """Return a copy without fields that the type ignores; note the containers of it that are open."""
    made: Any
    if isinstance(value, dict):
        last = next(reversed(value), None) if depth > 0 else None
        made = {}
        for name, item in value.items():
            if (inner := position.named(name)) is not None:
                made[name] = known(item, inner, depth - 1 if name == last else 0, opened)
    elif isinstance(value, list):
        last_index = len(value) - 1 if depth > 0 else -1
        depths = [depth - 1 if n == last_index else 0 for n in range(len(value))]
        made = [known(item, position.item(n), depths[n], opened) for n, item in enumerate(value)]
    else:
        return value
    if depth > 0:
        opened[id(made)] = made
    return made


def with_tail(firm: Any, whole: Any, position: Position) -> Any:
    """Return a value with the text at its end that is cut, if any text may stand there; the value is changed."""
    if firm is NOTHING:
        return whole if isinstance(whole, str) and position.takes_text(whole) else UNDECIDED
    value = firm
    while isinstance(whole, dict | list) and whole:
        if isinstance(whole, list):
            last: Any = len(whole) - 1
            inner: Position | None = position.item(last)
            is_there = last < len(firm)
        else:
            last = next(reversed(whole))
            inner, is_there = position.named(last), last in firm
        if inner is None:
            break
        if not is_there:
            if isinstance(whole[last], str) and inner.takes_text(whole[last]):
                if isinstance(firm, list):
                    firm.append(whole[last])
                else:
                    firm[last] = whole[last]
            break
        position, firm, whole = inner, firm[last], whole[last]
    return value


_FINE = 2000  # characters of a document up to which each piece is looked at
_COARSE = 16_000
_MOST = 250_000  # characters of a reply
_MAX_DEPTH = 100  # of a document
_MAX_RESTARTS = 8  # behind brackets that are open and no JSON: keeps the search linear
_MAX_TRIED = 100  # documents
_TAIL = 200  # characters in which an opening may be cut
_BRACKET = re.compile(r"[{\[]")
_QUOTED = re.compile(r'["\\]')
_BARE = re.compile(r'"|[{\[]+|[}\]]+')
_NUMBER = "+-.0123456789eE"
_UNFINISHED = (
    *("missing", "missing_argument", "too_short", "union_tag_not_found", UNCLEAR),
    *("value_error", "assertion_error"),
)


class PartialReader:
    """The output of one reply, whose text is fed piece by piece.

    Args:
        output: The type.
        opening: A regular expression behind which the document stands; "": anywhere.
        context: What validators get as ``info.context``.
        max_length: Longer replies are refused; by default those that the output refuses.
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
        self._position = Position([output.read_schema], output.read_schema)
        self._opening = re.compile(opening + r"\s*+(?=[{\[])") if opening else _BRACKET
        self._left = min(_MOST, output.max_length if max_length is None else max_length)  # characters
        self._tail = "\n"  # the end of what was searched
        self._document: _Document | None = None
        self._tried = self._restarts = 0
        self._last: Any = NOTHING  # that was given
        self._is_over = False

    def feed(self, piece: str) -> tuple[Any] | None:
        """Return the output so far, in a tuple, if the next piece of the text has brought more of it.

        Raises:
            Exception: A validator could not take a part of the output.  The next piece can be fed all the same.
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
        """Return the rest of the text, from the first bracket on behind which the document may stand."""
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
        """Return what the document says so far, `NOTHING` if that is no output, `UNDECIDED` if it is too early."""
        try:
            firm, whole = document.read()
        except (ValueError, TypeError, RecursionError):  # no JSON; half a surrogate pair
            return NOTHING
        depth = document.depth
        if not self.output.is_wrapped or not isinstance(whole, dict) or next(iter(whole), "value") != "value":
            return self._valid(firm, whole, depth)
        if not whole:
            return UNDECIDED if depth else self._valid(firm, whole, depth)
        inner = self._valid(firm.get("value", NOTHING), whole["value"], depth - 1) if len(whole) == 1 else NOTHING
        if self._position.named("value") is None:
            return inner
        if depth:
            return UNDECIDED  # the type has a field of this name itself
        return self._valid(firm, whole, depth) if inner is NOTHING else inner

    def _valid(self, firm: Any, whole: Any, depth: int) -> Any:
        """Return the part of a value that the type knows, if nothing is wrong with it.

        Args:
            firm: The value without the text at its end, if that is cut.
            whole: The value.
            depth: How many containers are open.
        """
        opened = dict[int, Any]()
        if firm is not NOTHING:
            firm = known(firm, self._position, depth, opened)
            problem = self._problem(firm)
            if problem and not _is_unfinished(firm, problem, opened):
                return NOTHING
        return with_tail(firm, whole, self._position)

    def _problem(self, value: Any) -> list[tuple[Sequence[Any], str]]:
        """Return where pydantic finds what errors in a value."""
        document = to_json(value, inf_nan_mode="constants").decode()
        try:
            self.output.bare_validated(document, self.context)
        except ValidationError as error:
            items = error.errors(include_url=False, include_context=False, include_input=False)
            return [(item["loc"], item["type"]) for item in items]
        return []


class _Document:
    """A document of which the beginning is there.

    Attributes:
        depth: How many containers are open.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._due_at = 1  # characters
        self._in_text = self._is_escaped = False
        self.depth = 0

    @property
    def text(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    @property
    def is_due(self) -> bool:
        """True if it has grown so much that it shall be read again."""
        if self._length < self._due_at:
            return False
        growth = (self._length - _FINE) // 8 if self._length < _COARSE else self._length
        self._due_at = self._length + max(1, growth)
        return True

    def add(self, piece: str) -> str | None:
        """Take the next piece; return what of it stands behind the end, once the document is complete."""
        at, size = 0, len(piece)
        while at < size:
            if self._is_escaped:
                at, self._is_escaped = at + 1, False
                continue
            found = (_QUOTED if self._in_text else _BARE).search(piece, at)
            if found is None:
                break
            at, token = found.end(), found[0]
            if token == '"':
                self._in_text = not self._in_text
            elif token == "\\":
                self._is_escaped = True
            elif token[0] in "{[":
                self.depth += len(token)
            elif len(token) >= self.depth:
                at -= len(token) - self.depth
                self.depth = 0
                self._keep(piece[:at])
                return piece[at:]
            else:
                self.depth -= len(token)
        self._keep(piece)
        return None

    def _keep(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)

    def read(self) -> tuple[Any, Any]:
        """Return the value so far, without and with a text that is cut at its end; a number there is left out.

        Raises:
            ValueError: It is no JSON.
            TypeError: It has half a surrogate pair.
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


def _is_unfinished(value: Any, problem: Iterable[tuple[Sequence[Any], str]], opened: Mapping[int, Any]) -> bool:
    """Return whether all that is wrong may come right with what is still to come.

    Args:
        value: The value, or one in it.
        problem: The errors, and where they are in the value.
        opened: The containers that are open, by id.
    """
    inside = dict[Any, list[tuple[Sequence[Any], str]]]()
    members = dict[Any, list[tuple[Sequence[Any], str]]]()  # of unions, of which one has to fit
    is_open = id(value) in opened
    for position, kind in problem:
        is_absent = not _has(value, position[0]) if position else True
        if not position or (kind in ("missing", "missing_argument") and len(position) == 1 and is_absent):
            if not is_open or kind not in _UNFINISHED:
                return False
        else:
            (members if is_absent else inside).setdefault(position[0], []).append((position[1:], kind))
    if not all(_is_unfinished(value[step], errors, opened) for step, errors in inside.items()):
        return False
    return not members or any(_is_unfinished(value, errors, opened) for errors in members.values())


def _has(value: Any, step: Any) -> bool:
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)


def extends(before: Any, after: Any) -> bool:
    """Return whether a value only adds to another: fields, items at the end, and more of the text at its end."""
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
