"""Do the diagrams show the table, and nothing that was injected?

After a change of `ROWS`, draw the committed pictures again, with `dot` installed:
``python -c "from fsm_agent.diagrams.machine_diagrams import write_call_diagram; write_call_diagram('diagrams')"``

The Mermaid and DOT texts have to be equal to the byte.  The coordinates of an SVG differ between versions of `dot`, so
only the states, edges, labels and dashes of the committed SVG are compared, which needs no `dot`.
"""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_picture import run_picture
from support.agent_calls import seeded
from support.examples import examples
from support.paths import ROOT
from support.programs import needs_dot

from fsm_agent.call import ROWS, AgentCall, Begun, Cancelled, Expired, Limits, ModelFailed, Replied, Slept, State
from fsm_agent.diagrams import Diagram, Edge, Node, call_diagram, render, trace_diagram, write, write_call_diagram
from fsm_agent.errors import ConfigError, ErrorReport, UsageError
from fsm_agent.messages import Reply, Stepped, Usage
from fsm_agent.testing import function_call

COMMITTED = ROOT / "diagrams"
SVG = "{http://www.w3.org/2000/svg}"

HOSTILE = (
    'say "JSON"]; end',
    "a --> b -.-> c",
    "<script>alert(1)</script>",
    '"];',
    "</title></svg><!--",
    "back\\slash \\N \\G \\l \\",
    'quoted \\" \\\\" \\\\\\"',
    "%%{init: {'theme': 'x'}}%%",
    "%% comment",
    "# #quot; #35; &lt; &foo; & &#60;",
    "line\nfeed\r\n---\ntitle: x\n---\n",
    "style a:b#60; classDef c fill:#fff;",
    "$$x$$ $$\\frac12$$ `code` **bold** [l](javascript:alert(1))",
    "| || ((( }}} {{{ >>> @{ shape: x }",
    "<b>bold</b>",
    "ünï 漢字 😀 ﬂ°°60¶ß",
    "\x00\x1b[31m\u202e\u2028\ud800\ufffe",
    "\n\n  \t",
    "",
)


def sources(row) -> tuple[State, ...]:
    return row[1] if isinstance(row[1], tuple) else (row[1],)


def edges(diagram: Diagram) -> dict[tuple[str, str], Edge]:
    return {(edge.source, edge.target): edge for edge in diagram.edges}


def nodes(diagram: Diagram) -> dict[str, Node]:
    return {node.id: node for node in diagram.nodes}


def drawn(svg: str) -> tuple[dict[str, tuple[str, int]], dict[tuple[str, str], tuple[str, bool]], str]:
    """Return the parts of an SVG: the nodes' texts and numbers of borders, the edges' texts and dashes, and the text
    above.
    """
    root = ElementTree.fromstring(svg)
    found_nodes, found_edges = {}, {}
    for group in root.iter(f"{SVG}g"):
        texts = " ".join(" ".join((text.text or "").split()) for text in group.findall(f"{SVG}text"))
        name = group.findtext(f"{SVG}title") or ""
        paths = [child for child in group if child.tag in (f"{SVG}path", f"{SVG}ellipse", f"{SVG}polygon")]
        if group.get("class") == "node" and not name.startswith("start_"):
            found_nodes[name] = texts, len(paths)
        elif group.get("class") == "edge" and not name.startswith("start_"):
            source, _, target = re.sub(r":\w+", "", name).partition("->")
            found_edges[source, target] = texts, any(path.get("stroke-dasharray") for path in paths)
    above = " ".join(text.text or "" for text in root.findall(f"{SVG}g/{SVG}text"))
    return found_nodes, found_edges, above


def wanted(diagram: Diagram) -> tuple[dict[str, tuple[str, int]], dict[tuple[str, str], tuple[str, bool]], str]:
    """What `drawn` should find."""
    names = {node.id: node.id if node.id.isidentifier() else f"n{i}" for i, node in enumerate(diagram.nodes)}
    return (
        {names[node.id]: (" ".join([node.label, *node.note]), 2 if node.is_final else 1) for node in diagram.nodes},
        {(names[a], names[b]): (" ".join(edge.lines), edge.is_dashed) for (a, b), edge in edges(diagram).items()},
        " ".join([diagram.title, *diagram.caption]),
    )


def test_the_committed_diagrams_show_the_table():
    """See the head of this file."""
    drawing = call_diagram()
    for name, format in (("mmd", "mermaid"), ("dot", "dot")):
        assert (COMMITTED / f"agent_call.{name}").read_text("utf-8") == render(drawing, format)
    assert drawn((COMMITTED / "agent_call.svg").read_text("utf-8")) == wanted(drawing)


def test_the_committed_picture_of_a_run_is_what_the_code_draws():
    picture = (COMMITTED / "a_run.svg").read_text("utf-8")
    assert drawn(picture) == wanted(run_picture()), "PYTHONPATH=tests python tools/run_picture.py draws it"


def whole(rows=ROWS) -> Diagram:
    """The diagram with every row."""
    return call_diagram(rows, level="rows")


def changed_guard():
    return [(*row[:3], None, row[4]) if getattr(row[3], "__name__", "") == "may_retry" else row for row in ROWS]


def changed_target():
    return [(*row[:2], State.COMPLETED, *row[3:]) if row[0] == "refused" else row for row in ROWS]


def changed_trigger():
    return [("declined", *row[1:]) if row[0] == "refused" else row for row in ROWS]


def fewer_sources():
    return [(row[0], sources(row)[1:], *row[2:]) if row[0] == "expired" else row for row in ROWS]


def one_more_stay():
    return [*ROWS, ("poked", State.BACKOFF, None, None, ROWS[0][4])]


def test_a_change_of_a_row_is_seen_in_each_drawing():
    for change in (changed_guard, changed_target, changed_trigger, fewer_sources, one_more_stay):
        changed = whole(change())
        assert wanted(changed) != wanted(whole())
        for format in ("mermaid", "dot"):
            assert render(changed, format) != render(whole(), format)


def test_every_row_is_on_its_edges():
    shown = edges(whole())
    for row in ROWS:
        trigger, _, to, guard, _ = row
        for source in sources(row):
            lines = shown[source, to or source].lines
            possible = {f"{trigger} [{guard.__name__}]"} if guard else {trigger, f"{trigger} [else]"}
            assert possible & set(lines), f"{trigger} from {source}"
    assert sum(len(edge.lines) for edge in shown.values()) == sum(len(sources(row)) for row in ROWS)


def test_every_state_trigger_and_guard_is_in_the_text():
    for format in ("mermaid", "dot"):
        words = set(re.findall(r"\w+", render(whole(), format)))
        guards = {row[3].__name__ for row in ROWS if row[3]}
        assert words >= {str(state) for state in State} | {row[0] for row in ROWS} | guards


def test_one_start_two_ends_and_a_branch_in_their_own_colors():
    shown = nodes(whole())
    assert list(shown) == [str(state) for state in State]
    assert {name for name, node in shown.items() if node.is_start} == {"Seeded"}
    assert {name for name, node in shown.items() if node.is_final} == {"Completed", "Failed"}
    tones = Counter(node.tone for node in shown.values())
    assert (shown["Completed"].tone, shown["Failed"].tone, shown["ParseException"].tone) == (
        "success",
        "failure",
        "branch",
    )
    assert tones == {"plain": 6, "success": 1, "failure": 1, "branch": 1}


def test_an_overview_shows_the_usual_ways_and_one_arrow_to_each_end_that_most_states_share():
    drawing = call_diagram()
    shown = {(drawing_label(drawing, edge.source), edge.target): edge.lines for edge in drawing.edges}
    assert shown["any state", "Failed"][:2] == ("expired", "cancelled")
    assert shown["any state", "Completed"] == ("stopped",)
    assert {source for source, to in shown if to == "Failed"} == {"any state"}
    assert shown["Calling", "Completed"] == ("answered",), "what a limit does is left out"
    assert shown["Calling", "ToolInterrupt"] == ("functions_asked",)
    assert shown["ParseException", "Completed"] == ("answered",)
    assert [to for source, to in shown if source == "ParseException"] == ["Completed"], "the rest is as Calling"
    assert {(source, to) for source, to in shown if source != "any state"} <= set(edges(whole())), "no way is made up"
    assert not [source for source, to in shown if source == to]
    assert not [line for lines in shown.values() for line in lines if "[" in line]


def drawing_label(drawing: Diagram, id: str) -> str:
    return nodes(drawing)[id].label


def test_what_the_exception_branch_does_is_what_calling_does():
    """So an overview may say it once."""
    of = {
        state: {(row[0], row[2]) for row in ROWS if state in sources(row) and row[2] in (None, State.TOOL_INTERRUPT)}
        for state in (State.CALLING, State.PARSE_EXCEPTION)
    }
    assert of[State.PARSE_EXCEPTION] <= of[State.CALLING]


def test_an_unknown_level_is_named():
    with pytest.raises(UsageError, match="'all'"):
        call_diagram(level="all")


def asking_again() -> AgentCall:
    """A call in the exception branch."""
    call = seeded(Limits(rounds=1, parse_retries=2, recalls=1))
    call.advance("begin", Begun(at_s=0.0))
    say(call, function_call("unknown"))
    say(call, "no number")
    assert call.state is State.PARSE_EXCEPTION
    return call


def say(call: AgentCall, *content) -> None:
    call.advance(call.effects[0].key, Replied(reply=Reply.of(*content)))


def fail(call: AgentCall, *, retryable: bool) -> None:
    call.advance(call.effects[0].key, ModelFailed(error=ErrorReport(message="busy", retryable=retryable)))


def recall(call: AgentCall) -> None:
    fail(call, retryable=True)
    call.advance(call.effects[0].key, Slept())


def give_up(call: AgentCall) -> None:
    say(call, "nor this")
    say(call, "nor that")


STEPS = {
    "answered": lambda call: say(call, "42"),
    "stopped": lambda call: say(call, "enough"),
    "asks once more": lambda call: say(call, "nor this"),
    "gives up": give_up,
    "after final": lambda call: say(call, function_call("tick")),
    "recalled": recall,
    "broken": lambda call: fail(call, retryable=False),
    "expired": lambda call: call.advance("", Expired()),
    "cancelled": lambda call: call.advance("", Cancelled()),
}


def test_dashed_is_what_never_gets_into_the_dialog():
    assert edges(whole())["Calling", "ParseException"].is_dashed
    for step in STEPS.values():
        call = asking_again()
        before, steps = len(call.record.dialog), len(call.record.trace)
        step(call)
        taken = [edges(whole())[s.source, s.to] for s in call.record.trace[steps:]]
        has_grown = len(call.record.dialog) > before
        assert [edge.is_dashed for edge in taken] == [not has_grown] * len(taken)


def run() -> list[Stepped]:
    """A recall, two rounds (two functions, then one), a parse error, an answer."""
    first, second = Usage(input_tokens=1000, output_tokens=20), Usage(input_tokens=1100, output_tokens=30)
    steps = (
        ("Seeded", "begun", "Calling", 100.0, "", None),
        ("Calling", "model_failed", "Backoff", 100.5, "may_recall", None),
        ("Backoff", "slept", "Calling", 102.5, "", None),
        ("Calling", "functions_asked", "ToolInterrupt", 103.5, "opens_round", first),
        ("ToolInterrupt", "returned", "ToolInterrupt", 104.0, "others_pending", None),
        ("ToolInterrupt", "returned", "Calling", 104.25, "", None),
        ("Calling", "functions_asked", "ToolInterrupt", 105.25, "opens_round", second),
        ("ToolInterrupt", "returned", "Calling", 170.25, "", None),
        ("Calling", "parse_failed", "ParseException", 171.25, "may_retry", Usage(input_tokens=1200, output_tokens=5)),
        ("ParseException", "answered", "Completed", 171.65, "", Usage(input_tokens=1300)),
    )
    return [Stepped(s, t, to, "", at, guard, "", usage) for s, t, to, at, guard, usage in steps]


def test_a_run_counts_visits_times_and_tokens():
    diagram = trace_diagram(run())
    assert {node.label: (node.visits, node.note) for node in diagram.nodes} == {
        "any state": (0, ()),
        "Seeded": (1, ("1 visit",)),
        "Calling": (4, ("4 visits", "3.5 s", "3,300 + 55 tokens")),
        "ParseException": (1, ("1 visit", "400 ms", "1,300 + 0 tokens")),
        "Backoff": (1, ("1 visit", "2.0 s")),
        "ToolInterrupt": (2, ("2 visits", "1 min 6 s")),
        "Checking": (0, ()),
        "HandedOver": (0, ()),
        "Completed": (1, ("1 visit",)),
        "Failed": (0, ()),
    }
    taken = {ends: (edge.times, edge.lines) for ends, edge in edges(diagram).items() if edge.times}
    assert taken == {
        ("Seeded", "Calling"): (1, ("1 begun",)),
        ("Calling", "Backoff"): (1, ("2 model_failed",)),
        ("Backoff", "Calling"): (1, ("3 slept",)),
        ("Calling", "ToolInterrupt"): (2, ("4, 7 functions_asked",)),
        ("ToolInterrupt", "ToolInterrupt"): (1, ("5 returned",)),
        ("ToolInterrupt", "Calling"): (2, ("6, 8 returned",)),
        ("Calling", "ParseException"): (1, ("9 parse_failed",)),
        ("ParseException", "Completed"): (1, ("10 answered",)),
    }
    assert diagram.caption == ("ended in Completed after 10 steps, 1 min 12 s, 4,655 tokens",)


def test_an_arrow_that_was_taken_often_counts_its_steps():
    (edge,) = [edge for edge in trace_diagram([*run()[:1], *run()[4:5] * 9]).edges if edge.source == edge.target]
    assert (edge.times, edge.lines) == (9, ("2, 3, 4, 5 … (×9) returned",))  # noqa: RUF001


def test_a_new_request_in_the_same_state_is_another_visit():
    again = Stepped("ParseException", "parse_failed", "ParseException", "", 172.0, "may_retry")
    diagram = trace_diagram([*run()[:-1], again])
    assert nodes(diagram)["ParseException"].visits == 2
    assert edges(diagram)["ParseException", "ParseException"].times == 1


def test_the_path_is_vivid_and_the_rest_gray():
    whole, path = trace_diagram(run()), {(step.source, step.to) for step in run()}
    assert {node.label for node in whole.nodes} == {*map(str, State), "any state"}
    assert set(edges(whole)) == {*edges(call_diagram()), *path}
    assert not any(edge.lines for edge in whole.edges if not edge.times)
    dot = render(whole, "dot")
    (any_state,) = re.findall(r"(\w+) \[label=\"any state", dot)
    assert any_state in re.findall(r"^\s+(\w+) \[.*dashed", dot, re.M)
    dot = re.sub(rf"^.*\b{any_state}\b.*\n", "", dot, flags=re.M)
    gray = set(re.findall(r"^\s+(\w+) -> (\w+) \[color=\"#AFB8C1\"", dot, re.M))
    bold = set(re.findall(r"^\s+(\w+) -> (\w+) \[.*penwidth=2.5", dot, re.M))
    assert gray == {arrow for arrow in {*edges(whole)} - path if nodes(whole)[arrow[0]].label != "any state"}
    assert bold == path
    assert re.findall(r"^\s+(\w+) \[.*color=\"#AFB8C1\"", dot, re.M) == ["Checking", "HandedOver", "Failed"]
    mermaid = render(whole, "mermaid")
    assert re.findall(r"style (\w+) .*stroke:#AFB8C1", mermaid) == ["Checking", "HandedOver", "Failed", any_state]
    numbers = [set(found.split(",")) for found in re.findall(r"linkStyle (\S+) .*stroke-width:3px", mermaid)]
    arrows = re.findall(r"^ +(\w+) -\S*>\S* ?.*?(\w+)$", mermaid, re.M)
    assert {arrows[int(number)] for number in set.union(*numbers)} == path


@pytest.mark.parametrize("to", [State.COMPLETED, State.FAILED])
def test_where_a_run_ended_has_a_thick_border(to):
    step = Stepped("Calling", "answered" if to is State.COMPLETED else "refused", to, "", 1.0)
    diagram = trace_diagram([step])
    assert [node.id for node in diagram.nodes if node.is_current] == [to]
    assert re.findall(r"^\s+(\w+) \[.*penwidth=3", render(diagram, "dot"), re.M) == [to]
    assert re.findall(r"style (\w+) .*stroke-width:4px", render(diagram, "mermaid")) == [to]


def test_a_failed_run_says_why():
    step = Stepped("Calling", "parse_failed", "Failed", "model:3", 1.0, detail="word " * 200)
    first, *why = trace_diagram([step]).caption
    assert first == "ended in Failed after 1 step, 0 ms, 0 tokens"
    assert why[0].startswith("parse_failed: word word")
    assert len(" ".join(why)) <= 240
    assert why[-1].endswith("…")
    assert max(map(len, why)) <= 70
    unbroken = trace_diagram([step.changed(detail="x" * 10_000_000)]).caption
    assert 230 < len("".join(unbroken[1:])) <= 240


def test_a_run_that_waits_says_where():
    assert trace_diagram(run()[:5]).caption == ("waits in ToolInterrupt after 5 steps, 4.0 s, 1,020 tokens",)
    assert trace_diagram([]).caption == ("waits in Seeded after 0 steps, 0 ms, 0 tokens",)
    assert [node.id for node in trace_diagram([]).nodes if node.visits] == ["Seeded"]


def test_several_runs_add_up_without_the_time_between():
    once, twice = trace_diagram(run()), trace_diagram([*run(), *[s.changed(at_s=s.at_s + 1000) for s in run()]])
    assert nodes(twice)["Seeded"].note == ("2 visits",)
    assert nodes(twice)["Completed"].note == ("2 visits",)
    assert nodes(twice)["Calling"].note == ("8 visits", "7.0 s", "6,600 + 110 tokens")
    assert twice.caption == ("ended in Completed after 20 steps, 2 min 23 s, 9,310 tokens",)
    assert [edge.times for edge in twice.edges] == [2 * edge.times for edge in once.edges]


def test_times_are_for_people():
    for seconds, words in (
        *((0.0421, "42 ms"), (59.94, "59.9 s"), (61.6, "1 min 2 s"), (3599.4, "59 min 59 s"), (3599.6, "1 h 0 min")),
        (3 * 86400 + 1800, "72 h 30 min"),
    ):
        end = Stepped("Calling", "answered", "Completed", "", seconds)
        steps = [Stepped("Seeded", "begun", "Calling", "", 0.0), end]
        assert nodes(trace_diagram(steps))["Calling"].note == ("1 visit", words)


def test_the_trace_of_a_real_call_is_on_the_map():
    call = asking_again()
    recall(call)
    give_up(call)
    diagram = trace_diagram(call.record.trace)
    known = edges(whole())
    assert sum(edge.times for edge in diagram.edges) == len(call.record.trace)
    for edge in diagram.edges:
        lines = {re.sub(r"^[\d, ]+ ", "", line) for line in edge.lines}
        assert not lines or lines <= {line.partition(" ")[0] for line in known[edge.source, edge.target].lines}
    assert nodes(diagram)["ParseException"].visits == 3
    assert diagram.caption[1].startswith("parse_failed: 'nor that' is no number")


@pytest.mark.parametrize(
    ("nodes", "edges", "at_fault"),
    [
        ([("A", ""), ("A", "")], [], "A"),
        ([("A", "")], [("A", "Gone")], "Gone"),
        ([("A", "Gone")], [], "A"),
        ([("A", "B"), ("B", "A")], [], "B"),
    ],
)
def test_a_diagram_that_cannot_be_drawn_is_refused(nodes: Any, edges: Any, at_fault: str) -> None:
    with pytest.raises(UsageError, match=f"'{at_fault}'"):
        Diagram(
            title="t",
            nodes=tuple([Node(id=name, label=name, box=box) for name, box in nodes]),
            edges=tuple([Edge(source=source, target=to) for source, to in edges]),
        )


def test_edges_of_a_box_end_inside_it_and_its_loop_is_a_line_of_its_title() -> None:
    inside = ("One", "Two", "Over")
    drawn = Diagram(
        title="t",
        nodes=(
            Node(id="Box", label="box", is_final=True),
            *[Node(id=name, label=name, box="Box", is_final=name == "Over") for name in inside],
            Node(id="Next", label="next"),
        ),
        edges=(
            Edge(source="Two", target="Over"),
            Edge(source="Box", target="Next"),
            Edge(source="Next", target="Box"),
            Edge(source="Box", target="Box", lines=("once more",)),
        ),
    )
    dot, mermaid = render(drawn, "dot"), render(drawn, "mermaid")
    assert re.findall(r"(\w+) -> (\w+) \[.*?(\w+=cluster_box0)?(?: weight=\d)?\]", dot) == [
        ("Two", "Over", ""),
        ("Over", "Next", "ltail=cluster_box0"),
        ("Next", "One", "lhead=cluster_box0"),
    ]
    assert re.findall(r"^ +(\w+) --+>\s*(\w+)$", mermaid, re.MULTILINE) == [
        ("Two", "Over"),
        ("box0", "Next"),
        ("Next", "box0"),
    ]
    assert "once more" in dot
    assert "once more" in mermaid
    assert re.search(r"rank=same\]\n\s+One\n\s+\}", dot), "what runs by itself is beside the others"
    assert not re.search(r"^\s+box0\b", dot, re.MULTILINE), "a box is no node"


def test_edges_of_a_box_that_begins_with_another_begin_and_end_where_it_does() -> None:
    inside = [("Inner", "Box"), ("First", "Inner"), ("Part", "Inner"), ("Last", "Box")]
    ends = ("Part", "Last")
    drawn = Diagram(
        title="t",
        nodes=(
            Node(id="Box", label="box"),
            *[Node(id=name, label=name, box=box, is_final=name in ends) for name, box in inside],
            Node(id="Next", label="next"),
        ),
        edges=(Edge(source="Box", target="Next"), Edge(source="Next", target="Box")),
    )
    assert re.findall(r"(\w+) -> (\w+) \[", render(drawn, "dot")) == [("Last", "Next"), ("Next", "First")]


def hostile(text: str) -> Diagram:
    """A diagram with ``text`` in every place that takes one."""
    rest = (
        Node(id="Plain", label=text, note=(text, text), is_start=True, visits=1),
        Node(id="End", label=text, is_final=True, is_current=True),
    )
    ways = (
        Edge(source="Plain", target="End", lines=(text, text)),
        Edge(source="Plain", target="Plain", lines=(text,), is_dashed=True, times=2),
        Edge(source="Box", target="Box", lines=(text,)),
    )
    inside = Node(id="Inside", label=text, is_dashed=True, box="Box")
    box = Node(id="Box", label=text, note=(text, text), is_start=True)
    return Diagram(title=text, nodes=(*rest, inside, box), edges=ways, caption=(text, text))


LABEL = r'"(?:<br/>|#\d+;|[A-Za-z0-9_ .,\[\]]|[^\x00-\x7f])+"'
NODE = rf"\w+(?:\({LABEL}\)|\[{LABEL}\]|\(\(\({LABEL}\)\)\)|\(\(\" \"\)\))"
MERMAID = re.compile(
    r'---\ntitle: "(?:\\u[0-9a-f]{4}|[A-Za-z0-9_ .,\[\]]|[^\x00-\x7f])*"\n'
    r"config:\n(?:  [ \w]+: ?\w*\n)+---\nflowchart (?:TB|LR)\n"
    rf"(?:    (?:    {NODE}|{NODE}|subgraph \w+\[{LABEL}\]|end"
    rf"|\w+ (?:--+>|-\.+->)(?:\|{LABEL}\|)? \w+"
    r"|style \w+ [\w:#,-]+(?: \d)?|linkStyle [\d,]+ [\w:#, -]+)\n)+"
)


def mermaid_frame(mermaid: str) -> list[str]:
    """Mermaid without its title and without the text of labels."""
    return [re.sub(LABEL, '""', line) for line in mermaid.splitlines()[2:]]


def dot_frame(dot: str) -> str:
    """DOT without quoted text, and without the text between the tags of a label."""
    dot = re.sub(r'"(?:\\.|[^"\\])*"', '""', dot, flags=re.S)
    return re.sub(r">[^<>]+<|(?<=label=<)[^<>]+<", "><", dot)


@examples(150)
@given(st.text() | st.text(alphabet='"\\<>&#;%$`-|[](){}n\nl \t:') | st.sampled_from(HOSTILE))
def test_no_text_breaks_out_of_its_label(text):
    diagram, harmless = hostile(f"x{text}y"), hostile("two words")
    mermaid = render(diagram, "mermaid")
    assert MERMAID.fullmatch(mermaid), mermaid
    assert "\n".join(line for line in mermaid.splitlines() if "$$" in line or "#36;#36;" in line) == ""
    assert mermaid_frame(mermaid) == mermaid_frame(render(harmless, "mermaid"))
    assert dot_frame(render(diagram, "dot")) == dot_frame(render(harmless, "dot"))
    render(diagram, "dot").encode()


@pytest.mark.system
@needs_dot
def test_a_picture_shows_hostile_texts_as_they_are():
    texts = [text for text in HOSTILE if text.strip()]
    ids = [f"S{i}" for i in range(len(texts))]
    diagram = Diagram(
        title=HOSTILE[2],
        nodes=tuple([Node(id=name, label=text) for name, text in zip(ids, texts, strict=True)]),
        edges=tuple([Edge(source=a, target=b, lines=(text,)) for a, b, text in zip(ids, ids[1:], texts, strict=False)]),
        caption=tuple(texts),
    )
    svg = render(diagram, "svg")
    assert "<script" not in svg
    found, ways, above = drawn(svg)
    printable = ["".join(c if c.isprintable() else " " for c in text).split() for text in texts]
    assert [found[name][0].split() for name in ids] == printable
    assert len(ways) == len(ids) - 1
    assert "<script>alert(1)</script>" in above
    assert {child.tag.removeprefix(SVG) for child in ElementTree.fromstring(svg).iter()} <= {
        *("svg", "g", "title", "text", "polygon", "path", "ellipse", "polyline")
    }


def test_a_hostile_trace_is_drawn_all_the_same():
    evil = 'Calling"]; --> x'
    steps = [
        Stepped(evil, evil, evil, evil, 1.0, evil, evil, Usage(input_tokens=1)),
        Stepped("Calling", "answered", "Calling", "", 2.0),
        Stepped(evil, "answered", "Failed", "", 3.0, detail=evil),
    ]
    diagram = trace_diagram(steps, title=evil)
    assert nodes(diagram)[evil].visits == 3
    assert edges(diagram)[evil, evil].lines == (f"1 {evil}",)
    assert MERMAID.fullmatch(render(diagram, "mermaid"))
    assert evil not in dot_frame(render(diagram, "dot"))


def test_a_file_is_written_by_its_suffix(tmp_path):
    for suffix in (".mmd", ".mermaid", ".dot", ".gv", ".MMD"):
        path = write(call_diagram(), tmp_path / f"d{suffix}")
        format = "dot" if suffix in (".dot", ".gv") else "mermaid"
        assert path.read_bytes() == render(call_diagram(), format).encode()
    assert len(list(tmp_path.iterdir())) == 5


def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path):
    for name in ("d.pdf", "d", ".mmd"):
        with pytest.raises(UsageError, match=r"\.mmd, \.mermaid, \.md, \.dot, \.gv, \.svg, \.png") as refusal:
            write(call_diagram(), tmp_path / name)
        assert repr(str(tmp_path / name)) in str(refusal.value)
        assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_drawn_keeps_what_it_had(tmp_path):
    path = tmp_path / "d.mmd"
    path.write_text("old")
    for diagram, format in ((call_diagram(), "pdf"), (None, "mermaid")):
        with pytest.raises(UsageError):
            write(diagram, path, format)
        assert path.read_text() == "old"


@pytest.mark.system
@needs_dot
def test_pictures_are_drawn(tmp_path):
    paths = write_call_diagram(tmp_path)
    assert [path.name for path in paths] == ["agent_call.mmd", "agent_call.dot", "agent_call.svg"]
    assert drawn(paths[2].read_text("utf-8")) == wanted(call_diagram())
    assert write(trace_diagram(run()), tmp_path / "run.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert drawn(render(trace_diagram(run()), "svg")) == wanted(trace_diagram(run()))


@pytest.mark.system
def test_without_dot_it_says_how_to_get_it(tmp_path, monkeypatch):
    old = tmp_path / "d.svg"
    old.write_text("old")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="'dot'"):
        write(call_diagram(), old)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("d.svg", "old")]


def test_a_moment_that_nobody_knows_takes_no_time():
    trace = [
        Stepped("Seeded", "begun", "Calling", "begin", 1_700_000_000.0),
        Stepped("Calling", "functions_asked", "ToolInterrupt", "model:0", 1_700_000_002.0),
        Stepped("ToolInterrupt", "approved", "ToolInterrupt", "ask:1.0", 0.0),
        Stepped("ToolInterrupt", "returned", "Calling", "run:1.0", 1_700_000_005.0),
    ]
    notes = {node.id: node.note for node in trace_diagram(trace).nodes}
    assert "2.0 s" in notes["Calling"]
    assert "3.0 s" in notes["ToolInterrupt"]


@pytest.mark.parametrize(
    ("label", "lines"),
    [
        ("done CompleteOrEscalate [else]", ["done", "CompleteOrEscalate", "[else]"]),
        ("done CompleteOrEscalateToHuman", ["done CompleteOr", "EscalateToHuman"]),
        ("done [is_there_something_to_ask]", ["done [is_there_", "something_to_ask]"]),
        ("failed [isAHTTPServerErrorOfTheKind]", ["failed [isAHTTP", "ServerErrorOfThe", "Kind]"]),
        ("Donaudampfschifffahrtsgesellschaft now", ["Donaudampfschifffahrtsgesellschaft", "now"]),
        ("_______________________x", ["_______________________", "x"]),
    ],
)
def test_labels_break_between_words_and_the_parts_of_names(label: str, lines: list[str]) -> None:
    drawn = Diagram(
        title="t",
        nodes=(Node(id="A", label="A"), Node(id="B", label="B")),
        edges=(Edge(source="A", target="B", lines=(label,)),),
    )
    shown = re.findall(r'-->\|"(.*)"\|', render(drawn, "mermaid"))[0]
    assert [html.unescape(re.sub(r"#(\d+);", r"&#\1;", line)) for line in shown.split("<br/>")] == lines
    dot = re.findall(r'label="(.*?)"', render(drawn, "dot").split("A -> B")[1])[0]
    assert [line.strip() for line in dot.split("\\l")][:-1] == lines


@given(st.text(alphabet="ab_ABC \n", max_size=60).filter(str.strip))
def test_a_label_keeps_all_of_its_letters(text: str) -> None:
    drawn = Diagram(title="t", nodes=(Node(id="A", label="A"),), edges=(Edge(source="A", target="A", lines=(text,)),))
    (shown,) = re.findall(r'-->\|"(.*)"\|', render(drawn, "mermaid"))
    assert "".join(shown.replace("<br/>", "").split()) == "".join(text.split())
