"""Is the run of a flow part of the call that asks for it: its questions, events, tokens, limits, snapshot, journal?"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pydantic
import pytest
from support.agent_drivers import Way, by_arun, by_astream, by_run, by_run_unheard, by_stream

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallSuspended,
    Context,
    Limits,
    Reply,
    Retries,
    Usage,
    UsageError,
    Worker,
    function,
)
from fsm_agent.call import AgentCall, Returned, snapshot
from fsm_agent.flows import Flow, ask, end, execute, gather, renamed, subflow, wait
from fsm_agent.functions import Default
from fsm_agent.messages import Done, Event, FunctionEnded, FunctionStarted, Inside, Stepped
from fsm_agent.store import MemoryStore
from fsm_agent.testing import FakeClock, Script, function_call


@dataclass(frozen=True)
class Letter:
    """A letter to be written and reviewed."""

    about: str
    text: str = ""


@dataclass(frozen=True)
class Approve:
    by: str


@dataclass(frozen=True)
class Reject:
    why: str


@function(needs_approval=True)
def look_up(name: str) -> str:
    """Look something up."""
    return f"{name} is late"


def letters(*replies: Any, hooks: Any = (), agent_hooks: Any = (), **options: Any) -> Flow[Letter]:
    """Return a flow of two agents at once (one asks for approval), then of a person, and a function."""
    replies = replies or (function_call("look_up", name="it"), "Dear friend")
    clerk = Agent(Script(*replies), name="clerk", functions=[look_up], hooks=agent_hooks)
    terse = Agent(Script("Hi.", "Hi."), name="terse")

    @ask(clerk)
    def warmly(d: Letter) -> str:
        return f"Write about {d.about}."

    @ask(terse)
    def tersely(d: Letter) -> str:
        return d.about

    drafting = gather("drafting", warmly, tersely)

    @wait(Approve, Reject)
    def review(d: Letter) -> str:
        return d.text

    @execute
    def sending(d: Letter, context: Context[Any]) -> str:
        return f"{d.text} ({context.deps})"

    rows = [
        drafting.done(review, do=lambda d, a: replace(d, text=a[0])),
        review.done(sending, of=Approve),
        review.done(end("refused", failed="not like this"), of=Reject),
        sending.done(end("sent"), do=lambda d, a: replace(d, text=a)),
    ]
    return Flow("letters", Letter, start=drafting, rows=rows, hooks=hooks, **options)


def text_of(d: Letter) -> str:
    return d.text


def last(request: Any) -> str:
    return f"It said: {request.messages[-1].text}"


def boss(flow: Any, *replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(
        Script(*(replies or (function_call("letters", about="delay"), last))), functions=[flow], name="boss", **options
    )


def here(question: Any) -> Any:
    return Approve("ann") if question.state.name == "review" else None


def by_arun_unheard(agent: Agent[Any, Any], one: AgentCall[Any], heard: list[Event]) -> None:
    asyncio.run(agent.arun(one))


WAYS: list[Way] = [by_run, by_stream, by_arun, by_astream, by_run_unheard, by_arun_unheard]
ways = pytest.mark.parametrize("way", [by_run, by_arun], ids=lambda way: way.__name__)


def suspended(agent: Agent[Any, Any], task: Any = "Go.", **options: Any) -> AgentCall[Any]:
    with pytest.raises(CallSuspended) as e:
        agent.call(task, **options)
    return e.value.call


ASK, REVIEW = "run:1.0/drafting#1/warmly/ask:1.0", "run:1.0/answer:review#2"
YES = Returned(text='{"by": "ann"}')


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_record_is_the_same_whoever_drives(way: Way):
    def driven(way: Way) -> AgentCall[Any]:
        agent = boss(letters(answer=here).as_function(returns=text_of), approve=lambda f: True)
        one = agent.prepare("Go.", deps="the post")
        way(agent, one, [])
        return one

    one, other = driven(way), driven(by_run)
    assert one.output == "It said: Dear friend (the post)"
    assert one.record == other.record
    assert one.record.children == {}


# Questions and snapshots


@ways
def test_questions_suspend_the_call_and_are_answered_under_their_path_in_snapshots_of_each_moment(way: Way):
    agent = boss(letters().as_function(returns=text_of))
    one = suspended(agent, deps="the post")
    assert [effect.key for effect in one.effects] == [ASK]
    later = boss(letters("Dear friend").as_function(returns=text_of), last)
    for key, outcome in [(ASK, Approved()), (REVIEW, YES)]:
        document = snapshot(one)
        restored = later.restore(document, deps="the post")
        assert (restored.record, snapshot(restored)) == (one.record, document)
        assert [effect.key for effect in restored.effects] == [key]
        one = restored
        one.advance(key, outcome)
        with suppress(CallSuspended):
            way(later, one, [])
    assert one.output == "It said: Dear friend (the post)"


def test_an_answer_of_another_type_changes_nothing():
    agent = boss(letters("Dear friend"))
    one = suspended(agent)
    before = one.record
    with pytest.raises(Exception, match="Approve"):
        one.advance(REVIEW, Returned(text="17"))
    assert one.record is before
    assert [effect.key for effect in one.effects] == [REVIEW]


def test_a_flow_that_is_a_function_no_more_is_dropped_and_its_tokens_are_kept():
    flow = letters(Reply.of("Dear friend").changed(usage=Usage(input_tokens=7)))
    document = snapshot(suspended(boss(flow)))
    plain = function(lambda about: "ok", name="letters")
    restored = boss(plain, last).restore(document)
    assert restored.record.total_usage.input_tokens == 7
    assert restored.record.children == {}


def test_a_run_in_a_store_is_answered_and_driven_on_by_a_worker():
    store = MemoryStore()
    with pytest.raises(CallSuspended, match="warmly"):
        boss(letters(), function_call("letters", about="delay"), store=store).call("x", run_id="r1")
    later = boss(letters("Dear friend").as_function(returns=text_of), last, store=store)
    for key, outcome in [(ASK, Approved()), (REVIEW, YES)]:
        assert [question.key for question in store.load("r1").run.waits] == [key]
        later.runs.all.answer("r1", {key: outcome})
        assert Worker([later], store).run(once=True) == 1
    result = later.runs.resume("r1")
    assert result.output == "It said: Dear friend (None)"
    assert later.runs.replay("r1").record == result.record


# Arguments and results


class Order(pydantic.BaseModel, frozen=True):
    number: int = pydantic.Field(description="Of the order.", ge=1)
    note: str = ""


class Pair(NamedTuple):
    one: int
    two: int


def adding(data: Any) -> Flow[Any]:
    @execute
    def adds(d: Any) -> str:
        return repr(d)

    return Flow("adding", data, start=adds, rows=[adds.done(end("over"))])


@pytest.mark.parametrize(
    ("data", "arguments", "result"),
    [
        (Order, {"number": 3}, Order(number=3)),
        (int, {"data": 5}, 5),
        (Pair, {"data": [1, 2]}, Pair(1, 2)),
    ],
)
def test_arguments_are_the_data(data: Any, arguments: dict[str, Any], result: Any):
    made = adding(data).as_function()
    assert set(made.parameters["required"]) <= set(arguments)
    assert made.parameters["additionalProperties"] is False
    assert made(**arguments) == result
    told: list[Any] = []
    made = adding(data).as_function(returns=lambda d: told.append(d) or "ok")  # type: ignore[func-returns-value]
    agent = Agent(Script(function_call("adding", **arguments), "Done."), functions=[made])
    assert agent.call("Go.").function_calls[0].result == "ok"
    assert told == [result]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"number": 0}, "number"),
        ({"number": 1, "nmuber": 2}, "nmuber"),
    ],
)
def test_arguments_that_are_no_data_are_told_to_the_model_before_anything_begins(arguments: Any, told: str):
    agent = Agent(Script(function_call("adding", **arguments), "Alas."), functions=[adding(Order)])
    (f,) = agent.call("Go.").function_calls
    assert told in (f.error or "")


def start(subject: str, lines: int = 3) -> Letter:
    """Have a letter written.

    Args:
        subject: What about.
        lines: How long.
    """
    if lines > 9:
        raise ValueError("that is no letter")
    return Letter(f"{subject} in {lines} lines")


def test_start_has_arguments_of_its_own():
    made = letters("Dear friend").as_function("write", start=start, returns=lambda d: d.about)
    assert (made.name, made.description) == ("write", "Have a letter written.")
    assert made.parameters["properties"]["subject"]["description"] == "What about."
    agent = boss(made, function_call("write", subject="rain"), "Done.")
    one = suspended(agent)
    one.advance(REVIEW, YES)
    assert agent.run(one).function_calls[0].result == "rain in 3 lines"


def test_it_is_called_by_itself_as_well():
    made = letters("Dear friend", answer=here).as_function(start=start, returns=text_of)
    assert made("rain") == "Dear friend (None)"


def test_what_returns_raises_is_told():
    made = letters("Dear friend", answer=here).as_function(returns=lambda d: 1 / 0)
    (f,) = boss(made, function_call("letters", about="rain"), "Alas.").call("Go.").function_calls
    assert "ZeroDivisionError" in (f.error or "")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"retries": Retries()}, "retries"),
        ({"once": True}, "once"),
        ({"blocking": False}, "blocking"),
        ({"on_error": "retry"}, "on_error"),
        ({"name": "a b"}, "'a b'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, error: str):
    with pytest.raises(UsageError, match=error):
        letters().as_function(**options)


# Failures, limits, ends


def test_a_failure_is_told_or_is_the_call_s_or_has_a_default():
    def ended(**policy: Any) -> Any:
        flow = letters("Dear friend", answer=lambda question: Reject("no"))
        return boss(flow.as_function(**policy)).call("Go.")

    assert ended().output == "It said: letters failed: refused: not like this"
    assert ended(on_error=Default("nothing")).output == "It said: nothing"
    with pytest.raises(CallFailed, match="refused: not like this"):
        ended(on_error="fail")


@dataclass(frozen=True)
class Nap:
    n: int = 0


@pytest.mark.parametrize("whose", ["nobody's", "the boss's", "the flow's", "the clerk's"])
@pytest.mark.parametrize("is_inner", [False, True])
def test_functions_inside_are_put_to_the_approver_that_there_is_and_else_run(whose: str, is_inner: bool):
    asked = list[str]()

    def approver(name: str) -> Any:
        def approve(f: Any) -> bool:
            asked.append(f"{name} {f.name}")
            return True

        return {"approve": approve} if whose == name else {}

    @function
    def look() -> str:
        return "it rains"

    clerk = Agent(Script(function_call("look"), "Rain."), name="clerk", functions=[look], **approver("the clerk's"))
    state = ask(clerk, name="state")(lambda d: "?")
    rows = [state.done(end("over"), do=lambda d, a: replace(d, text=a))]
    flow = Flow("report", Letter, start=state, rows=rows, **approver("the flow's"))
    if is_inner:
        nested = subflow("nested", flow, lambda d: d)
        outer_rows = [nested.done(end("over"), do=lambda d, a: a)]
        flow = Flow("outer", Letter, start=nested, rows=outer_rows)
    agent = boss(
        flow.as_function(returns=text_of, name="report"),
        function_call("report", about="x"),
        last,
        **approver("the boss's"),
    )
    assert agent.call("Go.").output == "It said: Rain."
    who = {"nobody's": [], "the boss's": ["the boss's report", "the boss's look"]}
    assert asked == who.get(whose, [f"{whose} look"])


def napping(**options: Any) -> Flow[Nap]:
    @wait(str, within_s=500)
    def nap(d: Nap) -> str:
        return "Psst?"

    inner = Flow("inner", Nap, start=nap, rows=[nap.done(end("woken")), nap.elapsed(end("awake"))])
    sub = subflow("sub", inner, lambda d: d)
    return Flow("napping", Nap, start=sub, rows=[sub.done(end("over"))], **options)


@pytest.mark.parametrize("whose", ["call", "function", "flow"])
def test_deadlines_end_what_is_inside(whose: str):
    from fsm_agent.flows import FlowLimits

    clock = FakeClock()
    flow = napping(limits=FlowLimits(deadline_s=20)) if whose == "flow" else napping()
    made = flow.as_function(timeout_s=20 if whose == "function" else None)
    limits = Limits(deadline_s=20) if whose == "call" else Limits()
    agent = Agent(Script(function_call("napping"), last, clock=clock), functions=[made], limits=limits)
    one = suspended(agent)
    clock.advance(21)
    with suppress(CallFailed):
        agent.run(one)
    if whose == "call":
        assert one.record.ending is not None
        assert one.record.ending.reason == "expired"
    else:
        assert one.output == "It said: napping failed: Expired: 20 s are over"


@ways
def test_a_timer_inside_goes_on_by_itself_when_it_is_due(way: Way):
    clock = FakeClock()
    agent = Agent(Script(function_call("napping"), last, clock=clock), functions=[napping()])
    (*_, suspension) = agent.stream("Go.")
    assert suspension.wake_at_s == 1_000_000_500.0
    one = suspended(Agent(Script(function_call("napping"), clock=clock), functions=[napping()]))
    clock.advance(500)
    way(agent, one, [])
    assert one.output == 'It said: {"n":0}'


@ways
def test_a_call_that_is_cancelled_or_stopped_ends_what_is_inside(way: Way):
    for kind in ("cancelled", "stopped"):
        agent = boss(letters("Dear friend"))
        one = suspended(agent)
        one.request_end(kind, "enough")
        try:
            way(agent, one, [])
        except CallFailed:
            assert kind == "cancelled"
        assert (one.effects, one.record.children["run:1.0"].ending.state) == ((), "Cancelled")
        assert agent.restore(snapshot(one)).record.ending == one.record.ending


def spending(text: str, tokens: int, dollars: float = 0.0) -> Reply:
    return Reply.of(text).changed(usage=Usage(input_tokens=tokens, cost_pico_usd=round(dollars * 10**12)))


def test_its_tokens_are_the_call_s_too_while_it_goes_on_and_when_it_has_ended():
    agent = boss(letters(spending("Dear friend", 40)), Reply.of(function_call("letters", about="x")), spending("ok", 2))
    one = suspended(agent)
    assert (one.record.usage.input_tokens, one.record.total_usage.input_tokens) == (None, 40)
    assert one.record.usage_by_agent["run:1.0"].input_tokens == 40
    one.advance(REVIEW, YES)
    assert agent.run(one).usage.input_tokens == 42


def test_agents_inside_have_no_larger_budget_than_the_call_has_left():
    seen: list[Any] = []

    class Hook:
        def on_done(self, event: Any) -> None:
            seen.append(event.result)

    flow = letters(spending("Dear friend", 40), agent_hooks=[Hook()])
    agent = boss(flow, function_call("letters", about="x"), limits=Limits(tokens=30))
    with pytest.raises(CallFailed, match=r"limits\.tokens is 30"):
        agent.call("Go.")
    assert [result.ending.detail.startswith("limits.tokens is 30") for result in seen] == [True]


def test_a_model_of_which_nobody_knows_the_price_is_refused_under_a_budget_in_dollars():
    with pytest.raises(UsageError, match="price"):
        boss(letters(), function_call("letters", about="x"), limits=Limits(cost_usd=1.0)).call("Go.")


# Events and hooks


class Hook:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.inside: list[str] = []

    def on_stepped(self, event: Stepped) -> None:
        self.told.append(str(event.to))

    def on_done(self, event: Done[Any]) -> None:
        self.told.append(type(event.result).__name__)

    def on_function_ended(self, event: FunctionEnded) -> None:
        self.told.append(event.name)

    def on_inside(self, event: Inside) -> None:
        self.inside.append(event.path)


@ways
def test_events_carry_their_path_and_hooks_at_every_level_are_told(way: Way):
    top, of_flow, of_clerk = Hook(), Hook(), Hook()
    flow = letters(hooks=[of_flow], agent_hooks=[of_clerk], answer=here)
    agent = boss(flow, hooks=[top], approve=lambda f: True)
    heard: list[Event] = []
    way(agent, agent.prepare("Go."), heard)
    assert {event.path for event in heard if isinstance(event, Inside)} == {
        "run:1.0",
        "run:1.0/drafting#1",
        "run:1.0/drafting#1/warmly",
        "run:1.0/drafting#1/tersely",
    }
    functions = [event for event in heard if isinstance(event, FunctionStarted | FunctionEnded)]
    assert [(type(event).__name__, event.name) for event in functions] == [
        ("FunctionStarted", "letters"),
        ("FunctionEnded", "letters"),
    ]
    assert of_flow.told[:2] == ["drafting", "review"]
    assert of_flow.told[-2:] == ["sent", "FlowResult"]
    assert set(of_flow.inside) == {"drafting#1", "drafting#1/warmly", "drafting#1/tersely"}
    steps = ["Calling", "ToolInterrupt", "ToolInterrupt"]
    assert [name for name in of_clerk.told if name != "look_up"] == [*steps, "Calling", "Completed", "CallResult"]
    assert top.told[-2:] == ["Completed", "CallResult"]


@ways
def test_hooks_of_chosen_agents_and_of_agents_inside_of_those_of_a_flow_are_told(way: Way):
    of_chosen, of_inner = Hook(), Hook()
    inner = Agent(Script("yes"), name="inner", hooks=[of_inner])
    agent = Agent(Script(function_call("inner", task="?"), "done"), name="chosen", functions=[inner], hooks=[of_chosen])

    def choose(d: Letter) -> Agent[Any, Any]:
        return agent

    asking = ask(choose, str, name="asking")(lambda d: "?")
    flow = Flow("f", Letter, start=asking, rows=[asking.done(end("over"))])
    run, heard = flow.prepare(Letter("x")), list[Event]()
    way(flow, run, heard)  # type: ignore[arg-type]
    assert of_chosen.told == ["Calling", "ToolInterrupt", "inner", "Calling", "Completed", "CallResult"]
    assert of_inner.told == ["Calling", "Completed", "CallResult"]
    started = [event.path for event in heard if isinstance(event, Inside) and isinstance(event.event, FunctionStarted)]
    assert started == ["asking#1"]


def test_the_fingerprint_of_an_agent_changes_with_the_flow():
    one, other = boss(letters()), boss(letters(version=2))
    assert one.prompt.fingerprint != other.prompt.fingerprint
    assert one.prompt.fingerprint == boss(letters()).prompt.fingerprint


@pytest.mark.parametrize("key", ["run:1.0/answer:person#1", "run:1.0/answer:customer#1"])
def test_a_question_of_an_upgraded_flow_is_answered_under_either_name(key: str):
    """The store holds the old key, and a reading of the run shows the new one."""
    store = MemoryStore()

    def desk(name: str, **options: Any) -> Any:
        @wait(str, name=name)
        def asked(n: int) -> str:
            return "What is it about?"

        flow = Flow("asking", int, start=asked, rows=[asked.done(end("over"))], **options)
        return Agent(
            Script(function_call("asking", data=1), "Fine."), functions=[flow.as_function()], name="desk", store=store
        )

    with pytest.raises(CallSuspended):
        desk("person").call("Go.", run_id="r")
    newer = desk("customer", version=2, upgrades={1: renamed(person="customer")}).changed(model=Script("Fine."))
    (shown,) = newer.runs.at("r").effects
    assert shown.key == "run:1.0/answer:customer#1"
    assert newer.runs.resume("r", {key: Returned(text='"a lamp"')}).output == "Fine."
