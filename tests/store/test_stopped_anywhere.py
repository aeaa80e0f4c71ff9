"""Does no function run again that had returned, wherever its driver was stopped?"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from recorded_drivers import HEARD, Way
from support.kept_runs import LastingStore, clerk, definition_of, loaded, skip_replies

from fsm_agent.agents import Agent
from fsm_agent.errors import CallSuspended
from fsm_agent.functions import function
from fsm_agent.lifecycle import Approved, Outcome, Returned, RunAgain
from fsm_agent.messages import Done
from fsm_agent.store.memory import MemoryStore


class Stop(Exception):
    """The listener breaks off."""


class Ran:
    """Functions that note what has returned."""

    def __init__(self) -> None:
        self.returned: list[str] = []

        @function
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            self.returned.append(f"add {a}")
            return a + b

        @function(once=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.returned.append(f"pay {amount}")
            return f"paid {amount}"

        @function(needs_approval=True)
        def wipe(path: str) -> str:
            """Wipe."""
            self.returned.append(f"wipe {path}")
            return "wiped"

        self.functions = (add, pay, wipe)


def resumed(agent: Agent[Any, Any], ran: Ran) -> Any:
    """The result of the next holder, with a person who knows what was paid."""
    told: dict[str, Outcome] = {}
    for _ in range(10):
        try:
            return agent.resume("r1", told, by="ann")
        except CallSuspended as suspended:
            keys = [effect.key for effect in suspended.call.effects]
            paid: Outcome = Returned(text="paid 3") if "pay 3" in ran.returned else RunAgain()
            told = {key: paid if key.startswith("doubt:") else Approved() for key in keys}
    raise AssertionError("it has no end")


def stopped(way: Way, store: Any, at: int) -> tuple[bool, Ran, list[str]]:
    """Drive a run until its event number ``at``; return whether it came, what ran, and what had returned by then."""
    ran = Ran()
    agent = clerk(store, *ran.functions, approve=lambda f: True)
    one, recorder = agent.runs.begin(agent.seed("Go.", run_id="r1"), definition_of(agent))
    heard = 0

    def listen(event: Any) -> None:
        nonlocal heard
        heard += 1
        if heard == at and not isinstance(event, Done):
            raise Stop

    try:
        way(one, agent.own_world, recorder, listen)
    except Stop:
        return True, ran, list(ran.returned)
    return False, ran, list(ran.returned)


KINDS: list[Callable[[], Any]] = [MemoryStore, LastingStore]


@pytest.mark.parametrize("way", HEARD, ids=lambda way: way.__name__)
@pytest.mark.parametrize("every", [len(HEARD), pytest.param(1, marks=pytest.mark.nightly)])
def test_what_had_returned_is_not_run_again_wherever_the_driver_was_stopped(every: int, way: Way):
    """At each event by one of the ways, or by each of them; in the stores by turns."""
    at, stops = 1 + HEARD.index(way) % every, 0
    while True:
        store = KINDS[(at + HEARD.index(way)) % 2]()
        was_stopped, ran, returned = stopped(way, store, at)
        if not was_stopped:
            break
        stops += 1
        run = loaded(store)
        assert run.run.holder is None, f"event {at}: the run was not given back"
        keys = [json.loads(line)["key"] for line in run.lines]
        written = sum(key.startswith("run:") for key in keys)
        assert written == len(returned), f"event {at}: {keys} {returned}"
        agent = clerk(store, *ran.functions, approve=lambda f: True)
        skip_replies(agent.client, sum(key.startswith("model:") for key in keys))
        result = resumed(agent, ran)
        assert result.output == 42, f"event {at}"
        assert sorted(ran.returned) == ["add 1", "add 3", "pay 3", "wipe x"], f"event {at}"
        assert agent.runs.replay("r1", definition_of(agent)).record == result.record
        at += every
    assert stops > 20 // every, "it was stopped at each event"
    assert loaded(store).run.is_ended
