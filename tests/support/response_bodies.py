"""Responses of services of the Responses API, and the replies that the codec reads in them."""

from __future__ import annotations

import json
from typing import Any

from conformance.streams import read

from fsm_agent.call import Request
from fsm_agent.messages import Delta, Message, Reply
from fsm_agent.providers import OpenAIResponsesCodec, Profile

CODEC = OpenAIResponsesCodec()


def said(*texts: str, id: str = "msg_1", **more: Any) -> dict[str, Any]:
    """A message of these texts."""
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content, **more}


def called(name: str = "f", arguments: Any = "{}", id: str = "fc_1", **more: Any) -> dict[str, Any]:
    """A function call."""
    more = {"call_id": f"call_{id}", **more}
    return {"type": "function_call", "id": id, "name": name, "arguments": arguments, "status": "completed", **more}


def thought(*texts: str, id: str = "rs_1", **more: Any) -> dict[str, Any]:
    """Reasoning with this summary."""
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": "gAAA", **more}


def response(*output: Any, **more: Any) -> dict[str, Any]:
    """A response with this output."""
    return {
        "id": "resp_1",
        "object": "response",
        "model": "m1",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "output": list(output),
        **more,
    }


def body(*output: Any, **more: Any) -> bytes:
    """A response with this output, as JSON."""
    return json.dumps(response(*output, **more)).encode()


def sse(*events: Any) -> bytes:
    """A stream of these events."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and isinstance(event.get("type"), str) else ""
        lines.append(f"{name}data: {json.dumps(event)}\n\n")
    return "".join(lines).encode()


def event(kind: str, **more: Any) -> dict[str, Any]:
    """An event of the stream."""
    return {"type": f"response.{kind}", **more}


def added(item: Any, index: int = 0) -> dict[str, Any]:
    """An item begins."""
    return event("output_item.added", output_index=index, item=item)


def done(item: Any, index: int = 0) -> dict[str, Any]:
    """An item is whole."""
    return event("output_item.done", output_index=index, item=item)


def text_delta(text: str, index: int = 0, **more: Any) -> dict[str, Any]:
    """A piece of a message's text."""
    return event("output_text.delta", output_index=index, content_index=0, delta=text, **more)


def arguments_delta(text: str, index: int = 0, **more: Any) -> dict[str, Any]:
    """A piece of a call's arguments."""
    return event("function_call_arguments.delta", output_index=index, delta=text, **more)


def completed(*output: Any, **more: Any) -> dict[str, Any]:
    """The end of the stream."""
    return event("completed", response=response(*output, **more))


def stream(*events: Any, output: tuple[Any, ...] = ()) -> bytes:
    """A stream of these events, and its end."""
    return sse(event("created", response=response(status="in_progress")), *events, completed(*output))


def encoded(*messages: Message, profile: Profile | None = None, stream: bool = False, **request: Any) -> dict[str, Any]:
    """The body of a request."""
    asked = Request(messages=messages or (Message.of("user", "hi"),), **request)
    return json.loads(CODEC.encode(asked, model="m1", profile=profile or Profile(), stream=stream))


def items(*messages: Message, **profile: Any) -> list[Any]:
    """The input items that tell these messages to a model that encrypts its reasoning."""
    told: list[Any] = encoded(*messages, profile=Profile(**{"reasoning_name": "encrypted_content", **profile}))["input"]
    return told


def whole(body: bytes, **headers: str) -> Reply:
    """The reply in a whole body."""
    return CODEC.decode(200, headers, body)


def streamed(body: bytes, piece: int = 0) -> tuple[Reply, list[Delta]]:
    """Return the reply of a stream and its deltas, fed in pieces of this many bytes or at once."""
    return read(CODEC, body, piece)
