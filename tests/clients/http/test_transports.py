"""The same experiments over every transport: threads and asyncio, each over our own pool and over httpx.

Where httpx cannot do better from outside, the test says so.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from conformance.client_requests import ASYNC, REQUEST, STREAMED, WAYS, aask, ask, outcomes
from support.fault_server import (
    CLOSE,
    DRIP,
    END_OF_CHUNKS,
    HOLD,
    LIMIT_S,
    RESET,
    SSE_HEAD,
    STALL,
    FaultServer,
    Repeat,
    Step,
    by_default,
    chunk,
    events,
    head,
    http,
)
from support.http_clients import (
    FIRST_PIECE,
    JSON_HEAD,
    PIECES,
    WHOLE,
    chosen,
    client_of,
    completion,
    delta,
    good,
    in_each_way,
    refused,
    text,
    trusted,
)

from fsm_agent.clients import FallbackClient, HttpClient
from fsm_agent.clients.http import Network
from fsm_agent.errors import BadReply, ProviderError, TimedOut, UsageError
from fsm_agent.lifecycle import Request
from fsm_agent.messages import Message
from fsm_agent.runtime.abort import Abort, Aborted

pytestmark = pytest.mark.usefixtures("over")
our_own = pytest.mark.parametrize("over", ["own", "own with TLS"], indirect=True)
own_soon = pytest.mark.parametrize("over", ["own", pytest.param("httpx", marks=pytest.mark.nightly)], indirect=True)
without_tls = pytest.mark.parametrize("over", ["own", "httpx"], indirect=True)
each_way = pytest.mark.parametrize("way", WAYS)

AT_ONCE_S = 1.0
NAP_S = 0.01
FILLERS = 4  # of a queue
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"
BIG = Request(messages=(Message.of("user", "x" * 8_000_000),))


@pytest.fixture(scope="module")
def authority() -> Iterator[tuple[str, ssl.SSLContext]]:
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with authority.cert_pem.tempfile() as path:
        yield path, tls


@pytest.fixture(params=["own", "own with TLS", "httpx"])
def over(request: pytest.FixtureRequest, authority: tuple[str, ssl.SSLContext]) -> Iterator[str | None]:
    """What the clients of `http_clients.client_of` send over; None: our own pools."""
    path, tls = authority
    if request.param == "own with TLS":
        trusted.append(path)
        by_default.append(tls)
    chosen.append("httpx" if request.param == "httpx" else None)
    yield chosen[-1]
    chosen.pop()
    trusted.clear()
    by_default.clear()


@contextmanager
def at_once() -> Iterator[None]:
    """Within `AT_ONCE_S`, by the naps of a thread: on a busy machine these take longer, as does all else."""
    naps, is_over = 0, threading.Event()

    def nap() -> None:
        nonlocal naps
        while not is_over.is_set():
            time.sleep(NAP_S)
            naps += 1

    thread = threading.Thread(target=nap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert naps * NAP_S < AT_ONCE_S


def says(what: str, way: str) -> bytes:
    """A whole response."""
    if way in STREAMED:
        return SSE_HEAD + chunk(events(delta(what), delta(finish_reason="stop"))) + END_OF_CHUNKS
    return http(completion(what))


def ask_often(client: HttpClient, way: str, number: int, between: Callable[[], object] = lambda: None) -> list[str]:
    """What ``number`` requests are answered; under asyncio all in one loop, which stands still in between."""

    async def main() -> list[str]:
        replies = []
        for _ in range(number):
            replies.append(text((await aask(client, way))[-1]))
            between()
        return replies

    if way in ASYNC:
        return asyncio.run(main())
    replies = []
    for _ in range(number):
        replies.append(text(ask(client, way)[-1]))
        between()
    return replies


def error_of(client: HttpClient, way: str, timeout_s: float | None = None, request: Request = REQUEST) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(client, way, timeout_s, request)
    return caught.value


@pytest.mark.system
@pytest.mark.skipif(sys.platform == "win32", reason="there is no uvloop for Windows")
@pytest.mark.parametrize("way", ASYNC)
def test_uvloop_serves_as_well(way: str) -> None:
    """It is no `asyncio.BaseEventLoop`, and knows fewer options; `uvicorn[standard]` takes it unasked."""
    import uvloop

    with FaultServer(good(way), good(way)) as server, client_of(server) as client:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            replies = [runner.run(aask(client, way))[-1] for _ in range(2)]
        assert [text(reply) for reply in replies] == ["hello", "hello"]


class TestWhoseReply:
    @pytest.mark.system
    @each_way
    def test_a_reply_that_comes_twice_answers_one_request(self, way: str) -> None:
        scripts: list[list[Step]] = [[says("t0", way) * 2], *[[says(f"t{number}", way)] for number in range(1, 5)]]
        with FaultServer(*scripts) as server, client_of(server) as client:
            assert ask_often(client, way, 5) == ["t0", "t1", "t2", "t3", "t4"]

    @pytest.mark.system
    @each_way
    def test_a_reply_that_nobody_asked_for_answers_nobody(self, way: str) -> None:
        go, came = threading.Event(), threading.Event()

        def send_another(connection: socket.socket) -> None:
            go.wait(5)
            with suppress(OSError):  # it is not awaited
                connection.sendall(says("STALE", way))
            came.set()

        def between() -> None:
            go.set()
            came.wait(5)

        scripts: list[list[Step]] = [[says("t0", way), send_another], [says("t1", way)], [says("t2", way)]]
        with FaultServer(*scripts) as server, client_of(server) as client:
            assert ask_often(client, way, 3, between) == ["t0", "t1", "t2"]

    @pytest.mark.system
    @each_way
    def test_a_body_longer_than_its_length_answers_nobody(self, way: str) -> None:
        scripts: list[list[Step]] = [[says("t0", way) + b"HTTP/1.1 200 OK\r\n"], [says("t1", way)]]
        with FaultServer(*scripts) as server, client_of(server) as client:
            assert ask_often(client, way, 2) == ["t0", "t1"]


class TestHeads:
    @pytest.mark.system
    @pytest.mark.parametrize(
        "script",
        [
            [b"HTTP/1.1 200 OK\r\n", Repeat(b"x: y\r\n", 0.03)],
            [b"HTTP/1.1 200 OK\r\nx: ", DRIP],
            [b"HTTP/1.1 200 OK\r\nx: ", Repeat(b"y", 0.0002)],
            [Repeat(INTERIM, 0.03)],
            [JSON_HEAD, DRIP],
        ],
        ids=["lines", "characters", "fast characters", "interim responses", "body"],
    )
    def test_nothing_drips_past_the_deadline(self, script: list[Step]) -> None:
        def check(way: str) -> None:
            with FaultServer(script) as server, client_of(server) as client:
                with at_once():
                    error = error_of(client, way, timeout_s=0.2)
                assert isinstance(error, TimedOut)
                assert "in 0.2 s" in error.message
                assert server.wait_until_all_closed()

        in_each_way(check)

    @pytest.mark.system
    @each_way
    def test_interim_responses_are_no_response(self, way: str) -> None:
        with FaultServer([INTERIM * 3, *good(way)]) as server, client_of(server) as client:
            assert ask_often(client, way, 2) == ["hello", "hello"]

    @pytest.mark.system
    @our_own
    @each_way
    def test_there_is_an_end_to_interim_responses(self, way: str) -> None:
        """httpcore takes any number."""
        with FaultServer([Repeat(INTERIM, 0)]) as server, client_of(server) as client, at_once():
            error = error_of(client, way)
        assert isinstance(error, BadReply)
        assert "interim responses" in error.message

    @pytest.mark.system
    @each_way
    @pytest.mark.parametrize("status", [b"000", b"099", b"20", b"2000"])
    def test_a_status_that_is_none(self, status: bytes, way: str) -> None:
        with FaultServer([b"HTTP/1.1 %b OK\r\n\r\n" % status, HOLD]) as server, client_of(server) as client, at_once():
            assert isinstance(error_of(client, way), BadReply)

    @pytest.mark.system
    @pytest.mark.parametrize(
        "script",
        [
            [CLOSE],
            [b"HTTP/1.1 200 OK\r\nx: y", CLOSE],
            [JSON_HEAD, b"{", CLOSE],
            [head(content_type="application/json", transfer_encoding="chunked"), chunk(b"{"), CLOSE],
            [head(content_type="application/json", transfer_encoding="chunked"), b"5\r\n{", CLOSE],
            [b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"],
        ],
        ids=["no head", "head", "length", "chunks", "chunk", "garbage"],
    )
    def test_a_cut_reads_the_same_for_threads_and_asyncio(self, script: list[Step]) -> None:
        with FaultServer(script) as server, client_of(server) as client:
            one, other = (error_of(client, way) for way in ("complete", "acomplete"))
        assert (type(one), one.message) == (type(other), other.message)


class TestUploads:
    @pytest.mark.system
    def test_a_slow_server_that_takes_some_has_its_time(self) -> None:
        """The whole takes longer than `write_s`, each piece does not."""

        def check(way: str) -> None:
            def sip(connection: socket.socket) -> None:
                left, due_s = int(server.requests[-1].headers["content-length"]) - 100_000, time.monotonic()
                while left > 0:
                    data = connection.recv(100_000)
                    left -= len(data) or left
                    due_s += len(data) / 5_000_000
                    time.sleep(max(0.0, due_s - time.monotonic()))  # no longer on a slow machine
                connection.sendall(says("hello", way))

            network = Network(write_s=1.2)
            with FaultServer([sip, HOLD], is_early=True) as server, client_of(server, network) as client:
                started_s = time.monotonic()
                reply = ask(client, way, 50.0, BIG)[-1]
                assert text(reply) == "hello"
                assert time.monotonic() - started_s > 1.4

        in_each_way(check)

    @pytest.mark.system
    @each_way
    def test_a_server_that_takes_nothing_has_not(self, way: str) -> None:
        network = Network(write_s=0.2)
        with FaultServer([HOLD], is_early=True) as server, client_of(server, network) as client, at_once():
            error = error_of(client, way, None, BIG)
        assert isinstance(error, TimedOut)
        assert "took no more of the request for 0.2 s" in error.message

    @pytest.mark.system
    @each_way
    @pytest.mark.parametrize("end", [CLOSE, RESET], ids=["close", "reset"])
    def test_a_refusal_before_it_is_over_is_heard(self, end: Step, way: str, over: str | None) -> None:
        """By asyncio if the loop comes to read it: what is unread when a write fails is thrown away."""
        soon: list[Step] = [lambda _: time.sleep(NAP_S)] * 20 if way in ASYNC else []  # when all stands still, once
        with FaultServer([*refused(413), *soon, end], is_early=True) as server, client_of(server) as client, at_once():
            error = error_of(client, way, None, BIG)
        if over == "httpx" and way in ASYNC:
            assert error.status is None, "it reads nothing while it sends"
        else:
            assert error.status == 413

    @pytest.mark.system
    @each_way
    def test_and_what_is_left_of_it_is_in_nobodys_way(self, way: str, over: str | None) -> None:
        """The server says that it keeps the connection, and reads no more."""
        scripts: list[list[Step]] = [[*refused(413), HOLD], good(way)]
        network = Network(write_s=0.3)

        async def main() -> None:
            with pytest.raises(ProviderError) as caught:
                await aask(client, way, None, BIG)
            assert caught.value.status == (413 if over is None else None), "httpx reads nothing while it sends"
            assert text((await aask(client, way))[-1]) == "hello"

        with FaultServer(*scripts, is_early=True) as server, client_of(server, network) as client, at_once():
            if way in ASYNC:
                asyncio.run(main())
            else:
                assert error_of(client, way, None, BIG).status == (413 if over is None else None)
                assert text(ask(client, way)[-1]) == "hello"
            assert server.n_connections == 2


class TestCompressed:
    @pytest.mark.system
    @each_way
    def test_what_comes_behind_its_end_is_not_taken(self, way: str) -> None:
        body = gzip.compress(json.dumps(completion()).encode()) + b" " * 5_000_000
        network = Network(max_reply_bytes=1_000_000)
        script = [http(body, content_encoding="gzip")]
        with FaultServer(script) as server, client_of(server, network) as client, at_once():
            error = error_of(client, way)
        assert isinstance(error, BadReply)
        assert "damaged: more bytes follow its end" in error.message

    @pytest.mark.system
    @each_way
    def test_one_without_its_checksum_is_not_whole(self, way: str) -> None:
        kind = "text/event-stream" if way in STREAMED else "application/json"
        body = gzip.compress(PIECES if way in STREAMED else json.dumps(completion()).encode())[:-8]
        script = [http(body, content_encoding="gzip", content_type=kind)]
        with FaultServer(script) as server, client_of(server) as client:
            if way in STREAMED:  # it says itself that it is whole
                assert text(ask(client, way)[-1]) == "hello"
            else:
                assert "damaged: its checksum is missing" in error_of(client, way).message


class TestResending:
    @pytest.mark.system
    def test_a_server_that_may_have_read_it_is_not_asked_again(self) -> None:
        def check(way: str) -> None:
            work: Step = lambda _: time.sleep(0.3)  # noqa: E731
            with FaultServer(good(way), [work, CLOSE], good(way)) as server, client_of(server) as client:
                first, second = outcomes(client, way, None, None)
                assert text(first) == "hello"
                assert isinstance(second, BadReply)
                assert second.retryable
                assert len(server.requests) == 2

        in_each_way(check)

    @pytest.mark.system
    @each_way
    @pytest.mark.usefixtures("is_soon")
    def test_one_that_hangs_up_when_it_is_asked_again_is(self, way: str) -> None:
        """The connections close in the moment in which they are used."""
        soon: Step = lambda _: time.sleep(random.uniform(0, 0.004))  # noqa: E731
        scripts: list[list[Step]] = [[*good(way), soon, CLOSE]]
        with FaultServer(*scripts) as server, client_of(server) as client:
            assert ask_often(client, way, 15, lambda: time.sleep(0.002)) == ["hello"] * 15
            assert len(server.requests) == 15


class Worker(threading.Thread):
    """Asks in a thread; `error` is how that ended, if not well."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._work = function, arguments
        self.start()

    def run(self) -> None:
        function, arguments = self._work
        try:
            function(*arguments)
        except BaseException as error:
            self.error = error

    def ends_at_once(self) -> BaseException | None:
        self.join(LIMIT_S / 2)
        assert not self.is_alive(), "it is still there"
        return self.error


WAITING: dict[str, list[Step]] = {
    "head": [STALL],
    "body": [JSON_HEAD, b"{", STALL],
    "stream": [SSE_HEAD, chunk(FIRST_PIECE), STALL],
    "endless body": [head(content_type="application/json"), Repeat(b" ", 0.01)],
}


class TestClosing:
    @pytest.mark.system
    @pytest.mark.parametrize("way", ["complete", "stream"])
    @pytest.mark.parametrize("phase", WAITING)
    def test_threads_are_told_at_once(self, phase: str, way: str) -> None:
        with FaultServer(WAITING[phase]) as server:
            client = client_of(server)
            worker = Worker(ask, client, way)
            assert server.wait_for_requests(1)
            client.close()
            assert isinstance(worker.ends_at_once(), ProviderError)
            assert server.wait_until_all_closed()

    @pytest.mark.system
    @pytest.mark.parametrize("way", ASYNC)
    @pytest.mark.parametrize("phase", WAITING)
    @pytest.mark.parametrize("from_outside", [False, True])
    def test_tasks_are_told_at_once(self, from_outside: bool, phase: str, way: str) -> None:
        async def main() -> None:
            client = client_of(server)
            asking = asyncio.create_task(aask(client, way))
            assert await asyncio.to_thread(server.wait_for_requests, 1)
            await (asyncio.to_thread(client.close) if from_outside else client.aclose())
            with pytest.raises(ProviderError):
                await asyncio.wait_for(asking, LIMIT_S / 2)

        with FaultServer(WAITING[phase]) as server:
            asyncio.run(main())
            assert server.wait_until_all_closed()

    @pytest.mark.system
    @pytest.mark.parametrize("over", ["own"], indirect=True)
    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a shutdown does not end a connect")
    @each_way
    def test_who_connects_is_told_at_once(self, way: str) -> None:
        async def main(client: HttpClient) -> BaseException | None:
            asking = asyncio.create_task(aask(client, way))
            await asyncio.to_thread(wait_for_a_connect, base_url)
            await client.aclose()
            await asyncio.wait([asking], timeout=LIMIT_S / 2)
            return asking.exception()

        with nobody_accepts() as base_url:
            client = client_of(base_url)
            if way in ASYNC:
                error = asyncio.run(main(client))
            else:
                worker = Worker(ask, client, way)
                wait_for_a_connect(base_url)
                client.close()
                error = worker.ends_at_once()
        assert isinstance(error, TimedOut)
        assert "the client was closed" in error.message

    @pytest.mark.system
    @pytest.mark.parametrize("way", ["complete", "acomplete"])
    def test_many_are_told_at_once(self, way: str) -> None:
        """Ten are under way over three connections; the others wait for one."""

        async def main(client: HttpClient) -> list[Any]:
            tasks = [asyncio.create_task(aask(client, way)) for _ in range(10)]
            assert await asyncio.to_thread(server.wait_for_requests, 3)
            await client.aclose()
            return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), LIMIT_S / 2)

        with FaultServer([STALL]) as server:
            client = client_of(server, Network(max_connections=3))
            if way == "acomplete":
                errors = asyncio.run(main(client))
            else:
                workers = [Worker(ask, client, way) for _ in range(10)]
                assert server.wait_for_requests(3)
                client.close()
                errors = [worker.ends_at_once() for worker in workers]
            assert all(isinstance(error, ProviderError | UsageError) for error in errors), errors
            assert server.wait_until_all_closed()


@contextmanager
def nobody_accepts() -> Iterator[str]:
    """The base URL of a server whose queue is full: a `connect` waits for ever."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        fillers = [socket.socket() for _ in range(FILLERS)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        for filler in fillers:
            filler.close()


def wait_for_a_connect(base_url: str) -> None:
    """Wait until somebody else connects, as the kernel tells, to the server that `nobody_accepts` gives."""
    there = f":{int(base_url.rpartition(':')[2].partition('/')[0]):04X}"
    ends_s = time.monotonic() + LIMIT_S
    while sum(line.split()[2].endswith(there) for line in Path("/proc/net/tcp").read_text().splitlines()) <= FILLERS:
        assert time.monotonic() < ends_s
        time.sleep(NAP_S)


@pytest.mark.parametrize("way", ["complete", "stream"])
class TestAborting:
    @pytest.mark.system
    @pytest.mark.parametrize("phase", WAITING)
    def test_what_waits_for_a_reply_ends_at_once(self, phase: str, way: str) -> None:
        abort = Abort()
        with FaultServer(WAITING[phase]) as server, client_of(server) as client:
            worker = Worker(abort.run, ask, client, way)
            assert server.wait_for_requests(1)
            abort.set()
            assert isinstance(worker.ends_at_once(), Aborted)
            assert server.wait_until_all_closed()

    @pytest.mark.system
    def test_what_is_sending_ends_at_once(self, way: str) -> None:
        abort = Abort()
        with FaultServer([HOLD], is_early=True) as server, client_of(server) as client:
            worker = Worker(abort.run, ask, client, way, None, BIG)
            assert server.wait_for_requests(1)
            abort.set()
            assert isinstance(worker.ends_at_once(), Aborted)

    @pytest.mark.system
    @our_own
    def test_what_waits_for_a_connection_ends_at_once(self, way: str) -> None:
        """httpx's pool offers no way to wake who waits."""
        abort = Abort()
        with FaultServer([STALL], good(way)) as server, client_of(server, Network(max_connections=1)) as client:
            holder = Worker(ask, client, way)
            assert server.wait_for_requests(1)
            worker = Worker(abort.run, ask, client, way)
            threading.Event().wait(0.05)
            abort.set()
            assert isinstance(worker.ends_at_once(), Aborted)
            client.close()
            holder.ends_at_once()

    @pytest.mark.system
    @pytest.mark.parametrize("over", ["own"], indirect=True)
    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a shutdown does not end a connect")
    def test_what_connects_ends_at_once(self, way: str) -> None:
        """httpcore shows its socket when it is connected."""
        abort = Abort()
        with nobody_accepts() as base_url, client_of(base_url) as client:
            worker = Worker(abort.run, ask, client, way)
            wait_for_a_connect(base_url)
            abort.set()
            assert isinstance(worker.ends_at_once(), Aborted)

    @pytest.mark.system
    def test_what_has_not_begun_does_not(self, way: str) -> None:
        abort = Abort()
        abort.set()
        with FaultServer(good(way)) as server, client_of(server) as client:
            with pytest.raises(Aborted):
                abort.run(ask, client, way)
            assert server.n_connections == 0

    @pytest.mark.system
    def test_what_has_ended_stays_as_it_is(self, way: str, over: str | None) -> None:
        abort = Abort()
        with FaultServer(good(way)) as server, client_of(server) as client:
            assert text(abort.run(ask, client, way)[-1]) == "hello"
            abort.set()
            assert text(ask(client, way)[-1]) == "hello"
            assert server.n_connections == (1 if over is None else 2)

    @pytest.mark.system
    def test_it_is_no_failure_that_somebody_else_could_make_good(self, way: str) -> None:
        abort = Abort()
        with FaultServer([STALL]) as server, client_of(server) as first, client_of(server) as second:
            worker = Worker(abort.run, ask, FallbackClient([first, second]), way)
            assert server.wait_for_requests(1)
            abort.set()
            assert isinstance(worker.ends_at_once(), Aborted)
            assert len(server.requests) == 1


FORKING = """
import asyncio, atexit, os, sys, threading
import httpx
from contextlib import closing
from fsm_agent.clients.http import PooledTransport
from fsm_agent.clients.http.network import Network
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.message import Message

base_url, over, *children = sys.argv[1:]  # what each of them does
if over == "pooled":
    network = Network(client=httpx.Client(transport=PooledTransport()), async_client=httpx.AsyncClient())
else:
    network = Network(http2=over == "httpx")  # which is spoken over TLS alone, but needs httpx's own transport
client, other = [
    HttpClient("openai-compatible", "m", base_url=base_url, api_key="k", network=network) for _ in range(2)
]
request = Request(messages=(Message.of("user", "Hello?"),))

def fork(leave=sys.exit):  # which unwinds the stack, and does what is registered for the end
    for child_does in children:
        pid = os.fork()
        if pid == 0:
            if child_does == "asks":
                assert client.complete(request).message.text == "hello"
            elif child_does == "asks in a loop":
                assert asyncio.run(client.acomplete(request)).message.text == "hello"
            elif child_does == "closes":
                client.close()
            leave()
        assert os.waitpid(pid, 0)[1] == 0

def end_process():
    atexit._run_exitfuncs()
    os._exit(0)

def read_a_stream():
    with closing(client.stream(request)) as items:
        begun = [next(items)]
        fork()
        other.complete(request)  # says that the children have ended
        return len(begun) + len(list(items))

def read_a_stream_in_a_thread():
    items, has_begun = [], threading.Event()

    def read():
        for item in client.stream(request):
            items.append(item)
            has_begun.set()

    thread = threading.Thread(target=read)
    thread.start()
    has_begun.wait()
    fork()
    other.complete(request)
    thread.join()
    return len(items)

async def read_a_stream_in_a_loop():
    items = client.astream(request)
    begun = [await anext(items)]
    await asyncio.to_thread(fork, end_process)
    other.complete(request)
    return len(begun) + len([item async for item in items])

"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
class TestForking:
    def run(self, code: str, server: FaultServer, over: str | None, *children: str) -> str:
        command = [sys.executable, "-c", FORKING + code, server.base_url, over or "", *children]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    @pytest.mark.system
    @pytest.mark.parametrize(
        ("reader", "over"),
        [
            pytest.param("read_a_stream()", "own", marks=pytest.mark.nightly),
            ("read_a_stream_in_a_thread()", "own"),
            pytest.param("read_a_stream_in_a_thread()", "httpx", marks=pytest.mark.nightly),
            ("asyncio.run(read_a_stream_in_a_loop())", "own"),
        ],
        indirect=["over"],
    )
    def test_what_the_parent_reads_is_left_alone(self, reader: str, over: str | None) -> None:
        pieces = [chunk(events(delta("x"), done=False)) for _ in range(3)]
        has_ended = threading.Event()
        stream: list[Step] = [SSE_HEAD, *pieces, lambda _: has_ended.wait(5), *pieces, chunk(PIECES), END_OF_CHUNKS]
        children = ("ends", "closes", "asks", "asks in a loop")
        with FaultServer(stream, WHOLE, WHOLE, [lambda _: has_ended.set(), *WHOLE]) as server:
            assert self.run(f"print({reader})", server, over, *children).split() == ["9"]

    @pytest.mark.system
    @own_soon
    def test_a_child_waits_for_no_thread_of_its_parent(self, over: str | None) -> None:
        code = """
client.complete(request)  # imports what it needs: a child would wait for a module that another thread imports
done = threading.Event()
def ask():
    while not done.is_set():
        client.complete(request)
threads = [threading.Thread(target=ask) for _ in range(4)]
[thread.start() for thread in threads]
try:
    [fork() for _ in range(2)]
finally:
    done.set()
print("done")
"""
        with FaultServer(WHOLE) as server:
            assert self.run(code, server, over, "asks").split() == ["done"]

    @pytest.mark.system
    @own_soon
    def test_each_has_its_own(self, over: str | None) -> None:
        code = "client.complete(request), fork(), client.complete(request)"
        with FaultServer(WHOLE) as server:
            self.run(code, server, over, "asks")
            used = [request.connection for request in server.requests]
        assert used == ([0, 1, 0] if over is None else [0, 1, 2])

    @pytest.mark.system
    @pytest.mark.parametrize("over", ["own"], indirect=True)
    def test_a_users_pool_begins_anew_in_a_child(self) -> None:
        code = "client.complete(request), fork(), client.complete(request)"
        with FaultServer(WHOLE) as server:
            self.run(code, server, "pooled", "asks")
            assert [request.connection for request in server.requests] == [0, 1, 0]
