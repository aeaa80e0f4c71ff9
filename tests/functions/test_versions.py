"""Do versions compare as people read them, and do shares fall as they are said?"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from fsm_agent.errors import UsageError
from fsm_agent.functions.version import check_shares, chosen_point, sharer, version_order


@pytest.mark.spec("4.24: the highest version, or a certain one")
def test_the_order_of_versions():
    rising = ["", "beta", "0.9", "1", "1.2", "1.9", "1.10-rc1", "1.10-rc2", "1.10", "1.10.1", "2", "10", "2026.1"]
    assert sorted(set(rising), key=version_order) == rising
    assert version_order("v2") > version_order("1.9")


@pytest.mark.spec("4.24: shares of calls")
def test_a_tenth_is_a_tenth():
    random = Random(7)
    fell = Counter(sharer([0.9, 0.1], random.random()) for _ in range(10_000))
    assert 900 < fell[1] < 1100
    assert fell[0] + fell[1] == 10_000


@pytest.mark.parametrize(
    ("shares", "point", "place"),
    [
        ([0.9, 0.1], 0, 0),
        ([0.9, 0.1], 0.8999, 0),
        ([0.9, 0.1], 0.9, 1),
        ([0.9, 0.1], 0.9999, 1),
        ([0, 1], 0, 1),
        ([1, 0], 0.9999999999999999, 0),
        ([0.1] * 10, 0.9999999999999999, 9),
        ([0.1, 0.3], 0.2, 0),
        ([0.1, 0.3], 0.3, 1),
        ([0, 0], 0.5, None),
        ([], 0.5, None),
    ],
)
def test_where_a_point_falls(shares, point, place):
    assert sharer(shares, point) == place


@pytest.mark.parametrize(
    ("shares", "problem"),
    [
        ({"1": 0.9, "3": 0.1}, r"function 'f' has no version '3'; there are: 1, 2"),
        ({"1": -0.5, "2": 1.5}, r"the share of f@1 is -0.5: a number from 0 to 1"),
        ({"1": True}, r"the share of f@1 is True"),
        ({"1": float("nan")}, r"the share of f@1 is nan"),
        ({"1": "1"}, r"the share of f@1 is '1'"),
        ({"1": 0.9, "2": 0.2}, r"the shares of function 'f' are 1.1\d* together: 1 would be right"),
        ({}, r"the shares of function 'f' are 0.0 together"),
    ],
)
def test_what_is_no_sharing(shares, problem):
    with pytest.raises(UsageError, match=problem):
        check_shares("f", shares, ["1", "2"])


@pytest.mark.parametrize("point", [1, -0.1, None, "0.5", True, float("nan")])
def test_what_is_no_point(point):
    with pytest.raises(UsageError, match=r"choose of function 'f' returned .*: a number from 0 to below 1 is right"):
        chosen_point("f", lambda: point)
