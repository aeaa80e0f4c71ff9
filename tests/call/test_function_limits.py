"""Is each function offered and run only as often, as long and as early as it may be?"""

from __future__ import annotations

import pytest
from support.agent_calls import assert_sendable, begun, keys, request, returned, say

from fsm_agent.call import AgentCall, Approved, Denied, Limits, Reason, Returned, State, restore, snapshot
from fsm_agent.errors import PromptError
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall
from fsm_agent.prompts import Prompt
from fsm_agent.testing import function_call

ANYTHING = {"type": "object", "properties": {"n": {"type": "integer"}}}


def named(name: str, *depends_on: str, **policy) -> Function:
    policy = {"repeatable": True, "call": lambda n=0: n, **policy}
    return Function(name=name, parameters=ANYTHING, depends_on=depends_on, **policy)


def started(*functions: Function, **limits) -> AgentCall:
    return begun(Limits(**limits), Prompt("x", path="p", functions=functions))


def asks(call: AgentCall, *names: str) -> AgentCall:
    """The model asks for these functions, each with other arguments."""
    return say(call, *[function_call(name, n=call.record.turn * 10 + i) for i, name in enumerate(names)])


def running(call: AgentCall) -> list[str]:
    return [effect.call.name for effect in call.effects]


def names(functions) -> list[str]:
    return [function.name for function in functions]


def told(call: AgentCall) -> list[str]:
    """The results of the newest round."""
    asked = max(i for i, m in enumerate(call.record.dialog) if m.function_calls)
    return [m.text for m in call.record.dialog[asked + 1 :] if m.role == "tool"]


class TestMaxCalls:
    def test_when_all_functions_are_used_up_the_model_has_to_answer(self):
        call = started(named("login", max_calls=1), named("fetch", max_calls=1))
        assert names(request(call).functions) == ["login", "fetch"]
        returned(asks(call, "login"))
        assert names(request(call).functions) == ["fetch"]
        assert request(call).messages[-1].role == "tool", "there is no final prompt yet"
        returned(asks(call, "fetch"))
        assert request(call).functions == ()
        assert request(call).tool_choice == "auto"
        assert "Call no more functions" in request(call).messages[-1].text
        assert say(call, "done").result().output == "done"

    def test_a_model_that_goes_on_when_all_are_used_up_is_not_obeyed(self):
        call = asks(returned(asks(started(named("once", max_calls=1)), "once")), "once")
        assert (call.state, call.record.ending.reason) == (State.FAILED, Reason.ROUND_LIMIT)
        assert "max_calls" in call.record.ending.detail
        assert_sendable(call.record.dialog)

    def test_one_that_is_used_up_is_told_and_the_others_run(self):
        call = returned(asks(started(named("once", max_calls=1), named("more")), "once"))
        asks(call, "once", "more")
        assert running(call) == ["more"]
        assert told(returned(call)) == ["once may be called at most 1 time(s), and cannot be called again.", "ok"]

    def test_what_one_reply_asks_for_too_often_is_run_as_often_as_it_may(self):
        call = asks(started(named("twice", max_calls=2)), "twice", "twice", "twice")
        assert keys(call) == ["run:2.0", "run:2.1"]
        returned(returned(call))
        assert told(call)[2] == "twice may be called at most 2 time(s), and cannot be called again."
        assert request(call).functions == ()

    def test_what_was_not_run_does_not_count(self):
        call = started(named("once", max_calls=1, needs_approval=lambda f: f.arguments["n"] < 0))
        say(call, FunctionCall(name="once", arguments_json='{"n": "x"}'))
        say(call, function_call("once", n=-1))
        call.advance(call.effects[0].key, Denied())
        assert names(request(call).functions) == ["once"]
        assert keys(asks(call, "once")) == ["run:6.0"]

    def test_what_will_not_be_run_takes_nothing_from_the_others_of_its_reply(self):
        call = started(named("twice", max_calls=2, repeatable=False))
        invalid = FunctionCall(name="twice", arguments_json='{"n": "x"}')
        say(call, invalid, function_call("twice", n=1), function_call("twice", n=1), function_call("twice", n=2))
        assert keys(call) == ["run:2.1", "run:2.3"]

    def test_nothing_is_counted_that_nobody_limits(self):
        call = returned(asks(started(named("free"), named("once", max_calls=1)), "free"))
        assert call.record.tallies == {}
        (tally,) = returned(asks(call, "once")).record.tallies.values()
        assert (tally.successes, tally.failures) == (1, 0)


class TestFailures:
    def test_a_function_that_failed_too_often_is_withdrawn(self):
        call = started(named("flaky"), named("other"), failures_per_function=2, rounds=None)
        returned(asks(call, "flaky"), is_error=True)
        returned(asks(call, "flaky"), "fine")
        assert names(request(call).functions) == ["flaky", "other"]
        returned(asks(call, "flaky"), is_error=True)
        assert names(request(call).functions) == ["other"]
        assert (call.record.tallies["flaky"].successes, call.record.tallies["flaky"].failures) == (1, 2)
        asks(call, "flaky")
        assert told(call) == ["flaky has failed 2 time(s) and is no longer available. Go on without it."]

    def test_the_functions_own_limit_stands_before_the_calls(self):
        functions = named("strict", max_failures=1), named("lax", max_failures=3), named("other")
        call = started(*functions, failures_per_function=2, rounds=None)
        for name in ("strict", "lax", "lax"):
            returned(asks(call, name), is_error=True)
        assert names(request(call).functions) == ["lax", "other"]
        returned(asks(call, "lax"), is_error=True)
        assert names(request(call).functions) == ["other"]

    def test_when_all_have_failed_the_model_has_to_answer(self):
        call = returned(asks(started(named("flaky", max_failures=1)), "flaky"), is_error=True)
        assert request(call).functions == ()
        assert "Call no more functions" in request(call).messages[-1].text

    def test_a_call_that_was_not_run_is_no_failure(self):
        call = started(named("flaky", needs_approval=True), failures_per_function=1)
        asks(call, "flaky").advance("ask:2.0", Denied())
        say(call, FunctionCall(name="flaky", arguments_json="nonsense"))
        say(call, function_call("nosuch"))
        assert (names(request(call).functions), call.record.tallies) == (["flaky"], {})


LOGIN, FETCH, SHOW = named("login"), named("fetch", "login"), named("show", "fetch")


class TestDependencies:
    def test_a_reply_is_run_in_waves(self):
        call = asks(started(LOGIN, FETCH, SHOW, named("clock")), "show", "fetch", "clock", "login")
        assert running(call) == ["clock", "login"]
        call.advance("run:2.3", Returned(text="welcome"))
        assert running(call) == ["fetch", "clock"]
        call.advance("run:2.1", Returned(text="page"))
        assert running(call) == ["show", "clock"]
        call.advance("run:2.0", Returned(text="shown"))
        call.advance("run:2.2", Returned(text="noon"))
        assert told(call) == ["shown", "page", "noon", "welcome"], "in the order asked"

    def test_without_what_it_needs_it_is_told_and_may_be_called_later(self):
        call = asks(started(LOGIN, FETCH), "fetch")
        assert told(call) == ["fetch requires login to have succeeded first."]
        assert call.record.function_calls[0].was_run is False
        returned(asks(call, "login"))
        asks(call, "fetch")
        assert running(call) == ["fetch"]

    def test_the_plan_has_to_be_approved_first(self):
        plan = named("plan", needs_approval=True)
        call = asks(started(plan, named("edit", "plan")), "edit", "plan")
        call.advance("ask:2.1", Denied(reason="too bold"))
        assert told(call) == ["edit requires plan to have succeeded first.", "The call was not allowed: too bold"]
        asks(call, "plan").advance("ask:5.0", Approved())
        returned(call)
        assert running(asks(call, "edit")) == ["edit"]

    def test_behind_a_failure_all_that_wait_for_it_are_told(self):
        call = asks(started(LOGIN, FETCH, SHOW), "show", "login", "fetch")
        call.advance("run:2.1", Returned(text="wrong password", is_error=True))
        assert told(call) == [
            "show requires fetch to have succeeded first.",
            "wrong password",
            "fetch requires login to have succeeded first.",
        ]
        assert call.state is State.CALLING

    def test_a_second_try_in_the_same_reply_is_waited_for(self):
        call = asks(started(LOGIN, FETCH), "login", "login", "fetch")
        call.advance("run:2.0", Returned(text="no", is_error=True))
        assert running(call) == ["login"]
        call.advance("run:2.1", Returned(text="welcome"))
        assert running(call) == ["fetch"]

    def test_one_that_succeeded_once_has_succeeded(self):
        call = returned(asks(started(LOGIN, FETCH), "login"))
        asks(call, "login", "fetch")
        call.advance("run:4.0", Returned(text="no", is_error=True))
        assert running(call) == ["fetch"]

    def test_a_repetition_is_no_success_of_its_own(self):
        once = named("login", repeatable=False)
        call = say(started(once, FETCH), *[function_call("login")] * 2, function_call("fetch"))
        assert running(call) == ["login"]
        call.advance("run:2.0", Returned(text="wrong password", is_error=True))
        assert told(call)[2] == "fetch requires login to have succeeded first."

    def test_a_repetition_of_a_success_stands_for_it(self):
        once = named("login", repeatable=False)
        call = returned(say(started(once, FETCH), function_call("login")))
        say(call, function_call("login"), function_call("fetch"))
        assert running(call) == ["fetch"]

    @pytest.mark.parametrize(
        ("functions", "says"),
        [
            ((named("a", "b"), named("b", "a")), "in a cycle: "),
            ((named("a", "a"),), "in a cycle: a -> a"),
            ((named("fetch", "logon"), LOGIN), "'fetch' .*'logon'.*'login'"),
        ],
    )
    def test_what_can_never_be_met_is_refused_when_it_is_written(self, functions, says):
        with pytest.raises(PromptError, match=says):
            Prompt("x", functions=functions)

    def test_a_snapshot_between_two_waves_loses_nothing(self):
        call = started(named("login", max_calls=2), FETCH, named("flaky", max_failures=1), rounds=None)
        returned(asks(call, "flaky"), is_error=True)
        asks(call, "fetch", "login")
        returned(call)
        again = restore(snapshot(call), call.prompt)
        assert again.record == call.record
        assert again.record.tallies["flaky"].failures == 1
        for one in (call, again):
            assert running(one) == ["fetch"]
            returned(one)
            assert names(request(one).functions) == ["login", "fetch"]
            returned(asks(one, "login"))
            assert names(request(one).functions) == ["fetch"]
        assert again.record == call.record


class TestParallel:
    @pytest.mark.parametrize(("parallel", "expected"), [(2, ["a", "b"]), (None, ["a", "b", "c"])])
    def test_so_many_run_at_once(self, parallel, expected):
        call = asks(started(*map(named, "abc"), parallel=parallel), "a", "b", "c")
        assert running(call) == expected

    def test_the_next_takes_the_place_of_the_one_that_ended(self):
        call = asks(started(*map(named, "abc"), parallel=2), "a", "b", "c")
        call.advance("run:2.1", Returned(text="b"))
        assert running(call) == ["a", "c"]
        call.advance("run:2.2", Returned(text="c"))
        call.advance("run:2.0", Returned(text="a"))
        assert told(call) == ["a", "b", "c"]

    def test_one_that_waits_takes_no_place(self):
        call = asks(started(LOGIN, FETCH, named("clock"), parallel=2), "fetch", "clock", "login")
        assert running(call) == ["clock", "login"]
