"""Does the table say which rows of the specification have tests?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from spec_table import Row, rows_of, table

SHARED = Path(__file__).parents[2] / "shared" / "design" / "SPEC.md"
SPEC = """
## 2. The machine

| 1.99 [S] not in a section of rows | x | y | z |

## 3. Seed

| ID name | Precise semantics |
|---|---|
| 0.1 [S] Machines | pure |
| 1.37 [U] `Usage` / Cost | sums `int | None` |

## 7. Another

| 2.5 [M planned] Repair | x |
| 2.44b [S] Escalation | no row: | 9.9 | |

## 8. Overlaps

| 4.1 [S] Too late | x |
"""
TESTS = """
import pytest

@pytest.mark.spec("0.1", "2.44b")
@pytest.mark.parametrize("n", [1, 2])
def test_both(n):
    raise AssertionError("nobody asked to run this")

class TestIt:
    @pytest.mark.spec("0.1")
    def test_inside(self): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a specification beside it."""
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    (tmp_path / "shared" / "design").mkdir(parents=True)
    (tmp_path / "shared" / "design" / "SPEC.md").write_text(SPEC, encoding="utf-8")
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["spec(*rows): rows"]\n')
    shutil.copy(Path(__file__).with_name("spec_table.py"), project / "tests")
    (project / "tests" / "conftest.py").write_text('pytest_plugins = ["spec_table"]\n')
    (project / "tests" / "test_it.py").write_text(TESTS)
    return project


def printed(project: Path, *command: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "250"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=project, env=environment, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_rows_are_those_of_sections_3_to_7():
    expected = [Row("0.1", "Machines"), Row("1.37", "`Usage` / Cost"), Row("2.5", "Repair"), Row("2.44b", "Escalation")]
    assert rows_of(SPEC) == expected


def test_rows_without_a_test_are_listed_again():
    rows = [Row("0.1", "Machines"), Row("2.5", "Repair")]
    assert table(rows, {"0.1": ["a.py::b"]}) == [
        "0.1    Machines",
        "         a.py::b",
        "2.5    Repair",
        "",
        "Rows without a test:",
        "  2.5    Repair",
        "",
        "1 of 2 rows have tests",
    ]
    assert "Rows without a test:" not in table(rows[:1], {"0.1": ["a.py::b"]})


def test_the_script_prints_the_table_and_runs_nothing(project):
    code, output = printed(project, "tests/spec_table.py")
    assert (
        "0.1    Machines\n         tests/test_it.py::test_both\n         tests/test_it.py::TestIt::test_inside\n"
        in output
    )
    assert "Rows without a test:\n  1.37   `Usage` / Cost\n  2.5    Repair\n\n2 of 4 rows have tests\n" in output
    assert (code, "nobody asked" in output) == (0, False)


def test_without_a_specification_there_is_no_table_and_no_error(project):
    shutil.rmtree(project.parent / "shared")
    code, output = printed(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--spec-table")
    assert f"there is no table: {project.parent / 'shared' / 'design' / 'SPEC.md'} is not here" in output
    assert (code, "rows have tests" in output) == (0, False)


@pytest.mark.parametrize(
    ("marker", "problem"),
    [
        ('spec("0.1", "0.2")', "tests/test_it.py::test_wrong is marked with row '0.2', which is not in "),
        ("spec(1.37)", "tests/test_it.py::test_wrong: spec(…) takes ids of rows as strings, such as spec('1.8')"),
        ("spec()", "tests/test_it.py::test_wrong: spec(…) takes ids of rows as strings"),
    ],
)
def test_a_marker_that_names_no_row_is_an_error(project, marker, problem):
    wrong = f"import pytest\n\n@pytest.mark.{marker}\ndef test_wrong(): ...\n"
    (project / "tests" / "test_it.py").write_text(wrong)
    code, output = printed(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert f"ERROR: {problem}" in output
    assert code == pytest.ExitCode.USAGE_ERROR


@pytest.mark.skipif(not SHARED.is_file(), reason="the specification (../shared/design/SPEC.md) is not here")
def test_every_row_of_the_specification_is_read():
    text = SHARED.read_text(encoding="utf-8")
    rows = rows_of(text)
    assert len({row.id for row in rows}) == len(rows)
    assert {"0.1", "1.37", "2.44b", "2.53", "3.20", "4.37"} <= {row.id for row in rows}
    body = text[text.index("\n## 3.") : text.index("\n## 8.")]
    in_tables = [line for line in body.splitlines() if line.startswith("| ") and not line.startswith("| ID name")]
    assert len(rows) == len(in_tables)
