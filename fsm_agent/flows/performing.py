"""The performers of the effects of flows: functions of the data, people who are here, and the end of a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

from fsm_agent.errors import OutcomeError
from fsm_agent.flows.process.effects import AwaitAnswer, RunOnData, Timer
from fsm_agent.functions.context import Context
from fsm_agent.lifecycle.effects import RunFunction, Sleep
from fsm_agent.lifecycle.outcomes import FunctionFailed, Returned
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.activity import Activity, activity_of
from fsm_agent.runtime.call_activities import FunctionRun, Nap
from fsm_agent.runtime.perform import aperform, perform
from fsm_agent.runtime.run_function import Ended, Run
from fsm_agent.runtime.thread_task import ThreadTask

PATIENCE_S = 60.0  # how long a driver waits for nothing but a moment, unless the store has a patience of its own


class RunWithData(Run):
    """A run of a state's function."""

    __slots__ = ()

    effect: RunOnData

    def invoke(self, call: FunctionCall, context: Context[Any] | None = None) -> Any:
        function: Any = self.function.call
        return function(self.effect.data) if context is None else function(self.effect.data, context)

    ainvoke = invoke

    def unprepared(self, error: Exception) -> Ended:
        if not isinstance(error, OutcomeError):
            return super().unprepared(error)
        # The text quotes the result, which no model is shown here
        return FunctionFailed(text=str(error), reason="wrong type", at_s=self.world.clock.now())


@activity_of(RunOnData)
class StateFunctionRun(FunctionRun):
    """A state's function that runs."""

    __slots__ = ()

    run_class = RunWithData


@activity_of(AwaitAnswer)
class Inquiry(Activity):
    """A question to somebody who is here; one at a time."""

    __slots__ = ()

    is_alone = True

    def prepare(self) -> bool:
        return self.process.surroundings.answer is not None


@activity_of(Timer)
class Countdown(Nap):
    """A wait for the end of a time, which is a deadline of its process, too."""

    __slots__ = ()

    def prepare(self) -> bool:
        recorder = self.driver.recorder
        allowed_s = None if recorder is None else recorder.patience_s
        patience_s = PATIENCE_S if allowed_s is None else allowed_s
        return bool(self.effect.until_s - self.world.clock.now() <= patience_s)


for own, same in ((Timer, Sleep), (RunOnData, RunFunction)):
    perform.register(own, perform.registry[same])
    aperform.register(own, aperform.registry[same])


@perform.register(AwaitAnswer)
def _(effect: AwaitAnswer, activity: Activity) -> Returned | None:
    value = activity.process.surroundings.answer(effect)
    if inspect.isawaitable(value):
        value = activity.handle.run_coroutine(_awaiting(value))
    return _answered(effect, value, activity)


@aperform.register(AwaitAnswer)
async def _(effect: AwaitAnswer, activity: Activity) -> Returned | None:
    answer = activity.process.surroundings.answer
    if inspect.iscoroutinefunction(answer):
        return _answered(effect, await answer(effect), activity)
    child = ThreadTask[Any](lambda _: answer(effect))
    try:
        value = await asyncio.wrap_future(child.start().future)
    finally:
        child.cancel()
    return _answered(effect, await value if inspect.isawaitable(value) else value, activity)


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _answered(effect: AwaitAnswer, value: Any, activity: Activity) -> Returned | None:
    if value is None:
        return None
    return Returned(text=effect.state.kinds.dump(value), at_s=activity.world.clock.now())
