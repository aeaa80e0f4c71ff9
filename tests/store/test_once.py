"""Does a function with once=True run once, and is a person asked if its outcome is unknown?"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from recorded_drivers import WAYS, Way, journaled
from support.kept_runs import Elsewhere, LastingStore, loaded, lose, renew, team_definition, triggers
from support.nested_process import Solo, Team, TeamRecord

from fsm_agent.agents import Agent
from fsm_agent.call import CallSuspended, FunctionFailed, Outcome, Reconcile, Returned, RunAgain, restore, snapshot
from fsm_agent.errors import UsageError
from fsm_agent.functions import Context, Function, Retries, function
from fsm_agent.messages import FunctionStarted, Stepped
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import Environment
from fsm_agent.store import LeaseLost, Runs
from fsm_agent.store.leases import RENEWER
from fsm_agent.testing import Script, function_call

LONG_S = 30.0


class Shop:
    """A function that must not run twice, and that takes as long as it is told to."""

    def __init__(self, *, is_async: bool = False, **policy: Any) -> None:
        self.store = LastingStore()
        self.redact: Callable[[Outcome], Outcome] | None = None
        self.paid: list[str] = []
        self.begun, self.free, self.quick = threading.Event(), threading.Event(), threading.Event()
        self.noted: list[list[str]] = []

        def pay(amount: int) -> str:
            """Pay."""
            self._pay(amount)
            assert self.free.wait(LONG_S)
            return f"paid {amount}"

        async def apay(amount: int) -> str:
            """Pay."""
            self._pay(amount)
            while not self.free.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            return f"paid {amount}"

        def glance() -> str:
            """Glance."""
            assert self.quick.wait(LONG_S)
            return "seen"

        self.pay = Function.of(apay if is_async else pay, name="pay", once=True, **policy)
        self.glance = Function.of(glance)

    def _pay(self, amount: int) -> None:
        self.paid.append(f"{amount}")
        self.noted.append(list(loaded(self.store).lines) if self.store.list() else [])
        self.begun.set()

    def agent(self, *entries: Any, **options: Any) -> Agent[Any, Any]:
        replies = entries or ([function_call("pay", amount=3)], "done")
        runs = Runs(self.store, redact=self.redact)
        return Agent(Script(*replies), functions=[self.pay, self.glance], store=runs, name="shop", **options)

    def next_holder(self) -> Agent[Any, Any]:
        """Another driver, for whom the lease of the first has passed."""
        self.store._clock = Elsewhere()
        return self.agent("done")


def until(is_so: Callable[[], Any]) -> None:
    for _ in range(30_000):
        if is_so():
            return
        time.sleep(0.001)
    raise AssertionError("it has not happened")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("is_async", [False, True])
def test_its_start_is_on_disk_before_it_begins(way: Way, is_async: bool):
    shop = Shop(is_async=is_async)
    shop.free.set()
    agent = shop.agent([function_call("pay", amount=3), function_call("pay", amount=4)], "done")
    one, recorder = agent.runs.all.claims.begin(agent.prepare("Go.", run_id="r1"), agent._definition({}))
    way(one, agent._own_environment, recorder, lambda event: None)
    assert sorted(shop.paid) == ["3", "4"]
    for lines in shop.noted:
        assert sum('"kind":"started"' in line for line in lines) == 2
    assert triggers(one).count("started") == 2


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_does_not_begin_when_the_store_has_told_of_its_start_after_the_lease(way: Way, monkeypatch: Any):
    """The network was cut between the commit and its answer, and meanwhile another holder was allowed to run it."""
    monkeypatch.setattr(RENEWER, "hold", lambda recorder: None)  # it is cut off as well
    shop = Shop()
    shop.free.set()
    append = shop.store.append

    def late(lease: Any, n: int, lines: Any, *rest: Any, **options: Any) -> int:
        left = append(lease, n, lines, *rest, **options)
        if any('"kind":"started"' in line for line in lines):
            lose(shop.store)
            threading.Event().wait(0.06)  # the lease is over by the clock of the driver as well
        return left

    def submit_late(*arguments: Any, **options: Any) -> Future[int]:
        future = Future[int]()
        future.set_result(late(*arguments, **options))
        return future

    shop.store.append, shop.store.submit = late, submit_late  # type: ignore[method-assign]
    agent = shop.agent()
    agent.runs.all.claims.lease_s = 0.05
    one, recorder = agent.runs.all.claims.begin(agent.prepare("Go.", run_id="r1"), agent._definition({}))
    with pytest.raises(LeaseLost):
        way(one, agent._own_environment, recorder, lambda event: None)
    assert shop.paid == []


def lost_in_the_function(shop: Shop, *, is_async: bool, entries: Any = ()) -> tuple[threading.Thread, list[Any]]:
    """A holder whose function is running."""
    came: list[Any] = []
    agent = shop.agent(*entries)

    def drive() -> None:
        try:
            came.append(asyncio.run(lingering(agent)) if is_async else agent.call("Go.", run_id="r1"))
        except LeaseLost as error:
            came.append(error)

    async def lingering(agent: Any) -> Any:
        try:
            return await agent.acall("Go.", run_id="r1")
        except LeaseLost as error:
            while not (shop.free.is_set() and shop.store.load("r1").signals):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            return error

    driver = threading.Thread(target=drive)
    driver.start()
    assert shop.begun.wait(10)
    return driver, came


def asked(agent: Agent[Any, Any], answers: Any = None) -> Any:
    """The question that the next holder asks."""
    with pytest.raises(CallSuspended, match="must not run twice") as caught:
        agent.runs.resume("r1", answers)
    return caught.value.call


@pytest.mark.parametrize(
    ("answer", "output", "runs", "told"),
    [
        (Returned(text="paid 3"), "done", 1, "paid 3"),
        (Returned(text="no money", is_error=True), "done", 1, "no money"),
        (RunAgain(), "done", 2, "paid 3"),
    ],
)
def test_another_holder_asks_and_goes_on_with_the_answer(answer: Outcome, output: str, runs: int, told: str):
    shop = Shop()
    driver, came = lost_in_the_function(shop, is_async=False)
    agent = shop.next_holder()
    waiting = asked(agent)
    (effect,) = waiting.effects
    assert isinstance(effect, Reconcile)
    (question,) = loaded(shop.store).run.waits
    assert (question.key, question.kind, question.answers) == (
        "reconcile:1.0",
        "doubt",
        ("returned", "function_failed", "run_again"),
    )
    assert '"function":"pay"' in question.about
    assert '"idempotency_key":"r1/1.0"' in question.about
    shop.begun.clear()
    threading.Thread(target=lambda: (shop.begun.wait(10), shop.free.set())).start()
    result = agent.runs.resume("r1", {"reconcile:1.0": answer}, by="ann")
    assert result.output == output
    shop.free.set()
    driver.join(10)
    assert len(shop.paid) == runs
    assert [m.text for m in result.dialog if m.role == "tool"] == [told]
    whole = agent.runs.replay("r1")
    assert whole.record == result.record
    keys = [step.key for step in result.trace]
    assert ("start:1.0:2" in keys) == (runs == 2)
    assert isinstance(came[0], LeaseLost)


def test_a_failure_that_was_found_out_is_the_functions():
    shop = Shop(on_error="fail")
    driver, _ = lost_in_the_function(shop, is_async=False)
    agent = shop.next_holder()
    asked(agent)
    with pytest.raises(Exception, match="it never began"):
        agent.runs.resume("r1", {"reconcile:1.0": FunctionFailed(text="it never began")})
    shop.free.set()
    driver.join(10)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("found", [Returned(text="it was paid"), None])
def test_reconcile_finds_out(is_async: bool, found: Any):
    keys: list[str] = []

    def look_up(context: Context[Any]) -> Any:
        keys.append(context.idempotency_key)
        return found

    async def alook_up(context: Context[Any]) -> Any:
        await asyncio.sleep(0)
        return look_up(context)

    shop = Shop(reconcile=alook_up if is_async else look_up)
    driver, _ = lost_in_the_function(shop, is_async=False)
    agent = shop.next_holder()
    resume = (lambda: asyncio.run(agent.runs.aresume("r1"))) if is_async else (lambda: agent.runs.resume("r1"))
    if found is None:
        with pytest.raises(CallSuspended):
            resume()
        assert [q.key for q in loaded(shop.store).run.waits] == ["reconcile:1.0"]
    else:
        assert [m.text for m in resume().dialog if m.role == "tool"] == ["it was paid"]
    shop.free.set()
    driver.join(10)
    assert len(shop.paid) == 1
    assert keys == ["r1/1.0"]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_holder_without_a_lease_came_to_is_posted_and_answers(is_async: bool):
    shop = Shop(is_async=is_async)
    driver, came = lost_in_the_function(shop, is_async=is_async)
    (recorder,) = [r for r in RENEWER._renewals if r.store is shop.store]
    agent = shop.next_holder()
    asked(agent)
    renew(recorder)
    until(lambda: recorder.lost is not None)
    assert not shop.free.is_set()
    shop.free.set()
    driver.join(10)
    until(lambda: loaded(shop.store).signals)
    assert isinstance(came[0], LeaseLost)
    (post,) = loaded(shop.store).signals
    assert post.by.endswith(", late")
    result = agent.runs.resume("r1")
    assert result.output == "done"
    assert [m.text for m in result.dialog if m.role == "tool"] == ["paid 3"]
    assert shop.paid == ["3"]


def test_reconcile_that_returns_something_else_is_the_users_mistake_and_the_run_is_given_back():
    shop = Shop(reconcile=lambda context: "paid")
    driver, _ = lost_in_the_function(shop, is_async=False)
    agent = shop.next_holder()
    with pytest.raises(UsageError, match="reconcile of function 'pay'"):
        agent.runs.resume("r1")
    assert loaded(shop.store).run.holder is None
    shop.free.set()
    driver.join(10)


def test_what_came_at_the_moment_of_the_loss_is_posted():
    """The function has returned, and its entry meets a lost lease, which was not noticed before."""
    shop = Shop()
    driver, came = lost_in_the_function(shop, is_async=False)
    agent = shop.next_holder()
    asked(agent)
    shop.free.set()
    driver.join(10)
    until(lambda: loaded(shop.store).signals)
    assert isinstance(came[0], LeaseLost)
    assert agent.runs.resume("r1").output == "done"
    assert shop.paid == ["3"]


def test_what_comes_late_is_redacted_as_well():
    shop = Shop()
    shop.redact = lambda outcome: outcome.changed(text="***") if isinstance(outcome, Returned) else outcome
    driver, _ = lost_in_the_function(shop, is_async=False)
    (recorder,) = [r for r in RENEWER._renewals if r.store is shop.store]
    agent = shop.next_holder()
    asked(agent)
    renew(recorder)
    until(lambda: recorder.lost is not None)
    shop.free.set()
    driver.join(10)
    until(lambda: loaded(shop.store).signals)
    assert "paid" not in loaded(shop.store).signals[0].body
    assert [m.text for m in agent.runs.resume("r1").dialog if m.role == "tool"] == ["***"]


def once_more() -> None:
    """Do it once more."""


def test_it_is_refused_together_with_retries():
    with pytest.raises(UsageError, match="retries"):
        function(once=True, retries=Retries(attempts=2))(once_more)
    with pytest.raises(UsageError, match="once=True"):
        function(once=True, on_error="retry")(once_more)
    with pytest.raises(UsageError, match="reconcile"):
        function(reconcile=lambda context: None)(once_more)


# In one OS process, without a store


def broken_off(shop: Shop) -> Any:
    """A call whose driver was stopped when the start was noted."""
    shop.free.set()
    agent = Agent(Script([function_call("pay", amount=3)], "done"), functions=[shop.pay])
    one = agent.prepare("Go.")

    def listen(event: Any) -> None:
        if isinstance(event, FunctionStarted):
            raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        agent.run(one, listen)
    return agent, one


@pytest.mark.parametrize("how", ["driven again", "restored"])
def test_another_driver_asks_as_well_in_the_same_os_process(how: str):
    shop = Shop()
    agent, one = broken_off(shop)
    if how == "restored":
        one = restore(snapshot(one), one.prompt)
    with pytest.raises(CallSuspended, match="must not run twice"):
        agent.run(one)
    assert shop.paid == []
    assert [effect.key for effect in one.effects] == ["reconcile:1.0"]
    one.advance("reconcile:1.0", RunAgain())
    assert agent.run(one).output == "done"
    assert shop.paid == ["3"]


# Inside of another process


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_it_is_asked_under_the_path_of_the_process_inside(way: Way):
    shop = Shop()
    shop.free.set()
    prompt = Prompt("x", path="p", functions=[shop.pay])
    plans = {
        "deep": {
            "warm": Solo(prompt=prompt, environment=Environment.of(Script([function_call("pay", amount=3)], "done"))),
            "terse": Solo(environment=Environment.of(Script("no", "no"))),  # asked again if its reply was under way
        }
    }
    definition = team_definition(lambda record: Team(record, plans))
    runs = Runs(shop.store)
    team = journaled(Team(TeamRecord(), plans))
    _, recorder = runs.claims.begin(team, definition)

    def listen(event: Any) -> None:
        inner = getattr(event, "event", event)
        if isinstance(inner, Stepped) and inner.trigger == "started":
            raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        way(team, Environment.of(Script()), recorder, listen)
    _, recorder = runs.claims.begin(team, definition)
    way(team, Environment.of(Script()), recorder, lambda event: None)
    assert [effect.key for effect in team.effects] == ["deep/warm/reconcile:1.0"]
    assert [question.key for question in loaded(shop.store).run.waits] == ["deep/warm/reconcile:1.0"]
    assert shop.paid == []
    runs.answer("r1", {"deep/warm/reconcile:1.0": RunAgain()})
    _, recorder = runs.claims.begin(team, definition)
    way(team, Environment.of(Script()), recorder, lambda event: None)
    assert not team.effects
    assert shop.paid == ["3"]
    whole = runs.replay("r1", definition)
    assert whole.record == team.record
