"""Does it change nothing who records: are runs, results, events and journals equal with and without?"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from support.traces import Traces

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallSuspended,
    Context,
    Denied,
    Limits,
    MemoryStore,
    RateLimited,
    Retries,
    function,
    handoff,
)
from fsm_agent.errors import FsmAgentError
from fsm_agent.flows import Flow, FlowSuspended, each, end, execute, gather, wait
from fsm_agent.flows import ask as asking
from fsm_agent.messages import Done, FunctionEnded, HistoryChanged, Inside, Stepped
from fsm_agent.runtime import instrument, probes
from fsm_agent.testing import Script, function_call


@function(blocking=False)
def now() -> str:
    """The time."""
    return "noon"


@function
async def later(n: int) -> str:
    """The time, later."""
    await asyncio.sleep(0)
    return f"{n} o'clock"


@function(retries=Retries(attempts=2, jitter=0.0))
def shaky(context: Context) -> str:
    """Works at the second attempt."""
    if context.attempt == 1:
        raise OSError("away")
    return "there"


@function(blocking=False)
def broken() -> str:
    """Fails."""
    raise OSError("away")


@function(on_error="fail")
def fatal() -> str:
    """Fails the call."""
    raise OSError("gone")


@function(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@function(once=True)
def send(context: Context) -> str:
    """Send, once."""
    return "sent"


@function(timeout_s=60)
def slow() -> str:
    """Runs in a thread, as it has a timeout."""
    return "slow"


FUNCTIONS = (now, later, shaky, broken, pay, send, slow)


def some_calls(random: Random) -> list[Any]:
    """Calls of functions without threads, in any number, or one of another: they end in the same order each time."""
    if random.random() < 0.5:
        others = ("shaky", "send", "slow", *["fatal"] * random.randint(0, 1))
        paid, scouted = function_call("pay", amount=random.randint(1, 9)), function_call("scout", task="look")
        return [random.choice([*map(function_call, others), paid, scouted])]
    made = [
        function_call("now"),
        function_call("later", n=random.randint(1, 12)),
        function_call("broken"),
        function_call("unknown"),
        function_call("later", n="no number"),
    ]
    return random.sample(made, random.randint(1, 3))


def agent_of(seed: int, store: Any = None) -> Agent[Any, Any]:
    random = Random(seed)
    entries: list[Any] = []
    for _ in range(random.randint(0, 3)):
        entries += random.sample([RateLimited("slow down", retryable=True, retry_after_s=1.0)], random.randint(0, 1))
        entries.append(some_calls(random))
    entries += random.choice([["7"], ["seven", "7"], [[function_call("take_over")]], ["a", "b", "c"]])
    inside = [random.choice([[function_call("now")], [function_call("pay", amount=1)], "seen"]) for _ in range(9)]
    scout = Agent(Script(*inside, "seen", "seen", "seen"), functions=[now, pay], name="scout", limits=Limits(rounds=3))
    heir = Agent(Script("8", "8"), name="heir", output=int)
    return Agent(
        Script(*entries, *["9"] * 9),
        functions=[*FUNCTIONS, fatal, scout.as_function(description="Looks."), handoff(heir, name="take_over")],
        name="shop",
        output=int,
        store=store,
        approve=random.choice([None, lambda f: True, lambda f: Denied("no"), lambda f: f.arguments != {"amount": 1}]),
    )


def answered(agent: Agent[Any, Any], one: Any, drive: Callable[[Any], Any]) -> Any:
    """Drive a call to its end, over each question, which is answered in the same way each time."""
    for n in range(20):
        drive(one)
        questions = [effect for effect in one.effects if effect.question is not None]
        if not questions:
            return one
        one.advance(questions[0].key, Approved(at_s=float(n)) if n % 2 else Denied("no", at_s=float(n)))
    raise AssertionError("there is always another question")


def by_run(agent: Any, one: Any, heard: list[Any]) -> None:
    with suppress(FsmAgentError):
        agent.run(one)


def by_sink(agent: Any, one: Any, heard: list[Any]) -> None:
    with suppress(FsmAgentError):
        agent.run(one, heard.append)


def by_arun(agent: Any, one: Any, heard: list[Any]) -> None:
    async def main() -> None:
        await agent.arun(one, heard.append)

    with suppress(FsmAgentError):
        asyncio.run(main())


def by_arun_unheard(agent: Any, one: Any, heard: list[Any]) -> None:
    with suppress(FsmAgentError):
        asyncio.run(agent.arun(one))


def by_astream(agent: Any, one: Any, heard: list[Any]) -> None:
    async def main() -> None:
        async for event in agent.astream(one):
            heard.append(event)

    with suppress(FsmAgentError):
        asyncio.run(main())


WAYS = [by_run, by_sink, by_arun, by_arun_unheard, by_astream]


def comparable(events: list[Any]) -> list[Any]:
    """The events, without how long functions took, and without which of those at once was the last."""
    found = []
    for event in events:
        plain = event.event if isinstance(event, Inside) else event
        if isinstance(plain, FunctionEnded):
            plain = plain.changed(duration_s=0.0, traceback="")
        if isinstance(plain, Stepped):
            plain = plain.trigger
        if not isinstance(plain, Done | HistoryChanged):
            found.append((getattr(event, "path", ""), plain))
    return sorted(found, key=str)  # functions run side by side


def lines_of(store: MemoryStore) -> list[Any]:
    """What a store has of each run, without the traceparent, and without digests, which it is part of.

    Entries are sorted, and so is what followed, as functions and members that run side by side end in any order.
    """
    kept = []
    for run in store.list(limit=100):
        loaded = store.load(run.id, after=0)
        header = {key: value for key, value in json.loads(loaded.header).items() if key != "traceparent"}
        lines = [json.loads(line) for line in loaded.lines]
        entries = [json.dumps([line["key"], line["outcome"], line.get("by")], sort_keys=True) for line in lines]
        followed = [str(item) for line in lines for name in ("steps", "to", "begun") for item in line.get(name, ())]
        kept.append((run.id, run.state, header, sorted(entries), sorted(followed)))
    return sorted(kept, key=str)


def assert_equal_when_recorded(done: Callable[[], Any], **options: Any) -> None:
    """Do something twice, with and without recording: the results are equal, and each span has ended."""
    without = done()
    traces = Traces()
    with traces.recording(**options):
        recorded = done()
    assert recorded == without
    assert traces.open == 0
    assert traces.spans


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), way=st.sampled_from(WAYS))
def test_calls(seed: int, way: Any) -> None:
    def done() -> tuple[Any, list[Any]]:
        agent, heard = agent_of(seed), list[Any]()
        one = answered(agent, agent.prepare("?"), lambda one: way(agent, one, heard))
        return one.record, comparable(heard)

    assert_equal_when_recorded(done, content=True)


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), is_async=st.booleans())
def test_runs_in_a_store(seed: int, is_async: bool) -> None:
    def done() -> list[Any]:
        store = MemoryStore()
        agent = agent_of(seed, store)

        def drive(answers: Any = None) -> Any:
            if answers is None:
                return asyncio.run(agent.acall("?", run_id="r")) if is_async else agent.call("?", run_id="r")
            return asyncio.run(agent.runs.aresume("r", answers)) if is_async else agent.runs.resume("r", answers)

        answers = None
        for n in range(20):
            try:
                drive(answers)
                break
            except CallSuspended as suspended:
                key = next(effect.key for effect in suspended.call.effects if effect.question is not None)
                answers = {key: Approved(at_s=float(n)) if n % 2 else Denied("no", at_s=float(n))}
            except CallFailed:
                break
        return lines_of(store)

    assert_equal_when_recorded(done)


@dataclass(frozen=True)
class Data:
    count: int
    n: int = 0
    said: Any = None


def said(d: Data, what: Any) -> Data:
    return replace(d, said=str(what))


def items(d: Data) -> list[Data]:
    return [Data(0, n) for n in range(d.count)]


def flow_of(seed: int, store: Any) -> Flow[Data]:
    random = Random(seed)
    fails_at = random.randint(0, 5)

    def asked(name: str) -> Any:
        replies = random.choice([["fine"] * 20, [function_call("now"), "fine"] * 10])

        @asking(Agent(Script(*replies), functions=[now], name=name), name=name)
        def state(d: Data) -> str:
            return "?"

        return state

    @execute(blocking=False)
    def plain(d: Data) -> str:
        if d.n == fails_at > 0:  # of the items alone
            raise OSError("away")
        return "plain"

    @execute(once=True)
    def sending(d: Data, context: Context) -> str:
        return "sent"

    @wait(str)
    def review(d: Data) -> str:
        return "Well?"

    both = gather("both", asked("warm"), plain, asked("terse"))
    settled = random.random() < 0.5
    many = each("many", plain, items, settled=settled, parallel=1)
    next_one = review if random.random() < 0.7 else sending
    rows = [
        both.done(many, do=said),
        both.failed(next_one),
        many.done(next_one, do=said),
        *([] if settled else [many.failed(end("bad", failed=True))]),
        *([review.done(sending, do=said)] if next_one is review else []),
        sending.done(end("good"), do=said),
    ]
    return Flow("random", Data, start=both, rows=rows, store=store)


@settings(max_examples=6)
@given(seed=st.integers(0, 10**6), is_async=st.booleans())
def test_runs_of_flows(seed: int, is_async: bool) -> None:
    def done() -> list[Any]:
        store = MemoryStore()
        flow = flow_of(seed, store)
        data = Data(seed % 4)
        try:
            asyncio.run(flow.acall(data, run_id="r")) if is_async else flow.call(data, run_id="r")
        except FlowSuspended as suspended:
            key = next(effect.key for effect in suspended.run.effects)
            with suppress(FsmAgentError):
                asyncio.run(flow.runs.aresume("r", {key: "Yes."})) if is_async else flow.runs.resume("r", {key: "Yes."})
        except FsmAgentError:
            pass
        return lines_of(store)

    assert_equal_when_recorded(done)


# What fails does not get past the probe


class Broken(SpanProcessor):
    """Raises whenever a span begins, ends or both."""

    def __init__(self, at: str) -> None:
        self._at = at

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if "start" in self._at:
            raise RuntimeError("secret-of-the-exporter")

    def on_end(self, span: Any) -> None:
        if "end" in self._at:
            raise RuntimeError("secret-of-the-exporter")


def test_a_broken_exporter(caplog: pytest.LogCaptureFixture) -> None:
    for way in (by_run, by_astream):
        for at in ("start", "end", "start and end"):
            provider = TracerProvider(shutdown_on_exit=False)
            provider.add_span_processor(Broken(at))
            without, agent = agent_of(3), agent_of(3)
            expected = answered(without, without.prepare("?"), lambda one, by=way, on=without: by(on, one, [])).record
            with caplog.at_level(logging.WARNING, "fsm_agent"), instrument(tracer_provider=provider):
                found = answered(agent, agent.prepare("?"), lambda one, by=way, on=agent: by(on, one, [])).record
                assert found == expected
                kept = Agent(Script("a"), name="shop", store=MemoryStore())
                assert kept.call("?", run_id="r").output == "a"
    said = [record.message for record in caplog.records if "span" in record.message]
    assert 0 < len(said) == len(set(said)) < 10, "each once"
    assert "secret-of-the-exporter" not in caplog.text


class Raising:
    """A probe in which one method raises an exception."""

    def __init__(self, method: str) -> None:
        self._method = method

    def _do(self, method: str, value: Any = None) -> Any:
        if method == self._method:
            raise RuntimeError(method)
        return value

    def creating(self, process: Any, name: str) -> str:
        return str(self._do("creating", ""))

    def here(self) -> str:
        return str(self._do("here", ""))

    def drive(self, driver: Any) -> Any:
        return self._do("drive", self)

    def performing(self, activity: Any) -> Any:
        return self._do("performing", self)

    def answering(self, key: str, outcome: Any) -> Any:
        return self._do("answering", self)

    def stepped(self, steps: Any) -> None:
        self._do("stepped")

    def close(self, raised: object) -> None:
        self._do("close")

    def enter(self) -> Any:
        return self._do("enter", 1)

    def leave(self, token: Any) -> None:
        self._do("leave")

    def end(self, outcome: Any, /) -> None:
        self._do("end")


METHODS = ["creating", "drive", "performing", "answering", "stepped", "close", "enter", "leave", "end"]


@pytest.fixture
def raising(request: pytest.FixtureRequest) -> Iterator[Raising]:
    probe = Raising(request.param)
    probes.install(probe)
    yield probe
    probes.uninstall(probe)


@pytest.mark.parametrize(
    ("raising", "way"),
    [*[(name, by_run) for name in METHODS], *[(name, by_astream) for name in ("performing", "enter", "end")]],
    indirect=["raising"],
)
def test_a_probe_that_raises(raising: Raising, way: Any) -> None:
    agent = agent_of(11)
    recorded = answered(agent, agent.prepare("?"), lambda one: way(agent, one, [])).record
    probes.uninstall(raising)
    without = agent_of(11)
    assert recorded == answered(without, without.prepare("?"), lambda one: way(without, one, [])).record
    probes.install(raising)
    store = MemoryStore()
    kept = Agent(Script(function_call("pay", amount=1), "fine"), functions=[pay], name="shop", store=store)
    with pytest.raises(CallSuspended):
        kept.call("?", run_id="r")
    assert kept.runs.resume("r", {"ask:1.0": Approved()}).output == "fine"


def test_an_answer_that_is_refused_is_no_answer() -> None:
    """A post that the process cannot take is logged, and the run waits on."""
    traces = Traces()
    store = MemoryStore()
    kept = Agent(Script(function_call("pay", amount=1), "fine"), functions=[pay], name="shop", store=store)
    with traces.recording():
        with pytest.raises(CallSuspended):
            kept.call("?", run_id="r")
        body = '{"key": "ask:1.0", "outcome": {"kind": "slept"}}'
        store.signal("r", "", body, by="x")
        with pytest.raises(CallSuspended):
            kept.runs.resume("r")
    assert traces.named("approve pay").attributes["error.type"] == "OutcomeError"
