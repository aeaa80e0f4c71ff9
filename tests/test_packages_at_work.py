"""Are the libraries that the package promises used in an ordinary call?"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from pydantic import BaseModel
from support.fault_server import FaultServer, http
from support.http_clients import KEY, completion, refused

from fsm_agent import Agent, function
from fsm_agent.clients import client_for
from fsm_agent.testing import FakeClock


class Sum(BaseModel):
    total: int


@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@contextmanager
def watched() -> Iterator[set[str]]:
    """The functions that run meanwhile, here and in threads that begin, as ``module.qualified name``."""
    ran = set[str]()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            ran.add(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}")
        elif event == "c_call" and (module := getattr(type(getattr(argument, "__self__", None)), "__module__", None)):
            ran.add(f"{module}.{getattr(argument, '__qualname__', '')}")

    before = sys.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield ran
    finally:
        sys.setprofile(before)
        threading.setprofile(before)


def asks(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {**completion(), "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def make_call(way: str) -> dict[str, Any]:
    """One call, with a rate limit first, then a function call, then a typed output; and what ran meanwhile."""
    script = [refused(429), [http(asks("add", {"a": 17, "b": 25}))], [http(completion('{"total": 42}'))]]
    with FaultServer(*script) as server, client_for("openai-chat:m", base_url=server.base_url, api_key=KEY) as client:
        agent = Agent(client, functions=[add], output=Sum, environment={"clock": FakeClock()})

        async def main() -> Any:
            with watched() as ran:
                return await agent.acall("17 + 25?"), ran

        if way == "acall":
            result, ran = asyncio.run(main())
        else:
            with watched() as ran:
                result = agent.call("17 + 25?")
    return {
        "total": result.output.total,
        "results": [call.result for call in result.function_calls],
        "triggers": [step.trigger for step in result.trace],
        "requests": len(server.requests),
        "ran": sorted(ran),
    }


@pytest.mark.system
@pytest.mark.parametrize("way", ["call", pytest.param("acall", marks=pytest.mark.nightly)])
def test_one_call_uses_them_all(way: str) -> None:
    """In a separate OS process, because an existing thread would not be watched."""
    done = subprocess.run([sys.executable, __file__, way], capture_output=True, text=True, timeout=60, check=True)
    seen = json.loads(done.stdout)
    assert (seen["total"], seen["results"], seen["requests"]) == (42, ["42"], 3)
    assert seen["triggers"] == ["begun", "model_failed", "slept", "functions_asked", "returned", "answered"]
    for wanted in (
        "transitions.core.Event.trigger",  # takes each step
        "transitions.core.Transition.execute",  # asks the guards, and changes the state
        "httpx._client.AsyncClient.send",  # sends the requests
        "tenacity.wait.wait_exponential.__call__",  # says how long to wait
        "pydantic_core._pydantic_core.SchemaValidator.validate_json",  # reads arguments and output
    ):
        assert wanted in seen["ran"], [name for name in seen["ran"] if name.startswith(wanted.partition(".")[0])]


if __name__ == "__main__":
    print(json.dumps(make_call(sys.argv[1])))
