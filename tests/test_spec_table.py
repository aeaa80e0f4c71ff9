"""Does the table say which parts of the specification are proven, and which rows?"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from spec_table import PARTS, Row, read_rows, table

TESTS = Path(__file__).parent
SHARED = TESTS.parents[1] / "shared" / "design" / "SPEC.md"
ROWS = """
["0.1"]
name = "Machines"
parts = ["made alone", "made without I/O"]

["1.37"]
name = "`Usage` / Cost"
parts = ["adds up: exactly"]

["2.44b"]
name = "Escalation"
parts = ["supplies an output"]
"""
TEST_IT = """
import pytest

@pytest.mark.spec("0.1: made alone", "1.37: adds up: exactly")
@pytest.mark.parametrize("n", [1, 2])
def test_both(n):
    raise AssertionError("nobody asked to run this")

class TestIt:
    @pytest.mark.spec("0.1: made alone")
    def test_inside(self): ...
"""
TABLE = """
0.1    Machines: 1 of 2
         made alone
           tests/test_it.py::test_both
           tests/test_it.py::TestIt::test_inside
         MISSING: made without I/O
1.37   `Usage` / Cost: 1 of 1
         adds up: exactly
           tests/test_it.py::test_both
2.44b  Escalation: 0 of 1
         MISSING: supplies an output

1 of 3 rows are proven, 1 partly
"""


WRONG = {
    'spec("0.2: made alone")': " is marked with '0.2: made alone': there is no row '0.2' in spec_parts.toml",
    'spec("0.1: made alon")': " is marked with '0.1: made alon': row 0.1 has no part 'made alon'; did you mean",
    'spec("0.1")': " is marked with '0.1': row 0.1 has no part ''; its parts are 'made alone', 'made without I/O'",
    "spec(1.37)": " is marked with 1.37: a row and a part would be right, such as '1.7: continue'",
    "spec()": ": spec(…) takes rows and parts, such as spec('1.7: continue')",
    'spec("0.1: made alone", row=1)': ": spec(…) takes rows and parts",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with three rows, two tests and the plugin."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "spec_parts.toml").write_text(ROWS, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["spec(*claims): parts of rows"]\n')
    shutil.copy(TESTS / "spec_table.py", tests)
    (tests / "conftest.py").write_text('pytest_plugins = ["spec_table"]\n')
    (tests / "test_it.py").write_text(TEST_IT)
    return tmp_path


def printed(project: Path, *command: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "250"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=project, env=environment, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_row_is_proven_by_tests_of_all_its_parts():
    rows = [Row("0.1", "Machines", ["alone", "pure"]), Row("2.5", "Repair", ["mended"])]
    assert table(rows, {"0.1: alone": ["a.py::b"]})[-1] == "0 of 2 rows are proven, 1 partly"
    assert table(rows, {"0.1: alone": ["a.py::b"], "0.1: pure": []})[-1] == "0 of 2 rows are proven, 1 partly"
    assert table(rows, {"0.1: alone": ["a.py::b"], "0.1: pure": ["a.py::b"]}) == [
        "0.1    Machines: 2 of 2",
        "         alone",
        "           a.py::b",
        "         pure",
        "           a.py::b",
        "2.5    Repair: 0 of 1",
        "         MISSING: mended",
        "",
        "1 of 2 rows are proven, 0 partly",
    ]


@pytest.mark.system
@pytest.mark.parametrize(
    "command",
    [
        ["tests/spec_table.py"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--spec-table"],
        pytest.param(
            ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", "-n2", "--spec-table"],
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["script", "pytest", "workers"],
)
def test_the_table_is_printed_and_nothing_is_run(project: Path, command: list[str]):
    code, output = printed(project, *command)
    assert TABLE in output
    assert (code, "nobody asked" in output) == (0, False)


@pytest.mark.system
@pytest.mark.parametrize(
    "options",
    [pytest.param([], id="here"), pytest.param(["-p", "xdist", "-n1"], id="worker", marks=pytest.mark.nightly)],
)
def test_a_marker_that_names_no_part_is_an_error(project: Path, options: list[str]):
    tests = [f"@pytest.mark.{marker}\ndef test_{n}(): ...\n" for n, marker in enumerate(WRONG)]
    (project / "tests" / "test_it.py").write_text("\n".join(["import pytest", *tests]))
    code, output = printed(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options)
    for n, problem in enumerate(WRONG.values()):
        assert f"tests/test_it.py::test_{n}{problem}" in output
    assert (code != 0, "1 error" in output, "passed" in output) == (True, True, False)


def test_the_parts_of_a_row_are_distinct_phrases():
    for row in read_rows(PARTS):
        words = [" ".join(re.findall(r"\w+", part.lower())) for part in row.parts]
        assert words, f"row {row.id} has no parts"
        assert len(set(words)) == len(words), f"row {row.id} has a part twice"
        assert all(part == part.strip() and part for part in row.parts)


def claims_of(source: str) -> Iterator[str]:
    """The claims of all spec markers of a file, read from its text."""
    for node in ast.walk(ast.parse(source)) if "pytest.mark.spec(" in source else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "spec":
            assert ast.unparse(node.func) == "pytest.mark.spec"
            yield from map(ast.literal_eval, node.args)


def test_the_count_is_that_of_the_markers(request: pytest.FixtureRequest):
    """In all files that this run has collected."""
    tests = request.config.pluginmanager.get_plugin("spec_rows").tests
    marked = {request.config.rootpath / test.partition("::")[0] for found in tests.values() for test in found}
    files = marked | {item.path for item in request.session.items}
    claimed = {claim for path in files for claim in claims_of(path.read_text(encoding="utf-8"))}
    rows = read_rows(PARTS)
    counts = [[f"{row.id}: {part}" in claimed for part in row.parts] for row in rows]
    proven, some = sum(map(all, counts)), sum(map(any, counts))
    lines = table(rows, tests)
    assert sum("MISSING: " in line for line in lines) == sum(map(len, counts)) - len(claimed)
    assert lines[-1] == f"{proven} of {len(rows)} rows are proven, {some - proven} partly"


@pytest.mark.skipif(not SHARED.is_file(), reason="the specification (../shared/design/SPEC.md) is not here")
def test_the_rows_are_those_of_the_specification():
    text = SHARED.read_text(encoding="utf-8")
    body = text[text.index("\n## 3.") : text.index("\n## 8.")]
    in_tables = re.findall(r"^\| (?!ID name|-)(\S+) \[\w[^\]]*\] ([^|]+?) *\|", body, re.MULTILINE)
    assert len(in_tables) == len(re.findall(r"^\| (?!ID name)", body, re.MULTILINE))
    assert [(row.id, row.name) for row in read_rows(PARTS)] == in_tables
