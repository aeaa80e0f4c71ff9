"""Is an advance of nested processes all or nothing, and does a question say until when it can be answered?"""

from __future__ import annotations

import asyncio
import inspect
import sys
from dataclasses import replace
from random import Random
from types import FrameType
from typing import Any

import pytest
from support.nested_process import Picked, Stage, Team, TeamRecord, answer, double, pair, solo, started, tower

from fsm_agent import Agent, Limits, function
from fsm_agent.call import (
    AgentCall,
    Begun,
    CallModel,
    Cancelled,
    ChildHandle,
    Expired,
    Process,
    Reason,
    Replied,
    Returned,
    RunFunction,
    State,
    Stopped,
    snapshot,
)
from fsm_agent.errors import IllegalTrigger, OutcomeError
from fsm_agent.flows import Flow, FlowLimits, ask, end, wait
from fsm_agent.messages import Inside, Question, Reply, Stepped, Suspended
from fsm_agent.store import SqliteStore
from fsm_agent.testing import FakeClock, Script, function_call

BEGAN_S = 2_000_000_000.0
DAY_S = 86_400.0


@function(needs_approval=True)
def erase() -> str:
    """Erase it."""
    raise NotImplementedError("it is not approved")


def asking(deadline_s: float | None = None) -> Agent[Any, Any]:
    return Agent(Script(function_call("erase")), functions=[erase], name="asking", limits=Limits(deadline_s=deadline_s))


def agent(deadline_s: float | None = None) -> Any:
    return asking(deadline_s)


def around(deadline_s: float | None, inner_s: float | None) -> Any:
    limits = Limits(deadline_s=deadline_s)
    inside = [asking(inner_s).as_function("inside", "Asks.")]
    return Agent(Script(function_call("inside", task="?")), functions=inside, name="around", limits=limits)


def waiting(deadline_s: float | None, within_s: float | None) -> Any:
    @wait(bool, within_s=within_s)
    def ok(data: str) -> str:
        return "Is it?"

    rows = [ok.done(end("yes")), *([ok.elapsed(end("late"))] if within_s else [])]
    return Flow("waiting", str, start=ok, rows=rows, limits=FlowLimits(deadline_s=deadline_s))


def flow_around(inner: Any, within_s: float | None) -> Any:
    @ask(inner, within_s=within_s)
    def working(data: str) -> str:
        return data

    late = [working.elapsed(end("late"))] if within_s else []
    rows = [working.done(end("yes")), working.failed(end("lost", failed=True)), *late]
    return Flow("outer", str, start=working, rows=rows)


WORK = {
    "no limit": (lambda: agent(), None),
    "a call": (lambda: agent(3_600.0), 3_600.0),
    "the call around it": (lambda: around(3_600.0, None), 3_600.0),
    "the call around it, first": (lambda: around(3_600.0, 7_200.0), 3_600.0),
    "the call inside, first": (lambda: around(7_200.0, 3_600.0), 3_600.0),
    "a state": (lambda: waiting(None, DAY_S), DAY_S),
    "a flow": (lambda: waiting(3_600.0, None), 3_600.0),
    "a flow, before its state": (lambda: waiting(3_600.0, DAY_S), 3_600.0),
    "a state around a call": (lambda: flow_around(agent(), 3_600.0), 3_600.0),
    "a state around two calls": (lambda: flow_around(around(7_200.0, DAY_S), 3_600.0), 3_600.0),
    "a call in a state": (lambda: flow_around(agent(3_600.0), DAY_S), 3_600.0),
}


@pytest.mark.parametrize("verb", ["stream", "astream"])
@pytest.mark.parametrize("name", WORK)
def test_a_question_says_until_when_it_can_be_answered(name, verb, tmp_path):
    made, until_s = WORK[name]
    clock = FakeClock(BEGAN_S)
    store = SqliteStore(tmp_path / "runs.db", clock.now)
    asked = questions(replace(made(), environment={"clock": clock}, store=store), verb)
    store.close()
    assert [one.until_s for one in asked] == [None if until_s is None else BEGAN_S + until_s]


def questions(work: Any, verb: str) -> list[Question]:
    async def events() -> list[Any]:
        return [event async for event in work.astream("x", run_id="r")]

    seen = [*work.stream("x", run_id="r")] if verb == "stream" else asyncio.run(events())
    (kept,) = work.store.list()
    told = seen[-1]
    assert isinstance(told, Suspended)
    assert told.questions == kept.waits
    return list(kept.waits)


# A toy with children, which are agent calls and toys


def test_the_end_of_a_child_and_the_row_for_it_are_one_advance():
    one = started(pair())
    before = one.record.trace
    answer(one, "terse/model:0", "no")
    assert [type(step) for step in one.steps] == [Inside, Stepped]
    assert (one.steps[0].path, one.steps[0].event.to) == ("terse", "Completed")
    assert (one.steps[1].trigger, one.steps[1].key) == ("gave", "terse")
    assert len(one.record.trace) == len(before) + 1
    assert set(one.record.children) == {"warm"}


def test_effects_of_children_keep_their_kind_and_have_a_prefixed_key():
    one = started(tower())
    assert {effect.key: type(effect) for effect in one.effects} == {
        "deep/deeper/one/model:0": CallModel,
        "deep/deeper/two/model:0": CallModel,
        "deep/beside/model:0": CallModel,
        "alone/model:0": CallModel,
    }


def test_a_child_whose_outcome_is_refused_leaves_everything_as_it_was():
    one = started(tower())
    before, wanted = one.record, one.effects
    for key, outcome, error in [
        ("alone/model:0", Returned(text="x"), OutcomeError),
        ("alone/model:9", Returned(text="x"), OutcomeError),
        ("nobody/model:0", Returned(text="x"), OutcomeError),
        ("deep/nobody/model:0", Returned(text="x"), OutcomeError),
        ("pick:1", Picked(index=0), OutcomeError),
        ("", Returned(text="x"), IllegalTrigger),
    ]:
        with pytest.raises(error):
            one.advance(key, outcome)
        assert one.record is before
        assert one.effects == wanted


def test_a_row_of_the_parent_that_raises_undoes_the_step_of_the_child():
    class Fragile(Team):
        is_broken = True

        def result_of_child(self, name: str, child: Any) -> Any:
            if self.is_broken:
                raise ZeroDivisionError(name)
            return super().result_of_child(name, child)

        def child(self, name: str, record: Any) -> ChildHandle:
            child = super().child(name, record)
            is_team = isinstance(child.process, Team)
            return child.changed(process=Fragile(record, child.process.plan)) if is_team else child

    one = Fragile(TeamRecord(), {"a": solo("x"), "b": {"c": solo("y")}})
    started(one)
    before, owners = one.record, {key: one.owner(key).process for key in keys(one)}
    for key in ["a/model:0", "b/c/model:0"]:
        with pytest.raises(ZeroDivisionError):
            answer(one, key, "x")
        assert one.record is before
        assert keys(one) == ["a/model:0", "b/c/model:0"]
    for key, process in owners.items():  # a driver may have asked before
        assert one.owner(key).process is process
        assert keys(process) == ["model:0"]
    assert owners["a/model:0"].record is before.children["a"]
    Fragile.is_broken = False
    answer(one, "a/model:0", "x")
    assert owners["a/model:0"].output == "x"
    assert keys(one) == ["b/c/model:0"]
    answer(one, "b/c/model:0", "y")
    assert keys(one) == ["b/pick:1"]
    Fragile.is_broken, inner = True, one.owner("b/pick:1").process
    with pytest.raises(ZeroDivisionError):
        one.advance("b/pick:1", Picked(index=0, at_s=4.0))
    assert one.owner("b/pick:1").process is inner
    assert keys(inner) == ["pick:1"]
    assert inner.steps == ()
    Fragile.is_broken = False
    one.advance("b/pick:1", Picked(index=0, at_s=4.0))
    assert keys(one) == ["pick:1"]


def test_a_deadline_is_the_earliest_and_names_its_process():
    one = Team(
        TeamRecord(),
        {"a": solo("x", limits=Limits(deadline_s=9)), "b": {"c": solo("x", limits=Limits(deadline_s=5))}},
        deadline_s=20,
    )
    started(one)
    assert one.deadline == (6.0, "b/c/")
    one.advance("b/c/", Expired(at_s=6.0))
    assert one.record.state is Stage.FAILED


def test_a_child_alone_is_cancelled_under_its_path():
    one = started(tower())
    one.advance("deep/deeper/one/", Cancelled(reason="this one", at_s=2.0))
    assert (one.record.state, one.record.reason) == (Stage.FAILED, "broke: broke: broke: cancelled")
    assert [step.path for step in one.steps if isinstance(step, Inside)] == ["deep/deeper/one", "deep/deeper", "deep"]


def test_a_process_that_is_stopped_stops_its_children_and_ends_by_its_own_row():
    one = started(tower())
    one.advance("", Stopped(reason="enough", at_s=2.0))
    assert (one.record.state, one.record.reason, one.effects) == (Stage.DONE, "stopped: enough", ())
    inner = one.record.ended["deep"].ended["deeper"].ended["one"]
    assert (inner.state, inner.ending.reason, inner.ending.detail) == (State.COMPLETED, Reason.STOPPED, "enough")
    paths = [step.path for step in one.steps if isinstance(step, Inside)]
    assert paths.index("deep/deeper/one") < paths.index("deep/deeper") < paths.index("deep")


def outcome(rng: Random, effect: Any, at_s: float) -> Any:
    match effect:
        case CallModel():
            asked = [function_call("look", at=at) for at in "xy"], [function_call("double", n=1)], ["Done."], ["Done."]
            return Replied(reply=Reply.of(*rng.choice(asked)), at_s=at_s)
        case RunFunction():
            return Returned(text="x", is_error=rng.random() < 0.2, at_s=at_s)
    return Picked(index=0, at_s=at_s)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_kept_from_step_to_step_is_what_a_fresh_process_says(seed: int):
    """Its effects and its deadline, and the change that each step reports."""
    rng, reported = Random(seed), 0
    limited = {"deep": {"one": solo(limits=Limits(deadline_s=9)), "two": solo(functions=[double])}, "alone": solo()}
    for _ in range(8):
        made: list[Any] = [started(tower()), started(Team(TeamRecord(), limited, deadline_s=50)), halfway(boss())]
        for one in made:
            at_s = 4.0
            while one.effects:
                before, deadline, at_s = keys(one), one.deadline, at_s + 0.1
                effect = rng.choice(one.effects)
                key, became = effect.key, outcome(rng, effect, at_s)
                if "/" in key and rng.random() < 0.1:
                    key, became = f"{key.rpartition('/')[0]}/", Stopped(reason="enough", at_s=at_s)
                is_alone = not isinstance(became, Stopped)  # else it ends what is inside first
                expected = one.explain(became, key=key).taken if is_alone else None
                one.advance(key, became)
                step: Any = one.steps[0].event if isinstance(one.steps[0], Inside) else one.steps[0]
                if expected is not None:
                    assert (expected.source, expected.trigger, expected.to) == (step.source, step.trigger, step.to)
                parts = (one.plan, one.deadline_s) if isinstance(one, Team) else (one.prompt,)
                fresh = type(one)(one.record, *parts)
                assert ([*one.effects], one.deadline) == ([*fresh.effects], fresh.deadline)
                if (change := one.change) is not None and one.effects:
                    reported += 1
                    left = [kept for kept in before if kept not in (key, *change.gone)]
                    assert sorted([*left, *[new.key for new in change.new]]) == sorted(keys(one))
                    assert change.has_moved_deadline or one.deadline == deadline
            with pytest.raises(IllegalTrigger):
                one.advance("", Cancelled())
    assert reported > 50


# Interrupted

TAKEN_LINES = 400  # more than an advance has in the module
EVERY = 8  # the one of so many lines at which the gate interrupts


@function
def look(at: str) -> str:
    """Look at something."""
    raise NotImplementedError("the test answers for it")


def boss() -> Agent[Any, Any]:
    limits = Limits(deadline_s=100.0)
    inners = [Agent(Script(), name=name, functions=[look], limits=limits) for name in ("one", "two")]
    return Agent(Script(), name="boss", functions=inners)


def halfway(agent: Agent[Any, Any]) -> AgentCall[Any]:
    """A call with two inner agents, each of which waits for two functions."""
    one = agent.prepare("Go.")
    one.advance("begin", Begun(at_s=1.0, id="c"))
    one.advance(
        "model:0", Replied(reply=Reply.of(function_call("one", task="?"), function_call("two", task="?")), at_s=2.0)
    )
    for key in ("run:1.0/model:0", "run:1.1/model:0"):
        assert key in keys(one)  # what is waited for is read, and kept
        one.advance(
            key, Replied(reply=Reply.of(function_call("look", at="x"), function_call("look", at="y")), at_s=3.0)
        )
    return one


def keys(one: Any) -> list[str]:
    return [effect.key for effect in one.effects]


class Interrupter:
    """Raises KeyboardInterrupt at a line of the module, as Ctrl-C may."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename == inspect.getfile(Process) else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


STEPS = {
    "one of two functions returns": ("run:1.0/run:1.0", Returned(text="x", at_s=4.0)),
    "an agent answers": ("run:1.1/model:1", Replied(reply=Reply.of("Done."), at_s=5.0)),
}


@pytest.mark.skipif(sys.gettrace() is not None, reason="what is traced already")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.nightly)])
def test_interrupted_at_any_line_it_waits_for_what_its_record_says(every: int, step: str) -> None:
    key, outcome = STEPS[step]
    interrupted, ends = 0, set[int]()
    for at in range(0, TAKEN_LINES, every):
        agent = boss()
        one = halfway(agent)
        if key.endswith("model:1"):
            for index in range(2):
                one.advance(f"run:1.1/run:1.{index}", Returned(text="x", at_s=4.0))
        assert key in keys(one)
        before = one.record
        try:
            sys.settrace(Interrupter(at))
            one.advance(key, outcome)
            is_over = True
        except KeyboardInterrupt:
            interrupted, is_over = interrupted + 1, False
        finally:
            sys.settrace(None)
        ends.add(before is one.record)
        fresh = agent.restore(snapshot(one))
        assert keys(one) == keys(fresh), at
        assert one.deadline == fresh.deadline, at
        if is_over:
            break
        if one.record is before:
            one.advance(key, outcome)
            assert key not in keys(one)
    assert interrupted > 30 // every
    assert ends == {True, False}
