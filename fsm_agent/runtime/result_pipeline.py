"""Process the result of a function before it enters the dialog.

A processor changes any result.  An extractor selects the relevant part of a long result.  A cacher stores a result that
is still long elsewhere, and leaves a summary.  If one of them raises, or returns neither a string nor None, the model
sees an error instead of the result, which they may have to redact; the function is not run again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from fsm_agent._internal.field_checks import is_whole
from fsm_agent._internal.values import Value
from fsm_agent.call.outcomes import Returned
from fsm_agent.context.passes import MIN_CHARACTERS, check_size, truncated
from fsm_agent.context.tokens import estimated_tokens
from fsm_agent.errors import UsageError
from fsm_agent.functions.function import result_text
from fsm_agent.messages.events import ResultCached, ResultChanged, ResultExtracted, ResultProcessed
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.runtime.place import Place


class ProcessedResult(NamedTuple):
    """A result as a step of a `ResultPipeline` has changed it, with the step's own counts of tokens.

    Attributes:
        text: What the model sees.
        original_tokens: Of the result before; None: as estimated.
        processed_tokens: Of ``text``; None: as estimated.

    Examples:
        >>> def brief(name, text):
        ...     return ProcessedResult(text[:40], original_tokens=1_200, processed_tokens=9)
        >>> pipeline = ResultPipeline(processor=brief)
    """

    text: str
    original_tokens: int | None = None
    processed_tokens: int | None = None


Replacement: TypeAlias = str | ProcessedResult | None  # None: leave the result as it is
Step: TypeAlias = Callable[[str, str], Replacement | Awaitable[Replacement]]  # of the function's name and its result
Extractor: TypeAlias = Callable[[str, str, str], Replacement | Awaitable[Replacement]]  # and of the user's last message


class PipelineResult(NamedTuple):
    """A result after the pipeline, and the events of its changes."""

    outcome: Returned
    events: tuple[ResultChanged, ...] = ()


class ResultPipeline(Value, frozen=True, kw_only=True):
    """Three optional steps, in this order; error results skip them.

    A step is a plain function or a coroutine function.  It returns the text for the model, or a `ProcessedResult` with
    counts of its own, or None to leave the result as it is.

    Attributes:
        processor: Takes each result.
        extractor: Takes a result that still has more than ``extraction_threshold`` tokens, and the user's last message;
            it may ask a model.
        extraction_threshold: In estimated tokens.
        cacher: Takes a result that still has more than ``inline_threshold`` tokens, and returns its substitute.
        inline_threshold: In estimated tokens.

    Examples:
        >>> @function
        ... def read() -> str:
        ...     "Read."
        ...     return "long " * 1_000
        >>> pipeline = ResultPipeline(processor=truncate(100))
        >>> agent = Agent(Script(function_call("read"), "Read."), functions=[read], results=pipeline)
        >>> len(agent.call("Read it.").dialog.messages[-2].parts[0].text) <= 100
        True
    """

    hidden = ("processor", "extractor", "cacher")

    processor: Step | None = None
    extractor: Extractor | None = None
    extraction_threshold: int = 15_000
    cacher: Step | None = None
    inline_threshold: int = 2_000

    def __post_init__(self) -> None:
        for name in ("processor", "extractor", "cacher"):
            step = getattr(self, name)
            if step is not None and not callable(step):
                raise UsageError(f"{name} of a ResultPipeline: expected a function, or None, got {step!r:.80}")
        for name in ("extraction_threshold", "inline_threshold"):
            tokens = getattr(self, name)
            if not is_whole(tokens, 0):
                right = "a whole number of tokens from 0 on"
                raise UsageError(f"{name} of a ResultPipeline: expected {right}, got {tokens!r:.80}")

    async def aapply(
        self, call: FunctionCall, outcome: Returned, messages: Sequence[Message], place: Place = Place.THREAD
    ) -> PipelineResult:
        """Take the steps.

        Args:
            call: The function call.
            outcome: Its outcome.
            messages: The dialog.
            place: Where plain functions run.
        """
        if outcome.is_error:
            return PipelineResult(outcome)
        text, events = outcome.text, list[ResultChanged]()
        steps: tuple[tuple[str, Callable[..., Any] | None, int, type[ResultChanged]], ...] = (
            ("processor", self.processor, -1, ResultProcessed),
            ("extractor", self.extractor, self.extraction_threshold, ResultExtracted),
            ("cacher", self.cacher, self.inline_threshold, ResultCached),
        )
        tokens = estimated_tokens(text)
        for kind, step, threshold, changed in steps:
            if step is None or tokens <= threshold:
                continue
            given = (call.name, text, last_user_text(messages)) if kind == "extractor" else (call.name, text)
            result = await (Place.LOOP if inspect.iscoroutinefunction(step) else place).call(partial(step, *given))
            if inspect.isawaitable(result):
                result = await place.wait_for(result)
            new = _check_result(result, kind, call.name, text)
            if new.text != text:
                before = tokens if new.original_tokens is None else new.original_tokens
                tokens = estimated_tokens(new.text) if new.processed_tokens is None else new.processed_tokens
                events.append(changed(call.id, call.name, before, tokens))
                text = new.text
        return PipelineResult(outcome.changed(text=text), tuple(events)) if events else PipelineResult(outcome)


def _check_result(result: Any, kind: str, name: str, text: str) -> ProcessedResult:
    """Return the result of a step as text for the model, with its counts; raise if it is neither."""
    if result is None:
        return ProcessedResult(text)
    new = result if isinstance(result, ProcessedResult) else ProcessedResult(result)
    if not isinstance(new.text, str):
        raise UsageError(f"what the {kind} returned for {name}: expected a string or None, got {result!r:.80}")
    for count in new[1:]:
        if count is not None and not is_whole(count, 0):
            raise UsageError(f"the {kind} counted {count!r:.80} tokens for {name}: expected a whole number from 0 on")
    return new._replace(text=result_text(new.text))


def last_user_text(messages: Sequence[Message]) -> str:
    """Return the text of the user's newest message; "" when there is none."""
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


def truncate(max_chars: int) -> Callable[[str, str], str | None]:
    """Return a processor that shortens results to ``max_chars`` characters, as `truncated` does.

    Examples:
        >>> shorter = truncate(50)("read", "a very long text " * 100)
        >>> len(shorter) <= 50
        True
    """
    check_size("truncate", "max_chars", max_chars, MIN_CHARACTERS)
    return lambda name, text: truncated(text, max_chars) if len(text) > max_chars else None
