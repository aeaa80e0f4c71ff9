"""Is each request given the right connection, in its turn, and does none of them hoard what it reads?"""

from __future__ import annotations

import asyncio
import gc
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

import httpx
import pytest
import trustme
from asking import (
    ASYNC,
    FIRST_PIECE,
    JSON_HEAD,
    REQUEST,
    WAYS,
    WHOLE,
    aask,
    ask,
    client_of,
    good,
    outcomes,
    refused,
    text,
)
from fault_server import BARRIER, CLOSE, LIMIT_S, SSE_HEAD, STALL, FaultServer, chunk, http

from fsm_agent.client import Network
from fsm_agent.errors import ConfigError, ProviderError, TimedOut
from fsm_agent.http1 import H11Wire, Headers, HttptoolsWire
from fsm_agent.http_connection import HIGH_WATER_BYTES, Connection
from fsm_agent.http_pool import AsyncPool, Body
from fsm_agent.sending import RequestHead

each_wire = pytest.mark.parametrize("wire_of", [H11Wire, HttptoolsWire])
SOON_S = LIMIT_S / 2  # before the server gives up
TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def run(main: Callable[[AsyncPool], Coroutine[Any, Any, None]], *, max_connections: int = 10, **more: float) -> None:
    """``main`` with a pool."""

    async def go() -> None:
        pool = AsyncPool(H11Wire, lambda: TRUSTS_NOBODY, max_connections=max_connections, **{"idle_s": 30.0, **more})
        async with aclosing(pool):
            await main(pool)

    asyncio.run(go())


async def post(pool: AsyncPool, server: FaultServer, content: bytes = b"{}") -> bytes:
    """The body of the answer to one request."""
    async with aclosing(await pool.send(asked(server, content))) as response:
        return b"".join([data async for data in pieces(response)])


async def pieces(response: Body) -> AsyncGenerator[bytes]:
    while data := await response.read():
        yield data


class Asked:
    """A request on its way, without a clock."""

    def __init__(self, url: str, content: bytes = b"", **timeouts: float) -> None:
        self.head = RequestHead(httpx.URL(url), httpx.Headers({"host": "h"}))
        self.content = content
        self.timeouts = {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 2.0, **timeouts}

    def begins(self, step: str) -> None:
        pass

    def request(self, *, is_async: bool) -> httpx.Request:
        raise AssertionError("it goes over no transport of httpx")


def asked(server: FaultServer, content: bytes) -> Asked:
    return Asked(f"{server.base_url}/x", content)


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


def test_the_one_used_last_is_used_next() -> None:
    async def main(pool: AsyncPool) -> None:
        await asyncio.gather(*[post(pool, server) for _ in range(3)])
        for _ in range(4):
            await post(pool, server)

    with FaultServer([BARRIER, *WHOLE], [BARRIER, *WHOLE], [BARRIER, *WHOLE], WHOLE, together=3) as server:
        run(main)
    assert len({seen.connection for seen in server.requests[:3]}) == 3
    assert len({seen.connection for seen in server.requests[3:]}) == 1


def test_who_comes_first_is_served_first() -> None:
    async def main(pool: AsyncPool) -> None:
        await asyncio.gather(*[post(pool, server, b"%d" % number) for number in range(8)])

    with FaultServer(WHOLE) as server:
        run(main, max_connections=1)
    assert [seen.body for seen in server.requests] == [b"%d" % number for number in range(8)]
    assert server.n_connections == 1


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_that_is_cancelled_takes_no_ones_place(number: int) -> None:
    """The first of them is on its way, the others wait."""

    async def main(pool: AsyncPool) -> None:
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


def test_a_turn_that_comes_when_nobody_is_there_any_more_goes_to_the_next() -> None:
    async def main(pool: AsyncPool) -> None:
        holder = await pool.send(asked(server, b"0"))
        tasks = [asyncio.create_task(post(pool, server)) for _ in range(2)]
        await asyncio.sleep(0)
        await holder.aclose()  # gives the first its turn, before it can see it
        tasks[0].cancel()
        assert await tasks[1]

    with FaultServer(WHOLE) as server:
        run(main, max_connections=1)


def test_a_place_is_taken_from_one_that_idles_elsewhere() -> None:
    async def main(pool: AsyncPool) -> None:
        for server in (here, there, here):
            await post(pool, server)

    with FaultServer(WHOLE) as here, FaultServer(WHOLE) as there:
        run(main, max_connections=1)
        assert (here.n_connections, there.n_connections) == (2, 1)


def test_a_place_goes_to_whoever_waits_for_another_server() -> None:
    async def main(pool: AsyncPool) -> None:
        first = asyncio.create_task(post(pool, here))
        await asyncio.sleep(0)
        await asyncio.gather(first, post(pool, there))

    with FaultServer(WHOLE) as here, FaultServer(WHOLE) as there:
        run(main, max_connections=1)
        assert (len(here.requests), len(there.requests)) == (1, 1)


def test_one_whose_server_wants_it_closed_is_not_used_again() -> None:
    async def main(pool: AsyncPool) -> None:
        for _ in range(2):
            await post(pool, server)
        assert server.n_connections == 2

    with FaultServer([http("{}", connection="close")]) as server:
        run(main)


def test_one_that_failed_gives_its_place_back() -> None:
    async def main(pool: AsyncPool) -> None:
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                await post(pool, server)

    with FaultServer([CLOSE]) as server:
        run(main, max_connections=1)


def test_idle_ones_are_closed_after_their_time() -> None:
    async def main(pool: AsyncPool) -> None:
        await post(pool, server)
        assert await asyncio.to_thread(server.wait_until_all_closed)
        await post(pool, server)
        assert server.n_connections == 2

    with FaultServer(WHOLE) as server:
        run(main, idle_s=0.02)


def test_one_that_the_server_closed_is_not_used() -> None:
    async def main(pool: AsyncPool) -> None:
        await post(pool, server)
        assert await asyncio.to_thread(server.wait_until_all_closed)
        await post(pool, server)  # nothing here sends twice
        assert server.n_connections == 2

    with FaultServer([*WHOLE, CLOSE]) as server:
        run(main)


def test_who_waits_when_it_is_closed_is_told() -> None:
    async def main(pool: AsyncPool) -> None:
        tasks = [asyncio.create_task(post(pool, server)) for _ in range(2)]
        assert await asyncio.to_thread(server.wait_for_requests, 1)
        await pool.aclose()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SOON_S)
        assert [type(result) for result in results] == [httpx.RemoteProtocolError, RuntimeError]
        with pytest.raises(RuntimeError, match="closed"):
            await post(pool, server)

    with FaultServer([STALL]) as server:
        run(main, max_connections=1)


async def send(connection: Connection, **timeouts: float) -> tuple[int, Headers]:
    """Send something."""
    sending = Asked("http://h/", b"x", **timeouts)
    return await connection.send(sending.head, sending.content, sending.timeouts)


@each_wire
def test_no_more_is_read_than_is_taken(wire_of: Any) -> None:
    async def main() -> None:
        transport: Any = Wiretap()
        connection = Connection(wire_of(), ("http", b"h", None))
        connection.connection_made(transport)
        sent = asyncio.create_task(send(connection))
        await asyncio.sleep(0)
        connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n")
        assert (await sent)[0] == 200
        for _ in range(3):
            connection.data_received(b"x" * (HIGH_WATER_BYTES // 2))
            assert transport.done[-1] != "pause"
            connection.data_received(b"x" * HIGH_WATER_BYTES)
            assert transport.done[-1] == "pause"
            assert len(await connection.read(5.0)) == HIGH_WATER_BYTES * 3 // 2
            assert transport.done[-1] == "resume"

    asyncio.run(main())


async def answered(connection: Connection, **timeouts: float) -> None:
    """A response begins."""
    connection.connection_made(Wiretap())  # type: ignore[arg-type]
    sending = asyncio.create_task(send(connection, **timeouts))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
    await sending


def test_a_short_wait_behind_a_long_one() -> None:
    async def main() -> None:
        connection = Connection(H11Wire(), ("http", b"h", None))
        await answered(connection, read=60.0)
        with pytest.raises(httpx.ReadTimeout):
            await asyncio.wait_for(connection.read(0.01), 5.0)

    asyncio.run(main())


def test_a_long_wait_behind_a_short_one() -> None:
    async def main() -> None:
        connection = Connection(H11Wire(), ("http", b"h", None))
        await answered(connection, read=0.02)
        asyncio.get_running_loop().call_later(0.06, connection.data_received, b"x")
        assert await connection.read(60.0) == b"x"
        with pytest.raises(httpx.ReadTimeout):
            await asyncio.wait_for(connection.read(0.01), 5.0)

    asyncio.run(main())


def test_a_server_that_takes_no_more_of_the_request() -> None:
    async def main() -> None:
        transport: Any = Wiretap()
        connection = Connection(H11Wire(), ("http", b"h", None))
        connection.connection_made(transport)
        connection.pause_writing()
        with pytest.raises(httpx.WriteTimeout):
            await send(connection, write=0.01)

    asyncio.run(main())


def test_a_server_that_answers_before_it_has_taken_all() -> None:
    async def main() -> None:
        connection = Connection(H11Wire(), ("http", b"h", None))
        connection.connection_made(Wiretap())  # type: ignore[arg-type]
        connection.pause_writing()
        sending = asyncio.create_task(send(connection))
        await asyncio.sleep(0)
        connection.data_received(b"HTTP/1.1 413 Too big\r\ncontent-length: 0\r\n\r\n")
        assert (await sending)[0] == 413

    asyncio.run(main())


def test_nothing_is_sent_over_one_that_is_closed() -> None:
    async def main() -> None:
        transport: Any = Wiretap()
        connection = Connection(H11Wire(), ("http", b"h", None))
        connection.connection_made(transport)
        connection.abort()
        with pytest.raises(httpx.NetworkError):
            await send(connection)
        assert transport.done == ["abort"]

    asyncio.run(main())


def test_what_nobody_asked_for_ends_a_connection() -> None:
    async def main() -> None:
        transport: Any = Wiretap()
        connection = Connection(H11Wire(), ("http", b"h", None))
        connection.connection_made(transport)
        connection.data_received(b"HTTP/1.1 408 Too late\r\n\r\n")
        assert transport.done == ["abort"]
        assert connection.is_closed

    asyncio.run(main())


def test_many_at_once_take_time_in_proportion() -> None:
    """The work for one request does not grow with the number of connections; httpx's own pool grew it tenfold."""

    async def steps(number: int) -> int:
        """Lines of ours that run, by number of requests: the same on every machine."""
        counted = 0

        async def main() -> None:
            pool = AsyncPool(H11Wire, lambda: TRUSTS_NOBODY, max_connections=1000, idle_s=30.0)
            origin = ("http", b"h", None)
            connections = [_idle_connection(origin) for _ in range(number)]
            for connection in connections:
                pool._open.add(connection)
                pool._n_granted += 1
                pool._grant(connection)

            def count(frame: Any, event: str, argument: Any) -> Any:
                nonlocal counted
                counted += 1
                return count

            sys.settrace(count)
            for _ in range(10):
                got = pool._idle_one(origin)
                assert got is not None
                pool._grant(got)
            sys.settrace(None)
            await pool.aclose()

        await main()
        return counted

    assert asyncio.run(steps(400)) == asyncio.run(steps(4))


def _idle_connection(origin: Any) -> Connection:
    connection = Connection(H11Wire(), origin)
    connection.connection_made(Wiretap())  # type: ignore[arg-type]
    connection.idle_since_s = asyncio.get_running_loop().time()
    return connection


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.usefixtures("over")
class TestTLS:
    @pytest.mark.parametrize("way", WAYS)
    def test_a_certificate_of_ones_own(self, way: str, authority: trustme.CA, tls: ssl.SSLContext) -> None:
        context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        with authority.cert_pem.tempfile() as path:
            for trusted in (path, context, False):
                with FaultServer(good(way), tls=tls) as server, client_of(server, Network(verify=trusted)) as client:
                    assert text(ask(client, way)[-1]) == "hello"

    @pytest.mark.parametrize("way", WAYS)
    def test_one_that_nobody_trusts_is_refused_for_good(self, way: str, tls: ssl.SSLContext) -> None:
        with FaultServer(good(way), tls=tls) as server, client_of(server) as client:
            error = outcomes(client, way, None)[0]
        assert isinstance(error, TimedOut)
        assert "certificate" in error.message
        assert not error.retryable
        assert server.requests == []

    def test_http_2_is_offered_when_it_is_wanted(self, authority: trustme.CA) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        tls.set_alpn_protocols(["h2", "http/1.1"])
        for http2 in (True, False):
            with authority.cert_pem.tempfile() as path, FaultServer(WHOLE, tls=tls) as server:
                with client_of(server, Network(verify=path, http2=http2, read_s=0.2)) as client:
                    outcomes(client, "acomplete", 2.0)
                assert (server.protocols == ["h2"]) is http2


@pytest.mark.usefixtures("over")
class TestProxy:
    @pytest.mark.parametrize("way", WAYS)
    def test_all_goes_through_it(self, way: str) -> None:
        with FaultServer(good(way)) as server:
            proxy = server.base_url.removesuffix("/v1").replace("//", "//someone:pass-4711@")
            network = Network(proxy=proxy)
            with client_of("http://api.invalid/v1", network) as client:
                assert text(ask(client, way)[-1]) == "hello"
        seen = server.requests[0]
        assert seen.path == "http://api.invalid/v1/chat/completions"
        assert seen.headers["proxy-authorization"].startswith("Basic ")
        assert "4711" not in repr(network)

    @pytest.mark.parametrize("way", WAYS)
    def test_what_it_says_of_its_password_is_not_shown(self, way: str) -> None:
        refusal = http({"error": {"message": "not with pass-4711"}}, status=403)
        with FaultServer([refusal]) as server:
            proxy = server.base_url.removesuffix("/v1").replace("//", "//someone:pass-4711@")
            with client_of("http://api.invalid/v1", Network(proxy=proxy)) as client:
                error = outcomes(client, way, None)[0]
        assert isinstance(error, ProviderError)
        assert "4711" not in str(error)

    @pytest.mark.parametrize("way", WAYS)
    def test_the_one_of_the_environment(self, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with FaultServer(good(way)) as proxy, FaultServer(good(way)) as here:
            monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
            for base_url in ("http://api.invalid/v1", here.base_url):
                with client_of(base_url) as client:
                    assert text(ask(client, way)[-1]) == "hello"
        assert [seen.path for seen in proxy.requests] == ["http://api.invalid/v1/chat/completions"]
        assert len(here.requests) == 1


class TestNetwork:
    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"proxy": "user:secret@host:1"}, "'http://host:3128'"),
            ({"proxy": "ftp://user:secret@host"}, "for 'host' is none"),
            ({"proxy": "http://user:secret@"}, "is none"),
            ({"verify": "/no/such.pem"}, "'/no/such.pem'"),
            ({"async_transport": "quick"}, "'quick': one of 'fast', 'stock', 'httpx'"),
            ({"max_connections": 0}, "1 or more"),
        ],
    )
    def test_what_cannot_be_right(self, wrong: dict[str, Any], says: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Network(**wrong)
        assert says in str(caught.value)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("wish", "module", "extra"),
        [
            ({"http2": True}, "h2", "fsm-agent[http2]"),
            ({"async_transport": "fast"}, "httptools", "fsm-agent[fast]"),
            ({"proxy": "socks5://me:secret@h:1"}, "socksio", "httpx[socks]"),
        ],
    )
    def test_what_is_not_installed(
        self, wish: dict[str, Any], module: str, extra: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not there
        with pytest.raises(ConfigError) as caught:
            Network(**wish)
        assert extra in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_without_httptools_h11_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "httptools", None)
        with FaultServer(WHOLE) as server, client_of(server, Network()) as client:
            assert text(ask(client, "acomplete")[-1]) == "hello"

    def test_a_file_that_holds_no_certificate(self, tmp_path: Any) -> None:
        (tmp_path / "x.pem").write_text("nothing")
        with client_of("https://127.0.0.1:1/v1", Network(verify=str(tmp_path / "x.pem"))) as client:
            for way in WAYS:
                with pytest.raises(ConfigError, match="no certificates in PEM"):
                    ask(client, way)


def test_a_stream_closed_early_frees_its_place() -> None:
    async def main() -> None:
        async with aclosing(client.astream(REQUEST)) as items:
            await anext(items)
        assert (await client.acomplete(REQUEST)).message.text == "hello"

    narrow = Network(max_connections=1, pool_s=1.0)
    with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL], WHOLE) as server, client_of(server, narrow) as client:
        asyncio.run(main())


@pytest.mark.parametrize("transport", ["fast", "stock"])
@pytest.mark.parametrize("way", ASYNC)
@pytest.mark.parametrize("fate", ["good", "refused", "cut off", "silent", "disconnected"])
def test_nothing_is_left_to_collect(way: str, transport: Any, fate: str) -> None:
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
        return [kept for kept in gc.garbage if type(kept).__module__.startswith(("fsm_agent", "httptools", "httpx"))]

    with FaultServer(steps) as server, client_of(server, Network(async_transport=transport)) as client:
        try:
            asyncio.run(main())
            assert ours() == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
