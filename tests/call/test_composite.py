"""Does an interrupted parent still know what it waits for?"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

import pytest

from fsm_agent import Agent, Limits, function
from fsm_agent.call import AgentCall, Begun, CompositeProcess, Replied, Returned, snapshot
from fsm_agent.messages import Reply
from fsm_agent.testing import Script, function_call

TAKEN_LINES = 400  # more than an advance has in the module
EVERY = 8  # the one of so many lines at which the gate interrupts


@function
def look(at: str) -> str:
    """Look at something."""
    raise NotImplementedError("the test answers for it")


def boss() -> Agent[Any, Any]:
    limits = Limits(deadline_s=100.0)
    inners = [Agent(Script(), name=name, functions=[look], limits=limits) for name in ("one", "two")]
    return Agent(Script(), name="boss", functions=inners)


def halfway(agent: Agent[Any, Any]) -> AgentCall[Any]:
    """A call with two inner agents, each of which waits for two functions."""
    one = agent.prepare("Go.")
    one.advance("begin", Begun(at_s=1.0, id="c"))
    one.advance(
        "model:0", Replied(reply=Reply.of(function_call("one", task="?"), function_call("two", task="?")), at_s=2.0)
    )
    for key in ("run:1.0/model:0", "run:1.1/model:0"):
        assert key in keys(one)  # what is waited for is read, and kept
        one.advance(
            key, Replied(reply=Reply.of(function_call("look", at="x"), function_call("look", at="y")), at_s=3.0)
        )
    return one


def keys(one: AgentCall[Any]) -> list[str]:
    return [effect.key for effect in one.effects]


class Interrupter:
    """Raises KeyboardInterrupt at a line of the module, as Ctrl-C may."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename == inspect.getfile(CompositeProcess) else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


STEPS = {
    "one of two functions returns": ("run:1.0/run:1.0", Returned(text="x", at_s=4.0)),
    "an agent answers": ("run:1.1/model:1", Replied(reply=Reply.of("Done."), at_s=5.0)),
}


@pytest.mark.skipif(sys.gettrace() is not None, reason="what is traced already")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.nightly)])
def test_interrupted_at_any_line_it_waits_for_what_its_record_says(every: int, step: str) -> None:
    key, outcome = STEPS[step]
    interrupted, ends = 0, set[int]()
    for at in range(0, TAKEN_LINES, every):
        agent = boss()
        one = halfway(agent)
        if key.endswith("model:1"):
            for index in range(2):
                one.advance(f"run:1.1/run:1.{index}", Returned(text="x", at_s=4.0))
        assert key in keys(one)
        before = one.record
        try:
            sys.settrace(Interrupter(at))
            one.advance(key, outcome)
            is_over = True
        except KeyboardInterrupt:
            interrupted, is_over = interrupted + 1, False
        finally:
            sys.settrace(None)
        ends.add(before is one.record)
        fresh = agent.restore(snapshot(one))
        assert keys(one) == keys(fresh), at
        assert one.deadline == fresh.deadline, at
        if is_over:
            break
        if one.record is before:
            one.advance(key, outcome)
            assert key not in keys(one)
    assert interrupted > 30 // every
    assert ends == {True, False}
