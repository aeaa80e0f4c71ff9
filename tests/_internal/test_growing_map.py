"""Does a growing map behave as a dictionary of which a copy is kept after each addition?"""

from __future__ import annotations

import pickle
import random

import pytest

from fsm_agent._internal.growing_map import GrowingMap


def test_versions_are_those_of_a_dictionary_whatever_is_added_to_which():
    rng = random.Random(1)
    versions = [({}, GrowingMap[int]({}))]
    for number in range(2000):
        plain, growing = versions[-1] if rng.random() < 0.7 else rng.choice(versions)
        if (name := f"n{rng.randrange(60)}") not in plain:
            versions.append(({**plain, name: number}, growing.added(name, number)))
    assert len(versions) > 500
    for plain, growing in versions:
        assert growing == plain
        assert list(growing.items()) == list(plain.items())
        assert [growing.get(f"n{n}") for n in range(60)] == [plain.get(f"n{n}") for n in range(60)]
        assert pickle.loads(pickle.dumps(growing)) == growing


def test_a_name_that_is_not_there_is_a_key_error():
    one = GrowingMap({"a": 1})
    two = one.added("b", 2)
    with pytest.raises(KeyError, match="b"):
        one["b"]
    assert (two["b"], repr(one)) == (2, "GrowingMap({'a': 1})")


def test_versions_share_their_items():
    grown = GrowingMap[int]({})
    first = grown = grown.added("0", 0)
    for n in range(1, 1000):
        grown = grown.added(str(n), n)
    assert grown._indexes is first._indexes
    assert grown._items._items is first._items._items


def test_an_empty_one_can_be_the_default_of_many():
    empty = GrowingMap[int]()
    assert (empty.added("a", 1), empty.added("b", 2), dict(empty)) == ({"a": 1}, {"b": 2}, {})
    assert empty._indexes == {}
