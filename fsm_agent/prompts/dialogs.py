"""Dialogs by name, and which is a fork of which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fsm_agent._internal.hints import hint
from fsm_agent._internal.plain_text import plain
from fsm_agent._internal.values import from_json, to_json
from fsm_agent.errors import SnapshotError, UsageError
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.validation import check


class _Document(msgspec.Struct, omit_defaults=True):
    """Dialogs in JSON."""

    dialogs: dict[str, msgspec.Raw]
    forks: dict[str, str] = {}


class Dialogs(Mapping[str, Dialog]):
    """Dialogs by name: a value.

    A fork keeps no more of where it comes from than a name, so either may change or go without the other.

    Args:
        dialogs: The dialogs, by name.
        forks: By the name of a fork, the name of the dialog that it comes from, which may be gone.

    Raises:
        UsageError: A name is no text or is empty, something is no dialog, or a dialog comes from itself.

    Examples:
        >>> dialogs = Dialogs({"main": Dialog().put("I am Ada.")})
        >>> list(dialogs)
        ['main']
    """

    __slots__ = ("_dialogs", "forks")

    forks: Mapping[str, str]

    def __init__(self, dialogs: Mapping[str, Dialog] | None = None, *, forks: Mapping[str, str] | None = None) -> None:
        held, origins = dict(dialogs or {}), dict(forks or {})
        for name, dialog in held.items():
            is_name = isinstance(name, str) and name != "" and name.isprintable()
            check("the name of a dialog", name, is_name, "a string such as 'main'")
            check(f"the dialog {name!r}", dialog, isinstance(dialog, Dialog), "a Dialog")
        for name, origin in origins.items():
            check(
                f"the origin of the fork {name!r}",
                origin,
                isinstance(origin, str) and origin != "",
                "a string such as 'main'",
            )
            check(
                "the name of a fork",
                name,
                name in held,
                f"the name of a dialog ({', '.join(map(repr, held)) or 'none'})",
            )
        if (looped := _looped(origins)) is not None:
            raise UsageError(
                f"the dialog {looped!r}: expected forks of other dialogs, got one of itself; rename a fork"
            )
        self._dialogs = held
        self.forks = origins

    def put(self, name: str, dialog: Dialog) -> Dialogs:
        """Return these dialogs with another under this name; where there is one, the new one takes its place."""
        return Dialogs({**self._dialogs, name: dialog}, forks=self.forks)

    def fork(self, name: str, new: str, last_n: int | None = None, first_k: int = 1) -> Dialogs:
        """Return these dialogs with a fork of one of them.

        Args:
            name: The name of the one.
            new: The name of the fork.
            last_n: See `Dialog.fork`.
            first_k: See `Dialog.fork`.

        Raises:
            UsageError: There is no dialog of that name, or one that has the new name already.
        """
        if new in self._dialogs:
            raise UsageError(f"the name of a fork: expected a new name, got {new!r}, which exists")
        dialog = self._named(name).fork(last_n, first_k)
        return Dialogs({**self._dialogs, new: dialog}, forks={**self.forks, new: name})

    def without(self, name: str) -> Dialogs:
        """Return the other dialogs; forks of this one stay, with its name as their origin.

        Raises:
            UsageError: There is no dialog of that name.
        """
        self._named(name)
        others = {other: dialog for other, dialog in self._dialogs.items() if other != name}
        return Dialogs(others, forks={fork: origin for fork, origin in self.forks.items() if fork != name})

    def overview(self) -> str:
        """Return a tree of the names: each fork is below the dialog that it comes from, with its number of messages."""
        lines, below = list[str](), dict[str, list[str]]()
        for name in reversed(self._dialogs):
            origin = self.forks.get(name, "")
            below.setdefault(origin if origin in self._dialogs else "", []).append(name)
        waiting = [(name, 0) for name in below.get("", ())]
        while waiting:
            name, depth = waiting.pop()
            origin = self.forks.get(name, "")
            gone = f", from {origin}, which is gone" if origin and origin not in self._dialogs else ""
            lines.append(plain(f"{'  ' * depth}{name}: {len(self._dialogs[name])} message(s){gone}"))
            waiting += [(fork, depth + 1) for fork in below.get(name, ())]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the dialogs and their names as JSON; see `Dialog.to_json`.

        Raises:
            SnapshotError: A message holds a value that could not be read again.
        """
        held = {name: msgspec.Raw(dialog.to_json().encode()) for name, dialog in self._dialogs.items()}
        return to_json(_Document(held, dict(self.forks)))

    @classmethod
    def from_json(cls, document: str | bytes) -> Dialogs:
        """Return the dialogs that `to_json` wrote.

        Raises:
            SnapshotError: The document is damaged.
        """
        try:
            read: _Document = from_json(document, _Document)
            held = {name: Dialog.from_json(bytes(dialog)) for name, dialog in read.dialogs.items()}
            return cls(held, forks=read.forks)
        except ValueError as error:
            raise SnapshotError(f"expected the JSON of dialogs: {error}") from error

    def _named(self, name: str) -> Dialog:
        if name not in self._dialogs:
            raise UsageError(f"expected the name of a dialog, got {name!r}{hint(name, self._dialogs)}")
        return self._dialogs[name]

    def __getitem__(self, name: str) -> Dialog:
        return self._dialogs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dialogs)

    def __len__(self) -> int:
        return len(self._dialogs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dialogs):
            return NotImplemented
        return (self._dialogs, self.forks) == (other._dialogs, other.forks)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Dialogs({', '.join([f'{name}={len(dialog)} message(s)' for name, dialog in self.items()])})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._dialogs, self.forks)


def _looped(origins: Mapping[str, str]) -> str | None:
    """Return the name of a dialog that comes from itself by way of others; None: there is none."""
    sound = set[str]()
    for name in origins:
        way, at = dict[str, None](), name
        while at in origins and at not in sound:
            if at in way:
                return at
            way[at] = None
            at = origins[at]
        sound.update(way)
    return None


def _made(dialogs: Mapping[str, Dialog], forks: Mapping[str, str]) -> Dialogs:
    return Dialogs(dialogs, forks=forks)
