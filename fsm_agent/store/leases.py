"""Renews the leases of drivers that are alive, and ends the leases of dead OS processes early.

One thread in each OS process renews the leases and fetches signals.  `fsm_agent.store.sql.statements` decides whether a
lease has expired.

File locks tell other stores on the same machine that a holder's OS process is dead, before its leases expire.  Each
store that holds leases is an *instance*, which has a file in a folder next to the database and keeps that file locked
while it is alive.  The system frees the lock when the OS process dies, so a file that can be locked belongs to a dead
instance.  If a file is missing or cannot be read, the leases expire normally, as they always do on Windows, which has
no such locks.
"""

from __future__ import annotations

import logging
import math
import os
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fsm_agent._internal.system import HAVE_FLOCK, at_fork, try_lock
from fsm_agent.store.errors import StoreClosed, StoreError
from fsm_agent.store.store import Store

if TYPE_CHECKING:
    from fsm_agent.store.recorder import StoreRecorder

LEASE_S = 15.0  # how long a holder keeps a run without renewing its lease
POLL_S = 1.0  # how often signals are fetched, besides after each append
IDLE_BEATS = 5  # the thread ends after this many beats without a lease
MIN_S = 0.01  # the shortest time between two renewals of a lease
EARLIER = 1 / 6  # a lease may be renewed along with another, early by up to this share of its length
UNKNOWN = ""  # the instance of leases whose holder's liveness cannot be checked
_OURS = stat.S_IRUSR | stat.S_IWUSR | stat.S_IXUSR
_UNFETCHED = "signals could not be fetched"
_log = logging.getLogger("fsm_agent")


class LeaseRenewer:
    """Renews each lease once a third of its time has passed, and fetches signals every second.

    The thread starts with the first lease, and ends after a while without leases.  A store's leases that are due at
    about the same time are renewed together, and one query finds the runs with signals, so a thousand runs cost little
    more than one.
    """

    def __init__(self) -> None:
        self._renewals: dict[StoreRecorder, float] = {}  # when each is due, monotonic
        self._changed = threading.Condition()
        self._beats_at_s = math.inf  # monotonic
        self._thread: threading.Thread | None = None

    def hold(self, recorder: StoreRecorder) -> None:
        """Start renewing a lease."""
        with self._changed:
            self._renewals[recorder] = at_s = _next_s(recorder)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, daemon=True, name="fsm_agent leases")
                self._thread.start()
            elif at_s < self._beats_at_s:
                self._changed.notify()

    def drop(self, recorder: StoreRecorder) -> None:
        """Stop renewing a lease."""
        with self._changed:
            self._renewals.pop(recorder, None)

    def ring(self, run: str) -> None:
        """Fetch the signals of a run now, if this OS process drives it.  If the store fails, they are fetched later."""
        for recorder in self._recorders():
            if recorder.run == run:
                with suppress(StoreError):  # the signal is stored, so its sender must not see an error
                    recorder.fetch()

    def forget(self) -> None:
        """Start afresh in a forked process, which has no threads and no leases."""
        recorders = list(self._renewals)
        self.__init__()  # type: ignore[misc]
        for recorder in recorders:
            recorder.leave_to_parent()

    def _recorders(self) -> list[StoreRecorder]:
        with self._changed:
            return list(self._renewals)

    def _beat(self) -> None:
        idle, polls_at_s = 0, time.monotonic() + POLL_S
        while idle < IDLE_BEATS:
            self._wait(polls_at_s)
            is_poll = time.monotonic() >= polls_at_s
            recorders = self._recorders()
            for (store, lease_s), group in _grouped(recorders).items():
                try:
                    self._renew(store, lease_s, group)
                    if is_poll and not store.is_volatile:
                        _fetch(store, group)
                except StoreClosed as error:  # for good; the next write tells the drivers
                    _log.warning("%s: the lease is no longer renewed: %s", _named(group), error)
                    for recorder in group:
                        self.drop(recorder)
            if is_poll:
                polls_at_s = time.monotonic() + POLL_S
                idle = 0 if recorders else idle + 1
            if idle >= IDLE_BEATS and not self._end_if_idle():
                idle = 0

    def _wait(self, until_s: float) -> None:
        """Wait until ``until_s`` or the earliest renewal, including renewals of leases that are added meanwhile."""
        with self._changed:
            while True:
                self._beats_at_s = min([until_s, *self._renewals.values()])
                left_s = self._beats_at_s - time.monotonic()
                if left_s <= 0.0:
                    return
                self._changed.wait(left_s)

    def _end_if_idle(self) -> bool:
        with self._changed:
            if not self._renewals:
                self._thread = None
            return self._thread is None

    def _renew(self, store: Store, lease_s: float, recorders: list[StoreRecorder]) -> None:
        """Renew the leases that are due now or soon, if one is due now."""
        now_s = time.monotonic()
        at_s = {recorder: self._renewals.get(recorder, math.inf) for recorder in recorders}
        if now_s < min(at_s.values()):
            return
        due = [recorder for recorder in recorders if at_s[recorder] <= now_s + lease_s * EARLIER]
        try:
            with _logged(due, "the lease could not be renewed"):
                for recorder, result in zip(due, store.renew_all([r.lease for r in due], for_s=lease_s), strict=True):
                    with _logged([recorder], _UNFETCHED):
                        recorder.note_renewal(result)
        finally:
            with self._changed:
                for recorder in due:
                    if recorder in self._renewals:  # it may have been dropped meanwhile
                        self._renewals[recorder] = _next_s(recorder)


def _fetch(store: Store, recorders: list[StoreRecorder]) -> None:
    with _logged(recorders, _UNFETCHED):
        runs = store.pending_signals([recorder.run for recorder in recorders])
        for recorder in recorders:
            if recorder.run in runs:
                with _logged([recorder], _UNFETCHED):
                    recorder.fetch()


@contextmanager
def _logged(recorders: list[StoreRecorder], what: str) -> Iterator[None]:
    """Log a failure of the store or of a run.  The next beat tries again, unless the store was closed."""
    try:
        yield
    except StoreClosed:
        raise
    except Exception as error:
        _log.warning("%s: %s: %s", _named(recorders), what, error)


def _grouped(recorders: Iterable[StoreRecorder]) -> dict[tuple[Store, float], list[StoreRecorder]]:
    groups: dict[tuple[Store, float], list[StoreRecorder]] = {}
    for recorder in recorders:
        groups.setdefault((recorder.store, recorder.lease_s), []).append(recorder)
    return groups


def _named(recorders: list[StoreRecorder]) -> str:
    others = len(recorders) - 1
    return f"run {recorders[0].run}" + (f" and {others} more" if others else "")


def _next_s(recorder: StoreRecorder) -> float:
    return time.monotonic() + max(MIN_S, recorder.lease_s / 3)


RENEWER = LeaseRenewer()
at_fork(after_in_child=RENEWER.forget)


class LeaseLocks:
    """The lock files of instances in a folder.  This class is thread-safe.

    The folder is created with the first lease.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._instance: str | None = None  # None before the first lease
        self._descriptor = -1

    def instance(self, is_used: Callable[[str], bool]) -> str:
        """Return the name of this instance, or `UNKNOWN` if its file cannot be locked.  The first call locks the file.

        Args:
            is_used: A function that returns whether an instance has leases.  The files of dead instances without leases
                are removed.
        """
        with self._lock:
            if self._instance is None:
                self._instance = self._begin(is_used)
            return self._instance

    def is_dead(self, instance: str) -> bool:
        """Return True if the OS process of an instance is known to be dead."""
        with self._locked_if_dead(instance) as is_dead:
            return is_dead

    def end(self, is_used: Callable[[str], bool]) -> None:
        """Unlock this instance.

        The file is kept while the instance has leases, so that others can tell that the instance is dead.
        """
        with self._lock:
            if self._instance and not is_used(self._instance):
                self._remove(self._instance)
            self.abandon()

    def abandon(self) -> None:
        """Close the file.  If another OS process shares it because of a fork, that process keeps the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._instance = -1, UNKNOWN

    @contextmanager
    def _locked_if_dead(self, instance: str) -> Iterator[bool]:
        descriptor, is_dead = -1, False
        if HAVE_FLOCK and instance not in (UNKNOWN, self._instance):
            with suppress(OSError):  # the file is missing, or cannot be locked
                descriptor = os.open(self._file(instance), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                is_dead = try_lock(descriptor, shared=True)  # so that many can check at the same time
        try:
            yield is_dead
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _begin(self, is_used: Callable[[str], bool]) -> str:
        if not HAVE_FLOCK:
            return UNKNOWN
        try:
            self._folder.mkdir(mode=_OURS, exist_ok=True)
            self._folder.chmod(stat.S_IMODE(self._folder.stat().st_mode) & _OURS)
            for instance in [path.stem for path in self._folder.glob("*.lock")]:
                with self._locked_if_dead(instance) as is_dead:
                    if is_dead and not is_used(instance):
                        self._remove(instance)
            return self._create()
        except OSError:
            return UNKNOWN

    def _create(self) -> str:
        # Until the file is locked, another store may think that its instance is dead, and remove it.  So the number
        # of links is checked once the file is locked, and a removed file is replaced under another name.
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
