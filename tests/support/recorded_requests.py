"""Which `Request` would have led to a recorded chat-completions request, and what does such JSON mean?"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any

from pydantic import WithJsonSchema

from fsm_agent.call import Request
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import (
    Document,
    FunctionCall,
    FunctionResult,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Settings,
    Text,
)
from fsm_agent.prompts import Output
from fsm_agent.providers import Profile

Body = dict[str, Any]
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "stop": "stop",
    "seed": "seed",
    "random_seed": "seed",
    "parallel_tool_calls": "parallel_function_calls",
    "reasoning_effort": "reasoning_effort",
}
_READ = {"model", "messages", "stream", "stream_options", "tools", "tool_choice", "response_format", "logprobs"}
_READ |= {"top_logprobs", *_SETTINGS}


def unbuildable(body: Body) -> str | None:
    """Why no `Request` of ours leads to this; None when one does."""
    if "functions" in body:
        return "the functions of the time before tools"
    if any(tool.get("type", "function") != "function" for tool in body.get("tools") or ()):
        return "tools that the server runs"
    return None


def built(body: Body) -> tuple[Request, Profile]:
    """The request, and what the model must have been able to take."""
    messages = [_message(entry) for entry in body["messages"]]
    functions = tuple([_function(tool["function"]) for tool in body.get("tools") or ()])
    choice = body.get("tool_choice") or "auto"
    choice = choice["function"]["name"] if isinstance(choice, dict) else {"any": "required"}.get(choice, choice)
    form = body.get("response_format") or {}
    is_schema = form.get("type") == "json_schema"
    settings = {ours: body[theirs] for theirs, ours in _SETTINGS.items() if body.get(theirs) is not None}
    if isinstance(stop := settings.get("stop"), str):
        settings["stop"] = (stop,)
    extra = {key: value for key, value in body.items() if key not in _READ and value is not None}
    if form and not is_schema:
        extra["response_format"] = form
    if body.get("logprobs"):
        settings["top_logprobs"] = body.get("top_logprobs", 0)
    request = Request(
        messages=messages,
        functions=functions,
        tool_choice=choice,
        output=Output(Annotated[Any, WithJsonSchema(form["json_schema"]["schema"])]) if is_schema else Output(str),
        settings=Settings(**settings, extra_body=extra),
    )
    return request, _profile(body)


def _profile(body: Body) -> Profile:
    roles = {entry["role"] for entry in body["messages"]}
    names = {key for entry in body["messages"] if entry["role"] == "assistant" for key in entry}
    parts = {
        part["type"]
        for entry in body["messages"]
        if isinstance(entry.get("content"), list)
        for part in entry["content"]
    }
    reasoning = [name for name in ("reasoning_details", "reasoning", "reasoning_content") if name in names]
    return Profile(
        max_tokens_name="max_completion_tokens" if "max_completion_tokens" in body else "max_tokens",
        seed_name="random_seed" if "random_seed" in body else "seed",
        system_role="developer" if "developer" in roles else "system",
        stream_usage="stream_options" in body,
        reasoning_name="thinking" if "thinking" in parts else reasoning[0] if reasoning else None,  # type: ignore[arg-type]
    )


def _message(entry: Body) -> Message:
    role, content = entry["role"], entry.get("content")
    texts = [content] if isinstance(content, str) else content or []
    parts: list[Part] = [_part(part) for part in texts]
    if role == "tool":
        text = "".join([part.text for part in parts if isinstance(part, Text)])
        return Message.of("tool", FunctionResult(id="", name="", text=text, provider_id=entry["tool_call_id"]))
    thought = entry.get("reasoning") or entry.get("reasoning_content")
    if thought:
        parts.insert(0, Reasoning(text=thought))
    parts += [
        FunctionCall(
            name=call["function"]["name"], arguments_json=call["function"]["arguments"], provider_id=call["id"]
        )
        for call in entry.get("tool_calls") or ()
    ]
    return Message(role="system" if role == "developer" else role, parts=tuple(parts))


def _part(part: Any) -> Part:
    if isinstance(part, str):
        return Text(part)
    if part["type"] == "text" and part.keys() == {"type", "text"}:
        return Text(part["text"])
    if part["type"] == "thinking":
        return Reasoning(text="".join([piece["text"] for piece in part["thinking"]]))
    if part["type"] == "image_url" and isinstance(image := part["image_url"], dict) and image.keys() == {"url"}:
        with suppress(UsageError):  # some were recorded to see how a service answers to what is no image
            return Image.of(image["url"])
    if part["type"] == "file" and part["file"]["file_data"].startswith("data:"):  # OpenRouter takes URLs too
        return Document.of(part["file"]["file_data"], name=part["file"]["filename"])
    return Opaque(wire="openai-chat", data=part)


def _function(function: Body) -> Function:
    return Function(
        name=function["name"],
        description=function.get("description", ""),
        parameters=function.get("parameters") or {"type": "object", "properties": {}},
    )


def meaning(body: Body) -> Body:
    """The JSON without what makes no difference to any service: compare meanings, not spellings."""
    body = {key: value for key, value in body.items() if value is not None}
    messages = [_entry_meaning(entry) for entry in body.pop("messages")]
    functions = [_function_meaning(tool["function"]) for tool in body.pop("tools", ())]
    choice = body.pop("tool_choice", "auto") if functions else body.pop("tool_choice", None) and None
    if isinstance(choice, dict):
        choice = choice["function"]["name"]
    form = body.pop("response_format", {})
    if "json_schema" in form:
        form = _schema_meaning(form["json_schema"]["schema"])
    stop = body.pop("stop", [])
    stream = body.pop("stream", False)
    if body.get("logprobs") is False:
        del body["logprobs"]
    return {
        **body,
        "messages": messages,
        "functions": functions,
        "tool_choice": {"any": "required"}.get(choice, choice) if isinstance(choice, str) else choice,
        "response_format": form,
        "stop": [stop] if isinstance(stop, str) else stop,
        "stream": stream,
    }


def _entry_meaning(entry: Body) -> Body:
    said: Body = {"role": entry["role"], "content": _content_meaning(entry)}
    if entry["role"] == "tool":
        said["tool_call_id"] = entry["tool_call_id"]
        said["content"] = said["content"] or "{}"
    if entry["role"] == "assistant":
        said["reasoning"] = entry.get("reasoning") or entry.get("reasoning_content") or ""
        said["tool_calls"] = [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"] or "{}"))
            for call in entry.get("tool_calls") or ()
        ]
    return said


def _content_meaning(entry: Body) -> Any:
    content = entry.get("content") or ""
    if isinstance(content, str) or (entry["role"] == "user" and len(content) > 1):
        return content
    return content if any(part.keys() != {"type", "text"} for part in content) else "".join(p["text"] for p in content)


def _function_meaning(function: Body) -> Body:
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "parameters": _schema_meaning(function.get("parameters") or {"type": "object", "properties": {}}),
    }


def _schema_meaning(schema: Any) -> Any:
    """A schema without what strict mode adds (closed objects) or refuses (defaults, `$schema`)."""
    if isinstance(schema, list):
        return [_schema_meaning(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left = {key: _schema_meaning(value) for key, value in schema.items() if key not in ("default", "$schema")}
    if left.get("additionalProperties") is False:
        del left["additionalProperties"]
    if isinstance(left.get("required"), list):
        left["required"] = sorted(left["required"])
    if not left.get("required"):
        left.pop("required", None)
    return left
