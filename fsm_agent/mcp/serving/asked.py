"""The model of an MCP server: it requests the function that the client asked for."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json

from fsm_agent.call.effects import Request
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import Reply


def task_of(name: str, arguments: dict[str, Any]) -> str:
    """Return the task of an agent call that is to call one function."""
    return to_json({"function": name, "arguments": arguments}, inf_nan_mode="constants").decode()


class Asked(SyncVerbs):
    """A client whose reply requests the function in the task; when it has its result, it is done."""

    name = "mcp:client"
    reports_logprobs = False

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the request for the function, and a short text after it."""
        last = request.messages[-1]
        if last.role != "user":
            return Reply.of("done")
        asked = from_json(last.text)
        arguments = to_json(asked["arguments"], inf_nan_mode="constants").decode()
        call = FunctionCall(name=asked["function"], arguments_json=arguments)
        return Reply(message=Message(role="assistant", parts=(call,)))
