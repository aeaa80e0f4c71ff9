"""The JSON of requests, in which each message of a dialog is encoded once.

A dialog grows at its end, so each request repeats the previous one.  If each message were encoded for each request, the
requests of a call of 2,000 rounds would take 39 seconds of a processor rather than 3.4, and those of 200 rounds 0.36
rather than 0.03 (November 2026).  So a codec encodes a dialog message by message, with a `DialogEncoder` that has seen
the earlier messages.  Each message keeps the JSON that it added, and the identity of the messages before it, so that no
other dialog, model or provider reuses it.  The encoder itself is kept on the newest message and continues from there.
If a dialog matches only up to some message (a fork, a window, a newly masked result), a new encoder is fed up to that
message and encodes the rest.  What is kept references no message, and only messages reference it: they are freed
together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Message, Opaque

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


class Encoded:
    """Encoded JSON: a value, or some values of a list with commas between them."""

    __slots__ = ("json",)

    def __init__(self, json: bytes) -> None:
        self.json = json

    @property
    def values(self) -> list[Any]:
        """The decoded values."""
        read: list[Any] = json.loads(b"[%b]" % self.json)
        return read


class DialogEncoder(Protocol[T_co]):
    """Encodes the messages of one dialog, in order."""

    def feed(self, message: Message) -> list[Any]:
        """Return the entries that this message completes: later messages do not change them."""

    def finish(self) -> T_co:
        """Return what follows the entries at the end of the dialog.  The encoder can be fed further."""


class _Memo:
    """What a message keeps of its place in a dialog.

    Args:
        before: Represents all messages before it, and provider and model.
        json: The entries that the message completed.
    """

    __slots__ = ("after", "before", "encoders", "json")

    def __init__(self, before: object, json: bytes) -> None:
        self.before = before
        self.json = json
        self.after = object()  # identifies the messages up to this one; `before` of the next
        self.encoders: list[DialogEncoder[Any]] = []  # at most one, which has been fed up to here


def encode_dialog(
    messages: Sequence[Message], provider: str, make: Callable[..., DialogEncoder[T]], *key: Hashable
) -> tuple[list[Encoded], T]:
    """Return the entries of ``messages``, and the result of finishing ``make(*key)``.

    Thread-safe: if several threads encode a message, one result is kept.

    Args:
        messages: The dialog.
        provider: Opaque parts of other providers are omitted: they may use the same format, but cannot be read here.
        make: Makes an encoder.
        key: Everything else that the encoder depends on.
    """
    now = _beginning(provider, make, *key)
    memo: _Memo | None = None
    whole, new = list[bytes](), list[Message]()
    coming = iter(messages)
    for message in coming:
        candidate: _Memo | None = vars(message).get("memo")
        if candidate is None or candidate.before is not now:
            new = [message, *coming]
            break
        memo, now = candidate, candidate.after
        whole.append(candidate.json)
    encoder = _take_encoder(memo)
    if encoder is None:
        encoder = make(*key)
        for message in messages[: len(whole)]:
            encoder.feed(_readable(message, provider))
    for message in new:
        memo = _Memo(now, b",".join(map(to_json, encoder.feed(_readable(message, provider)))))
        vars(message)["memo"] = memo
        now = memo.after
        whole.append(memo.json)
    end = encoder.finish()
    if memo is not None and not memo.encoders:
        memo.encoders.append(encoder)
    entries = b",".join(filter(None, whole))
    return [Encoded(entries)] if entries else [], end


@lru_cache(maxsize=256)
def _beginning(*key: Hashable) -> object:
    """Return the object that represents the empty dialog of one provider, model, …."""
    return object()


def _take_encoder(memo: _Memo | None) -> DialogEncoder[Any] | None:
    """Remove and return the encoder that a message keeps; None if there is none."""
    try:
        return memo.encoders.pop() if memo is not None else None
    except IndexError:
        return None


def _readable(message: Message, provider: str) -> Message:
    """Return the message without opaque parts of other providers."""
    own = tuple([part for part in message.parts if not isinstance(part, Opaque) or part.provider in (None, provider)])
    return message if len(own) == len(message.parts) else message.changed(parts=own)


def kept(owner: object, make: Callable[..., T], *key: Hashable) -> T:
    """Return ``make(owner, *key)``, kept on ``owner``, a function or an output; there are few keys."""
    memo: dict[Hashable, T] | None = vars(owner).get("memo")
    if memo is None:
        memo = vars(owner)["memo"] = {}
    entry = make, *key
    if entry not in memo:
        memo[entry] = make(owner, *key)
    return memo[entry]


def encoded(owner: object, make: Callable[..., Any], *key: Hashable) -> Encoded:
    """Return ``make(owner, *key)`` as JSON, kept on ``owner``."""
    return kept(owner, _encode, make, *key)


def _encode(owner: object, make: Callable[..., Any], *key: Hashable) -> Encoded:
    return Encoded(to_json(make(owner, *key)))


def array(values: Iterable[Any]) -> Encoded:
    """Return a list as JSON; some of its values are `Encoded` already."""
    return Encoded(b"[%b]" % b",".join(map(to_json, values)))


def to_json(value: Any) -> bytes:
    """Return a value as JSON, or the JSON that it is; half a surrogate pair becomes "?".

    Of an object, values can be `Encoded`; they come last.

    Raises:
        UsageError: It holds a value that JSON cannot represent.
    """
    if type(value) is Encoded:
        return value.json
    pieces = list[bytes]()
    if type(value) is dict:
        pieces = [b'"%b":%b' % (name.encode(), item.json) for name, item in value.items() if type(item) is Encoded]
        value = {name: item for name, item in value.items() if type(item) is not Encoded} if pieces else value
    try:
        text: bytes = _encoder.encode(value).encode("utf-8", "replace")
    except (TypeError, ValueError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error
    return b"{%b}" % b",".join([*filter(None, [text[1:-1]]), *pieces]) if pieces else text
