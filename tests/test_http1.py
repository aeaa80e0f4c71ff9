"""Do both wires read the same out of the same bytes, however they are cut, and no more than is good for them?"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.http1 import MAX_HEAD_BYTES, H11Wire, HttptoolsWire, Wire
from fsm_agent.sending import RequestHead

WIRES = [H11Wire, HttptoolsWire]
each_wire = pytest.mark.parametrize("wire_of", WIRES)
ASKED = RequestHead(httpx.URL("http://h:8/v1/x?a=b"), httpx.Headers({"host": "h:8", "x-one": "1"}))
CONTENT = b'{"a":1}'
HEAD = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\n"
LENGTH = HEAD + b"content-length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nx-trailer: t\r\n\r\n"


def fed(wire: Wire, data: bytes, cuts: tuple[int, ...] = ()) -> tuple[Any, bytes, bool, bool]:
    """What a wire makes of ``data`` in pieces that end at ``cuts``."""
    bounds = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for begin, end in pairwise(bounds):
        if end > begin:
            wire.feed(data[begin:end])
    status, headers = wire.head or (0, [])
    said = [(name.lower(), value) for name, value in headers]
    return (status, said), b"".join(wire.parts), wire.is_complete, wire.is_reusable


def begun(wire_of: Any) -> Any:
    wire = wire_of()
    wire.begin(ASKED, CONTENT)
    return wire


@each_wire
def test_what_is_sent(wire_of: Any) -> None:
    head, _, body = wire_of().begin(ASKED, CONTENT).partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first == b"POST /v1/x?a=b HTTP/1.1"
    assert {line.lower() for line in lines} >= {b"host: h:8", b"x-one: 1", b"content-length: 7"}
    assert body == b'{"a":1}'


@each_wire
def test_who_says_that_it_was_the_last_one_is_the_last_one(wire_of: Any) -> None:
    wire = wire_of()
    wire.begin(RequestHead(httpx.URL("http://h/"), httpx.Headers({"connection": "close"})), b"")
    assert fed(wire, LENGTH)[2:] == (True, False)


@each_wire
@pytest.mark.parametrize("value", ["1\r\nx-two: 2", "1\nx-two: 2", "1\rx-two: 2"])
def test_no_header_smuggles_another_one_in(wire_of: Any, value: str) -> None:
    asked = RequestHead(httpx.URL("http://h/"), httpx.Headers({"x-one": value}))
    with pytest.raises(httpx.LocalProtocolError):
        wire_of().begin(asked, b"")


@each_wire
@pytest.mark.parametrize("response", [LENGTH, CHUNKED])
@given(cuts=st.lists(st.integers(0, 130), max_size=8))
def test_the_cuts_do_not_matter(wire_of: Any, response: bytes, cuts: list[int]) -> None:
    (status, headers), body, is_complete, is_reusable = fed(begun(wire_of), response, tuple(cuts))
    assert (status, body, is_complete, is_reusable) == (200, b"hello", True, True)
    assert [value for name, value in headers if name == b"x-a"] == [b"1", b"2"]
    assert b"x-trailer" not in dict(headers)


@each_wire
def test_one_request_after_the_other(wire_of: Any) -> None:
    wire = wire_of()
    for response in (LENGTH, CHUNKED, b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 103 H\r\nx: y\r\n\r\n" + LENGTH):
        wire.begin(ASKED, CONTENT)
        assert wire.head is None
        assert fed(wire, response)[2:] == (True, True)


@each_wire
def test_an_interim_response_is_not_the_response(wire_of: Any) -> None:
    wire = begun(wire_of)
    wire.feed(b"HTTP/1.1 103 Early Hints\r\nx-hint: y\r\n\r\n")
    assert wire.head is None
    assert fed(wire, LENGTH)[0][0] == 200
    assert b"x-hint" not in dict(wire.head[1])


@each_wire
@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        LENGTH + b"H",
        LENGTH + LENGTH,
    ],
)
def test_a_connection_that_serves_no_more(wire_of: Any, response: bytes) -> None:
    assert fed(begun(wire_of), response)[2:] == (True, False)
    wire = begun(wire_of)
    wire.feed(response[:-1])
    wire.feed(response[-1:])
    assert (wire.is_complete, wire.is_reusable) == (True, False)


@each_wire
def test_a_body_may_end_with_the_connection(wire_of: Any) -> None:
    wire = begun(wire_of)
    assert fed(wire, HEAD + b"\r\nhello")[1:3] == (b"hello", False)
    wire.end()
    assert (wire.is_complete, wire.is_reusable) == (True, False)


@each_wire
@pytest.mark.parametrize("response", [b"", HEAD, LENGTH[:-1], CHUNKED[:-1], CHUNKED[:-20]])
def test_but_not_any_other(wire_of: Any, response: bytes) -> None:
    wire = begun(wire_of)
    fed(wire, response)
    with pytest.raises(httpx.RemoteProtocolError):
        wire.end()


@each_wire
@pytest.mark.parametrize(
    "response",
    [
        b"220 smtp ESMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_response(wire_of: Any, response: bytes) -> None:
    wire = begun(wire_of)
    with pytest.raises(httpx.RemoteProtocolError):
        _ = fed(wire, response), wire.end()


FLOODS = {
    "a header": (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 1000),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 100),
    "interim responses": (b"HTTP/1.1 102 Wait\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "a trailer": (HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nx: ", b"y" * 1000),
    "trailers": (HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * 100),
    "a chunk's extension": (HEAD + b"transfer-encoding: chunked\r\n\r\n1;x=", b"y" * 1000),
}


@each_wire
@pytest.mark.parametrize("flood", FLOODS)
def test_nothing_but_a_body_is_long(wire_of: Any, flood: str) -> None:
    begin, more = FLOODS[flood]
    wire = begun(wire_of)
    wire.feed(begin)
    with pytest.raises(httpx.RemoteProtocolError):
        _ = [wire.feed(more) for _ in range(2 * MAX_HEAD_BYTES // len(more) + 2)]


@each_wire
def test_a_body_may_be(wire_of: Any) -> None:
    wire = begun(wire_of)
    wire.feed(HEAD + b"content-length: %d\r\n\r\n" % (3 * MAX_HEAD_BYTES))
    for _ in range(3):
        wire.feed(b"x" * MAX_HEAD_BYTES)
    assert wire.is_complete
