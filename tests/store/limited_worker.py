"""A worker with limits of concurrency, in an OS process of its own: its model notes who else is at work.

A request takes a place: a file that it locks.  The system frees it when the OS process dies, however it dies.  There
are as many places as the limits allow, so one that finds no place has found too many at work, and says so.  To see
who has a place takes a lock as well, so no place is taken meanwhile: the one that is looked at would seem taken.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.slow_agent import SlowModel

from fsm_agent import Agent, Worker
from fsm_agent.lifecycle import Request
from fsm_agent.messages import Reply
from fsm_agent.store import Runs
from fsm_agent.testing import Script

LIMIT, KEY_LIMIT, KEY = 3, 2, "acme"
LEASE_S = 60.0  # one that is slow keeps its runs; of the dead, the store knows at once


class Places:
    """The places in a folder, each locked by who has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def taken(self, kind: str, count: int) -> Iterator[None]:
        with self._door(fcntl.LOCK_SH):
            place = self._free(kind, count)
        if place is None:
            (self.folder / f"crowded-{kind}-{os.getpid()}").touch()
            yield
            return
        try:
            yield
        finally:
            os.close(place)

    def holders(self, kind: str) -> list[int]:
        """Return the OS processes that have places."""
        found = []
        with self._door(fcntl.LOCK_EX):
            for path in self.folder.glob(f"{kind}-*"):
                with path.open() as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    except OSError:
                        found.append(int(file.read()))
        return found

    def _free(self, kind: str, count: int) -> int | None:
        for number in range(count):
            descriptor = os.open(self.folder / f"{kind}-{number}", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                continue
            os.pwrite(descriptor, f"{os.getpid():<8}".encode(), 0)
            return descriptor
        return None

    @contextmanager
    def _door(self, how: int) -> Iterator[None]:
        with (self.folder / "door").open("a") as door:
            fcntl.flock(door, how)
            yield

    @property
    def crowded(self) -> list[str]:
        return [path.name for path in self.folder.glob("crowded-*")]


class PlacedModel(SlowModel):
    """A model that answers when it may."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.places = Places(folder)

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        with self.places.taken("agent", LIMIT):
            if KEY not in request.messages[-1].text:
                return self._answer(request)
            with self.places.taken("key", KEY_LIMIT):
                return self._answer(request)

    def _answer(self, request: Request) -> Reply:
        while not (self.places.folder / "go").exists():
            time.sleep(0.005)
        time.sleep(0.002)
        return Script("Done.").complete(request)


def limited(folder: Path, **options: Any) -> Agent:
    return Agent(PlacedModel(folder), name="limited", **options)


if __name__ == "__main__":
    store, places = sys.argv[1:]
    Worker(
        [limited(Path(places))],
        Runs(store, lease_s=LEASE_S),
        concurrency={"limited": LIMIT},
        key_concurrency=KEY_LIMIT,
    ).run(threads=4)
