"""Ids of function calls after messages were left out: those of the places that their messages have now."""

from __future__ import annotations

from collections.abc import Iterable

from fsm_agent.messages.message import FunctionCall, FunctionResult, Message, Part


def renumbered(messages: Iterable[Message], start: int = 0) -> list[Message]:
    """Return the messages, with each function call and its result under the id of its place.

    So the calls of a model that goes on from here have ids of their own.

    Args:
        messages: The messages.
        start: The place of the first.
    """
    found = list[Message]()
    ids = dict[str, str]()  # of the round
    for index, message in enumerate(messages, start):
        if message.role == "tool":
            found.append(_changed(message, ids))
            continue
        calls = message.function_calls
        ids = {call.id: f"{index}.{number}" for number, call in enumerate(calls)}
        found.append(_changed(message, ids))
    return found


def _changed(message: Message, ids: dict[str, str]) -> Message:
    if all(old == new for old, new in ids.items()):
        return message
    return message.changed(parts=tuple([_renamed(part, ids) for part in message.parts]))


def _renamed(part: Part, ids: dict[str, str]) -> Part:
    if isinstance(part, FunctionCall | FunctionResult) and (new := ids.get(part.id, part.id)) != part.id:
        return part.changed(id=new)
    return part
