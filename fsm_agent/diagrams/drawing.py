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
from collections.abc import Iterable, Iterator
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
    """A state in a diagram.  A state that other nodes name as their ``box`` is drawn as a frame around them.

    Examples:
        >>> house = Node(id="house", label="the house")
        >>> door = Node(id="door", label="door", box="house")
        >>> Diagram(title="where", nodes=(house, door), edges=()).boxes == (house,)
        True
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
    box: str = ""  # id of the state around it, if any


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A transition from one state to another or back to the same state.

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
        UsageError: If two nodes have the same id, if an edge ends at an unknown node, or if a node is in an unknown box
            or inside itself.

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
    direction: Literal["down", "right"] = "down"  # the direction of most edges

    def __post_init__(self) -> None:
        ids = Counter([node.id for node in self.nodes])
        if twice := sorted(name for name, times in ids.items() if times > 1):
            raise UsageError(f"nodes: expected an id for each, got {twice!r} more than once")
        ends = {name for edge in self.edges for name in (edge.source, edge.target)}
        if unknown := sorted(ends - set(ids)):
            raise UsageError(f"edges: expected ends that are nodes ({list(ids)!r}), got {unknown!r}")
        drawn = {""}
        while more := {node.id for node in self.nodes if node.box in drawn} - drawn:
            drawn |= more
        if lost := sorted(set(ids) - drawn):
            raise UsageError(f"nodes: expected boxes that are other nodes, got unknown ones or a circle for {lost!r}")

    @property
    def boxes(self) -> tuple[Node, ...]:
        """The nodes that contain other nodes."""
        names = {node.box for node in self.nodes} - {""}
        return tuple([node for node in self.nodes if node.id in names])


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
    """Draw ``diagram`` to a file, which keeps its old contents if drawing fails.

    Args:
        diagram: The diagram.
        path: The file.  Its directory must exist.
        format: A format that `render` accepts, or None to choose one from the suffix of ``path``.

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


class _Plan:
    """The parts of a diagram, as they are drawn in either language."""

    def __init__(self, diagram: Diagram) -> None:
        self.boxes = {box.id: box for box in diagram.boxes}
        self.nodes = [*[node for node in diagram.nodes if node.id not in self.boxes], *diagram.boxes]
        self.by_id = {node.id: node for node in self.nodes}
        self._order = {node.id: i for i, node in enumerate(diagram.nodes)}
        # An edge from a box to itself is a line in the box's title
        self.arrows = [edge for edge in diagram.edges if edge.source != edge.target or edge.source not in self.boxes]
        self._again = [edge for edge in diagram.edges if edge.source == edge.target and edge.source in self.boxes]
        # No id is a keyword of Mermaid or DOT, because those are in lower case
        plain = re.compile(r"[A-Z][A-Za-z0-9_]{0,40}")
        self.names = {node.id: node.id if plain.fullmatch(node.id) else f"n{i}" for i, node in enumerate(self.nodes)}
        self.names |= {box: f"box{i}" for i, box in enumerate(self.boxes)}

    def inside(self, box: str) -> list[Node]:
        """Return the nodes that are directly in a box or, if ``box`` is empty, in no box."""
        return [node for node in self.nodes if node.box == box]

    def title(self, box: Node) -> list[str]:
        again = [f"{_AGAIN} {line}" for edge in self._again if edge.source == box.id for line in edge.lines or ("",)]
        return [box.label, *([", ".join(box.note)] if box.note else []), *again]

    def end(self, node: Node, *, is_source: bool) -> tuple[str, str]:
        """Return the id of a node at the end of an edge and, for a box, the frame that cuts the edge off.

        DOT has no edges to frames, so the edge of a box ends at a node inside.
        """
        if node.id not in self.boxes:
            return self.names[node.id], ""
        inside = [*self._leaves(node)]
        first = min(inside, key=lambda leaf: self._order[leaf.id])  # inner boxes may begin before the box's own nodes
        leaf = next((leaf for leaf in inside if leaf.is_final and is_source), first)
        return self.names[leaf.id], f"cluster_{self.names[node.id]}"

    def _leaves(self, node: Node) -> Iterator[Node]:
        if node.id not in self.boxes:
            yield node
        for inner in self.inside(node.id):
            yield from self._leaves(inner)


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


def _colors(node: Node) -> tuple[str, str, str]:
    return _COLORS["faded" if node.visits == 0 or node.is_dashed else node.tone]


def _line_color(edge: Edge, target: Node) -> str:
    if edge.times == 0:
        return _COLORS["faded"][1]
    return _COLORS["branch" if edge.is_dashed and target.tone == "plain" else target.tone][1]


def _mermaid(diagram: Diagram) -> str:
    """Return a flowchart, because Mermaid's state diagrams have no dashed lines."""
    plan = _Plan(diagram)
    direction = "LR" if diagram.direction == "right" else "TB"
    lines = ["---", f"title: {_yaml(one_line(diagram.title))}", *_CONFIG, "---", f"flowchart {direction}"]
    lines += _mermaid_nodes(plan, "")
    styles = [f"    style {plan.names[node.id]} {_mermaid_style(node, plan)}" for node in plan.nodes]
    arrows: list[tuple[str, str]] = []  # and their styles
    color = _COLORS["plain"][1]
    for name in [plan.names[node.id] for node in plan.nodes if node.is_start]:
        styles.append(f"    style start_{name} fill:{color},stroke:{color}")
        arrows.append((f"start_{name} --> {name}", f"stroke:{color},stroke-width:2px"))
    looping = {edge.source for edge in diagram.edges if edge.source == edge.target and edge.lines}
    for edge in plan.arrows:
        is_long = edge.source in looping and edge.source != edge.target  # so that it clears the label of the loop
        arrow = ("-..->" if is_long else "-.->") if edge.is_dashed else ("--->" if is_long else "-->")
        label = f"|{_mermaid_label(_fold_lines(edge))}|" if any(edge.lines) else ""
        look = f"stroke:{_line_color(edge, plan.by_id[edge.target])},stroke-width:{3 if edge.times else 2}px"
        look += ",stroke-dasharray:7 5" if edge.is_dashed else ""
        arrows.append((f"{plan.names[edge.source]} {arrow}{label} {plan.names[edge.target]}", look))
    lines += [f"    {arrow}" for arrow, _ in arrows]
    if diagram.caption:
        lines.append(f"    caption[{_mermaid_label(diagram.caption)}]")
        styles.append("    style caption fill:none,stroke:none")
    for look in dict.fromkeys(look for _, look in arrows):
        numbers = ",".join(str(i) for i, (_, other) in enumerate(arrows) if other == look)
        styles.append(f"    linkStyle {numbers} {look}")
    return "\n".join([*lines, *styles]) + "\n"


def _mermaid_style(node: Node, plan: _Plan) -> str:
    fill, line, color = _colors(node)
    if node.id in plan.boxes:
        fill, color = "none", _COLORS["faded"][2]  # readable on white and on black, without a fill
    elif node.is_dashed:
        return f"fill:none,stroke:{line},color:{color},stroke-dasharray:4 4"
    return f"fill:{fill},stroke:{line},color:{color},stroke-width:{4 if node.is_current else 2}px"


def _mermaid_nodes(plan: _Plan, box: str, indent: str = "    ") -> list[str]:
    lines = []
    for node in plan.inside(box):
        name = plan.names[node.id]
        if node.is_start:
            lines.append(f'{indent}start_{name}((" "))')
        if node.id in plan.boxes:
            lines.append(f"{indent}subgraph {name}[{_mermaid_label([', '.join(plan.title(node))])}]")
            lines += [*_mermaid_nodes(plan, node.id, f"{indent}    "), f"{indent}end"]
        else:
            text = _mermaid_label((node.label, *node.note))
            lines.append(f"{indent}{name}((({text})))" if node.is_final else f"{indent}{name}({text})")
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

    plan = _Plan(diagram)
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
    _add_nodes(graph, plan, "")
    with graph.subgraph(graph_attr={"rank": "sink"}) as last:
        for node in plan.inside(""):
            if node.is_final and node.id not in plan.boxes:
                last.node(plan.names[node.id], **_dot_node(node))
    for node in plan.nodes:
        if node.is_start:
            head, frame = plan.end(node, is_source=False)
            framed = {"lhead": frame} if frame else {}
            graph.edge(f"start_{plan.names[node.id]}", head, weight="8", color=_COLORS["plain"][1], **framed)
    for edge in plan.arrows:
        target = plan.by_id[edge.target]
        tail, tail_frame = plan.end(plan.by_id[edge.source], is_source=True)
        head, head_frame = plan.end(target, is_source=False)
        framed = ({"ltail": tail_frame} if tail_frame else {}) | ({"lhead": head_frame} if head_frame else {})
        graph.edge(tail, head, **_dot_edge(edge, target, diagram), **framed)
    return graph


def _add_nodes(graph: Any, plan: _Plan, box: str) -> None:
    """Add the nodes in a box, except for end states outside all boxes."""
    joined = {name for edge in plan.arrows for name in (edge.source, edge.target)}
    for node in plan.inside(box):
        name = plan.names[node.id]
        if node.is_start:
            color = _COLORS["plain"][1]
            look = {"label": "", "shape": "circle", "width": "0.16", "style": "filled"}
            graph.node(f"start_{name}", fillcolor=color, color=color, **look)
        if node.id in plan.boxes:
            look = {"label": _dot_text(map(one_line, plan.title(node)), r"\l"), "style": "rounded", "labeljust": "l"}
            look |= {"color": _colors(node)[1], "fontsize": "12", "fontcolor": _COLORS["faded"][2]}
            look["penwidth"] = "3" if node.is_current else "1.5"
            with graph.subgraph(name=f"cluster_{name}", graph_attr=look) as inside:
                _add_nodes(inside, plan, node.id)
                with inside.subgraph(graph_attr={"rank": "same"}) as row:  # parallel states are drawn side by side
                    for inner in plan.inside(node.id):
                        if inner.id not in joined and inner.id not in plan.boxes:
                            row.node(plan.names[inner.id])
        elif box or not node.is_final:
            graph.node(name, **_dot_node(node))


def _dot_node(node: Node) -> dict[str, str]:
    fill, line, color = _colors(node)
    look = {"color": line, "fontcolor": color}
    if node.is_final and node.box:  # a dot, because only the inside of the box ends there
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


def _dot_edge(edge: Edge, target: Node, diagram: Diagram) -> dict[str, str]:
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
