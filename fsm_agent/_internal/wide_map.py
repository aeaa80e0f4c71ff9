"""An immutable mapping of many items, of which one is replaced or removed without a copy of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
WIDE = 512  # items from which on a copy of all of them costs more than a `WideMap`
_GONE: Any = object()
_new = object.__new__


class WideMap(Mapping[str, T]):
    """A persistent mapping: to change an item takes the square root of the time that a copy takes.

    A version is a dict, which it shares with others, and a small dict of what has changed since.  Once that has as many
    items as the square root of the other, they become one.  An item that is replaced keeps its place.
    """

    __slots__ = ("_base", "_length", "_patch")

    _base: dict[str, T]
    _patch: dict[str, T]
    _length: int

    def __init__(self, items: dict[str, T]) -> None:
        self._base, self._patch, self._length = items, {}, len(items)

    def _patched(self, patch: dict[str, T], length: int) -> Mapping[str, T]:
        if len(patch) * len(patch) <= len(self._base):
            made: WideMap[T] = _new(WideMap)
            made._base, made._patch, made._length = self._base, patch, length
            return made
        merged = {**self._base, **patch}
        for name, value in patch.items():
            if value is _GONE:
                del merged[name]
        return merged if length < WIDE else WideMap(merged)

    def __getitem__(self, name: str) -> T:
        value = self._patch.get(name)
        if value is None:
            return self._base[name]
        if value is _GONE:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        value = self._patch.get(name)  # type: ignore[call-overload]
        return name in self._base if value is None else value is not _GONE

    def __iter__(self) -> Iterator[str]:
        base, patch = self._base, self._patch
        for name in base:
            if patch.get(name) is not _GONE:
                yield name
        for name, value in patch.items():
            if name not in base and value is not _GONE:
                yield name

    def __reversed__(self) -> Iterator[str]:
        base, patch = self._base, self._patch
        for name in reversed(patch):
            if name not in base and patch[name] is not _GONE:
                yield name
        for name in reversed(base):
            if patch.get(name) is not _GONE:
                yield name

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"WideMap({dict(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


def with_items(items: Mapping[str, T], new: Mapping[str, T]) -> Mapping[str, T]:
    """Return a mapping with some items more, or with other values for those that it has; no value is None."""
    if type(items) is not WideMap:
        both = {**items, **new}
        return both if len(both) < WIDE else WideMap(both)
    length = items._length
    for name in new:
        length += name not in items
    return items._patched({**items._patch, **new}, length)


def without(items: Mapping[str, T], name: str) -> Mapping[str, T]:
    """Return a mapping without one of its items.

    Raises:
        KeyError: It has no such item.
    """
    if type(items) is not WideMap:
        if len(items) > WIDE:
            return without(WideMap({**items}), name)
        rest = dict(items)
        del rest[name]
        return rest
    items[name]  # refuses a name that is not there
    return items._patched({**items._patch, name: _GONE}, items._length - 1)
