"""Are options shown one by one?"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypedDict, Unpack

import pytest

from fsm_agent import Agent, Function, Toolset
from fsm_agent._internal.exports import PACKAGES
from fsm_agent._internal.with_options_shown import with_options_shown

PUBLIC = [import_module(f"fsm_agent.{name}") for name in PACKAGES if not name.startswith(("flows", "testing"))]


class Size(TypedDict, total=False):
    width: int
    height: float | None


@dataclass
class Box:
    name: str
    width: int = 1
    deep: bool = False
    volume: int = field(default=0, init=False)


@with_options_shown(Size)
def resize(name: str, /, *, by: int = 1, **size: Unpack[Size]) -> None: ...


@with_options_shown(Box, without=("name",))
def box(**fields: Any) -> None: ...


@with_options_shown(Box, is_change=True)
def repack(box: Box, /, **changes: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (resize, "(name: 'str', /, *, by: 'int' = 1, width: 'int' = Ellipsis, height: 'float | None' = Ellipsis)"),
        (box, "(*, width: 'int' = 1, deep: 'bool' = False)"),
        (repack, "(box: 'Box', /, *, name: 'str' = Ellipsis, width: 'int' = Ellipsis, deep: 'bool' = Ellipsis)"),
    ],
)
def test_the_options_are_shown_one_by_one(function: Any, shown: str) -> None:
    assert str(inspect.signature(function)) == f"{shown} -> 'None'"


# Beside the variables of a prompt and the arguments of a function: what is passed on to a user's class, function or
# parser, and what is internal.
PASSED_ON = {
    *("AgentBase.__call__", "AsyncAgentBase.__call__", "build_agent", "Context.call", "Context.acall"),
    *("Function.__call__", "Prompt.borrowing", "World.of"),
    *("Live.__init__", "Live.begin", "serve"),  # to an agent or a flow, whose options differ
    *("Parser.__call__", "TagParser.__call__", "IntentExtractor.__call__", "ActionSet.__call__"),
}


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, methods and constructors of this package."""
    for name, value in {name: getattr(module, name) for module in PUBLIC for name in module.__all__}.items():
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for member in ["__init__", "__call__", *[name for name in dir(value) if not name.startswith("_")]]:
                method = getattr(value, member)
                # Python 3.13 takes a `cached_property` for a routine of the module that it is written in.
                if callable(method) and str(getattr(method, "__module__", "")).startswith("fsm_agent"):
                    yield f"{name}.{member}", method


def test_no_public_function_hides_its_options() -> None:
    hidden = {
        (name, parameter.name)
        for name, method in public_functions()
        for parameter in inspect.signature(method).parameters.values()
        if parameter.kind is parameter.VAR_KEYWORD
    }
    assert {name for name, parameter in hidden if parameter not in ("values", "arguments")} == PASSED_ON


def test_what_is_shown_is_what_is_taken() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    for method in (Function.of, Toolset.changed, Agent.as_function):
        assert inspect.signature(method).parameters["max_calls"].annotation == "int | None"
    assert Function.of(add, max_calls=3).max_calls == 3
    assert [f.max_calls for f in Toolset([add]).changed(max_calls=3)] == [3]
    assert Agent("openai:gpt-5").as_function(max_calls=3).max_calls == 3
