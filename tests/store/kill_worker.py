"""OS processes that drive runs and are killed; each begins with a function of this module."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fsm_agent.agents import Agent
from fsm_agent.call import Approved, CallSuspended, Limits, Outcome, Returned, RunAgain
from fsm_agent.errors import RateLimited
from fsm_agent.functions import Context, function
from fsm_agent.messages import Event
from fsm_agent.runtime import SystemClock
from fsm_agent.store import Runs, StoreError
from fsm_agent.testing import Script, function_call
from fsm_agent.workers import Worker

RUN = "r1"
LEASE_S = 15.0


def opened(address: str) -> Any:
    return Runs(address).store


class Notes:
    """A file that many OS processes append to, a line at a time."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, line: str) -> None:
        os.write(self._descriptor, f"{line}\n".encode())


class Model(Script):
    """A model that knows from the messages what to say, and fails once in the life of an OS process."""

    def __init__(self) -> None:
        super().__init__()
        self.limited = False

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        return self._make_reply(self._reply(request), request, timeout_s)

    def _reply(self, request: Any) -> Any:
        results = sum(message.role == "tool" for message in request.messages)
        if not results:
            return [function_call("add", a=1, b=2), function_call("pay", amount=3), function_call("add", a=3, b=4)]
        if results == 3:
            if not self.limited:
                self.limited = True
                return RateLimited("slow down", status=429, retry_after_s=2.0)
            return "many" if request.messages[-1].role == "tool" else function_call("wipe", path="x")
        return "42"


def clerk(store: Any, notes: Notes) -> Agent[Any, Any]:
    @function
    def add(context: Context[Any], a: int, b: int) -> int:
        """Add two numbers."""
        notes.add(f"{context.agent_call_id} add {a}")
        return a + b

    @function(once=True)
    def pay(context: Context[Any], amount: int) -> str:
        """Pay."""
        notes.add(f"{context.agent_call_id} pay")
        return f"paid {amount}"

    @function(needs_approval=True)
    def wipe(path: str) -> str:
        """Wipe."""
        return "wiped"

    limits = Limits(recalls=50)  # a run that is killed behind each of its waits is limited again each time
    return Agent(Model(), functions=[add, pay, wipe], output=int, store=store, limits=limits, name="clerk")


# Being killed


class Kill:
    """Kills the OS process at its point number ``at``, and counts the points."""

    def __init__(self, at: int, notes: Notes) -> None:
        self.at, self.notes, self.count = at, notes, 0

    def point(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def event(self, event: Event) -> None:
        self.point()

    def watch(self, store: Any) -> None:
        """Add a kill point before and after each write, and after each append."""
        connect = sqlite3.connect

        def connected(*args: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*args, **options)
            connection.set_trace_callback(lambda statement: self.point())
            return connection

        sqlite3.connect = connected  # type: ignore[assignment]
        append = store.append

        def appended(lease: Any, n: int, lines: Any, *rest: Any, **options: Any) -> int:
            left: int = append(lease, n, lines, *rest, **options)
            self.notes.add(f"wrote {n + len(lines)}")
            self.point()
            return left

        store.append = appended


def begin(path: str, notes_path: str, at: int) -> None:
    """Drive the run until it waits, unless the OS process is killed before."""
    _driven(path, notes_path, at, lambda agent, sink: agent.run(_seeded(agent), sink))


def go_on(path: str, notes_path: str, at: int) -> None:
    """Go on with the run, or begin it if it never began."""
    begin(path, notes_path, at)


def _seeded(agent: Agent[Any, Any]) -> Any:
    return agent.prepare("Go.", run_id=RUN)


def _driven(path: str, notes_path: str, at: int, act: Callable[[Any, Any], Any]) -> None:
    notes = Notes(notes_path)
    store = opened(path)
    kill = Kill(at, notes)
    kill.watch(store)
    with suppress(CallSuspended):
        act(clerk(store, notes), kill.event)
    kill.point()
    store.close()
    notes.add(f"points {kill.count}")


def answer(path: str, notes_path: str, at: int) -> None:
    """Answer the questions like a person who can see the payments."""
    notes = Notes(notes_path)
    store = opened(path)
    kill = Kill(at, notes)
    kill.watch(store)
    for run in store.list(asked=True):
        kill.point()
        told = answers(run, Path(notes_path).read_text())
        with suppress(StoreError):
            Runs(store).answer(run.id, told, by="ann")
    kill.point()
    store.close()
    notes.add(f"points {kill.count}")


def answers(run: Any, effects: str) -> dict[str, Outcome]:
    told: dict[str, Outcome] = {}
    for question in run.waits:
        if question.kind == "doubt":
            told[question.key] = Returned(text="paid 3") if f"{run.id} pay" in effects.splitlines() else RunAgain()
        else:
            told[question.key] = RunAgain() if question.kind == "stuck" else Approved()
    return told


# Many workers


def work(address: str, notes_path: str, lease_s: float = LEASE_S, ahead_s: float = 0.0) -> None:
    """Advance due runs until the OS process is killed.  Its clock is ahead by ``ahead_s``.

    With a clock ahead, its model never asks for patience: such a wait would end an hour too late for others.
    """
    if ahead_s:
        real = time.time
        time.time = lambda: real() + ahead_s
        SystemClock.now = staticmethod(time.time)
    runs = Runs(address, lease_s=lease_s)
    agent = clerk(runs, Notes(notes_path))
    agent.client.limited = bool(ahead_s)
    Worker([agent], runs).run()
