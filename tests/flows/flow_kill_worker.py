"""OS processes that drive the support flow and are killed between two of its steps."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from flow_runs import s
from kill_points import KillPoints

from fsm_agent.call import Returned, RunAgain
from fsm_agent.flows import FlowSuspended
from fsm_agent.testing import Script

RUN = "t1"


class Model(Script):
    """A model that knows from the task what to say, however often it is asked."""

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        return self._make_reply(_reply(request.messages[-1].text), request, timeout_s)


def _reply(task: str) -> str:
    if task.startswith("Of which kind"):
        return '{"kind": "billing"}'
    if task.startswith("What is known"):
        return '{"facts": ["paid twice"]}' if "order 17" in task else '{"question": "Which order?"}'
    return '{"best": 1}' if task.startswith("Which of these") else '{"text": "Refunded."}'


def models() -> dict[Any, Any]:
    return dict.fromkeys([s.triage, s.research, s.draft_warmly, s.draft_tersely, s.judging], Model())


def drive_between(folder: str, name: str, number: int) -> None:
    """Continue the run, and be killed at the point of this name and number between its steps, or never for 0."""
    os.chdir(folder)
    points = KillPoints(name, number)
    flow = replace(s.support, store=str(Path(folder, "runs.db")))
    flow.runs.all.claims.lease_s = 0.5
    points.watch(flow.runs.all.store)
    s.sending.function = replace(s.sending.function, call=points.around(s.sending.function.call))
    one = flow.prepare(s.Ticket("x"), run_id=RUN, clients=models())
    answers: dict[str, Any] = {"customer": "order 17", "review": s.Approve("ann")}
    try:
        flow.run(one)
    except FlowSuspended as waiting:
        while True:
            (key,) = [effect.key for effect in waiting.run.effects if effect.question]
            state = key.rpartition(":")[2].partition("#")[0]
            answer = _found_out() if key.startswith("reconcile:") else answers[state]
            with Path("asked.txt").open("a") as file:
                file.write(f"{key}\n")
            try:
                flow.runs.resume(RUN, {key: answer}, clients=models())
                break
            except FlowSuspended as again:
                waiting = again


def _found_out() -> Any:
    """Return the outcome of the sending: it is in the outbox, or it may begin again."""
    return Returned(text='"sent"') if Path("outbox.txt").exists() else RunAgain()
