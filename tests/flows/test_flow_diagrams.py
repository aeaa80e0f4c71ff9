"""Do the pictures show what the table says, and what a run has done?"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

import pytest
from flow_runs import by_run, s, scripts

from fsm_agent.diagrams import render
from fsm_agent.errors import UsageError
from fsm_agent.flows import Flow, any_state, ask, each, end, execute, flow_diagram, run_diagram, subflow, wait
from fsm_agent.testing import FakeClock

over = end("over")


class Move(Enum):
    NORTH = "north"
    SOUTH = "south"
    WEST = "west"


def is_new(n: int) -> bool:
    return n == 0


def waiting() -> Any:
    flow = replace(s.support, environment={"clock": FakeClock(), "new_id": lambda: "r1"})
    run = flow.prepare(s.Ticket("x"), clients=scripts())
    by_run(flow, run)
    run.give(s.customer, "17")
    by_run(flow, run)
    run.give(s.review, s.Change("shorter"))
    return run


def test_all_rows_of_the_user_are_drawn() -> None:
    drawn = flow_diagram(s.support)
    assert [node.label for node in drawn.nodes if node.is_start] == ["triage"]
    assert {n.label for n in drawn.nodes if n.is_final} == {"sent", "closed", "dropped", "rejected"}
    lines = {(edge.source, edge.target): edge.lines for edge in drawn.edges}
    assert lines["judging", "review"] == ("done [is_there]", "done [else]", "failed")
    assert lines["research", "drafting"] == ("done Unclear [else]", "done Known [else]", "failed")
    assert [(box.id, box.label) for box in drawn.boxes] == [("drafting", "drafting: at once")]
    assert lines["triage", "dropped"] == ("[is_spam]",), "triage has no way but by its result"
    assert "Failed" not in {edge.target for edge in drawn.edges}


def test_a_row_for_all_other_answers_is_drawn_for_these_alone() -> None:
    @wait(Move)
    def hall(n: int) -> str:
        return "Where to?"

    rows = [hall.done(end("out"), of=Move.NORTH), hall.done(hall, when=is_new, of=Move.SOUTH), hall.done(hall)]
    edges = flow_diagram(Flow("walk", int, start=hall, rows=rows)).edges
    lines = {(edge.source, edge.target): edge.lines for edge in edges}
    assert lines["hall", "out"] == ("NORTH",)
    assert lines["hall", "hall"] == ("SOUTH [is_new]", "SOUTH [else]", "WEST")


def test_a_run_is_drawn_on_it() -> None:
    drawn = run_diagram(waiting())
    nodes = {node.id: node for node in drawn.nodes}
    assert nodes["research"].visits == 2
    assert nodes["sending"].visits == 0
    assert {state.id for state in drawn.nodes if state.is_current} == {
        "drafting",
        "drafting/draft_warmly",
        "drafting/draft_tersely",
    }
    steps = {(edge.source, edge.target): edge.lines for edge in drawn.edges if edge.times}
    assert steps["triage", "research"] == ("2 done",)
    assert steps["review", "drafting"] == ("8 done Change [may_change]",)
    taken = {(edge.source, edge.target): edge.times for edge in drawn.edges}
    assert taken["review", "drafting"] == 1
    assert taken["review", "sending"] == 0
    assert drawn.caption == ("waits in drafting after 8 states",)


def test_flows_inside_are_boxes_in_all_formats() -> None:
    asking = ask(s.judge, name="asking")(lambda n: "?")
    inner = Flow("inner", int, start=asking, rows=[asking.done(over)])
    nested = subflow("nested", inner, lambda n: n)
    all_of_them = each("all_of_them", nested, lambda n: range(n), parallel=4)
    outer = Flow('a "hostile" <b>name</b> |', int, start=all_of_them, rows=[all_of_them.done(end("finished"))])
    drawn = flow_diagram(outer)
    assert [(box.label, box.box) for box in drawn.boxes] == [
        ("all_of_them: for each item, 4 at once", ""),
        ("nested: flow inner", "all_of_them"),
    ]
    mermaid, dot = render(drawn, "mermaid"), render(drawn, "dot")
    assert mermaid.count("subgraph") == mermaid.count("\n    end") + mermaid.count("\n        end") == 2
    assert dot.count("subgraph cluster_") == 2
    assert "<b>" not in mermaid


def test_a_state_with_others_inside_is_their_box() -> None:
    asking = ask(s.judge, name="asking")(lambda n: "?")
    inner = Flow("inner", int, start=asking, rows=[asking.done(over)])
    first, again = subflow("first", inner, lambda n: n), subflow("again", inner, lambda n: n)
    finished = end("finished")
    rows = [first.done(again), again.done(finished, when=is_third), again.done(again)]
    drawn = flow_diagram(Flow("outer", int, start=first, rows=rows))
    assert [(box.id, box.is_start) for box in drawn.boxes] == [("first", True), ("again", False)]
    assert [node.label for node in drawn.nodes if node.box == "again"] == ["as in first"], "not drawn twice"
    assert {(edge.source, edge.target): edge.lines for edge in drawn.edges} == {
        ("first/asking", "first/over"): (),
        ("first", "again"): (),
        ("again", "finished"): ("[is_third]",),
        ("again", "again"): ("[else]",),
    }
    dot, mermaid = render(drawn, "dot"), render(drawn, "mermaid")
    assert "ltail=cluster_box0 lhead=cluster_box1" in dot or "lhead=cluster_box1 ltail=cluster_box0" in dot
    assert "box0 --> box1" in mermaid
    for text in (dot, mermaid):
        assert text.count("\u21bb") == 1, "the way from a box to itself is in its title"
        assert "over" not in text, "an end inside is no end of the whole: it is a dot"


def test_a_row_that_all_states_share_is_one_arrow() -> None:
    steps = [execute(name=name)(_same) for name in ("a", "b", "c")]
    rows = [step.done(after) for step, after in zip(steps, [*steps[1:], over], strict=True)]
    undone = end("undone", failed=True)
    shared = flow_diagram(Flow("undo", int, start=steps[0], rows=[*rows, *any_state(*steps).cancelled(undone)]))
    (edge,) = [edge for edge in shared.edges if edge.target == "undone"]
    assert edge.lines == ("cancelled",)
    assert [node.label for node in shared.nodes if node.id == edge.source] == ["any state"]
    some = flow_diagram(Flow("undo", int, start=steps[0], rows=[*rows, *any_state(*steps[1:]).cancelled(undone)]))
    assert [edge.source for edge in some.edges if edge.target == "undone"] == ["b", "c"]


def test_a_large_flow_is_an_overview_unless_another_level_is_asked_for() -> None:
    flow = _chain(30)
    overview, rows = flow_diagram(flow), flow_diagram(flow, level="rows")
    assert not [edge for edge in overview.edges if edge.lines]
    assert ("s3", "s0") in {(edge.source, edge.target) for edge in overview.edges}
    assert {("[is_third]",), ("[else]",)} <= {edge.lines for edge in rows.edges}
    with pytest.raises(UsageError, match="'all'"):
        flow_diagram(flow, level="all")  # type: ignore[arg-type]


def _chain(size: int) -> Any:
    """Return a flow whose states lead to the next, and each third to the start."""
    states = [execute(name=f"s{n}")(_same) for n in range(size)]
    rows = [state.done(states[0], when=is_third, do=kept) for state in states[::3]]
    rows += [state.done(after) for state, after in zip(states, [*states[1:], over], strict=True)]
    return Flow("chain", int, start=states[0], rows=rows)


def _same(n: int) -> int:
    return n


def is_third(n: int, answer: int) -> bool:
    return n % 3 == 0


def kept(n: int, answer: int) -> int:
    return answer


def test_a_wrong_depth_is_named() -> None:
    with pytest.raises(UsageError, match="depth"):
        flow_diagram(_chain(3), depth=-1)


# Flows inside


def _nested() -> Any:
    inner = _chain(3)
    middle = subflow("middle", inner, _same)
    nested = Flow("nested", int, start=middle, rows=[middle.done(over)])
    outer = subflow("outer", nested, _same)
    return Flow("around", int, start=outer, rows=[outer.done(over)])


@pytest.mark.parametrize(
    ("depth", "boxes", "folded"),
    [
        (0, [], ("flow nested, 1 state not drawn",)),
        (1, ["outer: flow nested"], ("flow chain, 3 states not drawn",)),
        (2, ["outer: flow nested", "middle: flow chain"], ()),
        (None, ["outer: flow nested", "middle: flow chain"], ()),
    ],
)
def test_flows_inside_fold(depth: int | None, boxes: list[str], folded: tuple[str, ...]) -> None:
    drawn = flow_diagram(_nested(), depth=depth)
    assert [box.label for box in drawn.boxes] == boxes
    assert tuple([line for node in drawn.nodes for line in node.note if "not drawn" in line]) == folded
    assert len([node for node in drawn.nodes if node.is_final]) == len(boxes) + 1
