"""Positions in the values of a type, what a JSON schema says of each, and walks over values that know theirs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from fsm_agent.prompts.extraction.matching import Schema, expanded

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
