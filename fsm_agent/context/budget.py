"""Budgets, which say how many tokens a request may have, and which passes shorten it if it has more.

`fsm_agent.context.fitting` applies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from fsm_agent._internal.structs import Value
from fsm_agent.context.passes import (
    AnyPass,
    Pass,
    apply_passes,
    check_pass,
    check_size,
    keep_last,
    shorten,
    whole_turns,
    window_of,
)
from fsm_agent.context.summary import Summarize, summarize, summarized
from fsm_agent.context.tokens import Tokenizer
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Message, renumbered
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
    answer.  While a request has more than ``soft`` tokens, the passes are applied to it in order, each at most once,
    except passes that do not shorten it.  If a request still has more than ``hard - reserve`` tokens, it is not sent,
    and the call fails with `BudgetExceeded`.

    Attributes:
        hard: The maximum number of tokens in a request and its reply; by default, the model's context window, if it is
            known.
        soft: The number of tokens above which passes are applied; by default, three quarters of ``hard``.
        reserve: How many tokens of ``hard`` are left for the reply.  The default is `Settings.max_tokens` if it is set,
            else 2,000, but never more than a quarter of ``hard``.
        passes: The passes; by default, `default_passes`.  If the request is still too long after they are applied, long
            results are cut further.
        tokenizer: Counts the tokens.  By default, their number is estimated, and the estimate is corrected by the
            provider's last report.

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
            raise UsageError(
                f"tokenizer of Budget: expected an object with count(request), got {self.tokenizer!r:.80}; pass one"
                " such as"
                " TextTokenizer(lambda text: len(encoding.encode(text)))"
            )


ContextOption: TypeAlias = AnyPass | Budget | Sequence[AnyPass | Budget] | None


class ContextPlan(Value, frozen=True):
    """An agent's ``context`` in its checked form, which says how each request is shortened.

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
            UsageError: If ``context`` is neither a pass, a list of passes, a `Budget` nor None.
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
                raise UsageError(
                    "context: expected a Budget at the end of the list, got one before other passes; move it"
                )
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
