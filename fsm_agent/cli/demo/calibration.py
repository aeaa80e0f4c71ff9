"""Find the likeliest of some labels, corrected for the model's general preferences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fsm_agent.messages.reply import Reply


def label_scores(reply: Reply, labels: Sequence[str]) -> dict[str, float]:
    """Return the log probability of each label: that of the likeliest first token that it begins with.

    A label that is not among the alternatives gets the smallest of their values.
    """
    first = reply.logprobs[0]
    named = (*first.top, (first.token, first.logprob))
    alternatives = [(token.strip().casefold(), logprob) for token, logprob in named]
    floor = min(logprob for _, logprob in alternatives)
    return {
        label: max([p for token, p in alternatives if token and label.casefold().startswith(token)], default=floor)
        for label in labels
    }


def calibrated(scores: Sequence[Mapping[str, float]]) -> list[tuple[str, float]]:
    """Return the likeliest label of each text and its probability, without the model's general preference for a label.

    Batch calibration: each label's score is divided by its mean over the texts (https://arxiv.org/abs/2309.17249,
    2023-09-29).
    """
    means = {label: sum(math.exp(score[label]) for score in scores) / len(scores) for label in scores[0]}
    likeliest = []
    for score in scores:
        odds = {label: math.exp(score[label]) / means[label] for label in score}
        best = max(odds, key=lambda label: odds[label])
        likeliest.append((best, odds[best] / sum(odds.values())))
    return likeliest
