"""Do pages of long runs take time in proportion to their entries?"""

from __future__ import annotations

import pytest
from support.inspector_pages import Pages
from support.time_growth import growth

from fsm_agent import Agent, Limits, function
from fsm_agent.store import MemoryStore, Runs
from fsm_agent.testing import Script, function_call
from fsm_agent.web import inspector_app

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@function
def look(n: int) -> str:
    """Look."""
    return f"the result of {n}"


def long_run(entries: int) -> Runs:
    runs = Runs(MemoryStore())
    script = [function_call("look", n=n) for n in range(entries // 2 - 1)]
    agent = Agent(Script(*script, "Done."), functions=[look], name="host", store=runs, limits=Limits(rounds=entries))
    agent.call("Go.", run_id="r")
    return runs


@pytest.mark.parametrize("path", ["run?id=r", "news?id=r&after=9", "items?id=r&after=9&until=30", "compare?a=r&b=r"])
def test_the_time_of_a_page_is_in_proportion_to_the_entries_of_its_run(path: str) -> None:
    def page(runs: Runs) -> None:
        assert Pages(inspector_app(runs)).get(f"/{path}").status_code == 200

    assert growth(long_run, page, 250) < 3
