"""How is a request said in OpenAI's Responses API?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent.effects import Request, Settings
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.parsing import Output
from fsm_agent.providers.chunks import ChunkDecoder
from fsm_agent.providers.failures import failure, unreadable
from fsm_agent.providers.openai_parts import offered_functions, told
from fsm_agent.providers.openai_responses_items import WIRE, InputItems
from fsm_agent.providers.openai_responses_reply import ReplyInItems
from fsm_agent.providers.schemas import schema_in_words, strict_schema
from fsm_agent.providers.wire import Profile, read_json
from fsm_agent.replies import Reply

ENCRYPTED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"


class OpenAIResponses:
    """The codec of ``/responses``: OpenAI, and every service that is compatible with it.

    Each request tells the whole dialog, so nothing is kept at the provider (``store: false``) unless the extra body
    says so.  The wire has no seed: it is left out, as sampling settings are where a model takes none.
    """

    name = WIRE

    def path(self, model: str, *, stream: bool) -> str:
        """Where requests go, behind the base URL."""
        return "/responses"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """The headers that carry the key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def encode(self, request: Request, *, model: str, profile: Profile, stream: bool) -> dict[str, Any]:
        """The request's JSON body.

        Raises:
            UsageError: The request needs what the profile says that the model cannot take, or what the wire cannot say.
        """
        extra = {**profile.extra_body, **request.settings.extra_body}
        schema = request.output.schema
        in_words = schema is not None and not (
            profile.native_schema and (profile.schema_with_functions or not request.functions)
        )
        messages = request.messages
        if schema is not None and in_words:
            messages = told(messages, schema_in_words(schema, with_functions=bool(request.functions)))
        items = InputItems(model, profile, is_stored=bool(extra.get("store")))
        body: dict[str, Any] = {"model": model, "input": list(items.of(messages)), "store": False}
        if request.functions:
            body |= _tools(request, profile)
        if schema is not None and not in_words:
            body["text"] = {"format": _format(request.output, schema, profile)}
        body |= _settings(request.settings, model, profile)
        if stream:
            body["stream"] = True
        return {**body, **extra}

    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """The reply in a whole response.

        Raises:
            ProviderError: It is an error, or no reply.
        """
        if not 200 <= status < 300:
            raise failure(status, headers, body)
        try:
            document = read_json(body)
        except ValueError:
            if body.lstrip().startswith((b"data:", b"event:", b": ")):  # streamed, though nobody asked for it
                decoder = self.decoder(headers)
                decoder.feed(body)
                return decoder.finish()
            raise unreadable("the reply is no JSON", headers, body) from None
        reply = ReplyInItems(headers)
        reply.take_whole(document)
        return reply.finished()

    def decoder(self, headers: Mapping[str, str]) -> ChunkDecoder:
        """A decoder for one streamed response of status 200."""
        return ChunkDecoder(self, ReplyInItems(headers), headers)


def _tools(request: Request, profile: Profile) -> dict[str, Any]:
    functions, choice = offered_functions(request, profile)
    is_named = choice not in ("auto", "required", "none")
    said: dict[str, Any] = {
        "tools": [_tool(function, profile) for function in functions],
        "tool_choice": {"type": "function", "name": choice} if is_named else choice,
    }
    if request.settings.parallel_function_calls is not None:
        said["parallel_tool_calls"] = request.settings.parallel_function_calls
    return said


def _tool(function: Function, profile: Profile) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": "function", "name": function.name}
    if function.description:
        tool["description"] = function.description
    strict = strict_schema(function.parameters) if profile.strict_functions else None
    tool["parameters"] = dict(function.parameters) if strict is None else strict
    return {**tool, "strict": strict is not None}  # unsaid it is true


def _format(output: Output, schema: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    strict = strict_schema(schema) if profile.strict_functions else None
    form = {"type": "json_schema", "name": output.name, "schema": dict(schema) if strict is None else strict}
    return form if strict is None else {**form, "strict": True}


def _settings(settings: Settings, model: str, profile: Profile) -> dict[str, Any]:
    if settings.top_logprobs is not None and not profile.logprobs:
        raise UsageError(f"the model {model!r} reports no logprobs, and top_logprobs is {settings.top_logprobs!r}")
    if settings.stop:
        raise UsageError(f"the wire {WIRE!r} takes no stop sequences, and stop is {settings.stop!r}")
    include = [ENCRYPTED_REASONING] if profile.reasoning_name == "encrypted_content" else []
    include += [LOGPROBS] if settings.top_logprobs is not None else []
    said = {
        "temperature": settings.temperature if profile.temperature else None,
        "top_p": settings.top_p if profile.temperature else None,
        "max_output_tokens": settings.max_tokens,
        "reasoning": {"effort": settings.reasoning_effort} if settings.reasoning_effort is not None else None,
        "top_logprobs": settings.top_logprobs or None,
        "include": include or None,
    }
    return {name: value for name, value in said.items() if value is not None}
