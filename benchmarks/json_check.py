"""Does a malformed document become what it was meant to be, as often as with `json-repair` alone?

Run it over any file in the format of ``../shared/cases/json_repair.jsonl`` (described in the README beside it)::

    python benchmarks/json_check.py FILE [--verbose]

Each case is read with the parser that a prompt has; those of the mode ``strict`` without repairs, and beginnings
of documents (the modes ``partial`` and ``stream_stable``) as the output of a reply that is still arriving.  A table
says by mode and tag how many are right, here and with json-repair alone; the exit code is 1 if there are fewer here
anywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import json_repair

from fsm_agent.errors import ParseError
from fsm_agent.prompts import Output, first_of, verbatim
from fsm_agent.prompts.partial_output import PartialReader

Case = dict[str, Any]
NOTHING: Any = object()


def cases(path: Path) -> list[Case]:
    """The cases of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def ours(case: Case) -> Any:
    """What we make of a case; `NOTHING` for an error."""
    text, expected = case["input"], case["expected"]
    try:
        if case["mode"] == "strict":
            return first_of(verbatim, expect=Any, repairs=())(text)
        if case["mode"] in ("partial", "stream_stable"):
            kind = type(expected) if isinstance(expected, dict | list) else Any
            return (PartialReader(Output(kind)).feed(text) or (NOTHING,))[0]
        return Output(type(expected) if isinstance(expected, dict | list) else Any).parse(text)
    except ParseError:
        return NOTHING


def theirs(case: Case) -> Any:
    """What json-repair makes of it by itself."""
    try:
        return json_repair.loads(
            case["input"], strict=case["mode"] == "strict", stream_stable=case["mode"] == "stream_stable"
        )
    except Exception:  # it has many
        return NOTHING


def is_right(case: Case, value: Any) -> bool:
    """Whether a value is what was expected; where there is nothing, json-repair's empty text is as good as an error."""
    if case.get("expect_error"):
        return value is NOTHING
    if case.get("expect_nothing") or case["expected"] == "":
        return value is NOTHING or value == ""
    return value is not NOTHING and (type(value), value) == (type(case["expected"]), case["expected"])


def scores(found: list[Case]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """How many are right by mode and tag: here, with json-repair alone, and of how many."""
    here, there, total = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for case in found:
        for tag in case["tags"]:
            place = case["mode"], tag
            total[place] += 1
            here[place] += is_right(case, ours(case))
            there[place] += is_right(case, theirs(case))
    return {place: (here[place], there[place], total[place]) for place in sorted(total)}


def main() -> int:
    """Check a file from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--verbose", action="store_true", help="print each case that is wrong here")
    options = parser.parse_args()
    found = cases(options.file)
    if options.verbose:
        for case in found:
            if not is_right(case, value := ours(case)):
                shown = "nothing" if value is NOTHING else repr(value)
                print(f"{case['id']}: {case['input']!r:.200}\n  expected {case['expected']!r:.200}\n  got {shown:.200}")
    table = scores(found)
    print(f"{'mode':14} {'tag':24} {'ours':>5} {'json-repair':>12} {'of':>5}")
    for (mode, tag), (here, there, total) in table.items():
        print(f"{mode:14} {tag:24} {here:5} {there:12} {total:5}{'  below' if here < there else ''}")
    return 1 if any(here < there for here, there, _ in table.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
