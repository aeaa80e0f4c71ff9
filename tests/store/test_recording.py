"""Is a record the fold of its journal, under every driver, and is a journal written before anything follows from it?"""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_drivers import EVERY, WAYS, Way, by_arun, journaled, read_again
from support import agent_calls as walks
from support.examples import examples
from support.kept_runs import (
    OWN_CLOCK,
    LastingStore,
    Noting,
    answers,
    definition_of,
    function_call,
    loaded,
    rested,
    skip_replies,
    team_definition,
)
from support.nested_process import Solo, Team, TeamRecord

from fsm_agent.agents import Agent, handoff
from fsm_agent.call import (
    AgentCall,
    Approved,
    CallFailed,
    CallSuspended,
    FunctionFailed,
    Injected,
    Interrupted,
    Limits,
    Outcome,
    Reconcile,
    Returned,
    RunAgain,
    RunFunction,
    Started,
    StartFunction,
)
from fsm_agent.errors import Overloaded
from fsm_agent.functions import function
from fsm_agent.messages import Done, FunctionCall, FunctionStarted, Message, Reply, Stepped, Suspended, TokenLogprob
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import Environment
from fsm_agent.store import AlreadyAnswered, LeaseLost, MemoryStore, NotAsked, Runs, SqliteStore
from fsm_agent.testing import Script

seeds = st.integers(0, 2**32 - 1)


@function(once=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@function
async def look(n: int) -> str:
    """Look."""
    await asyncio.sleep(0)
    return f"seen {n}"


FUNCTIONS = (walks.add, walks.erase, walks.tick, walks.login, walks.fetch, pay, look)
PROMPT = walks.PROMPT.extend(functions=FUNCTIONS)


# Walks without a driver


def some_outcome(rng: Random, effect: Any, state: Any) -> tuple[str, Outcome]:
    if isinstance(effect, StartFunction):
        return effect.key, Started(at_s=rng.random())
    if isinstance(effect, Reconcile):
        return effect.key, rng.choice([Returned(text="paid"), FunctionFailed(text="no"), RunAgain(), RunAgain()])
    if isinstance(effect, RunFunction) and effect.is_once and rng.random() < 0.4:
        return effect.key, Interrupted(at_s=1.0)
    key, outcome = walks.outcome(rng, effect, state)
    if type(outcome).__name__ == "Replied" and rng.random() < 0.4:
        calls = [function_call("pay", amount=rng.randint(0, 3)) for _ in range(rng.randint(1, 2))]
        outcome = outcome.changed(reply=walks.asked(*calls, walks.some_call(rng)))
    return key, outcome


@examples(300)
@given(seeds)
def test_the_record_of_every_walk_is_the_fold_of_its_journal(seed: int):
    rng = Random(seed)
    budget = walks.limits(rng)
    one = walks.seeded(budget, prompt=PROMPT).journaled()
    journal = one.journal
    assert journal is not None
    while one.effects and journal.n < 60:
        one.advance(*some_outcome(rng, rng.choice(one.effects), one.state))
    other = walks.seeded(budget, prompt=PROMPT)
    read_again(other, one)
    assert other.record == one.record
    assert other.record.trace == one.record.trace
    assert [effect.key for effect in other.effects] == [effect.key for effect in one.effects]
    assert journal.records[-1] is one.record


# Driven walks


def entries(rng: Random) -> list[Any]:
    """A script that comes to an end."""
    made: list[Any] = []
    for _ in range(rng.randint(1, 6)):
        kind = rng.random()
        if kind < 0.12:
            made.append(Overloaded("busy", status=529, retryable=True))
        elif kind < 0.5:
            some = [
                rng.choice([function_call("pay", amount=rng.randint(0, 9)), function_call("look", n=rng.randint(0, 9))])
            ]
            made.append([*some, *[walks.some_call(rng) for _ in range(rng.randint(0, 3))]])
        else:
            made.append(walks.reply(rng))
    return [*made, *["42"] * 40]


class Person:
    """An approver who decides by the function call alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, f: FunctionCall) -> bool | None:
        return [True, True, False, None][Random(f"{self.seed} {f.id}").randrange(4)]


def agent_of(seed: int, store: Any, limits: Limits, skip: int = 0) -> Agent[Any, Any]:
    rng = Random(seed)
    script = Script(*entries(rng))
    skip_replies(script, skip)
    approve = Person(seed) if seed % 3 == 0 else None
    return Agent(
        script,
        functions=FUNCTIONS,
        output=int,
        limits=limits,
        stop_when=walks.stop_when,
        approve=approve,
        store=store,
        name="walker",
    )


def held(agent: Agent[Any, Any], run: str = "r1") -> tuple[AgentCall[Any], Any]:
    call = agent.prepare("Go.", run_id=run)
    return agent.runs.all.claims.begin(call, definition_of(agent))


class Meddler:
    """A listener who does something at one event: ends the call, posts to it, or breaks off."""

    def __init__(self, rng: Random, runs: Runs, process: Any) -> None:
        self.at = rng.randint(1, 25)
        self.act = rng.choice(["nothing", "cancel", "stop", "inject", "post nonsense", "break off", "break off"])
        self.runs, self.process = runs, process
        self.heard = 0

    def __call__(self, event: Any) -> None:
        self.heard += 1
        if self.heard != self.at or isinstance(event, Done | Suspended):
            return
        match self.act:
            case "cancel":
                self.process.cancel("enough")
            case "stop":
                self.process.stop("enough")
            case "inject":
                with suppress(NotAsked):  # it has just ended
                    self.runs.answer("r1", {"": Injected((Message.of("user", "Hurry."),))})
            case "post nonsense":
                with suppress(NotAsked):
                    self.runs.answer("r1", {"": Approved()})
            case "break off":
                raise ConnectionAbortedError


def assert_folds(agent: Agent[Any, Any], call: AgentCall[Any]) -> None:
    whole = agent.runs.replay("r1")
    assert whole.record == call.record
    assert whole.record.trace == call.record.trace


ended: Counter[str] = Counter()


def walked(seed: int, way: Way, store: Any) -> None:
    """Drive a run to its end, by one holder after the other, each in another way."""
    rng = Random(seed)
    limits = walks.limits(rng).changed(deadline_s=None, depth=None)
    agent = agent_of(seed, store, limits)
    one, recorder = held(agent)
    meddler = Meddler(rng, Runs(store), one)
    asked = 0
    for _ in range(30):
        with suppress(ConnectionAbortedError, CallFailed, CallSuspended):
            way(one, agent._own_environment, recorder, meddler)
        assert_folds(agent, one)
        run = loaded(store)
        assert run.run.n == len(one.record.trace)
        if not one.effects:
            assert run.run.is_ended
            ended[one.record.ending.reason] += 1
            return
        assert not run.run.is_ended
        waits, unread = {question.key for question in run.run.waits}, {post.key for post in run.signals}
        assert waits | unread - {""} == {e.key for e in one.effects if e.question is not None}
        answers: dict[str, Outcome] = {}
        for effect in one.effects:
            if effect.key in waits:
                answers[effect.key] = RunAgain() if isinstance(effect, Reconcile) else Approved()
        runs = Runs(store)
        if answers:
            runs.answer("r1", answers, by="ann")
        asked += len(agent.client.requests)
        agent = agent_of(seed, store, limits, skip=asked)
        way = rng.choice(EVERY)
        one, recorder = agent.runs.all.claims.resume("r1", definition_of(agent))
        meddler = Meddler(rng, runs, one)
    raise AssertionError("it has no end")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@examples(60)
@given(seed=seeds)
def test_a_record_is_the_fold_of_its_journal_whoever_drives(seed: int, way: Way):
    walked(seed, way, MemoryStore() if seed % 2 else LastingStore())


@examples(20)
@given(seed=seeds)
def test_the_lines_are_the_same_whoever_drives_where_the_schedule_is(seed: int):
    found = {}
    for way in EVERY:
        store = LastingStore()
        limits = walks.limits(Random(seed)).changed(deadline_s=None, depth=None, parallel=1)
        agent = agent_of(seed, store, limits)
        one, recorder = held(agent)
        with suppress(CallFailed, CallSuspended):
            way(one, agent._own_environment, recorder, lambda event: None)
        found[way.__name__] = loaded(store).lines
    assert len(set(found.values())) == 1


# Processes with children

PLANS = {
    "pair": lambda rng: {"warm": solo(rng), "terse": solo(rng)},
    "tower": lambda rng: {
        "deep": {"deeper": {"one": solo(rng), "two": solo(rng)}, "beside": solo(rng)},
        "alone": solo(rng),
    },
}


def solo(rng: Random) -> Solo:
    prompt = Prompt("x", path="p", functions=FUNCTIONS)
    limits = walks.limits(rng).changed(deadline_s=None, depth=None)
    return Solo(
        prompt=prompt,
        limits=limits,
        environment=Environment.of(Script(*entries(rng)), approve=Person(rng.randint(0, 99))),
    )


def keys_of(lines: Any) -> list[str]:
    return [json.loads(line)["key"] for line in lines]


class EndOfTeam:
    """A listener who ends a team, or breaks off, at one event."""

    def __init__(self, rng: Random, team: Team) -> None:
        self.at, self.act, self.team, self.heard = rng.randint(1, 60), rng.choice(["", "end", "break"]), team, 0

    def __call__(self, event: Any) -> None:
        self.heard += 1
        if self.heard == self.at and not isinstance(event, Done | Suspended):
            if self.act == "end":
                self.team.cancel("enough")
            elif self.act:
                raise ConnectionAbortedError


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("plan", PLANS)
@examples(15)
@given(seed=seeds)
def test_the_record_of_processes_with_children_is_the_fold_of_one_journal(seed: int, plan: str, way: Way):
    rng, store = Random(seed), MemoryStore()
    plans = PLANS[plan](rng)
    definition = team_definition(lambda record: Team(record, plans))
    runs = Runs(store)
    team = journaled(Team(TeamRecord(), plans))
    environment = Environment.of(Script())
    for _ in range(4):
        process, recorder = runs.claims.begin(team, definition)
        assert process is team
        with suppress(ConnectionAbortedError):
            way(team, environment, recorder, EndOfTeam(rng, team))
        whole = runs.replay("r1", definition)
        assert whole.record == team.record
        assert whole.record.trace == team.record.trace
        assert_same_traces(whole.record, team.record)
        answers: dict[str, Outcome] = {}
        for effect in team.effects:
            if effect.question is not None:
                answers[effect.key] = RunAgain() if isinstance(effect, Reconcile) else Approved()
        if not answers:
            break
        with suppress(AlreadyAnswered):  # and broken off before the answer was taken
            runs.answer("r1", answers)


def assert_same_traces(one: Any, other: Any) -> None:
    assert one.trace == other.trace
    for inner in ("children", "ended"):
        for name, record in getattr(one, inner, {}).items():
            assert_same_traces(record, getattr(other, inner)[name])


# What is written first


class Order:
    """The events in order: appends with their content, performed effects, and reports."""

    def __init__(self, **options: Any) -> None:
        self.store = Noting(**options)
        self.noted = self.store.noted

    @property
    def on_disk(self) -> int:
        return sum(entry[2] for entry in self.noted if entry[0] == "append")

    def perform(self, name: str) -> None:
        self.noted.append(("perform", name, self.on_disk))

    def heard(self, event: Any) -> None:
        self.noted.append(("event", type(event).__name__, self.on_disk))


def ordered(order: Order) -> Agent[Any, Any]:
    def asked(reply: Any) -> Any:
        def entry(request: Any) -> Any:
            order.perform("model")
            return reply

        return entry

    @function
    async def add(a: int, b: int) -> int:
        """Add."""
        order.perform("add")
        return a + b

    @function(once=True)
    async def buy(amount: int) -> str:
        """Buy."""
        order.perform("buy")
        return "bought"

    @function(needs_approval=True)
    def wipe() -> str:
        """Wipe."""
        order.perform("wipe")
        return "wiped"

    script = Script(
        asked([function_call("add", a=1, b=2), function_call("buy", amount=1), function_call("buy", amount=2)]),
        asked(Overloaded("busy", status=529, retryable=True)),
        asked("many"),
        asked(function_call("wipe")),
        asked("42"),
    )
    return Agent(script, functions=[add, buy, wipe], output=int, store=order.store, name="o")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_came_is_on_disk_before_anything_follows_and_before_anybody_hears(way: Way):
    order = Order()
    agent = ordered(order)
    with suppress(CallSuspended):
        one, recorder = held(agent)
        way(
            one,
            agent._own_environment.changed(approve=lambda f: order.perform("approve") or True),
            recorder,
            order.heard,
        )
    steps = 0
    began = {"model": 0}
    for kind, name, on_disk, *_ in order.noted:
        if kind == "event" and name == "Stepped":
            steps += 1
            assert steps <= on_disk, "a step was reported before it was written"
        if kind == "perform":
            began[name] = began.get(name, 0) + 1
            entries_ = loaded(order.store).lines[:on_disk]
            keys = [line.split('"key":"')[1].split('"')[0] for line in entries_]
            match name:
                case "model":
                    asked = began["model"] - 1
                    assert sum(key.startswith("model:") for key in keys) == asked
                    assert "begin" in keys
                case "add" | "buy":
                    assert "model:0" in keys
                    assert name == "add" or sum(key.startswith("start:") for key in keys) == 2
                case "wipe":
                    assert any(key.startswith("ask:") for key in keys)
                case "approve":
                    assert "model:3" in keys
    assert one.output == 42
    assert began == {"model": 5, "add": 1, "buy": 2, "approve": 1, "wipe": 1}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_a_listener_injects_is_on_disk_before_the_function_begins_that_it_heard_of(way: Way):
    begun, told = threading.Event(), list[FunctionStarted]()
    order = Order(before=lambda number: told and begun.wait(0.02))  # for what must not begin meanwhile

    @function
    def work() -> str:
        """Work."""
        order.perform("work")
        begun.set()
        return "done"

    agent = Agent(Script(function_call("work"), "fine"), functions=[work], store=order.store, name="o")
    one, recorder = held(agent)

    def listen(event: Any) -> None:
        if isinstance(event, FunctionStarted):
            told.append(event)
            if len(told) == 1:
                one.advance("", Injected((Message.of("user", "Be brief."),)))

    way(one, agent._own_environment, recorder, listen)
    ((_, _, on_disk, *_),) = [noted for noted in order.noted if noted[:2] == ("perform", "work")]
    assert keys_of(loaded(order.store).lines[:on_disk]) == ["begin", "model:0", ""]
    assert one.output == "fine"


def test_outcomes_that_come_together_are_one_append():
    free = asyncio.Event()
    begun: list[int] = []

    @function(once=True)
    async def wait(n: int) -> str:
        """Wait."""
        begun.append(n)
        if len(begun) == 4:
            free.set()
        await free.wait()
        return str(n)

    order = Order()
    script = Script([function_call("wait", n=n) for n in range(4)], "fine")
    agent = Agent(script, functions=[wait], store=order.store, name="o")
    assert asyncio.run(agent.acall("Go.", run_id="r1")).output == "fine"
    assert [entry[2] for entry in order.noted] == [1, 5, 4, 1], "begin; reply and starts; results; answer and rest"


def test_once_a_run_was_cancelled_what_came_together_with_the_last_outcome_does_not_count():
    free = asyncio.Event()
    begun: list[int] = []

    @function
    async def wait(n: int) -> str:
        """Wait."""
        begun.append(n)
        if len(begun) == 4:
            free.set()
        await free.wait()
        return str(n)

    store = LastingStore()
    agent = Agent(
        Script([function_call("wait", n=n) for n in range(4)], "fine"), functions=[wait], store=store, name="a"
    )
    one, recorder = held(agent)

    def cancels(outcome: Outcome) -> Outcome:
        if isinstance(outcome, Returned):
            one.cancel("enough")
        return outcome

    recorder.redact = cancels
    by_arun(one, agent._own_environment, recorder, lambda event: None)
    keys = [key.partition(":")[0] for key in keys_of(loaded(store).lines)]
    assert keys == ["begin", "model", "run", ""]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_run_that_is_lost_at_its_very_end_has_no_result_here(way: Way):
    """The lease is lost, and the driver told, between the last step and its writing."""
    store = LastingStore()
    agent = Agent(Script("fine"), store=store, name="a")
    one, recorder = held(agent)
    finish, heard = recorder.finish, []

    def lost_then(*, is_stopped: bool) -> None:
        recorder.lose(LeaseLost("another has it"))
        finish(is_stopped=is_stopped)

    recorder.finish = lost_then
    with pytest.raises(LeaseLost, match="another has it"):
        way(one, agent._own_environment, recorder, heard.append)
    assert not [event for event in heard if isinstance(event, Stepped) and event.to == "Completed"]
    assert one.driver is None


def test_an_entry_says_who_posted_it_and_the_record_does_not(tmp_path: Path) -> None:
    records = []
    for by in ("", "ann \N{BULLET}\n"):
        agent = rested(SqliteStore(tmp_path / f"runs{bool(by)}.db", clock=OWN_CLOCK))
        ran = asyncio.run(agent.runs.aresume("r1", answers(agent.runs.all, "r1"), by=by))
        records.append(ran.record)
        posted = [line for line in map(json.loads, loaded(agent.runs.all.store).lines) if line.get("by")]
        assert [(line["by"], line["key"].partition(":")[0]) for line in posted] == ([(by, "ask")] if by else [])
        assert agent.runs.replay("r1").record == ran.record
        agent.runs.all.close()
    assert [step.trigger for step in records[0].trace] == [step.trigger for step in records[1].trace]


def test_a_round_writes_as_much_late_in_a_call_as_early(tmp_path: Path) -> None:
    """Its lines do not grow; a snapshot, which does, is written at rests alone, and no lease that is young."""

    class Counting(SqliteStore):
        sizes: list[int]
        snapshots = renewals = 0

        def renew_all(self, leases: Any, *, for_s: float) -> Any:
            self.renewals += 1
            return super().renew_all(leases, for_s=for_s)

        def append(self, lease: Any, n: int, lines: Any, rest: Any = None, **more: Any) -> int:
            self.sizes += [len(line.encode()) for line in lines]
            self.snapshots += more.get("snapshot") is not None
            return super().append(lease, n, lines, rest, **more)

    with closing(Counting(tmp_path / "runs.db")) as store:
        store.sizes = []
        script = Script(*[function_call("add", a=100 + n, b=1) for n in range(24)], "Done.")
        agent = Agent(script, functions=[walks.add], limits=Limits(rounds=50), store=store, name="a")
        agent.call("Go.")
        early, late = sum(store.sizes[8:20]), sum(store.sizes[36:48])
        assert early * 0.9 <= late <= early * 1.1
        assert (store.snapshots, store.renewals) == (1, 0)


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_probability_of_zero_is_in_the_snapshot(tmp_path: Path, is_taken_over: bool):
    """Its logarithm is minus infinity, for which JSON has no form."""
    reply = Reply(message=Message.of("assistant", "Hi."), logprobs=(TokenLogprob("Hi.", -math.inf),))
    agent = Agent(Script(reply), name="clerk", store=tmp_path / "runs.db")
    if is_taken_over:
        clerk = Agent(Script(reply), name="clerk")
        script = Script(function_call("transfer_to_clerk"))
        agent = Agent(script, name="desk", functions=[handoff(clerk)], store=tmp_path / "runs.db")
    assert agent.call("Hello", run_id="r1").record == agent.runs.resume("r1").record
