"""Draws state graphs as Mermaid, DOT, SVG or PNG.

Names and texts in a diagram are untrusted, because models and users contribute to a call's trace.  Each text is made
printable, shortened, and escaped for the target language, so that it cannot end a label, start a tag or add a node.

The colors are Okabe and Ito's, which color-blind people can tell apart (https://jfly.uni-koeln.de/color/, 2008-09-30).
Nodes have their own fill and text colors, and lines have medium tones, so diagrams are readable on white and on black.
"""

from __future__ import annotations

import html
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, overload

from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.validation import require, safe_repr

Format = Literal["mermaid", "dot", "svg", "png"]
Tone: TypeAlias = Literal["plain", "branch", "success", "failure"]

FORMATS: dict[str, Format] = {  # by file suffix
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".md": "mermaid",  # in a code fence, which GitHub renders
    ".dot": "dot",
    ".gv": "dot",
    ".svg": "svg",
    ".png": "png",
}

_COLORS: dict[str, tuple[str, str, str]] = {  # fill, line, text
    "plain": ("#DCEBF7", "#0072B2", "#0B2F4A"),
    "branch": ("#FDF0D5", "#B87400", "#4A3000"),
    "success": ("#D8F0E6", "#009E73", "#003D2C"),
    "failure": ("#FBE3D6", "#D55E00", "#5A2600"),
    "faded": ("#F6F8FA", "#AFB8C1", "#6E7781"),
}
_FONT = "Helvetica,Arial,sans-serif"
_LINE = 100  # characters in a line of a label; longer lines are truncated
_AGAIN = "\N{CLOCKWISE OPEN CIRCLE ARROW}"
_FOLD = 20  # characters in a line of an edge's label; longer names are broken
_PART = re.compile(r"[^_]*_+|[^_]+")  # of a name such as call_model
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # between the parts of CallModel or HTTPError
_CONFIG = (
    "config:",
    "  flowchart:",
    "    nodeSpacing: 80",
    "    wrappingWidth: 600",
)  # pixels; the lines of labels are short enough
_SPECIAL = re.compile(r"[^\w .,\[\]\u0080-\U0010ffff]")  # ASCII characters that may be special
_INSTALL = (
    "`apt-get install graphviz`, `brew install graphviz`, `winget install graphviz` or https://graphviz.org/download"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A state in a diagram.

    Examples:
        >>> Node(id="open", label="open", is_start=True).tone
        'plain'
    """

    id: str
    label: str
    tone: Tone = "plain"
    is_start: bool = False
    is_final: bool = False  # drawn as a dot inside a box, because only the box's inside ends there
    is_current: bool = False  # the current or final state of a run
    visits: int | None = None  # None: not part of a run
    note: tuple[str, ...] = ()  # lines in small print
    is_dashed: bool = False  # stands for states that are drawn elsewhere
    box: str = ""  # id of the box around it, if any


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A state that contains other states, drawn as a frame around nodes and other boxes.

    Examples:
        >>> box = Box(id="house", label="the house")
        >>> door = Node(id="door", label="door", box="house")
        >>> Diagram(title="where", nodes=(door,), edges=(), boxes=(box,)).boxes[0].label
        'the house'
    """

    id: str
    label: str
    is_start: bool = False
    is_current: bool = False
    visits: int | None = None  # None: not part of a run
    note: tuple[str, ...] = ()  # lines in small print
    box: str = ""  # id of the box around it, if any


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A transition from one state to another or back to the same state.  Its ends are nodes or boxes.

    Examples:
        >>> Edge(source="open", target="closed", lines=("push",)).target
        'closed'
    """

    source: str
    target: str
    lines: tuple[str, ...] = ()  # the lines of its label
    is_dashed: bool = False
    times: int | None = None  # how often it was taken; None: not part of a run
    weight: int = 1  # heavier edges are shorter and straighter, if the format allows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagram:
    """A graph of states that can be drawn.

    Raises:
        UsageError: If two states have the same id, an edge ends at an unknown state, a node is in an unknown box, or a
            box is empty.

    Examples:
        >>> door = Diagram(
        ...     title="a door",
        ...     nodes=(Node(id="open", label="open"), Node(id="closed", label="closed")),
        ...     edges=(Edge(source="open", target="closed", lines=("push",)),),
        ... )
        >>> "push" in render(door, "mermaid")
        True
    """

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    caption: tuple[str, ...] = ()  # lines
    boxes: tuple[Box, ...] = ()
    direction: Literal["down", "right"] = "down"  # the direction of most edges

    def __post_init__(self) -> None:
        ids = Counter([*[node.id for node in self.nodes], *[box.id for box in self.boxes]])
        if twice := sorted(name for name, times in ids.items() if times > 1):
            raise UsageError(f"nodes and boxes: expected an id for each, got {twice!r} more than once")
        ends = {name for edge in self.edges for name in (edge.source, edge.target)}
        if unknown := sorted(ends - set(ids)):
            raise UsageError(f"edges: expected ends that are nodes or boxes ({list(ids)!r}), got {unknown!r}")
        boxes, full = {box.id for box in self.boxes}, {node.box for node in self.nodes}
        if strange := sorted((full | {box.box for box in self.boxes}) - boxes - {""}):
            raise UsageError(f"boxes: expected a box for each id that nodes name, got none for {strange!r}")
        if empty := sorted(boxes - full - {box.box for box in self.boxes}):
            raise UsageError(f"boxes: expected nodes in each, got none in {empty!r}")


@overload
def render(diagram: Diagram, format: Literal["mermaid", "dot", "svg"]) -> str: ...
@overload
def render(diagram: Diagram, format: Literal["png"]) -> bytes: ...
@overload
def render(diagram: Diagram, format: str) -> str | bytes: ...
def render(diagram: Diagram, format: str) -> str | bytes:
    """Draw ``diagram``.

    Args:
        diagram: The diagram.
        format: ``mermaid``, ``dot``, ``svg`` or ``png``.  The last two need Graphviz's program `dot`.

    Raises:
        UsageError: If the format is unknown.
        ConfigError: If `dot` is not installed or fails.

    Examples:
        >>> render(call_diagram(), "mermaid").startswith("---")
        True
    """
    require("the diagram", diagram, isinstance(diagram, Diagram), "a Diagram of nodes and edges, or call_diagram()")
    if format == "mermaid":
        return _mermaid(diagram)
    if format == "dot":
        return str(_digraph(diagram).source)
    if format == "svg":
        return _picture(diagram, "svg").decode()
    if format == "png":
        return _picture(diagram, "png")
    raise UsageError(f"format: expected one of {', '.join(get_args(Format))}, got {safe_repr(format)}")


def write(diagram: Diagram, path: str | os.PathLike[str], format: str | None = None) -> Path:
    """Draw ``diagram`` into a file, which keeps its old contents if drawing fails.

    Args:
        diagram: The diagram.
        path: The file.  Its directory must exist.
        format: A format that `render` accepts, or None to choose it by the suffix of ``path``.

    Returns:
        ``path``.

    Raises:
        UsageError: If the suffix or format is unknown, the directory does not exist, or the file cannot be written.
        ConfigError: If `dot` is needed but is not installed, or if it fails.

    Examples:
        >>> write(call_diagram(), "lifecycle.mmd").name
        'lifecycle.mmd'
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if format is None and suffix not in FORMATS:
        raise UsageError(f"path: expected one that ends in {', '.join(FORMATS)}, or a format, got {str(path)!r}")
    if not path.parent.is_dir():
        raise UsageError(f"path: expected a directory for {str(path)!r}, got {str(path.parent)!r}")
    format = format or FORMATS[suffix]
    drawn = render(diagram, format)
    if isinstance(drawn, str):
        drawn = (f"```mermaid\n{drawn}```\n" if suffix == ".md" and format == "mermaid" else drawn).encode()
    try:
        path.write_bytes(drawn)
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be written: {error.strerror or error}") from error
    return path


def _names(diagram: Diagram) -> dict[str, str]:
    """Return an id for each state in Mermaid and DOT.  No id is a keyword, because keywords are in lower case there."""
    plain = re.compile(r"[A-Z][A-Za-z0-9_]{0,40}")
    names = {node.id: node.id if plain.fullmatch(node.id) else f"n{i}" for i, node in enumerate(diagram.nodes)}
    return names | {box.id: f"box{i}" for i, box in enumerate(diagram.boxes)}


def _states(diagram: Diagram) -> dict[str, Node | Box]:
    states: list[Node | Box] = [*diagram.nodes, *diagram.boxes]
    return {state.id: state for state in states}


def _arrows(diagram: Diagram) -> list[Edge]:
    """Return the edges to draw as arrows.  An edge from a box to itself is a line in the box's title instead."""
    boxes = {box.id for box in diagram.boxes}
    return [edge for edge in diagram.edges if edge.source != edge.target or edge.source not in boxes]


def _title(box: Box, diagram: Diagram) -> list[str]:
    own = [edge for edge in diagram.edges if edge.source == edge.target == box.id]
    again = [f"{_AGAIN} {line}" for edge in own for line in edge.lines or ("",)]
    return [box.label, *([", ".join(box.note)] if box.note else []), *again]


def one_line(text: str, length: int = _LINE) -> str:
    """Return ``text`` as one printable line of at most ``length`` characters."""
    line = " ".join("".join([c if c.isprintable() else " " for c in text[: 2 * length]]).split())
    return line if len(line) <= length and len(text) <= 2 * length else line[: length - 1] + "…"


def _fold_lines(edge: Edge, indent: str = "") -> list[str]:
    return [part for line in edge.lines for part in _fold(one_line(line), indent)]


def _fold(text: str, indent: str) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        pieces = [word] if len(word) <= _FOLD else _parts(word)
        for number, piece in enumerate(pieces):
            space = " " if number == 0 and lines[-1].strip() else ""
            if lines[-1].strip() and len(lines[-1]) + len(space) + len(piece) > _FOLD:
                lines.append(indent + piece)
            else:
                lines[-1] += space + piece
    return [line for line in lines if line]


def _parts(word: str) -> list[str]:
    return [part for piece in _PART.findall(word) for part in _HUMP.split(piece)]


def _colors(state: Node | Box) -> tuple[str, str, str]:
    is_faded = state.visits == 0 or (isinstance(state, Node) and state.is_dashed)
    return _COLORS["faded" if is_faded else _tone(state)]


def _tone(state: Node | Box) -> Tone:
    return state.tone if isinstance(state, Node) else "plain"


def _line_color(edge: Edge, target: Node | Box) -> str:
    if edge.times == 0:
        return _COLORS["faded"][1]
    return _COLORS["branch" if edge.is_dashed and _tone(target) == "plain" else _tone(target)][1]


def _is_dot(state: Node | Box) -> bool:
    """Return whether a state is drawn as a dot because only the inside of a box ends there."""
    return isinstance(state, Node) and state.is_final and bool(state.box)


def _mermaid(diagram: Diagram) -> str:
    """Return a flowchart, because Mermaid's state diagrams have no dashed lines."""
    names, states = _names(diagram), _states(diagram)
    direction = "LR" if diagram.direction == "right" else "TB"
    lines = ["---", f"title: {_yaml(one_line(diagram.title))}", *_CONFIG, "---", f"flowchart {direction}"]
    lines += _mermaid_nodes(diagram, names, "")
    styles = [f"    style {names[state.id]} {_mermaid_style(state)}" for state in states.values()]
    arrows: list[tuple[str, str]] = []  # and their styles
    color = _COLORS["plain"][1]
    for state in states.values():
        if state.is_start:
            styles.append(f"    style start_{names[state.id]} fill:{color},stroke:{color}")
            arrows.append((f"start_{names[state.id]} --> {names[state.id]}", f"stroke:{color},stroke-width:2px"))
    looping = {edge.source for edge in diagram.edges if edge.source == edge.target and edge.lines}
    for edge in _arrows(diagram):
        is_long = edge.source in looping and edge.source != edge.target  # so that it clears the label of the loop
        arrow = ("-..->" if is_long else "-.->") if edge.is_dashed else ("--->" if is_long else "-->")
        label = f"|{_mermaid_label(_fold_lines(edge))}|" if any(edge.lines) else ""
        look = f"stroke:{_line_color(edge, states[edge.target])},stroke-width:{3 if edge.times else 2}px"
        look += ",stroke-dasharray:7 5" if edge.is_dashed else ""
        arrows.append((f"{names[edge.source]} {arrow}{label} {names[edge.target]}", look))
    lines += [f"    {arrow}" for arrow, _ in arrows]
    if diagram.caption:
        lines.append(f"    caption[{_mermaid_label(diagram.caption)}]")
        styles.append("    style caption fill:none,stroke:none")
    for look in dict.fromkeys(look for _, look in arrows):
        numbers = ",".join(str(i) for i, (_, other) in enumerate(arrows) if other == look)
        styles.append(f"    linkStyle {numbers} {look}")
    return "\n".join([*lines, *styles]) + "\n"


def _mermaid_style(state: Node | Box) -> str:
    fill, line, color = _colors(state)
    if isinstance(state, Box):
        fill, color = "none", _COLORS["faded"][2]  # readable on white and on black, without a fill
    elif state.is_dashed:
        return f"fill:none,stroke:{line},color:{color},stroke-dasharray:4 4"
    return f"fill:{fill},stroke:{line},color:{color},stroke-width:{4 if state.is_current else 2}px"


def _mermaid_nodes(diagram: Diagram, names: dict[str, str], box: str, indent: str = "    ") -> list[str]:
    lines = []
    for state in _states(diagram).values():
        if state.box != box:
            continue
        name = names[state.id]
        if state.is_start:
            lines.append(f'{indent}start_{name}((" "))')
        if isinstance(state, Box):
            inside = _mermaid_nodes(diagram, names, state.id, f"{indent}    ")
            lines += [
                f"{indent}subgraph {name}[{_mermaid_label([', '.join(_title(state, diagram))])}]",
                *inside,
                f"{indent}end",
            ]
            continue
        text = _mermaid_label((state.label, *state.note))
        shape = f"((({text})))" if state.is_final else f"({text})"
        lines.append(f"{indent}{name}{shape}")
    return lines


def _mermaid_label(lines: Iterable[str]) -> str:
    text = "<br/>".join(_entities(one_line(line)) for line in lines)
    return f'"{text or " "}"'  # an empty label is an error in Mermaid


def _entities(text: str) -> str:
    """Return ``text`` with the ASCII characters that are special in Mermaid or Markdown written as ``#code;``."""
    return _SPECIAL.sub(lambda c: "#36;#8203;" if c[0] == "$" else f"#{ord(c[0])};", text)  # $$: a formula


def _yaml(text: str) -> str:
    return '"' + _SPECIAL.sub(lambda c: f"\\u{ord(c[0]):04x}", text) + '"'


def _digraph(diagram: Diagram) -> Any:
    from graphviz import Digraph

    names, states = _names(diagram), _states(diagram)
    graph = Digraph(
        "diagram",
        graph_attr={
            "label": _dot_label([diagram.title, *diagram.caption]),
            "labelloc": "t",
            "fontname": _FONT,
            "fontsize": "14",
            "fontcolor": _COLORS["faded"][2],
            "bgcolor": "transparent",  # each color is readable on white and on black
            "rankdir": "LR" if diagram.direction == "right" else "TB",
            "pad": "0.3",
            "nodesep": "0.35",
            "ranksep": "0.35",
            "compound": "true",  # edges end at the frame of a box
            "newrank": "true",  # one ranking for all boxes: otherwise labels of edges between them are lost
        },
        node_attr={"fontname": _FONT, "fontsize": "14", "shape": "box", "style": "rounded,filled", "margin": ".16,.1"},
        edge_attr={"fontname": _FONT, "fontsize": "13", "arrowsize": "0.7"},
    )
    _add_states(graph, diagram, names, "")
    with graph.subgraph(graph_attr={"rank": "sink"}) as last:
        for node in diagram.nodes:
            if node.is_final and not node.box:
                last.node(names[node.id], **_dot_node(node))
    for state in states.values():
        if state.is_start:
            head, frame = _dot_end(state, diagram, names, is_source=False)
            framed = {"lhead": frame} if frame else {}
            graph.edge(f"start_{names[state.id]}", head, weight="8", color=_COLORS["plain"][1], **framed)
    for edge in _arrows(diagram):
        tail, tail_frame = _dot_end(states[edge.source], diagram, names, is_source=True)
        head, head_frame = _dot_end(states[edge.target], diagram, names, is_source=False)
        framed = ({"ltail": tail_frame} if tail_frame else {}) | ({"lhead": head_frame} if head_frame else {})
        graph.edge(tail, head, **_dot_edge(edge, states[edge.target], diagram), **framed)
    return graph


def _dot_end(state: Node | Box, diagram: Diagram, names: dict[str, str], *, is_source: bool) -> tuple[str, str]:
    """Return the node at an end of an edge and, if the end is a box, also the box's frame, which cuts the edge off."""
    if isinstance(state, Node):
        return names[state.id], ""
    inside, before = {state.id}, 0
    while len(inside) > before:
        before = len(inside)
        inside |= {box.id for box in diagram.boxes if box.box in inside}
    nodes = [node for node in diagram.nodes if node.box in inside]
    node = next((node for node in nodes if node.is_final and is_source), nodes[0])
    return names[node.id], f"cluster_{names[state.id]}"


def _add_states(graph: Any, diagram: Diagram, names: dict[str, str], box: str) -> None:
    """Add the states in a box, except for end states outside all boxes."""
    joined = {name for edge in diagram.edges for name in (edge.source, edge.target)}
    for state in _states(diagram).values():
        if state.box != box:
            continue
        if state.is_start:
            dot, color = f"start_{names[state.id]}", _COLORS["plain"][1]
            graph.node(dot, label="", shape="circle", width="0.16", style="filled", fillcolor=color, color=color)
        if isinstance(state, Box):
            _, line, _ = _colors(state)
            look = {"label": _dot_text(map(one_line, _title(state, diagram)), r"\l"), "style": "rounded", "color": line}
            look |= {"labeljust": "l", "fontsize": "12", "fontcolor": _COLORS["faded"][2]}
            look["penwidth"] = "3" if state.is_current else "1.5"
            with graph.subgraph(name=f"cluster_{names[state.id]}", graph_attr=look) as inside:
                _add_states(inside, diagram, names, state.id)
                with inside.subgraph(graph_attr={"rank": "same"}) as row:  # parallel states are drawn side by side
                    for node in diagram.nodes:
                        if node.box == state.id and node.id not in joined:
                            row.node(names[node.id])
        elif box or not state.is_final:
            graph.node(names[state.id], **_dot_node(state))


def _dot_node(node: Node) -> dict[str, str]:
    fill, line, color = _colors(node)
    look = {"color": line, "fontcolor": color}
    if _is_dot(node):
        beside = {"xlabel": _dot_label([node.label]), "fontsize": "13"} if node.label else {}
        return look | beside | {"label": "", "shape": "doublecircle", "width": "0.12", "fillcolor": fill}
    look["label"] = _small_print(node) if node.note else _dot_label([node.label])
    if node.is_dashed:
        return look | {"style": "rounded,dashed"}
    look |= {"fillcolor": fill, "penwidth": "3" if node.is_current else "1.5"}
    return look | ({"peripheries": "2"} if node.is_final else {})


def _small_print(node: Node) -> str:
    label, *notes = [html.escape(one_line(text)) or " " for text in (node.label, *node.note)]
    return f'<{label}<BR/><FONT POINT-SIZE="12">{"<BR/>".join(notes)}</FONT>>'


def _dot_edge(edge: Edge, target: Node | Box, diagram: Diagram) -> dict[str, str]:
    color = _line_color(edge, target)
    attributes = {"color": color, "fontcolor": color, "weight": str(edge.weight)}
    is_loop = edge.source == edge.target and diagram.direction == "down"  # dot places loops well in the other direction
    if any(edge.lines):
        below = [""] * 3 if is_loop else []  # lifts the label over the lines that leave to the side
        attributes["label"] = _dot_text([f" {line} " for line in _fold_lines(edge, "   ")] + below, r"\l")
    if edge.is_dashed:
        attributes["style"] = "dashed"
    if edge.times:
        attributes["penwidth"] = "2.5"
    return attributes | ({"tailport": "ne", "headport": "e"} if is_loop else {})


def _dot_label(lines: Iterable[str]) -> str:
    return _dot_text([one_line(line) for line in lines], r"\n")


def _dot_text(lines: Iterable[str], end: str) -> str:
    """Return lines, each with a line end, after escaping them so that dot does not read them as HTML or entities."""
    from graphviz import escape

    return "".join([escape(line).replace("&", "&amp;") + end for line in lines])


def _picture(diagram: Diagram, format: str) -> bytes:
    from graphviz import CalledProcessError, ExecutableNotFound

    graph = _digraph(diagram)
    if format == "png":
        graph.graph_attr["dpi"] = "144"
    try:
        return bytes(graph.pipe(format=format, quiet=True))
    except ExecutableNotFound as error:
        raise ConfigError(
            f"format {format!r}: expected the program 'dot' in PATH, got none; install Graphviz "
            f"({_INSTALL}), or pass the format 'mermaid' or 'dot'"
        ) from error
    except CalledProcessError as error:
        output = (error.stderr or b"").decode(errors="replace")
        raise ConfigError(f"the program 'dot' could not draw {format!r}: {one_line(output)}") from error
