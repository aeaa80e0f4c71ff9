"""What moves an agent call: who performs its effects, and in which order?

Two loops, sync and asyncio, over the same machine; each is a generator of events, so `run` is `drive` with
nobody listening.  A driver holds nothing: stopped at any moment (Ctrl-C, a cancelled task, a generator that is
closed) it ends its children and leaves a call at rest that any driver goes on with.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, closing
from typing import Any

from fsm_agent.call import AgentCall
from fsm_agent.effects import AskApproval, Begin, CallModel, RunFunction, Sleep
from fsm_agent.errors import ProviderError
from fsm_agent.events import Done, Event, ReplyCompleted, Suspended
from fsm_agent.outcomes import Replied, Slept
from fsm_agent.perform import World, begin, decided, model_failed
from fsm_agent.progress import AsyncEvents, Events, advance, expire, is_late, time_left
from fsm_agent.replies import Reply
from fsm_agent.results import CallResult
from fsm_agent.rounds import arun_functions, run_functions


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
    async with aclosing(adrive(call, world, streaming=sink is not None)) as events:
        async for event in events:
            if sink is not None:
                sink(event)
    return call


def drive(call: AgentCall, world: World, *, streaming: bool = True) -> Events:
    """Drive ``call`` and yield what happens, as it happens; exactly one `Done`, or one `Suspended`, is last."""
    while effects := call.effects:
        before = call.record
        if is_late(call, world):
            yield from expire(call, world)
            continue
        match effects[0]:
            case Begin(key):
                yield from advance(call, key, begin(world))
            case CallModel() as effect:
                yield from _ask_model(call, effect, world, streaming)
            case Sleep() as effect:
                world.clock.sleep(_nap_s(call, effect, world))
                yield from _wake(call, effect, world)
            case AskApproval():
                yield from _ask_approval(call, world)
            case RunFunction():
                yield from run_functions(call, world)
        if call.record is before or _is_undecided(call, effects[0]):
            break  # nobody here can perform what is left
    yield _last(call)


async def adrive(call: AgentCall, world: World, *, streaming: bool = True) -> AsyncEvents:
    """`drive` for asyncio: coroutine functions run as tasks, plain ones in threads."""
    while effects := call.effects:
        before = call.record
        async with aclosing(_astep(call, effects[0], world, streaming)) as events:
            async for event in events:
                yield event
        if call.record is before or _is_undecided(call, effects[0]):
            break
    yield _last(call)


async def _astep(call: AgentCall, first: Any, world: World, streaming: bool) -> AsyncEvents:
    events: AsyncEvents | Iterable[Event]
    if is_late(call, world):
        events = expire(call, world)
    else:
        match first:
            case Begin(key):
                events = advance(call, key, begin(world))
            case CallModel() as effect:
                events = _aask_model(call, effect, world, streaming)
            case Sleep() as effect:
                await world.clock.asleep(_nap_s(call, effect, world))
                events = _wake(call, effect, world)
            case AskApproval():
                events = _aask_approval(call, world)
            case _:
                events = arun_functions(call, world)
    if isinstance(events, AsyncGenerator):
        async with aclosing(events):
            async for event in events:
                yield event
    else:
        for event in events:
            yield event


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


def _ask_model(call: AgentCall, effect: CallModel, world: World, streaming: bool) -> Events:
    timeout_s = time_left(call, world)
    try:
        if streaming:
            with closing(world.client.stream(effect.request, timeout_s=timeout_s)) as items:
                for item in items:
                    if isinstance(item, Reply):
                        reply = item
                    else:
                        yield item
                    if call.record.ending is not None:  # a listener has ended the call
                        return
        else:
            reply = world.client.complete(effect.request, timeout_s=timeout_s)
    except ProviderError as error:
        yield from _unanswered(call, effect, error, world)
    else:
        yield from _replied(call, effect, reply, world)


async def _aask_model(call: AgentCall, effect: CallModel, world: World, streaming: bool) -> AsyncEvents:
    timeout_s = time_left(call, world)
    try:
        if streaming:
            async with aclosing(world.client.astream(effect.request, timeout_s=timeout_s)) as items:
                async for item in items:
                    if isinstance(item, Reply):
                        reply = item
                    else:
                        yield item
                    if call.record.ending is not None:
                        return
        else:
            reply = await world.client.acomplete(effect.request, timeout_s=timeout_s)
    except ProviderError as error:
        events = _unanswered(call, effect, error, world)
    else:
        events = _replied(call, effect, reply, world)
    for event in events:
        yield event


def _replied(call: AgentCall, effect: CallModel, reply: Reply, world: World) -> tuple[Event, ...]:
    completed = ReplyCompleted(reply.message.text, reply.message.function_calls, reply.usage)
    return (completed, *advance(call, effect.key, Replied(reply=reply, at_s=world.clock.now())))


def _unanswered(call: AgentCall, effect: CallModel, error: ProviderError, world: World) -> tuple[Event, ...]:
    if is_late(call, world):
        return expire(call, world)
    return advance(call, effect.key, model_failed(effect, error, world))


# Approvals, all of them before any function runs


def _is_undecided(call: AgentCall, first: object) -> bool:
    """Whether some of the calls that everybody was asked about wait for somebody else's word."""
    return isinstance(first, AskApproval) and call.record.waits_for_approval


def _asks(call: AgentCall) -> list[AskApproval]:
    return [effect for effect in call.effects if isinstance(effect, AskApproval)]


def _ask_approval(call: AgentCall, world: World) -> Events:
    for ask in _asks(call) if world.approve else ():
        assert world.approve is not None
        if verdict := decided(world.approve(ask.call), ask.call, world):
            yield from advance(call, ask.key, verdict)


async def _aask_approval(call: AgentCall, world: World) -> AsyncEvents:
    for ask in _asks(call) if world.approve else ():
        assert world.approve is not None
        said = world.approve(ask.call)
        try:
            async with asyncio.timeout(time_left(call, world)):
                said = await said if inspect.isawaitable(said) else said
        except TimeoutError:
            if not is_late(call, world):
                raise
            for event in expire(call, world):
                yield event
            return
        if verdict := decided(said, ask.call, world):
            for event in advance(call, ask.key, verdict):
                yield event
