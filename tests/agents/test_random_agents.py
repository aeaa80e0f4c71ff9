"""Do calls of random agents come to the same under every driver, stored or not, stopped and continued or not?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing, closing, suppress
from itertools import count, islice
from random import Random
from typing import Any

import pytest
from random_agents import ID, Lab, RandomAgents

from fsm_agent import Agent, CallFailed, CallSuspended, MemoryStore, UsageError, Worker
from fsm_agent.call import AgentCall, snapshot
from fsm_agent.messages import Done, Event, Inside, Stepped, Suspended
from fsm_agent.store import SqliteStore
from fsm_agent.testing import FakeClock

pytestmark = pytest.mark.system

TASK = "Go."
PATIENT_S = 1e9
FAR_S = 1_000
MOST_DRIVES = 100


class Way:
    """A way to drive the call of a seed to its end, and the results.

    Args:
        seed: The seed.
        store: The store of the call, or None.
    """

    is_stopped = False  # requests and functions may be begun again

    def __init__(self, seed: int, store: Any = None, clock: FakeClock | None = None) -> None:
        self.agents = RandomAgents(seed)
        self.lab = Lab(clock)
        self.store = store
        self.chance = Random(seed)

    def agent(self) -> Agent[Any, Any]:
        """Return the agent, as another OS process would make it."""
        return self.agents.agent(self.lab, store=self.store)

    def answers(self, questions: Any) -> Mapping[str, Any]:
        return {q.key: self.agents.answer(q.key, q.kind) for q in questions if q is not None}

    def answer(self, one: AgentCall[Any]) -> None:
        for key, outcome in self.answers([effect.question for effect in one.effects]).items():
            one.advance(key, outcome)

    def drive(self) -> AgentCall[Any]:
        raise NotImplementedError

    def found(self) -> dict[str, Any]:
        one = self.drive()
        r = one.record
        found = {"ending": r.ending, "dialog": r.dialog, "usage": r.usage, "function_calls": r.function_calls}
        found["output"] = one.output if r.state == "Completed" else None
        if self.is_stopped:
            return found
        return {**found, "record": r, "asked": self.lab.asked, "ran": self.lab.ran, "told": self.lab.told}


class ByRun(Way):
    def drive(self) -> AgentCall[Any]:
        agent = self.agent()
        one = agent.prepare(TASK)
        for _ in range(MOST_DRIVES):
            with suppress(CallFailed, CallSuspended):
                self.continue_call(agent, one)
            if not one.effects:
                return one
            self.answer(one)
        raise AssertionError(f"it does not end: {one.effects}")

    def continue_call(self, agent: Agent[Any, Any], one: AgentCall[Any]) -> None:
        agent.run(one)


class ByArun(ByRun):
    def continue_call(self, agent: Agent[Any, Any], one: AgentCall[Any]) -> None:
        asyncio.run(agent.arun(one, lambda event: None))


class ByStream(ByRun):
    def continue_call(self, agent: Agent[Any, Any], one: AgentCall[Any]) -> None:
        assert isinstance([*agent.stream(one)][-1], Done | Suspended)


class ByAstream(ByRun):
    def continue_call(self, agent: Agent[Any, Any], one: AgentCall[Any]) -> None:
        async def main() -> list[Event]:
            return [event async for event in agent.astream(one)]

        assert isinstance(asyncio.run(main())[-1], Done | Suspended)


class ByPieces(Way):
    """Stopped after some events, and continued from its snapshot by another agent."""

    is_stopped = True

    def drive(self) -> AgentCall[Any]:
        agent = self.agent()
        one = agent.prepare(TASK)
        for events in range(1, MOST_DRIVES):
            if not one.effects:
                return one
            try:
                told = self.piece(agent, one, self.chance.randint(1, 9) * events)
            except CallFailed:
                return one
            if isinstance(told[-1], Suspended):
                self.answer(one)
            agent = self.agent()
            one = agent.restore(snapshot(one))
        raise AssertionError(f"it does not end: {one.effects}")

    def piece(self, agent: Agent[Any, Any], one: AgentCall[Any], events: int) -> list[Event]:
        with closing(agent.stream(one)) as stream:
            return [*islice(stream, events)]


class ByAsyncPieces(ByPieces):
    def piece(self, agent: Agent[Any, Any], one: AgentCall[Any], events: int) -> list[Event]:
        async def main() -> list[Event]:
            told: list[Event] = []
            async with aclosing(agent.astream(one)) as stream:
                async for event in stream:
                    told.append(event)
                    if len(told) == events:
                        break
            return told

        return asyncio.run(main())


class Stored(Way):
    """By calls of its run in a store, each by another agent; then replayed."""

    def drive(self) -> AgentCall[Any]:
        with suppress(CallFailed, CallSuspended):
            self.begin()
        one = self.continued(ID)
        assert self.agent().runs.replay(ID).record == one.record
        return one

    def continued(self, name: str) -> AgentCall[Any]:
        for _ in range(MOST_DRIVES):
            if (run := self.store.get(name)).is_ended:
                return self.agent().runs.at(name)
            is_asking = run.due_s is None or run.due_s > run.updated_s + FAR_S  # until its deadline
            with suppress(CallFailed, CallSuspended):
                self.resume(name, self.answers(run.waits) if is_asking else None)
        raise AssertionError(f"it does not end: {run}")

    def begin(self) -> None:
        self.agent().call(TASK, run_id=ID)

    def resume(self, name: str, answers: Mapping[str, Any] | None) -> None:
        self.agent().runs.resume(name, answers)


class StoredAsync(Stored):
    def begin(self) -> None:
        asyncio.run(self.agent().acall(TASK, run_id=ID))

    def resume(self, name: str, answers: Mapping[str, Any] | None) -> None:
        asyncio.run(self.agent().runs.aresume(name, answers))


class ByWorker(Stored):
    def begin(self) -> None:
        self.agent().runs.submit(TASK, run_id=ID)
        self.work()

    def resume(self, name: str, answers: Mapping[str, Any] | None) -> None:
        if answers:
            self.agent().runs.get(name).answer(answers)
        self.work()

    def work(self) -> None:
        Worker([self.agent()], self.store, patience_s=PATIENT_S).run(once=True)


class ByAsyncWorker(ByWorker):
    def work(self) -> None:
        asyncio.run(Worker([self.agent()], self.store, patience_s=PATIENT_S).arun(once=True))


class StoredInPieces(Stored):
    """Stopped after some steps, each time after at least one."""

    is_stopped = True

    def begin(self) -> None:
        self.piece(self.agent().stream(TASK, run_id=ID))

    def resume(self, name: str, answers: Mapping[str, Any] | None) -> None:
        self.piece(self.agent().runs.stream(name, answers))

    def piece(self, stream: Any) -> None:
        steps = self.chance.randint(1, 5)
        with closing(stream):
            for event in stream:
                steps -= type(event.event if isinstance(event, Inside) else event) is Stepped
                if not steps:
                    break


class Forked(Stored):
    """As a fork of the run at an entry of its journal; the run itself, if that is in the midst of what runs once."""

    is_stopped = True

    def drive(self) -> AgentCall[Any]:
        one = super().drive()
        step = self.chance.randint(0, self.store.get(ID).n)
        try:
            name = self.agent().runs.fork(ID, step)
        except UsageError as error:
            if "must not run twice" not in str(error):
                raise
            return one
        with suppress(CallFailed, CallSuspended):
            self.resume(name, None)
        return self.continued(name)


IN_MEMORY: list[type[Way]] = [ByArun, ByStream, ByAstream, ByPieces, ByAsyncPieces]
IN_A_STORE: list[type[Way]] = [Stored, StoredAsync, ByWorker, ByAsyncWorker, StoredInPieces, Forked]


def wrong_of(
    seed: int, ways: list[type[Way]], make_store: Callable[[FakeClock], Any] = lambda _: MemoryStore()
) -> dict[str, Any]:
    """Return what the call of a seed has come to under the ways of driving that lead it elsewhere."""
    right = ByRun(seed).found()
    wrong = dict[str, Any]()
    for way in ways:
        clock = FakeClock()
        store = make_store(clock) if way in IN_A_STORE else None
        found = way(seed, store, clock).found()
        if differing := {name: (right[name], value) for name, value in found.items() if value != right[name]}:
            wrong[way.__name__] = differing
        if store is not None:
            store.close()
    return wrong


@pytest.mark.parametrize("seed", [2, 3])
def test_a_random_agent_comes_to_the_same_end_under_every_driver(seed: int) -> None:
    assert wrong_of(seed, IN_MEMORY + IN_A_STORE) == {}


def test_it_does_so_in_sqlite(tmp_path: Any) -> None:
    numbers = count()
    assert wrong_of(8, IN_A_STORE, lambda clock: SqliteStore(tmp_path / f"{next(numbers)}.db", clock.now)) == {}


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_so_do_others(say: Callable[[str], None]) -> None:
    found = {seed: wrong_of(seed, IN_MEMORY + IN_A_STORE) for seed in range(100, 144)}
    ends = Counter(str(ByRun(seed).found()["ending"].reason) for seed in found)
    say(f"{len(found)} random agents under {1 + len(IN_MEMORY) + len(IN_A_STORE)} drivers each: {dict(ends)}")
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}
