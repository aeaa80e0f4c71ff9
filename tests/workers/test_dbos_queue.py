"""Do the limits of DBOS's queues hold, and does the example finish what a person has answered?"""

from __future__ import annotations

import importlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
from support.paths import ROOT
from support.postgres import NOT_HERE, PostgresServer, programs
from support.workers import Gate

from fsm_agent import Agent, Approved, Worker, function
from fsm_agent.messages import Reply
from fsm_agent.store import PostgresStore
from fsm_agent.testing import Script, function_call
from fsm_agent.workers import engine_of

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(programs() is None, reason=NOT_HERE),
    pytest.mark.skipif(find_spec("dbos") is None, reason="dbos comes with [dbos]"),
]


@pytest.fixture
def database() -> Iterator[str]:
    with closing(PostgresServer()) as server:
        yield server.url().partition("?")[0]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, database: str) -> Iterator[Callable[..., ModuleType]]:
    """The example, launched with another model."""
    from dbos import DBOS

    DBOS.destroy(destroy_registry=True)  # of an example of a page, which has the same workflow
    monkeypatch.setenv("DATABASE", database)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    module = importlib.import_module("dbos_queue")

    def launched(**changes: Any) -> ModuleType:
        module.desk = replace(module.desk, **changes)
        module.launch()
        return module

    try:
        yield launched
    finally:
        DBOS.destroy(destroy_registry=True)
        module.desk.runs.all.close()
        del sys.modules["dbos_queue"]


def wait_until(is_so: Callable[[], bool], *, pause: threading.Event = threading.Event()) -> None:  # noqa: B008
    assert any(is_so() or pause.wait(0.05) for _ in range(1200))


class Counted(Script):
    """Answers as soon as it may, and counts who asks at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.asking: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.asked: list[str] = []
        self.may_answer = Gate()

    async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
        customer = request.messages[-1].text.split()[0]
        with self.lock:
            self.asked.append(request.messages[-1].text)
            self.asking[customer] += 1
            self.most[customer] = max(self.most[customer], self.asking[customer])
        await self.may_answer.wait()
        with self.lock:
            self.asking[customer] -= 1
        return Reply.of("Done.")


def test_each_customer_has_two_at_a_time_the_most_urgent_first(example: Callable[..., ModuleType]) -> None:
    model = Counted()
    app = example(model=model)

    def put(*priorities: int) -> None:
        for priority in priorities:
            for customer in ("acme", "beta"):
                app.put(f"{customer}-{priority}", f"{customer} {priority}", customer, priority)

    put(1, 2)
    wait_until(lambda: len(model.asked) == 4)
    put(9, 5, 3)
    model.may_answer.set()
    wait_until(lambda: sum(run.is_ended for run in app.desk.runs.all.store.list()) == 10)
    assert model.most == {"acme": 2, "beta": 2}
    for customer in ("acme", "beta"):
        assert [text for text in model.asked if text.startswith(customer)][-1] == f"{customer} 9"


def test_a_ticket_that_waits_for_a_person_goes_on_when_it_is_put_in_again(example: Callable[..., ModuleType]) -> None:
    @function(needs_approval=True)
    def refund(order: int) -> str:
        """Pay an order back."""
        return f"paid {order}"

    app = example(model=Script(function_call("refund", order=7), "It is paid."), functions=[refund])
    app.put("t1", "Pay 7 back.", "acme")
    runs = app.desk.runs.all
    wait_until(lambda: runs.store.list(waiting_for="approval") != [])
    runs.answer("t1", {runs.only_question("t1"): Approved()})
    app.put("t1", "Pay 7 back.", "acme")
    wait_until(lambda: runs.store.get("t1").is_ended)
    assert app.desk.runs.get("t1").result().output == "It is paid."


def test_a_limit_on_the_queue_of_an_engine_holds_for_a_worker_with_more_threads(database: str) -> None:
    from dbos import DBOSClient

    model = Counted()
    with closing(PostgresStore(f"{database}?schema=shop&engine=dbos")) as store:
        agent = Agent(model, name="desk", store=store)

        @contextmanager
        def working() -> Iterator[None]:
            worker = Worker([agent], store)
            thread = threading.Thread(target=engine_of("dbos", worker).run, kwargs={"threads": 8})
            thread.start()
            try:
                yield
            finally:
                worker.stop()
                thread.join(60)

        def all_have_ended() -> bool:
            return all(run.is_ended for run in store.list())

        agent.runs.submit("first")
        model.may_answer.set()
        with working():  # which makes the queue
            wait_until(all_have_ended)
        model.may_answer = Gate()
        client = DBOSClient(system_database_url=database, dbos_system_schema="shop_dbos")
        queue = client.retrieve_queue("runs")
        queue.set_worker_concurrency(2)
        queue.set_global_concurrency(2)
        client.destroy()
        for number in range(6):
            agent.runs.submit(f"acme {number}")
        with working():
            wait_until(lambda: model.asking["acme"] == 2)
            model.may_answer.set()
            wait_until(all_have_ended)
    assert model.most["acme"] == 2
