"""Replace a file that holds a conversation atomically, and keep it unreadable to other users.

The text is written to a new file beside the old one, synced to disk, and then renamed: a reader that has the old file
open reads the old text.  The new file's name is ``.name.0.new``, or the next number if that is taken.  Its writer holds
a lock on it, which the system frees when the process dies.  So a later writer can tell the files of dead processes from
those of live ones, and removes them.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from contextlib import suppress
from pathlib import Path

from fsm_agent._internal.system import HAVE_FLOCK, try_lock

_OWNERS = stat.S_IRUSR | stat.S_IWUSR
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_CLEANED = 16  # how many of the names are checked after each write
_UNABLE = (errno.EACCES, errno.EINVAL, errno.ENOTSUP)  # of unreadable folders and of some network file systems


def write_private(path: Path, data: bytes) -> None:
    """Replace a file; the new one is readable by its owner only, and keeps a stricter mode of the old one.

    Safe to call for one path from many threads and processes at once: the last one wins.

    Raises:
        OSError: If the file cannot be replaced.
    """
    descriptor, fresh = _create(path)
    with os.fdopen(descriptor, "wb") as file:
        try:
            if HAVE_FLOCK:
                os.fchmod(descriptor, _mode_for(path))
            file.write(data)
            file.flush()
            os.fsync(descriptor)
            if HAVE_FLOCK:
                os.replace(fresh, path)
        except BaseException:  # while the lock is held: later the name may be another writer's
            with suppress(OSError):
                fresh.unlink()
            raise
    if not HAVE_FLOCK:  # Windows does not rename an open file
        os.replace(fresh, path)
        return
    _sync_folder(path.parent)
    for slot in range(_CLEANED):
        _remove_if_dead(_new_path(path, slot))


def _new_path(path: Path, slot: int) -> Path:
    return path.with_name(f".{path.name}.{slot}.new")


def _mode_for(path: Path) -> int:
    try:
        return _OWNERS & os.lstat(path).st_mode
    except FileNotFoundError:
        return _OWNERS


def _create(path: Path) -> tuple[int, Path]:
    """Create and lock a new file; return its descriptor and name."""
    for slot in itertools.count():
        fresh = _new_path(path, slot)
        _remove_if_dead(fresh)
        try:
            descriptor = os.open(fresh, _NEW, _OWNERS)
        except FileExistsError:
            continue
        if _lock(descriptor, is_ours=True) and _is_at(descriptor, fresh):
            return descriptor, fresh
        os.close(descriptor)  # another writer took it for that of a dead process before it was locked
    raise AssertionError("unreachable")


def _remove_if_dead(fresh: Path) -> None:
    """Remove a new file whose writer is dead."""
    if not HAVE_FLOCK:
        with suppress(OSError):
            fresh.unlink()
        return
    try:
        descriptor = os.open(fresh, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # nearly always, as the file does not exist
        return
    try:
        if _lock(descriptor, is_ours=False) and _is_at(descriptor, fresh):
            with suppress(OSError):
                fresh.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, is_ours: bool) -> bool:
    """Lock a file; return False if another writer has it, and ``is_ours`` on a file system without locks."""
    try:
        return try_lock(descriptor)
    except OSError:  # some network file systems
        return is_ours


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """Sync the new name to disk, where the system allows it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
