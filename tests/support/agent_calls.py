"""Agent calls that tests advance, step by step or at random, and their invariants."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from fsm_agent.call import (
    AgentCall,
    Approved,
    AskApproval,
    AskSummary,
    Begin,
    Begun,
    CallModel,
    Cancelled,
    Checked,
    CheckFailed,
    CheckOutput,
    CheckRefused,
    Denied,
    Expired,
    FunctionFailed,
    Injected,
    Interrupted,
    Limits,
    ModelFailed,
    Modified,
    Outcome,
    Reconcile,
    Replied,
    Returned,
    RunAgain,
    RunFunction,
    Sleep,
    Slept,
    Started,
    StartFunction,
    State,
    StopContext,
    Stopped,
)
from fsm_agent.context import ContextPlan
from fsm_agent.errors import ErrorReport, ParseError
from fsm_agent.functions import function
from fsm_agent.messages import FunctionCall, Message, Reply, Text, Usage
from fsm_agent.prompts import Dialog, Prompt
from fsm_agent.testing import function_call
from support.views import View


@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function(needs_approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


@function(repeatable=True)
def tick() -> str:
    """The time."""
    return "now"


@function(max_calls=2)
def login(user: str) -> str:
    """Log in."""
    return f"welcome, {user}"


@function(depends_on=("login",), repeatable=True)
def fetch() -> str:
    """Fetch what only users can see."""
    return "secret"


@function(once=True, repeatable=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def parse(text: str) -> int:
    if not text.isdigit():
        raise ParseError(f"{text!r} is no number")
    return int(text)


def stop_when(context: StopContext) -> str | None:
    return "enough" if "enough" in context.reply.message.text else None


PROMPT = Prompt("{{ task }}", path="walk", functions=(add, erase, tick, login, fetch, pay), parser=parse)


STAGED = PROMPT.extend(mode="two_stage")
TYPED = Prompt("{{ task }}", path="typed", functions=(add, tick), output=int, mode="function")


FINAL = (State.COMPLETED, State.FAILED)
LIVE = tuple(state for state in State if state not in FINAL)


def view_of(plan: ContextPlan | None) -> View | None:
    """The view that a call has with this plan."""
    return None if plan is None else View(plan)


def unchanged(output: Any) -> Any:
    """A check that takes every answer."""
    return output


def seeded(
    limits: Limits = Limits(), *, depth: int = 0, prompt: Prompt = PROMPT, check: Any = None, view: View | None = None
) -> AgentCall:
    dialog = Dialog([Message.of("system", "You add."), Message.of("user", "What is 17 + 25?")])
    return AgentCall.seed(dialog, prompt, limits=limits, depth=depth, stop_when=stop_when, check=check, view=view)


def asked(*calls: FunctionCall, text: str = "") -> Reply:
    parts = (*([Text(text)] if text else []), *calls)
    return Reply(message=Message(role="assistant", parts=parts), usage=Usage(input_tokens=5, output_tokens=2))


def waiting() -> AgentCall:
    """Return a call that waits for a function and for an approval."""
    call = seeded()
    call.advance("begin", Begun(at_s=5.0, id="c1"))
    call.advance("model:0", Replied(reply=asked(function_call("add", a=1, b=2), function_call("erase", path="x"))))
    return call


def limits(rng: Random) -> Limits:
    return Limits(
        rounds=rng.choice([None, 0, 1, 2, 3, 4]),
        parse_retries=rng.randint(0, 3),
        recalls=rng.randint(0, 2),
        depth=rng.choice([None, 3, 3, 3, 3, 3, 3, 1]),
        deadline_s=rng.choice([None, 100.0]),
        identical_rounds=rng.choice([None, 2, 2, 3]),
        on_loop=rng.choice(["stop", "stop", "warn", "tell"]),
        loop_role=rng.choice(["user", "system"]),
        on_cut=rng.choice(["retry", "accept"]),
        wait_s=rng.choice([60.0, 60.0, None, 0.4]),
        on_limit=rng.choice(["final_prompt", "stop", "fail"]),
        failures_per_function=rng.choice([None, None, 1, 2]),
        parallel=rng.choice([None, None, 1, 2]),
        tokens=rng.choice([None, None, None, None, 20]),
    )


def some_call(rng: Random) -> FunctionCall:
    return rng.choice(
        [
            function_call("add", a=rng.randint(0, 1), b=1),
            function_call("erase", path=str(rng.randint(0, 2))),
            function_call("tick"),
            function_call("login", user=rng.choice("ab")),
            function_call("fetch"),
            function_call("pay", amount=rng.randint(1, 2)),
            function_call("nosuch"),
            FunctionCall(name="add", arguments_json='{"a": 1'),
            function_call("add", a="x"),
        ]
    )


def reply(rng: Random) -> Reply:
    kind = rng.random()
    if kind < 0.2:  # often the same
        return asked(function_call("tick"))
    if kind < 0.5:
        text = "enough" if rng.random() < 0.05 else ""
        return asked(*[some_call(rng) for _ in range(rng.choice([1, 1, 1, 2, 4]))], text=text)
    if kind < 0.55:
        return Reply(message=Message.of("assistant"), refusal="I will not.")
    if kind < 0.6:
        return Reply(message=Message.of("assistant", "…"), finish="content_filter", finish_raw="safety")
    if kind < 0.65:
        return Reply(message=Message.of("assistant", "…"), finish=rng.choice(["pause", "error"]), finish_raw="odd")
    text = rng.choice(["42", "42", "forty-two", "?", "?", "-1", "-1", "enough"])
    return asked(text=text).changed(finish=rng.choice(["stop", "stop", "length"]))


def summary(rng: Random) -> Reply:
    if rng.random() < 0.8:
        return asked(text="So far it has counted.")
    return rng.choice([asked(text=" "), asked(some_call(rng)), reply(rng)])


def failure(rng: Random) -> ModelFailed:
    if rng.random() < 0.3:
        return ModelFailed(error=ErrorReport(kind="ContextTooLong", message="too many tokens", status=400), at_s=1.0)
    error = ErrorReport(message="overloaded", status=529, retryable=rng.random() < 0.8)
    return ModelFailed(error=error, delay_s=rng.choice([0.5, 0.5, 61.0]), at_s=1.0)


def outcome(rng: Random, effect: Any, state: State) -> tuple[str, Outcome]:
    """Return a possible outcome of an effect, or of the whole call, with its key."""
    if state in (State.CALLING, State.TOOL_INTERRUPT) and rng.random() < 0.03:
        return "", Injected((Message.of("user", "Hurry."),))
    if rng.random() < 0.03:
        return "", rng.choice([Expired(), Cancelled(reason="no longer needed"), Stopped(reason="enough")])
    match effect:
        case Begin():
            return effect.key, Begun(at_s=0.0, id="walk-1")
        case CallModel():
            return effect.key, failure(rng) if rng.random() < 0.2 else Replied(reply=reply(rng))
        case AskSummary():
            return effect.key, failure(rng) if rng.random() < 0.4 else Replied(reply=summary(rng))
        case Sleep():
            return effect.key, Slept()
        case AskApproval():
            other = Modified(rng.choice(['{"path": "tmp"}', '{"path": 1}', "nonsense"]))
            return effect.key, rng.choice([Approved(), Denied(reason="too dangerous"), other])
        case StartFunction():
            return effect.key, Started()
        case CheckOutput():
            refused, passed = CheckRefused("not even"), [Checked(), Checked(output_json="43")]
            others = [CheckRefused("too low"), CheckFailed(text="no", name="odd"), *passed]
            return effect.key, refused if rng.random() < 0.6 else rng.choice(others)
        case Reconcile():
            return effect.key, rng.choice([RunAgain(), Returned(text="paid"), FunctionFailed(text="refused")])
        case RunFunction() if effect.is_once and rng.random() < 0.3:
            return effect.key, Interrupted()
        case RunFunction() if rng.random() < 0.03:
            return effect.key, FunctionFailed(text="the disk is full")
        case RunFunction():
            usage = Usage(input_tokens=rng.choice([2, 30])) if rng.random() < 0.1 else Usage()
            return effect.key, Returned(text=rng.choice(["42", ""]), is_error=rng.random() < 0.3, usage=usage)
    raise AssertionError(effect)


def assert_policies_hold(call: AgentCall) -> None:
    """Assert that everything that runs now is within its budget and after its dependencies."""
    r = call.record
    running = [effect.call for effect in call.effects if isinstance(effect, RunFunction)]
    assert r.limits.parallel is None or len(running) <= r.limits.parallel
    settled = [*r.function_calls, *r.round]
    if any(f.name == "fetch" for f in running):
        assert any(f.name == "login" and f.result is not None for f in settled)
    assert sum(f.name == "login" and (f.was_run or not f.is_settled) for f in settled) <= 2
    for effect in call.effects:
        if isinstance(effect, CallModel) and (most := r.limits.failures_per_function) is not None:
            failed = Counter(f.name for f in r.function_calls if f.was_run and f.error is not None)
            assert all(failed[f.name] < most for f in effect.request.functions)


def assert_sendable(messages: Any) -> None:
    """Every assistant's message with calls is followed by one result per call, in the order asked."""
    expected: list[str] = []
    for message in messages:
        if message.role == "tool":
            (result,) = message.parts
            assert expected, "a result that no message asked for"
            assert result.id == expected.pop(0)
        else:
            assert not expected, f"{expected} got no result"
            expected = [f.id for f in message.function_calls]
    assert not expected, f"{expected} got no result"


# Steps that a test takes one by one


def begun(limits: Limits = Limits(), prompt: Prompt = PROMPT, **options) -> AgentCall:
    call = AgentCall.seed(Dialog([Message.of("system", "You add.")]).put("17 + 25?"), prompt, limits=limits, **options)
    call.advance("begin", Begun(at_s=100.0, id="c1"))
    return call


def say(call: AgentCall, *content, **facts) -> AgentCall:
    reply = Reply.of(*content)
    call.advance(call.effects[0].key, Replied(reply=reply.changed(**facts)))
    return call


def fail(call: AgentCall, *, retryable: bool = True, delay_s: float = 1.0, at_s: float = 100.0) -> AgentCall:
    error = ErrorReport(kind="Overloaded", message="busy", status=529, retryable=retryable)
    call.advance(call.effects[0].key, ModelFailed(error=error, delay_s=delay_s, at_s=at_s))
    return call


def keys(call: AgentCall) -> list[str]:
    return [effect.key for effect in call.effects]


def texts(messages) -> list[str]:
    return [message.text for message in messages]


def request(call: AgentCall):
    (effect,) = call.effects
    assert isinstance(effect, CallModel)
    return effect.request


def returned(call: AgentCall, text: str = "ok", *, is_error: bool = False, **facts: Any) -> AgentCall:
    """What the first of the functions that run gave."""
    call.advance(call.effects[0].key, Returned(text=text, is_error=is_error, **facts))
    return call
