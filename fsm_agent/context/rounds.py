"""The rounds of a dialog, and the messages that no request may lack.

A round is a message of the model with the results of its function calls, and the messages of users right before it.  A
part of it alone would be refused by every provider.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent.lifecycle.record import CallRecord
from fsm_agent.messages.message import FunctionResult, Message

EARLIER = "[Earlier calls of functions, shortened]\n"  # begins what a pass shows as a message of the user, and is none


def system_messages(messages: Sequence[Message]) -> int:
    """Return how many system messages there are at the beginning."""
    count = 0
    for message in messages:
        if message.role != "system":
            break
        count += 1
    return count


def round_starts(messages: Sequence[Message], start: int = 0) -> list[int]:
    """Return the index at which each round begins, from ``start`` on.

    Messages of users that the model has not answered yet belong to no round.
    """
    starts: list[int] = []
    opened: int | None = None  # the first of the messages before the next one of the model
    for index in range(start, len(messages)):
        role = messages[index].role
        if role == "assistant":
            starts.append(index if opened is None else opened)
            opened = None
        elif role != "tool" and opened is None:
            opened = index
    return starts


def task_of(record: CallRecord) -> Message | None:
    """Return the task of the call: the newest message of a user that it began with."""
    return next((m for m in record.dialog[record.seeded_with - 1 :: -1] if m.role == "user"), None)


def pinned(messages: Sequence[Message], record: CallRecord | None) -> set[int]:
    """Return the indexes of the messages that every request has.

    They are the system prompt, the first message of a user, and the task.

    Args:
        messages: The messages.
        record: That of the call; None: the newest message of a user is taken for the task.
    """
    found = set(range(system_messages(messages)))
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    if users:
        # What a pass shows as a user's is none, though a user may write the same: the record knows better.
        own = [index for index in users if not messages[index].text.startswith(EARLIER)] or users
        first, task = own[0], own[-1]
        if record is not None and (wanted := task_of(record)) is not None:
            task = next((index for index in users if messages[index] is wanted), task)
        found |= {first, task}
    return found


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
