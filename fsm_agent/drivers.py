"""What moves an agent call: who performs its effects, and in which order?

Two loops, sync and asyncio, over the same machine; each is a generator of events, so `run` is `drive` with
nobody listening.  A driver holds nothing: stopped at any moment (Ctrl-C, a cancelled task, a generator that is
closed) it ends its children and leaves a call at rest that any driver goes on with.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import aclosing, closing
from functools import partial
from typing import Any, TypeAlias

from fsm_agent.call import AgentCall, CallResult
from fsm_agent.effects import AskApproval, Begin, CallModel, RunFunction, Sleep
from fsm_agent.errors import ProviderError
from fsm_agent.events import Done, Event, FunctionEnded, FunctionStarted, ReplyCompleted, Suspended
from fsm_agent.outcomes import Expired, Outcome, Replied, Returned, Slept
from fsm_agent.perform import World, arun_function, begin, decided, model_failed, run_function
from fsm_agent.replies import Reply
from fsm_agent.threads import Child

Events: TypeAlias = Generator[Event, None, None]
AsyncEvents: TypeAlias = AsyncGenerator[Event, None]

GRACE_S = 1.0  # how long cancelled coroutines may take to end before they are left behind


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
        if _is_late(call, world):
            yield from _expire(call, world)
            continue
        match effects[0]:
            case Begin(key):
                yield from _advance(call, key, begin(world))
            case CallModel() as effect:
                yield from _ask_model(call, effect, world, streaming)
            case Sleep() as effect:
                world.clock.sleep(_nap_s(call, effect, world))
                yield from _wake(call, effect, world)
            case AskApproval():
                yield from _ask_approval(call, world)
            case RunFunction():
                yield from _run_functions(call, world)
        if call.record is before:
            break  # nobody here can perform what is left
    yield _last(call)


async def adrive(call: AgentCall, world: World, *, streaming: bool = True) -> AsyncEvents:
    """`drive` for asyncio: coroutine functions run as tasks, plain ones in threads."""
    while effects := call.effects:
        before = call.record
        async with aclosing(_astep(call, effects[0], world, streaming)) as events:
            async for event in events:
                yield event
        if call.record is before:
            break
    yield _last(call)


async def _astep(call: AgentCall, first: Any, world: World, streaming: bool) -> AsyncEvents:
    events: AsyncEvents | Iterable[Event]
    if _is_late(call, world):
        events = _expire(call, world)
    else:
        match first:
            case Begin(key):
                events = _advance(call, key, begin(world))
            case CallModel() as effect:
                events = _aask_model(call, effect, world, streaming)
            case Sleep() as effect:
                await world.clock.asleep(_nap_s(call, effect, world))
                events = _wake(call, effect, world)
            case AskApproval():
                events = _aask_approval(call, world)
            case _:
                events = _arun_functions(call, world)
    if isinstance(events, AsyncGenerator):
        async with aclosing(events):
            async for event in events:
                yield event
    else:
        for event in events:
            yield event


def _advance(call: AgentCall, key: str, outcome: Outcome) -> Events:
    call.advance(key, outcome)
    yield call.record.trace[-1]


def _last(call: AgentCall) -> Event:
    if call.effects:
        return Suspended(tuple([effect.key for effect in call.effects]))
    return Done(CallResult(call))


# Time


def _time_left(call: AgentCall, world: World) -> float | None:
    deadline_s = call.record.deadline_s
    return None if deadline_s is None else max(0.0, deadline_s - world.clock.now())


def _is_late(call: AgentCall, world: World) -> bool:
    return _time_left(call, world) == 0.0


def _expire(call: AgentCall, world: World) -> Events:
    return _advance(call, "", Expired(at_s=world.clock.now()))


def _nap_s(call: AgentCall, effect: Sleep, world: World) -> float:
    delay_s, left_s = max(0.0, effect.until_s - world.clock.now()), _time_left(call, world)
    return delay_s if left_s is None else min(delay_s, left_s)


def _wake(call: AgentCall, effect: Sleep, world: World) -> Events:
    return _expire(call, world) if _is_late(call, world) else _advance(call, effect.key, Slept(at_s=world.clock.now()))


# The model


def _ask_model(call: AgentCall, effect: CallModel, world: World, streaming: bool) -> Events:
    timeout_s = _time_left(call, world)
    try:
        if streaming:
            with closing(world.client.stream(effect.request, timeout_s=timeout_s)) as items:
                for item in items:
                    if isinstance(item, Reply):
                        reply = item
                    else:
                        yield item
        else:
            reply = world.client.complete(effect.request, timeout_s=timeout_s)
    except ProviderError as error:
        yield from _advance(call, effect.key, model_failed(effect, error, world))
    else:
        yield from _replied(call, effect, reply, world)


async def _aask_model(call: AgentCall, effect: CallModel, world: World, streaming: bool) -> AsyncEvents:
    timeout_s = _time_left(call, world)
    try:
        if streaming:
            async with aclosing(world.client.astream(effect.request, timeout_s=timeout_s)) as items:
                async for item in items:
                    if isinstance(item, Reply):
                        reply = item
                    else:
                        yield item
        else:
            reply = await world.client.acomplete(effect.request, timeout_s=timeout_s)
    except ProviderError as error:
        events = _advance(call, effect.key, model_failed(effect, error, world))
    else:
        events = _replied(call, effect, reply, world)
    for event in events:
        yield event


def _replied(call: AgentCall, effect: CallModel, reply: Reply, world: World) -> Events:
    yield ReplyCompleted(reply.message.text, reply.message.function_calls, reply.usage)
    yield from _advance(call, effect.key, Replied(reply=reply, at_s=world.clock.now()))


# Approvals, all of them before any function runs


def _asks(call: AgentCall) -> list[AskApproval]:
    return [effect for effect in call.effects if isinstance(effect, AskApproval)]


def _ask_approval(call: AgentCall, world: World) -> Events:
    for ask in _asks(call) if world.approve else ():
        assert world.approve is not None
        if verdict := decided(world.approve(ask.call), ask.call, world):
            yield from _advance(call, ask.key, verdict)


async def _aask_approval(call: AgentCall, world: World) -> AsyncEvents:
    for ask in _asks(call) if world.approve else ():
        assert world.approve is not None
        said = world.approve(ask.call)
        if verdict := decided(await said if inspect.isawaitable(said) else said, ask.call, world):
            for event in _advance(call, ask.key, verdict):
                yield event


# Functions: those without a callable are answered from outside


def _runnable(call: AgentCall) -> list[RunFunction]:
    return [e for e in call.effects if isinstance(e, RunFunction) and e.function.call is not None]


def _started(effect: RunFunction) -> FunctionStarted:
    return FunctionStarted(effect.call.id, effect.call.name, effect.call.arguments_json)


def _ended(call: AgentCall, effect: RunFunction, outcome: Returned, started_s: float) -> Events:
    duration_s = outcome.at_s - started_s
    yield FunctionEnded(effect.call.id, effect.call.name, outcome.text, outcome.is_error, duration_s)
    yield from _advance(call, effect.key, outcome)


def _run_functions(call: AgentCall, world: World) -> Events:
    effects, depth = _runnable(call), call.record.depth + 1
    if call.record.deadline_s is None and (world.threads == 0 or len(effects) == 1):
        for effect in effects:
            yield _started(effect)
            started_s = world.clock.now()
            yield from _ended(call, effect, run_function(effect, depth, world), started_s)
        return
    waiting, running = deque(effects), dict[Any, tuple[Child[Returned], RunFunction, float]]()
    try:
        while waiting or running:
            while waiting and len(running) < max(1, world.threads):
                effect = waiting.popleft()
                yield _started(effect)
                started_s = world.clock.now()
                child = Child[Returned](partial(run_function, effect, depth, world))
                running[child.future] = (child, effect, started_s)
            done = wait(running, timeout=_time_left(call, world), return_when=FIRST_COMPLETED).done
            for future in [f for f in running if f in done]:
                _, effect, started_s = running.pop(future)
                yield from _ended(call, effect, future.result(), started_s)
            if not done:
                yield from _expire(call, world)
                return
    finally:
        for child, _, _ in running.values():
            child.cancel()


async def _arun_functions(call: AgentCall, world: World) -> AsyncEvents:
    effects, depth = _runnable(call), call.record.depth + 1
    if call.record.deadline_s is None and len(effects) == 1:  # needs no task
        yield _started(effects[0])
        started_s = world.clock.now()
        outcome = await arun_function(effects[0], depth, world)
        for event in _ended(call, effects[0], outcome, started_s):
            yield event
        return
    async with aclosing(_arun_together(call, effects, world)) as events:
        async for event in events:
            yield event


async def _arun_together(call: AgentCall, effects: list[RunFunction], world: World) -> AsyncEvents:
    depth = call.record.depth + 1
    running = dict[asyncio.Task[Returned], tuple[RunFunction, float]]()
    try:
        for effect in effects:
            yield _started(effect)
            running[asyncio.create_task(arun_function(effect, depth, world))] = (effect, world.clock.now())
        while running:
            timeout_s = _time_left(call, world)
            done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for task in [t for t in running if t in done]:
                effect, started_s = running.pop(task)
                for event in _ended(call, effect, task.result(), started_s):
                    yield event
            if not done:
                for event in _expire(call, world):
                    yield event
                return
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=GRACE_S)
