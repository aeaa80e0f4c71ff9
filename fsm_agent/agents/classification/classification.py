"""The result of a classification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from fsm_agent.lifecycle.call_result import CallResult
from fsm_agent.messages.reply import Usage
from fsm_agent.mistakes import check
from fsm_agent.prompts.dialog import Dialog

if TYPE_CHECKING:
    from fsm_agent.agents.classification.calibration import Calibration

Label = TypeVar("Label", covariant=True, default=Any)

Unsure: TypeAlias = Literal["unsure"]
UNSURE: Unsure = "unsure"


@dataclass(frozen=True, kw_only=True)
class Classification(Generic[Label]):
    """The class of a text or a dialog, and how likely each class is.

    Attributes:
        label: The likeliest class; ``"unsure"`` if its probability is below the threshold.
        probabilities: Of each class; together 1.
        coverage: How likely the model's answer is one of the classes at all, in whatever spelling.
        is_calibrated: The probabilities come from the log probabilities of tokens; False: they are shares of votes.
        missing: The classes without a reported log probability, or without a vote.
        raw: The probabilities as they were reported, before they were made to add up to 1.
        floor: An upper bound of the raw probability of a missing class.
        calibration: The correction of the probabilities, if there was one.
        results: The calls that were made, in order.

    Examples:
        >>> found = Agent(Script(token_reply({"yes": 0.75, "no": 0.25}))).classify("Is it late?", ["yes", "no"])
        >>> found.label, round(found.probabilities["no"], 2)
        ('yes', 0.25)
    """

    label: Label
    probabilities: Mapping[Any, float]
    coverage: float
    is_calibrated: bool
    missing: tuple[Any, ...]
    raw: Mapping[Any, float]
    floor: float = 0.0
    calibration: Calibration | None = None
    results: tuple[CallResult[Any], ...] = field(default=(), repr=False)

    @property
    def likeliest(self) -> Any:
        """The likeliest class, whatever the threshold; of equals, the first in the list."""
        return max(self.probabilities, key=lambda label: self.probabilities[label])

    @property
    def p(self) -> float:
        """The probability of the likeliest class."""
        return max(self.probabilities.values())

    @property
    def is_unsure(self) -> bool:
        """True if the likeliest class is below the threshold."""
        return self.label == UNSURE and UNSURE not in self.probabilities

    @property
    def dialog(self) -> Dialog:
        """The text or dialog, the question and the answer, without failed attempts."""
        return self.results[0].dialog

    @property
    def usage(self) -> Usage:
        """Tokens of all calls."""
        return sum([result.usage for result in self.results], Usage())


@dataclass(frozen=True, kw_only=True)
class MultiClassification(Generic[Label]):
    """The classes that apply to a text or a dialog: any number of them.

    Attributes:
        labels: Those whose probability reaches the threshold, the likeliest first.
        probabilities: Of each class, that it applies.
        classifications: The answers, yes or no, by class.

    Examples:
        >>> yes, no = token_reply({"True": 0.9, "False": 0.1}), token_reply({"True": 0.2, "False": 0.8})
        >>> found = Agent(Script(by={"angry": yes, "happy": no})).multi_classify("Late again!", ["angry", "happy"])
        >>> found.labels
        ('angry',)
    """

    labels: tuple[Label, ...]
    probabilities: Mapping[Any, float]
    classifications: Mapping[Any, Classification[bool]] = field(repr=False)

    @property
    def is_calibrated(self) -> bool:
        """True if all probabilities come from log probabilities."""
        return all(found.is_calibrated for found in self.classifications.values())

    @property
    def usage(self) -> Usage:
        """Tokens of all calls."""
        return sum([found.usage for found in self.classifications.values()], Usage())


def multiple(labels: Iterable[Any], found: Sequence[Classification[Any]], threshold: float) -> MultiClassification[Any]:
    """Return the classes that apply, by classifications as true or false.

    Raises:
        UsageError: The threshold is not a probability.
    """
    check("threshold", threshold, isinstance(threshold, int | float) and 0 <= threshold <= 1, "one from 0 to 1")
    by_label = dict(zip(labels, found, strict=True))
    probabilities = {label: one.probabilities[True] for label, one in by_label.items()}
    likeliest = sorted(probabilities, key=lambda label: -probabilities[label])
    return MultiClassification(
        labels=tuple([label for label in likeliest if probabilities[label] >= threshold]),
        probabilities=probabilities,
        classifications=by_label,
    )
