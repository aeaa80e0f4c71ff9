"""The data of an orchestrator, with its guards and actions: pure functions of the data and the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fsm_agent.flows.orchestrator.strategy import (
    GiveUp,
    Loop,
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
    """An attempt at a step, for the journal."""

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
    """The task, the strategy, and what has been done."""

    task: str
    config: OrchestratorConfig = field(default_factory=OrchestratorConfig)
    strategy: Strategy | None = None
    done: tuple[str, ...] = ()  # steps, in the order in which they ended
    outputs: Mapping[str, Output] = field(default_factory=dict)  # by step, the last to end last
    failures: Mapping[int, int] = field(default_factory=dict)  # by the number of the step in the strategy
    agents: Mapping[str, str] = field(default_factory=dict)  # by step, in place of the assigned ones
    iterations: Mapping[int, int] = field(default_factory=dict)  # by the number of the loop
    looped: int = 0
    redesigns: int = 0
    executed: int = 0
    failed: str = ""  # the step that failed last
    error: str = ""
    loop: int | None = None  # the number of the loop that failed last, if it was a loop
    is_over: bool = False  # a step said that the task is done
    waves: int = 0
    journal: tuple[Attempt, ...] = ()
    begun: int = 0  # entries of the journal from before this strategy
    seen: Message | None = None  # pictures and documents of the task

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


def is_finished(j: Job) -> bool:
    return j.is_over or len(j.done) == len(j.plan.steps)


def noted(j: Job, works: Sequence[StepWork]) -> Job:
    """Note the results of a wave of steps, repeat the loops that are not over, and count."""
    return _noted(j, works, -1)


def _noted(j: Job, works: Sequence[StepWork], closed: int) -> Job:
    """Note the results of steps; the loop with the number ``closed`` is over."""
    done, outputs, journal, is_over = j.done, dict(j.outputs), list(j.journal), j.is_over
    j = replace(j, failed="", error="", loop=None)
    for w in works:
        step = w.step
        if w.error:
            j = _failed(j, step.step_id, w.error)
            journal.append(Attempt(step.step_id, step.description, w.agent, "failed", error=w.error, wave=j.waves))
            continue
        assert w.output is not None
        done = (*done, step.step_id)
        outputs.pop(step.step_id, None)
        outputs[step.step_id] = w.output
        is_over = is_over or w.output.says(step.ends_if)
        journal.append(Attempt(step.step_id, step.description, w.agent, "completed", w.output.text, wave=j.waves))
    executed = j.executed + sum([not w.error for w in works])
    moved = replace(j, done=done, outputs=outputs, journal=tuple(journal), executed=executed, is_over=is_over)
    ended = {w.step.step_id for w in works if not w.error}
    for number, loop in enumerate(j.plan.loops):
        if not (is_over or number == closed or ended.isdisjoint(loop.step_ids)) and set(loop.step_ids) <= set(done):
            moved = _looped(moved, number, loop)
    return replace(moved, waves=j.waves + 1)


def _failed(j: Job, step_id: str, error: str, loop: int | None = None) -> Job:
    """Count a failure; of several at once, report the step that has failed most often."""
    at = j.index(step_id)
    most = j.failures[j.index(j.failed)] if j.failed else 0
    j = replace(j, failures={**j.failures, at: j.failures.get(at, 0) + 1})
    return replace(j, failed=step_id, error=error, loop=loop) if j.failures[at] > most else j


def _looped(j: Job, number: int, loop: Loop) -> Job:
    """Repeat a loop that is not over, or let its last step fail at a limit."""
    last, times = loop.step_ids[-1], j.iterations.get(number, 1)
    is_short = times < loop.max_iterations
    if j.outputs[last].says(loop.until) or not (loop.until or is_short):
        return j
    if is_short and j.looped < j.config.max_loop_iterations:
        return _begun_again(j, number)
    why = f"its last output, {j.outputs[last].text!r:.200}, does not say {loop.until!r}" if loop.until else ""
    limit = f"max_loop_iterations={j.config.max_loop_iterations} of all loops are used up" if is_short else ""
    how_often = "once" if times == 1 else f"{times} times"
    error = "; ".join(filter(None, [f"the loop of {loop} was done {how_often}", limit, why]))
    entry = Attempt(last, j.plan.step(last).description, j.outputs[last].agent, "failed", error=error, wave=j.waves)
    done = tuple([name for name in j.done if name != last])
    return _failed(replace(j, done=done, journal=(*j.journal, entry)), last, error, number)


def _begun_again(j: Job, number: int) -> Job:
    steps = j.plan.loops[number].step_ids
    counted = {**j.iterations, number: j.iterations.get(number, 1) + 1}
    done = tuple([name for name in j.done if name not in steps])
    return replace(j, done=done, iterations=counted, looped=j.looped + 1)


def has_failed(j: Job, works: Sequence[StepWork]) -> bool:
    return bool(noted(j, works).failed)


def has_begun(j: Job, _: Any) -> bool:
    return j.waves > 0


def is_step_spent(j: Job, works: Sequence[StepWork]) -> bool:
    now = noted(j, works)
    return bool(now.failed) and now.failures[now.index(now.failed)] >= j.config.max_step_remediations


def spent(j: Job) -> str:
    """Return, in words, the limit that a failure has used up; empty: none."""
    if max(j.failures.values(), default=0) >= j.config.max_step_remediations:
        return f"; {STEP_SPENT}"
    return f"; {TOTAL_SPENT}" if j.redesigns >= j.config.max_total_redesigns else ""


def is_total_spent(j: Job, works: Sequence[StepWork]) -> bool:
    return has_failed(j, works) and j.redesigns >= j.config.max_total_redesigns


def is_transient(j: Job, works: Sequence[StepWork]) -> bool:
    now = noted(j, works)
    return bool(now.failed) and now.loop is None and all(w.is_transient for w in works if w.error)


def is_last(j: Job, works: Sequence[StepWork]) -> bool:
    return is_finished(noted(j, works))


def retried(j: Job, _: Any = None) -> Job:
    """Do the failed step again; a failed loop, one time beyond its limit."""
    return counted(j if j.loop is None else _begun_again(j, j.loop))


def counted(j: Job) -> Job:
    return replace(j, redesigns=j.redesigns + 1)


def retried_at_once(j: Job, works: Sequence[StepWork]) -> Job:
    return counted(noted(j, works))


def supplied(j: Job, answer: Supply) -> Job:
    step = j.plan.step(j.failed)
    work = StepWork(step, "a person", j.task, (), {}, "", output=written(answer.output))
    return _noted(j, [work], -1 if j.loop is None else j.loop)


def is_last_supplied(j: Job, answer: Supply) -> bool:
    return is_finished(supplied(j, answer))


def abandon(j: Job, answer: GiveUp) -> Job:
    return replace(j, error=f"{j.error}; given up: {answer.because}")
