"""The effects of flows, beside those of agent calls: somebody's answer, and the end of a time."""

from __future__ import annotations

from typing import Any, ClassVar

from fsm_agent._internal.values import to_json
from fsm_agent.flows.definition.states import WaitState
from fsm_agent.functions.function import Function, result_text
from fsm_agent.lifecycle.effects import Sleep
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
        about = to_json({"question": result_text(self.shown), "types": self.state.kinds.names})
        return Question(self.key, "answer", about, ("returned",))


class Timer(Sleep, frozen=True):
    """The moment at which the time of a state is over."""

    outcomes: ClassVar[tuple[type, ...]] = (Slept, Expired)  # type: ignore[assignment]


class BoundFunction:
    """The function of a state with its data, as `fsm_agent.runtime.run_function.Run` runs it."""

    __slots__ = ("_data", "_function")

    def __init__(self, function: Function, data: Any) -> None:
        self._function = function
        self._data = data

    def run(self, _: Any, context: Any = None) -> Any:
        """Call it; a coroutine function gives its coroutine."""
        function: Any = self._function
        return function.call(self._data) if context is None else function.call(self._data, context)

    arun = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)
