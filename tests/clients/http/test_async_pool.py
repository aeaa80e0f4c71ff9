"""Is each request given the right connection, in its turn, and does none of them hoard what it reads?"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

import httpx
import pytest
from conformance.client_requests import ASYNC, REQUEST, aask
from support.fault_server import BARRIER, CLOSE, LIMIT_S, SSE_HEAD, STALL, FaultServer, chunk, http
from support.http_clients import FIRST_PIECE, JSON_HEAD, WHOLE, client_of, good, refused
from support.uncollected import uncollected

from fsm_agent.clients.http import AsyncPooledTransport, Network
from fsm_agent.clients.http.async_pool import AsyncConnection
from fsm_agent.clients.http.http1 import MAX_UNREAD_BYTES, ResponseHead
from fsm_agent.clients.http.prepared_request import PoolRequest
from fsm_agent.errors import ProviderError

ORIGIN = ("http", "h", 80)
SOON_S = LIMIT_S / 2  # before the server gives up


def run(
    main: Callable[[AsyncPooledTransport], Coroutine[Any, Any, None]], *, max_connections: int = 10, **more: float
) -> None:
    """``main`` with a pool."""

    async def go() -> None:
        async with AsyncPooledTransport(max_connections=max_connections, **more) as pool:
            await main(pool)

    asyncio.run(go())


async def post(pool: AsyncPooledTransport, server: FaultServer, content: bytes = b"{}") -> bytes:
    """The body of the answer to one request."""
    async with aclosing(await pool.handle_async_request(asked(server, content))) as response:
        return b"".join([data async for data in response.aiter_raw()])


def asked(server: FaultServer | str, content: bytes = b"{}", **timeouts: float) -> httpx.Request:
    """A request; a step without a timeout has 20 seconds."""
    url = server if isinstance(server, str) else f"{server.base_url}/x"
    limits = {"connect": 20.0, "read": 20.0, "write": 20.0, "pool": 20.0, **timeouts}
    return httpx.Request("POST", url, content=content, extensions={"timeout": limits})


def made(content: bytes = b"x", **timeouts: float) -> PoolRequest:
    """A request as a connection is given it."""
    return PoolRequest(asked("http://h/", content, **timeouts))


class Wiretap:
    """A transport that notes what is asked of it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def write(self, data: bytes) -> None:
        self.done.append("write")

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")

    def abort(self) -> None:
        self.done.append("abort")

    def is_closing(self) -> bool:
        return "abort" in self.done

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.system
def test_the_one_used_last_is_used_next() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        await asyncio.gather(*[post(pool, server) for _ in range(3)])
        for _ in range(4):
            await post(pool, server)

    with FaultServer([BARRIER, *WHOLE], [BARRIER, *WHOLE], [BARRIER, *WHOLE], WHOLE, together=3) as server:
        run(main)
    assert len({seen.connection for seen in server.requests[:3]}) == 3
    assert len({seen.connection for seen in server.requests[3:]}) == 1


@pytest.mark.system
def test_who_comes_first_is_served_first() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        await asyncio.gather(*[post(pool, server, b"%d" % number) for number in range(8)])

    with FaultServer(WHOLE) as server:
        run(main, max_connections=1)
    assert [seen.body for seen in server.requests] == [b"%d" % number for number in range(8)]
    assert server.n_connections == 1


@pytest.mark.system
@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_that_is_cancelled_takes_no_ones_place(number: int) -> None:
    """The first of them is on its way, the others wait."""

    async def main(pool: AsyncPooledTransport) -> None:
        tasks = [asyncio.create_task(post(pool, server, b"%d" % number)) for number in range(4)]
        assert await asyncio.to_thread(server.wait_for_requests, 1)
        tasks[number].cancel()
        if number != 0:
            await asyncio.sleep(0)
            tasks[0].cancel()
        outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SOON_S)
        assert [isinstance(outcome, bytes) for outcome in outcomes] == [i not in (0, number) for i in range(4)]

    with FaultServer([STALL], WHOLE) as server:
        run(main, max_connections=1)


@pytest.mark.system
def test_a_turn_that_comes_when_nobody_is_there_any_more_goes_to_the_next() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        holder = await pool.handle_async_request(asked(server, b"0"))
        tasks = [asyncio.create_task(post(pool, server)) for _ in range(2)]
        await asyncio.sleep(0)
        await holder.aclose()  # gives the first its turn, before it can see it
        tasks[0].cancel()
        assert await tasks[1]

    with FaultServer(WHOLE) as server:
        run(main, max_connections=1)


@pytest.mark.system
def test_a_place_is_taken_from_one_that_idles_elsewhere() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        for server in (here, there, here):
            await post(pool, server)

    with FaultServer(WHOLE) as here, FaultServer(WHOLE) as there:
        run(main, max_connections=1)
        assert (here.n_connections, there.n_connections) == (2, 1)


@pytest.mark.system
def test_a_place_goes_to_whoever_waits_for_another_server() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        first = asyncio.create_task(post(pool, here))
        await asyncio.sleep(0)
        await asyncio.gather(first, post(pool, there))

    with FaultServer(WHOLE) as here, FaultServer(WHOLE) as there:
        run(main, max_connections=1)
        assert (len(here.requests), len(there.requests)) == (1, 1)


@pytest.mark.system
def test_one_whose_server_wants_it_closed_is_not_used_again() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        for _ in range(2):
            await post(pool, server)
        assert server.n_connections == 2

    with FaultServer([http("{}", connection="close")]) as server:
        run(main)


@pytest.mark.system
def test_one_that_failed_gives_its_place_back() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                await post(pool, server)

    with FaultServer([CLOSE]) as server:
        run(main, max_connections=1)


@pytest.mark.system
def test_idle_ones_are_closed_after_their_time() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        await post(pool, server)
        assert await asyncio.to_thread(server.wait_until_all_closed)
        await post(pool, server)
        assert server.n_connections == 2

    with FaultServer(WHOLE) as server:
        run(main, idle_s=0.02)


@pytest.mark.system
def test_one_that_the_server_closed_is_not_used() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        await post(pool, server)
        assert await asyncio.to_thread(server.wait_until_all_closed)
        await post(pool, server)  # nothing here sends twice
        assert server.n_connections == 2

    with FaultServer([*WHOLE, CLOSE]) as server:
        run(main)


@pytest.mark.system
def test_a_reply_that_nobody_reads_costs_its_connection() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        await (await pool.handle_async_request(asked(server))).aclose()
        await post(pool, server)
        assert server.n_connections == 2

    with FaultServer(WHOLE) as server:
        run(main, max_connections=1)


@pytest.mark.system
def test_who_waits_when_it_is_closed_is_told() -> None:
    async def main(pool: AsyncPooledTransport) -> None:
        tasks = [asyncio.create_task(post(pool, server)) for _ in range(2)]
        assert await asyncio.to_thread(server.wait_for_requests, 1)
        await pool.aclose()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SOON_S)
        assert [type(result) for result in results] == [httpx.ReadError, RuntimeError]
        with pytest.raises(RuntimeError, match="closed"):
            await post(pool, server)

    with FaultServer([STALL]) as server:
        run(main, max_connections=1)


async def send(connection: AsyncConnection, **timeouts: float) -> ResponseHead:
    """Send something."""
    return await connection.send(made(**timeouts))


def test_no_more_is_read_than_is_taken() -> None:
    async def main() -> None:
        transport: Any = Wiretap()
        connection = AsyncConnection(ORIGIN)
        connection.connection_made(transport)
        sent = asyncio.create_task(send(connection))
        await asyncio.sleep(0)
        connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n")
        assert (await sent).status == 200
        for _ in range(3):
            connection.data_received(b"x" * (MAX_UNREAD_BYTES // 2))
            assert transport.done[-1] != "pause"
            connection.data_received(b"x" * MAX_UNREAD_BYTES)
            assert transport.done[-1] == "pause"
            assert len(await connection.read(made())) == MAX_UNREAD_BYTES * 3 // 2
            assert transport.done[-1] == "resume"

    asyncio.run(main())


async def answered(connection: AsyncConnection, **timeouts: float) -> None:
    """A response begins."""
    connection.connection_made(Wiretap())  # type: ignore[arg-type]
    sending = asyncio.create_task(send(connection, **timeouts))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
    await sending


def test_a_short_wait_behind_a_long_one() -> None:
    async def main() -> None:
        connection = AsyncConnection(ORIGIN)
        await answered(connection, read=60.0)
        with pytest.raises(httpx.ReadTimeout):
            await asyncio.wait_for(connection.read(made(read=0.01)), 5.0)

    asyncio.run(main())


def test_a_long_wait_behind_a_short_one() -> None:
    async def main() -> None:
        connection = AsyncConnection(ORIGIN)
        await answered(connection, read=0.02)
        asyncio.get_running_loop().call_later(0.06, connection.data_received, b"x")
        assert await connection.read(made(read=60.0)) == b"x"
        with pytest.raises(httpx.ReadTimeout):
            await asyncio.wait_for(connection.read(made(read=0.01)), 5.0)

    asyncio.run(main())


def test_a_server_that_takes_no_more_of_the_request() -> None:
    async def main() -> None:
        transport: Any = Wiretap()
        connection = AsyncConnection(ORIGIN)
        connection.connection_made(transport)
        connection.pause_writing()
        with pytest.raises(httpx.WriteTimeout):
            await send(connection, write=0.01)

    asyncio.run(main())


def test_a_server_that_answers_before_it_has_taken_all() -> None:
    async def main() -> None:
        connection = AsyncConnection(ORIGIN)
        connection.connection_made(Wiretap())  # type: ignore[arg-type]
        connection.pause_writing()
        sending = asyncio.create_task(send(connection))
        await asyncio.sleep(0)
        connection.data_received(b"HTTP/1.1 413 Too big\r\ncontent-length: 0\r\n\r\n")
        assert (await sending).status == 413

    asyncio.run(main())


def test_nothing_is_sent_over_one_that_is_closed() -> None:
    async def main() -> None:
        transport: Any = Wiretap()
        connection = AsyncConnection(ORIGIN)
        connection.connection_made(transport)
        connection.close()
        with pytest.raises(httpx.NetworkError):
            await send(connection)
        assert transport.done == ["abort"]

    asyncio.run(main())


def test_what_nobody_asked_for_ends_a_connection() -> None:
    async def main() -> None:
        transport: Any = Wiretap()
        connection = AsyncConnection(ORIGIN)
        connection.connection_made(transport)
        connection.data_received(b"HTTP/1.1 408 Too late\r\n\r\n")
        assert transport.done == ["abort"]
        assert not connection.is_alive()

    asyncio.run(main())


def test_many_at_once_take_time_in_proportion() -> None:
    """The work for one request does not grow with the number of connections; httpx's own pool grew it tenfold."""

    async def steps(number: int) -> int:
        """Lines of ours that run, by number of requests: the same on every machine."""
        counted = 0

        async def main() -> None:
            pool, _ = await AsyncPooledTransport()._add_pool()
            origin = ORIGIN
            connections = [await _idle_connection(origin) for _ in range(number)]
            for connection in connections:
                pool._ledger.connections.add(connection)
                pool.give_back(connection)

            def count(frame: Any, event: str, argument: Any) -> Any:
                nonlocal counted
                counted += 1
                return count

            before = sys.gettrace()  # that of coverage, perhaps
            with uncollected():
                sys.settrace(count)
                try:
                    for _ in range(10):
                        got = pool._ledger.borrow(origin)
                        assert got in connections
                        pool.give_back(got)
                finally:
                    sys.settrace(before)
            pool.close()

        await main()
        return counted

    assert asyncio.run(steps(400)) == asyncio.run(steps(4))


async def _idle_connection(origin: Any) -> AsyncConnection:
    connection = AsyncConnection(origin)
    connection.connection_made(Wiretap())  # type: ignore[arg-type]
    sending = asyncio.create_task(send(connection))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 204 No\r\n\r\n")
    await sending
    return connection


@pytest.mark.system
def test_a_stream_closed_early_frees_its_place() -> None:
    async def main() -> None:
        async with aclosing(client.astream(REQUEST)) as items:
            await anext(items)
        assert (await client.acomplete(REQUEST)).message.text == "hello"

    narrow = Network(max_connections=1, pool_s=1.0)
    with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL], WHOLE) as server, client_of(server, narrow) as client:
        asyncio.run(main())


@pytest.mark.system
@pytest.mark.parametrize("way", ASYNC)
@pytest.mark.parametrize("fate", ["good", "refused", "cut off", "silent", "disconnected"])
def test_nothing_is_left_to_collect(way: str, fate: str) -> None:
    """What holds itself stays until the collector of garbage comes, which costs everybody time."""
    steps = {
        "good": good(way),
        "refused": refused(429),
        "cut off": [*good(way)[:1], CLOSE] if way == "astream" else [JSON_HEAD, b"{", CLOSE],
        "silent": [STALL],
        "disconnected": [CLOSE],
    }[fate]

    async def main() -> None:
        await once()
        gc.collect()
        gc.disable()
        await once()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()

    async def once() -> None:
        with suppress(ProviderError):
            await aask(client, way, 0.1 if fate == "silent" else None)
        await asyncio.sleep(0)  # the loop closes what has ended

    def ours() -> list[Any]:
        return [kept for kept in gc.garbage if type(kept).__module__.startswith(("fsm_agent", "h11", "httpx"))]

    gc.freeze()  # what is of another test may become garbage during this one: when a thread of its ends, say
    try:
        with FaultServer(steps) as server, client_of(server) as client:
            asyncio.run(main())
            assert ours() == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
