"""Which tests prove which rows of the specification?

    python tools/spec.py            # the table: each row, its parts, their tests
    python tools/spec.py --check    # exit status 1 for a test that is gone, or a part without a test

``tests/spec_parts.toml`` has the rows and their parts, ``tests/spec.tsv`` a line for each proof: row, part and test,
with tabs between them.  A part that no test proves stands there with ``-`` and the reason.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS, PROOFS = ROOT / "tests" / "spec_parts.toml", ROOT / "tests" / "spec.tsv"


@cache
def tests_of(file: Path) -> frozenset[str]:
    """Return the tests that a file defines, those of classes as ``Class::test``."""
    found = set[str]()
    for node in ast.parse(file.read_text("utf-8")).body if file.is_file() else ():
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + one.name for one in inside if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    return frozenset(found)


def main() -> int:
    rows = tomllib.loads(PARTS.read_text("utf-8"))
    proofs, problems = defaultdict(list), list[str]()
    for number, line in enumerate(PROOFS.read_text("utf-8").splitlines(), 1):
        row, part, test = line.split("\t")
        proofs[row, part].append(test)
        file, _, name = test.partition("::")
        if part not in rows.get(row, {"parts": ()})["parts"]:
            problems.append(f"line {number}: {PARTS.name} has no part {part!r} of a row {row!r}")
        elif not test.startswith("- ") and name not in tests_of(ROOT / file):
            problems.append(f"line {number}: there is no test {test}")
    whole = 0
    for row, described in rows.items():
        found = {part: proofs.get((row, part), []) for part in described["parts"]}
        problems += [f"row {row}: no test proves {part!r}" for part, tests in found.items() if not tests]
        whole += all(tests and not tests[0].startswith("- ") for tests in found.values())
        if "--check" not in sys.argv[1:]:
            print(f"{row} {described['name']}")
            for part, tests in found.items():
                print(f"    {part}", *[f"        {test}" for test in tests], sep="\n")
    print(*problems, f"{whole} of {len(rows)} rows are proven", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
