"""The table in docs/providers.md, made from the catalogue: prints it, or compares with ``--check``."""

from __future__ import annotations

import sys
from pathlib import Path

from fsm_agent.providers import Provider, providers

PAGE = Path(__file__).parents[1] / "docs" / "providers.md"

COLUMNS = ("provider", "wire", "key", "typed answers", "images", "log probabilities")


def row(entry: Provider) -> tuple[str, ...]:
    profile = entry.profile
    key = " or ".join(f"`{variable}`" for variable in entry.key_variables) or "none"
    says = {True: "yes", False: "no"}
    schema = "natively" if profile.native_schema else "in words"
    if profile.native_schema and not profile.schema_with_functions:
        schema += "; in words with functions"
    wires = entry.codec.name if entry.other_wire is None else f"{entry.codec.name} or {entry.other_wire.codec.name}"
    facts = (says[profile.images], says[profile.logprobs])
    return (
        f"`{entry.name}`",
        wires,
        f"{key}{' (optional)' * entry.key_is_optional}",
        schema,
        *facts,
    )


def table() -> str:
    rows = [
        COLUMNS,
        ("---",) * len(COLUMNS),
        *[row(entry) for _, entry in sorted(providers().items()) if not entry.is_wire_fixed],
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        print(table(), end="")
    elif table() not in PAGE.read_text("utf-8"):
        sys.exit(f"out of date: the table of {PAGE.name}; python tools/provider_table.py prints it")
