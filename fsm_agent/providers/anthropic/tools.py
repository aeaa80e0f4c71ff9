"""Encoding of tools that Anthropic runs itself, and the headers they need.

https://platform.claude.com/docs/en/agents-and-tools (2026-11), as the types of the SDK have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fsm_agent.errors import UsageError
from fsm_agent.messages.hosted_tool import CodeExecution, ComputerUse, HostedMCP, HostedTool, WebSearch
from fsm_agent.providers.anthropic.reply import WIRE
from fsm_agent.providers.codec import Profile
from fsm_agent.providers.hosted_tools import location, set_options, wire_type

# Beta headers by type; some clouds still require headers that the service itself no longer does.
BETAS = {
    "code_execution_20250522": "code-execution-2025-05-22",
    "code_execution_20250825": "code-execution-2025-08-25",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "mcp_toolset": "mcp-client-2025-11-20",
}
TOOLSETS = "computer_toolset_"  # how types begin that have no name and no options


class EncodedTools(NamedTuple):
    """The encoded tools, and the MCP servers of some of them."""

    tools: list[dict[str, Any]]
    servers: list[dict[str, Any]]


def hosted_tools(tools: tuple[HostedTool, ...], model: str, profile: Profile) -> EncodedTools:
    """Return the encoded tools.

    Raises:
        UsageError: The model or the API does not support a tool or option.
    """
    encoded = EncodedTools([], [])
    for tool in tools:
        type_ = wire_type(tool, model=model, wire=WIRE, profile=profile)
        encoded.tools.append(_tool(tool, type_))
        if isinstance(tool, HostedMCP):
            token = {"authorization_token": tool.authorization} if tool.authorization is not None else {}
            encoded.servers.append({"type": "url", "url": tool.url, "name": tool.label, **token})
    return encoded


def betas(tools: tuple[HostedTool, ...], profile: Profile) -> Mapping[str, str]:
    """Return the headers that these tools need."""
    wanted = [BETAS[type_] for tool in tools if (type_ := profile.hosted_tools.get(tool.kind)) in BETAS]
    return {"anthropic-beta": ",".join(dict.fromkeys(wanted))} if wanted else {}


def _tool(tool: HostedTool, type_: str) -> dict[str, Any]:
    def options_of(*supported: str) -> dict[str, Any]:
        return set_options(tool, *supported, type_=type_, wire=WIRE)

    match tool:
        case WebSearch():
            options = options_of("allowed_domains", "blocked_domains", "max_uses", "user_location")
            if tool.user_location is not None:
                options["user_location"] = {"type": "approximate", **location(tool.user_location)}
            options |= {name: list(domains) for name, domains in options.items() if isinstance(domains, tuple)}
            return {"type": type_, "name": "web_search", **options}
        case CodeExecution():
            return {"type": type_, "name": "code_execution"}
        case ComputerUse() if type_.startswith(TOOLSETS):
            options_of()
            return {"type": type_}
        case ComputerUse():
            options_of("width", "height")
            size = {"display_width_px": tool.width, "display_height_px": tool.height}
            return {"type": type_, "name": "computer", **size}
        case HostedMCP():
            options_of("label", "url", "allowed_tools", "authorization")
            if not tool.url.startswith("https://"):
                raise UsageError(f"the url of MCP server {tool.label!r}: expected one that begins with 'https://'")
            only = {
                "default_config": {"enabled": False},
                "configs": {name: {"enabled": True} for name in tool.allowed_tools},
            }
            return {"type": type_, "mcp_server_name": tool.label, **(only if tool.allowed_tools else {})}
