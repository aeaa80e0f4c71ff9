"""The effects of flows, beside those of agent calls: somebody's answer, and the end of a time."""

from __future__ import annotations

from typing import Any, ClassVar

from fsm_agent._internal.values import to_json
from fsm_agent.flows.definition.states import WaitState
from fsm_agent.functions.function import result_text
from fsm_agent.lifecycle.effects import RunFunction, Sleep
from fsm_agent.lifecycle.outcomes import Expired, Returned, Slept
from fsm_agent.machine.process import EffectValue, Question


class AwaitAnswer(EffectValue, frozen=True):
    """Somebody's answer to a question, or an event outside."""

    prefix, outcomes = "answer", (Returned,)

    key: str
    state: WaitState[Any, Any]
    shown: Any  # what the question is

    @property
    def question(self) -> Question:
        about = to_json({"question": result_text(self.shown), "types": self.state.answer_types.names})
        return Question(self.key, "answer", about, ("returned",))


class Timer(Sleep, frozen=True):
    """The moment at which the time of a state is over."""

    outcomes: ClassVar[tuple[type, ...]] = (Slept, Expired)  # type: ignore[assignment]


class RunOnData(RunFunction, frozen=True, kw_only=True):
    """The result of a state's function, which is given the data."""

    data: Any
