"""Encoding of dialogs as contents of Gemini's API."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.errors import UsageError
from fsm_agent.functions.hosted import action_of, is_flagged
from fsm_agent.messages.message import (
    Document,
    FunctionCall,
    FunctionResult,
    Image,
    Message,
    Opaque,
    Part,
    Text,
)
from fsm_agent.messages.sources import url_suffix
from fsm_agent.providers.anthropic.reply import arguments_object
from fsm_agent.providers.attachments import MEDIA, announced, check_visible
from fsm_agent.providers.codec import wire_name
from fsm_agent.providers.gemini.reply import WIRE
from fsm_agent.providers.gemini.tools import IS_ACTION
from fsm_agent.providers.openai.parts import with_system_text

# Gemini 3 wants a signature with the first call of each step, and this one with calls that it has not made itself:
# "skip_thought_signature_validator", https://ai.google.dev/gemini-api/docs/thought-signatures (2026-11).
UNSIGNED = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="

# https://ai.google.dev/gemini-api/docs/image-understanding (2026-11)
_IMAGE_TYPES = {
    **{f".{suffix}": f"image/{suffix}" for suffix in ("png", "jpeg", "webp", "heic", "heif", "gif")},
    ".jpg": "image/jpeg",
}

# What may stand in a function's result: https://ai.google.dev/gemini-api/docs/function-calling#multimodal (2026-11)
_IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})


class Contents(NamedTuple):
    """The end of an encoded dialog."""

    system: list[dict[str, Any]]
    rest: list[dict[str, Any]]


class DialogInContents:
    """Encodes a dialog as an instruction, and turns of user and model.

    The results of one round of functions are one turn, as Gemini requires.  Media that a result cannot hold form a
    turn behind it.

    Args:
        model: The model's name, for errors.
        images: True if the model takes images and PDFs.
        media_in_results: True if it takes them in function results.
        words: Text to append to the system message.
    """

    def __init__(self, model: str, images: bool, media_in_results: bool, words: str | None) -> None:
        self._model = model
        self._images = images
        self._in_results = _IN_RESULTS if media_in_results else frozenset[str]()
        self._words = words  # None once they have been added
        self._system: list[dict[str, Any]] = []
        self._last: list[dict[str, Any]] = []  # the newest content: more results may belong to it
        self._beside: list[dict[str, Any]] = []
        self._last_role = ""
        self._actions: dict[str, FunctionCall] = {}  # of a computer, by id, until they have their results

    def feed(self, message: Message) -> list[Any]:
        """Return the contents that the message completes.

        Raises:
            UsageError: The message holds an unsupported part.
        """
        messages = with_system_text([message], self._words) if self._words else [message]
        self._words = None
        contents = [*self._last, *[content for each in messages for content in self._add_message(each)]]
        self._last = contents[-1:]
        return contents[:-1]

    def finish(self) -> Contents:
        """Return the instruction, and the contents that are not complete yet."""
        system = self._system if self._words is None else _system(with_system_text([], self._words)[0])
        beside = [{"role": "user", "parts": [*self._beside]}] if self._beside else []
        last = [{**content, "parts": [*content["parts"]]} for content in self._last]
        return Contents([*system], [*last, *beside])

    def _add_message(self, message: Message) -> list[dict[str, Any]]:
        contents: list[dict[str, Any]] = []
        if self._beside and not any(isinstance(part, FunctionResult) for part in message.parts):
            contents.append({"role": "user", "parts": self._beside})
            self._beside = []
        if message.role == "system":
            self._system += _system(message)
        elif message.role == "assistant":
            if parts := self._model_parts(message):
                contents.append({"role": "model", "parts": parts})
        elif message.role == self._last_role == "tool":
            (contents or self._last)[-1]["parts"] += self._user_parts(message.parts)
        else:
            contents.append({"role": "user", "parts": self._user_parts(message.parts)})
        if message.role != "assistant":
            self._beside += self._beside_of(message)
        self._last_role = message.role
        return contents

    def _user_parts(self, parts: Sequence[Part]) -> list[dict[str, Any]]:
        """Return the parts, function results first: Gemini requires them directly after the calls."""
        encoded = [self._result(part) for part in parts if isinstance(part, FunctionResult)]
        for part in parts:
            if isinstance(part, Text) and part.text:
                encoded.append({"text": part.text})
            elif isinstance(part, MEDIA):
                encoded += self._name_media(part)
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
            elif isinstance(part, MEDIA):
                parts += self._name_media(part)
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
        media = [self._media(part) for part in result.attachments if self._is_in_result(part)]
        parts = {"parts": media} if media else {}
        return {"functionResponse": {"name": name, "response": response, **parts, **id}}

    def _is_in_result(self, part: Image | Document) -> bool:
        return part.data is not None and _media_type(part) in self._in_results

    def _beside_of(self, message: Message) -> list[dict[str, Any]]:
        """Return media that function results cannot hold, introduced by the call that they belong to."""
        encoded: list[dict[str, Any]] = []
        for result in message.parts:
            if isinstance(result, FunctionResult):
                media = [part for part in result.attachments if not self._is_in_result(part)]
                encoded += [{"text": announced(result, result.provider_id)}] if media else []
                encoded += [named for part in media for named in self._name_media(part)]
        return encoded

    def _name_media(self, part: Image | Document) -> list[dict[str, Any]]:
        """Return the media, preceded by its name."""
        name = part.name if isinstance(part, Document) else None
        return [*([{"text": f"{name}:"}] if name else []), self._media(part)]

    def _media(self, part: Image | Document) -> dict[str, Any]:
        check_visible(part, self._model, images=self._images)
        media_type = _media_type(part)
        if part.data is not None:
            return {"inlineData": {"mimeType": media_type, "data": base64.b64encode(part.data).decode()}}
        file = {"fileUri": part.url}
        return {"fileData": {**file, "mimeType": media_type} if media_type else file}


def _media_type(part: Image | Document) -> str | None:
    """Return the media type to send: some models refuse text types other than plain."""
    if isinstance(part, Document):
        return "text/plain" if part.is_text else part.media_type
    return part.media_type or _IMAGE_TYPES.get(url_suffix(part.url or ""))


def _system(message: Message) -> list[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, MEDIA):
            raise UsageError(f"a system message: expected no image or document, got {part!r}")
    text = "".join([part.text for part in message.parts if isinstance(part, Text)])
    opaque = [part.data for part in message.parts if isinstance(part, Opaque) and part.wire == WIRE]
    return [*([{"text": text}] if text else []), *opaque]


def _sign(part: dict[str, Any], signature: str | None) -> dict[str, Any]:
    return {**part, "thoughtSignature": signature} if signature else part


def _call(call: FunctionCall, *, is_action: bool) -> dict[str, Any]:
    id = {"id": call.provider_id} if call.provider_id else {}
    name, arguments = action_of(call) if is_action else (wire_name(call.name), arguments_object(call.arguments_json))
    return {"functionCall": {"name": name, "args": arguments, **id}}


def _screen(text: str, action: FunctionCall) -> dict[str, Any]:
    """Return what is said of the screen after an action: an object, such as its URL, as it is, and the confirmation.

    https://ai.google.dev/gemini-api/docs/computer-use (November 2026); `is_flagged` actions are asked of a person.
    """
    try:
        state = pydantic_core.from_json(text)
    except ValueError:
        state = None
    response = state if isinstance(state, dict) else {"output": text}
    return {**response, "safety_acknowledgement": "true"} if is_flagged(action) else response
