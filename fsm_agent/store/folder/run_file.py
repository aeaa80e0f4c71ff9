"""The files of a `FolderStore`: locked for whoever uses them, owner-only, and folded from where one left off.

Threads and OS processes take turns at a file.  What was written is forced to the disk by `RunFile.commit`, together
with all that was written to the file before; if that fails, the file is again as it was.

More than 300 lines, because what is written, folded and read again shares the lock and the state of one file.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

from fsm_agent.errors import UsageError
from fsm_agent.store.errors import StoreError
from fsm_agent.store.folder.run_records import (
    DamagedError,
    Record,
    State,
    TornError,
    decoded,
    encoded,
    folded,
    line_of,
)

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
_LONGEST = 150  # characters of a name as it is; file systems take 255 bytes
_OPEN = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)

open_descriptors: set[int] = set()  # of this OS process; those that a fork copies are closed there


def check_locks() -> None:
    """Refuse a system without locks.

    Raises:
        UsageError: It has none.
    """
    if fcntl is None:
        raise UsageError("a FolderStore needs flock, which this system lacks: SqliteStore is right here")


@lru_cache(maxsize=4096)
def safe_name(text: str) -> str:
    """Return a name for the file of any text: never a path, never too long, and no two are equal.

    It is lower case, as some file systems take "a" and "A" for one.
    """
    name = "".join([char if char in _PLAIN else "".join([f"%{byte:02x}" for byte in char.encode()]) for char in text])
    return name if len(name) <= _LONGEST else f"{name[:100]}~{hashlib.sha256(text.encode()).hexdigest()[:40]}"


class LockedFile:
    """A file that nobody else has while it is entered; failures of the system are errors of a store that name it.

    Args:
        path: The file.
        create: Make it if it is not there.
    """

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.path = path
        self.descriptor = -1  # -1: it is not there
        self.size = 0
        self._flags = _OPEN | (os.O_CREAT if create else 0)

    def __enter__(self) -> Self:
        try:
            self._open()
        except OSError as error:
            raise self._refused(error) from error
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._close()
        if isinstance(error, OSError):
            raise self._refused(error) from error

    def status(self) -> os.stat_result:
        """Return its size, inode and times."""
        return os.fstat(self.descriptor)

    def read(self, start: int = 0) -> bytes:
        """Return its bytes from this one on."""
        pieces = []
        while piece := os.pread(self.descriptor, 1 << 24, start):
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)

    def write(self, data: bytes, at: int) -> None:
        """Write bytes, and end the file behind them; if that fails, the file ends before them."""
        left, end = memoryview(data), at
        try:
            if self.size > at:
                self.cut(at)
            while left:
                written = os.pwrite(self.descriptor, left, end)
                left, end = left[written:], end + written
        except BaseException:
            self.cut(at)
            raise
        self.size = end

    def cut(self, size: int) -> None:
        """Drop what is behind the first bytes."""
        os.ftruncate(self.descriptor, size)
        self.size = size

    def sync(self) -> None:
        """Force it to the disk."""
        os.fsync(self.descriptor)

    def _open(self) -> None:
        """Open and lock the file, unless it is not there when it is locked: it may be deleted meanwhile."""
        while True:
            try:
                descriptor = os.open(self.path, self._flags, stat.S_IRUSR | stat.S_IWUSR)
            except FileNotFoundError:
                if self._flags & os.O_CREAT:
                    raise
                return
            self.descriptor = descriptor
            open_descriptors.add(descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                status = os.fstat(descriptor)
                if status.st_nlink:
                    self.size = status.st_size
                    return
            except BaseException:
                self._close()
                raise
            self._close()

    def _refused(self, error: OSError) -> StoreError:
        return StoreError(f"{self.path!r}: {error.strerror or error}")

    def _close(self) -> None:
        if (descriptor := self.descriptor) >= 0:
            self.descriptor = -1
            open_descriptors.discard(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork may have copied the descriptor
            os.close(descriptor)


class Known(NamedTuple):
    """A run's file as it was left."""

    state: State | None  # None: no run was created there, or not to the end
    version: tuple[int, int, int]  # another one if the file has changed
    begin: bytes  # its first line, which no other run has


class RunFile(LockedFile):
    """The file of a run while it is entered: its state, and how records are added to it.

    Args:
        folder: The folder of all runs.
        name: The name of the file, without its ending.
        known: What is known of all files, by name; it is brought up to date.
        create: Make the file if it is not there.
    """

    def __init__(self, folder: str, name: str, known: dict[str, Known], *, create: bool = False) -> None:
        super().__init__(f"{folder}/{name}.jsonl", create=create)
        self.state: State | None = None  # None: no run was created there, or not to the end
        self._committed: State | None = None
        self._begin = b""  # its first line, which no other run has
        self._name, self._known = name, known

    def __enter__(self) -> Self:
        super().__enter__()
        if self.descriptor < 0:
            self._known.pop(self._name, None)
            return self
        try:
            self.state = self._committed = self._folded(self._known.get(self._name))
            if self.state is not None and safe_name(self.state.begun.id) != self._name:
                raise StoreError(f"{self.path!r} is the file of another run, {self.state.begun.id!r}")
        except OSError as error:
            self._close()
            raise self._refused(error) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if self.descriptor >= 0:
                if self.state is not self._committed:  # it was not committed
                    self.state = self._committed
                    self.cut(0 if self.state is None else self.state.size)
                self._keep()
        finally:
            super().__exit__(kind, error, traceback)

    def write(self, record: Record, lines: Sequence[str] = ()) -> State:  # type: ignore[override]
        """Add a record, which others see once it is committed."""
        at = 0 if self.state is None else self.state.size
        record, data = encoded(record, lines)
        super().write(data, at)
        self.state = folded(self.state, record, at + len(data))
        return self.state

    def commit(self, *, is_forced: bool = True) -> None:
        """Force all that was written to the disk; or leave it to the system when that is done."""
        if is_forced:
            self.sync()
        self._committed = self.state

    def records(self, start: int = 0) -> Iterator[tuple[Record, bytes, int]]:
        """Yield its records from this byte on, which were folded; see `decoded`.

        Raises:
            StoreError: The file has been damaged since.
        """
        try:
            yield from decoded(self.read(start), start)
        except DamagedError as error:
            raise StoreError(f"{self.path!r} is damaged {error}") from None

    def header(self) -> str:
        """Return the header of the run."""
        assert self.state is not None, f"{self.path} has no run yet"
        begun = self.state.begun
        return os.pread(self.descriptor, begun.bytes, len(line_of(begun))).decode()[:-1]

    def _keep(self) -> None:
        status = self.status()
        if status.st_nlink:
            begin = self._begin or (line_of(self.state.begun) if self.state is not None else b"")
            self._known[self._name] = Known(self.state, version_of(status), begin)
        else:
            self._known.pop(self._name, None)

    def _folded(self, known: Known | None) -> State | None:
        state = known.state if known is not None else None
        if known is not None and state is not None:  # the inode of a deleted file may be another one's now
            if state.size > self.size or os.pread(self.descriptor, len(known.begin), 0) != known.begin:
                state = None
            else:
                self._begin = known.begin
        start = 0 if state is None else state.size
        if start == self.size:
            return state
        try:
            for record, _, end in decoded(self.read(start), start):
                state = folded(state, record, end)
        except TornError as torn:
            logging.getLogger("fsm_agent").warning(
                "%s ended in the midst of a record: %d bytes that nobody was told to be written are dropped",
                *(self.path, self.size - torn.size),
            )
            self.cut(torn.size)
        except DamagedError as error:
            raise StoreError(f"{self.path!r} is damaged {error}") from None
        return state


def version_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return another value for each state of a file."""
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def explained(path: str | Path) -> Iterator[None]:
    """Have failures of the system name the file, as errors of a store."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{str(path)!r}: {error.strerror or error}") from error


def make_folder(path: Path) -> None:
    """Make a folder for the owner alone, with those above it, unless it is there."""
    with explained(path):
        if not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=stat.S_IRWXU, exist_ok=True)
            sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Force the names in a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def close_copies() -> None:
    """Close what belongs to the other OS process, after a fork."""
    while open_descriptors:
        os.close(open_descriptors.pop())
