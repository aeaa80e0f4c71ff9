"""The table in docs/providers.md, made from the catalogue: ``python tests/provider_table.py`` prints it."""

from __future__ import annotations

from fsm_agent.providers import Provider
from fsm_agent.providers.catalog import PROVIDERS

COLUMNS = ("provider", "wire", "key", "schema for answers", "beside functions", "images", "log probabilities")


def row(entry: Provider) -> tuple[str, ...]:
    profile = entry.profile
    key = " or ".join(f"`{variable}`" for variable in entry.key_variables) or "none"
    says = {True: "yes", False: "no"}
    schema = "natively" if profile.native_schema else "in words"
    beside = "natively" if profile.native_schema and profile.schema_with_functions else "in words"
    has_choice = entry.other_wire is not None and not entry.is_wire_fixed
    wires = f"{entry.codec.name} or {entry.other_wire.codec.name}" if has_choice else entry.codec.name
    facts = (says[profile.images], says[profile.logprobs])
    return (
        f"`{entry.name}`",
        wires,
        f"{key}{' (optional)' * entry.key_is_optional}",
        schema,
        beside,
        *facts,
    )


def table() -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *[row(PROVIDERS[name]) for name in sorted(PROVIDERS)]]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


if __name__ == "__main__":
    print(table(), end="")
