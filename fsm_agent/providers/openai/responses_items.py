"""Conversion of items of the Responses API to parts of messages, and of dialogs to items.

In a message, an item is an `Opaque` part followed by the provider-independent parts.  The opaque part is the item as
received, without the content of the other parts: its id, phase, citations, encrypted reasoning, … are sent back to this
API and to no other.  An item that only this API understands is an opaque part alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.errors import UsageError
from fsm_agent.functions.hosted import COMPUTER
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
from fsm_agent.providers.attachments import MEDIA, announced, check_visible, file_name, misplaced
from fsm_agent.providers.citations import citations
from fsm_agent.providers.codec import Profile, wire_name
from fsm_agent.providers.openai.parts import CallIds, arguments_object, text_or_none, with_system_text

WIRE = "openai-responses"
MAX_ID = 64  # characters of a call's id; longer ones are refused
CALLS = {"function_call": "arguments", "custom_tool_call": "input"}  # types of items, and the field of their arguments
# Actions of a computer (one, or several in a row) with what a person has to confirm: computer_call and its output in
# https://developers.openai.com/api/docs/guides/tools-computer-use, and the types of the SDK 3.54 (November 2026).
_ACTION = ("action", "actions", "pending_safety_checks")
_UNSEEN = Image.of(  # a transparent pixel: the output of a computer has to be a picture
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)

_TEXTS = frozenset({"output_text", "summary_text", "reasoning_text"})  # types of an item's parts
# What services give and do not take: "Unknown parameter: 'input[1].status'", and the like (issues of clients of the
# API, read in November 2026: https://github.com/BerriAI/litellm/issues/13420 has the first).
_OUTPUT_ONLY = {
    "reasoning": ("status",),
    "function_call": ("status",),
    "custom_tool_call": ("status",),
    "image_generation_call": ("action", "background", "output_format", "quality", "revised_prompt", "size"),
}
_OF_EVENTS = ("item_id", "output_index")  # keys of a stream's events that Bedrock puts into items too


def item_parts(item: Mapping[str, Any], *, has_answer: bool = False) -> Iterator[Part]:
    """Yield an item as parts of a message; if another one is the answer, what was said on the way is reasoning."""
    kind = item_type(item)
    if kind == "message":
        content, _ = _strip_texts(entries(item.get("content")))
        yield Opaque(wire=WIRE, data={**item, "content": content})
        texts = [entry for entry in entries(item.get("content")) if _has_text(entry)]
        if has_answer and not is_answer(item):
            yield from [Reasoning(text=entry["text"]) for entry in texts]
        else:
            yield from [Text(entry["text"], annotations=citations(entry.get("annotations"))) for entry in texts]
    elif kind == "reasoning":
        summary, summaries = _strip_texts(entries(item.get("summary")))
        content, thought = _strip_texts(entries(item.get("content")))
        yield Opaque(wire=WIRE, data={**item, "summary": summary, **({"content": content} if content else {})})
        yield from [Reasoning(text=text) for text in (*summaries, *thought)]
    elif (call := call_of(item)) is not None:
        of_call = {"computer_call": _ACTION, "mcp_approval_request": ("id",)}.get(kind) or ("name", CALLS[kind])
        yield Opaque(wire=WIRE, data=_without(item, "call_id", *of_call))
        yield call
    else:
        yield Opaque(wire=WIRE, data=dict(item))


def is_answer(item: Mapping[str, Any]) -> bool:
    """Return whether a message says that it is the answer; others of the reply are then said on the way to it.

    The phases are ``commentary`` and ``final_answer``: openai-python 3.54, `ResponseOutputMessage` (November 2026).
    """
    return item.get("phase") == "final_answer"


def call_of(item: Mapping[str, Any]) -> FunctionCall | None:
    """Return the function call that an item is: of a function, a computer, or an MCP server that asks first."""
    kind = item_type(item)
    name, id = text_or_none(item.get("name")) or "", text_or_none(item.get("call_id"))
    if kind in CALLS:
        return FunctionCall(name=name, arguments_json=as_text(item.get(CALLS[kind])), provider_id=id)
    if kind == "computer_call":
        arguments: dict[str, Any] = {key: item[key] for key in _ACTION if item.get(key)}
        return FunctionCall(name=COMPUTER, arguments_json=as_text(arguments), provider_id=id)
    if kind == "mcp_approval_request":
        label, id = text_or_none(item.get("server_label")) or "", text_or_none(item.get("id"))
        arguments = {"name": name, "arguments": _parse(item.get("arguments"))}
        return FunctionCall(name=label, arguments_json=as_text(arguments), provider_id=id)
    return None


class InputItems:
    """Encodes a dialog as items; each call and its result share an id that is unique in the dialog.

    Args:
        model: The model's name, for errors.
        profile: The model's capabilities.
        is_stored: True if the provider stores the dialog, so that reasoning is sent by its id alone.
        words: Text to append to the system message.
    """

    def __init__(self, model: str, profile: Profile, is_stored: bool, words: str | None) -> None:
        self._model = model
        self._profile = profile
        self._is_stored = is_stored
        self._words = words  # None once they have been added
        self._ids = CallIds(most=MAX_ID)
        self._heads: dict[str, Mapping[str, Any]] = {}  # by id, of calls that are not of plain functions

    def feed(self, message: Message) -> list[Any]:
        """Return the items of the next message.

        Raises:
            UsageError: It holds a part that its role or the model does not support.
        """
        messages = with_system_text([message], self._words) if self._words else [message]
        self._words = None
        return [item for each in messages for item in self._items_of(each)]

    def finish(self) -> list[Any]:
        """Return [], or the system message if the dialog was empty."""
        return (
            [item for each in with_system_text([], self._words) for item in self._input_items(each)]
            if self._words
            else []
        )

    def _items_of(self, message: Message) -> Iterator[Any]:
        yield from [item for part in message.parts if isinstance(part, FunctionResult) for item in self._result(part)]
        yield from self._reply_items(message) if message.role == "assistant" else self._input_items(message)

    def _input_items(self, message: Message) -> Iterator[Any]:
        """Yield the items of a message that is not the model's."""
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        content: list[Any] = []
        items: list[Any] = []
        for part in message.parts:
            if isinstance(part, Opaque) and part.wire == WIRE and not item_type(part.data).startswith("input_"):
                items.append(part.data)
            else:
                content += self._content(part, message)
        role = self._profile.system_role if message.role == "system" else message.role
        is_plain = len(content) == len(texts) and (message.role == "system" or len(texts) < 2)
        if content or (not message.parts and message.role != "tool"):
            yield {"role": role, "content": "".join(texts) if is_plain else content}
        yield from items

    def _content(self, part: Part, message: Message) -> list[Any]:
        if isinstance(part, FunctionResult) or (isinstance(part, Opaque) and part.wire != WIRE):
            return []
        if message.role == "tool":
            raise UsageError(f"a message of role 'tool': expected function results alone, got {part.kind!r}")
        if isinstance(part, Opaque):
            return [part.data]
        if isinstance(part, Text):
            return [{"type": "input_text", "text": part.text}]
        if not isinstance(part, MEDIA):
            return []
        if message.role != "user":
            raise misplaced(part, message.role)
        return [self._media(part)]

    def _media(self, part: Image | Document) -> dict[str, Any]:
        """Encode an image or any file: https://developers.openai.com/api/docs/guides/file-inputs (2026-11)."""
        check_visible(part, self._model, images=self._profile.images)
        if isinstance(part, Image):
            return {"type": "input_image", "detail": "auto", "image_url": part.data_url()}
        if part.data is None:
            return {"type": "input_file", "file_url": part.data_url()}
        return {"type": "input_file", "filename": file_name(part), "file_data": part.data_url()}

    def _reply_items(self, message: Message) -> list[Any]:
        """Return the items of the model's message, without reasoning that would be refused."""
        for part in message.parts:
            if isinstance(part, MEDIA):
                raise misplaced(part, message.role)
        items = [_strip_refused(item) for head, parts in _group_by_item(message) for item in self._items(head, parts)]
        items = [item for item in items if item_type(item) != "reasoning" or self._is_known(item)]
        while items and item_type(items[-1]) == "reasoning":  # it is refused without the item that follows it
            items.pop()
        return items

    def _is_known(self, reasoning: Mapping[str, Any]) -> bool:
        """Return True if the service accepts the reasoning item.

        Services that encrypt reasoning accept it in no other form: "Invalid 'input[1].content': array too long.
        Expected an array with maximum length 0".  Others (DeepSeek, vLLM) want the text.  Both
        https://github.com/microsoft/agent-framework-go/pull/784 and https://github.com/vllm-project/vllm/pull/28248,
        read in November 2026.
        """
        if self._is_stored or reasoning.get("encrypted_content"):
            return True
        return self._profile.reasoning_name != "encrypted_content" and bool(reasoning.get("content"))

    def _items(self, head: Any, parts: Sequence[Part]) -> Iterator[Any]:
        """Yield an item with its parts, then parts of other origin: a message between calls may be refused."""
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
        return {**head, "call_id": id, "name": name, "arguments": arguments_object(call.arguments_json)}

    def _result(self, result: FunctionResult) -> Iterator[dict[str, Any]]:
        id = self._ids.of_result(result)
        head = self._heads.get(id, {})
        kind = item_type(head) or "function_call"
        if kind == "mcp_approval_request":
            refused = {"reason": result.text} if result.is_error else {}  # a reason to approve is refused
            approve = not result.is_error
            yield {"type": "mcp_approval_response", "approval_request_id": id, "approve": approve, **refused}
        elif kind == "computer_call":
            yield from self._screen(result, id, head)
        elif result.attachments:
            words = [{"type": "input_text", "text": result.text}] if result.text else []
            output = [*words, *[self._media(part) for part in result.attachments]]
            yield {"type": f"{kind}_output", "call_id": id, "output": output}
        else:  # an empty string is refused as null by some services
            yield {"type": f"{kind}_output", "call_id": id, "output": result.text or "{}"}

    def _screen(self, result: FunctionResult, id: str, head: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the screen after an action, and what its output cannot hold: words, and further attachments."""
        rest = list(result.attachments)
        screen = next((part for part in reversed(rest) if isinstance(part, Image)), None)
        if screen is not None:
            check_visible(screen, self._model, images=self._profile.images)
            rest.remove(screen)
        shown = {"type": "computer_screenshot", "image_url": (screen or _UNSEEN).data_url()}
        item: dict[str, Any] = {"type": "computer_call_output", "call_id": id, "output": shown}
        if not result.is_error and (checks := head.get("pending_safety_checks")):
            item["acknowledged_safety_checks"] = checks
        yield item
        text = result.text.strip()
        if text or rest:
            words = f"{announced(result, id)}\n{text}".strip()
            content = [{"type": "input_text", "text": words}, *[self._media(part) for part in rest]]
            yield {"role": "user", "content": content}


def _group_by_item(message: Message) -> Iterator[tuple[Any, list[Part]]]:
    """Yield each item with its parts of the message, or None with parts of other origin."""
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
    """Return the message item with these texts; None if it is empty now.

    If the texts differ from those of the item, citations are omitted.
    """
    content = _fill(entries(head.get("content")), texts)
    if content is None:
        outputs = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
        content = [*outputs, *_rest(head.get("content"))]
    return {**head, "content": content} if content else None


def _reasoning_item(head: Mapping[str, Any], thoughts: Sequence[str]) -> dict[str, Any]:
    """Return the reasoning item with these texts; without any if they differ from those of the item."""
    summary, content = entries(head.get("summary")), entries(head.get("content"))
    filled = _fill([*summary, *content], thoughts) or []
    item = {**_without(head, "content"), "summary": filled[: len(summary)]}
    thought = filled[len(summary) :]
    return {**item, "content": thought} if thought else item


def item_type(item: Any) -> str:
    """Return the type of an item, of an entry in one, or of an event; "" if it has none."""
    return (text_or_none(item.get("type")) or "") if isinstance(item, Mapping) else ""


def entries(content: Any) -> list[dict[str, Any]]:
    """Return the entries in the content of an item."""
    return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []


def _parse(arguments: Any) -> Any:
    try:
        return pydantic_core.from_json(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def as_text(value: Any) -> str:
    """Return a function's arguments as text, also if the service sent parsed JSON."""
    return value if isinstance(value, str) else "" if value is None else pydantic_core.to_json(value).decode()


def _strip_refused(item: Any) -> Any:
    """Return an item without the fields that its service refuses as input."""
    kind = item_type(item)
    if kind == "web_search_call" and isinstance(action := item.get("action"), dict):
        item = {**item, "action": _without(action, "sources")}
    return _without(item, *_OUTPUT_ONLY.get(kind, ()), *_OF_EVENTS) if kind else item


def _strip_texts(content: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the entries without their texts, and the texts."""
    texts = [entry["text"] for entry in content if _has_text(entry)]
    return [_without(entry, "logprobs", *(("text",) if _has_text(entry) else ())) for entry in content], texts


def _has_text(entry: Mapping[str, Any]) -> bool:
    return item_type(entry) in _TEXTS and text_or_none(entry.get("text")) is not None


def _is_hollow(entry: Mapping[str, Any]) -> bool:
    return item_type(entry) in _TEXTS and "text" not in entry


def _fill(content: list[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]] | None:
    """Return the entries with their texts; None if the numbers differ."""
    left = list(reversed(texts))
    if sum(map(_is_hollow, content)) != len(left):
        return None
    return [{**entry, "text": left.pop()} if _is_hollow(entry) else entry for entry in content]


def _rest(content: Any) -> list[dict[str, Any]]:
    return [entry for entry in entries(content) if not _is_hollow(entry)]


def _without(item: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in keys}
