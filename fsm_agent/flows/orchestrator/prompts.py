"""The requests to an orchestrator's models: the prompts in ``prompts/orchestrator``, filled in for a task.

Outputs from models are quoted: their lines are indented, and placeholders in them are not filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fsm_agent._internal.text import guess
from fsm_agent.errors import FlowError
from fsm_agent.flows.orchestrator.job import Job, Team
from fsm_agent.flows.orchestrator.plan import MOST_STEPS, Blueprint, StepWork, intent_of, output_text, placeholders
from fsm_agent.messages.message import Message, Payload, Text
from fsm_agent.prompts.files import KEYS
from fsm_agent.prompts.library import Prompts, packaged_prompts
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.template import render, variables
from fsm_agent.validation import require

MOST_QUOTED = 20_000  # characters of outputs, intents or errors in one request, not counting the output to validate

_LEAST_QUOTED, _MOST_OF_ONE = 100, 2_000  # characters of a single one

_BARE = Prompt("")


def templates_of(prompts: Prompts | Mapping[str, Prompt | str]) -> dict[str, str]:
    """Return the templates for all requests by name, with the user's templates in place of the package's.

    Raises:
        FlowError: If the package has no prompt with this name or variable, or a prompt contains more than a template.
    """
    right = "Prompts('my_team') or a mapping such as {'deciding': 'The step {{ failed }} failed. Decide: …'}"
    require("prompts", prompts, isinstance(prompts, Prompts | Mapping), right, FlowError)
    packaged = Prompts("orchestrator", directory=packaged_prompts())
    templates = {name: packaged(name).template for name in packaged.names()}
    for name in prompts.names() if isinstance(prompts, Prompts) else prompts:
        if name not in templates:
            known = ", ".join(templates)
            raise FlowError(f"prompts: expected names of prompts ({known}), got {name!r:.80}{guess(name, templates)}")
        templates[name] = _template(f"prompt {name!r} of an orchestrator", prompts.get(name), templates[name])
    return templates


def _template(what: str, given: Any, replaced: str) -> str:
    require(what, given, isinstance(given, Prompt | str), "a string or a Prompt", FlowError)
    prompt = Prompt(given) if isinstance(given, str) else given
    if more := [key for key in KEYS if getattr(prompt, key) != getattr(_BARE, key)]:
        raise FlowError(f"{what}: expected only a template, got {more[0]} as well; the table decides what is asked for")
    if unknown := sorted(prompt.variables - variables(replaced)):
        known = ", ".join(sorted(variables(replaced))) or "none"
        given = f"{{{{ {unknown[0]} }}}}{guess(unknown[0], variables(replaced))}"
        raise FlowError(f"{what}: expected variables of its own ({known}), got {given}")
    return prompt.template


class Requests:
    """The requests to the models of an orchestrator."""

    def __init__(self, templates: Mapping[str, str], blueprint: Blueprint, team: Team) -> None:
        self._templates, self._guide, self._team = templates, str(blueprint), team

    def planning(self, j: Job) -> Any:
        """Return the request for a strategy, or for a new strategy after a failure."""
        before = {"failed": "", "error": "", "strategy": "", "done": ""}
        if j.failed:
            done = {e.step_id: e.output for e in j.entries if e.status == "completed"}
            listed = _listed(done.items()).removeprefix("- ").replace("\n- ", "; ")
            before = {**_failure(j), "strategy": _strategy(j), "done": listed}
        limits = {"max_loop_iterations": j.config.max_loop_iterations, "max_steps": MOST_STEPS}
        return self._of_job("planning", j, guide=self._guide, rules=self._rules(j), **limits, **before)

    def planning_simply(self, j: Job) -> Any:
        """Return a shorter request for a strategy, for a model that failed to answer the full request."""
        return self._of_job("planning_simply", j)

    def deciding(self, j: Job) -> Any:
        """Return the request for a decision after a failure."""
        return self._of_job(
            "deciding",
            j,
            **_failure(j),
            description=_quoted(j.plan.step(j.failed).description),
            attempts=_listed([(e.agent, e.error or e.output) for e in j.entries if e.step_id == j.failed]),
            failures=j.failures.get(j.index(j.failed), 0),
            redesigns=j.redesigns,
            max_step_remediations=j.config.max_step_remediations,
            max_total_redesigns=j.config.max_total_redesigns,
            strategy=_strategy(j),
            outputs=_outputs(j),
        )

    def redesigning(self, j: Job) -> Any:
        """Return the request for steps that replace the remaining steps."""
        known = {"guide": self._guide, "rules": self._rules(j), "strategy": _strategy(j), "outputs": _outputs(j)}
        return self._of_job("redesigning", j, **_failure(j), **known)

    def matching(self, w: StepWork) -> str:
        """Return the request to find the outputs that unmatched placeholders refer to."""
        steps = [(s.step_id, "; ".join(filter(None, [s.description, s.expected_output]))) for s in w.earlier]
        request = _quoted(w.step.intent_template, _MOST_OF_ONE)
        return self._text("matching", names=", ".join(intent_of(w).unmatched), steps=_listed(steps), request=request)

    def wording(self, w: StepWork) -> Any:
        """Return the request to put an intent into words."""
        text = self._text(
            "wording",
            description=w.step.description,
            expected=_quoted(w.step.expected_output),
            agent=w.agent,
            skill=self._team.can[w.agent],
            request=w.intent,
        )
        return with_pictures(text, _seen_by_agent(w))

    def working(self, w: StepWork) -> Any:
        """Return the request to the agent of a step."""
        step, is_text = w.step, self._team.agents[w.agent].output is str
        words = {"expected": step.expected_output, "until": w.until, "ends_if": step.ends_if}
        return with_pictures(self._text("working", request=w.intent, is_text=is_text, **words), _seen_by_agent(w))

    def validating(self, w: StepWork) -> Any:
        """Return the request to judge whether an output serves the step's purpose.

        The output is not shortened.
        """
        words = {"task": w.task, "description": w.step.description, "expected": w.step.expected_output}
        words["output"] = output_text(w)
        return with_pictures(self._text("validating", **{name: _quoted(text) for name, text in words.items()}), w.seen)

    def _of_job(self, name: str, j: Job, **values: Any) -> Any:
        text = self._text(name, task=_quoted(j.task), agents=self._team.listed, **values)
        return with_pictures(text, j.seen)

    def _rules(self, j: Job) -> str:
        return self._text("rules", unmatched=j.config.unmatched)

    def _text(self, name: str, **values: Any) -> str:
        return render(self._templates[name], values)


def with_pictures(text: str, seen: Message | None) -> Any:
    """Return a request that quotes the task, with the task's images and documents."""
    return text if seen is None else Payload((Text(text), *seen.parts))  # type: ignore[arg-type]


def _seen_by_agent(w: StepWork) -> Message | None:
    """Return the task's images for a step's agent, or None if the intent does not quote the task."""
    return w.seen if "task" in placeholders(w.step.intent_template) else None


def _quoted(text: str, most: int | None = None) -> str:
    if most is not None and (left := len(text) - most) > 0:
        text = f"{text[:most]}… ({left} characters more)"
    return text.replace("\n", "\n  ")


def _listed(items: Iterable[tuple[str, str]]) -> str:
    """Return named items, one per line, shortened so that all of them fit."""
    found = list(items)
    most = min(_MOST_OF_ONE, max(_LEAST_QUOTED, MOST_QUOTED // max(len(found), 1)))
    return "\n".join([f"- {name}: {_quoted(text, most)}" for name, text in found]) or "- none"


def _failure(j: Job) -> dict[str, str]:
    return {"failed": repr(j.failed), "error": _quoted(j.error)}


def _outputs(j: Job) -> str:
    keys = {step.step_id: step.output_key for step in j.plan.steps}
    return _listed([(f"{n} ({keys[n]})" if keys[n] else n, output.text) for n, output in j.outputs.items()])


def _strategy(j: Job) -> str:
    done = {e.step_id for e in j.entries if e.status == "completed"}
    rows = []
    for s in j.plan.steps:
        status = "failed" if s.step_id == j.failed else "done" if s.step_id in done else "left"
        by = f", by {s.assigned_agent}" if s.assigned_agent else ""
        rows.append((f"{s.step_id} ({status}{by})", f"{s.description}; asked: {s.intent_template}"))
    return f"{_quoted(j.plan.goal)}\n{_listed(rows)}"
