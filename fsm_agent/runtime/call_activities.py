"""The activities that perform an agent call's effects.

The activities for `AskApproval` and `CheckOutput` are in `fsm_agent.runtime.approval`, and the activity for
`RunFunction` is in `fsm_agent.runtime.run_function`.  A request that fails, even in the middle of its stream, becomes
`ModelFailed`; a row in `fsm_agent.call.transition_table` says whether it is repeated.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

from fsm_agent._internal.structs import without_halves
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskSummary, Begin, CallModel, Reconcile, RunFunction, Sleep, StartFunction
from fsm_agent.call.outcomes import (
    Begun,
    Expired,
    ModelFailed,
    Outcome,
    Replied,
    Slept,
    Started,
)
from fsm_agent.call.process import SEPARATOR, with_prefix
from fsm_agent.call.rounds import context_of
from fsm_agent.call.triggers import arriving_output, error_text
from fsm_agent.context.tokens import estimated_tokens
from fsm_agent.errors import ProviderError, TimedOut, UsageError
from fsm_agent.functions.context import Context
from fsm_agent.messages.events import (
    ArgumentsDelta,
    Delta,
    Event,
    FunctionCallCompleted,
    FunctionCallStarted,
    LoopDetected,
    PartialOutput,
    ReplyCompleted,
    RequestStarted,
    Summarized,
    TextDelta,
)
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import MOST, UNUSED, Reply
from fsm_agent.prompts.output import ANSWER
from fsm_agent.runtime.activity import Activity, activity_of
from fsm_agent.runtime.approval import AskActivity
from fsm_agent.runtime.environment import Environment
from fsm_agent.runtime.log import LOG, log_error, words
from fsm_agent.runtime.retry_delay import request_delay_s
from fsm_agent.validation import invalid, safe_repr

PartialOutputs: TypeAlias = Callable[[Delta], PartialOutput | None]
MAX_SHOWN_CHARS = 200  # of an error from outside


async def ask_model(effect: CallModel, environment: Environment, timeout_s: float | None) -> Replied | ModelFailed:
    """Send the request, and return the outcome."""
    try:
        reply = await environment.client.acomplete(effect.request, timeout_s=timeout_s)
    except Exception as error:
        return _failure_outcome(effect, error, environment)
    return _reply_outcome(effect, reply, "acomplete", environment)


def partial_outputs(call: AgentCall) -> PartialOutputs | None:
    """Return a function that makes `PartialOutput`s from the next reply's deltas, or None if none can be made."""
    arriving = arriving_output(call.record, call.prompt)
    if arriving is None:
        return None
    number = call.record.turn + 1
    answering: int | None = None  # the number of the function call whose arguments are the answer

    def partial_output(delta: Delta) -> PartialOutput | None:
        nonlocal answering
        if type(delta) is FunctionCallStarted and delta.name == ANSWER and answering is None:
            answering = delta.index
        if type(delta) is not TextDelta and not (type(delta) is ArgumentsDelta and delta.index == answering):
            return None
        try:
            found = arriving.feed(delta.text)
        except Exception:  # a user's validator saw only a part of the answer; the whole is validated later
            return None
        return None if found is None else PartialOutput(number, *found)

    return partial_output


async def stream_model(
    effect: CallModel, environment: Environment, timeout_s: float | None, message: int
) -> AsyncGenerator[Delta | Replied | ModelFailed]:
    """Send the request, and yield the reply's deltas and then the outcome.

    ``message`` is the reply's index in the dialog, which is part of the ids of its function calls.
    """
    reply: Reply | None = None
    calls = _Calls(message)
    try:
        async with aclosing(environment.client.astream(effect.request, timeout_s=timeout_s)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield calls.identified(item) if type(item) in _OF_CALLS else item
    except Exception as error:
        if reply is None:  # otherwise the reply is complete, and closing the stream failed
            yield _failure_outcome(effect, error, environment)
            return
    yield _reply_outcome(effect, reply, "astream", environment)


class _Calls:
    """Collects the function calls in an arriving reply.

    Their ids contain the index that the reply's message will have.
    """

    def __init__(self, message: int) -> None:
        self._message = message
        self._names: dict[int, str] = {}
        self._texts: dict[int, list[str]] = {}

    def identified(self, delta: Delta) -> Delta:
        """Return a delta with its call's id in the message and, once the call is complete, with the whole call."""
        id = f"{self._message}.{delta.index}"  # type: ignore[union-attr]
        match delta:
            case FunctionCallStarted():
                self._names[delta.index], self._texts[delta.index] = delta.name, []
                return delta.changed(id=id)
            case ArgumentsDelta():
                self._texts.setdefault(delta.index, []).append(delta.text)
                return delta.changed(id=id)
            case FunctionCallCompleted() if delta.index in self._names:
                text = "".join(self._texts[delta.index])
                return delta.changed(call=FunctionCall(name=self._names[delta.index], arguments_json=text, id=id))
        return delta


_OF_CALLS = (FunctionCallStarted, ArgumentsDelta, FunctionCallCompleted)


def _failure_outcome(effect: CallModel, error: Exception, environment: Environment) -> ModelFailed:
    if (failure := transport_failure(error)) is None:
        raise error
    return model_failed(effect, failure, environment)


def _reply_outcome(effect: CallModel, reply: Any, method: str, environment: Environment) -> Replied:
    problem: str | None = None
    if type(reply) is not Reply or reply.message.role != "assistant":
        problem = "expected a Reply whose message has the role 'assistant'"
    elif (usage := reply.usage) is not UNUSED:
        for count in (usage.input_tokens, usage.output_tokens, usage.cost_pico_usd):  # the counts that budgets use
            if count is not None and not (type(count) is int and 0 <= count <= MOST):
                problem = usage.problem()
    if problem is not None:
        what = (
            f"the return value of {method}() of the client {getattr(environment.client, 'name', environment.client)!r}"
        )
        raise UsageError(f"{what}: {problem}, got {safe_repr(reply)}")
    reply = without_halves(reply)  # as the journal stores it, so that a replay reads the same text
    if effect.is_priced or environment.prices is not None:
        reply = environment.price_list.priced(reply)
    return Replied(reply=reply, at_s=environment.clock.now())


def transport_failure(error: Exception) -> ProviderError | None:
    """Convert a client's exception to a `ProviderError`.  Return None for a bug, which another attempt would not fix.

    A custom client may raise its library's errors, `OSError` or `httpx.TransportError`, both of which count as
    retryable.
    """
    if isinstance(error, ProviderError):
        return error
    httpx = sys.modules.get("httpx")  # without an import: if httpx is not loaded, the error cannot come from it
    if not isinstance(error, (OSError, getattr(httpx, "TransportError", OSError))):
        return None
    is_late = isinstance(error, (TimeoutError, getattr(httpx, "TimeoutException", TimeoutError)))
    text = error_text(error)[:MAX_SHOWN_CHARS]
    what = ": ".join(filter(None, ["the client failed", type(error).__name__, text]))
    failure = (TimedOut if is_late else ProviderError)(what, retryable=True)
    failure.__cause__ = error
    return failure


def model_failed(effect: CallModel, error: ProviderError, environment: Environment) -> ModelFailed:
    """Return the outcome of a failed request: the error, and the delay before the next attempt."""
    delay_s = request_delay_s(error, effect.attempt, environment.backoff, environment.random)
    report = error.report()
    report = report.changed(model=report.model or environment.client.name)
    return ModelFailed(error=report, delay_s=delay_s, at_s=environment.clock.now())


LEEWAY_S = 0.1  # extra time for the client to raise its own timeout error


@activity_of(Begin)
class BeginActivity(Activity):
    """The start of a call."""

    is_instant = True

    def at_once(self) -> Begun:
        driver, at_s = self.driver, self.environment.clock.now()
        if self.path:
            return Begun(at_s=at_s, id=f"{driver.process.record.id}{SEPARATOR}{self.path}")
        id = self.environment.new_id() if driver.recorder is None else driver.recorder.run
        opening = getattr(self.process, "opening", None)  # a flow has no system prompt
        return Begun(at_s=at_s, id=id) if opening is None else Begun(at_s=at_s, id=id, system=opening())


@activity_of(CallModel)
class ModelActivity(Activity):
    """A request to the model.

    A client that respects its timeout, ``allowed_s``, raises an error that says what took too long.  If a client does
    not, the driver drops the request.
    """

    process: AgentCall
    _partial_output: PartialOutputs | None
    program: Any  # the user's program that answers instead of a client, bound to the call; or None

    def prepare(self) -> bool:
        limit_s = self.process.record.limits.request_s
        self.timeout_s = None if limit_s is None else limit_s + LEEWAY_S
        return True

    def begin(self) -> None:
        self.program = None
        self._partial_output = partial_outputs(self.process) if self.driver.is_streamed else None
        self.allowed_s = time_left(self.process, self.environment)
        if (limit_s := self.process.record.limits.request_s) is not None:
            self.allowed_s = limit_s if self.allowed_s is None else min(limit_s, self.allowed_s)
            self.since_s = time.monotonic()
        view = self.process.view
        if view is not None and view.warning:
            LOG.warning("call %s: %s", words(self.process.record.id, 100), words(view.warning))
            view.warning = ""

    def perform(self) -> Coroutine[Any, Any, Outcome] | AsyncGenerator[Event | Outcome]:
        effect = self.effect
        if effect.refusal is not None:
            return self._refusal_outcome()
        environment = self._environment_for_request()
        if not self.driver.is_streamed:
            return ask_model(effect, environment, self.allowed_s)
        return stream_model(effect, environment, self.allowed_s, len(self.process.record.dialog))

    def events_of(self, arrived: Any) -> Sequence[Event]:
        partial = None if self._partial_output is None else self._partial_output(arrived)  # runs the user's validators
        return (arrived,) if partial is None else (arrived, partial)

    def _environment_for_request(self) -> Environment:
        """Return the environment.  If its client is a user's program, the program is bound to the call's context."""
        if self.effect.is_priced:
            self.environment.price_list.check()
        bind = getattr(self.environment.client, "bound_to", None)
        if bind is None:
            return self.environment
        r = self.process.record
        context: Context[Any] = Context(deps=self.process.deps, agent_call_id=r.id, depth=r.depth)
        self.program = bind(context)
        return self.environment.changed(client=self.program)

    async def _refusal_outcome(self) -> ModelFailed:
        return ModelFailed(error=self.effect.refusal, at_s=self.environment.clock.now())

    def timeout_outcome(self) -> ModelFailed:
        error = TimedOut(f"no reply within {self.process.record.limits.request_s:g} s")
        return model_failed(self.effect, error, self.environment)

    def announcement(self) -> Sequence[Event]:
        shown = self.effect.request.messages
        started = RequestStarted(self.process.record.turn + 1, len(shown), shown)
        if self.process.view is None:
            return (started,)
        return (*self.process.view.new_events(), *([] if self.effect.refusal else [started]))

    def finish(self, outcome: Any) -> Sequence[Event]:
        call, driver = self.process, self.driver
        if type(outcome) is ModelFailed and time_left(call, self.environment) == 0.0:  # it failed at the deadline
            return driver.step(self.own_key, Expired(at_s=self.environment.clock.now()))
        if type(outcome) is ModelFailed and self.program is not None:
            outcome = outcome.changed(usage=self.program.used)
        so_far = call.record.identical_rounds
        steps = driver.step(self.key, outcome)
        if call.problem is not None and call.step.trigger == "parse_failed":
            log_problem(call)
        if type(outcome) is ModelFailed and self.program is not None:
            call.problem = self.program.raised
        if type(outcome) is not Replied or not driver.has_listener:
            return steps
        return (
            *self.wrap_events((ReplyCompleted(outcome.reply),)),
            *steps,
            *self.wrap_events(self._loop_events(so_far)),
        )

    def _loop_events(self, so_far: int) -> Sequence[Event]:
        r = self.process.record
        if r.limits.identical_rounds is None or r.identical_rounds == so_far or not r.is_looping:
            return ()
        repeated = r.reply.message.function_calls if r.reply else ()
        return (LoopDetected(", ".join(f.name for f in repeated), r.identical_rounds, r.limits.on_loop),)


@activity_of(AskSummary)
class SummaryActivity(ModelActivity):
    """A request for a summary.  Its text is not streamed to listeners."""

    def perform(self) -> Coroutine[Any, Any, Outcome]:
        environment, client = self.environment, self.effect.client
        if client is not None:
            environment = environment.changed(client=client)
        if self.effect.is_priced:
            environment.price_list.check()
        return ask_model(self.effect, environment, self.allowed_s)

    def announcement(self) -> Sequence[Event]:
        return ()

    def finish(self, outcome: Any) -> Sequence[Event]:
        call, driver = self.process, self.driver
        if type(outcome) is ModelFailed and time_left(call, self.environment) == 0.0:
            return driver.step(self.own_key, Expired(at_s=self.environment.clock.now()))
        steps = driver.step(self.key, outcome)
        if call.step.trigger != "summarized" or not driver.has_listener:
            return steps
        asked, text = self.effect.request.messages[-1].text, outcome.reply.message.text
        return (*steps, *self.wrap_events((Summarized(estimated_tokens(asked), estimated_tokens(text)),)))


@activity_of(Sleep)
class SleepActivity(Activity):
    """A wait until ``until_s``.

    If the wait would exceed the recorder's patience, it is not started, and the run is released.  A wait ends at the
    driven process's earliest deadline, and starts again if that deadline belongs to another process.
    """

    is_sleep = True

    def prepare(self) -> bool:
        recorder = self.driver.recorder
        if recorder is None or recorder.patience_s is None:
            return True
        return bool(self.effect.until_s - self.environment.clock.now() <= recorder.patience_s)

    def begin(self) -> None:
        deadline_s = self.driver.deadline_s
        self.until_s = self.effect.until_s if deadline_s is None else min(self.effect.until_s, deadline_s)

    async def perform(self) -> Slept:
        clock = self.environment.clock
        await clock.asleep(max(0.0, self.until_s - clock.now()))
        return Slept(at_s=clock.now())

    def finish(self, outcome: Any) -> Sequence[Event]:
        if self.until_s < self.effect.until_s and outcome.at_s < self.effect.until_s:
            self.driver.reread()
            return ()
        return self.driver.step(self.key, outcome)


@activity_of(StartFunction)
class StartActivity(Activity):
    """Records that a function is about to start.  From then on, only this driver may run it."""

    is_instant = True

    def at_once(self) -> Started:
        return Started(at_s=self.environment.clock.now())

    def finish(self, outcome: Any) -> Sequence[Event]:
        self.driver.begun.add(with_prefix(self.key, RunFunction.prefix))  # before the step, which may start it
        return self.driver.step(self.key, outcome)


@activity_of(Reconcile)
class ReconcileActivity(AskActivity):
    """Finds out whether a function ran, and with what outcome, by calling its `Policy.reconcile`."""

    def user_function(self) -> Any:
        return self.effect.function.reconcile

    def ask(self) -> Any:
        context: Context[Any] = context_of(self.effect.call, self.process.record, self.process.deps)
        return self.user_function()(context)

    def outcome_of(self, answer: Any) -> Outcome | None:
        if answer is None or type(answer) in self.effect.outcomes:
            return answer  # type: ignore[no-any-return]
        what = f"the return value of reconcile of function {self.effect.call.name!r}"
        right = "Returned(text=…), FunctionFailed(text=…), RunAgain() or None"
        raise invalid(what, answer, right)


def time_left(call: AgentCall, environment: Environment) -> float | None:
    """Return the seconds until a call's deadline, or None if the call has no deadline."""
    r = call.record
    if r.limits.deadline_s is None or r.deadline_s is None:
        return None
    return max(0.0, r.deadline_s - environment.clock.now())


def log_problem(call: AgentCall) -> None:
    """Log the exception that the parser raised on the latest reply, and drop its traceback.

    A `ValueError` means that the parser refused the answer, so it is logged at DEBUG.  Other exceptions are logged at
    WARNING.
    """
    problem = call.problem
    if problem is None:
        return
    level = logging.DEBUG if isinstance(problem, ValueError) else logging.WARNING
    subject = f"call {words(call.record.id, 100)}: the parser of prompt {call.prompt.path!r}"
    log_error(level, f"{subject} raised {type(problem).__name__}", problem)
    left, seen = list[BaseException | None]([problem]), set[int]()
    while left:
        if (error := left.pop()) is not None and id(error) not in seen:
            seen.add(id(error))
            error.__traceback__ = None
            left += [error.__cause__, error.__context__]
