"""Does a registry keep its entries apart, and name those that were meant?"""

from __future__ import annotations

import pytest

from fsm_agent import ConfigError, Function, UsageError
from fsm_agent._internal.registry import Registry
from fsm_agent.agents.registry import AGENTS
from fsm_agent.clients.registered import CLIENTS
from fsm_agent.functions import register_function
from fsm_agent.functions.registered import FUNCTIONS
from fsm_agent.providers.catalog import PROVIDERS


@pytest.fixture
def fruits() -> Registry[object]:
    return Registry("fruit", ConfigError, {"apple": 1, "pear": 2})


def test_an_entry_is_found_by_its_name(fruits):
    plum = object()
    assert fruits.register("plum", plum) is plum
    assert fruits.find("plum") is fruits["plum"] is plum
    assert sorted(fruits) == ["apple", "pear", "plum"]
    assert ("plum" in fruits, "fig" in fruits, fruits.get("fig"), len(fruits)) == (True, False, None, 3)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("aple", "no fruit 'aple' is registered: did you mean 'apple'?; known are apple, pear"),
        (" PEAR", "no fruit ' PEAR' is registered: did you mean 'pear'?; known are apple, pear"),
        ("zzz", "no fruit 'zzz' is registered; known are apple, pear"),
    ],
)
def test_an_unknown_name_is_answered_with_the_one_that_was_meant(fruits, name, says):
    with pytest.raises(ConfigError) as caught:
        fruits.find(name)
    assert str(caught.value) == says


def test_a_name_is_taken_once(fruits):
    fruits.register("apple", 1)
    with pytest.raises(ConfigError, match="there is a fruit 'apple' already: take another name, or overwrite=True"):
        fruits.register("apple", "sk-secret")
    assert fruits["apple"] == 1
    fruits.register("apple", 3, overwrite=True)
    assert fruits["apple"] == 3


def test_a_scope_forgets_and_a_copy_is_apart(fruits):
    copy = fruits.copy()
    with fruits.scoped() as scope:
        scope.register("plum", 3)
        scope.register("apple", 9, overwrite=True)
        assert fruits["plum"] == 3
    assert dict(fruits) == {"apple": 1, "pear": 2}
    copy.register("fig", 4)
    assert "fig" not in fruits
    assert copy["apple"] == 1


@pytest.mark.parametrize("registry", [AGENTS, CLIENTS, FUNCTIONS, PROVIDERS])
def test_there_is_one_way_to_register(registry):
    assert isinstance(registry, Registry)


def test_functions_are_registered_under_their_names():
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    with FUNCTIONS.scoped():
        made = register_function(add)
        assert isinstance(made, Function)
        assert FUNCTIONS.find("add") is made
        with pytest.raises(UsageError, match="no function 'ad' is registered: did you mean 'add'"):
            FUNCTIONS.find("ad")
        with pytest.raises(UsageError, match="there is a function 'add' already"):
            register_function(Function.of(lambda a: a, name="add"))
        assert register_function(Function.of(add, description="Sum."), overwrite=True).description == "Sum."
    assert "add" not in FUNCTIONS


def test_a_function_of_a_module_that_is_imported_anew_takes_its_place():
    with FUNCTIONS.scoped():
        register_function(top)
        again = register_function(Function.of(top, description="Anew."))
        assert FUNCTIONS["top"] is again


def top(a: int) -> int:
    """Return it."""
    return a
