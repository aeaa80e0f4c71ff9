"""Are limits checked, and do they mean what they say?"""

from __future__ import annotations

import math
import re

import pytest
from support.agent_calls import PROMPT, seeded

from fsm_agent._internal.values import field_names
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle import Limits, restore, snapshot
from fsm_agent.lifecycle.limits import is_within


@pytest.mark.spec(
    "1.1: the defaults, one by one",
    "1.8: by default three rounds, and the model is told",
    "1.21: three levels by default",
    "2.33: retries are few by default",
    "3.8: three retries by default",
    "3.13: five rounds by default",
)
def test_the_defaults():
    limits = Limits()
    assert (limits.rounds, limits.parse_retries, limits.recalls, limits.depth) == (5, 3, 2, 3)
    assert (limits.on_limit, limits.on_cut, limits.wait_s, limits.deadline_s) == ("final_prompt", "retry", 60.0, None)
    assert (limits.identical_rounds, limits.on_loop, limits.loop_role) == (3, "tell", "user")
    assert (limits.failures_per_function, limits.parallel) == (None, None)


@pytest.mark.parametrize("name", field_names(Limits))
@pytest.mark.parametrize("value", [-1, "3"])
def test_nonsense_is_named(name, value):
    with pytest.raises(UsageError, match=f"limits.{name} is {value!r}"):
        Limits(**{name: value})


WHOLE = ("rounds", "parse_retries", "recalls", "depth", "identical_rounds", "failures_per_function", "parallel")


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [2.5])
def test_what_is_counted_is_whole(name, value):
    says = f"limits.{name} is {value!r}: a whole number from 0 on would be right, or None: unlimited"
    with pytest.raises(UsageError, match=re.escape(says)):
        Limits(**{name: value})


@pytest.mark.parametrize("name", ["deadline_s", "wait_s"])
@pytest.mark.parametrize("value", [math.nan, 10**400])
def test_a_time_is_finite(name, value):
    with pytest.raises(UsageError, match=rf"limits\.{name} is .*: a number from 0 on would be right, or None"):
        Limits(**{name: value})
    assert getattr(Limits(**{name: 1}), name) == 1


def test_every_limit_that_can_be_set_survives_json():
    limits = Limits(**dict.fromkeys(WHOLE, 2**62), deadline_s=1e308, wait_s=0.1)
    call = seeded(limits)
    assert restore(snapshot(call), PROMPT).record.limits == limits


@pytest.mark.spec("1.8: a threshold below two is refused")
def test_a_loop_takes_two():
    with pytest.raises(UsageError, match="identical_rounds is 1: 2 or more"):
        Limits(identical_rounds=1)


@pytest.mark.parametrize(("used", "limit", "expected"), [(0, 0, False), (9, None, True)])
def test_is_within(used, limit, expected):
    assert is_within(used, limit) is expected
