"""Are quick values what plain frozen dataclasses are, in all that can be seen?"""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent._internal.values import changed, changer, frozen, maker, unshare
from fsm_agent.agents.agent import Agent
from fsm_agent.lifecycle.outcomes import Begun, Replied, Returned, Slept
from fsm_agent.lifecycle.record import Ending, Reason, Tally
from fsm_agent.messages.event import Done, FunctionEnded, FunctionStarted, ReplyCompleted, Stepped, TextDelta
from fsm_agent.messages.message import FunctionCall, FunctionResult, Message, Text
from fsm_agent.messages.reply import Reply, Usage
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.testing import Script


@dataclass(frozen=True, slots=True)
class Plain:
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list)
    _: KW_ONLY
    d: int
    e: tuple[int, ...] = ()


@frozen(is_quick=True)
class Quick:
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list)
    _: KW_ONLY
    d: int
    e: tuple[int, ...] = ()


@frozen(kw_only=True, is_quick=True)
class Checked:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError(f"{self.n} is negative")


class TestMaking:
    @pytest.mark.parametrize(
        ("args", "kwargs"),
        [
            ((1,), {"d": 2}),
            ((1, "x"), {"d": 2}),
            ((1, "x", [3]), {"d": 2, "e": (4,)}),
            ((), {"a": 1, "b": "x", "c": [3], "d": 2, "e": (4,)}),
        ],
    )
    def test_in_all_ways_that_a_dataclass_takes(self, args: Any, kwargs: Any):
        made, plain = Quick(*args, **kwargs), Plain(*args, **kwargs)
        assert dataclasses.astuple(made) == dataclasses.astuple(plain)
        assert repr(made) == repr(plain).replace("Plain", "Quick")

    @pytest.mark.parametrize(
        ("args", "kwargs"),
        [
            ((), {}),
            ((1,), {}),
            ((), {"d": 2}),
            ((1, "x", [], 2), {}),
            ((1,), {"d": 2, "f": 3}),
            ((1,), {"a": 1, "d": 2}),
        ],
    )
    def test_in_no_others(self, args: Any, kwargs: Any):
        with pytest.raises(TypeError, match=r"Plain\.__init__\(\)") as plain:
            Plain(*args, **kwargs)
        with pytest.raises(TypeError) as made:
            Quick(*args, **kwargs)
        assert str(made.value) == str(plain.value).replace("Plain", "Quick")

    @pytest.mark.parametrize(
        ("args", "kwargs"),
        [
            ((1,), {"d": 2}),
            ((1, "x"), {"d": 2}),
            ((), {"a": 1, "b": "x", "c": [3], "d": 2, "e": (4,)}),
            ((), {}),
            ((1,), {}),
            ((1, "x", [], 2), {}),
            ((1,), {"d": 2, "f": 3}),
        ],
    )
    def test_its_maker_makes_what_it_makes_and_nothing_else(self, args: Any, kwargs: Any):
        make: Any = maker(Quick)
        try:
            expected = Quick(*args, **kwargs)
        except TypeError:
            with pytest.raises(TypeError):
                make(*args, **kwargs)
        else:
            made = make(*args, **kwargs)
            assert made == expected
            assert type(made) is Quick
            with pytest.raises(dataclasses.FrozenInstanceError):
                made.a = 3

    def test_a_maker_checks_what_the_class_checks(self):
        with pytest.raises(ValueError, match="-1 is negative"):
            maker(Checked)(n=-1)

    def test_each_has_its_own_of_what_a_factory_makes(self):
        one, other = Quick(1, d=2), Quick(1, d=2)
        assert one == other
        assert one.c is not other.c
        make: Any = maker(Quick)
        assert make(1, d=2).c is not make(1, d=2).c

    def test_what_the_class_checks_is_checked(self):
        assert Checked(n=0).n == 0
        with pytest.raises(ValueError, match="-1 is negative"):
            Checked(n=-1)


class TestBeingAValue:
    def test_it_is_of_its_class_and_frozen(self):
        made = Quick(1, d=2)
        assert type(made) is Quick
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.a = 3
        with pytest.raises(dataclasses.FrozenInstanceError):
            del made.a
        with pytest.raises((AttributeError, TypeError)):
            made.other = 3
        assert not hasattr(made, "__dict__")

    def test_equality_and_hashes_are_those_of_the_fields(self):
        assert Tally(1, 2) == Tally(1, 2)
        assert hash(Tally(1, 2)) == hash(Tally(1, 2))
        assert Tally(1, 2) != Tally(2, 1)
        assert Quick(1, d=2) != Plain(1, d=2)

    @pytest.mark.parametrize(
        "value",
        [
            Quick(1, "x", [3], d=2, e=(4,)),
            Tally(1, 2),
            Ending(reason=Reason.LOOPED, function="f", count=3),
            FunctionCall(name="f", arguments_json="{}", id="2.0"),
            FunctionResult(id="2.0", name="f", text="x"),
            Message(role="user", parts=(Text("hi"),)),
            Returned(text="x", releases=(1,)),
            Replied(reply=Reply.of("hi")),
            Begun(at_s=1.0),
            Slept(),
            Stepped("a", "b", "c", "d", 1.0),
            FunctionStarted("2.0", "f", "{}"),
            FunctionEnded("2.0", "f", "x", False, 1.0),
            ReplyCompleted(Reply.of("hi")),
            TextDelta("hi"),
            Done(None),
            Usage(input_tokens=1),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_it_can_be_copied_pickled_replaced_and_changed(self, value: Any):
        for same in (copy.copy(value), copy.deepcopy(value), dataclasses.replace(value), changed(value)):
            assert same == value
            assert type(same) is type(value)
        assert pickle.loads(pickle.dumps(value)) == value
        first = next(item.name for item in dataclasses.fields(value) if item.init)
        other = changed(value, **{first: "other"})
        assert getattr(other, first) == "other"
        assert other != value
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(other, first, 1)


class TestChanging:
    def test_what_is_not_changed_is_the_same_object(self):
        made = Quick(1, "x", [3], d=2)
        other = changed(made, a=5, e=(6,))
        assert (other.a, other.b, other.d, other.e) == (5, "x", 2, (6,))
        assert other.c is made.c
        assert made == Quick(1, "x", [3], d=2)

    def test_a_field_that_is_not_there_is_refused(self):
        with pytest.raises(AttributeError):
            changed(Quick(1, d=2), z=1)

    def test_a_changer_changes_its_fields_and_no_others(self):
        made = Quick(1, "x", [3], d=2)
        other = changer(Quick, "a", "e")(made, 5, (6,))
        assert other == changed(made, a=5, e=(6,))
        assert other.c is made.c
        assert type(other) is Quick
        with pytest.raises(dataclasses.FrozenInstanceError):
            other.a = 3

    def test_one_that_was_looked_into_is_itself_when_its_keys_are_not_shared_any_more(self):
        made = Prompt("x")
        assert vars(made)
        held = {name: getattr(made, name) for name in vars(made)}
        unshare(made)
        assert vars(made) == held

    def test_what_is_read_all_the_time_shares_no_keys(self):
        class Plain:
            def __init__(self) -> None:
                self.a, self.b = 1, 2

        def shares_keys(value: Any) -> bool:
            return sys.getsizeof(vars(value)) != sys.getsizeof(dict(vars(value)))

        agent = Agent(Script("42"))
        values = [agent, agent.prompt, agent.seed("?").record, agent.call("?").record]
        assert shares_keys(Plain())
        assert [value for value in values if shares_keys(value)] == []

    @given(st.integers(), st.text(), st.lists(st.integers()), st.integers(), st.integers(), st.text())
    def test_it_is_replace_for_less(self, a: int, b: str, c: list[int], d: int, new_a: int, new_b: str):
        made = Quick(a, b, c, d=d)
        assert changed(made, a=new_a, b=new_b) == dataclasses.replace(made, a=new_a, b=new_b)
