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
from fsm_agent.mistakes import check

Logits: TypeAlias = list[float]  # of each class, in one order

_LEAST = 1e-6  # of a probability: no provider reports less
_STEPS = 300
_RIDGE = 1e-3  # keeps what separates all examples from growing without end


class Calibration(Value, frozen=True, kw_only=True):
    """A correction of the probabilities of some classes, for one question to one model.

    The corrected probability of a class is proportional to ``p ** (1 / temperature) * exp(-bias)``.  It is a value:
    keep it as JSON, and give it to `Agent.classify`.

    Attributes:
        bias: How much the model prefers each class in general, by its name.
        temperature: More than 1 makes probabilities less extreme.

    Examples:
        >>> calibration = Calibration(bias={"yes": -1.0, "no": 1.0})
        >>> Calibration.from_json(calibration.to_json()) == calibration
        True
    """

    bias: Mapping[str, float]
    temperature: float = 1.0

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

    @classmethod
    def fitted(cls, found: Iterable[Classification[Any]], labels: Iterable[Any]) -> Self:
        """Return the correction that fits the right classes of examples best.

        On these examples its Brier score is never worse than without it.

        Args:
            found: Classifications of the examples, made without a calibration.
            labels: The right class of each.
        """
        rows, names = _rows(found)
        wanted = [name_of(label) for label in labels]
        check("labels", len(wanted), len(wanted) == len(rows), f"one for each of {len(rows)} classifications")
        if unknown := sorted({name for name in wanted if name not in names}):
            raise UsageError(f"labels have {unknown[0]!r}: one of {', '.join(map(repr, names))} would be right")
        targets = [names.index(name) for name in wanted]
        weight, shifts = _fit(rows, targets)
        made = cls(bias=_centred(names, [-shift for shift in shifts]), temperature=1 / weight)
        choices = [cls(bias=dict.fromkeys(names, 0.0)), made]
        return min(choices, key=lambda choice: _brier([choice._of_logits(row, names) for row in rows], targets))

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
            raise UsageError(f"the calibration is of the classes {other}: one of {ours} would be right")
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
            raise UsageError(f"the document holds no Calibration: {error}") from None
        return made

    def _of_logits(self, logits: Logits, names: Sequence[str]) -> list[float]:
        return _softmax([x / self.temperature - self.bias[name] for x, name in zip(logits, names, strict=True)])


def of(found: Sequence[Classification[Any]], labels: Iterable[Any] | None) -> Calibration:
    """Return the calibration by classifications, fitted to the right classes if they are known."""
    return Calibration.of_prior(found) if labels is None else Calibration.fitted(found, labels)


def brier_score(found: Iterable[Classification[Any]], labels: Iterable[Any]) -> float:
    """Return the mean squared distance of the probabilities from the truth: 0 is perfect, 2 is the worst.

    Args:
        found: Classifications.
        labels: The right class of each.

    Examples:
        >>> found = Agent(Script(token_reply({"yes": 0.75, "no": 0.25}))).classify("Is it late?", ["yes", "no"])
        >>> round(brier_score([found], ["yes"]), 3)
        0.125
    """
    pairs = [(one.probabilities, label) for one, label in zip(found, labels, strict=True)]
    return _mean([sum((p - (name == label)) ** 2 for name, p in ps.items()) for ps, label in pairs])


def _with(found: Classification[Any], probabilities: dict[Any, float], by: Calibration) -> Classification[Any]:
    label = max(probabilities, key=lambda name: probabilities[name])
    return replace(found, label=label, probabilities=probabilities, calibration=by)


def _rows(found: Iterable[Classification[Any]]) -> tuple[list[Logits], list[str]]:
    kept = [*found]
    check("the classifications", kept, bool(kept), "one or more")
    names = [name_of(label) for label in kept[0].raw]
    if any([name_of(label) for label in one.raw] != names for one in kept):
        raise UsageError(f"the classifications are of different classes: all of {', '.join(names)} would be right")
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


def _brier(probabilities: Sequence[Sequence[float]], targets: Sequence[int]) -> float:
    distances = [
        math.fsum((p - (i == target)) ** 2 for i, p in enumerate(ps))
        for ps, target in zip(probabilities, targets, strict=True)
    ]
    return _mean(distances)


def _fit(rows: Sequence[Logits], targets: Sequence[int]) -> tuple[float, list[float]]:
    """Return a weight of logits and a shift of each class, by maximal likelihood: gradient descent."""
    count = len(rows[0])
    centred = [[x - _mean(row) for x in row] for row in rows]
    at, step = [1.0, *[0.0] * count], 1.0

    def loss(point: Sequence[float]) -> tuple[float, list[float]]:
        total = 0.5 * _RIDGE * ((point[0] - 1) ** 2 + math.fsum(x * x for x in point[1:]))
        slope = [_RIDGE * (point[0] - 1), *[_RIDGE * x for x in point[1:]]]
        for row, target in zip(centred, targets, strict=True):
            ps = _softmax([point[0] * x + shift for x, shift in zip(row, point[1:], strict=True)])
            total -= math.log(max(ps[target], 1e-300)) / len(rows)
            for i, p in enumerate(ps):
                off = (p - (i == target)) / len(rows)
                slope[0] += off * row[i]
                slope[i + 1] += off
        return total, slope

    value, slope = loss(at)
    for _ in range(_STEPS):
        tried = [x - step * d for x, d in zip(at, slope, strict=True)]
        tried[0] = max(0.05, tried[0])
        new, new_slope = loss(tried)
        if new < value:
            gain, at, value, slope, step = value - new, tried, new, new_slope, step * 2
            if gain < 1e-9:
                break
        elif (step := step / 2) < 1e-9:
            break
    return at[0], at[1:]
