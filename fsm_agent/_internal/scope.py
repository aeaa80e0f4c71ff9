"""Scopes: values that are set for a ``with`` block, and objects that are closed at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, Self, TypeVar


class Closing(ABC):
    """A base for objects that a ``with`` or ``async with`` block closes at its end."""

    @abstractmethod
    def close(self) -> None:
        """Close the object."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the object under asyncio."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


T = TypeVar("T")


class _Block(Generic[T]):
    def __init__(self, value: T, outer: _Block[T] | None) -> None:
        self.value = value
        self.outer = outer
        self.is_open = True


class ScopedValue(Generic[T]):
    """A value for the code inside a ``with`` block and for the tasks and threads that this code starts.

    Concurrent tasks and threads can set different values.  A thread that does not inherit the context, such as a
    `threading.Thread`, sees the value that was set last anywhere in the OS process, so that a test's settings also
    apply to such threads.
    """

    def __init__(self, name: str, default: T) -> None:
        self._default = default
        self._here: ContextVar[_Block[T] | None] = ContextVar(name, default=None)
        self._open: list[_Block[T]] = []  # from all threads; appending and removing are atomic

    def get(self) -> T:
        """Return the current value."""
        if not self._open:
            return self._default
        block = self._here.get()
        while block is not None and not block.is_open:
            block = block.outer
        if block is None:
            block = next(reversed(self._open), None)  # another thread may just have closed the last one
        return self._default if block is None else block.value

    @contextmanager
    def set(self, value: T) -> Iterator[None]:
        """Set the value inside the block."""
        block = _Block(value, self._here.get())
        self._here.set(block)
        self._open.append(block)
        try:
            yield
        finally:
            block.is_open = False
            self._open.remove(block)
            if self._here.get() is block:  # a fixture may be torn down in another context
                self._here.set(block.outer)
