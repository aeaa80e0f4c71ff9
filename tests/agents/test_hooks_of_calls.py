"""Can a hook that many calls share tell them apart, and see the record of each?"""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Any

import pytest

from fsm_agent import Agent, Approved, CallSuspended, UsageError, function
from fsm_agent.agents import CallPlace
from fsm_agent.flows import Flow, end
from fsm_agent.flows import call as ask
from fsm_agent.messages import Done, Event, Inside, Stepped
from fsm_agent.runtime import LoggingHook
from fsm_agent.testing import Script, call

IDS = {"new_id": lambda: uuid.uuid4().hex}  # as in the real world; each `Script` begins with call-1


class Notes:
    """What was told of each call, by its place."""

    def __init__(self) -> None:
        self.told: dict[CallPlace, list[Event]] = {}
        self.asked: list[CallPlace] = []

    def of_call(self, place: CallPlace) -> OfCall:
        self.asked.append(place)
        return OfCall(self.told.setdefault(place, []))


class OfCall:
    def __init__(self, told: list[Event]) -> None:
        self.told = told

    def on_event(self, event: Event) -> None:
        self.told.append(event)


def answers(told: list[Event]) -> list[str]:
    return [event.result.output for event in told if isinstance(event, Done)]


def echoing(notes: Any, wait: Any) -> Any:
    """Return a function that calls an agent of its own model, whose hooks are shared, with a number."""

    @function
    def meet(number: int) -> int:
        """Wait until the other call is here, too."""
        wait()
        return number

    shared = Agent(Script(), functions=[meet], hooks=[notes], name="echo", world=IDS)
    return lambda number: shared.changed(model=Script(call("meet", number=number), f"answer {number}"))


def test_two_calls_at_once_in_threads_are_told_apart():
    notes, barrier = Notes(), threading.Barrier(2)
    agent_for = echoing(notes, lambda: barrier.wait(10))
    threads = [threading.Thread(target=lambda n=n: agent_for(n).call(f"{n}?")) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(answers(told)[0] for told in notes.told.values()) == ["answer 1", "answer 2"]
    assert len(notes.asked) == len({place.call for place in notes.asked} - {""}) == 2
    for place, told in notes.told.items():
        (done,) = [event for event in told if isinstance(event, Done)]
        assert (place.call, place.agent, place.path, place.run) == (done.result.record.id, "echo", "", "")
        assert [step for step in told if isinstance(step, Stepped)] == list(done.result.trace)


def test_two_calls_at_once_under_asyncio_are_told_apart():
    notes, met = Notes(), []

    async def main() -> None:
        both = asyncio.Event()

        @function
        async def meet(number: int) -> int:
            """Wait until the other call is here, too."""
            met.append(number)
            if len(met) == 2:
                both.set()
            await asyncio.wait_for(both.wait(), 10)
            return number

        shared = Agent(Script(), functions=[meet], hooks=[notes], world=IDS)
        agents = [shared.changed(model=Script(call("meet", number=n), f"answer {n}")) for n in (1, 2)]
        await asyncio.gather(*[agent.acall("?") for agent in agents])

    asyncio.run(main())
    assert sorted(answers(told)[0] for told in notes.told.values()) == ["answer 1", "answer 2"]
    assert len({place.call for place in notes.asked}) == 2


def test_agents_and_flows_inside_have_places_of_their_own():
    notes = Notes()
    inner = Agent(Script("3"), hooks=[notes], name="inner")
    outer = Agent(Script(call("inner", task="1 + 2?"), "It is 3."), functions=[inner], hooks=[notes], name="outer")

    @ask(outer)
    def one(d: str) -> str:
        return d

    flow = Flow("sums", str, start=one, rows=[one.done(end("over"))], hooks=[notes])
    flow.call("1 + 2?")
    places = {(place.agent, place.path) for place in notes.asked}
    assert places == {("sums", ""), ("outer", "one#1"), ("inner", "one#1/run:1.0")}
    assert len(notes.asked) == 3, "each is asked for once"
    by_agent = {place.agent: told for place, told in notes.told.items()}
    assert answers(by_agent["inner"]) == ["3"]
    assert answers(by_agent["outer"]) == ["It is 3."]
    assert any(isinstance(event, Inside) for event in by_agent["sums"])


def test_each_drive_of_a_run_asks_anew_and_names_the_run(tmp_path: Any):
    @function(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    notes = Notes()
    agent = Agent(Script(call("pay"), "Done."), functions=[pay], hooks=[notes], name="shop", store=tmp_path / "r.db")
    with pytest.raises(CallSuspended):
        agent.call("Pay.", run_id="pay-1")
    assert agent.resume("pay-1", {"ask:1.0": Approved()}).output == "Done."
    assert [(place.run, place.agent) for place in notes.asked] == [("pay-1", "shop")] * 2
    assert len({place.call for place in notes.asked}) == 1


def test_who_listens_changes_nothing():
    def record(*hooks: Any) -> Any:
        return Agent(Script("seven", "7"), output=int, hooks=hooks).call("3 + 4?").record

    assert record() == record(Notes())


def test_a_method_may_take_the_record_of_the_call():
    rounds: list[tuple[str, int]] = []

    class Rounds:
        def on_reply_completed(self, event: Event, record: Any) -> None:
            rounds.append(("reply", record.rounds))

        def on_done(self, event: Event, record: Any = None) -> None:
            rounds.append(("done", record.replies))

        def on_stepped(self, event: Event, loud: bool = False) -> None:
            assert loud is False, "a default of its own is no place for the record"

    @function
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    agent = Agent(Script(call("add", a=1, b=2), "3"), functions=[add], hooks=[Rounds()])
    agent.call("1 + 2?")
    assert rounds == [("reply", 0), ("reply", 1), ("done", 2)]


def test_the_record_is_that_of_the_call_that_is_told_of():
    seen: list[tuple[str, str]] = []

    class Ids:
        def on_done(self, event: Any, record: Any) -> None:
            seen.append((event.result.record.id, record.id))

    inner = Agent(Script("3"), hooks=[Ids()], name="inner")
    Agent(Script(call("inner", task="1 + 2?"), "3"), functions=[inner], hooks=[Ids()]).call("1 + 2?")
    assert len(seen) == 2
    assert all(told == given for told, given in seen)


class TestMistakes:
    def test_a_hook_of_a_call_must_be_a_hook(self):
        class Wrong:
            def of_call(self, place: CallPlace) -> Any:
                return None

        with pytest.raises(UsageError, match="the hook None has no method of an event"):
            Agent(Script("Hi."), hooks=[Wrong()]).call("Hello")

    def test_a_method_that_takes_more_is_named(self):
        class Greedy:
            def on_done(self, event: Event, record: Any, more: Any) -> None: ...

        with pytest.raises(UsageError, match=r"on_done\(self, event, record\), would be right"):
            Agent(Script(), hooks=[Greedy()])


def test_the_log_says_which_call_a_line_is_of(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "house")
    agent = Agent(Script("Hi."), hooks=[LoggingHook("house")], world=IDS)
    ids = [agent.changed(model=Script("Hi.")).call("Hello").record.id for _ in range(2)]
    lines = [record for record in caplog.records if record.name == "house"]
    assert [record.fsm_agent["call"] for record in lines if record.fsm_agent["event"] == "Done"] == ids
    assert [record.getMessage().partition(":")[0] for record in lines] == ids
