"""Are the options that a function passes on shown one by one?"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from fsm_agent import Agent, AgentBase
from fsm_agent.agents import Conversation
from fsm_agent.flows import Flow
from fsm_agent.store import MemoryStore


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
    assert {parameter for _, parameter in hidden} <= {
        "values",
        "arguments",
        "by_role",
        "unknown",
        "policy",
        "options",
    }, hidden
