"""Is a stream cut into the same events however its bytes arrive?"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.copies import replace

from fsm_agent.errors import BadReply
from fsm_agent.lifecycle import Request, Settings
from fsm_agent.messages import Message
from fsm_agent.providers.catalog import PROVIDERS
from fsm_agent.providers.codec import merged
from fsm_agent.providers.streams import EventStream, ServerEvent, read_json


def events(body: bytes, piece: int | None = None, **options: int) -> list[ServerEvent]:
    stream = EventStream(**options)
    size = piece or len(body) or 1
    found = [event for start in range(0, len(body), size) for event in stream.feed(body[start : start + size])]
    found += stream.finish()
    if stream.error:
        raise stream.error
    return found


BODIES = {
    "LF": (b"data: a\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", b"a"), ("", b"b")]),
    "CRLF inside an event": (b"event: e\r\ndata: a\r\ndata: b\r\n\r\n", [("e", b"a\nb")]),
    "CR": (b"data: a\r\rdata: b\r\r", [("", b"a"), ("", b"b")]),
    "all three": (b"data: a\r\n\ndata: b\r\rdata: c\n\r\n", [("", b"a"), ("", b"b"), ("", b"c")]),
    "data lines are joined": (b"data: a\ndata:\ndata: b\n\n", [("", b"a\n\nb")]),
    "one space only is no data": (b"data:a\n\ndata:  b\n\n", [("", b"a"), ("", b" b")]),
    "comments": (b": hello\n\n:\ndata: a\n: x\ndata: b\n\n", [("", b"a\nb")]),
    "names": (b"event: one\ndata: a\n\ndata: b\n\n", [("one", b"a"), ("", b"b")]),
    "a name and two lines": (b"event: one\ndata: a\ndata: b\n\n", [("one", b"a\nb")]),
    "a name without data is no event": (b"event: one\n\ndata: a\n\n", [("", b"a")]),
    "the field error": (b'data: a\n\nerror: {"x":1}\n\n', [("", b"a"), ("error", b'{"x":1}')]),
    "other fields": (b"id: 7\nretry: 5\nnothing\ndata: a\n\n", [("", b"a")]),
    "the last blank line is missing": (b"data: a\n\ndata: b\n", [("", b"a"), ("", b"b")]),
    "the last line end is missing": (b"data: a\n\ndata: b", [("", b"a"), ("", b"b")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
    "blanks first": (b"\r\n \n\ndata: a\n\n", [("", b"a")]),
    "line separators of Unicode end no line": (
        "data: a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n\n".encode(),
        [("", "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg".encode())],
    ),
    "characters of many bytes": ("data: é漢😀\n\n".encode(), [("", "é漢😀".encode())]),
    "nothing": (b"", []),
    "a byte order mark that is not first": (b"\n\xef\xbb\xbfdata: a\n\ndata: b\n\n", [("", b"b")]),
    "only half a byte order mark": (b"\xef\xbb", []),
}


@pytest.mark.parametrize("piece", [None, 1, 3])
@pytest.mark.parametrize("name", BODIES)
def test_stream_is_cut_into_events(name: str, piece: int | None) -> None:
    body, expected = BODIES[name]
    assert events(body, piece) == expected


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
@pytest.mark.parametrize("piece", [None, 1])
def test_body_that_is_no_stream_is_kept_whole(body: bytes, piece: int | None) -> None:
    stream = EventStream()
    size = piece or len(body)
    for start in range(0, len(body), size):
        assert stream.feed(body[start : start + size]) == []
    assert stream.finish() == []
    assert stream.document == body.removeprefix(b"\xef\xbb\xbf").lstrip()


def test_stream_is_no_document() -> None:
    stream = EventStream()
    stream.feed(b"data: {}\n\n")
    assert stream.document is None


@pytest.mark.parametrize("piece", [None, 1, 5])
@pytest.mark.parametrize(
    "body",
    [b"data: " + b"x" * 100 + b"\n\n", b"data: xxxxxxxxxx\n" * 10 + b"\n", b": " + b"x" * 100, b"{" + b" " * 100],
    ids=["one line", "many lines", "a comment", "a document"],
)
def test_event_that_is_too_long_is_refused(body: bytes, piece: int | None) -> None:
    with pytest.raises(BadReply, match="longer than 64 bytes"):
        events(body, piece, max_event_bytes=64)


@pytest.mark.parametrize("begun", [b"", b": ", b"data: ", b"data: x\n", b"event: ", b"{"])
def test_a_line_without_end_is_refused_as_soon_as_it_is_too_long(begun: bytes) -> None:
    stream = EventStream(max_event_bytes=64)
    assert stream.feed(begun) == []
    for _ in range(70):
        assert stream.feed(b"x") == []
        if stream.error:
            break
    assert "longer than 64 bytes" in str(stream.error)


@pytest.mark.parametrize("piece", [None, 1, 7])
def test_what_came_before_an_event_that_is_too_long_is_there(piece: int | None) -> None:
    body = b"data: a\n\n: x\ndata: b\n\ndata: " + b"x" * 64 + b"\n\ndata: c\n\n"
    stream, size = EventStream(max_event_bytes=64), piece or len(body)
    found = [event for start in range(0, len(body), size) for event in stream.feed(body[start : start + size])]
    assert [*found, *stream.finish()] == [("", b"a"), ("", b"b")]
    assert stream.error


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


@pytest.mark.parametrize("piece", [None, 1])
def test_stream_of_many_short_events_is_not_too_long(piece: int | None) -> None:
    assert len(events(b": ping\n\ndata: 0123456789\n\n" * 50, piece, max_event_bytes=64)) == 50


@pytest.mark.system
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


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": [1, 2.5, null, "\\u00e9"]}', {"a": [1, 2.5, None, "é"]}),
        (b'"a\nb\x01"', "a\nb\x01"),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'{"a": "\\ud83d"}', {"a": "\ufffd"}),
        (b'"\\ude00x"', "\ufffdx"),
        (b'"\xff"', "\ufffd"),
        (b"\xef\xbb\xbf{}", {}),
    ],
)
def test_json_of_providers_is_read(data: bytes, value: object) -> None:
    assert read_json(data) == value


@pytest.mark.parametrize("data", [b"", b"{", b"hello", b"{}x", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000])
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # any message
        read_json(data)


def _read(data: bytes) -> object:
    try:
        return repr(read_json(data))  # NaN is not equal to itself
    except ValueError:
        return ValueError


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
ODD_JSON = [
    *(
        b"NaN",
        b"[-Infinity, 1e400, -0, 1e-400, 18446744073709551616]",
        b'{"a": 1, "a": 2}',
        b'"\\ud83d"',
        b"[1,]",
        b"01",
    ),
    *[o * deep + b"1" + c * deep for deep in range(190, 200) for o, c in [(b"[", b"]"), (b'{"":', b"}")]],
    *[b"[" * deep + b"]" * deep for deep in range(190, 210)],
]


@given(
    st.one_of(
        st.sampled_from(ODD_JSON),
        st.binary(max_size=80),
        json_values.map(lambda value: json.dumps(value).encode()),
    )
)
def test_json_is_read_the_same_however_long_it_is(data: bytes) -> None:
    """Short JSON is read by another library than long."""
    assert _read(data) == _read(data + b" " * 500)


@pytest.mark.parametrize(
    ("body", "extras", "whole"),
    [
        ({"a": 1}, [], {"a": 1}),
        ({"a": {"b": 1, "c": {"d": 1}}}, [{"a": {"c": {"e": 2}}}], {"a": {"b": 1, "c": {"d": 1, "e": 2}}}),
        ({"a": [1, 2], "b": 1}, [{"a": [3], "b": None}], {"a": [3], "b": None}),
        ({"a": {"b": 1}}, [{"a": 1}, {"a": {"c": 2}}], {"a": {"c": 2}}),
        ({"a": 1}, [{"a": {"b": 1}}], {"a": {"b": 1}}),
    ],
)
def test_objects_are_merged_and_all_else_is_replaced(body: Any, extras: Any, whole: Any) -> None:
    before = json.dumps([body, extras])
    assert merged(body, *extras) == whole
    assert json.dumps([body, extras]) == before


@pytest.mark.parametrize("name", PROVIDERS)
def test_extra_bodies_are_merged_alike_on_all_wires(name: str) -> None:
    entry = PROVIDERS[name]
    kept = replace(entry.profile_of("m"), extra_body={"x": {"of": "profile", "a": [1]}, "list": [1], "s": 1})
    settings = Settings(extra_body={"x": {"b": {"c": 1}}, "list": [2], "s": None})
    request = Request(messages=(Message.of("user", "hi"),), settings=settings)
    body = entry.codec.encode(request, model="m", profile=kept, stream=False)
    assert (body["x"], body["list"], body["s"]) == ({"of": "profile", "a": [1], "b": {"c": 1}}, [2], None)
