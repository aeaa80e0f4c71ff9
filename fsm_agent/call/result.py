"""An agent call's result, and a report on each of its rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from fsm_agent._internal.structs import Out, Value, Vector
from fsm_agent.call import call as calls  # as a module: it imports this one
from fsm_agent.call.effects import AskSummary, CallModel, describe_effects
from fsm_agent.call.journal import stored_name
from fsm_agent.call.process import open_effects, questions_of
from fsm_agent.call.record import ASKING, CallRecord, ContextUse, Ending, Reason, RequestFailure, State, successor_name
from fsm_agent.errors import BudgetExceeded, FsmAgentError, ParseError, ProviderError
from fsm_agent.messages.convert import transcript
from fsm_agent.messages.event_json import EXACT, JsonResult, masked_data
from fsm_agent.messages.events import Question, Stepped
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import UNUSED, OutputMode, Usage
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt, PromptChange
from fsm_agent.validation import require

if TYPE_CHECKING:
    # Type checkers know the types of unpacked items only for tuples.
    Unpacked: TypeAlias = tuple[Message, Dialog, tuple[FunctionCall, ...]]
else:
    Unpacked = object

_ByReply: TypeAlias = Iterator[tuple[str, Iterator[FunctionCall]]]


class RoundReport(Value, frozen=True, kw_only=True):
    """A report on one round of a call, from the request for a reply to the results of the requested functions.

    If the call was answered, its last round ends with the answer.  After a handoff, the other agent's rounds follow.
    The times do not include a wait that has not ended.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> report = rounds_of(result.record)[0]
        >>> report.number, report.text, report.requests
        (1, 'Hi.', 1)
    """

    number: int  # the round's number, from 1
    text: str = ""  # the text that comes with the function calls, or the answer
    requests: int = 0  # requests to the model that were answered or failed
    function_calls: tuple[FunctionCall, ...] = ()  # the settled calls
    parse_errors: tuple[str, ...] = ()  # errors in unusable answers
    failures: tuple[RequestFailure, ...] = ()  # failed requests
    recalls: int = 0  # failures after which the model was asked again
    usage: Usage = UNUSED  # the tokens, and their cost if it is known
    began_at_s: float | None = None  # the Unix time
    ended_at_s: float | None = None  # the Unix time; None if unknown, or if the round has not ended
    model_s: float = 0.0  # seconds spent waiting for the model
    approvals_s: float = 0.0
    functions_s: float = 0.0
    backoff_s: float = 0.0
    checks_s: float = 0.0  # how long the check of answers took


def rounds_of(record: CallRecord) -> tuple[RoundReport, ...]:
    """Return the call's rounds so far, in linear time.

    Args:
        record: The record of the call.

    Raises:
        UsageError: If ``record`` is not the record of a call.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> [(report.number, report.text) for report in rounds_of(result.record)]
        [(1, 'Hi.')]
    """
    require("the record", record, isinstance(record, CallRecord), "the record of a call, such as result.record")
    rounds = _rounds(record, _by_reply(record), record.dialog)
    return tuple([one.report(number) for number, one in enumerate(rounds, 1)])


def _by_reply(record: CallRecord) -> _ByReply:
    return groupby(record.function_calls, lambda f: f.id.partition(".")[0])


def _rounds(record: CallRecord, requested: _ByReply, dialog: Vector[Message]) -> list[_Round]:
    rounds = [
        _Round(steps, has_ended=record.ending is not None or n < record.rounds)
        for n, steps in enumerate(_stretches(record))
    ]
    for one in rounds:
        if one.has_functions:
            index, calls = next(requested, ("", ()))
            one.function_calls = tuple(calls)
            one.text = dialog[int(index)].text if index else ""
    for failure in record.failures:
        rounds[failure.round - 1].failures.append(failure)
    if rounds and record.round:
        rounds[-1].function_calls = tuple([f for f in record.round if f.is_settled])
    later = _successor_rounds(record, requested, dialog)
    if later is not None:
        return [*rounds[:-1], *later] if not rounds[-1].has_requests else [*rounds, *later]
    if rounds and record.reply is not None and rounds[-1].has_reply:
        rounds[-1].text = record.reply.message.text
    return rounds


def _successor_rounds(record: CallRecord, requested: _ByReply, dialog: Vector[Message]) -> list[_Round] | None:
    if record.successor is not None:  # it has ended, and the call has its dialog and its function calls
        return _rounds(record.successor, requested, dialog)
    inner = record.children.get(successor_name(record.governed_by))
    if isinstance(inner, CallRecord):
        return _rounds(inner, _by_reply(inner), inner.dialog)
    return None


def _stretches(record: CallRecord) -> Iterator[list[tuple[Stepped, float]]]:
    """Yield each round's steps, each paired with the last known time before the step."""
    steps: list[tuple[Stepped, float]] = []
    before_s = 0.0
    for step in record.trace:
        if step.trigger == "relayed":  # its tokens belong to the successor's rounds
            continue
        steps.append((step, before_s))
        before_s = step.at_s if 0 < step.at_s < math.inf else before_s
        if _closes(step):
            yield steps
            steps = []
    if steps:
        yield steps


def _closes(step: Stepped) -> bool:
    return step.to == State.CALLING and (step.source == State.TOOL_INTERRUPT or step.trigger in _AT_ONCE)


_AT_ONCE = ("functions_asked", "paused")  # triggers that close a round without running functions
# Triggers after which a reply is, or may be, added to the dialog.
_KEPT = ("functions_asked", "answered", "checked", "stopped")

_REQUESTED = (f"{CallModel.prefix}:", f"{AskSummary.prefix}:")  # begin the keys of requests to models

_REFUSED = ("parse_failed", "check_refused")


class _Round:
    def __init__(self, steps: list[tuple[Stepped, float]], *, has_ended: bool) -> None:
        self.steps = steps
        self.has_ended = has_ended
        self.text = ""
        self.function_calls: tuple[FunctionCall, ...] = ()
        self.failures: list[RequestFailure] = []

    @property
    def has_functions(self) -> bool:
        return self.has_requests and self.steps[-1][0].trigger != "paused"

    @property
    def has_requests(self) -> bool:
        return any(step.key.startswith(_REQUESTED) for step, _ in self.steps)

    @property
    def has_reply(self) -> bool:
        verdicts = [step.trigger for step, _ in self.steps if step.key.startswith(("model:", "check:"))]
        return bool(verdicts) and verdicts[-1] in _KEPT

    def report(self, number: int) -> RoundReport:
        usage, waited_s = UNUSED, dict.fromkeys(_WAITED, 0.0)
        for step, before_s in self.steps:
            if step.usage is not None:
                usage += step.usage
            if before_s and before_s < step.at_s < math.inf and (what := _waited_for(step)):
                waited_s[what] += step.at_s - before_s
        steps = [step for step, _ in self.steps]
        first, before_s = self.steps[0]
        return RoundReport(
            number=number,
            text=self.text,
            requests=sum(step.key.startswith(_REQUESTED) for step in steps),
            function_calls=self.function_calls,
            parse_errors=tuple([step.detail for step in steps if step.trigger in _REFUSED]),
            failures=tuple(self.failures),
            recalls=sum(
                step.to == State.BACKOFF or (step.trigger == "too_long" and step.to == step.source) for step in steps
            ),
            usage=usage,
            began_at_s=before_s or first.at_s or None,
            ended_at_s=(steps[-1].at_s or None) if self.has_ended else None,
            **waited_s,
        )


_WAITED = ("model_s", "approvals_s", "functions_s", "backoff_s", "checks_s")


def _waited_for(step: Stepped) -> str | None:
    if step.source in ASKING:
        return "model_s"
    if step.source == State.BACKOFF:
        return "backoff_s"
    if step.source == State.CHECKING:
        return "checks_s"
    if step.source != State.TOOL_INTERRUPT:
        return None
    return "approvals_s" if step.key.startswith("ask:") else "functions_s"


def uses_of(record: CallRecord) -> tuple[ContextUse, ...]:
    """Return what each answered request showed the model, in order of request."""
    counted = {use.key: use for use in record.requests}
    uses: list[ContextUse] = []
    for step in record.trace:
        if step.usage is None or not step.key.startswith("model:"):
            continue
        use = counted.get(step.key)
        if use is None:
            use = ContextUse(key=step.key, reported=step.usage.input_tokens, cached=step.usage.cached_tokens)
            use = use.changed(extends=bool(uses) and uses[-1].messages is None)
        uses.append(use)
    return tuple(uses)


class CallResult(JsonResult, Generic[Out], Unpacked):
    """The result of an agent call that has ended.  It unpacks as ``message, dialog, function_calls``.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> result.output, str(result.state), result.ending.reason
        ('Hi.', 'Completed', <Reason.ANSWERED: 'answered'>)
        >>> message, dialog, function_calls = result
        >>> message.text
        'Hi.'
    """

    __slots__ = ("call",)

    call: calls.AgentCall[Out]

    if TYPE_CHECKING:

        def __new__(cls, call: calls.AgentCall[Out]) -> CallResult[Out]: ...

    def __init__(self, call: calls.AgentCall[Out]) -> None:
        self.call = call

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallResult) and self.record == other.record

    __hash__ = None  # type: ignore[assignment]

    @property
    def record(self) -> CallRecord:
        """The record of the call."""
        return self.call.record

    @property
    def output(self) -> Out:
        """The parsed answer, or None if the call was stopped before it had an answer.

        Raises:
            CallFailed: If the call failed.
        """
        if self.call.record.state is not State.COMPLETED:
            self.call.result()  # raises the error
        output: Out = self.call.output
        return output

    @property
    def message(self) -> Message:
        """The model's last message."""
        reply = self.record.reply
        return reply.message if reply else Message.of("assistant")

    @property
    def text(self) -> str:
        """The text of the last message."""
        return self.message.text

    @property
    def dialog(self) -> Dialog:
        """The conversation, without exception branches.  It can be sent again no matter how the call ended."""
        prompt = self.call.prompt
        return Dialog(
            self.record.dialog,
            top_prompt=prompt if isinstance(prompt, Prompt) else None,
            system_args=self.call.system_args,
            governed_by=self.record.governed_by,
            summary=None if self.record.summary is None else self.record.summary.inherited(),
        )

    @property
    def new_messages(self) -> tuple[Message, ...]:
        """The messages that this call added to the dialog."""
        return self.record.dialog[self.record.seeded_with :]

    @property
    def function_calls(self) -> tuple[FunctionCall, ...]:
        """The function calls that have a result or an error, in the order in which the model requested them."""
        return tuple(self.record.function_calls)

    @property
    def failures(self) -> tuple[RequestFailure, ...]:
        """The failed requests to the model, in order, including those that were retried."""
        return tuple(self.record.failures)

    @property
    def repairs(self) -> tuple[str, ...]:
        """Short descriptions of the repairs needed to read the answer, if any."""
        return self.record.repairs

    @property
    def output_mode(self) -> OutputMode | None:
        """How the typed answer was last requested, or None if this is unknown or the answer is plain text."""
        return self.record.reply.output_mode if self.record.reply else None

    @property
    def prompt_change(self) -> PromptChange | None:
        """How the prompt has changed since the snapshot or run was made, or None if it has not changed."""
        return self.call.prompt_change

    @property
    def by_round(self) -> tuple[RoundReport, ...]:
        """The rounds of the call, each with its requests, function calls, errors, tokens and times.

        Costs are known if the agent has ``prices`` or a budget in dollars.  Otherwise, pass a price to `rounds_of`.
        """
        return rounds_of(self.record)

    @property
    def context(self) -> tuple[ContextUse, ...]:
        """A report on each answered request: its tokens, its omissions, and whether it extended the previous request.

        If a request showed the whole dialog and its tokens were not counted in advance, only the provider's counts are
        known.
        """
        return uses_of(self.record)

    @property
    def extra(self) -> Mapping[str, Any]:
        """The data that the caller passed as ``extra``."""
        return self.record.extra

    @property
    def usage(self) -> Usage:
        """The tokens of all replies, including pruned replies and replies to inner agents."""
        return self.record.total_usage

    @property
    def usage_by_agent(self) -> dict[str, Usage]:
        """The tokens that each agent used, by its path (see `Inside`).  The called agent has the path ``""``.

        Agents called by an `AgentBase`'s ``answer`` method are counted under the path of that `AgentBase`, because its
        code counts as one request.  Agents that are functions, handoffs or states in a flow have paths of their own.
        """
        return self.record.usage_by_agent

    @property
    def trace(self) -> Vector[Stepped]:
        """The steps of the call."""
        return self.record.trace

    @property
    def iterations(self) -> int:
        """The number of replies from the model."""
        return self.record.replies

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def ending(self) -> Ending | None:
        """Why and how the call ended, or None if it has not ended."""
        return self.record.ending

    def transcript(self) -> str:
        """Return the dialog with function calls and results as readable text.

        If there is no answer or a limit was reached, the last line says why.
        """
        text, ending = transcript(self.record.dialog), self.ending
        if ending is None or (ending.reason is Reason.ANSWERED and not ending.limit):
            return text
        why = ": ".join([ending.reason, *ending.detail.splitlines()])
        return f"{text}\n({self.state}: {why})"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON data: its state, output, text, usage and function calls.

        Values under secret names are masked and long strings are cut, except that ``output`` and ``text`` are complete
        and unmasked.  FastAPI uses this form for an endpoint that returns a result.

        Examples:
            >>> told = Agent(Script("42"), output=int).call("6 * 7?").to_dict()
            >>> told["state"], told["output"]
            ('Completed', 42)
        """
        record = self.record
        calls = [
            {"name": f.name, "arguments": f.arguments, "result": f.result, "error": f.error}
            for f in record.function_calls
        ]
        fields = {
            "state": str(record.state),
            "failed": record.state is State.FAILED,
            "reason": str(record.ending.reason) if record.ending else None,
            "detail": record.ending.detail or None if record.ending else None,
            "output": self.call.output,
            "text": record.reply.message.text if record.reply else None,
            "finish": record.reply.finish if record.reply else None,
            "usage": record.usage,
            "rounds": record.rounds,
            "states": [str(step.to) for step in record.trace],
            "waits_for": [effect.key for effect in self.call.effects],
            "function_calls": calls,
        }
        told: dict[str, Any] = masked_data(fields, EXACT)
        return told

    def __iter__(self) -> Iterator[Any]:
        return iter((self.message, self.dialog, self.function_calls))

    if not TYPE_CHECKING:  # for type checkers, the base is a tuple, which has these

        def __getitem__(self, index: int) -> Any:
            if isinstance(index, str):
                raise TypeError(f"a CallResult has no key {index!r}; read an attribute, such as result.output")
            return (self.message, self.dialog, self.function_calls)[index]

        def __len__(self) -> int:
            return 3

    def __repr__(self) -> str:
        shown = repr(self.call.output) if self.state is State.COMPLETED else repr(self.ending)
        return f"CallResult({self.state}, {shown}, {len(self.function_calls)} function call(s))"


class _CallError(FsmAgentError):
    def __init__(self, message: str, *, call: calls.AgentCall[Any]) -> None:
        super().__init__(message)
        self.call = call
        self.run_id = stored_name(call.journal)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle needs to recreate the error; see `AgentCall.portable`."""
        cause = self.__cause__
        if cause is not None and not isinstance(cause, ProviderError | ParseError):  # whose class may be unknown there
            ending = self.call.record.ending
            cause = None if ending is None else FsmAgentError(ending.detail)
        return _unpickled, (type(self), str(self), cause, *self.call.portable()), {"run_id": self.run_id}


class CallFailed(_CallError):
    """An agent call ended without an output.

    Attributes:
        call: The `AgentCall`.  Its record is complete and its dialog can be sent again.
        run_id: The run's name in the agent's store, or ``""`` if there is no store.
        reason: The `Reason`.
        state: The `State` in which the call failed.
        round: The round in which the call failed, counted from 1.
        function: The name of the function that failed or was called in a loop, or ``""``.
        trace: The steps of the call.
        __cause__: The provider's last error, or the exception from the function or parser.  An exception raised in
            another OS process is rebuilt from the recorded text.

    Examples:
        >>> try:
        ...     Agent(Script("x", "x"), output=int, limits=Limits(parse_retries=1)).call("A number?")
        ... except CallFailed as error:
        ...     print(error.result.ending.reason)
        unparseable
    """

    @property
    def reason(self) -> Reason:
        ending = self.call.record.ending
        assert ending is not None, "a call that failed has ended"
        return ending.reason

    @property
    def state(self) -> str:
        return str(self.trace[-1].source)

    @property
    def round(self) -> int:
        return len(self.result.by_round)

    @property
    def function(self) -> str:
        ending = self.call.record.ending
        return "" if ending is None else ending.function

    @property
    def result(self) -> CallResult:
        """The call's `CallResult`, with the dialog, usage and function calls but no output."""
        return self.call.result_so_far

    @property
    def trace(self) -> Sequence[Stepped]:
        return self.call.record.trace


class CallSuspended(_CallError):
    """An agent call is waiting for an answer that its driver cannot give.

    Attributes:
        call: The `AgentCall`.
        run_id: The run's name in the agent's store, for ``runs.resume``, or ``""`` if there is no store.

    Examples:
        >>> @function(needs_approval=True)
        ... def erase() -> str:
        ...     "Erase."
        ...     return "gone"
        >>> model = Script(function_call("erase"), "Done.")
        >>> agent = Agent(model, name="tidy", functions=[erase], store=MemoryStore())
        >>> try:
        ...     agent.call("Tidy up.")
        ... except CallSuspended as error:
        ...     print([question.key for question in error.questions])
        ...     print(agent.runs.resume(error.run_id, Approved()).output)
        ['ask:1.0']
        Done.
    """

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions, as in `Suspended`."""
        return questions_of(self.call)


def _unpickled(
    kind: type[_CallError],
    message: str,
    cause: BaseException | None,
    make_call: Callable[..., Any],
    parts: tuple[Any, ...],
) -> _CallError:
    error = kind(message, call=make_call(*parts))
    error.__cause__ = cause
    return error


def result_of(call: calls.AgentCall[Out]) -> CallResult[Out]:
    """Return the result of a completed call, or raise an error; see `AgentCall.result`."""
    record, journal = call.record, call.journal
    if record.ending is None:
        effects: Any = open_effects(call)
        raise CallSuspended(
            f"the agent call waits in {record.state} for {describe_effects(effects, stored_name(journal))}", call=call
        )
    if record.state is State.FAILED:
        sent, source = _requests_sent(record), record.trace[-1].source
        circumstances = f"in {source}, round {record.rounds}, after {sent} request(s), call {record.id!r}"
        cause, report = _cause(record.ending, call.problem), record.ending.error
        is_of_model = record.ending.reason is Reason.MODEL_FAILED and report is not None
        detail = report.exception() if is_of_model else record.ending.detail  # type: ignore[union-attr]
        asked_s = report.retry_after_s if is_of_model and report else None
        if asked_s is not None and (shorter := _limits_below(record, asked_s)):
            detail = f"{detail}; the provider asked to wait {asked_s:g} s, and {shorter}"
        why = f"{record.ending.reason}: {detail} ({circumstances})"
        if record.ending.reason is Reason.FUNCTION_FAILED and source in ASKING:  # code in place of a model
            why = f"{record.ending.detail} (call {record.id!r})"
        raise CallFailed(why, call=call) from cause
    return CallResult(call)


def _requests_sent(record: CallRecord) -> int:
    asked = sum(step.key.startswith(_REQUESTED) for step in record.trace)
    return asked - sum(failure.report.kind == BudgetExceeded.__name__ for failure in record.failures)


def _limits_below(record: CallRecord, wait_s: float) -> str:
    """Name the limits that are too short for a wait before the next request, or return ``""``."""
    limits, failed_at_s = record.limits, record.trace[-1].at_s
    found = list[str]()
    if limits.wait_s is not None and wait_s > limits.wait_s:
        found.append(f"limits.wait_s is {limits.wait_s:g}")
    if record.deadline_s is not None and failed_at_s + wait_s >= record.deadline_s:
        found.append(f"limits.deadline_s is {limits.deadline_s:g}")
    return " and ".join(found)


def _cause(ending: Ending, problem: Exception | None) -> Exception | None:
    """Return the exception behind a failure, rebuilt from the record if it was raised in another OS process."""
    if ending.reason in (Reason.FUNCTION_FAILED, Reason.CHECK_FAILED):
        return FsmAgentError(ending.detail) if problem is None else problem
    report = ending.error
    if report is None:
        return None
    if ending.reason is Reason.MODEL_FAILED:
        return report.exception() if problem is None else problem
    return ParseError(f"{report.kind}: {report.message}") if problem is None else problem
