"""The record: an agent call's whole state, with the records of inner processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import field
from msgspec.structs import astuple

from fsm_agent._internal.structs import Read, Value, Vector, Written, from_data, from_json, to_json
from fsm_agent.call.limits import Limits
from fsm_agent.call.process import SEPARATOR, join_path
from fsm_agent.errors import ErrorReport
from fsm_agent.messages.events import Stepped
from fsm_agent.messages.message import FunctionCall, HistorySummary, Message
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.validation import plain_json, require

if TYPE_CHECKING:
    Children: TypeAlias = Mapping[str, "CallRecord | ProcessRecord"]


class State(StrEnum):
    """A state in which an agent call is waiting for something or has ended.

    The enum's values are written for people.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> result.state is State.COMPLETED, str(result.state)
        (True, 'Completed')
    """

    SEEDED = "Seeded"  # waits for its start: a time, an id
    CALLING = "Calling"  # waits for a reply to the dialog
    PARSE_EXCEPTION = "ParseException"  # waits for a reply to the dialog plus the exception branch
    BACKOFF = "Backoff"  # waits for the time of the next attempt at the model
    TOOL_INTERRUPT = "ToolInterrupt"  # waits for approvals first, then for function results
    CHECKING = "Checking"  # waits for the check of an answer, `Agent.check`
    HANDED_OVER = "HandedOver"  # waits for the agent that has taken the dialog over
    COMPLETED = "Completed"
    FAILED = "Failed"


TAKES_OVER = "to:"  # the prefix of the name of a child that has taken over the dialog

ASKING = (State.CALLING, State.PARSE_EXCEPTION)

SPENDING = (*ASKING, State.TOOL_INTERRUPT)  # states in which replies may come, to the call or to inner agents

ITS_OWN = (State.SEEDED, *ASKING, State.BACKOFF, State.TOOL_INTERRUPT, State.CHECKING)  # live states before a handoff

FINAL = (State.COMPLETED, State.FAILED)

FAILURES = ("model_failed", "too_long", "summary_failed")  # the triggers of requests to a model that failed


class Reason(StrEnum):
    """Why an agent call ended.

    Examples:
        >>> Agent(Script("Hi.")).call("Hello").ending.reason is Reason.ANSWERED
        True
    """

    ANSWERED = "answered"  # the parser and the agent's check, if any, accepted an output
    STOPPED = "stopped"  # by `stop_when`, or from outside
    TOO_DEEP = "too deep"  # more nested agent calls than `Limits.depth`
    REFUSED = "refused"  # the model or its provider declined
    UNPARSEABLE = "unparseable"  # no answer could be used, or passed the check, within `Limits.parse_retries`
    MODEL_FAILED = "model failed"  # no reply came within `Limits.recalls`
    ROUND_LIMIT = "round limit"  # functions were requested after the final prompt, or `Limits.on_limit` ended it
    LOOPED = "looped"  # `Limits.identical_rounds` rounds in a row were the same, and `Limits.on_loop` is "stop"
    OVER_BUDGET = "over budget"  # more than `Limits.tokens` or `Limits.cost_usd`
    EXPIRED = "expired"  # `Limits.deadline_s`
    CANCELLED = "cancelled"
    FUNCTION_FAILED = "function failed"  # a function failed whose failure ends the call
    CHECK_FAILED = "check failed"  # the check of an answer raised an exception other than `Retry`, or took too long
    HANDOFF_LIMIT = "handoff limit"  # agents handed the dialog over more than `Limits.handoffs` times


class Ending(Value, frozen=True, kw_only=True):
    """Why and how an agent call ended."""

    reason: Reason
    detail: str = ""  # for people
    error: ErrorReport | None = None  # the error of the provider or the parser, if it is the reason
    function: str = ""  # the name of the function that was repeated or failed, or of the check
    # The field of `Limits` whose limit was reached, or empty.  It is also "rounds" if the model had to answer because
    # the rounds were used up.
    limit: str = ""
    count: int | float | None = None  # the count against it: rounds, answers, handoffs, seconds, tokens or dollars
    output_json: str | None = None  # the output, if `stop_when` provided one or the check changed the answer


class Tally(Value, frozen=True):
    """A function's successes and failures in a call, whose sum is the number of its runs."""

    successes: int = 0
    failures: int = 0

    @property
    def runs(self) -> int:
        return self.successes + self.failures


UNHEARD = "was begun, and its outcome is unknown"  # said of a function that must not run twice


class OnceRun(Value, frozen=True):
    """The progress of a pending call to a function that must not run twice."""

    attempt: int = 1  # from 1; more after `RunAgain`
    phase: Literal["started", "doubtful", "cleared"] = "started"  # "cleared" if it may be started again


def successor_name(path: str) -> str:
    """Return the name of the child that took over the dialog at a path's first handoff."""
    return f"{TAKES_OVER}{path.partition(SEPARATOR)[0]}"


class ContextUse(Value, frozen=True, kw_only=True):
    """The part of the dialog that a request showed the model, and its number of tokens.

    Token counts cover the whole request.  ``before``, ``estimated`` and ``counted`` are None if nothing was counted.
    """

    hidden = ("counted", "digest")

    key: str  # of the request, such as "model:3"
    messages: int | None = None  # how many were sent, or None for the whole dialog, which was not counted
    before: int | None = None  # tokens before the passes of a `Budget`
    estimated: int | None = None  # tokens of what was sent
    counted: int | None = None  # the estimate before its correction
    reported: int | None = None  # tokens by the provider's count, or None if it reported no count
    cached: int | None = None  # the reported tokens that the provider had in its cache
    passes: tuple[str, ...] = ()  # the passes that left something out, in order
    extends: bool = False  # True if it begins with all messages of the previous request
    digest: str = ""  # of its messages


class RequestFailure(Value, frozen=True, kw_only=True):
    """A request to the model that failed.  The call itself may still have succeeded.

    Examples:
        >>> result = Agent(Script(RateLimited("busy", retry_after_s=7), "Hi.")).call("Hello")
        >>> [(failure.attempt, failure.delay_s) for failure in rounds_of(result.record)[0].failures]
        [(1, 7)]
    """

    key: str  # the request's key
    attempt: int  # the number of the attempt at this request, from 1
    round: int  # the number of the round in which it failed, from 1
    report: ErrorReport
    at_s: float  # Unix time
    delay_s: float | None = None  # seconds until the next attempt, or None if there was none


class CallRecord(Value, frozen=True, kw_only=True):
    """The whole state of an agent call, as an immutable value.  Its JSON is the snapshot.

    Two records are equal if the same things happened in them.  The comparison ignores `trace`, and thus the order in
    which functions returned.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> isinstance(result.record, CallRecord)
        True
    """

    id: str = ""
    state: State = State.SEEDED
    depth: int = 0  # the number of agent calls that this call is nested in
    limits: Limits = Limits()
    dialog: Vector[Message]  # the dialog without the exception branch
    seeded_with: int = 0  # the number of messages that were in the dialog before the call
    outer_limits: tuple[str, ...] = ()  # names of limits that hold the rest of the outer call's budgets
    extra: Mapping[str, Any] = field(default_factory=dict)  # the caller's data as JSON; not read here
    by: str = ""  # who made the call, according to the caller; empty if unknown
    parser_args: Mapping[str, Any] = field(default_factory=dict)  # JSON for the prompt's parser and validators
    model: str = ""  # the name of the call's model; empty for the agent's model
    branch: tuple[Message, ...] = ()  # the exception branch, which the model sees until a usable answer prunes it
    problems: tuple[str, ...] = ()  # the problems of the answers in the branch; they stay after an accepted answer
    pruned: tuple[Message, ...] = ()  # the messages of former branches
    round: tuple[FunctionCall, ...] = ()  # the function calls in the last reply
    injected: tuple[Message, ...] = ()  # messages injected while functions ran; they follow the results
    children: Children = field(default_factory=dict)  # the records of inner agents that have not ended
    governed_by: str = ""  # the path of handoffs to the agent that governs the dialog; empty for the call's own agent
    handoffs: int = 0  # the handoffs before this call since the user's turn
    successor: CallRecord | None = None  # the record, without dialog, of the agent that took the dialog over and ended
    function_calls: Vector[FunctionCall] = Vector()  # the settled calls in all rounds so far
    failures: Vector[RequestFailure] = Vector()  # failed requests to the model
    summary: HistorySummary | None = None  # the summary of the beginning of the dialog
    requests: Vector[ContextUse] = Vector()  # the answered requests, if the call has a `View`
    shorten_to: int | None = None  # tokens of a request; set once a provider has refused one as too long
    shortened_at: int = -1  # the number of messages at that time, including the messages of branches
    turn: int = 0  # the number of replies, failed requests and injections so far
    replies: int = 0  # the number of replies, usable or not
    runs: int = 0  # the number of settled function calls that were run
    rounds: int = 0
    parse_errors: int = 0
    recalls: int = 0
    attempt: int = 1  # the number of the attempt at the current request
    identical_rounds: int = 0  # how many rounds in a row are equal to the newest; counted only under a limit
    tallies: Mapping[str, Tally] = field(default_factory=dict)  # tallies of functions with a budget, by name
    once: Mapping[str, OnceRun] = field(default_factory=dict)  # progress by call id, for this round
    is_drafted: bool = False  # True after the draft, if the prompt has two stages or a finalizer
    is_checked: bool = False  # True if the agent has a check
    released: tuple[int, ...] = ()  # the numbers of rounds whose results are no longer needed
    started_at_s: float = 0.0  # Unix time
    wake_at_s: float = 0.0  # the Unix time at which a backoff ends
    usage: Usage = UNUSED  # the usage of all replies, pruned ones too, and of inner agents that have ended
    reply: Reply | None = None  # the last reply
    repairs: tuple[str, ...] = ()  # the repairs that the answer needed
    ending: Ending | None = None
    trace: Vector[Stepped] = Vector()

    @classmethod
    def of(
        cls,
        dialog: Vector[Message],
        *,
        limits: Limits = Limits(),
        depth: int = 0,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        parser_args: Mapping[str, Any] | None = None,
        governed_by: str = "",
        summary: HistorySummary | None = None,
    ) -> CallRecord:
        """Return the record for a call that has not begun.

        Raises:
            UsageError: If ``extra`` or ``parser_args`` is not JSON-serializable, or ``by`` is not text.
        """
        require("by", by, isinstance(by, str), "the name of the person who asks, such as 'ada'")
        return cls(
            dialog=dialog,
            seeded_with=len(dialog),
            limits=limits,
            depth=depth,
            extra={} if extra is None else plain_json("extra", extra),
            by=by,
            parser_args={} if parser_args is None else plain_json("parser_args", parser_args),
            governed_by=governed_by,
            summary=summary,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CallRecord):
            return NotImplemented
        return astuple(self)[:-1] == astuple(other)[:-1]  # the trace is last

    @property
    def deadline_s(self) -> float | None:
        """The Unix time at which the call expires, or None if it has no deadline or has not begun."""
        limit = self.limits.deadline_s
        return None if limit is None or self.state is State.SEEDED else self.started_at_s + limit

    def renewed(self, at_s: float) -> CallRecord:
        """Return the record with its deadline, if any, counted from ``at_s``."""
        return self if self.deadline_s is None else self.changed(started_at_s=at_s)

    @property
    def failure(self) -> str | None:
        """Text that tells the calling model why the call failed, or None if it has not failed."""
        if self.ending is None or self.state is State.COMPLETED:
            return None
        return f"{self.ending.reason}: {self.ending.detail}".rstrip(": ")

    @property
    def total_usage(self) -> Usage:
        """The tokens of all replies, including the replies to inner agents."""
        if not self.children:
            return self.usage
        return sum([child.total_usage for child in self.children.values()], self.usage)

    @property
    def usage_by_agent(self) -> dict[str, Usage]:
        """The tokens that each agent used, by the agent's path; see `CallResult.usage_by_agent`."""
        used = {"": UNUSED}
        for step in self.trace:
            if step.usage is not None and step.trigger != "relayed":
                kind = step.key.partition(":")[0]
                name = {"model": "", "summary": "summary"}.get(kind, step.key)
                used[name] = used.get(name, UNUSED) + step.usage
        inside = dict(self.children)
        if self.successor is not None:
            inside[successor_name(self.governed_by)] = self.successor
        for name, child in inside.items():
            for path, usage in child.usage_by_agent.items():
                used[join_path(name, path)] = usage
        undone = self.total_usage - sum(used.values(), UNUSED)  # by a retry
        if undone.total_tokens:
            used[""] += undone
        return used

    @property
    def usage_inside(self) -> dict[str, Usage]:
        """The tokens that each of the call's functions and inner agents used, by its key."""
        ended = {step.key: step.usage for step in self.trace if step.usage and step.source == State.TOOL_INTERRUPT}
        return ended | {key: child.total_usage for key, child in self.children.items()}

    @property
    def pending(self) -> tuple[FunctionCall, ...]:
        """The function calls in the round that have neither a result nor an error yet."""
        for f in self.round:
            if f.result is not None or f.error is not None:
                return tuple([f for f in self.round if f.result is None and f.error is None])
        return self.round

    @property
    def newest_round(self) -> tuple[FunctionCall, ...]:
        """The settled calls in the last closed round, if any."""
        calls, start = self.function_calls, len(self.function_calls)
        asked_in = calls[-1].id.partition(".")[0] if start else ""
        while start and calls[start - 1].id.partition(".")[0] == asked_in:
            start -= 1
        return calls[start:]

    @property
    def in_doubt(self) -> tuple[FunctionCall, ...]:
        """The pending calls that must not run twice and have been started."""
        begun = {id for id, run in self.once.items() if run.phase != "cleared"}
        return tuple([f for f in self.round if f.id in begun and not f.is_settled])

    @property
    def is_looping(self) -> bool:
        """True if the number of identical rounds is a multiple of the limit, in which case the loop is reported."""
        limit, so_far = self.limits.identical_rounds, self.identical_rounds
        return limit is not None and so_far >= limit and so_far % limit == 0


class ProcessRecord(Written):
    """The record for an inner process other than an agent call, such as a flow's run.

    If the record was read from JSON, this object holds only an outline until the process is made.

    Args:
        record: The process's own record, or the outline.  It is searched for attributes that this object lacks.
        write: A function that returns the record as JSON, or None if a ``document`` is given.
        document: The record as JSON.
    """

    __slots__ = ("_document", "_write", "record")

    def __init__(self, record: Any, write: Callable[[Any], str] | None, document: str = "") -> None:
        self.record = record
        self._write = write
        self._document = document

    @property
    def is_outline(self) -> bool:
        """True if the record was read from JSON and its process has not been made yet."""
        return self._write is None

    @property
    def document(self) -> str:
        """The record as JSON."""
        if not self._document and self._write is not None:
            self._document = self._write(self.record)
        return self._document

    def changed(self, **changes: Any) -> ProcessRecord:
        """Return a copy in which these fields of the record are changed."""
        return ProcessRecord(self.record.changed(**changes), self._write)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "record"), name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessRecord):
            return NotImplemented
        if self.is_outline or other.is_outline:
            return self.document == other.document
        return bool(self.record == other.record)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ProcessRecord({self.record!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.document,)


class _Outline(Value, frozen=True):
    depth: int
    total_usage: Usage


def _used(data: Mapping[str, Any]) -> Usage:
    used: Usage = from_data(data.get("usage", {}), Usage)
    inside = [child.get("record", child) for child in data.get("children", {}).values()]
    return sum([_used(child) for child in inside], used)


def _unpickled(document: str) -> Any:
    return _inner(from_json(document, Any))


class InnerRecords(dict[str, Any], Read):
    """The records of a call's inner processes, read from JSON."""

    @classmethod
    def read(cls, data: Any) -> InnerRecords:
        return cls({name: _inner(child) for name, child in from_data(data, dict[str, Any]).items()})


def _inner(data: Any) -> Any:
    if isinstance(data, dict) and "dialog" not in data and isinstance(inner := data.get("record"), dict):
        depth = from_data(inner.get("depth", 0), int)
        return ProcessRecord(_Outline(depth, _used(inner)), None, to_json(data))
    return from_data(data, CallRecord)


if not TYPE_CHECKING:
    Children = InnerRecords  # to read them from JSON; in memory, any mapping will do
