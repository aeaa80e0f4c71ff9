"""How long to wait before the next attempt: of a request, such as one after a 429, and of a function.

The provider's own word comes first: it is in the error, `ProviderError.retry_after_s`.  All other delays are waits of
`tenacity`, which is loaded at the first failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tenacity import RetryCallState


def doubled_s(first_s: float, most_s: float, attempt: int) -> float:
    """Return the delay after the failure of an attempt, counted from 1: it doubles up to a maximum."""
    from tenacity import wait_exponential

    return delay_s(wait_exponential(multiplier=first_s, max=most_s), attempt)


def delay_s(wait: Callable[[RetryCallState], float], attempt: int, error: Exception | None = None) -> float:
    """Return the delay of a wait of `tenacity` after the failure of an attempt, counted from 1."""
    from tenacity import RetryCallState

    state = RetryCallState(cast("Any", None), None, (), {})
    state.attempt_number = attempt
    if error is not None:
        state.set_exception((type(error), error, None))
    return float(wait(state))
