"""Locks on open files between OS processes; the system frees a lock when the process that holds it dies.

They are those of ``flock(2)``.  Windows has none that fit: its locks keep others from reading the file, and an open
file can be neither renamed nor removed.  There `HAVE_FLOCK` is False, `try_lock` locks nothing, and callers say what
they do instead.
"""

from __future__ import annotations

try:
    import fcntl
except ImportError:  # on Windows
    HAVE_FLOCK = False
else:
    HAVE_FLOCK = True


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file, until it is closed; return False if another holder has it.

    Args:
        descriptor: Of the open file.
        shared: Other shared locks are let in; an exclusive one is not.

    Raises:
        OSError: The file system has no locks, as some of a network.
    """
    if not HAVE_FLOCK:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
