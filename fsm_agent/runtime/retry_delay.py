"""Delays between attempts, for requests and for functions.

For a request, the provider's own delay comes first: `ProviderError.retry_after_s`.  All other delays are waits of
`tenacity`, which is imported at the first failure.

`fsm_agent.providers.failures` reads the provider's delay from the header ``Retry-After`` or the body of an error, and
`model_failed` in `fsm_agent.runtime.call_activities` applies it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tenacity import RetryCallState


def doubled_s(first_s: float, most_s: float, attempt: int) -> float:
    """Return the delay after the failure of an attempt (the first is 1).  It doubles up to ``most_s``."""
    from tenacity import wait_exponential

    return delay_s(wait_exponential(multiplier=first_s, max=most_s), attempt)


def delay_s(wait: Callable[[RetryCallState], float], attempt: int, error: Exception | None = None) -> float:
    """Return the delay of a `tenacity` wait after the failure of an attempt (the first is 1)."""
    from tenacity import RetryCallState

    state = RetryCallState(cast("Any", None), None, (), {})
    state.attempt_number = attempt
    if error is not None:
        state.set_exception((type(error), error, None))
    return float(wait(state))
