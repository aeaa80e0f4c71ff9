"""Calibration: removes a model's general preference for some classes from their probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeAlias

from fsm_agent._internal.values import Value, from_json, to_json
from fsm_agent.agents.classification.classification import Classification
from fsm_agent.agents.classification.prompt import name_of
from fsm_agent.errors import UsageError
from fsm_agent.validation import check

Logits: TypeAlias = list[float]  # of each class, in one order

_LEAST = 1e-6  # of a probability: no provider reports less


class Calibration(Value, frozen=True, kw_only=True):
    """A correction of the probabilities of some classes, for one question to one model.

    The corrected probability of a class is proportional to ``p * exp(-bias)``.  It is a value: keep it as JSON, and
    give it to `Agent.classify`.

    Attributes:
        bias: How much the model prefers each class in general, by its name.

    Examples:
        >>> calibration = Calibration(bias={"yes": -1.0, "no": 1.0})
        >>> Calibration.from_json(calibration.to_json()) == calibration
        True
    """

    bias: Mapping[str, float]

    @classmethod
    def of_prior(cls, found: Iterable[Classification[Any]]) -> Self:
        """Return the correction that divides the probability of each class by its mean.

        Args:
            found: Classifications of texts whose classes are about equally frequent, the more the better; or of texts
                without content.  The right classes need not be known.
        """
        rows, names = _rows(found)
        means = [_mean([math.exp(row[i]) for row in rows]) for i in range(len(names))]
        return cls(bias=_centred(names, [math.log(mean) for mean in means]))

    def corrected(self, raw: Mapping[str, float], floor: float = 0.0) -> dict[str, float]:
        """Return corrected probabilities, which add up to 1.

        Args:
            raw: The probabilities of the classes, by name.
            floor: That of a class which is missing.

        Raises:
            UsageError: The calibration is for other classes.
        """
        if raw.keys() != self.bias.keys():
            other, ours = (", ".join(map(repr, names)) for names in (self.bias, raw))
            raise UsageError(f"calibration: expected one of the classes {ours}, got one of {other}")
        names = [*raw]
        return dict(zip(names, self._of_logits(_logits(raw, floor), names), strict=True))

    def applied(self, found: Classification[Any]) -> Classification[Any]:
        """Return a classification with corrected probabilities, ignoring any threshold."""
        by_name = {name_of(label): label for label in found.raw}
        corrected = self.corrected({name: found.raw[label] for name, label in by_name.items()}, found.floor)
        probabilities = {by_name[name]: p for name, p in corrected.items()}
        return _with(found, probabilities, self)

    def to_json(self) -> str:
        """Return it as JSON."""
        return to_json(self)

    @classmethod
    def from_json(cls, document: str | bytes) -> Self:
        """Return the calibration that `to_json` wrote.

        Raises:
            UsageError: The document is damaged.
        """
        try:
            made: Self = from_json(document, cls)
        except ValueError as error:
            raise UsageError(f"the document: expected a Calibration: {error}") from None
        return made

    def _of_logits(self, logits: Logits, names: Sequence[str]) -> list[float]:
        return _softmax([x - self.bias[name] for x, name in zip(logits, names, strict=True)])


def _with(found: Classification[Any], probabilities: dict[Any, float], by: Calibration) -> Classification[Any]:
    label = max(probabilities, key=lambda name: probabilities[name])
    return replace(found, label=label, probabilities=probabilities, calibration=by)


def _rows(found: Iterable[Classification[Any]]) -> tuple[list[Logits], list[str]]:
    kept = [*found]
    check("the classifications", kept, bool(kept), "one classification or more")
    names = [name_of(label) for label in kept[0].raw]
    if any([name_of(label) for label in one.raw] != names for one in kept):
        raise UsageError(f"the classifications: expected all to be of {', '.join(names)}, got different classes")
    return [_logits({name_of(label): p for label, p in one.raw.items()}, one.floor) for one in kept], names


def _logits(raw: Mapping[str, float], floor: float) -> Logits:
    return [math.log(p or max(floor, _LEAST)) for p in raw.values()]


def _softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    odds = [math.exp(x - top) for x in logits]
    total = math.fsum(odds)
    return [odd / total for odd in odds]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _centred(names: Sequence[str], bias: Sequence[float]) -> dict[str, float]:
    middle = _mean(bias)
    return {name: value - middle for name, value in zip(names, bias, strict=True)}
