"""Budgets: how many tokens a request may have, and which passes are tried when it has more.

`fsm_agent.context.view` applies them: `View` counts a request and fits it into its budget.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent._internal.values import Value
from fsm_agent.context.passes import AnyPass, check_pass, check_size, keep_last, shorten
from fsm_agent.context.summary import summarize
from fsm_agent.context.tokens import Tokenizer
from fsm_agent.errors import UsageError
from fsm_agent.foreign_names import OptionsType

RESERVE = 2_000  # tokens for a reply, if `Settings.max_tokens` says nothing


def default_passes() -> tuple[AnyPass, ...]:
    """Return the passes of a budget that has none of its own, in their order.

    Examples:
        >>> len(default_passes()) > 0
        True
    """
    return (shorten(4_000), summarize(keep=8), keep_last(4), keep_last(1))


class Budget(Value, frozen=True, kw_only=True, metaclass=OptionsType):
    """A number of tokens into which each request is fitted.

    What is counted is what is sent: messages, functions, the schema of the answer, hosted tools, a refused answer.
    Only while a request has more than ``soft`` tokens, the passes are applied to it in order, each at most once; one
    that does not make it shorter is left out.  A request that has more than ``hard - reserve`` tokens in the end is not
    sent: the call fails with `BudgetExceeded`.

    Attributes:
        hard: The most tokens of a request and its reply; None: the model's context window, if it is known.
        soft: The most tokens of a request that no pass is applied to; None: three quarters of ``hard``.
        reserve: Tokens of ``hard`` that are left for the reply; None: `Settings.max_tokens`, or 2,000, but never more
            than a quarter of ``hard``.
        passes: The passes; None: `default_passes`, and if a request is still too long then, it shows less of each long
            result, as much as fits.
        tokenizer: Counts the tokens; None: an estimate, corrected by what the provider reported for the last request.

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
        if self.tokenizer is not None and not counts:  # a text has a method of this name, too
            raise UsageError(
                f"tokenizer of Budget: expected an object with count(request), got {self.tokenizer!r:.80}; pass one"
                " such as"
                " TextTokenizer(lambda text: len(encoding.encode(text)))"
            )
