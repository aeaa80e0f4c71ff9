"""Can a hook that is shared by calls, under any driver and inside of others, tell them apart?"""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from support.agent_drivers import Way, both
from support.gates import Meeting

from fsm_agent import Agent, UsageError, Worker, function, handoff
from fsm_agent.call import CallRecord
from fsm_agent.flows import Flow, end, gather, subflow
from fsm_agent.flows import ask as ask
from fsm_agent.flows.orchestrator import Orchestrator
from fsm_agent.messages import Event, Inside, Where
from fsm_agent.runtime import LoggingHook
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script, function_call


class OfOneCall:
    def __init__(self) -> None:
        self.told: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.told.append(event)

    @property
    def texts(self) -> set[str]:
        """Return the texts of all replies that the hook received."""
        events = [event.event if isinstance(event, Inside) else event for event in self.told]
        return {event.text for event in events if type(event).__name__ == "ReplyCompleted"}  # type: ignore[union-attr]


class Shared:
    """A hook of many calls: has the events of each, and was asked once."""

    def __init__(self) -> None:
        self.calls: dict[Where, OfOneCall] = {}
        self._lock = threading.Lock()

    def of_call(self, where: Where) -> OfOneCall:
        with self._lock:
            assert where not in self.calls, "it is asked once"
            made = self.calls[where] = OfOneCall()
            return made

    @property
    def places(self) -> set[tuple[str, str, str]]:
        return {(where.agent, where.call, where.path) for where in self.calls}


class Waiting(Script):
    """A model whose requests wait for each other, so that the calls run at the same time."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._meeting = Meeting(calls)

    async def astream(self, request: Any, *, timeout_s: float | None = None) -> Any:
        await self._meeting.wait()
        async for item in Script(f"You said {request.messages[-1].text}").astream(request):
            yield item


def assert_told_apart(shared: Shared, tasks: list[str]) -> None:
    assert len(shared.calls) == len(tasks)
    assert {where.agent for where in shared.calls} == {"echo"}
    assert len({where.call for where in shared.calls}) == len(tasks)
    assert sorted(map(sorted, (one.texts for one in shared.calls.values()))) == [[f"You said {task}"] for task in tasks]
    for where, one in shared.calls.items():
        done: Any = one.told[-1]
        assert where == Where(done.result.record.id, "", "echo", "")
        assert type(done).__name__ == "Done"


def test_calls_at_once_in_threads_are_told_apart():
    shared, tasks = Shared(), ["a", "b", "c"]
    agent = Agent(Waiting(3), name="echo", hooks=[shared], environment={"new_id": unique()})
    threads = [threading.Thread(target=agent.call, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert_told_apart(shared, tasks)


def test_calls_at_once_under_asyncio_are_told_apart():
    shared, tasks = Shared(), ["a", "b", "c"]

    async def main() -> None:
        agent = Agent(Waiting(3), name="echo", hooks=[shared], environment={"new_id": unique()})
        await asyncio.gather(*map(agent.acall, tasks))

    asyncio.run(main())
    assert_told_apart(shared, tasks)


def unique() -> Any:
    numbers = iter(range(1000))
    return lambda: f"c{next(numbers)}"


@both
def test_agents_inside_of_agents_are_told_apart_by_whom_they_are_asked_through(way: Way):
    own, around = Shared(), Shared()
    inner = Agent(Script("one", "two"), name="inner", hooks=[own])
    asked = [function_call("inner", task="1"), function_call("inner", task="2")]
    agent = Agent(
        Script(asked, "Done."), functions=[inner], name="boss", hooks=[around], environment={"new_id": lambda: "c"}
    )
    way(agent, agent.prepare("Go."), [])
    inside = {("inner", f"c/run:1.{n}", f"run:1.{n}") for n in (0, 1)}
    assert (own.places, around.places) == (inside, {("boss", "c", ""), *inside})
    assert sorted(len(one.texts) for one in around.calls.values()) == [1, 1, 2]
    for where, one in around.calls.items():
        assert all(isinstance(event, Inside) == bool(where.path) for event in one.told)
    for one in own.calls.values():
        assert not any(isinstance(event, Inside) for event in one.told)
        assert type(one.told[-1]).__name__ == "Done"


@both
def test_a_handoff_is_another_call(way: Way):
    shared = Shared()
    other = Agent(Script("3"), name="adder")
    agent = Agent(
        Script(function_call("transfer_to_adder", reason="sums")),
        functions=[handoff(other)],
        name="boss",
        hooks=[shared],
        environment={"new_id": lambda: "c"},
    )
    way(agent, agent.prepare("Go."), [])
    path = "to:transfer_to_adder"
    assert shared.places == {("boss", "c", ""), ("adder", f"c/{path}", path)}


@dataclass(frozen=True)
class Data:
    text: str = ""


def flow_of(*own: Any, inner_hooks: Any = (), agent_hooks: Any = ()) -> Flow[Data]:
    clerk = Agent(Script("Hi.", "Hi."), name="clerk", hooks=agent_hooks)

    @ask(clerk)
    def one(d: Data) -> str:
        return "1"

    @ask(clerk)
    def two(d: Data) -> str:
        return "2"

    both = gather("both", one, two)
    inside = Flow("inside", Data, start=both, rows=[both.done(end("over"))], hooks=inner_hooks)
    sub = subflow("sub", inside, given=lambda d: d)
    return Flow("outside", Data, start=sub, rows=[sub.done(end("over"))], hooks=own)


def test_calls_and_runs_inside_of_flows_are_told_apart():
    outer, inner, own = Shared(), Shared(), Shared()
    flow_of(outer, inner_hooks=[inner], agent_hooks=[own]).call(Data())
    clerks = {where.path for where in own.calls}
    assert len(clerks) == 2
    assert {where.agent for where in own.calls} == {"clerk"}
    assert {where.path for where in outer.calls if where.agent == "clerk"} == clerks
    assert {where.path for where in inner.calls if where.agent == "clerk"} == clerks
    assert next((where.agent, where.path) for where in outer.calls) == ("outside", "")
    root = next(iter(outer.calls)).call
    for where in [*outer.calls, *inner.calls, *own.calls]:
        assert where.call == (f"{root}/{where.path}" if where.path else root)
    assert "inside" in {where.agent for where in inner.calls}


def test_the_agents_of_an_orchestrator_are_told_apart():
    shared, planning, working = Shared(), Shared(), Shared()
    plan = (
        '{"goal": "g", "steps": [{"step_id": "a", "description": "d", "intent_template": "Do it.", "agent": "worker"}]}'
    )
    planner = Agent(Script(plan), name="planner", hooks=[planning])
    validator = Agent(Script("PASS"), name="validator", hooks=[working])
    worker = Agent(Script("Fine."), name="worker", hooks=[working])
    Orchestrator([worker], planner=planner, validator=validator, hooks=[shared]).call("Go.")
    assert {where.agent for where in planning.calls} == {"planner"}
    assert "worker" in {where.agent for where in working.calls}
    for where in [*planning.calls, *working.calls]:
        assert where in shared.calls
    assert next(where.path for where in shared.calls) == ""


def test_a_run_of_a_store_is_named_and_a_worker_tells_runs_apart():
    shared, store = Shared(), MemoryStore()
    agent = Agent(Script("one", "two"), name="echo", hooks=[shared], store=store)
    for run in ("r1", "r2"):
        header = agent.prepare("Go.", run_id=run).journal.header
        assert store.create(run, header, agent=agent.name)
    assert Worker([agent], store).run(threads=2, once=True) == 2
    assert shared.calls.keys() == {Where(run, run, "echo", "") for run in ("r1", "r2")}


def test_a_hook_is_asked_again_by_each_drive_and_may_decline():
    class Picky:
        def __init__(self) -> None:
            self.asked: list[Where] = []
            self.told: list[Event] = []

        def of_call(self, where: Where) -> Any:
            self.asked.append(where)
            return None if len(self.asked) == 1 else self

        def on_event(self, event: Event) -> None:
            self.told.append(event)

    @function(needs_approval=True)
    def erase() -> str:
        """Erase."""
        return "erased"

    hook = Picky()
    agent = Agent(Script(function_call("erase"), "Done."), functions=[erase], hooks=[hook])
    one = agent.prepare("Go.")
    assert type(list(agent.stream(one))[-1]).__name__ == "Suspended"
    assert (len(hook.asked), hook.told) == (1, [])
    one.cancel("off")
    list_of(agent, one)
    assert len(hook.asked) == 2
    assert hook.asked[0] == hook.asked[1]
    assert type(hook.told[-1]).__name__ == "Done"


def list_of(agent: Agent[Any, Any], one: Any) -> None:
    with pytest.raises(Exception, match="off"):
        list(agent.stream(one))


def test_a_method_may_take_the_record_of_the_call_whose_event_it_is():
    told: list[tuple[str, str, int]] = []

    class Recorded:
        def on_stepped(self, event: Any, r: CallRecord) -> None:
            record = r
            assert event == record.trace[-1]
            told.append(("stepped", record.id, len(record.dialog)))

        def on_inside(self, event: Any, record: Any = None) -> None:
            if type(event.event).__name__ == "Stepped":
                told.append(("inside", record.id, len(record.dialog)))

        def on_done(self, event: Any, log: str = "unchanged") -> None:
            told.append((log, event.result.record.id, 0))

    inner = Agent(Script("one"), name="inner")
    agent = Agent(
        Script(function_call("inner", task="1"), "Done."),
        functions=[inner],
        hooks=[Recorded()],
        environment={"new_id": lambda: "c"},
    )
    agent.call("Go.")
    assert told == [
        ("stepped", "c", 1),
        ("stepped", "c", 2),
        ("inside", "c/run:1.0", 1),
        ("inside", "c/run:1.0", 2),
        ("stepped", "c", 3),
        ("stepped", "c", 4),
        ("unchanged", "c", 0),
    ]


def test_what_cannot_be_called_is_refused():
    class Async:
        async def of_call(self, where: Where) -> None: ...

    class Bare:
        def of_call(self) -> None: ...

    class Wrong:
        def of_call(self, where: Where) -> Any:
            return "a hook"

    class Greedy:
        def on_done(self, event: Any, record: Any, more: Any) -> None: ...

    for hook, name in ((Async(), "of_call"), (Bare(), "of_call"), (Greedy(), "on_done")):
        with pytest.raises(UsageError, match=name):
            Agent(Script(), hooks=[hook])
    with pytest.raises(UsageError, match="a hook"):
        Agent(Script("x"), hooks=[Wrong()]).call("Go.")


def test_the_log_names_the_call_and_where_it_is(caplog: pytest.LogCaptureFixture):
    inner = Agent(Script("one"), name="inner")
    agent = Agent(
        Script(function_call("inner", task="1"), "Done."),
        functions=[inner],
        name="boss",
        hooks=[LoggingHook("bank")],
        environment={"new_id": lambda: "c"},
    )
    with caplog.at_level(logging.DEBUG, logger="bank"):
        agent.call("Go.")
    logged = [(r.getMessage(), r.fsm_agent) for r in caplog.records if r.name == "bank"]  # type: ignore[attr-defined]
    assert logged[0][0].startswith("call c: Stepped ")
    assert (logged[0][1]["call"], logged[0][1]["agent"], "path" in logged[0][1]) == ("c", "boss", False)
    ((line, about), *_) = [(line, about) for line, about in logged if "path" in about]
    assert line.startswith("call c/run:1.0: ")
    assert (about["call"], about["agent"], about["path"]) == ("c/run:1.0", "inner", "run:1.0")
