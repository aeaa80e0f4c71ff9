"""After Ctrl-C, cancellation and the end of the interpreter at any moment, nothing hangs, and nothing is left
running.
"""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.fault_server import STALL, FaultServer

from fsm_agent import Agent, CallFailed, function
from fsm_agent.call import Request
from fsm_agent.clients import HttpClient
from fsm_agent.messages import FunctionCall, Reply
from fsm_agent.testing import Script, function_call

pytestmark = pytest.mark.system

CHILD = str(Path(__file__).with_name("interrupted_calls.py"))
WAYS = [
    *("request", "stream", "plain function", "two plain functions", "coroutine function", "approver", "backoff", "map"),
    *("agent in a function", "listener", "consumer", "stored request", "stored function", "stored map", "worker"),
]


def two(name: str) -> Reply:
    return Reply.of(*[FunctionCall(name=name, arguments_json=f'{{"n": {n}}}') for n in (1, 2)])


def started(way: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-X", "dev", "-W", "error::RuntimeWarning", CHILD, way]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="its signals differ")
@pytest.mark.parametrize("way", WAYS)
def test_a_ctrl_c_ends_each_wait_and_the_next_call_works(way: str) -> None:
    with started(way) as child:
        try:
            assert child.stdout is not None
            assert "ready" in child.stdout.readline()
            time.sleep(0.1)
            at_s = time.time()
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=20)
        finally:
            child.kill()
    said = [line for line in out.splitlines() if line != "ready"]
    assert said[0].startswith("interrupted"), (out, err)
    assert float(said[0].split()[1]) - at_s < 2
    assert said[-1] == "And the next one works."
    if way.startswith("stored") or way == "worker":
        assert said[1] == "claimed True"
    assert (child.returncode, "Warning" in err) == (0, False), err


def test_what_hangs_does_not_hold_up_the_exit() -> None:
    with started("exit") as child:
        try:
            out, err = child.communicate(timeout=20)
        finally:
            child.kill()
    assert (child.returncode, out.splitlines()[-1]) == (0, "Asked at the exit."), err


LEFT_STREAM = """
from fsm_agent import Agent
from fsm_agent.testing import Script
stream = Agent(Script("word " * 500)).stream("x")
next(stream), next(stream), next(stream)
{left}
"""


@pytest.mark.parametrize("left", ["", "around = [stream]; around.append(around); del stream"])
def test_a_stream_that_is_left_at_the_exit_says_nothing(left: str) -> None:
    command = [sys.executable, "-X", "dev", "-c", LEFT_STREAM.format(left=left)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stderr) == (0, "")


class Stop(KeyboardInterrupt):
    pass


@contextmanager
def stopped_after(delay_s: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tasks_of_loops() -> int:
    """How many tasks run in the loops of this process, in any thread."""
    gc.collect()
    return sum(isinstance(one, asyncio.Task) and not one.done() for one in gc.get_objects())


def until_rest(count: Any, at_most: int, within_s: float = 5.0) -> int:
    """Wait until a count has come down."""
    until_s = time.monotonic() + within_s
    while (now := count()) > at_most and time.monotonic() < until_s:
        time.sleep(0.05)
    return int(now)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no timer that interrupts")
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # one that fell into a destructor is lost
def test_fifteen_hundred_interrupts_at_random_moments_leave_nothing() -> None:
    def plain(n: int = 1) -> str:
        """Work."""
        return "x"

    async def waiting(n: int = 1) -> str:
        """Work."""
        await asyncio.sleep(0.0005)
        return "x"

    chance, stopped, slowest_s, before = random.Random(1), 0, 0.0, tasks_of_loops()
    for turn in range(1_500):
        script = Script(function_call("plain"), function_call("waiting"), two("plain"), " ".join(["w"] * 30))
        agent = Agent(script, functions=[plain, waiting])
        at_s = time.monotonic()
        try:
            one = agent.prepare("x")
            with stopped_after(chance.uniform(1e-4, 6e-3)):
                if turn % 3 == 0:
                    agent.run(one)
                elif turn % 3 == 1:
                    agent.run(one, lambda event: None)
                else:
                    list(agent.stream(one))
        except Stop:
            stopped += 1
        slowest_s = max(slowest_s, time.monotonic() - at_s)
    assert stopped > 100
    assert slowest_s < 2
    assert until_rest(tasks_of_loops, before) <= before


class Hanging(Script):
    """Its requests wait until they are cancelled, which is counted."""

    def __init__(self, *entries: Any) -> None:
        super().__init__(*entries)
        self.open = 0

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        self.open += 1
        try:
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            self.open -= 1

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        yield await self.acomplete(request)


def test_two_hundred_calls_cancelled_at_random_moments_return_at_once_and_leave_nothing() -> None:
    """No task, no socket, and no thread but where its function still runs."""
    hanging, over = Hanging(), threading.Event()

    def plain() -> str:
        """Work."""
        over.wait(60)
        return "x"

    async def waiting() -> str:
        """Work."""
        await asyncio.Event().wait()
        return "x"

    def ask() -> str:
        """Ask."""
        return str(Agent(hanging).call("x").output)

    @function(needs_approval=True)
    def erase() -> str:
        """Erase."""
        return "gone"

    async def approve(asked: FunctionCall) -> bool:
        await asyncio.Event().wait()
        return True

    Agent(Script("x")).call("x")  # begins the loop
    chance, late, tasks, threads = random.Random(2), list[float](), tasks_of_loops(), threading.active_count()
    with FaultServer([STALL]) as server:
        client = HttpClient("openai-compatible", "m", base_url=server.base_url, api_key="k")
        makes = [
            lambda: Agent(hanging),
            lambda: Agent(client),
            lambda: Agent(Script(function_call("plain")), functions=[plain]),
            lambda: Agent(Script(function_call("waiting")), functions=[waiting]),
            lambda: Agent(Script(function_call("ask")), functions=[ask]),
            lambda: Agent(Script(function_call("erase")), functions=[erase], approve=approve),
        ]
        for turn in range(200):
            agent = makes[turn % len(makes)]()
            one, ended_s, cancelled_s = agent.prepare("x"), list[float](), list[float]()

            def drive(agent: Any = agent, one: Any = one, turn: int = turn, ended_s: list[float] = ended_s) -> None:
                with suppress(CallFailed):
                    agent.run(one, (lambda event: None) if turn % 2 else None)
                ended_s.append(time.monotonic())

            caller = threading.Thread(target=drive, daemon=True)
            caller.start()
            time.sleep(chance.uniform(0, 0.02))
            cancelled_s.append(time.monotonic())
            one.cancel("enough")
            caller.join(20)
            late.append(ended_s[0] - cancelled_s[0])
        assert until_rest(lambda: server.n_open, 0) == 0
        client.close()
    assert hanging.open == 0
    assert sorted(late)[-4] < 0.1, sorted(late)[-10:]  # of a machine that does other things, too
    assert max(late) < 2
    assert until_rest(tasks_of_loops, tasks) <= tasks
    over.set()
    assert until_rest(threading.active_count, threads, 20.0) <= threads
