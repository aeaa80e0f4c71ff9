"""File locks that tell the stores of one machine that a holder's OS process is dead, before its leases expire.

Each store that holds leases is an *instance*, and keeps a file in a folder beside the database locked while it lives.
The system frees the lock when the OS process dies, however it dies.  So a file that can be locked is that of a dead
instance.  Missing files and I/O errors are ignored: the leases then expire normally.  So they do on Windows, which has
no such locks.
"""

from __future__ import annotations

import os
import stat
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fsm_agent._internal.file_locks import HAVE_FLOCK, try_lock

UNKNOWN = ""  # the instance of leases whose holder's liveness cannot be checked
_OURS = stat.S_IRUSR | stat.S_IWUSR | stat.S_IXUSR


class HolderLiveness:
    """The folder of locks, and the lock of one instance among them; thread-safe.

    Args:
        folder: The folder, which is created with the first lease.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._instance: str | None = None  # None: it has held no lease yet
        self._descriptor = -1

    def instance(self, is_used: Callable[[str], bool]) -> str:
        """Return the name of this instance, locked from the first call on; `UNKNOWN` where it cannot be locked.

        Args:
            is_used: Returns whether an instance has leases; the files of dead instances without leases are removed.
        """
        if self._instance is None:
            with self._lock:
                if self._instance is None:
                    self._instance = self._begin(is_used)
        return self._instance

    def is_dead(self, instance: str) -> bool:
        """Return True if the OS process of this instance is known to be dead."""
        with self._locked_if_dead(instance) as is_dead:
            return is_dead

    def end(self, is_used: Callable[[str], bool]) -> None:
        """Unlock this instance; its file stays while it has leases, so that others can tell that it is dead."""
        with self._lock:
            if self._instance and not is_used(self._instance):
                self._remove(self._instance)
            self.abandon()

    def abandon(self) -> None:
        """Close the file; an OS process that shares it by a fork keeps the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._instance = -1, UNKNOWN

    @contextmanager
    def _locked_if_dead(self, instance: str) -> Iterator[bool]:
        if not HAVE_FLOCK or instance in (UNKNOWN, self._instance):
            yield False
            return
        try:
            descriptor = os.open(self._file(instance), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            yield False
            return
        try:
            is_dead = try_lock(descriptor, shared=True)  # so that many can check at the same time
        except OSError:
            is_dead = False
        try:
            yield is_dead
        finally:
            os.close(descriptor)

    def _begin(self, is_used: Callable[[str], bool]) -> str:
        if not HAVE_FLOCK:
            return UNKNOWN
        try:
            self._folder.mkdir(mode=_OURS, exist_ok=True)
            self._folder.chmod(stat.S_IMODE(self._folder.stat().st_mode) & _OURS)
            for instance in self._others():
                with self._locked_if_dead(instance) as is_dead:
                    if is_dead and not is_used(instance):
                        self._remove(instance)
            return self._create()
        except OSError:
            return UNKNOWN

    def _others(self) -> Iterator[str]:
        return (path.stem for path in self._folder.glob("*.lock"))

    def _create(self) -> str:
        """Create and lock a file."""
        # Until the file is locked, another store takes it for that of a dead instance, and removes it.  Hence the
        # check of its number of links behind the lock, and the next attempt under another name.
        while True:
            instance = uuid.uuid4().hex
            descriptor = os.open(self._file(instance), os.O_RDWR | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
            try:
                is_locked = try_lock(descriptor)
            except OSError:  # a file system without locks
                os.close(descriptor)
                self._remove(instance)
                raise
            if is_locked and os.fstat(descriptor).st_nlink:
                self._descriptor = descriptor
                return instance
            if not is_locked:  # another store is checking it
                self._remove(instance)
            os.close(descriptor)

    def _remove(self, instance: str) -> None:
        with suppress(OSError):
            self._file(instance).unlink()

    def _file(self, instance: str) -> Path:
        return self._folder / f"{instance}.lock"
