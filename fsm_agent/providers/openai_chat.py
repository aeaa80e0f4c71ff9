"""The codec that writes requests for OpenAI's Chat Completions API, which most services offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from fsm_agent._internal.structs import differing
from fsm_agent.call.effects import Request
from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function
from fsm_agent.messages.hosted_tools import HostedTool, WebSearch
from fsm_agent.messages.message import PDF, Document, FunctionCall, FunctionResult, Image, Message, Opaque, Part, Text
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.output import Output
from fsm_agent.providers.codec import (
    CHOICES,
    FILES,
    Codec,
    DialogEncoder,
    Profile,
    check_settings,
    encoded_dialog,
    kept,
    merged_body,
    offered_functions,
    profile_for,
    to_json,
    wire_name,
)
from fsm_agent.providers.content import (
    CallIds,
    announced,
    arguments_text,
    file_name,
    in_words,
    set_options,
    text_of,
    untakeable,
    wire_type,
)
from fsm_agent.providers.openai_chat_reply import BESIDE_CALLS, REASONING_DETAILS, WIRE, ChatDecoder
from fsm_agent.providers.schemas import sendable_output, sendable_schema

_NOTHING: Mapping[str, Any] = {}
BRIDGE = "Understood."


class OpenAIChatCodec(Codec):
    """The codec for ``/chat/completions``, as served by OpenAI and compatible services.

    Examples:
        >>> OpenAIChatCodec().path("gpt-5-mini", stream=False)
        '/chat/completions'
    """

    name = WIRE

    def path(self, model: str, *, stream: bool) -> str:
        return "/chat/completions"

    def headers(self, api_key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def encode(self, request: Request, *, model: str, profile: Profile, stream: bool, provider: str = "") -> bytes:
        form = self.request_form(request, profile)
        request = form.request
        with encoded_dialog(_DialogInEntries, form, provider, model, profile) as dialog:
            entries = dialog.entries if profile.user_after_results else _bridged(dialog.entries)
            body: dict[str, Any] = {"model": model, "messages": entries}
            if request.functions:
                _check_reasoning(request.settings, model, profile)
                body |= _tools(request, profile)
            for tool in request.settings.hosted_tools:
                body |= _hosted_tool(tool, model, profile)
            if request.output.schema is not None:
                body["response_format"] = kept(request.output, _response_format, profile.strict_functions)
            body |= _settings(request.settings, model, profile)
            if stream:
                body["stream"] = True
                if profile.stream_usage:
                    body["stream_options"] = {"include_usage": True}
            extra, own_extra = profile.extra_body, request.settings.extra_body
            return to_json(merged_body(body, extra, own_extra) if extra or own_extra else body)

    def decoder(self, headers: Mapping[str, str]) -> ChatDecoder:
        return ChatDecoder(headers)


class _DialogInEntries(DialogEncoder):
    """Encodes a dialog as entries.

    Entries with the role 'tool' take only text, so attachments to function results follow the round.
    """

    def __init__(self, model: str, profile: Profile) -> None:
        self._profile = profile
        self._is_gemini = "gemini" in model.lower()
        self._ids = CallIds(exactly=profile.call_id_chars)
        self._entries: list[dict[str, Any]] = []
        self._beside: list[Any] = []

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [*self._entries, *self._end_of_round()]

    def _end_of_round(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": self._beside}] if self._beside else []

    def add(self, message: Message) -> None:
        results = [part for part in message.parts if isinstance(part, FunctionResult)]
        if self._beside and not results:
            self._entries += self._end_of_round()
            self._beside = []
        for result in results:
            id, text = self._ids.of_result(result), result.text or "{}"  # some services refuse an empty string as null
            self._entries.append({"role": "tool", "tool_call_id": id, "content": text})
            if result.attachments and message.role != "assistant":
                self._beside.append({"type": "text", "text": announced(result, id)})
                self._beside += map(_media, result.attachments)
        if message.role == "assistant":
            self._entries.append(self._assistant(message))
        elif message.role == "system":
            is_plain = Opaque not in map(type, message.parts)
            content = text_of(message) if is_plain else _content(message.parts)
            self._entries.append({"role": self._profile.system_role, "content": content})
        elif message.role == "user" and (not results or len(results) < len(message.parts)):
            self._entries.append({"role": "user", "content": _content(message.parts)})
        elif message.role == "tool" and (parts := _content(message.parts)):
            raise UsageError(f"a message of role 'tool': expected only function results, got {parts[0]!r:.80}")

    def _assistant(self, message: Message) -> dict[str, Any]:
        entry: dict[str, Any] = {"role": "assistant", "content": text_of(message)}
        if self._profile.reasoning_name is not None:
            _think(entry, message, self._profile.reasoning_name)
        if calls := message.function_calls:
            encoded = entry["tool_calls"] = []
            beside = _beside_calls(message) if self._is_gemini else repeat(_NOTHING)
            for call, extra in zip(calls, beside, strict=False):
                function = {"name": wire_name(call.name), "arguments": arguments_text(call.arguments_json)}
                encoded.append({"id": self._ids.of_call(call), "type": "function", "function": function, **extra})
        return entry


def _bridged(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Insert an assistant entry between results and a user message, and omit assistant entries that say nothing.

    "Assistant message must have either content or tool_calls, but not none."
    """
    bridged = list[dict[str, Any]]()
    for entry in entries:
        if entry["role"] == "assistant" and not (entry["content"] or entry.get("tool_calls")):
            continue
        if entry["role"] == "user" and bridged and bridged[-1]["role"] == "tool":
            bridged.append({"role": "assistant", "content": BRIDGE})
        bridged.append(entry)
    return bridged


def _content(parts: Sequence[Part]) -> str | list[Any]:
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    content: list[Any] = []
    for part in parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, FILES):
            content.append(_media(part))
        elif isinstance(part, Opaque) and part.wire == WIRE:
            content.append(part.data)
    return content or ""


def _media(part: Image | Document) -> dict[str, Any]:
    """Return the content part for an image or a file.

    The API accepts only PDFs as files: "Expected a base64-encoded data URL with an application/pdf MIME type"
    (https://github.com/pydantic/pydantic-ai/issues/4445, read in November 2026).  Text documents are sent as text.
    """
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": part.data_url()}}
    if (text := in_words(part)) is not None:
        return {"type": "text", "text": text}
    if part.data is None or part.media_type != PDF:
        raise untakeable(part, WIRE, "the bytes of a PDF, or text")
    return {"type": "file", "file": {"filename": file_name(part), "file_data": part.data_url()}}


def _beside_calls(message: Message) -> list[Mapping[str, Any]]:
    """Return the extra fields for each call.

    Gemini signs its calls and refuses a dialog without the signatures.  Other services may refuse the extra key, so
    only Gemini gets it.
    """
    found, extra = list[Mapping[str, Any]](), _NOTHING
    for part in message.parts:
        if isinstance(part, FunctionCall):
            found.append(extra)
            extra = _NOTHING
        elif isinstance(part, Opaque) and part.wire == WIRE and isinstance(part.data, dict):
            extra = {key: part.data[key] for key in BESIDE_CALLS if key in part.data}
    return found


def _think(entry: dict[str, Any], message: Message, name: str) -> None:
    thought = message.reasoning
    match name:
        case "reasoning_content" if thought or message.function_calls:  # DeepSeek requires it next to calls
            entry["reasoning_content"] = thought
        case "reasoning" if thought:
            entry["reasoning"] = thought
        case "reasoning_details":
            opaque = [part.data for part in message.parts if isinstance(part, Opaque) and part.wire == WIRE]
            if details := [d for data in opaque if isinstance(data, dict) for d in data.get(REASONING_DETAILS, ())]:
                entry[REASONING_DETAILS] = details
            elif thought:
                entry["reasoning"] = thought
        case "thinking" if thought:
            texts = [{"type": "text", "text": entry["content"]}] if entry["content"] else []
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
            entry["content"] = [thinking, *texts]


def _check_reasoning(settings: Settings, model: str, profile: Profile) -> None:
    effort = settings.reasoning_effort
    takes = {"any": True, "unset": effort in (None, "none"), "none": effort == "none"}
    if not takes[profile.functions_at_effort]:
        raise UsageError(
            f"functions of the model {model!r}: expected reasoning_effort='none' over the wire {WIRE!r}, got {effort!r}"
        )


def _tools(request: Request, profile: Profile) -> dict[str, Any]:
    functions, choice = offered_functions(request, profile)
    tool_choice = choice if choice in CHOICES else {"type": "function", "function": {"name": choice}}
    tools = [kept(function, _tool, profile.strict_functions) for function in functions]
    fields: dict[str, Any] = {"tools": tools, "tool_choice": tool_choice}
    if request.settings.parallel_function_calls is not None and profile.parallel_choice:
        fields["parallel_tool_calls"] = request.settings.parallel_function_calls
    return fields


def _tool(function: Function, takes_strict: bool) -> dict[str, Any]:
    tool: dict[str, Any] = {"name": function.name}
    if function.description:
        tool["description"] = function.description
    tool["parameters"], is_strict = sendable_schema(function.parameters, takes_strict=takes_strict)
    if is_strict:
        tool["strict"] = True
    return {"type": "function", "function": tool}


def _hosted_tool(tool: HostedTool, model: str, profile: Profile) -> dict[str, Any]:
    key = wire_type(tool, model=model, wire=WIRE, profile=profile)
    options = set_options(tool, "context_size", "user_location", type_=key, wire=WIRE)
    if not isinstance(tool, WebSearch):
        raise UsageError(
            f"the wire {WIRE!r} does not support {tool!r}; remove it from hosted_tools of the profile of {model!r}"
        )
    fields: dict[str, Any] = {"search_context_size": tool.context_size} if "context_size" in options else {}
    if tool.user_location is not None:
        fields["user_location"] = {"type": "approximate", "approximate": differing(tool.user_location)}
    return {key: fields}


def _response_format(output: Output, takes_strict: bool) -> dict[str, Any]:
    schema, is_strict = sendable_output(output, takes_strict=takes_strict)
    described: dict[str, Any] = {"name": output.name, "schema": schema}
    if is_strict:
        described["strict"] = True
    return {"type": "json_schema", "json_schema": described}


def _settings(settings: Settings, model: str, profile: Profile) -> dict[str, Any]:
    check_settings(settings, model, profile)
    is_sampled = profile_for(settings, profile).temperature
    fields = {
        "temperature": settings.temperature if is_sampled else None,
        "top_p": settings.top_p if is_sampled else None,
        profile.max_tokens_name: settings.max_tokens,
        "stop": list(settings.stop) or None,
        profile.seed_name: settings.seed,
        "reasoning_effort": settings.reasoning_effort,
        "logprobs": None if settings.top_logprobs is None else True,
        "top_logprobs": settings.top_logprobs or None,
    }
    return {name: value for name, value in fields.items() if value is not None}
