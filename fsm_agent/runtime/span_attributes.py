"""The contents of an effect's span: its name, kind and attributes.

`fsm_agent.runtime.tracing` starts and ends the spans, and `fsm_agent.runtime.span_names` has the names of the
attributes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from opentelemetry.trace import SpanKind

from fsm_agent._internal.masking import mask_keys, masked_arguments
from fsm_agent._internal.text import cut
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskApproval, AskSummary, CallModel, CheckOutput, Reconcile, RunFunction, Sleep
from fsm_agent.call.outcomes import CheckFailed, CheckRefused, FunctionFailed, ModelFailed, Replied, Returned
from fsm_agent.messages.message import Document, FunctionCall, FunctionResult, Image, Message, Reasoning, Text
from fsm_agent.runtime import span_names as names
from fsm_agent.runtime.activity import Activity
from fsm_agent.runtime.probes import ABANDONED, TIMED_OUT

Facts: TypeAlias = dict[str, Any]
Came: TypeAlias = tuple[Facts, str]  # attributes, and the type of an error
Described: TypeAlias = tuple[str, SpanKind, Facts]
MAX_TEXT = 10_000  # characters of each recorded text
_MAX_NAME = 200  # characters of a name from a server
# Providers whose names in the conventions differ from those in the catalog.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}

_QUESTIONS = {
    AskApproval.prefix: "approve",
    "answer": "answer",
    Reconcile.prefix: "reconcile",
    RunFunction.prefix: "run",
}


def is_program(client: Any) -> bool:
    """Return whether a client is a program that answers in place of a model."""
    return hasattr(client, "bound_to")


@lru_cache(256)
def model_facts(name: str) -> Mapping[str, str]:
    """Return the attributes for the provider and model in a client's name, such as ``"openai:gpt-5-mini"``."""
    provider, _, model = name.partition(":")
    provider = provider.removesuffix("-chat")
    return {names.PROVIDER: _PROVIDERS.get(provider, provider), names.MODEL: model or name}


def described(activity: Activity, content: bool) -> Described:
    """Return `(name, kind, attributes)` for an effect's span.  ``content`` adds messages, arguments and results."""
    effect = activity.effect
    more: Facts = {}
    match effect.prefix:
        case CallModel.prefix | AskSummary.prefix:
            return _request(activity, effect, content)
        case RunFunction.prefix if isinstance(activity.process, AgentCall):
            return _function(effect.call, content)
        case RunFunction.prefix:  # a state of a flow runs it, no model asked for it
            name = f"run {effect.call.name}"
        case AskApproval.prefix | Reconcile.prefix:
            name, more = f"{_QUESTIONS[effect.prefix]} {effect.call.name}", {names.TOOL: effect.call.name}
        case "answer":
            name = f"answer {effect.state.name}"
        case CheckOutput.prefix:
            name = "check"
        case Sleep.prefix:
            name = "backoff" if isinstance(activity.process, AgentCall) else "wait"
        case _:
            name = f"perform {effect.prefix}"
    return name, SpanKind.INTERNAL, {names.KEY: activity.key, **more}


def _request(activity: Activity, effect: CallModel | AskSummary, content: bool) -> Described:
    client: Any = getattr(effect, "client", None) or activity.environment.client
    if is_program(client):
        return "answer", SpanKind.INTERNAL, {names.KEY: activity.key}
    facts: Facts = {names.OPERATION: names.CHAT, **model_facts(client.name)}
    if type(effect) is AskSummary:
        facts[names.PURPOSE] = "summary"
    elif activity.driver.is_streamed:
        facts[names.STREAM] = True
    if effect.attempt > 1:
        facts[names.ATTEMPT] = effect.attempt
    settings = effect.request.settings
    facts |= known({names.TEMPERATURE: settings.temperature, names.TOP_P: settings.top_p})
    facts |= known({names.MAX_TOKENS: settings.max_tokens})
    if content:
        messages = effect.request.messages
        facts[names.INPUT] = _messages_json([m for m in messages if m.role != "system"])
        if system := [part for m in messages if m.role == "system" for part in _parts(m)]:
            facts[names.SYSTEM] = json.dumps(system)
    return f"{names.CHAT} {facts[names.MODEL]}", SpanKind.CLIENT, facts


def _function(call: FunctionCall, content: bool) -> Described:
    facts: Facts = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL: call.name, names.TOOL_TYPE: "function"}
    facts[names.TOOL_CALL] = _short(call.provider_id or call.id)
    if content:
        facts[names.ARGUMENTS] = masked_arguments(call.arguments_json[:MAX_TEXT])
    return f"{names.EXECUTE_TOOL} {call.name}", SpanKind.INTERNAL, facts


def question_name(key: str, process: Any) -> str:
    """Return the span name for a question that ``process`` asks, or "" if the key does not belong to a question."""
    prefix, _, about = key.partition(":")
    if prefix not in _QUESTIONS:
        return ""
    if isinstance(process, AgentCall):
        about = next((f.name for f in process.record.round if f.id == about), "function")
    return f"{_QUESTIONS[prefix]} {about.partition('#')[0]}"


def came_of(activity: Activity, outcome: Any, content: bool) -> Came:
    """Return `(attributes, error)` for an outcome.  ``error`` is the type of its error, or "" if there is none.

    For ``outcome``, see `EffectSpan.end`.  ``content`` adds messages and results.
    """
    if outcome is ABANDONED:
        return {}, "cancelled"
    if outcome is TIMED_OUT:
        return {}, "timeout"
    if isinstance(outcome, BaseException):
        return {}, type(outcome).__qualname__
    if activity.effect.question is not None:
        return {names.VERDICT: getattr(outcome, "kind", "none")}, ""
    match outcome:
        case Replied():
            return _replied(outcome, content)
        case Returned() | FunctionFailed():
            return _ran(activity, outcome, content)
        case ModelFailed():
            return {}, outcome.error.kind
        case CheckRefused() | CheckFailed():
            return {}, outcome.kind
    return {}, ""


def _replied(outcome: Replied, content: bool) -> Came:
    reply = outcome.reply
    usage = reply.usage
    facts = known(
        {
            names.INPUT_TOKENS: usage.input_tokens,
            names.OUTPUT_TOKENS: usage.output_tokens,
            names.CACHED_TOKENS: usage.cached_tokens,
            names.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
            names.REASONING_TOKENS: usage.reasoning_tokens,
        }
    )
    if reply.finish:
        facts[names.FINISH_REASONS] = [reply.finish]
    if reply.model:
        facts[names.RESPONSE_MODEL] = _short(reply.model)
    if reply.response_id:
        facts[names.RESPONSE_ID] = _short(reply.response_id)
    if content:
        facts[names.OUTPUT] = _messages_json([reply.message], finish_reason=reply.finish or "stop")
    return facts, ""


def _ran(activity: Activity, outcome: Returned | FunctionFailed, content: bool) -> Came:
    facts: Facts = {}
    if (attempts := getattr(activity, "attempt", 1)) > 1:
        facts[names.ATTEMPTS] = attempts
    if content and isinstance(activity.process, AgentCall):
        facts[names.RESULT] = _text(outcome.text)
    has_failed = isinstance(outcome, FunctionFailed) or outcome.is_error
    return facts, "tool_error" if has_failed else ""


def known(facts: Facts) -> Facts:
    """Return the facts that are not None."""
    return {name: value for name, value in facts.items() if value is not None}


def _short(name: str) -> str:
    return mask_keys(name[:_MAX_NAME])


def _messages_json(messages: Iterable[Message], **more: str) -> str:
    return json.dumps([{"role": message.role, "parts": _parts(message), **more} for message in messages])


def _parts(message: Message) -> list[dict[str, Any]]:
    """Return a message's parts in the format defined by OpenTelemetry's conventions, without the contents of files."""
    found: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text():
                found.append({"type": "text", "content": _text(part.text)})
            case Reasoning():
                found.append({"type": "reasoning", "content": _text(part.text)})
            case FunctionCall():
                arguments = masked_arguments(part.arguments_json[:MAX_TEXT])
                call = {"id": part.provider_id or part.id, "name": part.name, "arguments": arguments}
                found.append({"type": "tool_call", **call})
            case FunctionResult():
                found.append(
                    {"type": "tool_call_response", "id": part.provider_id or part.id, "response": _text(part.text)}
                )
            case Image() | Document():
                modality = "image" if isinstance(part, Image) else "document"
                found.append({"type": "blob", "modality": modality, "mime_type": part.media_type or ""})
    return found


def _text(text: str) -> str:
    return mask_keys(cut(text, MAX_TEXT))
