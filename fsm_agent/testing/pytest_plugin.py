"""The pytest plugin: a `script` fixture, and coverage of machines' rows.

``--fsm-coverage`` prints the rows that the tests took and missed, for agent calls and for each flow that they used.
``--fsm-coverage-fail-under`` sets the minimum coverage for flows' rows.  ``--fsm-coverage-json`` writes the coverage to
a file.  ``--fsm-no-model-requests`` refuses every request to a real model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fsm_agent.messages.events import Stepped
    from fsm_agent.testing import Script


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fsm_agent")
    group.addoption("--fsm-coverage", action="store_true", help="print which rows of the lifecycle the tests took")
    group.addoption(
        "--fsm-coverage-fail-under",
        type=float,
        default=0.0,
        metavar="PERCENT",
        help="fail if the tests took a smaller share of the rows that users wrote in flows",
    )
    group.addoption("--fsm-coverage-json", metavar="FILE", help="write the coverage of rows as JSON")
    group.addoption("--fsm-no-model-requests", action="store_true", help="refuse requests to real models")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "model_requests: may ask a real model despite --fsm-no-model-requests")
    reports = ("--fsm-coverage", "--fsm-coverage-fail-under", "--fsm-coverage-json")
    if any(config.getoption(name) for name in reports):
        config.pluginmanager.register(_RowCoverage(), "fsm_row_coverage")
    if config.getoption("--fsm-no-model-requests"):
        config.pluginmanager.register(_NoModelRequests(), "fsm_no_model_requests")


_RAISED = pytest.StashKey[bool]()  # whether the test or its setup raised


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when != "teardown":
        item.stash[_RAISED] = call.excinfo is not None


@pytest.fixture
def script(request: pytest.FixtureRequest) -> Iterator[Callable[..., Script]]:
    """Make `Script`s, and fail the test if replies are missing or left over.

    If the test itself raises, the replies are not checked, so that a mistake is reported only once.

    ``agent = Agent(script("hello", function_call("add", a=1, b=2)))``
    """
    from fsm_agent.testing import Script

    made: list[Script] = []

    def make(*entries: Any, **options: Any) -> Script:
        made.append(Script(*entries, **options))
        return made[-1]

    yield make
    if not request.node.stash[_RAISED]:
        for one in made:
            one.assert_exhausted()


class _NoModelRequests:
    """Refuses requests to models for the whole session, including fixtures with any scope."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        from fsm_agent.testing import model_requests

        with model_requests(allowed=False):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        from fsm_agent.testing import model_requests

        with model_requests(allowed=item.get_closest_marker("model_requests") is not None):
            return (yield)


class _RowCoverage:
    """Counts the rows that are taken, including those in pytest-xdist workers, and reports them at the end."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        # The rows of each flow that was used, and whether users wrote them.  Versions of a flow share its name.
        self.flows: dict[str, dict[str, bool]] = {}
        self._watching = ExitStack()

    def pytest_sessionstart(self) -> None:
        from fsm_agent.call.process import watched_steps, watched_tables

        self._watching.enter_context(watched_steps(self._watch))
        self._watching.enter_context(watched_tables(self._watch_flow))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._watching.close()
        if (sent := getattr(session.config, "workeroutput", None)) is not None:
            sent["fsm_rows"] = dict(self.taken)
            sent["fsm_flows"] = self.flows
        elif self.covered < self._required(session.config):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @property
    def covered(self) -> float:
        """The percentage of users' own rows in flows that were taken, or 100 if there are no such rows."""
        names = [f"{flow}: {row}" for flow, rows in self.flows.items() for row, is_own in rows.items() if is_own]
        return 100.0 * sum(self.taken[name] > 0 for name in names) / len(names) if names else 100.0

    def _required(self, config: pytest.Config) -> float:
        return float(config.getoption("--fsm-coverage-fail-under"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        sent = getattr(node, "workeroutput", {})  # a crashed worker has none
        self.taken.update(sent.get("fsm_rows", {}))
        for name, rows in sent.get("fsm_flows", {}).items():
            self._add_rows(name, rows)

    def _watch(self, step: Stepped) -> None:
        self.taken[_step_name(step)] += 1

    def _watch_flow(self, flow: Any, step: Stepped) -> None:
        self._add_rows(flow.name, flow.row_names)
        self.taken[f"{flow.name}: {_step_name(step)}"] += 1

    def _add_rows(self, flow: str, rows: Mapping[str, bool]) -> None:
        known = self.flows.setdefault(flow, {})
        if not rows.items() <= known.items():
            known.update({row: is_own or known.get(row, False) for row, is_own in rows.items()})

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        terminalreporter.section("rows of the agent call's lifecycle")
        names = _rows()
        for name in names:  # without the rows that no test took, which are the framework's; the JSON has them
            if count := self.taken[name]:
                terminalreporter.write_line(f"{count:>8}  {name}")
        taken = sum(self.taken[name] > 0 for name in names)
        steps = sum([times for name, times in self.taken.items() if name in names])
        terminalreporter.write_line(f"{taken} of {len(names)} rows were taken, {steps} steps in all")
        for flow in sorted(self.flows):
            self._report_flow(terminalreporter, flow)
        if self.flows and self.covered < self._required(config):
            required = self._required(config)
            terminalreporter.write_line(f"FAILED: {self.covered:.0f} % of the rows of flows, below {required:g} %")
        if path := config.getoption("--fsm-coverage-json"):
            Path(path).write_text(json.dumps(self._as_json(), indent=2), "utf-8")

    def _report_flow(self, terminalreporter: Any, flow: str) -> None:
        """Print the rows of a flow, including default rows that were taken."""
        terminalreporter.section(f"rows of the flow {flow!r}")
        rows = self.flows[flow]
        for row, is_own in rows.items():
            count = self.taken[f"{flow}: {row}"]
            if is_own or count:
                default = "" if is_own else "  (default)"
                terminalreporter.write_line((f"{count:>8}  {row}" if count else f"  MISSED  {row}") + default)
        own = [row for row, is_own in rows.items() if is_own]
        taken = sum(self.taken[f"{flow}: {row}"] > 0 for row in own)
        terminalreporter.write_line(f"{taken} of {len(own)} rows were taken")

    def _as_json(self) -> dict[str, Any]:
        flows = {
            flow: {row: {"taken": self.taken[f"{flow}: {row}"], "is_default": not own} for row, own in rows.items()}
            for flow, rows in self.flows.items()
        }
        return {"agent_call": {row: self.taken[row] for row in _rows()}, "flows": flows, "covered": self.covered}


def _rows() -> list[str]:
    """Return every row of the call's table, once for each of its sources."""
    from fsm_agent.call.machine import single_rows
    from fsm_agent.call.transition_table import ROWS

    return [str(row) for row in single_rows(ROWS)]


def _step_name(step: Stepped) -> str:
    from fsm_agent.call.machine import row_name

    return row_name(step.source, step.trigger, step.to, step.guard)
