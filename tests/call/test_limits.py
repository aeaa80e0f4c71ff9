"""Are limits checked, and do they mean what they say?"""

from __future__ import annotations

import math

import pytest
from support.agent_calls import PROMPT, seeded

from fsm_agent import Agent
from fsm_agent.call import CallFailed, Limits, restore, snapshot
from fsm_agent.errors import RateLimited, UsageError
from fsm_agent.testing import Script


def test_the_defaults():
    limits = Limits()
    assert (limits.rounds, limits.parse_retries, limits.recalls, limits.depth) == (5, 3, 2, 3)
    assert (limits.on_limit, limits.on_cut, limits.wait_s, limits.deadline_s) == ("final_prompt", "retry", 60.0, None)
    assert (limits.identical_rounds, limits.on_loop, limits.loop_role) == (3, "tell", "user")
    assert (limits.failures_per_function, limits.parallel) == (None, None)


@pytest.mark.parametrize(
    ("name", "values"),
    [("rounds", (-1, 2.5, "3", True, 2**63)), ("deadline_s", (math.nan, math.inf, -0.1, 10**400)), ("on_loop", (5,))],
)
def test_nonsense_is_named(name, values):
    for value in values:
        with pytest.raises(UsageError, match=rf"limits\.{name}"):
            Limits(**{name: value})


WHOLE = ("rounds", "parse_retries", "recalls", "depth", "identical_rounds", "failures_per_function", "parallel")


def test_every_limit_that_can_be_set_survives_json():
    limits = Limits(**dict.fromkeys(WHOLE, 2**62), deadline_s=1e308, wait_s=0.1)
    call = seeded(limits)
    assert restore(snapshot(call), PROMPT).record.limits == limits


def test_a_loop_takes_two():
    with pytest.raises(UsageError, match="identical_rounds"):
        Limits(identical_rounds=1)


def test_a_wait_that_the_provider_asked_for_and_the_limit_forbids_is_named() -> None:
    """The error names the limit only if the provider asked for more."""
    for asked_s, is_named in ((600.0, True), (1.0, False)):
        model = Script(*[RateLimited("busy", retry_after_s=asked_s)] * 2)
        with pytest.raises(CallFailed) as caught:
            Agent(model, limits=Limits(recalls=1, wait_s=30.0)).call("Hi")
        assert ("wait_s" in str(caught.value)) is is_named


def test_a_deadline_before_the_end_of_the_wait_is_named_with_the_wait():
    for limits, named in [
        (Limits(deadline_s=20.0), ["deadline_s"]),
        (Limits(deadline_s=20.0, wait_s=5.0), ["wait_s", "deadline_s"]),
        (Limits(deadline_s=31.0, recalls=0), []),
    ]:
        with pytest.raises(CallFailed) as caught:
            Agent(Script(RateLimited("slow down", retry_after_s=30)), limits=limits).call("Hi")
        assert [name for name in ("wait_s", "deadline_s") if name in str(caught.value)] == named
        assert ("30 s" in str(caught.value)) is bool(named)
