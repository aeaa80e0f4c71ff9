"""Are the options that a function passes on shown one by one?"""

from __future__ import annotations

import inspect

from fsm_agent import Agent, Function, Prompt, Toolset


def test_what_is_shown_is_what_is_taken() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    for method in (Function.of, Toolset.changed, Agent.as_function):
        shown = inspect.signature(method).parameters
        assert shown["max_calls"].annotation == "int | None"
        assert not any(one.kind is one.VAR_KEYWORD for one in shown.values())
    assert {"output", "mode"} <= set(inspect.signature(Prompt("x").extend).parameters)
    assert Function.of(add, max_calls=3).max_calls == 3
    assert [f.max_calls for f in Toolset([add]).changed(max_calls=3)] == [3]
    assert Agent("openai:gpt-5").as_function(max_calls=3).max_calls == 3
