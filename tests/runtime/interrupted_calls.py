"""A process that waits in the way that its first argument names, says so, and is interrupted by a signal."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from fsm_agent import Agent, RateLimited, Worker, function
from fsm_agent.call import CallFailed, Request
from fsm_agent.messages import FunctionCall, Reply
from fsm_agent.runtime import SystemClock
from fsm_agent.testing import Script, function_call

LONG_S = 60.0


def ready() -> None:
    print("ready", flush=True)


class Hanging(Script):
    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        ready()
        await asyncio.sleep(LONG_S)
        raise AssertionError

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        yield await self.acomplete(request)


class Told(SystemClock):
    async def asleep(self, delay_s: float) -> None:
        ready()
        await super().asleep(delay_s)


def plain(n: int = 1) -> str:
    """Work."""
    ready()
    time.sleep(LONG_S)
    return "x"


async def waiting(n: int = 1) -> str:
    """Work."""
    ready()
    await asyncio.sleep(LONG_S)
    return "x"


def ask() -> str:
    """Ask."""
    return str(Agent(Hanging("in"), name="inner").call("x").output)


@function(needs_approval=True)
def erase() -> str:
    """Erase."""
    return "gone"


def approve(asked: FunctionCall) -> bool:
    plain()
    return True


def told(event: object) -> None:
    ready()
    time.sleep(LONG_S)


def interrupted(way: str, store: str) -> None:
    kept: dict[str, Any] = {"name": "a", "store": store}
    two = Reply.of(*[FunctionCall(name="plain", arguments_json=f'{{"n": {n}}}') for n in (1, 2)])
    words = Agent(Script(" ".join(["w"] * 100)))
    match way:
        case "request":
            Agent(Hanging()).call("x")
        case "stream":
            list(Agent(Hanging()).stream("x"))
        case "plain function":
            Agent(Script(function_call("plain")), functions=[plain]).call("x")
        case "two plain functions":
            Agent(Script(two), functions=[plain]).call("x")
        case "coroutine function":
            Agent(Script(function_call("waiting")), functions=[waiting]).call("x")
        case "approver":
            Agent(Script(function_call("erase")), functions=[erase], approve=approve).call("x")
        case "agent in a function":
            Agent(Script(function_call("ask")), functions=[ask]).call("x")
        case "backoff":
            script = Script(RateLimited("slow down", status=429, retry_after_s=LONG_S))
            script.clock = Told()
            Agent(script).call("x")
        case "map":
            Agent(Hanging()).map(["x", "y"])
        case "listener":
            words.run(words.prepare("x"), told)
        case "consumer":
            for event in words.stream("x"):
                told(event)
        case "stored request":
            Agent(Hanging(), **kept).call("x", run_id="r")
        case "stored function":
            Agent(Script(function_call("plain")), functions=[plain], **kept).call("x", run_id="r")
        case "stored map":
            Agent(Hanging(), **kept).map(["x"])
        case "worker":
            agent = Agent(Hanging(), **kept)
            agent.runs.submit("x", run_id="r")
            Worker([agent], store).run(threads=2)


def main(way: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "runs.db")
        try:
            interrupted(way, store)
        except KeyboardInterrupt:
            print(f"interrupted {time.time()}", flush=True)
        if os.path.exists(store):
            agent = Agent(Script("x"), name="a", store=store)
            (run,) = agent.runs.all.store.list()
            print(f"claimed {agent.runs.all.claims.claim(run.id) is not None}", flush=True)
            agent.runs.all.close()
    print(Agent(Script("And the next one works.")).call("x").output, flush=True)


def leave() -> None:
    """Exit while a function, a thread of the loop, and a request hang; ask once more at the exit."""
    atexit.register(lambda: print(Agent(Script("Asked at the exit.")).call("x").output, flush=True))

    async def behind() -> str:
        """Leave work to a thread of the loop."""
        asyncio.get_running_loop().run_in_executor(None, time.sleep, LONG_S)
        return "x"

    agent = Agent(Script(function_call("plain")), functions=[plain])
    one = agent.prepare("x")
    threading.Timer(0.1, lambda: one.cancel("enough")).start()
    with suppress(CallFailed):
        agent.run(one)
    Agent(Script(function_call("behind"), "x"), functions=[behind]).call("x")
    threading.Thread(target=lambda: Agent(Hanging()).call("x"), daemon=True).start()
    time.sleep(0.2)


if __name__ == "__main__":
    leave() if sys.argv[1] == "exit" else main(sys.argv[1])
