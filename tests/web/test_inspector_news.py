"""Do pages hear of what happens, at little cost, and do streams end with their server?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, aclosing, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from support.chromium import served

from fsm_agent import Agent
from fsm_agent.store import MemoryStore, Runs, SqliteStore, StoreError
from fsm_agent.testing import Script
from fsm_agent.web.inspector import Inspector

LONG_S = 30.0
GONE, AWAY, REPLACED, MOST_PAGES = "gone", "away", "replaced", 32


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
        news = Inspector(runs).news
        mark, newest = news.mark("r"), news.mark()
        assert mark == news.mark("r")
        call(runs, "s")
        assert news.mark("r") == mark
        assert news.mark() != newest
        runs.store.delete("r")
        assert news.mark("r") == GONE

    def test_an_empty_store_has_one(self):
        assert Inspector(Runs(MemoryStore())).news.mark() == "-"

    def test_a_store_that_cannot_be_read(self):
        store = Counting()
        store.fails = True
        assert Inspector(Runs(store)).news.mark("r") == AWAY

    def test_a_file_in_place_of_another(self, tmp_path: Path):
        """The store continues to read the file that it opened, which no longer has a path."""
        path = tmp_path / "runs.db"
        with closing(SqliteStore(path)) as store:
            news = Inspector(Runs(store), file=path).news
            assert news.mark() == "-"
            path.rename(tmp_path / "before.db")
            assert news.mark() == REPLACED
            SqliteStore(path).close()
            assert news.mark() == REPLACED

    async def test_all_pages_of_a_run_cost_one_look(self):
        store = Counting()
        runs = Runs(store)
        call(runs, "r")

        async def listen(news: Any, heard: list[str]) -> None:
            async with aclosing(news.marks("r")) as marks:
                async for mark in marks:
                    assert mark is not None
                    heard.append(mark)
                    return

        news, heard = Inspector(Runs(store)).news, list[str]()
        store.looks = 0
        await asyncio.gather(*[listen(news, heard) for _ in range(MOST_PAGES)])
        assert len(heard) == MOST_PAGES
        assert len({*heard}) == 1
        assert store.looks < MOST_PAGES

    async def test_a_mark_is_told_once(self, runs):
        news = Inspector(runs).news
        async with aclosing(news.marks("r")) as marks, aclosing(news.marks("r")) as others:
            first = await anext(marks)
            following = asyncio.ensure_future(anext(marks))
            assert await anext(others) == first  # both look at once, and the run has not changed
            await asyncio.sleep(0)
            assert not following.done()
            runs.store.delete("r")
            assert first != await following == GONE

    async def test_the_end_of_the_server_ends_all_streams(self, runs):
        news = Inspector(runs).news
        heard = []
        async for mark in news.marks():
            heard.append(mark)
            news.close()
        heard += [mark async for mark in news.marks()]
        assert len(heard) == 1

    async def test_no_more_pages_are_followed_than_there_is_room_for(self, runs: Runs):
        inspector = Inspector(runs)
        transport, statuses = httpx.ASGITransport(inspector.app), list[int]()
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        async with client, AsyncExitStack() as stack:
            for _ in range(MOST_PAGES):
                marks = await stack.enter_async_context(aclosing(inspector.news.marks()))
                await anext(marks)
            refused = await client.get("/events")
            assert refused.headers["retry-after"]
            statuses += [refused.status_code, (await client.get("/")).status_code]
            await marks.aclose()
            assert not inspector.news.is_full
        assert statuses == [503, 200]


def test_its_server_listens_on_this_machine_and_ends_its_streams(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, closed = list[Any](), list[int]()

    def listen(address: tuple[str, int]) -> Any:
        asked.append(address)
        return SimpleNamespace(
            getsockname=lambda: ("127.0.0.1", 4711), setsockopt=print, close=lambda: closed.append(1)
        )

    monkeypatch.setattr("socket.create_server", listen)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: server.handle_exit(2, None))
    with served(runs) as server:
        assert asked == [("127.0.0.1", 0)]
        assert server.port == 4711
        assert server.url.startswith("http://127.0.0.1:4711/")
        assert asyncio.run(anext(server.inspector.news.marks(), "")) == "", "its streams have ended"
    assert closed


@pytest.fixture
def server(runs: Runs) -> Iterator[Any]:
    with served(runs) as serving:
        yield serving


@pytest.fixture
def client(server: Any) -> Iterator[httpx.Client]:
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
                server.stop()
                list(lines)
