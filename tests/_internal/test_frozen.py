"""Are frozen values what frozen dataclasses are?"""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import weakref
from dataclasses import KW_ONLY, FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from fsm_agent._internal.values import changed, frozen


@dataclass(frozen=True, slots=True)
class Plain:
    name: str
    secret: str = field(default="s", repr=False)
    notes: list[int] = field(default_factory=list, hash=False)
    place: int = field(default=0, compare=False)
    _: KW_ONLY
    size: int = 1
    twice: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.size)


@frozen()
class Frozen:
    name: str
    secret: str = field(default="s", repr=False)
    notes: list[int] = field(default_factory=list, hash=False)
    place: int = field(default=0, compare=False)
    _: KW_ONLY
    size: int = 1
    twice: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.size)


@frozen(is_quick=True)
class Quick:
    name: str
    secret: str = field(default="s", repr=False)
    notes: list[int] = field(default_factory=list, hash=False)
    place: int = field(default=0, compare=False)
    _: KW_ONLY
    size: int = 1
    twice: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.size)


KINDS: list[Any] = [Plain, Frozen, Quick]
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_it_is_made_and_shown_as_a_dataclass_is(kind):
    value = kind("a", size=3)
    assert repr(value) == f"{kind.__name__}(name='a', notes=[], place=0, size=3, twice=6)"
    assert kind("a").notes is not kind("a").notes
    assert kind.__match_args__ == ("name", "secret", "notes", "place")
    assert [item.name for item in fields(kind)] == ["name", "secret", "notes", "place", "size", "twice"]
    assert [*inspect.signature(kind).parameters] == ["name", "secret", "notes", "place", "size"]
    assert inspect.signature(kind).parameters["size"].kind is inspect.Parameter.KEYWORD_ONLY
    assert not hasattr(value, "__dict__")


@each_kind
@pytest.mark.parametrize(("given", "named"), [((), {}), (("a", "b", [], 1, 2), {}), (("a",), {"twice": 1})])
def test_what_does_not_fit_is_refused(kind, given, named):
    with pytest.raises(TypeError):
        kind(*given, **named)


@each_kind
def test_it_is_equal_to_its_like(kind):
    assert kind("a", place=1) == kind("a", place=2)
    assert kind("a") != kind("b")
    assert kind("a", notes=[1]) != kind("a")
    assert hash(kind("a", notes=[1], place=1)) == hash(kind("a", place=2))
    assert hash(kind("a")) != hash(kind("b"))
    assert all(kind("a") != other("a") for other in KINDS if other is not kind)


@each_kind
def test_it_cannot_be_changed(kind):
    value = kind("a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        value.name = "b"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del value.name
    assert value.name == "a"


@each_kind
def test_it_is_copied_whole(kind):
    value = kind("a", notes=[1], size=3)
    for copied in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value)), replace(value)):
        assert copied == value
        assert copied.twice == 6
    assert replace(value, size=4).twice == 8
    assert TypeAdapter(kind).validate_json(TypeAdapter(kind).dump_json(value)) == value


def test_a_quick_one_is_changed_without_a_check():
    assert changed(Quick("a", size=3), name="b") == Quick("b", size=3)
    assert type(changed(Quick("a"))) is Quick


@pytest.mark.parametrize("kind", [Plain, Frozen])
def test_a_class_can_be_derived_from_it(kind):
    value = type("Derived", (kind,), {})("a")
    assert repr(value).startswith("Derived(name='a'")
    with pytest.raises(FrozenInstanceError):
        value.name = "b"
    assert dataclass(frozen=True)(type("Further", (kind,), {}))("a").name == "a"
    with pytest.raises(TypeError, match="non-frozen"):
        dataclass(type("Loose", (kind,), {}))


def test_one_can_be_derived_as_it_is_made():
    @frozen(kw_only=True)
    class Base:
        name: str
        kind: str = "base"

    @frozen(kw_only=True)
    class Derived(Base):
        kind: str = "derived"
        size: int = 0

    value = Derived(name="a", size=1)
    assert repr(value).endswith("Derived(name='a', kind='derived', size=1)")
    assert (value, copy.copy(value)) == (Derived(name="a", size=1), value)
    assert value != Derived(name="b", size=1)
    assert (Base(name="a").kind, Derived.__slots__) == ("base", ("size",))
    assert not hasattr(value, "__dict__")
    with pytest.raises(FrozenInstanceError):
        value.name = "b"  # type: ignore[misc]


def test_without_slots_it_has_room_for_what_is_kept_beside():
    @frozen(slots=False)
    class Open:
        name: str
        sizes: list[int] = field(default_factory=list)
        count: int = 1

        @functools.cached_property
        def double(self) -> str:
            return 2 * self.name

    value = Open("a")
    assert (value.double, vars(value)) == ("aa", {"name": "a", "sizes": [], "count": 1, "double": "aa"})
    assert (Open.count, hasattr(Open, "sizes")) == (1, False)
    assert replace(value, name="b").double == "bb"
    assert copy.deepcopy(value) == value == Open("a")
    assert weakref.ref(value)() is value
    with pytest.raises(FrozenInstanceError):
        value.count = 2  # type: ignore[misc]


@pytest.mark.parametrize(("annotation", "default"), [("ClassVar[int]", 1), ("InitVar[int]", 1), ("list[int]", [])])
def test_what_can_be_no_field_is_refused(annotation, default):
    body = {"__annotations__": {"item": annotation}, "item": default}
    with pytest.raises(TypeError, match=r"Odd\.item"):
        frozen()(type("Odd", (), body))


def test_its_own_methods_stay():
    @frozen(kw_only=True)
    class Own:
        name: str

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

    assert repr(Own(name="a")) == "mine"
    assert Own(name="a") == Own(name="b")
    assert hash(Own(name="a")) == hash(Own(name="a"))


def test_without_eq_it_is_only_itself():
    @frozen(eq=False)
    class Single:
        name: str

    assert Single("a") != Single("a")
    assert len({Single("a"), Single("a")}) == 2


def test_an_argument_that_it_does_not_have_is_explained_if_it_can():
    @frozen()
    class Explains:
        name: str
        size: int = 0

        @classmethod
        def _unknown(cls, words):
            return KeyError(*words)

    assert Explains("a", size=1).size == 1
    with pytest.raises(KeyError, match="siez"):
        Explains("a", siez=1)  # type: ignore[call-arg]
    assert str(inspect.signature(Explains)) == "(name: 'str', size: 'int' = 0) -> None"


def test_what_holds_itself_is_shown():
    value = Frozen("a")
    value.notes.append(value)  # type: ignore[arg-type]
    assert repr(value) == "Frozen(name='a', notes=[...], place=0, size=1, twice=2)"
