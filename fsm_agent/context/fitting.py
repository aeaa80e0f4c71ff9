"""Budgets, and the views of an agent call, which choose the messages that each request includes.

A budget says how many tokens a request may have, and which passes shorten it if it has more.  A view is made for one
request and then discarded, while the dialog itself stays whole.  Views depend only on the record, so a restored call
shows the same messages.  `View.new_events` reports what was masked or left out.  The passes, which keep each function
call together with its result, are in `fsm_agent.context.passes`.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil
from operator import is_
from typing import Any, NamedTuple, TypeAlias

from fsm_agent._internal.structs import Value, Vector, quick_json
from fsm_agent.call.effects import AskSummary, CallModel, Request
from fsm_agent.call.record import CallRecord, ContextUse
from fsm_agent.context.passes import (
    CHARACTERS,
    MIN_CHARACTERS,
    AnyPass,
    Memo,
    Pass,
    applied,
    apply_passes,
    check_pass,
    check_size,
    keep_last,
    largest,
    name_of,
    pinned,
    questions_cut_off,
    round_starts,
    shorten,
    shorten_answers,
    summary_at,
    system_messages,
    task_of,
    whole_turns,
    window_of,
)
from fsm_agent.context.summary import Summarize, summarize, summarized, summary_message
from fsm_agent.context.tokens import ESTIMATE, Tokenizer, file_tokens
from fsm_agent.errors import ErrorReport, UsageError
from fsm_agent.messages.events import ContextShortened, ObservationsMasked, Stepped
from fsm_agent.messages.message import Document, FunctionResult, HistorySummary, Image, Message, Part, renumbered
from fsm_agent.prompts.dialog import Dialog

RESERVE = 2_000  # tokens for a reply, if `Settings.max_tokens` is not set


def default_passes() -> tuple[AnyPass, ...]:
    """Return the passes for a budget that does not set its own.

    Examples:
        >>> len(default_passes()) > 0
        True
    """
    return (shorten(4_000), summarize(keep=8), keep_last(4), keep_last(1))


class Budget(Value, frozen=True, kw_only=True):
    """A limit on the number of tokens in each request.

    The count covers everything that is sent: messages, functions, the answer's schema, hosted tools, and any refused
    answer.  While a request has more than ``soft`` tokens, the passes are applied to it in order, each at most once; a
    pass that does not shorten it is skipped.  If a request still has more than ``hard - reserve`` tokens, it is not
    sent, and the call fails with `BudgetExceeded`.

    Attributes:
        hard: The maximum number of tokens in a request and its reply; by default, the model's context window, if it is
            known.
        soft: The number of tokens above which passes are applied; by default, three quarters of ``hard``.
        reserve: How many of the ``hard`` tokens are reserved for the reply.  The default is `Settings.max_tokens` if it
            is set, otherwise 2,000, but never more than a quarter of ``hard``.
        passes: The passes; by default, `default_passes`.  If the request is still too long after they are applied, long
            results are cut further.
        tokenizer: The tokenizer that counts the tokens.  By default, their number is estimated, and the estimate is
            corrected by the provider's latest report.

    Examples:
        >>> agent = Agent(Script("Hi."), context=Budget(hard=8_000))
        >>> agent.call("Hello").output
        'Hi.'
    """

    hard: int | None = None
    soft: int | None = None
    reserve: int | None = None
    passes: tuple[AnyPass, ...] | list[AnyPass] | None = None
    tokenizer: Tokenizer | None = None

    def __post_init__(self) -> None:
        if self.hard is not None:
            check_size("Budget", "hard", self.hard)
        for name, value in (("reserve", self.reserve), ("soft", self.soft)):
            if value is None:
                continue
            check_size("Budget", name, value, least=0)
            if self.hard is not None and value >= self.hard:
                raise UsageError(f"{name} of Budget: expected less than hard={self.hard}, got {value!r}")
        if self.passes is not None:
            if not isinstance(self.passes, Sequence) or isinstance(self.passes, str):
                raise UsageError(f"passes of Budget: expected a list of passes, got {self.passes!r:.80}")
            for one in self.passes:
                check_pass(one, "passes of Budget")
        counts = callable(getattr(self.tokenizer, "count", None)) and not isinstance(self.tokenizer, Sequence | type)
        if self.tokenizer is not None and not counts:  # strings have a method of this name, too
            right = "an object with count(request), such as TextTokenizer(lambda text: len(encoding.encode(text)))"
            raise UsageError(f"tokenizer of Budget: expected {right}, got {self.tokenizer!r:.80}")


ContextOption: TypeAlias = AnyPass | Budget | Sequence[AnyPass | Budget] | None


class ContextPlan(Value, frozen=True):
    """An agent's ``context`` in validated form, which determines how each request is shortened.

    Attributes:
        passes: The passes for every request.
        budget: The budget for requests that are too long, or None.
        window: The model's context window in tokens, or None if it is unknown.
        is_off: Whether requests always contain the whole dialog.

    Examples:
        >>> len(ContextPlan.of([keep_last(4), shorten(4_000)]).passes)
        2
    """

    passes: tuple[AnyPass, ...] = ()
    budget: Budget | None = None
    window: int | None = None
    is_off: bool = False

    @classmethod
    def of(cls, context: Any) -> ContextPlan:
        """Return the plan for an agent's ``context``.

        Raises:
            UsageError: If ``context`` is not a pass, a list of passes, a `Budget` or None.
        """
        if context is None:
            return DEFAULT
        if isinstance(context, Budget):
            return cls(budget=context)
        if not isinstance(context, list | tuple):
            check_pass(context)
            return cls((context,))
        listed = list(context)
        budget = listed.pop() if listed and isinstance(listed[-1], Budget) else None
        for one in listed:
            if isinstance(one, Budget):
                raise UsageError("context: expected a Budget at the end of the list, got it before passes; move it")
            check_pass(one)
        return cls(tuple(listed), budget, is_off=not context)


def keeping(plan: ContextPlan, keep: Sequence[AnyPass]) -> ContextPlan:
    """Return a plan that also summarizes earlier turns, according to a conversation's ``keep``."""
    earlier = tuple(
        [
            one.changed(is_of_earlier=True, window=min(filter(None, map(window_of, keep[place:])), default=0))
            for place, one in enumerate(keep)
            if isinstance(one, Summarize)
        ]
    )
    return plan.changed(passes=(*earlier, *plan.passes), is_off=False) if earlier else plan


def kept(keep: Sequence[AnyPass], dialog: Dialog) -> Dialog:
    """Return the part of a dialog that later turns inherit, or the dialog itself if they inherit everything.

    A question and its answer are kept or dropped together, unless the pass is your own.

    Raises:
        UsageError: If a pass is wrong; see `applied`.
    """
    messages: Sequence[Message] = dialog.messages
    if not keep or not len(messages):
        return dialog
    summaries = [one for one in keep if isinstance(one, Summarize)]
    if summaries and dialog.summary is not None:  # the other passes see it in place of the messages, as in requests
        messages = summarized(messages, dialog.summary, summaries[0].role)
    for place, one in enumerate(keep):
        is_behind = any(isinstance(before, Summarize) for before in keep[:place])
        if not isinstance(one, Summarize) and not (is_behind and window_of(one)):  # see `Summarize.window`
            shown = apply_passes((one,), messages)
            messages = whole_turns(messages, shown) if isinstance(one, Pass) else shown
    if messages is dialog.messages or tuple(messages) == tuple(dialog):
        return dialog
    return Dialog(renumbered(messages), system_args=dialog.system_args, governed_by=dialog.governed_by)


DEFAULT = ContextPlan(budget=Budget())

_TIGHTENED = 0.8  # the part of a request that may remain after a provider refused it as too long
_LEAST_FACTOR, _MOST_FACTOR = 0.5, 4.0  # the bounds of the correction of an estimate
_BRANCH_CHARACTERS = 4_000  # the assumed length of a message of the exception branch
_AFTER_SUMMARY = 0.75  # the part of the soft limit for a summary with the newest rounds
_SOME_WINDOW = 100_000  # tokens, if the window of a model is not known
_CHARACTERS = 3  # per token, for the length of the text that a summarizer is shown


class Shown(NamedTuple):
    """The next request as it will be sent, or the extra request that must come first.

    Attributes:
        request: The request.
        refusal: Why the request must not be sent, or None.
        summary: The extra request that must come first, or None.
        use: What the record should keep about the request, or None if no tokens were counted.
    """

    request: Request
    refusal: ErrorReport | None = None
    summary: AskSummary | None = None
    use: ContextUse | None = None


class _Limits(NamedTuple):
    """The limits on the number of tokens in one request."""

    budget: Budget
    soft: float  # passes are applied above it
    room: float  # a request with more is not sent
    hard: float  # room, and the reserve for the reply


class View:
    """Makes the views of one agent call, which depend only on the record and the plan.  All other state is a cache.

    Attributes:
        warning: A text for the driver to log, or ``""``.
    """

    def __init__(self, plan: ContextPlan) -> None:
        self.plan = plan
        self.warning = ""
        self._is_warned = False
        self._left_out = 0  # rounds that the latest request left out without a summary
        self._last: tuple[Vector[Stepped], Shown] | None = None  # valid for this trace
        self._reported = (0, 0)  # masked results, and tokens saved
        self._measured, self._room = 0, (plan.window or 0) // 4  # of the dialog: messages; characters still allowed
        self._memos: defaultdict[Any, Memo] = defaultdict(Memo)  # by place of the pass, or by what is measured
        self._frame: tuple[Any, int] | None = None

    def is_idle(self, record: CallRecord) -> bool:
        """Return whether the next request includes the whole dialog, so that its tokens need not be counted.

        With the default budget, this is the case while the dialog has fewer characters than a quarter of the number of
        tokens in the window.
        """
        # Tokens are counted only for calls that come near a limit, which most never do.  Until then, the characters of
        # new messages are subtracted from a quarter of the window.  The other three quarters are for the functions, the
        # schema and the reply, which are not measured here, and for texts with more than one token per character.
        plan = self.plan
        if plan.passes or record.summary is not None or record.shorten_to is not None:
            return False
        budget = plan.budget
        if budget is None or (budget.hard is None and plan.window is None):
            return True
        if budget is not DEFAULT.budget or plan.window is None or len(record.requests):
            return False
        measured, room, length = self._measured, self._room, len(record.dialog)
        if length < measured:  # the call was rewound
            measured, room = 0, plan.window // 4
        if room >= 0 and length > measured:
            for message in record.dialog[measured:]:
                for part in message.parts:
                    room -= _size(part)
            self._measured, self._room = length, room
        return room >= len(record.branch) * _BRANCH_CHARACTERS

    def show(self, record: CallRecord, request: Request, tail: Sequence[Message] = ()) -> Shown:
        """Return what a request includes."""
        last = self._last
        if last is None or last[0] is not record.trace:
            last = self._last = record.trace, self._show(record, request, tail)
        return last[1]

    def _show(self, record: CallRecord, request: Request, tail: Sequence[Message]) -> Shown:
        names = list[str]()
        messages = self._summarized(record)
        for number, one in enumerate(self.plan.passes):
            if isinstance(one, Summarize):
                if (covers := one.messages_due(record)) is not None:
                    most = (self.plan.window or _SOME_WINDOW) * _CHARACTERS // 2
                    return Shown(request, summary=one.effect(record, covers, most))
                messages = self._without_summary(one, record, messages)
                continue
            shown = applied(one, messages, record, self._memos[number])
            if len(shown) != len(messages) or not all(map(is_, shown, messages)):
                names.append(name_of(one))
            messages = shown
        limits = self._limits(record, request)
        if limits is None:
            return self._sent(record, request, (*messages, *tail), names)
        return self._fit(record, request, messages, tail, limits, names)

    def _limits(self, record: CallRecord, request: Request) -> _Limits | None:
        plan, tight, endless = self.plan, record.shorten_to, float("inf")
        budget = plan.budget or Budget()
        hard = None if plan.budget is None else plan.window if budget.hard is None else budget.hard
        if hard is None:  # only a refusal by the provider limits the request
            return None if tight is None else _Limits(budget, tight, endless, endless)
        reserve = min(request.settings.max_tokens or RESERVE, hard // 4) if budget.reserve is None else budget.reserve
        soft = min(hard - reserve, hard * 3 // 4 if budget.soft is None else budget.soft)
        return _Limits(budget, soft if tight is None else min(soft, tight), hard - reserve, hard)

    def _fit(
        self,
        record: CallRecord,
        request: Request,
        messages: Sequence[Message],
        tail: Sequence[Message],
        limits: _Limits,
        kept: list[str],
    ) -> Shown:
        budget, soft, room, hard = limits
        factor, frame = self._factor(record, budget), self._tokens_beside(request, budget)

        def tokens(messages: Sequence[Message], tail: Sequence[Message]) -> float:
            return (frame + self._tokens(messages, budget) + self._tokens(tail, budget)) * factor

        whole, tried = messages, list[str]()
        before = count = tokens(messages, tail)
        passes = default_passes() if budget.passes is None else budget.passes
        for number, one in enumerate(passes):
            if count <= soft:
                break
            tried.append(name_of(one))
            if (summary := _summary_due(one, record, messages, partial(tokens, tail=tail), soft, room)) is not None:
                return Shown(request, summary=summary)
            shorter, branch = self._shorter(number, one, record, messages, tail)
            left = tokens(shorter, branch)
            if left < count:
                messages, tail, count = shorter, branch, left
                kept.append(tried[-1])
        if budget.passes is None and count > room:
            messages, tail, squeezing = self._squeezed(messages, tail, budget, room / factor - frame)
            tried.append(squeezing)
            if (left := tokens(messages, tail)) < count:
                count = left
                kept.append(squeezing)
        if budget.passes is None:
            self._note_left_out(record, len(_replies(whole)) - len(_replies(messages)), before, soft, kept)
        refusal = _refusal(_rounded_up(count), int(hard), int(room), tried) if count > room else None
        counts = _rounded_up(before), _rounded_up(count), round(count / factor)
        return self._sent(record, request, (*messages, *tail), kept, counts, refusal)

    def _shorter(
        self, number: int, one: AnyPass, record: CallRecord, messages: Sequence[Message], tail: Sequence[Message]
    ) -> tuple[Sequence[Message], Sequence[Message]]:
        if isinstance(one, Summarize):
            return self._without_summary(one, record, messages), tail
        shorter = applied(one, messages, record, self._memos["budget", number])
        return shorter, shorten_answers(one, tail, self._memos["branch", number])

    def _squeezed(
        self, messages: Sequence[Message], tail: Sequence[Message], budget: Budget, room: float
    ) -> tuple[Sequence[Message], Sequence[Message], str]:
        """Cut long strings in the messages and the exception branch until they fit.  Also return the pass's name."""

        def at(characters: int) -> tuple[Sequence[Message], Sequence[Message]]:
            one = shorten(characters)
            return one(messages), shorten_answers(one, tail, Memo())

        def fits(characters: int) -> bool:
            return sum([self._count(Request(messages=(m,)), budget) for part in at(characters) for m in part]) <= room

        size = largest(MIN_CHARACTERS, CHARACTERS, fits) or MIN_CHARACTERS
        return *at(size), name_of(shorten(size))

    def _note_left_out(self, record: CallRecord, count: int, before: float, soft: float, passes: Sequence[str]) -> None:
        if count > self._left_out:
            self.warning = (
                f"request {record.turn + 1} leaves out {count} older rounds, without a summary of them: it had"
                f" {_rounded_up(before)} tokens, soft={int(soft)}, passes: {', '.join(passes)}"
            )
        self._left_out = count

    def _sent(
        self,
        record: CallRecord,
        request: Request,
        messages: Sequence[Message],
        passes: list[str],
        counts: tuple[int, int, int] | tuple[None, None, None] = (None, None, None),
        refusal: ErrorReport | None = None,
    ) -> Shown:
        before, estimated, counted = counts
        extends, digest = self._compared(record, messages)
        use = ContextUse(
            key=f"{CallModel.prefix}:{record.turn}",
            messages=len(messages),
            before=before,
            estimated=estimated,
            counted=counted,
            passes=tuple(passes),
            extends=extends,
            digest=digest,
        )
        return Shown(request.changed(messages=messages), refusal, use=use)

    def _compared(self, record: CallRecord, messages: Sequence[Message]) -> tuple[bool, str]:
        """Return whether the messages extend those of the request before, and their digest."""
        last = record.requests[-1] if len(record.requests) else None
        length = 0 if last is None else last.messages or 0
        digest, first = hashlib.blake2b(digest_size=8), ""
        for count, message in enumerate(messages):
            if count == length:
                first = digest.hexdigest()
            digest.update(self._memos["digest"].made(message, _digest_of))
        whole = digest.hexdigest()
        if last is not None:
            return length <= len(messages) and last.digest == (whole if length == len(messages) else first), whole
        # An earlier request that was not counted showed the whole dialog.
        places = range(len(record.dialog) - 1, record.seeded_with - 1, -1)
        answer = next((i for i in places if record.dialog[i].role == "assistant"), None)
        return answer is not None and list(messages[:answer]) == list(record.dialog[:answer]), whole

    # Summaries

    def _summarized(self, record: CallRecord) -> Sequence[Message]:
        summary = record.summary
        if summary is None or not summary.covers:
            return record.dialog
        head = self._memos["summary"].made(summary, partial(self._summary_head, record))
        return [*head, *record.dialog[summary.covers :]]

    def _summary_head(self, record: CallRecord, summary: HistorySummary) -> list[Message]:
        systems, task = system_messages(record.dialog), task_of(record)
        head, said = list(record.dialog[:systems]), summary_message(summary.text, self._role())
        if task is not None and any(task is m for m in record.dialog[systems : summary.covers]):
            return [*head, task, said]
        return [*head, said, *questions_cut_off(record.dialog, summary.covers)]

    def _role(self) -> str:
        passes = (*self.plan.passes, *((self.plan.budget and self.plan.budget.passes) or ()))
        return next((one.role for one in passes if isinstance(one, Summarize)), "user")

    def _without_summary(self, one: Summarize, record: CallRecord, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages to show while no new summary is due: fewer rounds if the last summary failed."""
        has_failed = record.summary is not None and record.summary.failed_at >= 0
        return one(messages, record) if has_failed else messages

    # Counting

    def _factor(self, record: CallRecord, budget: Budget) -> float:
        """Return the factor that corrects an estimate, based on the provider's report on the last counted request."""
        if budget.tokenizer is not None:
            return 1.0
        for use in reversed(record.requests):
            if use.counted and use.reported:
                return min(max(use.reported / use.counted, _LEAST_FACTOR), _MOST_FACTOR)
        return 1.0

    def _tokens(self, messages: Sequence[Message], budget: Budget) -> int:
        def count(message: Message) -> int:
            return self._count(Request(messages=(message,)), budget)

        return sum([self._memos["tokens"].made(message, count) for message in messages])

    def _tokens_beside(self, request: Request, budget: Budget) -> int:
        known = self._frame
        key = (request.functions, request.output, request.settings.hosted_tools)
        if known is None or known[0] != key:
            known = self._frame = (key, self._count(request.changed(messages=()), budget))
        return known[1]

    def _count(self, request: Request, budget: Budget) -> int:
        if budget.tokenizer is not None:
            try:
                count: Any = budget.tokenizer.count(request)
                if type(count) is int and count >= 0:
                    return count
                problem = f"returned {count!r:.80}"
            except Exception as error:
                problem = f"raised {type(error).__name__}"
            if not self._is_warned:
                self._is_warned = True
                self.warning = f"the tokenizer {budget.tokenizer!r:.80} {problem}; tokens are estimated instead"
        return ESTIMATE.count(request)

    # For the call and its driver

    def use(self, record: CallRecord) -> ContextUse | None:
        """Return what the latest request in a record included, or None if its tokens were not counted."""
        return self._last[1].use if self._last is not None and self._last[0] is record.trace else None

    def tightened(self, record: CallRecord, request: Request) -> int | None:
        """Return the token limit for the next attempt after a request was too long.

        It is None if requests must not be shortened.
        """
        if self.plan.is_off:
            return None
        budget = self.plan.budget or Budget()
        sent = self._tokens_beside(request, budget) + self._tokens(request.messages, budget)
        return int(sent * self._factor(record, budget) * _TIGHTENED)

    def hides(self, record: CallRecord, id: str) -> bool:
        """Return whether the last request in a record hid or shortened the result of a function call."""
        if self._last is None or self._last[0] is not record.trace:
            return not self.is_idle(record)  # unknown, so the function may run again
        whole = next((m for m in reversed(record.dialog) if _has_result(m, id)), None)
        return whole is not None and all(m is not whole for m in reversed(self._last[1].request.messages))

    def new_events(self) -> list[ObservationsMasked | ContextShortened]:
        """Return the events about newly masked results and about the shortening of the latest request."""
        if self._last is None:
            return []
        events: list[ObservationsMasked | ContextShortened] = []
        memos = self._memos.values()
        masked = sum([memo.masked for memo in memos]), sum([memo.saved_tokens for memo in memos])
        before, self._reported = self._reported, masked
        if masked[0] > before[0]:
            events.append(ObservationsMasked(masked[0] - before[0], masked[1] - before[1]))
        use = self._last[1].use
        if use is not None and use.passes and use.before is not None and use.estimated is not None:
            events.append(ContextShortened(use.before, use.estimated, use.passes))
        return events


def _summary_due(
    one: AnyPass,
    record: CallRecord,
    messages: Sequence[Message],
    tokens: Callable[[Sequence[Message]], float],
    soft: float,
    room: float,
) -> AskSummary | None:
    """Return the extra request for a summary, or None if there is nothing to summarize.

    The summary makes requests so much shorter than ``soft`` that several requests follow before the next summary.
    """
    if not isinstance(one, Summarize):
        return None
    starts = round_starts(messages, max(system_messages(messages), summary_at(messages) + 1))
    keep, always = one.keep, pinned(messages, record)
    while keep > 1:
        first = starts[-keep] if keep < len(starts) else 0
        shown = [message for index, message in enumerate(messages) if index >= first or index in always]
        if one.max_tokens + tokens(shown) <= soft * _AFTER_SUMMARY:
            break
        keep //= 2
    covers = one.messages_due(record, keep)
    return (
        None if covers is None else one.effect(record, covers, int(min(room, record.shorten_to or room)) * _CHARACTERS)
    )


def _digest_of(message: Message) -> bytes:
    return hashlib.blake2b(quick_json(message).encode(), digest_size=8).digest()


def _replies(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role == "assistant"]


def _rounded_up(tokens: float) -> int:
    return ceil(tokens - 1e-6)  # a product of floats may be a little more than a whole number


def _has_result(message: Message, id: str) -> bool:
    return any(isinstance(part, FunctionResult) and part.id == id for part in message.parts)


def _refusal(required: int, hard: int, room: int, tried: Sequence[str]) -> ErrorReport:
    means = f"after {', '.join(tried)}" if tried else "and no pass could shorten it"
    message = (
        f"the request was not sent: it needs {required} tokens, and {room} of hard={hard} are left after"
        f" reserve={hard - room}, {means}"
    )
    return ErrorReport(kind="BudgetExceeded", message=message, required=required, hard=hard, tried=tuple(tried))


def _size(part: Part) -> int:
    """Return an upper bound on the tokens in a part: its number of characters, or the estimated cost of a file."""
    if isinstance(part, Image | Document):
        return file_tokens(part) + 16
    attached = sum([_size(file) for file in getattr(part, "attachments", ())])
    return len(getattr(part, "text", "")) + len(getattr(part, "arguments_json", "")) + attached + 16
