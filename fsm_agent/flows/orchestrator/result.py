"""The result of an orchestrated task: the outputs, the counts and the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fsm_agent.flows.orchestrator.job import Attempt, Job
from fsm_agent.flows.process.flow_result import FlowResult
from fsm_agent.flows.values import case_name

if TYPE_CHECKING:
    from fsm_agent.flows.orchestrator.team import Team
    from fsm_agent.flows.process.flow_run import FlowRun

T = TypeVar("T")


class OrchestrationResult(FlowResult[Job]):
    """The result of a task; `FlowFailed` carries one, too.

    Its ``state`` is "completed", "step_spent", "total_spent", "unrecoverable", "given_up", an end of a row of yours,
    or one of the ends that every flow has.

    Args:
        run: The run of the orchestrator's flow.
        team: The agents of its steps.

    Examples:
        >>> plan = Strategy("an article", (Step("facts", "find facts", "{{ task }}", "research"),))
        >>> team = Orchestrator([Agent(Script("3 facts"), name="research")], strategy=plan)
        >>> result = team.call("The sky.")
        >>> result.output, str(result.state)
        ('3 facts', 'completed')
    """

    __slots__ = ("_team",)

    def __init__(self, run: FlowRun[Job], team: Team) -> None:
        super().__init__(run)
        self._team = team

    def __repr__(self) -> str:
        return f"OrchestrationResult({self.state}, {self.steps_executed} steps, {self.redesigns} redesigns)"

    @property
    def _job(self) -> Job:
        return self.run.data

    @property
    def is_success(self) -> bool:
        """True if the task is done."""
        return self.ending is not None and not self.ending.is_failure

    @property
    def output(self) -> Any:
        """The output of the step that ended last; None: none has."""
        return self.step_output(list(self._job.outputs)[-1]) if self._job.outputs else None

    @property
    def error(self) -> str:
        """The reason of a failure, for people; empty: there is none."""
        ending = self.run.record.ending
        if ending is None or not ending.is_failure:
            return ""
        where = f"step {self._job.failed!r}: {self._job.error}" if self._job.failed else ""
        return "; ".join(filter(None, [ending.detail, where]))

    @property
    def steps_executed(self) -> int:
        """How many steps succeeded, counting each repetition."""
        return self._job.executed

    @property
    def redesigns(self) -> int:
        """How many retries and redesigns there were."""
        return self._job.redesigns

    @property
    def failed_step(self) -> str:
        """The step that failed last, unless something was done after it; then empty."""
        return self._job.failed

    @property
    def strategy(self) -> Any:
        """The strategy as it is now."""
        return self._job.strategy

    @property
    def context(self) -> Mapping[str, str]:
        """The readable texts of the outputs, by step and by output key."""
        found = {name: output.text for name, output in self._job.outputs.items()}
        steps = self._job.strategy.steps if self._job.strategy else ()
        keys = {s.output_key: found[s.step_id] for s in steps if s.output_key and s.step_id in found}
        return {**found, **keys}

    @property
    def journal(self) -> list[Attempt]:
        """All attempts at steps, with their times, and the steps that are left."""
        own = {"executing": "done", "asking": "done Supply"}  # the steps at which attempts are noted
        ends = [step.at_s for step in self.run.record.trace if own.get(step.source) == step.trigger]
        made = [replace(e, at_s=ends[e.wave]) if e.wave < len(ends) else e for e in self._job.journal]
        steps = self._job.strategy.steps if self._job.strategy else ()
        left = [s for s in steps if s.step_id not in self._job.outputs and s.step_id != self._job.failed]
        return made + [Attempt(s.step_id, s.description, s.assigned_agent, "pending") for s in left]

    def step_output(self, step_id: str) -> Any:
        """Return what a step gave.

        Raises:
            LookupError: It has no output; the message names the steps that have.
        """
        if step_id not in self._job.outputs:
            known = ", ".join(map(repr, self._job.outputs)) or "none yet"
            raise LookupError(f"expected a step with an output ({known}), got {step_id!r}")
        return self._team.value_of(self._job.outputs[step_id])

    def outputs_of(self, kind: type[T]) -> list[T]:
        """Return all outputs of a type, in the order in which their steps ended."""
        found = [self.step_output(name) for name in self._job.outputs]
        return [value for value in found if isinstance(value, kind)]

    def output_of(self, kind: type[T]) -> T:
        """Return the last output of a type.

        Raises:
            LookupError: No output has the type; the message names the types that outputs have.
        """
        if found := self.outputs_of(kind):
            return found[-1]
        known = ", ".join(dict.fromkeys(output.kind for output in self._job.outputs.values())) or "none"
        raise LookupError(f"expected an output of the type {case_name(kind)}, got none (types of the outputs: {known})")
