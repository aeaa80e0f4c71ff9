"""Which rows of the specification have tests?  ``pytest --spec-table`` and ``python tests/spec_table.py`` print it.

A test says which rows it proves: ``@pytest.mark.spec("1.8", "4.34")``.  The rows stand in ``../shared/design/SPEC.md``,
beside the project; where that is not, markers are taken as they are, and there is no table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

_SECTIONS = re.compile(r"^## ([0-9]+)\.", re.MULTILINE)
_ROW = re.compile(r"^\| ([0-9]+\.[0-9]+[a-z]?) \[\w[^\]]*\] ([^|]+?) *\|", re.MULTILINE)


class Row(NamedTuple):
    """One behaviour that the specification asks for."""

    id: str
    name: str

    def __str__(self) -> str:
        return f"{self.id:<6} {self.name}"


def rows_of(text: str) -> list[Row]:
    """The rows of the tables in sections 3 to 7, in order."""
    starts = {int(found[1]): found.start() for found in _SECTIONS.finditer(text)}
    return [Row(*found) for found in _ROW.findall(text[starts[3] : starts[8]])]


def table(rows: Iterable[Row], tests: Mapping[str, Iterable[str]]) -> list[str]:
    """The lines that are printed: each row with its tests, the rows without, and how many there are."""
    rows = list(rows)
    lines = list[str]()
    for row in rows:
        lines += [str(row), *[f"         {test}" for test in tests.get(row.id, ())]]
    without = [row for row in rows if not tests.get(row.id)]
    if without:
        lines += ["", "Rows without a test:", *[f"  {row}" for row in without]]
    return [*lines, "", f"{len(rows) - len(without)} of {len(rows)} rows have tests"]


def _ids(item: pytest.Item) -> list[str]:
    ids = [id for mark in item.iter_markers("spec") for id in mark.args]
    if any(not mark.args or mark.kwargs for mark in item.iter_markers("spec")) or not all(
        isinstance(id, str) for id in ids
    ):
        raise pytest.UsageError(f"{item.nodeid}: spec(…) takes ids of rows as strings, such as spec('1.8')")
    return ids


class SpecTable:
    """Looks at the markers of a run."""

    def __init__(self, spec: Path, *, is_asked_for: bool) -> None:
        self.spec = spec
        self.is_asked_for = is_asked_for
        self.rows = rows_of(spec.read_text(encoding="utf-8")) if spec.is_file() else []
        self.tests: dict[str, dict[str, None]] = {}  # by row; a set in the order of collection

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = {row.id for row in self.rows}
        wrong = list[str]()
        for item in items:
            test = item.nodeid.partition("[")[0]
            for id in _ids(item):
                self.tests.setdefault(id, {})[test] = None
                if known and id not in known:
                    wrong.append(f"{test} is marked with row {id!r}, which is not in {self.spec}")
        if wrong:
            raise pytest.UsageError("\n".join(dict.fromkeys(wrong)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Runs no test when the table is asked for."""
        return True if self.is_asked_for and not session.testsfailed else None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.is_asked_for:
            return
        if not self.rows:
            terminalreporter.write_line(f"there is no table: {self.spec} is not here")
            return
        for line in table(self.rows, self.tests):
            terminalreporter.write_line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spec-table", action="store_true", help="run no tests; print which rows of SPEC.md have some")


def pytest_configure(config: pytest.Config) -> None:
    spec = config.rootpath.parent / "shared" / "design" / "SPEC.md"
    config.pluginmanager.register(SpecTable(spec, is_asked_for=config.getoption("--spec-table")), "spec_rows")


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    options = ["--spec-table", "-p", "no:cacheprovider", "-c", str(here.parent / "pyproject.toml")]
    sys.exit(pytest.main([*options, str(here), *sys.argv[1:]]))
