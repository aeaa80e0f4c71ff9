"""The codec that writes requests for OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fsm_agent._internal.structs import differing
from fsm_agent.call.effects import Request
from fsm_agent.errors import BadReply, UsageError
from fsm_agent.functions.function import Function
from fsm_agent.messages.hosted_tools import CodeExecution, ComputerUse, HostedMCP, HostedTool, WebSearch
from fsm_agent.messages.message import (
    Document,
    FunctionCall,
    FunctionResult,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
)
from fsm_agent.messages.reply import Reply, Settings
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
    set_options,
    text_of,
    wire_type,
)
from fsm_agent.providers.openai_responses_reply import CALLS, TEXTS, WIRE, ResponsesDecoder, entries, item_type, without
from fsm_agent.providers.schemas import sendable_output, sendable_schema

MAX_ID = 64  # characters of a call's id; the service refuses longer ones
_UNSEEN = Image.of(  # a transparent pixel, because the output of a computer has to be a picture
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
# Fields that services send but do not accept: "Unknown parameter: 'input[1].status'" and similar errors (reported in
# issues of client libraries, such as https://github.com/BerriAI/litellm/issues/13420, read in November 2026).
_OUTPUT_ONLY = {
    "reasoning": ("status",),
    "function_call": ("status",),
    "custom_tool_call": ("status",),
    "image_generation_call": ("action", "background", "output_format", "quality", "revised_prompt", "size"),
}
_OF_EVENTS = ("item_id", "output_index")  # keys of stream events that Bedrock also puts into items
ENCRYPTED_REASONING = "reasoning.encrypted_content"
_UNANSWERABLE = ("apply_patch_call", "local_shell_call", "oauth_consent_request", "shell_call")  # types of items
LOGPROBS = "message.output_text.logprobs"


class OpenAIResponsesCodec(Codec):
    """The codec for ``/responses``, as served by OpenAI and compatible services.

    Each request contains the whole dialog, so the provider stores nothing (``store: false``) unless the extra body
    requests it.  The API has no seed, so a seed in the settings is omitted.

    Examples:
        >>> OpenAIResponsesCodec().path("gpt-5-mini", stream=False)
        '/responses'
    """

    name = WIRE

    def path(self, model: str, *, stream: bool) -> str:
        return "/responses"

    def headers(self, api_key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def encode(self, request: Request, *, model: str, profile: Profile, stream: bool, provider: str = "") -> bytes:
        extra = merged_body(profile.extra_body, request.settings.extra_body)
        form = self.request_form(request, profile)
        request = form.request
        with encoded_dialog(_DialogInItems, form, provider, model, profile, _reasoning_key(profile, extra)) as dialog:
            body: dict[str, Any] = {"model": model, "input": dialog.items, "store": False}
            if request.functions or request.settings.hosted_tools:
                body |= _tools(request, model, profile)
            if request.output.schema is not None:
                body["text"] = {"format": kept(request.output, _format, profile.strict_functions)}
            body |= _settings(request.settings, model, profile)
            if stream:
                body["stream"] = True
            return to_json(merged_body(body, extra))

    def taken_settings(self, settings: Settings, profile: Profile) -> frozenset[str]:
        return super().taken_settings(settings, profile) - {"seed"}

    def decoder(self, headers: Mapping[str, str]) -> ResponsesDecoder:
        return ResponsesDecoder(headers)

    def attributed(self, reply: Reply, request: Request) -> Reply:
        """Return the reply.

        Raises:
            BadReply: If the reply has no answer and calls a tool from the extra body that only the caller could run.
        """
        message = reply.message
        if not message.text and not message.function_calls:
            kinds = [item_type(part.data) for part in message.parts if isinstance(part, Opaque) and part.wire == WIRE]
            if asked := [kind for kind in kinds if kind in _UNANSWERABLE and f"{kind}_output" not in kinds]:
                problem = f"expected an answer, got the item {asked[0]!r}, which only the caller could answer"
                raise BadReply(f"{problem}; replace that tool with a function", retryable=False)
        return reply


def _tools(request: Request, model: str, profile: Profile) -> dict[str, Any]:
    functions, choice = offered_functions(request, profile)
    hosted = [_hosted_tool(tool, model, profile) for tool in request.settings.hosted_tools]
    fields: dict[str, Any] = {
        "tools": [*[kept(function, _tool, profile.strict_functions) for function in functions], *hosted],
        "tool_choice": choice if choice in CHOICES else {"type": "function", "name": choice},
    }
    if request.settings.parallel_function_calls is not None and profile.parallel_choice:
        fields["parallel_tool_calls"] = request.settings.parallel_function_calls
    return fields


def _tool(function: Function, takes_strict: bool) -> dict[str, Any]:
    tool: dict[str, Any] = {"type": "function", "name": function.name}
    if function.description:
        tool["description"] = function.description
    tool["parameters"], tool["strict"] = sendable_schema(function.parameters, takes_strict=takes_strict)
    return tool  # "strict" is always set, because its default is true


def _hosted_tool(tool: HostedTool, model: str, profile: Profile) -> dict[str, Any]:
    """Return the encoded tool.

    https://developers.openai.com/api/docs/guides/tools (2026-11), and the types in the SDK
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
        fields["user_location"] = {"type": "approximate", **differing(tool.user_location)}
    return fields


def _computer(tool: ComputerUse, type_: str) -> dict[str, Any]:
    if type_ == "computer":  # learns its size from the screenshots
        return set_options(tool, type_=type_, wire=WIRE)
    if tool.environment in ("desktop", "mobile"):
        raise UsageError(
            f"environment of the tool {type_!r} of the wire {WIRE!r}: expected 'browser', 'windows', 'mac',"
            f" 'linux' or 'ubuntu', got {tool.environment!r}"
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


def _reasoning_key(profile: Profile, extra: Mapping[str, Any]) -> str:
    """Return the key that a reasoning item must have, because the service refuses it otherwise.

    Services that encrypt reasoning accept it in no other form: "Invalid 'input[1].content': array too long.  Expected
    an array with maximum length 0".  Others (DeepSeek, vLLM) require the text.
    https://github.com/microsoft/agent-framework-go/pull/784 and https://github.com/vllm-project/vllm/pull/28248, read
    in November 2026.  A model that does not reason refuses what another one has encrypted: "Reasoning input items can
    only be provided to a reasoning or computer use model".  https://github.com/openai/openai-python/issues/2364
    """
    if extra.get("store"):
        return "id"
    encrypts = profile.reasoning_name == "encrypted_content" or ENCRYPTED_REASONING in (extra.get("include") or ())
    return "encrypted_content" if encrypts else "content"


def _settings(settings: Settings, model: str, profile: Profile) -> dict[str, Any]:
    check_settings(settings, model, profile.changed(stop=False))
    include = [ENCRYPTED_REASONING] if profile.reasoning_name == "encrypted_content" else []
    include += [LOGPROBS] if settings.top_logprobs is not None else []
    is_sampled, limit = profile_for(settings, profile).temperature, settings.max_tokens
    fields = {
        "temperature": settings.temperature if is_sampled else None,
        "top_p": settings.top_p if is_sampled else None,
        "max_output_tokens": None if limit is None else max(limit, profile.least_max_tokens),
        "reasoning": {"effort": settings.reasoning_effort} if settings.reasoning_effort is not None else None,
        "top_logprobs": settings.top_logprobs or None,
        "include": include or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


class _DialogInItems(DialogEncoder):
    """Encodes a dialog as items, in which each call and its result share an id that is unique in the dialog."""

    def __init__(self, model: str, profile: Profile, reasoning_key: str) -> None:
        self._profile = profile
        self._reasoning_key = reasoning_key
        self._ids = CallIds(most=MAX_ID)
        self._heads: dict[str, Mapping[str, Any]] = {}  # items of calls other than function calls, by id
        self.items: list[Any] = []

    def add(self, message: Message) -> None:
        for part in message.parts:
            if isinstance(part, FunctionResult):
                self.items += self._result(part)
        self.items += self._reply_items(message) if message.role == "assistant" else self._input_items(message)

    def _input_items(self, message: Message) -> Iterator[Any]:
        content: list[Any] = []
        items: list[Any] = []
        for part in message.parts:
            if isinstance(part, Text):
                content.append({"type": "input_text", "text": part.text})
            elif isinstance(part, FILES):
                content.append(_media(part))
            elif isinstance(part, Opaque) and part.wire == WIRE:
                is_item = not item_type(part.data).startswith("input_")
                (items if is_item else content).append(part.data)
        if content and message.role == "tool":
            raise UsageError(f"a message of role 'tool': expected only function results, got {content[0]!r:.80}")
        role = self._profile.system_role if message.role == "system" else message.role
        texts = [part for part in message.parts if isinstance(part, Text)]
        is_plain = len(content) == len(texts) and (message.role == "system" or len(texts) < 2)
        if content or (not message.parts and message.role != "tool"):
            yield {"role": role, "content": text_of(message) if is_plain else content}
        yield from items

    def _reply_items(self, message: Message) -> list[Any]:
        """Return the items for the model's message, without reasoning that the service would refuse."""
        items = [_strip_refused(item) for head, parts in _group_by_item(message) for item in self._items(head, parts)]
        items = [item for item in items if item_type(item) != "reasoning" or item.get(self._reasoning_key)]
        while items and item_type(items[-1]) == "reasoning":  # refused without the item that follows it
            items.pop()
        return items

    def _items(self, head: Any, parts: Sequence[Part]) -> Iterator[Any]:
        """Yield an item with its parts, then any text and calls that do not belong to it.

        The order matters: a message between calls may be refused.
        """
        texts = [part.text for part in parts if isinstance(part, Text)]
        calls = [part for part in parts if isinstance(part, FunctionCall)]
        kind = item_type(head)
        if kind == "message":
            said = [part.text for part in parts if isinstance(part, Text | Reasoning)]
            if item := _message_item(head, said):
                yield item
            texts = []
        elif kind == "reasoning":
            yield _reasoning_item(head, [part.text for part in parts if isinstance(part, Reasoning)])
        elif kind in CALLS or kind in ("computer_call", "mcp_approval_request"):
            yield from [self._call(head, call) for call in calls[:1]]
            calls = calls[1:]
        elif head is not None:
            yield head
        if texts:
            yield {"role": "assistant", "content": "".join(texts)}
        yield from [self._call({"type": "function_call"}, call) for call in calls]

    def _call(self, head: Mapping[str, Any], call: FunctionCall) -> dict[str, Any]:
        id, kind = self._ids.of_call(call), head["type"]
        if kind != "function_call":
            self._heads[id] = {**head, **call.arguments} if kind == "computer_call" else head
        if kind == "mcp_approval_request":
            return {**head, "id": id}
        if kind == "computer_call":
            return {**head, "call_id": id, "pending_safety_checks": [], **call.arguments}
        if kind == "custom_tool_call":
            return {**head, "call_id": id, "name": wire_name(call.name), "input": call.arguments_json}
        name = wire_name(call.name)
        return {**head, "call_id": id, "name": name, "arguments": arguments_text(call.arguments_json)}

    def _result(self, result: FunctionResult) -> Iterator[dict[str, Any]]:
        id = self._ids.of_result(result)
        head = self._heads.get(id, {})
        kind = item_type(head) or "function_call"
        if kind == "mcp_approval_request":
            refused = {"reason": result.text} if result.is_error else {}  # the service takes no reason for an approval
            approve = not result.is_error
            yield {"type": "mcp_approval_response", "approval_request_id": id, "approve": approve, **refused}
        elif kind == "computer_call":
            yield from self._screen(result, id, head)
        elif result.attachments:
            words = [{"type": "input_text", "text": result.text}] if result.text else []
            output = [*words, *map(_media, result.attachments)]
            yield {"type": f"{kind}_output", "call_id": id, "output": output}
        else:  # some services refuse an empty string as null
            yield {"type": f"{kind}_output", "call_id": id, "output": result.text or "{}"}

    def _screen(self, result: FunctionResult, id: str, head: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the screen after an action, then the text and attachments that the action's output cannot hold."""
        rest = list(result.attachments)
        screen = next((part for part in reversed(rest) if isinstance(part, Image)), None)
        if screen is not None:
            rest.remove(screen)
        shown = {"type": "computer_screenshot", "image_url": (screen or _UNSEEN).data_url()}
        item: dict[str, Any] = {"type": "computer_call_output", "call_id": id, "output": shown}
        if not result.is_error and (checks := head.get("pending_safety_checks")):
            item["acknowledged_safety_checks"] = checks
        yield item
        text = result.text.strip()
        if text or rest:
            words = f"{announced(result, id)}\n{text}".strip()
            content = [{"type": "input_text", "text": words}, *map(_media, rest)]
            yield {"role": "user", "content": content}


def _media(part: Image | Document) -> dict[str, Any]:
    """Encode an image or a file as https://developers.openai.com/api/docs/guides/file-inputs (2026-11) says."""
    if isinstance(part, Image):
        return {"type": "input_image", "detail": "auto", "image_url": part.data_url()}
    if part.data is None:
        return {"type": "input_file", "file_url": part.data_url()}
    return {"type": "input_file", "filename": file_name(part), "file_data": part.data_url()}


def _group_by_item(message: Message) -> Iterator[tuple[Any, list[Part]]]:
    """Yield each item with the message parts that belong to it, and None with the parts that belong to no item."""
    head: Any = None
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, Opaque):
            parts.append(part)
        elif part.wire == WIRE:
            yield head, parts
            head, parts = part.data, []
    yield head, parts


def _message_item(head: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any] | None:
    """Return the message item with these texts, or None if it would be empty.

    If the texts differ from the item's own texts, citations are omitted.
    """
    content = _fill(entries(head.get("content")), texts)
    if content is None:
        outputs = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
        content = [*outputs, *_rest(head.get("content"))]
    return {**head, "content": content} if content else None


def _reasoning_item(head: Mapping[str, Any], thoughts: Sequence[str]) -> dict[str, Any]:
    """Return the reasoning item with these texts, or without texts if they differ from the item's own texts."""
    summary, content = entries(head.get("summary")), entries(head.get("content"))
    filled = _fill([*summary, *content], thoughts) or []
    item = {**without(head, "content"), "summary": filled[: len(summary)]}
    thought = filled[len(summary) :]
    return {**item, "content": thought} if thought else item


def _strip_refused(item: Any) -> Any:
    kind = item_type(item)
    if kind == "web_search_call" and isinstance(action := item.get("action"), dict):
        item = {**item, "action": without(action, "sources")}
    return without(item, *_OUTPUT_ONLY.get(kind, ()), *_OF_EVENTS) if kind else item


def _is_hollow(entry: Mapping[str, Any]) -> bool:
    return item_type(entry) in TEXTS and "text" not in entry


def _fill(content: list[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]] | None:
    """Fill the entries that were emptied with these texts.  Return all entries, or None if the counts differ."""
    left = list(reversed(texts))
    if sum(map(_is_hollow, content)) != len(left):
        return None
    return [{**entry, "text": left.pop()} if _is_hollow(entry) else entry for entry in content]


def _rest(content: Any) -> list[dict[str, Any]]:
    return [entry for entry in entries(content) if not _is_hollow(entry)]
