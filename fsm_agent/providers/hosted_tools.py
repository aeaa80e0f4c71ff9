"""Which tools does a provider run itself, and how are the others refused?"""

from __future__ import annotations

from typing import Any

from fsm_agent.errors import UsageError
from fsm_agent.messages.hosted_tool import HostedMCP, HostedTool, UserLocation, options_of
from fsm_agent.providers.codec import Profile

# Said in errors; the catalogue's profiles are the truth.
RUN_BY = {
    "web_search": "anthropic, azure-responses, google, openai, openai-chat (its search models), vertex, xai-responses",
    "code_execution": "anthropic, azure-responses, google, openai, vertex",
    "computer_use": "anthropic, google, openai, vertex",
    "mcp": "anthropic, azure-responses, openai",
}


def wire_type(tool: HostedTool, *, model: str, wire: str, profile: Profile) -> str:
    """What the tool is called on the wire.

    Raises:
        UsageError: The provider does not run it for this model.
    """
    if tool.kind not in profile.hosted_tools:
        raise UsageError(
            f"the provider of the model {model!r} runs no {tool!r} over the wire {wire!r}; "
            f"these do: {RUN_BY[tool.kind]}"
        )
    return profile.hosted_tools[tool.kind]


def said_options(tool: HostedTool, *known: str, type_: str, wire: str) -> dict[str, Any]:
    """The options that differ from what they are by default.

    Raises:
        UsageError: One of them is not ``known`` to the wire.
    """
    options = options_of(tool)
    if unknown := [name for name in options if name not in known]:
        name = unknown[0]
        shown = f"{name}={options[name]!r}" if name not in _hidden(tool) else name
        raise UsageError(
            f"the tool {type_!r} of the wire {wire!r} has no option {shown}, which {tool!r} asks for: leave it out"
        )
    return options


def location(place: UserLocation) -> dict[str, str]:
    """What is known of a place, by the names that all wires have."""
    named = {"country": place.country, "region": place.region, "city": place.city, "timezone": place.timezone}
    return {name: value for name, value in named.items() if value is not None}


def _hidden(tool: HostedTool) -> tuple[str, ...]:
    return ("url", "authorization", "headers") if isinstance(tool, HostedMCP) else ()
