"""Draw the pictures of pages for the site, with `dot` installed.

    PYTHONPATH=tests python tools/page_pictures.py            # draws what is out of date
    PYTHONPATH=tests python tools/page_pictures.py --check    # exit status 1 if anything is

GitHub draws Mermaid itself; a site would have to fetch a program for it.  So each page with Mermaid, and each recipe,
has its picture as an SVG, which says what it was drawn from.
"""

from __future__ import annotations

import hashlib
import re
import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from support.paths import ROOT

from fsm_agent.diagrams import Diagram, Edge, Node, render
from fsm_agent.flows import Flow, flow_diagram

MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ARROW = re.compile(r"^ +(\w+) -(-|\.-)>(?:\|([^|]+)\|)? (\w+)$", re.MULTILINE)
GOOD_ENDS, BAD_ENDS = {"Completed", "Ended", "Output", "sent"}, {"Failed", "stuck"}


class Picture(NamedTuple):
    path: Path
    mermaid: str
    diagram: Callable[[], Diagram]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.mermaid.encode()).hexdigest()[:16]

    @property
    def is_stale(self) -> bool:
        return not self.path.exists() or f"drawn from {self.digest}" not in self.path.read_text("utf-8")

    def draw(self) -> None:
        svg = render(self.diagram(), "svg")
        self.path.write_text(f"{svg.rstrip()}\n<!-- drawn from {self.digest} -->\n", "utf-8")


def of_page(page: Path) -> Picture:
    """Return the picture of a page, which has one."""
    (mermaid,) = MERMAID.findall(page.read_text("utf-8"))
    return Picture(page.with_suffix(".svg"), mermaid, partial(diagram_of, page, mermaid))


def of_recipe(file: Path) -> Picture:
    """Return the picture of a recipe: of the last flow of its file."""
    flow = [value for value in runpy.run_path(str(file)).values() if isinstance(value, Flow)][-1]
    diagram = flow_diagram(flow)
    path = ROOT / "docs" / "recipes" / f"{file.stem.replace('_', '-')}.svg"
    return Picture(path, render(diagram, "mermaid"), lambda: diagram)


def diagram_of(page: Path, mermaid: str) -> Diagram:
    arrows = ARROW.findall(mermaid)
    assert len(arrows) == mermaid.count("->"), page
    names = dict.fromkeys(name for source, _, _, target in arrows for name in (source, target))
    nodes = [
        Node(
            id=name,
            label=name,
            tone="success" if name in GOOD_ENDS else "failure" if name in BAD_ENDS else "plain",
            is_start=number == 0,
            is_final=name in GOOD_ENDS | BAD_ENDS,
        )
        for number, name in enumerate(names)
    ]
    edges = [
        Edge(source=source, target=target, lines=(label,) if label else (), is_dashed=kind == ".-")
        for source, kind, label, target in arrows
    ]
    return Diagram(
        title=page.read_text("utf-8").partition("\n")[0].removeprefix("# "), nodes=(*nodes,), edges=(*edges,)
    )


if __name__ == "__main__":
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if MERMAID.search(page.read_text("utf-8"))]
    recipes = sorted((ROOT / "examples" / "recipes").glob("*.py"))
    stale = [one for one in [*map(of_page, pages), *map(of_recipe, recipes)] if one.is_stale]
    if "--check" in sys.argv[1:]:
        sys.exit("".join(f"out of date: {one.path.relative_to(ROOT)}\n" for one in stale) or 0)
    for one in stale:
        one.draw()
        print(one.path.relative_to(ROOT))
