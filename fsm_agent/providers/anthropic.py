"""The codec that writes requests for Anthropic's Messages API."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from fsm_agent._internal.structs import differing
from fsm_agent.call.effects import Request
from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.hosted_calls import COMPUTER, action_of
from fsm_agent.messages.hosted_tools import CodeExecution, ComputerUse, HostedMCP, HostedTool, WebSearch
from fsm_agent.messages.message import (
    PDF,
    Document,
    FunctionCall,
    FunctionResult,
    Image,
    Message,
    Opaque,
    Reasoning,
    Text,
)
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.output import Output
from fsm_agent.providers.anthropic_reply import ADDS_TO, TOOLSET, WIRE, AnthropicDecoder
from fsm_agent.providers.codec import (
    Codec,
    DialogEncoder,
    Profile,
    RequestForm,
    check_effort,
    check_settings,
    choose_form,
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
    CallIds,
    announced,
    arguments_object,
    set_options,
    untakeable,
    wire_type,
)
from fsm_agent.providers.schemas import ClosedSchema, SchemaLimits, closed_schema

VERSION = "2023-06-01"
MIN_BUDGET = 1_024  # tokens: https://platform.claude.com/docs/en/build-with-claude/extended-thinking (2026-11)
# The share of `max_tokens` for reasoning, for models that need a number.
SHARES = {"minimal": 0.0, "low": 0.2, "medium": 0.4, "high": 0.6, "xhigh": 0.8, "max": 0.8}
Block = dict[str, Any]
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}
# Beta headers by type; some clouds still require headers that the service itself no longer requires.
BETAS = {
    "code_execution_20250522": "code-execution-2025-05-22",
    "code_execution_20250825": "code-execution-2025-08-25",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20251124": "computer-use-2025-11-24",
    "mcp_toolset": "mcp-client-2025-11-20",
}
BINDING_BETA = "thinking-binding-controls-2026-08-01"
TOOLSETS = "computer_toolset_"  # the prefix of types that have no name and no options
MOST = 4  # breakpoints in one request; the service refuses more
_OFF = {"type": "disabled"}  # the default of models with a budget
_ADAPTIVE = {"type": "adaptive"}  # the default of models whose reasoning is bound
# Corrections, functions and system prompts change between requests.  By default, the service then refuses the dialog:
# https://platform.claude.com/docs/en/build-with-claude/preserved-thinking (2026-11).
_UNBOUND = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
_THOUGHTS = ("thinking", "redacted_thinking")
_TAKEN_ON = frozenset({"text", "image", "document", "tool_use", "tool_result"})  # never reasoning


class AnthropicProfile(Profile, frozen=True, kw_only=True):
    """The capabilities that a model has on Anthropic's API, in addition to those in `Profile`.

    Examples:
        >>> AnthropicProfile(default_max_tokens=4_000).reasoning
        'adaptive'
    """

    default_max_tokens: int = 16_000  # the API requires a limit; longer replies need a stream
    reasoning: Literal["adaptive", "budget"] | None = "adaptive"  # how to set the effort; None without reasoning
    reasoning_off: Literal["disabled", "between_tools"] | None = "disabled"  # how to switch it off; None if impossible
    reasoning_bound: bool = False  # reads earlier reasoning only if all that was sent before it is unchanged
    temperature_with_top_p: bool = False  # takes both at once; otherwise top_p is omitted if the temperature is set
    system_in_dialog: bool = False  # takes system messages after other messages


class AnthropicCodec(Codec):
    """The codec for ``/messages``, as served by Anthropic and compatible services.

    The API has no seed, so a seed in the settings is omitted.

    Examples:
        >>> AnthropicCodec().path("claude-opus-5", stream=False)
        '/messages'
    """

    name = WIRE

    def path(self, model: str, *, stream: bool) -> str:
        return "/messages"

    def headers(self, api_key: str | None) -> dict[str, str]:
        version = {"anthropic-version": VERSION}
        return {"x-api-key": api_key, **version} if api_key else version

    def encode(self, request: Request, *, model: str, profile: Profile, stream: bool, provider: str = "") -> bytes:
        own = profile_as(AnthropicProfile, profile)
        form = self.request_form(request, own)
        request = form.request
        settings, limits = request.settings, SchemaLimits()
        if request.output.schema is not None:
            _takes(request.output, limits)
        max_tokens = own.default_max_tokens if settings.max_tokens is None else settings.max_tokens
        with encoded_dialog(_DialogInTurns, form, provider, model, own) as dialog:
            body: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "messages": dialog.turns}
            if system := dialog.system:
                body["system"] = system
            if dialog.container:
                body["container"] = dialog.container
            is_offered = request.functions or settings.hosted_tools
            body |= _tools(request, model, own, limits) if is_offered else _withdrawn_functions(dialog, own)
            body |= _reasoning(settings, max_tokens, model, own)
            if own.reasoning == "budget" and _continues_without_thoughts(body["messages"]):
                body.pop("thinking", None)
            if body.get("thinking") == _OFF or (own.reasoning == "budget" and "thinking" not in body):
                body["messages"] = _without_begun_thoughts(body["messages"])
            if own.reasoning_bound and body.get("thinking", _ADAPTIVE) == _ADAPTIVE:
                body["thinking"] = {**_ADAPTIVE, **_UNBOUND}
            if request.output.schema is not None:
                format_ = kept(request.output, _form)
                body["output_config"] = {**body.get("output_config", {}), "format": format_}
            body |= _settings(settings, model, own)
            if stream:
                body["stream"] = True
            extra = merged_body(profile.extra_body, settings.extra_body)
            if settings.cache is not None:
                body = _with_breakpoints(body, settings.cache, extra, there=dialog.breakpoints)
            return to_json(merged_body(body, extra))

    def request_form(self, request: Request, profile: Profile) -> RequestForm:
        can_force = not _reasons_by_budget(request, profile_as(AnthropicProfile, profile))
        return choose_form(request, profile, takes=lambda output: _takes(output, SchemaLimits()), can_force=can_force)

    def taken_settings(self, settings: Settings, profile: Profile) -> frozenset[str]:
        return _accepted_settings(settings, profile_as(AnthropicProfile, profile))

    def request_headers(self, request: Request, profile: Profile) -> dict[str, str]:
        """Return the beta headers that the hosted tools and bound reasoning need."""
        types = [profile.hosted_tools.get(tool.kind) for tool in request.settings.hosted_tools]
        wanted = [BETAS[type_] for type_ in types if type_ in BETAS]
        wanted += [BINDING_BETA] * profile_as(AnthropicProfile, profile).reasoning_bound
        return {"anthropic-beta": ",".join(dict.fromkeys(wanted))} if wanted else {}

    def decoder(self, headers: Mapping[str, str]) -> AnthropicDecoder:
        return AnthropicDecoder(headers)


def _takes(output: Output, limits: SchemaLimits) -> bool:
    """Return whether the service can enforce the answer's schema within its limits.  If so, count the schema."""
    closed = kept(output, _closed_output)
    return closed is not None and limits.take(closed, of_function=False)


def _closed_output(output: Output) -> ClosedSchema | None:
    return closed_schema(output.schema or {})


def _closed_parameters(function: Function) -> ClosedSchema | None:
    return closed_schema(function.parameters)


def _form(output: Output) -> dict[str, Any]:
    closed = kept(output, _closed_output)
    return {"type": "json_schema", "schema": closed and closed.schema}


def _tools(request: Request, model: str, profile: AnthropicProfile, limits: SchemaLimits) -> dict[str, Any]:
    functions, choice = offered_functions(request, profile)
    tool_choice = {"type": choice}
    if choice not in ("auto", "none"):
        _refuse_force(request, model, profile)
        tool_choice = {"type": "any"} if choice == "required" else {"type": "tool", "name": choice}
    hosted = request.settings.hosted_tools
    types = [wire_type(tool, model=model, wire=WIRE, profile=profile) for tool in hosted]
    tools = [kept(f, _tool, _is_enforced(f, profile, limits)) for f in functions]
    fields: dict[str, Any] = {"tools": [*tools, *map(_hosted_tool, hosted, types)]}
    if servers := _servers(hosted):
        fields["mcp_servers"] = servers
    if request.settings.parallel_function_calls is False and choice != "none":
        return {**fields, "tool_choice": {**tool_choice, "disable_parallel_tool_use": True}}
    return {**fields, "tool_choice": tool_choice}


def _refuse_force(request: Request, model: str, profile: AnthropicProfile) -> None:
    choice, effort = request.tool_choice, request.settings.reasoning_effort
    if _reasons_by_budget(request, profile):
        raise UsageError(
            f"the model {model!r} cannot be forced to call a function while it reasons: got tool_choice={choice!r} "
            f"and reasoning_effort={effort!r}; leave one of them out"
        )


def _reasons_by_budget(request: Request, profile: AnthropicProfile) -> bool:
    return profile.reasoning == "budget" and request.settings.reasoning_effort not in (None, "none")


def _withdrawn_functions(dialog: _DialogInTurns, profile: AnthropicProfile) -> dict[str, Any]:
    """Declare the functions that the dialog calls but the request no longer offers, as the service requires."""
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
    effort, known = settings.reasoning_effort, SHARES if profile.reasoning == "budget" else None
    reasons, stops = profile.reasoning is not None, profile.reasoning_off is not None
    check_effort(settings, model, reasons=reasons, stops=stops, known=known)
    if effort is None or not reasons:
        return {}
    if effort == "none":
        return {"thinking": {"type": profile.reasoning_off}}
    if profile.reasoning == "adaptive":
        level = "low" if effort == "minimal" else effort
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": level}}
    budget = max(MIN_BUDGET, int(max_tokens * SHARES[effort]))
    if budget >= max_tokens:
        raise UsageError(
            f"max_tokens: expected more than {MIN_BUDGET}, which the model {model!r} needs to reason, got"
            f" {max_tokens!r}"
        )
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _continues_without_thoughts(turns: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last turn answers calls in a series that does not begin with reasoning.

    Another model began it, and Claude cannot begin to reason in the middle: "When `thinking` is enabled, a final
    `assistant` message must start with a thinking block".  https://github.com/anomalyco/opencode/issues/3077
    """
    begin = _begin_of_calls(turns)
    return begin < len(turns) and _first_type(turns[begin]) not in _THOUGHTS


def _without_begun_thoughts(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the turns without the reasoning in the series of calls that the last turn answers.

    Some clouds refuse it once reasoning is off: "When thinking is disabled, an `assistant` message in the final
    position cannot contain `thinking`".  https://github.com/tailcallhq/forgecode/issues/1853
    """
    begin = _begin_of_calls(turns)
    return [*turns[:begin], *map(_without_thoughts, turns[begin:])]


def _without_thoughts(turn: dict[str, Any]) -> dict[str, Any]:
    content = turn["content"]
    if turn["role"] != "assistant" or isinstance(content, str):
        return turn
    return {**turn, "content": [block for block in content if block.get("type") not in _THOUGHTS]}


def _begin_of_calls(turns: Sequence[Mapping[str, Any]]) -> int:
    """Return the index of the turn that begins the series of calls that the last turn answers, if it answers any."""
    begin = len(turns)
    while begin > 1 and _first_type(turns[begin - 1]) == "tool_result":
        begin -= 2
    return begin


def _first_type(turn: Mapping[str, Any]) -> str:
    content = turn["content"]
    return "text" if isinstance(content, str) else content[0].get("type", "")


def _accepted_settings(settings: Settings, profile: AnthropicProfile) -> frozenset[str]:
    """Return the sampling settings to send.  There are none while the model reasons, and there is never a seed."""
    if not profile.temperature or settings.reasoning_effort not in (None, "none"):
        return frozenset()
    has_both = settings.temperature is None or profile.temperature_with_top_p
    return frozenset(["temperature", "top_p"] if has_both else ["temperature"])


def _settings(settings: Settings, model: str, profile: AnthropicProfile) -> dict[str, Any]:
    check_settings(settings, model, profile.changed(logprobs=False))
    fields: dict[str, Any] = {"stop_sequences": list(settings.stop) or None}
    fields |= {name: getattr(settings, name) for name in sorted(_accepted_settings(settings, profile))}
    return {name: value for name, value in fields.items() if value is not None}


class _DialogInTurns(DialogEncoder):
    """Encodes a dialog as a system prompt and alternating user and assistant turns.

    Consecutive messages with the same role form one turn.  Function results come first in their turn, directly after
    the calls.  What the service refuses is omitted: texts without a visible character, reasoning at the end of a turn,
    and blanks at the end of a dialog that the model ends.  Other content of the service is sent back unchanged.
    """

    def __init__(self, model: str, profile: AnthropicProfile) -> None:
        self._system_in_dialog = profile.system_in_dialog
        self._is_claude = "claude" in model.lower()
        self._ids = CallIds(is_plain=True)
        self._toolsets: dict[str, Any] = {}  # by the id of the call
        self._prompts: list[list[Block]] = []
        self._turns: list[tuple[str, list[Block]]] = []
        self.function_names: dict[str, None] = {}  # of all calls, in order
        self.container: str | None = None  # where the service runs code
        self.breakpoints = 0  # cache breakpoints that the dialog already has

    def add(self, message: Message) -> None:
        blocks = list(self._blocks(message))
        role, turns = _ROLES[message.role], self._turns
        if role == "system" and not (turns and self._system_in_dialog):
            self._prompts.append(blocks)
        elif blocks and turns and turns[-1][0] == role != "system":
            turns[-1][1].extend(blocks)
        elif blocks:
            turns.append((role, blocks))

    @property
    def turns(self) -> list[dict[str, Any]]:
        turns: list[tuple[str, list[Block]]] = []
        for role, given in self._turns:
            blocks = _without_last_thoughts(given) if role == "assistant" else given
            if turns and turns[-1][0] == role != "system":
                turns[-1] = role, turns[-1][1] + blocks
            elif blocks:
                turns.append((role, blocks))
        if not turns:
            raise UsageError("the dialog: expected a message with content after the system message, got none; add one")
        opening = [{"role": "user", "content": OPENING}] if turns[0][0] == "assistant" else []
        role, blocks = turns[-1]
        if role == "assistant":
            turns[-1] = role, _without_last_blanks(blocks)
        said = [{"role": role, "content": _unwrap_text(_results_first(blocks))} for role, blocks in turns]
        return [*opening, *said]

    @property
    def uses_computer(self) -> bool:
        """True if the dialog contains calls to a computer toolset."""
        return COMPUTER in self._toolsets.values()

    @property
    def system(self) -> str | list[Block] | None:
        texts = ["".join([block["text"] for block in blocks]) for blocks in self._prompts if _is_plain(blocks)]
        if len(texts) == len(self._prompts):
            return "\n\n".join([text for text in texts if text]) or None
        return [block for blocks in self._prompts for block in blocks]

    def _blocks(self, message: Message) -> Iterator[Block]:
        beside: Mapping[str, Any] = {}
        for part in message.parts:
            if isinstance(part, Opaque) and part.wire == WIRE and isinstance(part.data, dict) and ADDS_TO in part.data:
                beside = part.data
                if beside[ADDS_TO] == "request":
                    self.container = beside.get("container")
                continue
            block = self._block(part, message.role, beside)
            if block is not None and beside.get(ADDS_TO) == block.get("type"):
                block |= {key: value for key, value in beside.items() if key != ADDS_TO}
            if block is not None:
                self.breakpoints += "cache_control" in block
                yield block
                if isinstance(part, FunctionResult) and part.is_error:
                    yield from self._beside(part, block)
            beside = {}

    def _block(self, part: Any, role: str, beside: Mapping[str, Any]) -> Block | None:
        match part:
            case Opaque():
                return dict(part.data) if part.wire == WIRE and isinstance(part.data, dict) else None
            case FunctionResult() if role in ("user", "tool"):
                return self._result(part)
            case FunctionCall() if role == "assistant":
                return self._call(part, beside.get(TOOLSET))
            case Reasoning() if role == "assistant" and beside.get(ADDS_TO) == "thinking":
                # Claude refuses reasoning that it did not sign.  DeepSeek does not sign, and requires it:
                # https://github.com/decolua/9router/issues/2397 (2026-07)
                is_taken = beside.get("signature") or not self._is_claude
                return {"type": "thinking", "thinking": part.text, "signature": ""} if is_taken else None
            case Text() if part.text.strip():  # "text content blocks must contain non-whitespace text"
                return {"type": "text", "text": part.text}
            case Image() | Document():
                return _media(part)
        return None

    def _call(self, call: FunctionCall, toolset: Any) -> Block:
        id = self._ids.of_call(call)
        if toolset is not None:
            name, arguments = action_of(call)
            self._toolsets[id] = toolset
        else:
            name, arguments = wire_name(call.name), arguments_object(call.arguments_json)
            self.function_names[name] = None
        return {"type": "tool_use", "id": id, "name": name, "input": arguments}

    def _result(self, result: FunctionResult) -> Block:
        id = self._ids.of_result(result)
        block: Block = {"type": "tool_result", "tool_use_id": id}
        if id in self._toolsets:
            block[TOOLSET] = self._toolsets[id]
        if result.is_error:  # "all content must be type 'text' if 'is_error' is true"
            return {**block, "content": result.text or "{}", "is_error": True}
        if not result.attachments:
            return {**block, "content": result.text or "{}"}
        texts = [{"type": "text", "text": result.text}] if result.text.strip() else []
        return {**block, "content": [*texts, *map(_media, result.attachments)]}

    def _beside(self, result: FunctionResult, block: Block) -> Iterator[Block]:
        """Yield an error result's attachments, because such a result cannot hold them."""
        if result.attachments:
            yield {"type": "text", "text": announced(result, block["tool_use_id"])}
            yield from map(_media, result.attachments)


def _media(part: Image | Document) -> Block:
    title = {"title": part.name} if isinstance(part, Document) and part.name else {}
    return {"type": part.kind, "source": _source(part), **title}


def _source(part: Image | Document) -> dict[str, str]:
    text = part.text if isinstance(part, Document) else None
    if isinstance(part, Document) and text is None and part.media_type != PDF:
        raise untakeable(part, WIRE, "a PDF, or the bytes of a text document")
    if part.data is None:
        return {"type": "url", "url": str(part.url)}
    if text is not None:
        return {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "base64", "media_type": str(part.media_type), "data": base64.b64encode(part.data).decode()}


def _results_first(blocks: Sequence[Block]) -> list[Block]:
    return sorted(blocks, key=lambda block: block.get("type") != "tool_result")


def _without_last_thoughts(blocks: list[Block]) -> list[Block]:
    """Return the blocks without reasoning at the end.

    "The final block in an assistant message cannot be `thinking`": https://github.com/tailcallhq/forgecode/issues/3071
    """
    count = len(blocks)
    while count and blocks[count - 1].get("type") in _THOUGHTS:
        count -= 1
    return blocks[:count]


def _without_last_blanks(blocks: list[Block]) -> list[Block]:
    """Return the blocks without blanks at the end.

    "final assistant content cannot end with trailing whitespace": https://github.com/crewAIInc/crewAI/issues/4413
    """
    *others, last = blocks
    text = last.get("text") if last.get("type") == "text" else None
    return [*others, {**last, "text": text.rstrip()}] if isinstance(text, str) else blocks


def _is_plain(blocks: Sequence[Block]) -> bool:
    return all(block.keys() == {"type", "text"} for block in blocks)


def _unwrap_text(blocks: list[Block]) -> str | list[Block]:
    return str(blocks[0]["text"]) if len(blocks) == 1 and _is_plain(blocks) else blocks


def _servers(tools: Sequence[HostedTool]) -> list[dict[str, Any]]:
    servers = list[dict[str, Any]]()
    for tool in tools:
        if isinstance(tool, HostedMCP):
            token = {"authorization_token": tool.authorization} if tool.authorization is not None else {}
            servers.append({"type": "url", "url": tool.url, "name": tool.label, **token})
    return servers


def _hosted_tool(tool: HostedTool, type_: str) -> dict[str, Any]:
    """Return the encoded tool.

    https://platform.claude.com/docs/en/agents-and-tools (2026-11), and the types in the SDK
    """

    def options_of(*supported: str) -> dict[str, Any]:
        return set_options(tool, *supported, type_=type_, wire=WIRE)

    match tool:
        case WebSearch():
            options = options_of("allowed_domains", "blocked_domains", "max_uses", "user_location")
            if tool.user_location is not None:
                options["user_location"] = {"type": "approximate", **differing(tool.user_location)}
            options |= {name: list(domains) for name, domains in options.items() if isinstance(domains, tuple)}
            return {"type": type_, "name": "web_search", **options}
        case CodeExecution():
            return {"type": type_, "name": "code_execution"}
        case ComputerUse() if type_.startswith(TOOLSETS):
            options_of()
            return {"type": type_}
        case ComputerUse():
            options_of("width", "height")
            size = {"display_width_px": tool.width, "display_height_px": tool.height}
            return {"type": type_, "name": "computer", **size}
        case HostedMCP():
            options_of("label", "url", "allowed_tools", "authorization")
            if not tool.url.startswith("https://"):
                raise UsageError(f"the url of MCP server {tool.label!r}: expected one that begins with 'https://'")
            only = {
                "default_config": {"enabled": False},
                "configs": {name: {"enabled": True} for name in tool.allowed_tools},
            }
            return {"type": type_, "mcp_server_name": tool.label, **(only if tool.allowed_tools else {})}


def _with_breakpoints(body: Mapping[str, Any], ttl: str, extra: Mapping[str, Any], *, there: int) -> dict[str, Any]:
    """Return the request with prompt-cache breakpoints at the ends of its messages, system prompt and functions.

    The service caches everything before a breakpoint, and a later request looks for cached content at its own
    breakpoints and up to 20 blocks before each.  The breakpoint in the messages covers the whole request as long as
    nothing before it changes.  The breakpoints after the system prompt and the functions serve other dialogs.
    https://platform.claude.com/docs/en/build-with-claude/prompt-caching (November 2026)

    Args:
        body: The request.  It is not modified.
        ttl: The lifetime of the cache: "5m", which is the default, or "1h".
        extra: The extra body.  Fields that it replaces get no breakpoint, and the breakpoints in it are counted.
        there: The number of breakpoints that the dialog already has.  If too few are left, the messages get theirs
            first, then the system prompt.
    """
    mark = {"type": "ephemeral", "ttl": ttl} if ttl != "5m" else {"type": "ephemeral"}
    marked = dict(body)
    there += _count(extra)
    for key, mark_last in (("messages", _marked_turns), ("system", _marked_blocks), ("tools", _marked_tools)):
        if there < MOST and key in body and key not in extra and (now := mark_last(body[key], mark)) is not None:
            marked[key] = now
            there += 1
    return marked


def _count(extra: Mapping[str, Any]) -> int:
    listed = [block for key in ("messages", "system", "tools") for block in _entries(extra.get(key))]
    blocks = [extra, *listed, *[block for entry in listed for block in _entries(entry.get("content"))]]
    return sum("cache_control" in block for block in blocks)


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list | tuple) else []


def _marked_turns(turns: Sequence[Block], mark: Block) -> list[Block] | None:
    for index in reversed(range(len(turns))):
        blocks = _blocks(turns[index]["content"])
        if _last(blocks) is not None:
            content = _marked_blocks(blocks, mark)
            return content and [*turns[:index], {**turns[index], "content": content}, *turns[index + 1 :]]
    return None


def _marked_blocks(content: str | Sequence[Block], mark: Block) -> list[Block] | None:
    """Return the blocks with a breakpoint on the last one that can have it, or None if none can."""
    blocks = _blocks(content)
    last = _last(blocks)
    if last is None or "cache_control" in blocks[last]:
        return None
    return [*blocks[:last], {**blocks[last], "cache_control": mark}, *blocks[last + 1 :]]


def _marked_tools(tools: Sequence[Block], mark: Block) -> list[Block]:
    return [*tools[:-1], {**tools[-1], "cache_control": mark}]


def _blocks(content: str | Sequence[Block]) -> Sequence[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _last(blocks: Sequence[Block]) -> int | None:
    """Return the index of the last block that can have a breakpoint.  Blank text cannot have one."""
    return next((index for index in reversed(range(len(blocks))) if _is_fit(blocks[index])), None)


def _is_fit(block: Block) -> bool:
    return block.get("type") in _TAKEN_ON and bool(str(block.get("text", "x")).strip())
