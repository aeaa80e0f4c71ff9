"""Are connections reused, and released at once?

With a client of this package and with one of a user.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest
from conformance.client_requests import ASYNC, REQUEST, STREAMED, TWO_WAYS, aask, ask, outcomes
from support.fault_server import (
    BARRIER,
    CLOSE,
    END_OF_CHUNKS,
    HOLD,
    RESET,
    SSE_HEAD,
    STALL,
    FaultServer,
    Step,
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
    client_of,
    completion,
    delta,
    good,
    in_threads,
    refused,
    text,
)

from fsm_agent.agents import Agent
from fsm_agent.call import Reason, Request
from fsm_agent.clients import Network, client_for
from fsm_agent.errors import BadReply, ProviderError, TimedOut
from fsm_agent.messages import Message, TextDelta
from fsm_agent.runtime import run

pytestmark = pytest.mark.usefixtures("over")
our_own = pytest.mark.parametrize("over", [None], indirect=True)
each_way = pytest.mark.parametrize("way", TWO_WAYS)

BIG = Request(messages=(Message.of("user", "x" * 8_000_000),))
LIMIT_S = 10.0


def says(what: str, way: str) -> bytes:
    """A whole response."""
    if way in STREAMED:
        return SSE_HEAD + chunk(events(delta(what), delta(finish_reason="stop"))) + END_OF_CHUNKS
    return http(completion(what))


@pytest.mark.parametrize("ways", [("complete", "stream", "complete"), ("acomplete", "astream", "acomplete")])
def test_one_serves_many_requests(ways: tuple[str, ...]) -> None:
    async def main() -> None:
        for way in ways:
            await aask(client, way)

    with FaultServer(*[good(way) for way in ways]) as server, client_of(server) as client:
        if ways[0] == "complete":
            assert all(ask(client, way) for way in ways)
        else:
            asyncio.run(main())
        assert len(server.requests) == 3
        assert server.n_connections == 1


@each_way
def test_a_server_that_may_have_read_it_is_not_asked_again(way: str) -> None:
    for fault in ([CLOSE], [JSON_HEAD, b"{", CLOSE]):
        with FaultServer(good(way), fault, good(way)) as server, client_of(server) as client:
            error = outcomes(client, way, None, None)[1]
            assert isinstance(error, BadReply)
            assert error.retryable
            assert len(server.requests) == 2


@pytest.mark.parametrize("way", ASYNC)
def test_what_comes_unasked_is_no_reply(way: str) -> None:
    """Else each request that follows would get the reply to the one before it."""

    async def main() -> list[str]:
        replies = [(await aask(client, way))[-1]]
        is_read.set()
        assert await asyncio.to_thread(is_sent.wait, LIMIT_S)
        return [text(reply) for reply in (*replies, *[(await aask(client, way))[-1] for _ in range(2)])]

    is_read, is_sent = threading.Event(), threading.Event()
    unasked: list[Step] = [lambda _: is_read.wait(LIMIT_S), says("unasked", way), lambda _: is_sent.set()]
    answers = [[says("first", way), *unasked], [says("second", way)], [says("third", way)]]
    with FaultServer(*answers) as server, client_of(server) as client:
        assert asyncio.run(main()) == ["first", "second", "third"]


@each_way
def test_a_body_may_end_with_the_connection(way: str) -> None:
    kind, body = (
        ("text/event-stream", PIECES) if way in STREAMED else ("application/json", json.dumps(completion()).encode())
    )
    with FaultServer([head(content_type=kind), body, CLOSE]) as server, client_of(server) as client:
        assert [text(reply) for reply in outcomes(client, way, None, None)] == ["hello", "hello"]
        assert [request.connection for request in server.requests] == [0, 1]


def test_a_server_that_closes_after_a_stream_is_told_to() -> None:
    script: list[Step] = [SSE_HEAD, chunk(PIECES), END_OF_CHUNKS, CLOSE]
    with FaultServer(script) as server, client_for("llamacpp:m", base_url=server.base_url) as client:
        assert text(ask(client, "stream")[-1]) == "hello"
        assert server.requests[0].headers["connection"] == "close"


@each_way
def test_none_is_left_open_by_a_client_that_nobody_closes(way: str) -> None:
    with FaultServer(good(way)) as server:
        client = client_of(server)
        ask(client, way)
        del client
        gc.collect()
        assert server.wait_until_all_closed()


def test_an_async_stream_that_is_forgotten_ends_with_its_loop() -> None:
    async def main() -> None:
        items = client.astream(REQUEST)
        forgotten.append(items)
        assert await anext(items) == TextDelta("hel")

    forgotten: list[Any] = []
    with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL]) as server, client_of(server) as client:
        asyncio.run(main())
        assert server.wait_until_all_closed()


def test_each_event_loop_has_its_own_and_closes_them() -> None:
    with FaultServer(good("acomplete")) as server, client_of(server) as client:
        for n_loops in (1, 2):
            assert text(ask(client, "acomplete")[-1]) == "hello"
            assert server.n_connections == n_loops
            assert server.wait_until_all_closed()


@our_own
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_before_them_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """`asyncio.run` would have closed them.  `close` of a loop does not notify its async generators."""
    with FaultServer(WHOLE) as server, client_of(server) as client:
        for _ in range(2):
            loop = asyncio.new_event_loop()
            assert text(loop.run_until_complete(client.acomplete(REQUEST))) == "hello"
            loop.close()
    del loop, client
    gc.collect()
    assert caplog.messages == []


@our_own
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_is_closed_while_they_are_is_no_error() -> None:
    def call_too_late(loop: Any, callback: Any) -> Any:
        loop.close()
        return type(loop).call_soon_threadsafe(loop, callback)

    loop: Any = asyncio.new_event_loop()
    with FaultServer(WHOLE) as server, client_of(server) as client:
        loop.run_until_complete(client.acomplete(REQUEST))
        loop.call_soon_threadsafe = partial(call_too_late, loop)
        client.close()
    del loop, client
    gc.collect()


def test_threads_and_loops_may_ask_at_once() -> None:
    with FaultServer([BARRIER, *WHOLE], together=4) as server, client_of(server) as client:
        for way in ("complete", "acomplete"):
            assert [text(reply) for reply in in_threads(4, lambda way=way: ask(client, way)[0])] == ["hello"] * 4


@our_own
def test_too_many_at_once_wait_for_each_other_in_their_turn() -> None:
    async def main() -> None:
        await asyncio.gather(*[aask(client, "acomplete", None, asking(number)) for number in range(6)])

    def asking(number: int) -> Request:
        return Request(messages=(Message.of("user", str(number)),))

    with FaultServer(WHOLE) as server, client_of(server, Network(max_connections=1)) as client:
        asyncio.run(main())
        in_threads(4, lambda: client.complete(asking(7)))
        assert server.n_connections == 2
        asked = [seen.json["messages"][0]["content"] for seen in server.requests]
        assert asked == [*map(str, range(6)), *["7"] * 4]


def test_nobody_waits_for_ever_for_a_free_one() -> None:
    async def main() -> None:
        async with aclosing(client.astream(REQUEST)) as items:
            await anext(items)
            with pytest.raises(TimedOut, match="no free connection"):
                await client.acomplete(REQUEST)

    narrow = Network(max_connections=1, pool_s=0.05)
    with FaultServer([SSE_HEAD, chunk(FIRST_PIECE), STALL]) as server, client_of(server, narrow) as client:
        asyncio.run(main())


class TestUploads:
    @our_own
    @each_way
    def test_a_server_that_takes_nothing_has_its_time(self, way: str) -> None:
        with (
            FaultServer([HOLD], is_early=True) as server,
            client_of(server, Network(write_s=0.1)) as client,
            pytest.raises(TimedOut, match="stopped reading the request"),
        ):
            ask(client, way, None, BIG)

    @our_own
    @each_way
    def test_a_refusal_before_it_is_over_is_heard(self, way: str) -> None:
        """The rest of the request disturbs nothing.  httpx reads nothing while it sends."""
        with FaultServer([*refused(413), HOLD], good(way), is_early=True) as server, client_of(server) as client:
            with pytest.raises(ProviderError) as caught:
                ask(client, way, None, BIG)
            assert caught.value.status == 413
            assert text(ask(client, way)[-1]) == "hello"
            assert server.n_connections == 2

    @our_own
    @each_way
    @pytest.mark.parametrize("fault", [RESET, CLOSE])
    def test_one_that_is_broken_off_is_told_in_words_without_the_url_of_the_library(
        self, way: str, fault: Step
    ) -> None:
        with FaultServer([fault], is_early=True) as server, client_of(server) as client:
            with pytest.raises(TimedOut) as caught:
                ask(client, way, None, BIG)
            told = str(caught.value)  # the URL is named once, by this package, which masks it
            assert told.count("://") == 1
            assert "None" not in told


WAITING: dict[str, list[Step]] = {
    "head": [STALL],
    "body": [JSON_HEAD, b"{", STALL],
    "stream": [SSE_HEAD, chunk(FIRST_PIECE), STALL],
}


class TestClosing:
    @pytest.mark.parametrize("phase", WAITING)
    @pytest.mark.parametrize("from_outside", [False, True])
    def test_tasks_are_told_at_once(self, from_outside: bool, phase: str) -> None:
        async def main() -> None:
            client = client_of(server)
            asking = asyncio.create_task(aask(client, "astream"))
            assert await asyncio.to_thread(server.wait_for_requests, 1)
            await (asyncio.to_thread(client.close) if from_outside else client.aclose())
            with pytest.raises(ProviderError):
                await asyncio.wait_for(asking, LIMIT_S)

        with FaultServer(WAITING[phase]) as server:
            asyncio.run(main())
            assert server.wait_until_all_closed()

    @each_way
    def test_those_that_wait_for_a_connection_are_told_too(self, way: str) -> None:
        async def main() -> list[Any]:
            tasks = [asyncio.create_task(aask(client, way)) for _ in range(4)]
            assert await asyncio.to_thread(server.wait_for_requests, 1)
            await client.aclose()
            return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), LIMIT_S)

        with FaultServer([STALL]) as server, client_of(server, Network(max_connections=1)) as client:
            if way in ASYNC:
                ended = asyncio.run(main())
            else:
                begun = [in_thread(lambda: ask(client, way)) for _ in range(4)]
                assert server.wait_for_requests(1)
                client.close()
                ended = [(thread.join(LIMIT_S), *errors)[1] for thread, errors in begun]
            assert len(ended) == 4
            assert not [error for error in ended if not isinstance(error, Exception)]
            assert server.wait_until_all_closed()

    @our_own
    def test_it_waits_for_no_server_that_reads_nothing(self) -> None:
        async def main() -> None:
            asking = asyncio.create_task(aask(client, "acomplete", None, BIG))
            assert await asyncio.to_thread(server.wait_for_requests, 1)
            await asyncio.wait_for(client.aclose(), LIMIT_S / 2)
            with pytest.raises(ProviderError):
                await asking

        with FaultServer([HOLD], is_early=True) as server, client_of(server) as client:
            asyncio.run(main())


@pytest.mark.parametrize("phase", WAITING)
def test_a_call_that_is_cancelled_from_another_thread_lets_go_of_its_request(phase: str) -> None:
    with FaultServer(WAITING[phase]) as server, client_of(server) as client:
        agent = Agent(client)
        pending = agent.prepare("Hello?")
        thread, ended = in_thread(lambda: run(pending, agent._own_environment))
        assert server.wait_for_requests(1)
        pending.cancel("enough")
        assert server.wait_until_all_closed()
        thread.join(LIMIT_S)
        assert ended == [None]
        assert pending.record.ending.reason is Reason.CANCELLED


def in_thread(function: Callable[[], object]) -> tuple[threading.Thread, list[BaseException | None]]:
    """A thread that has begun, and how it ended."""
    ended: list[BaseException | None] = []

    def work() -> None:
        try:
            function()
        except BaseException as error:
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, ended


@pytest.mark.system
@our_own
@each_way
def test_a_slow_server_that_takes_some_has_its_time(way: str) -> None:
    """The whole takes longer than `write_s`, each piece does not."""

    def sip(connection: socket.socket) -> None:
        left = int(server.requests[-1].headers["content-length"]) - 100_000
        while left > 0:
            data = connection.recv(100_000)
            left -= len(data) or left
            time.sleep(len(data) / 2_000_000)
        connection.sendall(says("hello", way))

    with FaultServer([sip, HOLD], is_early=True) as server, client_of(server, Network(write_s=3.0)) as client:
        assert text(ask(client, way, None, BIG)[-1]) == "hello"


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


@pytest.mark.system
@each_way
@pytest.mark.parametrize("phase", WAITING)
def test_the_deadline_closes_the_socket(phase: str, way: str) -> None:
    """The connection is half open, as far as the client knows."""
    with FaultServer(WAITING[phase]) as server, client_of(server) as client:
        assert isinstance(outcomes(client, way, 0.2)[0], TimedOut)
        assert server.wait_until_all_closed()


FORKING = """
import os, sys, threading
import httpx
from fsm_agent.clients import HttpClient, Network
from fsm_agent.call import Request
from fsm_agent.messages import Message

network = Network(client=httpx.AsyncClient if sys.argv[2] == "httpx" else None)
client = HttpClient("openai-compatible", "m", base_url=sys.argv[1], api_key="k", network=network)
request = Request(messages=(Message.of("user", "Hello?"),))
items = client.stream(request)
begun = next(items)
for child_does in (lambda: client.complete(request), client.close, lambda: None):
    pid = os.fork()
    if pid == 0:
        child_does()
        sys.exit()  # which unwinds the stack, and does what is registered for the end
    assert os.waitpid(pid, 0)[1] == 0
client.complete(request)  # says that the children have ended
print(1 + len(list(items)))
"""


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_what_the_parent_reads_is_left_alone_by_its_children(over: str | None) -> None:
    pieces = [chunk(events(delta("x"), done=False)) for _ in range(3)]
    has_ended = threading.Event()
    stream: list[Step] = [SSE_HEAD, *pieces, lambda _: has_ended.wait(30), *pieces, chunk(PIECES), END_OF_CHUNKS]
    with FaultServer(stream, WHOLE, [lambda _: has_ended.set(), *WHOLE]) as server:
        command = [sys.executable, "-c", FORKING, server.base_url, over or ""]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        assert done.stdout.split() == ["9"]
        assert [request.connection for request in server.requests] == [0, 1, 2]
