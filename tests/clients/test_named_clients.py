"""Is a registered client found by its name, and is a name taken once?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fsm_agent.clients import FallbackClient, client_for, register_client
from fsm_agent.errors import ConfigError
from fsm_agent.testing import Script, registries


@pytest.fixture(autouse=True)
def _for_this_test_alone() -> Iterator[None]:
    with registries():
        yield


def make(model: str) -> Script:
    return Script(name=f"cabin:{model}")


def found(model: str) -> Any:
    return FallbackClient([model]).name


def test_one_is_made_for_the_model_that_follows_its_name() -> None:
    register_client("cabin-0.1_a", make)
    assert found("cabin-0.1_a:big:4b") == "fallback(cabin:big:4b)"
    assert found("openai:gpt-5-mini") == "fallback(openai:gpt-5-mini)"


def test_a_name_is_taken_once_except_by_the_same_function_when_its_module_is_loaded_again() -> None:
    register_client("cabin", make)
    register_client("cabin", make)
    for other in (lambda model: Script(), Script):
        with pytest.raises(ConfigError, match="'cabin'"):
            register_client("cabin", other)
    register_client("cabin", lambda model: Script(name="other"), overwrite=True)
    assert found("cabin:x") == "fallback(other)"
    with pytest.raises(ConfigError, match="'cabin'"):
        register_client("cabin", lambda model: Script())


@pytest.mark.parametrize("name", ["openai", "Cabin", "a:b", "", "-a"])
def test_a_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}'"):
        register_client(name, make)


def test_what_is_no_client_is_refused() -> None:
    register_client("cabin", lambda model: "x")
    with pytest.raises(ConfigError, match="'cabin'"):
        found("cabin:big")
    with pytest.raises(ConfigError, match="make"):
        register_client("house", "x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="model"):
        client_for(None)  # type: ignore[arg-type]
