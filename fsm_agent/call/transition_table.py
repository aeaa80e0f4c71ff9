"""An agent call's state machine: every decision about what happens next, and what it adds to the dialog or removes.

Rules
=====

1. Every decision about what happens next is a row in `ROWS`, or a guard that a row names.
2. Guards and actions are pure functions of ``(record, event, prompt)``, and the prompt is constant for a call.  They
   use no clock, no network, no randomness and no user code that may wait.  Anything that they need from these sources
   is in the event.
3. In each state, the call either waits for something or has ended.  Its effects follow from the record and the prompt
   (`AgentCall.effects`), so a snapshot of the record loses nothing.

Theory of operation
===================

`fsm_agent.call.machine` tries the rows from the top.  The last row for each trigger and source has no guard, so one row
is always taken.  Frequent rows are near the top where possible, because each refused row costs a tenth of a step.  If
``to`` is None, the state does not change.  `triggers.read_reply` turns a reply into one trigger.

The dialog only grows.  In the diagrams, *solid* rows add to it.  *Dashed* rows add to the exception branch, whose
messages are dropped as soon as the model gives a usable answer or requests functions.

A round opens with the assistant's message in the dialog, and closes with one result per function call, in the order
requested.  Calls that did not run get a result too, so the dialog can be sent to a provider at any time.  When the
round limit is reached or the last function is used up, no more functions are offered.  Requests then end with the final
prompt, which is not in the dialog.  `Limits.on_limit` may end the call instead.

An answer may come as the arguments to a function (`Output.function`).  A reply that calls only this function is a final
reply, and its function call gets a result so that the dialog can still be sent to a provider.  If the reply calls other
functions as well, they run first, and the answer is not read.

If the prompt has a finalizer, or its mode is ``two_stage``, the first answer is a draft (`keep_draft`).  Another
request asks for the final answer, without functions; `requests.active_prompt` chooses its prompt.

If the agent has a check, an answer that the parser accepts waits for the verdict.  A refusal by the check is treated as
a parse error.  Until the verdict, only the record's reply holds the answer.  An output from `stop_when` is not checked.

A handoff waits until the other calls in its round have their results.  Then the round closes, and another agent gets
the dialog, in a call that is a child of this one.  When the child ends, this call ends in the same way.  If this call
is cancelled or stopped, or if it expires, the child ends first.  If the dialog was handed over in an earlier turn, the
call starts with the handoff.

A model that works with its provider's own tools may pause.  Its message so far is then sent back so that it can
continue.  Each pause counts as a round.

A call ends when a reply takes the call and its inner agents beyond `Limits.tokens` or `Limits.cost_usd`, whatever the
reply says.

A dialog may be too long for the model.  Outside the table, `fsm_agent.context` chooses the part that a request
includes.  It may first ask for a summary, which is an extra request in the same state.  The call can continue without
the summary.  If the provider refuses a request as too long, one shorter request follows.

Budgets are counted per call and never reset, so the number of requests is bounded.  ``diagrams/agent_call.*`` are drawn
from `ROWS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fsm_agent._internal.structs import Vector
from fsm_agent._internal.system import with_place
from fsm_agent.call.effects import AskSummary, CallModel
from fsm_agent.call.limits import (
    Overrun,
    at_round_limit,
    describe_overrun,
    fails_at_limit,
    is_within,
    may_recall,
    may_retry,
    out_of_handoffs,
    reached,
    rounds_left,
    stops_at_limit,
    too_deep,
)
from fsm_agent.call.machine import Row, RowMachine, machine_of, take_row
from fsm_agent.call.outcomes import (
    Begun,
    Cancelled,
    CheckFailed,
    CheckRefused,
    Expired,
    FinalReply,
    FunctionFailed,
    FunctionsRequested,
    HandedOver,
    HandoffEnded,
    Injected,
    ModelFailed,
    Replied,
    Returned,
    Slept,
    Stopped,
    StoppedReply,
    SummaryTaken,
    TooLong,
)
from fsm_agent.call.process import STEP_WATCHES, join_path
from fsm_agent.call.record import (
    ASKING,
    FAILURES,
    ITS_OWN,
    SPENDING,
    UNHEARD,
    CallRecord,
    ContextUse,
    Ending,
    OnceRun,
    Reason,
    RequestFailure,
    State,
)
from fsm_agent.call.requests import is_final, rounds_used_up
from fsm_agent.call.rounds import NOT_TAKEN, are_equal, startable, tallied, unblocked
from fsm_agent.call.triggers import CHANGED, TableEvent, error_text
from fsm_agent.errors import ErrorReport, Retry
from fsm_agent.messages.events import Stepped
from fsm_agent.messages.message import FunctionCall, FunctionResult, HistorySummary, Message, renumbered
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.prompts.prompt import INTERRUPT, Prompt

HANDING = (State.CALLING, State.TOOL_INTERRUPT)  # CALLING only at the start, if an earlier turn handed over

# Guards: whether a row is taken.  Those that compare the call with its limits are in `fsm_agent.call.limits`.


def after_final(record: CallRecord, event: FunctionsRequested, prompt: Prompt) -> bool:
    return is_final(record, prompt)


def loop_must_stop(record: CallRecord, event: FunctionsRequested, prompt: Prompt) -> bool:
    limit = record.limits.identical_rounds
    return limit is not None and record.limits.on_loop == "stop" and _identical_rounds(record, event) >= limit


def opens_round(record: CallRecord, event: FunctionsRequested, prompt: Prompt) -> bool:
    """Return whether the reply requests functions that can and may run."""
    is_any_pending = any(not f.is_settled for f in event.calls)
    return is_any_pending and not after_final(record, event, prompt) and not loop_must_stop(record, event, prompt)


def in_branch(record: CallRecord, event: Slept, prompt: Prompt) -> bool:
    return bool(record.branch)


def others_pending(record: CallRecord, event: FunctionCall, prompt: Prompt) -> bool:
    calls = _answered(record, event, prompt) if prompt.depended_on else record.round
    for f in reversed(calls):  # noqa: SIM110  # it is called for each function of a round, and `any` takes twice as long
        if f.result is None and f.error is None and f.id != event.id:
            return True
    return False


def ended_well(record: CallRecord, event: HandoffEnded, prompt: Prompt) -> bool:
    return event.record.state is State.COMPLETED


def may_shorten(record: CallRecord, event: TooLong, prompt: Prompt) -> bool:
    """Return whether a shorter request may follow one that was too long.  This happens only once."""
    is_new = record.shortened_at != _said(record)
    return event.shorten_to is not None and is_new and is_within(record.recalls, record.limits.recalls)


# Actions: the next record


def start(record: CallRecord, event: Begun, prompt: Prompt) -> CallRecord:
    if event.system is not None:
        rest = record.dialog[1:] if len(record.dialog) and record.dialog[0].role == "system" else record.dialog
        dialog = Vector(renumbered([Message.of("system", event.system), *rest]))
        record = record.changed(dialog=dialog, seeded_with=record.seeded_with + len(dialog) - len(record.dialog))
    return record.changed(started_at_s=event.at_s, id=event.id)


def fail_too_deep(record: CallRecord, event: Begun, prompt: Prompt) -> CallRecord:
    detail = f"agent calls are nested {record.depth + 1} deep, and limits.depth is {record.limits.depth}"
    ending = Ending(reason=Reason.TOO_DEEP, detail=detail, limit="depth", count=record.depth)
    return start(record, event, prompt).changed(ending=ending)


def complete(record: CallRecord, event: FinalReply, prompt: Prompt) -> CallRecord:
    message = event.reply.message
    said = [message] if event.call is None else _taken(message, len(record.dialog), "The answer was taken.")
    ending = Ending(reason=Reason.ANSWERED, output_json=event.output_json)
    if record.rounds and not is_within(record.rounds, record.limits.rounds):
        ending = ending.changed(detail=rounds_used_up(record.limits), limit="rounds", count=record.rounds)
    # The problems stay, because a restored call parses the answer again and must know that it followed them.
    return _pruned(
        record, dialog=_longer(record, *said), ending=ending, repairs=event.repairs, problems=record.problems
    )


def propose(record: CallRecord, event: FinalReply, prompt: Prompt) -> CallRecord:
    return record.changed(repairs=event.repairs, attempt=1)


def keep_draft(record: CallRecord, event: FinalReply, prompt: Prompt) -> CallRecord:
    is_form = prompt.finalizer is None
    text = prompt.handler_text("form") if is_form else prompt.finalizer_text(event.reply.message.text)
    plea = Message.of("user", text)
    return _pruned(record, dialog=_longer(record, event.reply.message, plea), is_drafted=True)


def complete_stopped(record: CallRecord, event: StoppedReply | Stopped, prompt: Prompt) -> CallRecord:
    ending, why = Ending(reason=Reason.STOPPED, detail=event.reason), "the call was stopped"
    if isinstance(event, StoppedReply):
        record, ending = open_round(record, event.requested, prompt), ending.changed(output_json=event.output_json)
        return _ended(record, prompt, ending, why, is_begun=False)
    return _ended(record, prompt, ending, why)


def fail_refused(record: CallRecord, event: FinalReply, prompt: Prompt) -> CallRecord:
    return _pruned(record, ending=Ending(reason=Reason.REFUSED, detail=event.problem))


def fail_round_limit(record: CallRecord, event: FunctionsRequested, prompt: Prompt) -> CallRecord:
    names = ", ".join(f.name for f in event.calls)
    limit, count, why = "", None, "each had used up its max_calls or max_failures"
    if not is_within(record.rounds, record.limits.rounds):
        limit, count, why = "rounds", record.rounds, rounds_used_up(record.limits)
    elif record.is_drafted:
        why = "the draft of the answer was given"
    detail = f"the model asked for {names} in round {record.rounds + 1}, when no functions were offered: {why}"
    return _pruned(record, ending=Ending(reason=Reason.ROUND_LIMIT, detail=detail, limit=limit, count=count))


def fail_paused(record: CallRecord, event: FunctionsRequested, prompt: Prompt) -> CallRecord:
    detail = f"the model paused again after limits.rounds={record.limits.rounds}"
    return _pruned(record, ending=Ending(reason=Reason.ROUND_LIMIT, detail=detail, limit="rounds", count=record.rounds))


def go_on(record: CallRecord, event: FunctionsRequested, prompt: Prompt) -> CallRecord:
    return _pruned(record, dialog=_longer(record, event.message), rounds=record.rounds + 1)


def fail_looped(record: CallRecord, event: FunctionsRequested, prompt: Prompt) -> CallRecord:
    names, count = ", ".join(f.name for f in event.calls), _identical_rounds(record, event)
    detail = f"the model asked for the same ({names}) {count} times in a row"
    ending = Ending(reason=Reason.LOOPED, detail=detail, function=names, limit="identical_rounds", count=count)
    return _pruned(record, ending=ending, identical_rounds=count)


def open_round(record: CallRecord, event: FunctionsRequested, prompt: Prompt) -> CallRecord:
    """Add the assistant's message to the dialog, and begin a round with its calls."""
    same = _identical_rounds(record, event)
    return _pruned(record, dialog=_longer(record, event.message), round=event.calls, identical_rounds=same)


def close_round(record: CallRecord, event: FunctionsRequested | FunctionCall, prompt: Prompt) -> CallRecord:
    record = _closed_with(record, event, prompt)
    if record.limits.on_loop == "tell" and record.is_looping:
        names = ", ".join(f.name for f in record.newest_round)
        text = prompt.handler_text("loop", name=names, count=record.identical_rounds)
        return record.changed(dialog=_longer(record, Message.of(record.limits.loop_role, text)))
    return record


def end_at_limit(record: CallRecord, event: FunctionsRequested | FunctionCall, prompt: Prompt) -> CallRecord:
    record = _closed_with(record, event, prompt)
    detail = rounds_used_up(record.limits)
    return record.changed(ending=Ending(reason=Reason.ROUND_LIMIT, detail=detail, limit="rounds", count=record.rounds))


def fail_function(record: CallRecord, event: FunctionCall, prompt: Prompt) -> CallRecord:
    detail = f"{event.name}: {event.error}"
    ending = Ending(reason=Reason.FUNCTION_FAILED, detail=detail, function=event.name)
    return _ended(keep_call(record, event, prompt), prompt, ending)


def fail_handoffs(record: CallRecord, event: FunctionCall, prompt: Prompt) -> CallRecord:
    detail = f"{event.name} would be handoff {record.handoffs + 1}, and limits.handoffs is {record.limits.handoffs}"
    ending = Ending(
        reason=Reason.HANDOFF_LIMIT, detail=detail, function=event.name, limit="handoffs", count=record.handoffs
    )
    return _ended(record, prompt, ending, is_begun=False)


def hand_over(record: CallRecord, event: FunctionCall | HandedOver, prompt: Prompt) -> CallRecord:
    if isinstance(event, HandedOver):
        return record
    done = event.changed(result="The dialog was handed over.", was_run=True)
    record = record.changed(round=_answered(record, done, prompt))
    calls = _settled(record, f"Not done: {event.name} has handed the dialog over.")
    return _closed(record, calls, prompt).changed(governed_by=event.name)


def relay(record: CallRecord, event: HandoffEnded, prompt: Prompt) -> CallRecord:
    inner, start = event.record, len(record.dialog)
    moved, messages = start - inner.seeded_with, renumbered(inner.dialog[inner.seeded_with :], start)
    calls = list[FunctionCall]()
    for f in inner.function_calls:
        position, _, number = f.id.partition(".")
        calls.append(f.changed(id=f"{int(position) + moved}.{number}", round=record.rounds + f.round))
    return record.changed(
        dialog=_longer(record, *messages),
        function_calls=record.function_calls.extend(calls),
        governed_by=join_path(event.name, inner.governed_by),
        successor=inner.changed(dialog=Vector(), seeded_with=0, function_calls=Vector()),
        reply=record.reply if inner.reply is None else tracked(record, inner.reply),
        repairs=inner.repairs,
        ending=inner.ending,
    )


def inject(record: CallRecord, event: Injected, prompt: Prompt) -> CallRecord:
    return record.changed(dialog=_longer(record, *event.messages), turn=record.turn + 1)


def inject_later(record: CallRecord, event: Injected, prompt: Prompt) -> CallRecord:
    return record.changed(injected=(*record.injected, *event.messages))


def ask_to_fix(record: CallRecord, event: FinalReply, prompt: Prompt) -> CallRecord:
    attempt = record.parse_errors + 1
    text = prompt.handler_text("exception", error_message=event.problem, attempt=attempt)
    message = event.reply.message
    if event.call is None:
        refused = [message, Message.of("user", text)]
    else:
        refused = _taken(message, len(record.dialog) + len(record.branch), text, is_error=True)
    branch, problems = (*record.branch, *refused), (*record.problems, event.problem)
    return record.changed(branch=branch, problems=problems, parse_errors=attempt, attempt=1, repairs=())


def fail_unparseable(record: CallRecord, event: FinalReply, prompt: Prompt) -> CallRecord:
    ending = Ending(reason=Reason.UNPARSEABLE, detail=event.problem, limit="parse_retries", count=record.parse_errors)
    return _with_problem(record, event, ending)


def fail_check(record: CallRecord, event: CheckFailed, prompt: Prompt) -> CallRecord:
    ending = Ending(reason=Reason.CHECK_FAILED, detail=f"{event.name}: {event.text}", function=event.name)
    return _ended(record, prompt, ending)


def fail_model(record: CallRecord, event: ModelFailed, prompt: Prompt) -> CallRecord:
    ending = Ending(reason=Reason.MODEL_FAILED, detail=event.error.message, error=event.error)
    if event.error.retryable and not is_within(record.recalls, record.limits.recalls):
        ending = ending.changed(limit="recalls", count=record.recalls)
    return _pruned(record, ending=ending)


def fail_program(record: CallRecord, event: ModelFailed, prompt: Prompt) -> CallRecord:
    name = (event.error.model or "").partition(":")[2]
    return _pruned(record, ending=Ending(reason=Reason.FUNCTION_FAILED, detail=event.error.message, function=name))


def keep_summary(record: CallRecord, event: SummaryTaken, prompt: Prompt) -> CallRecord:
    summary = HistorySummary(covers=event.covers, text=event.text, made_at=len(record.dialog))
    return record.changed(summary=summary, attempt=1)


def keep_no_summary(record: CallRecord, event: ModelFailed, prompt: Prompt) -> CallRecord:
    known = HistorySummary() if record.summary is None else record.summary
    return record.changed(summary=known.changed(failed_at=len(record.dialog)), attempt=1)


def wake(record: CallRecord, event: Slept, prompt: Prompt) -> CallRecord:
    return record.changed(attempt=record.attempt + 1)


def keep_call(record: CallRecord, event: FunctionCall, prompt: Prompt) -> CallRecord:
    return record.changed(round=_answered(record, event, prompt))


def keep_start(record: CallRecord, event: FunctionCall, prompt: Prompt) -> CallRecord:
    before = record.once.get(event.id)
    return _with_once(record, event, OnceRun(1 if before is None else before.attempt + 1))


def keep_doubt(record: CallRecord, event: FunctionCall, prompt: Prompt) -> CallRecord:
    return _with_once(record, event, record.once.get(event.id, OnceRun()).changed(phase="doubtful"))


def clear_doubt(record: CallRecord, event: FunctionCall, prompt: Prompt) -> CallRecord:
    return _with_once(record, event, record.once[event.id].changed(phase="cleared"))


def fail_over_budget(record: CallRecord, event: Overrun, prompt: Prompt) -> CallRecord:
    limit, count = reached(record, event)
    ending = Ending(reason=Reason.OVER_BUDGET, detail=describe_overrun(record, event), limit=limit, count=count)
    if event.call is not None:
        record = record.changed(round=_answered(record, event.call, prompt))
    return _ended(record, prompt, ending, "the call is over its budget")


def fail_expired(record: CallRecord, event: Expired, prompt: Prompt) -> CallRecord:
    limit = record.limits.deadline_s
    which = "the deadline around the call" if limit is None else f"limits.deadline_s={limit}"
    detail = f"{which} has passed in {record.state}"
    return _ended(record, prompt, Ending(reason=Reason.EXPIRED, detail=detail, limit="deadline_s", count=limit))


def fail_cancelled(record: CallRecord, event: Cancelled, prompt: Prompt) -> CallRecord:
    return _ended(record, prompt, Ending(reason=Reason.CANCELLED, detail=event.reason))


def count_recall(record: CallRecord, event: ModelFailed, prompt: Prompt) -> CallRecord:
    """Make the call wait before it repeats a request, and return its record."""
    return record.changed(recalls=record.recalls + 1, wake_at_s=event.at_s + event.delay_s)


def shorten(record: CallRecord, event: TooLong, prompt: Prompt) -> CallRecord:
    """Make the call's requests shorter from now on, and return its record."""
    recalls, attempt = record.recalls + 1, record.attempt + 1
    return record.changed(recalls=recalls, attempt=attempt, shorten_to=event.shorten_to, shortened_at=_said(record))


# fmt: off
ROWS: tuple[Row, ...] = (
    # trigger            source                 to                     guard           action
    ("begun",            State.SEEDED,          State.FAILED,          too_deep,       fail_too_deep),
    ("begun",            State.SEEDED,          State.CALLING,         None,           start),
    ("stopped",          ITS_OWN,               State.COMPLETED,       None,           complete_stopped),
    ("over_budget",      SPENDING,              State.FAILED,          None,           fail_over_budget),
    ("answered",         ASKING,                State.COMPLETED,       None,           complete),
    ("proposed",         ASKING,                State.CHECKING,        None,           propose),
    ("drafted",          State.CALLING,         State.CALLING,         None,           keep_draft),
    ("refused",          ASKING,                State.FAILED,          None,           fail_refused),
    ("functions_asked",  ASKING,                State.TOOL_INTERRUPT,  opens_round,    open_round),
    ("functions_asked",  ASKING,                State.FAILED,          after_final,    fail_round_limit),
    ("functions_asked",  ASKING,                State.FAILED,          loop_must_stop, fail_looped),
    ("functions_asked",  ASKING,                State.COMPLETED,       stops_at_limit, end_at_limit),
    ("functions_asked",  ASKING,                State.FAILED,          fails_at_limit, end_at_limit),
    ("functions_asked",  ASKING,                State.CALLING,         at_round_limit, close_round),
    ("functions_asked",  ASKING,                State.CALLING,         None,           close_round),
    ("paused",           ASKING,                State.FAILED,          after_final,    fail_paused),
    ("paused",           ASKING,                State.CALLING,         at_round_limit, go_on),
    ("paused",           ASKING,                State.CALLING,         None,           go_on),
    ("parse_failed",     ASKING,                State.PARSE_EXCEPTION, may_retry,      ask_to_fix),
    ("parse_failed",     ASKING,                State.FAILED,          None,           fail_unparseable),
    ("checked",          State.CHECKING,        State.COMPLETED,       None,           complete),
    ("check_refused",    State.CHECKING,        State.PARSE_EXCEPTION, may_retry,      ask_to_fix),
    ("check_refused",    State.CHECKING,        State.FAILED,          None,           fail_unparseable),
    ("check_failed",     State.CHECKING,        State.FAILED,          None,           fail_check),
    ("model_failed",     ASKING,                State.BACKOFF,         may_recall,     count_recall),
    ("model_failed",     ASKING,                State.FAILED,          None,           fail_model),
    ("function_failed",  ASKING,                State.FAILED,          None,           fail_program),
    ("too_long",         ASKING,                None,                  may_shorten,    shorten),
    ("too_long",         ASKING,                State.FAILED,          None,           fail_model),
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
    ("function_failed",  State.TOOL_INTERRUPT,  State.FAILED,          None,           fail_function),
    ("started",          State.TOOL_INTERRUPT,  None,                  None,           keep_start),
    ("interrupted",      State.TOOL_INTERRUPT,  None,                  None,           keep_doubt),
    ("run_again",        State.TOOL_INTERRUPT,  None,                  None,           clear_doubt),
    ("injected",         State.CALLING,         None,                  None,           inject),
    ("injected",         State.TOOL_INTERRUPT,  None,                  None,           inject_later),
    ("handed_over",      State.TOOL_INTERRUPT,  State.FAILED,          out_of_handoffs, fail_handoffs),
    ("handed_over",      HANDING,               State.HANDED_OVER,     None,           hand_over),
    ("relayed",          State.HANDED_OVER,     State.COMPLETED,       ended_well,     relay),
    ("relayed",          State.HANDED_OVER,     State.FAILED,          None,           relay),
    ("expired",          ITS_OWN,               State.FAILED,          None,           fail_expired),
    ("cancelled",        ITS_OWN,               State.FAILED,          None,           fail_cancelled),
)
# fmt: on
"""An agent call's table, whose rows hold a trigger, source, target, guard and action.

The first row that fits is taken.

Examples:
    >>> ROWS[1][:3]
    ('begun', <State.SEEDED: 'Seeded'>, <State.CALLING: 'Calling'>)
"""


def tracked(record: CallRecord, reply: Reply) -> Reply:
    """Return a reply with the caller's data attached to its message."""
    return reply.changed(message=reply.message.changed(extra=record.extra)) if record.extra else reply


def _said(record: CallRecord) -> int:
    """Return the number of messages so far.  Pruned messages count too, so this number only grows."""
    return len(record.dialog) + len(record.branch) + len(record.pruned)


def _longer(record: CallRecord, *messages: Message) -> Vector[Message]:
    return record.dialog.extend([one.changed(extra=record.extra) for one in messages] if record.extra else messages)


def _taken(message: Message, index: int, text: str, *, is_error: bool = False) -> list[Message]:
    """Return a message that calls the function for answers, and the results of its calls.

    ``text`` is the result of the first call.
    """
    calls = [f.changed(id=f"{index}.{number}") for number, f in enumerate(message.function_calls)]
    numbered, (first, *others) = iter(calls), calls
    parts = tuple([next(numbered) if isinstance(part, FunctionCall) else part for part in message.parts])
    results = [_tool_message(first, text, is_error), *[_tool_message(f, NOT_TAKEN, is_error=True) for f in others]]
    return [message.changed(parts=parts), *results]


def _tool_message(f: FunctionCall, text: str, is_error: bool) -> Message:
    result = FunctionResult(
        id=f.id, name=f.name, text=text, provider_id=f.provider_id, is_error=is_error, attachments=f.attachments
    )
    return Message(role="tool", parts=(result,))


def _with_problem(record: CallRecord, event: FinalReply, ending: Ending) -> CallRecord:
    record = record.changed(branch=(*record.branch, event.reply.message), repairs=())
    if event.reply.is_cut_off:
        ending = ending.changed(detail=f"{ending.detail}; settings.max_tokens sets another limit")
    if event.error is not None:
        if not isinstance(event.error, ValueError | Retry):  # a bug in the parser or a validator
            detail = with_place(f"{ending.detail}, raised by code of the prompt", event.error)
            ending = ending.changed(detail=detail)
        report = ErrorReport(kind=type(event.error).__name__, message=error_text(event.error))
        ending = ending.changed(error=report)
    return _pruned(record, ending=ending)


def _answered(record: CallRecord, event: FunctionCall, prompt: Prompt) -> tuple[FunctionCall, ...]:
    at = int(event.id.rpartition(".")[2])  # an id is "place.index"
    calls = (*record.round[:at], event, *record.round[at + 1 :])
    return unblocked(record, calls, prompt) if prompt.depended_on else calls


def _with_once(record: CallRecord, call: FunctionCall, run: OnceRun) -> CallRecord:
    return record.changed(once={**record.once, call.id: run})


def _closed_with(record: CallRecord, event: FunctionsRequested | FunctionCall, prompt: Prompt) -> CallRecord:
    if isinstance(event, FunctionsRequested):
        return _closed(open_round(record, event, prompt), event.calls, prompt)
    return _closed(record, _answered(record, event, prompt), prompt)


def _closed(record: CallRecord, calls: tuple[FunctionCall, ...], prompt: Prompt) -> CallRecord:
    asked = {f.id: f.arguments_json for f in _requested(record, calls)}
    results = [_result(f, prompt, asked.get(f.id)) for f in calls]
    return record.changed(
        dialog=_longer(record, *results, *record.injected),
        function_calls=record.function_calls.extend(calls),
        tallies=tallied(record, calls, prompt),
        runs=record.runs + sum([f.was_run for f in calls]),
        round=(),
        once={},
        injected=(),
        rounds=record.rounds + 1,
    )


def _result(f: FunctionCall, prompt: Prompt, asked: str | None) -> Message:
    """Return a call's result as a message, which mentions any arguments that an approver has changed."""
    outcome = f.result if f.error is None else f.error
    text = outcome or ""
    if prompt.on_interrupt is not INTERRUPT:
        text = prompt.handler_text("interrupt", call_results=outcome, name=f.name, arguments=f.arguments_json)
    if asked is not None and asked != f.arguments_json:
        text = f"{CHANGED.format(arguments=f.arguments_json)}\n{text}"
    return _tool_message(f, text, is_error=f.error is not None)


def _settled(record: CallRecord, error: str) -> tuple[FunctionCall, ...]:
    """Return the round with all calls settled.

    Pending calls get this error, except that calls in doubt get another one.
    """
    in_doubt = record.in_doubt
    calls = [f.changed(error=f"It {UNHEARD}") if f in in_doubt else f for f in record.round]
    return tuple([f if f.is_settled else f.changed(error=error) for f in calls])


def _pruned(record: CallRecord, **changes: Any) -> CallRecord:
    """Return the record without the exception branch: the failed answers and the messages about them."""
    if record.branch or record.attempt != 1:
        changes = {"branch": (), "problems": (), "pruned": record.pruned + record.branch, "attempt": 1, **changes}
    return record.changed(**changes)


def _ended(record: CallRecord, prompt: Prompt, ending: Ending, why: str = "", *, is_begun: bool = True) -> CallRecord:
    """Return the record for a call that ends early.  Pending function calls get an error.

    Args:
        record: The record before the end.
        prompt: The call's prompt.
        ending: How the call ends.
        why: Why the functions have no result.  The default is the reason of the ending.
        is_begun: Whether functions of the round may have begun.
    """
    if record.round:
        why, running = why or ending.detail or ending.reason, startable(record, prompt) if is_begun else ()
        error = f"It may have run, and its outcome is unknown: {why}"
        record = record.changed(round=tuple([f.changed(error=error) if f in running else f for f in record.round]))
        settled = _settled(record, f"Not run: {why}")
        if begun := ", ".join([f.name for f in record.in_doubt]):
            ending = ending.changed(detail="; ".join(filter(None, [ending.detail, f"{begun} {UNHEARD}"])))
        record = _closed(record, settled, prompt)
    return _pruned(record, ending=ending, repairs=())  # there is no output that they could belong to


def _identical_rounds(record: CallRecord, event: FunctionsRequested) -> int:
    if record.limits.identical_rounds is None:
        return 0
    newest = _requested(record, record.function_calls)  # without an approver's changes
    return record.identical_rounds + 1 if are_equal(event.calls, newest) else 1


def _requested(record: CallRecord, calls: Sequence[FunctionCall]) -> tuple[FunctionCall, ...]:
    return record.dialog[int(calls[-1].id.partition(".")[0])].function_calls if calls else ()


UNASKED = (Cancelled, Stopped, Expired, Injected)  # outcomes that answer no effect
OF_ANSWERS = (Replied, CheckRefused)  # outcomes with a new answer, or with a new problem of an answer
OF_FUNCTIONS = (Returned, FunctionFailed, HandoffEnded)  # the ends of functions, including agents
_MAY_USE = (*OF_FUNCTIONS, ModelFailed)  # outcomes that used tokens if they come from an agent
_TOLD = (*CallModel.outcomes, CheckRefused)  # outcomes whose problem is noted in the step
_ROUND_LIMIT = at_round_limit.__name__
_OF_SUMMARIES = f"{AskSummary.prefix}:"


def take_step(
    before: CallRecord,
    trigger: str,
    key: str,
    outcome: Any,
    event: TableEvent,
    prompt: Prompt,
    use: ContextUse | None = None,
) -> tuple[CallRecord, Stepped]:
    """Return `(record, step)`: the record after a step, and the step itself.

    Raises:
        IllegalTrigger: If no row takes the trigger, for example because the call has ended.
    """
    row = take_row(_machine(), trigger, before, event, prompt)
    after, state = row.after, row.state
    changes: dict[str, Any] = {"state": state}
    limited = rounds_used_up(before.limits) if row.guard == _ROUND_LIMIT else ""
    detail = limited if after.ending is None else after.ending.detail
    kind = type(outcome)
    told = ""
    if kind in _TOLD:
        detail, told = detail or _problem(event), _told(before, after, event)
        if kind is not CheckRefused:  # it came for an answer, in the same turn
            changes["turn"] = before.turn + 1
    served_by = None
    if kind is Replied:
        served_by, adapted = outcome.reply.served_by, outcome.reply.adapted
        if adapted or after.repairs:
            detail = "; ".join([*filter(None, [detail]), *after.repairs, *adapted])
    elif trigger == "denied" and isinstance(event, FunctionCall):
        detail = detail or f"{event.name}: {event.error}"
    elif trigger == "handed_over":
        detail = detail or outcome.agent
    usage = _count_usage(before, key, outcome, use, changes)
    if trigger in FAILURES:  # also for a reply with an error
        changes["failures"] = before.failures.push(_failure(before, key, event, outcome.at_s, state))
    step = Stepped(before.state, trigger, state, key, outcome.at_s, row.guard, detail, usage, served_by, told)
    for watch in STEP_WATCHES.get():
        watch(step)
    changes["trace"] = before.trace.push(step)
    return after.changed(**changes), step


@cache
def _machine() -> RowMachine:
    # Made at the first step, because its hundred transitions would take a tenth of the import time.
    return machine_of(ROWS, State)


def _count_usage(
    before: CallRecord, key: str, outcome: Any, use: ContextUse | None, changes: dict[str, Any]
) -> Usage | None:
    """Count an outcome's tokens in ``changes``, and return them, or return None if it used none."""
    kind = type(outcome)
    if kind is Replied:
        usage: Usage = outcome.reply.usage
        if not key.startswith(_OF_SUMMARIES):  # summaries are not answers
            changes["replies"] = before.replies + 1
            changes["reply"] = tracked(before, outcome.reply)
        if use is not None:
            use = use.changed(reported=usage.input_tokens, cached=usage.cached_tokens)
            changes["requests"] = before.requests.push(use)
    elif kind in _MAY_USE:
        if kind is Returned and outcome.releases:
            changes["released"] = (*before.released, *outcome.releases)
        usage = outcome.usage
        if usage is UNUSED:
            return None
    else:
        return None
    changes["usage"] = before.usage + usage
    return usage


def _problem(event: TableEvent) -> str:
    if type(event) is FinalReply:
        return event.problem
    return event.error.message if isinstance(event, ModelFailed | TooLong) else ""


def _told(before: CallRecord, after: CallRecord, event: TableEvent) -> str:
    if type(event) is FunctionsRequested:
        texts = [call.result if call.error is None else call.error for call in event.calls]
        return "\n".join([text for text in texts if text is not None])
    if not after.branch:
        return ""
    messages = after.branch[len(before.branch) :]
    told = [message for message in messages if message.role != "assistant"]
    return "\n".join([getattr(part, "text", "") for message in told for part in message.parts])


def _failure(before: CallRecord, key: str, event: Any, at_s: float, to: State) -> RequestFailure:
    delay_s = event.delay_s if to is State.BACKOFF else None
    number, report = before.rounds + 1, event.error
    return RequestFailure(key=key, attempt=before.attempt, round=number, report=report, at_s=at_s, delay_s=delay_s)
