"""The profile of a model over Google's ``generateContent``."""

from __future__ import annotations

from typing import Literal

from fsm_agent.providers.codec import Profile


class GeminiProfile(Profile, frozen=True, kw_only=True):
    """The capabilities of a model beyond the common profile.

    `strict_functions` means support of the mode ``VALIDATED``: calls are optional, and enforced to match the schemas.

    Examples:
        >>> GeminiProfile(reasoning="budget").media_in_results
        True
    """

    reasoning: Literal["level", "budget"] | None = "level"  # form of its effort; None: it does not reason
    reasoning_off: bool = False  # can be switched off
    media_in_results: bool = True  # takes images and documents in function results, not only after them
    blocked_domains: bool = False  # takes them for a web search
    # How it combines its own tools with functions: if announced, or without announcement; None: it does not.
    hosted_with_functions: Literal["announced", "plain"] | None = None
