"""Is whatever the network does either a reply or one clear error, within its time and with nothing left open?"""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import json
import ssl
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from conformance.client_requests import REQUEST, STREAMED, WAYS, ask, outcomes, shown_by
from support.copies import replace
from support.fault_server import (
    BARRIER,
    CLOSE,
    DRIP,
    END_OF_CHUNKS,
    FLOOD,
    RESET,
    SSE_HEAD,
    STALL,
    FaultServer,
    Step,
    chunk,
    events,
    head,
    http,
)
from support.http_clients import (
    FIRST_PIECE,
    JSON_HEAD,
    KEY,
    PIECES,
    ROOMY,
    STREAM,
    TINY,
    WHOLE,
    client_of,
    completion,
    good,
    over_transport,
    refused,
    text,
)
from support.ports import free_port

from fsm_agent.clients import HttpClient, client_for
from fsm_agent.clients.http import Network
from fsm_agent.clients.local.model import command_to_fetch, find_model
from fsm_agent.errors import (
    AuthFailed,
    BadReply,
    ConfigError,
    Overloaded,
    ProviderError,
    RateLimited,
    TimedOut,
    UsageError,
)
from fsm_agent.lifecycle import Request, Settings
from fsm_agent.messages import Message, Reply, TextDelta

pytestmark = pytest.mark.usefixtures("over")


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
def test_a_reply_comes(way: str) -> None:
    with FaultServer(good(way)) as server, client_of(server) as client:
        items = ask(client, way)
    assert isinstance(items[-1], Reply)
    assert items[-1].message.text == "hello"
    assert items[:-1] == ([TextDelta("hel"), TextDelta("lo")] if way in STREAMED else [])
    request = server.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.json["messages"] == [{"role": "user", "content": "Hello?"}]
    assert request.json.get("stream", False) is (way in STREAMED)


HAS_ENGINE = importlib.util.find_spec("xllamacpp") is not None
LATE = "no whole reply of 'http://127.0.0.1:"


@dataclass(frozen=True)
class Case:
    """A fault, and what it must become."""

    script: list[Step]
    error: type[ProviderError]
    says: str = ""
    status: int | None = None
    retryable: bool = True
    ways: tuple[str, ...] = WAYS
    retry_after_s: float | None = None
    timeout_s: float | None = None
    network: Network = ROOMY


def silent(*script: Step, network: Network = TINY, says: str = "did not reply for 0.1 s", **more: Any) -> Case:
    return Case(list(script), TimedOut, says, network=network, **more)


def late(*script: Step, ways: tuple[str, ...] = WAYS) -> Case:
    return Case(list(script), TimedOut, LATE, ways=ways, timeout_s=0.3)  # in which its request has to be sent


def cut(*script: Step, ways: tuple[str, ...] = STREAMED, says: str = "cut off") -> Case:
    return Case(list(script), BadReply, says, 200, ways=ways)


def odd(*script: Step, says: str = "", retryable: bool = True) -> Case:
    return Case(list(script), BadReply, says, 200, retryable)


UNSTREAMED = ("complete", "acomplete")
TWO = ("complete", "astream")  # what the status alone decides
OPEN_HEAD = head(content_type="text/event-stream")
TOO_LONG = "longer than 100000 bytes"
MORE = "sent no more of its reply for 0.1 s"
IMPATIENT = Network(idle_s=0.1)
BIG = b" " * 9_000_000
ERROR_IN_STREAM = events({"error": {"message": "Out of luck", "code": 500}}, done=False)
MOVED = http("", status=301, location="https://example.invalid/v2?token=abc")
CUT_REFUSAL: list[Step] = [head(429, content_length="999", retry_after="3"), b'{"error"', CLOSE]
FAULTS = {
    "reset before the head": Case([RESET], TimedOut, "broke the connection"),
    "close before the head": Case([CLOSE], BadReply, "gave no HTTP reply"),
    "reset in the head": Case([b"HTTP/1.1 200 OK\r\ncont", RESET], TimedOut, "broke the connection"),
    "cut in the head": Case([b"HTTP/1.1 200 OK\r\ncont", CLOSE], BadReply, "gave no HTTP reply"),
    "no HTTP": Case([b"220 smtp.example ESMTP\r\n\r\n", CLOSE], BadReply, "gave no HTTP reply"),
    "endless head": Case([b"HTTP/1.1 200 OK\r\nx: ", FLOOD], BadReply, "gave no HTTP reply"),
    "reset in the body": cut(JSON_HEAD, b'{"id": "c1", ', RESET, ways=UNSTREAMED),
    "cut in the body": cut(JSON_HEAD, b'{"id": "c1", ', CLOSE, ways=UNSTREAMED),
    "reset in a stream": cut(SSE_HEAD, chunk(FIRST_PIECE), RESET),
    "cut in a stream": cut(SSE_HEAD, chunk(FIRST_PIECE), CLOSE),
    "cut in a chunk": cut(SSE_HEAD, chunk(FIRST_PIECE)[:-20], CLOSE),
    "stream ends early": cut(SSE_HEAD, chunk(FIRST_PIECE), END_OF_CHUNKS),
    "stream of no length ends early": cut(OPEN_HEAD, FIRST_PIECE, CLOSE),
    "truncated JSON": odd(http(b'{"id": "c1", "choices": [{"index": 0, "mess'), says="JSON"),
    "empty body": odd(http(b"")),
    "no body at all": odd(head(204)),
    "JSON of something else": odd(http({"hello": "world"})),
    "HTML": odd(http("<html>Hi</html>", content_type="text/html; charset=utf-8"), says="'text/html', not JSON"),
    "mislabelled HTML": odd(http("<html>Hi</html>")),
    "a picture": odd(http(b"\x89PNG", content_type="image/png"), says="'image/png', not JSON"),
    "error in a 200": Case([http({"error": {"message": "No way", "code": 400}})], ProviderError, "No way", 200, False),
    "error in a stream": Case(
        [SSE_HEAD, chunk(FIRST_PIECE + ERROR_IN_STREAM), STALL], Overloaded, "Out of luck", 200, ways=STREAMED
    ),
    "silence": silent(STALL),
    "silence in the head": silent(b"HTTP/1.1 200 OK\r\n", STALL),
    "silence in the body": silent(JSON_HEAD, b"{", STALL, says=MORE, ways=UNSTREAMED),
    "silence in a stream": silent(SSE_HEAD, chunk(FIRST_PIECE), STALL, says=MORE, ways=STREAMED, network=IMPATIENT),
    "silence until the deadline": late(STALL),
    "silence in the body until the deadline": late(JSON_HEAD, b"{", STALL),
    "drip beyond the deadline": late(JSON_HEAD, DRIP),
    "drip in a stream": late(OPEN_HEAD, b": wait", DRIP, ways=STREAMED),
    "huge body": odd(http(b" " * 3_000_000), says=TOO_LONG, retryable=False),
    "endless body": odd(head(content_type="application/json"), FLOOD, says=TOO_LONG, retryable=False),
    "endless comment": odd(OPEN_HEAD, b": ", FLOOD, says=TOO_LONG, retryable=False),
    "gzip bomb": odd(http(gzip.compress(BIG), content_encoding="gzip"), says=TOO_LONG, retryable=False),
    "deflate bomb": odd(http(zlib.compress(BIG), content_encoding="deflate"), says=TOO_LONG, retryable=False),
    "damaged gzip": odd(http(b"\x1f\x8b\x08 nonsense", content_encoding="gzip"), says="damaged"),
    "unasked encoding": odd(http(b"{}", content_encoding="br"), says="'br'", retryable=False),
    "encoding on encoding": odd(http(b"{}", content_encoding="gzip, gzip"), says="'gzip, gzip'", retryable=False),
    "301": Case([MOVED], ProviderError, "redirects to 'https://example.invalid/v2'", 301, False, ways=TWO),
    "308 to nowhere": Case([http("", status=308)], ProviderError, "redirects", 308, False, ways=TWO),
    "400": Case(refused(400), ProviderError, "not later", 400, False, ways=TWO),
    "401": Case(refused(401), AuthFailed, "not later", 401, False, ways=TWO),
    "403": Case(refused(403), AuthFailed, "not later", 403, False, ways=TWO),
    "404": Case(refused(404), ProviderError, "not later", 404, False, ways=TWO),
    "408": Case(refused(408), ProviderError, "not later", 408, ways=TWO),
    "409": Case(refused(409), ProviderError, "not later", 409, ways=TWO),
    "425": Case(refused(425), ProviderError, "not later", 425, ways=TWO),
    "429": Case(refused(429), RateLimited, "not later", 429, ways=TWO),
    "429 with a time": Case(refused(429, retry_after="7"), RateLimited, "not later", 429, retry_after_s=7.0, ways=TWO),
    "429, cut": Case(CUT_REFUSAL, RateLimited, "", 429, retry_after_s=3.0, ways=TWO),
    "500": Case(refused(500), Overloaded, "not later", 500, ways=TWO),
    "502 of a proxy": Case(
        [http("<html>Oh</html>", status=502, content_type="text/html")], Overloaded, "", 502, ways=TWO
    ),
    "503 with a time": Case(refused(503, retry_after="1.5"), Overloaded, "not later", 503, retry_after_s=1.5, ways=TWO),
    "504": Case(refused(504), ProviderError, "not later", 504, ways=TWO),
    "529": Case(refused(529), Overloaded, "not later", 529, ways=TWO),
}


@pytest.mark.system
@pytest.mark.parametrize(("fault", "way"), [(fault, way) for fault, case in FAULTS.items() for way in case.ways])
def test_what_a_fault_becomes(fault: str, way: str) -> None:
    """And that the only connection there may be is free for the next request."""
    case = FAULTS[fault]
    narrow = replace(case.network, max_connections=1, pool_s=0.5)
    with FaultServer(case.script, good(way)) as server, client_of(server, narrow) as client:
        started_s = time.monotonic()
        error, reply = outcomes(client, way, case.timeout_s, 5.0)
        took_s = time.monotonic() - started_s
    assert isinstance(error, case.error)
    assert case.says in error.message
    assert error.retryable is case.retryable
    assert error.status == case.status
    assert error.retry_after_s == case.retry_after_s
    assert took_s < 5
    assert KEY not in shown_by(error)
    assert len(str(error)) < 2000
    assert isinstance(reply, Reply) or "did not reply for 0.1 s" in reply.message, "a busy machine"
    assert len(server.requests) == 2, "the client retries nothing by itself"


@pytest.mark.parametrize("way", WAYS)
def test_an_embedded_server_is_started_beside_the_event_loop(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a while, in which other tasks go on."""
    in_loops = list[bool]()

    def start(path: str | None) -> Any:
        in_loops.append(asyncio._get_running_loop() is not None)
        raise ConfigError("it does not start")

    monkeypatch.setattr("fsm_agent.clients.local.server.local_server", start)
    with client_for("local:model.gguf") as client, pytest.raises(ConfigError, match="it does not start"):
        ask(client, way)
    assert in_loops == [False]


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
def test_nobody_listens(way: str) -> None:
    port = free_port()
    with client_of(f"http://127.0.0.1:{port}/v1") as client, pytest.raises(TimedOut) as caught:
        ask(client, way)
    assert caught.value.retryable
    assert f"'http://127.0.0.1:{port}/v1/chat/completions'" in caught.value.message
    assert KEY not in shown_by(caught.value)


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
def test_a_server_without_tls_is_no_connection(way: str) -> None:
    with FaultServer([CLOSE]) as server:
        base_url = server.base_url.replace("http:", "https:")
        with client_of(base_url, TINY) as client, pytest.raises(TimedOut, match="no connection to"):
            ask(client, way)


def test_a_certificate_that_is_not_trusted_is_not_worth_a_retry() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("certificate verify failed") from ssl.SSLCertVerificationError("self-signed")

    network = over_transport(httpx.MockTransport(refuse))
    with client_of("https://example.invalid/v1", network) as client, pytest.raises(TimedOut) as caught:
        client.complete(REQUEST)
    assert not caught.value.retryable


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
def test_no_time_left_means_no_socket(way: str) -> None:
    with FaultServer(good(way)) as server, client_of(server) as client:
        with pytest.raises(TimedOut, match="in 0 s"):
            ask(client, way, timeout_s=0.0)
        assert server.n_connections == 0


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
def test_time_enough_changes_nothing(way: str) -> None:
    with FaultServer(good(way)) as server, client_of(server) as client:
        assert text(ask(client, way, timeout_s=5.0)[-1]) == "hello"


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
def test_not_even_the_head_can_drip_past_the_deadline(way: str) -> None:
    with FaultServer([b"HTTP/1.1 200 OK\r\nx: ", DRIP]) as server, client_of(server) as client:
        started_s = time.monotonic()
        with pytest.raises(TimedOut, match=LATE):
            ask(client, way, timeout_s=0.1)
        assert time.monotonic() - started_s < 5
        assert server.wait_until_all_closed()


COMPLETE_BUT: dict[str, list[Step]] = {
    "never ended": [SSE_HEAD, chunk(PIECES), CLOSE],
    "reset": [SSE_HEAD, chunk(PIECES), RESET],
    "kept open": [SSE_HEAD, chunk(PIECES), STALL],
    "without [DONE]": [SSE_HEAD, chunk(PIECES.replace(b"data: [DONE]\n\n", b"")), END_OF_CHUNKS],
    "mislabelled": [http(PIECES, content_type="text/plain")],
    "unlabelled": [head(), PIECES, CLOSE],
}


@pytest.mark.system
@pytest.mark.parametrize("way", STREAMED)
@pytest.mark.parametrize("oddity", COMPLETE_BUT)
def test_a_stream_that_is_complete_is_a_reply_however_it_ends(oddity: str, way: str) -> None:
    with FaultServer(COMPLETE_BUT[oddity]) as server, client_of(server, IMPATIENT) as client:
        assert text(ask(client, way)[-1]) == "hello"


@pytest.mark.system
@pytest.mark.parametrize("way", STREAMED)
def test_a_stream_ends_at_its_done_though_the_connection_stays_open(way: str) -> None:
    network = Network(linger_s=0.05)
    with FaultServer(COMPLETE_BUT["kept open"]) as server, client_of(server, network) as client:
        started_s = time.monotonic()
        assert text(ask(client, way, timeout_s=60)[-1]) == "hello"
        assert 0.05 <= time.monotonic() - started_s < 5
        assert server.wait_until_all_closed()


def test_what_comes_behind_a_complete_stream_makes_it_no_late_one() -> None:
    lingered = threading.Event()

    def body() -> Iterator[bytes]:
        yield PIECES
        lingered.wait(0.05)  # longer than the connection may linger
        yield b": still here\n\n"

    headers = {"content-type": "text/event-stream"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=body()))
    network = over_transport(transport, linger_s=0.01)
    with client_for("openai-chat:m", api_key=KEY, network=network) as client:
        assert text(list(client.stream(Request(messages=(Message.of("user", "hi"),))))[-1]) == "hello"


@pytest.mark.system
@pytest.mark.parametrize("over", [None], indirect=True)
@pytest.mark.parametrize("way", STREAMED)
def test_a_connection_that_ends_its_stream_is_used_again(way: str) -> None:
    late_end: list[Step] = [SSE_HEAD, chunk(PIECES), BARRIER, END_OF_CHUNKS]
    with FaultServer(late_end, STREAM) as server, client_of(server, Network(linger_s=60)) as client:
        assert [text(reply) for reply in outcomes(client, way, None, None)] == ["hello", "hello"]
        assert server.n_connections == 1


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("script", [WHOLE, STREAM], ids=["whole", "streamed"])
def test_a_server_may_stream_or_not_as_it_likes(script: list[Step], way: str) -> None:
    with FaultServer(script) as server, client_of(server) as client:
        assert text(ask(client, way)[-1]) == "hello"


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_replies_are_read(encoding: str, compress: Any, way: str) -> None:
    kind = "text/event-stream" if way in STREAMED else "application/json"
    body = PIECES if way in STREAMED else json.dumps(completion()).encode()
    script = [http(compress(body), content_encoding=encoding, content_type=kind)]
    with FaultServer(script) as server, client_of(server) as client:
        assert text(ask(client, way)[-1]) == "hello"


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
def test_a_reply_as_long_as_the_bound_is_read(way: str) -> None:
    body = http(completion()).partition(b"\r\n\r\n")[2]
    exact = Network(max_reply_bytes=len(body))
    with FaultServer([http(body)]) as server, client_of(server, exact) as client:
        assert text(ask(client, way)[-1]) == "hello"
    with FaultServer([http(body + b" ")]) as server, client_of(server, exact) as client:
        error = outcomes(client, way, None)[0]
    assert isinstance(error, BadReply)
    assert "longer than" in error.message


@pytest.mark.system
@pytest.mark.parametrize("is_async", [False, True])
def test_of_a_stream_that_is_too_long_what_fits_is_given(is_async: bool) -> None:
    came: list[Any] = []

    def collect(client: HttpClient) -> None:
        for item in client.stream(REQUEST):
            came.append(item)

    async def acollect(client: HttpClient) -> None:
        async for item in client.astream(REQUEST):
            came.append(item)

    tight = Network(max_reply_bytes=len(FIRST_PIECE) + 10)
    script: list[Step] = [SSE_HEAD + chunk(FIRST_PIECE * 2), STALL]
    with (
        FaultServer(script) as server,
        client_of(server, tight) as client,
        pytest.raises(BadReply, match="longer than"),
    ):
        asyncio.run(acollect(client)) if is_async else collect(client)
    assert came == [TextDelta("hel")]


@pytest.mark.system
def test_a_bomb_is_not_unpacked() -> None:
    bomb = http(gzip.compress(b" " * 20_000_000), content_encoding="gzip")
    with FaultServer([bomb]) as server, client_of(server) as client:
        tracemalloc.start()
        with pytest.raises(BadReply, match=TOO_LONG):
            client.complete(REQUEST)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 5_000_000


class TestIncremental:
    @pytest.mark.system
    def test_pieces_are_there_before_the_rest_is_sent(self) -> None:
        with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL]) as server, client_of(server) as client:
            items = client.stream(REQUEST)
            assert next(items) == TextDelta("hel")
            items.close()

    @pytest.mark.system
    def test_a_stream_is_not_kept(self) -> None:
        """A long stream of comments leaves nothing behind: only the bound ends it."""
        network = Network(max_reply_bytes=30_000_000)
        comments = chunk((b": " + b"x" * 1000 + b"\n\n") * 200)
        script: list[Step] = [SSE_HEAD, *[comments] * 40, chunk(PIECES), END_OF_CHUNKS]
        with FaultServer(script) as server, client_of(server, network) as client:
            tracemalloc.start()
            reply = ask(client, "stream")[-1]
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert reply.message.text == "hello"
        assert peak < 5_000_000

    @pytest.mark.system
    @pytest.mark.parametrize("way", STREAMED)
    def test_comments_keep_a_stream_alive(self, way: str) -> None:
        """Spaces 10 ms apart, and more of them than fit into the idle time."""
        script: list[Step] = [OPEN_HEAD, b": ", DRIP]
        with FaultServer(script) as server, client_of(server, Network(idle_s=0.3)) as client:
            error = outcomes(client, way, 0.5)[0]
        assert isinstance(error, TimedOut)
        assert LATE in error.message


class TestClosing:
    def test_a_closed_client_says_so_even_before_a_stream_is_begun(self) -> None:
        client = client_of("http://127.0.0.1:1")
        client.close()
        assert repr(client) == "<HttpClient 'openai-compatible:m' closed>"
        with pytest.raises(UsageError, match="'openai-compatible:m' is closed"):
            client.stream(REQUEST)
        with pytest.raises(UsageError, match="'openai-compatible:m' is closed"):
            client.astream(REQUEST)

    @pytest.mark.system
    def test_both_kinds_of_with(self) -> None:
        async def main() -> None:
            async with client_of(server) as client:
                await client.acomplete(REQUEST)
                await asyncio.to_thread(client.complete, REQUEST)
            assert await asyncio.to_thread(server.wait_until_all_closed)

        with FaultServer(WHOLE) as server:
            with client_of(server) as client:
                client.complete(REQUEST)
            assert server.wait_until_all_closed()
            asyncio.run(main())

    @pytest.mark.system
    def test_closing_from_outside_reaches_a_running_loop(self) -> None:
        async def main() -> None:
            await client.acomplete(REQUEST)
            await asyncio.to_thread(client.close)
            assert await asyncio.to_thread(server.wait_until_all_closed)

        with FaultServer(WHOLE) as server:
            client = client_of(server)
            asyncio.run(main())

    @pytest.mark.system
    def test_closing_ends_a_stream_with_an_error(self) -> None:
        with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL]) as server:
            client = client_of(server)
            items = client.stream(REQUEST)
            next(items)
            client.close()
            with pytest.raises(ProviderError):
                next(items)
            assert server.wait_until_all_closed()


class TestRequests:
    @pytest.mark.system
    def test_half_a_character_does_not_stop_a_dialog(self) -> None:
        request = Request(messages=(Message.of("user", "caf\u00e9 \ud83d!"),))
        with FaultServer(WHOLE) as server, client_of(server) as client:
            ask(client, "complete", request=request)
        assert server.requests[0].json["messages"][0]["content"] == "café ?!"

    @pytest.mark.parametrize("extra", [{"x": float("nan")}, {"x": object()}])
    def test_what_is_no_json_is_the_callers_mistake(self, extra: dict[str, Any]) -> None:
        request = Request(messages=REQUEST.messages, settings=Settings(extra_body=extra))
        with client_of("http://127.0.0.1:1") as client, pytest.raises(UsageError, match="JSON"):
            client.complete(request)

    def test_a_transport_of_ones_own(self) -> None:
        network = over_transport(httpx.MockTransport(lambda _: httpx.Response(200, json=completion("own"))))
        with client_of("https://example.invalid/v1", network) as client:
            assert [text(ask(client, way)[-1]) for way in WAYS] == ["own"] * 4

    def test_a_transport_that_fails_is_asked_once(self) -> None:
        def fail(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            raise httpx.ReadError("gone")

        asked: list[httpx.Request] = []
        with client_of("https://example.invalid/v1", over_transport(httpx.MockTransport(fail))) as client:
            assert isinstance(outcomes(client, "complete", None)[0], TimedOut)
        assert len(asked) == 1

    @pytest.mark.parametrize(
        ("failure", "error", "says", "retryable"),
        [
            (httpx.ConnectTimeout("slow"), TimedOut, "no connection to 'https://example.invalid/v1/chat", True),
            (httpx.WriteTimeout("slow"), TimedOut, "took no more of the request for 60 s", True),
            (httpx.ProxyError("407 Proxy Authentication Required"), TimedOut, "407 Proxy", True),
            (httpx.UnsupportedProtocol("gopher"), ProviderError, "no request could be sent", False),
        ],
    )
    def test_what_a_transport_can_say(
        self, failure: httpx.TransportError, error: type[ProviderError], says: str, retryable: bool
    ) -> None:
        def fail(request: httpx.Request) -> httpx.Response:
            raise failure

        network = over_transport(httpx.MockTransport(fail))
        with client_of("https://example.invalid/v1", network) as client:
            for way in WAYS:
                outcome = outcomes(client, way, None)[0]
                assert isinstance(outcome, error)
                assert says in outcome.message
                assert outcome.retryable is retryable

    @pytest.mark.parametrize("way", WAYS)
    def test_a_client_closed_while_it_sends(self, way: str) -> None:
        def close(request: httpx.Request) -> httpx.Response:
            client.close()
            raise RuntimeError("Cannot send a request, as the client has been closed.")

        network = over_transport(httpx.MockTransport(close))
        client = client_of("https://example.invalid/v1", network)
        with pytest.raises(UsageError, match="is closed"):
            ask(client, way)

    @pytest.mark.parametrize("way", WAYS)
    def test_a_bug_of_a_transport_stays_one(self, way: str) -> None:
        def fail(request: httpx.Request) -> httpx.Response:
            raise RuntimeError("a bug")

        network = over_transport(httpx.MockTransport(fail))
        with client_of("https://example.invalid/v1", network) as client, pytest.raises(RuntimeError, match="a bug"):
            ask(client, way)

    def test_a_transport_that_decompresses(self) -> None:
        body, headers = gzip.compress(json.dumps(completion("own")).encode()), {"content-encoding": "gzip"}
        network = over_transport(httpx.MockTransport(lambda _: httpx.Response(200, content=body, headers=headers)))
        with client_of("https://example.invalid/v1", network) as client:
            assert client.complete(REQUEST).message.text == "own"

    @pytest.mark.parametrize("way", WAYS)
    def test_a_transport_whose_pieces_may_be_empty(self, way: str) -> None:
        class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
            pieces = (b"", PIECES[:10], b"", PIECES[10:], b"")

            def __iter__(self) -> Any:
                yield from self.pieces

            async def __aiter__(self) -> Any:
                for piece in self.pieces:
                    yield piece

        headers = {"content-type": "text/event-stream"}
        transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=Pieces()))
        network = over_transport(transport)
        with client_of("https://example.invalid/v1", network) as client:
            assert text(ask(client, way)[-1]) == "hello"

    def test_its_name_is_the_models(self) -> None:
        assert client_for("openai:gpt-5-mini").name == "openai:gpt-5-mini"
        assert client_for("ollama:gpt-oss:20b").name == "ollama:gpt-oss:20b"
        assert client_for("local:").name == "local:"

    def test_an_unknown_provider_is_a_mistake_at_once(self) -> None:
        with pytest.raises(ConfigError, match="'openai'"):
            client_for("opnai:gpt-5-mini")
        with pytest.raises(ConfigError, match="'openai'"):
            HttpClient("opnai", "gpt-5-mini")


class TestEmbedded:
    def test_a_model_that_is_not_there(self) -> None:
        for way in WAYS:
            client = client_for("local:/no/such/model.gguf")
            with pytest.raises(ConfigError, match=r"'/no/such/model\.gguf'"):
                ask(client, way)

    @pytest.mark.system
    @pytest.mark.skipif(find_model() is None, reason=f"no local model: {command_to_fetch()}")
    @pytest.mark.skipif(not HAS_ENGINE, reason="no engine: pip install 'fsm-agent[local]'")
    @pytest.mark.parametrize("over", [None], indirect=True)
    def test_the_real_one(self, over: None) -> None:
        request = Request(messages=REQUEST.messages, settings=Settings(temperature=0.0, max_tokens=3))
        with client_for("local:") as client:
            texts = {text(ask(client, way, request=request)[-1]) for way in WAYS * 2}
        assert len(texts) == 1
        assert texts != {""}


@pytest.mark.system
@pytest.mark.usefixtures("over")
@pytest.mark.parametrize("way", WAYS)
def test_a_header_that_comes_twice_says_both(way: str) -> None:
    (whole, *rest) = good(way)
    assert isinstance(whole, bytes)
    begin, blank, body = whole.partition(b"\r\n\r\n")
    twice = begin + b"\r\nX-Request-Id: one\r\nx-request-id: two\xe9" + blank + body
    with FaultServer([twice, *rest]) as server, client_of(server) as client:
        reply = ask(client, way)[-1]
    assert reply.request_id == "one, two\xe9"
