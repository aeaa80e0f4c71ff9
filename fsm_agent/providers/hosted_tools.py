"""Tools that providers run themselves, and errors for unsupported ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fsm_agent._internal.values import differing
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.hosted_tool import HostedMCP, HostedTool, UserLocation
from fsm_agent.providers.codec import LEFT_OUT, Profile

# For messages of errors; the catalogue's profiles decide.
RUN_BY = {
    "web_search": "anthropic, azure-responses, google, openai, openai-chat (its search models), vertex, xai-responses",
    "code_execution": "anthropic, azure-responses, google, openai, vertex",
    "computer_use": "anthropic, google, openai, vertex",
    "mcp": "anthropic, azure-responses, openai",
}


def wire_type(tool: HostedTool, *, model: str, wire: str, profile: Profile) -> str:
    """Return the type of the tool in requests.

    Raises:
        UsageError: The provider does not run it for this model.
    """
    if tool.kind not in profile.hosted_tools:
        raise UsageError(
            f"the provider of the model {model!r} does not run {tool!r} over the wire {wire!r}; "
            f"use one that does: {RUN_BY[tool.kind]}"
        )
    return profile.hosted_tools[tool.kind]


def without_hints(request: Request, taken: Collection[str]) -> tuple[Request, tuple[str, ...]]:
    """Return the request without the hints that a model lacks, and a note for each.

    A tool that would help is a hint, so that prompts can be shared by models; an MCP server is a need.

    Args:
        request: The request.
        taken: The kinds of tools that the model has.
    """
    tools = request.settings.hosted_tools
    lacking = [tool for tool in tools if not isinstance(tool, HostedMCP) and tool.kind not in taken]
    if not lacking:
        return request, ()
    left = tuple([tool for tool in tools if tool not in lacking])
    settings = request.settings.changed(hosted_tools=left)
    return request.changed(settings=settings), tuple([f"{tool!r} {LEFT_OUT}" for tool in lacking])


def set_options(tool: HostedTool, *supported: str, type_: str, wire: str) -> dict[str, Any]:
    """Return the options that differ from their defaults.

    Raises:
        UsageError: One of them is not ``supported`` by the wire format.
    """
    options = differing(tool)
    if unknown := [name for name in options if name not in supported]:
        name = unknown[0]
        shown = f"{name}={options[name]!r}" if name not in tool.hidden else name
        raise UsageError(
            f"the tool {type_!r} of the wire {wire!r} has no option {shown}, which {tool!r} asks for; leave it out"
        )
    return options


def location(area: UserLocation) -> dict[str, str]:
    """Return the known parts of a location, by the names that all wire formats share."""
    named = {"country": area.country, "region": area.region, "city": area.city, "timezone": area.timezone}
    return {name: value for name, value in named.items() if value is not None}
