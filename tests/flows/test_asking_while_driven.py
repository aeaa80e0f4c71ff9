"""Can a question be answered from the moment it is asked, while the run continues or waits for its time?"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from flow_runs import by_arun, by_run

from fsm_agent import MemoryStore
from fsm_agent.call import Returned
from fsm_agent.flows import Flow, end, execute, gather, into, wait
from fsm_agent.store import NotAsked
from fsm_agent.testing import FakeClock

LONG_S = 30.0  # no test waits for it
HI = Returned(text='"hi"')
everywhere = pytest.mark.parametrize("by_asyncio", [False, True], ids=["sync", "asyncio"])


@dataclass(frozen=True)
class Note:
    text: str = ""


def asked_within(seconds: float, *, clock: Any = None, store: Any = None) -> Flow[Note]:
    @wait(str, within_s=seconds)
    def question(n: Note) -> str:
        return "?"

    rows = [question.done(end("answered"), do=into("text")), question.elapsed(end("late"))]
    return Flow("asked", Note, start=question, rows=rows, store=store, environment={"clock": clock} if clock else {})


def driven(flow: Flow[Note], by_asyncio: bool) -> Any:
    return asyncio.run(flow.acall(Note(), run_id="r")) if by_asyncio else flow.call(Note(), run_id="r")


def told(kind: type[Any], *arguments: Any) -> tuple[Any, threading.Event]:
    """A store, and an event that is set when a running driver has asked there."""
    asked = threading.Event()

    class Told(kind):  # type: ignore[misc]
        def ask(self, lease: Any, questions: Sequence[Any]) -> None:
            super().ask(lease, questions)
            asked.set()

    return Told(*arguments), asked


class Beside:
    """A thread that runs during the test."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._result: Any = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        self._result = work()

    def result(self) -> Any:
        self._thread.join(LONG_S)
        return self._result


@everywhere
def test_a_question_beside_a_long_function_is_answered_meanwhile(by_asyncio: bool) -> None:
    store, asked = told(MemoryStore)
    answered = threading.Event()

    @wait(str)
    def question(n: Note) -> str:
        return "?"

    @execute
    def long(n: Note) -> str:
        return "done" if answered.wait(LONG_S) else "never"

    both = gather("both", question, long)
    rows = [both.done(end("over"), do=lambda n, found: Note(" ".join(found)))]
    flow = Flow("asked", Note, start=both, rows=rows, store=store)
    driver = Beside(lambda: driven(flow, by_asyncio))
    assert asked.wait(LONG_S)
    [key] = [one.key for one in store.get("r").waits]
    flow.runs.all.answer("r", {key: HI})
    answered.set()
    assert driver.result().output == Note("hi done")


def an_answer_or(store: Any, functions: int, ended: list[str]) -> Flow[Note]:
    """A flow that ends with an answer, or with the first of so many long coroutine functions."""

    @wait(str)
    def question(n: Note) -> str:
        return "?"

    async def long(n: Note) -> str:
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), LONG_S)
        ended.append("long")
        return "done"

    others = [execute(long, name=f"long_{number}") for number in range(functions)]
    either = gather("either", question, *others, enough=1)
    return Flow(
        "asked", Note, start=either, rows=[either.done(end("over"), do=lambda n, found: Note(found[0]))], store=store
    )


@everywhere
def test_an_answer_that_is_enough_ends_a_lone_coroutine_function(by_asyncio: bool) -> None:
    store, asked = told(MemoryStore)
    ended: list[str] = []
    flow = an_answer_or(store, 1, ended)
    driver = Beside(lambda: driven(flow, by_asyncio))
    assert asked.wait(LONG_S)
    [key] = [one.key for one in store.get("r").waits]
    flow.runs.all.answer("r", {key: HI})
    assert (driver.result().output, ended) == (Note("hi"), [])


class PostsBeforeWaits(asyncio.SelectorEventLoop):
    """A loop in which another thread posts something, once, at the moment before a task waits."""

    post: Callable[[], Any] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._is_told = threading.Event()

    def call_soon_threadsafe(self, *arguments: Any, **options: Any) -> Any:
        handle = super().call_soon_threadsafe(*arguments, **options)
        self._is_told.set()
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        post, self.post = self.post, None
        if post is not None:
            self._is_told.clear()
            post()
            assert self._is_told.wait(LONG_S)
        return super().create_future()


def test_an_answer_at_the_moment_before_the_driver_waits_wakes_it() -> None:
    class Told(MemoryStore):
        def ask(self, lease: Any, questions: Sequence[Any]) -> None:
            super().ask(lease, questions)
            loop.post = lambda: flow.runs.all.answer("r", {questions[0].key: HI})

    ended: list[str] = []
    flow = an_answer_or(Told(), 2, ended)
    loop = PostsBeforeWaits()
    try:
        result = loop.run_until_complete(flow.acall(Note(), run_id="r"))
    finally:
        loop.close()
    assert (result.output, ended) == (Note("hi"), [])


class PostsLate(FakeClock):
    """A clock on which an answer comes just before a time is over, without a message to the driver."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self._store = store

    def sleep(self, delay_s: float) -> None:
        body = '{"key":"answer:question#1","outcome":{"kind":"returned","text":"\\"hi\\"","at_s":1000000001.0}}'
        self._store.signal("r", "answer:question#1", body)
        super().sleep(delay_s)


@everywhere
def test_what_was_answered_in_time_counts_though_the_driver_hears_of_it_late(by_asyncio: bool) -> None:
    store = MemoryStore()
    flow = asked_within(5.0, clock=PostsLate(store), store=store)
    assert driven(flow, by_asyncio).output == Note("hi")


@everywhere
def test_a_question_that_nobody_has_answered_in_time_is_asked_no_more(by_asyncio: bool) -> None:
    store = MemoryStore()
    seen: list[Any] = []

    @wait(str, within_s=5)
    def question(n: Note) -> str:
        return "?"

    @wait(str, within_s=5)
    def second(n: Note) -> str:
        return "?"

    class Looks(FakeClock):
        def sleep(self, delay_s: float) -> None:
            seen.append([one.key for one in store.get("r").waits])
            super().sleep(delay_s)

    rows = [
        *[question.done(end("answered")), question.elapsed(second)],
        *[second.done(end("answered_too")), second.elapsed(end("late"))],
    ]
    flow = Flow("asked", Note, start=question, rows=rows, store=store, environment={"clock": Looks()})
    assert driven(flow, by_asyncio).state == "late"
    assert seen == [["answer:question#1"], ["answer:second#2"]]
    with pytest.raises(NotAsked):
        flow.runs.all.answer("r", {"answer:second#2": HI})


@pytest.mark.parametrize("by", [by_run, by_arun])
def test_without_a_store_its_time_is_waited_for(by: Any) -> None:
    flow = asked_within(5.0, clock=FakeClock())
    run = flow.prepare(Note())
    by(flow, run)
    assert run.state == "late"
