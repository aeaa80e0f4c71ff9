"""A function with which the model itself says which results it needs no longer."""

from __future__ import annotations

from functools import cache

from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function

CONTEXT_RELEASE = (
    "Free space in your context: what functions returned in these rounds, and is long, is shown to you only as a "
    "short note from now on. Do it when you have taken from it what you need. Each message in which you called "
    "functions is a round; the first one for the present task is round 1."
)


@cache
def context_release() -> Function:
    """Return a function with which the model itself releases results that it no longer needs; see `mask`.

    Examples:
        >>> context_release().name
        'context_release'
    """

    def release(context: Context, rounds: list[int]) -> str:
        context.release(rounds)
        return "Released."

    return Function.of(release, name="context_release", description=CONTEXT_RELEASE)
