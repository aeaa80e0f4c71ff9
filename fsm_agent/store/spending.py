"""Limits that all who use a store share: how much was spent of something in the last seconds.

An amount is counted until a little more than the time of the limit has passed, so that the limit is never exceeded.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent._internal.field_checks import is_amount, is_whole
from fsm_agent.mistakes import check
from fsm_agent.store.checks import check_text

GRAINS = 240  # into which the time of a limit is divided: amounts of one grain are kept as one


def check_spend(name: str, amount: int, limit: int, within_s: float) -> None:
    """Refuse arguments of `Store.spend` that make no sense.

    Raises:
        UsageError: It names the argument, and what was expected.
    """
    check_text("the name of a limit", name)
    check("amount", amount, is_whole(amount), "a whole number")
    check("limit", limit, is_whole(limit, 1), "a whole number from 1 on")
    check("within_s", within_s, is_amount(within_s) and within_s > 0.0, "a number of seconds above 0")


def moment(now_s: float, within_s: float) -> float:
    """Return the end of the present grain, at which what is spent now is kept."""
    grain_s = within_s / GRAINS
    return (now_s // grain_s + 1.0) * grain_s


def changed(spent: Sequence[tuple[float, int]], amount: int, at_s: float) -> list[tuple[float, int]]:
    """Return the moments whose amounts change when an amount is spent, each with its new amount.

    What is given back is taken from the earliest: kept as an amount of its own, it would outlast what it was given back
    of, and more than the limit could be spent.

    Args:
        spent: As in `wait_s`.
        amount: The amount; below 0: it is given back.
        at_s: The `moment` of it.
    """
    if amount >= 0:
        return [(at_s, dict(spent).get(at_s, 0) + amount)]
    found: list[tuple[float, int]] = []
    for moment_s, used in spent:
        back = max(0, min(used, -amount))
        amount += back
        found.append((moment_s, used - back))
    return found


def wait_s(spent: Sequence[tuple[float, int]], amount: int, limit: int, within_s: float, now_s: float) -> float:
    """Return how many seconds to wait before an amount can be spent; 0.0: it can be now.

    An amount that exceeds the limit alone can be spent when nothing was.

    Args:
        spent: The moments and amounts within the last ``within_s`` seconds, in order.
        amount: The amount; one that is not above 0 gives back, and needs not wait.
        limit: The most that may be spent within ``within_s``.
        within_s: The time of the limit.
        now_s: Unix time.
    """
    total = sum([used for _, used in spent])
    excess, left_s = total + amount - limit, 0.0
    if amount <= 0 or total <= 0:
        return 0.0
    for at_s, used in spent:
        if excess <= 0:
            break
        excess -= used
        left_s = at_s + within_s - now_s
    return max(left_s, 0.0)
