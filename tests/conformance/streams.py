"""Streams of server-sent events: written in any framing, and read by a codec as a client reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from fsm_agent.errors import ErrorReport, ProviderError
from fsm_agent.messages import (
    ArgumentsDelta,
    Delta,
    FunctionCallCompleted,
    FunctionCallStarted,
    ReasoningDelta,
    Reply,
    TextDelta,
    Usage,
    UsageReported,
)
from fsm_agent.providers import Codec


class ServerEvent(NamedTuple):
    """One event of a stream.

    Examples:
        >>> ServerEvent("", b"{}").data
        b'{}'
    """

    event: str  # "" for one without a name
    data: bytes


@dataclass(frozen=True)
class Framing:
    """A way to write events as bytes."""

    newline: bytes = b"\n"
    mark: bytes = b""  # a byte order mark
    comment: bytes | None = None  # before each event
    other: bytes | None = None  # a line with another field in each event
    space: bytes = b" "  # behind the colon
    splits: bool = False  # the data of an event is in two lines
    is_closed: bool = True  # a blank line ends the last event


def framed(events: Sequence[tuple[str, bytes]], framing: Framing = Framing()) -> bytes:
    """Return the stream of these events.

    Examples:
        >>> framed([ServerEvent("", b'{"a": 1}')]).splitlines()
        [b'data: {"a": 1}', b'']
    """
    end = framing.newline
    blocks = []
    for event, data in events:
        lines = [b"event:" + framing.space + event.encode()] if event else []
        lines += [framing.other] if framing.other else []
        # JSON may be split where it may contain a blank.
        parts = [data[:1], data[1:]] if framing.splits and data.startswith(b"{") else data.split(b"\n")
        lines += [b"data:" + framing.space + part for part in parts]
        comment = [framing.comment, b""] if framing.comment is not None else []
        blocks.append(end.join([*comment, *lines]) + end)
    return framing.mark + end.join(blocks) + (end if framing.is_closed else b"")


def events_of(body: bytes) -> list[ServerEvent]:
    """Return the events of a recorded stream, which has a name and one line of data for each."""
    events, name = list[ServerEvent](), ""
    for line in [*body.splitlines(), b""]:
        field, _, value = line.partition(b":")
        if field == b"data":
            events.append(ServerEvent(name, value.removeprefix(b" ")))
        name = value.strip().decode() if field == b"event" else name if line else ""
    return events


@dataclass(frozen=True)
class StreamOutcome:
    """The outcome of a stream: its deltas, and a reply or an error."""

    deltas: list[Delta]
    reply: Reply | None = None
    error: ErrorReport | None = None

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)  # nan is not equal to itself

    def joined(self) -> dict[Any, str]:
        """Return the deltas joined: the text, the reasoning, and the arguments of each call by its index."""
        texts: dict[Any, list[str]] = {}
        for delta in self.deltas:
            if isinstance(delta, TextDelta | ReasoningDelta):
                texts.setdefault(type(delta), []).append(delta.text)
            elif isinstance(delta, ArgumentsDelta):
                texts.setdefault(delta.index, []).append(delta.text)
        return {key: "".join(pieces) for key, pieces in texts.items()}


def outcome(codec: Codec, body: bytes, cuts: Sequence[int] = ()) -> StreamOutcome:
    """Feed a stream in pieces of these sizes, and the rest at once, as a client does."""
    decoder, deltas, start = codec.decoder({}), list[Delta](), 0
    for size in [*cuts, len(body)]:
        deltas += decoder.feed(body[start : start + size])
        start += size
        if decoder.has_failed:
            break
    deltas += decoder.end()
    try:
        return StreamOutcome(deltas, reply=decoder.finish())
    except ProviderError as error:
        return StreamOutcome(deltas, error=error.report())


def read(codec: Codec, body: bytes, piece: int = 0) -> tuple[Reply, list[Delta]]:
    """Return the reply of a stream and its deltas, fed in pieces of this many bytes or at once."""
    decoder, deltas = codec.decoder({}), list[Delta]()
    size = piece or len(body) or 1
    for start in range(0, len(body), size):
        deltas += decoder.feed(body[start : start + size])
    return decoder.finish(), deltas


def _is_surrounded(pieces: str, arguments: str) -> bool:
    """Return whether pieces are the arguments among placeholders and repetitions, which no stream can take back."""
    said: list[Any] = []
    with suppress(ValueError):
        while pieces := pieces.strip():
            value, end = json.JSONDecoder(strict=False).raw_decode(pieces)
            said.append(value)
            pieces = pieces[end:]
        return len(said) > 1 and all(value in (None, {}, "", json.loads(arguments)) for value in said)
    return False


def mismatch(reply: Reply, deltas: Sequence[Delta]) -> str | None:
    """Return how the deltas differ from the reply that they announced, or None."""
    calls, joined = reply.message.function_calls, StreamOutcome([*deltas]).joined()
    for index, call in enumerate(calls):
        if index in joined and _is_surrounded(joined[index], call.arguments_json):
            joined[index] = call.arguments_json
    announced = (
        joined.pop(TextDelta, ""),
        joined.pop(ReasoningDelta, ""),
        [(delta.index, delta.name) for delta in deltas if isinstance(delta, FunctionCallStarted)],
        joined,
        [delta.usage for delta in deltas if isinstance(delta, UsageReported)][-1:],
    )
    contained = (
        reply.message.text,
        reply.message.reasoning,
        [(index, call.name) for index, call in enumerate(calls)],
        {index: call.arguments_json for index, call in enumerate(calls) if call.arguments_json},
        [reply.usage] if reply.usage != Usage() else [],
    )
    if announced != contained:
        return f"the deltas are {announced!r}, the reply is {contained!r}"
    last_positions = {
        (type(delta), getattr(delta, "index", None)): position for position, delta in enumerate(deltas)
    }  # the last
    for index in range(len(calls)):
        started, completed = (
            last_positions.get((kind, index), -1) for kind in (FunctionCallStarted, FunctionCallCompleted)
        )
        if not started <= last_positions.get((ArgumentsDelta, index), started) < completed:
            return f"call {index} is not completed behind its last piece: {deltas!r}"
    return None
