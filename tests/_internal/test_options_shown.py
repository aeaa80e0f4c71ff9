"""Are the options that a function passes on shown one by one?"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from fsm_agent import Agent, AgentBase, Prompt
from fsm_agent.agents import Conversation
from fsm_agent.flows import Flow
from fsm_agent.store import MemoryStore


def test_what_is_shown_is_what_is_taken() -> None:
    shown = inspect.signature(Agent.as_function).parameters
    assert shown["max_calls"].annotation == "int | None"
    assert not any(one.kind is one.VAR_KEYWORD for one in shown.values())
    assert {"output", "mode"} <= set(inspect.signature(Prompt("x").extend).parameters)
    assert Agent("openai:gpt-5").as_function(max_calls=3).max_calls == 3


@pytest.mark.parametrize("cls", [Agent, AgentBase, Conversation, Flow, MemoryStore])
def test_no_verb_hides_its_options(cls: Any) -> None:
    """Values of a prompt, arguments of a function, and members by their role have names of the user's own."""
    verbs = [verb for _, verb in inspect.getmembers(cls, inspect.isroutine) if hasattr(verb, "__qualname__")]
    hidden = {
        (verb.__qualname__, one.name)
        for verb in verbs
        if not verb.__name__.startswith("_")
        for one in inspect.signature(verb).parameters.values()
        if one.kind is one.VAR_KEYWORD
    }
    assert {parameter for _, parameter in hidden} <= {"values", "arguments", "by_role"}, hidden


def test_what_may_be_left_out_has_a_default() -> None:
    for verb, name, default in (
        (Agent.call, "deps", ...),  # nothing is passed on, and the agent says what that means
        (Flow.call, "clients", ...),
        (Agent.changed, "name", ...),  # it stays as it is
        (Agent.as_function, "max_calls", None),
        (Agent.as_function, "on_error", "tell"),
    ):
        shown = inspect.signature(verb).parameters[name]
        assert (shown.default, shown.kind) == (default, shown.KEYWORD_ONLY)
