"""The heads of conversations in a folder: a file of JSON lines for each, with a line for each run that became the head.

A line is written before its run is, so that a line whose run is not there does not count; that of a run which was
deleted later says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fsm_agent._internal.values import Value, from_json, to_json
from fsm_agent.store.errors import StoreError
from fsm_agent.store.folder.run_file import LockedFile, make_folder, safe_name, sync_folder
from fsm_agent.store.folder.run_records import State
from fsm_agent.store.store import Head


class _Entry(Value, frozen=True, omit_defaults=True):
    """A line of the file of a conversation."""

    version: int
    run: str
    is_deleted: bool = False  # otherwise it counts only if the run is there: it is written before


class Conversation:
    """A conversation whose file is locked.

    Args:
        name: Its name.
        file: The file.
        state_of: Returns the state of a run; None: there is none.
    """

    def __init__(self, name: str, file: LockedFile, state_of: Callable[[str], State | None]) -> None:
        self._name = name
        self._file = file
        self._state_of = state_of

    def head(self) -> Head:
        """Return where it stands: at the newest run that was created, or was before it was deleted."""
        for entry in reversed(self._entries()):
            now = Head(self._name, entry.version, entry.run)
            if entry.is_deleted:
                return now
            state = self._state_of(entry.run)
            if state is not None and is_head(state, now):
                return now
        return Head(self._name)

    def move(self, version: int, run: str, *, is_deleted: bool = False) -> None:
        """Have a run be the head from now on, once it is there, or although it is deleted."""
        size = self._file.read().rfind(b"\n") + 1
        self._file.write(to_json(_Entry(version, run, is_deleted)).encode() + b"\n", size)
        self._file.sync()
        if not size:
            sync_folder(Path(self._file.path).parent)

    def _entries(self) -> list[_Entry]:
        """Return the lines of the file; one that was cut off does not count."""
        lines = self._file.read().split(b"\n")[:-1]
        try:
            return [from_json(line, _Entry) for line in lines]
        except ValueError as error:
            raise StoreError(f"{self._file.path!r} is damaged: {error}") from None


class Conversations:
    """The folder of conversations, which is made if it is not there.

    Args:
        folder: The folder.
        state_of: Returns the state of a run; None: there is none.
    """

    def __init__(self, folder: Path, state_of: Callable[[str], State | None]) -> None:
        make_folder(folder)
        self._folder = folder
        self._state_of = state_of

    @contextmanager
    def locked(self, name: str) -> Iterator[Conversation]:
        """Lend a conversation that nobody else sees or moves meanwhile."""
        with LockedFile(self._path(name), create=True) as file:
            yield Conversation(name, file, self._state_of)

    def head(self, name: str) -> Head:
        """Return where a conversation stands; no file is made for one that has no runs."""
        if not Path(self._path(name)).exists():
            return Head(name)
        with self.locked(name) as conversation:
            return conversation.head()

    def _path(self, name: str) -> str:
        return f"{self._folder}/{safe_name(name)}.jsonl"


def is_head(state: State, head: Head) -> bool:
    """Return True if a run became this head when it was created."""
    follows = state.begun.follows
    return follows is not None and (follows.conversation, follows.version + 1) == (head.conversation, head.version)
