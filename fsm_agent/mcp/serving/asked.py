"""The model of an MCP server: it requests the function that the client asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from pydantic_core import from_json, to_json

from fsm_agent._internal.closing import Closing
from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.event import Delta
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import Reply


def task_of(name: str, arguments: dict[str, Any]) -> str:
    """Return the task of an agent call that is to call one function."""
    return to_json({"function": name, "arguments": arguments}, inf_nan_mode="constants").decode()


class Asked(Closing):
    """A client whose reply requests the function in the task; when it has its result, it is done."""

    name = "mcp:client"
    takes_images = True
    reports_logprobs = False

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the request for the function, and a short text after it."""
        last = request.messages[-1]
        if last.role != "user":
            return Reply.of("done")
        asked = from_json(last.text)
        arguments = to_json(asked["arguments"], inf_nan_mode="constants").decode()
        call = FunctionCall(name=asked["function"], arguments_json=arguments)
        return Reply(message=Message(role="assistant", parts=(call,)))

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """`complete` for asyncio."""
        return self.complete(request)

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Delta | Reply]:
        """Yield the whole reply."""
        yield self.complete(request)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """`stream` for asyncio."""
        yield self.complete(request)

    def close(self) -> None:
        """Close nothing: there is no connection."""

    async def aclose(self) -> None:
        """Close nothing: there is no connection."""
