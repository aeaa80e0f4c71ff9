"""Do the spans of a call say what it waited for, and for how long?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.agent_calls import begun, say

from fsm_agent import Agent, Context, Reply, Usage, function, handoff
from fsm_agent.call import AgentCall, Approved, Cancelled, Denied, Limits, Replied, Returned, snapshot
from fsm_agent.clients import FallbackClient
from fsm_agent.errors import Overloaded
from fsm_agent.runtime import spans_of
from fsm_agent.testing import Delayed, FakeClock, Script, function_call


def facts(span: dict[str, Any]) -> dict[str, Any]:
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


def times(span: dict[str, Any]) -> tuple[float, float]:
    return int(span["startTimeUnixNano"]) / 1e9, int(span["endTimeUnixNano"]) / 1e9


def worker(clock: FakeClock, **options: Any) -> Agent[Any, Any]:
    @function
    def work(context: Context, n: int) -> str:
        """Work for this number of seconds."""
        clock.advance(n)
        if n > 5:
            raise LookupError("too much: sk-proj-abcdefghijklmnop1234567890")
        return "done"

    asked = Reply.of(function_call("work", n=3), function_call("work", n=6)).changed(
        usage=Usage(input_tokens=100, output_tokens=7)
    )
    script = Script(Delayed(2, asked), Delayed(1, Overloaded("busy", retry_after_s=8)), Delayed(4, "42"), clock=clock)
    return Agent(script, functions=[work], limits=Limits(parallel=1), environment={"clock": clock}, **options)


def test_a_span_for_the_call_and_each_request_function_and_wait():
    clock, events = FakeClock(100.0), []
    agent = worker(clock)
    result = agent.run(agent.prepare("?"), events.append)
    root, *spans = spans_of(result.record, events)
    assert (root["name"], times(root)) == ("invoke_agent", (100.0, 124.0))
    assert facts(root) == {
        "gen_ai.operation.name": "invoke_agent",
        "fsm_agent.usage.input_tokens": "100",
        "fsm_agent.usage.output_tokens": "7",
        "fsm_agent.call.id": result.record.id,
        "fsm_agent.state": "Completed",
        "fsm_agent.reason": "answered",
        "fsm_agent.rounds": "1",
    }
    assert [(span["name"], times(span)) for span in spans] == [
        ("chat", (100.0, 102.0)),
        ("execute_tool work", (102.0, 105.0)),
        ("execute_tool work", (105.0, 111.0)),
        ("chat", (111.0, 112.0)),
        ("backoff", (112.0, 120.0)),
        ("chat", (120.0, 124.0)),
    ]
    failed = {facts(span)["fsm_agent.key"]: span["status"]["message"] for span in spans if "status" in span}
    assert failed == {"run:1.1": "returned", "model:1": "model_failed"}
    assert facts(spans[0])["gen_ai.usage.input_tokens"] == "100"
    assert facts(spans[1])["gen_ai.tool.name"] == "work"
    assert [facts(span)["fsm_agent.key"] for span in spans] == [step.key for step in result.record.trace[1:]]
    assert "sk-proj" not in json.dumps(spans)


def test_they_form_a_tree_and_the_same_call_has_the_same():
    clock = FakeClock()
    result = worker(clock).call("?")
    root, *spans = spans_of(result.record)
    assert {span["traceId"] for span in spans} == {root["traceId"]}
    assert {span["parentSpanId"] for span in spans} == {root["spanId"]}
    assert "parentSpanId" not in root
    assert len({span["spanId"] for span in (root, *spans)}) == len(spans) + 1
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in (root, *spans))
    assert spans_of(result.record) == [root, *spans] == json.loads(json.dumps([root, *spans]))
    restored = worker(clock).restore(snapshot(result.call)).record
    assert spans_of(restored) == [root, *spans]
    assert spans_of(result.record.changed(id="another"))[0]["traceId"] != root["traceId"]


def approved(call: AgentCall) -> None:
    call.advance("ask:2.0", Approved(at_s=170.0))
    call.advance("run:2.0", Returned(text="OSError: no", is_error=True, at_s=175.0))


def denied(call: AgentCall) -> None:
    call.advance("ask:2.0", Denied(reason="no", at_s=170.0))


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (approved, [("approve erase", (110.0, 170.0), None), ("execute_tool erase", (170.0, 175.0), "returned")]),
        (denied, [("approve erase", (110.0, 170.0), "denied")]),
    ],
)
def test_without_events_a_function_begins_with_its_round_or_its_approval(verdict, expected):
    call = begun()
    call.advance("model:0", Replied(reply=Reply.of(function_call("erase", path="x")), at_s=110.0))
    verdict(call)
    spans = spans_of(call.record)[2:]
    assert [(span["name"], times(span), span.get("status", {}).get("message")) for span in spans] == expected


def test_a_call_that_goes_on_has_no_end_and_one_that_failed_says_why():
    one = say(begun(), function_call("tick"))
    root = spans_of(one.record)[0]
    assert ("endTimeUnixNano" in root, facts(root)["fsm_agent.state"]) == (False, "ToolInterrupt")
    one.advance("", Cancelled(reason="sk-proj-abcdefghijklmnop1234567890", at_s=130.0))
    root = spans_of(one.record)[0]
    assert (times(root), root["status"]) == ((100.0, 130.0), {"code": 2, "message": "cancelled"})
    assert spans_of(Agent(Script()).prepare("?").record) == []


def test_an_agent_that_took_over_has_a_span():
    sales = Agent(Script("Bought."), name="sales")
    result = Agent(Script(function_call("transfer_to_sales")), functions=[handoff(sales)]).call("Buy.")
    names = [span["name"] for span in spans_of(result.record)]
    assert names == ["invoke_agent", "chat", "execute_tool transfer_to_sales", "invoke_agent transfer_to_sales"]


def test_of_several_clients_the_one_that_answered_is_named():
    others = FallbackClient([Script(Overloaded("busy"), name="a:one"), Script("Hi.", name="b:two")])
    for client, served in ((others, "b:two"), (Script("Hi."), None)):
        chat = spans_of(Agent(client).call("?").record)[1]
        assert facts(chat).get("fsm_agent.served_by") == served
