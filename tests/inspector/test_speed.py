"""Do pages of large stores and of long runs take little processor time, and no more than in proportion?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from starlette.requests import Request
from support.time_growth import growth

from fsm_agent import Agent, Limits, Runs, function
from fsm_agent.inspector.app import Inspector
from fsm_agent.store import MemoryStore, Rest, SqliteStore
from fsm_agent.testing import Script, call

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
RUNS, ENTRIES = 100_000, 2_000
ATTEMPTS = 5


@function
def look(n: int) -> str:
    """Look."""
    return f"the result of {n}"


def request(query: str = "") -> Request:
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": [],
                    "root_path": "", "scheme": "http", "server": ("ops", 80)})  # fmt: skip


def least_s(act: Callable[[], Any]) -> float:
    """The least processor time of this thread."""
    took = []
    for _ in range(ATTEMPTS):
        started = time.thread_time()
        act()
        took.append(time.thread_time() - started)
    return min(took)


def fill(store: Any, count: int) -> Runs:
    """Many runs of ten agents, in a dozen states; some ask."""
    from fsm_agent.messages import Question

    header = '{"version":1,"agent":"a","definition":"","seed":{}}'

    def put(n: int) -> None:
        lease = store.create(f"run-{n}", header, agent=f"agent-{n % 10}", title=f"task {n}", holder="x", for_s=60.0)
        asked = (Question(f"ask:{n}", "approval", "{}", ("approved",)),) if n % 50 == 0 else ()
        store.submit(lease, 0, (), Rest(state=f"state-{n % 12}", is_ended=not asked, questions=asked))

    with ThreadPoolExecutor(16) as threads:  # whose writes share the commits of a file
        list(threads.map(put, range(count)))
    return Runs(store)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with closing(fill(SqliteStore(tmp_path_factory.mktemp("many") / "runs.db"), RUNS)) as filled:
        yield filled


@pytest.mark.parametrize(
    "query",
    ["", "only=asked", "agent=agent-3&only=ended", "state=state-4", "words=99999", "words=no+such", "age=hour"],
)
def test_a_page_of_a_hundred_thousand_runs(many, query):
    def page() -> None:
        answer = Inspector(many).list(request(query))  # a new one: it has counted nothing
        assert answer.status_code == 200

    assert least_s(page) < 0.3


def test_a_change_costs_no_count(many, monkeypatch):
    inspector = Inspector(many)
    inspector.list(request())
    monkeypatch.setattr(many.store, "stats", lambda: pytest.fail("all runs were counted"))
    for _ in range(3):
        inspector.list(request("rows=1"))
        inspector.list(request())
        inspector.news.mark()
    assert least_s(lambda: inspector.news.mark()) < 0.02


def long_run(entries: int) -> Runs:
    runs = Runs(MemoryStore())
    script = [call("look", n=n) for n in range(entries // 2 - 1)]
    agent = Agent(Script(*script, "Done."), functions=[look], name="host", store=runs, limits=Limits(rounds=entries))
    agent.call("Go.", run_id="r")
    return runs


def test_a_run_of_two_thousand_entries():
    runs = long_run(ENTRIES)
    assert runs.store.get("r").n == ENTRIES
    for query in ("id=r", "id=r&until=900"):
        assert least_s(partial(lambda query: Inspector(runs).run(request(query)), query)) < 0.5
    for after in ("1990", "0"):
        assert least_s(partial(lambda after: Inspector(runs).run_news(request(f"id=r&after={after}")), after)) < 0.5
    assert least_s(lambda: Inspector(runs).moment(request("id=r&n=1000"))) < 0.5


@pytest.mark.parametrize("path", ["run", "run_news", "items", "compare", "moment"])
def test_the_time_of_a_run_is_in_proportion_to_its_entries(path):
    def page(runs: Runs) -> None:
        getattr(Inspector(runs), path)(request("id=r&n=9&a=r&b=r&after=9&until=30"))

    assert growth(long_run, page, 250) < 3


def test_the_time_of_a_page_is_not_that_of_the_store(tmp_path):
    def given(count: int) -> Runs:
        return fill(SqliteStore(tmp_path / f"{count}.db"), count)

    def page(runs: Runs) -> None:
        inspector = Inspector(runs)
        for query in ("rows=1", "rows=1&only=asked", "rows=1&agent=agent-3"):
            inspector.list(request(query))

    assert growth(given, page, 500, until=1.4) < 1.4
