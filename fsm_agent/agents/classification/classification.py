"""The result of a classification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from fsm_agent.call.result import CallResult
from fsm_agent.messages.reply import Usage
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
