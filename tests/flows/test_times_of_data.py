"""Do the data decide how long a state may take, once, wherever the run continues?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import pytest
from flow_runs import everywhere

from fsm_agent import Agent, SqliteStore
from fsm_agent.call import Begun, Returned
from fsm_agent.flows import (
    Failure,
    Flow,
    FlowError,
    FlowSuspended,
    ask,
    each,
    end,
    execute,
    gather,
    pause,
    race,
    renamed,
    subflow,
    wait,
)
from fsm_agent.testing import FakeClock, Script

over, late = end("over"), end("late")


@dataclass(frozen=True)
class Time:
    """What a function of the data returns."""

    n: int = 0
    log: tuple[str, ...] = ()


TIMES: list[Any] = []


@pytest.fixture(autouse=True)
def times() -> list[Any]:
    """What functions of times return, one after another."""
    TIMES.clear()
    return TIMES


def given_time(t: Time) -> Any:
    return TIMES.pop(0) if len(TIMES) > 1 else TIMES[0]


def asked(**options: Any) -> Any:
    return wait(int, name="asked", **options)(lambda t: "?")


def flow_of(state: Any, **options: Any) -> Flow[Time]:
    """Return a flow in which an answer enters the state again."""
    rows = [state.elapsed(late)]
    if hasattr(state, "done"):
        rows.append(state.done(state, do=lambda t, n: replace(t, n=n)))
    return Flow("timed", Time, start=state, rows=rows, **options)


def begun(flow: Flow[Time], at_s: float = 100.0) -> Any:
    run = flow.prepare(Time())
    run.advance("begin", Begun(at_s=at_s))
    return run


WRONG_SECONDS: list[Any] = [-1, math.nan, math.inf, True, "60", timedelta(seconds=-60)]
WRONG_MOMENTS: list[Any] = [
    datetime(2026, 3, 1),  # noqa: DTZ001  # without a time zone
    date(2026, 3, 1),
    -5.0,
    math.nan,
    math.inf,
    False,
    "2026-03-01T00:00:00Z",
]


# What is refused


@pytest.mark.parametrize("option", ["within_s", "until"])
def test_a_constant_that_is_no_time_is_refused_when_the_flow_is_defined(option: str) -> None:
    for value in [*(WRONG_SECONDS if option == "within_s" else WRONG_MOMENTS), *([0] if option == "within_s" else [])]:
        with pytest.raises(FlowError, match=rf"asked.*{option}"):
            flow_of(asked(**{option: value}))


@pytest.mark.parametrize("option", ["within_s", "until"])
def test_a_result_that_is_no_time_is_refused_at_the_step_that_enters_the_state(option: str, times: list[Any]) -> None:
    for value in WRONG_SECONDS if option == "within_s" else WRONG_MOMENTS:
        times[:] = [10, value]
        run = begun(flow_of(asked(**{option: given_time})))
        before, effects = run.record, run.effects
        with pytest.raises(FlowError, match=rf"{option} of asked"):
            run.advance("answer:asked#1", Returned(text="5", at_s=101.0))
        assert run.record is before
        assert run.effects == effects
        times[:] = [10]
        run.advance("answer:asked#1", Returned(text="5", at_s=101.0))
        assert run.data.n == 5


def test_what_a_function_of_a_time_raises_takes_no_step(times: list[Any]) -> None:
    times[:] = [10]
    run = begun(flow_of(asked(within_s=given_time)))
    before = run.record
    times.clear()
    with pytest.raises(IndexError):
        run.advance("answer:asked#1", Returned(text="5", at_s=101.0))
    assert run.record is before


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: asked(within_s=1, until=2.0), "within_s.*until"),
        (lambda: asked(restart=False, within_s=None), "restart=False"),
        (lambda: asked(within_s=3, restart="no"), "restart"),
        (lambda: pause("nap"), "nap.*delay_s"),
        (lambda: pause("nap", None), "nap.*delay_s"),
        (lambda: pause("nap", -1), "nap.*delay_s"),
        (lambda: pause("nap", 1, until=2.0), "nap.*delay_s"),  # type: ignore[call-overload]
        (lambda: asked(within_s=asleep), "asleep"),
        (lambda: asked(until=of_two), "of_two"),
    ],
)
def test_options_that_contradict_each_other_are_refused(make: Callable[[], Any], says: str) -> None:
    state = make()
    rows = [state.elapsed(late)] if state.is_timed else []
    rows += [state.done(over)] if hasattr(state, "done") else []
    with pytest.raises(FlowError, match=says):
        Flow("timed", Time, start=state, rows=rows)


async def asleep(t: Time) -> float:
    return 1.0


def text_of(t: Time) -> str:
    return "text"


def of_two(t: Time, n: int) -> float:
    return 1.0


@pytest.mark.parametrize("time", [{"within_s": given_time}, {"until": given_time}, {"until": 5.0}])
def test_a_member_has_no_time_of_its_own_and_what_must_be_known_none_at_all(time: dict[str, Any]) -> None:
    one, two = asked(**time), execute(name="two")(text_of)
    for state in (gather("both", one, two), race("first", one, two), each("every", one, lambda t: [t])):
        with pytest.raises(FlowError, match="asked"):
            Flow("timed", Time, start=state, rows=[state.done(over)])
    once: Any = execute(name="once", once=True, **time)(text_of)
    (option,) = time
    with pytest.raises(FlowError, match=option):
        Flow("timed", Time, start=once, rows=[once.done(over)])
    inner_work: Any = execute(name="once", once=True)(text_of)
    inner = Flow("inner", Time, start=inner_work, rows=[inner_work.done(over)])
    around = subflow("around", inner, lambda t: t, **time)
    with pytest.raises(FlowError, match="once"):
        Flow("timed", Time, start=around, rows=[around.done(over)])


# When it is decided


@pytest.mark.parametrize(
    ("options", "value", "due_s"),
    [
        ({"within_s": given_time}, 7, 107.0),
        ({"within_s": given_time}, 0, 100.0),
        ({"until": given_time}, 50, 50.0),
        ({"until": given_time}, None, None),
        ({"until": given_time}, datetime(1970, 1, 1, 0, 5, tzinfo=UTC), 300.0),
        ({"until": given_time}, datetime(1970, 1, 1, 1, 5, tzinfo=timezone(timedelta(hours=1))), 300.0),
        ({"until": datetime(1970, 1, 1, 0, 5, tzinfo=UTC)}, None, 300.0),
        ({"within_s": 7}, None, 107.0),
        ({"within_s": timedelta(minutes=1)}, None, 160.0),
        ({"within_s": given_time}, timedelta(minutes=1), 160.0),
    ],
)
def test_the_time_is_decided_when_the_state_is_entered_and_kept(
    options: Any, value: Any, due_s: float | None, times: list[Any]
) -> None:
    """Whatever the function returns later, and in another version of the code."""
    times[:] = [value]
    flow = flow_of(asked(**options))
    run = begun(flow)
    times[:] = [9999]
    changed = flow_of(asked(within_s=lambda t: 5555))
    for one in (run, flow.restore(run.snapshot()), changed.restore(run.snapshot())):
        assert one.record.due_at_s == due_s
        assert (None if one.deadline is None else one.deadline.at_s) == due_s
        assert [effect.until_s for effect in one.effects if effect.key.startswith("sleep:")] == (
            [] if due_s is None else [due_s]
        )
        assert one.snapshot() == run.snapshot()


@pytest.mark.parametrize("option", ["within_s", "until"])
def test_a_state_that_is_entered_again_keeps_its_first_moment(option: str, times: list[Any]) -> None:
    """Through snapshots and in a replay.  With restart, the time starts again."""
    for restart, dues in ((False, [None, 150.0, 150.0]), (True, [None, 150.0, 200.0 if option == "until" else 180.0])):
        times[:] = [None, *([50, 70] if option == "within_s" else [150, 200]), -1]
        flow = flow_of(asked(**{option: given_time}, restart=restart))
        run = begun(flow)
        found = [run.record.due_at_s]
        for n, at_s in ((1, 100.0), (2, 110.0)):
            run.advance(f"answer:asked#{n}", Returned(text="5", at_s=at_s))
            run = flow.restore(run.snapshot())
            found.append(run.record.due_at_s)
        assert found == dues


def test_a_first_moment_that_has_passed_is_due_at_once() -> None:
    """Nothing is asked any more when the state is entered late."""
    nap = pause("nap", 20)
    asking = wait(int, name="asking", within_s=10, restart=False)(lambda t: "?")
    rows = [asking.done(nap), nap.elapsed(asking), asking.elapsed(late)]
    clock = FakeClock()
    flow = Flow("timed", Time, start=asking, rows=rows, environment={"clock": clock}, answer=lambda question: 1)
    result = flow.call(Time())
    assert result.state == "late"
    assert clock.sleeps == [20]


def test_an_upgrade_that_renames_a_state_keeps_its_first_moment(times: list[Any]) -> None:
    times[:] = [10]
    run = begun(flow_of(asked(within_s=given_time, restart=False)))
    other = wait(int, name="other", within_s=given_time, restart=False)(lambda t: "?")
    flow = flow_of(other, version=2, upgrades={1: renamed(asked="other")})
    restored = flow.restore(run.snapshot())
    assert restored.record.first_due_at_s == {"other": 110.0}


def test_every_kind_of_state_takes_every_kind_of_time(times: list[Any]) -> None:
    work = execute(name="work")(text_of)
    inner = Flow("inner", Time, start=work, rows=[work.done(over)])
    makers: list[Callable[..., Any]] = [
        lambda **o: ask(Agent(Script("x")), str, name="s", **o)(text_of),
        lambda **o: execute(name="s", **o)(text_of),
        lambda **o: wait(int, name="s", **o)(text_of),
        lambda **o: gather("s", work, execute(name="work2")(text_of), **o),
        lambda **o: race("s", work, execute(name="work2")(text_of), **o),
        lambda **o: each("s", work, lambda t: [t], **o),
        lambda **o: subflow("s", inner, lambda t: t, **o),
        lambda **o: pause("s", o.get("within_s"), until=o.get("until")),
    ]
    for make in makers:
        for options, due_s in (({"within_s": given_time}, 107.0), ({"until": given_time}, 7.0)):
            times[:] = [7]
            state = make(**options)
            rows = [state.elapsed(late)] + ([state.done(over)] if hasattr(state, "done") else [])
            run = begun(Flow("timed", Time, start=state, rows=rows))
            assert run.deadline is not None
            assert run.deadline.at_s == due_s, make


# Published graphs, and a server that says when to come again

DAY_S = 86_400.0
START_S = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Task:
    """Something that is due."""

    due: datetime
    reminders: int = 0


@dataclass(frozen=True)
class Finished:
    kind: Literal["finished"] = "finished"


@dataclass(frozen=True)
class Moved:
    """The due date has changed."""

    due: datetime


def due_of(t: Task) -> datetime:
    return t.due


@wait(Finished, Moved, until=due_of)
def working(t: Task) -> str:
    return f"done by {t.due}?"


@execute
def reminding(t: Task) -> int:
    return t.reminders + 1


# Temporal's updatable timer, and a reminder at the due date: a signal moves it while it is waited for
reminder = Flow(
    "reminder",
    Task,
    start=working,
    rows=[
        working.done(end("finished"), of=Finished),
        working.done(working, of=Moved, do=lambda t, m: replace(t, due=m.due)),
        working.elapsed(reminding),
        reminding.done(end("reminded"), do=lambda t, n: replace(t, reminders=n)),
    ],
)


@dataclass(frozen=True)
class Download:
    retry_after_s: tuple[float, ...]  # what the server says, one after another
    tries: int = 0
    text: str = ""


class Busy(Exception):
    """429, with the seconds of `Retry-After`."""


@execute
def fetching(d: Download) -> str:
    if d.tries < len(d.retry_after_s):
        raise Busy(d.retry_after_s[d.tries])
    return "page"


def may_retry(d: Download, why: Failure) -> bool:
    return why.detail.startswith("Busy") and d.tries < 3


def retry_after(d: Download) -> float:
    return d.retry_after_s[d.tries - 1]


backing_off = pause("backing_off", retry_after)
downloads = Flow(
    "downloads",
    Download,
    start=fetching,
    rows=[
        fetching.done(end("loaded"), do=lambda d, a: replace(d, text=a)),
        fetching.failed(backing_off, when=may_retry, do=lambda d, _: replace(d, tries=d.tries + 1)),
        fetching.failed(end("given_up", failed=True)),
        backing_off.elapsed(fetching),
    ],
)


def at(flow: Flow[Any], now_s: float, store: Any = None) -> Flow[Any]:
    """Return a flow at a moment."""
    clock = FakeClock(now_s)
    return replace(flow, store=store and SqliteStore(store, clock.now), environment={"clock": clock})


def day(n: float) -> float:
    return START_S + n * DAY_S


def on(n: float) -> datetime:
    return datetime.fromtimestamp(day(n), UTC)


def resumed(flow: Flow[Any], n: float, store: Any, answers: Any = None) -> Any:
    """Drive the run on this day; return its state, and the day on which it is to go on."""
    try:
        return at(flow, day(n), store).runs.resume("run", answers).state, None
    except FlowSuspended as waiting:
        return waiting.run.state, None if waiting.wake_at_s is None else (waiting.wake_at_s - START_S) / DAY_S


def test_a_reminder_comes_at_the_due_date_which_may_move(tmp_path: Path) -> None:
    """Temporal's updatable timer."""
    store = tmp_path / "runs.db"
    with pytest.raises(FlowSuspended) as first:
        at(reminder, day(0), store).call(Task(on(10)), run_id="run")
    assert first.value.wake_at_s == day(10)
    assert resumed(reminder, 5, store) == ("working", 10)
    assert resumed(reminder, 6, store, {working: Moved(on(20))}) == ("working", 20)
    assert resumed(reminder, 12, store) == ("working", 20)
    assert resumed(reminder, 13, store, {working: Moved(on(14))}) == ("working", 14)
    assert resumed(reminder, 14.5, store) == ("reminded", None)


@pytest.mark.parametrize("delay", [timedelta(minutes=1), lambda t: timedelta(minutes=1)])
def test_a_pause_takes_a_timedelta(delay: Any) -> None:
    clock = FakeClock()
    nap = pause("nap", delay)
    Flow("sleeping", Time, start=nap, rows=[nap.elapsed(over)], environment={"clock": clock}).call(Time())
    assert clock.sleeps == [60.0]


@everywhere
def test_a_pause_of_the_data_lasts_so_long_under_every_driver(driven: Any) -> None:
    clock = FakeClock()
    flow = replace(downloads, environment={"clock": clock})
    run = flow.prepare(Download((3.0, 0.0, 7.0)))
    driven(flow, run)
    assert (run.state, run.data.text, run.data.tries) == ("loaded", "page", 3)
    assert clock.sleeps == [3.0, 7.0] or clock.sleeps == [3.0, 0.0, 7.0]
