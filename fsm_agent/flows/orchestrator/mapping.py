"""Placeholders of intents, filled with the outputs of earlier steps: by name, else by words; no model is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fsm_agent.flows.orchestrator.strategy import Step

MOST_TEXT = 1_000_000  # characters that an agent is asked at most
_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")  # spaces are stripped elsewhere: here they would take quadratic time
_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(["content", "output", "result", "data", "text", "value", "step", "the", "a", "of", "and", "to"])


class TooLong(ValueError):
    """A text that is too long."""


def placeholders(template: str) -> list[str]:
    """Return the names in a template, in order, each once."""
    return list(dict.fromkeys([name.strip() for name in _PLACEHOLDER.findall(template)]))


def words(text: str) -> set[str]:
    """Return the words of a text that say something, in lower case."""
    return set(_WORD.findall(text.lower())) - _COMMON


def best(wanted: str, texts: Iterable[tuple[str, str]]) -> str | None:
    """Return the name of the text that has most of the wanted words, the last of equal ones; None: it has none."""
    found, most, all_wanted = None, 1, words(wanted)
    for name, text in texts:
        score = len(all_wanted & words(text))
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


def sources(template: str, earlier: Sequence[Step], known: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return the steps whose outputs the placeholders of a template mean, and the names that mean none."""
    names = [name for name in placeholders(template) if name not in known]
    found = {name: source_of(name, earlier) for name in names}
    return {n: source for n, source in found.items() if source is not None}, [n for n in names if found[n] is None]


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with values in the place of names, which are not searched for names again.

    Raises:
        TooLong: It would have more than `MOST_TEXT` characters.
    """
    parts = _PLACEHOLDER.split(template)  # texts and names, in turn
    parts[1::2] = [values.get(name.strip(), "") for name in parts[1::2]]
    if (size := sum(map(len, parts))) > MOST_TEXT:
        raise TooLong(f"the intent has {size} characters with its outputs: {MOST_TEXT} or fewer would be right")
    return "".join(parts)


def has_words(text: str, wanted: str) -> bool:
    """Return True if a text has these words, one after the other and whole; of no words, False."""
    found = " ".join(_WORD.findall(wanted.lower()))
    return bool(found) and f" {found} " in f" {' '.join(_WORD.findall(text.lower()))} "
