"""OS processes that drive an orchestrator and are killed between two of its steps."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from kill_points import KillPoints
from orchestrations import FAIL, PASS, as_json, new_steps, step, strategy

from fsm_agent import Agent, Function
from fsm_agent.call import Returned, RunAgain
from fsm_agent.flows import FlowSuspended
from fsm_agent.flows.orchestrator import Accept, Orchestrator
from fsm_agent.testing import Script, function_call

RUN = "t1"
PLAN = strategy(
    step("facts", "Find {{ task }}"),
    step("letter", "Write {{ facts }}", requires_validation=True),
    step("post", "Send {{ letter }}", requires_approval=True),
)
NEW = new_steps(
    step("warm", "Write warmly {{ facts }}", requires_validation=True),
    step("post", "Send {{ warm }}", requires_approval=True),
)


class Model(Script):
    """A model that knows from the dialog what to say, however often it is asked."""

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        return self._make_reply(_reply(request), request, timeout_s)


def _reply(request: Any) -> Any:
    task = next(message.text for message in request.messages if message.role == "user")
    if task.startswith("Make a strategy"):
        return as_json(PLAN)
    if "Decide:" in task:
        return "TACTICAL"
    if "Replace it" in task:
        return NEW
    if "PASS or FAIL" in task:
        return PASS if "warm" in task else FAIL
    if not task.startswith(("Find", "Send")):
        return f"[{task}]"
    return "done" if request.messages[-1].role == "tool" else function_call("note", text=task)


def orchestrator(folder: str, points: KillPoints | None = None) -> Orchestrator:
    def note(text: str) -> str:
        """Note a text."""
        with Path(folder, "outbox.txt").open("a") as file:
            file.write(f"{text}\n")
        return "noted"

    noting = Function.of(note, once=True)
    if points is not None:
        noting = replace(noting, call=points.around(noting.call))
    worker = Agent(Model(), name="worker", functions=[noting])
    made = Orchestrator([worker], planner=Agent(Model(), name="planner"), store=str(Path(folder, "runs.db")))
    made.flow.runs.all.claims.lease_s = 0.5
    if points is not None:
        points.watch(made.flow.runs.all.store)
    return made


def drive_between(folder: str, name: str, number: int) -> None:
    """Continue the run, and be killed at the point of this name and number between its steps, or never for 0."""
    os.chdir(folder)
    one = orchestrator(folder, KillPoints(name, number))
    try:
        one.run(one.prepare("the news", run_id=RUN))
    except FlowSuspended as waiting:
        while True:
            (effect,) = [effect for effect in waiting.run.effects if effect.question]
            answer: Any = Accept()
            if effect.prefix == "reconcile":
                answer = _noted(folder, effect.call.arguments["text"])
            with Path("asked.txt").open("a") as file:
                file.write(f"{effect.key}\n")
            try:
                one.runs.resume(RUN, {effect.key: answer})
                break
            except FlowSuspended as again:
                waiting = again


def _noted(folder: str, text: str) -> Any:
    """Return the outcome of a note: it is in the outbox, or it may be made again."""
    box = Path(folder, "outbox.txt")
    return Returned(text="noted") if box.exists() and text in box.read_text().splitlines() else RunAgain()
