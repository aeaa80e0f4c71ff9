"""An endpoint for chat pages.

Any chat page or program that uses OpenAI's chat completions API can use your agents as models.

Text, streams, dialogs and named errors work with the official client. The protocol does not support approvals, runs,
the caller's own functions, or typed answers. The agent's functions run on the server, and a call that waits for a
person ends with an error. If you need more, serve the agent as [tools of an MCP server](../mcp.md). The endpoint has no
login of its own: keep it on this machine, or put a login in front of it.

It uses Starlette, which the extra `mcp` installs; FastAPI takes the same functions. Set `MODEL` to choose a model;
otherwise the embedded model (extra `local`) answers:

```sh
uvicorn examples.chat_completions:app
curl http://127.0.0.1:8000/v1/models
```
"""

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fsm_agent import Agent, CallFailed, CallSuspended, TextDelta
from fsm_agent.errors import FsmAgentError, UsageError

AGENTS: dict[str, Agent[Any, str]] = {"host": Agent(os.environ.get("MODEL", "local:"), name="host")}


def problem(status: int, message: str, code: str = "") -> JSONResponse:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return JSONResponse({"error": {"message": message, "type": kind, "code": code or None}}, status)


def told(error: FsmAgentError) -> str:
    """Return what a caller may know of an error: the reason, but nothing about the server."""
    return (
        "this waits for a person, whom this page cannot ask" if isinstance(error, CallSuspended) else "the agent failed"
    )


async def models(request: Request) -> Response:
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "fsm_agent"} for name in AGENTS]
    return JSONResponse({"object": "list", "data": data})


async def completions(request: Request) -> Response:
    try:
        body = await request.json()
        agent = AGENTS.get(body["model"])
        if agent is None:
            return problem(404, f"unknown model {body['model']!r:.80}", "model_not_found")
        call = agent.prepare(body["messages"])
    except (ValueError, KeyError, TypeError, UsageError) as error:
        return problem(400, str(error)[:500])
    head = {"id": f"chatcmpl-{time.time_ns()}", "created": int(time.time()), "model": body["model"]}
    if body.get("stream"):
        return StreamingResponse(chunks(agent, call, head), media_type="text/event-stream")
    try:
        result = await agent.arun(call)
    except (CallFailed, CallSuspended) as error:
        return problem(500, told(error))
    message = {"role": "assistant", "content": result.text}
    used = result.usage
    usage = {"prompt_tokens": used.input_tokens or 0, "completion_tokens": used.output_tokens or 0}
    usage["total_tokens"] = sum(usage.values())
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return JSONResponse({**head, "object": "chat.completion", "choices": choices, "usage": usage})


async def chunks(agent: Agent[Any, str], call: Any, head: dict[str, Any]) -> AsyncIterator[str]:
    def data(fields: Any) -> str:
        return f"data: {json.dumps(fields)}\n\n"

    def chunk(delta: dict[str, str], finish: str | None = None) -> str:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return data({**head, "object": "chat.completion.chunk", "choices": choices})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async for event in agent.astream(call):
            if isinstance(event, TextDelta):
                yield chunk({"content": event.text})
        if call.effects:
            raise CallSuspended("it waits", call=call)
    except (CallFailed, CallSuspended) as error:
        yield data({"error": {"message": told(error), "type": "server_error"}})
        return
    yield chunk({}, "stop")
    yield "data: [DONE]\n\n"


app = Starlette(
    routes=[Route("/v1/models", models), Route("/v1/chat/completions", completions, methods=["POST"])],
)

if __name__ == "__main__":
    sys.exit("usage: uvicorn examples.chat_completions:app")
