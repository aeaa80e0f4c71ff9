"""A handwritten MCP server of the protocol of 2025-06-18, which can do what no good server does.

It lists tools in pages, sends unrequested notices of changes, uses names that no provider accepts, makes requests,
never answers some calls, ends between two calls, and sends bytes that are not text, or half a character.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

OPEN = {"type": "object", "properties": {}}
FIND = {"type": "object", "properties": {"word": {"type": "string"}, "most": {"type": "integer"}}, "required": ["word"]}
tools = {
    "find": FIND,
    "files/read": OPEN,
    "files.read": OPEN,
    "long" * 30: OPEN,
    **dict.fromkeys(["grow", "shrink", "sample", "stuck", "cancelled", "die", "pid", "where", "environment"], OPEN),
    **dict.fromkeys(["refuse", "over", "latin", "half", "noise"], OPEN),
}
stuck: list[Any] = []
cancelled: list[Any] = []
sampling: list[Any] = []


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def answer(id: Any, words: str) -> None:
    send(id=id, result=text(words))


def call(id: Any, name: str, arguments: dict[str, Any]) -> None:
    match name:
        case "find":
            answer(id, json.dumps(arguments, sort_keys=True))
        case "grow" | "shrink":
            tools.pop("grown", None)
            tools.update({"grown": OPEN} if name == "grow" else {})
            send(method="notifications/tools/list_changed")
            answer(id, "done")
        case "sample":
            sampling.append(id)
            send(id="mine", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
        case "stuck":
            stuck.append(id)
        case "cancelled":
            answer(id, json.dumps([len(stuck), len(cancelled)]))
        case "die":
            print("I die with", os.environ.get("SECRET"), file=sys.stderr, flush=True)
            os._exit(3)
        case "pid":
            answer(id, str(os.getpid()))
        case "where":
            answer(id, os.getcwd())
        case "environment":
            answer(id, " ".join(os.environ))
        case "refuse":
            send(id=id, error={"code": -32000, "message": f"no entry with {os.environ.get('SECRET')}"})
        case "over":
            send(id=id, error={"code": -32000, "message": "Session terminated"})
        case "latin":
            line = json.dumps({"jsonrpc": "2.0", "id": id, "result": text("café")}, ensure_ascii=False)
            sys.stdout.buffer.write(line.encode("latin-1") + b"\n")
            sys.stdout.buffer.flush()
        case "half":
            answer(id, "cut \ud83d")
        case "noise":
            print('a line of a log\n\n{"half": "\\ud83d"}\n[]\n7')
            answer(id, "done")
        case _:
            answer(id, name)


def hear(message: dict[str, Any]) -> None:
    id, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "old", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
            send(id=id, result=result)
        case "tools/list":
            place = int(params.get("cursor") or 0)
            page = [{"name": name, "inputSchema": tools[name]} for name in list(tools)[place : place + 2]]
            more = {"nextCursor": str(place + 2)} if place + 2 < len(tools) else {}
            send(id=id, result={"tools": page, **more})
        case "tools/call":
            call(id, params["name"], params.get("arguments") or {})
        case "notifications/cancelled":
            cancelled.append(params)
        case None if id == "mine":
            answer(sampling.pop(), message["error"]["message"])
        case str() if id is not None:
            send(id=id, error={"code": -32601, "message": "unknown"})


for line in sys.stdin:
    hear(json.loads(line))
