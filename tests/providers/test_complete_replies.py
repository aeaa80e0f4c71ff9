"""Is it known where the JSON of a reply ends, and what is none?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from conformance.codec_conformance import check_any_stream
from conformance.streams import read
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.errors import BadReply, Overloaded, ProviderError
from fsm_agent.lifecycle import Request
from fsm_agent.messages import Delta, Reply, TextDelta, Usage, UsageReported
from fsm_agent.messages.reply import UNUSED
from fsm_agent.providers import JsonCodec, OpenAIChat, Profile
from fsm_agent.providers.codec import ChunkDecoder
from fsm_agent.providers.encoding import AFRESH, Encoding
from fsm_agent.providers.failures import reported, unreadable
from fsm_agent.providers.streams import MAX_EVENT_BYTES, CutText


class Words:
    """A reply of the smallest wire: each chunk is a word, the last one is false."""

    def __init__(self) -> None:
        self.is_ended = False
        self.usage = UNUSED
        self.words: list[str] = []

    def take(self, chunk: Any) -> list[Delta]:
        if isinstance(chunk, dict):
            raise reported(chunk, {})
        self.is_ended = self.is_ended or chunk is False
        if isinstance(chunk, str):
            self.words.append(chunk)
        return [TextDelta(chunk)] if isinstance(chunk, str) else []

    def take_whole(self, document: Any) -> None:
        for chunk in document if isinstance(document, list) else [document]:
            self.take(chunk)

    def end(self, *, is_cut: bool) -> list[Delta]:
        return [TextDelta("…")] if is_cut else []

    def finished(self) -> Reply:
        if not self.words:
            raise unreadable("there is no answer in the reply", {})
        return Reply.of("".join(self.words))


class Wire(JsonCodec):
    """The codec of that wire; a whole body is all its chunks in one list."""

    name = "words"

    def path(self, model: str, *, stream: bool) -> str:
        return "/words"

    def headers(self, api_key: str | None) -> dict[str, str]:
        return {}

    def encode(
        self, request: Request, *, model: str, profile: Profile, stream: bool, encoding: Encoding = AFRESH
    ) -> dict[str, Any]:
        return {}

    def reply_parts(self, headers: Mapping[str, str]) -> Words:
        return Words()


def streamed(body: bytes, piece: int = 0) -> tuple[Reply, list[Delta]]:
    """The reply in a stream that is fed in pieces of so many bytes, or at once; and the deltas."""
    return read(Wire(), body, piece)


HI = b'data: "h"\n\ndata: "\xc3\xa9"\n\n'
END = b"data: false\n\n"


@pytest.mark.parametrize(
    "body",
    [
        HI + END,
        HI + END[:-2],
        HI + b"data: [DONE]\n\n",
        HI + b"data: [DONE]",
        (HI + END).replace(b"\n", b"\r\n"),
        b": ping\n\nevent: word\n" + HI + b"data:\n\n" + END,
        HI + END + b'data: {"err',
        HI + b'data: [DONE]\n\ndata: {"error": "after the end"}\n\n',
        b'["h", "\xc3\xa9", false]',
        b"\xef\xbb\xbf" + HI + END,
    ],
)
def test_stream_is_complete(body: bytes) -> None:
    reply, deltas = streamed(body)
    assert reply.message.text == "hé"
    assert streamed(body, 1) == (reply, deltas)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (HI, "cut off"),
        (HI + b'data: "x', "cut off"),
        (b"", "cut off"),
        (b": ping\n\n", "cut off"),
        (b"Internal Server Error", "cut off"),
        (END, "no answer"),
        (b"data: [DONE]\n\n", "no answer"),
        (HI + b"data: what\n\n" + END, "a chunk of the stream is no JSON: 'what'"),
        (b"<html><title>502 Bad Gateway</title></html>", "no JSON: '502 Bad Gateway'"),
        (b'["h", ', "no JSON"),
    ],
)
def test_stream_that_is_cut_or_empty_is_no_reply(body: bytes, problem: str) -> None:
    for piece in (0, 1):
        with pytest.raises(BadReply, match=problem) as caught:
            streamed(body, piece)
        assert caught.value.retryable


ERROR = b'{"error": {"message": "no", "code": 503}}'


@pytest.mark.parametrize(
    "body",
    [
        HI + b"data: " + ERROR + b"\n\n" + END,
        HI + b"data: " + ERROR,
        HI + b"event: error\ndata: " + ERROR + b"\n\n",
        HI + b"event: error\ndata: no\n\n",
        HI + b"error: no\n\n",
        ERROR,
    ],
)
def test_failure_inside_a_stream_is_raised(body: bytes) -> None:
    for piece in (0, 1):
        with pytest.raises(Overloaded, match=r"^no "):
            streamed(body, piece)


def test_failed_stream_tells_what_came_before_and_has_no_reply() -> None:
    decoder = Wire().decoder({})
    assert decoder.feed(HI + b"data: " + ERROR + b"\n\n" + HI) == [TextDelta("h"), TextDelta("é")]
    assert decoder.has_failed
    assert decoder.feed(HI + END) == decoder.end() == []
    with pytest.raises(ProviderError, match=r"^no "):
        decoder.finish()


def test_event_that_is_too_long_takes_nothing_from_what_came_before() -> None:
    decoder = Wire().decoder({})
    assert decoder.feed(HI + b"data: " + b"x" * MAX_EVENT_BYTES + b"\n\n") == [TextDelta("h"), TextDelta("é")]
    with pytest.raises(BadReply, match="longer than"):
        decoder.finish()


@pytest.mark.parametrize("end", [b"data: false", b"data: false\n", b"data: false\n\n"])
def test_what_the_end_of_the_bytes_adds_is_told(end: bytes) -> None:
    decoder = Wire().decoder({})
    told = decoder.feed(HI + b'data: "!"\n\n' + end)
    assert [*told, *decoder.end()] == [TextDelta(word) for word in "hé!…"]
    assert decoder.end() == []
    done = Wire().decoder({})
    assert [*done.feed(HI + b"data: [DONE]"), *done.end()] == [TextDelta(word) for word in "hé"]
    assert done.is_done
    cut = Wire().decoder({})
    assert [*cut.feed(HI), *cut.end()] == [TextDelta(word) for word in "hé"]


def test_usage_is_told_when_it_changes() -> None:
    reply = Words()
    decoder, one, two = ChunkDecoder(Wire(), reply, {}), Usage(input_tokens=1), Usage(input_tokens=2)
    reply.usage = one
    assert decoder.feed(HI) == [TextDelta("h"), UsageReported(one), TextDelta("é")]
    reply.usage = two
    assert decoder.feed(HI) == [TextDelta("h"), UsageReported(two), TextDelta("é")]


def test_halves_of_a_pair_are_the_collectors_to_join() -> None:
    decoder = Wire().decoder({})
    (delta,) = decoder.feed(b'data: "a \\ud83d"\n\n')
    assert delta == TextDelta("a \ufffd")
    assert isinstance(delta.text, CutText)


def test_no_half_of_a_pair_stays_in_a_reply() -> None:
    body = b'data: {"id": "a\\ud83d", "choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\n'
    reply, _ = read(OpenAIChat(), body)
    assert (reply.response_id, type(reply.response_id)) == ("a\ufffd", str)


@pytest.mark.parametrize(
    "body", [b'["h", "\xc3\xa9"]', b"\n" + HI + END, b": ping\n\n" + HI + END, b"event: x\n" + HI + END]
)
def test_whole_body_is_read_even_if_it_was_streamed(body: bytes) -> None:
    assert Wire().decode(200, {}, body).message.text == "hé"


@pytest.mark.parametrize(
    ("status", "body", "kind", "problem"),
    [
        (503, ERROR, Overloaded, "^no "),
        (302, b"", ProviderError, "HTTP 302"),
        (200, ERROR, Overloaded, "^no "),
        (200, b"", BadReply, "the reply is no JSON"),
        (200, b"hello", BadReply, "the reply is no JSON: 'hello'"),
        (200, b"<html><title>Sign in</title></html>", BadReply, "no JSON: 'Sign in'"),
        (200, b"[", BadReply, "the reply is no JSON"),
        (200, b"[]", BadReply, "no answer"),
        (200, HI, BadReply, "cut off"),
    ],
)
def test_whole_body_that_is_no_reply_is_an_error(
    status: int, body: bytes, kind: type[ProviderError], problem: str
) -> None:
    with pytest.raises(kind, match=problem):
        Wire().decode(status, {}, body)


def test_deltas_come_when_their_chunk_is_complete() -> None:
    decoder = Wire().decoder({})
    assert decoder.feed(b'data: "h"\n') == []
    assert decoder.feed(b'\ndata: "i"\n\ndata: "!"') == [TextDelta("h"), TextDelta("i")]
    assert decoder.feed(b"\n\n" + END) == [TextDelta("!")]
    assert decoder.finish().message.text == "hi!"


@given(
    body=st.binary(max_size=60) | st.binary(max_size=20).map(lambda said: HI + said + END),
    cuts=st.lists(st.integers(1, 9)),
)
def test_any_bytes_are_a_reply_or_a_provider_error(body: bytes, cuts: list[int]) -> None:
    check_any_stream(Wire(), body, cuts)


@pytest.mark.parametrize(
    "body", [b"upstream timed out", b": ping\n\nupstream timed out\nfor good\n\n", b"upstream timed out\r\n"]
)
def test_the_error_of_what_is_no_stream_shows_it(body: bytes) -> None:
    with pytest.raises(BadReply, match="cut off before the end of the reply: 'upstream timed out'"):
        read(Wire(), body, 3)
