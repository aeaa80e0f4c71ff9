"""Renumbering of function calls after messages were left out: an id is the position of its message."""

from __future__ import annotations

from collections.abc import Iterable

from fsm_agent.messages.message import FunctionCall, FunctionResult, Message, Part


def renumbered(messages: Iterable[Message], start: int = 0) -> list[Message]:
    """Return the messages with the ids of function calls, and of their results, made from their positions.

    So the calls of later replies get unique ids.

    Args:
        messages: The messages.
        start: The position of the first.
    """
    found = list[Message]()
    ids = dict[str, str]()  # of the round
    for index, message in enumerate(messages, start):
        if message.role == "tool":
            found.append(_replace_ids(message, ids))
            continue
        calls = message.function_calls
        ids = {call.id: f"{index}.{number}" for number, call in enumerate(calls)}
        found.append(_replace_ids(message, ids))
    return found


def _replace_ids(message: Message, ids: dict[str, str]) -> Message:
    if all(old == new for old, new in ids.items()):
        return message
    return message.changed(parts=tuple([_replace_id(part, ids) for part in message.parts]))


def _replace_id(part: Part, ids: dict[str, str]) -> Part:
    if isinstance(part, FunctionCall | FunctionResult) and (new := ids.get(part.id, part.id)) != part.id:
        return part.changed(id=new)
    return part
