"""Drivers: each of the ways to run one call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fsm_agent.call import AgentCall
from fsm_agent.messages import Message
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.runtime import Environment, adrive, arun, drive, portal, run
from fsm_agent.testing import Script
from support.agent_calls import PROMPT
from support.gates import Gate

Driver = Callable[..., list[Any]]
TASK = Dialog([Message.of("system", "You add."), Message.of("user", "What is 17 + 25?")])


def seed(prompt: Prompt = PROMPT, **options: Any) -> AgentCall:
    return AgentCall.seed(TASK, prompt, **options)


def environment(script: Script, **changes: Any) -> Environment:
    return Environment.of(script, **changes)


def by_run(one: AgentCall, script: Script, **changes: Any) -> list[Any]:
    events: list[Any] = []
    run(one, environment(script, **{"threads": 0, **changes}), events.append)
    return events


def by_threads(one: AgentCall, script: Script, **changes: Any) -> list[Any]:
    events: list[Any] = []
    run(one, environment(script, **changes), events.append)
    return events


def by_drive(one: AgentCall, script: Script, **changes: Any) -> list[Any]:
    return list(drive(one, environment(script, **changes)))


def by_arun(one: AgentCall, script: Script, **changes: Any) -> list[Any]:
    events: list[Any] = []
    asyncio.run(arun(one, environment(script, **changes), events.append))
    return events


def by_adrive(one: AgentCall, script: Script, **changes: Any) -> list[Any]:
    async def main() -> list[Any]:
        return [event async for event in adrive(one, environment(script, **changes))]

    return asyncio.run(main())


def heard(driven: Driver, one: AgentCall, script: Script, listen: Callable[[Any], object]) -> None:
    """Drive with a listener."""
    asyncio.run(arun(one, environment(script), listen)) if driven is by_arun else run(one, environment(script), listen)


DRIVERS = [by_run, by_threads, by_drive, by_arun, by_adrive]  # for the test that they do the same
everywhere = pytest.mark.parametrize("driven", [by_run, by_arun])  # all else: one driver a world


def by_run_unheard(one: AgentCall, script: Script, **changes: Any) -> list[Any]:
    run(one, environment(script, **changes))
    return []


def by_arun_unheard(one: AgentCall, script: Script, **changes: Any) -> list[Any]:
    asyncio.run(arun(one, environment(script, **changes)))
    return []


anyhow = everywhere


class Wait:
    """A wait that lasts until it is released."""

    def __init__(self) -> None:
        self.begun, self.free = threading.Event(), Gate()

    def wait(self, *_: Any, **__: Any) -> str:
        self.begun.set()
        self.free.block()
        return "late"

    async def await_(self, *_: Any, **__: Any) -> str:
        self.begun.set()
        await self.free.wait()
        return "late"


@contextmanager
def ended_before(drive: Callable[[], object], free: Gate) -> Iterator[None]:
    """Drive in a thread while the block runs.  After the block, the drive ends before its awaited work is released."""
    failures: list[BaseException] = []

    def main() -> None:
        try:
            drive()
        except BaseException as error:
            failures.append(error)

    driver = threading.Thread(target=main, daemon=True)
    driver.start()
    try:
        yield
        driver.join(30)
        assert not driver.is_alive(), "it waits still"
    finally:
        free.set()
    if failures:
        raise failures[0]


@contextmanager
def rest() -> Iterator[None]:
    """Assert that nothing that begins in the block remains in a thread."""
    busy = busy_threads()
    yield
    until_threads_rest(busy)


def busy_threads() -> int:
    """Return how many functions and requests run in threads.  Some may have been abandoned long ago.

    A thread is busy for a moment after its work, so this is the least of a few counts.
    """

    def count() -> int:
        return sum(thread.name == "fsm_agent" for thread in threading.enumerate()) - len(portal._idle)

    return min(time.sleep(0.001) or count() for _ in range(3))


def until_threads_rest(busy: int) -> None:
    """Wait until no more than this many threads are busy."""
    for _ in range(20_000):
        if busy_threads() <= busy:
            return
        time.sleep(0.001)
    raise AssertionError("a thread is busy still")
