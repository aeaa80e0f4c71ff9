"""Registries, which hold named entries of one kind, such as providers, clients or agent classes.

Agent classes with an ``agent_type`` are registered in `fsm_agent.agents.agent_base.AGENTS` when they are defined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

from fsm_agent._internal.text import guess

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A read-only mapping from names to the entries of this OS process.  `register` adds an entry.

    Args:
        kind: The word that messages use for an entry.
        error: The class of the errors that the registry raises.
        entries: The initial entries.
        source: A function that returns the place of an entry's code, or None if another entry may have the same place.
            A new entry from the same place, as after a reload of its module, replaces the current one.
        remedy: The text that tells users how to resolve a name conflict.
    """

    def __init__(
        self,
        kind: str,
        error: type[Exception],
        entries: Mapping[str, T] | None = None,
        *,
        source: Callable[[T], str | None] | None = None,
        remedy: str = "pass overwrite=True",
    ) -> None:
        self.kind = kind
        self._error = error
        self._source = source
        self._remedy = remedy
        self._entries = dict(entries or {})

    def register(self, name: str, entry: T, *, overwrite: bool = False) -> T:
        """Add an entry, and return it, so that one expression can make and register it.

        Raises:
            Exception: If another entry has the name, and ``overwrite`` is False.
        """
        known = self._entries.setdefault(name, entry)
        if known is entry:
            return entry
        is_reloaded = self._source is not None and self._source(entry) == self._source(known) is not None
        if not (overwrite or is_reloaded):
            has_names = hasattr(entry, "__qualname__") and hasattr(known, "__qualname__")  # values are not shown
            taken = f"{self.kind} {name!r} of {path_of(entry)} is taken by {path_of(known)}" if has_names else ""
            taken = taken or f"the {self.kind} {name!r} is registered already"
            raise self._error(f"{taken}; take another name, or {self._remedy}")
        self._entries[name] = entry
        return entry

    def find(self, name: str) -> T:
        """Return the entry with this name.

        Raises:
            Exception: If no entry has the name.  The message suggests a similar name.
        """
        if name in self._entries:
            return self._entries[name]
        raise self._error(f"no {self.kind} {name!r:.80} is registered{self.hint(name)}")

    def hint(self, name: str) -> str:
        """Return a suggestion to append to a message about an unknown name."""
        meant = guess(name, self) or guess(name.strip().lower(), self)
        return f"{meant}; known are {', '.join(sorted(self)) or 'none'}"

    @contextmanager
    def scoped(self) -> Iterator[Self]:
        """Undo the registrations made inside the block when it ends, for tests."""
        before = dict(self._entries)
        try:
            yield self
        finally:
            self._entries.clear()
            self._entries.update(before)

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {sorted(self)})"


def path_of(named: Any) -> str:
    """Return the module and name of a class or function."""
    return f"{named.__module__}.{named.__qualname__}"


def source_of(code: Any) -> str | None:
    """Return the path of a class or function, or None for one that others may share, such as that of a lambda."""
    return None if "<" in getattr(code, "__qualname__", "<") else path_of(code)
