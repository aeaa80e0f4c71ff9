"""Is everything that a driver performs a span, in its place, under each driver, and does each span end?"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import aclosing, closing
from dataclasses import dataclass, replace
from itertools import count, islice, pairwise
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.trace import SpanKind, StatusCode
from support.kept_runs import LastingStore
from support.paths import ROOT
from support.traces import Traces

from fsm_agent import (
    Agent,
    AgentBase,
    Approved,
    CallFailed,
    CallSuspended,
    Denied,
    MemoryStore,
    Message,
    RateLimited,
    Reply,
    Retries,
    Settings,
    Usage,
    UsageError,
    Worker,
    function,
    handoff,
)
from fsm_agent.call import Injected
from fsm_agent.context import summarize
from fsm_agent.errors import Overloaded
from fsm_agent.flows import (
    Flow,
    FlowFailed,
    each,
    end,
    execute,
    gather,
    into,
    subflow,
    wait,
)
from fsm_agent.flows import ask as asking
from fsm_agent.flows.orchestrator import Blueprint, Orchestrator
from fsm_agent.runtime import instrument
from fsm_agent.testing import FakeClock, Script, function_call


def here() -> str:
    """The name of the present span."""
    return str(getattr(trace.get_current_span(), "name", ""))


def by_call(agent: Any, task: Any, **options: Any) -> Any:
    return agent.call(task, **options)


def by_run(agent: Any, task: Any, **options: Any) -> Any:
    return agent.run(agent.prepare(task, **options), lambda event: None)


def by_stream(agent: Any, task: Any, **options: Any) -> Any:
    before = trace.get_current_span()
    for event in agent.stream(task, **options):
        last = event
        assert trace.get_current_span() is before
    return last.result


def by_acall(agent: Any, task: Any, **options: Any) -> Any:
    return asyncio.run(agent.acall(task, **options))


def by_astream(agent: Any, task: Any, **options: Any) -> Any:
    async def main() -> Any:
        before = trace.get_current_span()
        async for event in agent.astream(task, **options):
            last = event
            assert trace.get_current_span() is before
        return last.result

    return asyncio.run(main())


def by_worker(agent: Any, task: Any, **options: Any) -> Any:
    """As a worker takes up what another process has left."""
    store = LastingStore()
    kept = replace(agent, store=store)
    with closing(kept.stream(task, run_id="w1", **options)) as events:
        next(events)
    Worker([kept], store).run(once=True)
    return kept.runs.resume("w1")


WAYS = [by_call, by_run, by_stream, by_acall, by_astream]
each_way = pytest.mark.parametrize("way", WAYS)
both = pytest.mark.parametrize("way", [by_call, by_astream])


@function
def look() -> str:
    """Look."""
    return here()


@function(blocking=False)
def glance() -> str:
    """Look without a thread."""
    return here()


@function
async def listen() -> str:
    """Listen."""
    await asyncio.sleep(0)
    return here()


@function(timeout_s=30)
def stare() -> str:
    """Look in a thread, as there is a timeout."""
    return here()


def results(result: Any) -> list[str]:
    return [f.result for f in result.record.function_calls]


@each_way
def test_a_call_and_what_it_does(way: Callable[..., Any], traces: Traces) -> None:
    functions = [look, glance, listen, stare]
    script = Script(*[function_call(f.name) for f in functions], "fine")
    result = way(Agent(script, functions=functions, name="shop"), "?")
    inside = [name for f in functions for name in ("chat script", f"execute_tool {f.name}")]
    assert traces.tree() == ["invoke_agent shop", [*inside, "chat script"]]
    assert results(result) == [f"execute_tool {f.name}" for f in functions]
    assert here() == ""
    done = traces.spans[1:]
    assert all(before.end_time <= after.start_time for before, after in pairwise(done))
    assert not any("error.type" in span.attributes for span in done)


@both
def test_an_agent_inside_an_agent(way: Callable[..., Any], traces: Traces) -> None:
    inner = Agent(Script(function_call("look"), "seen", name="google:small"), functions=[look], name="scout")
    outer = Agent(
        Script(function_call("scout", task="?"), "fine", name="openai:large"),
        functions=[inner.as_function(description="Looks.")],
        name="shop",
    )
    way(outer, "?")
    scout = ["chat small", "execute_tool look", "chat small"]
    assert traces.tree() == ["invoke_agent shop", ["chat large", "invoke_agent scout", scout, "chat large"]]
    span = traces.named("invoke_agent scout")
    models = [each.attributes["gen_ai.request.model"] for each in (traces.named("invoke_agent shop"), span)]
    assert models == ["large", "small"]
    assert span.end_time <= traces.spans[-1].start_time
    assert span.attributes["fsm_agent.path"] == "run:1.0"
    assert span.attributes["fsm_agent.state"] == "Completed"


@both
def test_an_agent_that_takes_over(way: Callable[..., Any], traces: Traces) -> None:
    billing = Agent(Script(function_call("look"), "paid"), functions=[look], name="billing")
    way(Agent(Script(function_call("to_billing")), functions=[handoff(billing, name="to_billing")], name="shop"), "?")
    inside = ["chat script", "execute_tool look", "chat script"]
    assert traces.tree() == ["invoke_agent shop", ["chat script", "invoke_agent billing", inside]]


@both
def test_a_class_whose_answer_asks_others(way: Callable[..., Any], traces: Traces) -> None:
    class Panel(AgentBase):
        agent_group = ("one", "other")

        async def answer(self, task: str) -> str:
            return "".join([(await agent.acall(task)).output for agent in self.agents.values()])

    panel = Panel(name="panel", client={"one": Script("a"), "other": Script("b")})
    assert way(panel, "?").output == "ab"
    asked = ["invoke_agent panel/one", ["chat script"], "invoke_agent panel/other", ["chat script"]]
    assert traces.tree() == ["invoke_agent panel", ["answer", asked]]


def test_many_at_once_stay_apart(traces: Traces) -> None:
    agents = [Agent(Script(function_call("look"), "fine"), functions=[look], name=f"a{n}") for n in range(8)]

    async def main() -> None:
        await asyncio.gather(*[agent.acall("?") for agent in agents])

    with traces.tracer.start_as_current_span("POST"):
        asyncio.run(main())
    ((root, inside),) = [traces.tree()]
    assert root == "POST"
    assert sorted(inside[::2]) == [f"invoke_agent a{n}" for n in range(8)]
    assert all(each == ["chat script", "execute_tool look", "chat script"] for each in inside[1::2])


def test_the_baggage_of_the_program_reaches_functions(traces: Traces) -> None:
    @function
    def tenant() -> str:
        """The tenant."""
        return str(baggage.get_baggage("tenant"))

    token = context.attach(baggage.set_baggage("tenant", "acme"))
    try:
        for way in (by_call, by_acall):
            assert results(way(Agent(Script(function_call("tenant"), "fine"), functions=[tenant]), "?")) == ["acme"]
    finally:
        context.detach(token)


# What spans say


def test_the_attributes_of_a_request(traces: Traces) -> None:
    usage = Usage(input_tokens=50, output_tokens=7, cached_tokens=40, cache_write_tokens=3, reasoning_tokens=2)
    reply = Reply(
        message=Message.of("assistant", "hi"), usage=usage, finish="stop", model="gpt-5-mini-2026", response_id="resp_1"
    )
    Agent(
        Script(reply, name="openai-chat:gpt-5-mini"), name="shop", settings=Settings(temperature=0.5, max_tokens=9)
    ).call("?")
    span = traces.named("chat gpt-5-mini")
    assert span.kind is SpanKind.CLIENT
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.model": "gpt-5-mini-2026",
        "gen_ai.response.id": "resp_1",
        "gen_ai.usage.input_tokens": 50,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    root = traces.named("invoke_agent shop").attributes
    assert {name: root[name] for name in root if "tokens" in name} == {
        "fsm_agent.usage.input_tokens": 50,
        "fsm_agent.usage.output_tokens": 7,
    }


def test_a_summary_is_told_from_an_answer(traces: Traces) -> None:
    shorter = summarize(keep=2, step=2, by=Script("They looked.", name="google:small"))
    asked = [function_call("look")] * 4
    Agent(Script(*asked, "fine"), functions=[look], name="shop", context=shorter).call("?")
    purposes = {(span.name, span.attributes.get("fsm_agent.purpose")) for span in traces.spans if "chat" in span.name}
    assert purposes == {("chat script", None), ("chat small", "summary")}


def test_a_recall(traces: Traces) -> None:
    Agent(Script(RateLimited("slow down", status=429, retryable=True), "fine"), name="shop").call("?")
    assert traces.tree() == ["invoke_agent shop", ["chat script", "backoff", "chat script"]]
    first, _, second = [span for span in traces.spans if span.name != "invoke_agent shop"]
    assert (first.status.status_code, first.attributes["error.type"]) == (StatusCode.ERROR, "RateLimited")
    assert first.status.description is None
    assert second.attributes["fsm_agent.attempt"] == 2
    assert traces.named("invoke_agent shop").status.status_code is StatusCode.UNSET


def test_a_call_that_fails(traces: Traces) -> None:
    with pytest.raises(CallFailed):
        Agent(Script(Overloaded("no", retryable=False)), name="shop").call("?")
    root = traces.named("invoke_agent shop")
    assert (root.status.status_code, root.attributes["error.type"]) == (StatusCode.ERROR, "model_failed")


def test_a_function_that_fails_and_one_that_is_tried_again(traces: Traces) -> None:
    tries = count(1)

    @function(retries=Retries(attempts=3))
    def flaky() -> str:
        """Fails once."""
        if next(tries) < 2:
            raise OSError("away")
        return "there"

    @function
    def broken() -> str:
        """Fails."""
        raise OSError("away")

    Agent(Script(function_call("flaky"), function_call("broken"), "fine"), functions=[flaky, broken], name="shop").call(
        "?"
    )
    assert traces.named("execute_tool flaky").attributes["fsm_agent.attempts"] == 2
    assert "fsm_agent.attempts" not in traces.named("execute_tool broken").attributes
    assert traces.named("execute_tool broken").attributes["error.type"] == "tool_error"
    points = {point.attributes["fsm_agent.retry"]: point.value for point in traces.metrics()["fsm_agent.retries"]}
    assert points == {"function": 1}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_is_late(is_async: bool, traces: Traces) -> None:
    is_over = threading.Event()

    @function(timeout_s=0.05)
    def slow() -> str:
        """Waits."""
        is_over.wait(10)
        return "late"

    agent = Agent(
        Script(function_call("slow"), "fine"), functions=[slow], name="shop", environment={"clock": FakeClock()}
    )
    (by_acall if is_async else by_call)(agent, "?")
    is_over.set()
    assert traces.named("execute_tool slow").attributes["error.type"] == "timeout"


def test_an_approver(traces: Traces) -> None:
    asked = []

    @function(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def approve(f: Any) -> Any:
        asked.append(here())
        return Denied("secret reason")

    Agent(Script(function_call("pay"), "fine"), functions=[pay], name="shop", approve=approve).call("?")
    assert asked == ["approve pay"]
    assert traces.named("approve pay").attributes["fsm_agent.verdict"] == "denied"
    assert "execute_tool pay" not in traces.tree()[1]


def test_a_check(traces: Traces) -> None:
    seen = []

    def check(output: str) -> str:
        seen.append(here())
        return output

    Agent(Script("fine"), name="shop", check=check).call("?")
    assert (seen, traces.tree()) == (["check"], ["invoke_agent shop", ["chat script", "check"]])


def test_content_when_it_is_asked_for() -> None:
    key = "sk-proj-abcdefghijklmnop"

    @function
    def find(what: str, password: str) -> str:
        """Find."""
        return f"found {what} {key}"

    traces = Traces()
    with traces.recording(content=True):
        script = Script(function_call("find", what="it", password="hunter2"), "fine")
        Agent(script, system="Be kind.", functions=[find]).call(f"Where? {key} {'x' * 20_000}")
    spans = {span.name: dict(span.attributes) for span in traces.spans}
    assert spans["execute_tool find"]["gen_ai.tool.call.result"] == "found it sk-p***"
    assert spans["execute_tool find"]["gen_ai.tool.call.arguments"] == '{"what": "it", "password": "***"}'
    chat = spans["chat script"]
    assert '"parts": [{"type": "text", "content": "fine"}]' in chat["gen_ai.output.messages"]
    assert chat["gen_ai.system_instructions"] == '[{"type": "text", "content": "Be kind."}]'
    assert "tool_call_response" in chat["gen_ai.input.messages"]
    assert key not in str(spans)
    assert "hunter2" not in str(spans)
    assert len(chat["gen_ai.input.messages"]) < 11_000


def test_metrics(traces: Traces) -> None:
    reply = Reply(message=Message.of("assistant", "hi"), usage=Usage(input_tokens=50, output_tokens=7), model="m-1")
    failed = RateLimited("slow down", status=429, retryable=True)
    agent = Agent(
        Script(failed, function_call("look"), "not a number", reply, name="openai:m"),
        functions=[look],
        name="shop",
        output=str,
    )
    agent.call("?")
    metrics = traces.metrics()
    durations = {
        (point.attributes["gen_ai.operation.name"], point.attributes.get("error.type")): point.count
        for point in metrics["gen_ai.client.operation.duration"]
    }
    assert durations == {
        ("chat", "RateLimited"): 1,
        ("chat", None): 2,
        ("execute_tool", None): 1,
        ("invoke_agent", None): 1,
    }
    assert {point.attributes["fsm_agent.retry"]: point.value for point in metrics["fsm_agent.retries"]} == {"model": 1}


def test_tokens_are_measured_once(traces: Traces) -> None:
    reply = Reply(message=Message.of("assistant", "4"), usage=Usage(input_tokens=50, output_tokens=7), model="m-1")
    wrong = Reply(message=Message.of("assistant", "four"), usage=Usage(input_tokens=40, output_tokens=3), model="m-1")
    Agent(Script(wrong, reply, name="openai:m"), name="shop", output=int).call("?")
    metrics = traces.metrics()
    found = {
        point.attributes["gen_ai.token.type"]: (point.count, point.sum)
        for point in metrics["gen_ai.client.token.usage"]
    }
    assert found == {"input": (2, 90), "output": (2, 10)}
    assert {point.attributes["fsm_agent.retry"]: point.value for point in metrics["fsm_agent.retries"]} == {"answer": 1}


# Flows


@dataclass(frozen=True)
class Letter:
    about: str
    drafts: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Approve:
    by: str


def letters(**options: Any) -> Flow[Letter]:
    warm = Agent(Script(*[function_call("look"), "warm"] * 3), functions=[look], name="warm")
    terse = Agent(Script(*["terse"] * 3), name="terse")

    @asking(warm)
    def warmly(d: Letter) -> str:
        return d.about

    @asking(terse)
    def tersely(d: Letter) -> str:
        return d.about

    @execute
    def local(d: Letter) -> str:
        return here()

    @wait(Approve)
    def review(d: Letter) -> str:
        return d.text

    @execute
    def sending(d: Letter) -> str:
        return here()

    drafting = gather("drafting", warmly, tersely, local)
    rows = [
        drafting.done(review, do=into("drafts")),
        review.done(sending),
        sending.done(end("sent"), do=into("text")),
    ]
    return Flow("letters", Letter, start=drafting, rows=rows, **options)


@both
def test_a_flow_and_its_steps(way: Callable[..., Any], traces: Traces) -> None:
    result = way(letters(answer=lambda asked: Approve("ann")), Letter("x"))
    assert (result.output.drafts, result.output.text) == (("warm", "terse", "run local"), "run sending")
    root, inside = traces.tree()
    assert root == "invoke_workflow letters"
    step, drafting, *rest = inside
    assert step == "step drafting"
    assert drafting.count("run local") == 1
    assert drafting[drafting.index("invoke_agent warm") + 1] == ["chat script", "execute_tool look", "chat script"]
    assert drafting[drafting.index("invoke_agent terse") + 1] == ["chat script"]
    assert rest == ["step review", ["answer review"], "step sending", ["run sending"]]
    assert traces.named("step drafting").attributes["fsm_agent.step"] == "drafting#1"
    assert traces.named("invoke_agent warm").end_time <= traces.named("step drafting").end_time
    assert traces.named("step drafting").end_time <= traces.named("step review").start_time
    assert traces.named("step review").attributes["fsm_agent.trigger"] == "done"


def test_flows_inside_and_items(traces: Traces) -> None:
    scout = Agent(Script(*["seen"] * 3), name="scout")

    @asking(scout)
    def scouting(d: Letter) -> str:
        return d.about

    inner = Flow("inner", Letter, start=scouting, rows=[scouting.done(end("seen"), do=into("text"))])
    below = subflow("below", inner, lambda d: d)
    none = each("none", scouting, lambda d: ())  # it is passed as the flow begins
    many = each("many", scouting, lambda d: (d, d))
    rows = [none.done(below), below.done(many, do=lambda d, a: d), many.done(end("done"), do=into("drafts"))]
    Flow("outer", Letter, start=none, rows=rows).call(Letter("x"))
    within = ["invoke_workflow inner", ["step scouting", ["invoke_agent scout", ["chat script"]]]]
    assert traces.tree() == [
        "invoke_workflow outer",
        ["step none", "step below", within, "step many", ["invoke_agent scout", ["chat script"]] * 2],
    ]


@both
def test_an_orchestrator(way: Callable[..., Any], traces: Traces) -> None:
    worker = Agent(Script("It is late."), name="worker", system="Finds out")
    step = {"step_id": "facts", "description": "find the facts", "intent_template": "Find out: {{ task }}"}
    planner = Agent(Script(json.dumps({"goal": "facts", "steps": [step]})), name="planner")
    result = way(Orchestrator([worker], Blueprint("Facts."), planner=planner), "the delay")
    assert result.state == "completed"
    done = ["step preparing", ["run preparing"], "step working", ["invoke_agent worker", ["chat script"]]]
    root, inside = traces.tree()
    assert (root, inside[-2:]) == ("invoke_workflow orchestrator", ["step executing", ["invoke_workflow step", done]])


def test_a_flow_that_fails(traces: Traces) -> None:
    @execute
    def breaking(d: Letter) -> str:
        raise OSError("away")

    bad = end("bad", failed=True)
    with pytest.raises(FlowFailed):
        Flow("f", Letter, start=breaking, rows=[breaking.done(end("ok"), do=into("text")), breaking.failed(bad)]).call(
            Letter("x")
        )
    assert traces.named("step breaking").status.status_code is StatusCode.ERROR
    assert traces.named("invoke_workflow f").attributes["error.type"] == "bad"


# Runs that go on elsewhere


def paying(store: Any, *entries: Any) -> Agent:
    @function(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    return Agent(Script(*entries), functions=[pay], name="shop", store=store)


def test_a_run_that_is_resumed_continues_its_trace(traces: Traces, tmp_path: Any) -> None:
    path = str(tmp_path / "runs.db")
    with pytest.raises(CallSuspended):
        paying(path, function_call("pay")).call("?", run_id="r1")
    (first,) = [span for span in traces.spans if span.name == "invoke_agent shop"]
    assert [(event.name, dict(event.attributes)) for event in first.events] == [
        ("fsm_agent.question", {"fsm_agent.key": "ask:1.0", "fsm_agent.question": "approval"})
    ]
    paying(path, "fine").runs.resume("r1", {"ask:1.0": Approved()})
    second = [span for span in traces.spans if span.name == "invoke_agent shop"][-1]
    assert second.context.trace_id == first.context.trace_id
    assert second.parent.span_id == first.context.span_id
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    again = ["approve pay", "execute_tool pay", "chat script"]
    assert traces.tree() == ["invoke_agent shop", ["chat script", "invoke_agent shop", again]]
    assert traces.named("approve pay").attributes["fsm_agent.verdict"] == "approved"


def test_within_another_span_it_is_linked_to_its_trace(traces: Traces, tmp_path: Any) -> None:
    path = str(tmp_path / "runs.db")
    with traces.tracer.start_as_current_span("POST /orders"), pytest.raises(CallSuspended):
        paying(path, function_call("pay")).call("?", run_id="r1")
    first = traces.named("invoke_agent shop")
    traces.clear()
    with traces.tracer.start_as_current_span("POST /approvals"):
        paying(path, "fine").runs.resume("r1", {"ask:1.0": Approved()})
    second, around = traces.named("invoke_agent shop"), traces.named("POST /approvals")
    assert second.parent.span_id == around.context.span_id
    assert second.context.trace_id != first.context.trace_id
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


def test_a_run_that_a_worker_takes_up(traces: Traces) -> None:
    result = by_worker(Agent(Script(function_call("look"), "fine"), functions=[look], name="shop"), "?")
    assert results(result) == ["execute_tool look"]
    first, second = [span for span in traces.spans if span.name == "invoke_agent shop"]
    assert second.parent.span_id == first.context.span_id
    assert second.attributes["fsm_agent.run.id"] == "w1"


def test_a_run_that_is_submitted_continues_the_trace_of_who_did(traces: Traces) -> None:
    store = MemoryStore()
    agent = Agent(Script("fine"), name="shop", store=store)
    with traces.tracer.start_as_current_span("POST /orders"):
        agent.runs.submit("?", run_id="r1")
    Worker([agent], store).run(once=True)
    assert traces.tree() == ["POST /orders", ["invoke_agent shop", ["chat script"]]]
    assert [link.context.span_id for link in traces.spans[1].links] == [traces.spans[0].context.span_id]


def test_a_fork_is_linked_to_the_beginning(traces: Traces) -> None:
    agent = paying(MemoryStore(), function_call("pay"), "fine", "fine")
    with pytest.raises(CallSuspended):
        agent.call("?", run_id="r1")
    first = traces.named("invoke_agent shop")
    agent.runs.resume(agent.runs.fork("r1"), {"ask:1.0": Approved()})
    assert [span.links[0].context.span_id for span in traces.spans if span.links] == [first.context.span_id]


def test_the_turns_of_a_conversation(traces: Traces) -> None:
    talk = Agent(Script("a", "b"), name="shop", store=MemoryStore()).conversation("c1")
    talk.call("?")
    talk.call("?")
    found = [span.attributes["gen_ai.conversation.id"] for span in traces.spans if span.name == "invoke_agent shop"]
    assert found == ["c1", "c1"]


def test_a_run_that_has_ended_is_no_span() -> None:
    traces = Traces()
    with traces.recording():
        agent = Agent(Script("a"), name="shop", store=MemoryStore())
        agent.call("?", run_id="r1")
        agent.runs.resume("r1")
        agent.call("?", run_id="r1")
    assert traces.tree() == ["invoke_agent shop", ["chat script"]]


# Ends


@pytest.mark.parametrize("taken", [1, 2, 4, 6, 8, 10, 12, 14])
def test_a_stream_that_is_closed_at_any_event(taken: int, traces: Traces) -> None:
    inner = Agent(Script(function_call("listen"), "seen"), functions=[listen], name="scout")
    functions = [look, listen, inner.as_function(description="Looks.")]
    asked = [function_call("look"), function_call("listen"), function_call("scout", task="?")]

    def make() -> Agent:
        return Agent(Script(asked, "fine"), functions=functions)

    with closing(make().stream("?")) as events:
        list(islice(events, taken))
    assert traces.open == 0

    async def main() -> None:
        seen = 0
        async with aclosing(make().astream("?")) as events:
            async for _ in events:
                seen += 1
                if seen == taken:
                    break
        assert traces.open == 0
        assert here() == ""

    asyncio.run(main())
    roots = [span for span in traces.spans if span.name == "invoke_agent agent"]
    assert [dict(span.attributes).get("error.type") for span in roots] == [
        None,
        None,
    ]  # who stops to listen is no error


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_message_that_is_posted_ends_no_span(traces: Traces, is_inside: bool) -> None:
    @function
    def note() -> str:
        """Post a message to the run."""
        agent.runs.all.answer("r1", {"": Injected((Message.of("user", "Hurry."),))})
        return "noted"

    desk = Agent(Script(function_call("note"), "Noted."), functions=[note], name="desk")
    asked = [function_call("desk", task="?"), "Done."] if is_inside else [function_call("note"), "Done."]
    functions = [desk] if is_inside else [note]
    agent = Agent(Script(*asked), functions=functions, name="shop", store=MemoryStore())
    assert "Hurry." in [m.text for m in agent.call("?", run_id="r1").dialog]
    assert traces.named("invoke_agent shop").end_time == max(span.end_time for span in traces.spans)


def test_a_task_that_is_cancelled(traces: Traces) -> None:
    begun = asyncio.Event()

    @function
    async def forever() -> str:
        """Waits."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async def main() -> None:
        task = asyncio.create_task(Agent(Script(function_call("forever")), functions=[forever], name="shop").acall("?"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert traces.named("execute_tool forever").attributes["error.type"] == "cancelled"
    assert traces.named("invoke_agent shop").attributes["error.type"] == "CancelledError"


def test_an_interrupt(traces: Traces) -> None:
    @function
    def interrupted() -> str:
        """Is interrupted."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Agent(Script(function_call("interrupted")), functions=[interrupted], name="shop").call("?")
    assert traces.named("execute_tool interrupted").attributes["error.type"] == "KeyboardInterrupt"
    assert traces.named("invoke_agent shop").attributes["error.type"] == "KeyboardInterrupt"


# Beginning and ending


def in_a_fresh_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.system
def test_only_instrument_loads_the_interface() -> None:
    code = "import sys, fsm_agent.runtime; from fsm_agent import Agent, MemoryStore; "
    code += "from fsm_agent.testing import Script; Agent(Script('a'), name='shop', store=MemoryStore()).call('?');"
    assert in_a_fresh_process(f"{code} print('opentelemetry' in sys.modules)") == "False\n"


@pytest.mark.system
def test_without_the_extra_it_says_which() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None\n"
    code += "from fsm_agent import ConfigError\nfrom fsm_agent.runtime import instrument\n"
    code += "try:\n    instrument()\nexcept ConfigError as error:\n    print(error)"
    assert "fsm-agent[otel]" in in_a_fresh_process(code)


def test_a_text_does_not_turn_on_the_recording_of_contents() -> None:
    """As the text "false" from a variable of the environment would."""
    content: Any = "false"
    with pytest.raises(UsageError, match="content: expected True or False, got 'false'"):
        instrument(content=content)


def test_it_records_once_and_can_be_stopped() -> None:
    traces = Traces()
    recording = instrument(tracer_provider=traces.provider)
    with pytest.raises(UsageError, match="stop"):
        instrument()
    agent = Agent(Script("a", "b", "c"), name="shop")
    with closing(agent.stream("?")) as events:
        next(events)
        recording.stop()
        recording.stop()
        list(events)  # what has begun is recorded to its end
    agent.call("?")
    assert traces.tree() == ["invoke_agent shop", ["chat script"]]
    with traces.recording():
        agent.call("?")
    assert len(traces.spans) == 4


def test_without_an_sdk_nothing_is_recorded_nor_kept() -> None:
    store = MemoryStore()
    with instrument():
        Agent(Script("a"), name="shop", store=store).call("?", run_id="r1")
    assert "traceparent" not in store.load("r1", after=0).header


@pytest.mark.parametrize(
    "damaged", ["", "nonsense", "00-zz-1-1", f"00-{0:032}-{0:016}-01", "00-" + "é" * 52, "x" * 10_000]
)
def test_a_header_without_a_traceparent_or_with_a_damaged_one(damaged: str, traces: Traces) -> None:
    store = LastingStore()
    header = paying(MemoryStore()).prepare("?", run_id="r1").journal.header
    store.create("r1", f'{header[:-1]},"traceparent":"{damaged}"}}' if damaged else header, agent="shop")
    assert paying(store, "fine").runs.resume("r1").output == "fine"
    assert [span.links for span in traces.spans] == [(), ()]
