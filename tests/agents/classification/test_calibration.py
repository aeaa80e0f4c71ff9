"""Does a calibration make probabilities better, and never worse on what it was fitted to?"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from fsm_agent import Classification, UsageError
from fsm_agent.agents import Calibration, brier_score


def found(raw: dict[Any, float], floor: float = 0.0) -> Classification[Any]:
    total = sum(raw.values())
    return Classification(
        label=max(raw, key=lambda name: raw[name]),
        probabilities={name: p / total for name, p in raw.items()},
        coverage=min(1.0, total),
        is_calibrated=True,
        missing=tuple([name for name, p in raw.items() if not p]),
        raw=raw,
        floor=floor,
    )


def biased(seed: int, count: int, names: str, liking: float = 2.0, noise: float = 1.0) -> tuple[list[Any], list[str]]:
    """Return the classifications of a model that likes to say the first class, and the right classes."""
    rng = random.Random(seed)
    labels = [rng.choice(names) for _ in range(count)]
    rows = []
    for label in labels:
        logits = [rng.gauss(1.5 * (name == label), noise) + liking * (name == names[0]) for name in names]
        total = sum(map(math.exp, logits)) * 1.1
        rows.append(found({name: math.exp(x) / total for name, x in zip(names, logits, strict=True)}))
    return rows, labels


class TestPrior:
    def test_a_general_liking_is_taken_out(self) -> None:
        both = [found({"a": 0.8, "b": 0.1}), found({"a": 0.6, "b": 0.3})]
        calibration = Calibration.of_prior(both)
        first, second = map(calibration.applied, both)
        assert (first.label, second.label) == ("a", "b")
        assert first.p == pytest.approx((0.8 / 0.7) / (0.8 / 0.7 + 0.1 / 0.2))

    def test_one_text_alone_tells_nothing(self) -> None:
        one = found({"a": 0.9, "b": 0.01})
        assert Calibration.of_prior([one]).applied(one).p == pytest.approx(0.5)

    def test_a_missing_class_counts_as_the_least_that_was_reported(self) -> None:
        calibration = Calibration(bias={"a": math.log(10), "b": 0.0})
        probabilities = calibration.applied(found({"a": 0.9, "b": 0.0}, floor=0.03)).probabilities
        assert probabilities == {"a": pytest.approx(0.75), "b": pytest.approx(0.25)}


class TestFitted:
    @pytest.mark.parametrize("seed", [0, 1, 2, 3, 7, 11])
    @pytest.mark.parametrize("names", ["ab", "abcd"])
    def test_it_never_worsens_the_brier_score_of_its_examples(self, seed: int, names: str) -> None:
        rows, labels = biased(seed, 2 + 5 * seed, names, liking=seed % 4 - 1.0)
        calibration = Calibration.fitted(rows, labels)
        assert brier_score(map(calibration.applied, rows), labels) <= brier_score(rows, labels) + 1e-12

    def test_nor_where_a_model_is_once_very_sure_of_the_wrong_class(self) -> None:
        """The fit makes all of its probabilities even then: it is worse than none, which is kept."""
        right = [found({"a": 0.95, "b": 0.05}), found({"a": 0.05, "b": 0.95})] * 6
        rows = [*right, found({"a": 1 - 1e-12, "b": 1e-12}), found({"a": 1e-12, "b": 1 - 1e-12})]
        labels = [*"ab" * 6, *"ba"]
        calibration = Calibration.fitted(rows, labels)
        assert brier_score(map(calibration.applied, rows), labels) == pytest.approx(brier_score(rows, labels))

    def test_a_temperature_is_positive_though_the_model_is_always_wrong(self) -> None:
        rows = [found({"a": p, "b": 1 - p}) for p in (0.9, 0.8, 0.3, 0.2)]
        assert Calibration.fitted(rows, ["b", "b", "a", "a"]).temperature > 0

    def test_it_generalises(self) -> None:
        rows, labels = biased(1, 200, "abc")
        others, right = biased(2, 200, "abc")
        better = [*map(Calibration.fitted(rows, labels).applied, others)]
        assert brier_score(better, right) < 0.85 * brier_score(others, right)


class TestValue:
    def test_json_and_back(self) -> None:
        calibration = Calibration(bias={"a": 0.25, "b": -0.25}, temperature=1.5)
        assert Calibration.from_json(calibration.to_json()) == calibration

    def test_a_damaged_document(self) -> None:
        with pytest.raises(UsageError, match="the document holds no Calibration"):
            Calibration.from_json('{"bias": 3}')


def test_the_brier_score() -> None:
    rows = [found({"a": 0.8, "b": 0.2}), found({"a": 1.0, "b": 0.0})]
    assert brier_score(rows, ["a", "b"]) == pytest.approx((0.04 + 0.04 + 1 + 1) / 2)
