"""What must hold of every codec, ours or a stranger's?

Each ``check_…`` takes a codec, or a `Dialect`: a codec with a way to say a turn in its wire.  They raise an
`AssertionError` when the codec breaks its protocol (`fsm_agent.providers.codec.Codec`), and know nothing of any wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal, Protocol

from hypothesis import strategies as st

from fsm_agent.errors import ErrorReport, ProviderError
from fsm_agent.messages.event import (
    ArgumentsDelta,
    Delta,
    FunctionCallCompleted,
    FunctionCallStarted,
    ReasoningDelta,
    TextDelta,
    UsageReported,
)
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.providers.codec import Codec, EventStream, ServerEvent
from support.growing import growth

# What a stream comes to


@dataclass(frozen=True)
class Outcome:
    """What a stream comes to: its deltas, and a reply or an error."""

    deltas: list[Delta]
    reply: Reply | None = None
    error: ErrorReport | None = None

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)  # nan is not equal to itself

    def joined(self) -> dict[Any, str]:
        """Return the deltas put together: the text, the reasoning, and the arguments of each call by its index."""
        texts: dict[Any, list[str]] = {}
        for delta in self.deltas:
            if isinstance(delta, TextDelta | ReasoningDelta):
                texts.setdefault(type(delta), []).append(delta.text)
            elif isinstance(delta, ArgumentsDelta):
                texts.setdefault(delta.index, []).append(delta.text)
        return {key: "".join(pieces) for key, pieces in texts.items()}


def outcome(codec: Codec, body: bytes, cuts: Sequence[int] = ()) -> Outcome:
    """Feed a stream in pieces of these sizes, and the rest at once, as a client does."""
    decoder, deltas, start = codec.decoder({}), list[Delta](), 0
    for size in [*cuts, len(body)]:
        deltas += decoder.feed(body[start : start + size])
        start += size
        if decoder.has_failed:
            break
    deltas += decoder.end()
    try:
        return Outcome(deltas, reply=decoder.finish())
    except ProviderError as error:
        return Outcome(deltas, error=error.report())


def read(codec: Codec, body: bytes, piece: int = 0) -> tuple[Reply, list[Delta]]:
    """Return the reply in a stream that is fed in pieces of so many bytes, or at once, and the deltas."""
    decoder, deltas = codec.decoder({}), list[Delta]()
    size = piece or len(body) or 1
    for start in range(0, len(body), size):
        deltas += decoder.feed(body[start : start + size])
    return decoder.finish(), deltas


def unsaid(reply: Reply, deltas: Sequence[Delta]) -> str | None:
    """Return how the deltas differ from the reply that they announced; None when they do not."""
    calls, joined = reply.message.function_calls, Outcome([*deltas]).joined()
    told = (
        joined.pop(TextDelta, ""),
        joined.pop(ReasoningDelta, ""),
        [(delta.index, delta.name) for delta in deltas if isinstance(delta, FunctionCallStarted)],
        joined,
        [delta.usage for delta in deltas if isinstance(delta, UsageReported)][-1:],
    )
    said = (
        reply.message.text,
        reply.message.reasoning,
        [(index, call.name) for index, call in enumerate(calls)],
        {index: call.arguments_json for index, call in enumerate(calls) if call.arguments_json},
        [reply.usage] if reply.usage != UNUSED else [],
    )
    if told != said:
        return f"the deltas say {told!r}, the reply {said!r}"
    places = {(type(delta), getattr(delta, "index", None)): place for place, delta in enumerate(deltas)}  # the last
    for index in range(len(calls)):
        started, completed = (places.get((kind, index), -1) for kind in (FunctionCallStarted, FunctionCallCompleted))
        if not started <= places.get((ArgumentsDelta, index), started) < completed:
            return f"call {index} is not completed behind its last piece: {deltas!r}"
    return None


# How the bytes of a stream may look


@dataclass(frozen=True)
class Framing:
    """A way to put events into a stream."""

    newline: bytes = b"\n"
    mark: bytes = b""  # a byte order mark
    comment: bytes | None = None  # a comment before each event
    other: bytes | None = None  # a line with another field in each event
    space: bytes = b" "  # behind the colon
    splits: bool = False  # the data of an event stands in two lines
    is_closed: bool = True  # a blank line ends the last event


FRAMINGS = st.builds(
    Framing,
    newline=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    comment=st.none() | st.sampled_from([b": ping", b":", b": data: {}"]),
    other=st.none() | st.sampled_from([b"id: 7", b"retry: 1000", b"nonsense"]),
    space=st.sampled_from([b" ", b""]),
    splits=st.booleans(),
    is_closed=st.booleans(),
)
CUTS = st.lists(st.integers(1, 40), max_size=12) | st.integers(1, 9).map(lambda size: [size] * 4000)


def framed(events: Sequence[ServerEvent], framing: Framing = Framing()) -> bytes:
    """Return the stream of these events."""
    end = framing.newline
    blocks = []
    for event, data in events:
        lines = [b"event:" + framing.space + event.encode()] if event else []
        lines += [framing.other] if framing.other else []
        # JSON may be split where it may hold a blank.
        parts = [data[:1], data[1:]] if framing.splits and data.startswith(b"{") else data.split(b"\n")
        lines += [b"data:" + framing.space + part for part in parts]
        comment = [framing.comment, b""] if framing.comment is not None else []
        blocks.append(end.join([*comment, *lines]) + end)
    return framing.mark + end.join(blocks) + (end if framing.is_closed else b"")


def events_of(body: bytes) -> list[ServerEvent]:
    """Return the events of a recorded stream."""
    stream = EventStream()
    return [*stream.feed(body), *stream.finish()]


# What a model may say in a turn, in no wire's words


@dataclass(frozen=True)
class Said:
    """A part of a turn, in pieces as a service may cut it: between any two units of UTF-16."""

    kind: Literal["text", "reasoning", "call"]
    pieces: Sequence[str]
    name: str = ""
    id: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return valid("".join(self.pieces))


@dataclass(frozen=True)
class Turn:
    """A turn of a model."""

    parts: Sequence[Said]
    usage: Usage = field(default_factory=lambda: Usage(input_tokens=7, output_tokens=3))

    def calls(self) -> list[Said]:
        """Return the function calls."""
        return [part for part in self.parts if part.kind == "call"]

    def said(self, kind: str) -> str:
        """Return all of a kind."""
        return "".join([part.text for part in self.parts if part.kind == kind])


class Dialect(Protocol):
    """A codec, and how its wire says things."""

    codec: Codec
    can_mix: bool  # the pieces of parallel calls may come in turns

    def turn(self, turn: Turn, *, mixed: bool) -> list[ServerEvent]:
        """Return the events of a whole stream; with ``mixed`` calls that stand together come piece by piece in turns.

        All that the wire can tell of a part or its end is told.  Behind the last event nothing is missing.
        """

    def error(self, message: str) -> ServerEvent:
        """Return an event that reports an error."""


def valid(text: str) -> str:
    """Return a text without halves of surrogate pairs, but for those that make a pair."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def units(text: str) -> list[str]:
    """Return the UTF-16 units of a text, of which some are halves of pairs."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return [raw[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(raw), 2)]


def mixed_pieces(calls: Sequence[Said]) -> Iterator[tuple[int, str]]:
    """Yield the pieces of several calls in turns, each with the call's index."""
    for row in zip_longest(*[call.pieces for call in calls]):
        yield from [(index, piece) for index, piece in enumerate(row) if piece is not None]


def _pieces(text: str, sizes: Sequence[int]) -> list[str]:
    left, pieces = units(text), []
    for size in sizes:
        pieces.append("".join(left[:size]))
        left = left[size:]
    return [piece for piece in [*pieces, "".join(left)] if piece]


LETTERS = st.sampled_from([*'ab \n"\\{}é漢\u2028\u0085\ufeff', "😀", "𝄞", "data: ", "\r"])
TEXTS = st.lists(LETTERS, min_size=1, max_size=8).map("".join)
SIZES = st.lists(st.integers(1, 3), max_size=8)
WORDS = st.builds(
    lambda kind, text, sizes: Said(kind, _pieces(text, sizes)), st.sampled_from(["text", "reasoning"]), TEXTS, SIZES
)
HALVES = st.sampled_from([*"a ", "\ud83d", "\ude00", "😀"])
BROKEN = st.lists(st.lists(HALVES, min_size=1, max_size=3).map("".join), min_size=1, max_size=6)


def _call(number: int, text: str, sizes: Sequence[int]) -> Said:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return Said("call", _pieces(f'{{"a":"{escaped}"}}', sizes), f"f{number}", f"call_{number}")


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """Draw a turn: words, then perhaps calls."""
    words = draw(st.lists(WORDS, max_size=4))
    calls = [_call(number, draw(TEXTS), draw(SIZES)) for number in range(draw(st.integers(0, 3)))]
    return Turn([*words, *calls] or [Said("text", ["hi"])])


# The checks


def check_turn(dialect: Dialect, turn: Turn, *, mixed: bool) -> None:
    """What is said is what is read, and the deltas say it too."""
    found = outcome(dialect.codec, framed(dialect.turn(turn, mixed=mixed and dialect.can_mix)))
    assert found.reply is not None, found.error
    message = found.reply.message
    assert (message.text, message.reasoning) == (turn.said("text"), turn.said("reasoning"))
    assert [(call.name, call.provider_id) for call in message.function_calls] == [
        (call.name, call.id) for call in turn.calls()
    ]
    assert [call.arguments_json for call in message.function_calls] == [call.text for call in turn.calls()]
    assert found.reply.usage == turn.usage
    assert unsaid(found.reply, found.deltas) is None


def check_one_by_one(dialect: Dialect, turn: Turn) -> None:
    """Of calls that come one after the other, each is complete before the next one begins."""
    found = outcome(dialect.codec, framed(dialect.turn(turn, mixed=False)))
    order = [delta for delta in found.deltas if isinstance(delta, FunctionCallStarted | FunctionCallCompleted)]
    assert [(type(delta), delta.index) for delta in order] == [
        (kind, index) for index in range(len(turn.calls())) for kind in (FunctionCallStarted, FunctionCallCompleted)
    ]


def check_halves(dialect: Dialect, kind: Literal["text", "reasoning", "call"], pieces: Sequence[str]) -> None:
    """Halves of one part that make a pair are joined, whatever piece they came in; others are U+FFFD."""
    part = Said("call", ['{"a":"', *pieces, '"}'], "f", "call_1") if kind == "call" else Said(kind, pieces)
    found = outcome(dialect.codec, framed(dialect.turn(Turn([part]), mixed=False)))
    assert found.reply is not None, found.error
    assert set(found.joined().values()) == {part.text}
    assert unsaid(found.reply, found.deltas) is None
    assert type(found.reply.message.text) is str


def check_framing(codec: Codec, events: Sequence[ServerEvent], framing: Framing, cuts: Sequence[int]) -> None:
    """The same events come to the same, however they are framed and their bytes are cut."""
    assert outcome(codec, framed(events, framing), cuts) == outcome(codec, framed(events))


def check_failure(dialect: Dialect, turn: Turn, at: int, framing: Framing, cuts: Sequence[int]) -> None:
    """An error in the middle of a stream takes nothing from what came before it, and nothing comes behind it."""
    events = dialect.turn(turn, mixed=False)
    at %= len(events)
    before = dialect.codec.decoder({}).feed(framed(events[:at]))
    found = outcome(dialect.codec, framed([*events[:at], dialect.error("no, never"), *events[at:]], framing), cuts)
    assert found.deltas == before
    assert found.error is not None
    assert "no, never" in found.error.message


def check_break(dialect: Dialect, turn: Turn, at: int, cuts: Sequence[int]) -> None:
    """A stream that breaks off is no reply, or all of it; and what it told before is what the whole one tells."""
    body = framed(dialect.turn(turn, mixed=False))
    at %= len(body)
    whole, found = outcome(dialect.codec, body), outcome(dialect.codec, body[:at], cuts)
    assert found == outcome(dialect.codec, body[:at])
    for key, text in found.joined().items():
        assert whole.joined()[key].startswith(text.removesuffix("\ufffd"))
    if found.reply is None:
        assert found.error is not None
        assert found.error.retryable
        return
    assert whole.reply is not None
    assert found.reply.message == whole.reply.message
    assert unsaid(found.reply, found.deltas) is None
    assert found.reply.usage == whole.reply.usage or found.reply.adapted


def check_any_stream(codec: Codec, body: bytes, cuts: Sequence[int]) -> None:
    """Any bytes are a reply or a provider's error, the same however they are cut."""
    assert outcome(codec, body, cuts) == outcome(codec, body)


def check_told(codec: Codec, body: bytes) -> None:
    """What a stream comes to, if it comes to a reply, is what its deltas say."""
    found = outcome(codec, body)
    if found.reply and found.deltas:  # a body that is no stream has none
        assert unsaid(found.reply, found.deltas) is None


def check_linear(
    codec: Codec, text: Callable[[int], str], size: int, then: Callable[[Reply], object] | None = None
) -> None:
    """A stream that grows is read in time that grows no faster.

    Args:
        codec: Reads it.
        text: The stream of a size.
        size: The smallest; the largest is eight times it.
        then: What is done with the reply, also in linear time.
    """

    def feed(text: str) -> None:
        decoder, body = codec.decoder({}), text.encode()
        for start in range(0, len(body), 4096):
            decoder.feed(body[start : start + 4096])
        with suppress(ProviderError):
            reply = decoder.finish()
            if then is not None:
                then(reply)

    assert growth(text, feed, size) < 3


def check_any_body(codec: Codec, status: int, body: bytes) -> None:
    """Any whole response is a reply or a provider's error of its status."""
    try:
        found: Reply | int | None = codec.decode(status, {}, body)
    except ProviderError as error:
        found = error.status
    assert found == status or isinstance(found, Reply)
