"""Do all walks through the machine keep its promises?"""

from __future__ import annotations

from random import Random

import pytest
from support.agent_calls import (
    FINAL,
    LIVE,
    PROMPT,
    STAGED,
    assert_policies_hold,
    assert_sendable,
    limits,
    outcome,
    seeded,
    stop_when,
    unchanged,
    view_of,
)

from fsm_agent.call import AgentCall, CallModel, FunctionFailed, Outcome, restore, snapshot
from fsm_agent.context import Budget, ContextPlan, TextTokenizer, compress, keep_last, mask, once, summarize
from fsm_agent.messages import Stepped

SHORT, FULL = 4, 100  # hundreds of walks
PLANS = (
    ContextPlan((summarize(keep=1, step=1),), Budget()),
    ContextPlan(budget=Budget(passes=(summarize(keep=1, step=1), keep_last(1)))),
    ContextPlan(  # too long in the exception branch alone
        budget=Budget(
            hard=999,
            soft=50,
            passes=(summarize(keep=1, step=1),),
            tokenizer=TextTokenizer(lambda text: 60 * ("number" in text)),
        )
    ),
    ContextPlan((once(), mask(1, 0), compress(2), keep_last(3)), Budget(hard=400, soft=100)),
)
ENOUGH = 80  # steps; only unlimited rounds come near


def reborn(call: AgentCall) -> AgentCall:
    view = view_of(call.view and call.view.plan)
    return restore(snapshot(call), call.prompt, stop_when=stop_when, check=call.check, view=view)


def row_of(step: Stepped) -> tuple[str, str, str, str]:
    return str(step.source), step.trigger, str(step.to), step.guard


def walk(rng: Random, call: AgentCall, *, stored: bool) -> tuple[AgentCall, list[tuple[str, Outcome]]]:
    """To an end, checked in every state; if ``stored``, the call is a snapshot between any two steps."""
    journal: list[tuple[str, Outcome]] = []
    while call.effects and len(journal) < ENOUGH:
        if stored:
            restored = reborn(call)
            assert restored.record == call.record
            assert restored.record.trace == call.record.trace
            assert [e.key for e in restored.effects] == [e.key for e in call.effects]
            call = restored
        assert call.state in LIVE
        assert_policies_hold(call)
        keys = [effect.key for effect in call.effects]
        assert len(set(keys)) == len(keys)
        assert not {key for key, _ in journal} & set(keys), "a key is asked for once in the life of a call"
        for effect in call.effects:
            if isinstance(effect, CallModel):
                assert_sendable(effect.request.messages)
        key, became = outcome(rng, rng.choice(call.effects), call.state)
        journal.append((key, became))
        before, expected = call.record, call.explain(became, key=key)
        assert call.record is before
        call.advance(key, became)
        took = expected.taken
        assert took is not None
        assert (took.source, took.trigger, took.to, took.guard) == row_of(call.step)
        assert call.explain(call.step) == expected
    return call, journal


@pytest.mark.parametrize(
    "seed", [*range(SHORT), *[pytest.param(seed, marks=pytest.mark.nightly) for seed in range(SHORT, FULL)]]
)
def test_every_walk_keeps_the_promises(seed):
    for number in range(100):
        rng = Random(seed * 100 + number)
        budget, depth = limits(rng), rng.choice([0, 0, 0, 1, 2])
        prompt, check = rng.choice([PROMPT, PROMPT, STAGED]), rng.choice([None, unchanged])
        plan = rng.choice([None, None, *PLANS, PLANS[2]])
        if plan is PLANS[2]:  # else a failed summary in the exception branch is rare
            budget = budget.changed(rounds=4, parse_retries=3, recalls=2, wait_s=None)
        began = seeded(budget, depth=depth, prompt=prompt, check=check, view=view_of(plan))
        call, journal = walk(rng, began, stored=number % 10 == 0)
        r = call.record
        assert len(r.trace) == len(journal)
        if call.effects:
            assert budget.rounds is None, "with bounded budgets every call ends"
            continue
        assert r.state in FINAL
        assert sum(step.to in FINAL for step in r.trace) == 1
        assert r.ending is not None
        assert (r.branch, r.round) == ((), ())
        assert_sendable(r.dialog)
        assert (call.output is not None) == (r.ending.reason == "answered")
        if budget.rounds is not None:
            requests = sum(key.startswith("model:") for key, _ in journal)
            stages = 1 + (call.prompt.mode == "two_stage")
            assert requests <= stages + budget.rounds + budget.parse_retries + budget.recalls


@pytest.mark.parametrize("seed", [0, 1, *[pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 20)]])
def test_a_journal_replayed_in_another_order_gives_the_same_record(seed):
    replayed = 0
    for number in range(50):
        rng = Random(seed * 1000 + number)
        budget, plan = limits(rng), rng.choice([None, *PLANS])
        call, journal = walk(rng, seeded(budget, view=view_of(plan)), stored=False)
        if call.effects or any(key == "" or isinstance(said, FunctionFailed) for key, said in journal):
            continue
        again, rest = seeded(budget, view=view_of(plan)), dict(journal)
        while again.effects:
            effect = rng.choice(again.effects)
            again.advance(effect.key, rest.pop(effect.key))
        assert again.record == call.record
        assert not rest
        replayed += 1
    assert replayed > 10
