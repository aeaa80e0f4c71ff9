"""Is a persistent vector a list that never changes under its holder, whoever appends to what, and when?"""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from fsm_agent._internal.values import Value, from_json, to_json
from fsm_agent._internal.vector import Vector


class Versions(RuleBasedStateMachine):
    """Every version ever made, old ones appended to again and again, beside a plain tuple each."""

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
        return self._keep(version[0].append(*items), (*version[1], *items))

    @rule(target=versions, version=versions, length=st.integers(-2, 8))
    def head(self, version: Any, length: int) -> Any:
        return self._keep(version[0].head(length), version[1][: max(0, length)])

    @rule(version=versions, index=st.slices(6))
    def slice(self, version: Any, index: slice) -> None:
        assert version[0][index] == version[1][index]

    @rule(version=versions, index=st.integers(-8, 8))
    def index(self, version: Any, index: int) -> None:
        vector, model = version
        if -len(model) <= index < len(model):
            assert vector[index] == model[index]
        else:
            with pytest.raises(IndexError, match=f"index {index} of a vector of {len(model)}"):
                vector[index]

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
TestVersions.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


class Counting(list[Any]):
    """A list that counts how many items it ever copied or took."""

    moved = 0

    def extend(self, items: Any) -> None:
        self.moved += len(items)
        super().extend(items)

    def append(self, item: Any) -> None:
        self.moved += 1
        super().append(item)

    def __getitem__(self, index: Any) -> Any:
        self.moved += len(range(*index.indices(len(self)))) if isinstance(index, slice) else 1
        return super().__getitem__(index)


@pytest.mark.parametrize("length", [10, 10_000])
def test_appending_costs_the_same_whatever_the_length(length: int) -> None:
    backing = Counting(range(length))
    vector = Vector[Any]()._view(backing, length)
    for item in range(100):
        vector = vector.append(item)
    assert vector._items is backing
    assert backing.moved == 200  # each item put there and looked at once


def test_a_version_shares_its_items_with_the_next_and_with_its_head() -> None:
    old = Vector([1, 2])
    new = old.append(3)
    assert new._items is old._items
    assert new.head(1)._items is old._items
    assert old.append(4)._items is not old._items


def test_the_loser_of_a_race_copies() -> None:
    class Raced(list[str]):
        def extend(self, items: Any) -> None:
            super().extend(["theirs", *items])

    mine = Vector[str]()._view(Raced(["shared"]), 1).append("mine", "too")
    assert list(mine) == ["shared", "mine", "too"]


def test_a_race_for_one_place_is_told_by_identity() -> None:
    """1, 1.0 and True are equal, and still not the same."""

    class Raced(list[Any]):
        def extend(self, items: Any) -> None:
            super().extend([1, *items])

    assert Vector[Any]()._view(Raced(), 0).append(True)[0] is True


def test_threads_append_to_one_version() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for size in range(30):
            shared = Vector(range(size))
            barrier = threading.Barrier(8)
            made: dict[int, Vector[Any]] = {}

            def run(name: int, shared: Vector[Any] = shared, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                vector = shared
                for step in range(20):
                    vector = vector.append((name, step))
                made[name] = vector  # noqa: B023

            threads = [threading.Thread(target=run, args=(name,)) for name in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert list(shared) == list(range(size))
            for name in range(8):
                assert list(made[name]) == [*range(size), *((name, step) for step in range(20))]
    finally:
        sys.setswitchinterval(interval)


def test_equality_and_hash() -> None:
    nan = float("nan")
    assert Vector([nan]) == Vector([nan])  # as in a list: the same object is equal to itself
    assert Vector([1]) != Vector([2])
    assert Vector([1]) != Vector([1, 2])
    assert Vector([1]) != [1]
    assert (Vector() == 1) is False
    assert {Vector([1, 2]): "found"}[Vector([1]).append(2)] == "found"
    assert not Vector()
    assert repr(Vector([1]).append("a")) == "Vector([1, 'a'])"


def test_iteration_sees_no_later_items() -> None:
    vector = Vector([1])
    iterator = iter(vector)
    vector.append(2)
    assert list(iterator) == [1]
    assert 2 not in vector


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
def test_a_copy_holds_nothing_of_newer_versions(copied: Any) -> None:
    old = Vector(["mine"])
    old.append("somebody else's")
    again = copied(old)
    assert again == old
    assert again._items == ["mine"]


class Point(Value, frozen=True):
    x: int
    tags: Vector[str] = Vector()


class Shape(Value, frozen=True):
    points: Vector[Point]
    anything: Vector[Any] = Vector()


def test_json_round_trip_with_nested_values() -> None:
    shape = Shape(points=Vector([Point(1, Vector(["a"])), Point(2)]), anything=Vector([1, "x", None]))
    document = to_json(shape)
    assert document == '{"points":[{"x":1,"tags":["a"]},{"x":2}],"anything":[1,"x",null]}'
    again = from_json(document, Shape)
    assert again == shape
    assert isinstance(again.points, Vector)
    assert isinstance(again.points[0].tags, Vector)


class Holder(Value, frozen=True):
    items: Vector[int | str | None] = Vector()


def test_an_older_version_writes_only_its_own_items() -> None:
    old = Vector[int | str | None]([1])
    old.append(2)
    assert to_json(Holder(old)) == '{"items":[1]}'
    assert from_json('{"items":[1]}', Holder).items == old


def test_items_are_validated() -> None:
    with pytest.raises(ValueError, match=r"items\[1\]: expected int"):
        from_json('{"items":[1, [2]]}', Holder)


@settings(deadline=None)
@given(st.lists(st.integers() | st.text() | st.none()))
def test_json_round_trip_of_anything(items: list[Any]) -> None:
    assert list(from_json(to_json(Holder(Vector(items))), Holder).items) == items


def test_appending_to_an_older_version_leaves_nothing_in_what_is_shared() -> None:
    old = Vector([1])
    new = old.append(2)
    for n in range(100):
        old.append(n)
    assert len(new._items) == 2


def test_what_a_version_has_since_is_without_what_newer_ones_have() -> None:
    old = Vector([1, 2, 3])
    assert old.append(4).since(1) == [2, 3, 4]
    assert old.since(1) == [2, 3]
    assert old.since(3) == []
