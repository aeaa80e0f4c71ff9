"""Does a registry keep its entries apart, and name those that were meant?"""

from __future__ import annotations

import pytest

from fsm_agent import ConfigError, Function, UsageError
from fsm_agent._internal.registry import Registry
from fsm_agent.functions import register_function
from fsm_agent.testing import registries


@pytest.fixture
def fruits() -> Registry[object]:
    return Registry("fruit", ConfigError, {"apple": 1, "pear": 2})


def test_an_entry_is_found_by_its_name(fruits):
    plum = object()
    assert fruits.register("plum", plum) is plum
    assert fruits.find("plum") is fruits["plum"] is plum
    assert sorted(fruits) == ["apple", "pear", "plum"]
    assert ("plum" in fruits, "fig" in fruits, fruits.get("fig"), len(fruits)) == (True, False, None, 3)


def test_an_unknown_name_is_answered_with_the_one_that_was_meant(fruits):
    for name, meant in (("aple", "'apple'"), (" PEAR", "'pear'"), ("zzz", "apple, pear")):
        with pytest.raises(ConfigError, match=rf"'{name}'.*{meant}"):
            fruits.find(name)


def test_a_name_is_taken_once(fruits):
    fruits.register("apple", 1)
    with pytest.raises(ConfigError, match="'apple'") as caught:
        fruits.register("apple", "sk-secret")
    assert "sk-secret" not in str(caught.value)
    assert fruits["apple"] == 1
    fruits.register("apple", 3, overwrite=True)
    assert fruits["apple"] == 3


def test_a_scope_forgets(fruits):
    with fruits.scoped() as scope:
        scope.register("plum", 3)
        scope.register("apple", 9, overwrite=True)
        assert fruits["plum"] == 3
    assert dict(fruits) == {"apple": 1, "pear": 2}


def test_functions_are_registered_under_their_names():
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    with registries():
        made = register_function(add)
        assert isinstance(made, Function)
        assert register_function(made) is made
        with pytest.raises(UsageError, match="'add'"):
            register_function(Function.of(lambda a: a, name="add"))
        assert register_function(Function.of(add, description="Sum."), overwrite=True).description == "Sum."
        register_function(top)
        register_function(Function.of(top, description="Of a module that is imported anew."))
    with registries():
        register_function(Function.of(lambda a: a, name="add"))


def top(a: int) -> int:
    """Return it."""
    return a
