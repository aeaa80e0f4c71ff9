"""Is the same read out of the same bytes, however they are cut, and no more than is good for them?"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.clients.http.http1 import MAX_HEAD_BYTES, MAX_INTERIM_RESPONSES, Http1
from fsm_agent.clients.http.prepared_request import PoolRequest

HEAD = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\n"
LENGTH = HEAD + b"content-length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nx-trailer: t\r\n\r\n"


def asked(url: str = "http://h:8/v1/x?a=b", method: str = "POST", **options: Any) -> PoolRequest:
    """A request as a connection is given it."""
    request = httpx.Request(method, url, **options)
    request.read()
    return PoolRequest(request)


ASKED = asked(headers={"x-one": "1"}, content=b'{"a":1}')


def fed(wire: Http1, data: bytes, cuts: tuple[int, ...] = ()) -> tuple[Any, bytes, bool, bool]:
    """What a wire makes of ``data`` in pieces that end at ``cuts``."""
    bounds = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for begin, end in pairwise(bounds):
        if end > begin:
            wire.feed(data[begin:end])
    status, headers = wire.head[:2] if wire.head else (0, [])
    said = [(name.lower(), value) for name, value in headers]
    return (status, said), wire.take(), wire.is_complete, wire.is_reusable


def begun() -> Http1:
    wire = Http1()
    wire.begin(ASKED)
    wire.is_sent = True
    return wire


def test_what_is_sent() -> None:
    head, _, body = Http1().begin(ASKED).partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first == b"POST /v1/x?a=b HTTP/1.1"
    assert {line.lower() for line in lines} >= {b"host: h:8", b"x-one: 1", b"content-length: 7"}
    assert body == b'{"a":1}'


def test_a_body_that_comes_in_pieces_is_sent_as_a_whole() -> None:
    data = asked(content=iter([b"ab", b"c"])).data
    assert data.endswith(b"\r\ncontent-length: 3\r\n\r\nabc")
    assert b"transfer-encoding" not in data.lower()


def test_a_request_without_a_body_says_nothing_of_its_length() -> None:
    assert asked(method="GET").data.startswith(b"GET /v1/x?a=b HTTP/1.1\r\n")
    assert b"content-length" not in asked(method="GET").data.lower()
    assert asked().data.lower().endswith(b"content-length: 0\r\n\r\n")


def test_the_host_is_always_named() -> None:
    request = httpx.Request("POST", "http://h:8/", stream=httpx.ByteStream(b"x"))
    request.read()
    assert b"\r\nhost: h:8\r\n" in PoolRequest(request).data


def test_the_response_to_head_has_no_body() -> None:
    wire = Http1()
    wire.begin(asked(method="HEAD"))
    wire.is_sent = True
    assert fed(wire, HEAD + b"content-length: 5\r\n\r\n")[1:] == (b"", True, True)


def test_a_method_that_is_none() -> None:
    with pytest.raises(httpx.LocalProtocolError):
        Http1().begin(asked(method="GO ON"))


def test_who_says_that_it_was_the_last_one_is_the_last_one() -> None:
    wire = Http1()
    wire.begin(asked(headers={"connection": "close"}))
    wire.is_sent = True
    assert fed(wire, LENGTH)[2:] == (True, False)


@pytest.mark.parametrize("value", ["1\r\nx-two: 2", "1\nx-two: 2", "1\rx-two: 2"])
def test_no_header_smuggles_another_one_in(value: str) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        asked(headers={"x-one": value})


@pytest.mark.parametrize("response", [LENGTH, CHUNKED])
@given(cuts=st.lists(st.integers(0, 130), max_size=8))
def test_the_cuts_do_not_matter(response: bytes, cuts: list[int]) -> None:
    (status, headers), body, is_complete, is_reusable = fed(begun(), response, tuple(cuts))
    assert (status, body, is_complete, is_reusable) == (200, b"hello", True, True)
    assert [value for name, value in headers if name == b"x-a"] == [b"1", b"2"]
    assert b"x-trailer" not in dict(headers)


def test_one_request_after_the_other() -> None:
    wire = Http1()
    for response in (LENGTH, CHUNKED, b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 103 H\r\nx: y\r\n\r\n" + LENGTH):
        wire.begin(ASKED)
        wire.is_sent = True
        assert wire.head is None
        assert fed(wire, response)[2:] == (True, True)


def test_an_interim_response_is_not_the_response() -> None:
    wire = begun()
    wire.feed(b"HTTP/1.1 103 Early Hints\r\nx-hint: y\r\n\r\n")
    assert wire.head is None
    assert fed(wire, LENGTH)[0][0] == 200
    assert b"x-hint" not in dict(wire.head[1])


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        LENGTH + b"H",
        LENGTH + LENGTH,
    ],
)
def test_a_connection_that_serves_no_more(response: bytes) -> None:
    assert fed(begun(), response)[2:] == (True, False)
    wire = begun()
    wire.feed(response[:-1])
    wire.feed(response[-1:])
    assert wire.take() == (b"hello" if b"hello" in response else b"")
    assert (wire.is_complete, wire.is_reusable) == (True, False)


def test_a_body_may_end_with_the_connection() -> None:
    wire = begun()
    assert fed(wire, HEAD + b"\r\nhello")[1:3] == (b"hello", False)
    wire.end()
    assert (wire.is_complete, wire.is_reusable) == (True, False)


@pytest.mark.parametrize("response", [b"", HEAD, LENGTH[:-1], CHUNKED[:-1], CHUNKED[:-20]])
def test_but_not_any_other(response: bytes) -> None:
    wire = begun()
    fed(wire, response)
    with pytest.raises(httpx.RemoteProtocolError):
        wire.end()


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
def test_what_is_no_response(response: bytes) -> None:
    wire = begun()
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


@pytest.mark.parametrize("flood", FLOODS)
def test_nothing_but_a_body_is_long(flood: str) -> None:
    begin, more = FLOODS[flood]
    wire = begun()
    wire.feed(begin)
    with pytest.raises(httpx.RemoteProtocolError):
        _ = [wire.feed(more) for _ in range(2 * MAX_HEAD_BYTES // len(more) + 2)]


def test_few_responses_are_interim() -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"
    assert fed(begun(), interim * MAX_INTERIM_RESPONSES + LENGTH)[1] == b"hello"
    with pytest.raises(httpx.RemoteProtocolError, match=f"{MAX_INTERIM_RESPONSES + 1} interim responses"):
        begun().feed(interim * (MAX_INTERIM_RESPONSES + 1))


def test_a_body_may_be() -> None:
    wire = begun()
    wire.feed(HEAD + b"content-length: %d\r\n\r\n" % (3 * MAX_HEAD_BYTES))
    for _ in range(3):
        wire.feed(b"x" * MAX_HEAD_BYTES)
    assert wire.is_complete
