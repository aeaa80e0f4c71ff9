"""Do random walks of an orchestrator's data come to what a small reference says?  No model and no flow takes part."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from orchestrations import NewSteps, StepWork, step, strategy, written

from fsm_agent.flows.orchestrator import Job, Loop, OrchestratorConfig, Step, Supply

CONFIG = OrchestratorConfig(max_loop_iterations=4)


class Reference:
    """What an orchestrator has done, as plainly as it can be said: steps by name, loops by their steps."""

    def __init__(self) -> None:
        self.looped, self.executed = 0, 0
        self.start([], [])

    def start(self, steps: list[Step], loops: list[Loop]) -> None:
        self.steps, self.loops = steps, loops
        self.done: list[str] = []
        self.outputs: list[tuple[str, str]] = []
        self.times: dict[Loop, int] = {}
        self.is_over, self.failed, self.failed_loop = False, "", None

    def note(self, ends: list[tuple[str, str | None]], closed: Loop | None = None) -> None:
        self.failed, self.failed_loop = "", None
        for name, text in ends:
            if text is None:
                self.failed = self.failed or name
                continue
            self.executed += 1
            self.done.append(name)
            self.outputs = [item for item in self.outputs if item[0] != name] + [(name, text)]
            self.is_over = self.is_over or text == "STOP"
        ended, done = {name for name, text in ends if text is not None}, set(self.done)
        for loop in self.loops:
            ids = set(loop.step_ids)
            if self.is_over or loop is closed or not ids & ended or not ids <= done:
                continue
            times = self.times.get(loop, 1)
            last = loop.step_ids[-1]
            if (loop.until and dict(self.outputs)[last] == loop.until) or (
                not loop.until and times >= loop.max_iterations
            ):
                continue
            if times < loop.max_iterations and self.looped < CONFIG.max_loop_iterations:
                self.again(loop)
                continue
            self.done.remove(last)
            if not self.failed:
                self.failed, self.failed_loop = last, loop

    def again(self, loop: Loop) -> None:
        self.times[loop] = self.times.get(loop, 1) + 1
        self.looped += 1
        self.done = [name for name in self.done if name not in loop.step_ids]

    def state(self) -> object:
        loop = None if self.failed_loop is None else self.loops.index(self.failed_loop)
        return self.done, self.outputs, self.is_over, self.looped, self.executed, self.failed, loop


def _state(j: Job) -> object:
    outputs = [(name, output.text) for name, output in j.outputs.items()]
    return list(j.done), outputs, j.is_over, j.looped, j.executed, j.failed, j.loop


def _work(one: Step, text: str | None) -> StepWork:
    output = None if text is None else written(text)
    return StepWork(one, "w", "t", (), {}, "", output=output, error="" if output else "dull")


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 300), marks=pytest.mark.nightly)], ids=str)
def test_what_is_noted_redesigned_and_cleared_is_as_the_reference_says(seeds: range) -> None:
    for seed in seeds:
        walk(seed)


def walk(seed: int) -> None:
    chance, named, ref = random.Random(seed), iter(range(10_000)), Reference()

    def steps() -> list[Step]:
        names = [f"s{next(named)}" for _ in range(chance.randint(1, 5))]
        alone = chance.random() < 0.5
        return [step(name, depends_on=() if alone else None, ends_if="STOP") for name in names]

    def begin(j: Job) -> Job:
        made = steps()
        cut = chance.randint(0, len(made))
        parts = [part for part in (made[:cut], made[cut:]) if part and chance.random() < 0.7]
        loops = [
            Loop(tuple([s.step_id for s in part]), chance.randint(1, 3), chance.choice(["", "GO", "GO"]))
            for part in parts
        ]
        ref.start(made, loops)
        return j.planned(strategy(*made, loops=tuple(loops)))

    j = begin(Job("t", CONFIG))
    for _ in range(40):
        if j.is_finished:
            assert ref.is_over or len(ref.done) == len(ref.steps)
            j = begin(j.cleared())
        works, ends = [], []
        for one in j.ready:
            text = chance.choice(["GO", "x", "x", "y", "STOP" if chance.random() < 0.1 else "z", None])
            works.append(_work(one, text))
            ends.append((one.step_id, text))
        counts = dict(j.failures)
        j = replace(j, failures={}).noted(works)  # of the failures of one wave the first is told
        ref.note(ends)
        assert _state(j) == ref.state()
        j = replace(j, failures={**counts, **j.failures})
        if not j.failed:
            continue
        match chance.choice(["retry", "tactical", "full", "supply"]):
            case "retry":
                j = j.retried()
                if ref.failed_loop is not None:
                    ref.again(ref.failed_loop)
            case "tactical":
                new = steps()
                j = j.redesigned(NewSteps(tuple(new)))
                kept = [s for s in ref.steps if s.step_id in ref.done]
                names = {s.step_id for s in kept}
                ref.loops = [loop for loop in ref.loops if set(loop.step_ids) <= names]
                ref.steps, ref.times, ref.failed_loop = kept + new, {}, None
                ref.outputs = [item for item in ref.outputs if item[0] in names]
            case "full":
                j = begin(j.cleared())
            case "supply":
                failed, loop = ref.failed, ref.failed_loop
                j = replace(j, failures={}).supplied(Supply("mine"))
                ref.note([(failed, "mine")], loop)
        assert _state(j)[:-2] == ref.state()[:-2]  # type: ignore[index]


def test_a_full_redesign_forgets_who_was_assigned() -> None:
    j = Job("t", CONFIG, strategy(step("a")), failed="a", agents={"a": "other"}, is_over=True)
    assert (j.cleared().agents, j.cleared().is_over) == ({}, False)
