"""The effects that only flows have, such as a person's answer and the end of a state's time; edits of their data."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from fsm_agent._internal.values import Tagged, to_json
from fsm_agent.call.effects import RunFunction, Sleep
from fsm_agent.call.outcomes import Expired, Returned, Slept
from fsm_agent.call.process import EffectValue
from fsm_agent.flows.definition.states import WaitState
from fsm_agent.functions.function import result_text
from fsm_agent.messages.question import Question


class AwaitAnswer(EffectValue, frozen=True):
    """A person's answer to a question, or an event outside the program.

    Examples:
        >>> @wait(bool)
        ... def review(text: str) -> str:
        ...     return text
        >>> try:
        ...     Flow("letters", str, start=review, rows=[review.done(end("over"))]).call("Dear Ada")
        ... except FlowSuspended as waiting:
        ...     print([(effect.key, effect.shown) for effect in waiting.run.effects])
        [('answer:review#1', 'Dear Ada')]
    """

    prefix, outcomes = "answer", (Returned,)

    key: str
    state: WaitState[Any, Any]
    shown: Any  # the question

    @property
    def question(self) -> Question:
        about = to_json({"question": result_text(self.shown), "types": self.state.answer_types.names})
        return Question(self.key, "answer", about, ("returned",), self.state.answer_types.schema)


class Timer(Sleep, frozen=True):
    """The end of a state's time."""

    outcomes: ClassVar[tuple[type, ...]] = (Slept, Expired)  # type: ignore[assignment]


class RunOnData(RunFunction, frozen=True, kw_only=True):
    """The result of a state's function, called with the data."""

    data: Any


class Edited(Tagged, frozen=True, kw_only=True, tag="edited"):
    """The data of a run were changed by a person, in a fork.  Answers no effect: pass it under the key ``""``."""

    data: msgspec.Raw
    by: str = ""  # who changed them, for people
    at_s: float = 0.0
