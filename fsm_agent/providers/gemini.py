"""The codec that writes requests for Google's ``generateContent``, on the Gemini API and Vertex AI."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from fsm_agent.call.effects import Request
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.hosted_calls import action_of, as_action, is_flagged
from fsm_agent.messages.hosted_tools import ComputerUse, HostedTool, WebSearch
from fsm_agent.messages.message import (
    Document,
    FunctionCall,
    FunctionResult,
    Image,
    Message,
    Opaque,
    Part,
    Text,
    url_suffix,
)
from fsm_agent.messages.reply import Reply, Settings
from fsm_agent.prompts.output import ANSWER, Output
from fsm_agent.providers.codec import (
    CHOICES,
    FILES,
    Codec,
    DialogEncoder,
    Profile,
    check_effort,
    check_settings,
    encoded_dialog,
    kept,
    merged_body,
    offered_functions,
    profile_as,
    to_json,
    wire_name,
)
from fsm_agent.providers.content import (
    OPENING,
    announced,
    arguments_object,
    json_object,
    set_options,
    text_of,
    wire_type,
)
from fsm_agent.providers.gemini_reply import WIRE, GeminiDecoder
from fsm_agent.providers.schemas import closed_objects, gemini_schema

# Prefixes of model names that are complete resource paths.
_COLLECTIONS = ("models/", "tunedModels/", "publishers/", "projects/", "endpoints/")
_ACCESS_TOKEN = "ya29."  # the prefix of Google's OAuth tokens, which Vertex AI takes
# https://ai.google.dev/gemini-api/docs/openai#thinking (2026-11)
BUDGETS = {"minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
# Gemini 3 requires a signature on the first call in each step.  This one is for calls that Gemini did not make:
# "skip_thought_signature_validator", https://ai.google.dev/gemini-api/docs/thought-signatures (2026-11).
UNSIGNED = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
# https://ai.google.dev/gemini-api/docs/image-understanding (2026-11)
_IMAGE_TYPES = {
    **{f".{suffix}": f"image/{suffix}" for suffix in ("png", "jpeg", "webp", "heic", "heif", "gif")},
    ".jpg": "image/jpeg",
}
# Allowed in function results: https://ai.google.dev/gemini-api/docs/function-calling#multimodal (2026-11)
_IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
_ENVIRONMENTS = {name: f"ENVIRONMENT_{name.upper()}" for name in ("browser", "desktop", "mobile")}
IS_ACTION = "isAction"  # the key of our opaque part that marks the next call as an action of a computer
_BEGIN = re.compile("[A-Za-z_]")


class GeminiProfile(Profile, frozen=True, kw_only=True):
    """The capabilities that a Gemini model has in addition to those in `Profile`.

    `strict_functions` means that the model supports the mode ``VALIDATED``, in which calls are optional and match their
    schemas.

    Examples:
        >>> GeminiProfile(reasoning="budget").media_in_results
        True
    """

    reasoning: Literal["level", "budget"] | None = "level"  # how to set the effort; None without reasoning
    reasoning_off: bool = False  # reasoning can be switched off
    media_in_results: bool = True  # takes images and documents inside function results, not only after them
    blocked_domains: bool = False  # web search takes blocked domains
    # How to combine hosted tools with functions: "announced" by a field, or "plain" without one.  None if impossible.
    hosted_with_functions: Literal["announced", "plain"] | None = None


class GeminiCodec(Codec):
    """The codec for ``generateContent`` and ``streamGenerateContent``.

    Examples:
        >>> GeminiCodec().path("gemini-3-flash", stream=False)
        '/models/gemini-3-flash:generateContent'
    """

    name = WIRE

    def path(self, model: str, *, stream: bool) -> str:
        """Return the path for requests, relative to the base URL.

        Raises:
            ConfigError: If the model's name is invalid.
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

    def encode(self, request: Request, *, model: str, profile: Profile, stream: bool, provider: str = "") -> bytes:
        form = self.request_form(request, profile)
        request = form.request
        own = profile_as(GeminiProfile, profile)
        with encoded_dialog(_DialogInContents, form, provider, model, own) as dialog:
            system, contents = dialog.system, dialog.contents
            is_turn = bool(system) and (profile.system_role == "user" or not contents)
            first = [{"role": "user", "parts": system}] if is_turn else []
            body: dict[str, Any] = {"contents": [*first, *contents]}
            if system and not is_turn:
                body["systemInstruction"] = {"parts": system}
            body |= _tools(request, model, own)
            config = _settings(request.settings, model, own)
            if request.output.schema is not None:
                config["responseMimeType"] = "application/json"
                config["responseJsonSchema"] = kept(request.output, _schema)
            if config:
                body["generationConfig"] = config
            return to_json(merged_body(body, profile.extra_body, request.settings.extra_body))

    def decoder(self, headers: Mapping[str, str]) -> GeminiDecoder:
        return GeminiDecoder(headers)

    def attributed(self, reply: Reply, request: Request) -> Reply:
        return _with_computer_calls(reply, request)


def _tools(request: Request, model: str, profile: GeminiProfile) -> dict[str, Any]:
    hosted = [_hosted_tool(tool, model, profile) for tool in request.settings.hosted_tools]
    if not request.functions:
        return {"tools": hosted} if hosted else {}
    functions, choice = offered_functions(request, profile)
    modes = {"auto": "VALIDATED" if profile.strict_functions else "AUTO", "required": "ANY", "none": "NONE"}
    calling: dict[str, Any] = {"mode": modes.get(choice, "ANY")}
    if choice not in CHOICES:
        calling["allowedFunctionNames"] = [choice]
    if request.settings.parallel_function_calls is False:
        raise UsageError(
            "parallel_function_calls: expected True or None, since Gemini cannot be asked for one function at a time,"
            " got False"
        )
    config: dict[str, Any] = {"functionCallingConfig": calling}
    if any(tool.kind != "computer_use" for tool in request.settings.hosted_tools):
        if profile.hosted_with_functions is None:
            raise UsageError(
                f"the model {model!r} does not support hosted tools together with functions; leave one kind out"
            )
        if profile.hosted_with_functions == "announced":
            config["includeServerSideToolInvocations"] = True
    return {
        "tools": [{"functionDeclarations": [kept(function, _declaration) for function in functions]}, *hosted],
        "toolConfig": config,
    }


def _declaration(function: Function) -> dict[str, Any]:
    _check_name(function)
    described = {"description": function.description} if function.description else {}
    return {"name": function.name, **described, "parametersJsonSchema": gemini_schema(function.parameters)}


def _schema(output: Output) -> dict[str, Any]:
    return gemini_schema(closed_objects(output.schema or {}))


def _settings(settings: Settings, model: str, profile: GeminiProfile) -> dict[str, Any]:
    check_settings(settings, model, profile)
    reasons, known = profile.reasoning is not None, BUDGETS if profile.reasoning == "budget" else None
    check_effort(settings, model, reasons=reasons, stops=profile.reasoning_off, known=known)
    fields = {
        "temperature": settings.temperature if profile.temperature else None,
        "topP": settings.top_p if profile.temperature else None,
        "maxOutputTokens": settings.max_tokens,
        "stopSequences": list(settings.stop) or None,
        "seed": settings.seed,
        "responseLogprobs": None if settings.top_logprobs is None else True,
        "logprobs": settings.top_logprobs or None,
        "thinkingConfig": _thinking(settings.reasoning_effort, profile),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _thinking(effort: str | None, profile: GeminiProfile) -> dict[str, Any] | None:
    if effort is None or profile.reasoning is None:
        return None
    if effort == "none":
        return {"thinkingBudget": 0}
    if profile.reasoning == "level":
        return {"thinkingLevel": effort.upper(), "includeThoughts": True}
    return {"thinkingBudget": BUDGETS[effort], "includeThoughts": True}


class _DialogInContents(DialogEncoder):
    """Encodes a dialog as a system instruction and turns by the user and the model.

    The results from one round of functions form one turn, as Gemini requires.  Media that a result cannot hold follow
    in a separate turn.
    """

    files_in = ("user", "assistant", "tool")

    def __init__(self, model: str, profile: GeminiProfile) -> None:
        self._in_results = _IN_RESULTS if profile.media_in_results else frozenset[str]()
        self._actions: dict[str, FunctionCall] = {}  # computer actions without a result yet, by id
        self._contents: list[dict[str, Any]] = []
        self._beside: list[Any] = []
        self._last_role = ""
        self.system: list[Any] = []  # the parts of the system instruction

    @property
    def contents(self) -> list[dict[str, Any]]:
        """The turns."""
        is_opened = not self._contents or self._contents[0]["role"] == "user"
        opening = [] if is_opened else [{"role": "user", "parts": [{"text": OPENING}]}]
        return [*opening, *self._contents, *self._end_of_round()]

    def _end_of_round(self) -> list[dict[str, Any]]:
        return [{"role": "user", "parts": self._beside}] if self._beside else []

    def add(self, message: Message) -> None:
        if self._beside and not any(isinstance(part, FunctionResult) for part in message.parts):
            self._contents += self._end_of_round()
            self._beside = []
        if message.role == "system":
            self.system += _system(message)
        elif message.role == "assistant":
            if parts := self._model_parts(message):
                self._contents.append({"role": "model", "parts": parts})
        elif message.role == self._last_role == "tool":
            self._contents[-1]["parts"] += self._user_parts(message.parts)
        else:
            self._contents.append({"role": "user", "parts": self._user_parts(message.parts)})
        if message.role != "assistant":
            self._beside += self._beside_of(message)
        self._last_role = message.role

    def _user_parts(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        """Return the parts with function results first, because Gemini requires these directly after the calls."""
        encoded = [self._result(part) for part in parts if isinstance(part, FunctionResult)]
        for part in parts:
            if isinstance(part, Text) and part.text:
                encoded.append({"text": part.text})
            elif isinstance(part, FILES):
                encoded += _name_media(part)
            elif isinstance(part, Opaque) and part.wire == WIRE:
                encoded.append(part.data)
        return encoded or [{"text": ""}]

    def _model_parts(self, message: Message) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        is_signed = any(call.signature for call in message.function_calls)
        is_action = False
        for part in message.parts:
            if isinstance(part, Text) and (part.text or part.signature):
                parts.append(_sign({"text": part.text}, part.signature))
            elif isinstance(part, FunctionCall):
                if is_action:
                    self._actions[part.id or part.provider_id or ""] = part
                parts.append(
                    _sign(_call(part, is_action=is_action), part.signature or (None if is_signed else UNSIGNED))
                )
                is_signed, is_action = True, False
            elif isinstance(part, FILES):
                parts += _name_media(part)
            elif isinstance(part, Opaque) and part.wire == WIRE:
                is_action = part.data.get(IS_ACTION) is True if isinstance(part.data, dict) else False
                parts += [] if is_action else [part.data]
        return parts

    def _result(self, result: FunctionResult) -> dict[str, Any]:
        id = {"id": result.provider_id} if result.provider_id else {}
        response: dict[str, Any] = {"error" if result.is_error else "output": result.text}
        name = wire_name(result.name)
        if (action := self._actions.pop(result.id or result.provider_id or "", None)) is not None:
            name, _ = action_of(action)
            if not result.is_error:
                response = _screen(result.text, action)
        media = [_media(part) for part in result.attachments if self._is_in_result(part)]
        parts = {"parts": media} if media else {}
        return {"functionResponse": {"name": name, "response": response, **parts, **id}}

    def _is_in_result(self, part: Image | Document) -> bool:
        return part.data is not None and _media_type(part) in self._in_results

    def _beside_of(self, message: Message) -> list[dict[str, Any]]:
        """Return media that function results cannot hold, with a sentence that introduces them."""
        encoded: list[dict[str, Any]] = []
        for result in message.parts:
            if isinstance(result, FunctionResult):
                media = [part for part in result.attachments if not self._is_in_result(part)]
                encoded += [{"text": announced(result, result.provider_id)}] if media else []
                encoded += [named for part in media for named in _name_media(part)]
        return encoded


def _name_media(part: Image | Document) -> list[dict[str, Any]]:
    name = part.name if isinstance(part, Document) else None
    return [*([{"text": f"{name}:"}] if name else []), _media(part)]


def _media(part: Image | Document) -> dict[str, Any]:
    media_type = _media_type(part)
    if part.data is not None:
        return {"inlineData": {"mimeType": media_type, "data": base64.b64encode(part.data).decode()}}
    file = {"fileUri": part.url}
    return {"fileData": {**file, "mimeType": media_type} if media_type else file}


def _media_type(part: Image | Document) -> str | None:
    """Return the media type to send, because some models refuse text types other than plain text."""
    if isinstance(part, Document):
        return "text/plain" if part.is_text else part.media_type
    return part.media_type or _IMAGE_TYPES.get(url_suffix(part.url or ""))


def _system(message: Message) -> list[dict[str, Any]]:
    text = text_of(message)
    opaque = [part.data for part in message.parts if isinstance(part, Opaque) and part.wire == WIRE]
    return [*([{"text": text}] if text else []), *opaque]


def _sign(part: dict[str, Any], signature: str | None) -> dict[str, Any]:
    return {**part, "thoughtSignature": signature} if signature else part


def _call(call: FunctionCall, *, is_action: bool) -> dict[str, Any]:
    id = {"id": call.provider_id} if call.provider_id else {}
    name, arguments = action_of(call) if is_action else (wire_name(call.name), arguments_object(call.arguments_json))
    return {"functionCall": {"name": name, "args": arguments, **id}}


def _screen(text: str, action: FunctionCall) -> dict[str, Any]:
    """Return the response to a computer action: a JSON object unchanged, or else the text.

    If the action `is_flagged`, a person has confirmed it, and the response says so.
    https://ai.google.dev/gemini-api/docs/computer-use (November 2026)
    """
    state = json_object(text)
    response = {"output": text} if state is None else state
    return {**response, "safety_acknowledgement": "true"} if is_flagged(action) else response


def _with_computer_calls(reply: Reply, request: Request) -> Reply:
    """Return the reply with computer actions as calls to `COMPUTER`, each preceded by an opaque part that marks it.

    Gemini sends actions as calls to functions that no request declares (``click_at``), and each model adds more:
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


def _check_name(function: Function) -> None:
    """Check that a function's name begins with a letter or an underscore.

    Gemini requires this (https://ai.google.dev/gemini-api/docs/function-calling, 2026-11), although some models have
    enforced it only since Gemini 3.
    """
    if not _BEGIN.match(function.name):
        raise UsageError(
            f"the name of a function for Gemini: expected a letter or '_' first, got {function.name!r}; rename it,"
            f" for example to {'_' + function.name!r}"
        )


def _hosted_tool(tool: HostedTool, model: str, profile: GeminiProfile) -> dict[str, Any]:
    """Return the encoded tool.

    https://ai.google.dev/api/caching#Tool (2026-11), and the types in the SDK
    """
    type_ = wire_type(tool, model=model, wire=WIRE, profile=profile)
    options: dict[str, Any] = {}
    match tool:
        case WebSearch():
            set_options(tool, *(["blocked_domains"] if profile.blocked_domains else []), type_=type_, wire=WIRE)
            if tool.blocked_domains:
                options = {"excludeDomains": list(tool.blocked_domains)}
        case ComputerUse():
            set_options(tool, "environment", type_=type_, wire=WIRE)
            if tool.environment not in _ENVIRONMENTS:
                names = ", ".join(map(repr, _ENVIRONMENTS))
                raise UsageError(f"environment for Gemini: expected one of {names}, got {tool.environment!r}")
            options = {"environment": _ENVIRONMENTS[tool.environment]}
        case _:
            set_options(tool, type_=type_, wire=WIRE)
    return {type_: options}
