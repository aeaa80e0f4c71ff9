"""The codec of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function
from fsm_agent.lifecycle.effects import Request, Settings
from fsm_agent.prompts.output import Output
from fsm_agent.providers.anthropic.cache import with_breakpoints
from fsm_agent.providers.anthropic.dialog import DialogInTurns, Turns
from fsm_agent.providers.anthropic.profile import AnthropicProfile
from fsm_agent.providers.anthropic.reply import WIRE, ReplyInBlocks
from fsm_agent.providers.anthropic.schemas import ClosedSchema, SchemaLimits, closed_schema
from fsm_agent.providers.anthropic.tools import TOOLSETS, betas, hosted_tools
from fsm_agent.providers.codec import (
    JsonCodec,
    Profile,
    RequestForm,
    adaptations,
    check_settings,
    choose_form,
    merged,
    offered_functions,
)
from fsm_agent.providers.encoding import AFRESH, Encoding, kept

VERSION = "2023-06-01"
MIN_BUDGET = 1_024  # tokens: https://platform.claude.com/docs/en/build-with-claude/extended-thinking (2026-11)
# The part of `max_tokens` for reasoning, where a model needs a number.
SHARES = {"minimal": 0.0, "low": 0.2, "medium": 0.4, "high": 0.6, "xhigh": 0.8, "max": 0.8}


class Anthropic(JsonCodec):
    """The codec of ``/messages``: Anthropic, and the services that are compatible with it.

    The API has no seed; one in the settings is omitted, like sampling settings that a model does not take.

    Examples:
        >>> Anthropic().path("claude-opus-5", stream=False)
        '/messages'
    """

    name = WIRE

    def path(self, model: str, *, stream: bool) -> str:
        """Return the path of requests, relative to the base URL."""
        return "/messages"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return the headers that carry the key and the version of the API."""
        version = {"anthropic-version": VERSION}
        return {"x-api-key": api_key, **version} if api_key else version

    def encode(
        self, request: Request, *, model: str, profile: Profile, stream: bool, encoding: Encoding = AFRESH
    ) -> dict[str, Any]:
        """Return the request's JSON body.

        Raises:
            UsageError: By the profile, the model does not support a need of the request.
        """
        own = _own(profile)
        request, _, words, _ = self.request_form(request, own)
        settings, limits = request.settings, SchemaLimits()
        if request.output.schema is not None:
            _takes(request.output, limits)
        turns, dialog = encoding.dialog(request.messages, DialogInTurns, model, own.images, own.system_in_dialog)
        max_tokens = own.default_max_tokens if settings.max_tokens is None else settings.max_tokens
        body: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": [*turns, dialog.newest]}
        if system := dialog.system(words):
            body["system"] = system
        if dialog.container:
            body["container"] = dialog.container
        is_offered = request.functions or settings.hosted_tools
        body |= _tools(request, model, own, limits, encoding) if is_offered else _withdrawn_functions(dialog, own)
        body |= _reasoning(settings, max_tokens, model, own)
        if request.output.schema is not None:
            form = encoding.value(request.output, _form)
            body["output_config"] = {**body.get("output_config", {}), "format": form}
        body |= _settings(settings, model, own)
        if stream:
            body["stream"] = True
        extra = merged(profile.extra_body, settings.extra_body)
        if settings.cache is not None:
            body = with_breakpoints(body, settings.cache, extra, there=dialog.breakpoints)
        return merged(body, extra)

    def request_form(self, request: Request, profile: Profile) -> RequestForm:
        """Return the request as `encode` writes it, with the mode in which it asks for the output."""
        can_force = not _reasons_by_budget(request, _own(profile))
        return choose_form(request, profile, takes=lambda output: _takes(output, SchemaLimits()), can_force=can_force)

    def adapted(self, request: Request, profile: Profile) -> tuple[str, ...]:
        """Return descriptions of the changes to the request that the model or the API needs."""
        own = _own(profile)
        return adaptations(
            self.request_form(request, own), own, taken_settings=_accepted_settings(request.settings, own)
        )

    def request_headers(self, request: Request, profile: Profile) -> dict[str, str]:
        """Return the headers of beta tools."""
        return dict(betas(request.settings.hosted_tools, profile))

    def reply_parts(self, headers: Mapping[str, str]) -> ReplyInBlocks:
        """Return what collects the reply of one response."""
        return ReplyInBlocks(headers)


def _own(profile: Profile) -> AnthropicProfile:
    if isinstance(profile, AnthropicProfile):
        return profile
    return AnthropicProfile(**asdict(profile))


def _takes(output: Output, limits: SchemaLimits) -> bool:
    """Return whether the service enforces the answer's schema, and count it if so."""
    closed = kept(output, _closed_output)
    return closed is not None and limits.take(closed, of_function=False)


def _closed_output(output: Output) -> ClosedSchema | None:
    return closed_schema(output.schema or {})


def _closed_parameters(function: Function) -> ClosedSchema | None:
    return closed_schema(function.parameters)


def _form(output: Output) -> dict[str, Any]:
    closed = kept(output, _closed_output)
    return {"type": "json_schema", "schema": closed and closed.schema}


def _tools(
    request: Request, model: str, profile: AnthropicProfile, limits: SchemaLimits, encoding: Encoding
) -> dict[str, Any]:
    functions, choice = offered_functions(request, profile)
    tool_choice = {"type": choice}
    if choice not in ("auto", "none"):
        _refuse_force(request, model, profile)
        tool_choice = {"type": "any"} if choice == "required" else {"type": "tool", "name": choice}
    hosted = hosted_tools(request.settings.hosted_tools, model, profile)
    tools = [encoding.value(f, _tool, _is_enforced(f, profile, limits)) for f in functions]
    fields: dict[str, Any] = {"tools": [*tools, *hosted.tools]}
    if hosted.servers:
        fields["mcp_servers"] = hosted.servers
    if request.settings.parallel_function_calls is False and choice != "none":
        return {**fields, "tool_choice": {**tool_choice, "disable_parallel_tool_use": True}}
    return {**fields, "tool_choice": tool_choice}


def _refuse_force(request: Request, model: str, profile: AnthropicProfile) -> None:
    choice, effort = request.tool_choice, request.settings.reasoning_effort
    if _reasons_by_budget(request, profile):
        raise UsageError(
            f"the model {model!r} cannot be made to call a function while it reasons: got tool_choice={choice!r} "
            f"and reasoning_effort={effort!r}; leave one of them out"
        )


def _reasons_by_budget(request: Request, profile: AnthropicProfile) -> bool:
    return profile.reasoning == "budget" and request.settings.reasoning_effort not in (None, "none")


def _withdrawn_functions(dialog: Turns, profile: AnthropicProfile) -> dict[str, Any]:
    """Return what was called but is no longer offered: the service requires its declaration."""
    tools: list[dict[str, Any]] = [{"name": name, "input_schema": {"type": "object"}} for name in dialog.function_names]
    if dialog.uses_computer and (computer := profile.hosted_tools.get("computer_use", "")).startswith(TOOLSETS):
        tools.append({"type": computer})
    return {"tools": tools, "tool_choice": {"type": "none"}} if tools else {}


def _is_enforced(function: Function, profile: AnthropicProfile, limits: SchemaLimits) -> bool:
    closed = kept(function, _closed_parameters) if profile.strict_functions else None
    return closed is not None and not closed.optional and limits.take(closed, of_function=True)


def _tool(function: Function, is_enforced: bool) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": function.name}
    if function.description:
        tool["description"] = function.description
    if is_enforced and (closed := kept(function, _closed_parameters)):
        return {**tool, "input_schema": closed.schema, "strict": True}
    return {**tool, "input_schema": dict(function.parameters)}


def _reasoning(settings: Settings, max_tokens: int, model: str, profile: AnthropicProfile) -> dict[str, Any]:
    effort = settings.reasoning_effort
    if effort is None or (effort == "none" and profile.reasoning is None):
        return {}
    if effort == "none":
        if profile.reasoning_off is None:
            raise UsageError(
                f"reasoning_effort: expected 'low' or more, since the model {model!r} always reasons, got 'none'"
            )
        return {"thinking": {"type": profile.reasoning_off}}
    if profile.reasoning is None:
        raise UsageError(f"reasoning_effort: expected None, since the model {model!r} does not reason, got {effort!r}")
    if profile.reasoning == "adaptive":
        level = "low" if effort == "minimal" else effort
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": level}}
    if effort not in SHARES:
        raise UsageError(f"reasoning_effort: expected {' or '.join(map(repr, SHARES))}, got {effort!r:.80}")
    budget = max(MIN_BUDGET, int(max_tokens * SHARES[effort]))
    if budget >= max_tokens:
        raise UsageError(
            f"max_tokens: expected more than {MIN_BUDGET}, which the model {model!r} needs to reason, got"
            f" {max_tokens!r}"
        )
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _accepted_settings(settings: Settings, profile: AnthropicProfile) -> frozenset[str]:
    """Return the sampling settings to send: none for a reasoning model, and never a seed."""
    if not profile.temperature or settings.reasoning_effort not in (None, "none"):
        return frozenset()
    has_both = settings.temperature is None or profile.temperature_with_top_p
    return frozenset(["temperature", "top_p"] if has_both else ["temperature"])


def _settings(settings: Settings, model: str, profile: AnthropicProfile) -> dict[str, Any]:
    if settings.top_logprobs is not None:
        raise UsageError(
            f"top_logprobs: expected None, since the model {model!r} reports no logprobs, got {settings.top_logprobs!r}"
        )
    check_settings(settings, model, profile)
    fields: dict[str, Any] = {"stop_sequences": list(settings.stop) or None}
    fields |= {name: getattr(settings, name) for name in sorted(_accepted_settings(settings, profile))}
    return {name: value for name, value in fields.items() if value is not None}
