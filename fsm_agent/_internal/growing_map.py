"""An immutable mapping that is cheap to add to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")
_new = object.__new__


class GrowingMap(Mapping[str, T]):
    """A persistent mapping: adding returns a new one in constant time and leaves the old one as it was.

    Versions share a list of their items, as those of a `Vector` do, and the places of the names in it.  A place counts
    in the versions that have the name there; one that finds a name at another place has places of its own.

    Args:
        items: The items.
    """

    __slots__ = ("_items", "_length", "_places")

    _items: list[tuple[str, T]]
    _length: int
    _places: dict[str, int]

    def __init__(self, items: Mapping[str, T]) -> None:
        self._items = list(items.items())
        self._length = len(self._items)
        self._places = {name: n for n, name in enumerate(items)}

    def added(self, name: str, value: T) -> GrowingMap[T]:
        """Return this mapping with one more item, whose name it does not have."""
        shared, places, at, item = self._items, self._places, self._length, (name, value)
        if len(shared) != at:
            shared = shared[:at]
        shared.append(item)
        if shared[at] is not item:  # another thread was first
            shared = [*shared[:at], item]
        if places.setdefault(name, at) != at:
            places = {known: n for n, (known, _) in enumerate(shared[: at + 1])}
        made: GrowingMap[T] = _new(GrowingMap)
        made._items, made._length, made._places = shared, at + 1, places
        return made

    def __getitem__(self, name: str) -> T:
        at = self._places.get(name, self._length)
        if at < self._length:
            known, value = self._items[at]
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in islice(self._items, self._length))

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"GrowingMap({dict(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)  # without the items of newer versions
