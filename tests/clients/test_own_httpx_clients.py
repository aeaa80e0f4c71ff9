"""Does a user's own client of httpx send our requests as it sends all others, and do they end when they should?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import respx
from conformance.client_requests import TWO_WAYS, ask, outcomes
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.fault_server import BARRIER, FaultServer, http
from support.http_clients import (
    FIRST_PIECE,
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

from fsm_agent.clients.http import AsyncPooledTransport, Network, PooledTransport
from fsm_agent.errors import RateLimited, UsageError

AT_ONCE_S = 5.0  # a server that says nothing does so for twice as long
ADDRESS = "https://api.invalid/v1"
each_way = pytest.mark.parametrize("way", TWO_WAYS)


def network_of(hooks: Any = None, ahooks: Any = None, **options: Any) -> Network:
    """A network over two clients of a user."""
    return Network(
        client=httpx.Client(event_hooks=hooks, **options),
        async_client=httpx.AsyncClient(event_hooks=ahooks or hooks, **options),
    )


def hooks_of(seen: list[str], *, is_async: bool) -> dict[str, list[Any]]:
    def heard(item: httpx.Request | httpx.Response) -> None:
        seen.append(f"{item.method} {item.url.path}" if isinstance(item, httpx.Request) else str(item.status_code))

    async def aheard(item: httpx.Request | httpx.Response) -> None:
        heard(item)

    hook = aheard if is_async else heard
    return {"request": [hook], "response": [hook]}


class TestWhatItAdds:
    @each_way
    def test_its_event_hooks_are_called(self, way: str) -> None:
        seen = list[str]()
        network = network_of(hooks_of(seen, is_async=False), hooks_of(seen, is_async=True))
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

        def reading(response: httpx.Response) -> None:
            read.append(len(response.read()))

        async def areading(response: httpx.Response) -> None:
            read.append(len(await response.aread()))

        network = network_of({"response": [reading]}, {"response": [areading]})
        with FaultServer(good(way)) as server, client_of(server, network) as client:
            assert text(ask(client, way)[-1]) == "hello"
        assert read[0] > 0

    @each_way
    @pytest.mark.parametrize("reads", [True, False])
    def test_a_hook_that_raises_for_a_status_gives_an_error_of_ours(self, way: str, reads: bool) -> None:
        def raising(response: httpx.Response) -> None:
            if reads:
                response.read()
            response.raise_for_status()

        async def araising(response: httpx.Response) -> None:
            if reads:
                await response.aread()
            response.raise_for_status()

        network = network_of({"response": [raising]}, {"response": [araising]})
        with FaultServer(refused(429, retry_after="7")) as server, client_of(server, network) as client:
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
            network = Network(client=httpx.Client(proxy=address), async_client=httpx.AsyncClient(proxy=address))
            with client_of("http://api.invalid/v1", network) as client:
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

    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_respx_answers_for_a_users_clients(self, way: str) -> None:
        network = Network(client=httpx.Client(), async_client=httpx.AsyncClient())
        with respx.mock, client_of(ADDRESS, network) as client:
            route = respx.post(f"{ADDRESS}/chat/completions").respond(json=completion("mocked"))
            assert text(ask(client, way)[-1]) == "mocked"
        assert route.call_count == 1

    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_and_for_our_own_where_it_mocks_httpx(self, way: str) -> None:
        """By default it mocks httpcore, on which our pools do not stand."""
        with respx.mock(using="httpx") as router, client_of(ADDRESS) as client:
            route = router.post(f"{ADDRESS}/chat/completions").respond(json=completion("mocked"))
            assert text(ask(client, way)[-1]) == "mocked"
        assert route.call_count == 1


@each_way
def test_opentelemetry_traces_it(way: str) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    network = network_of()
    for client in (network.client, network.async_client):
        assert client is not None
        HTTPXClientInstrumentor.instrument_client(client, tracer_provider=provider)
    with FaultServer(good(way)) as server, client_of(server, network) as client:
        assert text(ask(client, way)[-1]) == "hello"
    [span] = exporter.get_finished_spans()
    assert span.name == "POST"
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" in server.requests[0].headers["traceparent"]


class TestWhoseItIs:
    @each_way
    def test_it_stays_open(self, way: str) -> None:
        network = network_of()
        for _ in range(2):
            with FaultServer(good(way)) as server, client_of(server, network) as client:
                assert text(ask(client, way)[-1]) == "hello"
        assert network.client is not None
        assert network.async_client is not None
        assert not network.client.is_closed
        assert not network.async_client.is_closed

    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_one_that_is_closed_is_a_mistake(self, way: str) -> None:
        network = network_of()
        assert network.client is not None
        assert network.async_client is not None
        network.client.close()
        asyncio.run(network.async_client.aclose())
        with client_of(ADDRESS, network) as client, pytest.raises(RuntimeError, match="client has been closed"):
            ask(client, way)

    def test_one_colour_does_not_stand_in_for_the_other(self) -> None:
        with (
            client_of(ADDRESS, Network(client=httpx.Client())) as client,
            pytest.raises(UsageError, match="network: expected async_client"),
        ):
            ask(client, "acomplete")
        with (
            client_of(ADDRESS, Network(async_client=httpx.AsyncClient())) as client,
            pytest.raises(UsageError, match="network: expected client"),
        ):
            ask(client, "complete")


class TestMany:
    def test_threads_begin_at_once(self) -> None:
        """From a cold start: the client has sent nothing before."""
        with FaultServer([BARRIER, *WHOLE], together=16) as server, client_of(server, network_of()) as client:
            assert in_threads(16, lambda: text(ask(client, "complete")[-1])) == ["hello"] * 16

    def test_several_clients_of_ours_share_it(self) -> None:
        network = network_of()
        with FaultServer(WHOLE) as server:
            clients = [client_of(server, network) for _ in range(3)]
            assert [text(ask(client, "complete")[-1]) for client in clients] == ["hello"] * 3


class TestPoolsAlone:
    """The transports under httpx, without the rest of the package."""

    @pytest.fixture
    def server(self) -> Iterator[FaultServer]:
        with FaultServer([http({"a": 1})]) as server:
            yield server

    def test_all_that_a_request_may_be(self, server: FaultServer) -> None:
        with httpx.Client(transport=PooledTransport(), base_url=server.base_url) as client:
            assert client.get("/x", params={"q": "a b"}).json() == {"a": 1}
            assert client.post("/x", content=iter([b"one", b"two"])).http_version == "HTTP/1.1"
            assert client.put("/x", data={"k": "v"}).reason_phrase
            assert client.post("/x", files={"f": b"data"}).status_code == 200
        assert len(server.requests) == 4
        assert server.requests[0].path == "/v1/x?q=a+b"
        assert server.requests[1].body == b"onetwo"
        assert server.n_connections == 1

    def test_the_same_for_asyncio(self, server: FaultServer) -> None:
        async def pieces() -> Any:
            yield b"one"
            yield b"two"

        async def main() -> None:
            async with httpx.AsyncClient(transport=AsyncPooledTransport(), base_url=server.base_url) as client:
                assert (await client.get("/x")).json() == {"a": 1}
                assert (await client.post("/x", content=pieces())).status_code == 200

        asyncio.run(main())
        assert server.requests[1].body == b"onetwo"
        assert server.n_connections == 1

    def test_each_event_loop_has_connections_of_its_own_and_closes_them(self, server: FaultServer) -> None:
        """Of a client that lives on, as that of a program does which calls `asyncio.run` for each of its calls."""

        async def main() -> None:
            for _ in range(2):
                assert (await client.get("/x")).status_code == 200

        client = httpx.AsyncClient(transport=AsyncPooledTransport(), base_url=server.base_url)
        for n_loops in (1, 2):
            asyncio.run(main())
            assert server.n_connections == n_loops
            assert server.wait_until_all_closed()
