"""Does a user's own client of httpx send our requests as it sends all others, and do they end when they should?"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import respx
from conformance.client_requests import ASYNC, REQUEST, WAYS, aask, ask, outcomes
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.fault_server import BARRIER, SSE_HEAD, STALL, FaultServer, chunk, http
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

from fsm_agent import Agent, Limits
from fsm_agent.clients.http import AsyncPooledTransport, Deadline, Network, PooledTransport
from fsm_agent.errors import RateLimited, TimedOut, UsageError
from fsm_agent.messages import TextDelta
from fsm_agent.runtime.abort import Abort, Aborted
from fsm_agent.testing import FakeClock

AT_ONCE_S = 5.0  # a server that says nothing does so for twice as long
ADDRESS = "https://api.invalid/v1"
each_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(params=["stock", "pooled"])
def kind(request: pytest.FixtureRequest) -> str:
    """The transport of the user's clients: httpx's own, or ours."""
    return str(request.param)


def network_of(kind: str, hooks: Any = None, ahooks: Any = None, **options: Any) -> Network:
    """A network over two clients of a user."""
    pooled: tuple[Any, Any] = (PooledTransport(), AsyncPooledTransport()) if kind == "pooled" else (None, None)
    return Network(
        client=httpx.Client(transport=pooled[0], event_hooks=hooks, **options),
        async_client=httpx.AsyncClient(transport=pooled[1], event_hooks=ahooks or hooks, **options),
    )


def hooks_of(seen: list[str], *, is_async: bool) -> dict[str, list[Any]]:
    def heard(item: httpx.Request | httpx.Response) -> None:
        seen.append(f"{item.method} {item.url.path}" if isinstance(item, httpx.Request) else str(item.status_code))

    async def aheard(item: httpx.Request | httpx.Response) -> None:
        heard(item)

    hook = aheard if is_async else heard
    return {"request": [hook], "response": [hook]}


class TestWhatItAdds:
    @pytest.mark.system
    @each_way
    def test_its_event_hooks_are_called(self, kind: str, way: str) -> None:
        seen = list[str]()
        network = network_of(kind, hooks_of(seen, is_async=False), hooks_of(seen, is_async=True))
        with FaultServer(good(way)) as server, client_of(server, network) as client:
            assert text(ask(client, way)[-1]) == "hello"
        assert seen == ["POST /v1/chat/completions", "200"]

    @pytest.mark.system
    @each_way
    def test_its_headers_and_its_authentication_are_sent(self, kind: str, way: str) -> None:
        network = network_of(kind, headers={"x-team": "a"}, auth=("me", "pa55-word"))
        with FaultServer(good(way)) as server, client_of(server, network) as client:
            ask(client, way)
        headers = server.requests[0].headers
        assert headers["x-team"] == "a"
        assert headers["authorization"].startswith("Basic "), "authentication has the last word, as in httpx"
        assert headers["user-agent"] == "fsm-agent"

    @pytest.mark.system
    @each_way
    def test_authentication_may_take_two_requests(self, kind: str, way: str) -> None:
        challenge = http("", status=401, www_authenticate='Digest realm="r", nonce="n", qop="auth", algorithm=MD5')
        network = network_of(kind, auth=httpx.DigestAuth("me", "pa55-word"))
        with FaultServer([challenge], good(way)) as server, client_of(server, network) as client:
            assert text(ask(client, way)[-1]) == "hello"
        first, second = server.requests
        assert first.body == second.body
        assert second.headers["authorization"].startswith("Digest ")

    @pytest.mark.system
    @each_way
    def test_a_hook_that_reads_the_response_leaves_it_to_us(self, kind: str, way: str) -> None:
        read = list[int]()

        def reading(response: httpx.Response) -> None:
            read.append(len(response.read()))

        async def areading(response: httpx.Response) -> None:
            read.append(len(await response.aread()))

        network = network_of(kind, {"response": [reading]}, {"response": [areading]})
        with FaultServer(good(way)) as server, client_of(server, network) as client:
            assert text(ask(client, way)[-1]) == "hello"
        assert read[0] > 0

    @pytest.mark.system
    @each_way
    @pytest.mark.parametrize("reads", [True, False])
    def test_a_hook_that_raises_for_a_status_gives_an_error_of_ours(self, kind: str, way: str, reads: bool) -> None:
        def raising(response: httpx.Response) -> None:
            if reads:
                response.read()
            response.raise_for_status()

        async def araising(response: httpx.Response) -> None:
            if reads:
                await response.aread()
            response.raise_for_status()

        network = network_of(kind, {"response": [raising]}, {"response": [araising]})
        with FaultServer(refused(429, retry_after="7")) as server, client_of(server, network) as client:
            error = outcomes(client, way, None)[0]
        assert isinstance(error, RateLimited)
        assert error.retry_after_s == 7
        assert ("No, and not later" in error.message) == reads

    @pytest.mark.system
    @each_way
    def test_no_redirect_is_followed(self, kind: str, way: str) -> None:
        """A key would go with it."""
        network = network_of(kind, follow_redirects=True)
        with FaultServer([http("", status=307, location="/elsewhere")]) as server, client_of(server, network) as client:
            error = outcomes(client, way, None)[0]
        assert "redirects to '/elsewhere'" in str(error)
        assert len(server.requests) == 1

    @pytest.mark.system
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

    @pytest.mark.parametrize("way", ["complete", "acomplete"])
    def test_respx_answers_for_a_users_clients(self, way: str) -> None:
        network = Network(client=httpx.Client(), async_client=httpx.AsyncClient())
        with respx.mock, client_of(ADDRESS, network) as client:
            route = respx.post(f"{ADDRESS}/chat/completions").respond(json=completion("mocked"))
            assert text(ask(client, way)[-1]) == "mocked"
        assert route.call_count == 1

    @pytest.mark.parametrize("way", ["complete", "acomplete"])
    def test_and_for_our_own_where_it_mocks_httpx(self, way: str) -> None:
        """By default it mocks httpcore, on which our pools do not stand."""
        with respx.mock(using="httpx") as router, client_of(ADDRESS) as client:
            route = router.post(f"{ADDRESS}/chat/completions").respond(json=completion("mocked"))
            assert text(ask(client, way)[-1]) == "mocked"
        assert route.call_count == 1


@pytest.mark.system
@each_way
def test_opentelemetry_traces_it(kind: str, way: str) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    network = network_of(kind)
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
    @pytest.mark.system
    @each_way
    def test_it_stays_open(self, kind: str, way: str) -> None:
        network = network_of(kind)
        for _ in range(2):
            with FaultServer(good(way)) as server, client_of(server, network) as client:
                assert text(ask(client, way)[-1]) == "hello"
        assert network.client is not None
        assert network.async_client is not None
        assert not network.client.is_closed
        assert not network.async_client.is_closed

    @pytest.mark.parametrize("way", ["complete", "acomplete"])
    def test_one_that_is_closed_is_a_mistake(self, kind: str, way: str) -> None:
        network = network_of(kind)
        assert network.client is not None
        assert network.async_client is not None
        network.client.close()
        asyncio.run(network.async_client.aclose())
        with client_of(ADDRESS, network) as client, pytest.raises(RuntimeError, match="client has been closed"):
            ask(client, way)

    def test_one_colour_does_not_stand_in_for_the_other(self) -> None:
        with (
            client_of(ADDRESS, Network(client=httpx.Client())) as client,
            pytest.raises(UsageError, match="no async_client for calls that are awaited"),
        ):
            ask(client, "acomplete")
        with (
            client_of(ADDRESS, Network(async_client=httpx.AsyncClient())) as client,
            pytest.raises(UsageError, match="no client for calls without await"),
        ):
            ask(client, "complete")

    @pytest.mark.system
    def test_a_pooled_one_uses_its_connection_again(self) -> None:
        with FaultServer(WHOLE) as server, client_of(server, network_of("pooled")) as client:
            ask(client, "complete")
            ask(client, "complete")
            assert server.n_connections == 1


class TestItsRequestsEnd:
    @pytest.mark.system
    @pytest.mark.parametrize("steps", [[STALL], [SSE_HEAD, chunk(FIRST_PIECE), STALL]], ids=["head", "body"])
    def test_an_abort_ends_what_waits(self, kind: str, steps: Any) -> None:
        abort, ended = Abort(), list[BaseException]()

        def work() -> None:
            try:
                abort.run(ask, client, "stream")
            except BaseException as error:
                ended.append(error)

        with FaultServer(steps) as server, client_of(server, network_of(kind)) as client:
            thread = threading.Thread(target=work)
            thread.start()
            assert server.wait_for_requests(1)
            started_s = time.monotonic()
            abort.set()
            thread.join(AT_ONCE_S)
            assert time.monotonic() - started_s < AT_ONCE_S
            assert server.wait_until_all_closed()
        assert [type(error) for error in ended] == [Aborted]

    @pytest.mark.system
    @each_way
    def test_the_deadline_does(self, kind: str, way: str) -> None:
        with FaultServer([STALL]) as server, client_of(server, network_of(kind)) as client:
            started_s = time.monotonic()
            error = outcomes(client, way, 0.2)[0]
            assert time.monotonic() - started_s < AT_ONCE_S
        assert isinstance(error, TimedOut)
        assert "in 0.2 s" in error.message

    @pytest.mark.system
    @pytest.mark.parametrize("way", ASYNC)
    def test_cancelling_the_task_does(self, kind: str, way: str) -> None:
        async def main() -> None:
            task = asyncio.create_task(aask(client, way))
            assert await asyncio.to_thread(server.wait_for_requests, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.wait_until_all_closed)

        with FaultServer([STALL]) as server, client_of(server, network_of(kind)) as client:
            asyncio.run(main())


class TestMany:
    @pytest.mark.system
    def test_threads_begin_at_once(self, kind: str) -> None:
        """From a cold start: the client has sent nothing before."""
        with FaultServer([BARRIER, *WHOLE], together=16) as server, client_of(server, network_of(kind)) as client:
            assert in_threads(16, lambda: text(ask(client, "complete")[-1])) == ["hello"] * 16

    @pytest.mark.system
    def test_event_loops_run_at_once(self, kind: str) -> None:
        with FaultServer([BARRIER, *WHOLE], together=4) as server, client_of(server, network_of(kind)) as client:
            assert in_threads(4, lambda: text(ask(client, "acomplete")[-1])) == ["hello"] * 4

    @pytest.mark.system
    def test_event_loops_follow_one_another(self, kind: str) -> None:
        with FaultServer(WHOLE) as server, client_of(server, network_of(kind)) as client:
            assert [text(ask(client, "acomplete")[-1]) for _ in range(3)] == ["hello"] * 3

    @pytest.mark.system
    def test_several_clients_of_ours_share_it(self, kind: str) -> None:
        network = network_of(kind)
        with FaultServer(WHOLE) as server:
            clients = [client_of(server, network) for _ in range(3)]
            assert [text(ask(client, "complete")[-1]) for client in clients] == ["hello"] * 3


@pytest.mark.system
def test_an_agent_streams_over_it(kind: str) -> None:
    with FaultServer(good("stream")) as server, client_of(server, network_of(kind)) as client:
        agent = Agent(client, limits=Limits(recalls=0), world={"clock": FakeClock()})
        assert "".join([e.text for e in agent.stream("Hello?") if isinstance(e, TextDelta)]) == "hello"


class TestPoolsAlone:
    """The transports under httpx, without the rest of the package."""

    @pytest.fixture
    def server(self) -> Iterator[FaultServer]:
        with FaultServer([http({"a": 1})]) as server:
            yield server

    @pytest.mark.system
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

    @pytest.mark.system
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

    @pytest.mark.system
    def test_a_timeout_is_httpxs(self) -> None:
        with FaultServer([STALL]) as server, httpx.Client(transport=PooledTransport(), timeout=None) as client:
            with pytest.raises(httpx.ReadTimeout):
                client.get(server.base_url, timeout=0.05)
            with pytest.raises(httpx.ReadTimeout):
                client.get(server.base_url, extensions={"fsm_agent.deadline": Deadline(0.05)})

    @pytest.mark.system
    def test_what_is_closed_sends_no_more(self, server: FaultServer) -> None:
        transport = PooledTransport()
        transport.close()
        with pytest.raises(RuntimeError, match="closed"):
            transport.handle_request(httpx.Request("GET", server.base_url))

        async def main() -> None:
            atransport = AsyncPooledTransport()
            await atransport.handle_async_request(httpx.Request("GET", server.base_url))
            await atransport.aclose()
            with pytest.raises(RuntimeError, match="closed"):
                await atransport.handle_async_request(httpx.Request("GET", server.base_url))

        asyncio.run(main())


@pytest.mark.system
def test_a_subclass_of_a_client_is_one() -> None:
    class Own(httpx.Client):
        pass

    with FaultServer(WHOLE) as server, client_of(server, Network(client=Own())) as client:
        assert client.complete(REQUEST).message.text == "hello"
