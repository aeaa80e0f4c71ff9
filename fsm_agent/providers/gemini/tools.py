"""Encoding of tools that Google runs itself, and the names of functions."""

from __future__ import annotations

import re
from typing import Any

from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.hosted import as_action
from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.hosted_tool import ComputerUse, HostedTool, WebSearch
from fsm_agent.messages.message import FunctionCall, Opaque, Part
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.output import ANSWER
from fsm_agent.providers.codec import Profile
from fsm_agent.providers.gemini.reply import WIRE
from fsm_agent.providers.hosted_tools import set_options, wire_type

_ENVIRONMENTS = {name: f"ENVIRONMENT_{name.upper()}" for name in ("browser", "desktop", "mobile")}
IS_ACTION = "isAction"  # an opaque part with this key is ours: it marks the next call as an action of the computer
_BEGIN = re.compile("[A-Za-z_]")


def hosted_tools(
    tools: tuple[HostedTool, ...], model: str, profile: Profile, *, takes_blocked: bool
) -> list[dict[str, Any]]:
    """Return the encoded tools; https://ai.google.dev/api/caching#Tool (2026-11), as the types of the SDK have it.

    Raises:
        UsageError: The model or the API does not support a tool or option.
    """
    types = [wire_type(tool, model=model, wire=WIRE, profile=profile) for tool in tools]
    return [{type_: _tool(tool, type_, takes_blocked)} for tool, type_ in zip(tools, types, strict=True)]


def with_computer_calls(reply: Reply, request: Request) -> Reply:
    """Return the reply with actions of a computer as calls of `COMPUTER`, each after an opaque part that marks it.

    Actions are functions that no request declares (``click_at``), and there are more with each model:
    https://ai.google.dev/gemini-api/docs/computer-use (November 2026).
    """
    if not any(isinstance(tool, ComputerUse) for tool in request.settings.hosted_tools):
        return reply
    declared = {ANSWER, *[function.name for function in request.functions]}
    parts = list[Part]()
    for part in reply.message.parts:
        if isinstance(part, FunctionCall) and part.name not in declared and (action := as_action(part)) is not part:
            parts += [Opaque(wire=WIRE, data={IS_ACTION: True}), action]
        else:
            parts.append(part)
    return reply.changed(message=reply.message.changed(parts=tuple(parts)))


def check_name(function: Function) -> None:
    """Check the name of a function: Gemini refuses some, with some models only since Gemini 3.

    https://ai.google.dev/gemini-api/docs/function-calling (2026-11): it begins with a letter or an underscore.

    Raises:
        UsageError: The name does not.
    """
    if not _BEGIN.match(function.name):
        raise UsageError(
            f"the name of a function for Gemini: expected a letter or '_' first, got {function.name!r}; rename it,"
            " such as"
            f" to {'_' + function.name!r}"
        )


def _tool(tool: HostedTool, type_: str, takes_blocked: bool) -> dict[str, Any]:
    match tool:
        case WebSearch():
            set_options(tool, *(["blocked_domains"] if takes_blocked else []), type_=type_, wire=WIRE)
            return {"excludeDomains": list(tool.blocked_domains)} if tool.blocked_domains else {}
        case ComputerUse():
            set_options(tool, "environment", type_=type_, wire=WIRE)
            if tool.environment not in _ENVIRONMENTS:
                names = ", ".join(map(repr, _ENVIRONMENTS))
                raise UsageError(f"environment for Gemini: expected one of {names}, got {tool.environment!r}")
            return {"environment": _ENVIRONMENTS[tool.environment]}
    set_options(tool, type_=type_, wire=WIRE)
    return {}
