"""How are the functions of a round run: at once where they can be, and let go of where they must be?

A driver that is stopped ends its children; what they had returned by then is kept, and what had not is run again
by the next driver: a function is run at least once.  A function whose time is up is let go of in the same way: the
call goes on without it, a coroutine is cancelled, a thread runs on unheard until its function returns.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from fsm_agent.call import AgentCall
from fsm_agent.deferred import deferred
from fsm_agent.effects import RunFunction
from fsm_agent.events import Event, FunctionEnded, FunctionProgress, FunctionStarted
from fsm_agent.outcomes import Cancelled, Returned
from fsm_agent.perform import World
from fsm_agent.progress import AsyncEvents, Events, advance, expire, is_late, overtaken, time_left
from fsm_agent.running import Ended, Run, Tell, arun_function, run_function, timed_out
from fsm_agent.threads import Child
from fsm_agent.values import maker

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

# What comes out of functions that run: a word of how far one is, or the key of one with what came of it.
Told: TypeAlias = "FunctionProgress | tuple[str, Future[Ended] | asyncio.Task[Ended]] | Cancelled"

_make_started, _make_ended = maker(FunctionStarted), maker(FunctionEnded)

GRACE_S = 1.0  # how long cancelled coroutines may take to end before they are left behind

_left: set[asyncio.Task[Ended]] = set()  # cancelled, and not ended yet: the loop holds its tasks weakly


class Round:
    """The functions of one round: which run, since when, and which wait for their turn."""

    def __init__(self, call: AgentCall, world: World, *, is_heard: bool = True) -> None:
        self.call = call
        self.world = world
        self.is_heard = is_heard  # somebody is told what happens
        self.running: dict[str, tuple[Run, Any, float]] = {}  # by key; its thread or task; since when, monotonic
        self.known: set[str] = set()
        self.waiting: deque[RunFunction] = deque()
        self.is_timed = False  # some functions are
        self.look()

    def look(self) -> None:
        """Take up what may be run now; those without a callable are answered from outside."""
        for effect in self.call.effects:
            if isinstance(effect, RunFunction) and effect.function.call is not None and effect.key not in self.known:
                self.known.add(effect.key)
                self.is_timed = self.is_timed or effect.function.timeout_s is not None
                self.waiting.append(effect)

    @property
    def is_over(self) -> bool:
        return self.call.record.ending is not None or not (self.waiting or self.running)

    def startable(self, effect: RunFunction, *, asynchronous: bool) -> bool:
        """Whether there is time, and a thread for it if it needs one."""
        if is_late(self.call, self.world):
            return False
        if asynchronous and not effect.function.takes_thread:
            return True
        threads = [r for r, _, _ in self.running.values() if not asynchronous or r.function.takes_thread]
        return len(threads) < max(1, self.world.threads)

    def begin(self, effect: RunFunction, start: Callable[[Run], Any], tell: Tell) -> None:
        if self.call.record.ending is not None:  # a listener has ended it
            return
        run = Run(effect, self.call, self.world, tell)
        self.running[effect.key] = (run, start(run), time.monotonic())

    def patience_s(self) -> float | None:
        """How long to wait for the next thing to happen; None: for ever."""
        if not self.is_timed and self.call.record.limits.deadline_s is None:
            return None
        now = time.monotonic()
        waits = [since + r.function.timeout_s - now for r, _, since in self.running.values() if r.function.timeout_s]
        if (left_s := time_left(self.call, self.world)) is not None:
            waits.append(left_s)
        return max(0.0, min(waits)) if waits else None

    def overdue(self) -> tuple[Event, ...]:
        """Let go of those whose time is up; if there is none, and no wait that ends before, the whole call's is."""
        now, events, waits = time.monotonic(), list[Event](), list[float]()
        for key, (run, running, since) in list(self.running.items()):
            if not run.function.timeout_s:
                continue
            waits.append(since + run.function.timeout_s - now)
            if waits[-1] <= 0:
                run.cancel()
                running.cancel()
                if isinstance(running, asyncio.Task):
                    _leave(running)
                events += self.ended(key, timed_out(run))
        left_s = time_left(self.call, self.world)
        if events or left_s is None or left_s > min(waits, default=left_s):
            return tuple(events)
        return expire(self.call, self.world)

    def happened(self, item: Told) -> tuple[Event, ...]:
        """What a function says, or what came of it; nothing when it was let go of before."""
        if isinstance(item, Cancelled):
            return overtaken(self.call, self.world)
        if isinstance(item, FunctionProgress):
            return (item,) if f"run:{item.id}" in self.running else ()
        key, future = item
        return self.ended(key, future.result()) if key in self.running else ()

    def ended(self, key: str, outcome: Ended) -> tuple[Event, ...]:
        """Tell the call of it."""
        run, _, _ = self.running.pop(key)
        events = _ended(self.call, run, outcome) if self.is_heard else advance(self.call, key, outcome)
        if self.call.prompt.depended_on or self.call.record.limits.parallel is not None:
            self.look()
        return events


def _started(effect: RunFunction) -> FunctionStarted:
    return _make_started(effect.call.id, effect.call.name, effect.call.arguments_json)


def _ended(call: AgentCall, run: Run, outcome: Ended) -> tuple[Event, ...]:
    asked, text = run.effect.call, outcome.text if run.returned is None else run.returned
    is_error = not isinstance(outcome, Returned) or outcome.is_error
    ended = _make_ended(asked.id, asked.name, text, is_error, outcome.at_s - run.started_at_s)
    return (ended, *run.changes, *advance(call, run.effect.key, outcome))


def _is_brief(effect: RunFunction) -> bool:
    """Whether it has no time limit, and nothing to say while it runs."""
    return effect.function.timeout_s is None and not effect.function.takes_context


def _is_simple(effects: Iterable[RunFunction], call: AgentCall) -> bool:
    """Whether nothing can happen while these run, so that they may as well run here, one after another."""
    if call.record.limits.deadline_s is not None:
        return False
    return all(map(_is_brief, effects))


def run_functions(call: AgentCall, world: World) -> Events:
    """Run what may be run of the round, in threads beside each other; one that is alone, here."""
    round = Round(call, world)
    if _is_simple(round.waiting, call) and (world.threads == 0 or len(round.waiting) == 1):
        while round.waiting and call.record.ending is None:
            yield from _run_here(round, round.waiting.popleft())
        return
    inbox: queue.SimpleQueue[Told] = queue.SimpleQueue()

    def start(run: Run) -> Child[Ended]:
        child = Child[Ended](partial(run_function, run))
        child.future.add_done_callback(lambda future: inbox.put((run.effect.key, future)))
        return child

    call.wake = inbox.put
    try:
        while not round.is_over:
            if round.waiting and round.startable(round.waiting[0], asynchronous=False):
                effect = round.waiting.popleft()
                yield _started(effect)
                round.begin(effect, start, inbox.put)
                continue
            try:
                item = inbox.get(timeout=round.patience_s())
            except queue.Empty:
                yield from round.overdue()
            else:
                yield from round.happened(item)
    finally:
        call.wake = None
        for _, child, _ in round.running.values():
            child.cancel()
        _keep(round, [(key, child.future) for key, (_, child, _) in round.running.items()])


def _run_here(round: Round, effect: RunFunction) -> Events:
    yield _started(effect)
    if round.call.record.ending is not None:
        return
    run = Run(effect, round.call, round.world)
    yield from _ended(round.call, run, run_function(run))
    round.look()


async def arun_unheard(call: AgentCall, first: RunFunction, world: World) -> None:
    """`arun_functions` for nobody."""
    if len(call.effects) == 1 and call.record.limits.deadline_s is None and _is_brief(first):
        if first.function.call is not None:
            advance(call, first.key, await arun_function(Run(first, call, world)))
        return
    async with Tasks(call, world, is_heard=False) as tasks:
        while not tasks.is_over:
            while tasks.waiting and tasks.startable(tasks.waiting[0], asynchronous=True):
                tasks.start(tasks.waiting.popleft())
            await tasks.news()


async def arun_functions(call: AgentCall, world: World) -> AsyncEvents:
    """Run what may be run of the round as tasks; plain functions in threads."""
    async with Tasks(call, world) as tasks:
        while not tasks.is_over:
            if tasks.waiting and tasks.startable(tasks.waiting[0], asynchronous=True):
                effect = tasks.waiting.popleft()
                yield _started(effect)
                tasks.start(effect)
                continue
            for event in await tasks.news():
                yield event


class Tasks(Round):
    """The functions of one round, each in a task."""

    async def __aenter__(self) -> Self:
        self._loop, self._has_news = asyncio.get_running_loop(), asyncio.Event()
        self._inbox: deque[Told] = deque()
        self._outer, self.call.wake = self.call.wake, self._tell
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.call.wake = self._outer
        if self.running:
            await self._let_go()

    def start(self, effect: RunFunction) -> None:
        self.begin(effect, self._task, self._tell)

    def _task(self, run: Run) -> asyncio.Task[Ended]:
        key = run.effect.key
        task = self._loop.create_task(arun_function(run), name=key)
        task.add_done_callback(lambda task: self._put((key, task)))
        return task

    def _put(self, item: Told) -> None:
        self._inbox.append(item)
        self._has_news.set()

    def _tell(self, item: FunctionProgress | Cancelled) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody listens
            self._loop.call_soon_threadsafe(self._put, item)

    async def news(self) -> tuple[Event, ...]:
        """The next thing that happens, or that nothing did in time."""
        if not self._inbox:
            self._has_news.clear()
            patience_s = self.patience_s()
            try:
                async with asyncio.timeout(patience_s) if patience_s is not None else nullcontext():
                    await self._has_news.wait()
            except TimeoutError:
                return self.overdue()
        return self.happened(self._inbox.popleft())

    async def _let_go(self) -> None:
        tasks = {key: task for key, (_, task, _) in self.running.items() if isinstance(task, asyncio.Task)}
        for task in tasks.values():
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks.values(), timeout=GRACE_S)
            for task in left:
                _leave(task)
        _keep(self, tasks.items())


def _leave(task: asyncio.Task[Ended]) -> None:
    """Leave a task behind that was cancelled, and hear no more of it."""
    _left.add(task)

    def forget(task: asyncio.Task[Ended]) -> None:
        _left.discard(task)
        if not task.cancelled():
            task.exception()

    task.add_done_callback(forget)


def _keep(round: Round, ended: Iterable[tuple[str, Any]]) -> None:
    """What a function had returned when the driver was stopped is not lost."""
    for key, future in ended:
        round.running[key][0].cancel()
        if future.done() and not future.cancelled() and future.exception() is None:
            advance(round.call, key, future.result())
