"""An immutable sequence that is cheap to append to, and an immutable mapping that is cheap to add to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import is_
from types import MappingProxyType
from typing import Any, TypeVar, overload

T = TypeVar("T")
_new = object.__new__

# A journal keeps the record after each step.  With tuples, a stored call of 2,000 rounds would take three times as long
# and 350 MB.  With pyrsistent's vectors, it would take two and a half times as long.


class Vector(Sequence[T]):
    """A persistent vector: appending returns a new vector in constant time, and leaves the old one unchanged.

    Versions share one list of items, and differ in how much of it they use.  The first append to the end of the list
    extends it in place, whereas an append to an older version copies the list.  Both are thread-safe, because the loser
    of a race sees another item in its slot and copies the list too.  An empty vector never shares its list, so it can
    be used as a default.
    """

    __slots__ = ("_items", "_length")

    _items: list[T]
    _length: int

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    def extend(self, items: Sequence[T]) -> Vector[T]:
        """Return this vector with all of ``items`` at its end."""
        if len(items) == 1:
            return self.push(items[0])
        shared, start = self._items, self._length
        if not start or len(shared) != start:
            shared = shared[:start]
        shared.extend(items)
        if not all(map(is_, shared[start : start + len(items)], items)):  # another thread was first
            shared = [*shared[:start], *items]
        view: Vector[T] = _new(Vector)
        view._items, view._length = shared, start + len(items)
        return view

    def push(self, item: T) -> Vector[T]:
        """Return this vector with one more item.  This is faster than `extend`."""
        shared, start = self._items, self._length
        if not start or len(shared) != start:
            shared = shared[:start]
        shared.append(item)
        if shared[start] is not item:
            shared = [*shared[:start], item]
        view: Vector[T] = _new(Vector)
        view._items, view._length = shared, start + 1
        return view

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple([self._items[i] for i in range(*index.indices(self._length))])
        if not -self._length <= index < self._length:
            raise IndexError(f"index {index} of a vector of {self._length}")
        return self._items[index % self._length]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vector):
            return NotImplemented
        return self._length == other._length and (self._items is other._items or tuple(self) == tuple(other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Vector({list(self)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (list(self),)  # without the items of newer versions


_NO_ITEMS: Mapping[str, Any] = MappingProxyType({})

# With plain dictionaries, a journal of 5,000 members, 8 at once, would keep 370 MB instead of 60.  pyrsistent's map has
# no order.


class GrowingMap(Mapping[str, T]):
    """A persistent mapping: adding an item returns a new mapping in constant time, and leaves the old one unchanged.

    Versions share a `Vector` with the items, and a dict that maps names to indexes.  A version that needs another index
    for a name gets its own dict.  An empty mapping never shares its dict, so it can be used as a default.
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
