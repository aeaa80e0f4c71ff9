"""Is each thread given a connection of its own, in its turn, and never one that somebody else still reads from?"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest
from asking import JSON_HEAD, REQUEST, WHOLE, client_of
from fault_server import BARRIER, CLOSE, STALL, FaultServer
from test_async_pool import Asked
from test_pools import in_threads

from fsm_agent.client import Network
from fsm_agent.clients.http.sync_pool import PooledResponse, SyncPool

TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
LIMIT_S = 5.0


@contextmanager
def pool_of(max_connections: int = 10, idle_s: float = 30.0) -> Iterator[SyncPool]:
    """A pool that is closed at the end."""
    pool = SyncPool(lambda: TRUSTS_NOBODY, max_connections=max_connections, idle_s=idle_s)
    with closing(pool):
        yield pool


def begin(connections: SyncPool, server: FaultServer, content: bytes = b"{}", **limits: float) -> PooledResponse:
    """The response to one request, not read."""
    return connections.send(Asked(f"{server.base_url}/x", content, **limits))


def read(response: PooledResponse) -> bytes:
    """The body, to its end."""
    with closing(response):
        return b"".join(iter(response.read, b""))


def post(pool: SyncPool, server: FaultServer, content: bytes = b"{}") -> bytes:
    """The body of the answer to one request."""
    return read(begin(pool, server, content))


class Worker:
    """A thread that does something; `error` is how it failed."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=[function])
        self._thread.start()

    def _run(self, function: Callable[[], Any]) -> None:
        try:
            function()
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(LIMIT_S / 2)
        assert not self._thread.is_alive()


class Waiter(Worker):
    """One that is in the queue, behind those that wait already."""

    def __init__(self, pool: SyncPool, function: Callable[[], Any]) -> None:
        before = len(pool._ledger._turns)
        super().__init__(function)
        while len(pool._ledger._turns) == before and self._thread.is_alive():
            threading.Event().wait(0.001)


def test_no_request_is_made_twice_however_many_threads_want_few_connections() -> None:
    for _ in range(40):
        with FaultServer(WHOLE) as server, client_of(server, Network(max_connections=2)) as client:
            assert len(in_threads(8, lambda client=client: client.complete(REQUEST))) == 8
            assert server.n_connections <= 2
            assert len(server.requests) == 8


def test_the_one_used_last_is_used_next() -> None:
    with FaultServer([BARRIER, *WHOLE], [BARRIER, *WHOLE], WHOLE, together=2) as server, pool_of() as pool:
        in_threads(2, lambda: post(pool, server))
        for _ in range(4):
            post(pool, server)
        assert server.n_connections == 2
        assert len({seen.connection for seen in server.requests[2:]}) == 1


def test_who_comes_first_is_served_first() -> None:
    with FaultServer(WHOLE) as server, pool_of(max_connections=1) as pool:
        holder = begin(pool, server, b"0")
        waiters = [Waiter(pool, lambda number=number: post(pool, server, b"%d" % number)) for number in range(1, 5)]
        read(holder)
        for waiter in waiters:
            waiter.join()
        assert [seen.body for seen in server.requests] == [b"0", b"1", b"2", b"3", b"4"]
        assert server.n_connections == 1


def test_who_gives_up_takes_no_ones_place() -> None:
    with FaultServer(WHOLE) as server, pool_of(max_connections=1) as pool:
        holder = begin(pool, server)
        with pytest.raises(httpx.PoolTimeout):
            begin(pool, server, pool=0.01)
        waiter = Waiter(pool, lambda: post(pool, server))
        holder.close()  # not read: it is hung up
        waiter.join()
        assert waiter.error is None
        assert post(pool, server)


def test_one_that_failed_gives_its_place_back() -> None:
    with FaultServer([CLOSE]) as server, pool_of(max_connections=1) as pool:
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                post(pool, server)


def test_a_place_goes_to_whoever_wants_another_server() -> None:
    with FaultServer(WHOLE) as here, FaultServer(WHOLE) as there, pool_of(max_connections=1) as pool:
        post(pool, here)
        post(pool, there)
        holder = begin(pool, there)
        waiter = Waiter(pool, lambda: post(pool, here))
        read(holder)
        waiter.join()
        assert waiter.error is None
        assert (len(here.requests), len(there.requests)) == (2, 2)
        assert here.n_connections == 2


@pytest.mark.parametrize("idle_s", [30.0, 0.0])
def test_one_that_is_dead_or_old_is_not_used(idle_s: float) -> None:
    with FaultServer([*WHOLE, CLOSE] if idle_s else WHOLE) as server, pool_of(idle_s=idle_s) as pool:
        for number in (1, 2, 3):
            post(pool, server)  # nothing here sends twice
            assert server.n_connections == number
            if idle_s:
                assert server.wait_until_all_closed()


def test_a_timeout_is_httpxs_own() -> None:
    with FaultServer([STALL]) as server, pool_of() as pool, pytest.raises(httpx.ReadTimeout):
        begin(pool, server, read=0.01)


def test_who_waits_when_it_is_closed_is_told() -> None:
    with FaultServer([JSON_HEAD, b"{", STALL]) as server, pool_of(max_connections=1) as pool:
        holder = begin(pool, server)
        assert holder.read() == b"{"
        waiter, reader = Waiter(pool, lambda: post(pool, server)), Worker(holder.read)
        started_s = time.monotonic()
        pool.close()
        waiter.join()
        reader.join()
        assert time.monotonic() - started_s < 1
        assert isinstance(waiter.error, RuntimeError)
        assert isinstance(reader.error, httpx.ReadError)
        with pytest.raises(RuntimeError, match="closed"):
            post(pool, server)
        holder.close()
        assert server.wait_until_all_closed()
