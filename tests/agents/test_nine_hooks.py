"""Do the hooks that `docs/coming-from.md` names for those of another engine fire, each in its order?"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from support.paths import ROOT

from fsm_agent import Agent, function
from fsm_agent.agents.hooks import check_hooks
from fsm_agent.context import summarize
from fsm_agent.testing import Script, call

TABLE = dict(re.findall(r"^\| `(On\w+)[^|]*\| `(on_\w+)`", (ROOT / "docs" / "coming-from.md").read_text("utf-8"), re.M))


@function
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class There:
    """A hook that notes the names of the other engine."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __dir__(self) -> list[str]:
        return [*TABLE.values()]

    def __getattr__(self, name: str) -> Any:
        there = {here: there for there, here in TABLE.items()}.get(name)
        if there is None:
            raise AttributeError(name)

        def note(event: Any) -> None:
            if there == "OnStepStart" and (event.to != "Calling" or event.trigger == "summarized"):
                return
            if there != "OnStreamDelta" or self.told[-1] != there:
                self.told.append(there)

        return note


def test_the_table_names_methods_that_there_are():
    assert set(TABLE) == {
        *["OnStepStart", "OnBeforeLLM", "OnAfterLLM", "OnToolCall", "OnToolResult"],
        *["OnHistoryChanged", "OnSummarize", "OnStreamDelta", "OnDone"],
    }
    check_hooks([There()])


@pytest.mark.spec("4.12: the golden order", "4.12: a change of the history is told")
@pytest.mark.parametrize("is_async", [False, True])
def test_each_fires_in_its_order(is_async: bool):
    hook = There()
    summary = summarize(keep=1, step=1, by=Script("The first was asked."))
    model = Script(["Let me see.", call("add", a=1, b=2)], [call("add", a=3, b=4)], "7")
    agent = Agent(model, functions=[add], hooks=[hook], context=summary)
    if is_async:
        asyncio.run(agent.acall("1 + 2, and 3 + 4?"))
    else:
        agent.call("1 + 2, and 3 + 4?")
    assert hook.told == [
        *["OnStepStart", "OnBeforeLLM", "OnStreamDelta", "OnAfterLLM", "OnHistoryChanged"],
        *["OnToolCall", "OnToolResult", "OnHistoryChanged"],
        *["OnStepStart", "OnBeforeLLM", "OnAfterLLM", "OnHistoryChanged"],
        *["OnToolCall", "OnToolResult", "OnHistoryChanged"],
        *["OnStepStart", "OnSummarize", "OnBeforeLLM", "OnStreamDelta", "OnAfterLLM", "OnHistoryChanged", "OnDone"],
    ]
