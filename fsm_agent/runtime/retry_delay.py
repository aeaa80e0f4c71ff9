"""Delays before the next attempt: waits of `tenacity` with random jitter.

Whether there is one is not decided here: of models it is in `fsm_agent.call.table`.  The random numbers
come from the world, so a test can choose them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tenacity import RetryCallState, wait_exponential
from tenacity.wait import wait_base

from fsm_agent.functions.policy import Retries


class Default(wait_base):
    """The delay before a recall: it doubles from a second up to a minute, and is multiplied by a random number.

    That full jitter keeps callers from returning at the same time.

    Args:
        random: Returns numbers from 0 to 1.
    """

    longest = wait_exponential(multiplier=1, max=60)

    def __init__(self, random: Callable[[], float]) -> None:
        self.random = random

    def __call__(self, retry_state: RetryCallState) -> float:
        return self.longest(retry_state) * self.random()


class BetweenRuns(wait_base):
    """The delay before a function is run again: it doubles up to a maximum, minus random jitter.

    Args:
        retries: The policy of the function.
        random: Returns numbers from 0 to 1.
    """

    def __init__(self, retries: Retries, random: Callable[[], float]) -> None:
        self.longest = wait_exponential(multiplier=retries.delay_s, max=retries.max_delay_s)
        self.jitter = retries.jitter
        self.random = random

    def __call__(self, retry_state: RetryCallState) -> float:
        return self.longest(retry_state) * (1 - self.jitter * self.random())


def delay_s(wait: wait_base, attempt: int, error: Exception) -> float:
    """Return the delay of a wait of `tenacity` after the failure of an attempt, counted from 1."""
    state = RetryCallState(cast("Any", None), None, (), {})
    state.attempt_number = attempt
    state.set_exception((type(error), error, None))
    return wait(state)
