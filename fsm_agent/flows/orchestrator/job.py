"""The data of an orchestrator, and its guards and actions: pure functions of the data and what came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fsm_agent.flows.orchestrator.mapping import has_words
from fsm_agent.flows.orchestrator.strategy import (
    GiveUp,
    NewSteps,
    OrchestratorConfig,
    Step,
    Strategy,
    Supply,
)
from fsm_agent.flows.orchestrator.work import Output, Work, written

STEP_SPENT, TOTAL_SPENT = "max_step_remediations are used up", "max_total_redesigns are used up"


@dataclass(frozen=True)
class Entry:
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
    is_over: bool = False  # a step said that the task is done
    waves: int = 0
    journal: tuple[Entry, ...] = ()

    @property
    def plan(self) -> Strategy:
        """The strategy that is there."""
        assert self.strategy is not None
        return self.strategy

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


def noted(j: Job, works: Sequence[Work]) -> Job:
    """Note what became of the steps of a wave, repeat the loops that are not over, and count."""
    done, outputs, failures, journal = j.done, dict(j.outputs), dict(j.failures), list(j.journal)
    failed, error, is_over, most = "", "", j.is_over, 0
    for w in works:
        step = w.step
        if w.error:
            at = j.index(step.step_id)
            failures[at] = failures.get(at, 0) + 1
            if failures[at] > most:  # of several that of the step that has failed most often
                failed, error, most = step.step_id, w.error, failures[at]
            journal.append(Entry(step.step_id, step.description, w.agent, "failed", error=w.error, wave=j.waves))
            continue
        assert w.output is not None
        done = (*done, step.step_id)
        outputs.pop(step.step_id, None)
        outputs[step.step_id] = w.output
        is_over = is_over or has_words(w.output.text, step.ends_if)
        journal.append(Entry(step.step_id, step.description, w.agent, "completed", w.output.text, wave=j.waves))
    executed = j.executed + sum([not w.error for w in works])
    moved = replace(j, done=done, outputs=outputs, failures=failures, journal=tuple(journal), executed=executed)
    moved = replace(moved, failed=failed, error=error, is_over=is_over, waves=j.waves + 1)
    return _looped(moved, {w.step.step_id for w in works if not w.error})


def _looped(j: Job, ended: set[str]) -> Job:
    for number, loop in enumerate(j.plan.loops):
        if ended.isdisjoint(loop.step_ids) or not set(loop.step_ids) <= set(j.done):
            continue
        times = j.iterations.get(number, 1)
        has_come = has_words(j.outputs[loop.step_ids[-1]].text, loop.until)
        if has_come or times >= loop.max_iterations or j.looped >= j.config.max_loop_iterations:
            continue
        again = tuple([name for name in j.done if name not in loop.step_ids])
        counted = {**j.iterations, number: times + 1}
        j = replace(j, done=again, iterations=counted, looped=j.looped + 1)
    return j


def has_failed(j: Job, works: Sequence[Work]) -> bool:
    return any(w.error for w in works)


def has_begun(j: Job, _: Any) -> bool:
    return j.waves > 0


def is_step_spent(j: Job, works: Sequence[Work]) -> bool:
    counts = [j.failures.get(j.index(w.step.step_id), 0) + 1 for w in works if w.error]
    return max(counts, default=0) >= j.config.max_step_remediations


def spent(j: Job) -> str:
    """Return in words which limit a failure has used up; empty: none."""
    if max(j.failures.values(), default=0) >= j.config.max_step_remediations:
        return f"; {STEP_SPENT}"
    return f"; {TOTAL_SPENT}" if j.redesigns >= j.config.max_total_redesigns else ""


def is_total_spent(j: Job, works: Sequence[Work]) -> bool:
    return has_failed(j, works) and j.redesigns >= j.config.max_total_redesigns


def is_transient(j: Job, works: Sequence[Work]) -> bool:
    return has_failed(j, works) and all(w.is_transient for w in works if w.error)


def is_last(j: Job, works: Sequence[Work]) -> bool:
    return is_finished(noted(j, works))


def retried(j: Job, _: Any = None) -> Job:
    return replace(j, redesigns=j.redesigns + 1)


def retried_at_once(j: Job, works: Sequence[Work]) -> Job:
    return retried(noted(j, works))


def fits(j: Job, new: NewSteps) -> bool:
    """New steps that make a strategy with those that are kept."""
    try:
        redesigned(j, new)
    except ValueError:
        return False
    return True


def redesigned(j: Job, new: NewSteps) -> Job:
    """Replace what is left: the count of the failed step is that of the first of the new ones."""
    at = j.index(j.failed)
    kept = [s for n, s in enumerate(j.plan.steps) if s.step_id in j.done]
    names = {s.step_id for s in kept}
    loops = tuple([loop for loop in j.plan.loops if set(loop.step_ids) <= names])
    counts = {len(kept): j.failures.get(at, 0)}
    iterations = {n: j.config.max_loop_iterations for n, _ in enumerate(loops)}
    plan = replace(j.plan, steps=(*kept, *new.steps), loops=loops)
    outputs = {name: output for name, output in j.outputs.items() if name in names}
    return retried(replace(j, strategy=plan, outputs=outputs, failures=counts, agents={}, iterations=iterations))


def planned(j: Job, strategy: Strategy) -> Job:
    return replace(j, strategy=strategy)


def cleared(j: Job, _: Any = None) -> Job:
    """Forget the outputs and the counts of steps: a new strategy begins from the start."""
    return retried(
        replace(j, done=(), outputs={}, failures={}, agents={}, iterations={}, is_over=False),
    )


def imposed(j: Job, strategy: Strategy) -> Job:
    return planned(cleared(j), strategy)


def supplied(j: Job, answer: Supply) -> Job:
    step = j.plan.step(j.failed)
    work = Work(step, "a person", j.task, (), {}, "", output=written(answer.output))
    return noted(j, [work])


def is_last_supplied(j: Job, answer: Supply) -> bool:
    return is_finished(supplied(j, answer))


def abandon(j: Job, answer: GiveUp) -> Job:
    return replace(j, error=f"{j.error}; given up: {answer.because}")
