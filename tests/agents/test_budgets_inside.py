"""Do the budgets of a call hold for inner agents, under every driver?"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from support.agent_calls import erase

from fsm_agent.agents import Agent, handoff
from fsm_agent.call import AgentCall, Approved, CallFailed, CallSuspended, Limits, Price, Reason, State, snapshot
from fsm_agent.errors import UsageError
from fsm_agent.messages import Event, Inside, Reply, ReplyCompleted, Stepped, Usage
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script, function_call

DOLLAR = Price(input_micro_usd=1_000_000, output_micro_usd=1_000_000)  # a million tokens


def spending(tokens: int, *content: Any) -> Reply:
    return Reply.of(*content).changed(usage=Usage(input_tokens=tokens, output_tokens=0))


def searcher(*replies: Reply, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*replies), **{"name": "searcher", **options})


def boss(*replies: Reply, inner: Any, limits: Limits, **options: Any) -> Agent[Any, Any]:
    return Agent(Script(*replies), functions=[inner], name="boss", limits=limits, **options)


def overspent(**limits: Any) -> Agent[Any, Any]:
    """An agent whose budget of 100 tokens, or of as many millionths of a dollar, is used up by the one inside."""
    inner = searcher(spending(30, "Found."), spending(40, "Found, too."), prices=DOLLAR)
    first, second = (spending(10, function_call("searcher", task=task)) for task in ("a", "b"))
    return boss(first, second, spending(1, "Done."), inner=inner, limits=Limits(**limits), prices=DOLLAR)


def heard(agent: Agent[Any, Any], one: AgentCall[Any]) -> list[Event]:
    events = list[Event]()
    with suppress(CallFailed):
        events.extend(agent.stream(one))
    return events


def by_call(agent: Agent[Any, Any], one: AgentCall[Any]) -> None:
    with suppress(CallFailed):
        agent.run(one)


def by_acall(agent: Agent[Any, Any], one: AgentCall[Any]) -> None:
    with suppress(CallFailed):
        asyncio.run(agent.arun(one))


def assert_named(text: str, *facts: str) -> None:
    """Assert that the text names the agent, the amount and the limit."""
    assert [fact for fact in facts if fact not in text] == [], text


ways = pytest.mark.parametrize("way", [by_call, by_acall])
BUDGETS = [{"tokens": 89}, {"cost_usd": 0.000089}]
budgets = pytest.mark.parametrize("budget", BUDGETS, ids=["tokens", "dollars"])


@ways
@budgets
def test_the_call_ends_for_its_own_reason_and_says_who_used_how_much(way: Any, budget: dict[str, Any]):
    agent = overspent(**budget)
    one = agent.prepare("Go.")
    way(agent, one)
    with pytest.raises(CallFailed) as failed:
        one.result()
    assert failed.value.reason is Reason.OVER_BUDGET
    limit, used, first, second, left = ("89", "90 tokens", "30 tokens", "40 tokens", "39")
    if "tokens" not in budget:
        limit, used, first, second, left = ("$0.000089", "$0.00009", "$0.00003", "$0.00004", "$0.000039")
    name = next(iter(budget))
    assert_named(str(failed.value), f"limits.{name} is {limit}", used, f"{first} by searcher (run:1.0)", "(run:3.0)")
    assert_named(one.record.function_calls[-1].error, "searcher", f"limits.{name} is {left}", second)


@ways
@budgets
def test_within_its_budget_the_call_goes_on(way: Any, budget: dict[str, Any]):
    agent = overspent(**{name: limit * 2 for name, limit in budget.items()})
    one = agent.prepare("Go.")
    way(agent, one)
    assert one.output == "Done."
    assert one.result_so_far.usage.total_tokens == 91
    assert one.result_so_far.usage.cost_usd == pytest.approx(0.000091)


def test_an_agent_inside_that_exceeds_its_own_budget_fails_alone():
    inner = searcher(spending(30, "Found."), limits=Limits(tokens=20))
    result = boss(
        spending(10, function_call("searcher", task="a")), spending(1, "Done."), inner=inner, limits=Limits(tokens=100)
    ).call("Go.")
    assert (result.output, result.usage.total_tokens) == ("Done.", 41)
    assert_named(result.function_calls[0].error, "limits.tokens is 20", "30 tokens")


def test_an_agent_two_levels_down_ends_every_call_around_it():
    deepest = searcher(spending(60, "Found."))
    middle = Agent(Script(spending(20, function_call("searcher", task="a"))), functions=[deepest], name="middle")
    agent = boss(spending(10, function_call("middle", task="a")), inner=middle, limits=Limits(tokens=80))
    one = agent.prepare("Go.")
    events = heard(agent, one)
    ends = [(e.path, e.event.detail) for e in events if isinstance(e, Inside) and isinstance(e.event, Stepped)]
    assert [path for path, _ in ends[-2:]] == ["run:1.0/run:1.0", "run:1.0"]
    assert_named(ends[-2][1], "limits.tokens is 50", "60 tokens")
    assert_named(ends[-1][1], "limits.tokens is 70", "60 tokens by searcher (run:1.0)")
    assert one.record.ending is not None
    assert_named(one.record.ending.detail, "limits.tokens is 80", "80 tokens by middle (run:1.0)")


@ways
def test_agents_that_work_side_by_side_share_the_budget(way: Any):
    both = [
        spending(60, function_call("erase", path="x")) for _ in range(2)
    ]  # which waits for approval, and has not ended
    inner = searcher(*both, functions=[erase])
    agent = boss(
        spending(10, function_call("searcher", task="a"), function_call("searcher", task="b")),
        inner=inner,
        limits=Limits(tokens=120),
    )
    one = agent.prepare("Go.")
    way(agent, one)
    assert one.record.ending is not None
    assert one.record.ending.reason is Reason.OVER_BUDGET
    assert_named(one.record.ending.detail, "limits.tokens is 120", "(run:1.0)", "(run:1.1)")
    assert all(f.error for f in one.result_so_far.function_calls)
    assert (one.effects, one.result_so_far.usage.total_tokens) == ((), 130)
    assert snapshot(one)


def test_a_snapshot_and_a_run_go_on_with_the_budget_as_it_was():
    def agent(*replies: Reply, inner: Any = (), **options: Any) -> Agent[Any, Any]:
        return boss(*replies, inner=searcher(*inner, functions=[erase]), limits=options.pop("limits"), **options)

    asks = spending(10, function_call("searcher", task="a")), [spending(60, function_call("erase", path="x"))]
    one = agent(asks[0], inner=asks[1], limits=Limits(tokens=100)).prepare("Go.")
    with pytest.raises(CallSuspended):
        agent(asks[0], inner=asks[1], limits=Limits(tokens=100)).run(one).output  # noqa: B018
    later = agent(inner=[spending(31, "Gone.")], limits=Limits())  # an agent without a budget by now
    again = later.restore(snapshot(one))
    again.advance("run:1.0/ask:1.0", Approved())
    by_call(later, again)
    assert again.state is State.FAILED
    assert again.record.ending is not None
    assert_named(again.record.ending.detail, "limits.tokens is 100", "91 tokens by")

    store = MemoryStore()
    with pytest.raises(CallSuspended):
        agent(asks[0], inner=asks[1], limits=Limits(tokens=100), store=store).call("Go.", run_id="r").output  # noqa: B018
    later = agent(inner=[spending(31, "Gone.")], limits=Limits(), store=store)
    with pytest.raises(CallFailed, match=r"limits\.tokens is 100.*101"):
        later.runs.resume("r", {"run:1.0/ask:1.0": Approved()})
    replayed = later.runs.replay("r")
    assert replayed.record.ending is not None
    assert replayed.record.ending.reason is Reason.OVER_BUDGET


def test_a_replay_costs_what_the_call_did_whatever_the_prices_are_now():
    store = MemoryStore()
    agent = Agent(Script(spending(10, "42")), prices=DOLLAR, limits=Limits(cost_usd=0.00001), name="clerk", store=store)
    assert agent.call("x", run_id="r").usage.cost_usd == 0.00001
    dearer = Price(input_micro_usd=9_000_000, output_micro_usd=9_000_000)
    later = Agent(Script(), prices=dearer, limits=Limits(cost_usd=0.00001), name="clerk", store=store)
    assert later.call("x", run_id="r").usage.cost_usd == 0.00001


def test_a_model_whose_price_nobody_knows_is_refused_when_agent_or_call_is_made():
    with pytest.raises(UsageError, match=r"price.*script"):
        Agent(Script("42"), limits=Limits(cost_usd=1))
    middle = Agent(Script(), functions=[searcher()], name="middle", prices=DOLLAR)
    for inner in (searcher(spending(1, "Found.")).changed(prices=None), middle):
        with pytest.raises(UsageError, match=r"price.*script.*agent 'searcher'"):
            boss(inner=inner, limits=Limits(cost_usd=1), prices=DOLLAR).prepare("Go.")
    agent = Agent(Script(spending(10, "42")), prices={"script": DOLLAR}, limits=Limits(cost_usd=1))
    with pytest.raises(UsageError, match=r"price.*other"):
        agent.prepare("x", model=Script("42", name="other"))
    assert agent.call("x", model=Script(spending(10, "42"))).usage.cost_usd == 0.00001
    with pytest.raises(UsageError, match="prices"):
        Agent(Script("42"), prices=3)  # type: ignore[arg-type]


def test_the_cost_is_in_events_rounds_and_the_result_as_soon_as_there_are_prices():
    agent = Agent(Script(spending(10, "42")), prices={"script": DOLLAR})
    one = agent.prepare("x")
    events = list(agent.stream(one))
    (reply,) = [event.reply for event in events if isinstance(event, ReplyCompleted)]
    assert reply.usage.cost_usd == one.result_so_far.usage.cost_usd == 0.00001
    reports = one.result_so_far.by_round
    assert [each.usage.cost_pico_usd for each in reports] == [10_000_000]
    assert Agent(Script(spending(10, "42"))).call("x").usage.cost_usd is None


def test_an_agent_that_takes_the_dialog_over_has_what_is_left_of_the_budget():
    asks = spending(60, function_call("transfer_to_clerk"))
    clerk = Agent(Script(spending(41, "Done.")), name="clerk")
    first = Agent(Script(asks), functions=[handoff(clerk)], limits=Limits(tokens=100))
    with pytest.raises(CallFailed, match=r"limits\.tokens is 40") as raised:
        first.call("x")
    assert raised.value.call.record.ending.reason is Reason.OVER_BUDGET
    clerk = Agent(Script(spending(40, "Done.")), name="clerk")
    first = Agent(Script(asks), functions=[handoff(clerk)], limits=Limits(tokens=100))
    assert first.call("x").usage.total_tokens == 100
