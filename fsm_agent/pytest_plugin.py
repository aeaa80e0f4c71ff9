"""What does pytest get from this package: a `script` fixture, and the coverage of the lifecycle's rows?

``--fsm-coverage`` prints which rows of the table the run took and which it missed;
``--fsm-no-model-requests`` refuses every request to a real model, for the whole run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fsm_agent.events import Stepped
    from fsm_agent.testing import Script


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fsm_agent")
    group.addoption("--fsm-coverage", action="store_true", help="print which rows of the lifecycle the tests took")
    group.addoption("--fsm-no-model-requests", action="store_true", help="refuse requests to real models")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "model_requests: may ask a real model, in spite of --fsm-no-model-requests")
    if config.getoption("--fsm-coverage"):
        config.pluginmanager.register(_RowCoverage(), "fsm_row_coverage")


@pytest.fixture
def script() -> Iterator[Callable[..., Script]]:
    """Makes `Script`s, and fails the test when replies are left over.

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


@pytest.fixture(autouse=True)
def _fsm_no_model_requests(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.config.getoption("--fsm-no-model-requests") or request.node.get_closest_marker("model_requests"):
        yield
        return
    from fsm_agent.testing import no_model_requests

    with no_model_requests():
        yield


class _RowCoverage:
    """Watches every call of the process, and reports at the end of the run."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()

    def pytest_sessionstart(self) -> None:
        from fsm_agent.call import WATCHERS

        WATCHERS.append(self._watch)

    def pytest_sessionfinish(self) -> None:
        from fsm_agent.call import WATCHERS

        WATCHERS.remove(self._watch)

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
    """Every row of the table, once for each of its sources."""
    from fsm_agent.table import ROWS

    for trigger, sources, to, guard, _ in ROWS:
        for source in (sources,) if isinstance(sources, str) else sources:
            yield _named(source, trigger, to or source, guard.__name__ if guard else "")


def _named(source: str, trigger: str, to: str, guard: str) -> str:
    return f"{source} --{trigger}{f' [{guard}]' if guard else ''}--> {to}"
