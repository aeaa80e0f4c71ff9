"""An immutable mapping that is cheap to add to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from fsm_agent._internal.vector import Vector

T = TypeVar("T")
_NO_ITEMS: Mapping[str, Any] = MappingProxyType({})
_new = object.__new__

# With plain dictionaries, a journal of 5,000 members, 8 at once, keeps 370 MB in place of 60; a map of pyrsistent has
# no order.


class GrowingMap(Mapping[str, T]):
    """A persistent mapping: adding an item returns a new mapping in constant time, and leaves the old one unchanged.

    Versions share a `Vector` of the items, and a dict of the indexes of their names.  An index is valid for a version
    whose vector has the name at that place.  A version that would need another index for a name gets a dict of its own.
    An empty mapping never shares its dict, so that it can be the default of many.
    """

    __slots__ = ("_indexes", "_items")

    _indexes: dict[str, int]
    _items: Vector[tuple[str, T]]

    def __init__(self, items: Mapping[str, T] = _NO_ITEMS) -> None:
        self._items = Vector(items.items())
        self._indexes = {name: index for index, name in enumerate(items)}

    def added(self, name: str, value: T) -> GrowingMap[T]:
        """Return this mapping with one more item, under a new name."""
        last, items = self._items._length, self._items.push((name, value))  # `len` would cost two more calls
        indexes = self._indexes if last else {}
        if indexes.setdefault(name, last) != last:
            indexes = {known: index for index, (known, _) in enumerate(items)}
        made: GrowingMap[T] = _new(GrowingMap)
        made._indexes, made._items = indexes, items
        return made

    def __getitem__(self, name: str) -> T:
        index = self._indexes.get(name, len(self._items))
        if index < len(self._items):
            known, value = self._items[index]
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items)

    def __len__(self) -> int:
        return self._items._length

    def __repr__(self) -> str:
        return f"GrowingMap({dict(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)  # without the items of newer versions
