"""Are approvers and checks asked in their place, under every driver and after a crash, and are their limits held?"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.agent_calls import keys
from support.agent_drivers import Way, by_arun, by_astream, by_run, by_run_unheard, by_stream
from support.checked_agents import Shop, checked, driven, everywhere, judged, plain
from support.drivers import Wait, anyhow, ended_before, seed
from support.drivers import by_run as driven_by_run
from support.time_growth import calls_made

from fsm_agent import Agent, CallFailed, Context, Function, Limits, MemoryStore, Prompt, Retry, UsageError
from fsm_agent.call import Reason, State, rounds_of, snapshot
from fsm_agent.messages import FunctionProgress, Stepped
from fsm_agent.runtime import spans_of
from fsm_agent.testing import Delayed, FakeClock, Script, function_call

WAYS: list[Way] = [by_run, by_run_unheard, by_stream, by_arun, by_astream]


def work(n: int) -> str:
    """Work."""
    return f"worked {n}"


WORK = Prompt("x", functions=(Function.of(work, needs_approval=True),))


# Approvers


def test_an_approval_costs_the_same_however_many_are_asked_for() -> None:
    def cost(n: int) -> float:
        script = Script([function_call("work", n=number) for number in range(n)], "done")
        agent = Agent(script, approve=lambda call: True)
        return calls_made(lambda: agent.call(WORK)) / n

    assert cost(200) < 1.2 * cost(50)


class Bound:
    def ask(self, f: Any, context: Any) -> bool:
        return bool(context.deps)


class Later:
    async def __call__(self, f: Any, context: Any) -> bool:
        return bool(context.deps)


def annotated(f: Any, c: Context[Any] | None = None) -> bool:
    return bool(c.deps)


@anyhow
@pytest.mark.parametrize(
    "approve",
    [
        lambda f, whatever: bool(whatever.deps),
        lambda f, context=None: bool(context.deps),
        Bound().ask,
        Later(),
        annotated,
    ],
)
@pytest.mark.parametrize("deps", [True, False])
def test_an_approver_that_takes_the_context_is_given_it(driven, approve, deps):
    one = seed(WORK, deps=deps)
    driven(one, Script(function_call("work", n=1), "done"), approve=approve)
    assert (one.record.function_calls[0].result is not None) is deps


@pytest.mark.parametrize(
    "approve", [lambda f: True, lambda f, limit=3: limit == 3, lambda *all_of_it: len(all_of_it) == 1]
)
def test_others_are_given_the_call_alone(approve):
    one = seed(WORK)
    driven_by_run(one, Script(function_call("work", n=1), "done"), approve=approve)
    assert one.record.function_calls[0].result == "worked 1"


@anyhow
def test_a_verdict_of_a_coroutine_function_that_means_nothing_is_the_callers_mistake(driven):
    async def approve(f: Any) -> str:
        return "yes"

    with pytest.raises(UsageError, match=r"approve\(work\).*'yes'"):
        driven(seed(WORK), Script(function_call("work", n=1)), approve=approve)


def test_a_plain_approver_cannot_hold_up_the_driver_and_sees_its_context():
    threads: list[threading.Thread] = []
    user = contextvars.ContextVar("user", default="nobody")
    user.set("ann")

    def approve(f: Any) -> bool:
        threads.append(threading.current_thread())
        return user.get() == "ann"

    agent = Agent(
        Script(function_call("work", n=1), "done", function_call("work", n=2), "done"),
        functions=[work],
        approve=approve,
    )
    agent.call("?")
    asyncio.run(agent.acall("?"))
    assert threading.current_thread() not in threads
    assert len(threads) == 2


# Checks


async def waiting(output: int) -> int:
    await asyncio.sleep(0)
    return judged(output, 12)


def plain_with_context(output: int, context: Context[Shop]) -> int:
    return judged(output, context.deps.stock)


async def waiting_with_context(output: int, context: Context[Shop]) -> int:
    await asyncio.sleep(0)
    return judged(output, context.deps.stock)


class Callable_:
    async def __call__(self, output: int) -> int:
        return judged(output, 12)


CHECKS = [plain, waiting, plain_with_context, waiting_with_context, Callable_()]


def steps(one: Any) -> list[str]:
    return [f"{step.trigger} {step.to}" for step in one.record.trace]


@pytest.mark.parametrize(
    ("way", "check"),
    [*((way, plain) for way in WAYS), *((way, check) for way in (by_run, by_astream) for check in CHECKS[1:])],
)
def test_a_refused_answer_is_given_again(way: Way, check: Any):
    model = Script("40", "12")
    one, heard = driven(way, checked(check, model), deps=Shop(12))
    assert one.output == 12
    assert steps(one)[1:] == [
        "proposed Checking",
        "check_refused ParseException",
        "proposed Checking",
        "checked Completed",
    ]
    told = model.requests[1].messages[-1].text
    assert "only 12 are left" in told
    assert [m.text for m in one.record.dialog] == ["How many?", "12"], "the refused one is pruned"
    assert (one.record.parse_errors, one.record.problems) == (1, ("only 12 are left",))
    if way is not by_run_unheard:
        assert sum(isinstance(e, Stepped) and e.source == State.CHECKING for e in heard) == 2
    reference = checked(plain, "40", "12")
    assert one.record == reference.run(reference.prepare("How many?")).record


@everywhere
@pytest.mark.parametrize("check", [plain, waiting])
def test_when_the_retries_are_used_up_the_call_ends_with_the_problem(way: Way, check: Any):
    one, _ = driven(way, checked(check, "40", "41", limits=Limits(parse_retries=1)))
    ending = one.record.ending
    assert (ending.reason, ending.detail) == (Reason.UNPARSEABLE, "only 12 are left")
    assert (ending.limit, ending.count) == ("parse_retries", 1)
    with pytest.raises(CallFailed, match="only 12 are left") as caught:
        one.result()
    assert isinstance(caught.value.__cause__, Retry)
    assert [m.text for m in one.record.pruned if m.role == "assistant"] == ["40", "41"]


@everywhere
@pytest.mark.parametrize("is_async", [False, True])
def test_any_other_exception_fails_the_call_and_is_its_cause(way: Way, is_async: bool):
    raised = LookupError("no such lamp")

    def look(output: int) -> int:
        raise raised

    async def alook(output: int) -> int:
        await asyncio.sleep(0)
        raise raised

    one, _ = driven(way, checked(alook if is_async else look, "12"))
    ending = one.record.ending
    name = "alook" if is_async else "look"
    assert (ending.reason, ending.function) == (Reason.CHECK_FAILED, name)
    with pytest.raises(CallFailed, match=name) as caught:
        one.result()
    assert caught.value.__cause__ is raised
    assert one.record.dialog[-1].text == "How many?", "an answer that nobody has checked is not in the dialog"


@everywhere
def test_what_cannot_be_in_a_future_fails_the_call_as_well(way: Way):
    def empty(output: int) -> int:
        return next(iter(()))

    async def cancelled(output: int) -> int:
        raise asyncio.CancelledError

    for check in (empty, cancelled):
        ending = driven(way, checked(check, "12"))[0].record.ending
        assert (ending.reason, ending.function) == (Reason.CHECK_FAILED, check.__name__)


@everywhere
def test_ctrl_c_in_a_check_reaches_the_caller_and_the_check_is_run_again(way: Way):
    def broken(output: int) -> int:
        raise KeyboardInterrupt

    agent = checked(broken, "12")
    one = agent.prepare("How many?")
    with pytest.raises(KeyboardInterrupt):
        way(agent, one, [])
    assert (one.state, keys(one)) == (State.CHECKING, ["check:1"])
    again = agent.changed(check=plain)
    restored = again.restore(snapshot(one))
    assert again.run(restored).output == 12


# What it is given


@everywhere
def test_the_context_of_a_check(way: Way):
    seen = list[Any]()

    def look(output: int, context: Context[Shop]) -> int:
        seen.append(
            (output, context.deps, context.agent_call_id, context.depth, context.attempt, context.function_call.name)
        )
        seen.append((context.idempotency_key, context.is_cancelled()))
        context.emit({"looked": output})
        return judged(output, 12)

    one, heard = driven(way, checked(look, "40", "12"), deps=Shop(3))
    id = one.record.id
    assert seen == [
        (40, Shop(3), id, 0, 1, "look"),
        (f"{id}/check:1", False),
        (12, Shop(3), id, 0, 2, "look"),
        (f"{id}/check:2", False),
    ]
    if way is not by_run_unheard:
        progress = [event for event in heard if isinstance(event, FunctionProgress)]
        assert [(event.name, event.data) for event in progress] == [("look", {"looked": 40}), ("look", {"looked": 12})]


@everywhere
def test_a_call_inside_of_a_check_is_one_deeper(way: Way):
    depths = list[int]()

    def ask(output: int) -> int:
        depths.append(checked(None, "1").call("Is it?").record.depth)
        return output

    async def aask(output: int) -> int:
        depths.append((await checked(None, "1").acall("Is it?")).record.depth)
        return output

    driven(way, checked(ask, "12"))
    driven(way, checked(aask, "12"))
    assert depths == [1, 1]


# Limits


@everywhere
@pytest.mark.parametrize("kind", ["plain", "waiting"])
def test_a_slow_check_fails_the_call(way: Way, kind: str):
    wait = Wait()
    check = wait.wait if kind == "plain" else wait.await_
    agent = checked(lambda output: check(), "12", limits=Limits(check_s=0.05))
    one = agent.prepare("How many?")

    def drive() -> None:
        with suppress(CallFailed):
            way(agent, one, [])

    with ended_before(drive, wait.free):
        pass
    assert one.record.ending.reason is Reason.CHECK_FAILED
    with pytest.raises(CallFailed) as caught:
        one.result()
    assert isinstance(caught.value.__cause__, TimeoutError)


@everywhere
def test_a_deadline_ends_a_check(way: Way):
    late = threading.Event()

    def slow(output: int, context: Context[Any]) -> int:
        late.wait(10)
        return output

    script = Script(Delayed(59.95, "12"), clock=FakeClock())  # and 0.05 s are left
    one, _ = driven(way, checked(slow, script, limits=Limits(deadline_s=60)))
    assert (one.record.ending.reason, one.record.trace[-1].source) == (Reason.EXPIRED, State.CHECKING)
    late.set()


@everywhere
def test_time_passes_by_the_clock_of_the_call(way: Way):
    clock = FakeClock(100.0)

    def slow(output: int) -> int:
        clock.advance(2.5)
        return judged(output, 12)

    one, _ = driven(way, checked(slow, Script("40", "12", clock=clock)))
    assert [step.at_s for step in one.record.trace if step.source == State.CHECKING] == [102.5, 105.0]
    (report,) = rounds_of(one.record)
    assert (report.checks_s, report.parse_errors, report.text) == (5.0, ("only 12 are left",), "12")
    named = [span["name"] for span in spans_of(one.record)]
    assert named == ["invoke_agent", "chat", "check", "chat", "check"]
    expiring = checked(slow, Script("40", "12", clock=clock), limits=Limits(deadline_s=1.0))
    assert driven(way, expiring)[0].record.ending.reason is Reason.EXPIRED, "after the refusal, before the next request"


@everywhere
@pytest.mark.parametrize("kind", ["plain", "waiting"])
@pytest.mark.parametrize("request_", ["cancel", "stop"])
def test_a_call_that_waits_for_its_check_ends_at_once(way: Way, request_: str, kind: str):
    wait, over, told = Wait(), threading.Event(), list[bool]()

    def slow(output: int, context: Context[Any]) -> int:
        wait.wait()
        told.append(context.is_cancelled())
        over.set()
        return output

    async def aslow(output: int, context: Context[Any]) -> int:
        try:
            await wait.await_()
        finally:
            told.append(context.is_cancelled())
            over.set()
        return output

    agent = checked(slow if kind == "plain" else aslow, "12")
    one = agent.prepare("How many?")

    def drive() -> None:
        with suppress(CallFailed):
            way(agent, one, [])

    with ended_before(drive, wait.free):
        assert wait.begun.wait(20)
        getattr(one, request_)("enough")
    reason = {"cancel": Reason.CANCELLED, "stop": Reason.STOPPED}[request_]
    assert (one.record.ending.reason, one.record.trace[-1].source) == (reason, State.CHECKING)
    assert (one.output, one.record.reply.message.text) == (None, "12"), "an answer that nobody has checked is no output"
    assert over.wait(20)
    assert told == [True]


class Crash(BaseException):
    """The process is gone."""


@everywhere
def test_a_check_whose_verdict_is_kept_is_not_run_again(way: Way, tmp_path: Path):
    store, ran = str(tmp_path / "runs.db"), list[int]()

    def look(output: int) -> int:
        ran.append(output)
        return judged(output, 12) + 1

    def crashing(request: Any) -> Any:
        raise Crash

    agent = checked(look, "40", crashing, store=store, name="shop")
    one = agent.prepare("How many?", run_id="r1")
    with pytest.raises(Crash):
        way(agent, one, [])
    again = agent.changed(model=Script("12"))
    assert again.runs.resume("r1").output == 13
    assert ran == [40, 12], "the refusal was kept"
    assert (again.runs.resume("r1").output, ran) == (13, [40, 12])
    assert again.runs.replay("r1").output == 13
    assert ran == [40, 12]


@everywhere
def test_a_check_that_was_interrupted_is_run_again(way: Way):
    store, ran = MemoryStore(), list[int]()

    def crashing(output: int) -> int:
        ran.append(output)
        raise Crash

    agent = checked(crashing, "12", store=store, name="shop")
    with pytest.raises(Crash):
        way(agent, agent.prepare("How many?", run_id="r1"), [])

    def look(output: int) -> int:
        ran.append(output)
        return output

    assert agent.changed(model=Script(), check=look).runs.resume("r1").output == 12
    assert ran == [12, 12]


def interrupted(store: MemoryStore) -> Agent[Any, Any]:
    def crashing(output: int) -> int:
        raise Crash

    agent = checked(crashing, "12", store=store, name="shop")
    with pytest.raises(Crash):
        agent.call("How many?", run_id="r1")
    return agent


def test_a_run_is_not_completed_without_its_check():
    store = MemoryStore()
    agent = interrupted(store).changed(model=Script())
    with pytest.raises(UsageError, match="'shop'"):
        agent.changed(check=None).runs.resume("r1")
    assert agent.changed(check=plain).runs.resume("r1").output == 12, "the run was given back"
