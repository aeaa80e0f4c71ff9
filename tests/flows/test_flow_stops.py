"""Is a flow left at rest, wherever it is stopped or cancelled, with every driver?"""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from flow_kill_worker import models
from flow_runs import DRIVERS, Driver, by_adrive, by_arun, by_drive, by_run, everywhere, in_both_worlds, s

from fsm_agent import Agent, CallFailed, UsageError
from fsm_agent.call import Returned, RunAgain
from fsm_agent.errors import Overloaded
from fsm_agent.flows import AwaitAnswer, Failure, Flow, FlowLimits, ask, each, end, execute, pause, race, subflow, wait
from fsm_agent.messages import Done, Event, Stepped, Suspended
from fsm_agent.runtime import adrive, drive
from fsm_agent.runtime import run as drive_to_rest
from fsm_agent.testing import FakeClock, Script

over, late = end("over"), end("late")


@pytest.fixture(autouse=True)
def outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "outbox.txt"


def answer(question: AwaitAnswer) -> Any:
    return "order 17" if question.state is s.customer else s.Approve("ann")


def support() -> Any:
    environment = {"clock": FakeClock(), "new_id": lambda: "r1"}
    return replace(s.support, answer=answer, environment=environment)


def stopped(flow: Any, run: Any, number: int) -> list[Event]:
    """Drive until the event of this number, and stop there."""
    events: list[Event] = []
    with closing(drive(run, run.run_context.own_environment)) as driven:
        for event in driven:
            events.append(event)
            if len(events) == number:
                break
    return events


def astopped(flow: Any, run: Any, number: int) -> list[Event]:
    async def main() -> list[Event]:
        events: list[Event] = []
        async with aclosing(adrive(run, run.run_context.own_environment)) as driven:
            async for event in driven:
                events.append(event)
                if len(events) == number:
                    break
        return events

    return asyncio.run(main())


def raised(flow: Any, run: Any, number: int) -> list[Event]:
    """The same with a listener that raises."""
    events: list[Event] = []

    def sink(event: Event) -> None:
        events.append(event)
        if len(events) == number:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        drive_to_rest(run, run.run_context.own_environment, sink)
    return events


def to_its_end(driven: Driver, flow: Any, run: Any) -> Any:
    driven(flow, run)
    for effect in run.effects:
        assert effect.key.startswith("reconcile:sending#")
        run.advance(effect.key, RunAgain())
        driven(flow, run)
    return run


@pytest.mark.parametrize("turn", [0, *[pytest.param(turn, marks=pytest.mark.nightly) for turn in (1, 2)]])
def test_stopped_at_every_event_it_comes_to_the_same_end(turn: int) -> None:
    """Through JSON at each stop.  Different drivers take turns."""
    stops, drivers = (stopped, astopped, raised), DRIVERS
    whole = to_its_end(by_run, (flow := support()), flow.prepare(s.Ticket("x"), clients=models()))
    count = len(by_drive(flow, flow.prepare(s.Ticket("x"), clients=models())))
    for number in range(1, count + 1):
        one = support()
        run = one.prepare(s.Ticket("x"), clients=models())
        events = stops[(number + turn) % len(stops)](one, run, number)
        assert len(events) == number
        assert [type(event) for event in events if isinstance(event, Done | Suspended)] == [Done] * (number == count)
        driven = drivers[number // len(stops) % len(drivers)]
        again = to_its_end(driven, one, one.restore(run.snapshot(), clients=models()))
        assert again.record.changed(once={}) == whole.record.changed(once={}), f"stopped at event {number}"
        assert again.data == whole.data


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_cancelled_at_every_event_it_ends_there(turn: int) -> None:
    """One `Done` at last, and nothing is waited for; the loops of threads and of asyncio take turns."""
    count = len(by_drive((flow := support()), flow.prepare(s.Ticket("x"), clients=models())))
    ended = set()
    for number in range(1, count):
        one = support()
        run = one.prepare(s.Ticket("x"), clients=models())
        seen: list[Event] = []

        def look(event: Event, seen: list[Event] = seen, run: Any = run, number: int = number) -> None:
            seen.append(event)
            if len(seen) == number:
                run.cancel("enough")

        if (number + turn) % 2:
            for event in drive(run, run.run_context.own_environment):
                look(event)
        else:

            async def main(run: Any = run, one: Any = one, look: Any = look) -> None:
                async for event in adrive(run, run.run_context.own_environment):
                    look(event)

            asyncio.run(main())
        assert run.effects == ()
        assert [type(event) for event in seen if isinstance(event, Done | Suspended)] == [Done]
        last = [event for event in seen if isinstance(event, Stepped)][-1]
        assert (run.state == "Cancelled" and last.trigger == "cancelled" and last.detail.startswith("enough")) or (
            run.state == "sent"
        )
        ended.add(last.source)
    assert ended >= {"triage", "research", "drafting", "judging"}


@dataclass(frozen=True)
class Word:
    text: str = ""
    items: tuple[int, ...] = ()


bot = Agent("openai:gpt-5-mini", name="bot")


def put(d: Word, a: Any) -> Word:
    return replace(d, text=str(a))


@in_both_worlds
def test_those_who_lose_a_race_are_let_go_of(driven: Driver) -> None:
    """A coroutine is cancelled at once, and a question is asked no more."""
    ended, running = threading.Event(), threading.Event()

    @execute
    async def slow(d: Word) -> str:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise
        return "slow"

    @execute
    async def quick(d: Word) -> str:
        await asyncio.to_thread(running.wait, 20)
        return "quick"

    person = wait(str, name="person")(lambda d: "?")
    first: Any = race("first", slow, quick, person)
    nap = pause("nap", 3600)
    flow = Flow("f", Word, start=first, rows=[first.done(nap, do=put), first.failed(late), nap.elapsed(over)])
    run = flow.prepare(Word())
    driven(flow, run)
    assert (run.state, run.data.text) == ("nap", "quick")
    assert ended.wait(10)
    assert [effect.key for effect in run.effects] == ["sleep:nap#2"]


def test_hundreds_of_questions_are_answered_in_any_order() -> None:
    asked: list[int] = []

    @wait(int)
    def number(n: int) -> str:
        asked.append(n)
        return f"{n}?"

    numbers = each("numbers", number, lambda d: d.items, parallel=None)
    flow = Flow("f", Word, start=numbers, rows=[numbers.done(over, do=lambda d, a: replace(d, items=a))])
    run = flow.prepare(Word(items=tuple(range(300))))
    by_run(flow, run)
    for n in sorted(range(300), key=lambda n: n * 7919 % 300):
        assert len(run.effects) == len(run.record.children["numbers#1"].once)
        run.advance(f"numbers#1/answer:{n}", Returned(text=str(n * n)))
    assert run.data.items == tuple(n * n for n in range(300))
    assert len(asked) < 3000, "each question is asked once, or a few times: not with each answer"


class TestTime:
    @everywhere
    def test_a_deadline_inside_is_a_failure_of_the_state_around(self, driven: Driver) -> None:
        clock = FakeClock()
        person = wait(str, name="person")(lambda d: "?")
        inner = Flow("inner", Word, start=person, rows=[person.done(over)], limits=FlowLimits(deadline_s=50))
        nested = subflow("nested", inner, lambda d: d)

        def is_late(d: Word, why: Failure) -> bool:
            return why.reason == "Expired" and why.detail == "50 s are over"

        rows = [nested.done(over), nested.failed(late, when=is_late)]
        flow = Flow("f", Word, start=nested, rows=rows, environment={"clock": clock})
        run = flow.prepare(Word())
        driven(flow, run)
        clock.advance(51)
        driven(flow, run)
        assert run.state == "late"

    @everywhere
    def test_a_clock_that_is_set_back_harms_no_timer(self, driven: Driver) -> None:
        clock = FakeClock()
        one = wait(str, name="one", within_s=3600)(lambda d: "?")
        two = wait(str, name="two", within_s=3600)(lambda d: "?")
        rows = [one.done(two), one.elapsed(late), two.done(over), two.elapsed(late)]
        flow = Flow("f", Word, start=one, rows=rows, environment={"clock": clock})
        run = flow.prepare(Word())
        driven(flow, run)
        entered_at_s = clock.now()
        clock.advance(-7200)
        run.give(one, "x")
        driven(flow, run)
        assert run.state == "two"
        assert run.record.entered_at_s == entered_at_s, "never before the state that it follows"
        assert [step.at_s for step in run.record.trace] == sorted(step.at_s for step in run.record.trace)
        clock.advance(7200 + 3601)
        driven(flow, run)
        assert run.state == "late"


class TestTogether:
    """Two who drive one run."""

    def test_a_second_driver_of_a_run_is_refused_while_the_first_is_at_it(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        @execute
        def slow(d: Word) -> str:
            begun.set()
            go_on.wait(20)
            return "x"

        flow = Flow("f", Word, start=slow, rows=[slow.done(over)])
        run = flow.prepare(Word())
        thread = threading.Thread(target=lambda: flow.run(run))
        thread.start()
        begun.wait(20)
        for driven in (by_run, by_arun, by_drive, by_adrive):
            with pytest.raises(UsageError, match="already being driven"):
                driven(flow, run)
        go_on.set()
        thread.join(20)
        assert run.state == "over"


@everywhere
@pytest.mark.parametrize("replies", [["fine"], [Overloaded("busy"), "fine"], [Overloaded("no", retryable=False)]])
def test_a_call_in_a_flow_is_the_call_of_its_agent(driven: Driver, replies: list[Any]) -> None:
    """The same steps and dialog as the agent's own, but for its name and start."""
    alone = bot.changed(model=Script(*replies))
    kept: list[Any] = []
    try:
        kept.append(alone.call("What now?").record)
    except CallFailed as failed:
        kept.append(failed.call.record)
    asking = ask(bot, name="asking")(lambda d: "What now?")
    flow = Flow("f", Word, start=asking, rows=[asking.done(over, do=put), asking.failed(late)])
    run = flow.prepare(Word(), clients={asking: Script(*replies)})
    events = driven(flow, run)
    ended = "over" if kept[0].state == "Completed" else "late"
    assert run.state == ended
    own = [step for step in (getattr(event, "event", None) for event in events) if isinstance(step, Stepped)]
    if events:
        assert [(x.source, x.trigger, x.to, x.key) for x in own] == [
            (x.source, x.trigger, x.to, x.key) for x in kept[0].trace
        ]
    assert run.record.usage == kept[0].total_usage
