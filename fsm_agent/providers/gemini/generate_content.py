"""The codec of Google's ``generateContent``, in the Gemini API and in Vertex AI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec.structs import asdict

from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.lifecycle.effects import Request, Settings
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.output import Output
from fsm_agent.providers.codec import (
    CHOICES,
    JsonCodec,
    Profile,
    check_settings,
    merged,
    offered_functions,
    taken_settings,
)
from fsm_agent.providers.encoding import AFRESH, Encoding
from fsm_agent.providers.gemini.contents import DialogInContents
from fsm_agent.providers.gemini.profile import GeminiProfile
from fsm_agent.providers.gemini.reply import WIRE, GeminiReplyInParts
from fsm_agent.providers.gemini.schema import gemini_schema
from fsm_agent.providers.gemini.tools import check_name, hosted_tools, with_computer_calls
from fsm_agent.providers.schemas import closed_objects

# Prefixes of model names that are complete resource paths.
_COLLECTIONS = ("models/", "tunedModels/", "publishers/", "projects/", "endpoints/")
_ACCESS_TOKEN = "ya29."  # how Google's OAuth tokens begin, which Vertex AI takes

# https://ai.google.dev/gemini-api/docs/openai#thinking (2026-11)
BUDGETS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}


class Gemini(JsonCodec):
    """The codec of ``generateContent`` and ``streamGenerateContent``.

    Examples:
        >>> Gemini().path("gemini-3-flash", stream=False)
        '/models/gemini-3-flash:generateContent'
    """

    name = WIRE

    def path(self, model: str, *, stream: bool) -> str:
        """Return the path of requests, relative to the base URL.

        Raises:
            ConfigError: The model's name is invalid.
        """
        steps = model.split("/") if model.startswith(_COLLECTIONS) else ["models", model]
        if not {"", ".", ".."}.isdisjoint(steps):
            raise ConfigError(
                f"the model: expected a name like 'gemini-2.5-flash' or 'tunedModels/mine', got {model!r:.80}"
            )
        name = "/".join([quote(step, safe="@") for step in steps])
        return f"/{name}:streamGenerateContent?alt=sse" if stream else f"/{name}:generateContent"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return the headers that carry the key, which may also be an OAuth access token."""
        if not api_key:
            return {}
        if api_key.startswith(_ACCESS_TOKEN):
            return {"authorization": f"Bearer {api_key}"}
        return {"x-goog-api-key": api_key}

    def encode(
        self, request: Request, *, model: str, profile: Profile, stream: bool, encoding: Encoding = AFRESH
    ) -> dict[str, Any]:
        """Return the request's JSON body.

        Raises:
            UsageError: The API or, by the profile, the model does not support a need of the request.
        """
        request, _, words, _ = self.request_form(request, profile)
        own = _own(profile)
        whole, (system, rest) = encoding.dialog(
            request.messages, DialogInContents, model, own.images, own.media_in_results, words
        )
        contents = [*whole, *rest]
        body: dict[str, Any] = {"contents": contents}
        if system and (profile.system_role == "user" or not contents):
            contents.insert(0, {"role": "user", "parts": system})
        elif system:
            body["systemInstruction"] = {"parts": system}
        body |= _tools(request, model, own, encoding)
        config = _settings(request.settings, model, own)
        if request.output.schema is not None:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = encoding.value(request.output, _schema)
        if config:
            body["generationConfig"] = config
        return merged(body, profile.extra_body, request.settings.extra_body)

    def reply_parts(self, headers: Mapping[str, str]) -> GeminiReplyInParts:
        """Return what collects the reply of one response."""
        return GeminiReplyInParts(headers)

    def attributed(self, reply: Reply, request: Request) -> Reply:
        """Return the reply with actions of a computer, each a function of its own here, as calls of `COMPUTER`."""
        return with_computer_calls(reply, request)


def _tools(request: Request, model: str, profile: GeminiProfile, encoding: Encoding) -> dict[str, Any]:
    hosted = hosted_tools(request.settings.hosted_tools, model, profile, takes_blocked=profile.blocked_domains)
    if not request.functions:
        return {"tools": hosted} if hosted else {}
    functions, choice = offered_functions(request, profile)
    modes = {"auto": "VALIDATED" if profile.strict_functions else "AUTO", "required": "ANY", "none": "NONE"}
    calling: dict[str, Any] = {"mode": modes.get(choice, "ANY")}
    if choice not in CHOICES:
        calling["allowedFunctionNames"] = [choice]
    if request.settings.parallel_function_calls is False:
        raise UsageError(
            "parallel_function_calls: expected True or None, since Gemini cannot be asked for one function at a"
            " time, got"
            " False"
        )
    config: dict[str, Any] = {"functionCallingConfig": calling}
    if any(tool.kind != "computer_use" for tool in request.settings.hosted_tools):
        if profile.hosted_with_functions is None:
            raise UsageError(
                f"the model {model!r} takes no tools of its provider together with functions; leave one kind out"
            )
        if profile.hosted_with_functions == "announced":
            config["includeServerSideToolInvocations"] = True
    return {
        "tools": [{"functionDeclarations": [encoding.value(f, _declaration) for f in functions]}, *hosted],
        "toolConfig": config,
    }


def _declaration(function: Function) -> dict[str, Any]:
    check_name(function)
    described = {"description": function.description} if function.description else {}
    return {"name": function.name, **described, "parametersJsonSchema": gemini_schema(function.parameters)}


def _schema(output: Output) -> dict[str, Any]:
    return gemini_schema(closed_objects(output.schema or {}))


def _own(profile: Profile) -> GeminiProfile:
    if isinstance(profile, GeminiProfile):
        return profile
    return GeminiProfile(**asdict(profile))


def _settings(settings: Settings, model: str, profile: GeminiProfile) -> dict[str, Any]:
    check_settings(settings, model, profile)
    accepted = taken_settings(profile)
    fields = {
        "temperature": settings.temperature if "temperature" in accepted else None,
        "topP": settings.top_p if "top_p" in accepted else None,
        "maxOutputTokens": settings.max_tokens,
        "stopSequences": list(settings.stop) or None,
        "seed": settings.seed,
        "responseLogprobs": None if settings.top_logprobs is None else True,
        "logprobs": settings.top_logprobs or None,
        "thinkingConfig": _thinking(settings.reasoning_effort, model, profile),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _thinking(effort: str | None, model: str, profile: GeminiProfile) -> dict[str, Any] | None:
    """Return the configuration of reasoning, as a level or a number of tokens, with thoughts in the reply."""
    if effort is None or (effort == "none" and profile.reasoning is None):
        return None
    if effort == "none" and not profile.reasoning_off:
        raise UsageError(
            f"reasoning_effort: expected 'low' or more, since the model {model!r} always reasons, got 'none'"
        )
    if effort == "none":
        return {"thinkingBudget": 0}
    if profile.reasoning is None:
        raise UsageError(f"reasoning_effort: expected None, since the model {model!r} does not reason, got {effort!r}")
    if profile.reasoning == "level":
        return {"thinkingLevel": effort.upper(), "includeThoughts": True}
    if effort not in BUDGETS:
        raise UsageError(f"reasoning_effort: expected {' or '.join(map(repr, BUDGETS))}, got {effort!r:.80}")
    return {"thinkingBudget": BUDGETS[effort], "includeThoughts": True}
