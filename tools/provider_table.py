"""The tables in docs/providers.md, made from the catalogue: prints them, or compares with ``--check``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from fsm_agent.providers import Profile, Provider, providers

PAGE = Path(__file__).parents[1] / "docs" / "providers.md"

EXCEPTIONS: dict[str, Callable[[Profile], bool]] = {
    "no images": lambda profile: not profile.images,
    "no log probabilities": lambda profile: not profile.logprobs,
    "the prompt describes the schema": lambda profile: not profile.native_schema,
    "the prompt describes the schema if the request has functions": lambda profile: (
        profile.native_schema and not profile.schema_with_functions
    ),
}


def row(entry: Provider) -> tuple[str, ...]:
    key = " or ".join(f"`{variable}`" for variable in entry.key_variables) or "none"
    wires = entry.codec.name if entry.other_wire is None else f"{entry.codec.name} or {entry.other_wire.codec.name}"
    return f"`{entry.name}`", wires, f"{key}{' (optional)' * entry.key_is_optional}"


def table(*rows: Iterable[str]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def tables() -> tuple[str, str]:
    """Return the table of providers and that of exceptions, without names that only fix a wire."""
    entries = [entry for _, entry in sorted(providers().items()) if not entry.is_wire_fixed]
    exceptions = [
        (what, ", ".join([f"`{entry.name}`" for entry in entries if holds(entry.profile)]))
        for what, holds in EXCEPTIONS.items()
    ]
    return (
        table(("provider", "wire", "key"), ("---",) * 3, *map(row, entries)),
        table(("exception", "providers"), ("---",) * 2, *exceptions),
    )


if __name__ == "__main__":
    if "--check" not in sys.argv[1:]:
        print(*tables(), sep="\n", end="")
    elif any(text not in PAGE.read_text("utf-8") for text in tables()):
        sys.exit(f"out of date: a table of {PAGE.name}; python tools/provider_table.py prints them")
