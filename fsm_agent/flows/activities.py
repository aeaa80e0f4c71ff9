"""The activities of a flow: running state functions, asking the flow's ``answer`` function, and waiting for timers."""

from __future__ import annotations

from typing import Any

from fsm_agent.call.outcomes import FunctionFailed, Returned
from fsm_agent.call.process import SEPARATOR, subject_of
from fsm_agent.errors import OutcomeError
from fsm_agent.flows.record import AwaitAnswer, RunOnData, Timer
from fsm_agent.functions.context import Context
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.activity import activity_of
from fsm_agent.runtime.approval import AskActivity
from fsm_agent.runtime.call_activities import SleepActivity
from fsm_agent.runtime.run_function import Ended, FunctionActivity

PATIENCE_S = 60.0  # how long a driver waits when only a timer is open; a store may set its own patience


@activity_of(RunOnData)
class StateFunctionActivity(FunctionActivity):
    """Runs a state's function with the flow's data as its argument."""

    def invoke(self, call: FunctionCall, context: Context[Any] | None = None) -> Any:
        function: Any = self.function.call
        return function(self.effect.data) if context is None else function(self.effect.data, context)

    ainvoke = invoke

    def preparation_failure(self, error: Exception) -> Ended:
        if not isinstance(error, OutcomeError):
            return super().preparation_failure(error)
        # The text quotes the result, and no model sees it here
        return FunctionFailed(text=str(error), reason="wrong type", at_s=self.environment.clock.now())


@activity_of(AwaitAnswer)
class AnswerActivity(AskActivity):
    """Asks the flow's ``answer`` function a question.  Questions are asked one at a time."""

    is_exclusive = True

    def user_function(self) -> Any:
        return self.process.run_context.answer

    def ask(self) -> Any:
        return self.user_function()(self.effect)

    def outcome_of(self, answer: Any) -> Returned | None:
        if answer is None:
            return None
        try:
            return Returned(text=self.effect.state.answer_types.dump(answer))
        except OutcomeError as error:
            raise OutcomeError(f"the return value of answer: {error}") from None


@activity_of(Timer)
class TimerActivity(SleepActivity):
    """Waits until a state's time runs out."""

    def prepare(self) -> bool:
        recorder = self.driver.recorder
        if recorder is not None and recorder.rests_for_people and self._is_of_question():
            return False
        allowed_s = None if recorder is None else recorder.patience_s
        patience_s = PATIENCE_S if allowed_s is None else allowed_s
        return bool(self.effect.until_s - self.environment.clock.now() <= patience_s)

    def _is_of_question(self) -> bool:
        """Return whether this timer limits how long a question waits for a person's answer."""
        asked = f"{AwaitAnswer.prefix}:{subject_of(self.effect.key)}"
        return any(effect.key.rpartition(SEPARATOR)[2] == asked for effect in self.process.effects)
