"""Find the trigger of an outcome, and make the event that the table receives.

A row in `fsm_agent.call.transition_table` decides what follows from a trigger: another attempt, another state, or the
end.

The text that the model is told when a person refuses a call is made here, too.

A reply has exactly one trigger.  The prompt's parser and `stop_when` run here, once.  Both must be pure.

A check may change the answer.  The record keeps the changed answer as JSON, so that every driver and every restored
call reads the same output.  A value that cannot be read back is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from types import NoneType
from typing import Any, TypeAlias

from pydantic_core import from_json

from fsm_agent._internal.masking import mask_keys
from fsm_agent._internal.structs import types_of
from fsm_agent.call.effects import AskSummary
from fsm_agent.call.limits import OVER_BUDGET, Overrun, exceeded
from fsm_agent.call.outcomes import (
    Approved,
    Checked,
    CheckRefused,
    Denied,
    FinalReply,
    FunctionFailed,
    FunctionsRequested,
    ModelFailed,
    Modified,
    Outcome,
    Replied,
    Returned,
    StoppedReply,
    SummaryTaken,
    TooLong,
)
from fsm_agent.call.record import CallRecord, State
from fsm_agent.call.requests import active_prompt, is_draft_stage, is_final
from fsm_agent.call.rounds import (
    UNATTENDED,
    ApprovalGate,
    as_taken,
    fingerprint,
    refusal_text,
    requested_calls,
    unrunnable,
)
from fsm_agent.call.stop_conditions import Stop, StopContext, StopWhen
from fsm_agent.errors import ErrorReport, OutcomeError, ParseError, ProgramError, Retry, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.hosted_calls import is_run_as_requested
from fsm_agent.messages.message import FunctionCall, Message, object_text
from fsm_agent.messages.reply import UNUSED, Reply
from fsm_agent.prompts.output import ANSWER, CUT_OFF, Arriving, Output, Parsed, Parser, ParserInput
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.validation import require, safe_repr

_ANYTHING = Output(Any)  # the output of a user's own parser


class Proposal:
    """An answer that waits for its check."""

    def __init__(self, record: CallRecord, prompt: Prompt[Any], output: Any) -> None:
        self.output = output
        self._expected, self._read = _reader(record, prompt)
        try:
            self._before: str | None = self._expected.document(output)  # now, since the check may change the object
        except Exception:  # a parser may return what JSON cannot hold
            self._before = None

    def change(self, value: Any, name: str) -> str | None:
        """Return the changed output as JSON, or None if it has not changed.

        Raises:
            UsageError: If the value is not an output, or cannot be read back.
        """
        if value is None and self.output is not None and {None, NoneType}.isdisjoint(types_of(self._expected.type)):
            raise UsageError(
                f"the return value of the check {name!r}: expected the output, changed or not, got None; raise"
                " Retry(why) to refuse it"
            )
        try:
            is_same = value is self.output or bool(value == self.output)
            if is_same and self._expected.document(value) == self._before:
                return None
            return self._expected.kept(value, self._read)
        except Exception as error:  # any, since writing and reading run the type's own code
            if value is self.output and self._before is None:
                return None
            right = "a value of the output's type that JSON can hold"
            raise UsageError(
                f"the return value of the check {name!r}: expected {right}, got {safe_repr(value)} ({str(error)[:300]})"
            ) from error


def checked_output(document: str, record: CallRecord, prompt: Prompt[Any]) -> Any:
    """Return the output of a completed call whose answer was changed by its check."""
    return _reader(record, prompt)[1](document)


def _reader(record: CallRecord, prompt: Prompt[Any]) -> tuple[Output, Callable[[str], Any]]:
    """Return the type of a checked answer, and a function that reads a changed answer back from JSON."""
    governing = active_prompt(record, prompt, in_branch=was_in_branch(record))
    expected = governing.expected if governing.parser is None else _ANYTHING
    return expected, lambda document: expected.bare_validated(document, record.parser_args)


def was_in_branch(record: CallRecord) -> bool:
    """Return whether the answer that is being checked or that ended the call belongs to the exception branch."""
    if record.state is State.CHECKING:
        return bool(record.branch)
    last = record.trace[-1]
    if last.source == State.CHECKING:  # the step before it took the answer, since nothing else happens in this state
        last = record.trace[-2]
    return last.source == State.PARSE_EXCEPTION


NOT_MODIFIED = "The call was not allowed: it would need other arguments, which cannot be changed here."

CHANGED = "(The arguments were changed before the function ran: {arguments})"


TableEvent: TypeAlias = (
    FunctionsRequested | FinalReply | StoppedReply | SummaryTaken | TooLong | Overrun | FunctionCall | Outcome
)

_CHARACTERS = 4  # characters of a summary that count as a token


_OF_CHECK = (Checked, CheckRefused)

_NO_ARGS: Mapping[str, Any] = {}
_MAX_IN_GROUP = 5  # errors of a group that are shown


def read(record: CallRecord, call: FunctionCall | None, outcome: Outcome, prompt: Prompt) -> tuple[str, TableEvent]:
    """Return `(trigger, event)` for an outcome other than a reply."""
    if type(outcome) is ModelFailed and outcome.error.kind == ProgramError.__name__:
        return "function_failed", outcome
    if type(outcome) is ModelFailed and outcome.error.kind == OVER_BUDGET:
        return "over_budget", Overrun()
    if call is None:
        return outcome.kind, outcome if type(outcome) not in _OF_CHECK else _of_check(record, outcome)
    match outcome:
        case Returned() | FunctionFailed():
            call, usage = _ran(call, outcome), outcome.usage
            if usage != UNUSED and exceeded(record, usage):
                return "over_budget", Overrun(usage=usage, call=call)
        case Approved() | Modified():
            return _approved(call, outcome, prompt)
        case Denied():
            error = f"The call was not allowed: {outcome.reason or 'no reason was given'}"
            return "denied", call.changed(error=error, is_denied=True)
    return outcome.kind, call


def _of_check(record: CallRecord, outcome: Outcome) -> TableEvent:
    if record.reply is None or not isinstance(outcome, Checked | CheckRefused):
        return outcome
    call = first_call(record.reply.message)
    if isinstance(outcome, Checked):
        return FinalReply(record.reply, repairs=record.repairs, call=call, output_json=outcome.output_json)
    return FinalReply(record.reply, problem=outcome.reason, error=Retry(outcome.reason), call=call)


def _approved(call: FunctionCall, outcome: Approved | Modified, prompt: Prompt) -> tuple[str, FunctionCall]:
    problem, call = unrunnable(call, prompt), call.changed(needs_approval=False)
    function = prompt.by_name.get(call.name)
    if function is None or (problem is not None and isinstance(outcome, Approved)):
        raise OutcomeError(f"{call.name!r} cannot be approved: {problem}; answer Denied(reason)")
    if isinstance(outcome, Approved):
        return "approved", call
    call = call.changed(arguments_json=outcome.arguments_json)
    if is_run_as_requested(function):
        return "denied", call.changed(error=NOT_MODIFIED)
    try:
        call = as_taken(call, function)
    except ParseError as error:
        return "denied", call.changed(error=refusal_text(str(error), call))
    return "approved", call.changed(fingerprint=fingerprint(call))


def _ran(call: FunctionCall, outcome: Returned | FunctionFailed) -> FunctionCall:
    if isinstance(outcome, FunctionFailed) or outcome.is_error:
        return call.changed(error=outcome.text, was_run=True, duration_s=outcome.duration_s)
    return call.changed(
        result=outcome.text,
        was_run=True,
        duration_s=outcome.duration_s,
        attachments=outcome.attachments,
        is_cached=outcome.is_cached,
    )


def read_reply(
    record: CallRecord,
    reply: Reply,
    prompt: Prompt,
    stop_when: StopWhen | None,
    seen: Container[str],
    gate: ApprovalGate = UNATTENDED,
) -> tuple[str, TableEvent]:
    """Return `(trigger, event)` for a model's reply.

    ``seen`` holds the fingerprints of function calls that need not run again, because their results are still valid.
    """
    if exceeded(record, reply.usage):
        return "over_budget", Overrun(usage=reply.usage)
    requested: FunctionsRequested | None = None
    if stop_when is not None:
        requested = FunctionsRequested(*requested_calls(record, reply, prompt, seen, gate))
        runnable = 0 if is_final(record, prompt) else sum(not f.is_settled for f in requested.calls)
        if (stop := _verdict(stop_when, record, reply, runnable)) is not None:
            return "stopped", StoppedReply(requested, stop.reason, stop.output_json)
    call = first_call(reply.message)
    if call is not None and (call.name != ANSWER or not _is_answer(record, reply, prompt)):
        return "functions_asked", requested or FunctionsRequested(*requested_calls(record, reply, prompt, seen, gate))
    if reply.refusal is not None or reply.finish in ("refusal", "content_filter"):
        problem = reply.refusal or reply.message.text or f"finish: {reply.finish_raw}"
        return "refused", FinalReply(reply, problem=problem)
    if reply.finish == "pause":
        return "paused", FunctionsRequested(reply.message, ())
    if reply.finish in ("error", "pending"):
        problem = "broke off" if reply.finish == "error" else "has not finished its answer"
        report = ErrorReport(kind="BadReply", message=f"the model {problem}: {reply.finish_raw}", retryable=True)
        return "model_failed", ModelFailed(error=report)
    if (prompt.mode == "two_stage" or prompt.finalizer is not None) and is_draft_stage(record, prompt):
        return "drafted", FinalReply(reply)
    try:
        parsed = parse_answer(record, reply, prompt, call, in_branch=bool(record.branch))
        event = FinalReply(reply, parsed.value, parsed.repairs, call=call)
        return "proposed" if record.is_checked else "answered", event
    except Exception as error:  # any, since a parser is user code, and the reply has been paid for
        return "parse_failed", FinalReply(reply, problem=_problem(reply, error), error=error, call=call)


def read_summary(record: CallRecord, effect: AskSummary, outcome: Replied | ModelFailed) -> tuple[str, TableEvent]:
    """Return `(trigger, event)` for the outcome of an `AskSummary`."""
    if isinstance(outcome, ModelFailed):
        return "summary_failed", outcome
    reply = outcome.reply
    if exceeded(record, reply.usage):
        return "over_budget", Overrun(usage=reply.usage)
    problem, text = "", reply.message.text.strip()
    if first_call(reply.message) is not None:
        problem = "called functions"
    elif reply.refusal is not None or reply.finish in ("refusal", "content_filter"):
        problem = "was refused"
    elif reply.is_cut_off or len(text) > _CHARACTERS * effect.max_tokens:
        problem = f"has more than max_tokens={effect.max_tokens}"
    elif reply.finish in ("error", "pause", "pending"):
        problem = f"was broken off: {reply.finish_raw}"
    elif not text:
        problem = "is empty"
    if not problem:
        return "summarized", SummaryTaken(text, effect.covers)
    report = ErrorReport(kind="BadReply", message=f"the summary of the dialog {problem}")
    return "summary_failed", ModelFailed(error=report, at_s=outcome.at_s)


def parse_answer(
    record: CallRecord, reply: Reply, prompt: Prompt, call: FunctionCall | None, *, in_branch: bool
) -> Parsed[Any]:
    """Parse a reply's answer with its prompt's parser.  Exceptions from the parser propagate."""
    governing = active_prompt(record, prompt, in_branch=in_branch)
    is_cut = reply.is_cut_off and not (record.limits.on_cut == "accept" and governing.output is str)
    return governing.read(
        ParserInput(
            text=reply.message.text if call is None else _answer_text(call, is_cut=is_cut),
            finish=reply.finish,
            is_cut=is_cut,
            logprobs=reply.logprobs,
            problems=record.problems if in_branch else (),
            parser_args=_args_of(governing, record, prompt) if record.parser_args else _NO_ARGS,
            function_calls=record.function_calls,
        )
    )


def _answer_text(call: FunctionCall, *, is_cut: bool) -> str:
    return "" if is_cut and call.arguments_json in ("", "{}") else object_text(call.arguments_json)


def _is_answer(record: CallRecord, reply: Reply, prompt: Prompt) -> bool:
    """Return whether a reply with function calls is final, because it calls only the function that takes the answer."""
    governing = active_prompt(record, prompt, in_branch=bool(record.branch))
    is_alone = all(call.name == ANSWER for call in reply.message.function_calls)
    is_draft = is_draft_stage(record, prompt)
    return is_alone and not is_draft and not governing.expected.is_text


def first_call(message: Message) -> FunctionCall | None:
    """Return the first function call in a message."""
    for part in message.parts:
        if isinstance(part, FunctionCall):
            return part
    return None


def arriving_output(record: CallRecord, prompt: Prompt) -> Arriving | None:
    """Return the incremental parser for the next reply, or None if only a complete reply can be read."""
    if is_draft_stage(record, prompt):
        return None
    governing = active_prompt(record, prompt, in_branch=bool(record.branch))
    return governing.arriving(_args_of(governing, record, prompt))


def _args_of(governing: Prompt, record: CallRecord, prompt: Prompt) -> Mapping[str, Any]:
    """Return the arguments for the parser in the prompt that an answer belongs to.

    A handler's parser that is a plain function gets no arguments.
    """
    parser = governing.parser
    return record.parser_args if parser is None or parser is prompt.parser or isinstance(parser, Parser) else _NO_ARGS


def _problem(reply: Reply, error: Exception) -> str:
    text = (isinstance(error, ValueError) and error_text(error)) or typed_error_text(error)
    return f"{text} (The answer was cut off at the token limit.)" if reply.is_cut_off and CUT_OFF not in text else text


def error_text(error: Exception) -> str:
    """Return an exception's message with keys masked, or ``""`` if its ``__str__`` raises."""
    try:
        text = mask_keys(str(error))  # libraries quote URLs and headers
    except Exception:  # its class is user code, too
        return ""
    if isinstance(error, ExceptionGroup):  # such as an asyncio.TaskGroup's, whose message only counts them
        text += f": {'; '.join(map(typed_error_text, error.exceptions[:_MAX_IN_GROUP]))}"
    return text


def typed_error_text(error: Exception) -> str:
    """Return an exception's type and message as one text."""
    text = error_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def output_text(function: Function, f: FunctionCall, output: Any) -> str:
    """Return the output of an agent that is used as a function, as text for the model.

    Raises:
        UsageError: If the function's ``format`` failed.  The error's text is for the model.
    """
    try:
        return function.format_result(output, f)
    except Exception as error:  # `format` is user code, too
        raise UsageError(unprepared(error)) from error


def unprepared(error: Exception) -> str:
    """Return what the model sees in place of a result that could not be prepared.

    It omits the exception's message, which may quote the result.
    """
    return f"its result could not be prepared ({type(error).__name__})"


def _verdict(stop_when: StopWhen, record: CallRecord, reply: Reply, runnable: int) -> Stop | None:
    verdict = stop_when(
        StopContext(record.replies + 1, reply, record.usage + reply.usage, record.runs, record.newest_round, runnable)
    )
    if verdict is None or isinstance(verdict, bool | str):
        return Stop(verdict if isinstance(verdict, str) else "") if verdict else None
    is_right = isinstance(verdict, Stop) and isinstance(verdict.reason, str)
    is_right = is_right and isinstance(verdict.output_json, str | None)
    require("the return value of stop_when", verdict, is_right, "True, False, None, a reason or a Stop")
    if verdict.output_json is not None:
        try:
            from_json(verdict.output_json)
        except ValueError as error:
            right = "JSON as its output_json, such as '\"found\"' for a string"
            raise UsageError(
                f"the return value of stop_when: expected a Stop with {right}, got {verdict!r:.200} ({error})"
            ) from None
    return verdict
