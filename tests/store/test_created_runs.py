"""When is a run without a name created, and what happens if that fails, or if its call ends before?"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from fsm_agent import Agent
from fsm_agent.messages import Stepped
from fsm_agent.store import Conflict, Lease, MemoryStore, RunUnknown, StoreError
from fsm_agent.testing import Script

Drive = Callable[..., Any]


class Model(Script):
    """A model whose runs have random names, as with every model but a `Script`."""

    environment_defaults: ClassVar[dict[str, Any]] = {}


class Watched(MemoryStore):
    """A store that notes its writes, and fails to create as often as the test likes."""

    is_volatile = False

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.failures, self.writes = failures, list[tuple[str, int]]()

    def create(self, *args: Any, **options: Any) -> Lease | bool:
        if self.failures:
            self.failures -= 1
            raise StoreError("the disk is full")
        self.writes.append(("create", len(options.get("lines", ()))))
        return super().create(*args, **options)

    def append(self, lease: Any, n: int, lines: Any, *args: Any, **options: Any) -> int:
        self.writes.append(("append", len(lines)))
        return super().append(lease, n, lines, *args, **options)

    def submit(self, lease: Any, n: int, lines: Any, *args: Any, **options: Any) -> Any:
        self.writes.append(("append", len(lines)))
        return super().submit(lease, n, lines, *args, **options)


def by_run(agent: Agent[Any, Any], call: Any, listen: Any = None) -> Any:
    return agent.run(call, listen)


def by_arun(agent: Agent[Any, Any], call: Any, listen: Any = None) -> Any:
    return asyncio.run(agent.arun(call, listen))


everywhere = pytest.mark.parametrize("drive", [by_run, by_arun])


def runs_of(store: Any) -> list[Any]:
    return store.list()


@everywhere
def test_a_call_of_two_steps_is_two_commits(drive: Drive):
    store = Watched()
    agent = Agent(Model("Hi."), name="desk", store=store)
    result = drive(agent, agent.prepare("Hello"))
    assert store.writes == [("create", 1), ("append", 1)]
    assert agent.runs.resume(result.record.id).output == "Hi."
    agent.runs.replay(result.record.id)


@everywhere
def test_its_run_is_stored_before_the_model_is_asked_and_before_it_is_heard_of(drive: Drive):
    store, seen = MemoryStore(), list[Any]()

    class Asked(Model):
        def _next(self, *args: Any) -> Any:
            seen.append([(run.n, run.holder is not None) for run in runs_of(store)])
            return super()._next(*args)

    def listen(event: Any) -> None:
        if isinstance(event, Stepped):
            seen.append([(run.n, run.holder is not None) for run in runs_of(store)])

    agent = Agent(Asked("Hi."), name="desk", store=store)
    drive(agent, agent.prepare("Hello"), listen)
    assert seen[:2] == [[(1, True)], [(1, True)]]


@everywhere
def test_a_run_that_could_not_be_created_is_nowhere_and_its_call_may_be_driven_again(drive: Drive):
    store = Watched(failures=1)
    model = Model("Hi.")
    agent = Agent(model, name="desk", store=store)
    prepared = agent.prepare("Hello")
    with pytest.raises(StoreError, match="disk"):
        drive(agent, prepared)
    assert (model.requests, store.writes, runs_of(store)) == ([], [], [])
    assert drive(agent, prepared).output == "Hi."
    (run,) = runs_of(store)
    assert (run.id, run.is_ended) == (prepared.record.id, True)
    agent.runs.replay(run.id)


@everywhere
def test_a_turn_behind_one_that_came_meanwhile_is_a_conflict(drive: Drive):
    store = MemoryStore()
    model = Model("one")
    agent, other = Agent(model, name="desk", store=store), Agent(Model("two"), name="desk", store=store)
    mine = agent.conversation("c").prepare("Mine.")
    other.conversation("c").call("Theirs.")
    with pytest.raises(Conflict):
        drive(agent, mine)
    assert (model.requests, len(runs_of(store))) == ([], 1)


def test_a_call_that_is_cancelled_while_its_run_is_created_gives_it_back():
    is_cancelled = threading.Event()

    class Slow(Watched):
        def create(self, *args: Any, **options: Any) -> Lease | bool:
            loop.call_soon_threadsafe(cancel)
            assert is_cancelled.wait(10)
            return super().create(*args, **options)

    def cancel() -> None:
        task.cancel()
        is_cancelled.set()

    async def main() -> None:
        nonlocal loop, task
        loop = asyncio.get_running_loop()
        task = loop.create_task(Agent(Model("Hi."), name="desk", store=store).acall("Hello"))
        with pytest.raises(asyncio.CancelledError):
            await task

    store, loop, task = Slow(), None, None
    asyncio.run(main())
    (run,) = runs_of(store)
    assert (run.n, run.due_s, run.holder) == (1, 0.0, None)


def test_a_call_whose_loop_is_closed_while_its_run_is_created_gives_it_back():
    is_closed = threading.Event()

    class Slow(Watched):
        def create(self, *args: Any, **options: Any) -> Lease | bool:
            loop.call_soon_threadsafe(loop.stop)
            assert is_closed.wait(10)
            return super().create(*args, **options)

    store, loop = Slow(), asyncio.new_event_loop()
    call = Agent(Model("Hi."), name="desk", store=store).acall("Hello")
    loop.call_soon(call.send, None)
    loop.run_forever()
    loop.close()
    is_closed.set()
    call.close()  # waits until the run is created
    (run,) = runs_of(store)
    assert (run.n, run.due_s, run.holder) == (1, 0.0, None)


def test_a_run_with_a_name_is_there_before_its_first_step():
    """So that a second call with its name finds it."""
    store = Watched()
    Agent(Model("Hi."), name="desk", store=store).call("Hello", run_id="r1")
    assert store.writes[0] == ("create", 0)
    with pytest.raises(RunUnknown):
        store.get("r2")
