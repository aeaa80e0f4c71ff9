"""Explores every possible course of an agent call within small limits, breadth-first, and checks the results.

A configuration is everything that decides what may happen next, so two calls with the same configuration are explored
once.  `Model`s differ in their limits, their prompts and the possible replies.  Many small models reach more than a
large one.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from support.agent_calls import (
    FINAL,
    PROMPT,
    asked,
    assert_policies_hold,
    assert_sendable,
    seeded,
    stop_when,
    unchanged,
    view_of,
)

from fsm_agent.call import (
    AgentCall,
    Approved,
    AskApproval,
    AskSummary,
    Begin,
    Begun,
    CallModel,
    CallRecord,
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
    Reason,
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
    Stopped,
)
from fsm_agent.context import Budget, ContextPlan, summarize
from fsm_agent.errors import ErrorReport
from fsm_agent.messages import FunctionCall, Inside, Message, Reply, Usage
from fsm_agent.prompts import Prompt
from fsm_agent.testing import function_call

ANSWER = "give_final_answer"  # the function whose arguments are the answer
USED = Usage(input_tokens=5)  # by a function that is an agent
BEGUN_S = 1000.0
VALID = Modified('{"path": "y"}')
RAISED = ErrorReport(kind="ProgramError", message="answer raised KeyError", model="program:clerk")
TOO_LONG = ErrorReport(kind="ContextTooLong", message="too many tokens", status=400)
SUMMARIZING = ContextPlan((summarize(keep=1, step=1, max_tokens=50),), Budget())
SUMMARIZING_IF_TOO_LONG = ContextPlan(budget=Budget(passes=(summarize(keep=1, step=1, max_tokens=50),)))
NEVER_SHORTER = ContextPlan(is_off=True)
SUMMARIES: dict[str, Reply] = {
    "summary": asked(text="They count."),
    "empty summary": asked(text=" "),
    "summary that asks": asked(function_call("tick"), text="They count."),
    "refused summary": Reply(message=Message.of("assistant"), refusal="no"),
    "cut summary": Reply(message=Message.of("assistant", "They"), finish="length"),
    "costly summary": asked(text="They count.").changed(usage=Usage(input_tokens=9, cost_pico_usd=9)),
}
REPLIES: dict[str, Reply] = {
    "answer": asked(text="42"),
    "wrong": asked(text="forty-two"),
    "wrong otherwise": asked(text="forty"),
    "cut": Reply(message=Message.of("assistant", "4"), finish="length"),
    "enough": asked(text="enough"),
    "refusal": Reply(message=Message.of("assistant"), refusal="no"),
    "filtered": Reply(message=Message.of("assistant", "4"), finish="content_filter"),
    "pause": Reply(message=Message.of("assistant", "…"), finish="pause"),
    "broken off": Reply(message=Message.of("assistant", "…"), finish="error"),
    "tick": asked(function_call("tick")),
    "add": asked(function_call("add", a=1, b=1)),
    "invalid": asked(function_call("add", a="x"), FunctionCall(name="add", arguments_json="{")),
    "unknown": asked(function_call("nosuch")),
    "erase": asked(function_call("erase", path="x")),
    "add, erase": asked(function_call("add", a=1, b=1), function_call("erase", path="x")),
    "erase, tick": asked(function_call("erase", path="x"), function_call("tick")),
    "fetch, login": asked(function_call("fetch"), function_call("login", user="a")),
    "login": asked(function_call("login", user="a")),
    "pay": asked(function_call("pay", amount=1)),
    "pay, tick": asked(function_call("pay", amount=1), function_call("tick")),
    "costly": asked(text="42").changed(usage=Usage(input_tokens=9, cost_pico_usd=9)),
    "costly tick": asked(function_call("tick")).changed(usage=Usage(input_tokens=9, cost_pico_usd=9)),
    "costly, wrong": asked(text="forty-two").changed(usage=Usage(input_tokens=9, cost_pico_usd=9)),
    "costly refusal": Reply(message=Message.of("assistant"), refusal="no", usage=Usage(output_tokens=9)),
    "twice": asked(function_call("tick"), function_call("tick")),
    "final": asked(function_call(ANSWER, value=42)),
    "final, wrong": asked(function_call(ANSWER, value="forty-two")),
    "final, final": asked(function_call(ANSWER, value=42), function_call(ANSWER, value=43)),
    "final, tick": asked(function_call(ANSWER, value=42), function_call("tick")),
}


@dataclass(frozen=True)
class Model:
    """A part of all possible courses.

    Attributes:
        limits: The limits of the call.
        replies: The possible replies of the model, by their names in `REPLIES`.
        prompt: The prompt of the task.
        depth: How many calls are around this call.
        delays_s: The possible waits before a recall; empty if the transport never fails.
        is_injected: Whether a message may be injected once.
        context: The context plan of the requests, or None to show everything.
        summaries: The possible replies to the request for a summary, by their names in `SUMMARIES`.
        is_too_long: Whether the provider may refuse a request as too long.
        is_checked: Whether answers are checked.
    """

    limits: Limits
    replies: tuple[str, ...] = ("answer",)
    prompt: Prompt = PROMPT
    depth: int = 0
    delays_s: tuple[float, ...] = ()
    is_injected: bool = False
    context: ContextPlan | None = None
    summaries: tuple[str, ...] = ()
    is_too_long: bool = False
    is_checked: bool = False


@dataclass
class Explored:
    """What was found.

    Attributes:
        steps: How many were taken.
        rows: How often each was taken: source, trigger, target, guard.
        reasons: How calls ended.
    """

    configurations: int = 0
    steps: int = 0
    rows: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    reasons: Counter[Reason] = field(default_factory=Counter)


def explore(model: Model) -> Explored:
    """Explore everything that can happen to a call of a model."""
    check = unchanged if model.is_checked else None
    first = seeded(model.limits, depth=model.depth, prompt=model.prompt, check=check)
    return explore_from(
        first.record, _configuration, partial(_call, model=model), partial(_moves, model=model), _check_step
    )


def explore_from(
    first: CallRecord,
    configuration: Callable[[CallRecord], object],
    call_of: Callable[[CallRecord], AgentCall[Any]],
    moves: Callable[[AgentCall[Any]], list[tuple[str, Any]]],
    check_step: Callable[[CallRecord, str, Any, AgentCall[Any]], None],
) -> Explored:
    """Take every step from every configuration, and check each."""
    explored = Explored()
    known, waiting = {configuration(first)}, deque([first])
    ending, before = set[object](), dict[object, set[object]]()
    while waiting:
        record = waiting.popleft()
        here = configuration(record)
        for key, outcome in moves(call_of(record)):
            call = call_of(record)
            call.advance(key, outcome)
            check_step(record, key, outcome, call)
            explored.steps += 1
            for event in call.steps:
                step: Any = event.event if isinstance(event, Inside) else event
                explored.rows[step.source, step.trigger, step.to, step.guard] += 1
            there = configuration(call.record)
            if not isinstance(outcome, Expired | Cancelled | Stopped):
                before.setdefault(there, set()).add(here)
            if there not in known:
                known.add(there)
                waiting.append(call.record)
            if call.record.ending:
                explored.reasons[call.record.ending.reason] += 1
                ending.add(there)
    explored.configurations = len(known)
    _check_that_all_can_end(known, ending, before)
    return explored


def _check_that_all_can_end(known: set[object], ending: set[object], before: dict[object, set[object]]) -> None:
    """From everywhere, without being called off."""
    able, waiting = set(ending), deque(ending)
    while waiting:
        for source in before.get(waiting.popleft(), set()) - able:
            able.add(source)
            waiting.append(source)
    assert able == known, f"{len(known - able)} configurations only end when they are called off"


def _call(record: CallRecord, model: Model) -> AgentCall:
    return AgentCall(record, model.prompt, stop_when=stop_when, view=view_of(model.context))


def _moves(call: AgentCall, model: Model) -> list[tuple[str, Outcome]]:
    found: list[tuple[str, Outcome]] = [("", Expired()), ("", Cancelled()), ("", Stopped())] if call.effects else []
    hurry = Message.of("user", "Hurry.")
    may_be = call.state in (State.CALLING, State.TOOL_INTERRUPT)
    if model.is_injected and may_be and hurry not in (*call.record.dialog, *call.record.injected):
        found.append(("", Injected((hurry,))))
    for effect in call.effects:
        match effect:
            case Begin(key):
                found.append((key, Begun(at_s=BEGUN_S)))
            case CallModel(key):
                found += [(key, Replied(reply=REPLIES[name])) for name in model.replies]
                found += [*_failures(model, key), (key, ModelFailed(error=RAISED, at_s=BEGUN_S))]
                if model.is_too_long:
                    found.append((key, ModelFailed(error=TOO_LONG, at_s=BEGUN_S)))
            case AskSummary():
                found += [(effect.key, Replied(reply=SUMMARIES[name])) for name in model.summaries]
                found += _failures(model, effect.key)
                if model.is_too_long:  # which nothing can be done about: it is quoted no shorter
                    found.append((effect.key, ModelFailed(error=TOO_LONG, at_s=BEGUN_S)))
            case Sleep(key):
                found.append((key, Slept()))
            case AskApproval(key):
                found += [(key, Approved()), (key, Denied()), (key, VALID), (key, Modified("{}"))]
            case StartFunction(key):
                found.append((key, Started()))
            case CheckOutput(key):
                found += [(key, Checked()), (key, Checked(output_json="43")), (key, CheckFailed(text="no", name="odd"))]
                found += [(key, CheckRefused("not even")), (key, CheckRefused("too low"))]
            case _:
                if isinstance(effect, Reconcile):
                    found.append((effect.key, RunAgain()))
                if isinstance(effect, RunFunction) and effect.is_once:
                    found.append((effect.key, Interrupted()))
                found += [(effect.key, Returned(text="2")), (effect.key, Returned(text="no", is_error=True))]
                found.append((effect.key, FunctionFailed(text="no")))
                if call.record.limits.tokens is not None:
                    found.append((effect.key, Returned(text="2", usage=USED)))
                    found.append((effect.key, Returned(text="no", is_error=True, usage=USED)))
                    found.append((effect.key, FunctionFailed(text="no", usage=USED)))
    return found


def _failures(model: Model, key: str) -> list[tuple[str, Outcome]]:
    """The ways in which the transport may fail a request."""
    return [
        (key, ModelFailed(error=ErrorReport(message="busy", retryable=retryable), delay_s=delay_s, at_s=BEGUN_S))
        for delay_s in model.delays_s
        for retryable in (True, False)
    ]


def _configuration(r: CallRecord) -> object:
    """Return everything that decides what may happen next, with counters only where a limit counts down."""
    limits, loop = r.limits, r.limits.identical_rounds
    counted = (
        None if limits.rounds is None else r.rounds,
        None if limits.tokens is None else r.usage.total_tokens,
        None if limits.cost_usd is None else r.usage.cost_pico_usd,
        None if limits.parse_retries is None else r.parse_errors,
        None if limits.recalls is None else (r.recalls, r.attempt),
        None if loop is None else ("".join(_marks(r)[-1:]), min(r.identical_rounds, loop), r.identical_rounds % loop),
    )
    waiting = tuple([(f.name, f.arguments_json, f.needs_approval, f.is_settled, f.succeeded) for f in r.round])
    succeeded = frozenset(f.name for f in r.function_calls if f.succeeded), str(_stands(r))
    tallies = tuple(sorted((name, min(t.successes, 2), min(t.failures, 2)) for name, t in r.tallies.items()))
    injected = any(m.text == "Hurry." for m in r.dialog), len(r.injected)
    once = tuple(r.once[f.id].phase if f.id in r.once else "" for f in r.round)
    ended = r.ending and r.ending.reason
    shortened = r.shorten_to is not None, r.shortened_at == len(r.dialog) + len(r.branch) + len(r.pruned)
    summary = None
    if r.summary is not None:  # places from the end of the dialog, which is where the next summary is due
        here = len(r.dialog)
        summary = (r.summary.covers - here, r.summary.made_at == here, here - r.summary.failed_at, r.summary.text)
        summary = (*summary[:2], summary[2] if r.summary.failed_at >= 0 else None, bool(summary[3]))
    context = shortened, summary
    return r.state, counted, waiting, once, succeeded, tallies, bool(r.branch), r.is_drafted, injected, ended, context


# What has to become of a step, by the words of the documentation and not by those of the table


def _check_step(before: CallRecord, key: str, outcome: Outcome, call: AgentCall) -> None:
    r = call.record
    expected = _expected(before, key, outcome, call)
    assert (r.state, r.ending and r.ending.reason) == expected, f"{outcome} in {before.state}: {expected} expected"
    assert (call.step, call.step.source, call.step.to) == (r.trace[-1], before.state, r.state)
    _check_counters(r)
    if r.ending is not None:
        assert (r.branch, r.round, call.effects) == ((), (), ())
        assert_sendable(r.dialog)
        return
    if r.rounds > before.rounds and r.function_calls != before.function_calls:
        _check_words_behind_results(r)
    assert_policies_hold(call)
    for effect in call.effects:
        if isinstance(effect, CallModel):
            assert_sendable(effect.request.messages)
            assert effect.attempt == r.attempt
            told = _told_behind_the_dialog(call)
            assert tuple(effect.request.messages[len(effect.request.messages) - len(told) :]) == told
            _check_words_behind_the_dialog(told, r, call.prompt)
            assert (effect.request.functions == ()) == (_is_final(r, call.prompt) or not call.prompt.by_name)
        if isinstance(effect, AskSummary):
            assert (effect.attempt, effect.request.functions, effect.request.tool_choice) == (r.attempt, (), "none")
            assert not _since_the_last_reply(r, "summarized"), "one summary for each request"
            assert 0 < effect.covers < len(r.dialog)
        if isinstance(effect, Sleep):
            assert effect.until_s == (outcome.at_s + outcome.delay_s if isinstance(outcome, ModelFailed) else 0.0)


def _check_counters(r: CallRecord) -> None:
    """Each is what the trace and the messages say."""
    steps = [(step.trigger, step.to) for step in r.trace]
    refused = [m for m in (*r.pruned, *r.branch) if m.role == "assistant"]
    unusable = ("parse_failed", "check_refused")
    assert len(refused) == sum(trigger in unusable for trigger, _ in steps), "no unusable answer is lost"
    assert r.parse_errors == sum(steps.count((trigger, State.PARSE_EXCEPTION)) for trigger in unusable)
    shorter = [step for step in r.trace if step.trigger == "too_long" and step.to == step.source]
    waited = steps.count(("model_failed", State.BACKOFF)) + steps.count(("summary_failed", State.BACKOFF))
    assert r.recalls == waited + len(shorter)
    assert len(r.failures) == sum(trigger in ("model_failed", "summary_failed", "too_long") for trigger, _ in steps)
    if r.limits.tokens is None:  # under which functions use tokens, too
        assert r.usage == sum([step.usage for step in r.trace if step.usage is not None], Usage())
    closed = {f.id.partition(".")[0] for f in r.function_calls}
    assert r.rounds == len(closed) + steps.count(("paused", State.CALLING))
    assert r.runs == sum(f.was_run for f in r.function_calls)
    assert r.replies == sum(step.usage is not None and step.key.startswith("model:") for step in r.trace)
    failures = 0
    for step in reversed(r.trace):
        if step.trigger not in ("model_failed", "slept", "injected", "too_long") and step.to != State.BACKOFF:
            break  # a summary, or a reply
        failures += step.trigger in ("slept", "too_long")
    assert r.attempt == 1 + (0 if r.state in FINAL else failures)


def _check_words_behind_results(r: CallRecord) -> None:
    """What was injected meanwhile, then that it is a loop."""
    told = r.dialog[max(i for i, m in enumerate(r.dialog) if m.role == "tool") + 1 :]
    told = told[1:] if told and told[0].text == "Hurry." else told
    loop, same = r.limits.identical_rounds, _same_rounds(_marks(r))
    is_told = loop is not None and r.limits.on_loop == "tell" and same >= loop and same % loop == 0
    expected = [(r.limits.loop_role, "You have called")] * is_told
    assert [(m.role, " ".join(m.text.split()[:3])) for m in told] == expected


def _check_words_behind_the_dialog(told: Sequence[Message], r: CallRecord, prompt: Prompt) -> None:
    """Check that the last request follows the dialog, except after a draft or a pause; then the exception branch."""
    is_drafted = any(step.trigger == "drafted" for step in r.trace)
    is_told = _is_final(r, prompt) and not is_drafted and bool(r.function_calls) and r.dialog[-1].role != "assistant"
    assert [m.text.startswith("You have reached") for m in told[: len(told) - len(r.branch)]] == [True] * is_told
    assert tuple(told[len(told) - len(r.branch) :]) == r.branch


def _told_behind_the_dialog(call: AgentCall) -> tuple[Message, ...]:
    """Return the part of a request after the dialog, which no context changes."""
    (effect,) = AgentCall(call.record, call.prompt).effects
    assert isinstance(effect, CallModel)
    return tuple(effect.request.messages[len(call.record.dialog) :])


def _since_the_last_reply(r: CallRecord, trigger: str) -> bool:
    """Whether this has happened for the request that is made now."""
    for step in reversed(r.trace):
        if step.trigger == trigger and step.to == step.source:
            return True
        if step.trigger not in ("model_failed", "slept", "too_long", "summarized", "summary_failed"):
            return False
    return False


def _expected(before: CallRecord, key: str, outcome: Outcome, call: AgentCall) -> tuple[State, Reason | None]:
    """The state that follows, and why the call ends if it does."""
    limits, about, prompt = before.limits, [*key.split(":"), ""][1], call.prompt
    if key.startswith("summary:"):
        return _summarized(before, outcome)
    match outcome:
        case Expired():
            return State.FAILED, Reason.EXPIRED
        case Cancelled():
            return State.FAILED, Reason.CANCELLED
        case Stopped():
            return State.COMPLETED, Reason.STOPPED
        case Injected() | Started() | Interrupted() | RunAgain():
            return before.state, None
        case Begun():
            is_deep = limits.depth is not None and before.depth >= limits.depth
            return (State.FAILED, Reason.TOO_DEEP) if is_deep else (State.CALLING, None)
        case ModelFailed() if outcome.error == TOO_LONG and call.view is not None:
            is_off = call.view.plan.is_off or _since_the_last_reply(before, "too_long")
            may = not is_off and (limits.recalls is None or before.recalls < limits.recalls)
            return (before.state, None) if may else (State.FAILED, Reason.MODEL_FAILED)
        case ModelFailed() if outcome.error == RAISED:
            return State.FAILED, Reason.FUNCTION_FAILED
        case ModelFailed():
            return _recalled(before, outcome.error.retryable, outcome.delay_s, outcome.at_s)
        case Slept():
            return next(State(step.source) for step in reversed(before.trace) if step.to == State.BACKOFF), None
        case Replied():
            return _read(before, outcome.reply, prompt)
        case Checked():
            return State.COMPLETED, Reason.ANSWERED
        case CheckFailed():
            return State.FAILED, Reason.CHECK_FAILED
        case CheckRefused():
            return _refused_again(before)
        case FunctionFailed() | Returned() if _is_over_budget(before, outcome.usage):
            return State.FAILED, Reason.OVER_BUDGET
        case FunctionFailed():
            return State.FAILED, Reason.FUNCTION_FAILED
    if isinstance(outcome, Approved) or outcome == VALID:
        return State.TOOL_INTERRUPT, None
    failed = not isinstance(outcome, Returned) or outcome.is_error
    pending = {f.id: f.name for f in before.round if not f.is_settled}
    if pending.pop(about) == "login" and failed and not _succeeded(before, "login"):
        pending = {id: name for id, name in pending.items() if name != "fetch"}  # which waits for a login
    return (State.TOOL_INTERRUPT, None) if pending else _closed(before)


def _summarized(before: CallRecord, outcome: Outcome) -> tuple[State, Reason | None]:
    """The call continues, with or without a summary.  Only its budget ends it."""
    if isinstance(outcome, Replied):
        over = _is_over_budget(before, outcome.reply.usage)
        return (State.FAILED, Reason.OVER_BUDGET) if over else (before.state, None)
    assert isinstance(outcome, ModelFailed)
    state, _ = _recalled(before, outcome.error.retryable, outcome.delay_s, outcome.at_s)
    return (before.state if state == State.FAILED else state), None


def _read(before: CallRecord, reply: Reply, prompt: Prompt) -> tuple[State, Reason | None]:
    limits, is_last = before.limits, _is_final(before, prompt)
    if _is_over_budget(before, reply.usage):
        return State.FAILED, Reason.OVER_BUDGET
    if reply.message.text == "enough":
        return State.COMPLETED, Reason.STOPPED
    calls, drafts = reply.message.function_calls, prompt.mode == "two_stage" and not is_last
    if calls and not (prompt.output is int and {f.name for f in calls} == {ANSWER} and not drafts):
        if is_last:
            return State.FAILED, Reason.ROUND_LIMIT
        loop, same = limits.identical_rounds, _same_rounds([*_marks(before), _mark(reply.message)])
        if limits.on_loop == "stop" and loop is not None and same >= loop:
            return State.FAILED, Reason.LOOPED
        return (State.TOOL_INTERRUPT, None) if any(_runs(f, calls, before) for f in calls) else _closed(before)
    if reply.refusal or reply.finish == "content_filter":
        return State.FAILED, Reason.REFUSED
    if reply.finish == "pause":
        return (State.FAILED, Reason.ROUND_LIMIT) if is_last else (State.CALLING, None)
    if reply.finish == "error":
        return _recalled(before, True, 0.0, 0.0)
    if drafts:
        return State.CALLING, None
    is_cut = reply.finish == "length" and limits.on_cut == "retry"
    said = str(calls[0].arguments["value"]) if calls else reply.message.text
    if said.isdigit() if prompt.parser or prompt.output is int else not is_cut:
        return (State.CHECKING, None) if before.is_checked else (State.COMPLETED, Reason.ANSWERED)
    return _refused_again(before)


def _refused_again(before: CallRecord) -> tuple[State, Reason | None]:
    limits = before.limits
    if limits.parse_retries is None or before.parse_errors < limits.parse_retries:
        return State.PARSE_EXCEPTION, None
    return State.FAILED, Reason.UNPARSEABLE


def _is_over_budget(before: CallRecord, more: Usage) -> bool:
    """Whether all that was used up to now is more than may be."""
    used = [step.usage for step in before.trace if step.usage is not None] + [more]
    tokens = sum((usage.input_tokens or 0) + (usage.output_tokens or 0) for usage in used)
    dollars = sum(usage.cost_pico_usd or 0 for usage in used) / 1e12
    most = before.limits
    return (most.tokens is not None and tokens > most.tokens) or (most.cost_usd is not None and dollars > most.cost_usd)


def _recalled(before: CallRecord, retryable: bool, delay_s: float, at_s: float) -> tuple[State, Reason | None]:
    limits = before.limits
    is_patient = limits.wait_s is None or delay_s <= limits.wait_s
    is_early = limits.deadline_s is None or at_s + delay_s < BEGUN_S + limits.deadline_s
    has_left = limits.recalls is None or before.recalls < limits.recalls
    may = retryable and is_patient and is_early and has_left
    return (State.BACKOFF, None) if may else (State.FAILED, Reason.MODEL_FAILED)


def _closed(before: CallRecord) -> tuple[State, Reason | None]:
    limits = before.limits
    if limits.rounds is None or before.rounds + 1 < limits.rounds or limits.on_limit == "final_prompt":
        return State.CALLING, None
    return (State.COMPLETED if limits.on_limit == "stop" else State.FAILED), Reason.ROUND_LIMIT


def _is_final(r: CallRecord, prompt: Prompt) -> bool:
    """Whether functions are withdrawn."""
    if r.limits.rounds is not None and r.rounds >= r.limits.rounds:
        return True
    is_drafted = any(step.trigger == "drafted" for step in r.trace)
    return is_drafted or (bool(prompt.by_name) and all(_is_used_up(name, r) for name in prompt.by_name))


def _is_used_up(name: str, r: CallRecord) -> bool:
    runs = [f for f in r.function_calls if f.name == name and f.was_run]
    failures, most = sum(f.error is not None for f in runs), r.limits.failures_per_function
    return (name == "login" and len(runs) >= 2) or (most is not None and failures >= most)


def _runs(call: FunctionCall, calls: tuple[FunctionCall, ...], before: CallRecord) -> bool:
    """Return whether a requested call runs, now or after an approval.  Other calls are answered at once."""
    is_invalid = call.name in ("nosuch", ANSWER) or REPLIES["invalid"].message.function_calls.count(call) > 0
    if is_invalid or _is_used_up(call.name, before):
        return False
    if call.name == "fetch":
        login = next((f for f in calls if f.name == "login"), None)
        return _succeeded(before, "login") or (login is not None and _runs(login, calls, before))
    return call.name in ("tick", "pay") or (call.name, call.arguments) != _stands(before)


def _succeeded(r: CallRecord, name: str) -> bool:
    return any(f.name == name and f.was_run and f.error is None for f in (*r.function_calls, *r.round))


def _stands(r: CallRecord) -> tuple[str, dict[str, Any]] | None:
    """Return the call whose result is current, because nothing has run since then."""
    ran = [f for f in r.function_calls if f.was_run]
    newest = [f for f in ran if f.id.partition(".")[0] == ran[-1].id.partition(".")[0]]
    distinct = {(f.name, f.arguments_json) for f in newest}
    is_one = len(distinct) == 1 and all(f.error is None for f in newest)
    return (newest[0].name, newest[0].arguments) if is_one else None


def _marks(r: CallRecord) -> list[str]:
    return [_mark(m) for m in r.dialog if m.function_calls]


def _mark(message: Message) -> str:
    return _mark_of(tuple((f.name, f.arguments_json) for f in message.function_calls))


@cache
def _mark_of(calls: tuple[tuple[str, str], ...]) -> str:
    return json.dumps(sorted([name, arguments.replace(" ", "")] for name, arguments in calls))


def _same_rounds(marks: list[str]) -> int:
    """How many at the end are alike."""
    return next((i for i, mark in enumerate(reversed(marks)) if mark != marks[-1]), len(marks))
