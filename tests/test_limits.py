"""Are limits checked, and do they mean what they say?"""

from __future__ import annotations

import pytest

from fsm_agent.errors import UsageError
from fsm_agent.limits import Limits, is_within


@pytest.mark.spec(
    "1.1: the defaults, one by one",
    "1.8: off by default",
    "1.21: three levels by default",
    "2.33: retries are few by default",
    "3.8: three retries by default",
    "3.13: five rounds by default",
)
def test_the_defaults():
    limits = Limits()
    assert (limits.rounds, limits.parse_retries, limits.recalls, limits.depth) == (5, 3, 2, 3)
    assert (limits.on_limit, limits.on_loop, limits.wait_s) == ("final_prompt", "stop", 60.0)
    assert (limits.deadline_s, limits.identical_rounds) == (None, None)
    assert (limits.failures_per_function, limits.parallel) == (None, None)


@pytest.mark.parametrize("name", Limits.__dataclass_fields__)
@pytest.mark.parametrize("value", [-1, "3", True])
def test_nonsense_is_named(name, value):
    with pytest.raises(UsageError, match=f"limits.{name} is {value!r}"):
        Limits(**{name: value})


@pytest.mark.spec("1.8: a threshold below two is refused")
def test_a_loop_takes_two():
    with pytest.raises(UsageError, match="identical_rounds is 1: 2 or more"):
        Limits(identical_rounds=1)


@pytest.mark.parametrize(("used", "limit", "expected"), [(0, 0, False), (0, 1, True), (1, 1, False), (9, None, True)])
def test_is_within(used, limit, expected):
    assert is_within(used, limit) is expected
