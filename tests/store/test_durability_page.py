"""Is each test there that the page about durability names?"""

from __future__ import annotations

import re

from support.paths import ROOT

PAGE = (ROOT / "docs" / "durability.md").read_text("utf-8")
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ") and "| Now |" not in line]


def test_each_finding_is_fixed_rejected_or_open_and_the_tests_are_there() -> None:
    for finding, now, shown in ROWS:
        assert re.match(r" (fixed|rejected|open)\b", now), finding
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", shown)
        assert named or not now.startswith(" fixed"), f"no test shows that this is fixed: {finding}"
        for path, name in named:
            text = (ROOT / path).read_text("utf-8")
            assert not name or re.search(rf"^\s*(?:async )?def {name}\b", text, re.M), f"{path} has no {name}"
