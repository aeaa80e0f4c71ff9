"""Waits before the next attempt: those of `tenacity`, shortened by chance.

The random numbers are those of the world, so that a test can choose them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tenacity import RetryCallState, wait_exponential, wait_incrementing
from tenacity.wait import wait_base

from fsm_agent.errors import RateLimited
from fsm_agent.functions.policy import Retries


class Default(wait_base):
    """The wait before a recall, with full jitter, so that callers do not come back together.

    It doubles from a second up to a minute after a rate limit, and grows by a second up to half a minute after any
    other failure.

    Args:
        random: Returns numbers from 0 to 1.
    """

    after_limit = wait_exponential(multiplier=1, max=60)
    after_failure = wait_incrementing(start=1, increment=1, max=30)

    def __init__(self, random: Callable[[], float]) -> None:
        self.random = random

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        wait = self.after_limit if isinstance(error, RateLimited) else self.after_failure
        return wait(retry_state) * self.random()


class BetweenRuns(wait_base):
    """The wait before a function is run again: it doubles up to the longest, and chance takes its share of it.

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
    """Return how long a wait of `tenacity` takes after this failure of the attempt with this number, from 1."""
    state = RetryCallState(cast("Any", None), None, (), {})
    state.attempt_number = attempt
    state.set_exception((type(error), error, None))
    return wait(state)
