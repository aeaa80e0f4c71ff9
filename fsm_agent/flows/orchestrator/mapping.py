"""Placeholders of intents, filled with the outputs of earlier steps: by name, else by words; no model is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fsm_agent.flows.orchestrator.strategy import Step

_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(["content", "output", "result", "data", "text", "value", "step", "the", "a", "of", "and", "to"])


class Unmatched(ValueError):
    """A placeholder that no output is for."""


def placeholders(template: str) -> list[str]:
    """Return the names in a template, in order, each once."""
    return list(dict.fromkeys(_PLACEHOLDER.findall(template)))


def words(text: str) -> set[str]:
    """Return the words of a text that say something, in lower case."""
    return set(_WORD.findall(text.lower())) - _COMMON


def best(wanted: str, texts: Iterable[tuple[str, str]]) -> str | None:
    """Return the name of the text that has most of the wanted words, the last of equal ones; None: it has none."""
    found, most = None, 1
    for name, text in texts:
        score = len(words(wanted) & words(text))
        if score >= most:
            found, most = name, score
    return found


def source_of(name: str, earlier: Sequence[Step]) -> str | None:
    """Return the earlier step whose output a placeholder means: by its name, else by whole words."""
    for step in reversed(earlier):
        if name in (step.step_id, step.output_key, f"{step.step_id}_output"):
            return step.step_id
    if name == "previous_output":
        return earlier[-1].step_id if earlier else None
    about = [(s.step_id, f"{s.description} {s.expected_output} {s.step_id}") for s in earlier]
    return best(name, about)


def filled(step: Step, task: str, earlier: Sequence[Step], texts: Mapping[str, str], unmatched: str) -> str:
    """Return what the agent of a step is asked.

    Raises:
        Unmatched: A placeholder has no output, and that is an error.
    """
    values = {**texts, "task": task}
    for name in placeholders(step.intent_template):
        source = None if name in values else source_of(name, earlier)
        if source is not None:
            values[name] = texts[source]
        elif name not in values and unmatched == "error":
            known = ", ".join(repr(one.step_id) for one in earlier) or "none yet"
            raise Unmatched(f"{{{{ {name} }}}} of {step.step_id!r} matches no output: those of {known} are there")
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], ""), step.intent_template)
