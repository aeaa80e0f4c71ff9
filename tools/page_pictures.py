"""Draw what pages say in Mermaid, for the site, with `dot` installed.

    PYTHONPATH=tests python tools/page_pictures.py            # draws what is out of date
    PYTHONPATH=tests python tools/page_pictures.py --check    # exit status 1 if anything is

GitHub draws Mermaid itself; a site would have to fetch a program for it.  So each page has its picture beside it as an
SVG, which says what it was drawn from.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

import recipe_pages
from support.paths import ROOT

from fsm_agent.diagrams import Diagram, Edge, Node, render
from fsm_agent.flows import flow_diagram

MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ARROW = re.compile(r"^ +(\w+) -(-|\.-)>(?:\|([^|]+)\|)? (\w+)$", re.MULTILINE)
RECIPES = {recipe_pages.page(name): name for name in recipe_pages.NAMES}
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if MERMAID.search(page.read_text("utf-8"))]
GOOD_ENDS, BAD_ENDS = {"Completed", "Ended", "Output", "sent"}, {"Failed", "stuck"}


def mermaid(page: Path) -> str:
    """Return what a page says in Mermaid; it has one picture."""
    (block,) = MERMAID.findall(page.read_text("utf-8"))
    return str(block)


def digest(page: Path) -> str:
    return hashlib.sha256(mermaid(page).encode()).hexdigest()[:16]


def drawn_from(page: Path) -> str:
    """Return the digest of what the picture of a page was drawn from; empty: it has none."""
    picture = page.with_suffix(".svg")
    found = re.search(r"drawn from (\w+)", picture.read_text("utf-8")) if picture.exists() else None
    return found[1] if found else ""


def diagram(page: Path) -> Diagram:
    if page in RECIPES:
        return flow_diagram(recipe_pages.flow(RECIPES[page]))
    arrows = ARROW.findall(mermaid(page))
    assert len(arrows) == mermaid(page).count("->"), page
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
    stale = [page for page in PAGES if drawn_from(page) != digest(page)]
    if "--check" in sys.argv[1:]:
        sys.exit("".join(f"out of date: the picture of {page.relative_to(ROOT)}\n" for page in stale) or 0)
    for page in stale:
        svg = render(diagram(page), "svg")
        page.with_suffix(".svg").write_text(f"{svg.rstrip()}\n<!-- drawn from {digest(page)} -->\n", "utf-8")
        print(page.with_suffix(".svg").relative_to(ROOT))
