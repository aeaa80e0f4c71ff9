"""Does everything that can happen within small limits happen as documented, and is every row of the table taken?"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from handoff_checker import explore_handoffs
from model_checker import NEVER_SHORTER, SUMMARIES, SUMMARIZING, SUMMARIZING_IF_TOO_LONG, Explored, Model, explore
from support.agent_calls import PROMPT, STAGED, TYPED, fetch, login

from fsm_agent.call import Limits, Reason, row_name
from fsm_agent.context import Budget, ContextPlan
from fsm_agent.prompts import Prompt
from fsm_agent.testing.pytest_plugin import _rows

WORDS = ("answer", "wrong", "enough", "refusal", "filtered")
ONE = {"rounds": 1, "parse_retries": 0, "recalls": 0}
ONCE = Prompt("x", path="once", functions=(login,), parser=PROMPT.parser)
NAMED = Prompt("x", path="named", functions=(login, fetch), parser=PROMPT.parser)

MODELS = {
    "rounds, retries and recalls": Model(
        Limits(rounds=2, parse_retries=1, recalls=1),
        (*WORDS, "erase", "unknown", "broken off", "pause"),
        delays_s=(1.0,),
    ),
    "no rounds": Model(
        Limits(rounds=0, parse_retries=2, recalls=1), ("answer", "wrong", "tick", "pause"), delays_s=(1.0,)
    ),
    "without limits": Model(
        Limits(rounds=None, parse_retries=None, recalls=None, wait_s=None, depth=None, identical_rounds=None),
        ("answer", "wrong", "tick", "unknown", "broken off", "pause"),
        depth=9,
        delays_s=(1.0, 999.0),
    ),
    "stop at the limit": Model(
        Limits(rounds=2, on_limit="stop", parse_retries=1, recalls=0),
        ("answer", "wrong", "unknown", "erase", "erase, tick"),
    ),
    "fail at the limit": Model(
        Limits(rounds=2, on_limit="fail", parse_retries=1, recalls=0),
        ("answer", "wrong", "unknown", "erase", "erase, tick"),
    ),
    "a loop ends it": Model(
        Limits(rounds=3, identical_rounds=2, on_loop="stop", parse_retries=1, recalls=0),
        ("answer", "wrong", "tick", "add", "invalid", "pause"),
    ),
    "a loop ends it before the limit does": Model(
        Limits(rounds=2, identical_rounds=2, on_loop="stop", on_limit="stop", parse_retries=1), ("wrong", "tick", "add")
    ),
    "a loop is seen": Model(
        Limits(**{**ONE, "rounds": 4}, identical_rounds=2, on_loop="warn"), ("answer", "tick", "add")
    ),
    "a loop is told": Model(Limits(**{**ONE, "rounds": 4}, identical_rounds=2), ("answer", "tick", "add", "unknown")),
    "a loop is told by the system": Model(
        Limits(**{**ONE, "rounds": None}, identical_rounds=3, loop_role="system"), ("answer", "tick", "twice")
    ),
    "a function that must not run twice": Model(
        Limits(rounds=2, parse_retries=0, recalls=0), ("answer", "pay, tick"), is_injected=True
    ),
    "two stages": Model(
        Limits(rounds=2, parse_retries=1, recalls=1),
        ("answer", "wrong", "tick", "pause", "enough"),
        prompt=STAGED,
        delays_s=(1.0,),
    ),
    "answers by a function": Model(
        Limits(rounds=1, parse_retries=2, recalls=1),
        ("answer", "final", "final, wrong", "final, final", "final, tick", "tick"),
        prompt=TYPED,
        delays_s=(1.0,),
    ),
    "answers by a function in two stages": Model(
        Limits(rounds=2, parse_retries=1, recalls=0),
        ("answer", "final", "final, wrong", "final, tick"),
        prompt=TYPED.extend(mode="two_stage"),
    ),
    "one after another": Model(
        Limits(**ONE, parallel=1), ("answer", "add, erase", "erase, tick", "fetch, login", "twice")
    ),
    "all at once": Model(Limits(**ONE), ("answer", "fetch, login", "erase, tick", "twice")),
    "two at once": Model(Limits(**ONE, parallel=2), ("answer", "fetch, login", "add, erase")),
    "functions that wait for others": Model(
        Limits(rounds=4, parse_retries=0, recalls=0), ("answer", "fetch, login", "login"), prompt=NAMED
    ),
    "functions that are used up": Model(
        Limits(rounds=None, parse_retries=1), ("wrong", "answer", "login"), prompt=ONCE
    ),
    "functions that fail too often": Model(
        Limits(rounds=3, parse_retries=0, failures_per_function=1), ("answer", "fetch, login", "login"), prompt=NAMED
    ),
    "functions that fail twice": Model(
        Limits(rounds=None, parse_retries=0, failures_per_function=2, identical_rounds=None),
        ("answer", "login", "tick"),
    ),
    "answers that are checked": Model(
        Limits(rounds=1, parse_retries=2, recalls=1, check_s=1.0),
        ("answer", "wrong", "tick", "enough"),
        delays_s=(1.0,),
        is_checked=True,
    ),
    "answers by a function that are checked": Model(
        Limits(rounds=1, parse_retries=1, recalls=0),
        ("answer", "final", "final, final", "final, tick"),
        prompt=TYPED,
        is_checked=True,
    ),
    "checked answers in two stages": Model(
        Limits(rounds=1, parse_retries=None, recalls=0), ("answer", "wrong", "tick"), prompt=STAGED, is_checked=True
    ),
    "checked answers after the last round": Model(
        Limits(rounds=1, on_limit="stop", parse_retries=0, tokens=30), ("answer", "tick", "costly"), is_checked=True
    ),
    "tokens": Model(
        Limits(rounds=2, parse_retries=1, recalls=0, tokens=21),
        ("answer", "wrong", "erase, tick", "refusal", "costly, wrong"),
    ),
    "tokens of the last reply": Model(Limits(**ONE, tokens=9), ("costly", "costly tick", "costly refusal", "tick")),
    "no tokens": Model(Limits(**ONE, tokens=0), ("answer", "filtered")),
    "dollars": Model(
        Limits(rounds=2, parse_retries=2, recalls=0, cost_usd=20e-12), ("costly", "costly tick", "costly, wrong")
    ),
    "exactly the dollars": Model(Limits(rounds=2, parse_retries=0, cost_usd=18e-12), ("costly", "costly tick")),
    "injected": Model(
        Limits(rounds=1, parse_retries=1, recalls=1), ("answer", "wrong", "tick"), delays_s=(1.0,), is_injected=True
    ),
    "not too deep": Model(Limits(**ONE, depth=2), depth=1),
    "too deep": Model(Limits(**ONE, depth=2), depth=2),
    "patience": Model(Limits(recalls=3, rounds=0, wait_s=2.0), delays_s=(0.0, 2.0, 2.01)),
    "deadline": Model(
        Limits(recalls=2, rounds=0, deadline_s=2.0, request_s=1.0), ("answer", "wrong"), delays_s=(1.99, 2.0, 2.01)
    ),
    "words that are cut": Model(Limits(rounds=0, parse_retries=1), ("answer", "cut"), prompt=Prompt("x")),
    "words that may be cut": Model(
        Limits(rounds=0, parse_retries=1, on_cut="accept"), ("answer", "cut"), prompt=Prompt("x")
    ),
    "summaries": Model(
        Limits(rounds=2, parse_retries=0, recalls=1),
        ("answer", "tick", "pause"),
        delays_s=(1.0,),
        context=SUMMARIZING,
        summaries=tuple(name for name in SUMMARIES if "costly" not in name),
    ),
    "summaries of a dialog that grows otherwise": Model(
        Limits(rounds=3, parse_retries=0, recalls=0),
        ("answer", "tick"),
        context=SUMMARIZING,
        summaries=("summary", "empty summary"),
        is_injected=True,
    ),
    "summaries within tokens": Model(
        Limits(rounds=3, parse_retries=1, recalls=0, tokens=40),
        ("answer", "tick", "wrong"),
        context=SUMMARIZING,
        summaries=("summary", "costly summary"),
    ),
    "summaries within dollars": Model(
        Limits(rounds=3, parse_retries=0, recalls=0, cost_usd=30e-12),
        ("costly", "costly tick"),
        context=SUMMARIZING,
        summaries=("costly summary",),
    ),
    "a dialog that is too long": Model(
        Limits(rounds=2, parse_retries=1, recalls=1),
        ("answer", "tick", "wrong"),
        delays_s=(1.0,),
        context=ContextPlan(budget=Budget()),
        is_too_long=True,
    ),
    "a dialog that is too long and is summarized": Model(
        Limits(rounds=2, parse_retries=1, recalls=2),
        ("answer", "tick", "wrong"),
        delays_s=(1.0,),
        context=SUMMARIZING_IF_TOO_LONG,
        summaries=("summary", "empty summary"),
        is_too_long=True,
    ),
    "a dialog that is too long and summarized within tokens": Model(
        Limits(rounds=2, parse_retries=1, recalls=1, tokens=40),
        ("answer", "tick", "wrong"),
        context=SUMMARIZING_IF_TOO_LONG,
        summaries=("summary", "costly summary"),
        is_too_long=True,
    ),
    "a dialog that must not be shortened": Model(
        Limits(rounds=1, parse_retries=1, recalls=2),
        ("answer", "tick", "wrong"),
        context=NEVER_SHORTER,
        is_too_long=True,
    ),
    "a parser that is given what is cut": Model(Limits(rounds=0, parse_retries=1, on_cut="retry"), ("wrong", "cut")),
}

# The same corners, larger: no row more, but longer ways to it
LARGER = {
    "rounds, retries and recalls": {"replies": (*WORDS, "add, erase", "unknown", "broken off", "pause")},
    "a function that must not run twice": {"replies": ("answer", "pay", "pay, tick")},
    "functions that fail twice": {"identical_rounds": 3},
    "tokens": {"replies": ("answer", "wrong", "tick", "erase, tick", "refusal", "enough", "costly, wrong")},
    "stop at the limit": {"replies": ("answer", "wrong", "unknown", "erase", "erase, tick", "pause")},
    "fail at the limit": {"replies": ("answer", "wrong", "unknown", "erase", "erase, tick", "pause")},
    "a loop is told by the system": {"replies": ("answer", "tick", "add", "twice")},
    "summaries": {"rounds": 4},
    "a dialog that is too long": {"recalls": 2},
    "a dialog that is too long and is summarized": {"recalls": 3},
    "a dialog that is too long and summarized within tokens": {"recalls": 2},
}


TEAMS = {
    "agents that never hand over": (Limits(rounds=1, handoffs=0), False, ""),
    "agents that hand over and back": (Limits(rounds=1, handoffs=2), True, ""),
    "an agent that keeps the dialog": (Limits(rounds=2, handoffs=None), False, "hand"),
}


@cache
def handed_over(name: str) -> Explored:
    limits, is_cyclic, governed_by = TEAMS[name]
    return explore_handoffs(limits, is_cyclic=is_cyclic, governed_by=governed_by)


@pytest.mark.parametrize("name", TEAMS)
def test_every_step_of_agents_that_hand_over_leaves_a_record_that_is_sound(name: str):
    assert handed_over(name).configurations > 10


@cache
def explored(name: str) -> Explored:
    return explore(MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_every_step_from_every_configuration_is_as_documented(name):
    assert explored(name).steps > 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGER)
def test_so_is_every_step_of_larger_models(name):
    model, larger = MODELS[name], dict(LARGER[name])
    replies = larger.pop("replies", model.replies)
    found = explore(replace(model, replies=replies, limits=model.limits.changed(**larger)))
    assert found.steps > explored(name).steps


def test_every_row_is_taken_from_each_of_its_sources(say):
    found = [explored(name) for name in MODELS]
    teams = [handed_over(name) for name in TEAMS]
    taken = {row_name(*row) for one in (*found, *teams) for row in one.rows}
    rows = list(_rows())
    assert [row for row in rows if row not in taken] == []
    assert {reason for one in (*found, *teams) for reason in one.reasons} == set(Reason)
    configurations, steps = sum(one.configurations for one in found), sum(one.steps for one in found)
    say(f"{len(taken)} of {len(rows)} rows taken, in {configurations} configurations and {steps} steps")
