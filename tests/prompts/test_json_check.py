"""Is the score of malformed documents that of json-repair alone, or better?"""

from __future__ import annotations

import json

import json_check
import pytest
from support.paths import SHARED

CASES = SHARED / "cases" / "json_repair.jsonl"


@pytest.mark.skipif(not CASES.exists(), reason=f"no recorded cases at {CASES}")
def test_we_are_never_below_json_repair(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["json_check.py", str(CASES)])
    assert json_check.main() == 0, capsys.readouterr().out
    assert "truncated" in capsys.readouterr().out
    assert json_check.scores(json_check.cases(CASES))["partial", "truncated"] == (29, 25, 34)


def test_a_score_below_is_told(monkeypatch, capsys, tmp_path):
    case = {"id": "x", "mode": "repair", "input": "{'a': 1}", "expected": {"a": 1}, "tags": ["single_quotes"]}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    monkeypatch.setattr("sys.argv", ["json_check.py", str(tmp_path / "cases.jsonl"), "--verbose"])
    assert json_check.main() == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["repair", "single_quotes", "1", "1", "1"]
    monkeypatch.setattr(json_check, "ours", lambda case: [])
    assert json_check.main() == 1
    assert "got []" in (out := capsys.readouterr().out)
    assert out.endswith("  below\n")
