"""Which `Request` would have led to a recorded request of Anthropic's wire, and what does such JSON mean?"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import WithJsonSchema

from fsm_agent.call import Request
from fsm_agent.functions import Function
from fsm_agent.messages import Document, FunctionResult, Image, Message, Opaque, Part, Settings, Text
from fsm_agent.prompts import Output
from fsm_agent.providers import AnthropicProfile
from support.messages_bodies import CODEC

Body = dict[str, Any]
_SETTINGS = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens"}
_READ = {"model", "messages", "system", "stream", "tools", "tool_choice", "stop_sequences", "output_format", *_SETTINGS}
_FUNCTION_KEYS = {"name", "description", "input_schema", "strict", "type", "cache_control"}

# Where we differ on purpose, and why; `meaning` leaves it out on both sides.
INTENDED = {
    "strict": "decided from the schema: with every property required it is, otherwise it is not",
    "cache_control of a function": "the breakpoint of the system prompt, or the automatic one, covers the functions",
    "output_format": "the older name of `output_config.format`, which needed a beta header",
    "is_error of a result that is none": "the default",
    "a result in parts that are all text": "is told as one text",
    "neighbours of one role": "are one turn to the service",
    "the direct caller of a function": "the default",
    "temperature 1 beside a budget to think with": "the only one that is taken there, and the default",
}


def built(body: Body) -> tuple[Request, AnthropicProfile]:
    """The request, and what the model must have been able to take."""
    system = body.get("system") or []
    parts = [Text(system)] if isinstance(system, str) else [_part(block) for block in system]
    messages = [Message(role="system", parts=tuple(parts))] if parts else []
    for entry in body["messages"]:
        messages += _messages(entry)
    settings = {ours: body[theirs] for theirs, ours in _SETTINGS.items() if body.get(theirs) is not None}
    extra = {key: value for key, value in body.items() if key not in _READ and value is not None}
    form = (extra.get("output_config") or {}).get("format") or body.get("output_format")
    if form and extra.get("output_config", {}).keys() <= {"format"}:
        extra.pop("output_config", None)
    if effort := _effort(extra.get("thinking"), body["max_tokens"]):
        settings["reasoning_effort"] = effort
        del extra["thinking"]
    functions, tools = _functions(body.get("tools") or [])
    choice = body.get("tool_choice") or {"type": "auto"}
    if choice.get("disable_parallel_tool_use"):
        settings["parallel_function_calls"] = False
    if tools:
        extra |= {"tools": tools, "tool_choice": choice}
    request = Request(
        messages=messages,
        functions=functions,
        tool_choice=choice.get("name") or {"any": "required"}.get(choice["type"], choice["type"]),
        output=Output(Annotated[Any, WithJsonSchema(form["schema"])]) if form else Output(str),
        settings=Settings(**settings, stop=tuple(body.get("stop_sequences") or ()), extra_body=extra),
    )
    in_dialog = any(entry["role"] == "system" for entry in body["messages"])
    return request, AnthropicProfile(reasoning="budget", system_in_dialog=in_dialog, temperature_with_top_p=True)


def _messages(entry: Body) -> Iterator[Message]:
    content = entry["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if entry["role"] == "assistant":
        yield CODEC.decode(200, {}, json.dumps({"content": blocks}).encode()).message
        return
    parts = [_part(block) for block in blocks]
    results = [part for part in parts if isinstance(part, FunctionResult)]
    if results:
        yield Message.of("tool", *results)
    if len(results) < len(parts):
        yield Message.of(entry["role"], *[part for part in parts if not isinstance(part, FunctionResult)])


def _part(block: Body) -> Part:
    if block.keys() == {"type", "text"}:
        return Text(block["text"])
    if block["type"] == "tool_result" and block.keys() <= {"type", "tool_use_id", "content", "is_error"}:
        text = _result_text(block["content"])
        if isinstance(text, str):
            error = block.get("is_error", False)
            return FunctionResult(id="", name="", text=text, provider_id=block["tool_use_id"], is_error=error)
    if block["type"] == "image" and block.keys() == {"type", "source"}:
        source = block["source"]
        if source["type"] == "url":
            return Image(url=source["url"])
        if source["type"] == "base64":
            return Image(data=base64.b64decode(source["data"]), media_type=source["media_type"])
    if block["type"] == "document" and block.keys() <= {"type", "source", "title"}:
        source, name = block["source"], block.get("title")
        if source["type"] == "url":
            return Document(url=source["url"], name=name)
        data = base64.b64decode(source["data"]) if source["type"] == "base64" else source["data"].encode()
        return Document(data=data, media_type=source["media_type"], name=name)
    return Opaque(wire="anthropic", data=block)


def _effort(thinking: Body | None, max_tokens: int) -> str | None:
    """The effort that is said with this budget."""
    if not thinking or thinking.keys() != {"type", "budget_tokens"}:
        return None
    shares = {"max": 0.8, "xhigh": 0.8, "high": 0.6, "medium": 0.4, "low": 0.2, "minimal": 0.0}
    budgets = {max(1_024, int(max_tokens * share)): effort for effort, share in shares.items()}
    return budgets.get(thinking["budget_tokens"])


def _functions(tools: list[Body]) -> tuple[tuple[Function, ...], list[Body]]:
    """Return functions, or the tools unchanged if the service runs one of them or has more information about them."""
    if any(tool.get("type", "custom") != "custom" or not tool.keys() <= _FUNCTION_KEYS for tool in tools):
        return (), tools
    functions = [
        Function(name=tool["name"], description=tool.get("description", ""), parameters=tool["input_schema"])
        for tool in tools
    ]
    return tuple(functions), []


def meaning(body: Body) -> Body:
    """The JSON without what makes no difference to the service: compare meanings, not spellings."""
    body = {key: value for key, value in body.items() if value is not None}
    if body.get("thinking", {}).get("type") == "enabled" and body.get("temperature") == 1:
        del body["temperature"]
    turns: list[Body] = []
    for entry in body.pop("messages"):
        blocks = [_block_meaning(block) for block in _blocks(entry["content"])]
        if turns and turns[-1]["role"] == entry["role"]:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": entry["role"], "content": blocks})
    for turn in turns:
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    system = _blocks(body.pop("system", ""))
    is_plain = all(block.keys() == {"type", "text"} for block in system)
    config = dict(body.pop("output_config", {}))
    if form := body.pop("output_format", config.get("format")):
        config["format"] = {**form, "schema": _schema_meaning(form["schema"])}
    tools = [_tool_meaning(tool) for tool in body.pop("tools", ())]
    return {
        **body,
        "messages": turns,
        "system": "".join([block["text"] for block in system]) if is_plain else system,
        "tools": tools,
        "tool_choice": body.pop("tool_choice", {"type": "auto"} if tools else None),
        "output_config": config,
        "stop_sequences": body.pop("stop_sequences", []),
        "stream": body.pop("stream", False),
    }


def _blocks(content: Any) -> list[Body]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _block_meaning(block: Body) -> Body:
    if block["type"] == "tool_result":
        block = {key: value for key, value in block.items() if key != "is_error" or value}
        block["content"] = _result_text(block["content"]) or "{}"
    if block.get("caller") == {"type": "direct"}:
        block = {key: value for key, value in block.items() if key != "caller"}
    return {key: value for key, value in block.items() if value is not None}


def _result_text(content: Any) -> Any:
    if isinstance(content, str) or any(part.keys() != {"type", "text"} for part in content):
        return content
    return "".join([part["text"] for part in content])


def _tool_meaning(tool: Body) -> Body:
    if tool.get("type", "custom") != "custom":
        return tool
    rest = {key: value for key, value in tool.items() if key not in ("strict", "cache_control", "type")}
    return {"description": "", **rest, "input_schema": _schema_meaning(tool["input_schema"])}


def _schema_meaning(schema: Any) -> Any:
    """A schema without what closing it adds or drops."""
    if isinstance(schema, list):
        return [_schema_meaning(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left = {key: _schema_meaning(value) for key, value in schema.items() if key != "$schema"}
    if left.get("additionalProperties") is False:
        del left["additionalProperties"]
    return left
