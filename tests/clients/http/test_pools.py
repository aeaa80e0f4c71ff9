"""Are connections used again, replaced when dead, never left open, and each loop's and thread's own?"""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import aclosing, closing
from typing import Any

import pytest
from conformance.client_requests import REQUEST, WAYS, ask, outcomes
from support.copies import replace
from support.fault_server import BARRIER, CLOSE, END_OF_CHUNKS, RESET, SSE_HEAD, STALL, FaultServer, Step, chunk
from support.http_clients import FIRST_PIECE, JSON_HEAD, PIECES, WHOLE, client_of, good, in_threads, refused, text

from fsm_agent.clients import HttpClient
from fsm_agent.clients.http import Network
from fsm_agent.errors import BadReply, ProviderError, TimedOut
from fsm_agent.messages import Reply, TextDelta
from fsm_agent.providers.catalog import PROVIDERS

pytestmark = pytest.mark.usefixtures("over")
our_own = pytest.mark.parametrize("over", [None], indirect=True)  # over httpx no connection is used again


@pytest.mark.system
@our_own
@pytest.mark.parametrize("ways", [("complete", "stream", "complete"), ("acomplete", "astream", "acomplete")])
def test_one_serves_many_requests(ways: tuple[str, ...]) -> None:
    async def main(client: HttpClient) -> None:
        for way in ways:
            if way == "acomplete":
                await client.acomplete(REQUEST)
            else:
                assert [item async for item in client.astream(REQUEST)]

    with FaultServer(*[good(way) for way in ways]) as server, client_of(server) as client:
        if ways[0] == "complete":
            assert all(ask(client, way) for way in ways)
        else:
            asyncio.run(main(client))
        assert len(server.requests) == 3
        assert server.n_connections == 1


@pytest.mark.system
@pytest.mark.parametrize("over", ["httpx"], indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_over_httpx_each_request_has_its_own(way: str) -> None:
    with FaultServer(good(way)) as server, client_of(server) as client:
        assert [text(reply) for reply in outcomes(client, way, None, None)] == ["hello", "hello"]
        assert [request.headers["connection"] for request in server.requests] == ["close", "close"]
        assert server.n_connections == 2


@pytest.mark.system
@our_own
@pytest.mark.parametrize("refusal", [refused(429), refused(500)])
def test_a_refusal_costs_no_connection(refusal: list[Step]) -> None:
    with FaultServer(refusal, WHOLE) as server, client_of(server) as client:
        with pytest.raises(ProviderError):
            client.complete(REQUEST)
        client.complete(REQUEST)
        assert server.n_connections == 1


@pytest.mark.system
@our_own
@pytest.mark.usefixtures("is_soon")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", [CLOSE, RESET])
def test_a_used_one_that_proves_dead_is_replaced_at_once(fault: Step, way: str) -> None:
    with FaultServer(good(way), [fault], good(way)) as server, client_of(server) as client:
        assert [text(reply) for reply in outcomes(client, way, None, None)] == ["hello", "hello"]
        assert [request.connection for request in server.requests] == [0, 0, 1]
        assert server.requests[2].body == server.requests[1].body


@pytest.mark.system
@our_own
@pytest.mark.usefixtures("is_soon")
@pytest.mark.parametrize("way", WAYS)
def test_but_only_once(way: str) -> None:
    with FaultServer(good(way), [CLOSE], [CLOSE], good(way)) as server, client_of(server) as client:
        assert isinstance(outcomes(client, way, None, None)[1], BadReply)
        assert len(server.requests) == 3


@pytest.mark.system
@our_own
@pytest.mark.usefixtures("is_soon")
def test_however_many_of_them_are_dead() -> None:
    """The second attempt goes over a new one: there is no telling how many of the others are dead, too."""
    scripts: list[list[Step]] = [[BARRIER, *WHOLE], [BARRIER, *WHOLE], [CLOSE], WHOLE]
    with FaultServer(*scripts, together=2) as server, client_of(server) as client:
        assert len(in_threads(2, lambda: client.complete(REQUEST))) == 2
        assert client.complete(REQUEST).message.text == "hello"
        assert server.requests[-1].connection == 2


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
def test_and_not_for_a_timeout_or_once_the_reply_has_begun(way: str) -> None:
    faults: list[list[Step]] = [[STALL], [JSON_HEAD, b"{", CLOSE], [JSON_HEAD, b"{", RESET]]
    for fault in faults:
        with FaultServer(good(way), fault, good(way)) as server, client_of(server) as client:
            assert isinstance(outcomes(client, way, None, 0.5 if fault == [STALL] else None)[1], ProviderError)
            assert len(server.requests) == 2


@pytest.mark.system
def test_streams_of_servers_that_close_after_them_say_so() -> None:
    provider = replace(PROVIDERS["llamacpp"], name="mine")
    script: list[Step] = [SSE_HEAD, chunk(PIECES), END_OF_CHUNKS, CLOSE]
    with FaultServer(script, WHOLE, WHOLE) as server:
        with HttpClient(provider, "m", base_url=server.base_url) as client:
            assert text(ask(client, "stream")[-1]) == "hello"
            ask(client, "complete")
            ask(client, "complete")
        assert server.requests[0].headers["connection"] == "close"
        assert server.requests[1].headers["connection"] == "keep-alive"
        assert [request.connection for request in server.requests] == [0, 1, 1]


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
def test_none_is_left_open(way: str) -> None:
    """Not by an exhausted one, not when nobody closes the client."""
    with FaultServer(good(way)) as server:
        client = client_of(server)
        ask(client, way)
        del client
        gc.collect()
        assert server.wait_until_all_closed()


@pytest.mark.system
def test_a_stream_closed_early_is_hung_up() -> None:
    with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL], WHOLE) as server, client_of(server) as client:
        with closing(client.stream(REQUEST)) as items:
            assert next(items) == TextDelta("hel")
        assert server.wait_until_all_closed()
        assert client.complete(REQUEST).message.text == "hello"


@pytest.mark.system
def test_an_async_stream_closed_early_is_hung_up() -> None:
    async def main() -> None:
        async with aclosing(client.astream(REQUEST)) as items:
            assert await anext(items) == TextDelta("hel")
        assert await asyncio.to_thread(server.wait_until_all_closed)
        assert (await client.acomplete(REQUEST)).message.text == "hello"

    with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL], WHOLE) as server, client_of(server) as client:
        asyncio.run(main())


@pytest.mark.system
def test_an_async_stream_that_is_forgotten_ends_with_its_loop() -> None:
    async def main() -> None:
        items = client.astream(REQUEST)
        forgotten.append(items)
        assert await anext(items) == TextDelta("hel")

    forgotten: list[Any] = []
    with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL]) as server, client_of(server) as client:
        asyncio.run(main())
        assert server.wait_until_all_closed()


@pytest.mark.system
def test_a_client_that_is_forgotten_in_a_loop_closes_its_connections() -> None:
    async def main() -> None:
        client = client_of(server)
        await client.acomplete(REQUEST)
        del client
        gc.collect()
        assert await asyncio.to_thread(server.wait_until_all_closed)

    with FaultServer(WHOLE) as server:
        asyncio.run(main())


@pytest.mark.system
@pytest.mark.parametrize("way", ["acomplete", "astream"])
@pytest.mark.parametrize("script", [[STALL], [SSE_HEAD, chunk(FIRST_PIECE), STALL]], ids=["head", "body"])
def test_a_cancelled_request_is_hung_up(script: list[Step], way: str) -> None:
    async def consume() -> None:
        if way == "acomplete":
            await client.acomplete(REQUEST, timeout_s=5.0)
        async for _ in client.astream(REQUEST, timeout_s=5.0):
            begun.set()

    async def main() -> None:
        task = asyncio.create_task(consume())
        assert await asyncio.to_thread(server.wait_for_requests, 1)
        if way == "astream" and len(script) > 1:
            await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.wait_until_all_closed)

    begun = asyncio.Event()
    with FaultServer(script) as server, client_of(server) as client:
        asyncio.run(main())


@pytest.mark.system
@pytest.mark.parametrize("way", ["acomplete", "astream"])
def test_each_event_loop_has_its_own_and_closes_them(way: str) -> None:
    with FaultServer(good(way)) as server, client_of(server) as client:
        for n_loops in (1, 2, 3):
            assert text(ask(client, way)[-1]) == "hello"
            assert server.n_connections == n_loops
            assert server.wait_until_all_closed()


@pytest.mark.system
def test_loops_that_have_ended_are_forgotten() -> None:
    def ask_in_new_loop() -> weakref.ref[asyncio.AbstractEventLoop]:
        with asyncio.Runner() as runner:
            runner.run(client.acomplete(REQUEST))
            return weakref.ref(runner.get_loop())

    with FaultServer(WHOLE) as server, client_of(server) as client:
        loops = [ask_in_new_loop() for _ in range(5)]
        gc.collect()
        assert [loop() is None for loop in loops[:-1]] == [True] * 4


@pytest.mark.system
def test_loops_may_run_at_once() -> None:
    with FaultServer([BARRIER, *WHOLE], together=4) as server, client_of(server) as client:
        replies = in_threads(4, lambda: ask(client, "acomplete")[0])
    assert [reply.message.text for reply in replies] == ["hello"] * 4


@pytest.mark.system
def test_threads_may_ask_at_once() -> None:
    with FaultServer([BARRIER, *WHOLE], together=8) as server, client_of(server) as client:
        replies = in_threads(8, lambda: client.complete(REQUEST))
    assert [reply.message.text for reply in replies] == ["hello"] * 8


@pytest.mark.system
def test_tasks_may_ask_at_once() -> None:
    async def main() -> list[Reply]:
        return await asyncio.gather(*[client.acomplete(REQUEST) for _ in range(8)])

    with FaultServer([BARRIER, *WHOLE], together=8) as server, client_of(server) as client:
        assert [reply.message.text for reply in asyncio.run(main())] == ["hello"] * 8


@pytest.mark.system
@our_own
def test_too_many_at_once_wait_for_each_other() -> None:
    narrow = Network(max_connections=2)
    with FaultServer(WHOLE) as server, client_of(server, narrow) as client:
        in_threads(8, lambda: client.complete(REQUEST))
        assert server.n_connections <= 2
        assert len(server.requests) == 8


@pytest.mark.system
@pytest.mark.parametrize("way", ["complete", "acomplete"])
def test_nobody_waits_for_ever_for_a_free_one(way: str) -> None:
    async def asynchronously() -> None:
        async with aclosing(client.astream(REQUEST)) as items:
            await anext(items)
            with pytest.raises(TimedOut, match="no free connection"):
                await client.acomplete(REQUEST)

    narrow = Network(max_connections=1, pool_s=0.05)
    with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL]) as server, client_of(server, narrow) as client:
        if way == "acomplete":
            asyncio.run(asynchronously())
            return
        with closing(client.stream(REQUEST)) as items:
            next(items)
            with pytest.raises(TimedOut, match="no free connection"):
                client.complete(REQUEST)
