"""The renewer of leases: one thread that renews the leases of an OS process, and looks for letters."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsm_agent.store.recorder import StoreRecorder

LEASE_S = 15.0  # how long a run stays with a holder that gives no sign
POLL_S = 1.0  # how often letters are looked for, beside each append
IDLE_BEATS = 5  # without a lease; then the thread ends
MIN_S = 0.01  # between two renewals of a lease, however short it is
_log = logging.getLogger("fsm_agent")


class LeaseRenewer:
    """Renews each lease when a third of its time is over, and looks for letters at each beat.

    The thread begins with the first lease, and ends when there has been none for a while.  It beats once in a second,
    and earlier if a lease has to be renewed by then.
    """

    def __init__(self) -> None:
        self._renewals: dict[StoreRecorder, float] = {}  # when each is due, monotonic
        self._changed = threading.Condition()
        self._beats_at_s = math.inf  # monotonic
        self._thread: threading.Thread | None = None

    def hold(self, recorder: StoreRecorder) -> None:
        """Renew a lease from now on."""
        with self._changed:
            self._renewals[recorder] = at_s = _next_s(recorder)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, daemon=True, name="fsm_agent leases")
                self._thread.start()
            elif at_s < self._beats_at_s:
                self._changed.notify()

    def drop(self, recorder: StoreRecorder) -> None:
        """Renew a lease no longer."""
        with self._changed:
            self._renewals.pop(recorder, None)

    def ring(self, run: str) -> None:
        """Have a run looked at for letters now, if it is driven here."""
        for recorder in self._recorders():
            if recorder.run == run:
                recorder.fetch()

    def forget(self) -> None:
        """Begin anew in a forked process, which has no threads and no leases."""
        self.__init__()  # type: ignore[misc]

    def _recorders(self) -> list[StoreRecorder]:
        with self._changed:
            return list(self._renewals)

    def _beat(self) -> None:
        idle, polls_at_s = 0, time.monotonic() + POLL_S
        while idle < IDLE_BEATS:
            self._wait(polls_at_s)
            is_poll = time.monotonic() >= polls_at_s
            recorders = self._recorders()
            for recorder in recorders:
                try:
                    self._renew_or_fetch(recorder, is_poll=is_poll)
                except Exception as error:  # the store is away: the next beat may reach it
                    _log.warning("run %s: its lease could not be renewed: %s", recorder.run, error)
            if is_poll:
                polls_at_s = time.monotonic() + POLL_S
                idle = 0 if recorders else idle + 1
            if idle >= IDLE_BEATS and not self._end_if_idle():
                idle = 0

    def _wait(self, until_s: float) -> None:
        """Wait until then, or until the earliest renewal is due, also of a lease that comes meanwhile."""
        with self._changed:
            while True:
                self._beats_at_s = min([until_s, *self._renewals.values()])
                left_s = self._beats_at_s - time.monotonic()
                if left_s <= 0.0:
                    return
                self._changed.wait(left_s)

    def _end_if_idle(self) -> bool:
        """End the thread, unless a lease has just come."""
        with self._changed:
            if not self._renewals:
                self._thread = None
            return self._thread is None

    def _renew_or_fetch(self, recorder: StoreRecorder, *, is_poll: bool) -> None:
        if time.monotonic() >= self._renewals.get(recorder, math.inf):
            try:
                recorder.renew()
            finally:
                with self._changed:
                    if recorder in self._renewals:  # it was not dropped meanwhile
                        self._renewals[recorder] = _next_s(recorder)
        elif is_poll and not recorder.store.is_volatile:
            recorder.fetch()


def _next_s(recorder: StoreRecorder) -> float:
    """Return the monotonic time at which a lease that begins or is renewed now has to be renewed."""
    return time.monotonic() + max(MIN_S, recorder.lease_s / 3)


RENEWER = LeaseRenewer()
os.register_at_fork(after_in_child=RENEWER.forget)
