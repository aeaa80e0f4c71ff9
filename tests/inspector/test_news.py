"""Do pages hear of what happens, at little cost, however many they are?"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.chromium import served

from fsm_agent import Agent, ConfigError, Runs
from fsm_agent.inspector.live import AWAY, BEAT_S, GONE, MOST_PAGES, REPLACED, News
from fsm_agent.inspector.serving import InspectorServer
from fsm_agent.store import MemoryStore, SqliteStore, StoreError
from fsm_agent.testing import Script

LONG_S = 30.0


def call(runs: Runs, run: str) -> None:
    Agent(Script("Hi."), name="host", store=runs).call("Hello", run_id=run)


@pytest.fixture
def runs() -> Runs:
    runs = Runs(MemoryStore())
    call(runs, "r")
    return runs


def wait_until(is_true: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + LONG_S
    while not is_true():
        assert time.monotonic() < ends_s
        time.sleep(0.01)


class Counting(MemoryStore):
    """A store that counts how often it is looked at."""

    looks = 0
    fails = False

    def get(self, run: str) -> Any:
        self.looks += 1
        if self.fails:
            raise StoreError("away")
        return super().get(run)


class TestMarks:
    def test_a_mark_changes_with_its_run(self, runs):
        news = News(runs.store)
        mark, newest = news.mark("r"), news.mark()
        assert mark == news.mark("r")
        call(runs, "s")
        assert news.mark("r") == mark
        assert news.mark() != newest
        runs.store.delete("r")
        assert news.mark("r") == GONE

    def test_an_empty_store_has_one(self):
        assert News(MemoryStore()).mark() == "-"

    def test_a_store_that_cannot_be_read(self):
        store = Counting()
        store.fails = True
        assert News(store).mark("r") == AWAY

    def test_a_file_in_place_of_another(self, tmp_path: Path):
        """The store goes on reading the one that it has opened, which is at no path any more."""
        path = tmp_path / "runs.db"
        with closing(SqliteStore(path)) as store:
            news = News(store, path)
            assert news.mark() == "-"
            path.rename(tmp_path / "before.db")
            assert news.mark() == REPLACED
            SqliteStore(path).close()
            assert news.mark() == REPLACED

    def test_all_pages_of_a_run_cost_one_look(self):
        store = Counting()
        runs = Runs(store)
        call(runs, "r")

        async def listen(news: News, heard: list[str]) -> None:
            async with aclosing(news.marks("r")) as marks:
                async for mark in marks:
                    assert mark is not None
                    heard.append(mark)
                    return

        async def all_listen() -> None:
            news, heard = News(store), list[str]()
            store.looks = 0
            await asyncio.gather(*[listen(news, heard) for _ in range(MOST_PAGES)])
            assert len(heard) == MOST_PAGES
            assert len({*heard}) == 1

        asyncio.run(all_listen())
        assert store.looks < MOST_PAGES

    def test_nothing_is_looked_at_for_nobody(self, runs):
        store = Counting()
        assert News(store)._thread is None
        assert store.looks == 0

    def test_a_slow_page_has_one_mark_waiting(self, runs):
        async def listen() -> str:
            news = News(runs.store)
            async with aclosing(news.marks()) as marks:
                first = await anext(marks)
                waiting = news._pages[0].news
                for n in range(5):
                    await asyncio.to_thread(call, runs, f"s{n}")
                    newest = news.mark()
                    while newest not in waiting._queue:  # noqa: ASYNC110  # a queue has no event of what it has
                        await asyncio.sleep(0.01)
                    assert waiting.qsize() == 1
                second = await anext(marks)
                assert second == news.mark()
                assert second != first
            return "done"

        assert asyncio.run(listen()) == "done"

    def test_a_quiet_stream_says_that_it_is_there(self, runs, monkeypatch):
        monkeypatch.setattr("fsm_agent.inspector.live.BEAT_S", 0.05)

        async def listen() -> None:
            async with aclosing(News(runs.store).marks()) as marks:
                assert await anext(marks)
                assert await anext(marks) is None

        asyncio.run(listen())
        assert BEAT_S >= 10

    def test_the_end_of_the_server_ends_all_streams(self, runs):
        async def listen() -> list[str | None]:
            news = News(runs.store)
            heard = []
            async for mark in news.marks():
                heard.append(mark)
                news.close()
            return heard

        assert len(asyncio.run(listen())) == 1


@pytest.fixture
def server(runs: Runs) -> Iterator[InspectorServer]:
    with served(runs) as serving:
        yield serving


@pytest.fixture
def client(server: InspectorServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url.partition("?")[0], follow_redirects=True, timeout=LONG_S) as client:
        assert client.get(server.url).status_code == 200
        yield client


class TestAServer:
    @pytest.mark.system
    def test_a_stream_tells_of_a_step(self, client, runs):
        with client.stream("GET", "events", params={"id": "s"}) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            marks = (line for line in stream.iter_lines() if line.startswith("data: "))
            assert next(marks) == "data: gone"
            call(runs, "s")
            assert next(marks) not in ("data: gone", "data: away")

    @pytest.mark.system
    def test_pages_that_are_followed_are_bounded(self, client, server):
        streams = []
        for _ in range(MOST_PAGES):
            streams.append(client.stream("GET", "events"))
            assert streams[-1].__enter__().status_code == 200
        wait_until(lambda: server.inspector.news.is_full)
        refused = client.get("events")
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert client.get("").status_code == 200  # pages are answered all the same
        for stream in streams:
            stream.__exit__(None, None, None)
        wait_until(lambda: not server.inspector.news._pages)

    @pytest.mark.system
    def test_it_ends_though_pages_are_open(self, runs):
        with served(runs) as server, httpx.Client(follow_redirects=True, timeout=LONG_S) as client:
            client.get(server.url)
            with client.stream("GET", server.url.partition("?")[0] + "events") as stream:
                lines = stream.iter_lines()
                next(lines)
                began_s = time.monotonic()
                server.stop()
                list(lines)
        assert time.monotonic() - began_s < LONG_S

    @pytest.mark.system
    def test_only_this_machine_is_answered(self, server):
        assert server._socket.getsockname()[0] == "127.0.0.1"

    @pytest.mark.system
    def test_small_answers_are_sent_at_once(self, runs):
        """A socket that is given to asyncio lacks TCP_NODELAY unless it is set: each answer took 40 ms longer."""
        server = InspectorServer(runs)
        try:
            with socket.create_connection(("127.0.0.1", server.port)):
                taken, _ = server._socket.accept()
                with taken:
                    assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        finally:
            server.stop()
            server._socket.close()

    @pytest.mark.system
    def test_a_port_that_is_taken_is_a_plain_error(self, server, runs):
        with pytest.raises(ConfigError, match=f"the port {server.port} of 127.0.0.1 cannot be used: Address already"):
            InspectorServer(runs, port=server.port)

    @pytest.mark.system
    def test_tokens_and_paths_are_new_each_time(self, runs):
        servers = [InspectorServer(runs) for _ in range(2)]
        assert len({server.url.partition("?")[2] for server in servers}) == 2
        assert len({server.url.split("/")[3] for server in servers}) == 2
        for server in servers:
            server._socket.close()

    @pytest.mark.system
    def test_who_answers_is_the_user_of_this_process(self, server, monkeypatch):
        monkeypatch.setenv("LOGNAME", "ann")
        assert server.inspector._user({}) == "ann"
        assert os.getuid() >= 0
