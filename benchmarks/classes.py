"""Measure how well a model classifies, before and after calibration.

The texts were written for this.  Of each two neighbours, one is positive and one negative; every other pair is in the
first half.  A calibration is judged by the half that it was not made from, so that every text is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from fsm_agent.agents import Agent, Calibration, Classification
from fsm_agent.clients import Client
from fsm_agent.messages import Settings
from fsm_agent.prompts import Prompts
from fsm_agent.prompts.library import packaged_prompts

LABELS = ("positive", "negative")
BINS = 5
_SIGNS = {"+": "positive", "-": "negative"}

How: TypeAlias = Literal["none", "prior"]
HOWS: tuple[How, ...] = ("none", "prior")


class Example(NamedTuple):
    """A text and its right class."""

    text: str
    label: str


class Bin(NamedTuple):
    """The texts whose likeliest class has a probability within bounds."""

    above: float
    texts: int
    mean_p: float
    share_right: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The quality of classifications, by one way of calibrating.

    Attributes:
        calibrated_by: Nothing, or the model's prior on texts without their labels.
        accuracy: The share that is right.
        brier: The mean squared distance of the probabilities from the truth: 0 is perfect, 2 is the worst.
        reliability: How often the likeliest class is right, by its probability.
    """

    calibrated_by: How
    accuracy: float
    brier: float
    reliability: tuple[Bin, ...]


def examples() -> list[Example]:
    """Return the labelled texts."""
    lines = Path(__file__).with_name("sentiments.txt").read_text(encoding="utf-8").splitlines()
    return [Example(line[2:], _SIGNS[line[0]]) for line in lines]


def classified(client: Client, items: Sequence[Example], settings: Settings) -> Iterator[Classification[str]]:
    """Ask a model about each text, one after another, and yield its classifications."""
    prompts = Prompts("demo", directory=packaged_prompts())
    agent = Agent(client, system=prompts("system").template, settings=settings)
    for item in items:
        yield agent.classify(item.text, LABELS, prompt=prompts("sentiment"))


def qualities(found: Sequence[Classification[str]], items: Sequence[Example]) -> list[Quality]:
    """Return the quality of classifications before calibration, and after each way of it."""
    labels = [item.label for item in items]
    halves = [[i for i in range(len(items)) if i // 2 % 2 == half] for half in (0, 1)]
    judged = dict[int, Classification[Any]]()
    for half, other in (halves, halves[::-1]):
        calibration = Calibration.of_prior([found[i] for i in half])
        judged |= {i: calibration.applied(found[i]) for i in other}
    return [_quality("none", found, labels), _quality("prior", [judged[i] for i in sorted(judged)], labels)]


def _quality(how: How, found: Sequence[Classification[str]], labels: Sequence[str]) -> Quality:
    return Quality(
        calibrated_by=how,
        accuracy=sum(one.label == label for one, label in zip(found, labels, strict=True)) / len(found),
        brier=brier_score(found, labels),
        reliability=reliability(found, labels),
    )


def brier_score(found: Sequence[Classification[str]], labels: Sequence[str]) -> float:
    distances = [
        sum((p - (name == label)) ** 2 for name, p in one.probabilities.items())
        for one, label in zip(found, labels, strict=True)
    ]
    return sum(distances) / len(distances)


def reliability(found: Sequence[Classification[str]], labels: Sequence[str], bins: int = BINS) -> tuple[Bin, ...]:
    """Return how often the likeliest of two classes or more is right, by its probability; empty bins are left out."""
    least = 1 / len(found[0].probabilities)
    width = (1 - least) / bins
    table = []
    for number in range(bins):
        inside = [i for i, one in enumerate(found) if min(bins - 1, int((one.p - least) / width)) == number]
        if inside:
            mean_p = sum(found[i].p for i in inside) / len(inside)
            right = sum(found[i].label == labels[i] for i in inside) / len(inside)
            table.append(Bin(least + number * width, len(inside), mean_p, right))
    return tuple(table)
