"""The differences of two runs: the first entry where they part."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

import msgspec

from fsm_agent.store.reading import EntryReading, RunReading

_MOMENTS = frozenset({"at_s", "delay_s", "duration_s"})  # which differ in any two runs
_NAMES = frozenset({"id"})  # that a run, a reply or a function call was given


Difference: TypeAlias = tuple[str, Any, Any]  # where, and the two values; None: there is none


class Parting(NamedTuple):
    """The place where two runs part."""

    beginning: list[Difference]  # in their headers
    n: int | None  # the number of the first entry that differs; None: there is none
    entry: list[Difference]  # in that


def parting(a: RunReading, b: RunReading) -> Parting:
    """Return where two runs part; times, names of runs, fences and digests do not count."""
    beginning = _list_differences("", _beginning(a), _beginning(b))
    for n, (one, other) in enumerate(zip_longest(a.entries, b.entries), 1):
        if found := _list_differences("", _content(one), _content(other)):
            return Parting(beginning, n, found)
    return Parting(beginning, None, [])


def is_same(a: EntryReading | None, b: EntryReading | None) -> bool:
    """Return whether two entries say the same, at whatever time."""
    return not _list_differences("", _content(a), _content(b))


def _beginning(reading: RunReading) -> dict[str, Any]:
    header = reading.header
    return {"agent": header.agent, "definition": header.definition, "seed": reading.seed, "extra": header.extra}


def _content(entry: EntryReading | None) -> dict[str, Any]:
    if entry is None:
        return {}
    return {"key": entry.line.key, "outcome": entry.data, "steps": entry.triggers}


def _list_differences(where: str, a: Any, b: Any) -> list[Difference]:
    """Return the innermost values that differ, each with the path to it."""
    if isinstance(a, dict) and isinstance(b, dict):
        names = [name for name in dict.fromkeys([*a, *b]) if name not in _MOMENTS | _NAMES]
        return [
            one
            for name in names
            for one in _list_differences(f"{where}.{name}" if where else name, a.get(name), b.get(name))
        ]
    if isinstance(a, list) and isinstance(b, list):
        pairs = enumerate(zip_longest(a, b))
        return [one for n, (x, y) in pairs for one in _list_differences(f"{where}[{n}]", x, y)]
    return [] if a == b else [(where, a, b)]


def as_json(where: Parting) -> dict[str, Any]:
    """Return the place as data."""
    return {"beginning": _as_json(where.beginning), "n": where.n, "entry": _as_json(where.entry)}


def _as_json(found: list[Difference]) -> list[dict[str, Any]]:
    return [{"where": path, "values": msgspec.to_builtins([a, b])} for path, a, b in found]
