"""Repair of nearly-JSON by json_repair, in bounded time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex

from fsm_agent._internal.lazy_import import deferred

if TYPE_CHECKING:
    import json_repair
else:
    json_repair = deferred("json_repair")

_LOOKS = 8  # per character, on average, are granted to json_repair; it takes 2 to 4 where it succeeds
_MAX_LOOKS = 200_000  # a second or two of hostile text


def repaired(document: str, looks: list[int]) -> str:
    """Return nearly-JSON as json_repair mends it; "" when it fails, or needs more than ``looks``.

    It looks ahead and starts over, so hostile text takes it more than quadratic time (3,000 characters: 12 s), and it
    fails with exceptions of its own.
    """
    try:
        return str(json_repair.repair_json(_Metered.of(document, looks), skip_json_loads=True))
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return ""


def granted(text: str) -> list[int]:
    """Return how many looks all repairs of parts of ``text`` may take together, to be counted down."""
    return [min(_LOOKS * len(text), _MAX_LOOKS)]


class _OutOfLooks(RuntimeError):
    """A metered text was read too often; never leaves this module."""


class _Metered(str):
    """Text that can be read only so often: bounds the work of its reader, whatever its algorithm."""

    __slots__ = ("looks",)
    looks: list[int]  # how many are left; one list for all slices of a text

    @classmethod
    def of(cls, text: str, looks: list[int]) -> _Metered:
        metered = cls(text)
        metered.looks = looks
        metered.pay(1 + len(text) // 16)
        return metered

    def pay(self, looks: int) -> None:
        self.looks[0] -= looks
        if self.looks[0] < 0:
            raise _OutOfLooks

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        result = str.__getitem__(self, key)
        if isinstance(key, slice):
            return _Metered.of(result, self.looks)
        self.pay(1)
        return result

    def __add__(self, other: str) -> _Metered:
        return _Metered.of(str.__add__(self, other), self.looks)

    def __iter__(self) -> Iterator[str]:
        self.pay(len(self))
        return str.__iter__(self)

    def find(self, wanted: str, start: Any = 0, end: Any = None, /) -> int:
        result = str.find(self, wanted, start, end)
        self.pay(1 + ((len(self) if result < 0 else result) - start) // 16)
        return result
