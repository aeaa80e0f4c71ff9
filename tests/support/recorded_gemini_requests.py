"""Which `Request` would have led to a recorded request to Gemini, and what does such JSON mean?"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from itertools import groupby
from typing import Annotated, Any

from pydantic import WithJsonSchema

from fsm_agent.call import Request
from fsm_agent.functions import Function
from fsm_agent.messages import (
    CodeExecution,
    Document,
    FunctionCall,
    FunctionResult,
    Image,
    Message,
    Opaque,
    Part,
    Settings,
    Text,
    WebSearch,
)
from fsm_agent.prompts import Output
from fsm_agent.providers import GeminiProfile, providers

Body = dict[str, Any]
_OURS = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
}
_FREE = {"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"}
_HOSTED: dict[str, Callable[[], Any]] = {"googleSearch": WebSearch, "codeExecution": CodeExecution}
_UNSIGNED = base64.b64encode(b"skip_thought_signature_validator").decode()
_SCHEMAS = ("responseJsonSchema", "responseSchema")
_WORD = re.compile(r"_([a-z])")


def camel(value: Any) -> Any:
    """The same with the names that the wire prefers: it takes both spellings."""
    if isinstance(value, list):
        return [camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {key: _WORD.sub(lambda match: match[1].upper(), key) for key in value}
    return {names[key]: inner if names[key] in _FREE else camel(inner) for key, inner in value.items()}


def built(recorded: Body) -> tuple[Request, GeminiProfile]:
    """The request, and what the model must have been able to take."""
    body = camel(recorded)
    config = dict(body.pop("generationConfig", {}))
    tools = body.pop("tools", [])
    functions = tuple([_function(entry) for tool in tools for entry in tool.get("functionDeclarations", ())])
    tool_config = dict(body.pop("toolConfig", {}))
    calling = tool_config.pop("functionCallingConfig", {})
    choice, calling_more = _choice(calling, functions)
    system = "".join([part["text"] for part in body.pop("systemInstruction", {}).get("parts", ())])
    messages = [Message.of("system", system)] if system else []
    messages += [_message(content) for content in body.pop("contents")]
    schema = next((config.pop(name) for name in _SCHEMAS if name in config), None)
    if schema is not None:
        del config["responseMimeType"]
    settings = {ours: config.pop(theirs) for theirs, ours in _OURS.items() if theirs in config}
    if config.pop("responseLogprobs", False):
        settings["top_logprobs"] = config.pop("logprobs", 0)
    thinking = config.get("thinkingConfig", {})
    if thinking.keys() == {"thinkingLevel", "includeThoughts"} and thinking["includeThoughts"]:
        settings["reasoning_effort"] = config.pop("thinkingConfig")["thinkingLevel"].lower()
    more_tools = [tool for tool in tools if "functionDeclarations" not in tool and not tool.keys() & _HOSTED.keys()]
    hosted = tuple([_HOSTED[name]() for tool in tools for name in tool if name in _HOSTED])
    announced = functions and hosted and tool_config.pop("includeServerSideToolInvocations", False)
    nested = {
        "generationConfig": config,
        "tools": more_tools,
        "toolConfig": {**tool_config, **({"functionCallingConfig": calling_more} if calling_more else {})},
    }
    request = Request(
        messages=messages,
        functions=functions,
        tool_choice=choice,
        output=Output(str) if schema is None else Output(Annotated[Any, WithJsonSchema(_lowered(schema))]),
        settings=Settings(
            **settings,
            hosted_tools=hosted,
            extra_body={**body, **{key: value for key, value in nested.items() if value}},
        ),
    )
    return request, GeminiProfile(
        strict_functions=calling.get("mode") == "VALIDATED",
        hosted_tools=providers()["google"].profile.hosted_tools,
        hosted_with_functions="announced" if announced else "plain",
    )


def _choice(calling: Body, functions: tuple[Function, ...]) -> tuple[str, Body]:
    """Return the choice, including the part that only `extra_body` can express: several names, but not all."""
    allowed = calling.get("allowedFunctionNames")
    if allowed and len(allowed) == 1:
        return allowed[0], {}
    choice = {"ANY": "required", "NONE": "none"}.get(calling.get("mode", ""), "auto")
    is_open = not allowed or set(allowed) == {function.name for function in functions}
    return choice, {} if is_open else {"allowedFunctionNames": allowed}


def _function(entry: Body) -> Function:
    parameters = entry.get("parametersJsonSchema") or entry.get("parameters") or {"type": "object", "properties": {}}
    return Function(name=entry["name"], description=entry.get("description") or "", parameters=parameters)


def _message(content: Body) -> Message:
    parts = tuple([_part(part) for part in content["parts"]])
    if content["role"] == "model":
        return Message(role="assistant", parts=parts)
    return Message(role="tool" if all(isinstance(part, FunctionResult) for part in parts) else "user", parts=parts)


def _part(part: Body) -> Part:
    if call := part.get("functionCall"):
        arguments = json.dumps(call["args"])
        signature = part.get("thoughtSignature")
        return FunctionCall(
            name=call["name"], arguments_json=arguments, provider_id=call.get("id"), signature=signature
        )
    if result := part.get("functionResponse"):
        text = _returned(result["response"])
        return FunctionResult(id="", name=result["name"], text=text, provider_id=result.get("id"))
    if "text" in part and not part.get("thought"):
        return Text(part["text"], part.get("thoughtSignature"))
    media = part.get("inlineData") or part.get("fileData") or {}
    if media.get("mimeType", "").startswith("image/") and str(media.get("fileUri", "https://")).startswith("http"):
        data = base64.b64decode(media["data"]) if "data" in media else None
        return Image(data=data, url=media.get("fileUri"), media_type=media["mimeType"])
    if media.get("mimeType") in ("application/pdf", "text/plain"):
        return Document.of(base64.b64decode(_usual(media["data"])))
    return Opaque(wire="gemini", data=part)


def _returned(response: Body) -> str:
    """Return the result of a function.  Each client has a different key for it."""
    (key, value), *more = response.items()
    is_text = not more and key in ("output", "result", "return_value") and isinstance(value, str)
    return value if is_text else json.dumps(response, sort_keys=True)


def meaning(recorded: Body) -> Body:
    """The JSON without what makes no difference to the service: compare meanings, not spellings."""
    body = camel(recorded)
    config = dict(body.pop("generationConfig", {}))
    tools = body.pop("tools", [])
    functions = [_declared(entry) for tool in tools for entry in tool.get("functionDeclarations", ())]
    tool_config = dict(body.pop("toolConfig", {}))
    calling = tool_config.pop("functionCallingConfig", {})
    names = sorted(entry["name"] for entry in functions)
    schema = next((config.pop(name) for name in _SCHEMAS if name in config), None)
    thinking = config.pop("thinkingConfig", {})
    turns = groupby(body.pop("contents"), key=lambda content: content["role"])
    return {
        **body,
        # Neighbouring contents of one role are one turn.
        "contents": [(role, [_said(part) for content in turn for part in content["parts"]]) for role, turn in turns],
        "systemInstruction": [part["text"] for part in body.get("systemInstruction", {}).get("parts", ())],
        "functions": functions,
        "tools": [tool for tool in tools if "functionDeclarations" not in tool],
        "choice": (calling.get("mode", "AUTO"), sorted(calling.get("allowedFunctionNames") or names)),
        "toolConfig": tool_config,
        "schema": schema and _schema_meaning(_lowered(schema)),
        "thinking": {key: value.upper() if isinstance(value, str) else value for key, value in thinking.items()},
        "generationConfig": config,
    }


def _said(part: Body) -> Any:
    part = dict(part)
    signature = part.pop("thoughtSignature", None)
    signature = None if signature in (None, _UNSIGNED) else _usual(signature)  # one that was not signed may go with it
    if "inlineData" in part:
        part["inlineData"] = {**part["inlineData"], "data": _usual(part["inlineData"]["data"])}
    if "functionResponse" in part:
        result = part["functionResponse"]
        part["functionResponse"] = {**result, "response": _returned(result["response"])}
    return part, signature


def _usual(text: str) -> str:
    """Base64 in its usual alphabet: some clients write it with "-" and "_"."""
    return text.replace("-", "+").replace("_", "/")


def _declared(entry: Body) -> Body:
    function = _function(entry)
    parameters = _schema_meaning(_lowered(function.parameters))
    return {"name": function.name, "description": function.description, "parameters": parameters}


def _lowered(schema: Any) -> Any:
    """A schema with JSON Schema's names of types, not OpenAPI's."""
    if isinstance(schema, list):
        return [_lowered(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _lowered(value)
        for key, value in schema.items()
    }


def _schema_meaning(schema: Any, definitions: Any = None) -> Any:
    """A schema with its references replaced, and without titles and defaults of null."""
    if isinstance(schema, list):
        return [_schema_meaning(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    definitions = schema.get("$defs", definitions)
    if isinstance(reference := schema.get("$ref"), str):
        return _schema_meaning(definitions[reference.rpartition("/")[2]], definitions)
    left = {}
    for key, value in schema.items():
        if key == "properties":
            left[key] = {name: _schema_meaning(inner, definitions) for name, inner in value.items()}
        elif key == "required" and value:
            left[key] = sorted(value)
        elif key not in ("title", "$defs", "required") and not (key == "default" and value is None):
            left[key] = _schema_meaning(value, definitions)
    return left
