"""Perform each kind of effect, in a thread and in a task.

`perform` and `aperform` are `functools.singledispatch` functions: each kind of effect is registered with both, here or
beside its performer, and an unregistered kind is an error that names it.  What else a driver has to know of a kind is
its `Activity`.  They take the effect and its `Activity`.
`perform` runs in a thread, and returns the outcome; `aperform` returns an awaitable of it.  An effect that has events
to report before (a stream) is a generator of them instead: that of `perform` returns the outcome, that of `aperform`
yields it last.  None is no outcome: nobody here can decide.

More than 300 lines, because each performer stands beside its twin under asyncio.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, closing
from functools import partial, singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.redaction import mask_keys
from fsm_agent.errors import ErrorReport, ProviderError, TimedOut, UsageError
from fsm_agent.functions.context import Context
from fsm_agent.lifecycle.approval import context_of
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.effects import AskApproval, Begin, CallModel, FindOut, RunFunction, Sleep, StartFunction
from fsm_agent.lifecycle.interpret import arriving_output, error_text
from fsm_agent.lifecycle.outcomes import (
    Approved,
    Begun,
    Denied,
    Interrupted,
    ModelFailed,
    Modified,
    Outcome,
    Replied,
    Slept,
    Started,
)
from fsm_agent.messages.event import ArgumentsDelta, Delta, Event, FunctionCallStarted, PartialOutput, TextDelta
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import MOST, UNUSED, Reply
from fsm_agent.mistakes import shown
from fsm_agent.prompts.parser import ANSWER
from fsm_agent.runtime.activity import Activity
from fsm_agent.runtime.call_activities import FunctionRun, ModelRequest, Nap, model_failed
from fsm_agent.runtime.run_function import arun_function, run_function
from fsm_agent.runtime.thread_task import ThreadTask
from fsm_agent.runtime.world import World

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

PartialOutputs: TypeAlias = Callable[[Delta], PartialOutput | None]

MAX_SHOWN_CHARS = 200  # of text from outside


@singledispatch
def perform(effect: Any, activity: Activity) -> Outcome | Generator[Event, None, Outcome] | None:
    """Perform an effect in this thread.

    Raises:
        UsageError: Nothing is registered for this kind of effect.
    """
    raise _unknown(effect, "perform")


@singledispatch
def aperform(effect: Any, activity: Activity) -> Awaitable[Outcome | None] | AsyncGenerator[Event | Outcome]:
    """Do the same as `perform` under asyncio."""
    raise _unknown(effect, "aperform")


def performer(effect: Any) -> Callable[[Any, Activity], Any]:
    """Return the function that `perform` would call for an effect: asking it each time costs twice as much."""
    return perform.registry.get(type(effect)) or perform


def aperformer(effect: Any) -> Callable[[Any, Activity], Any]:
    """Return the function that `aperform` would call for an effect."""
    return aperform.registry.get(type(effect)) or aperform


def _unknown(effect: Any, name: str) -> UsageError:
    kind = type(effect).__name__
    return UsageError(f"nothing performs {kind} (key {effect.key!r}): a function registered with {name}.register would")


@perform.register(Begin)  # instant: every driver performs it itself
def _(effect: Begin, activity: Activity) -> Begun:
    recorder = activity.driver.recorder
    return begin(activity.world, None if recorder is None or activity.path else recorder.run)


@perform.register(CallModel)
def _(effect: CallModel, activity: ModelRequest) -> Any:
    if effect.refusal is not None:
        return _refused(effect.refusal, activity.world)
    timeout_s = activity.allowed_s
    if effect.is_priced:
        activity.world.price_list.check()
    if not activity.driver.is_streamed:
        return ask_model(effect, activity.world, timeout_s)
    return stream_model(effect, activity.world, timeout_s, partial_outputs(activity.process))


@aperform.register(CallModel)
def _(effect: CallModel, activity: ModelRequest) -> Any:
    if effect.refusal is not None:
        return _refused_async(effect.refusal, activity.world)
    timeout_s = activity.allowed_s
    if effect.is_priced:
        activity.world.price_list.check()
    if not activity.driver.is_streamed:
        return ask_model_async(effect, activity.world, timeout_s)
    return stream_model_async(effect, activity.world, timeout_s, partial_outputs(activity.process))


def _refused(refusal: ErrorReport, world: World) -> ModelFailed:
    """Return the outcome of a request that is not sent."""
    return ModelFailed(error=refusal, at_s=world.clock.now())


async def _refused_async(refusal: ErrorReport, world: World) -> ModelFailed:
    return _refused(refusal, world)


@perform.register(Sleep)
def _(effect: Sleep, activity: Nap) -> Slept:
    activity.world.clock.sleep(max(0.0, activity.until_s - activity.world.clock.now()))
    return Slept(at_s=activity.world.clock.now())


@aperform.register(Sleep)
async def _(effect: Sleep, activity: Nap) -> Slept:
    await activity.world.clock.asleep(max(0.0, activity.until_s - activity.world.clock.now()))
    return Slept(at_s=activity.world.clock.now())


@perform.register(AskApproval)
def _(effect: AskApproval, activity: Activity) -> Outcome | None:
    verdict = consulted(activity.process, effect, activity.world)
    if inspect.isawaitable(verdict):
        verdict = activity.handle.run_coroutine(_awaiting(verdict))
    return decided(verdict, effect.call, activity.world)


@aperform.register(AskApproval)
async def _(effect: AskApproval, activity: Activity) -> Outcome | None:
    consult = partial(consulted, activity.process, effect, activity.world)
    return decided(await _consulted(consult, activity.world.approve), effect.call, activity.world)


async def _consulted(consult: Callable[[], Any], whom: Any) -> Any:
    """Return what somebody says, who is asked in a thread unless it is a coroutine function."""
    if inspect.iscoroutinefunction(whom):
        return await consult()
    child = ThreadTask[Any](lambda _: consult())
    try:
        verdict = await asyncio.wrap_future(child.start().future)
    finally:
        child.cancel()
    return await verdict if inspect.isawaitable(verdict) else verdict


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@perform.register(StartFunction)  # instant
def _(effect: StartFunction, activity: Activity) -> Started:
    return Started(at_s=activity.world.clock.now())


@perform.register(FindOut)
def _(effect: FindOut, activity: Activity) -> Outcome | None:
    found = effect.function.reconcile(_context(effect, activity))  # type: ignore[misc]
    if inspect.isawaitable(found):
        found = activity.handle.run_coroutine(_awaiting(found))
    return _found_out(found, effect)


@aperform.register(FindOut)
async def _(effect: FindOut, activity: Activity) -> Outcome | None:
    find_out: Any = effect.function.reconcile
    return _found_out(await _consulted(partial(find_out, _context(effect, activity)), find_out), effect)


def _context(effect: FindOut, activity: Activity) -> Context[Any]:
    return context_of(effect.call, activity.process.record, activity.process.deps)


def _found_out(found: Any, effect: FindOut) -> Outcome | None:
    """Return what `Policy.reconcile` found out; None: it could not.

    Raises:
        UsageError: It returned something else.
    """
    if found is None or type(found) in effect.outcomes:
        return found  # type: ignore[no-any-return]
    what = f"reconcile of function {effect.call.name!r} returned {found!r:.200}"
    raise UsageError(f"{what}: Returned(text=…), FunctionFailed(text=…), RunAgain() or None is right")


@perform.register(RunFunction)
def _(effect: RunFunction, activity: FunctionRun) -> Outcome:
    if activity.is_instant:
        return Interrupted(at_s=activity.world.clock.now())
    return run_function(activity.run, activity.handle)


@aperform.register(RunFunction)
async def _(effect: RunFunction, activity: FunctionRun) -> Outcome:
    return await arun_function(activity.run)


def begin(world: World, name: str | None = None) -> Begun:
    """Return the start of a call: the time, and its name, by default a new one."""
    return Begun(at_s=world.clock.now(), id=world.new_id() if name is None else name)


def ask_model(effect: CallModel, world: World, timeout_s: float | None) -> Replied | ModelFailed:
    """Send the request from this thread, and return the outcome."""
    try:
        reply = world.client.complete(effect.request, timeout_s=timeout_s)
    except Exception as error:
        return _failed(effect, error, world)
    return _replied(effect, reply, "complete", world)


async def ask_model_async(effect: CallModel, world: World, timeout_s: float | None) -> Replied | ModelFailed:
    """Send the request from this task, and return the outcome."""
    try:
        reply = await world.client.acomplete(effect.request, timeout_s=timeout_s)
    except Exception as error:
        return _failed(effect, error, world)
    return _replied(effect, reply, "acomplete", world)


def partial_outputs(call: AgentCall) -> PartialOutputs | None:
    """Return what makes `PartialOutput`s of the deltas of the next reply; None: it has none."""
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
        except Exception:  # a validator is the user's code, and sees a part here; at the end it decides
            return None
        return None if found is None else PartialOutput(number, *found)

    return partial_output


def stream_model(
    effect: CallModel, world: World, timeout_s: float | None, partial_output: PartialOutputs | None = None
) -> Generator[Delta | PartialOutput, None, Replied | ModelFailed]:
    """Send the request from this thread; yield the deltas of the reply and return the outcome."""
    reply: Reply | None = None
    try:
        with closing(world.client.stream(effect.request, timeout_s=timeout_s)) as items:
            for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield item
                    if partial_output is not None and (event := partial_output(item)) is not None:
                        yield event
    except Exception as error:
        if reply is None:  # otherwise the stream broke while it was being closed
            return _failed(effect, error, world)
    return _replied(effect, reply, "stream", world)


async def stream_model_async(
    effect: CallModel, world: World, timeout_s: float | None, partial_output: PartialOutputs | None = None
) -> AsyncGenerator[Delta | PartialOutput | Replied | ModelFailed]:
    """Send the request from this task; yield the deltas of the reply, and last the outcome."""
    reply: Reply | None = None
    try:
        async with aclosing(world.client.astream(effect.request, timeout_s=timeout_s)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield item
                    if partial_output is not None and (event := partial_output(item)) is not None:
                        yield event
    except Exception as error:
        if reply is None:
            yield _failed(effect, error, world)
            return
    yield _replied(effect, reply, "astream", world)


def _failed(effect: CallModel, error: Exception, world: World) -> ModelFailed:
    """Return a client's exception as an outcome of the call; raise one that has to go through."""
    if (failure := transport_failure(error)) is None:
        raise error
    return model_failed(effect, failure, world)


def _replied(effect: CallModel, reply: Any, method: str, world: World) -> Replied:
    problem: str | None = None
    if type(reply) is not Reply or reply.message.role != "assistant":
        problem = "a Reply would be right, whose message has the role 'assistant'"
    elif (usage := reply.usage) is not UNUSED:
        for count in (usage.input_tokens, usage.output_tokens, usage.cost_pico_usd):  # what budgets reckon with
            if count is not None and not (type(count) is int and 0 <= count <= MOST):
                problem = usage.problem()
    if problem is not None:
        what = f"{method}() of the client {getattr(world.client, 'name', world.client)!r} ended with {shown(reply)}"
        raise UsageError(f"{what}: {problem}")
    if effect.is_priced or world.prices is not None:
        reply = world.price_list.priced(reply)
    return Replied(reply=reply, at_s=world.clock.now())


def transport_failure(error: Exception) -> ProviderError | None:
    """Return a client's exception as the error of a request; None for a bug, which no waiting cures.

    A custom client raises what its library does: `OSError`, whose kinds are `ConnectionError` and `TimeoutError`
    (asyncio's, too), or an `httpx.TransportError`.  Both may be gone at the next attempt.
    """
    if isinstance(error, ProviderError):
        return error
    httpx = sys.modules.get("httpx")  # a module that is not loaded has raised nothing
    if not isinstance(error, (OSError, getattr(httpx, "TransportError", OSError))):
        return None
    is_late = isinstance(error, (TimeoutError, getattr(httpx, "TimeoutException", TimeoutError)))
    text = mask_keys(error_text(error))[:MAX_SHOWN_CHARS]
    what = ": ".join(filter(None, ["the client failed", type(error).__name__, text]))
    failure = (TimedOut if is_late else ProviderError)(what, retryable=True)
    failure.__cause__ = error
    return failure


def consulted(call: AgentCall, ask: AskApproval, world: World) -> Any:
    """Return the approver's verdict on a function call, or an awaitable of it; None when there is no approver."""
    approve: Callable[..., Any] | None = world.approve
    if approve is None:
        return None
    if world.asks_with_context:
        return approve(ask.call, context_of(ask.call, call.record, call.deps))
    return approve(ask.call)


def decided(verdict: Any, call: FunctionCall, world: World) -> Approved | Modified | Denied | None:
    """Return the outcome that an approver's verdict stands for; None: the call is suspended.

    Raises:
        UsageError: The verdict is none of the values allowed.
    """
    if verdict is None or isinstance(verdict, Approved | Modified | Denied):
        return verdict
    if isinstance(verdict, bool):
        return Approved(at_s=world.clock.now()) if verdict else Denied(at_s=world.clock.now())
    raise UsageError(f"approve({call.name}) returned {verdict!r}: True, False, Approved(), Denied(…) or None is right")
