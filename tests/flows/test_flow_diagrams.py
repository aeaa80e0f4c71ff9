"""Do the pictures show what the table says, and what a run has done?"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

from flow_runs import by_run, s, scripts
from support.paths import ROOT

from fsm_agent.diagrams import render
from fsm_agent.flows import Flow, call, each, end, flow_diagram, run_diagram, subflow
from fsm_agent.testing import FakeClock

over = end("over")


def waiting() -> Any:
    flow = replace(s.support, world={"clock": FakeClock(), "new_id": lambda: "r1"})
    run = flow.seed(s.Ticket("x"), clients=scripts())
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
    assert [box.label for box in drawn.boxes] == ["at once"]
    everything = flow_diagram(s.support, shows_defaults=True)
    assert ("triage", "Failed") in {(edge.source, edge.target) for edge in everything.edges}


def test_a_run_is_drawn_on_it() -> None:
    drawn = run_diagram(waiting())
    nodes = {node.id: node for node in drawn.nodes}
    assert nodes["research"].visits == 2
    assert nodes["sending"].visits == 0
    assert {node.id for node in drawn.nodes if node.is_current} == {
        "drafting",
        "drafting/draft_warmly",
        "drafting/draft_tersely",
    }
    taken = {(edge.source, edge.target): edge.times for edge in drawn.edges}
    assert taken["review", "drafting"] == 1
    assert taken["review", "sending"] == 0
    assert drawn.caption == ("waits in drafting after 8 states",)


def test_flows_inside_are_boxes_in_all_formats() -> None:
    ask = call(s.judge, name="ask")(lambda n: "?")
    inner = Flow("inner", int, start=ask, rows=[ask.done(over)])
    nested = subflow("nested", inner, lambda n: n)
    all_of_them = each("all_of_them", nested, lambda n: range(n), parallel=4)
    outer = Flow('a "hostile" <b>name</b> |', int, start=all_of_them, rows=[all_of_them.done(end("finished"))])
    drawn = flow_diagram(outer)
    assert [(box.label, box.box) for box in drawn.boxes] == [
        ("for each item, 4 at once", ""),
        ("flow inner", "box all_of_them"),
    ]
    mermaid, dot = render(drawn, "mermaid"), render(drawn, "dot")
    assert mermaid.count("subgraph") == mermaid.count("\n    end") + mermaid.count("\n        end") == 2
    assert dot.count("subgraph cluster_") == 2
    assert "<b>" not in mermaid
    if shutil.which("dot"):
        assert "<svg" in render(drawn, "svg")


def test_the_committed_picture_is_what_the_table_draws() -> None:
    """``write(flow_diagram(support), "diagrams/support_flow.mmd")`` writes it, and ``.svg``, which the page shows."""
    assert (ROOT / "diagrams" / "support_flow.mmd").read_text() == render(flow_diagram(s.support), "mermaid")
    svg = (ROOT / "diagrams" / "support_flow.svg").read_text()
    assert all(f">{name}<" in svg for name in s.support.states if name not in ("Failed", "Cancelled"))
