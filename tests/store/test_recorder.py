"""Does a recorder know which posts end its process, and when its run is another's?"""

from __future__ import annotations

import json
import weakref
from typing import Any

import pytest
from support.agent_drivers import Way, both
from support.kept_runs import LastingStore, Noting, definition_of

from fsm_agent.agents import Agent
from fsm_agent.functions import function
from fsm_agent.store import LeaseLost, MemoryStore
from fsm_agent.testing import Script, function_call

RUN = "r1"


class Driver:
    """The part of a driver that a recorder needs: it is told to look for letters, or to release a request as well."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def wake_for_post(self) -> None:
        self.told.append("notice")

    def wake(self) -> None:
        self.told.append("wake")


def begun(store: Noting) -> tuple[Agent[Any, Any], Any]:
    agent = Agent(Script("fine"), store=store, name="a")
    _, recorder = agent.runs.all.claims.begin(agent.prepare("Go.", run_id=RUN), definition_of(agent))
    assert recorder is not None
    return agent, recorder


@pytest.mark.parametrize(
    ("key", "outcome", "told"),
    [
        ("", {"kind": "cancelled"}, "wake"),
        ("", {"kind": "stopped"}, "wake"),
        ("", {"kind": "injected", "messages": []}, "notice"),
        ("model:0", {"kind": "stopped"}, "notice"),  # it answers one effect, and ends no other
        ("child#1/", {"kind": "cancelled"}, "wake"),
    ],
)
def test_only_what_ends_a_process_lets_go_of_its_request(key: str, outcome: dict[str, Any], told: str):
    agent, recorder = begun(Noting())
    driver: Any = Driver()
    recorder._driver = weakref.ref(driver)
    agent.runs.all.store.signal(RUN, "", json.dumps({"key": key, "outcome": outcome}))
    recorder.fetch()
    assert driver.told == [told]


def test_a_run_that_was_given_back_well_is_not_lost():
    _, recorder = begun(Noting())
    recorder.finish(is_stopped=True)
    recorder.write()
    recorder.lose(LeaseLost("another has claimed it since"))
    assert recorder.lost is None
    assert not recorder.is_behind


@pytest.mark.parametrize("store", [MemoryStore, LastingStore])
@both
def test_a_run_can_be_read_while_it_goes_on(store: type[MemoryStore], way: Way):
    """As any other process sees it, from within its own function."""
    seen = []

    @function
    def look() -> str:
        """Look."""
        runs = agent.runs
        seen.append((runs.get(RUN).state, str(runs.at(RUN).state), runs.all.store.get(RUN).n))
        return "seen"

    agent = Agent(Script(function_call("look"), "Done."), functions=[look], store=store(), name="a")
    way(agent, agent.prepare("Go.", run_id=RUN), [])
    assert seen == [("ToolInterrupt", "ToolInterrupt", 2)]
