"""The delay before another attempt of a request or a function.

If the provider asks for a delay, that delay is used.  All other delays come from `tenacity` waits; that library is
imported at the first failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from fsm_agent.errors import ProviderError

if TYPE_CHECKING:
    from tenacity import RetryCallState


def request_delay_s(
    error: ProviderError,
    attempt: int,
    backoff: Callable[[RetryCallState], float] | None,
    random: Callable[[], float],
) -> float:
    """Return the delay before the next request, after this attempt (counted from 1) failed with ``error``.

    A delay that the provider asks for takes precedence.  `fsm_agent.providers.failures` reads it from the
    ``Retry-After`` header or from the error's body.
    """
    if error.retry_after_s is not None:
        return error.retry_after_s
    if backoff is None:
        return doubled_s(1, 60, attempt) * random()  # full jitter, so that callers do not return together
    return delay_s(backoff, attempt, error)


def doubled_s(first_s: float, most_s: float, attempt: int) -> float:
    """Return the delay after a failed attempt, counting attempts from 1.  The delay doubles up to ``most_s``."""
    from tenacity import wait_exponential

    return delay_s(wait_exponential(multiplier=first_s, max=most_s), attempt)


def delay_s(wait: Callable[[RetryCallState], float], attempt: int, error: Exception | None = None) -> float:
    """Return the delay that a `tenacity` wait sets after a failed attempt, counting attempts from 1."""
    from tenacity import RetryCallState

    state = RetryCallState(cast("Any", None), None, (), {})
    state.attempt_number = attempt
    if error is not None:
        state.set_exception((type(error), error, None))
    return float(wait(state))
