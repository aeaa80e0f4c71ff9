"""The table of the specification: which parts of its rows have a test, and which rows are proven.

A test names what it proves, rows and parts of them: ``@pytest.mark.spec("1.7: stop", "1.21: siblings do not add up")``.
The rows and their parts are listed in ``spec_parts.toml``.  A row is proven when each of its parts has a test.
``pytest --spec-table`` and ``python tests/spec_table.py`` print the table and run no test.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import pytest

PARTS = Path(__file__).with_name("spec_parts.toml")


class Row(NamedTuple):
    """One behaviour of the specification, and the parts that make it up."""

    id: str
    name: str
    parts: Sequence[str]


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file such as ``spec_parts.toml``, in its order."""
    with path.open("rb") as file:
        return [Row(id, row["name"], row["parts"]) for id, row in tomllib.load(file).items()]


def table(rows: Iterable[Row], tests: Mapping[str, Collection[str]]) -> list[str]:
    """Return the lines to print: each row with its parts and their tests, and a count of the rows.

    Args:
        rows: The rows, in the order of the table.
        tests: The tests of each part, by ``row: part``.
    """
    lines = list[str]()
    proven = partly = total = 0
    for row in rows:
        tested = [part for part in row.parts if tests.get(f"{row.id}: {part}")]
        lines.append(f"{row.id:<6} {row.name}: {len(tested)} of {len(row.parts)}")
        for part in row.parts:
            found = tests.get(f"{row.id}: {part}", ())
            lines += [f"         {part}" if found else f"         MISSING: {part}", *[f"           {t}" for t in found]]
        total += 1
        proven += len(tested) == len(row.parts)
        partly += 0 < len(tested) < len(row.parts)
    return [*lines, "", f"{proven} of {total} rows are proven, {partly} partly"]


class SpecTable:
    """Plugin that checks the markers of a run, and prints the table when it is asked for."""

    def __init__(self, rows: Iterable[Row], *, is_asked_for: bool) -> None:
        self.rows = {row.id: row for row in rows}
        self.is_asked_for = is_asked_for
        self.tests: dict[str, dict[str, None]] = {}  # by part; a set in the order of collection

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Turn wrong markers into errors of collection, which workers of pytest-xdist report like others."""
        report = yield
        items = [item for item in report.result or () if isinstance(item, pytest.Item)]
        if problems := dict.fromkeys(problem for item in items for problem in self._problems(item)):
            report.outcome, report.longrepr, report.result = "failed", "\n".join(problems), []
        return report

    def _problems(self, item: pytest.Item) -> Iterator[str]:
        test = item.nodeid.partition("[")[0]
        for mark in item.iter_markers("spec"):
            if not mark.args or mark.kwargs:
                yield f"{test}: spec(…) takes rows and parts, such as spec('1.7: continue')"
            for claim in mark.args:
                if problem := self._problem(claim):
                    yield f"{test} is marked with {claim!r}: {problem}"
                else:
                    self.tests.setdefault(claim, {})[test] = None

    def _problem(self, claim: object) -> str | None:
        if not isinstance(claim, str):
            return "a row and a part would be right, such as '1.7: continue'"
        id, _, part = claim.partition(": ")
        if (row := self.rows.get(id)) is None:
            return f"there is no row {id!r} in {PARTS.name}"
        if part in row.parts:
            return None
        close = get_close_matches(part, row.parts, n=1)
        known = f"did you mean {close[0]!r}?" if close else f"its parts are {', '.join(map(repr, row.parts))}"
        return f"row {id} has no part {part!r}; {known}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        return True if self.is_asked_for and not session.testsfailed else None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.is_asked_for:
            for line in table(self.rows.values(), self.tests):
                terminalreporter.write_line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spec-table", action="store_true", help="run no tests; print what of the specification has some")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Collect here, not in workers of pytest-xdist, when the table is asked for."""
    if config.getoption("--spec-table") and config.pluginmanager.hasplugin("xdist"):
        config.option.numprocesses, config.option.dist = 0, "no"


def pytest_configure(config: pytest.Config) -> None:
    plugin = SpecTable(read_rows(PARTS), is_asked_for=config.getoption("--spec-table"))
    config.pluginmanager.register(plugin, "spec_rows")


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    options = ["--spec-table", "-p", "no:cacheprovider", "-c", str(here.parent / "pyproject.toml")]
    sys.exit(pytest.main([*options, str(here), *sys.argv[1:]]))
