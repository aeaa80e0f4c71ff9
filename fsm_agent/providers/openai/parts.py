"""Encoding and decoding that OpenAI's two APIs share."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.messages.message import FunctionCall, FunctionResult, Message, Text, object_text
from fsm_agent.messages.reply import MOST_TOKENS, TokenLogprob

MAX_LOGPROB = 1e300  # larger integers may not fit into a float


def call_id(part: FunctionCall | FunctionResult) -> str:
    """Return the key by which a dialog matches a call and its result."""
    return part.provider_id or f"call_{part.id.replace('.', '_')}"


class CallIds:
    """Ids of calls for the service: unique in a dialog, and equal for a call and its result.

    Some services restart their numbering with every reply, or give two calls of one reply the same id.

    Args:
        most: Largest length of an id, in characters.
        exactly: Exact length of an id, in letters and digits.
    """

    def __init__(self, *, most: int | None = None, exactly: int | None = None) -> None:
        self._most = most
        self._exactly = exactly
        self._used: set[str] = set()
        # By the key that a call and its result share: the last id, and the ids without a result yet.
        self._last: dict[tuple[str, str], str] = {}
        self._waiting: dict[tuple[str, str], OrderedDict[str, None]] = {}  # ordered, with fast removal at its ends

    def of_call(self, call: FunctionCall) -> str:
        """Return the id of the next call in the dialog."""
        shared = id = call_id(call)
        if id in self._used or not self._fits(id):
            made = (f"call{n:0{self._exactly - 4}}" if self._exactly else f"call_{n}" for n in count(len(self._used)))
            id = next(id for id in made if id not in self._used)
        self._used.add(id)
        for key in dict.fromkeys([(shared, call.id), (shared, "")]):
            self._last[key] = id
            self._waiting.setdefault(key, OrderedDict())[id] = None
        return id

    def of_result(self, result: FunctionResult) -> str:
        """Return the id of the call that this is the result of."""
        shared = call_id(result)
        keys = [(shared, result.id), (shared, "")]
        key = next((key for key in keys if key in self._last), None)
        if key is None:
            return shared
        id = next(iter(self._waiting[key]), self._last[key])
        for waiting in (self._waiting[key] for key in keys if key in self._waiting):
            waiting.pop(id, None)
        return id

    def _fits(self, id: str) -> bool:
        if self._exactly is not None:
            return re.fullmatch(r"[A-Za-z0-9]+", id) is not None and len(id) == self._exactly
        return self._most is None or len(id) <= self._most


def arguments_object(text: str) -> str:
    """Return arguments as a JSON object: services parse them, and refuse the whole dialog if they cannot."""
    try:
        arguments = pydantic_core.from_json(object_text(text))
    except ValueError:
        arguments = None
    return (
        object_text(text)
        if isinstance(arguments, dict)
        else pydantic_core.to_json({"invalid_arguments": text}).decode()
    )


def with_system_text(messages: Sequence[Message], words: str) -> list[Message]:
    """Return the messages with these words appended to the system message, or as a new one."""
    if not messages or messages[0].role != "system":
        return [Message.of("system", words), *messages]
    first = messages[0]
    gap = "\n\n" if first.parts and first.parts != (Text(""),) else ""
    return [Message(role="system", parts=(*first.parts, Text(gap + words))), *messages[1:]]


def text_or_none(value: Any) -> str | None:
    """Return ``value`` if it is a text that is not empty, otherwise None."""
    return value if isinstance(value, str) and value else None


def first_count(*values: Any) -> int | None:
    """Return the first value that is a count; None if none is."""
    return next((count for count in map(count_or_none, values) if count is not None), None)


def count_or_none(value: Any) -> int | None:
    """Return a count of tokens, which some services write as a float; None: not a count."""
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def token_logprobs(entries: Any) -> Iterator[TokenLogprob]:
    """Yield the tokens of a list of log probabilities; invalid entries are skipped."""
    for entry in entries if isinstance(entries, list) else ():
        if (likely := likely_token(entry, "logprob")) is None:
            continue
        top = entry.get("top_logprobs")
        others = [likely_token(other, "logprob") for other in top] if isinstance(top, list) else ()
        yield TokenLogprob(*likely, tuple([other for other in others if other is not None]))


def likely_token(entry: Any, name: str) -> tuple[str, float] | None:
    """Return a token and its log probability, which is the entry's field of this name; None: it is invalid."""
    if not isinstance(entry, dict):
        return None
    token, logprob = entry.get("token"), entry.get(name)
    if not isinstance(token, str) or not isinstance(logprob, int | float) or abs(logprob) > MAX_LOGPROB:
        return None
    return token, float(logprob)
