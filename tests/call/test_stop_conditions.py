"""Does a call end when it shall, with the reason, and not before?"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from support.agent_calls import assert_sendable, begun, fail, returned, say

from fsm_agent import Agent, Limits, Prompt, function
from fsm_agent.call import (
    Denied,
    Injected,
    Price,
    Reason,
    Slept,
    State,
    Stop,
    StopContext,
    any_of,
    max_cost_usd,
    max_function_calls,
    max_tokens,
    restore,
    snapshot,
    stop_on,
)
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, Message, Reply, Usage
from fsm_agent.testing import Script, function_call

CALLS = (function_call("add", a=1, b=2),)


def context(*content: Any, calls_so_far: int = 0, **usage: Any) -> StopContext:
    reply = Reply.of(*content)
    return StopContext(1, reply, Usage(**usage), calls_so_far, (), runnable=len(reply.message.function_calls))


def test_what_a_condition_sees_over_three_replies():
    seen: list[StopContext] = []
    one = begun(Limits(rounds=None), stop_when=lambda context: seen.append(context))
    say(one, function_call("add", a=1, b=2), function_call("tick"), usage=Usage(input_tokens=5, output_tokens=1))
    returned(returned(one, "3"), "noon")
    say(one, function_call("add", a=3, b=4), usage=Usage(input_tokens=7, output_tokens=2))
    returned(one, "7")
    say(one, "42", usage=Usage(input_tokens=11, output_tokens=4))
    assert [c.iteration for c in seen] == [1, 2, 3]
    assert [[f.name for f in c.reply.message.function_calls] for c in seen] == [["add", "tick"], ["add"], []]
    assert [(c.usage.input_tokens, c.usage.output_tokens) for c in seen] == [(5, 1), (12, 3), (23, 7)]
    assert [c.function_calls for c in seen] == [0, 2, 3]
    assert [[(f.name, f.result) for f in c.last_results] for c in seen] == [
        [],
        [("add", "3"), ("tick", "noon")],
        [("add", "7")],
    ]
    assert one.result().output == 42


def test_a_condition_counts_replies_and_what_was_run():
    seen: list[tuple[int, int, int]] = []

    def look_on(context: StopContext) -> None:
        seen.append((context.iteration, context.function_calls, context.runnable))

    one = begun(Limits(rounds=4), stop_when=look_on)
    fail(one).advance("sleep:1", Slept())
    say(one, function_call("add", a=1, b=2), function_call("nosuch"), function_call("add", a="x"))
    returned(one, "3")
    say(one, function_call("add", b=2, a=1), function_call("fetch"))  # a repetition; and it is not logged in
    one.advance("", Injected((Message.of("user", "Hurry."),)))
    say(one, "no number")
    say(one, function_call("erase", path="x"), function_call("tick"))
    one.advance(one.effects[0].key, Denied())
    returned(one, "no clock", is_error=True)
    say(one, "…", finish="error")
    one.advance(one.effects[0].key, Slept())
    returned(say(one, function_call("tick")), "now")
    say(one, function_call("tick"))
    assert seen == [(1, 0, 1), (2, 1, 0), (3, 1, 0), (4, 1, 2), (5, 2, 0), (6, 2, 1), (7, 3, 0)], (
        "the last is not obeyed"
    )
    assert (one.record.ending.reason, one.result_so_far.iterations) == (Reason.ROUND_LIMIT, 7)


def test_whether_a_call_needs_approval_is_found_out_once_beside_a_condition():
    asked: list[str] = []
    erase = Function(
        name="erase", parameters={"type": "object"}, needs_approval=lambda f: not asked.append(f.name), call=print
    )
    one = begun(prompt=Prompt("x", functions=(erase,)), stop_when=lambda context: None)
    say(one, function_call("erase"))
    assert asked == ["erase"]


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (None, None),
        (False, None),
        ("", None),
        (True, ""),
        ("enough", "enough"),
        (Stop(), ""),
        (Stop("enough"), "enough"),
        (Stop("enough", '{"a": 1}'), "enough"),
    ],
)
def test_a_verdict_of_stop_when_ends_the_call_with_its_reason(verdict: Any, reason: str | None):
    one = say(begun(stop_when=lambda context: verdict), "42")
    if reason is None:
        assert one.result().output == 42
    else:
        ending = one.result().ending
        assert (ending.reason, ending.detail) == (Reason.STOPPED, reason)
        assert one.output == ({"a": 1} if isinstance(verdict, Stop) and verdict.output_json else None)


def test_a_call_is_stopped_before_its_functions_and_even_at_the_last_reply():
    ran: list[int] = []

    @function
    def work(n: int) -> None:
        """Work."""
        ran.append(n)

    def enough(context: StopContext) -> bool:
        return "so far" in context.reply.message.text

    script = Script(function_call("work", n=1), ["so far", function_call("work", n=2), function_call("nosuch")])
    result = Agent(script, functions=[work], stop_when=enough, limits=Limits(rounds=1)).call("?")
    assert (result.state, result.ending.reason, ran) == (State.COMPLETED, Reason.STOPPED, [1])
    assert (result.text, [f.name for f in result.message.function_calls]) == ("so far", ["work", "nosuch"])
    assert_sendable(result.dialog.messages)


class Answer(BaseModel):
    city: str
    sure: bool = True


@function
def respond(city: str, sure: bool = True) -> str:
    """Give the answer."""
    raise AssertionError("it is not run")


@function
def look() -> str:
    """Look."""
    return "Rome"


class TestStopOn:
    def test_its_arguments_are_the_output(self):
        script = Script(function_call("look"), function_call("respond", city="Rome", sure=False))
        agent = Agent(script, functions=[look, respond], stop_when=stop_on("respond"), output=Answer)
        result = agent.call("Where?")
        assert result.output == {"city": "Rome", "sure": False}
        assert (result.ending.reason, result.ending.detail) == (Reason.STOPPED, "respond was called")

    def test_the_output_survives_a_snapshot(self):
        agent = Agent(Script(function_call("respond", city="Rome")), functions=[respond], stop_when=stop_on("respond"))
        one = agent.call("Where?").call
        assert restore(snapshot(one), one.prompt).output == {"city": "Rome"}

    def test_one_among_others_is_enough(self):
        script = Script(
            [function_call("look"), function_call("respond", city="Oslo"), function_call("respond", city="Rome")]
        )
        agent = Agent(script, functions=[look, respond], stop_when=stop_on("respond"))
        assert agent.call("Where?").output == {"city": "Oslo"}

    def test_without_arguments(self):
        one = say(begun(stop_when=stop_on("tick")), FunctionCall(name="tick", arguments_json=""))
        assert (one.state, one.output) == (State.COMPLETED, {})

    @pytest.mark.parametrize("broken", ['{"city": "Ro', "nonsense", "[1]"])
    def test_arguments_that_are_none_are_told_to_the_model(self, broken: str):
        script = Script(FunctionCall(name="respond", arguments_json=broken), function_call("respond", city="Rome"))
        agent = Agent(script, functions=[respond], stop_when=stop_on("respond"))
        result = agent.call("Where?")
        assert result.output == {"city": "Rome"}
        assert "The arguments of respond are not valid" in script.requests[1].messages[-1].text

    def test_an_answer_in_words_is_an_answer(self):
        agent = Agent(Script("Rome"), functions=[respond], stop_when=stop_on("respond"))
        assert agent.call("Where?").output == "Rome"


class TestBudgets:
    @pytest.mark.parametrize(("so_far", "asked", "stops"), [(0, 2, False), (1, 2, True), (2, 1, True), (9, 0, False)])
    def test_function_calls(self, so_far: int, asked: int, stops: bool):
        said = max_function_calls(2)(context("so", *CALLS * asked, calls_so_far=so_far))
        assert said == ("more than 2 function calls" if stops else None)

    def test_no_function_is_run_beyond_the_cap(self):
        ran: list[int] = []

        @function
        def work(n: int) -> None:
            """Work."""
            ran.append(n)

        script = Script(
            function_call("work", n=1),
            [function_call("work", n=2), function_call("work", n=3)],
            function_call("work", n=4),
        )
        agent = Agent(script, functions=[work], stop_when=max_function_calls(3))
        assert agent.call("?").ending.detail == "more than 3 function calls"
        assert sorted(ran) == [1, 2, 3]

    def test_what_is_not_run_leaves_the_cap_as_it_is(self):
        ran: list[int] = []

        @function
        def work(n: int) -> None:
            """Work."""
            ran.append(n)

        wrong = [function_call("nosuch"), function_call("work", n="x"), function_call("work", m=1)]
        script = Script(
            [*wrong, function_call("work", n=1)],
            [function_call("work", n=1), *wrong],
            function_call("work", n=2),
            "done",
        )
        agent = Agent(script, functions=[work], stop_when=max_function_calls(2))
        assert agent.call("?").output == "done"
        assert ran == [1, 2]

    @pytest.mark.parametrize(
        ("usage", "content", "stops"),
        [
            ({"input_tokens": 60, "output_tokens": 40}, CALLS, False),
            ({"input_tokens": 61, "output_tokens": 40}, CALLS, True),
            ({"input_tokens": 999}, ("an answer",), False),
            ({}, CALLS, False),
        ],
    )
    def test_max_tokens_counts_all_that_were_used(self, usage: Any, content: Any, stops: bool):
        assert max_tokens(100)(context(*content, **usage)) == ("101 tokens are more than 100" if stops else None)

    @pytest.mark.parametrize(
        ("usage", "prices", "said"),
        [
            ({"input_tokens": 1_000_000}, {}, None),
            ({"input_tokens": 1_000_001}, {}, "more"),
            ({"output_tokens": 300_000}, {}, "more"),
            ({"input_tokens": 2_000_000, "cached_tokens": 1_500_000}, {"cached_micro_usd": 200_000}, None),
            ({"input_tokens": 500_000, "cache_write_tokens": 500_000}, {"cache_write_micro_usd": 2_500_000}, "more"),
        ],
    )
    def test_max_cost_usd_counts_by_the_price(self, usage: Any, prices: Any, said: str | None):
        stops = max_cost_usd(2, Price(input_micro_usd=2_000_000, output_micro_usd=10_000_000, **prices))
        assert (stops(context(*CALLS, **usage)) is None) is (said is None)
        assert stops(context("an answer", **usage)) is None

    @pytest.mark.parametrize("most", [-1, True, float("nan")])
    def test_nonsense_is_named(self, most: Any):
        price = Price(input_micro_usd=1, output_micro_usd=1)
        for make in (max_function_calls, max_tokens, lambda most: max_cost_usd(most, price)):
            with pytest.raises(UsageError, match="max_"):
                make(most)

    def test_the_first_of_several_gives_the_reason(self):
        stops = any_of(lambda c: None, lambda c: False, lambda c: "", lambda c: "second", lambda c: "third")
        assert stops(context("?")) == "second"
        assert any_of()(context("?")) is None
        assert any_of(stop_on("add"), max_tokens(0))(context(*CALLS)) == Stop("add was called", '{"a": 1, "b": 2}')


def test_a_pause_and_a_refusal_can_be_stopped_at_too():
    for reply in (
        Reply(message=Message.of("assistant", "…"), finish="pause"),
        Reply(message=Message.of("assistant"), refusal="no"),
    ):
        one = begun(prompt=Prompt("x"), stop_when=lambda context: "enough")
        say(one, *reply.message.parts, finish=reply.finish, refusal=reply.refusal)
        assert one.record.ending.reason is Reason.STOPPED


@pytest.mark.parametrize("output_json", ["", "found"])
def test_an_output_that_is_no_json_is_refused_when_it_is_given(output_json: str):
    def look() -> str:
        """Look."""
        return "nothing"

    def enough(context: Any) -> Stop:
        return Stop("seen enough", output_json=output_json)

    agent = Agent(Script(function_call("look")), functions=[look], stop_when=enough)
    with pytest.raises(UsageError, match=r"JSON as its output_json"):
        agent.call("Look.")
