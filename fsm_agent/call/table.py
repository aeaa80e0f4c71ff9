"""The state machine of one agent call: every decision about what happens next.

Rules
=====

1. Every decision about what happens next is a row of `ROWS`, or a guard that a row names.
2. Guards and actions are pure functions of ``(record, answer, prompt)``; the prompt is the call's definition.  They
   use no clock, no network, no randomness and no user code that may wait; what they need of those is in the answer.
3. In a state, the call waits for something or has ended.  Its effects follow from the record and the prompt
   (`AgentCall.effects`), so a snapshot of the record loses nothing.

Theory of operation
===================

Rows are tried from the top, and the last row of each (trigger, source) has no guard, so one row is always taken.
Frequent rows are near the top where possible: each row that is tried in vain costs a tenth of a step.  A ``to`` of None
stays in the state.  A reply is interpreted as one trigger beforehand (`interpret.read_reply`).

*Solid* rows add to the dialog, which only grows.  *Dashed* rows add to the exception branch, whose messages are sent to
the model, but dropped as soon as the model gives a usable answer or requests functions.

A round opens with the assistant's message in the dialog, and closes with one result per call, in the order requested.
Denied, cancelled, repeated, unknown and invalid calls get a result, too, so a dialog can be sent to a provider at any
time.  A call that depends on another of its round runs after it.  After the round that reaches `Limits.rounds`, or uses
up the last function, no functions are offered, and requests end with the final prompt, which is not in the dialog.
`Limits.on_limit` may end the call there instead.

An answer may come as the arguments of a function (`Output.function`).  A reply that calls only that function is a final
reply: its parser reads the arguments, and the call gets a result, so that the dialog can be sent.  If the reply calls
other functions as well, those run first, and the answer is not read.

An answer that the parser accepts waits for the agent's check, if the call began with one.  A refusal by the check is a
parse error, with its text for the model.  Until the verdict, the answer is in the record's reply alone.  What
`stop_when` provides as output is no answer, and is not checked.

A handoff waits until the other calls of its round are settled.  Then the round closes, and another agent gets the
dialog.  Its call is a child of this one.  When the child ends, this call ends in the same way, with the child's
messages in its dialog.  A request or deadline that ends this call ends the child first.  A call whose dialog was handed
over in an earlier turn starts with the handoff.

A model that works with its provider's own tools may pause: its message so far is sent back to it, and it continues.
Each pause counts as a round.

A reply that takes the call and the agents inside of it beyond `Limits.tokens` or `Limits.cost_usd` ends the call,
whatever it says.  Replies to agents inside count at once.

A dialog may be too long for the model.  What a request shows of it is chosen outside of the table, in
`fsm_agent.context`, which may ask for a summary first: an extra request, in the same state, whose answer the record
keeps.  If there is none, the call continues without it.  A request that the provider refuses as too long is made once
more, and shorter.

Budgets (`rounds`, `parse_errors`, `recalls`) are counted per call and never reset, so the number of requests
is bounded.  ``diagrams/agent_call.*`` are drawn from `ROWS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred, first_use
from fsm_agent._internal.places import with_place
from fsm_agent._internal.vector import Vector
from fsm_agent.call.function_limits import is_final, rounds_used_up, tallied, unblocked
from fsm_agent.call.interpret import (
    CHANGED,
    NOT_TAKEN,
    FinalReply,
    FunctionsRequested,
    HandedOver,
    HandoffEnded,
    StoppedReply,
    SummaryTaken,
    TooLong,
    error_text,
    fingerprint,
    is_cut_off,
)
from fsm_agent.call.limits import is_within
from fsm_agent.call.outcomes import Begun, Cancelled, CheckFailed, Expired, Injected, ModelFailed, Slept, Stopped
from fsm_agent.call.process import SEPARATOR
from fsm_agent.call.record import ASKING, ITS_OWN, SPENDING, UNHEARD, CallRecord, Ending, OnceRun, Reason, State
from fsm_agent.errors import ErrorReport, Retry
from fsm_agent.messages.message import FunctionCall, FunctionResult, HistorySummary, Message, Part, renumbered
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.prompt import INTERRUPT, Prompt

if TYPE_CHECKING:
    from fsm_agent.call import budget as budgets
    from fsm_agent.call import machine as rows
    from fsm_agent.call.budget import Overrun
    from fsm_agent.call.machine import Row, RowMachine
else:
    rows = deferred("fsm_agent.call.machine")  # loads transitions
    budgets = deferred("fsm_agent.call.budget")

TAKEN = "The answer was taken."
HANDED_OVER = "The dialog was handed over."
HANDING = (State.CALLING, State.TOOL_INTERRUPT)  # CALLING: right at the start, if an earlier turn handed over
_NONE: Mapping[str, OnceRun] = {}
_ANSWERED = Ending(reason=Reason.ANSWERED)

# Guards: whether a row is taken


def too_deep(r: CallRecord, answer: Begun, prompt: Prompt) -> bool:
    return not is_within(r.depth, r.limits.depth)


def after_final(r: CallRecord, answer: FunctionsRequested, prompt: Prompt) -> bool:
    return is_final(r, prompt)


def loop_must_stop(r: CallRecord, answer: FunctionsRequested, prompt: Prompt) -> bool:
    limit = r.limits.identical_rounds
    return limit is not None and r.limits.on_loop == "stop" and _identical_rounds(r, answer) >= limit


def opens_round(r: CallRecord, answer: FunctionsRequested, prompt: Prompt) -> bool:
    """Return whether the model asked for functions that can run, and may still ask for them."""
    for f in answer.calls:
        if not f.is_settled:
            return not after_final(r, answer, prompt) and not loop_must_stop(r, answer, prompt)
    return False


def stops_at_limit(r: CallRecord, answer: FunctionsRequested | FunctionCall, prompt: Prompt) -> bool:
    return r.limits.on_limit == "stop" and at_round_limit(r, answer, prompt)


def fails_at_limit(r: CallRecord, answer: FunctionsRequested | FunctionCall, prompt: Prompt) -> bool:
    return r.limits.on_limit == "fail" and at_round_limit(r, answer, prompt)


def at_round_limit(r: CallRecord, answer: FunctionsRequested | FunctionCall, prompt: Prompt) -> bool:
    """Return whether the round that closes is the last."""
    return not rounds_left(r, answer, prompt)


def rounds_left(r: CallRecord, answer: FunctionsRequested | FunctionCall, prompt: Prompt) -> bool:
    return is_within(r.rounds + 1, r.limits.rounds)


def is_stuck(r: CallRecord, answer: FinalReply, prompt: Prompt) -> bool:
    limit = r.limits.identical_problems
    return limit is not None and _identical_problems(r, answer) >= limit


def may_retry(r: CallRecord, answer: FinalReply, prompt: Prompt) -> bool:
    return is_within(r.parse_errors, r.limits.parse_retries)


def in_branch(r: CallRecord, answer: Slept, prompt: Prompt) -> bool:
    return bool(r.branch)


def others_pending(r: CallRecord, answer: FunctionCall, prompt: Prompt) -> bool:
    for f in reversed(_answered(r, answer, prompt) if prompt.depended_on else r.round):
        if f.result is None and f.error is None and f.id != answer.id:
            return True
    return False


def out_of_handoffs(r: CallRecord, answer: FunctionCall | HandedOver, prompt: Prompt) -> bool:
    return isinstance(answer, FunctionCall) and not is_within(r.handoffs, r.limits.handoffs)


def ended_well(r: CallRecord, answer: HandoffEnded, prompt: Prompt) -> bool:
    return answer.record.state is State.COMPLETED


def may_recall(r: CallRecord, answer: ModelFailed, prompt: Prompt) -> bool:
    """Return whether the model is asked again: the failure may pass, and attempts and time are left for it."""
    patient = r.limits.wait_s is None or answer.delay_s <= r.limits.wait_s
    in_time = r.deadline_s is None or answer.at_s + answer.delay_s < r.deadline_s
    return answer.error.retryable and patient and in_time and is_within(r.recalls, r.limits.recalls)


def may_shorten(r: CallRecord, answer: TooLong, prompt: Prompt) -> bool:
    """Return whether a request that was too long is made again: once, and shorter."""
    is_new = r.shortened_at != _said(r)
    return answer.shorten_to is not None and is_new and is_within(r.recalls, r.limits.recalls)


# Actions: the next record


def start(r: CallRecord, answer: Begun, prompt: Prompt) -> CallRecord:
    if answer.system is not None:
        rest = r.dialog[1:] if len(r.dialog) and r.dialog[0].role == "system" else r.dialog
        dialog = Vector(renumbered([Message.of("system", answer.system), *rest]))
        r = r.changed(dialog=dialog, seeded_with=r.seeded_with + len(dialog) - len(r.dialog))
    return r.changed(started_at_s=answer.at_s, id=answer.id)


def keep_depth(r: CallRecord, answer: Begun, prompt: Prompt) -> CallRecord:
    detail = f"agent calls are nested {r.depth + 1} deep, and limits.depth is {r.limits.depth}"
    ending = Ending(reason=Reason.TOO_DEEP, detail=detail, limit="depth", count=r.depth)
    return start(r, answer, prompt).changed(ending=ending)


def keep_reply(r: CallRecord, answer: FinalReply, prompt: Prompt) -> CallRecord:
    message = answer.reply.message
    dialog = _longer(r, message) if answer.call is None else _longer(r, *_taken(message, len(r.dialog), TAKEN))
    ending = _ANSWERED
    if r.rounds and not is_within(r.rounds, r.limits.rounds):
        ending = Ending(reason=Reason.ANSWERED, detail=rounds_used_up(r.limits), limit="rounds", count=r.rounds)
    if answer.output_json is not None:
        ending = ending.changed(output_json=answer.output_json)
    return _pruned(r, dialog=dialog, ending=ending, repairs=answer.repairs, problems=r.problems)  # as parsed


def propose(r: CallRecord, answer: FinalReply, prompt: Prompt) -> CallRecord:
    return r.changed(repairs=answer.repairs, attempt=1)


def keep_draft(r: CallRecord, answer: FinalReply, prompt: Prompt) -> CallRecord:
    is_form = prompt.finalizer is None
    text = prompt.handler_text("form") if is_form else prompt.finalizer_text(answer.reply.message.text)
    plea = Message.of("user", text)
    return _pruned(r, dialog=_longer(r, answer.reply.message, plea), is_drafted=True)


def keep_stopped(r: CallRecord, answer: StoppedReply | Stopped, prompt: Prompt) -> CallRecord:
    ending = Ending(reason=Reason.STOPPED, detail=answer.reason)
    if isinstance(answer, StoppedReply):
        r, ending = _opened(r, answer.requested), ending.changed(output_json=answer.output_json)
    return _ended(r, prompt, ending, "Not run: the call was stopped.")


def keep_refusal(r: CallRecord, answer: FinalReply, prompt: Prompt) -> CallRecord:
    return _pruned(r, ending=Ending(reason=Reason.REFUSED, detail=answer.problem))


def keep_last_reply(r: CallRecord, answer: FunctionsRequested, prompt: Prompt) -> CallRecord:
    names = ", ".join(f.name for f in answer.calls)
    detail = f"the model asked for {names} in round {r.rounds + 1}, when no functions were offered"
    limit, count = ("", None) if is_within(r.rounds, r.limits.rounds) else ("rounds", r.rounds)  # else used up
    return _pruned(r, ending=Ending(reason=Reason.ROUND_LIMIT, detail=detail, limit=limit, count=count))


def keep_pause(r: CallRecord, answer: FunctionsRequested, prompt: Prompt) -> CallRecord:
    detail = f"the model paused again after limits.rounds={r.limits.rounds}"
    return _pruned(r, ending=Ending(reason=Reason.ROUND_LIMIT, detail=detail, limit="rounds", count=r.rounds))


def go_on(r: CallRecord, answer: FunctionsRequested, prompt: Prompt) -> CallRecord:
    return _pruned(r, dialog=_longer(r, answer.message), rounds=r.rounds + 1)


def keep_loop(r: CallRecord, answer: FunctionsRequested, prompt: Prompt) -> CallRecord:
    names, count = ", ".join(f.name for f in answer.calls), _identical_rounds(r, answer)
    detail = f"the model asked for the same ({names}) {count} times in a row"
    ending = Ending(reason=Reason.LOOPED, detail=detail, function=names, limit="identical_rounds", count=count)
    return _pruned(r, ending=ending, identical_rounds=count)


def open_round(r: CallRecord, answer: FunctionsRequested, prompt: Prompt) -> CallRecord:
    return _opened(r, answer)


def close_round(r: CallRecord, answer: FunctionsRequested | FunctionCall, prompt: Prompt) -> CallRecord:
    r = _closed_with(r, answer, prompt)
    if r.limits.on_loop == "tell" and r.is_looping:
        names = ", ".join(f.name for f in r.newest_round)
        text = prompt.handler_text("loop", name=names, count=r.identical_rounds)
        return r.changed(dialog=_longer(r, Message.of(r.limits.loop_role, text)))
    return r


def end_at_limit(r: CallRecord, answer: FunctionsRequested | FunctionCall, prompt: Prompt) -> CallRecord:
    r = _closed_with(r, answer, prompt)
    detail = rounds_used_up(r.limits)
    return r.changed(ending=Ending(reason=Reason.ROUND_LIMIT, detail=detail, limit="rounds", count=r.rounds))


def keep_breakdown(r: CallRecord, answer: FunctionCall, prompt: Prompt) -> CallRecord:
    detail = f"{answer.name}: {answer.error}"
    ending = Ending(reason=Reason.FUNCTION_FAILED, detail=detail, function=answer.name)
    return _ended(keep_call(r, answer, prompt), prompt, ending)


def keep_handoffs(r: CallRecord, answer: FunctionCall, prompt: Prompt) -> CallRecord:
    detail = f"{answer.name} would be handoff {r.handoffs + 1}, and limits.handoffs is {r.limits.handoffs}"
    ending = Ending(
        reason=Reason.HANDOFF_LIMIT, detail=detail, function=answer.name, limit="handoffs", count=r.handoffs
    )
    return _ended(r, prompt, ending)


def hand_over(r: CallRecord, answer: FunctionCall | HandedOver, prompt: Prompt) -> CallRecord:
    if isinstance(answer, HandedOver):
        return r
    others = f"Not done: {answer.name} has handed the dialog over."
    r = r.changed(round=_answered(r, answer.changed(result=HANDED_OVER, was_run=True), prompt))
    return _closed(r, _settled(r, others), prompt).changed(governed_by=answer.name)


def relay(r: CallRecord, answer: HandoffEnded, prompt: Prompt) -> CallRecord:
    inner, start = answer.record, len(r.dialog)
    moved, messages = start - inner.seeded_with, renumbered(inner.dialog[inner.seeded_with :], start)
    calls = [f.changed(id=_moved(f.id, moved), round=r.rounds + f.round) for f in inner.function_calls]
    path = f"{answer.name}{SEPARATOR}{inner.governed_by}" if inner.governed_by else answer.name
    return r.changed(
        dialog=_longer(r, *messages),
        function_calls=r.function_calls.extend(calls),
        governed_by=path,
        successor=inner.changed(dialog=Vector(), seeded_with=0, function_calls=Vector()),
        reply=r.reply if inner.reply is None else tracked(r, inner.reply),
        repairs=inner.repairs,
        ending=inner.ending,
    )


def inject(r: CallRecord, answer: Injected, prompt: Prompt) -> CallRecord:
    return r.changed(dialog=_longer(r, *answer.messages), turn=r.turn + 1)


def inject_later(r: CallRecord, answer: Injected, prompt: Prompt) -> CallRecord:
    return r.changed(injected=(*r.injected, *answer.messages))


def ask_to_fix(r: CallRecord, answer: FinalReply, prompt: Prompt) -> CallRecord:
    attempt = r.parse_errors + 1
    text = prompt.handler_text("exception", error_message=answer.problem, attempt=attempt)
    message = answer.reply.message
    if answer.call is None:
        refused = [message, Message.of("user", text)]
    else:
        refused = _taken(message, len(r.dialog) + len(r.branch), text, is_error=True)
    branch, problems = (*r.branch, *refused), (*r.problems, answer.problem)
    return r.changed(branch=branch, problems=problems, parse_errors=attempt, attempt=1, repairs=())


def keep_problem(r: CallRecord, answer: FinalReply, prompt: Prompt) -> CallRecord:
    ending = Ending(reason=Reason.UNPARSEABLE, detail=answer.problem, limit="parse_retries", count=r.parse_errors)
    return _with_problem(r, answer, ending)


def keep_repetition(r: CallRecord, answer: FinalReply, prompt: Prompt) -> CallRecord:
    count = _identical_problems(r, answer)
    detail = f"{count} answers in a row had the same problem: {answer.problem}"
    ending = Ending(reason=Reason.STUCK, detail=detail, limit="identical_problems", count=count)
    return _with_problem(r, answer, ending)


def keep_failed_check(r: CallRecord, answer: CheckFailed, prompt: Prompt) -> CallRecord:
    ending = Ending(reason=Reason.CHECK_FAILED, detail=f"{answer.name}: {answer.text}", function=answer.name)
    return _ended(r, prompt, ending)


def keep_error(r: CallRecord, answer: ModelFailed, prompt: Prompt) -> CallRecord:
    ending = Ending(reason=Reason.MODEL_FAILED, detail=answer.error.message, error=answer.error)
    if answer.error.retryable and not is_within(r.recalls, r.limits.recalls):
        ending = ending.changed(limit="recalls", count=r.recalls)
    return _pruned(r, ending=ending)


def keep_failed_program(r: CallRecord, answer: ModelFailed, prompt: Prompt) -> CallRecord:
    name = (answer.error.model or "").partition(":")[2]
    return _pruned(r, ending=Ending(reason=Reason.FUNCTION_FAILED, detail=answer.error.message, function=name))


def keep_summary(r: CallRecord, answer: SummaryTaken, prompt: Prompt) -> CallRecord:
    summary = HistorySummary(covers=answer.covers, text=answer.text, made_at=len(r.dialog))
    return r.changed(summary=summary, attempt=1)


def keep_no_summary(r: CallRecord, answer: ModelFailed, prompt: Prompt) -> CallRecord:
    known = HistorySummary() if r.summary is None else r.summary
    return r.changed(summary=known.changed(failed_at=len(r.dialog)), attempt=1)


def wake(r: CallRecord, answer: Slept, prompt: Prompt) -> CallRecord:
    return r.changed(attempt=r.attempt + 1)


def keep_call(r: CallRecord, answer: FunctionCall, prompt: Prompt) -> CallRecord:
    return r.changed(round=_answered(r, answer, prompt))


def keep_start(r: CallRecord, answer: FunctionCall, prompt: Prompt) -> CallRecord:
    before = r.once.get(answer.id)
    return _with_once(r, answer, OnceRun(1 if before is None else before.attempt + 1))


def keep_doubt(r: CallRecord, answer: FunctionCall, prompt: Prompt) -> CallRecord:
    return _with_once(r, answer, r.once.get(answer.id, OnceRun()).changed(phase="doubtful"))


def clear_doubt(r: CallRecord, answer: FunctionCall, prompt: Prompt) -> CallRecord:
    return _with_once(r, answer, r.once[answer.id].changed(phase="cleared"))


def keep_overrun(r: CallRecord, answer: Overrun, prompt: Prompt) -> CallRecord:
    limit, count = budgets.reached(r, answer)
    ending = Ending(reason=Reason.OVER_BUDGET, detail=budgets.describe_overrun(r, answer), limit=limit, count=count)
    if answer.call is not None:
        r = r.changed(round=_answered(r, answer.call, prompt))
    return _ended(r, prompt, ending, "Not run: the call is over its budget.")


def keep_expiry(r: CallRecord, answer: Expired, prompt: Prompt) -> CallRecord:
    limit = r.limits.deadline_s
    which = "the deadline around the call" if limit is None else f"limits.deadline_s={limit}"
    ending = Ending(reason=Reason.EXPIRED, detail=f"{which} has passed in {r.state}", limit="deadline_s", count=limit)
    return _ended(r, prompt, ending)


def keep_reason(r: CallRecord, answer: Cancelled, prompt: Prompt) -> CallRecord:
    return _ended(r, prompt, Ending(reason=Reason.CANCELLED, detail=answer.reason))


def count_recall(r: CallRecord, answer: ModelFailed, prompt: Prompt) -> CallRecord:
    """Return the record of a call that waits for the next attempt."""
    return r.changed(recalls=r.recalls + 1, wake_at_s=answer.at_s + answer.delay_s)


def shorten(r: CallRecord, answer: TooLong, prompt: Prompt) -> CallRecord:
    """Return the record of a call whose requests are shorter from now on."""
    recalls, attempt = r.recalls + 1, r.attempt + 1
    return r.changed(recalls=recalls, attempt=attempt, shorten_to=answer.shorten_to, shortened_at=_said(r))


# fmt: off
ROWS: tuple[Row, ...] = (
    # trigger            source                 to                     guard           action
    ("begun",            State.SEEDED,          State.FAILED,          too_deep,       keep_depth),
    ("begun",            State.SEEDED,          State.CALLING,         None,           start),
    ("stopped",          ITS_OWN,               State.COMPLETED,       None,           keep_stopped),
    ("over_budget",      SPENDING,              State.FAILED,          None,           keep_overrun),
    ("answered",         ASKING,                State.COMPLETED,       None,           keep_reply),
    ("proposed",         ASKING,                State.CHECKING,        None,           propose),
    ("drafted",          State.CALLING,         State.CALLING,         None,           keep_draft),
    ("refused",          ASKING,                State.FAILED,          None,           keep_refusal),
    ("functions_asked",  ASKING,                State.TOOL_INTERRUPT,  opens_round,    open_round),
    ("functions_asked",  ASKING,                State.FAILED,          after_final,    keep_last_reply),
    ("functions_asked",  ASKING,                State.FAILED,          loop_must_stop, keep_loop),
    ("functions_asked",  ASKING,                State.COMPLETED,       stops_at_limit, end_at_limit),
    ("functions_asked",  ASKING,                State.FAILED,          fails_at_limit, end_at_limit),
    ("functions_asked",  ASKING,                State.CALLING,         at_round_limit, close_round),
    ("functions_asked",  ASKING,                State.CALLING,         None,           close_round),
    ("paused",           ASKING,                State.FAILED,          after_final,    keep_pause),
    ("paused",           ASKING,                State.CALLING,         at_round_limit, go_on),
    ("paused",           ASKING,                State.CALLING,         None,           go_on),
    ("parse_failed",     State.PARSE_EXCEPTION, State.FAILED,          is_stuck,       keep_repetition),
    ("parse_failed",     ASKING,                State.PARSE_EXCEPTION, may_retry,      ask_to_fix),
    ("parse_failed",     ASKING,                State.FAILED,          None,           keep_problem),
    ("checked",          State.CHECKING,        State.COMPLETED,       None,           keep_reply),
    ("check_refused",    State.CHECKING,        State.FAILED,          is_stuck,       keep_repetition),
    ("check_refused",    State.CHECKING,        State.PARSE_EXCEPTION, may_retry,      ask_to_fix),
    ("check_refused",    State.CHECKING,        State.FAILED,          None,           keep_problem),
    ("check_failed",     State.CHECKING,        State.FAILED,          None,           keep_failed_check),
    ("model_failed",     ASKING,                State.BACKOFF,         may_recall,     count_recall),
    ("model_failed",     ASKING,                State.FAILED,          None,           keep_error),
    ("function_failed",  ASKING,                State.FAILED,          None,           keep_failed_program),
    ("too_long",         ASKING,                None,                  may_shorten,    shorten),
    ("too_long",         ASKING,                State.FAILED,          None,           keep_error),
    ("summarized",       ASKING,                None,                  None,           keep_summary),
    ("summary_failed",   ASKING,                State.BACKOFF,         may_recall,     count_recall),
    ("summary_failed",   ASKING,                None,                  None,           keep_no_summary),
    ("slept",            State.BACKOFF,         State.PARSE_EXCEPTION, in_branch,      wake),
    ("slept",            State.BACKOFF,         State.CALLING,         None,           wake),
    ("approved",         State.TOOL_INTERRUPT,  None,                  None,           keep_call),
    ("denied",           State.TOOL_INTERRUPT,  None,                  others_pending, keep_call),
    ("denied",           State.TOOL_INTERRUPT,  State.CALLING,         rounds_left,    close_round),
    ("denied",           State.TOOL_INTERRUPT,  State.COMPLETED,       stops_at_limit, end_at_limit),
    ("denied",           State.TOOL_INTERRUPT,  State.FAILED,          fails_at_limit, end_at_limit),
    ("denied",           State.TOOL_INTERRUPT,  State.CALLING,         at_round_limit, close_round),
    ("returned",         State.TOOL_INTERRUPT,  None,                  others_pending, keep_call),
    ("returned",         State.TOOL_INTERRUPT,  State.CALLING,         rounds_left,    close_round),
    ("returned",         State.TOOL_INTERRUPT,  State.COMPLETED,       stops_at_limit, end_at_limit),
    ("returned",         State.TOOL_INTERRUPT,  State.FAILED,          fails_at_limit, end_at_limit),
    ("returned",         State.TOOL_INTERRUPT,  State.CALLING,         at_round_limit, close_round),
    ("function_failed",  State.TOOL_INTERRUPT,  State.FAILED,          None,           keep_breakdown),
    ("started",          State.TOOL_INTERRUPT,  None,                  None,           keep_start),
    ("interrupted",      State.TOOL_INTERRUPT,  None,                  None,           keep_doubt),
    ("run_again",        State.TOOL_INTERRUPT,  None,                  None,           clear_doubt),
    ("injected",         State.CALLING,         None,                  None,           inject),
    ("injected",         State.TOOL_INTERRUPT,  None,                  None,           inject_later),
    ("handed_over",      State.TOOL_INTERRUPT,  State.FAILED,          out_of_handoffs, keep_handoffs),
    ("handed_over",      HANDING,               State.HANDED_OVER,     None,           hand_over),
    ("relayed",          State.HANDED_OVER,     State.COMPLETED,       ended_well,     relay),
    ("relayed",          State.HANDED_OVER,     State.FAILED,          None,           relay),
    ("expired",          ITS_OWN,               State.FAILED,          None,           keep_expiry),
    ("cancelled",        ITS_OWN,               State.FAILED,          None,           keep_reason),
)
# fmt: on
"""The table of an agent call: trigger, source, target, guard, action; of a trigger and a state the first that fits.

Examples:
    >>> ROWS[1][:3]
    ('begun', <State.SEEDED: 'Seeded'>, <State.CALLING: 'Calling'>)
"""


@cache
def _machine() -> RowMachine:
    return rows.machine_of(ROWS, State)


MACHINE: RowMachine = first_use("the machine of agent calls", _machine)  # one for all calls


def _moved(id: str, by: int) -> str:
    """Return the id of a function call after its message moved back by this many places."""
    position, _, number = id.partition(".")
    return f"{int(position) + by}.{number}"


def tracked(r: CallRecord, reply: Reply) -> Reply:
    """Return a reply whose message has the caller's data."""
    return reply.changed(message=reply.message.changed(extra=r.extra)) if r.extra else reply


def _said(r: CallRecord) -> int:
    """Return how many messages have been said, which only grows: a branch that is pruned counts, too."""
    return len(r.dialog) + len(r.branch) + len(r.pruned)


def _longer(r: CallRecord, *messages: Message) -> Vector[Message]:
    """Return the dialog with more messages, which have the caller's data."""
    return r.dialog.extend([one.changed(extra=r.extra) for one in messages] if r.extra else messages)


def _opened(r: CallRecord, answer: FunctionsRequested) -> CallRecord:
    """Return the record with the assistant's message in the dialog, and its calls as the round."""
    same = _identical_rounds(r, answer)
    return _pruned(r, dialog=_longer(r, answer.message), round=answer.calls, identical_rounds=same)


def _taken(message: Message, index: int, text: str, *, is_error: bool = False) -> list[Message]:
    """Return a message that calls the function for answers, followed by the results of its calls.

    Args:
        message: The model's message.
        index: The index of the message among those that are sent.
        text: The result of the first call, the only one that is read.
        is_error: Whether the first call is refused.
    """
    results: list[Message] = []
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, FunctionCall):
            part = part.changed(id=f"{index}.{len(results)}")
            result_text, failed = (NOT_TAKEN, True) if results else (text, is_error)
            result = FunctionResult(
                id=part.id, name=part.name, text=result_text, provider_id=part.provider_id, is_error=failed
            )
            results.append(Message(role="tool", parts=(result,)))
        parts.append(part)
    return [message.changed(parts=tuple(parts)), *results]


def _with_problem(r: CallRecord, answer: FinalReply, ending: Ending) -> CallRecord:
    """Return the record of a call that ends with an unusable answer."""
    r = r.changed(branch=(*r.branch, answer.reply.message), repairs=())
    if is_cut_off(answer.reply):
        ending = ending.changed(detail=f"{ending.detail}; settings.max_tokens sets another limit")
    if answer.error is not None:
        if not isinstance(answer.error, ValueError | Retry):  # code of the parser or of a validator is at fault
            detail = with_place(f"{ending.detail}, raised by code of the prompt", answer.error)
            ending = ending.changed(detail=detail)
        report = ErrorReport(kind=type(answer.error).__name__, message=error_text(answer.error))
        ending = ending.changed(error=report)
    return _pruned(r, ending=ending)


def _identical_problems(r: CallRecord, answer: FinalReply) -> int:
    """Return how many answers in a row have the same problem, with this one."""
    others = (n for n, problem in enumerate(reversed(r.problems), 1) if problem != answer.problem)
    return next(others, len(r.problems) + 1)


def _answered(r: CallRecord, answer: FunctionCall, prompt: Prompt) -> tuple[FunctionCall, ...]:
    """Return the round with the present form of this call."""
    if len(r.round) == 1:
        return (answer,)
    at = int(answer.id.rpartition(".")[2])  # an id is "place.index"
    return unblocked(r, (*r.round[:at], answer, *r.round[at + 1 :]), prompt)


def _with_once(r: CallRecord, call: FunctionCall, run: OnceRun) -> CallRecord:
    return r.changed(once={**r.once, call.id: run})


def _closed_with(r: CallRecord, answer: FunctionsRequested | FunctionCall, prompt: Prompt) -> CallRecord:
    if isinstance(answer, FunctionsRequested):
        return _closed(_opened(r, answer), answer.calls, prompt)
    return _closed(r, _answered(r, answer, prompt), prompt)


def _closed(r: CallRecord, calls: tuple[FunctionCall, ...], prompt: Prompt) -> CallRecord:
    """Return the record with the round's settled calls moved into the dialog, in the order requested."""
    results: list[Message] = []
    runs, asked = r.runs, {f.id: f.arguments_json for f in _requested(r, calls)}
    for f in calls:
        results.append(Message(role="tool", parts=(_result(f, prompt, asked.get(f.id)),)))
        runs += f.was_run
    return r.changed(
        dialog=_longer(r, *results, *r.injected),
        function_calls=r.function_calls.extend(calls),
        tallies=tallied(r, calls, prompt),
        runs=runs,
        round=(),
        once=_NONE,
        injected=(),
        rounds=r.rounds + 1,
    )


def _result(f: FunctionCall, prompt: Prompt, asked: str | None) -> FunctionResult:
    """Return the result of a call as the model sees it, which is told of arguments that a person has changed."""
    outcome = f.result if f.error is None else f.error
    text = outcome or ""
    if prompt.on_interrupt is not INTERRUPT:
        text = prompt.handler_text("interrupt", call_results=outcome, name=f.name, arguments=f.arguments_json)
    if asked is not None and asked != f.arguments_json:
        text = f"{CHANGED.format(arguments=f.arguments_json)}\n{text}"
    is_error = f.error is not None
    return FunctionResult(
        id=f.id, name=f.name, text=text, provider_id=f.provider_id, is_error=is_error, attachments=f.attachments
    )


def _settled(r: CallRecord, error: str) -> tuple[FunctionCall, ...]:
    """Return the round's calls, all settled: pending calls get this error, and calls in doubt one that says so."""
    in_doubt = r.in_doubt
    calls = [f.changed(error=f"It {UNHEARD}") if f in in_doubt else f for f in r.round]
    return tuple([f if f.is_settled else f.changed(error=error) for f in calls])


def _pruned(r: CallRecord, **changes: Any) -> CallRecord:
    """Return the record without the exception branch, before a new request."""
    if r.branch or r.attempt != 1:
        changes = {"branch": (), "problems": (), "pruned": r.pruned + r.branch, "attempt": 1, **changes}
    return r.changed(**changes)


def _ended(r: CallRecord, prompt: Prompt, ending: Ending, error: str = "") -> CallRecord:
    """Return the record of a call that ends early; pending calls of its round get a result.

    Args:
        r: The record.
        prompt: The task's prompt.
        ending: Why and how it ends.
        error: The error of function calls that are not run; by default the detail of the ending.
    """
    if r.round:
        settled = _settled(r, error or f"Not run: {ending.detail or ending.reason}")
        if begun := ", ".join([f.name for f in r.in_doubt]):
            ending = ending.changed(detail="; ".join(filter(None, [ending.detail, f"{begun} {UNHEARD}"])))
        r = _closed(r, settled, prompt)
    return _pruned(r, ending=ending, repairs=()) if r.repairs else _pruned(r, ending=ending)  # of no answer


def _identical_rounds(r: CallRecord, answer: FunctionsRequested) -> int:
    """Return how many rounds in a row request the same function calls, with the round of this reply."""
    if r.limits.identical_rounds is None:
        return 0
    return r.identical_rounds + 1 if _marks(answer.calls) == _marks(_newest_request(r)) else 1


def _newest_request(r: CallRecord) -> tuple[FunctionCall, ...]:
    """Return the calls of the newest round as the model requested them, without an approver's changes."""
    return _requested(r, r.function_calls)


def _requested(r: CallRecord, calls: Sequence[FunctionCall]) -> tuple[FunctionCall, ...]:
    """Return the round of the last of these calls as the model requested it."""
    return r.dialog[int(calls[-1].id.partition(".")[0])].function_calls if calls else ()


def _marks(calls: tuple[FunctionCall, ...]) -> list[str]:
    return sorted([_mark(f) for f in calls])


def _mark(f: FunctionCall) -> str:
    try:
        return f.fingerprint or fingerprint(f)
    except (ValueError, TypeError):  # not JSON
        return f.name + f.arguments_json
