"""The pipeline for function results, and the cache of results that are too long for the dialog."""

from __future__ import annotations

import inspect
import threading
import time
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, TypeAlias

from fsm_agent._internal.structs import Value, is_amount, is_whole
from fsm_agent.call.outcomes import Returned
from fsm_agent.context.passes import MIN_CHARACTERS, check_size, truncated
from fsm_agent.context.tokens import estimated_tokens
from fsm_agent.functions.function import Function, result_text
from fsm_agent.messages.events import ResultCached, ResultChanged, ResultExtracted, ResultProcessed
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.runtime.portal import Place
from fsm_agent.validation import require

NAME = "result_cache"
FOLD_CHARS = 200  # longer lines are folded, so that each fits in an answer
Operation = Literal["read", "grep", "head", "tail", "stats"]


@dataclass(frozen=True, slots=True)
class _Kept:
    """Text that is kept, with the offsets at which its lines begin."""

    name: str
    text: str
    starts: array[int]
    size_bytes: int  # in UTF-8, plus the offsets
    until_s: float

    @classmethod
    def of(cls, name: str, text: str, until_s: float) -> _Kept:
        starts, offset = array("Q"), 0
        while offset < len(text):
            starts.append(offset)
            newline = text.find("\n", offset, offset + FOLD_CHARS + 1)
            offset = offset + FOLD_CHARS if newline < 0 else newline + 1
        size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        return cls(name, text, starts, size_bytes + starts.itemsize * len(starts), until_s)

    def __len__(self) -> int:
        return len(self.starts)

    def lines(self, first: int, last: int) -> str:
        end = self.starts[last] if last < len(self) else len(self.text)
        return self.text[self.starts[first - 1] : end]

    def last_within(self, first: int, last: int, max_chars: int) -> int:
        """Return the last line, at most ``last``, such that the lines from ``first`` to it fit in ``max_chars``."""
        if len(self.lines(first, last)) <= max_chars:
            return last
        return max(first, bisect_right(self.starts, self.starts[first - 1] + max_chars) - 1)

    def lines_with(self, pattern: str, within: range, most: int) -> dict[int, None]:
        """Return roughly the first ``most`` lines in ``within`` that contain the pattern or part of it."""
        hits: dict[int, None] = {}
        offset, end = self.starts[within[0] - 1], self.starts[within[-1] - 1] + len(self.lines(within[-1], within[-1]))
        while len(hits) < most and (offset := self.text.find(pattern, offset, end)) >= 0:
            line = bisect_right(self.starts, offset)
            hits |= dict.fromkeys(range(line, bisect_right(self.starts, offset + len(pattern) - 1) + 1))
            offset = self.starts[line] if line < len(self) else end
        return hits


class ResultCache:
    """Keeps long results for a while, and lets the model read parts of them.  It is thread-safe.

    Pass `cacher` to a `ResultPipeline`, and `function` to the prompt.  A model that has the function can read
    everything in the cache, so use one cache per conversation, or share one only between conversations that may see
    each other's results.

    Args:
        ttl_s: How long a result is kept, in seconds.
        max_bytes: The maximum number of bytes to keep; the oldest result is dropped first.
        preview_lines: The number of lines that the summary shows.
        max_chars: The maximum length of what the function returns, in characters.
        now: A function that returns the time in seconds since some fixed moment.

    Examples:
        >>> @function
        ... def read() -> str:
        ...     "Read."
        ...     return "a long line " * 10_000
        >>> cache = ResultCache(ttl_s=600)
        >>> model, pipeline = Script(function_call("read"), "Read."), ResultPipeline(cacher=cache.cacher)
        >>> agent = Agent(model, functions=[read, cache.function], results=pipeline)
        >>> len(agent.call("Read it.").dialog.messages[-2].parts[0].text) < 20_000
        True
    """

    def __init__(
        self,
        *,
        ttl_s: float = 1800.0,
        max_bytes: int = 100_000_000,
        preview_lines: int = 20,
        max_chars: int = 8_000,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        require("ttl_s of ResultCache", ttl_s, is_amount(ttl_s) and ttl_s > 0, "a number of seconds above 0")
        bounds = {"max_bytes": (max_bytes, 0), "preview_lines": (preview_lines, 0), "max_chars": (max_chars, 1_000)}
        for name, (value, least) in bounds.items():
            require(f"{name} of ResultCache", value, is_whole(value, least), f"a whole number from {least} on")
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._preview_lines = preview_lines
        self._max_chars = max_chars
        self._now = now
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # from the oldest to the newest
        self._size_bytes = 0
        self._count = 0

    def cacher(self, name: str, text: str) -> str | None:
        """Keep a result and return a summary of it for the model, or return None for a result from `function`."""
        if name == NAME:
            return None
        kept = _Kept.of(name, text, self._now() + self._ttl_s)
        count = min(self._preview_lines, len(kept))
        preview = kept.lines(1, count)[: len(text) // 2] if count else ""
        size = f"{estimated_tokens(text)} tokens in {len(kept)} lines"
        if ref := self._keep(kept):
            note = f"{size}, kept as {ref} for {self._ttl_s / 60:g} minutes. Use {NAME} to read it."
        else:
            note = f"{size}, too much to be kept. Ask for less."
        return f"[{name} returned {note} It begins:]\n{preview}"

    def _keep(self, kept: _Kept) -> str | None:
        """Keep the text and return its reference, or return None if the text is larger than the whole cache."""
        if kept.size_bytes > self._max_bytes:
            return None
        with self._lock:
            self._expire()
            self._count += 1
            ref = f"ref_{self._count:04d}"
            self._kept[ref] = kept
            self._size_bytes += kept.size_bytes
            while self._size_bytes > self._max_bytes:
                self._drop_oldest()
        return ref

    @cached_property
    def function(self) -> Function:
        """The function with which the model reads the results."""
        return Function.of(self._answer, name=NAME, repeatable=True)

    def _answer(
        self,
        operation: Operation,
        ref: str = "",
        start: int = 1,
        end: int | None = None,
        pattern: str = "",
        lines: int | None = None,
    ) -> str:
        """Read parts of a long result that was kept outside the dialog. Long lines are folded and count as several.

        Args:
            operation: read: the lines from start to end. grep: the lines that contain the pattern, numbered.
                head, tail: the first or last lines. stats: the results that are kept.
            ref: The result, such as ref_0001. With stats, leave it out to list all results.
            start: The first line to read or to search, counted from 1.
            end: The last line, inclusive. By default the last line of the result.
            pattern: What grep looks for: literal text, case-sensitive.
            lines: How many lines of head or tail (20 by default), or of context around each line that grep finds (0).
        """
        if operation == "stats":
            return self._stats(ref)
        kept = self._lookup(ref)
        if lines is not None and lines < 0:
            raise ValueError(f"lines: expected 0 or more, got {lines}")
        if operation in ("head", "tail"):
            count = min(len(kept), 20 if lines is None else lines)
            start, end = (1, count) if operation == "head" else (len(kept) - count + 1, len(kept))
            return self._read(kept, start, end) if count else ""
        last = len(kept) if end is None else end
        if not 1 <= start <= min(last, len(kept)):
            requested = f"from {start}" if end is None else f"{start} to {end}"
            raise LookupError(f"{ref} has no lines {requested}: it has lines 1 to {len(kept)}")
        if operation == "read":
            beyond = f"\n[line {len(kept)} is the last]" if last > len(kept) else ""
            return self._read(kept, start, min(last, len(kept))) + beyond
        return self._grep(kept, pattern, range(start, min(last, len(kept)) + 1), lines or 0)

    def _read(self, kept: _Kept, first: int, last: int) -> str:
        fitting = kept.last_within(first, last, self._max_chars)
        text = kept.lines(first, fitting).removesuffix("\n")
        return text if fitting == last else f"{text}\n[too long for one answer: read on from line {fitting + 1}]"

    def _grep(self, kept: _Kept, pattern: str, within: range, context: int) -> str:
        """Return the lines with the pattern as ``12: …``, and the lines around them as ``12- …``."""
        if not pattern:
            raise ValueError("pattern: expected the text to look for, got an empty string")
        hits = kept.lines_with(pattern, within, most=self._max_chars // 4 + 1)  # a line takes four or more: "7: \n"
        lines, size, shown = list[str](), 0, 0
        for hit in hits:
            for number in range(max(shown + 1, within[0], hit - context), min(within[-1], hit + context) + 1):
                gap = "--\n" if context and 0 < shown < number - 1 else ""
                line = kept.lines(number, number).removesuffix("\n")
                lines.append(f"{gap}{number}{':' if number in hits else '-'} {line}")
                size, shown = size + len(lines[-1]) + 1, number
                if size > self._max_chars:
                    return "\n".join([*lines[:-1], f"[too long for one answer: search on from line {number}]"])
        return "\n".join(lines) or f"[{pattern[:100]!r} was not found in lines {within[0]} to {within[-1]}]"

    def _stats(self, ref: str) -> str:
        if ref:
            self._lookup(ref)
        with self._lock:
            self._expire()
            now, kept = self._now(), [(key, value) for key, value in self._kept.items() if ref in ("", key)]
        newest = [
            f"{key}: {value.name}, {len(value)} lines, {len(value.text)} characters, {value.until_s - now:.0f} s left"
            for key, value in reversed(kept)
        ]
        return self._bounded(newest) or "[nothing is kept]"

    def _bounded(self, lines: list[str]) -> str:
        size = 0
        for count, line in enumerate(lines):
            size += len(line) + 1
            if size > self._max_chars:
                return "\n".join([*lines[:count], f"[and {len(lines) - count} older ones]"])
        return "\n".join(lines)

    def _lookup(self, ref: str) -> _Kept:
        with self._lock:
            self._expire()
            kept, refs = self._kept.get(ref), list(self._kept)
        if kept is None:
            there = ", ".join(refs[-20:]) or "nothing"
            raise LookupError(f"unknown ref {ref[:100]!r}; kept: {there}")
        return kept

    def _expire(self) -> None:
        now = self._now()
        while self._kept and next(iter(self._kept.values())).until_s <= now:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, kept = self._kept.popitem(last=False)
        self._size_bytes -= kept.size_bytes


class ProcessedResult(NamedTuple):
    """A result changed by a step of a `ResultPipeline`, with the step's own token counts.

    Attributes:
        text: The text that the model sees.
        original_tokens: The number of tokens in the result before the step; by default, an estimate.
        processed_tokens: The number of tokens in ``text``; by default, an estimate.

    Examples:
        >>> def brief(name, text):
        ...     return ProcessedResult(text[:40], original_tokens=1_200, processed_tokens=9)
        >>> pipeline = ResultPipeline(processor=brief)
    """

    text: str
    original_tokens: int | None = None
    processed_tokens: int | None = None


Replacement: TypeAlias = str | ProcessedResult | None  # None leaves the result unchanged
Step: TypeAlias = Callable[[str, str], Replacement | Awaitable[Replacement]]  # takes the function's name and result
Extractor: TypeAlias = Callable[[str, str, str], Replacement | Awaitable[Replacement]]  # and the user's last message


class PipelineResult(NamedTuple):
    """A result as it leaves the pipeline, with the events that report its changes."""

    outcome: Returned
    events: tuple[ResultChanged, ...] = ()


class ResultPipeline(Value, frozen=True, kw_only=True):
    """Three optional steps that change function results, in this order.  They are not applied to errors.

    A step is a plain or coroutine function.  It returns the text for the model, a `ProcessedResult` if it counts tokens
    itself, or None to leave the result unchanged.

    Attributes:
        processor: The step for every result.
        extractor: The step for a result that still has more than ``extraction_threshold`` tokens.  It also receives the
            user's last message, and may call a model.
        extraction_threshold: The threshold in estimated tokens.
        cacher: The step for a result that still has more than ``inline_threshold`` tokens.  It returns a substitute.
        inline_threshold: The threshold in estimated tokens.

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
        for name in ("extraction_threshold", "inline_threshold"):
            tokens = getattr(self, name)
            right = "at least 0 tokens"
            require(f"{name} of a ResultPipeline", tokens, is_whole(tokens, 0), right)

    async def aapply(
        self, call: FunctionCall, outcome: Returned, messages: Sequence[Message], place: Place = Place.THREAD
    ) -> PipelineResult:
        """Apply the steps to an outcome.  Plain functions run at ``place``."""
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
    """Return a step's result as a `ProcessedResult`, or raise `UsageError` if it has another type."""
    if result is None:
        return ProcessedResult(text)
    new = result if isinstance(result, ProcessedResult) else ProcessedResult(result)
    require(f"the return value of the {kind} for {name}", result, isinstance(new.text, str), "a string or None")
    for count in new[1:]:
        is_count = count is None or is_whole(count, 0)
        require(f"the tokens that the {kind} counted for {name}", count, is_count, "a whole number of at least 0")
    return new._replace(text=result_text(new.text))


def last_user_text(messages: Sequence[Message]) -> str:
    """Return the text of the user's newest message, or "" if there is none."""
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


def truncate(max_chars: int) -> Callable[[str, str], str | None]:
    """Return a processor that shortens results to ``max_chars`` characters, like `truncated`.

    Examples:
        >>> shorter = truncate(50)("read", "a very long text " * 100)
        >>> len(shorter) <= 50
        True
    """
    check_size("truncate", "max_chars", max_chars, MIN_CHARACTERS)
    return lambda name, text: truncated(text, max_chars) if len(text) > max_chars else None
