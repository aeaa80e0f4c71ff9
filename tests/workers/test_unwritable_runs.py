"""Does a run whose entries the store refuses for good ask a person, and leave the others alone?"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fsm_agent import Agent, MemoryStore, Worker
from fsm_agent.call import RunAgain
from fsm_agent.messages import Reply
from fsm_agent.testing import FakeClock, Script

TRIES = 5
LATER_S = 60.0


class Refusing(MemoryStore):
    """A store that cannot hold a word."""

    word = "smile"

    def append(self, lease: Any, n: int, lines: Any, rest: Any = None, **more: Any) -> int:
        if self.word and any(self.word in line for line in lines):
            raise ValueError(f"the database has no {self.word!r} \u2603 for sk-abcdefghijklmnopqrstuvwxyz")
        return super().append(lease, n, lines, rest, **more)


def replying(request: Any) -> Reply:
    return Reply.of("smile" if request.messages[-1].text == "bad" else "ok")


def advanced(worker: Worker, by_asyncio: bool) -> None:
    for name in ("bad", "good"):
        if worker.runs.store.get(name).due_s is not None:
            asyncio.run(worker.adrive(name)) if by_asyncio else worker.drive(name)


@pytest.mark.parametrize("by_asyncio", [False, True], ids=["sync", "asyncio"])
def test_it_is_stuck_with_the_reason_after_its_tries(by_asyncio: bool) -> None:
    clock = FakeClock()
    store, script = Refusing(clock.now), Script(*[replying] * 20)
    agent = Agent(script, name="clerk", store=store)
    agent.runs.submit("bad", run_id="bad")
    agent.runs.submit("good", run_id="good")
    worker = Worker([agent], agent.runs.all)
    for _ in range(TRIES + 3):
        advanced(worker, by_asyncio)
        clock.advance(LATER_S)
    asked = [request.messages[-1].text for request in script.requests]
    assert (asked.count("bad"), asked.count("good")) == (1 + TRIES, 1)  # the first has also begun it
    row = store.get("bad")
    assert (row.due_s, row.holder, [question.kind for question in row.waits]) == (None, None, ["stuck"])
    problem = json.loads(row.waits[0].about)["problem"]
    assert r"the database has no 'smile' \u2603" in problem, "any database holds it"
    assert "abcdefgh" not in problem, "all who see the question may see it"
    store.word = ""
    agent.runs.all.answer("bad", {"stuck": RunAgain()})
    advanced(worker, by_asyncio)
    assert agent.runs.resume("bad").output == "smile"
