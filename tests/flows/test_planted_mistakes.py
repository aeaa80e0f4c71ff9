"""Where is each of 59 planted mistakes of a flow found: by types, when it is defined, by `explore`, at run, or nowhere?

Sixteen of them are in `tests/typing/planted_flows.py`, with what the type checkers say.
"""

from __future__ import annotations

import enum
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from support.paths import ROOT

from fsm_agent import Agent, Function
from fsm_agent.flows import (
    Failure,
    Flow,
    call,
    each,
    end,
    execute,
    gather,
    pause,
    race,
    subflow,
    wait,
)
from fsm_agent.lifecycle import Begun, Returned
from fsm_agent.testing import explore

sys.path.insert(0, str(ROOT / "tests" / "typing"))
import planted_flows

sys.path.pop(0)


@dataclass(frozen=True)
class Ticket:
    text: str = ""
    asked: int = 0


@dataclass(frozen=True)
class Approve:
    by: str


@dataclass(frozen=True)
class Reject:
    by: str
    reason: str = ""


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class NoMood(enum.Enum):
    pass


@dataclass
class Changing:
    text: str = ""


@dataclass(frozen=True)
class Listing:
    texts: list[str]


@dataclass(frozen=True)
class Box:
    item: Any = None


bot = Agent("openai:gpt-5-mini", name="bot")
counting = Agent("openai:gpt-5-mini", name="counting", output=int)
sent, over = end("sent"), end("over")
log: list[Any] = []
count = 0


@execute
def act(t: Ticket) -> int:
    return 1


@execute
def of_text(text: str) -> int:
    return len(text)


@wait(str)
def person(t: Ticket) -> str:
    return "?"


@wait(Approve, Reject)
def review(t: Ticket) -> str:
    return "?"


@call(bot)
def asking(t: Ticket) -> str:
    return f"{t.text}?"


def one(state: Any, **functions: Any) -> Any:
    """A flow of one state, with a row for what a guard refuses."""
    rows = [state.done(sent, **functions), *([state.done(over)] if "when" in functions else [])]
    return Flow("f", Ticket, start=state, rows=rows)


def walked(flow: Flow[Any], *answers: Any, data: Any = None) -> Any:
    """Explore a flow of one state, and say what is missed, or goes round."""
    found = explore(flow, data or Ticket(), {flow.start: answers or ("x",)})
    assert not found.missed, f"missed: {found.missed}"
    assert not found.loops, f"loops: {found.loops}"


def given(flow: Flow[Any], value: Any, data: Any = None) -> Any:
    run = flow.seed(data or Ticket())
    run.advance("begin", Begun(at_s=1.0))
    run.give(flow.start, value)
    return run


# Found when the flow is defined


def two_states_of_one_name() -> object:
    other = execute(name="act")(lambda_of_int)
    return Flow("f", Ticket, start=act, rows=[act.done(other), other.done(sent)])


def lambda_of_int(t: Ticket) -> int:
    return 2


def name_of_every_flow() -> object:
    return one(wait(str, name="Failed")(lambda t: "?"))


def data_that_change_in_place() -> object:
    return Flow("f", Changing, start=person, rows=[person.done(sent)])


def field_that_changes_in_place() -> object:
    state: Any = wait(str, name="p")(lambda t: "?")
    return Flow("f", Listing, start=state, rows=[state.done(sent)])


def types_of_equal_fields() -> object:
    @dataclass(frozen=True)
    class Other:
        by: str

    return one(wait(Approve, Other, name="p")(lambda t: "?"))


def enum_without_members() -> object:
    return one(wait(NoMood, name="p")(lambda t: "?"))


def member_of_an_enum_without_a_row() -> object:
    state: Any = wait(Mood, name="p")(lambda t: "?")
    return Flow("f", Ticket, start=state, rows=[state.done(sent, of=Mood.GOOD)])


def row_for_a_type_it_never_gives() -> object:
    return one(review, of=int)


def row_that_is_never_reached() -> object:
    return Flow("f", Ticket, start=person, rows=[person.done(sent), person.done(over)])


def guard_without_a_name() -> object:
    return one(person, when=lambda t, a: True)


def guard_that_awaits() -> object:
    async def is_late(t: Ticket, a: str) -> bool:
        return True

    return one(person, when=is_late)


def guard_that_returns_nothing() -> object:
    def is_late(t: Ticket, a: str) -> None: ...

    return one(person, when=is_late)


def action_that_returns_another_type() -> object:
    def keep(t: Ticket, a: str) -> int:
        return 5

    return one(person, do=keep)


def union_annotation() -> object:
    def keep(t: Ticket, a: str | bytes) -> Ticket:
        return t

    return one(act, do=keep)


def action_of_one_argument() -> object:
    return one(person, do=lambda t: t)


def question_that_returns_nothing() -> object:
    def question(t: Ticket) -> None: ...

    return one(wait(str, name="p")(question))


def items_that_the_member_does_not_take() -> object:
    def numbers(t: Ticket) -> tuple[int, ...]:
        return (1,)

    return one(each("every", of_text, numbers))


def start_of_other_data() -> object:
    def start(t: Ticket) -> int:
        return 1

    inner = Flow("inner", str, start=of_text, rows=[of_text.done(sent)])
    return one(subflow("nested", inner, start))


def function_once_with_a_time() -> object:
    return one(execute(name="pay", once=True, within_s=5)(lambda_of_int))


def function_once_in_a_race() -> object:
    return one(race("either", act, execute(name="pay", once=True)(lambda_of_int)))


def agent_with_a_function_once_in_a_race() -> object:
    def pay(amount: int) -> str:
        """Pay."""
        return ""

    payer = Agent("openai:gpt-5-mini", functions=[Function.of(pay, once=True)], name="payer")
    return one(race("either", asking, call(payer, name="paying")(lambda t: "?")))


def member_with_a_time_of_its_own() -> object:
    return one(gather("both", act, wait(str, name="p", within_s=5)(lambda t: "?")))


def two_members_of_one_name() -> object:
    return one(gather("both", act, execute(name="act")(lambda_of_int)))


def pause_without_a_row() -> object:
    nap = pause("nap", 5)
    return Flow("f", Ticket, start=person, rows=[person.done(nap)])


def agent_of_another_output() -> object:
    return one(call(counting, str, name="p")(lambda t: "?"))


# Found by explore


def guard_that_draws_lots() -> object:
    def is_lucky(t: Ticket, a: str) -> bool:
        return random.random() < 0.5

    return walked(one(person, when=is_lucky), *map(str, range(40)))


def guard_that_reads_a_clock() -> object:
    def is_even(t: Ticket, a: str) -> bool:
        return time.perf_counter_ns() // 100 % 2 == 0

    return walked(one(person, when=is_even), *map(str, range(60)))


def guard_that_changes_a_variable() -> object:
    def counts(t: Ticket, a: str) -> bool:
        global count
        count += 1
        return True

    return walked(one(person, when=counts))


def action_with_a_side_effect() -> object:
    def keep(t: Ticket, a: str) -> Ticket:
        log.append(a)
        return replace(t, text=a)

    return walked(one(person, do=keep))


def task_that_acts() -> object:
    def task(t: Ticket) -> str:
        log.append(t)
        return "?"

    return walked(one(call(bot, name="p")(task)))


def answer_that_is_never_given() -> object:
    def is_never(t: Ticket, a: str) -> bool:
        return a == "never"

    return walked(one(wait(Literal["yes", "no"], name="p")(lambda t: "?"), when=is_never), "yes", "no")


def reason_that_does_not_exist() -> object:
    def is_refused(t: Ticket, why: Failure) -> bool:
        return why.reason == "was refused"

    rows = [asking.done(sent), asking.failed(over, when=is_refused)]
    return walked(Flow("f", Ticket, start=asking, rows=rows))


def loop_without_progress() -> object:
    def is_good(t: Ticket, a: str) -> bool:
        return a == "good"

    return walked(
        Flow("f", Ticket, start=asking, rows=[asking.done(sent, when=is_good), asking.done(asking)]), "good", "x"
    )


def data_that_json_changes() -> object:
    state: Any = wait(str, name="p")(lambda t: "?")
    flow = Flow("f", Box, start=state, rows=[state.done(sent, do=lambda t, a: Box((1, 2)))])
    return walked(flow, data=Box())


def action_that_raises_for_some_data() -> object:
    return walked(one(person, do=lambda t, a: replace(t, text=a[1])), "xy", "x")


# Found at run


def value_of_another_type() -> object:
    return given(one(person, do=lambda t, a: replace(t, asked=a)), "x")


def not_a_number_in_an_int() -> object:
    return given(one(person, do=lambda t, a: replace(t, asked=float("nan"))), "x")


def refusal_that_could_be_an_approval() -> object:
    run = Flow("f", Ticket, start=review, rows=[review.done(sent, of=Approve), review.done(over)]).seed(Ticket())
    run.advance("begin", Begun(at_s=1.0))
    return run.advance("answer:review#1", Returned(text='{"by": "ann", "raeson": "no!"}'))


def upgrade_that_is_missing() -> object:
    before = Flow("f", Ticket, start=person, rows=[person.done(sent)]).seed(Ticket())
    before.advance("begin", Begun(at_s=1.0))
    again: Any = wait(str, name="person")(lambda d: "?")
    return Flow("f", Approve, start=again, rows=[again.done(sent)]).restore(before.snapshot())


# Found nowhere


def rows_that_are_swapped() -> object:
    rows = [review.done(sent, of=Reject), review.done(over, of=Approve)]
    walked(Flow("f", Ticket, start=review, rows=rows), Approve("ann"), Reject("ann"))
    return given(Flow("f", Ticket, start=review, rows=rows), Approve("ann"))


def action_that_writes_a_file() -> object:
    def keep(t: Ticket, a: str) -> Ticket:
        Path("/dev/null").write_text(a, "utf-8")
        return t

    walked(one(person, do=keep))
    return given(one(person, do=keep), "x")


def guard_that_reads_the_date() -> object:
    def is_this_century(t: Ticket, a: str) -> bool:
        return time.gmtime().tm_year < 2100

    rows = [person.done(sent, when=is_this_century), person.done(over)]
    explore(Flow("f", Ticket, start=person, rows=rows), Ticket(), {person: ["x"]})
    return given(one(person, when=is_this_century), "x")


def wrong_value_in_a_field_of_any_type() -> object:
    state: Any = wait(str, name="p")(lambda t: "?")
    flow = Flow("f", Box, start=state, rows=[state.done(sent, do=lambda t, a: Box("not what was meant"))])
    walked(flow, data=Box())
    return given(flow, "x", Box())


PLANTED: dict[str, list[tuple[Callable[[], object], str]]] = {
    "definition": [
        (two_states_of_one_name, "two states are called 'act'"),
        (name_of_every_flow, "a state is called 'Failed', which is every flow's own"),
        (data_that_change_in_place, "the data are 'Changing', which can be changed in place"),
        (field_that_changes_in_place, "the field Listing.texts of the data is a list, which can be changed in place"),
        (types_of_equal_fields, "gives Approve or Other, which JSON cannot tell apart"),
        (enum_without_members, "p gives NoMood, an enum without members"),
        (member_of_an_enum_without_a_row, "p has no row for 'done BAD'"),
        (row_for_a_type_it_never_gives, "never happens: review gives Approve, Reject"),
        (row_that_is_never_reached, "is never taken, since rows before it take all"),
        (guard_without_a_name, "the guard of the row person --done [<lambda>]--> sent has no name"),
        (guard_that_awaits, "is a coroutine function: a plain, pure one would be right"),
        (guard_that_returns_nothing, "is_late returns None, where True or False is expected"),
        (action_that_returns_another_type, "keep returns int, where the data of the flow is expected"),
        (union_annotation, "keep takes str | bytes, and its answer is int"),
        (action_of_one_argument, "<lambda> takes (t): (data, answer) would be right"),
        (question_that_returns_nothing, "question returns None, where a question is expected"),
        (items_that_the_member_does_not_take, "of_text takes str, and an item of every is int"),
        (start_of_other_data, "start returns int, where the data of the flow 'inner' is expected"),
        (function_once_with_a_time, "must not run twice and has within_s"),
        (function_once_in_a_race, "pay"),
        (agent_with_a_function_once_in_a_race, "pay"),
        (member_with_a_time_of_its_own, "the member p has a time of its own"),
        (two_members_of_one_name, "both has several members called 'act'"),
        (pause_without_a_row, "nap has no row for 'elapsed'"),
        (agent_of_another_output, "p must give str, and its agent gives int"),
    ],
    "explore": [
        (guard_that_draws_lots, "is_lucky is not pure: it returns"),
        (guard_that_reads_a_clock, "is_even is not pure: it returns"),
        (guard_that_changes_a_variable, "counts is not pure: it changes count"),
        (action_with_a_side_effect, "keep is not pure: it changes log"),
        (task_that_acts, "the task of p: task is not pure: it changes log"),
        (answer_that_is_never_given, "missed: ('p --done [is_never]--> sent',)"),
        (reason_that_does_not_exist, "missed: ('asking --failed [is_refused]--> over',)"),
        (loop_without_progress, "loops: (\"start; again and again: asking gives 'x'\",)"),
        (data_that_json_changes, "which comes back from JSON as"),
        (action_that_raises_for_some_data, "start → person gives 'x': IndexError"),
    ],
    "run": [
        (value_of_another_type, "returned 'x' in Ticket.asked: int would be right"),
        (not_a_number_in_an_int, "returned nan in Ticket.asked"),
        (refusal_that_could_be_an_approval, "JSON of Approve | Reject would be right"),
        (
            upgrade_that_is_missing,
            "if it is new, reshaped(add={'by': …}), or rename=…, among its upgrades would be right",
        ),
    ],
    "nowhere": [],
}
UNDETECTABLE = [
    rows_that_are_swapped,
    action_that_writes_a_file,
    guard_that_reads_the_date,
    wrong_value_in_a_field_of_any_type,
]
CASES = [(where, make, problem) for where, planted in PLANTED.items() for make, problem in planted]


@pytest.mark.parametrize(("where", "make", "problem"), CASES, ids=lambda case: getattr(case, "__name__", None))
def test_a_mistake_is_found_where_it_is_said(where: str, make: Callable[[], object], problem: str) -> None:
    with pytest.raises(Exception) as error:  # noqa: PT011  # of many kinds
        make()
    assert problem in str(error.value)
    kind = type(error.value).__name__
    assert kind in {"definition": ("FlowError",), "explore": ("AssertionError",)}.get(
        where, ("FlowError", "OutcomeError", "SnapshotError")
    )


@pytest.mark.parametrize("make", UNDETECTABLE)
def test_what_nothing_can_find_is_named_in_the_docs(make: Callable[[], object]) -> None:
    assert make() is not None
    told = " ".join((ROOT / "docs" / "testing.md").read_text("utf-8").split())
    words = {
        rows_that_are_swapped: "rows that are swapped",
        action_that_writes_a_file: "an action that writes a file",
        guard_that_reads_the_date: "a guard that reads the date",
        wrong_value_in_a_field_of_any_type: "a wrong value in a field of type `Any`",
    }
    assert words[make] in told


def test_fifty_nine_are_planted_and_at_most_four_stay_silent() -> None:
    of_types = ["definition" if "definition" in finders else "types" for _, finders, _ in planted_flows.MISTAKES]
    places = Counter([*of_types, *[where for where, _, _ in CASES], *["nowhere"] * len(UNDETECTABLE)])
    assert sum(places.values()) == 59
    assert places == {"types": 4, "definition": 37, "explore": 10, "run": 4, "nowhere": 4}, "as docs/testing.md says"
