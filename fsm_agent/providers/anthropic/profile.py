"""The profile of a model over Anthropic's Messages API."""

from __future__ import annotations

from typing import Literal

from fsm_agent.providers.codec import Profile


class AnthropicProfile(Profile, frozen=True, kw_only=True):
    """The capabilities of a model beyond the common profile.

    Examples:
        >>> AnthropicProfile(default_max_tokens=4_000).reasoning
        'adaptive'
    """

    default_max_tokens: int = 16_000  # the wire requires a limit; longer replies need a stream
    reasoning: Literal["adaptive", "budget"] | None = "adaptive"  # form of its effort; None: it does not reason
    reasoning_off: Literal["disabled", "between_tools"] | None = "disabled"  # how to switch it off; None: it cannot
    temperature_with_top_p: bool = False  # False: top_p is left out if the temperature is set
    system_in_dialog: bool = False  # takes system messages after other messages
