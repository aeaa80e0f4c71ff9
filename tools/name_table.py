"""The tables of ``docs/names.md``: ``python tools/name_table.py`` writes them, with ``--check`` it compares."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import fsm_agent

PAGE = Path(__file__).parent.parent / "docs" / "names.md"
TABLE = "| from | names |\n|---|---|\n"


def table() -> str:
    """Return the names of each package, those at the top first; a name at the top is shown in both places."""
    found = [info.name for info in pkgutil.iter_modules(fsm_agent.__path__) if info.ispkg]
    rooms = [f"fsm_agent.{name}" for name in sorted([*found, "errors", "flows.orchestrator"])]
    packages = ["fsm_agent", *[room for room in rooms if hasattr(import_module(room), "__all__")]]
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
