"""Does everything that the network does end in a reply or one clear error, within its time and with nothing left
open?
"""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import json
import ssl
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from traceback import TracebackException
from typing import Any

import httpx
import pytest
from conformance.client_requests import ASYNC, REQUEST, STREAMED, TWO_WAYS, WAYS, aask, ask, outcomes, shown_by
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
    Repeat,
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
    WHOLE,
    client_of,
    completion,
    good,
    over_httpx,
    over_transport,
    text,
)

from fsm_agent.call import Request
from fsm_agent.clients import HttpClient, Network, client_for
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
from fsm_agent.messages import Message, Reply, Settings, TextDelta

each_way = pytest.mark.parametrize("way", TWO_WAYS)
HTTPS = "https://example.invalid/v1"


@pytest.mark.usefixtures("over")
@pytest.mark.parametrize("way", WAYS)
def test_a_reply_comes(way: str) -> None:
    with FaultServer(good(way)) as server, client_of(server) as client:
        items = ask(client, way, timeout_s=60.0)
    assert isinstance(items[-1], Reply)
    assert items[-1].message.text == "hello"
    assert items[:-1] == ([TextDelta("hel"), TextDelta("lo")] if way in STREAMED else [])
    request = server.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.json["messages"] == [{"role": "user", "content": "Hello?"}]
    assert request.json.get("stream", False) is (way in STREAMED)


@dataclass(frozen=True)
class Case:
    """A fault, and the expected error."""

    script: list[Step]
    error: type[ProviderError]
    names: str = ""
    status: int | None = None
    retryable: bool = True
    ways: tuple[str, ...] = WAYS
    retry_after_s: float | None = None
    timeout_s: float | None = None
    network: Network = ROOMY


UNSTREAMED = ("complete", "acomplete")
OPEN_HEAD = head(content_type="text/event-stream")
SHORT_S = 0.06
TINY = Network(read_s=SHORT_S, idle_s=SHORT_S, connect_s=1.0)


def silent(*script: Step, ways: tuple[str, ...] = WAYS) -> Case:
    return Case(list(script), TimedOut, network=TINY, ways=ways)


def late(*script: Step, ways: tuple[str, ...] = WAYS) -> Case:
    return Case(list(script), TimedOut, ways=ways, timeout_s=SHORT_S)


def cut(*script: Step, ways: tuple[str, ...] = STREAMED) -> Case:
    return Case(list(script), BadReply, status=200, ways=ways)


def odd(*script: Step, names: str = "", retryable: bool = True, ways: tuple[str, ...] = WAYS) -> Case:
    return Case(list(script), BadReply, names, 200, retryable, ways)


BIG = b" " * 9_000_000
WHOLE_GZIP = gzip.compress(json.dumps(completion()).encode())
ERROR_IN_STREAM = events({"error": {"message": "Out of luck", "code": 500}}, done=False)
MOVED = http("", status=301, location="https://example.invalid/v2?token=abc")
QUOTED = http({"error": {"message": f"Who is {KEY}?"}}, status=401)
CUT_REFUSAL: list[Step] = [head(429, content_length="999", retry_after="3"), b'{"error"', CLOSE]
FAULTS = {
    "reset before the head": Case([RESET], TimedOut),
    "close before the head": Case([CLOSE], BadReply),
    "reset in the head": Case([b"HTTP/1.1 200 OK\r\ncont", RESET], TimedOut),
    "cut in the head": Case([b"HTTP/1.1 200 OK\r\ncont", CLOSE], BadReply),
    "no HTTP": Case([b"220 smtp.example ESMTP\r\n\r\n", CLOSE], BadReply),
    "endless head": Case([b"HTTP/1.1 200 OK\r\nx: ", Repeat(b"x" * 65536, 0)], BadReply),
    "reset in the body": cut(JSON_HEAD, b'{"id": "c1", ', RESET, ways=UNSTREAMED),
    "cut in the body": cut(JSON_HEAD, b'{"id": "c1", ', CLOSE, ways=UNSTREAMED),
    "reset in a stream": cut(SSE_HEAD, chunk(FIRST_PIECE), RESET),
    "cut in a chunk": cut(SSE_HEAD, chunk(FIRST_PIECE)[:-20], CLOSE),
    "stream ends early": cut(SSE_HEAD, chunk(FIRST_PIECE), END_OF_CHUNKS),
    "stream of no length ends early": cut(OPEN_HEAD, FIRST_PIECE, CLOSE),
    "truncated JSON": odd(http(b'{"id": "c1", "choices": [{"index": 0, "mess')),
    "empty body": odd(http(b"")),
    "no body at all": odd(head(204)),
    "JSON of something else": odd(http({"hello": "world"})),
    "HTML": odd(http("<html>Hi</html>", content_type="text/html; charset=utf-8"), names="'text/html'"),
    "mislabelled HTML": odd(http("<html>Hi</html>")),
    "error in a 200": Case([http({"error": {"message": "No way", "code": 400}})], ProviderError, "No way", 200, False),
    "error in a stream": Case(
        [SSE_HEAD, chunk(FIRST_PIECE + ERROR_IN_STREAM), STALL], Overloaded, "Out of luck", 200, ways=STREAMED
    ),
    "silence": silent(STALL),
    "silence in the head": silent(b"HTTP/1.1 200 OK\r\n", STALL),
    "silence in the body": silent(JSON_HEAD, b"{", STALL, ways=UNSTREAMED),
    "silence in a stream": silent(SSE_HEAD, chunk(FIRST_PIECE), STALL, ways=STREAMED),
    "silence until the deadline": late(STALL),
    "silence in the body until the deadline": late(JSON_HEAD, b"{", STALL),
    "endless spaces in the head": silent(b"HTTP/1.1 200 OK\r\nx: ", FLOOD, ways=TWO_WAYS),
    "drip in the head": late(b"HTTP/1.1 200 OK\r\nx: ", DRIP),
    "drip in the body": late(JSON_HEAD, DRIP),
    "drip in a stream": late(OPEN_HEAD, b": wait", DRIP, ways=STREAMED),
    "huge body": odd(http(b" " * 3_000_000), names="100000", retryable=False),
    "endless body": odd(head(content_type="application/json"), FLOOD, names="100000", retryable=False),
    "endless comment": odd(OPEN_HEAD, b": ", FLOOD, names="100000", retryable=False),
    "gzip bomb": odd(http(gzip.compress(BIG), content_encoding="gzip"), names="100000", retryable=False),
    "deflate bomb": odd(http(zlib.compress(BIG), content_encoding="deflate"), names="100000", retryable=False),
    "damaged gzip": odd(http(b"\x1f\x8b\x08 nonsense", content_encoding="gzip")),
    "more behind the gzip": odd(http(WHOLE_GZIP + b" " * 200_000, content_encoding="gzip")),
    "gzip without its checksum": odd(http(WHOLE_GZIP[:-8], content_encoding="gzip"), ways=UNSTREAMED),
    "unasked encoding": odd(http(b"{}", content_encoding="br"), names="'br'", retryable=False),
    "encoding on encoding": odd(http(b"{}", content_encoding="gzip, gzip"), names="'gzip, gzip'", retryable=False),
    "301": Case([MOVED], ProviderError, "'https://example.invalid/v2'", 301, False),
    "308 to nowhere": Case([http("", status=308)], ProviderError, "", 308, False),
    "429, cut": Case(CUT_REFUSAL, RateLimited, "", 429, retry_after_s=3.0),
    "401 that quotes the key": Case([QUOTED], AuthFailed, "***", 401, False),
    "502 of a proxy": Case([http("<html>Oh</html>", status=502, content_type="text/html")], Overloaded, "", 502),
}


def variables_of(error: BaseException) -> str:
    """What tools that show the variables of each frame show of an exception and its causes."""
    return "".join(TracebackException.from_exception(error, capture_locals=True).format())


def two_outcomes(client: HttpClient, way: str, timeout_s: float | None) -> list[Any]:
    """Return the outcomes of a request, and of another in the same event loop without a time limit."""
    asked = [(Request(messages=(Message.of("user", "first"),)), timeout_s), (REQUEST, None)]

    async def main() -> None:
        for request, within_s in asked:
            try:
                found.append((await aask(client, way, within_s, request))[-1])
            except ProviderError as error:
                found.append(error)

    found: list[Any] = []
    if way in ASYNC:
        asyncio.run(main())
    for request, within_s in () if way in ASYNC else asked:
        try:
            found.append(ask(client, way, within_s, request)[-1])
        except ProviderError as error:
            found.append(error)
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_fault_becomes_however_it_is_asked_and_over_what(fault: str) -> None:
    """The only allowed connection is then free for the next request."""
    case = FAULTS[fault]
    narrow = replace(case.network, max_connections=1, pool_s=10.0)
    for way in case.ways:
        # On a busy machine the deadline of the first may pass before it is sent.
        script = lambda seen, way=way: case.script if b"first" in seen.body else good(way)  # noqa: E731
        with FaultServer(script) as server:
            is_own = way in TWO_WAYS
            with client_of(server, narrow if is_own else over_httpx(narrow, server.base_url)) as client:
                error, reply = two_outcomes(client, way, case.timeout_s)
        assert isinstance(error, case.error)
        assert (error.retryable, error.status) == (case.retryable, case.status)
        assert error.retry_after_s == case.retry_after_s
        assert case.names in error.message
        assert KEY not in shown_by(error)
        assert "token=abc" not in shown_by(error)
        assert KEY not in variables_of(error)
        assert len(str(error)) < 2000
        assert isinstance(reply, Reply) or (case.network is TINY and isinstance(reply, TimedOut)), "a busy machine"
        assert len(server.requests) == 2 or case.timeout_s, "the client retries nothing by itself"


@each_way
def test_nobody_listens(way: str) -> None:
    with FaultServer([CLOSE]) as server:
        address = server.base_url
    with client_of(address) as client, pytest.raises(TimedOut) as caught:
        ask(client, way)
    assert caught.value.retryable
    assert f"'{address}/chat/completions'" in caught.value.message
    assert KEY not in shown_by(caught.value)


@each_way
def test_a_server_without_tls_is_no_connection(way: str) -> None:
    with FaultServer([CLOSE]) as server:
        base_url = server.base_url.replace("http:", "https:")
        with client_of(base_url) as client, pytest.raises(TimedOut, match=base_url):
            ask(client, way)


@each_way
def test_no_time_left_means_no_socket(way: str) -> None:
    with FaultServer(good(way)) as server, client_of(server) as client:
        with pytest.raises(TimedOut):
            ask(client, way, timeout_s=0.0)
        assert server.n_connections == 0


COMPLETE_BUT: dict[str, list[Step]] = {
    "never ended": [SSE_HEAD, chunk(PIECES), CLOSE],
    "reset": [SSE_HEAD, chunk(PIECES), RESET],
    "kept open": [SSE_HEAD, chunk(PIECES), STALL],
    "without [DONE]": [SSE_HEAD, chunk(PIECES.replace(b"data: [DONE]\n\n", b"")), END_OF_CHUNKS],
    "mislabelled": [http(PIECES, content_type="text/plain")],
    "unlabelled": [head(), PIECES, CLOSE],
    "flooded": [OPEN_HEAD, PIECES, FLOOD],
}


@pytest.mark.usefixtures("over")
@pytest.mark.parametrize("oddity", COMPLETE_BUT)
def test_a_stream_that_is_complete_is_a_reply_however_it_ends(oddity: str) -> None:
    network = replace(ROOMY, linger_s=60.0 if oddity == "flooded" else 0.05)
    with FaultServer(COMPLETE_BUT[oddity]) as server, client_of(server, network) as client:
        for way in STREAMED:
            assert text(ask(client, way, timeout_s=60.0)[-1]) == "hello"
        if oddity == "kept open":
            assert server.wait_until_all_closed()


def test_what_comes_behind_a_complete_stream_makes_it_no_late_one() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield PIECES
        until_s = time.monotonic() + 0.01
        while time.monotonic() < until_s:  # longer than the connection may linger
            pass
        yield b": still here\n\n"

    headers = {"content-type": "text/event-stream"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=body()))
    with client_of(HTTPS, over_transport(transport, linger_s=0.001)) as client:
        assert text(ask(client, "stream")[-1]) == "hello"


@pytest.mark.parametrize("way", STREAMED)
def test_a_connection_that_ends_its_stream_is_used_again(way: str) -> None:
    late_end: list[Step] = [SSE_HEAD, chunk(PIECES), BARRIER, END_OF_CHUNKS]
    with FaultServer(late_end, STREAM) as server, client_of(server, Network(linger_s=60)) as client:
        assert [text(reply) for reply in outcomes(client, way, None, None)] == ["hello", "hello"]
        assert server.n_connections == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("script", [WHOLE, STREAM], ids=["whole", "streamed"])
def test_a_server_may_stream_or_not_as_it_likes(script: list[Step], way: str) -> None:
    with FaultServer([b"HTTP/1.1 102 Processing\r\n\r\n", *script]) as server, client_of(server) as client:
        assert text(ask(client, way)[-1]) == "hello"


@each_way
@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_replies_are_read(encoding: str, compress: Any, way: str) -> None:
    kind = "text/event-stream" if way in STREAMED else "application/json"
    body = PIECES if way in STREAMED else json.dumps(completion()).encode()
    script = [http(compress(body), content_encoding=encoding, content_type=kind)]
    with FaultServer(script) as server, client_of(server) as client:
        assert text(ask(client, way)[-1]) == "hello"


@each_way
def test_a_reply_as_long_as_the_bound_is_read(way: str) -> None:
    body = http(completion()).partition(b"\r\n\r\n")[2]
    exact = Network(max_reply_bytes=len(body))
    with FaultServer([http(body)], [http(body + b" ")]) as server, client_of(server, exact) as client:
        reply, error = outcomes(client, way, None, None)
    assert text(reply) == "hello"
    assert isinstance(error, BadReply)


@pytest.mark.nightly
def test_neither_a_bomb_nor_a_long_stream_is_kept() -> None:
    bomb = http(gzip.compress(b" " * 20_000_000), content_encoding="gzip")
    comments = chunk((b": " + b"x" * 1000 + b"\n\n") * 200)
    network = Network(max_reply_bytes=30_000_000)
    for script, roomy in (([bomb], ROOMY), ([SSE_HEAD, *[comments] * 40, chunk(PIECES), END_OF_CHUNKS], network)):
        with FaultServer(script) as server, client_of(server, roomy) as client:
            tracemalloc.start()
            outcomes(client, "stream", None)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 5_000_000


@pytest.mark.system
@pytest.mark.usefixtures("over")
@pytest.mark.parametrize("way", STREAMED)
def test_comments_keep_a_stream_alive(way: str) -> None:
    """Together they take longer than the stream may idle, but no single one does."""
    pauses: list[Step] = [lambda _: time.sleep(0.4), b": wait\n\n"] * 8
    with FaultServer([OPEN_HEAD, *pauses, PIECES, CLOSE]) as server, client_of(server, Network(idle_s=3.0)) as client:
        assert text(ask(client, way)[-1]) == "hello"


def test_pieces_are_there_before_the_rest_is_sent() -> None:
    with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL]) as server, client_of(server) as client:
        items = client.stream(REQUEST)
        assert next(items) == TextDelta("hel")
        client.close()
        with pytest.raises(ProviderError):
            next(items)
        assert server.wait_until_all_closed()


@each_way
def test_a_header_that_comes_twice_says_both(way: str) -> None:
    (whole, *rest) = good(way)
    assert isinstance(whole, bytes)
    begin, blank, body = whole.partition(b"\r\n\r\n")
    twice = begin + b"\r\nX-Request-Id: one\r\nx-request-id: two\xe9" + blank + body
    with FaultServer([twice, *rest]) as server, client_of(server) as client:
        reply = ask(client, way)[-1]
    assert reply.request_id == "one, two\xe9"


class TestClosing:
    def test_a_closed_client_says_so_even_before_a_stream_is_begun(self) -> None:
        client = client_of("http://127.0.0.1:1")
        client.close()
        assert repr(client) == "<HttpClient 'openai-compatible:m' closed>"
        for begin in (client.stream, client.astream):
            with pytest.raises(UsageError, match="openai-compatible:m"):
                begin(REQUEST)

    @pytest.mark.usefixtures("over")
    def test_both_kinds_of_with_and_from_outside(self) -> None:
        async def main() -> None:
            async with client_of(server) as client:
                await client.acomplete(REQUEST)
                await asyncio.to_thread(client.complete, REQUEST)
            assert await asyncio.to_thread(server.wait_until_all_closed)
            other = client_of(server)
            await other.acomplete(REQUEST)
            await asyncio.to_thread(other.close)
            assert await asyncio.to_thread(server.wait_until_all_closed)

        with FaultServer(WHOLE) as server:
            with client_of(server) as client:
                client.complete(REQUEST)
            assert server.wait_until_all_closed()
            asyncio.run(main())


class TestRequests:
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

    @pytest.mark.parametrize(
        ("failure", "error", "retryable"),
        [
            (httpx.ConnectTimeout("slow"), TimedOut, True),
            (httpx.WriteTimeout("slow"), TimedOut, True),
            (httpx.ReadError("gone"), TimedOut, True),
            (httpx.ProxyError("407 Proxy Authentication Required"), TimedOut, True),
            (httpx.UnsupportedProtocol("gopher"), ProviderError, False),
        ],
    )
    def test_what_a_transport_can_say(
        self, failure: httpx.TransportError, error: type[ProviderError], retryable: bool
    ) -> None:
        def fail(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            raise failure

        asked: list[httpx.Request] = []
        with client_of(HTTPS, over_transport(httpx.MockTransport(fail))) as client:
            for way in TWO_WAYS:
                outcome = outcomes(client, way, None)[0]
                assert isinstance(outcome, error)
                assert outcome.retryable is retryable
        assert len(asked) == 2

    def test_a_certificate_that_is_not_trusted_is_not_worth_a_retry(self) -> None:
        def refuse(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("certificate verify failed") from ssl.SSLCertVerificationError("self-signed")

        with (
            client_of(HTTPS, over_transport(httpx.MockTransport(refuse))) as client,
            pytest.raises(TimedOut) as caught,
        ):
            client.complete(REQUEST)
        assert not caught.value.retryable

    def test_errors_that_cause_each_other(self) -> None:
        def fail(request: httpx.Request) -> httpx.Response:
            direct, detour = httpx.ConnectError("refused"), OSError("no route")
            detour.__cause__ = direct
            raise direct from detour

        with client_of(HTTPS, over_transport(httpx.MockTransport(fail))) as client, pytest.raises(TimedOut) as caught:
            client.complete(REQUEST)
        assert caught.value.retryable

    @each_way
    def test_a_client_closed_while_it_sends(self, way: str) -> None:
        def close(request: httpx.Request) -> httpx.Response:
            client.close()
            raise RuntimeError("Cannot send a request, as the client has been closed.")

        client = client_of(HTTPS, over_transport(httpx.MockTransport(close)))
        with pytest.raises(UsageError, match="openai-compatible:m"):
            ask(client, way)

    @each_way
    def test_a_bug_of_a_transport_stays_one(self, way: str) -> None:
        def fail(request: httpx.Request) -> httpx.Response:
            raise RuntimeError("a bug")

        with (
            client_of(HTTPS, over_transport(httpx.MockTransport(fail))) as client,
            pytest.raises(RuntimeError, match="a bug"),
        ):
            ask(client, way)

    def test_a_transport_that_decompresses(self) -> None:
        body, headers = gzip.compress(json.dumps(completion("own")).encode()), {"content-encoding": "gzip"}
        network = over_transport(httpx.MockTransport(lambda _: httpx.Response(200, content=body, headers=headers)))
        with client_of(HTTPS, network) as client:
            assert client.complete(REQUEST).message.text == "own"

    @each_way
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
        with client_of(HTTPS, over_transport(transport)) as client:
            assert text(ask(client, way)[-1]) == "hello"

    def test_its_name_is_the_models(self) -> None:
        assert client_for("openai:gpt-5-mini").name == "openai:gpt-5-mini"
        assert client_for("ollama:gpt-oss:20b").name == "ollama:gpt-oss:20b"
        assert client_for("local:").name == "local:"

    @pytest.mark.parametrize(
        ("model", "takes_images", "reports_logprobs"),
        [
            ("openai:gpt-4o", True, True),
            ("openai:gpt-4", False, True),
            ("anthropic:claude-x", True, False),
            ("local:", False, True),
        ],
    )
    def test_it_takes_and_reports_what_its_model_does(
        self, model: str, takes_images: bool, reports_logprobs: bool
    ) -> None:
        client = client_for(model)
        assert (client.takes_images, client.reports_logprobs) == (takes_images, reports_logprobs)

    def test_an_unknown_provider_is_a_mistake_at_once(self) -> None:
        for make in (lambda: client_for("opnai:gpt-5-mini"), lambda: HttpClient("opnai", "gpt-5-mini")):
            with pytest.raises(ConfigError, match="'openai'"):
                make()

    @pytest.mark.parametrize("name", ["provider", "model", "headers", "network"])
    def test_an_argument_of_another_type_is_named(self, name: str) -> None:
        with pytest.raises(ConfigError, match=f"^{name}"):
            HttpClient(**{"provider": "openai", "model": "gpt-5-mini", name: 3})


class TestEmbedded:
    def test_a_model_that_is_not_there(self) -> None:
        for way in TWO_WAYS:
            with (
                client_for("local:/no/such/model.gguf") as client,
                pytest.raises(ConfigError, match=r"'/no/such/model\.gguf'"),
            ):
                ask(client, way)

    @pytest.mark.system
    @pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="no engine")
    def test_the_real_one(self) -> None:
        request = Request(messages=REQUEST.messages, settings=Settings(temperature=0.0, max_tokens=3))
        with client_for("local:") as client:
            try:
                client.check_available()
            except ConfigError as error:
                pytest.skip(str(error))
            texts = {text(ask(client, way, request=request)[-1]) for way in WAYS * 2}
        assert len(texts) == 1
        assert texts != {""}
