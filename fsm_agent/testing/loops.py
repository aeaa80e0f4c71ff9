"""Loops of a graph of configurations, along steps that nothing outside decides."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

MOST = 10  # loops that are told


def loops_in(steps: Mapping[Hashable, Mapping[Hashable, str]], ways: Mapping[Hashable, Sequence[str]]) -> list[str]:
    """Return some loops in words: one of each part of the graph, `MOST` in all.

    Args:
        steps: By configuration, those that follow it, with the words of the step.
        ways: The steps that lead to each configuration, in words.
    """
    before: dict[Hashable, set[Hashable]] = {}
    for one, following in steps.items():
        for other in following:
            before.setdefault(other, set()).add(one)
    found = list[str]()
    while len(found) < MOST:
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            cycle = error.args[1][:-1]  # each is a predecessor of the next, and the last of the first
        else:
            break
        first = min(range(len(cycle)), key=lambda index: len(ways[cycle[index]]))
        cycle = [*cycle[first:], *cycle[:first]]
        words = [steps[one][other] for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
        found.append(f"{' → '.join(ways[cycle[0]])}; again and again: {' → '.join(words)}")
        for one in cycle:
            before.pop(one, None)
            for others in before.values():
                others.discard(one)
    return found
