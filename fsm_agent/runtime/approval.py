"""Activities for the user's approver and check, which approve function calls and judge answers.

An exception from an approver ends the driver.  A check refuses the answer by raising `Retry`; any other exception makes
the call fail.  Exceptions from a cancelled check are ignored.

`fsm_agent.call.rounds` decides which calls need approval, and `fsm_agent.call.triggers` what the model is told of a
refusal.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from fsm_agent._internal.system import with_place
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskApproval, CheckOutput
from fsm_agent.call.outcomes import Approved, Checked, CheckFailed, CheckRefused, Denied, Modified, Outcome
from fsm_agent.call.rounds import context_of, unrunnable
from fsm_agent.call.triggers import Proposal, error_text, typed_error_text
from fsm_agent.errors import Retry, UsageError
from fsm_agent.functions.context import Context, accepts_context
from fsm_agent.messages.events import Event, FunctionProgress
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.activity import Activity, UserCodeActivity, activity_of, raise_own_cancellation
from fsm_agent.runtime.log import log_error, words
from fsm_agent.runtime.portal import Place, in_thread
from fsm_agent.runtime.run_function import program_of
from fsm_agent.validation import invalid


class AskActivity(Activity, ABC):
    """Asks a question by calling one of the user's functions, which may be plain or async.

    A plain function runs in a thread, because it may wait for a person.
    """

    @abstractmethod
    def user_function(self) -> Any:
        """Return the user's function, or None if there is none."""

    @abstractmethod
    def ask(self) -> Any:
        """Call the function, and return its answer or an awaitable."""

    @abstractmethod
    def outcome_of(self, answer: Any) -> Outcome | None:
        """Return the outcome for the function's answer, or None if the question remains unanswered.

        Raises:
            UsageError: If the function returned something that is not an answer.
        """

    def prepare(self) -> bool:
        return self.user_function() is not None

    async def perform(self) -> Outcome | None:
        is_async = inspect.iscoroutinefunction(self.user_function())
        answer = self.ask() if is_async else await in_thread(self.ask)
        return self._dated_outcome_of(await answer if inspect.isawaitable(answer) else answer)

    def _dated_outcome_of(self, answer: Any) -> Outcome | None:
        """Return the outcome for an answer.  An answer without a time gets the current time."""
        outcome = self.outcome_of(answer)
        return outcome if outcome is None or outcome.at_s else outcome.changed(at_s=self.environment.clock.now())


@activity_of(AskApproval)
class ApprovalActivity(AskActivity):
    """A request for approval.  Only one is active at a time, because denying one call may also decide the next."""

    is_exclusive = True

    process: AgentCall

    def prepare(self) -> bool:
        return self.environment.approve is not None and unrunnable(self.effect.call, self.process.prompt) is None

    def user_function(self) -> Any:
        return self.environment.approve

    def ask(self) -> Any:
        approve: Callable[..., Any] = self.user_function()
        call = self.effect.call
        if self.environment.asks_with_context:
            return approve(call, context_of(call, self.process.record, self.process.deps))
        return approve(call)

    def outcome_of(self, answer: Any) -> Approved | Modified | Denied | None:
        if answer is None or isinstance(answer, Approved | Modified | Denied):
            return answer
        if isinstance(answer, bool):
            return (Approved if answer else Denied)()
        right = "True, False, Approved(), Modified(…), Denied(…) or None"
        raise invalid(f"the return value of approve({self.effect.call.name})", answer, right)


_REFUSED = "the check refused it, and did not say why"


@activity_of(CheckOutput)
class CheckActivity(UserCodeActivity):
    """A running check."""

    process: AgentCall
    ended: Checked | CheckRefused | CheckFailed | None

    def prepare(self) -> bool:
        check = self.process.check
        if check is None:
            what = f"check of the agent: expected one, since an answer of {self.process} waits for it, got none"
            raise UsageError(f"{what}; pass Agent(…, check=…), with the check that the call began with")
        self.name = getattr(check, "__name__", type(check).__name__)
        self.timeout_s = self.process.record.limits.check_s
        self._takes_context = accepts_context(check, "check", "output")
        self.may_run_inline = not self._takes_context  # `Context.is_cancelled` needs a driver that is not blocked
        self.place = Place.LOOP if _is_async(check) and not self.driver.is_sync else Place.THREAD
        return True

    def begin(self) -> None:
        self.since_s = time.monotonic()

    async def perform(self) -> Any:
        try:
            proposal, value = await self.place.call(self._asked)
            if inspect.isawaitable(value):
                with program_of(self._context()):
                    value = await self.place.wait_for(value)
        except asyncio.CancelledError as error:
            raise_own_cancellation(error)
            return self._raised_outcome(RuntimeError("something that the check awaited was cancelled"))
        except Exception as error:
            return self._raised_outcome(error)
        return await self.place.call(partial(self._verdict, proposal, value))  # the user's validators may run in it

    def _asked(self) -> tuple[Proposal, Any]:
        call = self.process
        proposal = Proposal(call.record, call.prompt, call.proposed)
        check: Any = call.check
        context = self._context()
        with program_of(context):
            value = check(proposal.output, context) if self._takes_context else check(proposal.output)
        return proposal, value

    def _context(self) -> Context[Any]:
        r = self.process.record
        return Context(
            deps=self.process.deps,
            function_call=FunctionCall(name=self.name, arguments_json="{}", id=self.effect.key),
            agent_call_id=r.id,
            depth=r.depth,
            attempt=r.parse_errors + 1,
            emit=self._emit,
            is_cancelled=lambda: self.is_cancelled,
            release=_release,
        )

    def _emit(self, data: Any) -> None:
        self.driver.report(self.key, FunctionProgress(self.effect.key, self.name, data))

    def _verdict(self, proposal: Proposal, value: Any) -> Checked:
        """Return the outcome of a check that returned a value.  Raise `UsageError` if the value is not an output."""
        self.stop_if_cancelled()
        changed = proposal.change(value, self.name)
        ended = self.ended = Checked(output_json=changed, at_s=self.environment.clock.now())
        return ended

    def _raised_outcome(self, error: Exception) -> CheckRefused | CheckFailed:
        self.stop_if_cancelled()
        subject = f"call {words(self.process.record.id, 100)}: the check {self.name!r} ({self.effect.key})"
        if isinstance(error, Retry):
            log_error(logging.DEBUG, f"{subject} refused the answer", error)
            refused = self.ended = CheckRefused(error_text(error) or _REFUSED, at_s=self.environment.clock.now())
            return refused
        log_error(logging.WARNING, f"{subject} raised {type(error).__name__}", error)
        self.raised = error
        text = with_place(typed_error_text(error), error)
        failed = self.ended = CheckFailed(text=text, name=self.name, at_s=self.environment.clock.now())
        return failed

    def finish(self, outcome: Any) -> Sequence[Event]:
        if type(outcome) is CheckFailed:  # before the step: a `CallFailed` needs it as its cause
            self.process.problem, self.raised = self.raised, None
        return self.driver.step(self.key, outcome)

    def timeout_outcome(self) -> CheckFailed:
        text = f"it did not return within {self.timeout_s:g} s"
        self.raised = TimeoutError(f"the check {self.name!r}: {text}")
        return CheckFailed(text=f"TimeoutError: {text}", name=self.name, at_s=self.environment.clock.now())


def _is_async(check: Any) -> bool:
    return inspect.iscoroutinefunction(check) or inspect.iscoroutinefunction(getattr(type(check), "__call__", None))  # noqa: B004


def _release(_: Any) -> NoReturn:
    raise UsageError("Context.release: expected a function as the caller, got a check, whose call ends with the answer")
