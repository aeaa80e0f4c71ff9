"""Does the view by rounds say what happened in each, and add up to the whole?"""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest
from support.agent_calls import begun, fail, limits, outcome, returned, say, seeded
from support.time_growth import growth

from fsm_agent.call import (
    AgentCall,
    Approved,
    Cancelled,
    Injected,
    Limits,
    ModelFailed,
    Replied,
    Returned,
    Slept,
    Stopped,
    rounds_of,
)
from fsm_agent.errors import ErrorReport
from fsm_agent.messages import Message, Reply, Usage
from fsm_agent.testing import as_json, function_call


def replied(call: AgentCall, at_s: float, *content: object, **usage: int) -> None:
    reply = Reply.of(*content).changed(usage=Usage(**usage))
    call.advance(call.effects[0].key, Replied(reply=reply, at_s=at_s))


def eventful() -> AgentCall:
    """A recall, a round with an approval and a failure, a wrong answer, the right one."""
    call = begun()  # at 100
    report = ErrorReport(message="slow down", status=429, request_id="r1", retryable=True)
    call.advance("model:0", ModelFailed(error=report, delay_s=2.0, at_s=101.0))
    call.advance("sleep:1", Slept(at_s=103.0))
    asked = function_call("erase", path="x"), function_call("tick")
    replied(call, 107.0, *asked, input_tokens=10, output_tokens=1, cost_pico_usd=12)
    call.advance("ask:2.0", Approved(at_s=167.0))
    call.advance("run:2.0", Returned(text="OSError: no", is_error=True, at_s=168.0))
    call.advance("run:2.1", Returned(text="now", at_s=170.0))
    replied(call, 175.0, "forty-two", input_tokens=20, output_tokens=2)
    replied(call, 181.0, "42", input_tokens=30, output_tokens=3)
    return call


def test_after_each_round_its_report_shows_what_happened_in_it():
    call = begun()
    replied(call, 101.0, "Two things.", function_call("add", a=1, b=2), function_call("tick"), input_tokens=7)
    assert rounds_of(call.record)[-1].text == "Two things."
    call.advance("run:2.0", Returned(text="3", at_s=102.0))
    call.advance("run:2.1", Returned(text="OSError: no", is_error=True, at_s=103.0))
    (first,) = call.result_so_far.by_round
    assert [(f.name, f.arguments, f.result, f.error) for f in first.function_calls] == [
        ("add", {"a": 1, "b": 2}, "3", None),
        ("tick", {}, None, "OSError: no"),
    ]
    assert (first.number, first.text, first.usage) == (1, "Two things.", Usage(input_tokens=7))
    replied(call, 104.0, "forty-two", input_tokens=9)
    replied(call, 105.0, "42", input_tokens=8)
    assert call.result_so_far.by_round[0] == first
    assert [(one.text, one.function_calls) for one in call.result_so_far.by_round[1:]] == [("42", ())]


def test_the_text_of_a_round_is_the_models_own():
    call = begun()
    replied(call, 101.0, "One.", function_call("tick"))
    returned(call, "now")
    call.advance("", Injected((Message.of("user", "An example."), Message.of("assistant", "Not said."))))
    replied(call, 102.0, function_call("add", a=1, b=2))
    returned(call, "3")
    replied(call, 103.0, "Three.", function_call("tick"))
    call.advance("", Stopped(reason="enough"))
    assert [one.text for one in rounds_of(call.record)] == ["One.", "", "Three."]
    call = say(begun(), "One.", function_call("tick"))
    returned(call, "now")
    assert [one.text for one in rounds_of(fail(call, retryable=False).record)] == ["One.", ""]


class TestARound:
    def test_it_has_its_calls_errors_recalls_usage_cost_and_times(self):
        call = eventful()
        first, second = rounds_of(call.record)
        assert (first.number, first.requests, first.recalls, first.parse_errors) == (1, 2, 1, ())
        assert [f.name for f in first.function_calls] == ["erase", "tick"]
        assert [f.error for f in first.function_calls] == ["OSError: no", None]
        assert first.failures == call.result().failures
        assert first.usage == Usage(input_tokens=10, output_tokens=1, cost_pico_usd=12)
        assert (first.began_at_s, first.ended_at_s) == (100.0, 170.0)
        waited_s = (first.model_s, first.backoff_s, first.approvals_s, first.functions_s)
        assert waited_s == (1.0 + 4.0, 2.0, 60.0, 3.0)
        assert (second.number, second.requests, second.recalls, second.function_calls) == (2, 2, 0, ())
        assert second.parse_errors == ("'forty-two' is no number",)
        assert second.usage == Usage(input_tokens=50, output_tokens=5)
        assert (second.began_at_s, second.ended_at_s, second.model_s) == (170.0, 181.0, 11.0)

    def test_the_result_has_them_and_they_can_be_written(self):
        result = eventful().result()
        assert result.by_round == rounds_of(result.record)
        first, _ = as_json(result.by_round)
        assert first["failures"][0]["report"]["request_id"] == "r1"


def test_a_round_that_goes_on_has_no_end_and_the_calls_that_are_settled():
    call = begun()
    assert [one.requests for one in rounds_of(call.record)] == [0]
    say(call, function_call("add", a=1, b=2), function_call("tick"), function_call("nosuch"))
    returned(call)
    (only,) = rounds_of(call.record)
    assert [f.name for f in only.function_calls] == ["add", "nosuch"]
    assert only.ended_at_s is None
    assert rounds_of(seeded().record) == ()


def test_a_pause_is_a_round_without_functions():
    call = say(say(begun(), "\u2026", finish="pause"), function_call("nosuch"))
    say(say(call, "forty-two"), "42")
    reports = rounds_of(call.record)
    assert [[f.name for f in one.function_calls] for one in reports] == [[], ["nosuch"], []]
    assert [len(one.parse_errors) for one in reports] == [0, 0, 1]


def test_a_call_that_was_cancelled_in_a_round_ends_with_it():
    call = say(begun(), function_call("tick"))
    call.advance("", Cancelled(at_s=108.0))
    (only,) = rounds_of(call.record)
    assert ([f.error for f in only.function_calls], only.ended_at_s) == (
        ["It may have run, and its outcome is unknown: cancelled"],
        108.0,
    )


def test_a_clock_that_was_set_back_or_is_unknown_makes_no_time():
    call = begun()
    replied(call, 50.0, function_call("nosuch"))
    replied(call, 0.0, "42")
    assert [(one.model_s, one.ended_at_s) for one in rounds_of(call.record)] == [(0.0, 50.0), (0.0, None)]


@pytest.mark.parametrize("seed", [0, 1, *[pytest.param(n, marks=pytest.mark.nightly) for n in range(2, 20)]])
def test_the_rounds_add_up_to_the_whole_on_every_walk(seed: int):
    for number in range(60):
        rng = Random(seed * 60 + number)
        call = seeded(limits(rng))
        for _ in range(40):
            if not call.effects:
                break
            call.advance(*outcome(rng, rng.choice(call.effects), call.state))
            r, reports = call.record, rounds_of(call.record)
            assert [one.number for one in reports] == [*range(1, len(reports) + 1)]
            settled = [*r.function_calls, *[f for f in r.round if f.is_settled]]
            assert [f for one in reports for f in one.function_calls] == settled
            assert [failure for one in reports for failure in one.failures] == [*r.failures]
            assert sum(one.requests for one in reports) == sum(step.key.startswith("model:") for step in r.trace)
            assert sum(one.recalls for one in reports) == r.recalls
            assert sum((one.usage for one in reports), Usage()) == r.usage
            assert r.rounds <= len(reports) <= r.rounds + 1
            for one in reports[: r.rounds]:
                assert len({f.id.partition(".")[0] for f in one.function_calls}) <= 1


@pytest.mark.nightly
@pytest.mark.skipif(sys.gettrace() is not None, reason="what is traced takes longer")
def test_it_takes_linear_time():
    def of_rounds(rounds: int) -> AgentCall[Any]:
        call = begun(Limits(rounds=None))
        for _ in range(rounds):
            returned(say(call, function_call("tick")))
        return call

    assert growth(of_rounds, lambda call: rounds_of(call.record), 100) < 3
