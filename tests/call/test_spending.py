"""Is a budget in tokens or dollars exceeded when it is, and is the end explained?"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from support.agent_calls import asked, seeded

from fsm_agent import Agent
from fsm_agent.call import AgentCall, Begun, CallFailed, FunctionFailed, Limits, Price, Reason, Replied, Returned, State
from fsm_agent.errors import OutcomeError
from fsm_agent.messages import Reply, Usage
from fsm_agent.testing import Script, function_call

FREE = Price(input_micro_usd=0, output_micro_usd=0)
TICK = asked(function_call("tick"))  # 7 tokens


def begun(**limits: Any) -> AgentCall[Any]:
    one = seeded(Limits(**limits))
    one.advance("begin", Begun(at_s=1.0, id="c"))
    return one


def replied(one: AgentCall[Any], reply: Reply) -> None:
    one.advance(one.effects[0].key, Replied(reply=reply, at_s=2.0))


def costly(reply: Reply, pico_usd: int) -> Reply:
    return reply.changed(usage=reply.usage.changed(cost_pico_usd=pico_usd))


@pytest.mark.parametrize(
    ("limits", "pico_usd", "state"),
    [
        ({"tokens": 6}, 0, State.FAILED),
        ({"tokens": 7}, 0, State.COMPLETED),
        ({"tokens": None}, 0, State.COMPLETED),
        ({"cost_usd": 0.0}, 0, State.COMPLETED),
        ({"cost_usd": 0.0}, 1, State.FAILED),
    ],
)
def test_a_budget_is_exceeded_by_the_first_token_or_picodollar_beyond_it(limits: Any, pico_usd: int, state: State):
    one = begun(**limits)
    replied(one, costly(asked(text="42"), pico_usd))
    assert one.state is state


def test_the_failure_names_budget_and_use_and_keeps_what_was_paid_for():
    one = begun(tokens=10)
    replied(one, TICK)
    one.advance("run:2.0", Returned(text="now"))
    replied(one, asked(text="42"))
    with pytest.raises(CallFailed, match=r"limits\.tokens is 10, and 14 tokens"):
        one.result()
    assert one.record.ending is not None
    assert one.record.ending.reason is Reason.OVER_BUDGET
    assert (one.result_so_far.text, one.result_so_far.usage.total_tokens, one.result_so_far.iterations) == ("42", 14, 2)


def test_a_cost_is_summed_exactly_over_all_replies():
    tenth = 10**11  # a tenth of a dollar, of which ten are more than 1.0 when floats are summed
    one = begun(cost_usd=1.0, rounds=None)
    for at in range(9):
        replied(one, costly(asked(function_call("tick")), tenth))
        one.advance(one.effects[0].key, Returned(text=str(at)))
    replied(one, costly(asked(text="42"), tenth))
    assert one.state is State.COMPLETED
    assert one.result_so_far.usage.cost_usd == 1.0


def test_a_cost_beyond_the_budget_is_told_in_dollars_to_the_last_digit():
    one = begun(cost_usd=0.00001)
    replied(one, costly(asked(text="42"), 10_000_001))
    assert one.record.ending is not None
    assert one.record.ending.detail == "limits.cost_usd is $0.00001, and $0.000010000001 were used"


def test_tokens_without_a_cost_are_not_taken_for_free():
    one = begun(cost_usd=1.0)
    before = one.record
    with pytest.raises(OutcomeError, match=r"limits\.cost_usd"):
        replied(one, asked(text="42"))
    assert one.record is before
    replied(one, asked(text="42").changed(usage=Usage()))  # there is nothing to be paid
    assert one.state is State.COMPLETED


def test_an_answer_that_is_refused_counts_and_the_branch_is_pruned():
    one = begun(tokens=10)
    replied(one, asked(text="forty-two"))
    assert one.state is State.PARSE_EXCEPTION
    replied(one, asked(text="42"))
    assert one.record.ending is not None
    assert one.record.ending.reason is Reason.OVER_BUDGET
    assert (one.record.branch, len(one.record.pruned)) == ((), 2)
    assert one.result_so_far.dialog[-1].role == "user", "the dialog can be sent again"


@pytest.mark.parametrize("kind", ["result", "error", "failure"])
def test_what_a_function_took_counts_and_the_others_of_its_round_get_their_results(kind: str):
    one = begun(tokens=50)
    replied(one, asked(function_call("tick"), function_call("add", a=1, b=1)))
    usage = Usage(input_tokens=44)
    ends = {
        "result": Returned(text="now", usage=usage),
        "error": Returned(text="now", is_error=True, usage=usage),
        "failure": FunctionFailed(text="now", usage=usage),
    }
    one.advance("run:2.0", ends[kind])
    assert one.record.ending is not None
    assert one.record.ending.detail == "limits.tokens is 50, and 51 tokens were used: 44 tokens by tick (run:2.0)"
    first, second = one.result_so_far.function_calls
    assert (first.result, first.error) == (("now", None) if kind == "result" else (None, "now"))
    assert second.error == "It may have run, and its outcome is unknown: the call is over its budget"
    assert [m.role for m in one.result_so_far.dialog][-2:] == ["tool", "tool"]


@pytest.mark.parametrize(
    ("own", "used", "ends"),
    [
        ({"tokens": 80}, Usage(input_tokens=70, cost_pico_usd=0), "neither"),
        ({"tokens": 80}, Usage(input_tokens=71, cost_pico_usd=0), "both"),
        ({"tokens": 60}, Usage(input_tokens=61, cost_pico_usd=0), "inner"),
        ({}, Usage(cost_pico_usd=700_000_000_000), "neither"),
        ({}, Usage(cost_pico_usd=700_000_000_001), "both"),
        ({"cost_usd": 0.1}, Usage(cost_pico_usd=100_000_000_001), "inner"),
    ],
)
def test_a_call_inside_has_the_smaller_of_its_own_budget_and_what_is_left(own: Any, used: Usage, ends: str):
    inner = Agent(Script(Reply.of("42").changed(usage=used)), name="inner", limits=Limits(**own), prices=FREE)
    spent = Usage(input_tokens=30, cost_pico_usd=300_000_000_000)
    asks = Reply.of(function_call("inner", task="x")).changed(usage=spent)
    limits = Limits(tokens=100, cost_usd=1.0)
    outer = Agent(Script(asks, Reply.of("fine")), functions=[inner], limits=limits, prices=FREE)
    one = outer.prepare("?")
    with suppress(CallFailed):
        outer.run(one)
    (asked_for,) = one.record.function_calls
    assert (asked_for.error is None) is (ends == "neither")
    assert (one.record.ending.reason is Reason.OVER_BUDGET) is (ends == "both")


def test_a_call_inside_of_one_that_has_nothing_left_may_spend_nothing():
    inner = Agent(Script(asked(text="42")), name="inner")
    asks = Reply.of(function_call("inner", task="x")).changed(usage=Usage(input_tokens=10))
    outer = Agent(Script(asks), functions=[inner], limits=Limits(tokens=10))
    with pytest.raises(CallFailed, match="tokens"):
        outer.call("?")


def test_many_calls_inside_are_counted_and_the_first_named():
    one = begun(tokens=90, rounds=None)
    for _ in range(7):
        replied(one, TICK)
        one.advance(one.effects[0].key, Returned(text="now", usage=Usage(input_tokens=6)))
    assert one.record.ending is not None
    detail = one.record.ending.detail
    assert re.search(r"6 tokens by tick \(run:2\.0\), 6 tokens by tick \(run:4\.0\)", detail)
    assert detail.endswith("the rest by 2 more calls")
