"""OS processes that drive a support flow, a coding agent of 60 rounds and an orchestrator, until they are killed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orchestrator_kill_worker
import pytest
from flow_kill_worker import models
from flow_runs import given_to_agents, s
from support.coding_session import DONE, session

from fsm_agent import Agent, Context, Limits, function
from fsm_agent.call import Outcome, Returned, RunAgain
from fsm_agent.flows.orchestrator import Accept, Orchestrator
from fsm_agent.store import Runs
from fsm_agent.testing import Script, function_call
from fsm_agent.workers import Worker, engine_of

PLAYED = session(60).rounds
PUSHES = 30  # after so many rounds the coding agent pushes, once
RESULTS = {(one.path, one.line): one.result for one in PLAYED}


class Coder(Script):
    """A model that knows from the messages which round it is."""

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        if done == PUSHES:
            reply: Any = function_call("push", branch="main")
        elif done > len(PLAYED):
            reply = DONE
        else:
            reply = function_call("read", **PLAYED[done - (done > PUSHES)].arguments)
        return self._make_reply(reply, request, timeout_s)


@function
def read(path: str, line: int) -> str:
    """Read a file from a line on."""
    return RESULTS[path, line]


@function(once=True)
def push(context: Context[Any], branch: str) -> str:
    """Push what was committed."""
    return note(context, branch)


@function(once=True)
def noting(context: Context[Any], text: str) -> str:
    """Note a text."""
    return note(context, text)


def note(context: Context[Any], text: str) -> str:
    """Note what was done, and for which run."""
    with s.outbox().open("a", encoding="utf-8") as file:
        file.write(f"{context.idempotency_key}\t{text}\n")
    return "noted"


def works(runs: Runs) -> dict[str, Any]:
    """Return the runnables by name."""
    model = orchestrator_kill_worker.Model()
    worker = Agent(model, name="worker", functions=[replace(noting, name="note")])
    return {
        "support": replace(s.support, store=runs),
        "coder": Agent(Coder(), functions=[read, push], name="coder", store=runs, limits=Limits(rounds=100)),
        "orchestrator": Orchestrator([worker], planner=Agent(model, name="planner"), store=runs),
    }


def seeded(work: Any, run: str) -> Any:
    """Return the process of a new run."""
    if isinstance(work, Agent):
        return work.prepare("Mend the nightly run.", run_id=run)
    return work.prepare(s.Ticket("x") if work.name == "support" else "the news", run_id=run)


def answers(work: Any, run: Any, effects: set[tuple[str, str]]) -> Mapping[str, Outcome]:
    """Return what a person says to the questions of a run, who sees what was done for which run."""
    told: dict[str, Outcome] = {}
    for question in run.waits:
        kind, _, subject = question.key.rpartition("/")[2].partition(":")
        if kind == "doubt":
            done = [text for of, text in effects if of == run.id and text.strip("'") in question.about]
            is_done = bool(done) or (work.name == "support" and any(of == run.id for of, _ in effects))
            receipt = '"sent"' if work.name == "support" else "noted"
            told[question.key] = Returned(text=receipt) if is_done else RunAgain()
        elif work.name == "orchestrator":
            told[question.key] = Returned(text=work.reviewing.answer_types.dump(Accept()))
        else:
            state, said = {"customer": (s.customer, "order 17"), "review": (s.review, s.Approve("ann"))}[
                subject.partition("#")[0]
            ]
            told[question.key] = Returned(text=state.answer_types.dump(said))
    return told


def effects_in(folder: Path) -> list[tuple[str, str]]:
    """Return what was done: for which run, and its text."""
    box = folder / "outbox.txt"
    lines = box.read_text().splitlines() if box.exists() else []
    return [(key.partition("/")[0], text) for key, _, text in (line.partition("\t") for line in lines)]


def work(address: str, folder: str, engine: str = "", temporal: str = "") -> None:
    """Drive runs until killed; an engine says which, and Temporal's server has this address."""
    os.chdir(folder)
    os.environ["TEMPORAL_ADDRESS"] = temporal
    given_to_agents(models(), pytest.MonkeyPatch())
    runs = Runs(address)
    worker = Worker([*works(runs).values()], runs)
    if engine:
        engine_of(engine, worker).run(threads=4)
    else:
        worker.run(threads=4)
