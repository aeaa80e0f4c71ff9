"""Limits of how many runs have a holder at a time, over all who share a store.

A store counts the runs whose leases last, in the commit of the claim.  So two claims never take the last place both,
and the place of a holder that dies is free as soon as its run may be claimed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fsm_agent.store.store import Choice

Held = tuple[str, str, int]  # an agent, a concurrency key, and how many runs of both have a holder


class Room(NamedTuple):
    """What a claim may still take under the limits of its choice."""

    choice: Choice | None  # with the keys that are at their limit among the busy ones
    full: frozenset[str]  # the agents that are at their limit

    @property
    def is_limited(self) -> bool:
        """True if some runs cannot be claimed before others are given back."""
        return bool(self.full) or bool(self.choice and self.choice.busy)


def counts_held(choice: Choice | None) -> bool:
    """Return whether a choice depends on how many runs have a holder."""
    return choice is not None and (bool(choice.limits) or choice.key_limit is not None)


def room(choice: Choice | None, held: Iterable[Held]) -> Room:
    """Return what a claim may take.

    Args:
        choice: The choice of the claim.
        held: The runs with holders, counted by agent and key; each pair may occur often.
    """
    if choice is None or not counts_held(choice):
        return Room(choice, frozenset())
    of_agents, of_keys = dict.fromkeys(dict(choice.limits), 0), dict[str, int]()
    for agent, key, count in held:
        if agent in of_agents:
            of_agents[agent] += count
        if key:
            of_keys[key] = of_keys.get(key, 0) + count
    full = frozenset([agent for agent, limit in choice.limits if of_agents[agent] >= limit])
    limit = choice.key_limit
    busy = () if limit is None else tuple(sorted([key for key, count in of_keys.items() if count >= limit]))
    return Room(choice.changed(busy=(*choice.busy, *busy)), full)
