"""How are the tools said that Anthropic runs itself, and which headers do they need?

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

# What a type needs beside its name; some clouds still want what the service itself does not any more.
BETAS = {
    "code_execution_20250522": "code-execution-2025-05-22",
    "code_execution_20250825": "code-execution-2025-08-25",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "mcp_toolset": "mcp-client-2025-11-20",
}
_TOOLSETS = "computer_toolset_"  # how types begin that have no name and no options


class Said(NamedTuple):
    """The tools, and the servers of those that are somewhere else."""

    tools: list[dict[str, Any]]
    servers: list[dict[str, Any]]


def hosted_tools(tools: tuple[HostedTool, ...], model: str, profile: Profile) -> Said:
    """All of them.

    Raises:
        UsageError: The model, or the wire, has no such tool or option.
    """
    said = Said([], [])
    for tool in tools:
        type_ = wire_type(tool, model=model, wire=WIRE, profile=profile)
        said.tools.append(_tool(tool, type_))
        if isinstance(tool, HostedMCP):
            token = {"authorization_token": tool.authorization} if tool.authorization is not None else {}
            said.servers.append({"type": "url", "url": tool.url, "name": tool.label, **token})
    return said


def betas(tools: tuple[HostedTool, ...], profile: Profile) -> Mapping[str, str]:
    """The headers that these tools need."""
    wanted = [BETAS[type_] for tool in tools if (type_ := profile.hosted_tools.get(tool.kind)) in BETAS]
    return {"anthropic-beta": ",".join(dict.fromkeys(wanted))} if wanted else {}


def _tool(tool: HostedTool, type_: str) -> dict[str, Any]:
    def said(*known: str) -> dict[str, Any]:
        return set_options(tool, *known, type_=type_, wire=WIRE)

    match tool:
        case WebSearch():
            options = said("allowed_domains", "blocked_domains", "max_uses", "user_location")
            if tool.user_location is not None:
                options["user_location"] = {"type": "approximate", **location(tool.user_location)}
            options |= {name: list(domains) for name, domains in options.items() if isinstance(domains, tuple)}
            return {"type": type_, "name": "web_search", **options}
        case CodeExecution():
            return {"type": type_, "name": "code_execution"}
        case ComputerUse() if type_.startswith(_TOOLSETS):
            said()
            return {"type": type_}
        case ComputerUse():
            said("width", "height")
            size = {"display_width_px": tool.width, "display_height_px": tool.height}
            return {"type": type_, "name": "computer", **size}
        case HostedMCP():
            said("label", "url", "allowed_tools", "authorization")
            if not tool.url.startswith("https://"):
                raise UsageError(f"the url of MCP server {tool.label!r} must begin with 'https://', and it does not")
            only = {
                "default_config": {"enabled": False},
                "configs": {name: {"enabled": True} for name in tool.allowed_tools},
            }
            return {"type": type_, "mcp_server_name": tool.label, **(only if tool.allowed_tools else {})}
