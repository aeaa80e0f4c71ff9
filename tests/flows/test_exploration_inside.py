"""Does the model checker explore inner states, call pure functions twice, and find endless loops?"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fsm_agent import Agent, UsageError
from fsm_agent.call import Reason
from fsm_agent.flows import Failure, Flow, FlowLimits, ask, each, end, execute, gather, race, subflow, wait
from fsm_agent.testing import Explored, explore


@dataclass(frozen=True)
class Trip:
    cities: tuple[str, ...] = ("Rome", "Oslo")
    found: tuple[Any, ...] = ()
    n: int = 0


over, lost, late = end("over"), end("lost"), end("late")
bot = Agent("openai:gpt-5-mini", name="bot")


@execute
def price(city: str) -> int:
    raise AssertionError("no function is called")


@wait(bool)
def clerk(city: str) -> str:
    return city


@ask(bot)
def asking(t: Trip) -> str:
    return f"{t.n}?"


def is_cheap(city: str, n: int) -> bool:
    return n < 5


pricing = Flow(
    "pricing",
    str,
    start=price,
    rows=[
        price.done(clerk, when=is_cheap, do=lambda city, n: f"{city[:4]} {n}"),
        price.done(end("dear"), do=lambda city, n: city),
        clerk.done(end("sold"), of=True),
        clerk.done(price, of=False),
    ],
)


def first_city(t: Trip) -> str:
    return t.cities[0]


def cities(t: Trip) -> tuple[str, ...]:
    return t.cities


def keep(t: Trip, found: Any) -> Trip:
    return replace(t, found=found if isinstance(found, tuple) else (found,))


def flow_of(state: Any, data: Any = Trip, **options: Any) -> Flow[Any]:
    rows = [state.done(over, do=keep), *([state.failed(lost)] if "failed" in state.triggers else [])]
    return Flow("f", data, start=state, rows=rows, **options)


def outputs(flow: Flow[Any], answers: Any, data: Any = None) -> tuple[Explored, set[Any]]:
    """Explore, and return all data with which the flow ends in ``over``."""
    seen = set[Any]()

    def holds(state: str, t: Trip) -> bool:
        if state == "over":
            seen.add(t.found)
        return True

    return explore(flow, data or Trip(), answers, holds=holds), seen


ANSWERS: dict[Any, Any] = {price: [3, 7], clerk: [True, False]}
NAMES = [
    "price --done [is_cheap]--> clerk",
    "price --done--> dear",
    "clerk --done True--> sold",
    "clerk --done False--> price",
]


def test_a_flow_inside_is_walked() -> None:
    nested = subflow("nested", pricing, first_city)
    found, data = outputs(flow_of(nested), ANSWERS)
    assert data == {("Rome 3",), ("Rome",)}
    assert (found.missed, found.is_whole) == ((), True)
    assert all(found.rows[f"pricing: {name}"] for name in NAMES)
    assert set(found.ends) == {"over", "lost", "Cancelled"}


def test_rows_inside_that_nothing_takes_are_missed() -> None:
    nested = subflow("nested", pricing, first_city)
    found = explore(flow_of(nested), Trip(), {price: [7], clerk: [True]})
    assert found.missed == tuple(f"pricing: {name}" for name in (NAMES[0], *NAMES[2:]))


def test_an_answer_as_a_whole_stands_for_all_that_is_inside() -> None:
    nested = subflow("nested", pricing, first_city)
    found, data = outputs(flow_of(nested), {nested: ["Rome 9"]})
    assert (data, found.missed) == ({("Rome 9",)}, ())
    assert found.configurations == 4
    assert not any(name.startswith("pricing") for name in found.rows)


def test_times_and_deadlines_inside_end_it_there() -> None:
    @wait(str, within_s=5)
    def person(city: str) -> str:
        return city

    rows = [person.done(end("said")), person.elapsed(end("silent"), do=lambda city, _: "silent")]
    inner = Flow("inner", str, start=person, rows=rows, limits=FlowLimits(deadline_s=9))
    nested = subflow("nested", inner, first_city, within_s=7)
    flow = Flow("f", Trip, start=nested, rows=[nested.done(over, do=keep), nested.failed(lost), nested.elapsed(late)])
    found, data = outputs(flow, {person: ["x"]})
    assert data == {("Rome",), ("silent",)}
    assert set(found.ends) == {"over", "lost", "late", "Cancelled"}
    assert found.rows["inner: person --expired--> Expired"] == 1


def test_members_give_every_combination_of_their_results() -> None:
    both: Any = gather("both", subflow("nested", pricing, first_city), execute(name="other")(a_number))
    found, data = outputs(flow_of(both), {price: [3, 7], clerk: [True], both.members[1]: [1, 2]})
    assert data == {(text, n) for text in ("Rome 3", "Rome") for n in (1, 2)}
    assert found.ends["lost"] == 1
    assert found.missed == ("pricing: clerk --done False--> price",)


def a_number(t: Trip) -> int:
    return 1


def test_each_item_has_a_walk_of_its_own() -> None:
    every = each("every", subflow("priced", pricing, str), cities, parallel=1)
    found, data = outputs(flow_of(every), {price: [3, 7], clerk: [True]})
    assert data == {(a, b) for a in ("Rome 3", "Rome") for b in ("Oslo 3", "Oslo")}
    assert found.ends["lost"] == 1


def test_members_may_fail_one_by_one_where_failures_are_results() -> None:
    every = each("every", price, cities, settled=True)

    def keep_names(t: Trip, found: tuple[int | Failure, ...]) -> Trip:
        return replace(t, found=tuple(one.where if isinstance(one, Failure) else one for one in found))

    _, data = outputs(Flow("f", Trip, start=every, rows=[every.done(over, do=keep_names)]), {price: [3]})
    assert data == {(a, b) for a in (3, "price") for b in (3, "price")}


def test_each_member_of_a_race_wins_once() -> None:
    one, other = [execute(name=name)(a_number) for name in ("one", "other")]
    found, data = outputs(flow_of(race("either", one, other)), {one: [1, 2], other: [3]})
    assert data == {(1,), (2,), (3,)}
    assert found.ends["lost"] == 1, "if both fail"


@pytest.mark.parametrize(("items", "bound", "is_whole"), [(6, 100, True), (7, 100, False)])
def test_combinations_are_bounded_and_each_result_comes_up_first(
    items: int, bound: int, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsm_agent.testing.exploration.COMBINATIONS", bound)
    every = each("every", price, cities)
    found, data = outputs(flow_of(every), {price: [1, 2]}, Trip(cities=("x",) * items))
    assert found.is_whole is is_whole
    assert {(1,) * items, (2,) * items} <= data
    assert len(data) <= bound


def test_a_state_inside_without_answers_is_named() -> None:
    every = each("every", subflow("priced", pricing, str), cities)
    with pytest.raises(UsageError, match="price, clerk"):
        explore(flow_of(every), Trip(), {})
    with pytest.raises(UsageError, match="clerk"):
        explore(flow_of(every), Trip(), {price: [3]})


def test_the_way_to_what_raises_inside_is_told() -> None:
    def raises(city: str, a: bool) -> str:
        raise LookupError(city)

    rows = [clerk.done(end("sold"), do=raises)]
    inner = Flow("inner", str, start=clerk, rows=rows)
    for state in (subflow("nested", inner, first_city), each("every", subflow("one", inner, str), cities)):
        with pytest.raises(AssertionError, match=r"^start → (in every: start → )?clerk gives True: LookupError: Rome"):
            explore(flow_of(state), Trip(), {clerk: [True]})


# What is not pure

log: list[Any] = []
count = 0


def draws(t: Trip, a: Any) -> bool:
    return random.random() < 0.5


def counts(t: Trip, a: Any) -> bool:
    global count
    count += 1
    return True


def notes(t: Trip, a: Any) -> Trip:
    log.append(a)
    return t


def timed(t: Trip, a: Any) -> Trip:
    return replace(t, n=time.perf_counter_ns())


class Teller:
    def __init__(self) -> None:
        self.told = 0


teller = Teller()


def tells(t: Trip, a: Any) -> Trip:
    teller.told += 1
    return t


def answered(**functions: Any) -> Flow[Trip]:
    rows = [asking.done(over, **functions), *([asking.done(late)] if "when" in functions else [])]
    return Flow("f", Trip, start=asking, rows=rows)


def inner_answered(**functions: Any) -> Flow[Trip]:
    return flow_of(subflow("nested", answered(**functions), lambda t: t))


def member_answered(**functions: Any) -> Flow[Trip]:
    return flow_of(each("every", subflow("nested", answered(**functions), lambda t: t), lambda t: (t,)))


IMPURE: list[tuple[Callable[..., Flow[Trip]], dict[str, Any], str]] = [
    (answered, {"when": counts}, r"asking --done \[counts\]--> over.*changes count"),
    (answered, {"do": notes}, "asking --done--> over.*changes log"),
    (answered, {"do": tells}, "tells .*changes teller"),
    (answered, {"do": timed}, "timed "),
    (inner_answered, {"do": notes}, "changes log"),
    (member_answered, {"when": counts}, "changes count"),
]


@pytest.mark.parametrize(("make", "functions", "problem"), IMPURE)
def test_what_is_not_pure_is_named_with_the_way_there(make: Any, functions: Any, problem: str) -> None:
    with pytest.raises(AssertionError, match=rf"^start → .*{problem}"):
        explore(make(**functions), Trip(), {asking: ["x"]})


def test_a_guard_that_draws_lots_is_found_with_both_values() -> None:
    random.seed(1)
    problem = "draws .*(True, and then False|False, and then True)"
    with pytest.raises(AssertionError, match=problem):
        explore(answered(when=draws), Trip(), {asking: [str(n) for n in range(20)]})


def impure_task() -> Any:
    @ask(bot)
    def task(t: Trip) -> str:
        log.append(t)
        return "?"

    return task, "task of task.*changes log"


def impure_question() -> Any:
    @wait(bool)
    def question(t: Trip) -> float:
        return time.perf_counter_ns()

    return question, "question of question"


def impure_choice() -> Any:
    def choose(t: Trip) -> Agent[Any, Any]:
        log.append(t)
        return bot

    return ask(choose, str, name="chosen")(lambda t: "?"), "choice of chosen.*changes log"


def impure_items() -> Any:
    def items(t: Trip) -> tuple[int, ...]:
        return (time.perf_counter_ns(),)

    member = execute(name="member")(a_square)
    return each("every", member, items), "items of every"


def a_square(n: int) -> int:
    return n * n


def impure_start() -> Any:
    def start(t: Trip) -> str:
        log.append(t)
        return "x"

    return subflow("nested", pricing, start), "start of nested.*changes log"


@pytest.mark.parametrize("make", [impure_task, impure_question, impure_choice, impure_items, impure_start])
def test_what_a_state_asks_is_called_twice_too(make: Callable[[], Any]) -> None:
    state, problem = make()
    answers: dict[Any, Any] = {inner: [1] for inner in state.members} or {state: ["x"]}
    if state.name in ("nested", "question"):
        answers = ANSWERS if state.name == "nested" else {state: [True]}
    with pytest.raises(AssertionError, match=problem):
        explore(flow_of(state), Trip(), answers)


def test_what_is_pure_is_taken() -> None:
    table = {"x": [1, 2]}
    memo: dict[str, Any] = {}

    class Object:
        pass

    def looks(t: Trip, a: str) -> bool:
        return bool(table.get(a)) or memo.get(a) is not None

    def keeps(t: Trip, a: str) -> Trip:
        return replace(t, found=(*table.get(a, ()), float("inf")))

    @ask(bot)
    def task(t: Trip) -> Any:
        from fsm_agent import Dialog

        return Dialog().put("?")

    @wait(bool)
    def shown(t: Trip) -> Any:
        return Object()  # equal to itself alone

    rows = [task.done(shown, when=looks), task.done(over), shown.done(over)]
    assert (
        explore(Flow("f", Trip, start=task, rows=rows), Trip(), {task: ["x", "y"], shown: [True, False]}).missed == ()
    )


# Loops


def is_many(t: Trip, a: Any) -> bool:
    return t.n > 2


def loops_of(rows: Callable[..., Any], *states: Any, **answers: Any) -> tuple[str, ...]:
    flow = Flow("f", Trip, start=states[0], rows=rows(*states))
    return explore(flow, Trip(), {state: answers.get(state.name, ["x"]) for state in states if state.triggers}).loops


def test_a_loop_that_makes_no_progress_is_found_with_the_way_there() -> None:
    checking = ask(bot, bool, name="checking")(lambda t: "Is it good?")

    def rows(asking: Any, checking: Any) -> list[Any]:
        return [asking.done(checking), checking.done(over, of=True), checking.done(asking, of=False)]

    (loop,) = loops_of(rows, asking, checking, checking=[True, False])
    assert loop == "start; again and again: asking gives 'x' → checking gives False"


def test_members_with_a_person_inside_are_no_loop_and_others_are() -> None:
    person, other = wait(bool, name="person")(lambda t: "?"), execute(name="other")(a_number)
    for members, answers, count in [([asking, person], {person: [True]}, 0), ([asking, other], {other: [1]}, 1)]:
        both: Any = gather("both", *members)
        rows = [both.done(over, when=is_many), both.done(both)]
        flow = Flow("f", Trip, start=both, rows=rows)
        assert len(explore(flow, Trip(), {asking: ["x"], **answers}).loops) == count


def test_a_loop_inside_of_a_flow_inside_is_found() -> None:
    rows = [price.done(end("sold"), when=is_cheap), price.done(price)]
    inner = Flow("inner", str, start=price, rows=rows)
    (loop,) = explore(flow_of(subflow("nested", inner, first_city)), Trip(), {price: [3, 7]}).loops
    assert loop == "start; again and again: price gives 7"
    every = each("every", subflow("one", inner, str), cities)
    assert len(explore(flow_of(every), Trip(), {price: [3, 7]}).loops) == 2, "one for each city"


def test_a_cancellation_is_no_result_of_a_member() -> None:
    @wait(str)
    def said(city: str) -> str:
        return city

    inner = Flow("inner", str, start=said, rows=[said.done(end("heard"))])
    every = each("every", subflow("one", inner, str), cities)
    found = explore(flow_of(every), Trip(), {said: ["x"]})
    assert found.missed == ("every --failed--> lost",), "no member can fail by itself"
    assert found.rows["inner: said --cancelled--> Cancelled"] > 0


def test_a_guard_may_look_at_every_reason_of_a_failure() -> None:
    def was_refused(t: Trip, why: Failure) -> bool:
        return why.reason == Reason.REFUSED

    def was_wrong(t: Trip, why: Failure) -> bool:
        return why.reason == "wrong type"

    acting = execute(name="acting")(a_number)
    rows = [asking.done(acting), asking.failed(late, when=was_refused), acting.done(over)]
    rows += [acting.failed(lost, when=was_wrong)]
    assert explore(Flow("f", Trip, start=asking, rows=rows), Trip(), {asking: ["x"], acting: [1]}).missed == ()


def test_each_of_those_that_may_be_enough_comes_first() -> None:
    heard = set[tuple[Any, ...]]()

    def hears(state: str, trip: Trip) -> bool:
        heard.add(trip.found)
        return True

    def said(name: str) -> Any:
        return wait(str, name=name)(lambda t: "?")

    states = [said(name) for name in "abc"]
    two = gather("two", *states, enough=2)
    rows = [two.done(over, do=lambda t, given: replace(t, found=given)), two.failed(lost)]
    explore(Flow("f", Trip, start=two, rows=rows), Trip(), {state: [state.name] for state in states}, holds=hears)
    assert heard == {(), ("a", "b"), ("b", "c"), ("a", "c")}
