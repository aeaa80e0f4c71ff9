"""Orchestrators with scripts for models, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fsm_agent import Agent
from fsm_agent.flows import FlowFailed
from fsm_agent.flows.orchestrator import OrchestrationResult, Orchestrator, Step, Strategy
from fsm_agent.flows.orchestrator.plan import NewSteps, StepWork, written
from fsm_agent.testing import Script

__all__ = ["NewSteps", "StepWork", "written"]

PASS, FAIL = '{"status": "PASS", "reason": ""}', '{"status": "FAIL", "reason": "dull"}'


def step(step_id: str, intent: str = "do it", **options: Any) -> Step:
    return Step(step_id, options.pop("description", f"the {step_id}"), intent, **options)


def strategy(*steps: Step, **options: Any) -> Strategy:
    return Strategy("goal", steps, **options)


def as_json(value: Any) -> str:
    import pydantic

    return pydantic.TypeAdapter(type(value)).dump_json(value).decode()


def new_steps(*steps: Step) -> str:
    return json.dumps({"steps": [json.loads(as_json(one)) for one in steps]})


def ended(do: Callable[[], OrchestrationResult]) -> OrchestrationResult:
    """Return the result of a task, after a failure too."""
    try:
        return do()
    except FlowFailed as failed:
        return failed.result  # type: ignore[return-value]


class Ones:
    """The scripts of a planner, a validator and workers, and their orchestrator."""

    def __init__(
        self,
        *said: Any,
        planner: Any = (),
        validator: Any = (),
        others: Any = (),
        output: Any = str,
        functions: Any = (),
        **options: Any,
    ) -> None:
        self.worker, self.planner, self.validator = Script(*said), Script(*planner), Script(*validator)
        self.other = Script(*others)
        team = [Agent(self.worker, name="worker", output=output, functions=functions)]
        if others:
            team.append(Agent(self.other, name="other", system="poems"))
        options.setdefault("strategy", strategy(step("a")))
        self.orchestrator = Orchestrator(
            team,
            "the guide",
            planner=Agent(self.planner, name="planner"),
            validator=Agent(self.validator, name="validator"),
            **options,
        )

    def call(self) -> Any:
        return ended(lambda: self.orchestrator.call("the task"))

    @property
    def asked(self) -> list[str]:
        return [request.messages[-1].text for request in self.worker.requests]

    @property
    def decided(self) -> list[str]:
        return [request.messages[-1].text for request in self.planner.requests]
