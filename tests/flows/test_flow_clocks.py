"""Does a flow end when its clock says so, and rest when a time is beyond the patience of its driver?"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from flow_runs import Driver, by_arun, by_threads, everywhere, in_both_worlds

from fsm_agent import Agent, Function, MemoryStore, Worker
from fsm_agent.call import Returned
from fsm_agent.errors import Overloaded
from fsm_agent.flows import (
    Flow,
    FlowLimits,
    FlowRun,
    FlowSuspended,
    ask,
    each,
    end,
    execute,
    gather,
    pause,
    race,
    subflow,
    wait,
)
from fsm_agent.testing import Delayed, FakeClock, Script, function_call

over, late = end("over"), end("late")


def by_call(flow: Flow[Any], one: FlowRun[Any]) -> list[Any]:
    """Drive another run of the flow, which no one else has, without threads for functions."""
    replace(flow, environment={**flow.environment, "threads": 0}).call(one.data)
    return []


napping = pause("napping", 50)


def naps(deadline_s: float | None, clock: Any, **options: Any) -> Flow[int]:
    limits = FlowLimits(deadline_s=deadline_s)
    return Flow(
        "naps", int, start=napping, rows=[napping.elapsed(over)], limits=limits, environment={"clock": clock}, **options
    )


class TestEarlierDeadline:
    """A wait ends with the earliest deadline around it, at its moment, and is not taken for having been waited out."""

    @everywhere
    def test_a_pause_beyond_patience_is_a_rest_until_then(self, driven: Driver) -> None:
        clock, nap = FakeClock(), pause("nap", 5000)
        limits = FlowLimits(deadline_s=20)
        flow = Flow("f", int, start=nap, rows=[nap.elapsed(over)], limits=limits, environment={"clock": clock})
        run = flow.prepare(1)
        events = driven(flow, run)
        assert (run.state, clock.sleeps, events[-1].wake_at_s) == ("nap", [], clock.now() + 20)
        clock.advance(20)
        driven(flow, run)
        assert run.state == "Expired"

    @everywhere
    @pytest.mark.parametrize(("around_s", "inside_s"), [(20, 30), (30, 20)])
    def test_a_pause_ends_with_the_flow_around_it_or_its_own(
        self, around_s: float | None, inside_s: float | None, driven: Driver
    ) -> None:
        clock = FakeClock()
        inner = subflow("inner", naps(inside_s, clock), lambda n: n)
        limits = FlowLimits(deadline_s=around_s)
        rows = [inner.done(over), inner.failed(late)]
        flow = Flow("f", int, start=inner, rows=rows, limits=limits, environment={"clock": clock})
        run = flow.prepare(1)
        driven(flow, run)
        assert (run.state, clock.sleeps) == ("late" if inside_s == 20 else "Expired", [20])

    @everywhere
    @pytest.mark.parametrize(("deadline_s", "within_s", "state"), [(5000, 8000, "Expired"), (8000, 5000, "late")])
    def test_the_earlier_of_the_time_of_a_state_and_the_deadline_of_its_flow_counts(
        self, deadline_s: float, within_s: float, state: str, driven: Driver
    ) -> None:
        clock, noted = FakeClock(), list[int]()
        note = Function(name="note", call=lambda: noted.append(1))
        model = Script(Delayed(6000, function_call("note")), "too late", clock=clock)
        asking = ask(Agent(model, name="bot", functions=[note]), name="asking", within_s=within_s)(lambda n: "?")
        rows = [asking.done(over), asking.elapsed(late)]
        limits = FlowLimits(deadline_s=deadline_s)
        flow = Flow("f", int, start=asking, rows=rows, limits=limits, environment={"clock": clock})
        run = flow.prepare(1)
        driven(flow, run)
        assert (run.state, noted) == (state, [])

    @everywhere
    def test_the_deadline_of_one_member_leaves_the_pause_of_another(self, driven: Driver) -> None:
        clock = FakeClock()
        brief = subflow("brief", naps(20, clock), lambda n: n)
        whole = subflow("whole", naps(None, clock), lambda n: n)
        either = race("either", brief, whole)
        flow = Flow("f", int, start=either, rows=[either.done(over)], environment={"clock": clock})
        run = flow.prepare(1)
        driven(flow, run)
        assert (run.state, clock.sleeps) == ("over", [20, 30])

    @everywhere
    def test_an_agent_that_waits_for_its_next_attempt_ends_with_its_flow(self, driven: Driver) -> None:
        clock = FakeClock()
        model = Script(Overloaded("busy", retry_after_s=50.0), "too late")
        asking = ask(Agent(model, name="bot"), name="asking")(lambda n: "?")
        limits = FlowLimits(deadline_s=20)
        flow = Flow("f", int, start=asking, rows=[asking.done(over)], limits=limits, environment={"clock": clock})
        run = flow.prepare(1, clients={asking: model})
        driven(flow, run)
        assert run.state == "Expired"
        assert len(model.requests) == 1, "it was not asked again before its time"

    @everywhere
    def test_a_clock_that_is_set_back_while_it_sleeps(self, driven: Driver) -> None:
        class Back(FakeClock):
            def sleep(self, delay_s: float) -> None:
                super().sleep(delay_s)
                if len(self.sleeps) == 1:
                    self.advance(-10)

        clock = Back()
        flow = naps(20, clock)
        run = flow.prepare(1)
        driven(flow, run)
        assert (run.state, clock.sleeps) == ("Expired", [20, 10])


class TestFakeClock:
    """A clock for tests stands still while anything runs.  Only a lone sleep moves it."""

    @in_both_worlds
    def test_members_that_run_again_and_again_inside_of_a_time(self, driven: Driver) -> None:
        clock, polls = FakeClock(), list[int]()

        @execute
        def poll(item: int) -> int:
            polls.append(item)
            threading.Event().wait(0.01)  # long enough for a clock that moves at once
            return polls.count(item)

        def is_enough(seen: tuple[int, ...], found: tuple[int, ...]) -> bool:
            return min(found) == 3

        polling, nap = each("polling", poll, lambda seen: range(3)), pause("nap", 5)
        rows = [polling.done(over, when=is_enough, do=lambda _, found: found), polling.done(nap), nap.elapsed(polling)]
        inner = subflow("inner", Flow("inner", tuple, start=polling, rows=rows), lambda seen: seen, within_s=15)
        rows = [inner.done(over, do=lambda _, found: found), inner.elapsed(late)]
        flow = Flow("f", tuple, start=inner, rows=rows, environment={"clock": clock})
        run = flow.prepare(())
        driven(flow, run)
        assert (run.state, run.data, clock.sleeps) == ("over", (3, 3, 3), [5, 5])

    @in_both_worlds
    def test_a_wait_for_the_next_attempt_begins_when_nothing_else_runs(self, driven: Driver) -> None:
        clock = FakeClock()
        model = Script(Overloaded("busy", retry_after_s=20), "fine", clock=clock)
        asking = ask(Agent(model, name="bot"), name="asking")(lambda n: "?")

        @execute
        async def working(n: int) -> float:
            await asyncio.sleep(0.01)
            return clock.now()

        both = gather("both", asking, working)
        flow = Flow(
            "f", float, start=both, rows=[both.done(over, do=lambda _, found: found[1])], environment={"clock": clock}
        )
        run = flow.prepare(0.0)
        began = clock.now()
        driven(flow, run)
        assert (run.state, run.data - began, clock.sleeps) == ("over", 0.0, [pytest.approx(20)])

    @pytest.mark.parametrize("is_first", [True, False])
    @pytest.mark.parametrize("driven", [by_threads, by_call, by_arun])
    def test_a_delay_that_another_member_waits_for_passes(self, is_first: bool, driven: Driver) -> None:
        """A clock that stands still during a function continues when the delay has passed in real time."""
        clock, again = FakeClock(), threading.Event()
        model = Script(Overloaded("busy", retry_after_s=0.05), lambda _: again.set() or "fine", clock=clock)
        asking = ask(Agent(model, name="bot"), name="asking")(lambda n: "?")
        found = list[bool]()

        @execute
        def working(n: bool) -> None:
            found.append(again.wait(10))

        both = gather("both", *([working, asking] if is_first else [asking, working]))
        flow = Flow("f", bool, start=both, rows=[both.done(over)], environment={"clock": clock})
        driven(flow, flow.prepare(False))
        assert found == [True]


class TestWorker:
    """A worker waits for times within its patience.  For later times it releases the run, which is then due at that
    moment.
    """

    def napping(self, delay_s: float, store: Any, **limits: Any) -> tuple[Flow[int], FakeClock]:
        person, nap = wait(str, name="person")(lambda n: "?"), pause("nap", delay_s)
        inner = Flow("inner", int, start=nap, rows=[nap.elapsed(over)])
        nested = subflow("nested", inner, lambda n: n)
        clock = FakeClock(time.time())
        rows = [person.done(nested), nested.done(over)]
        limit = FlowLimits(**limits)
        return Flow("f", int, start=person, rows=rows, store=store, environment={"clock": clock}, limits=limit), clock

    def test_a_time_beyond_its_patience_is_a_rest(self) -> None:
        flow, clock = self.napping(30, MemoryStore())
        with pytest.raises(FlowSuspended):
            flow.call(1, run_id="r")
        flow.runs.all.answer("r", {"answer:person#1": Returned(text='"go on"', at_s=clock.now())})
        assert Worker([flow], flow.runs.all).run(once=True) == 1, "taken up for the answer, and then not again"
        at_rest = flow.runs.all.store.load("r").run
        assert (at_rest.state, clock.sleeps) == ("nested", [])
        assert at_rest.due_s == clock.now() + 30
        assert Worker([flow], flow.runs.all).run(once=True) == 0, "it is not due before"

    def test_a_time_within_it_is_waited_for(self) -> None:
        flow, clock = self.napping(30, MemoryStore())
        with pytest.raises(FlowSuspended):
            flow.call(1, run_id="r")
        flow.runs.all.answer("r", {"answer:person#1": Returned(text='"go on"', at_s=clock.now())})
        assert Worker([flow], flow.runs.all, patience_s=40).run(once=True) == 1
        assert (flow.runs.all.store.load("r").run.is_ended, clock.sleeps) == (True, [30])

    def test_it_is_taken_up_at_its_moment_by_another_worker(self) -> None:
        flow, clock = self.napping(30, MemoryStore())
        clock.advance(-100)  # what is due by it 30 s later is due by the store's clock now
        with pytest.raises(FlowSuspended):
            flow.call(1, run_id="r")
        flow.runs.all.answer("r", {"answer:person#1": Returned(text='"go on"', at_s=clock.now())})
        assert Worker([flow], flow.runs.all).advance()
        clock.advance(30)
        assert Worker([flow], flow.runs.all).run(once=True) == 1
        assert (flow.runs.resume("r").state, clock.sleeps) == ("over", [])


class TestTogether:
    """Times of many members that are over at one moment: each is taken once, and the next members begin."""

    def flow_of(self, count: int, delay_s: float, clock: Any, **options: Any) -> Flow[int]:
        person = wait(int, name="person", within_s=delay_s)(lambda n: "?")
        inner = Flow("inner", int, start=person, rows=[person.done(over), person.elapsed(over, do=lambda n, _: -n)])
        nested = subflow("nested", inner, lambda n: n)
        every = each("every", nested, lambda n: range(n), parallel=3)
        rows = [every.done(over, do=lambda n, found: sum(found))]
        return Flow("f", int, start=every, rows=rows, environment={"clock": clock}, **options)

    @everywhere
    def test_those_that_are_due_on_resume(self, driven: Driver) -> None:
        clock = FakeClock()
        flow = self.flow_of(8, 100, clock)
        run = flow.prepare(8)
        for left in (8, 5, 2):
            driven(flow, run)
            assert len(run.record.children["every#1"].children) == min(3, left)
            clock.advance(100)
        driven(flow, run)
        assert (run.state, run.data, clock.sleeps) == ("over", -28, [])

    @everywhere
    def test_those_that_are_waited_for(self, driven: Driver) -> None:
        flow = self.flow_of(20, 0.001, FakeClock())
        run = flow.prepare(20)
        driven(flow, run)
        assert (run.state, run.data) == ("over", -190)


@pytest.mark.parametrize("is_posted", [False, True], ids=["resumed with it", "posted by another program"])
def test_an_answer_to_a_stored_run_has_the_time_of_its_clock(is_posted: bool) -> None:
    asking = wait(bool, name="asking")(lambda n: "Well?")
    flow = Flow(
        "f",
        int,
        start=asking,
        rows=[asking.done(napping), napping.elapsed(over)],
        store=MemoryStore(),
        environment={"clock": FakeClock()},
    )
    with pytest.raises(FlowSuspended):
        flow.call(1, run_id="r")
    if is_posted:
        flow.runs.all.answer("r", {"answer:asking#1": Returned(text="true")})  # by a clock that is far ahead
    result = flow.runs.resume("r", None if is_posted else {asking: True})
    assert result.state == "over"
    assert [step.at_s for step in result.trace[1:]] == [1_000_000_000.0, 1_000_000_050.0]
