"""Limit the part of a long dialog that is sent to the model.

A window is a pure function from messages to messages: the dialog stays whole, only the request is shorter.  It never
splits a round, that is, a message that calls functions and its results: every provider would refuse the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from fsm_agent._internal.values import Value
from fsm_agent.context.masking import estimated_tokens
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Document, FunctionCall, FunctionResult, Image, Message, Part, Reasoning, Text

Processor: TypeAlias = Callable[[Sequence[Message]], Sequence[Message]]

ATTACHMENT_TOKENS = 1_000  # roughly the cost of a picture of a million pixels, or of a page of a document


def message_tokens(message: Message, tokens: Callable[[str], int] = estimated_tokens) -> int:
    """Return an estimate of the tokens in a message; opaque parts count nothing."""
    return sum([_part_tokens(part, tokens) for part in message.parts])


def _part_tokens(part: Part, tokens: Callable[[str], int]) -> int:
    match part:
        case Text() | Reasoning():
            return tokens(part.text)
        case FunctionCall():
            return tokens(part.name) + tokens(part.arguments_json)
        case FunctionResult():
            return tokens(part.text) + ATTACHMENT_TOKENS * len(part.attachments)
        case Image() | Document():
            return ATTACHMENT_TOKENS
    return 0


class KeepLastN(Value, frozen=True):
    """A window of the newest ``n`` messages and the pinned ones.

    The system messages at the beginning and the first user message are pinned.  If the window begins within the rounds
    of a later task, the user message of that task is pinned too.  Each message of a round counts.  The first round that
    does not fit is left out with everything older; the newest round is always sent.
    """

    n: int

    def __post_init__(self) -> None:
        check_size("KeepLastN", "n", self.n)

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        return _window(messages, self.n, len)


class TokenWindow(Value, frozen=True):
    """A window of the newest messages that have at most ``max_tokens`` together, by estimate, and the pinned ones.

    It pins the same messages as `KeepLastN`, which do not count, and always sends the newest round.
    """

    max_tokens: int

    def __post_init__(self) -> None:
        check_size("TokenWindow", "max_tokens", self.max_tokens)

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        return _window(messages, self.max_tokens, lambda group: sum(map(message_tokens, group)))


def check_size(window: str, name: str, value: int) -> None:
    """Check that a size of a window is a whole number from 1 on.

    Raises:
        UsageError: It is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{window}({name}={value!r}): a whole number from 1 on would be right")


def _window(dialog: Sequence[Message], room: int, size: Callable[[Sequence[Message]], int]) -> Sequence[Message]:
    """Return the pinned messages and the newest groups whose sizes together are within ``room``."""
    messages = list(dialog)
    shown = pinned(messages)
    first = shown[-1] + 1 if shown else 0
    start = len(messages)
    while start > 0:
        begin = group_start(messages, start)
        room -= size([messages[i] for i in range(begin, start) if i not in shown])
        if room < 0 and start < len(messages):
            break
        start = begin
    if start == 0:
        return dialog
    if start > first and messages[start].function_calls:
        shown += [i for i in _newest_task(messages, start) if i >= first]
    return (*[messages[i] for i in shown if i < start], *messages[start:])


def group_start(messages: list[Message], end: int) -> int:
    """Return the index of the first message of the group that ends before ``end``."""
    start = end - 1
    while start > 0 and messages[start].role == "tool":
        start -= 1
    return start


def pinned(messages: list[Message]) -> list[int]:
    """Return the indexes of the system messages at the beginning and of the first message of a user."""
    found: list[int] = []
    for index, message in enumerate(messages):
        if message.role == "user":
            return [*found, index]
        if message.role == "system" and len(found) == index:
            found.append(index)
    return found


def _newest_task(messages: list[Message], start: int) -> list[int]:
    """Return the index of the newest user's message before ``start``."""
    return next(([index] for index in range(start - 1, -1, -1) if messages[index].role == "user"), [])


def applied(processors: Iterable[Processor], messages: Sequence[Message]) -> Sequence[Message]:
    """Apply the processors, one after another.

    Raises:
        UsageError: One returns what every provider would refuse: no messages, or an incomplete round.
    """
    for processor in processors:
        view = processor(messages)
        if not isinstance(view, Sequence):
            raise UsageError(f"the processor {processor!r:.200} returned {view!r:.80}: a list or tuple would be right")
        if view is not messages and (problem := broken_round(view)) and not broken_round(messages):
            raise UsageError(f"the processor {processor!r:.200} {problem}")
        messages = view
    return messages


def broken_round(messages: Sequence[Message]) -> str:
    """Return the problem with the rounds in these messages; "" if each call is followed by exactly one result."""
    if not messages:
        return "left no message"
    open_calls: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, FunctionResult) and open_calls.pop(part.id, None) is None:
                    return f"left the result {part.id!r} of {part.name!r} without the message that asks for it"
        elif open_calls:
            break
        elif message.role == "assistant":
            open_calls = {call.id: call.name for call in message.function_calls}
    if open_calls:
        id, name = next(iter(open_calls.items()))
        return f"left the call {id!r} of {name!r} without its result"
    return ""
