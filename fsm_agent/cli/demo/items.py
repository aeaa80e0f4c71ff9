"""The items of the demo: scenes, remarks and findings."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from fsm_agent.agents.agent import Agent
from fsm_agent.call.call import AgentCall
from fsm_agent.call.record import Reason, State
from fsm_agent.errors import CallFailed
from fsm_agent.messages.events import Event
from fsm_agent.messages.reply import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class PartStarted:
    """The next part begins."""

    title: str
    about: str  # for people
    request: str  # the prompt of the part
    shows_steps: bool = True  # False: many small calls, of which only the result is of interest


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark of a part besides the events of its calls."""

    text: str
    is_quoted: bool = False  # a line of another process


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a part; one without an output or a problem was left out."""

    title: str
    output: Any = None
    calls: tuple[AgentCall, ...] = ()
    problem: str = ""  # empty: all is well
    note: str = ""

    @property
    def usage(self) -> Usage:
        """Tokens of all calls."""
        return sum((one.record.usage for one in self.calls), Usage())

    @property
    def rounds(self) -> int:
        """Rounds of function calls."""
        return sum(one.record.rounds for one in self.calls)

    @property
    def duration_s(self) -> float:
        """Seconds from the first to the last step, over all calls."""
        traces = [one.record.trace for one in self.calls if one.record.trace]
        return sum(trace[-1].at_s - trace[0].at_s for trace in traces)


DemoItem: TypeAlias = PartStarted | Remark | Event | Finding


def streamed(agent: Agent, seed: AgentCall) -> Generator[DemoItem, None, str]:
    """Yield the events of a call; return the problem with the model's answers, if any.

    Raises:
        CallFailed: The request to the model failed.
    """
    try:
        yield from agent.stream(seed)
    except CallFailed as error:
        if error.reason is Reason.MODEL_FAILED:
            raise
    ending = seed.record.ending
    return f"{ending.reason}: {ending.detail}" if ending and seed.state is State.FAILED else ""
