"""Is a stream read alike however its bytes arrive, and is it known where the reply in it ends?"""

from __future__ import annotations

import time

import pytest
from conformance.streams import read
from conformance.turns import mended
from hypothesis import given
from hypothesis import strategies as st
from support.chat_bodies import sse

from fsm_agent.errors import BadReply, Overloaded
from fsm_agent.messages import TextDelta
from fsm_agent.providers import OpenAIChatCodec
from fsm_agent.providers.sse import EventStream, read_json

BODIES = {
    "all line ends": (b"data: a\r\n\ndata: b\r\rdata: c\n\r\n", [("", b"a"), ("", b"b"), ("", b"c")]),
    "CRLF inside an event": (b"event: e\r\ndata: a\r\ndata: b\r\n\r\n", [("e", b"a\nb")]),
    "data lines are joined": (b"data: a\ndata:\ndata: b\n\n", [("", b"a\n\nb")]),
    "one space only is no data": (b"data:a\n\ndata:  b\n\n", [("", b"a"), ("", b" b")]),
    "comments": (b": hello\n\n:\ndata: a\n: x\ndata: b\n\n", [("", b"a\nb")]),
    "names": (b"event: one\ndata: a\n\nevent: two\n\ndata: b\n\n", [("one", b"a"), ("", b"b")]),
    "the field error": (b'data: a\n\nerror: {"x":1}\n\n', [("", b"a"), ("error", b'{"x":1}')]),
    "other fields": (b"id: 7\nretry: 5\nnothing\ndata: a\n\n", [("", b"a")]),
    "the last line end is missing": (b"data: a\n\ndata: b", [("", b"a"), ("", b"b")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
    "blanks first": (b"\r\n \n\ndata: a\n\n", [("", b"a")]),
    "line separators of Unicode end no line": (
        "data: a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n\n".encode(),
        [("", "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg".encode())],
    ),
    "a byte order mark that is not first": (b"\n\xef\xbb\xbfdata: a\n\ndata: b\n\n", [("", b"b")]),
    "only half a byte order mark": (b"\xef\xbb", []),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_stream_may_be_cut_anywhere(name: str) -> None:
    body, expected = BODIES[name]
    for place in range(len(body) + 1):
        stream = EventStream()
        found = [event for piece in (body[:place], b"", body[place:]) for event in stream.feed(piece)]
        assert found + stream.finish() == expected, place


@given(
    body=st.lists(st.sampled_from([b"data: ", b"event: e", b"x", b":", b"\r", b"\n", b"\r\n", b"\xef\xbb\xbf", b" "])),
    cuts=st.lists(st.integers(1, 5)),
)
def test_every_cut_gives_the_same_events(body: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(body)
    stream, found, start = EventStream(), [], 0
    for size in cuts:
        found += stream.feed(whole[start : start + size])
        start += size
    found += stream.feed(whole[start:]) + stream.finish()
    once = EventStream()
    assert found == once.feed(whole) + once.finish()
    assert stream.document == once.document


@pytest.mark.parametrize("body", [b'{"a": 1}\n\n', b"\xef\xbb\xbf[1]", b" \n<html>\ndata: x\n\n</html>"])
def test_body_that_is_no_stream_is_kept_whole(body: bytes) -> None:
    for size in (len(body), 1):
        stream = EventStream()
        for start in range(0, len(body), size):
            assert stream.feed(body[start : start + size]) == []
        assert stream.finish() == []
        assert stream.document == body.removeprefix(b"\xef\xbb\xbf").lstrip()


@pytest.mark.parametrize(
    "body",
    [b"data: " + b"x" * 100 + b"\n\n", b"data: xxxxxxxxxx\n" * 10 + b"\n", b": " + b"x" * 100, b"{" + b" " * 100],
    ids=["one line", "many lines", "a comment", "a document"],
)
def test_event_that_is_too_long_is_refused_and_what_came_before_is_there(body: bytes) -> None:
    for size in (1, 7, 1000):
        for before in (b"", b"data: a\n\n: x\ndata: b\n\n"):
            stream = EventStream(max_event_bytes=64)
            whole = before + (body if before == b"" or body[:1] != b"{" else b"data: " + body)
            found = [
                event for start in range(0, len(whole), size) for event in stream.feed(whole[start : start + size])
            ]
            assert [*found, *stream.finish()] == ([("", b"a"), ("", b"b")] if before else [])
            assert isinstance(stream.error, BadReply)


def test_a_line_without_end_is_refused_as_soon_as_it_is_too_long() -> None:
    for begun in (b"", b": ", b"data: ", b"data: x\n", b"event: ", b"{"):
        stream = EventStream(max_event_bytes=64)
        assert stream.feed(begun) == []
        fed = next((fed for fed in range(70) if stream.feed(b"x") or stream.error), None)
        assert fed is not None, begun


@given(
    lines=st.lists(st.sampled_from([b"data: aaaa", b"data: bb", b"event: e", b": cccccccc", b"x" * 13, b"", b""])),
    newline=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(1, 9)),
)
def test_where_an_event_is_too_long_is_the_same_for_every_cut(
    lines: list[bytes], newline: bytes, cuts: list[int]
) -> None:
    whole = newline.join(lines)
    stream, found, start = EventStream(max_event_bytes=12), [], 0
    for size in [*cuts, len(whole)]:
        found += stream.feed(whole[start : start + size])
        start += size
    once = EventStream(max_event_bytes=12)
    assert [*found, *stream.finish()] == [*once.feed(whole), *once.finish()]
    assert bool(stream.error) == bool(once.error)


def test_stream_of_many_short_events_is_not_too_long() -> None:
    stream = EventStream(max_event_bytes=64)
    assert len(stream.feed(b": ping\n\ndata: 0123456789\n\n" * 50)) == 50
    assert stream.error is None


@pytest.mark.nightly
def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    def seconds(count: int) -> float:
        stream, piece, start = EventStream(), b"x" * 16, time.process_time()
        stream.feed(b"data: ")
        for _ in range(count):
            stream.feed(piece)
        assert len(stream.finish()[0].data) == 16 * count
        return time.process_time() - start

    few, many = (min(seconds(count) for _ in range(3)) for count in (5_000, 40_000))
    assert many < 3 * 8 * few


def test_json_of_providers_is_read() -> None:
    for data, value in [
        (b'{"a": [1, 2.5, null, "\\u00e9"]}', {"a": [1, 2.5, None, "é"]}),
        (b'"a\nb\x01"', "a\nb\x01"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'{"a": "\\ude00x"}', {"a": "\ufffdx"}),
        (b'"\xff"', "\ufffd"),
        (b"\xef\xbb\xbf{}", {}),
    ]:
        assert read_json(data) == value


def test_what_is_no_json_is_a_value_error() -> None:
    for data in [b"", b"{}x", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000]:
        with pytest.raises(ValueError):  # noqa: PT011  # any message
            read_json(data)


UNITS = st.sampled_from([*"ab\ufffd", "\ud83d", "\ude00", "😀", "\udbff", "\udc00"])
CHAT = OpenAIChatCodec()


@given(pieces=st.lists(st.lists(UNITS, max_size=3).map("".join), max_size=8))
def test_pieces_are_told_as_soon_as_they_are_certain(pieces: list[str]) -> None:
    decoder, told = CHAT.decoder({}), ""

    def feed(finish: str | None = None, **delta: str) -> str:
        body = sse({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, done=bool(finish))
        return "".join([delta.text for delta in decoder.feed(body) if isinstance(delta, TextDelta)])

    for number, piece in enumerate(pieces):
        told += feed(content=piece)
        so_far = "".join(pieces[: number + 1])
        waits = "\ud800" <= so_far[-1:] <= "\udbff"
        assert told == mended(so_far[:-1] if waits else so_far)
    told += feed("stop")
    assert told == decoder.finish().message.text == mended("".join(pieces))


def test_no_half_of_a_pair_stays_in_a_reply() -> None:
    body = b'data: {"id": "a\\ud83d", "choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\n'
    reply, _ = read(CHAT, body)
    assert (reply.response_id, type(reply.response_id)) == ("a\ufffd", str)


def hi(*ends: str) -> bytes:
    """Events of a text in two pieces, and of its end."""
    chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in "hé"]
    return sse(*chunks, *[{"choices": [{"delta": {}, "finish_reason": end}]} for end in ends], done=False)


HI = [TextDelta("h"), TextDelta("é")]
ERROR = b'data: {"error": {"message": "no", "code": 503}}\n\n'


def test_failed_stream_tells_what_came_before_and_has_no_reply() -> None:
    decoder = CHAT.decoder({})
    assert decoder.feed(hi() + ERROR + hi()) == HI
    assert decoder.has_failed
    assert decoder.feed(hi("stop")) == decoder.end() == []
    with pytest.raises(Overloaded, match=r"^no "):
        decoder.finish()


@pytest.mark.nightly
def test_event_that_is_too_long_takes_nothing_from_what_came_before() -> None:
    decoder = CHAT.decoder({})
    assert decoder.feed(hi() + b"data: " + b"x" * (64 << 20) + b"\n\n") == HI
    with pytest.raises(BadReply):
        decoder.finish()


def test_a_whole_reply_in_place_of_a_stream_tells_nothing_late() -> None:
    decoder = CHAT.decoder({})
    body = b'{"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}'
    assert [*decoder.feed(body), *decoder.end()] == []
    assert decoder.finish().message.text == "hi"
    assert decoder.end() == []


def test_what_the_end_of_the_bytes_adds_is_told() -> None:
    for missing in (0, 1, 2):
        decoder, body = CHAT.decoder({}), hi("stop")
        told = decoder.feed(body[: len(body) - missing] if missing else body)
        assert [*told, *decoder.end()] == HI
        assert decoder.end() == []
        assert decoder.finish().message.text == "hé"
    for end, is_done in ((b"data: [DONE]", True), (b"data: [DO", False)):
        decoder = CHAT.decoder({})
        assert [*decoder.feed(hi("stop") + end), *decoder.end()] == HI
        assert decoder.is_done is is_done
    cut = CHAT.decoder({})
    assert [*cut.feed(hi()[:-2]), *cut.end()] == HI
    with pytest.raises(BadReply):
        cut.finish()


def test_deltas_come_when_their_chunk_is_complete() -> None:
    decoder, body = CHAT.decoder({}), hi("stop")
    first = body.index(b"\n\n")
    assert decoder.feed(body[: first + 1]) == []
    assert decoder.feed(body[first + 1 : -10]) == HI
    assert decoder.feed(body[-10:]) == []
    assert decoder.finish().message.text == "hé"
