"""The pytest plugin: a `script` fixture, and the coverage of the lifecycle's rows.

``--fsm-coverage`` prints which rows of the table the run took and which it missed;
``--fsm-no-model-requests`` refuses every request to a real model, for the whole run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fsm_agent.messages.event import Stepped
    from fsm_agent.testing import Script


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fsm_agent")
    group.addoption("--fsm-coverage", action="store_true", help="print which rows of the lifecycle the tests took")
    group.addoption("--fsm-no-model-requests", action="store_true", help="refuse requests to real models")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "model_requests: may ask a real model, in spite of --fsm-no-model-requests")
    if config.getoption("--fsm-coverage"):
        config.pluginmanager.register(_RowCoverage(), "fsm_row_coverage")
    if config.getoption("--fsm-no-model-requests"):
        config.pluginmanager.register(_NoModelRequests(), "fsm_no_model_requests")


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    """Make `Script`s, and fail the test when replies are left over.

    ``agent = Agent(script("hello", call("add", a=1, b=2)))``
    """
    from fsm_agent.testing import Script

    made: list[Script] = []

    def make(*entries: Any, **options: Any) -> Script:
        made.append(Script(*entries, **options))
        return made[-1]

    yield make
    for one in made:
        one.assert_exhausted()


class _NoModelRequests:
    """Refuse requests from the session's start to its end, fixtures of every scope included."""

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
    """Count the rows that calls take, here and in workers of pytest-xdist, and report them at the end of the run."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self._watching = ExitStack()

    def pytest_sessionstart(self) -> None:
        from fsm_agent.machine.watching import watched_steps

        self._watching.enter_context(watched_steps(self._watch))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._watching.close()
        if (sent := getattr(session.config, "workeroutput", None)) is not None:
            sent["fsm_rows"] = dict(self.taken)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.taken.update(getattr(node, "workeroutput", {}).get("fsm_rows", {}))  # a crashed worker has none

    def _watch(self, step: Stepped) -> None:
        self.taken[_named(step.source, step.trigger, step.to, step.guard)] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("rows of the agent call's lifecycle")
        names = list(_rows())
        for name in names:
            count = self.taken[name]
            terminalreporter.write_line(f"{count:>8}  {name}" if count else f"  MISSED  {name}")
        taken = sum(self.taken[name] > 0 for name in names)
        terminalreporter.write_line(f"{taken} of {len(names)} rows were taken, {self.taken.total()} steps in all")


def _rows() -> Iterator[str]:
    """Yield every row of the table, once for each of its sources."""
    from fsm_agent.lifecycle.table import ROWS

    for trigger, sources, to, guard, _ in ROWS:
        for source in (sources,) if isinstance(sources, str) else sources:
            yield _named(source, trigger, to or source, guard.__name__ if guard else "")


def _named(source: str, trigger: str, to: str, guard: str) -> str:
    return f"{source} --{trigger}{f' [{guard}]' if guard else ''}--> {to}"
