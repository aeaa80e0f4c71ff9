"""Shorten results of functions in requests: long ones, and repeated ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import FunctionResult, Message

LEFT_OUT = "\n[… {count} characters left out …]\n"
MIN_CHARS = 50  # room for the note on omitted characters, with text on both sides
REPEATED = "[The same as the earlier result of {name} that begins: {start}]"
_STARTS = 60  # characters of that result


class TruncateResults(Value, frozen=True):
    """A processor that shows the head and tail of results with more than ``max_chars`` characters.

    A note between them states how many characters are left out.  The dialog keeps the whole text.
    """

    max_chars: int = 4000

    def __post_init__(self) -> None:
        check_chars(self.max_chars)

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        return with_results(messages, lambda result: truncated(result.text, self.max_chars))


class SendOnce(Value, frozen=True):
    """A processor that shows equal results of a function once; a note replaces each later one.

    The dialog keeps them all.  Results that are shorter than the note, or have attachments, are not replaced.
    """

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        shown = set[tuple[str, str, bool]]()

        def note(result: FunctionResult) -> str:
            text = REPEATED.format(name=result.name, start=result.text[:_STARTS])
            if result.attachments or len(text) >= len(result.text):
                return result.text
            mark = (result.name, result.text, result.is_error)
            if mark in shown:
                return text
            shown.add(mark)
            return result.text

        return with_results(messages, note)


def with_results(messages: Sequence[Message], text: Callable[[FunctionResult], str]) -> Sequence[Message]:
    """Return the messages with the texts of function results replaced; the same sequence if no text differs."""
    changed = list(messages)
    for index, message in enumerate(changed):
        if message.role != "tool":
            continue
        parts = tuple([_with_text(part, text) if isinstance(part, FunctionResult) else part for part in message.parts])
        if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
            changed[index] = message.changed(parts=parts)
    return messages if all(new is old for new, old in zip(changed, messages, strict=True)) else changed


def _with_text(result: FunctionResult, text: Callable[[FunctionResult], str]) -> FunctionResult:
    shown = text(result)
    return result if shown is result.text else result.changed(text=shown)


def truncated(text: str, max_chars: int) -> str:
    """Return a text; if it exceeds ``max_chars`` characters, its head and tail with a note on the rest between them."""
    check_chars(max_chars)
    if len(text) <= max_chars:
        return text
    room = max_chars - len(LEFT_OUT.format(count=len(text)))
    head, tail = room - room // 2, len(text) - room // 2
    if "\ud800" <= text[head - 1] <= "\udbff":  # do not cut a surrogate pair in two
        head -= 1
    if "\udc00" <= text[tail] <= "\udfff":
        tail += 1
    return text[:head] + LEFT_OUT.format(count=tail - head) + text[tail:]


def check_chars(max_chars: int) -> None:
    """Refuse a number of characters that has no room for the note.

    Raises:
        UsageError: It is too small, or no whole number.
    """
    if isinstance(max_chars, bool) or not isinstance(max_chars, int) or max_chars < MIN_CHARS:
        raise UsageError(f"max_chars is {max_chars!r}: a whole number from {MIN_CHARS} on would be right")
