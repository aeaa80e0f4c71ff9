"""The report of a request that failed."""

from __future__ import annotations

from fsm_agent._internal.values import Value
from fsm_agent.errors import ErrorReport


class RequestFailure(Value, frozen=True, kw_only=True):
    """A failed request to the model, whether or not the call then succeeded."""

    key: str  # of the request
    attempt: int  # at this request, from 1
    round: int  # the round that the reply would have belonged to, from 1
    report: ErrorReport
    at_s: float  # Unix time
    delay_s: float | None = None  # until the next attempt; None: there was none
