"""Does a function that calls an agent make it a part of the call around it: usage, budgets, time, approval, runs?"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.agent_drivers import by_arun, by_astream, by_run, by_run_unheard, by_stream
from support.gates import Meeting

from fsm_agent import flows
from fsm_agent.agents import Agent, AgentBase
from fsm_agent.call import CallFailed, CallSuspended, Limits, Reason, Returned, RunAgain
from fsm_agent.errors import UsageError
from fsm_agent.functions import Context, Function, Retries, function
from fsm_agent.messages import FunctionProgress, Reply, Usage
from fsm_agent.runtime import SystemClock
from fsm_agent.store import LeaseLost, MemoryStore, RunBusy, RunExists, SqliteStore
from fsm_agent.testing import Script, function_call
from fsm_agent.workers import Worker

Ask = Callable[..., Function[..., Any, Any]]


def spending(tokens: int, *content: Any) -> Reply:
    return Reply.of(*content).changed(usage=Usage(input_tokens=tokens, output_tokens=0))


def plain(agent: Any, *, after: Callable[[], object] = lambda: None, options: Any = None, **policy: Any) -> Any:
    """A plain function that asks an agent."""

    def ask(context: Context[Any], task: str) -> str:
        """Ask."""
        context.emit("asking")
        found = context.call(agent, task, **(options or {})).output
        after()
        return str(found)

    return Function.of(ask, **policy)


def coroutine(agent: Any, *, after: Callable[[], object] = lambda: None, options: Any = None, **policy: Any) -> Any:
    """A coroutine function that asks an agent."""

    async def ask(context: Context[Any], task: str) -> str:
        """Ask."""
        context.emit("asking")
        found = (await context.acall(agent, task, **(options or {}))).output
        after()
        return str(found)

    return Function.of(ask, **policy)


def in_the_drivers_thread(agent: Any, **options: Any) -> Any:
    """A plain function that runs without a thread under asyncio."""
    return plain(agent, blocking=False, **options)


def outer(ask: Any, *, n: int = 1, first: int = 10, **options: Any) -> Agent[Any, Any]:
    asks = spending(first, *[function_call("ask", task=f"t{i}") for i in range(n)])
    model = options.pop("model", None) or Script(asks, spending(1, "Done."))
    return Agent(model, functions=[ask], **{"name": "outer", **options})


def inner(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*replies), **{"name": "inner", **options})


WAYS = [by_run, by_run_unheard, by_stream, by_arun, by_astream]
pairs = pytest.mark.parametrize(
    ("way", "asking"), [(by_run, plain), (by_arun, coroutine)], ids=["run, plain", "arun, coroutine"]
)
both = pytest.mark.parametrize("asking", [plain, coroutine], ids=lambda asking: asking.__name__)


def driven(agent: Agent[Any, Any], way: Any, task: str = "Go.", **options: Any) -> Any:
    one = agent.prepare(task, **options)
    with suppress(CallFailed):
        way(agent, one, [])
    return one.result_so_far


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("asking", [plain, coroutine, in_the_drivers_thread], ids=lambda asking: asking.__name__)
def test_its_output_and_its_usage_under_each_driver(way: Any, asking: Ask):
    result = driven(outer(asking(inner(spending(5, "Found.")))), way)
    assert result.output == "Done."
    assert result.function_calls[0].result == "Found."
    assert result.usage.total_tokens == 16
    assert {name: used.total_tokens for name, used in result.usage_by_agent.items()} == {"": 11, "run:1.0": 5}


@pairs
class TestUnderBothDrivers:
    @pytest.mark.parametrize("on_error", ["tell", "fail"])
    def test_the_usage_of_each_attempt_counts_when_the_function_fails(self, way: Any, asking: Ask, on_error: str):
        def fail() -> None:
            raise ValueError("no")

        child, retries = inner(spending(5, "a"), spending(7, "b")), Retries(attempts=2, delay_s=0)
        result = driven(outer(asking(child, after=fail, retries=retries, on_error=on_error)), way)
        assert result.usage.total_tokens == (23 if on_error == "tell" else 22)
        assert result.function_calls[0].error == "ValueError: no"

    def test_the_usage_counts_when_the_child_fails(self, way: Any, asking: Ask):
        child = inner(spending(5, "many"), spending(7, "more"), output=int, limits=Limits(parse_retries=1))
        result = driven(outer(asking(child)), way)
        assert result.usage.total_tokens == 23
        assert "CallFailed" in result.function_calls[0].error

    def test_what_is_left_of_a_budget_is_the_childs(self, way: Any, asking: Ask):
        child = inner(spending(30, function_call("look")), spending(40, "Found."), functions=[look])
        result = driven(outer(asking(child), limits=Limits(tokens=60)), way)
        assert result.ending.reason is Reason.OVER_BUDGET
        assert "limits.tokens" in result.ending.detail
        assert "70 tokens by ask (run:1.0)" in result.ending.detail

    def test_a_call_too_deep_is_an_error_of_the_function(self, way: Any, asking: Ask):
        result = driven(outer(asking(inner("Found.", limits=Limits(depth=1)))), way)
        assert "CallFailed" in result.function_calls[0].error
        assert "depth" in result.function_calls[0].error

    def test_the_outer_approver_is_asked(self, way: Any, asking: Ask):
        asked: list[Any] = []

        def approve(f: Any) -> bool:
            asked.append(f.name)
            return True

        child = inner(function_call("look"), "Found.", functions=[look])
        assert driven(outer(asking(child), approve=approve), way).output == "Done."
        assert asked == ["ask", "look"]

    def test_a_question_to_nobody_is_an_error_of_the_function(self, way: Any, asking: Ask):
        child = inner(function_call("erase"), "Gone.", functions=[erase])
        error = driven(outer(asking(child)), way).function_calls[0].error
        assert error.startswith("UsageError: ")

    def test_deps_are_those_of_the_context(self, way: Any, asking: Ask):
        child = inner(function_call("tell_deps"), "Found.", functions=[tell_deps])
        seen.clear()
        driven(outer(asking(child)), way, deps=7)
        child = inner(function_call("tell_deps"), "Found.", functions=[tell_deps])
        driven(outer(asking(child, options={"deps": 8})), way, deps=7)
        assert seen == [(7, 1), (8, 1)]

    def test_its_run_is_in_the_store_of_the_outer_call(self, way: Any, asking: Ask):
        store = MemoryStore()
        agent = outer(asking(inner(spending(5, "Found."))), store=store)
        result = driven(agent, way, run_id="r1")
        assert {run.id: run.is_ended for run in store.list()} == {"r1": True, "r1/1.0/1": True}
        replayed = agent.runs.replay("r1")  # the script is used up, so it asks nobody
        assert replayed.record == result.record


@function
def look() -> str:
    """Look."""
    return "seen"


@function(needs_approval=True)
def erase() -> str:
    """Erase."""
    return "gone"


seen: list[Any] = []


@function
def tell_deps(context: Context[Any]) -> str:
    """Tell."""
    seen.append((context.deps, context.depth))
    return "told"


class Waiting(Script):
    """A model that replies only after many have asked."""

    def __init__(self, n: int) -> None:
        super().__init__(*[spending(5, "Found.") for _ in range(n)])
        self._meeting = Meeting(n)

    async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
        await self._meeting.wait()
        return await super().acomplete(request)


class Stuck(Script):
    """A model that never replies; it says when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


@pairs
def test_functions_of_a_round_call_agents_at_the_same_time(way: Any, asking: Ask):
    child = Agent(Waiting(3), name="inner")
    result = driven(outer(asking(child), n=3, store=MemoryStore()), way, run_id="r")
    assert [f.result for f in result.function_calls] == ["Found."] * 3
    assert result.usage.total_tokens == 26


@pytest.mark.parametrize(
    "how", ["cancel", "stop", *[pytest.param(how, marks=pytest.mark.system) for how in ("expire", "time out")]]
)
@pytest.mark.parametrize(("way", "asking"), [(by_run, plain), (by_run, coroutine), (by_arun, coroutine)])
def test_the_child_ends_at_once_with_the_outer_call(way: Any, asking: Ask, how: str):
    for limit_s in (0.1, 0.6, 5.0):  # on a busy machine the child may not have been asked before the first
        model, store = Stuck(), MemoryStore()
        ask = asking(Agent(model, name="inner"), timeout_s=limit_s if how == "time out" else None)
        limits = Limits(deadline_s=limit_s if how == "expire" else None)
        agent = outer(ask, store=store, limits=limits, environment={"clock": SystemClock()})
        one = agent.prepare("Go.", run_id="r")
        if how in ("cancel", "stop"):
            ends = lambda m=model, o=one: (m.asked.wait(), getattr(o, how)("enough"))  # noqa: E731
            threading.Thread(target=ends, daemon=True).start()
        with suppress(CallFailed):
            way(agent, one, [])
        assert one.record.ending is not None, "though the model does not reply"
        if model.asked.is_set():
            break
    assert model.asked.is_set()
    until(lambda: store.load("r/1.0/1").run.is_ended)


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds.  An abandoned thread ends its run a moment later."""
    for _ in range(30_000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it never did")


class Stop(Exception):
    """Stops a driver."""


@both
@pytest.mark.parametrize("is_async", [False, True])
def test_a_stopped_driver_leaves_the_child_to_be_resumed(asking: Ask, is_async: bool):
    store, model = MemoryStore(), Stuck()
    agent = outer(asking(Agent(model, name="inner")), store=store)

    async def main() -> None:
        task = asyncio.create_task(agent.acall("Go.", run_id="r"))
        await asyncio.to_thread(model.asked.wait)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    if is_async:
        asyncio.run(main())
    else:
        stopped_when_asked(agent, model)
    until(lambda: store.load("r/1.0/1").run.holder is None)  # or the one who resumes it waits for that, and sleeps
    assert not store.load("r/1.0/1").run.is_ended
    again = outer(asking(inner(spending(5, "Found."))), store=store, model=Script(spending(1, "Done.")))
    result = again.runs.resume("r")
    assert (result.output, result.function_calls[0].result) == ("Done.", "Found.")
    assert {run.id for run in store.list()} == {"r", "r/1.0/1"}


def stopped_when_asked(agent: Agent[Any, Any], model: Stuck) -> None:
    """Drive a run whose driver is stopped while the model of the child is asked."""

    def stop(event: Any) -> None:
        if isinstance(event, FunctionProgress):
            model.asked.wait()
            raise Stop

    with pytest.raises(Stop):
        agent.run(agent.prepare("Go.", run_id="r"), stop)


def test_a_child_that_its_function_cut_off_is_asked_again():
    store, model = MemoryStore(), Stuck()

    async def ask(context: Context[Any], task: str) -> str:
        """Ask."""
        asking = asyncio.ensure_future(context.acall(Agent(model, name="inner"), task))
        await asyncio.to_thread(model.asked.wait)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        raise Crash

    with suppress(Crash):
        outer(Function.of(ask), store=store).call("Go.", run_id="r")
    assert store.load("r/1.0/1").run.is_ended
    again = outer(coroutine(inner("Found.")), store=store, model=Script(spending(1, "Done.")))
    assert again.runs.resume("r").function_calls[0].result == "Found."
    assert {run.id for run in store.list()} == {"r", "r/1.0/1", "r/1.0/1-2"}


# After a crash


def crash(path: str, kind: str) -> None:
    """Die in the function, after its agent has answered."""
    child = inner(spending(5, "Found."))
    agent = outer(KINDS[kind](child, after=lambda: os.kill(os.getpid(), signal.SIGKILL)), store=path)
    agent.call("Go.", run_id="r")


KINDS: dict[str, Any] = {"plain": plain, "coroutine": coroutine}


@pytest.mark.system
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
@pytest.mark.parametrize("kind", ["plain", pytest.param("coroutine", marks=pytest.mark.nightly)])
def test_a_child_that_has_ended_is_not_asked_again_after_a_kill(tmp_path: Path, kind: str):
    path = str(tmp_path / "runs.db")
    process = multiprocessing.get_context("spawn").Process(target=crash, args=(path, kind))
    process.start()
    process.join(110)
    assert process.exitcode == -signal.SIGKILL
    silent = Script()  # has no reply
    store = SqliteStore(path)
    agent = outer(KINDS[kind](Agent(silent, name="inner")), store=store, model=Script(spending(1, "Done.")))
    result = agent.runs.resume("r")
    assert (result.output, result.function_calls[0].result) == ("Done.", "Found.")
    assert result.usage.total_tokens == 16
    assert silent.requests == []
    assert agent.runs.replay("r").record == result.record
    store.close()


class Crash(BaseException):
    """Ends a function without an outcome."""


def crashed(asking: Ask, store: MemoryStore, **options: Any) -> None:
    """Leave a run whose function called an agent and has no outcome."""

    def fall() -> None:
        raise Crash

    with suppress(Crash):
        outer(asking(inner(spending(5, "Found.")), after=fall, **options), store=store).call("Go.", run_id="r")


@both
def test_a_child_that_has_ended_is_not_asked_again_after_a_crash(asking: Ask):
    store, silent = MemoryStore(), Script()
    crashed(asking, store)
    agent = outer(asking(Agent(silent, name="inner")), store=store, model=Script(spending(1, "Done.")))
    result = agent.runs.resume("r")
    assert (result.output, result.function_calls[0].result) == ("Done.", "Found.")
    assert (result.usage.total_tokens, silent.requests) == (16, [])
    assert agent.runs.replay("r").record == result.record


# In doubt inside


class Till:
    """The payments, and whether the program crashes after the next one."""

    def __init__(self, path: Path | None = None) -> None:
        self.paid: list[str] = []
        self.is_to_fall = True
        self.path = path

    def pay(self, what: str) -> str:
        self.paid.append(what)
        if self.path is not None:
            self.path.write_text(f"{self.path.read_text()}{what}\n" if self.path.exists() else f"{what}\n")
            if self.is_to_fall:
                os.kill(os.getpid(), signal.SIGKILL)
        if self.is_to_fall:
            raise Crash
        return "paid"


def payer(till: Till, *later: Any, **options: Any) -> Agent[Any, Any]:
    """An agent with a function that must not run twice."""

    @function(once=True)
    def pay(euros: int) -> str:
        """Pay."""
        return till.pay(f"{euros} euros")

    replies = later or (spending(5, function_call("pay", euros=20)), spending(5, "Found."))
    return Agent(Script(*replies), functions=[pay], **{"name": "payer", **options})


def after_the_fall(till: Till, *agents: Any) -> None:
    till.is_to_fall = False
    assert till.paid == ["20 euros"]


DRIVERS: dict[str, Callable[..., Any]] = {
    "resume": lambda agents: agents[0].runs.resume("r"),
    "aresume": lambda agents: asyncio.run(agents[0].runs.aresume("r")),
    "worker": lambda agents: Worker(agents, agents[0].runs.all).run(once=True),
    "adrive of a worker": lambda agents: asyncio.run(Worker(agents, agents[0].runs.all).adrive("r")),
    "a worker with the outer agent alone": lambda agents: Worker(agents[:1], agents[0].runs.all).run(once=True),
}
driven_by = pytest.mark.parametrize("drive", DRIVERS.values(), ids=DRIVERS.keys())


def drive_on(drive: Callable[..., Any], *agents: Any) -> None:
    with suppress(CallSuspended, flows.FlowSuspended):
        drive(agents)


def asked_in(store: Any) -> list[tuple[str, str, str]]:
    return [(run.id, question.key, question.kind) for run in store.list(asked=True) for question in run.waits]


DONE = spending(1, "Done.")


@driven_by
@both
def test_a_payment_in_doubt_inside_is_asked_about_and_made_once(asking: Ask, drive: Any):
    store, till = MemoryStore(), Till()
    with suppress(Crash):
        outer(asking(payer(till)), store=store).call("Go.", run_id="r")
    after_the_fall(till)
    inside = payer(till, spending(5, "Found."))
    agent = outer(asking(inside), store=store, model=Script(DONE))
    for _ in range(2):  # to be driven once more changes nothing
        drive_on(drive, agent, inside)
        assert asked_in(store) == [("r", "run:1.0/1/reconcile:1.0", "doubt")]
    agent.runs.all.answer("r", {"run:1.0/1/reconcile:1.0": Returned(text="it was paid")}, by="ann")
    drive_on(drive, agent, inside)
    result = agent.runs.resume("r")
    assert (result.output, result.function_calls[0].result) == ("Done.", "Found.")
    assert till.paid == ["20 euros"]
    assert {run.id: run.is_ended for run in store.list()} == {"r": True, "r/1.0/1": True}
    [paid] = replace(inside, store=store).runs.replay("r/1.0/1").result_so_far.function_calls
    assert paid.result == "it was paid"
    assert agent.runs.replay("r").record == result.record


@both
def test_what_did_nothing_is_run_again_inside(asking: Ask):
    store, till = MemoryStore(), Till()
    with suppress(Crash):
        outer(asking(payer(till)), store=store).call("Go.", run_id="r")
    after_the_fall(till)
    agent = outer(asking(payer(till, spending(5, "Found."))), store=store, model=Script(DONE))
    with pytest.raises(CallSuspended, match=re.escape("'run:1.0/1/reconcile:1.0'")):
        agent.runs.resume("r")
    assert agent.runs.resume("r", {"run:1.0/1/reconcile:1.0": RunAgain()}).output == "Done."
    assert till.paid == ["20 euros", "20 euros"]


@both
def test_a_doubt_is_asked_about_from_two_deep(asking: Ask, tmp_path: Path):
    till, path = Till(), str(tmp_path / "runs.db")

    def made(*later: Any) -> Agent[Any, Any]:
        middle = outer(asking(payer(till, *later)), name="middle", model=Script(DONE) if later else None)
        return outer(asking(middle), store=path, model=Script(DONE) if later else None)

    with suppress(Crash):
        made().call("Go.", run_id="r")
    after_the_fall(till)
    agent = made(spending(5, "Found."))
    with pytest.raises(CallSuspended):
        agent.runs.resume("r")
    key = "run:1.0/1/run:1.0/1/reconcile:1.0"
    assert asked_in(agent.runs.all.store) == [("r", key, "doubt")]
    assert agent.runs.resume("r", {key: Returned(text="it was paid")}).output == "Done."
    assert till.paid == ["20 euros"]
    assert all(run.is_ended for run in agent.runs.all.store.list())
    agent.runs.all.close()


@pytest.mark.parametrize("kind", ["agent in a flow", "flow in an agent", "agent in an agent as a function"])
def test_a_doubt_is_asked_about_in_other_processes(kind: str):
    store, till = MemoryStore(), Till()

    def made(*later: Any) -> Any:
        one = payer(till, *later)

        @flows.execute
        def settling(data: str, context: Context[Any]) -> str:
            return str(context.call(one, data).output)

        @flows.execute(once=True)
        def paying(data: str) -> str:
            return till.pay(data)

        def flow(name: str, state: Any) -> Any:
            rows = [state.done(flows.end("over"), do=lambda data, text: text)]
            return flows.Flow(name, str, start=state, rows=rows)

        if kind == "agent in a flow":
            return replace(flow("outer", settling), store=store)
        if kind == "flow in an agent":
            return outer(plain_of(flow("inner", paying)), store=store, model=Script(DONE) if later else None)
        middle = outer(plain(one), name="middle", model=Script(DONE) if later else None)
        model = Script(*[] if later else [function_call("middle", task="Go.")], DONE)
        return Agent(model, functions=[middle.as_function()], name="outer", store=store)

    with suppress(Crash):
        made().call("20 euros", run_id="r")
    after_the_fall(till)
    one = made(spending(5, "Found."))
    with pytest.raises((CallSuspended, flows.FlowSuspended)):
        one.runs.resume("r")
    [(run, key, _)] = asked_in(store)
    assert run == "r"
    text = '"paid"' if kind == "flow in an agent" else "paid"
    assert one.runs.resume("r", {key: Returned(text=text)}).output in ("Done.", "Found.")
    assert till.paid == ["20 euros"]
    assert all(row.is_ended for row in store.list())


def plain_of(flow: Any) -> Any:
    """A function that has a flow pay."""

    def ask(context: Context[Any], task: str) -> str:
        """Ask."""
        return str(context.call(flow, "20 euros").output)

    return Function.of(ask)


@both
def test_a_function_that_must_not_run_twice_is_in_doubt_with_the_call_that_it_makes(asking: Ask):
    store, till = MemoryStore(), Till()
    with suppress(Crash):
        outer(asking(payer(till), once=True), store=store).call("Go.", run_id="r")
    after_the_fall(till)
    inside = payer(till, spending(5, "Found."))
    agent = outer(asking(inside, once=True), store=store, model=Script(DONE))
    with pytest.raises(CallSuspended):
        agent.runs.resume("r")
    with pytest.raises(CallSuspended):
        agent.runs.resume("r", {"reconcile:1.0": RunAgain()})
    assert sorted(asked_in(store)) == [("r", "reconcile:1.0:2", "doubt"), ("r/1.0/1", "reconcile:1.0", "doubt")]
    agent.runs.all.answer("r/1.0/1", {"reconcile:1.0": Returned(text="it was paid")})
    assert agent.runs.resume("r", {"reconcile:1.0:2": RunAgain()}).function_calls[0].result == "Found."
    assert till.paid == ["20 euros"]


@both
def test_an_answer_that_was_passed_inside_before_a_crash_counts_once(asking: Ask):
    store, till = MemoryStore(), Till()
    with suppress(Crash):
        outer(asking(payer(till)), store=store).call("Go.", run_id="r")
    after_the_fall(till)

    def fall() -> None:
        raise Crash

    agent = outer(asking(payer(till, spending(5, "Found."))), store=store, model=Script(DONE))
    with pytest.raises(CallSuspended):
        agent.runs.resume("r")
    falling = outer(asking(payer(till, spending(5, "Found.")), after=fall), store=store)
    with pytest.raises(Crash):
        falling.runs.resume("r", {"run:1.0/1/reconcile:1.0": Returned(text="it was paid")})
    assert agent.runs.resume("r").function_calls[0].result == "Found."
    assert till.paid == ["20 euros"]
    assert store.load("r").signals == ()


@both
def test_a_function_that_catches_everything_waits_all_the_same(asking: Ask):
    store, till = MemoryStore(), Till()
    with suppress(Crash):
        outer(asking(payer(till)), store=store).call("Go.", run_id="r")
    after_the_fall(till)

    def careless(context: Context[Any], task: str) -> str:
        """Ask."""
        try:
            return str(context.call(payer(till, spending(5, "Found.")), task).output)
        except BaseException:
            return "never mind"

    async def in_tasks(context: Context[Any], task: str) -> str:
        """Ask."""
        async with asyncio.TaskGroup() as tasks:
            one = tasks.create_task(context.acall(payer(till, spending(5, "Found.")), task))
        return str(one.result().output)

    function_of = Function.of(careless if asking is plain else in_tasks, name="ask")
    agent = outer(function_of, store=store, model=Script(DONE))
    with pytest.raises(CallSuspended):
        agent.runs.resume("r")
    answered = agent.runs.resume("r", {"run:1.0/1/reconcile:1.0": Returned(text="it was paid")})
    assert answered.function_calls[0].result == "Found."
    assert till.paid == ["20 euros"]


def pay_and_die(path: Path) -> None:
    till = Till(path / "paid")
    outer(plain(payer(till)), store=str(path / "runs.db")).call("Go.", run_id="r")


@pytest.mark.system
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_a_payment_inside_that_was_killed_is_asked_about_and_made_once(tmp_path: Path):
    process = multiprocessing.get_context("spawn").Process(target=pay_and_die, args=(tmp_path,))
    process.start()
    process.join(110)
    assert process.exitcode == -signal.SIGKILL
    till = Till(tmp_path / "paid")
    till.is_to_fall = False
    inside = payer(till, spending(5, "Found."))
    agent = outer(plain(inside), store=str(tmp_path / "runs.db"), model=Script(DONE))
    Worker([agent, inside], agent.runs.all).run(once=True)
    assert asked_in(agent.runs.all.store) == [("r", "run:1.0/1/reconcile:1.0", "doubt")]
    agent.runs.all.answer("r", {"run:1.0/1/reconcile:1.0": Returned(text="it was paid")})
    Worker([agent, inside], agent.runs.all).run(once=True)
    assert agent.runs.resume("r").function_calls[0].result == "Found."
    assert (tmp_path / "paid").read_text() == "20 euros\n"
    agent.runs.all.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_inside_asks_itself_when_the_outer_run_has_ended(is_async: bool, tmp_path: Path):
    till = Till()
    with suppress(Crash):
        outer(plain(payer(till)), store=str(tmp_path / "runs.db")).call("Go.", run_id="r")
    after_the_fall(till)
    inside = payer(till, spending(5, "Found."))
    agent = outer(plain(inside), store=str(tmp_path / "runs.db"))
    with pytest.raises(CallSuspended):
        agent.runs.resume("r")
    agent.runs.all.cancel("r")
    with pytest.raises(CallFailed):
        asyncio.run(agent.runs.aresume("r")) if is_async else agent.runs.resume("r")
    Worker([inside], agent.runs.all).run(once=True)
    assert asked_in(agent.runs.all.store) == [("r/1.0/1", "reconcile:1.0", "doubt")]
    agent.runs.all.close()


def test_an_answer_that_a_run_inside_has_taken_is_not_refused(caplog: pytest.LogCaptureFixture):
    store, till = MemoryStore(), Till()
    with suppress(Crash):
        outer(plain(payer(till)), store=store).call("Go.", run_id="r")
    after_the_fall(till)
    agent = outer(plain(payer(till, spending(5, "Found."))), store=store, model=Script(DONE))
    with pytest.raises(CallSuspended):
        agent.runs.resume("r")
    caplog.clear()
    agent.runs.resume("r", {"run:1.0/1/reconcile:1.0": Returned(text="it was paid")})
    assert [entry.getMessage() for entry in caplog.records if "run:1.0/1/reconcile:1.0" in entry.getMessage()] == []


def test_an_answer_to_what_no_run_inside_asks_is_dropped():
    store, till = MemoryStore(), Till()
    with suppress(Crash):
        outer(plain(payer(till)), store=store).call("Go.", run_id="r")
    after_the_fall(till)
    agent = outer(plain(payer(till, spending(5, "Found."))), store=store, model=Script(DONE))
    with pytest.raises(CallSuspended):
        agent.runs.resume("r")
    agent.runs.all.answer("r", {"run:1.0/1/reconcile:1.0": Returned(text="it was paid")})
    other = outer(plain(inner("Another.")), store=store, model=Script(DONE))
    assert other.runs.resume("r").function_calls[0].result == "Another."
    assert store.load("r").signals == ()


@both
def test_another_task_has_a_run_of_another_name(asking: Ask):
    store = MemoryStore()
    crashed(asking, store)

    def with_other_task(context: Context[Any], task: str) -> str:
        return str(context.call(inner(spending(7, "Other.")), f"{task} now").output)

    for _ in range(2):
        agent = outer(Function.of(with_other_task, name="ask"), store=store, model=Script(spending(1, "Done.")))
        assert agent.runs.resume("r").function_calls[0].result == "Other."
    names = {run.id for run in store.list()}
    assert len(names) == 3
    assert any(name.startswith("r/1.0/1-") for name in names)


@both
def test_less_time_and_less_of_a_budget_is_no_other_task(asking: Ask):
    store = MemoryStore()
    crashed(asking, store)
    agent = outer(
        asking(inner()),
        store=store,
        model=Script(spending(1, "Done.")),
        approve=lambda f: True,
        limits=Limits(tokens=99),
    )
    assert agent.runs.resume("r").function_calls[0].result == "Found."


@both
def test_a_child_that_was_interrupted_goes_on(asking: Ask):
    store = MemoryStore()

    @function
    def look() -> str:
        """Look."""
        raise Crash

    with suppress(Crash):
        child = inner(spending(5, function_call("look")), functions=[look])
        outer(asking(child), store=store).call("Go.", run_id="r")
    child = inner(spending(7, "Found."), functions=[Function.of(lambda: "seen", name="look", description="Look.")])
    result = outer(asking(child), store=store, model=Script(spending(1, "Done."))).runs.resume("r")
    assert (result.function_calls[0].result, result.usage.total_tokens) == ("Found.", 23)


def test_a_name_that_the_function_gives_is_kept():
    store = MemoryStore()
    outer(plain(inner("Found."), options={"run_id": "mine"}), store=store).call("Go.")
    assert "mine" in {run.id for run in store.list()}
    found = outer(
        plain(inner("x"), options={"run_id": "mine"}),
        store=store,
        model=Script(function_call("ask", task="other"), "y"),
    )
    assert RunExists.__name__ in found.call("Go.").function_calls[0].error


def test_an_agent_with_a_store_of_its_own_uses_that_of_the_outer_call():
    ours, own = MemoryStore(), MemoryStore()
    outer(plain(inner("Found.", store=own)), store=ours).call("Go.", run_id="r")
    assert ({run.id for run in ours.list()}, own.list()) == ({"r", "r/1.0/1"}, [])
    outer(plain(inner("Found.", store=own))).call("Go.")
    assert len(own.list()) == 1


@pytest.mark.system
@both
def test_a_run_that_another_drives_is_waited_for(asking: Ask):
    """It waits until the lease has expired, as after the death of a holder."""
    store, model, lease = MemoryStore(), Stuck(), None
    stopped_when_asked(outer(asking(Agent(model, name="inner")), store=store), model)
    while lease is None:  # a thread that was left behind gives its run back a moment later
        with suppress(RunBusy):
            lease = store.claim("other", for_s=0.4, run="r/1.0/1")
    again = outer(asking(inner(spending(5, "Found."))), store=store, model=Script(spending(1, "Done.")))
    assert again.runs.resume("r").function_calls[0].result == "Found."
    (renewed,) = store.renew_all([lease], for_s=1)
    assert isinstance(renewed, LeaseLost)


# Others than agents, and other contexts


class Claims(SqliteStore):
    """Notes which runs are claimed in an event loop, which would stand still meanwhile."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.in_loops: list[str | None] = []

    def claim(self, holder: str, *, run: str | None = None, **options: Any) -> Any:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            self.in_loops.append(run)
        return super().claim(holder, run=run, **options)


async def test_a_run_that_cannot_wait_is_ended_without_holding_up_the_event_loop(tmp_path: Path):
    child = inner(function_call("erase"), functions=[erase])
    store = Claims(tmp_path / "runs.db")
    result = await outer(coroutine(child), store=store).acall("Go.", run_id="r")
    assert "cannot wait for a person" in str(result.function_calls[0].error)
    assert (store.get("r/1.0/1").is_ended, store.in_loops) == (True, [])
    store.close()


def test_a_context_made_by_hand_calls_the_agent():
    child = inner("Found.", "Found.", function_call("tell_deps"), "Told.", functions=[tell_deps])
    assert Context(deps=None).call(child, "x").output == "Found."
    assert asyncio.run(Context(deps=None).acall(child, "x")).output == "Found."
    seen.clear()
    Context(deps=5).call(child, "x")
    assert seen[0][0] == 5


@pytest.mark.parametrize("context", [Context(deps=None), None], ids=["by hand", "of a call"])
@pytest.mark.parametrize("wrong", ["inner", Agent])
def test_what_is_no_agent_is_refused(wrong: Any, context: Any):
    text = "context.call"
    if context is not None:
        with pytest.raises(UsageError, match=text):
            context.call(wrong, "x")
        return
    with pytest.raises(CallFailed, match=text):
        outer(plain(wrong, on_error="fail")).call("Go.")


def test_an_unknown_option_is_refused_by_name():
    error = outer(plain(inner("x"), options={"dep": 1})).call("Go.").function_calls[0].error
    assert "dep" in error
    assert "deps" in error


def test_a_conversation_is_refused(tmp_path: Path):
    talk = inner("x", store=MemoryStore()).conversation("c")
    assert "UsageError" in outer(plain(talk)).call("Go.").function_calls[0].error


def test_a_team_counts_its_tokens_once():
    helper = inner(spending(5, "Found."))

    class Team(AgentBase, register=False):
        name = "team"

        def answer(self, task: str) -> str:
            return str(outer(plain(helper)).call(task).output)

    assert Team(client=Script()).call("Go.").usage.total_tokens == 16
    helper = inner(spending(5, "Found."), limits=Limits(depth=4))
    assert outer(plain(Team(client=Script()))).call("Go.").usage.total_tokens == 11 + 16


def test_a_thread_of_the_functions_own_is_as_deep():
    def ask(context: Context[Any], task: str) -> str:
        """Ask."""
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(context.call(child, task)))
        thread.start()
        thread.join()
        return str(found[0].record.depth)

    child = inner(spending(5, "Found."))
    assert outer(Function.of(ask)).call("Go.").function_calls[0].result == "1"


# Flows


def letters(child: Any, *, store: Any = None) -> Any:
    """A flow whose first state asks an agent, and whose second is a function that asks one."""

    @flows.ask(child)
    def writing(d: str) -> str:
        return d

    @flows.execute
    def reading(d: str, context: Context[Any]) -> str:
        return str(context.call(child, d).output)

    done = flows.end("done")
    rows = [writing.done(reading, do=lambda d, a: a), reading.done(done, do=lambda d, a: a)]
    return flows.Flow("letters", str, start=writing, rows=rows, store=store)


def test_a_function_of_a_flow_counts_what_its_agent_takes():
    store = MemoryStore()
    result = letters(inner(spending(5, "One."), spending(7, "Two.")), store=store).call("Go.", run_id="f")
    assert (result.output, result.usage.total_tokens) == ("Two.", 12)
    assert {run.id for run in store.list()} == {"f", "f/reading#2/1"}


@both
def test_a_flow_is_called_as_an_agent_is(asking: Ask):
    store = MemoryStore()
    flow = letters(inner(spending(5, "One."), spending(7, "Two.")))
    agent = outer(asking(flow), store=store, limits=Limits(tokens=100))
    result = agent.call("Go.", run_id="r")
    assert (result.function_calls[0].result, result.usage.total_tokens) == ("Two.", 23)
    assert {"r", "r/1.0/1"} <= {run.id for run in store.list()}
    flow = letters(inner(spending(50, "One."), spending(70, "Two.")))
    with pytest.raises(CallFailed, match=r"limits\.tokens is 60"):
        outer(asking(flow), limits=Limits(tokens=60)).call("Go.")


@both
def test_the_run_of_a_flow_is_found_again(asking: Ask):
    store = MemoryStore()

    def fall() -> None:
        raise Crash

    flow = letters(inner(spending(5, "One."), spending(7, "Two.")))
    with suppress(Crash):
        outer(asking(flow, after=fall), store=store, limits=Limits(tokens=100)).call("Go.", run_id="r")
    agent = outer(asking(letters(inner())), store=store, limits=Limits(tokens=100), model=Script(spending(1, "Done.")))
    assert agent.runs.resume("r").function_calls[0].result == "Two."
