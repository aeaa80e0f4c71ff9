"""Does time pass correctly on the system's clock: two timers in a row, in every surrounding, under every driver?

Every feature of time appears twice in a row in a flow, which is driven alone, under a deadline, in a subflow and among
members.  The path and the data must be the same under all drivers.  No timer may fire early, as happens if it takes the
end of the timer before it for its own.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from timed_flows import (
    DRIVERS,
    FAR_S,
    REAL,
    SHORT_S,
    Log,
    Silent,
    Stopwatch,
    a_while,
    asking,
    by_acall,
    by_call,
    flow_of,
    freed,
    noted,
    over,
    too_long,
    too_long_in_a_thread,
)

from fsm_agent import Function, Limits, MemoryStore, SqliteStore
from fsm_agent.call import Request
from fsm_agent.flows import (
    Flow,
    FlowLimits,
    each,
    execute,
    gather,
    pause,
    race,
    subflow,
)
from fsm_agent.testing import Script, function_call

pytestmark = pytest.mark.system

__all__ = ["freed"]

# Flows of timers in a row; of each, so many runs share the models and functions


def pauses(runs: int) -> Flow[Log]:
    return flow_of(*[pause(f"nap{n}", SHORT_S) for n in "123"])


def calls(runs: int) -> Flow[Log]:
    return flow_of(*[asking(f"call{n}", Silent(), within_s=SHORT_S) for n in "12"], pause("nap", SHORT_S))


def coroutines(runs: int) -> Flow[Log]:
    return flow_of(*[execute(name=f"work{n}", within_s=SHORT_S)(too_long) for n in "12"], pause("nap", SHORT_S))


def deadlines_of_subflows(runs: int) -> Flow[Log]:
    inner = flow_of(pause("far", FAR_S), limits=FlowLimits(deadline_s=SHORT_S))
    return flow_of(*[subflow(f"sub{n}", inner, lambda log: log) for n in "12"], pause("nap", SHORT_S))


def deadlines_of_calls(runs: int) -> Flow[Log]:
    """One waits for its model, the other for a function."""
    limits, slow = Limits(deadline_s=SHORT_S), Function(name="slow", call=partial(too_long_in_a_thread, None))
    second = asking("call2", Script(*[function_call("slow")] * runs), limits, slow)
    return flow_of(asking("call1", Silent(), limits), second, pause("nap", SHORT_S))


def timeouts(runs: int) -> Flow[Log]:
    """Functions of an agent: two that take too long, and one that does not."""
    functions = [
        Function(name="slow", call=partial(too_long, None), timeout_s=SHORT_S),
        Function(name="slow_too", call=partial(too_long_in_a_thread, None), timeout_s=SHORT_S),
        Function(name="quick", call=partial(a_while, None), timeout_s=FAR_S),
    ]
    replies = ["slow", "slow_too", "quick"]

    def reply(request: Request) -> Any:
        results = [part.text for message in request.messages if message.role == "tool" for part in message.parts]
        if len(results) < len(replies):
            return function_call(replies[len(results)])
        return ", ".join(text.partition(":")[0] for text in results)

    working = asking("working", Script(*[reply] * 4 * runs), Limits(), *functions)
    last = execute(a_while, name="last")
    rows = [working.done(last, do=lambda _, found: Log((found,))), last.done(over, do=noted("last done"))]
    return Flow("timed", Log, start=working, rows=rows, environment=REAL)


TIMED: dict[str, tuple[Callable[[int], Flow[Log]], list[str], int]] = {  # what it comes to, and after how many times
    "pauses": (pauses, ["nap1 elapsed", "nap2 elapsed", "nap3 elapsed"], 3),
    "calls": (calls, ["call1 elapsed", "call2 elapsed", "nap elapsed"], 3),
    "coroutines": (coroutines, ["work1 elapsed", "work2 elapsed", "nap elapsed"], 3),
    "deadlines of subflows": (deadlines_of_subflows, ["sub1 failed", "sub2 failed", "nap elapsed"], 3),
    "deadlines of calls": (deadlines_of_calls, ["call1 failed", "call2 failed", "nap elapsed"], 3),
    "timeouts of functions": (timeouts, ["TimeoutError, TimeoutError, fine", "last done"], 4),
}


# What is around the timers; what it comes to is what they come to


def itself(log: Log) -> Log:
    return log


def the_first(logs: tuple[Log, ...]) -> Log:
    return logs[0]


def the_only(logs: tuple[Log, ...]) -> Log:
    """Return what all members have come to."""
    (log,) = set(logs)
    return log


def around(work: Any, found: Callable[[Any], Log], **options: Any) -> Flow[Log]:
    rows = [work.done(over, do=lambda _, answer: found(answer))]
    return Flow("around", Log, start=work, rows=rows, environment=REAL, **options)


def as_state(flow: Flow[Log], name: str = "timed", **options: Any) -> Any:
    return subflow(name, flow, itself, **options)


def just_so(flow: Flow[Log]) -> Flow[Log]:
    return flow


def under_a_deadline(flow: Flow[Log]) -> Flow[Log]:
    return replace(flow, limits=FlowLimits(deadline_s=FAR_S))


def in_a_subflow_with_a_time(flow: Flow[Log]) -> Flow[Log]:
    return around(as_state(flow, within_s=FAR_S), itself)


def in_a_flow_under_a_deadline(flow: Flow[Log]) -> Flow[Log]:
    return under_a_deadline(around(as_state(flow), itself))


def beside_other_timers(flow: Flow[Log]) -> Flow[Log]:
    return around(gather("both", as_state(flow), as_state(pauses(1), "other")), the_first)


def in_a_race_with_a_far_one(flow: Flow[Log]) -> Flow[Log]:
    return around(race("either", as_state(flow), as_state(flow_of(pause("far", FAR_S)), "other")), itself)


def among_its_like(flow: Flow[Log]) -> Flow[Log]:
    return around(each("every", as_state(flow), lambda log: [log] * 3), the_only)


AROUND: list[Callable[[Flow[Log]], Flow[Log]]] = [
    just_so,
    under_a_deadline,
    in_a_subflow_with_a_time,
    in_a_flow_under_a_deadline,
    beside_other_timers,
    in_a_race_with_a_far_one,
    among_its_like,
]


WAYS = [*[(drive, False) for drive in DRIVERS], (by_call, True), (by_acall, True)]  # who drives, and whether stored


def by_turns(timed: str, number: int) -> list[Any]:
    """Return one of the drivers, so that each is used for each flow, in every surrounding."""
    return [WAYS[([*TIMED].index(timed) + number) % len(WAYS)]]


@pytest.mark.parametrize("is_each", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("timed", TIMED)
def test_timers_in_a_row_last_their_time_whatever_is_around_them_and_whoever_drives(
    timed: str, is_each: bool, tmp_path: Path
) -> None:
    make, entries, times = TIMED[timed]

    def driven(put: Callable[[Flow[Log]], Flow[Log]], drive: Callable[[Flow[Log]], Any], store: Any) -> Any:
        flow = replace(put(make(3 if put is among_its_like else 1)), store=store)
        watch = Stopwatch()
        found = drive(flow).output
        took_s = watch.taken_s
        is_right = took_s >= times * SHORT_S - 0.01
        return list(found.entries), "in time" if is_right else f"after {took_s:.2f} s"

    assert driven(just_so, by_call, SqliteStore(tmp_path / "runs.db")) == (entries, "in time")
    with ThreadPoolExecutor(64) as threads:
        tried = {}
        for number, put in enumerate(AROUND):
            for drive, is_stored in WAYS if is_each else by_turns(timed, number):
                store = MemoryStore() if is_stored else None
                tried[put.__name__, drive.__name__, is_stored] = threads.submit(driven, put, drive, store)
        found = {which: one.result() for which, one in tried.items()}
    assert found == dict.fromkeys(tried, (entries, "in time"))
