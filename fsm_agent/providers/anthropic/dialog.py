"""Encoding of dialogs as turns of Anthropic's Messages API."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fsm_agent.errors import UsageError
from fsm_agent.functions.hosted import COMPUTER, action_of
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
from fsm_agent.providers.anthropic.reply import ADDS_TO, TOOLSET, WIRE, arguments_object
from fsm_agent.providers.attachments import announced, check_visible, misplaced, untakeable
from fsm_agent.providers.codec import wire_name

Block = dict[str, Any]
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "user"}


class Turns(NamedTuple):
    """The end of an encoded dialog, and its parts outside of turns."""

    newest: dict[str, Any]
    prompts: tuple[Sequence[Block], ...]
    function_names: tuple[str, ...]  # of all calls, in order
    container: str | None  # where the service runs code
    breakpoints: int  # of the cache, in the parts themselves
    uses_computer: bool  # it holds calls of the toolset of a computer

    def system(self, words: str | None = None) -> str | list[Block] | None:
        """Return the system prompt, with ``words`` appended; None if it is empty."""
        prompts = [*self.prompts, [{"type": "text", "text": words}]] if words else self.prompts
        texts = ["".join([block["text"] for block in blocks]) for blocks in prompts if _is_plain(blocks)]
        if len(texts) == len(prompts):
            return "\n\n".join([text for text in texts if text]) or None
        return [block for blocks in prompts for block in blocks]


class DialogInTurns:
    """Encodes a dialog as a system prompt, and turns of user and assistant.

    Consecutive messages of one role are one turn.  Function results come first in theirs, directly after the calls.
    Texts without a visible character are omitted, since the service refuses them, except among the service's own
    content, which has to be sent back unchanged.

    Args:
        model: The model's name, for errors.
        images: True if the model takes images and PDFs.
        system_in_dialog: True if a system message may follow others; otherwise it goes to the system prompt.
    """

    def __init__(self, model: str, images: bool, system_in_dialog: bool) -> None:
        self._model = model
        self._images = images
        self._system_in_dialog = system_in_dialog
        self._ids = _CallIds()
        self._prompts: list[list[Block]] = []
        self._role = ""  # of the newest turn
        self._newest: list[Block] = []
        self._function_names: dict[str, None] = {}
        self._container: str | None = None
        self._breakpoints = 0
        self._toolsets: dict[str, Any] = {}  # by the id of the call

    def feed(self, message: Message) -> list[Any]:
        """Return the turn that the message completes, if any.

        Raises:
            UsageError: The message holds an unsupported part.
        """
        blocks = list(self._blocks(message))
        if all(block.get("type") == "text" and not str(block.get("text")).strip() for block in blocks):
            blocks = []
        if message.role == "system" and not (self._role and self._system_in_dialog):
            self._prompts.append(blocks)
            return []
        role = _ROLES[message.role]
        if not blocks or self._role == role != "system":
            self._newest += blocks
            return []
        whole = [self._turn()] if self._role else []
        self._role, self._newest = role, blocks
        return whole

    def finish(self) -> Turns:
        """Return the newest turn, and the parts of the dialog outside of turns.

        Raises:
            UsageError: The dialog is empty.
        """
        if not self._role:
            raise UsageError("the dialog: expected a message beside the system's, got none; add the user's")
        names = tuple(self._function_names)
        uses_computer = COMPUTER in self._toolsets.values()
        return Turns(self._turn(), tuple(self._prompts), names, self._container, self._breakpoints, uses_computer)

    def _turn(self) -> dict[str, Any]:
        blocks = sorted(self._newest, key=lambda block: block.get("type") != "tool_result")
        return {"role": self._role, "content": _unwrap_text(blocks)}

    def _blocks(self, message: Message) -> Iterator[Block]:
        beside: Mapping[str, Any] = {}
        for part in message.parts:
            if isinstance(part, Opaque) and part.wire == WIRE and isinstance(part.data, dict) and ADDS_TO in part.data:
                beside = part.data
                if beside[ADDS_TO] == "request":
                    self._container = beside.get("container")
                continue
            block = self._block(part, message.role, beside)
            if block is not None and beside.get(ADDS_TO) == block.get("type"):
                block |= {key: value for key, value in beside.items() if key != ADDS_TO}
            if block is not None:
                self._breakpoints += "cache_control" in block
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
            case Reasoning():  # reasoning of another provider's model has no signature of this one
                is_ours = role == "assistant" and beside.get(ADDS_TO) == "thinking"
                return {"type": "thinking", "thinking": part.text} if is_ours else None
            case Text() | Image() | Document() if role == "tool":
                raise UsageError(f"a message of role 'tool': expected function results alone, got {part!r}")
            case Text() if part.text and (role == "assistant" or not part.text.isspace()):
                return {"type": "text", "text": part.text}
            case Image() | Document() if role == "user":
                return self._media(part)
            case Image() | Document():
                raise misplaced(part, role)
        return None

    def _call(self, call: FunctionCall, toolset: Any) -> Block:
        id = self._ids.of_call(call)
        if toolset is not None:
            name, arguments = action_of(call)
            self._toolsets[id] = toolset
        else:
            name, arguments = wire_name(call.name), arguments_object(call.arguments_json)
            self._function_names[name] = None
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
        return {**block, "content": [*texts, *[self._media(part) for part in result.attachments]]}

    def _beside(self, result: FunctionResult, block: Block) -> Iterator[Block]:
        """Yield the attachments of a result that is an error, which cannot hold them."""
        if result.attachments:
            yield {"type": "text", "text": announced(result, block["tool_use_id"])}
            yield from [self._media(part) for part in result.attachments]

    def _media(self, part: Image | Document) -> Block:
        check_visible(part, self._model, images=self._images)
        title = {"title": part.name} if isinstance(part, Document) and part.name else {}
        return {"type": part.kind, "source": _source(part), **title}


def _source(part: Image | Document) -> dict[str, str]:
    text = part.text if isinstance(part, Document) else None
    if isinstance(part, Document) and text is None and part.media_type != PDF:
        raise untakeable(part, WIRE, "a PDF, or the bytes of a text")
    if part.data is None:
        return {"type": "url", "url": str(part.url)}
    if text is not None:
        return {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "base64", "media_type": str(part.media_type), "data": base64.b64encode(part.data).decode()}


class _CallIds:
    """Ids of calls for the service: unique, of allowed characters, and equal for a call and its result."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()
        self._by_part: dict[str, str] = {}

    def of_call(self, call: FunctionCall) -> str:
        wished = _wished(call)
        id = wished
        while id in self._used:
            id = f"{wished}_{self._used[wished]}"
            self._used[wished] += 1
        self._used[id] += 1
        self._by_part[_key(call)] = id
        return id

    def of_result(self, result: FunctionResult) -> str:
        return self._by_part.get(_key(result)) or _wished(result)


def _key(part: FunctionCall | FunctionResult) -> str:
    return part.id or part.provider_id or ""


def _wished(part: FunctionCall | FunctionResult) -> str:
    return _NOT_IN_IDS.sub("_", part.provider_id or f"call_{part.id}")


def _is_plain(blocks: Sequence[Block]) -> bool:
    return all(block.keys() == {"type", "text"} for block in blocks)


def _unwrap_text(blocks: list[Block]) -> str | list[Block]:
    """Return a single text as a string, other blocks unchanged."""
    return str(blocks[0]["text"]) if len(blocks) == 1 and _is_plain(blocks) else blocks
