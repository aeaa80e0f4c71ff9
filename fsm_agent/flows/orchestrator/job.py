"""The data of an orchestrator, whose methods are the guards and actions of its table; all are pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fsm_agent.flows.orchestrator.strategy import (
    GiveUp,
    Loop,
    NewSteps,
    OrchestratorConfig,
    Step,
    Strategy,
    Supply,
)
from fsm_agent.flows.orchestrator.work import Output, StepWork, written
from fsm_agent.messages.message import Message

STEP_SPENT, TOTAL_SPENT = "max_step_remediations are used up", "max_total_redesigns are used up"


@dataclass(frozen=True)
class Attempt:
    """An attempt at a step, for the journal.

    Examples:
        >>> Attempt("facts", "find facts", "research", "completed", output="3 facts").status
        'completed'
    """

    step_id: str
    title: str
    agent: str
    status: Literal["completed", "failed", "pending"]
    output: str = ""
    error: str = ""
    at_s: float = 0.0  # when it ended (Unix time)
    wave: int = 0


@dataclass(frozen=True)
class Job:
    """The task, the strategy, and what has been done: the data of an orchestrator's flow.

    Methods with an answer are guards and actions of rows, as in ``executing.done(enough, when=…, do=Job.noted)``.

    Attributes:
        task: What is to be done.
        config: The limits.
        strategy: The strategy; None: there is none yet.
        done: The names of steps that are done, in the order in which they ended.
        outputs: What steps gave, by name, the last to end last.
        failures: How often steps failed, by their number in the strategy.
        agents: The agents of steps in place of the assigned ones, by name.
        iterations: How often loops were done, by their number in the strategy.
        looped: How often loops were begun again.
        redesigns: How many retries and redesigns there were.
        executed: How many steps succeeded, counting each repetition.
        failed: The step that failed last; empty: what was done last succeeded.
        error: Why it failed.
        loop: The number of the loop that failed last, if it was a loop.
        is_over: Whether a step said that the task is done.
        waves: How often steps were done, several at once counting as one.
        journal: The attempts at steps.
        begun: How many of them are from before this strategy.
        seen: Pictures and documents of the task.

    Examples:
        >>> Job("Write an article.").task
        'Write an article.'
    """

    task: str
    config: OrchestratorConfig = field(default_factory=OrchestratorConfig)
    strategy: Strategy | None = None
    done: tuple[str, ...] = ()
    outputs: Mapping[str, Output] = field(default_factory=dict)
    failures: Mapping[int, int] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)
    iterations: Mapping[int, int] = field(default_factory=dict)
    looped: int = 0
    redesigns: int = 0
    executed: int = 0
    failed: str = ""
    error: str = ""
    loop: int | None = None
    is_over: bool = False
    waves: int = 0
    journal: tuple[Attempt, ...] = ()
    begun: int = 0
    seen: Message | None = None

    @property
    def plan(self) -> Strategy:
        """The strategy; it must exist by now."""
        assert self.strategy is not None
        return self.strategy

    @property
    def entries(self) -> tuple[Attempt, ...]:
        """The attempts at steps of this strategy."""
        return self.journal[self.begun :]

    def index(self, step_id: str) -> int:
        """Return the number of a step in the strategy."""
        return [step.step_id for step in self.plan.steps].index(step_id)

    @property
    def ready(self) -> list[Step]:
        """The steps that may begin now."""
        done = set(self.done)
        return [s for s in self.plan.steps if s.step_id not in done and not self.plan.before(s.step_id) - done]

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done, or one said that the task is."""
        return self.is_over or len(self.done) == len(self.plan.steps)

    @property
    def spent(self) -> str:
        """The limit that a failure has used up, in words; empty: none."""
        if max(self.failures.values(), default=0) >= self.config.max_step_remediations:
            return STEP_SPENT
        return TOTAL_SPENT if self.redesigns >= self.config.max_total_redesigns else ""

    # Guards, for the results of a wave of steps

    def has_begun(self) -> bool:
        """Return True if steps were done before."""
        return self.waves > 0

    def has_failed(self, works: Sequence[StepWork]) -> bool:
        """Return True if one of these steps, or a loop, has failed."""
        return bool(self.noted(works).failed)

    def is_step_spent(self, works: Sequence[StepWork]) -> bool:
        """Return True if a step has failed as often as it may."""
        now = self.noted(works)
        return bool(now.failed) and now.failures[now.index(now.failed)] >= now.config.max_step_remediations

    def is_total_spent(self, works: Sequence[StepWork]) -> bool:
        """Return True if a step has failed, and no redesign is left."""
        return self.has_failed(works) and self.redesigns >= self.config.max_total_redesigns

    def is_transient(self, works: Sequence[StepWork]) -> bool:
        """Return True if what failed may succeed when it is tried again at once."""
        now = self.noted(works)
        return bool(now.failed) and now.loop is None and all(w.is_transient for w in works if w.error)

    def is_last(self, works: Sequence[StepWork]) -> bool:
        """Return True if the task is done with these steps."""
        return self.noted(works).is_finished

    def is_last_supplied(self, answer: Supply) -> bool:
        """Return True if the task is done with what a person gave."""
        return self.supplied(answer).is_finished

    def fits(self, new: NewSteps) -> bool:
        """Return True if the new steps and the kept ones make a strategy."""
        try:
            self.redesigned(new)
        except ValueError:
            return False
        return True

    # Actions

    def planned(self, strategy: Strategy) -> Job:
        """Begin a strategy."""
        return replace(self, strategy=strategy, begun=len(self.journal))

    def cleared(self, _: Any = None) -> Job:
        """Count a redesign, and forget all outputs and counts: a new strategy starts from nothing."""
        return replace(
            self._count_redesign(), done=(), outputs={}, failures={}, agents={}, iterations={}, is_over=False
        )

    def imposed(self, strategy: Strategy) -> Job:
        """Begin a strategy of a person's from nothing."""
        return self.cleared().planned(strategy)

    def noted(self, works: Sequence[StepWork]) -> Job:
        """Note the results of a wave of steps, repeat the loops that are not over, and count."""
        return self._note(works, -1)

    def supplied(self, answer: Supply) -> Job:
        """Note what a person gave in place of the step that failed; a loop that failed is over."""
        step = self.plan.step(self.failed)
        work = StepWork(step, "a person", self.task, (), {}, "", output=written(answer.output))
        return self._note([work], -1 if self.loop is None else self.loop)

    def retried(self, _: Any = None) -> Job:
        """Count a retry of the step that failed; a loop that failed is done once beyond its limit."""
        return (self if self.loop is None else self._repeat(self.loop))._count_redesign()

    def retried_at_once(self, works: Sequence[StepWork]) -> Job:
        """Note the results of a wave of steps, and count a retry of what failed."""
        return self.noted(works)._count_redesign()

    def redesigned(self, new: NewSteps) -> Job:
        """Replace the remaining steps; the first new one inherits the failures of the failed step."""
        kept = [step for step in self.plan.steps if step.step_id in self.done]
        names = {step.step_id for step in kept}
        loops = tuple([loop for loop in self.plan.loops if set(loop.step_ids) <= names])
        counts = {len(kept): self.failures.get(self.index(self.failed), 0)}
        plan = replace(self.plan, steps=(*kept, *new.steps), loops=loops)
        outputs = {name: output for name, output in self.outputs.items() if name in names}
        return replace(
            self._count_redesign(), strategy=plan, outputs=outputs, failures=counts, agents={}, iterations={}
        )

    def abandon(self, answer: GiveUp) -> Job:
        """Note why a person ended the task."""
        return replace(self, error=f"{self.error}; given up: {answer.because}")

    def _count_redesign(self) -> Job:
        return replace(self, redesigns=self.redesigns + 1)

    def _note(self, works: Sequence[StepWork], closed: int) -> Job:
        """Note the results of steps; the loop with the number ``closed`` is over."""
        given = {w.step.step_id: w.output for w in works if w.output is not None and not w.error}
        j = replace(
            self,
            failed="",
            error="",
            loop=None,
            done=(*self.done, *given),
            outputs={**{name: output for name, output in self.outputs.items() if name not in given}, **given},
            journal=(*self.journal, *[_attempt(w, self.waves) for w in works]),
            executed=self.executed + len(given),
            is_over=self.is_over or any(given[w.step.step_id].says(w.step.ends_if) for w in works if not w.error),
        )
        for w in works:
            if w.error:
                j = j._count_failure(w.step.step_id, w.error)
        for number, loop in enumerate(self.plan.loops):
            is_touched = number != closed and not given.keys().isdisjoint(loop.step_ids)
            if is_touched and not j.is_over and set(loop.step_ids) <= set(j.done):
                j = j._close_or_repeat(number, loop)
        return replace(j, waves=self.waves + 1)

    def _count_failure(self, step_id: str, error: str, loop: int | None = None) -> Job:
        """Count a failure; of several at once, report the step that has failed most often."""
        at = self.index(step_id)
        most = self.failures[self.index(self.failed)] if self.failed else 0
        j = replace(self, failures={**self.failures, at: self.failures.get(at, 0) + 1})
        return replace(j, failed=step_id, error=error, loop=loop) if j.failures[at] > most else j

    def _close_or_repeat(self, number: int, loop: Loop) -> Job:
        """Repeat a loop that is not over, or let its last step fail at a limit."""
        last, times = loop.step_ids[-1], self.iterations.get(number, 1)
        output, is_short = self.outputs[last], times < loop.max_iterations
        if output.says(loop.until) or not (loop.until or is_short):
            return self
        if is_short and self.looped < self.config.max_loop_iterations:
            return self._repeat(number)
        why = f"its last output, {output.text!r:.200}, does not say {loop.until!r}" if loop.until else ""
        limit = f"max_loop_iterations={self.config.max_loop_iterations} of all loops are used up" if is_short else ""
        how_often = "once" if times == 1 else f"{times} times"
        error = "; ".join(filter(None, [f"the loop of {loop} was done {how_often}", limit, why]))
        entry = Attempt(last, self.plan.step(last).description, output.agent, "failed", error=error, wave=self.waves)
        done = tuple([name for name in self.done if name != last])
        return replace(self, done=done, journal=(*self.journal, entry))._count_failure(last, error, number)

    def _repeat(self, number: int) -> Job:
        steps = self.plan.loops[number].step_ids
        counts = {**self.iterations, number: self.iterations.get(number, 1) + 1}
        done = tuple([name for name in self.done if name not in steps])
        return replace(self, done=done, iterations=counts, looped=self.looped + 1)


def _attempt(w: StepWork, wave: int) -> Attempt:
    text = "" if w.error or w.output is None else w.output.text
    status: Any = "failed" if w.error else "completed"
    return Attempt(w.step.step_id, w.step.description, w.agent, status, text, w.error, wave=wave)
