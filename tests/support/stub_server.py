"""An OpenAI-compatible server on loopback that answers what a test has written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.http_stub import HttpStubServer


class StubServer(HttpStubServer):
    """Answers each request with the next of ``messages``: a text, a chat message as a dict, or what a function returns.

    Attributes:
        requests: The JSON body of every request, in order.
    """

    def __init__(self, messages: Sequence[str | dict[str, Any] | Callable[[], str]]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._messages = list(messages)
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stub.requests.append(body)
                if not stub._messages:
                    self.reply(500, "application/json", json.dumps({"error": {"message": "the stub has no more"}}))
                    return
                said = stub._messages.pop(0)
                said = said() if callable(said) else said
                message = {"role": "assistant", "content": said} if isinstance(said, str) else said
                finish = "tool_calls" if message.get("tool_calls") else "stop"
                usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
                if self.path.endswith("/responses"):
                    self.reply_in_items(message, body)
                    return
                head = {"id": "stub-1", "object": "chat.completion", "created": 0, "model": body["model"]}
                if not body.get("stream"):
                    choice = {"index": 0, "message": message, "finish_reason": finish}
                    self.reply(200, "application/json", json.dumps({**head, "choices": [choice], "usage": usage}))
                    return
                calls = [{**call, "index": i} for i, call in enumerate(message.get("tool_calls") or [])]
                delta = {**message, **({"tool_calls": calls} if calls else {})}
                chunks = [
                    {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                    {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
                    {"choices": [], "usage": usage},
                ]
                lines = [f"data: {json.dumps({**head, **chunk})}\n\n" for chunk in chunks]
                self.reply(200, "text/event-stream", "".join(lines) + "data: [DONE]\n\n")

            def reply_in_items(self, message: dict[str, Any], body: dict[str, Any]) -> None:
                content = [{"type": "output_text", "text": message["content"] or "", "annotations": []}]
                said = {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": content,
                }
                usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
                head = {"id": "resp_1", "object": "response", "model": body["model"], "status": "completed"}
                response = {**head, "output": [said], "usage": usage}
                if not body.get("stream"):
                    self.reply(200, "application/json", json.dumps(response))
                    return
                delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0}
                events = [
                    {"type": "response.output_item.added", "output_index": 0, "item": {**said, "content": []}},
                    {**delta, "item_id": "msg_1", "delta": content[0]["text"]},
                    {"type": "response.output_item.done", "output_index": 0, "item": said},
                    {"type": "response.completed", "response": response},
                ]
                lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
                self.reply(200, "text/event-stream", "".join(lines))

            def reply(self, status: int, kind: str, text: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        super().__init__(Handler)
        self.base_url = f"{self.root}/v1"
