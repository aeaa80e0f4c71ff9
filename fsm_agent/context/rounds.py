"""Finds the rounds in a dialog, and the messages that every request must contain.

A round is a message from the model with the results of its function calls, and with the user messages right before it.
Providers refuse incomplete rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fsm_agent.call.record import CallRecord
from fsm_agent.messages.message import FunctionResult, Message

EARLIER = "[Earlier calls of functions, shortened]\n"  # the beginning of a user message that a pass made
SUMMARY_OPENED, SUMMARY_CLOSED = "<history_summary>\n", "\n</history_summary>"  # around the text of a summary


def system_messages(messages: Sequence[Message]) -> int:
    """Return the number of system messages at the beginning."""
    count = 0
    for message in messages:
        if message.role != "system":
            break
        count += 1
    return count


def round_starts(messages: Sequence[Message], start: int = 0) -> list[int]:
    """Return the index at which each round begins, from ``start`` on.

    User messages that the model has not answered yet belong to no round.
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


def summary_at(messages: Sequence[Message]) -> int:
    """Return the index of the message that summarizes earlier messages, or -1 if there is none.

    A summary comes right after the system prompt, or after the task that follows the prompt.  Elsewhere, the marks of a
    summary are plain text.
    """
    systems = system_messages(messages)
    for index in range(max(0, systems - 1), min(systems + 2, len(messages))):
        message = messages[index]
        if message.role in ("user", "system") and message.text.startswith(SUMMARY_OPENED):
            return index if message.text.endswith(SUMMARY_CLOSED) else -1
    return -1


def turns(messages: Sequence[Message]) -> list[range]:
    """Return the indexes of each turn, which is a question and everything up to the next question.

    A user message that arrives while the model is still calling functions belongs to the same turn.  The system prompt
    and a summary do not belong to any turn.
    """
    start, is_answered = max(system_messages(messages), summary_at(messages) + 1), False
    starts = [start]
    for index in range(start, len(messages)):
        message = messages[index]
        if message.role == "user" and is_answered:
            starts.append(index)
        if message.role != "system":
            is_answered = message.role == "assistant"  # the results of its calls, if any, follow
    return [range(*ends) for ends in pairwise([*starts, len(messages)]) if ends[0] < ends[1]]


def questions_cut_off(messages: Sequence[Message], cut: int) -> list[Message]:
    """Return the questions before the index ``cut`` whose turns continue after that index."""
    turn = next((turn for turn in turns(messages) if turn.start < cut < turn.stop), range(0))
    return [messages[index] for index in turn if index < cut and messages[index].role == "user"]


def whole_turns(messages: Sequence[Message], part: Sequence[Message]) -> Sequence[Message]:
    """Return a part of the messages, in which no question is separated from its answer.

    For each turn that has replies in the part, missing questions and answers are added.  Other answered questions are
    dropped.
    """
    places, numbered = set[int](), iter(enumerate(messages))
    for wanted in part:
        place = next((index for index, message in numbered if message is wanted), None)
        if place is None:
            return part
        places.add(place)
    before = set(places)
    for turn in turns(messages):
        replies = [index for index in turn if messages[index].role == "assistant"]
        asked = {index for index in turn if messages[index].role == "user"}
        if not places.isdisjoint(replies):
            answer = replies[-1:] if not messages[replies[-1]].function_calls else []
            places |= {*asked, *answer}
        elif replies:
            places -= asked
    return part if places == before else [messages[index] for index in sorted(places)]


def task_of(record: CallRecord) -> Message | None:
    """Return the call's task, which is the newest user message that it began with."""
    return next((m for m in record.dialog[record.seeded_with - 1 :: -1] if m.role == "user"), None)


def pinned(messages: Sequence[Message], record: CallRecord | None) -> set[int]:
    """Return the indexes of the messages that every request contains.

    They are the system prompt, the task, and the summary or, if there is none, the first user message.
    """
    found = set(range(system_messages(messages)))
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    if users:
        # A pass may show text as a user's message, and a user may write the same text.  The record tells them apart.
        own = [index for index in users if not messages[index].text.startswith(EARLIER)] or users
        first, task = own[0], own[-1]
        if (summary := summary_at(messages)) >= 0:  # it also replaces the first message
            found |= set(range(summary + 1))
            first = task
        if record is not None and (wanted := task_of(record)) is not None:
            task = next((index for index in users if messages[index] is wanted), task)
        found |= {first, task}
    return found


def broken_round(messages: Sequence[Message]) -> str:
    """Return what is wrong with the rounds in these messages, or ``""`` if each call has exactly one result."""
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
