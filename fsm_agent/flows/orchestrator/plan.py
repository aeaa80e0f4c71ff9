"""An orchestrator's plan and limits, and the data of one step, with the guards and actions for the step's table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from fsm_agent._internal.structs import is_amount, is_finite, is_whole
from fsm_agent.errors import FlowError
from fsm_agent.flows.values import Failure
from fsm_agent.messages.message import Message
from fsm_agent.validation import Rules, invalid, require, require_fields

MOST_STEPS = 200  # of a strategy
MOST_TEXT = 50_000  # characters of each text of a step
MOST_NAME = 200  # characters of each name of a step
MOST_INTENT = 1_000_000  # characters of the task for an agent
_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")  # without the spaces around a name, which would take quadratic time
_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(["content", "output", "result", "data", "text", "value", "step", "the", "a", "of", "and", "to"])
_TRANSIENT = ("model failed", "expired")  # reasons after which another attempt may soon succeed
_MARKS = "*_`~#>\"'.,:;()[]"  # what models put around a word


def _keep_tuple(plan: Any, field: str) -> None:
    """Replace a list in a field with a tuple."""
    object.__setattr__(plan, field, tuple(getattr(plan, field)))


@dataclass(frozen=True)
class Blueprint:
    """A description of how to do this kind of task.  It guides the planner, but is not a contract.

    Examples:
        >>> Blueprint("First research, then write.").description
        'First research, then write.'
    """

    description: str
    graph: str | None = None  # for example in Mermaid

    def __str__(self) -> str:
        return self.description if self.graph is None else f"{self.description}\n\n{self.graph}"


@dataclass(frozen=True)
class Step:
    """One step of a strategy.

    Attributes:
        step_id: The name of the step.
        description: The purpose of the step.
        intent_template: The task for the agent, with {{ placeholders }}: ``task``, ``previous_output``,
            ``step_2_output``, or the name or ``output_key`` of an earlier step.  Any other name refers to the earlier
            step that shares the most words with it or, if several tie, to the latest of them.
        assigned_agent: The name of an agent.  If it is empty, the step goes to the agent whose description shares the
            most words with it.
        expected_output: What the output should be.
        requires_validation: Whether the validator checks the output.  If it answers FAIL, the step fails.
        requires_approval: Whether a person reviews the output.
        output_key: Another name for the output.
        depends_on: The steps that must be done first, or None for all steps that are listed before this one.
        ends_if: A word that ends the whole task if the output contains it alone on the last line or as a field.

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
        names = dict.fromkeys(("step_id", "assigned_agent", "output_key"), MOST_NAME)
        texts = dict.fromkeys(("description", "intent_template", "expected_output", "ends_if"), MOST_TEXT)
        for name, most in {**names, **texts}.items():
            if len(value := getattr(self, name)) > most:
                raise invalid(f"{name} of a step", len(value), f"{most} characters or fewer", FlowError)
        require("step_id", self.step_id, bool(self.step_id), "a name", FlowError)
        intent = self.intent_template
        right = "text that asks for something"
        require(f"intent_template of {self.step_id!r}", intent, bool(intent.strip()), right, FlowError)
        if self.depends_on is not None:
            _keep_tuple(self, "depends_on")


@dataclass(frozen=True)
class Loop:
    """Steps that are repeated until the last step's output contains a given word.

    Attributes:
        step_ids: The names of the steps.
        max_iterations: The maximum number of times that the loop runs.
        until: The word, which the output must contain alone on its last line or as a field.  If the word is still
            missing after the last run of the loop, the last step fails; `Remedy.RETRY` then repeats the loop, and a
            person's `Supply` ends it.  If ``until`` is empty, the loop runs exactly ``max_iterations`` times.

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
        _keep_tuple(self, "step_ids")
        times = self.max_iterations
        require("max_iterations of a loop", times, is_whole(times, 1), "a whole number of at least 1", FlowError)


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
        _keep_tuple(self, "steps")
        _keep_tuple(self, "loops")
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
        try:
            TopologicalSorter({name: self.before(name) for name in ids}).prepare()
        except CycleError as error:
            names = ", ".join([repr(name) for name in ids if name in error.args[1]])
            raise FlowError(f"depends_on: expected no cycle, got steps that wait for each other: {names}") from None

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
    """For each placeholder, the step that it refers to, or None."""

    steps: Mapping[str, str | None]


@dataclass(frozen=True)
class NewSteps:
    """Steps that replace the remaining ones."""

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
    """A person accepts an output, or replaces it with another text.

    Examples:
        >>> Accept("a better text").text
        'a better text'
    """

    text: str | None = None


@dataclass(frozen=True)
class Reject:
    """A person rejects an output, so the step fails.

    Examples:
        >>> Reject("the facts are wrong").reason
        'the facts are wrong'
    """

    reason: str


@dataclass(frozen=True)
class Supply:
    """A person supplies the output of the failed step.

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


def _is_time(value: Any) -> bool:
    return value is None or (is_finite(value) and value > 0)


_TIME = "a number of seconds above 0, or None"
_LIMITS: Rules = (
    ("max_step_remediations", lambda v: is_whole(v, 1), "a whole number of at least 1"),
    ("max_total_redesigns", lambda v: is_whole(v, 0), "a whole number of at least 0"),
    ("max_loop_iterations", lambda v: is_whole(v, 0), "a whole number of at least 0"),
    ("parallel", lambda v: is_whole(v, 1), "a whole number of at least 1"),
    ("step_timeout_s", _is_time, _TIME),
    ("deadline_s", _is_time, _TIME),
    ("min_step_interval_s", is_amount, "at least 0 seconds"),
    ("unmatched", lambda v: v in ("error", "empty"), "'error' or 'empty'"),
)


@dataclass(frozen=True)
class OrchestratorConfig:
    """The limits of an orchestrator.  ``dataclasses.replace`` makes a variant.

    Attributes:
        max_step_remediations: The maximum number of attempts to carry out one step of a strategy, including the first.
        max_total_redesigns: The maximum number of retries and redesigns in a run, not counting the first strategy.
        max_loop_iterations: The maximum number of repetitions of all loops together.
        parallel: The maximum number of steps that run at once.
        step_timeout_s: The time limit of one step, in seconds, or None for no limit.  With a limit, no agent may have a
            function that must not run twice.
        min_step_interval_s: The minimum time between two steps, in seconds.  If it is above 0, steps run one at a time.
        deadline_s: The time limit of the whole task, in seconds.
        unmatched: How to treat a placeholder that matches no output: "error" fails the step, "empty" leaves it out.
        llm_names: Whether the planner is first asked which step an unmatched placeholder refers to.
        llm_intents: Whether the planner words the task for an agent, given the filled-in intent.
        escalate: Whether a person is asked before the task fails because attempts or redesigns are used up.

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
        require_fields(self, "an orchestrator", _LIMITS, FlowError)


# Placeholders in intents stand for outputs of earlier steps, found by name or by shared words, without a model


def placeholders(template: str) -> list[str]:
    """Return the names in a template, in order and without duplicates."""
    return list(dict.fromkeys([name.strip() for name in _PLACEHOLDER.findall(template)]))


def words(text: str) -> set[str]:
    """Return the significant words in some text, in lower case."""
    return set(_WORD.findall(text.lower())) - _COMMON


def closest(texts: Sequence[tuple[str, set[str]]], wanted: str) -> str | None:
    """Return the name of the text that shares the most words with the wanted text, or None if none shares any.

    Each text is given as its name and its `words`.  If several texts tie, the last one wins.
    """
    sought = words(wanted)
    shared, number = max([(len(found & sought), number) for number, (_, found) in enumerate(texts)], default=(0, 0))
    return texts[number][0] if shared else None


def sources_of(steps: Sequence[Step], names: Iterable[str]) -> dict[str, str]:
    """Return the earlier steps that placeholders refer to, by name or by shared words.  Other names are left out."""
    by_name: dict[str, str] = {"previous_output": steps[-1].step_id} if steps else {}
    for step in steps:  # of equal names, the latest step stays
        own = (step.step_id, f"{step.step_id}_output", *([step.output_key] if step.output_key else []))
        by_name |= dict.fromkeys(own, step.step_id)
    texts = [(s.step_id, words(f"{s.description} {s.expected_output} {s.step_id}")) for s in steps]
    found = {name: by_name.get(name) or closest(texts, name) for name in names}
    return {name: step for name, step in found.items() if step is not None}


def fill(template: str, values: Mapping[str, str]) -> str:
    """Fill a template with values.  Placeholders inside values are not filled.

    Raises:
        ValueError: If the result would have more than `MOST_INTENT` characters.
    """
    parts = _PLACEHOLDER.split(template)  # texts and names alternate
    parts[1::2] = [values.get(name.strip(), "") for name in parts[1::2]]
    if (size := sum(map(len, parts))) > MOST_INTENT:
        raise ValueError(f"intent: expected at most {MOST_INTENT} characters with its outputs, got {size}")
    return "".join(parts)


# The data of one step


@dataclass(frozen=True)
class Output:
    """The output of a step, as JSON and as a readable text."""

    kind: str
    value: str  # as JSON
    text: str
    agent: str = ""  # the agent that gave it; empty: a person wrote it

    def says(self, word: str) -> bool:
        """Return whether the output contains a word as its last line, as its value, or as a field.

        The word must stand alone, but case and surrounding punctuation do not matter.  A field whose name is the word
        also counts if its value is true.  An empty word never counts.
        """
        wanted, value = _bare(word), json.loads(self.value)
        if isinstance(value, dict):
            flags = [name for name, item in value.items() if item is True]
            return wanted != "" and wanted in map(_bare, [*flags, *_texts_of(value.values())])
        return wanted != "" and wanted in map(_bare, _texts_of([value]))


def _texts_of(values: Iterable[Any]) -> list[str]:
    """Return strings, numbers and booleans as text, and skip all other values."""
    return [str(value) for value in values if isinstance(value, str | int | float)]


def _bare(text: str) -> str:
    """Return the last line with text, in lower case and without surrounding punctuation."""
    line = text.rstrip().rpartition("\n")[2]
    return " ".join(line.split()).strip(_MARKS).strip().rstrip("!").casefold()


@dataclass(frozen=True)
class Intent:
    """A filled-in template, and the names in it that match no output."""

    text: str
    unmatched: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepWork:
    """One step, with everything that is needed to carry it out."""

    step: Step
    agent: str
    task: str
    earlier: tuple[Step, ...]
    texts: Mapping[str, str]
    unmatched: str
    until: str = ""  # the word that ends a loop, if this is its last step
    seen: Message | None = None  # images and documents of the task
    matched: Mapping[str, str] | None = None  # steps by placeholder, from a model; None: not asked
    intent: str = ""
    output: Output | None = None
    error: str = ""
    is_transient: bool = False


def output_text(w: StepWork) -> str:
    return w.output.text if w.output is not None else ""


def must_validate(w: StepWork, _: Any) -> bool:
    return w.step.requires_validation


def must_approve(w: StepWork, _: Any) -> bool:
    return w.step.requires_approval


def is_refused(w: StepWork, verdict: Verdict) -> bool:
    return verdict.status == "FAIL"


def intent_of(w: StepWork) -> Intent:
    """Return the intent of a step, filled with the outputs that its placeholders refer to."""
    known = {**w.texts, "task": w.task}
    names = [name for name in placeholders(w.step.intent_template) if name not in known]
    meant = {**(w.matched or {}), **sources_of(w.earlier, names)}
    values = {**known, **{name: w.texts[meant[name]] for name in names if name in meant}}
    return Intent(fill(w.step.intent_template, values), tuple([name for name in names if name not in meant]))


def may_match(w: StepWork, intent: Intent) -> bool:
    return bool(intent.unmatched and w.earlier) and w.matched is None


def matched(w: StepWork, found: Matches) -> StepWork:
    """Return the step with a model's matches, except those that name unknown steps."""
    known = {step.step_id for step in w.earlier}
    return replace(w, matched={name: step for name, step in found.steps.items() if step in known})


def not_matched(w: StepWork, _: Any) -> StepWork:
    return replace(w, matched={})


def is_unmatched(w: StepWork, intent: Intent) -> bool:
    return bool(intent.unmatched) and w.unmatched == "error"


def unmatched(w: StepWork, intent: Intent) -> StepWork:
    known = ", ".join(repr(step.step_id) for step in w.earlier) or "none yet"
    name = f"{{{{ {intent.unmatched[0]} }}}} of {w.step.step_id!r}"
    return replace(w, error=f"{name}: expected the output of a step ({known}), got none that matches")


def is_empty(w: StepWork, intent: Intent) -> bool:
    return not intent.text.strip()


def empty(w: StepWork, _: Any) -> StepWork:
    return replace(w, error=f"intent_template {w.step.intent_template!r:.80}: expected text when filled, got none")


def asked(w: StepWork, intent: Intent) -> StepWork:
    return replace(w, intent=intent.text)


def reworded(w: StepWork, text: str) -> StepWork:
    return replace(w, intent=text)


def refused(w: StepWork, verdict: Verdict) -> StepWork:
    return replace(w, error=f"validation failed: {verdict.reason}")


def rejected(w: StepWork, answer: Reject) -> StepWork:
    return replace(w, error=f"rejected: {answer.reason}")


def accepted(w: StepWork, answer: Accept) -> StepWork:
    return w if answer.text is None else replace(w, output=written(answer.text))


def broke(w: StepWork, why: Failure) -> StepWork:
    return replace(w, error=f"{why.reason}: {why.detail}", is_transient=why.reason in _TRANSIENT)


def timed_out(w: StepWork, _: None) -> StepWork:
    return replace(w, error="its time is over", is_transient=True)


def written(text: str) -> Output:
    """Return a person's text as an output."""
    return Output("str", json.dumps(text), text)
