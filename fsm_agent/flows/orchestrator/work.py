"""The data of one step at work, and its guards and actions: pure functions of the data and what came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsm_agent.flows.definition.kinds import Failure
from fsm_agent.flows.orchestrator.mapping import filled as with_values
from fsm_agent.flows.orchestrator.mapping import sources
from fsm_agent.flows.orchestrator.strategy import Accept, Matches, Reject, Step, Verdict

_TRANSIENT = ("model failed", "expired")  # reasons of an agent call that may be another one in a moment


@dataclass(frozen=True)
class Output:
    """The output of a step: a value of a type, and its readable text, rendered once."""

    kind: str
    value: str  # as JSON
    text: str
    agent: str = ""  # whose output type it is of; empty: a person wrote it


@dataclass(frozen=True)
class Intent:
    """A template, filled, and the names in it that no output is for."""

    text: str
    unmatched: tuple[str, ...] = ()


@dataclass(frozen=True)
class Work:
    """One step at work, with all that it needs."""

    step: Step
    agent: str
    task: str
    earlier: tuple[Step, ...]
    texts: Mapping[str, str]
    unmatched: str
    matched: Mapping[str, str] | None = None  # steps by placeholder, from a model; None: none was asked
    intent: str = ""
    output: Output | None = None
    error: str = ""
    is_transient: bool = False


def must_validate(w: Work, _: Any) -> bool:
    return w.step.requires_validation


def must_approve(w: Work, _: Any) -> bool:
    return w.step.requires_approval


def is_refused(w: Work, verdict: Verdict) -> bool:
    return verdict.status == "FAIL"


def filled(w: Work) -> Intent:
    """Return the intent of a step, with the outputs that its placeholders mean."""
    known = {**w.texts, "task": w.task}
    meant, unmatched = sources(w.step.intent_template, w.earlier, known)
    meant = {**{name: of for name, of in (w.matched or {}).items() if name in unmatched}, **meant}
    values = {**known, **{name: w.texts[source] for name, source in meant.items()}}
    return Intent(with_values(w.step.intent_template, values), tuple([n for n in unmatched if n not in meant]))


def may_match(w: Work, intent: Intent) -> bool:
    return bool(intent.unmatched and w.earlier) and w.matched is None


def matched(w: Work, found: Matches) -> Work:
    """Keep what a model has found, as far as there are such steps."""
    known = {step.step_id for step in w.earlier}
    return replace(w, matched={name: step for name, step in found.steps.items() if step in known})


def not_matched(w: Work, _: Any) -> Work:
    return replace(w, matched={})


def is_unmatched(w: Work, intent: Intent) -> bool:
    return bool(intent.unmatched) and w.unmatched == "error"


def unmatched(w: Work, intent: Intent) -> Work:
    known = ", ".join(repr(step.step_id) for step in w.earlier) or "none yet"
    name = f"{{{{ {intent.unmatched[0]} }}}} of {w.step.step_id!r}"
    return replace(w, error=f"{name} matches no output: those of {known} are there")


def is_blank(w: Work, intent: Intent) -> bool:
    """Nothing that an agent could be asked."""
    return not (intent.text.strip() or w.step.expected_output.strip())


def blank(w: Work, _: Any) -> Work:
    what = f"the intent {w.step.intent_template!r:.80} of {w.step.step_id!r} is empty with its outputs"
    return replace(w, error=f"{what}: a text that asks for something would be right")


def asked(w: Work, intent: Intent) -> Work:
    return replace(w, intent=intent.text)


def reworded(w: Work, text: str) -> Work:
    return replace(w, intent=text)


def refused(w: Work, verdict: Verdict) -> Work:
    return replace(w, error=f"validation failed: {verdict.reason}")


def rejected(w: Work, answer: Reject) -> Work:
    return replace(w, error=f"rejected: {answer.reason}")


def accepted(w: Work, answer: Accept) -> Work:
    return w if answer.text is None else replace(w, output=written(answer.text))


def broke(w: Work, why: Failure) -> Work:
    return replace(w, error=f"{why.reason}: {why.detail}", is_transient=why.reason in _TRANSIENT)


def timed_out(w: Work, _: None) -> Work:
    return replace(w, error="its time is over", is_transient=True)


def written(text: str) -> Output:
    """Return the output that a person wrote."""
    return Output("str", json.dumps(text), text)
