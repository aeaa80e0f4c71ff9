"""Can a flow react to its deadline, to a cancellation, and to the end of an inner run, without losing data?"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from flow_runs import begun, everywhere
from timed_flows import REAL, freed

from fsm_agent import Agent, Context, Function, MemoryStore, SqliteStore, Worker
from fsm_agent.call import Cancelled, Expired, FunctionFailed, Interrupted, Returned, RunAgain, Started
from fsm_agent.flows import (
    Failure,
    Flow,
    FlowError,
    FlowFailed,
    FlowLimits,
    FlowSuspended,
    cancelled,
    each,
    end,
    execute,
    expired,
    gather,
    pause,
    race,
    subflow,
    wait,
)
from fsm_agent.messages import Inside, Stepped
from fsm_agent.testing import FakeClock, Script, explore, function_call

__all__ = ["freed"]

over, undone = end("over"), end("undone", failed=True)
by_verb = pytest.mark.parametrize("driver", ["sync", "asyncio"])


def driven_by(driver: str, run: Any, *sinks: Any) -> Any:
    return run.flow.run(run, *sinks) if driver == "sync" else asyncio.run(run.flow.arun(run, *sinks))


class Steps:
    """A hook that keeps the steps of a flow."""

    def __init__(self) -> None:
        self.seen: list[Stepped] = []

    def on_stepped(self, event: Stepped) -> None:
        self.seen.append(event)


@dataclass(frozen=True)
class Trip:
    notes: tuple[str, ...] = ()
    whys: tuple[Failure, ...] = ()


def note(text: str) -> Callable[[Trip, Any], Trip]:
    return lambda t, _: replace(t, notes=(*t.notes, text))


def keep(t: Trip, why: Failure) -> Trip:
    return replace(t, whys=(*t.whys, why))


def person(t: Trip) -> str:
    return "?"


@execute
def undoing(t: Trip) -> str:
    return "undone"


@execute
def undoing_more(t: Trip) -> str:
    return "more"


def trip(*rows: Any, start: Any, **options: Any) -> Flow[Trip]:
    made = [undoing.done(undoing_more, do=note("undone")), undoing_more.done(undone, do=note("more"))]
    environment = {"clock": FakeClock(), **options.pop("environment", {})}
    return Flow("trip", Trip, start=start, rows=[*rows, *made], environment=environment, **options)


asking = wait(int, name="asking")(person)
steps_of = [
    ("Seeded", "begun", ""),
    ("asking", "cancelled", "first_time"),
    ("undoing", "done", ""),
    ("undoing_more", "done", ""),
]


def taken(run: Any) -> list[tuple[str, str, str]]:
    return [(step.source, step.trigger, step.guard) for step in run.record.trace]


# A cancellation


@everywhere
def test_a_row_takes_a_cancellation_and_the_same_driver_goes_on(driven: Any) -> None:
    flow = trip(asking.done(over), asking.cancelled(undoing, do=keep), start=asking)
    run = flow.prepare(Trip())
    driven(flow, run)
    run.cancel("no time")
    driven(flow, run)
    assert (run.state, run.data.notes) == ("undone", ("undone", "more"))
    assert run.data.whys == (Failure("cancelled", "no time", "asking"),)
    assert taken(run) == steps_of
    assert run.record.trace[1].detail == "no time"
    assert run.record.reacted_to == ("cancelled",)


@everywhere
def test_a_second_cancellation_ends_the_run(driven: Any) -> None:
    """Even if it comes while the first is reported, and if the row leads back to the same state."""
    stubborn = wait(int, name="stubborn")(person)
    flow = trip(
        asking.done(over), asking.cancelled(stubborn), stubborn.done(undoing), stubborn.cancelled(undoing), start=asking
    )
    run = flow.prepare(Trip())
    driven(flow, run)
    run.cancel("first")
    driven(flow, run)
    assert run.state == "stubborn"
    run.cancel("second")
    driven(flow, run)
    assert (run.state, run.record.ending.detail) == ("Cancelled", "second")


@by_verb
def test_a_cancellation_at_the_event_of_the_first_is_a_second(driver: str) -> None:
    flow = trip(asking.done(over), asking.cancelled(undoing), start=asking)
    run = flow.prepare(Trip())
    run.cancel("before it begins")  # takes the run to its end: it has done nothing
    with pytest.raises(FlowFailed):
        flow.run(run)
    assert run.state == "Cancelled"
    run = begun(flow, Trip(), 100.0)
    run.cancel("first")

    def again(event: Any) -> None:
        if isinstance(event, Stepped) and event.trigger == "cancelled" and event.source == "asking":
            run.cancel("second")

    with pytest.raises(FlowFailed):
        driven_by(driver, run, again)
    assert run.state == "Cancelled"
    assert [trigger for _, trigger, _ in taken(run)] == ["begun", "cancelled", "cancelled"]


@by_verb
def test_a_cancellation_while_the_first_is_taken_is_a_second(driver: str) -> None:
    def take(t: Trip, why: Failure) -> Trip:
        if why.detail == "first":
            run.cancel("second")  # as another thread may
        return t

    flow = trip(asking.done(over), asking.cancelled(undoing, do=take), start=asking)
    run = begun(flow, Trip(), 100.0)
    run.cancel("first")
    with pytest.raises(FlowFailed, match="second"):
        driven_by(driver, run)
    assert run.state == "Cancelled"


def test_an_action_that_raises_leaves_the_request_for_the_next_driver() -> None:
    is_broken = [True]

    def broken(t: Trip, why: Failure) -> Trip:
        if is_broken:
            raise LookupError("not there")
        return keep(t, why)

    flow = trip(asking.done(over), asking.cancelled(undoing, do=broken), start=asking)
    run = begun(flow, Trip(), 100.0)
    run.cancel("now")
    with pytest.raises(LookupError):
        flow.run(run)
    assert run.state == "asking"
    is_broken.clear()
    with pytest.raises(FlowFailed):
        flow.run(run)
    assert run.data.whys[0].detail == "now"


@pytest.mark.parametrize("stop", ["task", "keyboard"])
def test_who_stops_the_driver_does_not_cancel_the_run(stop: str) -> None:
    """A cancelled task, a Ctrl-C: the run rests where it is, and no row is taken."""
    begun = asyncio.Event()

    async def endless(t: Trip) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    work: Any = execute(name="work")(endless)
    flow = trip(work.done(over), work.cancelled(undoing), start=work)
    run = flow.prepare(Trip())
    if stop == "task":

        async def main() -> None:
            task = asyncio.ensure_future(flow.arun(run))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
    else:

        def interrupt(event: Any) -> None:
            if isinstance(event, Stepped):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            flow.run(run, interrupt)
    assert (run.state, run.record.ending, run.record.reacted_to) == ("work", None, ())
    assert run.driver is None


def test_a_cancellation_in_the_store_reaches_the_next_driver(tmp_path: Path) -> None:
    """Whatever it is: another store of the same file, or a worker.  A second cancellation ends the run."""
    path = tmp_path / "runs.db"

    def flow() -> Flow[Trip]:
        later = wait(int, name="later")(person)
        return replace(
            trip(
                asking.done(over), asking.cancelled(later, do=keep), later.done(undoing), start=asking, environment=REAL
            ),
            store=SqliteStore(path),
        )

    with pytest.raises(FlowSuspended):
        flow().call(Trip(), run_id="run")
    flow().runs.all.cancel("run", "by the desk", by="ann")
    with pytest.raises(FlowSuspended) as waiting:
        flow().runs.resume("run")
    assert waiting.value.run.state == "later"
    assert waiting.value.run.data.whys == (Failure("cancelled", "by the desk", "asking"),)
    assert flow().runs.replay("run").record == waiting.value.run.record
    flow().runs.all.cancel("run", "again")
    Worker([flow()], str(path)).run(once=True)
    assert flow().runs.replay("run").state == "Cancelled"


# The deadline


@everywhere
def test_a_row_takes_the_deadline_which_is_spent_then(driven: Any) -> None:
    nap = pause("nap", 50)
    flow = trip(
        asking.done(over),
        asking.expired(nap, do=keep),
        nap.elapsed(undoing, do=note("slept")),
        start=asking,
        limits=FlowLimits(deadline_s=10),
    )
    run = flow.prepare(Trip())
    driven(flow, run)
    flow.environment["clock"].advance(10)  # no one here could answer, so the driver rested
    driven(flow, run)
    assert (run.state, run.data.notes) == ("undone", ("slept", "undone", "more"))
    assert run.data.whys == (Failure("expired", "10 s are over", "asking"),)
    assert flow.environment["clock"].sleeps[-1] == 50
    assert run.deadline is None


def test_each_end_is_taken_once_and_one_does_not_spend_the_other() -> None:
    patient = wait(int, name="patient")(person)
    flow = trip(
        asking.done(over),
        asking.cancelled(patient),
        patient.done(asking),
        patient.expired(undoing),
        start=asking,
        limits=FlowLimits(deadline_s=10),
    )
    run = begun(flow, Trip(), 100.0)
    run.advance("", Cancelled(at_s=101))
    assert (run.state, run.deadline.at_s) == ("patient", 110)  # the deadline still stands
    run.advance("answer:patient#2", Returned(text="1", at_s=102))
    assert run.state == "asking"
    copy = flow.restore(run.snapshot())
    copy.advance("", Cancelled(at_s=103))
    assert copy.state == "Cancelled"  # the row was taken before
    run.advance("", Expired(at_s=110))
    assert run.state == "Expired"  # asking has no row for it


# For every state


def names_of(flow: Flow[Any], trigger: str) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for entry in flow.entries:
        if entry.event == trigger and entry.row is not None and entry.row.rule:
            found.setdefault(entry.source, (entry.to, entry.guard))
    return found


def test_a_row_for_every_state_stands_where_the_compensation_has_not_begun() -> None:
    first, second = wait(int, name="first")(person), wait(int, name="second")(person)
    flow = trip(
        first.done(second),
        second.done(over),
        second.cancelled(over),
        cancelled(undoing),
        expired(undoing),
        start=first,
        limits=FlowLimits(deadline_s=10),
    )
    assert names_of(flow, "cancelled") == {
        "first": ("undoing", "first_time"),
        "second": ("over", "first_time"),
        "undoing": ("undoing", "meanwhile"),
        "undoing_more": ("undoing_more", "meanwhile"),
    }
    assert names_of(flow, "expired")["second"] == ("undoing", "first_time")
    assert replace(flow, limits=FlowLimits(deadline_s=5)).table != ()  # made again from the same rows


def test_it_stands_in_what_follows_its_target_if_that_is_reached_without() -> None:
    sure, second = wait(int, name="sure")(person), wait(int, name="second")(person)
    flow = Flow(
        "f",
        Trip,
        start=asking,
        rows=[asking.done(second), second.done(over), cancelled(sure), sure.done(asking)],
    )
    assert names_of(flow, "cancelled") == {
        "asking": ("sure", "first_time"),
        "second": ("sure", "first_time"),
        "sure": ("sure", "meanwhile"),
    }


def test_it_does_not_stand_in_what_only_another_end_leads_to() -> None:
    patching = wait(int, name="patching")(person)
    flow = trip(
        asking.done(over),
        asking.cancelled(patching),
        patching.done(undoing),
        expired(undoing),
        start=asking,
        limits=FlowLimits(deadline_s=10),
    )
    assert names_of(flow, "expired")["patching"] == ("patching", "meanwhile")
    assert names_of(flow, "expired")["asking"] == ("undoing", "first_time")


@pytest.mark.parametrize("how", ["failure", "cancellation"])
def test_a_compensation_is_not_begun_anew(how: str) -> None:
    """Whatever ends the run in the middle of it, once, including its deadline."""
    work = wait(int, name="work")(person)
    hold = wait(int, name="hold")(person)
    flow = trip(
        work.done(hold, do=note("failed")),
        hold.done(undoing, do=note("held")),
        cancelled(hold, do=note("cancelled")),
        expired(hold, do=note("expired")),
        start=work,
        limits=FlowLimits(deadline_s=10),
    )
    run = begun(flow, Trip(), 100.0)
    if how == "failure":
        run.advance("answer:work#1", Returned(text="1", at_s=101))
        run.advance("", Cancelled(at_s=102))
    else:
        run.advance("", Cancelled(at_s=102))
    assert run.state == "hold"
    effects = run.effects
    run.advance("", Expired(at_s=110))
    assert (run.state, run.effects) == ("hold", effects[:1])  # not entered anew; the deadline is no longer waited for
    assert run.deadline is None
    copy = flow.restore(run.snapshot())
    copy.advance("answer:hold#2", Returned(text="1", at_s=111))
    assert copy.data.notes == ("failed" if how == "failure" else "cancelled", "held")
    run.advance("", Cancelled(at_s=112))
    assert run.state == "Cancelled"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: trip(asking.done(over), asking.expired(undoing), start=asking), "asking --expired--> undoing"),
        (lambda: trip(asking.done(over), expired(undoing), start=asking), "asking --expired--> undoing"),
        (
            lambda: trip(asking.done(over), asking.cancelled(undoing), asking.cancelled(over), start=asking),
            "asking --cancelled--> over",
        ),
        (
            lambda: trip(asking.done(over), cancelled(undoing), cancelled(over), start=asking),
            "every state --cancelled--> over",
        ),
        (
            lambda: trip(asking.done(undoing), asking.cancelled(over), cancelled(undoing), start=asking),
            "every state --cancelled--> undoing",
        ),
        (
            lambda: trip(asking.done(over), asking.cancelled(undoing, do=of_one), start=asking),  # type: ignore[arg-type]
            "of_one",
        ),
        (lambda: trip(asking.done(over), cancelled("undoing"), start=asking), "'undoing'"),  # type: ignore[arg-type]
        (
            lambda: Flow("f", Trip, start=asking, rows=[asking.done(over), asking.cancelled(undoing)]),
            "undoing",
        ),
    ],
)
def test_rows_for_ends_that_cannot_be_right_are_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(FlowError, match=says):
        make()


def of_one(t: Trip) -> Trip:
    return t


# What is inside


@dataclass(frozen=True)
class Order:
    lines: tuple[str, ...] = ()


def to_order(t: Trip) -> Order:
    return Order(("begun",))


adding = wait(str, name="adding")(lambda o: "?")
reacting = wait(str, name="reacting")(lambda o: "?")


def is_all(o: Order, line: str) -> bool:
    return line == "that is all"


def order_flow(**options: Any) -> Flow[Order]:
    rows = [
        adding.done(end("complete"), when=is_all),
        adding.done(adding, do=lambda o, line: Order((*o.lines, line))),
        adding.cancelled(reacting, do=lambda o, _: Order((*o.lines, "reacted"))),
        reacting.done(end("ordered")),
    ]
    if options.get("limits"):
        rows.append(adding.expired(reacting, do=lambda o, _: Order((*o.lines, "late"))))
    return Flow("order", Order, start=adding, rows=rows, **options)


def ordered(run: Any, *lines: str) -> Any:
    for number, line in enumerate(lines, 1):
        run.advance(f"ordering#1/answer:adding#{number}", Returned(text=json.dumps(line), at_s=100 + number))
    return run


def in_trip(*rows: Any, within_s: Any = None, inner: Any = None, **options: Any) -> Any:
    ordering = subflow("ordering", inner or order_flow(), to_order, within_s=within_s)
    made = [row(ordering) for row in rows]
    return ordering, trip(ordering.done(over), *made, start=ordering, **options)


LINES = Order(("begun", "tea", "milk"))


@pytest.mark.parametrize("trigger", ["cancelled", "expired"])
def test_a_row_around_a_flow_gets_what_it_had_come_to(trigger: str) -> None:
    """The rows of the inner flow are not taken, because it ends with the outer run."""

    def take(t: Trip, why: Failure) -> Trip:
        assert why.data == LINES
        return replace(t, notes=why.data.lines, whys=(replace(why, data=None),))

    limits = FlowLimits(deadline_s=10)
    _, flow = in_trip(lambda s: getattr(s, trigger)(undoing, do=take), limits=limits)
    run = flow.restore(ordered(begun(flow, Trip(), 100.0), "tea", "milk").snapshot())
    run.advance("", Cancelled(reason="off", at_s=105) if trigger == "cancelled" else Expired(at_s=110))
    assert (run.state, run.data.notes) == ("undoing", LINES.lines)
    assert [event.event.to for event in run.steps if isinstance(event, Inside)] == ["Cancelled"]  # type: ignore[union-attr]
    assert run.data.whys == (Failure(trigger, "off" if trigger == "cancelled" else "10 s are over", "ordering"),)
    assert not run.record.children


def test_the_time_of_a_flow_inside_in_a_store_with_the_data_of_any_of_its_states(tmp_path: Path) -> None:
    clock = FakeClock()
    _, flow = in_trip(lambda s: s.elapsed(undoing, do=lambda t, o: replace(t, notes=o.lines)), within_s=30 * 86400)
    flow = replace(flow, store=SqliteStore(tmp_path / "runs.db", clock.now), environment={"clock": clock})
    with pytest.raises(FlowSuspended):
        flow.call(Trip(), run_id="run")
    for number, line in enumerate(("tea", "milk"), 1):
        clock.advance(86400)
        with pytest.raises(FlowSuspended):
            flow.runs.resume("run", {f"ordering#1/answer:adding#{number}": Returned(text=f'"{line}"')})
    clock.advance(28 * 86400)
    with pytest.raises(FlowFailed) as failed:
        replace(flow).runs.resume("run")
    assert failed.value.run.data.notes == (*LINES.lines, "undone", "more")


@pytest.mark.parametrize("kind", ["own", "race", "each", "settled"])
def test_a_flow_inside_that_fails_gives_what_it_had_come_to(kind: str) -> None:
    """Also as a member, and after a snapshot in between."""
    broken = wait(str, name="broken")(lambda o: "?")
    inner = Flow(
        "order",
        Order,
        start=broken,
        rows=[broken.done(end("sold_out", failed="no tea"), do=lambda o, line: Order((*o.lines, line)))],
    )
    one = subflow("one", inner, to_order)
    state: Any = {
        "own": lambda: one,
        "race": lambda: race("every", one, subflow("two", inner, to_order)),
        "each": lambda: each("every", subflow("one", inner, lambda t: to_order(t)), lambda t: [t, t]),
        "settled": lambda: each("every", subflow("one", inner, lambda t: to_order(t)), lambda t: [t, t], settled=True),
    }[kind]()
    found: list[Any] = []

    def take(t: Trip, came: Any) -> Trip:
        found.append(came)
        return t

    rows = [state.done(undoing, do=take), state.failed(undoing, do=take)]
    flow = trip(*rows, start=state)
    run = begun(flow, Trip(), 100.0)
    keys = [effect.key for effect in run.effects if "broken" in effect.key]
    for key in keys[: 1 if kind == "each" else None]:
        run = flow.restore(run.snapshot())
        run.advance(key, Returned(text='"tea"', at_s=105))
        run = flow.restore(run.snapshot())
    assert run.state == "undoing"
    (came,) = found
    for why in came if kind == "settled" else [came]:
        assert isinstance(why, Failure)
        assert (why.reason, why.detail) == ("sold_out", "no tea")
        assert why.data == Order(("begun", "tea"))
        assert why.where == ("0" if kind == "each" else "one")  # the member, or else the state


def test_a_failure_among_results_keeps_the_type_of_its_data_in_a_group() -> None:
    """Whose results are kept as JSON until all are there."""
    broken = wait(str, name="broken")(lambda o: "?")
    inner = Flow("order", Order, start=broken, rows=[broken.done(end("sold_out", failed=True))])
    every = each("every", subflow("one", inner, lambda t: to_order(t)), lambda t: [t], settled=True)
    other = wait(int, name="other")(person)
    both: Any = gather("both", every, other)
    found: list[Any] = []

    def take(t: Trip, came: Any) -> Trip:
        found.append(came)
        return t

    flow = trip(both.done(undoing, do=take), start=both)
    run = begun(flow, Trip(), 100.0)
    (key,) = [effect.key for effect in run.effects if "broken" in effect.key]
    run.advance(key, Returned(text='"tea"', at_s=105))
    run.advance("both#1/answer:other", Returned(text="1", at_s=106))
    ((settled, _),) = found
    assert [why.data for why in settled] == [Order(("begun",))]


def test_a_failure_keeps_the_type_of_its_data_where_it_is_annotated() -> None:
    @dataclass(frozen=True)
    class Kept:
        why: Failure[Order | None] | None = None

    globals()["Kept"] = Kept
    flow = Flow("kept", Kept, start=(w := wait(int, name="w")(lambda k: "?")), rows=[w.done(over)])
    data = Kept(Failure("sold_out", "no tea", "one", Order(("tea",))))
    assert flow.restore(flow.prepare(data).snapshot()).data == data
    assert flow.restore(flow.prepare(Kept(Failure("x"))).snapshot()).data == Kept(Failure("x"))
    assert hash(Failure("x", data=[])) == hash(Failure("x"))


def test_a_flow_inside_reacts_to_its_own_cancellation_and_its_own_deadline() -> None:
    _, flow = in_trip(lambda s: s.failed(undoing), inner=order_flow(limits=FlowLimits(deadline_s=5)))
    run = ordered(begun(flow, Trip(), 100.0), "tea")
    copy = flow.restore(run.snapshot())
    run.advance("ordering#1/", Cancelled(at_s=102))
    copy.advance("ordering#1/", Expired(at_s=105))
    for one, last in ((run, "reacted"), (copy, "late")):
        (child,) = one.record.children.values()
        assert (str(child.state), child.data.lines) == ("reacting", ("begun", "tea", last))
        assert one.state == "ordering"
    assert copy.deadline is None
    assert run.deadline.at_s == 105


# A function that must not run twice


@execute(once=True)
def charging(t: Trip) -> str:
    return "charged"


def charge_trip(**options: Any) -> Flow[Trip]:
    return trip(
        charging.done(asking, do=note("charged")),
        charging.failed(asking, do=note("not charged")),
        asking.done(over),
        cancelled(undoing, do=keep),
        **({"limits": FlowLimits(deadline_s=10)} if "limits" in options else {}),
        start=charging,
        **{k: v for k, v in options.items() if k != "limits"},
    )


@pytest.mark.parametrize("how", ["done", "failed", "doubt", "again"])
def test_a_cancellation_waits_until_the_result_of_a_running_function_is_known(how: str) -> None:
    """The row of the next state is taken, with data that include the result."""
    flow = charge_trip()
    run = begun(flow, Trip(), 100.0)
    run.advance("start:charging#1", Started(at_s=101))
    effects = run.effects
    run.advance("", Cancelled(reason="off", at_s=102))
    assert (run.state, run.effects) == ("charging", effects)
    assert taken(run)[-1] == ("charging", "cancelled", "until_known")
    run = flow.restore(run.snapshot())
    if how == "done":
        run.advance("run:charging#1", Returned(text='"charged"', at_s=103))
    elif how == "failed":
        run.advance("run:charging#1", FunctionFailed(text="no money", at_s=103))
    else:
        run.advance("run:charging#1", Interrupted(at_s=103))
        assert run.effects[0].key == "reconcile:charging#1"
        run.advance(
            "reconcile:charging#1", RunAgain(at_s=104) if how == "again" else Returned(text='"charged"', at_s=104)
        )
    assert run.state == "undoing"
    assert run.data.notes == {"failed": ("not charged",), "again": ()}.get(how, ("charged",))
    where = "charging" if how == "again" else "asking"
    assert [(why.reason, why.where) for why in run.data.whys] == [("cancelled", where)]
    assert run.data.whys[0].detail == "off"  # nothing is in doubt by then
    assert (run.record.reaction, run.record.reacted_to) == (None, ("cancelled",))
    assert run.record.steps == (2 if how == "again" else 3)


def test_a_second_cancellation_does_not_wait_for_a_running_function() -> None:
    run = begun(charge_trip(), Trip(), 100.0)
    run.advance("start:charging#1", Started(at_s=101))
    run.advance("", Cancelled(at_s=102))
    run.advance("", Cancelled(reason="now", at_s=103))
    assert run.state == "Cancelled"
    assert "charging#1" in run.record.ending.detail


def test_an_end_while_a_cancellation_waits_is_the_end() -> None:
    flow = trip(charging.done(over, do=note("charged")), cancelled(undoing), start=charging)
    run = begun(flow, Trip(), 100.0)
    run.advance("start:charging#1", Started(at_s=101))
    run.advance("", Cancelled(at_s=102))
    run.advance("run:charging#1", Returned(text='"charged"', at_s=103))
    assert (run.state, run.data.notes) == ("over", ("charged",))
    assert run.effects == ()


def test_the_deadline_waits_for_a_running_function_too_and_the_cancellation_comes_first() -> None:
    flow = trip(
        charging.done(asking, do=note("charged")),
        asking.done(over),
        cancelled(undoing, do=keep),
        expired(undoing, do=keep),
        start=charging,
        limits=FlowLimits(deadline_s=10),
    )
    run = begun(flow, Trip(), 100.0)
    run.advance("start:charging#1", Started(at_s=101))
    run.advance("", Expired(at_s=110))
    assert run.deadline is None
    run.advance("", Cancelled(at_s=111))
    run.advance("run:charging#1", Returned(text='"charged"', at_s=112))
    assert run.state == "undoing"
    assert [why.reason for why in run.data.whys] == ["expired"]
    assert run.record.reacted_to == ("cancelled", "expired")


@pytest.mark.parametrize("driver", ["sync", "asyncio", "coroutine"])
def test_drivers_wait_for_a_running_function_and_run_it_once(driver: str, tmp_path: Path) -> None:
    began, is_cancelled, times = threading.Event(), threading.Event(), []

    def slow(t: Trip) -> str:
        began.set()
        assert is_cancelled.wait(20)
        times.append(1)
        return "charged"

    async def slow_async(t: Trip) -> str:
        began.set()
        assert await asyncio.to_thread(is_cancelled.wait, 20)
        times.append(1)
        return "charged"

    once: Any = execute(name="once", once=True)(slow_async if driver == "coroutine" else slow)
    rows = [once.done(asking, do=note("charged")), asking.done(over), cancelled(undoing)]
    run = trip(*rows, start=once, environment=REAL, store=MemoryStore()).prepare(Trip())

    def cancel() -> None:
        began.wait(10)
        run.cancel("while it runs")
        is_cancelled.set()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(FlowFailed):
        driven_by(driver, run)
    canceller.join()
    assert (run.state, run.data.notes, times) == ("undone", ("charged", "undone", "more"), [1])


# As a function of an agent


@pytest.mark.parametrize("how", ["cancelled", "stopped"])
def test_a_flow_as_a_function_ends_with_the_call_around_it(how: str) -> None:
    steps = Steps()
    inner = trip(asking.done(over), cancelled(undoing), start=asking, hooks=[steps])
    tool = inner.as_function("plan", "Plans.", start=plan)
    agent = Agent(Script(function_call("plan")), functions=[tool], environment={"clock": FakeClock()})
    call_ = agent.prepare("Plan it.")
    with suppress(Exception):
        agent.run(call_)
    assert any("asking#1" in effect.key for effect in call_.effects)
    with suppress(Exception):
        call_.cancel("off") if how == "cancelled" else call_.stop("off")
        agent.run(call_)
    assert steps.seen[-1].to == "Cancelled"
    assert call_.effects == ()
    assert str(call_.record.state) == ("Failed" if how == "cancelled" else "Completed")


def plan() -> Trip:
    return Trip()


def test_a_flow_called_in_a_function_that_cannot_wait_ends_after_its_compensation() -> None:
    """The cancellation is taken by its row, and what waits again is cancelled again."""
    steps = Steps()
    later = wait(int, name="later")(person)
    rows = [asking.done(over), asking.cancelled(later, do=note("reacted")), later.done(undoing)]
    inner = trip(*rows, start=asking, hooks=[steps])

    def planning(context: Context[Any]) -> str:
        """Plan."""
        context.call(inner, Trip())
        return "planned"

    agent = Agent(
        Script(function_call("planning"), "sorry"),
        functions=[Function.of(planning)],
        environment={"clock": FakeClock()},
    )

    assert agent.call("Plan it.").output == "sorry"
    told = [(step.trigger, step.to) for step in steps.seen]
    assert told == [("begun", "asking"), ("cancelled", "later"), ("cancelled", "Cancelled")]


# What looks at tables


def test_explore_takes_the_ends_once_each() -> None:
    flow = trip(
        asking.done(over),
        cancelled(undoing, do=note("cancelled")),
        expired(undoing, do=note("expired")),
        start=asking,
        limits=FlowLimits(deadline_s=10),
    )
    answers: dict[Any, Any] = {asking: [1], undoing: ["x"], undoing_more: ["y"]}
    found = explore(flow, Trip(), answers, holds=lambda state, t: len(t.notes) <= 3)
    assert (found.missed, found.is_whole) == ((), True)
    assert found.rows["undoing --cancelled [meanwhile]--> undoing"] >= 1
    assert found.rows["undoing --cancelled--> Cancelled"] >= 1
    assert found.ends["Expired"] == 0  # the deadline is spent
    same = trip(asking.done(over), cancelled(undoing), expired(undoing), start=asking, limits=FlowLimits(deadline_s=10))
    assert explore(same, Trip(), answers).rows["undoing --cancelled--> Cancelled"] >= 1  # though all data are equal
