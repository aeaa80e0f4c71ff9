"""The heart: one thread that renews the leases of an OS process, and looks for letters."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsm_agent.store.recorder import StoreRecorder

LEASE_S = 15.0  # how long a run stays with a holder that gives no sign
POLL_S = 1.0  # how often letters are looked for, beside each append
_log = logging.getLogger("fsm_agent")


class Heart:
    """Renews each lease when a third of its time is over.

    The thread begins with the first lease, and ends when there has been none for a while.
    """

    def __init__(self) -> None:
        self._renewed: dict[StoreRecorder, float] = {}  # when, monotonic
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def hold(self, recorder: StoreRecorder) -> None:
        """Renew a lease from now on."""
        self._renewed[recorder] = time.monotonic()
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, daemon=True, name="fsm_agent leases")
                self._thread.start()

    def drop(self, recorder: StoreRecorder) -> None:
        """Renew a lease no longer."""
        self._renewed.pop(recorder, None)

    def ring(self, run: str) -> None:
        """Have a run looked at for letters now, if it is driven here."""
        for recorder in list(self._renewed):
            if recorder.run == run:
                recorder.fetch()

    def forget(self) -> None:
        """Begin anew in a forked process, which has no threads and no leases."""
        self.__init__()  # type: ignore[misc]

    def _beat(self) -> None:
        idle = 0
        while idle < 5:
            time.sleep(POLL_S)
            recorders = list(self._renewed)
            idle = 0 if recorders else idle + 1
            for recorder in recorders:
                try:
                    self._look_after(recorder)
                except Exception as error:  # the store is away: the next beat may reach it
                    _log.warning("run %s: its lease could not be renewed: %s", recorder.run, error)
        with self._lock:
            self._thread = None
            left = bool(self._renewed)
        if left:  # one has just come
            self._start()

    def _look_after(self, recorder: StoreRecorder) -> None:
        if time.monotonic() - self._renewed.get(recorder, 0.0) >= recorder.lease_s / 3:
            recorder.renew()
            if recorder in self._renewed:
                self._renewed[recorder] = time.monotonic()
        elif not recorder.store.is_volatile:
            recorder.fetch()


HEART = Heart()
os.register_at_fork(after_in_child=HEART.forget)
