"""The codec of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.errors import BadReply, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.lifecycle.effects import Request, Settings
from fsm_agent.messages.hosted_tool import CodeExecution, ComputerUse, HostedMCP, HostedTool, WebSearch
from fsm_agent.messages.message import Opaque
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.output import Output
from fsm_agent.providers.codec import (
    CHOICES,
    JsonCodec,
    Profile,
    adaptations,
    check_settings,
    merged,
    offered_functions,
    taken_settings,
)
from fsm_agent.providers.encoding import AFRESH, Encoding
from fsm_agent.providers.hosted_tools import location, set_options, wire_type
from fsm_agent.providers.openai.responses_items import WIRE, InputItems, item_type
from fsm_agent.providers.openai.responses_reply import ReplyInItems
from fsm_agent.providers.schemas import sendable_output, sendable_schema

ENCRYPTED_REASONING = "reasoning.encrypted_content"
_UNANSWERABLE = ("apply_patch_call", "local_shell_call", "oauth_consent_request", "shell_call")  # types of items
LOGPROBS = "message.output_text.logprobs"


class OpenAIResponses(JsonCodec):
    """The codec of ``/responses``: OpenAI, and every service that is compatible with it.

    Each request holds the whole dialog, so nothing is stored at the provider (``store: false``) unless the extra body
    asks for it.  The API has no seed: it is omitted, like sampling settings that a model does not take.

    Examples:
        >>> OpenAIResponses().path("gpt-5-mini", stream=False)
        '/responses'
    """

    name = WIRE

    def path(self, model: str, *, stream: bool) -> str:
        """Return the path of requests, relative to the base URL."""
        return "/responses"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return the headers that carry the key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def encode(
        self, request: Request, *, model: str, profile: Profile, stream: bool, encoding: Encoding = AFRESH
    ) -> dict[str, Any]:
        """Return the request's JSON body.

        Raises:
            UsageError: The API or, by the profile, the model does not support a need of the request.
        """
        extra = merged(profile.extra_body, request.settings.extra_body)
        request, _, words, _ = self.request_form(request, profile)
        items, rest = encoding.dialog(request.messages, InputItems, model, profile, bool(extra.get("store")), words)
        body: dict[str, Any] = {"model": model, "input": [*items, *rest], "store": False}
        if request.functions or request.settings.hosted_tools:
            body |= _tools(request, model, profile, encoding)
        if request.output.schema is not None:
            body["text"] = {"format": encoding.value(request.output, _format, profile.strict_functions)}
        body |= _settings(request.settings, model, profile)
        if stream:
            body["stream"] = True
        return merged(body, extra)

    def adapted(self, request: Request, profile: Profile) -> tuple[str, ...]:
        """Return descriptions of the changes to the request that the model or the API needs."""
        return adaptations(self.request_form(request, profile), profile, taken_settings=_accepted_settings(profile))

    def reply_parts(self, headers: Mapping[str, str]) -> ReplyInItems:
        """Return what collects the reply of one response."""
        return ReplyInItems(headers)

    def attributed(self, reply: Reply, request: Request) -> Reply:
        """Return the reply.

        Raises:
            BadReply: It is no empty answer, but asks for what only the caller could do, by a tool of the extra body.
        """
        message = reply.message
        if not message.text and not message.function_calls:
            kinds = [item_type(part.data) for part in message.parts if isinstance(part, Opaque) and part.wire == WIRE]
            if asked := [kind for kind in kinds if kind in _UNANSWERABLE and f"{kind}_output" not in kinds]:
                problem = f"expected an answer, got a {asked[0]!r}, which only its caller could answer"
                raise BadReply(f"{problem}; use a function in place of that tool", retryable=False)
        return reply


def _accepted_settings(profile: Profile) -> frozenset[str]:
    return taken_settings(profile) - {"seed"}


def _tools(request: Request, model: str, profile: Profile, encoding: Encoding) -> dict[str, Any]:
    functions, choice = offered_functions(request, profile)
    hosted = [_hosted_tool(tool, model, profile) for tool in request.settings.hosted_tools]
    fields: dict[str, Any] = {
        "tools": [*[encoding.value(function, _tool, profile.strict_functions) for function in functions], *hosted],
        "tool_choice": choice if choice in CHOICES else {"type": "function", "name": choice},
    }
    if request.settings.parallel_function_calls is not None:
        fields["parallel_tool_calls"] = request.settings.parallel_function_calls
    return fields


def _tool(function: Function, takes_strict: bool) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": "function", "name": function.name}
    if function.description:
        tool["description"] = function.description
    tool["parameters"], tool["strict"] = sendable_schema(function.parameters, takes_strict=takes_strict)
    return tool  # without "strict" it would be strict


def _hosted_tool(tool: HostedTool, model: str, profile: Profile) -> dict[str, Any]:
    """Return the encoded tool.

    https://developers.openai.com/api/docs/guides/tools (2026-11), and the types of the SDK.
    """
    type_ = wire_type(tool, model=model, wire=WIRE, profile=profile)

    match tool:
        case WebSearch():
            return {"type": type_, **_search(tool, type_)}
        case CodeExecution():
            return {"type": type_, "container": {"type": "auto"}}
        case ComputerUse():
            return {"type": type_, **_computer(tool, type_)}
        case HostedMCP():
            return {"type": type_, **_server(tool)}


def _search(tool: WebSearch, type_: str) -> dict[str, Any]:
    options = set_options(tool, "allowed_domains", "context_size", "user_location", type_=type_, wire=WIRE)
    fields: dict[str, Any] = (
        {"filters": {"allowed_domains": list(tool.allowed_domains)}} if tool.allowed_domains else {}
    )
    if "context_size" in options:
        fields["search_context_size"] = tool.context_size
    if tool.user_location is not None:
        fields["user_location"] = {"type": "approximate", **location(tool.user_location)}
    return fields


def _computer(tool: ComputerUse, type_: str) -> dict[str, Any]:
    if type_ == "computer":  # sees its size by the screenshots
        return set_options(tool, type_=type_, wire=WIRE)
    if tool.environment in ("desktop", "mobile"):
        raise UsageError(
            f"environment of the tool {type_!r} of the wire {WIRE!r}: got the unknown {tool.environment!r}"
        )
    return {"display_width": tool.width, "display_height": tool.height, "environment": tool.environment}


def _server(tool: HostedMCP) -> dict[str, Any]:
    fields = {
        "server_label": tool.label,
        "server_url": tool.url,
        "require_approval": "never" if tool.require_approval == "never" else "always",
        "allowed_tools": list(tool.allowed_tools) or None,
        "authorization": tool.authorization,
        "headers": dict(tool.headers) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _format(output: Output, takes_strict: bool) -> dict[str, Any]:
    schema, is_strict = sendable_output(output, takes_strict=takes_strict)
    form = {"type": "json_schema", "name": output.name, "schema": schema}
    return {**form, "strict": True} if is_strict else form


def _settings(settings: Settings, model: str, profile: Profile) -> dict[str, Any]:
    check_settings(settings, model, profile)
    if settings.stop:
        raise UsageError(
            f"stop: expected none, since the wire {WIRE!r} takes no stop sequences, got {settings.stop!r:.200}"
        )
    include = [ENCRYPTED_REASONING] if profile.reasoning_name == "encrypted_content" else []
    include += [LOGPROBS] if settings.top_logprobs is not None else []
    accepted = _accepted_settings(profile)
    limit = settings.max_tokens
    fields = {
        "temperature": settings.temperature if "temperature" in accepted else None,
        "top_p": settings.top_p if "top_p" in accepted else None,
        "max_output_tokens": None if limit is None else max(limit, profile.least_max_tokens),
        "reasoning": {"effort": settings.reasoning_effort} if settings.reasoning_effort is not None else None,
        "top_logprobs": settings.top_logprobs or None,
        "include": include or None,
    }
    return {name: value for name, value in fields.items() if value is not None}
