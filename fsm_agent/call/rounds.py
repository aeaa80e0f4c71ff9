"""The rounds of a call, and what its requests showed the model, derived from its record and trace."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import TypeAlias

from fsm_agent._internal.values import Value
from fsm_agent._internal.vector import Vector
from fsm_agent.call.prices import Tariff
from fsm_agent.call.record import ASKING, CallRecord, ContextUse, RequestFailure, State, successor_name
from fsm_agent.messages.events import Stepped
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.validation import check

_ByReply: TypeAlias = Iterator[tuple[str, Iterator[FunctionCall]]]


class RoundReport(Value, frozen=True, kw_only=True):
    """One round of a call: from the request for a reply to the results of the functions that it requests.

    The last one of a call that was answered ends with the answer.  If the dialog was handed over, the rounds of the
    agent that took it over follow.  Times are those of the steps, as far as they are known; what a call waits for at
    present is not in them.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> report = rounds_of(result.record)[0]
        >>> report.number, report.text, report.requests
        (1, 'Hi.', 1)
    """

    number: int  # from 1
    text: str = ""  # the model's text besides the function calls, or the answer
    requests: int = 0  # to the model that were answered or have failed
    function_calls: tuple[FunctionCall, ...] = ()  # settled
    parse_errors: tuple[str, ...] = ()  # of answers that could not be used
    failures: tuple[RequestFailure, ...] = ()  # of requests
    recalls: int = 0  # failures after which the model was asked again
    usage: Usage = UNUSED
    cost_pico_usd: int | None = None  # in millionths of a millionth of a dollar; None: no price, or nothing reported
    began_at_s: float | None = None  # Unix time
    ended_at_s: float | None = None  # None: unknown, or it has not ended
    model_s: float = 0.0  # how long the model was waited for, in seconds
    approvals_s: float = 0.0
    functions_s: float = 0.0
    backoff_s: float = 0.0
    checks_s: float = 0.0  # how long the check of answers took

    @property
    def function_errors(self) -> tuple[FunctionCall, ...]:
        """The function calls that have an error instead of a result."""
        return tuple([f for f in self.function_calls if f.error is not None])


def rounds_of(record: CallRecord, price: Tariff | None = None) -> tuple[RoundReport, ...]:
    """Return the rounds of a call so far.  Takes linear time.

    Args:
        record: The call's.
        price: That of the model's tokens; without one the cost is what the replies had, if the agent asked for it.

    Raises:
        UsageError: It is no record of a call.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> [(report.number, report.text) for report in rounds_of(result.record)]
        [(1, 'Hi.')]
    """
    check("the record", record, isinstance(record, CallRecord), "the record of a call, such as result.record")
    rounds = _rounds(record, _by_reply(record), record.dialog)
    return tuple([one.report(number, price) for number, one in enumerate(rounds, 1)])


def _by_reply(record: CallRecord) -> _ByReply:
    """Return the function calls in a record, grouped by the place of their reply in its dialog."""
    return groupby(record.function_calls, lambda f: f.id.partition(".")[0])


def _rounds(record: CallRecord, requested: _ByReply, dialog: Vector[Message]) -> list[_Round]:
    """Return the rounds of a call, and behind them those of the agent that has taken its dialog over."""
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
    """Return the rounds of the agent that has taken the dialog of a call over; None: there is none."""
    if record.successor is not None:  # it has ended, and the call has its dialog and its function calls
        return _rounds(record.successor, requested, dialog)
    inner = record.children.get(successor_name(record.governed_by))
    if record.state is State.HANDED_OVER and isinstance(inner, CallRecord):
        return _rounds(inner, _by_reply(inner), inner.dialog)
    return None


def _stretches(record: CallRecord) -> Iterator[list[tuple[Stepped, float]]]:
    """Yield the steps of each round, with the time before each that is known; that of the start is none's."""
    steps: list[tuple[Stepped, float]] = []
    before_s = 0.0
    for step in record.trace:
        if step.trigger == "relayed":  # its tokens are those of the successor's rounds
            continue
        steps.append((step, before_s))
        before_s = step.at_s if 0 < step.at_s < math.inf else before_s
        if _closes(step):
            yield steps
            steps = []
    if steps:
        yield steps


def _closes(step: Stepped) -> bool:
    """Return whether a step closes a round but does not end the call."""
    return step.to == State.CALLING and (step.source == State.TOOL_INTERRUPT or step.trigger in _AT_ONCE)


_AT_ONCE = ("functions_asked", "paused")  # triggers that close a round whose functions need not be run
# Triggers after which a reply stands in the dialog, or may come to stand there.
_KEPT = ("functions_asked", "answered", "checked", "stopped")
_REQUESTS = ("model:", "summary:")
_REFUSED = ("parse_failed", "check_refused")


class _Round:
    """One round in the making."""

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
        """True if a model was asked."""
        return any(step.key.startswith(_REQUESTS) for step, _ in self.steps)

    @property
    def has_reply(self) -> bool:
        """True if the reply of the record is its own."""
        verdicts = [step.trigger for step, _ in self.steps if step.key.startswith(("model:", "check:"))]
        return bool(verdicts) and verdicts[-1] in _KEPT

    def report(self, number: int, price: Tariff | None) -> RoundReport:
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
            requests=sum(step.key.startswith(_REQUESTS) for step in steps),
            function_calls=self.function_calls,
            parse_errors=tuple([step.detail for step in steps if step.trigger in _REFUSED]),
            failures=tuple(self.failures),
            recalls=sum(
                step.to == State.BACKOFF or (step.trigger == "too_long" and step.to == step.source) for step in steps
            ),
            usage=usage,
            cost_pico_usd=_cost(usage, price),
            began_at_s=before_s or first.at_s or None,
            ended_at_s=(steps[-1].at_s or None) if self.has_ended else None,
            **waited_s,
        )


_WAITED = ("model_s", "approvals_s", "functions_s", "backoff_s", "checks_s")


def _cost(usage: Usage, price: Tariff | None) -> int | None:
    if price is None or usage == UNUSED:
        return usage.cost_pico_usd
    return price.cost_pico_usd(usage)


def _waited_for(step: Stepped) -> str | None:
    """Return the name of the field for the time before a step; None: it is none of them."""
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
    """Return what each answered request of a call showed, in order."""
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
