"""Workers in threads, models that answer when they may, and stores that are away at first."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fsm_agent import Agent, Reply
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script
from support.gates import Gate

modes = pytest.mark.parametrize("mode", [{"tasks": 5}, {"threads": 3}], ids=["tasks", "threads"])


class Away(MemoryStore):
    """A store whose server is away at first."""

    def __init__(self, failures, method="claim"):
        super().__init__()
        self.failures = failures  # to come
        works = getattr(self, method)

        def fails(*args, **options):
            if self.failures > 0:
                self.failures -= 1
                raise OSError("the server is away")
            return works(*args, **options)

        setattr(self, method, fails)


def rows(store):
    return {row.id: row for row in store.list(limit=1000)}


def wait_until(condition) -> None:
    for _ in range(20_000):
        if condition():
            return
        threading.Event().wait(0.002)
    raise AssertionError("it never did")


def settle() -> None:
    """Let others go on that should not."""
    threading.Event().wait(0.03)


def run(worker, mode, **options) -> int:
    """Have a worker run in a mode."""
    return asyncio.run(worker.arun(**mode, **options)) if "tasks" in mode else worker.run(**mode, **options)


def drive_until_stuck(worker, run_id) -> None:
    """Have a worker drive a run at once, not later and later, until a person is asked."""
    while worker.runs.store.get(run_id).state != "Stuck":
        assert worker.drive(run_id)


def create(store, agent: Agent, *names: str, **options) -> None:
    """Begin runs that have not been driven."""
    kept = replace(agent, store=store)
    for name in names:
        header = kept.prepare(options.pop("task", "Refund order A-17."), run_id=name, **options).journal.header
        assert store.create(name, header, agent=agent.name)


class Patient(Script):
    """A model that is asked by many at a time, and answers when it may."""

    def __init__(self, expected: int) -> None:
        super().__init__(name="patient:model")
        self.expected = expected
        self.asked = 0
        self.all_asked, self.may_answer = threading.Event(), Gate()

    async def acomplete(self, request, *, timeout_s=None):
        self.asked += 1
        if self.asked == self.expected:
            self.all_asked.set()
        await self.may_answer.wait()
        return Reply.of("Patience.")

    async def astream(self, request, *, timeout_s=None):
        yield await self.acomplete(request)


@contextmanager
def working(worker, **options):
    """Run a worker under asyncio in a separate thread, and stop it at the end.  Yield a list of how it ended."""
    ended = []
    main = worker.arun if "tasks" in options else worker.run

    def work():
        try:
            ended.append(asyncio.run(main(**options)) if "tasks" in options else main(**options))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        worker.stop()
        thread.join(30)
        assert not thread.is_alive()
