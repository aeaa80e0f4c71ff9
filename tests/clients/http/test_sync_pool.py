"""Is each thread given a connection of its own, in its turn, and never one that somebody else still reads from?"""

from __future__ import annotations

import ctypes
import gc
import linecache
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count, islice
from types import FrameType
from typing import Any

import httpx
import pytest
from conformance.client_requests import REQUEST
from support.fault_server import BARRIER, CLOSE, STALL, FaultServer, Step, http
from support.http_clients import JSON_HEAD, WHOLE, client_of
from test_async_pool import asked
from test_pools import in_threads

from fsm_agent.clients.http import Network, PooledTransport, ledger, sync_pool
from fsm_agent.clients.http.prepared_request import ABORT
from fsm_agent.runtime.abort import Abort, Aborted

pytestmark = pytest.mark.system

LIMIT_S = 5.0


@contextmanager
def pool_of(max_connections: int = 10, idle_s: float = 30.0) -> Iterator[PooledTransport]:
    """A pool that is closed at the end."""
    with PooledTransport(max_connections=max_connections, idle_s=idle_s) as pool:
        yield pool


class Answer:
    """The response to a request, and its body piece by piece."""

    def __init__(self, response: httpx.Response) -> None:
        self.close = response.close
        self._pieces = iter(response.stream)  # type: ignore[arg-type]

    def read(self) -> bytes:
        """The next piece; b"" at the end."""
        return next(self._pieces, b"")


def begin(transport: PooledTransport, server: FaultServer, content: bytes = b"{}", **timeouts: float) -> Answer:
    """The response to one request, not read."""
    return Answer(transport.handle_request(asked(server, content, **timeouts)))


def read(answer: Answer) -> bytes:
    """The body, to its end."""
    with closing(answer):
        return b"".join(iter(answer.read, b""))


def post(pool: PooledTransport, server: FaultServer, content: bytes = b"{}") -> bytes:
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

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def interrupt(self) -> None:
        ident = ctypes.c_ulong(self._thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(KeyboardInterrupt))

    def join(self) -> None:
        self._thread.join(2.5 * LIMIT_S)  # longer than it waits for a connection
        assert not self._thread.is_alive()


class Waiter(Worker):
    """One that is in the queue, behind those that wait already."""

    def __init__(self, pool: PooledTransport, function: Callable[[], Any]) -> None:
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


def test_one_to_which_something_came_unasked_is_given_to_nobody() -> None:
    go, came = threading.Event(), threading.Event()

    def send_another(connection: socket.socket) -> None:
        go.wait(LIMIT_S)
        connection.sendall(http("not asked for"))
        came.set()

    bodies: list[bytes] = []
    with FaultServer([*WHOLE, send_another], [http("asked for")]) as server, pool_of(max_connections=1) as pool:
        holder = begin(pool, server)
        while holder.read():
            pass
        waiter = Waiter(pool, lambda: bodies.append(post(pool, server)))
        go.set()
        came.wait(LIMIT_S)
        holder.close()
        waiter.join()
        assert bodies == [b"asked for"]


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
        pool.close()
        waiter.join()
        reader.join()
        assert isinstance(waiter.error, RuntimeError)
        assert isinstance(reader.error, httpx.ReadError)
        with pytest.raises(RuntimeError, match="closed"):
            post(pool, server)
        holder.close()
        assert server.wait_until_all_closed()


def test_one_that_idles_too_long_is_closed_when_another_is_asked_for() -> None:
    with FaultServer(WHOLE) as here, FaultServer(WHOLE) as there, pool_of(idle_s=0.05) as pool:
        post(pool, here)
        threading.Event().wait(0.1)
        post(pool, there)
        assert here.wait_until_all_closed()


def test_one_that_idles_too_long_is_closed_though_a_newer_one_is_used() -> None:
    with FaultServer(WHOLE) as server, pool_of(idle_s=0.5) as pool:
        first, second = begin(pool, server), begin(pool, server)
        read(first)
        older = next(iter(pool._ledger._idle.values()))[0]
        read(second)
        older.idle_since_s -= 1.0
        post(pool, server)
        assert older not in pool._ledger.connections
        assert len(pool._ledger.connections) == 1


def test_one_that_is_granted_to_whoever_gives_up_at_that_moment_is_lent_again() -> None:
    with FaultServer(WHOLE) as server, pool_of(max_connections=1) as pool:
        holder, waiting = begin(pool, server), threading.Event()

        class Leaving(Abort):
            """It gives up when the connection has been granted, and before that is looked at."""

            def add(self, end: Callable[[], None]) -> None:
                read(holder)
                waiting.set()
                raise Aborted

        request = asked(server)
        request.extensions[ABORT] = Leaving()
        with pytest.raises(Aborted):
            pool.handle_request(request)
        assert waiting.is_set()
        assert post(pool, server)
        assert server.n_connections == 1, "it is as good as before"


def test_a_dead_address_takes_its_share_of_the_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultServer(WHOLE) as server, pool_of() as pool, socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:  # whoever comes later is not answered
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        here = ("127.0.0.1", int(server.base_url.rpartition(":")[2].partition("/")[0]))
        kinds = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        found = [(*kinds, full.getsockname()), (*kinds, here)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        begun_s = time.monotonic()
        try:
            assert read(begin(pool, server, connect=1.6))
            assert time.monotonic() - begun_s < 1.6, "half of it"
        finally:
            for one in crowd:
                one.close()


def test_a_reply_that_nobody_reads_costs_its_connection() -> None:
    with FaultServer(WHOLE) as server, pool_of(max_connections=1) as pool:
        begin(pool, server).close()
        post(pool, server)
        assert server.n_connections == 2


def test_a_stream_that_is_collected_in_the_middle_of_a_step_gives_its_connection_back() -> None:
    """Garbage collection comes at any point, also under the lock of the pool, in the thread that holds it."""

    def stream() -> Iterator[bytes]:
        request = asked(server, b"{}")
        request.extensions[ABORT] = aborts[-1]
        with closing(Answer(pool.handle_request(request))) as answer:
            yield answer.read()
            assert not answer.read()
            yield b""

    def drop() -> None:
        aborts.append(Abort())  # it holds the connection, which the collector might else end before the stream
        dropped = stream()
        assert list(islice(dropped, 2))
        ring: list[Any] = [dropped]
        ring.append(ring)

    def collect_under_lock() -> None:
        with pool._lock:
            gc.collect()

    aborts: list[Abort] = []
    pool = PooledTransport(max_connections=1)
    with FaultServer(WHOLE) as server:
        drop()
        thread = threading.Thread(target=collect_under_lock, daemon=True)
        thread.start()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        drop()
        pool._step(gc.collect)
        assert post(pool, server)
    pool.close()  # not where it failed: that would wait for the lock


def test_what_the_collector_gives_back_in_the_middle_of_a_step_is_taken_after_it() -> None:
    """The connection is not garbage with its stream: what would abort the request holds it."""

    def drop() -> None:
        request = asked(server, b"{}")
        request.extensions[ABORT] = abort
        answer = Answer(pool.handle_request(request))
        while answer.read():
            pass
        ring: list[Any] = [closed_at_its_end(answer)]
        next(ring[0])
        ring.append(ring)

    def closed_at_its_end(answer: Answer) -> Iterator[None]:
        with closing(answer):
            yield

    def collect() -> list[int]:
        gc.collect()
        return [len(idle) for idle in pool._ledger._idle.values()]

    abort = Abort()
    with FaultServer(WHOLE) as server, pool_of(max_connections=1) as pool:
        drop()
        assert pool._step(collect) == [], "it may be looking at the connections"
        assert [len(idle) for idle in pool._ledger._idle.values()] == [1]
        assert post(pool, server)
        assert server.n_connections == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_waits_for_no_lock_and_hangs_up_on_nobody() -> None:
    scripts: list[list[Step]] = [[JSON_HEAD, b"{", BARRIER, b"}" * 999], [BARRIER, *WHOLE]]
    with FaultServer(*scripts, together=2) as server, pool_of() as pool:
        holder = begin(pool, server)
        assert holder.read() == b"{"
        with pool._lock, warnings.catch_warnings():  # as another thread may hold it at that moment
            warnings.simplefilter("ignore", DeprecationWarning)  # the server's threads stay behind, unused
            pid = os.fork()
            if pid == 0:
                signal.alarm(5)
                holder.close()
                pool.close()
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        post(pool, server)
        assert read(holder) == b"}" * 999


class Interrupt:
    """Raises `KeyboardInterrupt` at the n-th line that a thread runs of the pool's modules.

    Not at the ``with`` of a lock, where Python looks at no signal: it would hold the lock for ever.
    """

    def __init__(self, number: int) -> None:
        self._left = number
        self.has_come = False

    def __enter__(self) -> Interrupt:
        self._before = sys.gettrace()  # that of coverage, perhaps
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind: object, *_: object) -> bool:
        sys.settrace(self._before)
        return kind is KeyboardInterrupt

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in POOL_FILES or frame.f_code.co_name in ("__del__", "close"):
            return None
        if event == "line" and "with self._lock" not in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
            self._left -= 1
            if self._left == 0:
                self.has_come = True
                raise KeyboardInterrupt
        return self._trace


POOL_FILES = {module.__file__ for module in (ledger, sync_pool)}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of a socket that was just made
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestInterrupts:
    def test_none_costs_a_place(self) -> None:
        """At each line of two requests, over a new connection and over one that was used, in a pool of one place."""
        with FaultServer(WHOLE) as server:
            for number in count(1):
                with pool_of(max_connections=1) as pool:
                    with Interrupt(number) as interrupt:
                        post(pool, server)
                        post(pool, server)
                    assert post(pool, server), number
                if not interrupt.has_come:
                    break
        assert number > 150

    @pytest.mark.nightly
    def test_none_keeps_who_waits_from_its_turn(self) -> None:
        """At each line of closing a response, while another thread waits for its connection."""
        for number in count(1):
            with FaultServer(WHOLE) as server, pool_of(max_connections=1) as pool:
                holder = begin(pool, server)
                assert holder.read()
                assert not holder.read()
                waiter = Waiter(pool, lambda pool=pool, server=server: post(pool, server))
                with Interrupt(number) as interrupt:
                    holder.close()
                holder.close()
                waiter.join()
                assert waiter.error is None, number
            if not interrupt.has_come:
                break
        assert number > 15

    @pytest.mark.skipif(
        sys.version_info[:2] == (3, 14),
        reason="an interrupt between the __enter__ of a lock and its block keeps the lock: cpython issue 148874",
    )
    @pytest.mark.skipif(sys.gettrace() is not None, reason="under a tracer they come in its own code")
    def test_a_storm_of_them_costs_none(self) -> None:
        """Wherever Python looks for them, in threads that share two places."""

        def post_on() -> None:
            while not is_over.is_set():
                try:
                    while not is_over.is_set():
                        post(pool, server)
                except KeyboardInterrupt:
                    interrupted.append(1)

        is_over, interrupted = threading.Event(), list[int]()
        with FaultServer(WHOLE) as server, pool_of(max_connections=2) as pool:
            workers = [Worker(post_on) for _ in range(3)]
            until_s = time.monotonic() + 0.5
            while time.monotonic() < until_s or len(interrupted) <= 30:
                threading.Event().wait(0.001)
                workers = [worker if worker.is_alive() else Worker(post_on) for worker in workers]
                workers[len(interrupted) % 3].interrupt()
            is_over.set()
            for worker in workers:
                worker.join()
            holders = [begin(pool, server, pool=1.0) for _ in range(2)]
            for holder in holders:
                read(holder)
