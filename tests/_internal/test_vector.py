"""Are persistent vectors and maps lists and dictionaries that never change under their holders?"""

from __future__ import annotations

import copy
import pickle
import random
import sys
import threading
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from fsm_agent._internal.structs import GrowingMap, Vector


class Versions(RuleBasedStateMachine):
    """Every version ever made, with a plain tuple for each.  Old versions are appended to again and again."""

    versions = Bundle("versions")

    def __init__(self) -> None:
        super().__init__()
        self.known: list[tuple[Vector[int], tuple[int, ...]]] = []

    def _keep(self, vector: Vector[int], model: tuple[int, ...]) -> tuple[Vector[int], tuple[int, ...]]:
        self.known.append((vector, model))
        return vector, model

    @rule(target=versions, items=st.lists(st.integers(0, 3), max_size=3))
    def start(self, items: list[int]) -> Any:
        return self._keep(Vector(items), tuple(items))

    @rule(target=versions, version=versions, items=st.lists(st.integers(0, 3), max_size=3))
    def append(self, version: Any, items: list[int]) -> Any:
        return self._keep(version[0].extend(items), (*version[1], *items))

    @rule(version=versions, index=st.slices(6))
    def slice(self, version: Any, index: slice) -> None:
        assert version[0][index] == version[1][index]

    @rule(version=versions, index=st.integers(-8, 8))
    def index(self, version: Any, index: int) -> None:
        vector, model = version
        if -len(model) <= index < len(model):
            assert vector[index] == model[index]
        else:
            with pytest.raises(IndexError):
                vector[index]

    @rule(version=versions, copied=st.sampled_from([copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))]))
    def copy(self, version: Any, copied: Any) -> None:
        again = copied(version[0])
        assert again == version[0]
        assert len(pickle.dumps(again)) == len(pickle.dumps(Vector(version[1]))), "it holds nothing of newer versions"

    @rule(a=versions, b=versions)
    def compare(self, a: Any, b: Any) -> None:
        assert (a[0] == b[0]) == (a[1] == b[1])
        if a[1] == b[1]:
            assert hash(a[0]) == hash(b[0])

    @invariant()
    def nothing_has_changed(self) -> None:
        for vector, model in self.known:
            assert tuple(vector) == model
            assert len(vector) == len(model)
            assert tuple(reversed(vector)) == model[::-1]


TestVersions = Versions.TestCase
TestVersions.settings = settings(max_examples=10, stateful_step_count=20, deadline=None)


class Raced(list[Any]):
    """A list to which another thread appends first."""

    def extend(self, items: Any) -> None:
        super().extend([1, *items])


def test_the_loser_of_a_race_for_a_place_copies() -> None:
    def raced(*items: Any) -> Vector[Any]:
        vector = Vector[Any](items)
        vector._items = Raced(items)
        return vector

    assert list(raced("shared").extend(["mine", "too"])) == ["shared", "mine", "too"]
    assert raced("shared").extend([True, True])[1] is True, "told by identity: 1 == True"


def test_threads_append_to_one_version() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for size in range(10):
            shared = Vector(range(size))
            barrier = threading.Barrier(8)
            made: dict[int, Vector[Any]] = {}

            def run(name: int, shared: Vector[Any] = shared, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                vector = shared
                for step in range(20):
                    vector = vector.push((name, step))
                made[name] = vector  # noqa: B023

            threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert list(shared) == list(range(size))
            for name in range(8):
                assert list(made[name]) == [*range(size), *((name, step) for step in range(20))]
    finally:
        sys.setswitchinterval(interval)


def test_versions_share_their_items() -> None:
    old = Vector([1, 2])
    new = old.push(3)
    assert new._items is old._items
    assert old.push(4)._items is not old._items
    for n in range(100):
        old.push(n)
    assert len(new._items) == 3, "what was appended to an older version is no part of what is shared"
    grown = GrowingMap[int]({}).added("0", 0)
    more = grown.added("1", 1)
    assert more._items._items is grown._items._items
    assert more._indexes is grown._indexes


def test_versions_of_a_growing_map_are_those_of_a_dictionary() -> None:
    rng = random.Random(1)
    versions = [({}, GrowingMap[int]())]
    for number in range(300):
        plain, growing = versions[-1] if rng.random() < 0.7 else rng.choice(versions)
        if (name := f"n{rng.randrange(60)}") not in plain:
            versions.append(({**plain, name: number}, growing.added(name, number)))
    assert len(versions) > 100
    for plain, growing in versions:
        assert growing == plain
        assert list(growing.items()) == list(plain.items())
        assert [growing.get(f"n{n}", "?") for n in range(60)] == [plain.get(f"n{n}", "?") for n in range(60)]
        assert pickle.loads(pickle.dumps(growing)) == growing
