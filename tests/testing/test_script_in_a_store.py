"""Is a run that outlives a scripted process timed as the next process reads its times?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Approved, CallSuspended, Limits, MemoryStore, SqliteStore, UsageError, function
from fsm_agent.flows import Flow, FlowSuspended, end, pause, wait
from fsm_agent.flows import ask as asks
from fsm_agent.store import Runs
from fsm_agent.testing import Delayed, FakeClock, Script, function_call

REAL_S = 1_500_000_000.0  # later than where a `FakeClock` begins, and long ago


@function(needs_approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"{path} is gone"


class Plain:
    """A model that brings no clock, as real ones."""

    name = "plain"

    def __init__(self, *entries: Any) -> None:
        script = Script(*entries)
        self.complete, self.acomplete = script.complete, script.acomplete
        self.stream, self.astream = script.stream, script.astream
        self.close, self.aclose = script.close, script.aclose


def agent_of(model: Any, store: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(model, functions=[erase], name="clerk", store=store, **options)


def begun(agent: Agent[Any, Any]) -> None:
    with pytest.raises(CallSuspended):
        agent.call("Tidy up.", run_id="r")


def test_a_real_model_goes_on_within_the_deadline_that_began_under_a_script(tmp_path: Path):
    limits, path = Limits(deadline_s=3600.0), tmp_path / "runs.db"
    begun(agent_of(Script(function_call("erase", path="a")), path, limits=limits))
    result = agent_of(Plain("Done."), path, limits=limits).runs.resume("r", {"ask:1.0": Approved()})
    assert result.output == "Done."
    assert min(step.at_s for step in result.trace) > REAL_S


def test_a_flow_that_began_under_a_script_waits_as_long_as_it_says(tmp_path: Path):
    @asks(Agent(Script("Dear Ada,"), name="writer"))
    def drafting(text: str) -> str:
        return text

    @wait(str, within_s=24 * 3600.0)
    def review(text: str) -> str:
        return text

    rows = [drafting.done(review), review.done(end("sent")), review.elapsed(end("late"))]
    flow = Flow("letters", str, start=drafting, rows=rows, store=tmp_path / "runs.db")
    with pytest.raises(FlowSuspended) as suspended:
        flow.call("Dear Ada", run_id="r")
    assert suspended.value.wake_at_s > REAL_S
    assert replace(flow, environment={}).runs.resume("r", {review: "yes"}).state == "sent"


VERBS: dict[str, Callable[[Agent[Any, Any]], Any]] = {
    "call": lambda agent: agent.call("Hi", run_id="r"),
    "acall": lambda agent: asyncio.run(agent.acall("Hi", run_id="r")),
    "stream": lambda agent: list(agent.stream("Hi", run_id="r")),
    "submit": lambda agent: agent.runs.submit("Hi", run_id="r"),
    "conversation": lambda agent: agent.conversation("c").call("Hi"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_clock_of_a_test_times_nothing_that_outlives_it(verb: str, tmp_path: Path):
    agent = agent_of(Script("Hi.", clock=FakeClock()), tmp_path / "runs.db")
    with pytest.raises(UsageError, match="clock"):
        VERBS[verb](agent)
    assert agent.runs.all.store.list() == []


UNNAMED: dict[str, Callable[[Agent[Any, Any]], Any]] = {
    "call": lambda agent: agent.call("Hi"),
    "acall": lambda agent: asyncio.run(agent.acall("Hi")),
    "submit": lambda agent: agent.runs.submit("Hi"),
    "conversation": lambda agent: agent.conversation(agent.runs.all.store.list()[0].id).call("Hi"),
}


@pytest.mark.parametrize("verb", UNNAMED)
def test_the_numbers_of_a_test_name_nothing_that_outlives_it(verb: str, tmp_path: Path):
    for store in (MemoryStore(), SqliteStore(tmp_path / "own.db", FakeClock().now), SqliteStore(tmp_path / "runs.db")):
        agent_of(Script("Hi."), store).call("Hi", run_id="first")
        UNNAMED[verb](agent_of(Script("Hi."), store))
        (made,) = [run.id for run in store.list() if run.id != "first"]
        assert made.endswith("call-1") == (store.is_volatile or store.has_own_clock)


def test_a_scripted_run_is_created_by_its_first_entries_as_a_real_one(tmp_path: Path):
    begun_with = list[int]()

    class Watched(SqliteStore):
        def create(self, *which: str, **how: Any) -> Any:
            begun_with.append(len(how["lines"]))
            return super().create(*which, **how)

    for model in (Plain("Hi."), Script("Hi.")):
        agent_of(model, Watched(tmp_path / "runs.db")).call("Hi")
    assert begun_with == [1, 1]


@pytest.mark.parametrize("verb", ["resume", "aresume"])
def test_nor_does_it_go_on_with_what_others_began(verb: str, tmp_path: Path):
    begun(agent_of(Script(function_call("erase", path="a")), tmp_path / "runs.db"))
    agent = agent_of(Script("Done."), tmp_path / "runs.db", environment={"clock": FakeClock()})
    with pytest.raises(UsageError, match="clock"):
        agent.runs.resume("r") if verb == "resume" else asyncio.run(agent.runs.aresume("r"))
    row = agent.runs.all.store.get("r")
    assert (row.holder, row.state) == (None, "ToolInterrupt")


def test_a_flow_is_refused_as_an_agent_is(tmp_path: Path):
    napping = pause("napping", 60.0)
    flow = Flow("naps", str, start=napping, rows=[napping.elapsed(end("awake"))], store=tmp_path / "runs.db")
    with pytest.raises(UsageError, match="clock"):
        replace(flow, environment={"clock": FakeClock()}).call("x", run_id="r")
    assert flow.runs.all.store.list() == []


@pytest.mark.parametrize("kind", ["memory", "a file with the clock of the test"])
def test_a_store_that_shares_the_clock_takes_it(kind: str, tmp_path: Path):
    clock = FakeClock()
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "runs.db", clock.now)
    agent = agent_of(Script(function_call("erase", path="a"), "Done.", clock=clock), Runs(store))
    begun(agent)
    clock.advance(86_400.0)
    result = agent.runs.resume("r", {"ask:1.0": Approved()})
    assert (result.output, result.trace[-1].at_s) == ("Done.", clock.now())


@pytest.mark.parametrize("skip", ["advance", "Delayed"])
def test_time_that_is_the_systems_cannot_be_skipped(skip: str, tmp_path: Path):
    script = Script(Delayed(5.0, "late") if skip == "Delayed" else function_call("erase", path="a"))
    agent = agent_of(script, tmp_path / "runs.db")
    if skip == "advance":
        begun(agent)
    with pytest.raises(UsageError, match="clock"):
        agent.call("Hi", run_id="s") if skip == "Delayed" else script.clock.advance(5.0)
