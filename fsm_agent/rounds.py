"""How are the functions of a round run: at once where they can be, and let go of where they must be?

A driver that is stopped ends its children; what they had returned by then is kept, and what had not is run again
by the next driver: a function is run at least once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import aclosing
from functools import partial
from typing import Any

from fsm_agent.call import AgentCall
from fsm_agent.effects import RunFunction
from fsm_agent.events import Event, FunctionEnded, FunctionStarted
from fsm_agent.outcomes import Returned
from fsm_agent.perform import World, arun_function, run_function
from fsm_agent.progress import AsyncEvents, Events, advance, expire, time_left
from fsm_agent.threads import Child

GRACE_S = 1.0  # how long cancelled coroutines may take to end before they are left behind


def _runnable(call: AgentCall) -> list[RunFunction]:
    """Those without a callable are answered from outside."""
    return [e for e in call.effects if isinstance(e, RunFunction) and e.function.call is not None]


def _started(effect: RunFunction) -> FunctionStarted:
    return FunctionStarted(effect.call.id, effect.call.name, effect.call.arguments_json)


def _ended(call: AgentCall, effect: RunFunction, outcome: Returned, started_s: float) -> tuple[Event, ...]:
    duration_s = outcome.at_s - started_s
    ended = FunctionEnded(effect.call.id, effect.call.name, outcome.text, outcome.is_error, duration_s)
    return (ended, *advance(call, effect.key, outcome))


def _keep(call: AgentCall, effect: RunFunction, ended: Any) -> None:
    """What a function had returned when the driver was stopped is not lost."""
    if ended.done() and not ended.cancelled() and ended.exception() is None:
        advance(call, effect.key, ended.result())


def run_functions(call: AgentCall, world: World) -> Events:
    effects, depth = _runnable(call), call.record.depth + 1
    if call.record.deadline_s is None and (world.threads == 0 or len(effects) == 1):
        for effect in effects:
            yield _started(effect)
            if call.record.ending is not None:
                return
            started_s = world.clock.now()
            yield from _ended(call, effect, run_function(effect, depth, world), started_s)
        return
    waiting, running = deque(effects), dict[Any, tuple[Child[Returned], RunFunction, float]]()
    try:
        while call.record.ending is None and (waiting or running):
            while waiting and len(running) < max(1, world.threads):
                effect = waiting.popleft()
                yield _started(effect)
                started_s = world.clock.now()
                child = Child[Returned](partial(run_function, effect, depth, world))
                running[child.future] = (child, effect, started_s)
            done = wait(running, timeout=time_left(call, world), return_when=FIRST_COMPLETED).done
            events: list[Event] = []
            for future in [f for f in running if f in done]:
                _, effect, started_s = running.pop(future)
                events += _ended(call, effect, future.result(), started_s)
            yield from events
            if not done:
                yield from expire(call, world)
                return
    finally:
        for child, effect, _ in running.values():
            child.cancel()
            _keep(call, effect, child.future)


async def arun_all(call: AgentCall, world: World) -> tuple[Event, ...]:
    """`arun_functions` for whoever does not listen meanwhile."""
    effects = _runnable(call)
    if call.record.deadline_s is None and len(effects) == 1:
        effect, started_s = effects[0], world.clock.now()
        return _ended(call, effect, await arun_function(effect, call.record.depth + 1, world), started_s)
    async with aclosing(_arun_together(call, effects, world)) as events:
        return tuple([event async for event in events])


async def arun_functions(call: AgentCall, world: World) -> AsyncEvents:
    effects, depth = _runnable(call), call.record.depth + 1
    if call.record.deadline_s is None and len(effects) == 1:  # needs no task
        yield _started(effects[0])
        if call.record.ending is not None:
            return
        started_s = world.clock.now()
        outcome = await arun_function(effects[0], depth, world)
        for event in _ended(call, effects[0], outcome, started_s):
            yield event
        return
    async with aclosing(_arun_together(call, effects, world)) as events:
        async for event in events:
            yield event


def _takes_thread(effect: RunFunction) -> bool:
    return effect.function.blocking and not effect.function.is_async


def _threads(running: Iterable[tuple[RunFunction, float]]) -> int:
    return sum(_takes_thread(effect) for effect, _ in running)


async def _arun_together(call: AgentCall, effects: list[RunFunction], world: World) -> AsyncEvents:
    depth, most = call.record.depth + 1, max(1, world.threads)
    waiting, running = deque(effects), dict[asyncio.Task[Returned], tuple[RunFunction, float]]()
    try:
        while call.record.ending is None and (waiting or running):
            while waiting and (not _takes_thread(waiting[0]) or _threads(running.values()) < most):
                effect = waiting.popleft()
                yield _started(effect)
                running[asyncio.create_task(arun_function(effect, depth, world))] = (effect, world.clock.now())
            timeout_s = time_left(call, world)
            done, _ = await asyncio.wait(running, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            events: list[Event] = []
            for task in [t for t in running if t in done]:
                effect, started_s = running.pop(task)
                events += _ended(call, effect, task.result(), started_s)
            for event in events:
                yield event
            if not done:
                for event in expire(call, world):
                    yield event
                return
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=GRACE_S)
        for task, (effect, _) in running.items():
            _keep(call, effect, task)
