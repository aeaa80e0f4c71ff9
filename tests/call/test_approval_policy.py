"""Is an approver asked about every function that does not say otherwise, and does it know who asks?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from support.agent_drivers import by_arun, by_astream, by_run, by_stream
from support.drivers import anyhow, seed

from fsm_agent.agents import Agent
from fsm_agent.call import Approved, Begun, CallSuspended, Denied, Modified, Replied, RunFunction, restore, snapshot
from fsm_agent.errors import UsageError
from fsm_agent.functions import Context, Function, function
from fsm_agent.messages import HostedMCP, Reply, Settings
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import Environment
from fsm_agent.testing import Script, function_call

LEFT_TO_THE_APPROVER, EXEMPT, REQUIRED = None, False, True


@dataclass
class Customer:
    name: str
    is_trusted: bool


def work(n: int) -> str:
    """Work."""
    return f"worked {n}"


def named(name: str, needs_approval: Any = None) -> Function:
    return Function.of(work, name=name, needs_approval=needs_approval)


def keys(one: Any) -> list[str]:
    return [effect.key for effect in one.effects]


@anyhow
def test_an_approver_is_asked_about_every_call_but_those_that_need_no_approval(driven):
    asked: list[str] = []

    def approve(f: Any) -> Any:
        asked.append(f.name)
        return Denied("no") if f.name == "denied" else True

    functions = (named("plain"), named("denied"), named("exempt", EXEMPT), named("required", REQUIRED))
    one = seed(Prompt("x", functions=functions), has_approver=True)
    driven(one, Script([function_call(f.name, n=n) for n, f in enumerate(functions)], "done"), approve=approve)
    assert asked == ["plain", "denied", "required"]
    results = [f.result or f.error for f in one.record.function_calls]
    assert results == ["worked 0", "The call was not allowed: no", "worked 2", "worked 3"]


@pytest.mark.parametrize("way", [by_run, by_astream])
def test_an_approver_that_denies_all_lets_nothing_run(way):
    ran: list[str] = []

    @function
    def erase(path: str) -> None:
        """Erase a file."""
        ran.append(path)

    agent = Agent(Script(function_call("erase", path="x"), "I could not."), functions=[erase], approve=lambda f: False)
    way(agent, agent.prepare("Tidy up."), [])
    assert ran == []


@pytest.mark.parametrize(
    ("policy", "has_approver", "waits"),
    [
        (LEFT_TO_THE_APPROVER, False, False),
        (LEFT_TO_THE_APPROVER, True, True),
        (EXEMPT, False, False),
        (REQUIRED, False, True),
        (lambda f: True, False, True),
        (lambda f: False, True, False),
    ],
)
def test_what_waits_for_approval_follows_from_the_policy_and_from_whether_there_is_an_approver(
    policy, has_approver, waits
):
    one = seed(Prompt("x", functions=(named("work", policy),)), has_approver=has_approver)
    one.advance("begin", Begun(at_s=0.0))
    one.advance("model:0", Replied(reply=Reply.of(function_call("work", n=1))))
    assert keys(one) == [f"{'ask' if waits else 'run'}:2.0"]


def test_a_call_keeps_waiting_where_there_is_no_approver():
    prompt = Prompt("x", functions=(named("work"),))
    one = seed(prompt, has_approver=True)
    one.advance("begin", Begun(at_s=0.0))
    one.advance("model:0", Replied(reply=Reply.of(function_call("work", n=1))))
    assert keys(restore(snapshot(one), prompt)) == ["ask:2.0"]


@anyhow
@pytest.mark.parametrize("is_trusted", [True, False])
def test_an_approver_may_know_who_asks(driven, is_trusted):
    seen: list[Context[Customer]] = []

    def approve(f: Any, context: Context[Customer]) -> bool:
        seen.append(context)
        return context.deps.is_trusted

    one = seed(Prompt("x", functions=(named("pay"),)), has_approver=True, depth=1, deps=Customer("Ada", is_trusted))
    driven(one, Script(function_call("pay", n=1), "done"), approve=approve)
    (paid,) = one.record.function_calls
    assert (paid.result is not None) is is_trusted
    (context,) = seen
    assert (context.deps.name, context.depth, context.agent_call_id) == ("Ada", 1, one.record.id)
    assert (context.function_call.name, context.function_call.id) == ("pay", "2.0")
    assert context.idempotency_key == f"{one.record.id}/2.0"


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_predicate_may_know_who_asks(is_trusted):
    ran: list[int] = []

    @function(needs_approval=lambda f, context: f.arguments["cents"] > 100 and not context.deps.is_trusted)
    def pay(cents: int) -> None:
        """Pay."""
        ran.append(cents)

    agent = Agent(Script(function_call("pay", cents=100), function_call("pay", cents=101), "done"), functions=[pay])
    one = agent.prepare("Pay.", deps=Customer("Ada", is_trusted))
    if is_trusted:
        agent.run(one)
    else:
        with pytest.raises(CallSuspended):
            agent.run(one)
    assert ran == ([100, 101] if is_trusted else [100])


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"paths": '["/etc/passwd"]'}, {"paths": ["/etc/passwd"]}),
        ({"paths": ["/tmp"], "force": None}, {"paths": ["/tmp"]}),
        ({"paths": ["/tmp"], "rule": '{"keep": "[1]"}'}, {"paths": ["/tmp"], "rule": {"keep": [1]}}),
        ({"paths": ["/tmp"], "force": False}, {"paths": ["/tmp"], "force": False}),
    ],
)
def test_all_that_decide_about_a_call_see_what_the_function_gets(asked, given):
    """A model may write a list as text, or null for an argument that it leaves out."""
    seen: list[Any] = []

    def saw(f: Any, *further: Any) -> Any:
        seen.append(f.arguments)
        return further[0](f) if further else True

    @function(needs_approval=saw, middleware=(saw,))
    def erase(context: Context[Any], paths: list[str], force: bool = True, rule: dict[str, list[int]] | None = None):
        """Erase."""
        seen.append(context.function_call.arguments)

    model = Script(function_call("erase", **asked), "done")
    result = Agent(model, functions=[erase], approve=saw).call("Go.")
    seen += [result.function_calls[0].arguments, model.requests[-1].messages[-2].function_calls[0].arguments]
    assert seen == [given] * 6


def test_what_an_approver_changes_is_kept_as_the_function_gets_it():
    def total(numbers: list[int], start: int = 0) -> int:
        """Add."""
        return sum(numbers, start)

    changed = Modified('{"numbers": "[1, 2]", "start": null}')
    model = Script(function_call("total", numbers=[5]), "done")
    (call,) = Agent(model, functions=[total], approve=lambda _: changed).call("Go.").function_calls
    assert (call.arguments, call.result) == ({"numbers": [1, 2]}, "3")


def test_a_call_that_the_provider_runs_as_requested_does_not_run_with_other_arguments():
    docs = HostedMCP("docs", "https://mcp.example.org/v1", require_approval="always")
    model = Script(function_call("docs", path="a"), "done")
    agent = Agent(model, settings=Settings(hosted_tools=(docs,)), approve=lambda _: Modified('{"path": "b"}'))
    (call,) = agent.call("Go.").function_calls
    assert (call.arguments, call.result, call.was_run) == ({"path": "b"}, None, False)
    assert "not allowed" in model.requests[-1].messages[-1].text


@pytest.mark.parametrize("returned", [None, 1, Denied()])
def test_a_predicate_that_does_not_return_true_or_false_opens_nothing(returned):
    one = seed(Prompt("x", functions=(named("work", lambda f: returned),)))
    one.advance("begin", Begun(at_s=0.0))
    before = one.record
    with pytest.raises(UsageError, match="needs_approval of function 'work'"):
        one.advance("model:0", Replied(reply=Reply.of(function_call("work", n=1))))
    assert one.record is before


@pytest.mark.parametrize("decide", [lambda: True, True, bool])
def test_an_approver_of_another_shape_is_refused_where_it_is_given(decide):
    for make in (lambda: Agent(Script(), approve=decide), lambda: Environment.of(Script(), approve=decide)):
        with pytest.raises(UsageError, match="approve"):
            make()


@pytest.mark.parametrize("way", [by_run, by_stream, by_arun, by_astream])
def test_an_agent_with_an_approver_takes_no_call_that_would_run_functions_behind_its_back(way):
    prompt = Prompt("x", path="agent", functions=(named("work"),))
    agent = Agent(Script(function_call("work", n=1), "done"), functions=prompt.offers, approve=lambda f: True)
    document = snapshot(agent.prepare("Work."))
    with pytest.raises(UsageError, match="approve"):
        way(agent, restore(document, prompt), [])
    way(agent, agent.restore(document), [])
    ended = restore(document, prompt)
    Agent(Script("done")).run(ended)
    way(agent, ended, [])  # nothing is left to be run


def test_an_approval_holds_for_the_call_that_it_was_given_for_alone():
    prompt = Prompt("x", functions=(named("work", REQUIRED),))
    one = seed(prompt)
    one.advance("begin", Begun(at_s=0.0))
    one.advance("model:0", Replied(reply=Reply.of(function_call("work", n=1), function_call("work", n=2))))
    one.advance("ask:2.0", Approved())
    assert keys(one) == ["ask:2.1"]
    one = restore(snapshot(one), prompt)
    assert keys(one) == ["ask:2.1"]
    one.advance("ask:2.1", Denied())
    assert [type(effect) for effect in one.effects] == [RunFunction]
