"""The data of one step, with its guards and actions: pure functions of the data and the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fsm_agent.flows.orchestrator.mapping import Earlier
from fsm_agent.flows.orchestrator.mapping import filled as with_values
from fsm_agent.flows.orchestrator.strategy import Accept, Matches, Reject, Step, Verdict
from fsm_agent.flows.values import Failure
from fsm_agent.messages.message import Message

_TRANSIENT = ("model failed", "expired")  # reasons for which another attempt soon may succeed
_MARKS = "*_`~#>\"'.,:;()[]"  # what models put around a word


@dataclass(frozen=True)
class Output:
    """The output of a step: a value of a type, and its readable text, rendered once."""

    kind: str
    value: str  # as JSON
    text: str
    agent: str = ""  # whose output type it is of; empty: a person wrote it

    def says(self, word: str) -> bool:
        """Return True if the output says a word: as the last line, as its value, or as a field.

        The word stands alone there, whatever its case and the marks around it; a field of its name that is true says
        it as well.  No output says the empty word.
        """
        wanted, value = _bare(word), json.loads(self.value)
        if isinstance(value, dict):
            flags = [name for name, item in value.items() if item is True]
            return wanted != "" and wanted in map(_bare, [*flags, *_texts_of(value.values())])
        return wanted != "" and wanted in map(_bare, _texts_of([value]))


def _texts_of(values: Iterable[Any]) -> list[str]:
    """Return texts, numbers and truth values as texts, and skip all other values."""
    return [str(value) for value in values if isinstance(value, str | int | float)]


def _bare(text: str) -> str:
    """Return the last line of a text that is not empty, in lower case and without the marks around it."""
    line = text.rstrip().rpartition("\n")[2]
    return " ".join(line.split()).strip(_MARKS).strip().rstrip("!").casefold()


@dataclass(frozen=True)
class Intent:
    """A filled template, and the names in it that match no output."""

    text: str
    unmatched: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepWork:
    """One step, with all that it needs."""

    step: Step
    agent: str
    task: str
    earlier: tuple[Step, ...]
    texts: Mapping[str, str]
    unmatched: str
    until: str = ""  # the word that ends the loop whose last step it is
    seen: Message | None = None  # pictures and documents of the task
    matched: Mapping[str, str] | None = None  # steps by placeholder, from a model; None: none was asked
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


def filled(w: StepWork) -> Intent:
    """Return the intent of a step, with the outputs that its placeholders mean."""
    known = {**w.texts, "task": w.task}
    meant, unmatched = Earlier(w.earlier).sources(w.step.intent_template, known)
    by_model = w.matched or {}
    meant |= {name: by_model[name] for name in unmatched if name in by_model}
    values = {**known, **{name: w.texts[source] for name, source in meant.items()}}
    return Intent(with_values(w.step.intent_template, values), tuple([n for n in unmatched if n not in meant]))


def may_match(w: StepWork, intent: Intent) -> bool:
    return bool(intent.unmatched and w.earlier) and w.matched is None


def matched(w: StepWork, found: Matches) -> StepWork:
    """Keep the matches of a model that name existing steps."""
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
    """Return the output that a person wrote."""
    return Output("str", json.dumps(text), text)
