"""Fit requests into a number of tokens by applying one processor after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fsm_agent._internal.values import Value
from fsm_agent.context.masking import estimated_tokens
from fsm_agent.context.shortening import SendOnce, TruncateResults
from fsm_agent.context.view import Fit, Fitting
from fsm_agent.context.window import KeepLastN, Processor, applied, check_size, message_tokens
from fsm_agent.errors import ErrorReport, UsageError
from fsm_agent.messages.event import ContextMeasured
from fsm_agent.messages.message import Message

PASSES: tuple[Processor, ...] = (TruncateResults(4000), SendOnce(), KeepLastN(8), KeepLastN(4), TruncateResults(500))


class TokenBudget(Fitting, frozen=True, kw_only=True):
    """A processor that fits the messages of a request into ``hard - reserve`` tokens.

    If there are more, the passes are applied in order, each once, until the messages fit.  The result of a pass is kept
    if it has fewer tokens and still begins with all system messages.  A request that does not fit in the end is not
    sent: the call fails with `ContextTooLong`, as if the model had refused it.

    Attributes:
        hard: The context window of the model, in tokens.
        reserve: Tokens of it that are left for the reply, schemas of functions and a refused answer.
        soft: Emit `ContextMeasured` for each request above this; None: above ``hard - reserve``.
        passes: The processors.
        tokenizer: Returns the number of tokens in a text; an estimate by default.  ``lambda text:
            len(encoding.encode(text))`` is exact.  It must be pure, and is called for each text in each request: cache
            its results.
    """

    hard: int
    reserve: int = 0
    soft: int | None = None
    passes: tuple[Processor, ...] | list[Processor] = PASSES
    tokenizer: Callable[[str], int] = estimated_tokens

    def __post_init__(self) -> None:
        check_size("TokenBudget", "hard", self.hard)
        for name, value in (("reserve", self.reserve), ("soft", self.soft)):
            if value is not None and (type(value) is not int or not 0 <= value < self.hard):
                right = f"a whole number from 0 on, below hard={self.hard},"
                raise UsageError(f"TokenBudget({name}={value!r}): {right} would be right")
        if not (isinstance(self.passes, tuple | list) and all(map(callable, self.passes))):
            raise UsageError(f"TokenBudget(passes={self.passes!r:.80}): a list of processors would be right")
        if not callable(self.tokenizer):
            raise UsageError(f"TokenBudget(tokenizer={self.tokenizer!r:.80}): a function of a text would be right")

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages that are left.

        Raises:
            ContextTooLong: They do not fit.
        """
        fit = self.fit(messages)
        if fit.refusal is not None:
            raise fit.refusal.exception()
        return fit.messages

    def fit(self, messages: Sequence[Message]) -> Fit:
        room, before, opening = self.hard - self.reserve, self._tokens(messages), _opening(messages)
        tokens, kept, tried = before, list[str](), list[str]()
        for processor in self.passes:
            if tokens <= room:
                break
            tried.append(_name(processor))
            shorter = applied([processor], messages)
            left = self._tokens(shorter)
            if left < tokens and list(shorter[: len(opening)]) == opening:
                messages, tokens = shorter, left
                kept.append(tried[-1])
        soft = room if self.soft is None else self.soft
        measured = ContextMeasured(before=before, tokens=tokens, soft=soft, passes=tuple(kept))
        return Fit(messages, measured, None if tokens <= room else self._refusal(tokens, tried))

    def _tokens(self, messages: Sequence[Message]) -> int:
        return sum([message_tokens(message, self.tokenizer) for message in messages])

    def _refusal(self, tokens: int, tried: Sequence[str]) -> ErrorReport:
        room = f"TokenBudget(hard={self.hard}, reserve={self.reserve}) has room for {self.hard - self.reserve}"
        means = f"after {', '.join(tried)}" if tried else "and no passes are left"
        return ErrorReport(
            kind="ContextTooLong", message=f"the request has {tokens} tokens, and {room}, {means}; it was not sent"
        )


def _opening(messages: Sequence[Message]) -> list[Message]:
    """Return the system messages at the beginning."""
    opening: list[Message] = []
    for message in messages:
        if message.role != "system":
            break
        opening.append(message)
    return opening


def _name(processor: Processor) -> str:
    return repr(processor) if isinstance(processor, Value) else getattr(processor, "__name__", type(processor).__name__)
