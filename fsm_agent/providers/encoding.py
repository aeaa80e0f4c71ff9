"""How is what was encoded for one request not encoded again for the next?

A dialog grows at its end, so each request says again what the one before said.  A codec encodes a dialog message by
message, with a `DialogEncoder` that knows what came before.  `Once` keeps with each message the JSON that it added,
and behind which others it did so: they are told apart by identity, so nothing is ever taken from another dialog, model
or provider.  The encoder itself stays with the newest message and goes on from there.  A dialog that is the same only
up to some message (a fork, a window, a result that is masked now) is fed again up to there, and written from there on.
Nothing here holds a message or is held by anything else: it is gone when the messages are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from fsm_agent._internal.values import Memo, changed, frozen
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Message, Opaque

_NESTED = frozenset({dict, list})
_SHORT = 50  # characters

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class DialogEncoder(Protocol[T_co]):
    """Encodes the messages of one dialog, in order."""

    def feed(self, message: Message) -> list[Any]:
        """The entries that are whole with this message: nothing that comes later changes them."""

    def finish(self) -> T_co:
        """What stands behind them if nothing follows.  The encoder stays as it is, and can be fed on."""


class Encoding(Protocol):
    """In which way a codec encodes the parts of a request that come again in others."""

    def dialog(
        self, messages: Sequence[Message], make: Callable[..., DialogEncoder[T]], *key: Hashable
    ) -> tuple[list[Any], T]:
        """The entries of ``messages``, and what ``make(*key)`` finishes with.

        ``key`` is all that the encoder knows, beside the messages.
        """

    def value(self, owner: Memo, make: Callable[..., Any], *key: Hashable) -> Any:
        """``make(owner, *key)``."""


@frozen()
class Written:
    """What is JSON already: a value, or some values of a list with commas between them."""

    json: bytes

    @property
    def values(self) -> list[Any]:
        """What it says."""
        read: list[Any] = json.loads(b"[%b]" % self.json)
        return read


class Afresh:
    """Encodes all anew, and leaves it as values: what a request says, for whoever looks at it."""

    def dialog(
        self, messages: Sequence[Message], make: Callable[..., DialogEncoder[T]], *key: Hashable
    ) -> tuple[list[Any], T]:
        """See `Encoding`."""
        encoder = make(*key)
        return [entry for message in messages for entry in encoder.feed(message)], encoder.finish()

    def value(self, owner: Memo, make: Callable[..., Any], *key: Hashable) -> Any:
        """See `Encoding`."""
        return make(owner, *key)


@dataclass(slots=True, eq=False)
class _Place:
    """What a message remembers of its place in a dialog."""

    before: object  # stands for all that came before it, and for who is asked
    json: bytes  # the entries that it made whole
    after: object = field(default_factory=object)  # as `before`, with the message
    encoders: list[DialogEncoder[Any]] = field(default_factory=list)  # one fed up to here, unless it has gone on


class Once:
    """Encodes each message only when it is new, as JSON.  Threads may do so at once: one of them is remembered.

    Args:
        provider: Opaque parts of others are left out: they may speak the same wire, and cannot read them.
    """

    def __init__(self, provider: str = "") -> None:
        self._provider = provider

    def dialog(
        self, messages: Sequence[Message], make: Callable[..., DialogEncoder[T]], *key: Hashable
    ) -> tuple[list[Any], T]:
        """See `Encoding`."""
        now = _beginning(self._provider, make, *key)
        place: _Place | None = None
        whole, new = list[bytes](), list[Message]()
        coming = iter(messages)
        for message in coming:
            there: _Place | None = getattr(message, "memo", None)
            if there is None or there.before is not now:
                new = [message, *coming]
                break
            place, now = there, there.after
            whole.append(there.json)
        encoder = _taken(place)
        if encoder is None:
            encoder = make(*key)
            for message in messages[: len(whole)]:
                encoder.feed(self._readable(message))
        for message in new:
            place = _Place(now, b",".join(map(_json, encoder.feed(self._readable(message)))))
            message.remember(place)
            now = place.after
            whole.append(place.json)
        end = encoder.finish()
        if place is not None and not place.encoders:
            place.encoders.append(encoder)
        entries = b",".join(filter(None, whole))
        return [Written(entries)] if entries else [], end

    def value(self, owner: Memo, make: Callable[..., Any], *key: Hashable) -> Any:
        """See `Encoding`."""
        return kept(owner, _value, make, *key)

    def _readable(self, message: Message) -> Message:
        """The message without opaque parts of other providers."""
        for part in message.parts:
            if isinstance(part, Opaque) and self._is_foreign(part):
                return changed(message, parts=tuple([part for part in message.parts if not self._is_foreign(part)]))
        return message

    def _is_foreign(self, part: Any) -> bool:
        return isinstance(part, Opaque) and part.provider is not None and part.provider != self._provider


AFRESH = Afresh()


def kept(owner: Memo, make: Callable[..., T], *key: Hashable) -> T:
    """``make(owner, *key)``, which ``owner`` keeps; of keys there are few."""
    memo: dict[Hashable, T] | None = getattr(owner, "memo", None)
    if memo is None:
        owner.remember(memo := {})
    known = make, *key
    if known not in memo:
        memo[known] = make(owner, *key)
    return memo[known]


def _value(owner: Memo, make: Callable[..., Any], *key: Hashable) -> Written:
    return Written(_json(make(owner, *key)))


@lru_cache(maxsize=256)
def _beginning(*key: Hashable) -> object:
    """What stands for a dialog of no messages: one for each provider, model, … that is asked."""
    return object()


def _taken(place: _Place | None) -> DialogEncoder[Any] | None:
    """The encoder that waits there, for nobody else."""
    try:
        return place.encoders.pop() if place is not None else None
    except IndexError:
        return None


def as_json(body: Mapping[str, Any]) -> bytes:
    """A request as JSON; half a surrogate pair becomes "?".

    Raises:
        UsageError: It holds what JSON cannot say.
    """
    return b"{%b}" % b",".join([b"%b:%b" % (_short(name), _written(value)) for name, value in body.items()])


def _written(value: Any) -> bytes:
    kind = type(value)
    if kind is Written:
        written: bytes = value.json
        return written
    if kind is str and len(value) <= _SHORT:
        return _short(value)
    if kind is list and _hold_written(value):
        return b"[%b]" % b",".join([_written(item) for item in value])
    return as_json(value) if kind is dict and _hold_written(value.values()) else _json(value)


def _hold_written(values: Collection[Any]) -> bool:
    kinds = set(map(type, values))
    if Written in kinds or kinds.isdisjoint(_NESTED):
        return Written in kinds
    nested = [item for item in values if type(item) in _NESTED]
    return any(_hold_written(item.values() if type(item) is dict else item) for item in nested)


def _json(value: Any) -> bytes:
    try:
        text = _text(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the request cannot be written as JSON: {error}") from error
    return text.encode("utf-8", "replace")


@lru_cache(maxsize=256)
def _short(text: str) -> bytes:
    """`_json` of names: of keys, models, choices, which come in each request."""
    return _json(text)
