"""The words of an orchestrator: blueprints, strategies, steps, loops and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from fsm_agent._internal.field_checks import is_finite, is_whole
from fsm_agent.flows.errors import FlowError
from fsm_agent.validation import wrong

MOST_STEPS = 200  # of a strategy
MOST_TEXT = 50_000  # characters of each text of a step
MOST_NAME = 200  # characters of each of its names


@dataclass(frozen=True)
class Blueprint:
    """A description of how such tasks are done: a guide for the planner, not a contract.

    Examples:
        >>> Blueprint("First research, then write.").description
        'First research, then write.'
    """

    description: str
    graph: str | None = None  # in Mermaid, say

    def __str__(self) -> str:
        return self.description if self.graph is None else f"{self.description}\n\n{self.graph}"


@dataclass(frozen=True)
class Step:
    """One step of a strategy.

    Attributes:
        step_id: Its name.
        description: What it is for.
        intent_template: What the agent is asked, with {{ placeholders }} for outputs of earlier steps.
        assigned_agent: The name of an agent; empty: the one whose description has most of the words of the step.
        expected_output: What should come of it.
        requires_validation: The validator looks at its output, and its FAIL is a failure of the step.
        requires_approval: A person looks at its output.
        output_key: Another name of its output.
        depends_on: The steps before it; None: all that are listed before it.
        ends_if: A word; if the output says it, alone on the last line or as a field, the whole task is done.

    Examples:
        >>> Step("facts", "find facts", "Find facts about {{ task }}", "research").step_id
        'facts'
    """

    step_id: str
    description: str
    intent_template: str
    assigned_agent: str = ""
    expected_output: str = ""
    requires_validation: bool = False
    requires_approval: bool = False
    output_key: str = ""
    depends_on: tuple[str, ...] | None = None
    ends_if: str = ""

    def __post_init__(self) -> None:
        if not self.step_id:
            raise FlowError("step_id: expected a name, got ''")
        if not self.intent_template.strip():
            raise wrong(
                f"intent_template of {self.step_id!r}", self.intent_template, "text that asks for something", FlowError
            )
        names = dict.fromkeys(("step_id", "assigned_agent", "output_key"), MOST_NAME)
        texts = dict.fromkeys(("description", "intent_template", "expected_output", "ends_if"), MOST_TEXT)
        for name, most in {**names, **texts}.items():
            if (size := len(getattr(self, name))) > most:
                raise wrong(f"{name} of a step", size, f"{most} characters or fewer", FlowError)


@dataclass(frozen=True)
class Loop:
    """Steps that are repeated, until the last of them says a word.

    Attributes:
        step_ids: The steps.
        max_iterations: How often they are done at most.
        until: The word, alone on the last line of the output or as a field of it; if it has not come by then, the
            last step has failed.  Empty: they are done this often.

    Examples:
        >>> Loop(("write", "edit"), max_iterations=3, until="good").max_iterations
        3
    """

    step_ids: tuple[str, ...]
    max_iterations: int
    until: str = ""

    def __str__(self) -> str:
        return ", ".join(map(repr, self.step_ids))

    def __post_init__(self) -> None:
        if not is_whole(self.max_iterations) or self.max_iterations < 1:
            raise wrong("max_iterations of a loop", self.max_iterations, "a whole number from 1 on", FlowError)


@dataclass(frozen=True)
class Strategy:
    """A plan of steps, made by a model or by you, and checked when it is made.

    Examples:
        >>> plan = Strategy("an article", (Step("facts", "find facts", "{{ task }}", "research"),))
        >>> [step.step_id for step in plan.steps]
        ['facts']
    """

    goal: str
    steps: tuple[Step, ...]
    loops: tuple[Loop, ...] = ()

    def __post_init__(self) -> None:
        ids = [step.step_id for step in self.steps]
        if not ids:
            raise FlowError(f"strategy {self.goal!r:.80}: expected one step or more, got none")
        if len(ids) > MOST_STEPS:
            raise FlowError(f"strategy {self.goal!r:.80}: expected at most {MOST_STEPS} steps, got {len(ids)}")
        if twice := [name for name in ids if ids.count(name) > 1]:
            raise FlowError(f"expected steps with different names, got two named {twice[0]!r}; rename one")
        for name in [name for step in self.steps for name in step.depends_on or ()]:
            _known("depends_on of a step", name, ids)
        looped = [name for loop in self.loops for name in loop.step_ids]
        for name in looped:
            _known("step_ids of a loop", name, ids)
        if len(set(looped)) < len(looped) or not all(loop.step_ids for loop in self.loops):
            raise FlowError(
                "loops: expected one step or more in each loop, and each step in one loop; loops cannot be nested"
            )
        done: set[str] = set()
        before = {name: self.before(name) for name in ids}
        while ready := [name for name in ids if name not in done and not before[name] - done]:
            done.update(ready)
        if left := [name for name in ids if name not in done]:
            names = ", ".join(map(repr, left))
            raise FlowError(f"depends_on: expected no cycle, got steps that wait for each other: {names}")

    def step(self, step_id: str) -> Step:
        """Return a step by its name."""
        return next(step for step in self.steps if step.step_id == step_id)

    def before(self, step_id: str) -> set[str]:
        """Return the names of the steps that must be done before a step."""
        ids = [step.step_id for step in self.steps]
        needed = self.step(step_id).depends_on
        return set(ids[: ids.index(step_id)] if needed is None else needed)


def _known(what: str, name: str, ids: Sequence[str]) -> None:
    if name not in ids:
        raise FlowError(f"{what}: expected names of steps ({', '.join(map(repr, ids))}), got {name!r}")


@dataclass(frozen=True)
class Matches:
    """The step whose output each placeholder means; None: no step's."""

    steps: Mapping[str, str | None]


@dataclass(frozen=True)
class NewSteps:
    """Steps in place of the remaining ones."""

    steps: tuple[Step, ...]


class Remedy(Enum):
    """A decision about a step that failed.

    Examples:
        >>> [remedy.name for remedy in Remedy]
        ['RETRY', 'TACTICAL', 'FULL', 'ANOTHER_AGENT', 'ASK']
    """

    RETRY = "RETRY"
    TACTICAL = "TACTICAL"
    FULL = "FULL"
    ANOTHER_AGENT = "ANOTHER_AGENT"
    ASK = "ASK"


@dataclass(frozen=True)
class Verdict:
    """The validator's verdict on an output."""

    status: Literal["PASS", "FAIL"]
    reason: str = ""


@dataclass(frozen=True)
class Accept:
    """A person lets an output pass, or puts another text in its place.

    Examples:
        >>> Accept("a better text").text
        'a better text'
    """

    text: str | None = None


@dataclass(frozen=True)
class Reject:
    """A person refuses an output: the step has failed.

    Examples:
        >>> Reject("the facts are wrong").reason
        'the facts are wrong'
    """

    reason: str


@dataclass(frozen=True)
class Supply:
    """A person gives the output of the step that failed.

    Examples:
        >>> Supply("the facts, by hand").output
        'the facts, by hand'
    """

    output: str


@dataclass(frozen=True)
class GiveUp:
    """A person ends the task.

    Examples:
        >>> GiveUp("it is not needed any more").because
        'it is not needed any more'
    """

    because: str


@dataclass(frozen=True)
class OrchestratorConfig:
    """The limits of an orchestrator; ``dataclasses.replace`` makes another.

    Attributes:
        max_step_remediations: Attempts at one step of a strategy, the first included.
        max_total_redesigns: Retries and redesigns of all steps; the first strategy is not counted.
        max_loop_iterations: Repetitions in all loops together.
        parallel: How many steps run at once.
        step_timeout_s: Seconds that the agent of a step has; None: as long as it takes. With a time, no agent may
            have a function that must not run twice.
        min_step_interval_s: Seconds between one step and the next at least; above 0, steps are done one at a time.
        deadline_s: Seconds for all of it.
        unmatched: What to do with a placeholder that matches no output: "error" fails the step, "empty" leaves it out.
        llm_names: The planner is asked first which step such a placeholder means.
        llm_intents: The planner words what an agent is asked, from the filled intent.
        escalate: When attempts or redesigns are used up, a person is asked before the task fails.

    Examples:
        >>> OrchestratorConfig(max_step_remediations=1, parallel=2).parallel
        2
    """

    max_step_remediations: int = 3
    max_total_redesigns: int = 10
    max_loop_iterations: int = 50
    parallel: int = 8
    step_timeout_s: float | None = None
    min_step_interval_s: float = 0.0
    deadline_s: float | None = None
    unmatched: Literal["error", "empty"] = "error"
    llm_names: bool = False
    llm_intents: bool = False
    escalate: bool = False

    def __post_init__(self) -> None:
        for name, least in [
            ("max_step_remediations", 1),
            ("max_total_redesigns", 0),
            ("max_loop_iterations", 0),
            ("parallel", 1),
        ]:
            if not is_whole(value := getattr(self, name)) or value < least:
                raise wrong(name, value, f"a whole number from {least} on", FlowError)
        for name in ("step_timeout_s", "deadline_s"):
            value = getattr(self, name)
            if value is not None and not (is_finite(value) and value > 0):
                raise wrong(name, value, "a number of seconds above 0, or None", FlowError)
        if not is_finite(self.min_step_interval_s) or self.min_step_interval_s < 0:
            raise wrong("min_step_interval_s", self.min_step_interval_s, "a number of seconds from 0 on", FlowError)
        for name in ("llm_names", "llm_intents", "escalate"):
            if not isinstance(value := getattr(self, name), bool):
                raise wrong(name, value, "True or False", FlowError)
        if self.unmatched not in ("error", "empty"):
            raise wrong("unmatched", self.unmatched, "'error' or 'empty'", FlowError)
