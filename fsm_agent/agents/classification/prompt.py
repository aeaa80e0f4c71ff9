"""The prompt of a classifier, whose parser finds the class in a reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias

from fsm_agent.agents.classification.scores import ClassNames, Scores
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.prompts.extraction.parsing import Parser, ParserInput
from fsm_agent.prompts.prompt import EXCEPTION, Prompt
from fsm_agent.validation import check, shown, wrong

OnMissing: TypeAlias = Literal["zero", "error"]

QUESTION = (
    "Please respond with one and only one word from the following options: {{ classes }}. You can be fussy or unsure,"
    " but you must select one of the options, do not refuse to answer."
)
BINARY_QUESTION = (
    'Please respond with one and only one word, "True" or "False". You must select one of them, do not respond like'
    ' "maybe" or "unsure" or "unknown".'
)
TOP = 20  # alternatives to a token: more than most wires report
_MAX_TOKENS = 16


def name_of(label: object) -> str:
    """Return the name under which a model knows a class.

    Raises:
        UsageError: It has no name.
    """
    if isinstance(label, Enum):
        label = label.value if isinstance(label.value, str) else label.name
    name = label if isinstance(label, str) else str(label)
    if not name.strip():
        raise UsageError(f"a class: expected a text that a model can answer, got {shown(label)}")
    return name


def classes_of(classes: object) -> dict[str, Any]:
    """Return classes by their names.

    Raises:
        UsageError: They are fewer than two, or two have one name.
    """
    right = "two classes or more, such as ['yes', 'no'], or an Enum"
    is_right = not isinstance(classes, str | Mapping) and hasattr(classes, "__iter__")
    check("classes", classes, is_right, right)
    labels: list[Any] = list(classes)  # type: ignore[call-overload]
    if len(labels) < 2:
        raise wrong("classes", classes, right)
    by_name = {name_of(label): label for label in labels}
    if len(by_name) < len(labels):
        raise UsageError(f"classes: expected names that differ, got one twice in {shown(labels)}")
    return by_name


class ClassParser(Parser[Scores]):
    """The parser of a reply that names one of some classes.

    Args:
        names: Their names.
        on_missing: ``"zero"``: a class without a report has the probability 0.  ``"error"``: the model is
            asked again.
    """

    def __init__(self, names: Sequence[str], on_missing: OnMissing = "zero") -> None:
        check("on_missing", on_missing, on_missing in ("zero", "error"), "'zero' or 'error'")
        self._classes = ClassNames(names)
        self._on_missing = on_missing

    @property
    def label(self) -> str:
        return f"ClassParser({', '.join(map(repr, self._classes.names))}, {self._on_missing})"

    def read(self, source: ParserInput) -> Scores:
        """Return how likely each class is.

        Raises:
            ParseError: The reply names none of the classes.
        """
        names, vote = self._classes.names, self._classes.named(source.text)
        wanted = f"Please respond with one and only one word from {quoted(names)}."
        if not source.logprobs:
            if vote is None:
                raise ParseError(wanted)
            return Scores.of_votes(names, [vote])
        scores = self._classes.scores(source.logprobs)
        if not (scores.coverage or scores.shared) or (vote is None and source.finish != "length"):
            raise ParseError(wanted)
        if self._on_missing == "error" and scores.missing and not scores.shared:
            raise ParseError(wanted)
        return scores


def quoted(names: Sequence[str]) -> str:
    """Return names as a text: "a", "b" or "c"."""
    *others, last = [f'"{name}"' for name in names]
    return f"{', '.join(others)} or {last}" if others else last


def classifier(
    classes: Sequence[str], prompt: str | Prompt[Any] = QUESTION, on_missing: OnMissing = "zero"
) -> Prompt[Scores]:
    """Return a prompt that asks for one of some classes, with log probabilities.

    Args:
        classes: The names of the classes.
        prompt: The words of the question; it may say ``{{ text }}`` and ``{{ classes }}``.
        on_missing: See `ClassParser`.
    """
    asked = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
    shared = ClassNames(classes).longest_shared()
    settings = {"temperature": 0, "top_logprobs": TOP, "max_tokens": min(shared + 2, _MAX_TOKENS) if shared else 1}
    return asked.extend(
        output=str,
        parser=ClassParser(classes, on_missing),
        settings={**settings, **asked.settings},
        on_exception="{{ error_message }}" if asked.on_exception == EXCEPTION else asked.on_exception,
    )


def without_logprobs(prompt: Prompt[Scores], temperature: float) -> Prompt[Scores]:
    """Return the same for models that report no log probabilities; some think before they answer, in tokens."""
    kept = {name: value for name, value in prompt.settings.items() if name not in ("top_logprobs", "max_tokens")}
    return prompt.extend(parser=prompt.parser, settings={**kept, "temperature": temperature})
