"""Does a state with enough members give the values of the first of them, and abandon the others?"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations, product
from typing import Any

import pytest
from flow_runs import begun, by_arun, by_threads

from fsm_agent import MemoryStore
from fsm_agent.call import FunctionFailed, Returned
from fsm_agent.errors import SnapshotError
from fsm_agent.flows import Failure, Flow, FlowError, FlowFailed, each, end, execute, gather, into, subflow, wait

over, failed = end("over"), end("failed")


@dataclass(frozen=True)
class Data:
    items: tuple[int, ...] = ()
    got: tuple[int, ...] = ()
    why: str = ""


def items(d: Data) -> tuple[int, ...]:
    return d.items


def say_why(d: Data, why: Failure) -> Data:
    return replace(d, why=f"{why.reason}: {why.where}")


def flow_of(state: Any, **options: Any) -> Flow[Data]:
    rows = [state.done(over, do=into("got")), state.failed(failed, do=say_why)]
    return Flow("f", Data, start=state, rows=rows, **options)


def asking(name: str) -> Any:
    return wait(int, name=name)(lambda d: "?")


NAMES = ("a", "b", "c", "d")
a, b, c, d = map(asking, NAMES)


def one(d: Data) -> int:
    return 1


@execute
def numbered(n: int) -> int:
    return n


# What comes is a function of what came first


def model(needed: int, coming: list[tuple[str, bool]]) -> tuple[str, Any]:
    """Return where a state of members ends, and its value, if the members end in this order."""
    count, gave, broke = len(NAMES), list[str](), list[str]()
    for name, is_well in coming:
        (gave if is_well else broke).append(name)
        if len(gave) == needed:
            return "over", tuple(NAMES.index(one) for one in sorted(gave))
        if count - len(broke) < needed:
            return "failed", f"fell: {min(broke)}"
    raise AssertionError("neither")


def until_decided(needed: int, coming: list[tuple[str, bool]]) -> tuple[tuple[str, bool], ...]:
    """Leave out what comes when the state has ended: it is abandoned, and another order would be the same one."""
    for count in range(1, len(coming) + 1):
        gave = sum(is_well for _, is_well in coming[:count])
        if gave == needed or len(coming) - (count - gave) < needed:
            return tuple(coming[:count])
    raise AssertionError("neither")


def outcome_of(name: str, is_well: bool) -> Any:
    return Returned(text=str(NAMES.index(name))) if is_well else FunctionFailed(text="down", reason="fell")


@pytest.mark.parametrize(
    ("enough", "kind"),
    [(1, "gather"), (2, "gather"), (4, "gather"), (0.5, "each"), (0.51, "each")],
)
def test_the_first_that_are_enough_are_given_in_the_order_written(enough: float, kind: str) -> None:
    """Whatever ends first, well or not; through JSON between two steps; and again from the journal."""
    needed = {0.5: 2, 0.51: 3}.get(enough, enough)
    functions: Any = [execute(name=name)(one) for name in NAMES]
    state: Any = gather("votes", *functions, enough=enough) if kind == "gather" else None
    state = state or each("votes", numbered, items, enough=enough)
    flow, stored = flow_of(state), flow_of(state, store=MemoryStore())
    names = dict(zip(NAMES, NAMES if kind == "gather" else ("0", "1", "2", "3"), strict=True))
    orders = product(permutations(NAMES), product([True, False], repeat=4))
    decided = dict.fromkeys(until_decided(int(needed), list(zip(*order, strict=True))) for order in orders)
    for number, coming in enumerate(decided):
        is_kept = number % 16 == 5
        run = begun(stored if is_kept else flow, Data((0, 1, 2, 3)))
        for name, is_well in coming:
            if number % 4 == 0:
                run = flow.restore(run.snapshot())
            if run.effects:
                run.advance(f"votes#1/run:{names[name]}", outcome_of(name, is_well))
        where, what = model(int(needed), list(coming))
        if where == "failed":
            what = "".join([what[:-1], names[what[-1]]])
        assert (run.state, run.data.why or run.data.got) == (where, what), coming
        again = begun(flow, Data((0, 1, 2, 3)))
        for entry in run.journal.entries if is_kept else ():
            if entry.key != "begin":
                again.advance(entry.key, again.decode(entry.key, entry.outcome))
        assert again.record == run.record or not is_kept


# How many there are


@pytest.mark.parametrize(
    ("count", "enough", "got"),
    [(0, 0.5, ()), (1, 0.5, (0,)), (1, 1, (0,)), (30, 0.1, (0, 1, 2)), (30, 30, tuple(range(30))), (3, 1.0, (0, 1, 2))],
)
def test_each_item_counts(count: int, enough: float, got: tuple[int, ...]) -> None:
    for parallel, driven in product((None, 1, 2), (by_threads, by_arun)):
        state = each("votes", numbered, items, enough=enough, parallel=parallel)
        flow = flow_of(state, environment={"threads": 0})
        run = flow.prepare(Data(tuple(range(count))))
        driven(flow, run)
        assert run.state == "over"
        assert len(run.data.got) == len(got)
        assert list(run.data.got) == sorted(run.data.got)
        if parallel == 1:
            assert run.data.got == got


@pytest.mark.parametrize(("count", "enough"), [(0, 1), (2, 3)])
def test_fewer_items_than_are_enough_fail_at_once(count: int, enough: int) -> None:
    run = begun(flow_of(each("votes", numbered, items, enough=enough)), Data((1,) * count))
    assert (run.state, run.data.why) == ("failed", "too few: votes")
    state = each("votes", numbered, items, enough=enough)
    flow = Flow("f", Data, start=state, rows=[state.done(over)])
    with pytest.raises(FlowFailed, match="votes"):
        flow.call(Data((1,) * count))


def test_a_share_is_rounded_up_and_not_by_the_errors_of_floats() -> None:
    for share, count, needed in [
        (0.07, 100, 7),
        (5 / 6, 6, 5),
        (1 / 3, 3, 1),
        (2 / 3, 4, 3),
        (0.1, 30, 3),
        (1e-12, 5, 1),
        (1.0, 5, 5),
        (0.3, 0, 0),
    ]:
        assert each("votes", numbered, items, enough=share).needed(count) == needed


def test_members_that_have_not_begun_never_do() -> None:
    ran: list[int] = []

    @execute
    def note(n: int) -> int:
        ran.append(n)
        return n

    flow = flow_of(each("votes", note, items, enough=2, parallel=2), environment={"threads": 0})
    assert flow.call(Data(tuple(range(9)))).output.got == (0, 1)
    assert ran == [0, 1]


@pytest.mark.parametrize("enough", [True, 0, -0.5, 1.5, float("nan"), "2"])
def test_a_number_that_cannot_be_right_is_refused(enough: Any) -> None:
    for make in (lambda: gather("g", a, b, c, enough=enough), lambda: each("g", numbered, items, enough=enough)):
        with pytest.raises(FlowError, match=r"g.*enough"):
            flow_of(make())
    with pytest.raises(FlowError, match=r"g.*enough"):
        flow_of(gather("g", a, b, c, enough=4))
    assert flow_of(each("g", numbered, items, enough=4)), "it depends on the items"


def test_a_function_that_must_not_run_twice_is_refused_among_members_that_may_be_abandoned() -> None:
    @execute(once=True)
    def pay(d: Data) -> int:
        return 1

    for state in (gather("g", pay, a, enough=1), each("g", pay, items, enough=1)):  # type: ignore[arg-type]
        with pytest.raises(FlowError, match=r"g.*pay"):
            flow_of(state)


def test_more_that_are_needed_than_are_left_is_refused_when_a_run_is_restored() -> None:
    def votes(enough: int) -> Flow[Data]:
        return flow_of(each("votes", numbered, items, enough=enough))

    run = begun(votes(1), Data((1, 2)))
    run.advance("votes#1/run:0", FunctionFailed(text="down"))
    with pytest.raises(SnapshotError, match="votes"):
        votes(2).restore(run.snapshot())


# The rest is abandoned while it runs


@pytest.mark.parametrize("kind", ["gather", "each"])
def test_coroutines_are_cancelled_once_others_are_enough(kind: str) -> None:
    cancelled, running = list[int](), asyncio.Event()

    async def work(n: int) -> int:
        """Only the last two end; they do not before the first two run."""
        try:
            if n == 1:
                running.set()
            await (running if n > 1 else asyncio.Event()).wait()
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return n

    single = execute(name="work")(work)
    state: Any = each("g", single, items, enough=2, parallel=None)
    rows = [state.done(over, do=into("got"))]
    if kind == "gather":
        members: Any = [subflow(f"s{n}", one_of(single), partial(item_of, n)) for n in range(4)]
        state = gather("g", *members, enough=2)
        rows = [state.done(over, do=lambda d, a: replace(d, got=a))]
    flow = Flow("f", Data, start=state, rows=rows)
    run = flow.prepare(Data((0, 1, 2, 3)))
    by_arun(flow, run)
    assert (run.state, run.data.got) == ("over", (2, 3))
    assert sorted(cancelled) == [0, 1]


def item_of(n: int, d: Data) -> int:
    return n


def one_of(state: Any) -> Flow[int]:
    return Flow("one", int, start=state, rows=[state.done(over, do=lambda n, given: given)])


def test_threads_are_left_behind_once_others_are_enough() -> None:
    barrier, free = threading.Barrier(4, timeout=20), threading.Event()

    @execute
    def work(n: int) -> int:
        barrier.wait()  # all four run
        if n < 2:
            free.wait(60)
        return n

    after = execute(name="after")(freeing(free))
    state = each("g", work, items, enough=2)
    flow = Flow("f", Data, start=state, rows=[state.done(after, do=into("got")), after.done(over)])
    run = flow.prepare(Data((0, 1, 2, 3)))
    by_threads(flow, run)  # it would never end if the others were waited for
    assert (run.state, run.data.got) == ("over", (2, 3))


def freeing(free: threading.Event) -> Callable[[Data], None]:
    def after(d: Data) -> None:
        free.set()

    return after
