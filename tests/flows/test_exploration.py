"""Does the model checker find the mistakes in a flow, and say how to get there?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from flow_runs import s

from fsm_agent.errors import UsageError
from fsm_agent.flows import Flow, end, execute, wait
from fsm_agent.testing import explore

ANSWERS: dict[Any, Any] = {
    s.triage: [s.Sorted("billing"), s.Sorted("ad", is_spam=True)],
    s.research: [s.Known(("paid twice",)), s.Unclear("Which order?")],
    s.customer: ["order 17"],
    s.drafting: [(s.Draft("a"), s.Draft("b"))],
    s.judging: [s.Choice(0), s.Choice(1), s.Choice(7)],
    s.review: [s.Approve("ann"), s.Change("shorter")],
    s.sending: ["sent"],
}


def test_every_way_of_the_support_flow() -> None:
    found = explore(s.support, s.Ticket("x://y"), ANSWERS, holds=lambda state, t: t.changes <= 2 and t.asked <= 3)
    assert found.is_whole
    assert found.missed == ()
    assert set(found.ends) == {"sent", "closed", "dropped", "rejected", "Failed", "Cancelled"}
    assert found.configurations > 50


def test_a_row_for_all_other_answers_misses_none_that_a_row_above_takes() -> None:
    @wait(bool)
    def again(n: int) -> str:
        return "Again?"

    flow = Flow("again", int, start=again, rows=[again.done(end("over"), of=False), again.done(end("once_more"))])
    assert explore(flow, 0, {again: [True, False]}).missed == ()


def test_the_way_to_what_does_not_hold() -> None:
    def is_unchanged(state: str, t: Any) -> bool:
        return bool(t.changes == 0)

    with pytest.raises(AssertionError) as found:
        explore(s.support, s.Ticket("x"), ANSWERS, holds=is_unchanged)
    way = str(found.value)
    assert "is_unchanged is false in drafting" in way
    assert way.index("triage gives") < way.index("drafting gives") < way.index("review gives Change(wish='shorter')")
    assert way.count("→") == 5, "the shortest"


def test_a_coroutine_function_holds_nothing() -> None:
    """What it returns is never false."""

    async def never(state: str, data: Any) -> bool:
        return False

    with pytest.raises(UsageError, match="holds"):
        explore(s.support, s.Ticket("x"), {}, holds=never)  # type: ignore[arg-type]


def test_data_that_json_changes_are_found() -> None:
    @execute
    def step(d: Box) -> int:
        return 1

    flow = Flow("f", Box, start=step, rows=[step.done(end("over"), do=lambda d, a: Box((1, 2)))])
    with pytest.raises(AssertionError, match="Box"):
        explore(flow, Box(), {step: [1]})


def test_data_without_bound_are_reported_as_not_whole() -> None:
    @wait(bool)
    def more(n: int) -> str:
        return "?"

    flow = Flow(
        "f", int, start=more, rows=[more.done(more, of=True, do=lambda n, a: n + 1), more.done(end("over"), of=False)]
    )
    found = explore(flow, 0, {more: [True, False]}, limit=100)
    assert not found.is_whole


@dataclass(frozen=True)
class Box:
    item: Any = None
