"""Does a question say until when it can be answered, if the time is limited anywhere?"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fsm_agent import Agent, Limits, function
from fsm_agent.flows import Flow, FlowLimits, ask, end, wait
from fsm_agent.messages import Question, Suspended
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
