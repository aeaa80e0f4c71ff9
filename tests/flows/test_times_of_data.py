"""Do the data decide how long a state may take, once, wherever the run continues?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from flow_runs import begun

from fsm_agent import Agent
from fsm_agent.call import Returned
from fsm_agent.flows import (
    Flow,
    FlowError,
    FlowFailed,
    any_state,
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
        run = begun(flow_of(asked(**{option: given_time})), Time(), 100.0)
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
    run = begun(flow_of(asked(within_s=given_time)), Time(), 100.0)
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
    run = begun(flow, Time(), 100.0)
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
        run = begun(flow, Time(), 100.0)
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
    run = begun(flow_of(asked(within_s=given_time, restart=False)), Time(), 100.0)
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
            run = begun(Flow("timed", Time, start=state, rows=rows), Time(), 100.0)
            assert run.deadline is not None
            assert run.deadline.at_s == due_s, make


@pytest.mark.parametrize("delay", [timedelta(minutes=1), lambda t: timedelta(minutes=1)])
def test_a_pause_takes_a_timedelta(delay: Any) -> None:
    clock = FakeClock()
    nap = pause("nap", delay)
    Flow("sleeping", Time, start=nap, rows=[nap.elapsed(over)], environment={"clock": clock}).call(Time())
    assert clock.sleeps == [60.0]


# A guard


def is_early(n: int) -> bool:
    return n < 2


def test_a_guard_chooses_what_follows_the_end_of_the_time() -> None:
    @wait(str, within_s=20)
    def asking(n: int) -> str:
        return "Are you there?"

    clock = FakeClock()
    rows = [asking.done(over), asking.elapsed(asking, when=is_early, do=lambda n, _: n + 1), asking.elapsed(late)]
    result = Flow("reminding", int, start=asking, rows=rows, environment={"clock": clock}).call(0)
    assert (result.state, result.output, clock.sleeps) == ("late", 2, [20.0] * 3)


def test_a_run_fails_if_no_guard_takes_the_end_of_the_time() -> None:
    nap = pause("nap", 5)
    rows = [*any_state(nap).elapsed(over, when=is_early)]
    flow = Flow("napping", int, start=nap, rows=rows, environment={"clock": FakeClock()})
    assert flow.call(1).state == "over"
    with pytest.raises(FlowFailed):
        flow.call(2)
