"""Fills placeholders of intents with outputs of earlier steps: by name, or by common words, without a model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fsm_agent.flows.orchestrator.strategy import Step

MOST_TEXT = 1_000_000  # characters that an agent is asked at most
_PLACEHOLDER = re.compile(r"\{\{([^{}]*)\}\}")  # spaces are stripped elsewhere: here they would take quadratic time
_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(["content", "output", "result", "data", "text", "value", "step", "the", "a", "of", "and", "to"])


class TooLong(ValueError):
    """The text is too long."""


def placeholders(template: str) -> list[str]:
    """Return the names in a template, in order and without duplicates."""
    return list(dict.fromkeys([name.strip() for name in _PLACEHOLDER.findall(template)]))


def words(text: str) -> set[str]:
    """Return the significant words of a text, in lower case."""
    return set(_WORD.findall(text.lower())) - _COMMON


class Texts:
    """Texts by name, indexed once, to find the one that shares most words with another text.

    Args:
        texts: Names and texts.
    """

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self._names: list[str] = []
        self._with: dict[str, list[int]] = {}  # the numbers of the texts with a word
        for number, (name, text) in enumerate(texts):
            self._names.append(name)
            for word in words(text):
                self._with.setdefault(word, []).append(number)

    def best(self, wanted: str) -> str | None:
        """Return the text with most of the wanted words, the last of equals; None: no text has any."""
        counts = Counter([number for word in words(wanted) for number in self._with.get(word, ())])
        return self._names[max(counts, key=lambda number: (counts[number], number))] if counts else None


class Earlier:
    """The steps before a step, whose outputs its placeholders may mean.

    Args:
        steps: The steps, in the order in which they ended.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._by_name: dict[str, str] = {}
        for step in steps:  # of equal names the most recent
            names = (step.step_id, f"{step.step_id}_output", *([step.output_key] if step.output_key else []))
            self._by_name |= dict.fromkeys(names, step.step_id)
        if steps:
            self._by_name.setdefault("previous_output", steps[-1].step_id)
        self._texts = Texts([(s.step_id, f"{s.description} {s.expected_output} {s.step_id}") for s in steps])

    def source_of(self, name: str) -> str | None:
        """Return the step whose output a placeholder means: by its name, or by common words."""
        return self._by_name.get(name) or self._texts.best(name)

    def sources(self, template: str, known: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """Return the steps whose outputs the placeholders of a template mean, and the names that match none."""
        found = {name: self.source_of(name) for name in placeholders(template) if name not in known}
        return {n: step for n, step in found.items() if step is not None}, [n for n in found if found[n] is None]


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with values in place of names; placeholders inside values are not filled.

    Raises:
        TooLong: It would have more than `MOST_TEXT` characters.
    """
    parts = _PLACEHOLDER.split(template)  # texts and names, in turn
    parts[1::2] = [values.get(name.strip(), "") for name in parts[1::2]]
    if (size := sum(map(len, parts))) > MOST_TEXT:
        raise TooLong(f"intent: expected at most {MOST_TEXT} characters with its outputs, got {size}")
    return "".join(parts)
