"""Incremental encoding of requests: the JSON of a message is made once and reused by later requests.

A dialog grows at its end, so each request repeats the previous one.  A codec encodes a dialog message by message, with
a `DialogEncoder` that has seen the earlier messages.  `Once` caches on each message the JSON that it added, and the
identity of the messages before it, so that no other dialog, model or provider reuses it.  The encoder itself is cached
on the newest message and continues from there.  If a dialog matches only up to some message (a fork, a window, a newly
masked result), a new encoder is fed up to that message and encodes the rest.  The caches reference no message, and only
messages reference them: they are freed together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fsm_agent._internal.lazy_import import deferred, first_use
from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Message, Opaque

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

_NESTED = frozenset({dict, list})
_SHORT = 50  # characters

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_encoder = first_use(
    "encoder of JSON", lambda: json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
)


class DialogEncoder(Protocol[T_co]):
    """Encodes the messages of one dialog, in order."""

    def feed(self, message: Message) -> list[Any]:
        """Return the entries that this message completes: later messages do not change them."""

    def finish(self) -> T_co:
        """Return what follows the entries at the end of the dialog.  The encoder can be fed further."""


class Encoding(Protocol):
    """The strategy by which a codec encodes the repeated parts of requests."""

    def dialog(
        self, messages: Sequence[Message], make: Callable[..., DialogEncoder[T]], *key: Hashable
    ) -> tuple[list[Any], T]:
        """Return the entries of ``messages``, and the result of finishing ``make(*key)``.

        ``key`` is everything else that the encoder depends on.
        """

    def value(self, owner: object, make: Callable[..., Any], *key: Hashable) -> Any:
        """Return ``make(owner, *key)``."""


class EncodedJson(Value, frozen=True):
    """Encoded JSON: a value, or some values of a list with commas between them."""

    json: bytes

    @property
    def values(self) -> list[Any]:
        """The decoded values."""
        read: list[Any] = json.loads(b"[%b]" % self.json)
        return read


class Afresh:
    """Encodes everything anew, as values and not as JSON, for inspection."""

    def dialog(
        self, messages: Sequence[Message], make: Callable[..., DialogEncoder[T]], *key: Hashable
    ) -> tuple[list[Any], T]:
        """See `Encoding`."""
        encoder = make(*key)
        return [entry for message in messages for entry in encoder.feed(message)], encoder.finish()

    def value(self, owner: object, make: Callable[..., Any], *key: Hashable) -> Any:
        """See `Encoding`."""
        return make(owner, *key)


class _Position:
    """The memo of a message about its position in a dialog.

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


class Once:
    """Encodes each message once, as JSON.  Thread-safe: if several threads encode a message, one result is kept.

    Args:
        provider: Opaque parts of other providers are omitted: they may use the same format, but cannot be read here.
    """

    def __init__(self, provider: str = "") -> None:
        self._provider = provider

    def dialog(
        self, messages: Sequence[Message], make: Callable[..., DialogEncoder[T]], *key: Hashable
    ) -> tuple[list[Any], T]:
        """See `Encoding`."""
        now = _beginning(self._provider, make, *key)
        position: _Position | None = None
        whole, new = list[bytes](), list[Message]()
        coming = iter(messages)
        for message in coming:
            candidate: _Position | None = vars(message).get("memo")
            if candidate is None or candidate.before is not now:
                new = [message, *coming]
                break
            position, now = candidate, candidate.after
            whole.append(candidate.json)
        encoder = _take_encoder(position)
        if encoder is None:
            encoder = make(*key)
            for message in messages[: len(whole)]:
                encoder.feed(self._readable(message))
        for message in new:
            position = _Position(now, b",".join(map(_json, encoder.feed(self._readable(message)))))
            vars(message)["memo"] = position
            now = position.after
            whole.append(position.json)
        end = encoder.finish()
        if position is not None and not position.encoders:
            position.encoders.append(encoder)
        entries = b",".join(filter(None, whole))
        return [EncodedJson(entries)] if entries else [], end

    def value(self, owner: object, make: Callable[..., Any], *key: Hashable) -> Any:
        """See `Encoding`."""
        return kept(owner, _value, make, *key)

    def _readable(self, message: Message) -> Message:
        """Return the message without opaque parts of other providers."""
        for part in message.parts:
            if isinstance(part, Opaque) and self._is_foreign(part):
                return message.changed(parts=tuple([part for part in message.parts if not self._is_foreign(part)]))
        return message

    def _is_foreign(self, part: Any) -> bool:
        return isinstance(part, Opaque) and part.provider is not None and part.provider != self._provider


AFRESH = Afresh()


def kept(owner: object, make: Callable[..., T], *key: Hashable) -> T:
    """Return ``make(owner, *key)``, cached on ``owner``; there are few keys."""
    memo: dict[Hashable, T] | None = vars(owner).get("memo")
    if memo is None:
        memo = vars(owner)["memo"] = {}
    entry = make, *key
    if entry not in memo:
        memo[entry] = make(owner, *key)
    return memo[entry]


def _value(owner: object, make: Callable[..., Any], *key: Hashable) -> EncodedJson:
    return EncodedJson(_json(make(owner, *key)))


@lru_cache(maxsize=256)
def _beginning(*key: Hashable) -> object:
    """Return the object that represents the empty dialog of one provider, model, …."""
    return object()


def _take_encoder(position: _Position | None) -> DialogEncoder[Any] | None:
    """Remove and return the encoder cached at ``position``; None if there is none."""
    try:
        return position.encoders.pop() if position is not None else None
    except IndexError:
        return None


def as_json(body: Mapping[str, Any]) -> bytes:
    """Return a request as JSON; half a surrogate pair becomes "?".

    Raises:
        UsageError: It holds a value that JSON cannot represent.
    """
    return b"{%b}" % b",".join([b"%b:%b" % (_short(name), _write(value)) for name, value in body.items()])


def _write(value: Any) -> bytes:
    kind = type(value)
    if kind is EncodedJson:
        written: bytes = value.json
        return written
    if kind is str and len(value) <= _SHORT:
        return _short(value)
    if kind is list and _hold_encoded(value):
        return b"[%b]" % b",".join([_write(item) for item in value])
    return as_json(value) if kind is dict and _hold_encoded(value.values()) else _json(value)


def _hold_encoded(values: Collection[Any]) -> bool:
    kinds = set(map(type, values))
    if EncodedJson in kinds or kinds.isdisjoint(_NESTED):
        return EncodedJson in kinds
    nested = [item for item in values if type(item) in _NESTED]
    return any(_hold_encoded(item.values() if type(item) is dict else item) for item in nested)


def _json(value: Any) -> bytes:
    try:
        text = _encoder.encode(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error
    return text.encode("utf-8", "replace")


@lru_cache(maxsize=256)
def _short(text: str) -> bytes:
    """Return `_json` of a short text, from a cache: keys, models and choices repeat in each request."""
    return _json(text)
