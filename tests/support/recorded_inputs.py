"""Which `Request` would have led to a recorded request of the Responses API, and what does such JSON mean?"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import WithJsonSchema

from fsm_agent.call import Request
from fsm_agent.messages import Document, FunctionResult, Image, Message, Opaque, Part, Settings, Text
from fsm_agent.prompts import Output
from fsm_agent.providers import Profile
from support.recorded_requests import Body, _function, _function_meaning, _schema_meaning
from support.response_bodies import CODEC

ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_output_tokens": "max_tokens",
    "top_logprobs": "top_logprobs",
    "parallel_tool_calls": "parallel_function_calls",
}
_READ = {"model", "input", "instructions", "stream", "tools", "tool_choice", "include", "text", "reasoning", *_SETTINGS}


def built(body: Body) -> tuple[Request, Profile]:
    """The request, and what the model must have been able to take."""
    extra = {key: value for key, value in body.items() if key not in _READ and value is not None}
    settings = {ours: body[theirs] for theirs, ours in _SETTINGS.items() if body.get(theirs) is not None}
    include, tools, choice = body.get("include") or [], body.get("tools") or (), body.get("tool_choice") or "auto"
    if LOGPROBS in include:
        settings.setdefault("top_logprobs", 0)
    if set(include) - {ENCRYPTED, LOGPROBS}:
        extra["include"] = include
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") != "json_schema" and _text_meaning(body):
        extra["text"] = body["text"]
    thinks = body.get("reasoning") or {}
    if set(thinks) <= {"effort"}:
        settings["reasoning_effort"] = thinks.get("effort")
    else:
        extra["reasoning"] = thinks
    if any(tool["type"] != "function" for tool in tools):  # which the service runs
        extra |= {"tools": tools, "tool_choice": choice}
        tools = ()
    has_schema = form.get("type") == "json_schema"
    request = Request(
        messages=list(_messages(body)),
        functions=tuple([_function(tool) for tool in tools]),
        tool_choice=choice["name"] if isinstance(choice, dict) else choice,
        output=Output(Annotated[Any, WithJsonSchema(form["schema"])]) if has_schema else Output(str),
        settings=Settings(**settings, extra_body=extra),
    )
    roles = {item.get("role") for item in body["input"]} if isinstance(body["input"], list) else set()
    return request, Profile(
        system_role="developer" if "developer" in roles else "system",
        reasoning_name="encrypted_content" if ENCRYPTED in include else None,
    )


def _messages(body: Body) -> Iterator[Message]:
    if body.get("instructions"):
        yield Message.of("system", body["instructions"])
    if isinstance(body["input"], str):
        yield Message.of("user", body["input"])
        return
    replied: list[Part] = []
    for item in body["input"]:
        said = _message(item)
        if said is None:
            replied += _replied(item)
            continue
        if replied:
            yield Message(role="assistant", parts=tuple(replied))
            replied = []
        yield said
    if replied:
        yield Message(role="assistant", parts=tuple(replied))


def _replied(item: Body) -> Iterator[Part]:
    """What the model said itself; without an id it may have said it over another wire."""
    content = item.get("content")
    if isinstance(content, str):
        yield Text(content)
        return
    answer = json.dumps({"status": "completed", "output": [{"type": "message", **item}]}).encode()
    for part in CODEC.decode(200, {}, answer).message.parts:
        if not isinstance(part, Opaque) or "id" in item or item.get("type") != "function_call" or "namespace" in item:
            yield part


def _message(item: Body) -> Message | None:
    """Return a message to the model, or None for the model's own messages."""
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "function_call_output":
        return Message.of("tool", FunctionResult(id="", name="", text=item["output"], provider_id=item["call_id"]))
    if role in (None, "assistant"):
        return None
    role = "system" if role == "developer" else role
    if kind != "message":
        return Message.of(role, Opaque(wire="openai-responses", data=item))
    content = item["content"]
    return Message.of(role, *([content] if isinstance(content, str) else [_part(part) for part in content]))


def _part(part: Body) -> Part:
    if part["type"] == "input_text":
        return Text(part["text"])
    if part["type"] == "input_image" and part.get("detail", "auto") == "auto":
        return Image.of(part["image_url"])
    if part["type"] == "input_file" and "file_url" in part:
        return Document.of(part["file_url"])
    if part["type"] == "input_file":
        head, _, data = part["file_data"].partition(",")
        media_type = head.removeprefix("data:").removesuffix(";base64")
        return Document(data=base64.b64decode(data), media_type=media_type, name=part["filename"])
    return Opaque(wire="openai-responses", data=part)


def meaning(body: Body) -> Body:
    """The JSON without what makes no difference to any service: compare meanings, not spellings."""
    body = {key: value for key, value in body.items() if value is not None}
    items = body.pop("input")
    items = [{"role": "user", "content": items}] if isinstance(items, str) else items
    if instructions := body.pop("instructions", ""):  # the same as a message at the front
        roles = {item.get("role") for item in items}
        items = [{"role": "developer" if "developer" in roles else "system", "content": instructions}, *items]
    tools, choice = body.pop("tools", ()), body.pop("tool_choice", "auto")
    form = _text_meaning(body)
    body.pop("text", None)
    return {
        **body,
        "input": [_item_meaning(item) for item in items],
        "tools": [_tool_meaning(tool) for tool in tools],
        "tool_choice": choice if tools else "auto",
        "text": form,
        "include": sorted(body.get("include", ())),
        "stream": body.get("stream", False),
        "store": body.get("store", False),  # kept at the provider only where that is asked for
    }


def without_messages_between_calls(body: Body) -> Body:
    """Return the request with neighbouring texts of the model joined, before its calls."""
    items: list[Body] = []
    for item in body.get("input", ()):
        is_text = item.get("role") == "assistant" and isinstance(item["content"], str)
        start = len(items)
        while is_text and start and items[start - 1].get("type") == "function_call":
            start -= 1
        if is_text and start and items[start - 1].get("role") == "assistant":
            items[start - 1] = {**item, "content": items[start - 1]["content"] + item["content"]}
        else:
            items.insert(start, item)
    return {**body, "input": items} if "input" in body else body


def with_closed_objects(body: Any) -> Any:
    """Return the request with closed objects in the schemas of its outputs."""
    if isinstance(body, list):
        return [with_closed_objects(item) for item in body]
    if not isinstance(body, dict):
        return body
    changed = {key: value if key == "tools" else with_closed_objects(value) for key, value in body.items()}
    return {"additionalProperties": False, **changed} if isinstance(changed.get("properties"), dict) else changed


def _text_meaning(body: Body) -> Any:
    text = dict(body.get("text") or {})
    form = text.pop("format", None) or {}
    if form.get("type") == "json_schema":
        text["schema"] = _schema_meaning(form["schema"])
    elif form.get("type", "text") != "text":
        text["format"] = form
    return text


def _tool_meaning(tool: Body) -> Body:
    if tool["type"] != "function":
        return tool
    return _function_meaning({key: value for key, value in tool.items() if value is not None})


def _item_meaning(item: Body) -> Body:
    said = {key: value for key, value in item.items() if value is not None}
    kind = said.pop("type", "message")
    if kind == "message":
        content = said["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else [_plain(part) for part in content]
        said["content"] = parts
    elif kind == "function_call":
        said.pop("status", None)
        said["arguments"] = json.loads(said["arguments"])
    elif kind == "function_call_output":
        said["output"] = said["output"] or "{}"
    return {"type": kind, **said}


def _plain(part: Body) -> Body:
    kind = "text" if part["type"] in ("input_text", "output_text") else part["type"]
    said = {key: value for key, value in part.items() if value not in ([], "auto")}
    return {**said, "type": kind}
