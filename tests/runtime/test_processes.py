"""Is a process with children driven like an agent call, by every driver and with every listener?"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from support.drivers import (
    DRIVERS,
    Driver,
    Wait,
    anyhow,
    by_adrive,
    by_arun,
    by_arun_unheard,
    by_drive,
    by_run,
    by_run_unheard,
    by_threads,
    ended_before,
    everywhere,
    heard,
)
from support.nested_process import Considered, Gave, Solo, Stage, Team, TeamRecord, double, pair, solo, tower

from fsm_agent import Agent
from fsm_agent.call import (
    Approved,
    AskApproval,
    Limits,
    Reason,
    RunFunction,
    State,
)
from fsm_agent.errors import Overloaded, RateLimited
from fsm_agent.functions import Function
from fsm_agent.messages import (
    Done,
    FunctionEnded,
    FunctionStarted,
    Inside,
    ReplyCompleted,
    RequestStarted,
    Stepped,
    Suspended,
    TextDelta,
)
from fsm_agent.runtime import Environment, adrive, arun, drive, run
from fsm_agent.testing import FakeClock, Script, function_call

LONG_S = 30.0


def delayed() -> Team:
    """The same, and one of the calls has to wait."""
    return pair(RateLimited("slow", retry_after_s=7.0))


MADE = pytest.mark.parametrize("make", [delayed, tower])


def by_path(events: list[Any]) -> dict[str, list[Any]]:
    """What happened on each path, in order, but for what the schedule decides.

    That is the time, which of several members ended first, and in which order the functions of a round ran.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        path, inner = (event.path, event.event) if isinstance(event, Inside) else ("", event)
        if isinstance(inner, Stepped):
            key = inner.key if inner.trigger not in ("gave", "returned") else ""
            inner = (inner.source, inner.trigger, inner.to, inner.guard, key)
        elif isinstance(inner, Done):
            inner = inner.result
        elif isinstance(inner, FunctionStarted | FunctionEnded):
            path = f"{path} {inner.id}"
        found[path].append(inner)
    return dict(found)


def traced(record: Any) -> Any:
    """The triggers of all steps that were taken, by path."""
    inner = {name: traced(r) for name, r in getattr(record, "ended", {}).items()}
    return sorted(step.trigger for step in record.trace), inner


def expected(make: Callable[[], Team]) -> tuple[Team, list[Any]]:
    one = make()
    return one, by_run(one, Script())


@MADE
@pytest.mark.parametrize("driven", [*DRIVERS, by_run_unheard, by_arun_unheard])
def test_records_and_events_are_equal_whoever_drives_and_listens(make: Callable[[], Team], driven: Driver):
    """The latter up to their interleaving."""
    reference, expected_events = expected(make)
    one = make()
    events = driven(one, Script())
    assert one.record.state is Stage.DONE
    assert one.record == reference.record
    assert traced(one.record) == traced(reference.record)
    if events:
        assert by_path(events) == by_path(expected_events)
        assert isinstance(events[-1], Done)


def test_events_carry_the_path_of_the_process_that_they_are_of():
    events = by_drive(tower(), Script())
    paths = {event.path for event in events if isinstance(event, Inside)}
    assert paths == {"deep", "alone", "deep/deeper", "deep/beside", "deep/deeper/one", "deep/deeper/two"}
    assert not [event for event in events if isinstance(event, Inside) and isinstance(event.event, Inside)]
    of_two = [event.event for event in events if isinstance(event, Inside) and event.path == "deep/deeper/two"]
    assert [e.trigger for e in of_two if isinstance(e, Stepped)] == ["begun", "functions_asked", "returned", "answered"]
    kinds = [type(e) for e in of_two]
    assert [k for k in kinds if k in (RequestStarted, ReplyCompleted, FunctionStarted, FunctionEnded)] == [
        *(RequestStarted, ReplyCompleted, FunctionStarted, FunctionEnded, RequestStarted, ReplyCompleted)
    ]
    assert TextDelta in kinds
    looked_at = [e.event.draft for e in events if isinstance(e, Inside) and type(e.event) is Considered]
    assert looked_at == ["1", "twenty-two", "twenty-two", "a word"]
    considered = [e for e in events if type(e) is Considered]
    assert [e.draft for e in considered] == ["twenty-two", "x"]
    assert {getattr(e, "event", e).key for e in events if type(getattr(e, "event", e)) is Considered} == {"pick:1"}


def keys(one: Team) -> list[str]:
    return [effect.key for effect in one.effects]


@anyhow
def test_a_failure_of_a_child_is_an_outcome_for_its_parent(driven: Driver):
    one = Team(TeamRecord(), {"a": {"b": solo(Overloaded("busy"), limits=Limits(recalls=0)), "c": solo("x")}})
    driven(one, Script())
    assert (one.record.state, one.record.reason) == (Stage.FAILED, "broke: broke: model failed")


# Approval


def erase(path: str) -> str:
    """Erase it."""
    return f"erased {path}"


def careful(**environment: Any) -> Team:
    functions = [Function.of(erase, needs_approval=True)]
    asker = solo(
        [function_call("erase", path="x"), function_call("erase", path="y")], "done", functions=functions, **environment
    )
    return Team(TeamRecord(), {"deep": {"asker": asker}, "other": solo("fine")})


@anyhow
def test_an_approval_inside_a_child_is_answered_by_advance_under_its_prefixed_key(driven: Driver):
    one = careful()
    events = driven(one, Script())
    assert keys(one) == ["deep/asker/ask:1.0", "deep/asker/ask:1.1"]
    assert one.record.ended["other"].state is State.COMPLETED, "the others go on meanwhile"
    questions = tuple([effect.question for effect in one.effects])
    assert [question.key for question in questions if question is not None] == keys(one)
    assert events[-1:] in ([], [Suspended(("deep/asker/ask:1.0", "deep/asker/ask:1.1"), None, questions)])
    assert type(one.effects[0]) is AskApproval
    for key in keys(one):
        one.advance(key, Approved(at_s=3.0))
    assert [type(effect) for effect in one.effects] == [RunFunction, RunFunction]
    driven(one, Script())
    call_record = one.record.ended["deep"].ended["asker"]
    assert [f.result for f in call_record.function_calls] == ["erased x", "erased y"]


@anyhow
def test_an_approver_of_the_childs_environment_is_asked_one_question_at_a_time(driven: Driver):
    asked, at_once = [], threading.Semaphore(1)

    def approve(f: Any) -> bool:
        assert at_once.acquire(blocking=False), "two questions at once"
        asked.append(f.arguments["path"])
        time.sleep(0)
        at_once.release()
        return True

    one = careful(approve=approve)
    driven(one, Script())
    assert (one.record.state, asked) == (Stage.DONE, ["x", "y"])


@anyhow
def test_a_question_that_waits_for_another_holds_up_nobody_else(driven: Driver):
    replied = threading.Event()

    def approve(f: Any) -> bool:
        return replied.wait(10)

    functions = [Function.of(erase, needs_approval=True)]
    askers = {
        name: solo(function_call("erase", path=name), "done", functions=functions, approve=approve)
        for name in ("a", "b", "c")
    }
    last = solo(function_call("double", n=1), lambda request: replied.set() or "done", functions=[double])
    one = Team(TeamRecord(), {**askers, "last": last})
    driven(one, Script())
    results = [f.result for name in askers for f in one.record.ended[name].function_calls]
    assert results == ["erased a", "erased b", "erased c"]


@anyhow
def test_a_child_that_waits_for_its_next_attempt_is_not_held_up_by_the_others(driven: Driver):
    asked, heard = threading.Event(), list[bool]()
    work = Function(name="work", call=lambda: heard.append(asked.wait(20)))
    quick = solo(RateLimited("slow", retry_after_s=0.01), lambda request: asked.set() or "done")
    one = Team(TeamRecord(), {"slow": solo(function_call("work"), "done", functions=[work]), "quick": quick})
    driven(one, Script())
    assert (one.record.state, heard) == (Stage.DONE, [True])


# Deadlines


@everywhere
@pytest.mark.parametrize("whose", ["a child", "a parent"])
def test_a_deadline_ends_children_first(driven: Driver, whose: str):
    """The clock stands still, but the wait has lasted."""
    wait = Wait()
    one = waiting(a_function(wait, "plain"), limits=Limits(deadline_s=0.05 if whose == "a child" else None))
    if whose == "a parent":
        one.deadline_s = 0.05
    with ended_before(lambda: driven(one, Script()), wait.free):
        pass
    assert one.record.reason == ("broke: broke: expired" if whose == "a child" else "expired: ")
    assert one.record.ended["deep"].ended["slow"].ending.reason is Reason.EXPIRED
    assert one.record.ended["other"].ending.reason is Reason.ANSWERED


@anyhow
def test_a_deadline_holds_while_its_child_is_at_work(driven: Driver):
    clock = FakeClock()
    work = [Function(name="work", call=lambda: clock.advance(9.0))]
    slow = solo(function_call("work"), "done", functions=work)
    one = Team(TeamRecord(), {"quick": solo("x", limits=Limits(deadline_s=5.0)), "slow": slow})
    driven(one, Script(), clock=clock)
    assert one.record.state is Stage.DONE, "the deadline went with its child"
    late = Agent(Script(function_call("work"), "done"), name="late", functions=work, limits=Limits(deadline_s=5.0))
    outer = Agent(script := Script(function_call("late", task="?"), "Alas."), functions=[late])
    driven(called := outer.prepare("?"), script, clock=clock)
    assert called.output == "Alas."
    assert "expired" in str(called.record.function_calls[0].error)


@pytest.mark.parametrize("driven", [by_threads, by_arun])
def test_a_function_that_fails_the_call_of_a_child_lets_go_of_the_others(driven: Driver):
    wait = Wait()

    def fail() -> None:
        """Fail."""
        assert wait.begun.wait(20)
        raise OSError("away")

    functions = [Function.of(fail, on_error="fail"), Function(name="hang", call=wait.wait)]
    inner = Agent(Script([function_call("fail"), function_call("hang")]), name="inner", functions=functions)
    outer = Agent(script := Script(function_call("inner", task="?"), "Alas."), functions=[inner])
    one = outer.prepare("?")
    with ended_before(lambda: driven(one, script), wait.free):
        pass
    assert (one.output, one.record.function_calls[0].error) == (
        "Alas.",
        "inner failed: function failed: fail: OSError: away",
    )


# Cancelling


class Slow(Script):
    """A model that takes its time."""

    def __init__(self, wait: Wait) -> None:
        super().__init__("never")
        self.wait = wait

    async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
        await self.wait.await_()
        async for item in super().astream(request):
            yield item


def a_function(wait: Wait, kind: str) -> Solo:
    made = {"call": wait.wait} if kind == "plain" else {"call": wait.await_, "is_async": True}
    return solo(function_call("work"), "never", functions=[Function(name="work", timeout_s=LONG_S, **made)])


def an_approval(wait: Wait) -> Solo:
    functions = [Function.of(erase, needs_approval=True)]
    return solo(function_call("erase", path="x"), "never", functions=functions, approve=wait.wait)


PENDING: dict[str, Callable[[Wait], Solo]] = {
    "a request": lambda wait: Solo(environment=Environment.of(Slow(wait))),
    "a plain function": lambda wait: a_function(wait, "plain"),
    "a coroutine": lambda wait: a_function(wait, "coroutine"),
    "an approval": an_approval,
}


def waiting(slow: Solo, limits: Limits = Limits()) -> Team:
    """A team three levels deep that waits for one member, when the others are done."""
    slow = Solo(prompt=slow.prompt, limits=limits, environment=slow.environment)
    return Team(TeamRecord(), {"deep": {"slow": slow, "beside": solo("a")}, "other": solo("fine")})


@everywhere
@pytest.mark.parametrize("pending", PENDING)
def test_a_cancellation_ends_children_at_once_whatever_is_pending(pending: str, driven: Driver):
    wait = Wait()
    one = waiting(PENDING[pending](wait))
    with ended_before(lambda: driven(one, Script()), wait.free):
        assert wait.begun.wait(20)
        one.cancel("enough")
    assert (one.record.state, one.record.reason, one.driver) == (Stage.FAILED, "cancelled: enough", None)
    slow = one.record.ended["deep"].ended["slow"]
    assert (slow.ending.reason, slow.ending.detail) == (Reason.CANCELLED, "enough")


@everywhere
@pytest.mark.parametrize("pending", PENDING)
def test_a_child_that_is_settled_by_a_listener_is_let_go_of_and_the_others_go_on(pending: str, driven: Driver):
    wait = Wait()
    until_begun = Function.of(lambda: wait.begun.wait(20), name="wait", timeout_s=LONG_S)
    other = solo(function_call("wait"), "fine", functions=[until_begun])
    one = Team(TeamRecord(), {"slow": PENDING[pending](wait), "other": other})

    def sink(event: Any) -> None:
        if isinstance(event, Inside) and event.path == "other" and isinstance(event.event, FunctionEnded):
            one.advance("slow", Gave(member="slow", text="by hand", record=None, at_s=1.0))

    with ended_before(lambda: heard(driven, one, Script(), sink), wait.free):
        pass
    assert (one.record.state, one.record.drafts["slow"]) == (Stage.DONE, "by hand")


# Stopping


@pytest.mark.parametrize("make", [pair, tower, careful])
@pytest.mark.parametrize(
    ("way", "then"),
    [("drive", by_arun_unheard), ("adrive", by_run_unheard), ("run", by_adrive), ("arun", by_drive)],
)
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_driver_that_is_stopped_at_any_event_leaves_a_process_that_goes_on(
    every: int, make: Callable[..., Team], way: str, then: Driver
):
    def fresh() -> Team:
        return make(approve=lambda f: True) if make is careful else make()

    reference, events = expected(fresh)
    places = 0
    tried = range(1 + len(way) % every, len(events), every)  # each event by one of the ways at least
    for place in tried:
        one = fresh()
        for member in models(one):
            replay(member)
        stopped_at(one, way, place)
        places += one.record.ending is None
        assert one.driver is None
        then(one, Script())
        assert one.record == reference.record, f"stopped at event {place}"
    assert places > len(tried) / 2, "it was stopped before its end"


class Stop(Exception):
    pass


def stopped_at(one: Team, way: str, place: int) -> None:
    """Drive a process until this number of events were heard."""
    left = place

    def sink(event: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Stop

    async def listen() -> None:
        events = adrive(one, Environment.of(Script()))
        async for event in events:
            try:
                sink(event)
            except Stop:
                await events.aclose()
                raise

    def main() -> None:
        if way == "drive":
            events = drive(one, Environment.of(Script()))
            try:
                for event in events:
                    sink(event)
            finally:
                events.close()
        elif way == "run":
            run(one, Environment.of(Script()), sink)
        elif way == "arun":
            asyncio.run(arun(one, Environment.of(Script()), sink))
        else:
            asyncio.run(listen())

    with pytest.raises(Stop):
        main()


def models(one: Team) -> list[Script]:
    """The models of all members."""

    def of(plan: Any) -> list[Any]:
        parts = [[member.environment.client] if isinstance(member, Solo) else of(member) for member in plan.values()]
        return [model for part in parts for model in part]

    return of(one.plan)


def replay(script: Script) -> None:
    """Have a script reply by the number of messages: a request that is sent again gets the same reply."""

    def reply(request: Any, timeout_s: float | None) -> Any:
        replies = sum(message.role == "assistant" for message in request.messages)
        return script._make_reply(script._entries[replies], request, timeout_s)

    script._next = reply  # type: ignore[method-assign]
