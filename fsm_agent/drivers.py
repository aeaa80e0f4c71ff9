"""What moves an agent call: who performs its effects, and in which order?

Two loops, sync and asyncio, over the same machine; each is a generator of events, so `run` is `drive` with
nobody listening.  A driver holds nothing: stopped at any moment (Ctrl-C, a cancelled task, a generator that is
closed) it ends its children and leaves a call at rest that any driver goes on with.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

from fsm_agent.call import AgentCall
from fsm_agent.deferred import deferred
from fsm_agent.effects import AskApproval, Begin, CallModel, Effect, RunFunction, Sleep
from fsm_agent.events import Done, Event, LoopDetected, ReplyCompleted, RequestStarted, Suspended
from fsm_agent.outcomes import Cancelled, Expired, Outcome, Replied, Slept
from fsm_agent.perform import World, begin, decided, model_failed, transport_failure
from fsm_agent.progress import AsyncEvents, Events, advance, expire, is_late, overtaken, time_left
from fsm_agent.replies import Reply
from fsm_agent.results import CallResult
from fsm_agent.rounds import arun_functions, arun_unheard, run_functions
from fsm_agent.values import maker

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_make_replied = maker(Replied)


def run(call: AgentCall, world: World, sink: Callable[[Event], Any] | None = None) -> AgentCall:
    """Drive ``call`` to its end, or to where it waits for somebody who is not here.

    Args:
        call: The call.
        world: Performs its effects.
        sink: Is given every event; the model's reply is streamed then.
    """
    with closing(drive(call, world, streaming=sink is not None)) as events:
        for event in events:
            if sink is not None:
                sink(event)
    return call


async def arun(call: AgentCall, world: World, sink: Callable[[Event], Any] | None = None) -> AgentCall:
    """`run` for asyncio."""
    if sink is None:
        await _arun_unheard(call, world)
        return call
    async with aclosing(adrive(call, world)) as events:
        async for event in events:
            sink(event)
    return call


async def _arun_unheard(call: AgentCall, world: World) -> None:
    """`adrive` for nobody: an asynchronous generator costs more than a step."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task(loop)

    def interrupt() -> None:
        if task is not None:
            task.cancel()

    def wake(_: Cancelled) -> None:
        loop.call_soon_threadsafe(interrupt)

    call.wake = wake
    try:
        await _asteps(call, world)
    except asyncio.CancelledError:
        if call.cancellation is None or (task is not None and task.uncancel()):
            raise
        overtaken(call, world)
    finally:
        call.wake = task = None


async def _asteps(call: AgentCall, world: World) -> None:
    while effects := call.effects:
        before, first = call.record, effects[0]
        if overtaken(call, world):
            continue
        if type(first) is CallModel:
            outcome = await _areply(call, first, world)
            advance(call, "" if type(outcome) is Expired else first.key, outcome)
        elif type(first) is RunFunction:
            await arun_unheard(call, first, world)
        else:
            await _astep(call, first, world)
            if _is_undecided(call, first):
                break
        if call.record is before:
            break


def drive(call: AgentCall, world: World, *, streaming: bool = True) -> Events:
    """Drive ``call`` and yield what happens, as it happens; exactly one `Done`, or one `Suspended`, is last."""
    while effects := call.effects:
        before, first = call.record, effects[0]
        if events := overtaken(call, world):
            yield from events
            continue
        match first:
            case CallModel():
                yield from _model(call, first, world, streaming=streaming)
            case RunFunction():
                yield from run_functions(call, world)
            case Begin():
                yield from advance(call, first.key, begin(world))
            case Sleep():
                world.clock.sleep(_nap_s(call, first, world))
                yield from _wake(call, first, world)
            case AskApproval():
                yield from _ask_approval(call, world)
        if call.record is before or _is_undecided(call, first):
            break  # nobody here can perform what is left
    yield _last(call)


async def adrive(call: AgentCall, world: World, *, streaming: bool = True) -> AsyncEvents:
    """`drive` for asyncio: coroutine functions run as tasks, plain ones in threads."""
    while effects := call.effects:
        before, first = call.record, effects[0]
        for event in _asking(call, first, world):
            yield event
        if call.record is not before:  # a listener had something to say to that
            continue
        if (events := _told_meanwhile(call, first, world, streaming=streaming)) is None:
            for event in overtaken(call, world) or await _astep(call, first, world):
                yield event
        else:
            async with aclosing(events):
                async for event in events:
                    yield event
        if call.record is before or _is_undecided(call, first):
            break
    yield _last(call)


def _told_meanwhile(call: AgentCall, first: Effect, world: World, *, streaming: bool) -> AsyncEvents | None:
    """What happens while an effect is performed; None when all is told afterwards."""
    if call.cancellation is not None or is_late(call, world):
        return None
    if isinstance(first, CallModel):
        return _astream_model(call, first, world) if streaming else None
    return arun_functions(call, world) if isinstance(first, RunFunction) else None


async def _astep(call: AgentCall, first: Effect, world: World) -> tuple[Event, ...]:
    """Perform an effect that nobody hears of meanwhile; what happened, afterwards."""
    match first:
        case CallModel():
            return _answered(call, first, await _areply(call, first, world))
        case Begin():
            return advance(call, first.key, begin(world))
        case Sleep():
            await world.clock.asleep(_nap_s(call, first, world))
            return _wake(call, first, world)
        case AskApproval():
            return await _aask_approval(call, world)
        case RunFunction():
            raise AssertionError(f"{first.key}: functions are heard of while they run")


def _last(call: AgentCall) -> Event:
    if call.effects:
        return Suspended(tuple([effect.key for effect in call.effects]))
    return Done(CallResult(call))


def _nap_s(call: AgentCall, effect: Sleep, world: World) -> float:
    delay_s, left_s = max(0.0, effect.until_s - world.clock.now()), time_left(call, world)
    return delay_s if left_s is None else min(delay_s, left_s)


def _wake(call: AgentCall, effect: Sleep, world: World) -> tuple[Event, ...]:
    return expire(call, world) if is_late(call, world) else advance(call, effect.key, Slept(at_s=world.clock.now()))


# The model


def _asking(call: AgentCall, effect: Effect, world: World) -> tuple[Event, ...]:
    """That the model is asked, and what the request does not show any more."""
    if type(effect) is not CallModel or call.cancellation is not None or is_late(call, world):
        return ()
    started = RequestStarted(call.record.turn + 1, len(effect.request.messages))
    masked = call.view.news() if call.view else None
    return (masked, started) if masked else (started,)


def _model(call: AgentCall, effect: CallModel, world: World, *, streaming: bool) -> Events:
    before = call.record
    yield from _asking(call, effect, world)
    if call.record is not before:  # a listener had something to say to that
        return
    if streaming:
        yield from _stream_model(call, effect, world)
    else:
        yield from _answered(call, effect, _reply(call, effect, world))


def _reply(call: AgentCall, effect: CallModel, world: World) -> Outcome:
    try:
        reply = world.client.complete(effect.request, timeout_s=time_left(call, world))
    except Exception as error:
        if (failed := _failed(call, effect, error, world)) is None:
            raise
        return failed
    return _make_replied(reply=reply, at_s=world.clock.now())


async def _areply(call: AgentCall, effect: CallModel, world: World) -> Outcome:
    try:
        reply = await world.client.acomplete(effect.request, timeout_s=time_left(call, world))
    except Exception as error:
        if (failed := _failed(call, effect, error, world)) is None:
            raise
        return failed
    return _make_replied(reply=reply, at_s=world.clock.now())


def _stream_model(call: AgentCall, effect: CallModel, world: World) -> Events:
    try:
        with closing(world.client.stream(effect.request, timeout_s=time_left(call, world))) as items:
            for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield item
                if call.record.ending is not None:  # a listener has ended the call
                    return
        outcome: Outcome = _make_replied(reply=reply, at_s=world.clock.now())
    except Exception as error:
        if (failed := _failed(call, effect, error, world)) is None:
            raise
        outcome = failed
    yield from _answered(call, effect, outcome)


async def _astream_model(call: AgentCall, effect: CallModel, world: World) -> AsyncEvents:
    try:
        async with aclosing(world.client.astream(effect.request, timeout_s=time_left(call, world))) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield item
                if call.record.ending is not None:
                    return
        outcome: Outcome = _make_replied(reply=reply, at_s=world.clock.now())
    except Exception as error:
        if (failed := _failed(call, effect, error, world)) is None:
            raise
        outcome = failed
    for event in _answered(call, effect, outcome):
        yield event


def _failed(call: AgentCall, effect: CallModel, error: Exception, world: World) -> Outcome | None:
    """Return what it means that the client raised; None: the exception has to go through."""
    if (failure := transport_failure(error)) is None:
        return None
    return Expired(at_s=world.clock.now()) if is_late(call, world) else model_failed(effect, failure, world)


def _answered(call: AgentCall, effect: CallModel, outcome: Outcome) -> tuple[Event, ...]:
    """The step that a request ends with, and what there is to say of it."""
    so_far = call.record.identical_rounds
    stepped = advance(call, "" if type(outcome) is Expired else effect.key, outcome)
    if type(outcome) is not Replied:
        return stepped
    looped = () if call.record.limits.identical_rounds is None else _looped(call, so_far)
    return (ReplyCompleted(outcome.reply), *stepped, *looped)


def _looped(call: AgentCall, so_far: int) -> tuple[Event, ...]:
    r = call.record
    if r.identical_rounds == so_far or not r.is_looping:
        return ()
    asked = r.reply.message.function_calls if r.reply else ()
    return (LoopDetected(", ".join(f.name for f in asked), r.identical_rounds, r.limits.on_loop),)


# Approvals, all of them before any function runs


def _is_undecided(call: AgentCall, first: object) -> bool:
    """Whether some of the calls that everybody was asked about wait for somebody else's word."""
    return type(first) is AskApproval and call.record.waits_for_approval


def _asks(call: AgentCall) -> Iterator[AskApproval]:
    """One after another, as long as it is wanted: a denial may settle what depends on it."""
    for ask in call.effects:
        if isinstance(ask, AskApproval) and any(effect.key == ask.key for effect in call.effects):
            yield ask


def _ask_approval(call: AgentCall, world: World) -> Events:
    for ask in _asks(call) if world.approve else ():
        assert world.approve is not None
        if verdict := decided(world.approve(ask.call), ask.call, world):
            yield from advance(call, ask.key, verdict)


async def _aask_approval(call: AgentCall, world: World) -> tuple[Event, ...]:
    events: list[Event] = []
    for ask in _asks(call) if world.approve else ():
        assert world.approve is not None
        said = world.approve(ask.call)
        try:
            async with asyncio.timeout(time_left(call, world)):
                said = await said if inspect.isawaitable(said) else said
        except TimeoutError:
            if not is_late(call, world):
                raise
            return (*events, *expire(call, world))
        if verdict := decided(said, ask.call, world):
            events += advance(call, ask.key, verdict)
    return tuple(events)
