"""Does an agent call hold together over the real client, codec and sockets?"""

from __future__ import annotations

import asyncio
import json
import pickle
import traceback
from typing import Any

import pytest
from pydantic import BaseModel
from support.stub_server import StubServer

from fsm_agent import Agent, CallFailed, Limits, function
from fsm_agent.call import snapshot
from fsm_agent.clients import client_for
from fsm_agent.messages import Done, TextDelta
from fsm_agent.testing import FakeClock

KEY = "sk-recognisable-0123456789abcdef"


@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def asks(name: str, arguments: str, id: str = "call_x1") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


SAID = [asks("add", '{"a": 17, "b": 25}'), asks("add", '{"a": 17'), "17 + 25 = 42."]


def agent_of(server: StubServer, **options: Any) -> Agent:
    client = client_for("openai-compatible:stub-model", base_url=server.base_url, api_key=KEY)
    environment = {"clock": FakeClock(), "new_id": lambda: "c1"}
    return Agent(client, system="You add.", functions=[add], environment=environment, **options)


def by_call(agent: Agent) -> Any:
    return agent.call("17 + 25?")


def by_astream(agent: Agent) -> Any:
    async def main() -> Any:
        return [event async for event in agent.astream("17 + 25?")]

    *others, done = asyncio.run(main())
    assert any(isinstance(event, TextDelta) for event in others)
    assert isinstance(done, Done)
    return done.result


@pytest.mark.parametrize("called", [by_call, by_astream])
def test_one_conversation_however_it_is_driven(called):
    with StubServer(SAID) as server, agent_of(server) as agent, StubServer(SAID) as other, agent_of(other) as reference:
        result = called(agent)
        assert result.text == "17 + 25 = 42."
        assert [f.succeeded for f in result.function_calls] == [True, False]
        assert result.usage.total_tokens == 30
        assert result.call.record == by_call(reference).call.record
        last = server.requests[-1]["messages"]
        assert [m["role"] for m in last] == ["system", "user", "assistant", "tool", "assistant", "tool"]
        assert (last[2]["tool_calls"][0]["id"], last[3]["tool_call_id"]) == ("call_x1", "call_x1")
        assert last[3]["content"] == "42"


@pytest.mark.parametrize("called", [by_call, by_astream])
@pytest.mark.parametrize("id", ["call_0", "", None])
def test_calls_are_told_apart_whatever_ids_they_came_with(called, id):
    two = asks("add", '{"a": 1, "b": 2}', id)
    two["tool_calls"] += asks("add", '{"a": 3, "b": 4}', id)["tool_calls"]
    again = asks("add", '{"a": 5, "b": 6}', id)
    with StubServer([two, again, "Done."]) as server, agent_of(server) as agent:
        result = called(agent)
    assert [f.result for f in result.function_calls] == ["3", "7", "11"]
    assert len({f.id for f in result.function_calls}) == 3
    last = server.requests[-1]["messages"]
    asked = [call["id"] for message in last for call in message.get("tool_calls", ())]
    answered = {message["tool_call_id"]: message["content"] for message in last if message["role"] == "tool"}
    assert len(set(asked)) == 3
    assert [answered[one] for one in asked] == ["3", "7", "11"]


def test_functions_are_withdrawn_by_leaving_out_the_key():
    with StubServer([SAID[0], "42"]) as server, agent_of(server, limits=Limits(rounds=1)) as agent:
        agent.call("17 + 25?")
        assert "tools" in server.requests[0]
        assert not {"tools", "tool_choice"} & set(server.requests[1])
        assert server.requests[1]["messages"][-1]["role"] == "user"


class Sum(BaseModel):
    total: int


def test_a_typed_output_is_asked_for_natively_and_checked_here():
    with StubServer(['{"total": "many"}', '{"total": 42}']) as server, agent_of(server, output=Sum) as agent:
        assert agent.call("17 + 25?").output == Sum(total=42)
        assert server.requests[0]["response_format"]["json_schema"]["name"] == "Sum"
        assert "total: " in server.requests[1]["messages"][-1]["content"]


def test_the_key_is_in_nothing_that_anybody_sees():
    with StubServer([asks("add", json.dumps({"a": 1, "b": 2})), {"role": "assistant", "content": ""}]) as server:
        agent = agent_of(server, limits=Limits(recalls=0, parse_retries=0))
        events: list[Any] = []
        with pytest.raises(CallFailed) as caught:
            events.extend(agent.stream("17 + 25?"))
        call = caught.value.call
        seen = [
            repr(agent),
            repr(agent.client),
            repr(events),
            snapshot(call),
            repr(call.record),
            str(caught.value),
            "".join(traceback.format_exception(caught.value)),
            repr(pickle.loads(pickle.dumps(caught.value))),
        ]
        assert not [text for text in seen if KEY in text]
