"""Ask the user's functions, above all for approval, without holding up an event loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskApproval
from fsm_agent.call.interpret import unrunnable
from fsm_agent.call.outcomes import Approved, Denied, Modified, Outcome
from fsm_agent.call.requests import context_of
from fsm_agent.errors import UsageError
from fsm_agent.runtime.activity import Activity, activity_of
from fsm_agent.runtime.thread_task import in_thread


class AskActivity(Activity):
    """A question to a plain or async function of the user.

    A plain function is called in a thread, since it may wait for a person.
    """

    __slots__ = ()

    def user_function(self) -> Any:
        """Return the user's function; None: there is none, so this driver cannot answer."""
        raise NotImplementedError

    def ask(self) -> Any:
        """Call the function; return its answer, or an awaitable of it."""
        raise NotImplementedError

    def outcome_of(self, answer: Any) -> Outcome | None:
        """Return the outcome for an answer; None: the answer decides nothing.

        Raises:
            UsageError: The function returned something else than an answer.
        """
        raise NotImplementedError

    def prepare(self) -> bool:
        return self.user_function() is not None

    async def perform(self) -> Outcome | None:
        if inspect.iscoroutinefunction(self.user_function()):
            return self._dated_outcome_of(await self.ask())
        answer = await in_thread(self.ask)
        return self._dated_outcome_of(await answer if inspect.isawaitable(answer) else answer)

    def _dated_outcome_of(self, answer: Any) -> Outcome | None:
        """Return the outcome for an answer, with the present time if it has none: users return just ``Approved()``."""
        outcome = self.outcome_of(answer)
        return outcome if outcome is None or outcome.at_s else outcome.changed(at_s=self.world.clock.now())


@activity_of(AskApproval)
class ApprovalActivity(AskActivity):
    """A request for approval; one at a time, since a denial may settle the next call."""

    __slots__ = ()

    is_exclusive = True

    process: AgentCall

    def prepare(self) -> bool:
        return self.world.approve is not None and unrunnable(self.effect.call, self.process.prompt) is None

    def user_function(self) -> Any:
        return self.world.approve

    def ask(self) -> Any:
        approve: Callable[..., Any] = self.user_function()
        call = self.effect.call
        if self.world.asks_with_context:
            return approve(call, context_of(call, self.process.record, self.process.deps))
        return approve(call)

    def outcome_of(self, answer: Any) -> Approved | Modified | Denied | None:
        if answer is None or isinstance(answer, Approved | Modified | Denied):
            return answer
        if isinstance(answer, bool):
            return (Approved if answer else Denied)()
        what = f"what approve({self.effect.call.name}) returned"
        raise UsageError(f"{what}: expected True, False, Approved(), Denied(…) or None, got {answer!r:.200}")
