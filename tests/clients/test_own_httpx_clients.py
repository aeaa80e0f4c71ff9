"""Does a user's own client of httpx send our requests as it sends all others, and do they end when they should?"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
import vcr
from conformance.client_requests import REQUEST, TWO_WAYS, aask, ask, outcomes
from httpx_aiohttp import HttpxAiohttpClient
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.fault_server import BARRIER, CLOSE, RESET, SSE_HEAD, FaultServer, http
from support.http_clients import (
    FIRST_PIECE,
    JSON_HEAD,
    KEY,
    WHOLE,
    client_of,
    completion,
    good,
    in_threads,
    over_transport,
    refused,
    text,
)

from fsm_agent.clients import Network
from fsm_agent.errors import BadReply, ConfigError, ProviderError, RateLimited, TimedOut, UsageError

AT_ONCE_S = 5.0  # a server that says nothing does so for twice as long
ADDRESS = "https://api.invalid/v1"
each_way = pytest.mark.parametrize("way", TWO_WAYS)


def network_of(*of_responses: Any, **options: Any) -> Network:
    """A network over clients of a user, with event hooks for responses."""
    return Network(client=lambda: httpx.AsyncClient(event_hooks={"response": [*of_responses]}, **options))


class TestWhatItAdds:
    @each_way
    def test_its_event_hooks_are_called(self, way: str) -> None:
        async def heard(item: httpx.Request | httpx.Response) -> None:
            seen.append(f"{item.method} {item.url.path}" if isinstance(item, httpx.Request) else str(item.status_code))

        seen = list[str]()
        hooks = {"request": [heard], "response": [heard]}
        network = Network(client=lambda: httpx.AsyncClient(event_hooks=hooks))
        with FaultServer(good(way)) as server, client_of(server, network) as client:
            assert text(ask(client, way)[-1]) == "hello"
        assert seen == ["POST /v1/chat/completions", "200"]

    @each_way
    def test_its_headers_and_its_authentication_are_sent(self, way: str) -> None:
        network = network_of(headers={"x-team": "a"}, auth=("me", "pa55-word"))
        with FaultServer(good(way)) as server, client_of(server, network) as client:
            ask(client, way)
        headers = server.requests[0].headers
        assert headers["x-team"] == "a"
        assert headers["authorization"].startswith("Basic "), "authentication has the last word, as in httpx"
        assert headers["user-agent"] == "fsm-agent"

    @each_way
    def test_authentication_may_take_two_requests(self, way: str) -> None:
        challenge = http("", status=401, www_authenticate='Digest realm="r", nonce="n", qop="auth", algorithm=MD5')
        network = network_of(auth=httpx.DigestAuth("me", "pa55-word"))
        with FaultServer([challenge], good(way)) as server, client_of(server, network) as client:
            assert text(ask(client, way)[-1]) == "hello"
        first, second = server.requests
        assert first.body == second.body
        assert second.headers["authorization"].startswith("Digest ")

    @each_way
    def test_a_hook_that_reads_the_response_leaves_it_to_us(self, way: str) -> None:
        read = list[int]()

        async def reading(response: httpx.Response) -> None:
            read.append(len(await response.aread()))

        with FaultServer(good(way)) as server, client_of(server, network_of(reading)) as client:
            assert text(ask(client, way)[-1]) == "hello"
        assert read[0] > 0

    @each_way
    def test_a_hook_that_reads_a_damaged_response_gives_an_error_of_ours(self, way: str) -> None:
        async def reading(response: httpx.Response) -> None:
            await response.aread()

        damaged = [http("no gzip", content_encoding="gzip")]
        with FaultServer(damaged) as server, client_of(server, network_of(reading)) as client:
            error = outcomes(client, way, None)[0]
        assert isinstance(error, BadReply)
        assert error.retryable
        assert "damaged" in error.message

    @each_way
    @pytest.mark.parametrize("reads", [True, False])
    def test_a_hook_that_raises_for_a_status_gives_an_error_of_ours(self, way: str, reads: bool) -> None:
        async def raising(response: httpx.Response) -> None:
            if reads:
                await response.aread()
            response.raise_for_status()

        with FaultServer(refused(429, retry_after="7")) as server, client_of(server, network_of(raising)) as client:
            error = outcomes(client, way, None)[0]
        assert isinstance(error, RateLimited)
        assert error.retry_after_s == 7
        assert ("No, and not later" in error.message) == reads

    @each_way
    def test_no_redirect_is_followed(self, way: str) -> None:
        """A key would go with it."""
        network = network_of(follow_redirects=True)
        with FaultServer([http("", status=307, location="/elsewhere")]) as server, client_of(server, network) as client:
            error = outcomes(client, way, None)[0]
        assert "redirects to '/elsewhere'" in str(error)
        assert len(server.requests) == 1

    @each_way
    def test_its_proxy_is_used(self, way: str) -> None:
        with FaultServer(good(way)) as proxy:
            address = proxy.base_url.removesuffix("/v1")
            with client_of("http://api.invalid/v1", network_of(proxy=address)) as client:
                assert text(ask(client, way)[-1]) == "hello"
        assert proxy.requests[0].path == "http://api.invalid/v1/chat/completions"


class TestMocks:
    @each_way
    def test_a_mock_transport_answers(self, way: str) -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            assert request.headers["authorization"] == f"Bearer {KEY}"
            if way in ("stream", "astream"):
                return httpx.Response(
                    200, headers={"content-type": "text/event-stream"}, content=FIRST_PIECE + b"data: [DONE]\n\n"
                )
            return httpx.Response(200, json=completion("mocked"))

        with client_of(ADDRESS, over_transport(httpx.MockTransport(answer))) as client:
            assert text(ask(client, way)[-1]) == ("hel" if way in ("stream", "astream") else "mocked")

    @each_way
    def test_one_response_may_answer_each_time(self, way: str) -> None:
        response = httpx.Response(200, json=completion("mocked"))
        with client_of(ADDRESS, over_transport(httpx.MockTransport(lambda _: response))) as client:
            assert [text(ask(client, way)[-1]) for _ in range(2)] == ["mocked", "mocked"]

    @each_way
    def test_respx_answers(self, way: str) -> None:
        with respx.mock, client_of(ADDRESS, network_of()) as client:
            route = respx.post(f"{ADDRESS}/chat/completions").respond(json=completion("mocked"))
            assert text(ask(client, way)[-1]) == "mocked"
        assert route.call_count == 1

    @each_way
    def test_respx_answers_for_our_own_where_it_mocks_httpx(self, way: str) -> None:
        """By default it mocks httpcore, on which our connections do not stand."""
        with respx.mock(using="httpx") as router, client_of(ADDRESS) as client:
            route = router.post(f"{ADDRESS}/chat/completions").respond(json=completion("mocked"))
            assert text(ask(client, way)[-1]) == "mocked"
        assert route.call_count == 1


@each_way
def test_vcrpy_records_and_plays_our_own(way: str, tmp_path: Path) -> None:
    """This includes requests that are sent in pieces."""
    tape = {"path": str(tmp_path / "tape.yaml"), "match_on": ["method", "uri", "body"]}
    with FaultServer(good(way)) as server:
        for _ in range(2):
            with vcr.use_cassette(**tape), client_of(server) as client:
                assert text(ask(client, way)[-1]) == "hello"
    assert len(server.requests) == 1


@each_way
def test_opentelemetry_traces_it(way: str) -> None:
    def traced() -> httpx.AsyncClient:
        own = httpx.AsyncClient()
        HTTPXClientInstrumentor.instrument_client(own, tracer_provider=provider)
        return own

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with FaultServer(good(way)) as server, client_of(server, Network(client=traced)) as client:
        assert text(ask(client, way)[-1]) == "hello"
    [span] = exporter.get_finished_spans()
    assert span.name == "POST"
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" in server.requests[0].headers["traceparent"]


class TestWhoseItIs:
    def test_one_that_a_function_made_is_closed_with_its_loop(self) -> None:
        def make() -> httpx.AsyncClient:
            made.append(httpx.AsyncClient())
            return made[-1]

        made = list[httpx.AsyncClient]()
        with FaultServer(WHOLE) as server, client_of(server, Network(client=make)) as client:
            for _ in range(2):
                assert text(ask(client, "acomplete")[-1]) == "hello"
        assert [own.is_closed for own in made] == [True, True]

    def test_one_of_a_client_that_ends_with_its_loop_is_closed(self) -> None:
        class SlowToClose(httpx.MockTransport):
            async def aclose(self) -> None:
                for _ in range(10):
                    await asyncio.sleep(0)
                closed.append(True)

        async def main() -> None:
            await client_of(ADDRESS, Network(client=lambda: httpx.AsyncClient(transport=transport))).acomplete(REQUEST)

        closed, transport = list[bool](), SlowToClose(lambda _: httpx.Response(200, json=completion()))
        asyncio.run(main())
        assert closed == [True]

    def test_one_that_is_passed_stays_open(self) -> None:
        async def main() -> None:
            async with httpx.AsyncClient() as own, client_of(server, Network(client=own)) as client:
                assert text((await aask(client, "acomplete"))[-1]) == "hello"
                await client.aclose()
                assert not own.is_closed

        with FaultServer(WHOLE) as server:
            asyncio.run(main())

    @each_way
    def test_one_that_is_closed_is_a_mistake(self, way: str) -> None:
        own = httpx.AsyncClient()
        asyncio.run(own.aclose())
        with client_of(ADDRESS, Network(client=own)) as client, pytest.raises(RuntimeError):
            ask(client, way)

    def test_one_serves_no_other_loop(self) -> None:
        own = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, json=completion())))
        with client_of(ADDRESS, Network(client=own)) as client, client_of(ADDRESS, Network(client=own)) as other:
            assert text(ask(client, "complete")[-1]) == "hello"
            assert text(ask(other, "complete")[-1]) == "hello", "all sync calls are made in one loop"
            with pytest.raises(UsageError, match="client of a Network"):
                ask(other, "acomplete")

    def test_a_sync_one_is_refused(self) -> None:
        with httpx.Client() as own, pytest.raises(ConfigError, match="client"):
            Network(client=own)  # type: ignore[arg-type]

    @each_way
    def test_a_function_has_to_make_one(self, way: str) -> None:
        network = Network(client=httpx.Client)  # type: ignore[arg-type]
        with client_of(ADDRESS, network) as client, pytest.raises(ConfigError, match="client"):
            ask(client, way)


@each_way
def test_what_it_logs_of_a_reply_is_masked(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """It quotes replies that it cannot read, and this server quotes the key."""
    caplog.set_level(logging.DEBUG)
    with FaultServer([SSE_HEAD, f"{KEY}\r\n".encode(), CLOSE]) as server, client_of(server, network_of()) as client:
        assert isinstance(outcomes(client, way, None)[0], BadReply)
    assert "httpcore.http11" in [record.name for record in caplog.records]
    assert KEY not in caplog.text


def test_threads_begin_at_once() -> None:
    """From a cold start: the client has sent nothing before."""
    with FaultServer([BARRIER, *WHOLE], together=16) as server, client_of(server, network_of()) as client:
        assert in_threads(16, lambda: text(ask(client, "complete")[-1])) == ["hello"] * 16


@each_way
@pytest.mark.parametrize(
    ("fault", "error"), [([RESET], TimedOut), ([CLOSE], BadReply), ([JSON_HEAD, b"{", CLOSE], BadReply)]
)
def test_httpx_aiohttp_of_a_user_fails_as_httpx_does(fault: Any, error: type[ProviderError], way: str) -> None:
    with FaultServer(fault) as server, client_of(server, Network(client=HttpxAiohttpClient)) as client:
        assert isinstance(outcomes(client, way, None)[0], error)
