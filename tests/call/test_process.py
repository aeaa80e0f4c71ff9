"""Is an advance of nested processes all or nothing, and does a question say until when it can be answered?"""

from __future__ import annotations

import asyncio
import inspect
import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from fsm_agent import Agent, Limits, function
from fsm_agent.call import AgentCall, Begun, Process, Replied, Returned, snapshot
from fsm_agent.flows import Flow, FlowLimits, ask, end, wait
from fsm_agent.messages import Question, Reply, Suspended
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


def keys(one: AgentCall[Any]) -> list[str]:
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
