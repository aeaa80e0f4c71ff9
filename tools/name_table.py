"""The tables of ``docs/names.md``: ``python tools/name_table.py`` writes them, with ``--check`` it compares."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from fsm_agent._internal.exports import PACKAGES

PAGE = Path(__file__).parent.parent / "docs" / "names.md"
TABLE = "| from | names |\n|---|---|\n"


def table() -> str:
    """Return the names of each package, those at the top first; a name at the top is shown in both places."""
    packages = ["fsm_agent", *[f"fsm_agent.{name}" for name in PACKAGES]]
    return TABLE + "".join(f"| `{name}` | {names(import_module(name).__all__)} |\n" for name in packages)


def names(public: list[str]) -> str:
    return " ".join(f"`{name}`" for name in sorted(public, key=str.lower))


if __name__ == "__main__":
    shown = PAGE.read_text("utf-8")
    before, _, _ = shown.partition(TABLE)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(before + table(), "utf-8")
    elif shown != before + table():
        sys.exit(f"out of date: {PAGE.name}; python tools/name_table.py writes it")
