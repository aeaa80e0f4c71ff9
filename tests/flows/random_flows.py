"""Random flows, on the system's clock or on a fake clock, each with its expected end, computed without a driver.

Everything that ends takes no time or a short time, and any other time around it is far away.  Everything that never
ends has a short time around it.  So speed never decides what comes first, even on a busy machine.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

from timed_flows import (
    FAR_S,
    REAL,
    SHORT_S,
    Log,
    Silent,
    a_while,
    a_while_in_a_thread,
    asking,
    flow_of,
    noted,
    over,
    too_long,
    too_long_in_a_thread,
)

from fsm_agent import Context, Limits, Retries
from fsm_agent.call import Request
from fsm_agent.errors import Overloaded
from fsm_agent.flows import Flow, FlowLimits, cancelled, each, execute, expired, gather, pause, race, subflow, wait
from fsm_agent.messages import Reply
from fsm_agent.runtime import Clock
from fsm_agent.testing import Script

SOON_S = SHORT_S / 2
IN_ALL_S = 2.5 * SHORT_S


def in_all_s(log: Log) -> float:
    return IN_ALL_S


class Replying(Script):
    """A model that fails so often, and then always has an answer."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.failures = failures

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        await asyncio.sleep(0)
        self.failures -= 1
        if self.failures >= 0:
            raise Overloaded("busy", retry_after_s=SHORT_S)
        return Reply.of("fine")

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Any]:
        yield await self.acomplete(request)


def at_once(log: Log) -> str:
    return "fine"


async def breaks(log: Log) -> str:
    raise LookupError("not there")


def at_the_second_attempt(log: Log, context: Context[Any]) -> str:
    if context.attempt == 1:
        raise ConnectionError("not yet")
    return "fine"


@dataclass
class Part:
    """A state, and its expected result.

    Attributes:
        make: Returns the state, with or without ``within_s``.
        event: "done", "failed", "elapsed" or "never".
        least_s: How long the state takes at least.
        has_members: Whether it is a state of several others, whose value is a tuple.
    """

    make: Callable[..., Any]
    event: str
    least_s: float = 0.0
    has_members: bool = False


def short_s(log: Log) -> float:
    return SHORT_S


def soon_s(log: Log) -> float:
    return SOON_S


def far_off(log: Log) -> datetime:
    return datetime(2100, 1, 1, tzinfo=UTC)


def long_ago(log: Log) -> datetime:
    return datetime(2000, 1, 1, tzinfo=UTC)


def no_limit(log: Log) -> float | None:
    return None


SHORT: list[dict[str, Any]] = [{"within_s": SHORT_S}, {"within_s": short_s}, {"within_s": short_s, "restart": False}]
SOON: list[dict[str, Any]] = [{"within_s": SOON_S}, {"within_s": soon_s}]
FAR: list[dict[str, Any]] = [
    {},
    {"within_s": FAR_S},
    {"until": far_off},
    {"within_s": no_limit},
    {"until": no_limit, "restart": False},
]


class RandomFlows:
    """Draws the flow of a seed.

    Args:
        seed: The seed.
        clock: A clock in place of the system's clock.  Nothing in the flow then takes real time.
    """

    def __init__(self, seed: int, clock: Clock | None = None) -> None:
        self._chance = Random(seed)
        self._names = 0
        self._is_real = clock is None
        self._environment: Any = REAL if clock is None else {"clock": clock}

    def flow(self) -> tuple[Flow[Log], str, tuple[str, ...] | None, float]:
        """Return a flow, its expected end, its notes (if they are certain) and how long it takes.

        The deps of its runs are a function that cancels the run.  A state of some flows calls it.
        """
        if self._chance.random() < 0.3:
            return self._cancelled_flow()
        flow, event, entries, least_s = self._sequence(depth=2)
        if event == "never":
            return limited(flow, SOON_S), "Expired", None, SOON_S
        return limited(flow, self._chance.choice([None, FAR_S])), "over", entries, least_s

    def _cancelled_flow(self) -> tuple[Flow[Log], str, tuple[str, ...] | None, float]:
        """Return a flow that is cancelled in one of its states, and continues from there; that state never ends."""
        parts = [part for part in [self._part(2), self._part(2)] if part.event != "never"]
        states = [part.make() for part in parts]
        entries = tuple(f"{state.name} {part.event}" for state, part in zip(states, parts, strict=True))

        async def cancelling(log: Log, context: Context[Callable[[], None]]) -> str:
            context.deps()
            return await too_long(log)

        def cancelling_in_a_thread(log: Log, context: Context[Callable[[], None]]) -> str:
            context.deps()
            return too_long_in_a_thread(log)

        stops = [cancelling, cancelling_in_a_thread] if self._is_real else [cancelling]
        stop: Any = execute(name="stop")(self._chance.choice(stops))
        flow = flow_of(*states, stop, name=self._name("flow"), environment=self._environment)
        tidying = pause("tidying", short_s)
        rows = [cancelled(tidying, do=noted("cancelled")), tidying.elapsed(over, do=noted("tidied"))]
        made = replace(flow, rows=[*flow.rows, *rows], limits=FlowLimits(deadline_s=self._chance.choice([None, FAR_S])))
        return made, "over", (*entries, "cancelled", "tidied"), sum(part.least_s for part in parts) + SHORT_S

    def _sequence(self, depth: int) -> tuple[Flow[Log], str, tuple[str, ...], float]:
        """Return a flow of states in a row, and its result: "done", or "never" if one of them never ends."""
        parts = [self._part(depth) for _ in range(self._chance.randint(1, 3))]
        states = [part.make() for part in parts]
        entries = [f"{state.name} {part.event}" for state, part in zip(states, parts, strict=True)]
        event = "never" if "never" in [part.event for part in parts] else "done"
        flow = flow_of(*states, name=self._name("flow"), environment=self._environment)
        if self._chance.random() < 0.3:  # what is around it may end it, but no one cancels it
            flow = replace(flow, rows=[*flow.rows, cancelled(over, do=noted("reacted"))])
        return flow, event, tuple(entries), sum(part.least_s for part in parts)

    def _part(self, depth: int) -> Part:
        """Return a state of a flow: a pause, a question, or work, perhaps with a time limit."""
        kind = self._chance.randrange(8)
        if kind == 0:
            name, delay_s = self._name("nap"), self._chance.choice([SHORT_S, short_s])
            if self._chance.random() < 0.3:
                return Part(partial(pause, name, until=long_ago), "elapsed")
            return Part(partial(pause, name, delay_s), "elapsed", SHORT_S)
        if kind == 1:
            name, time = self._name("ask"), self._chance.choice(SHORT)
            return Part(lambda: wait(int, name=name, **time)(lambda _: "?"), "elapsed", SHORT_S)
        work = self._work(depth)
        if work.event != "never":
            return replace(work, make=partial(work.make, **self._chance.choice(FAR)))
        if self._chance.random() < 0.9:
            return Part(partial(work.make, **self._chance.choice(SOON)), "elapsed", SOON_S)
        return work

    def _work(self, depth: int) -> Part:
        """Return work that may be a member, because it has no time limit."""
        works = [self._function, self._call, *([self._round, self._late] if self._is_real else [self._silence])]
        if depth:
            works += [self._subflow, self._gathered, self._raced, self._repeated]
        make = self._chance.choice(works)
        return replace(make(depth), has_members=make in (self._gathered, self._raced, self._repeated))

    def _function(self, depth: int) -> Part:
        function, event, least_s, policy = self._chance.choice(FUNCTIONS if self._is_real else TIMELESS)
        name = self._name("work")
        return Part(lambda **times: execute(name=name, **policy, **times)(function), event, least_s)

    def _call(self, depth: int) -> Part:
        model, limits, event, least_s = self._chance.choice(CALLS if self._is_real else CALLS[:3])
        return Part(partial(asking, self._name("call"), model(), limits, environment=self._environment), event, least_s)

    def _silence(self, depth: int) -> Part:
        """A question that no one answers."""
        name = self._name("silence")
        return Part(lambda **times: wait(int, name=name, **times)(lambda _: "?"), "never")

    def _round(self, depth: int) -> Part:
        """A state that is entered again and again, until the time is over that it has in all."""
        work: Any = execute(name="again", within_s=self._chance.choice([in_all_s, IN_ALL_S]), restart=False)(a_while)
        rows = [work.done(work), work.elapsed(over), work.failed(over)]
        flow = Flow(self._name("round"), Log, start=work, rows=rows, environment=REAL)
        return Part(partial(subflow, self._name("sub"), flow, lambda log: log), "done", IN_ALL_S)

    def _late(self, depth: int) -> Part:
        """A flow that continues after its deadline, longer than it lasts."""
        work: Any = execute(name="late")(too_long)
        nap = pause("nap", short_s)
        row = expired(nap) if self._chance.random() < 0.5 else work.expired(nap)
        rows = [work.done(over), nap.elapsed(over), row]
        limits = FlowLimits(deadline_s=SOON_S)
        flow = Flow(self._name("late"), Log, start=work, rows=rows, environment=REAL, limits=limits)
        return Part(partial(subflow, self._name("sub"), flow, lambda log: log), "done", SOON_S + SHORT_S)

    def _subflow(self, depth: int) -> Part:
        flow, event, _, least_s = self._sequence(depth - 1)
        if event == "never" and self._chance.random() < 0.7:
            flow, event, least_s = limited(flow, SOON_S), "failed", SOON_S
        return Part(partial(subflow, self._name("sub"), flow, lambda log: log), event, least_s)

    def _gathered(self, depth: int) -> Part:
        """The first failure ends it."""
        members = self._members(depth)
        make = partial(gather, self._name("gather"), *[member.make() for member in members])
        if failed := [member.least_s for member in members if member.event == "failed"]:
            return Part(make, "failed", min(failed))
        if "never" in [member.event for member in members]:
            return Part(make, "never")
        return Part(make, "done", max(member.least_s for member in members))

    def _raced(self, depth: int) -> Part:
        """The first members that are done end it, or the first failure that leaves too few."""
        members = self._members(depth)
        enough = self._chance.randint(1, len(members))
        states = [member.make() for member in members]
        make = partial(gather, self._name("enough"), *states, enough=enough)
        # A race of two tuples of different types is refused.
        if enough == 1 and self._chance.random() < 0.5 and sum(member.has_members for member in members) < 2:
            make = partial(race, self._name("race"), *states)
        done, failed = [sorted(m.least_s for m in members if m.event == event) for event in ("done", "failed")]
        if len(done) >= enough:
            return Part(make, "done", done[enough - 1])
        if len(failed) > len(members) - enough:
            return Part(make, "failed", failed[len(members) - enough])
        return Part(make, "never")

    def _repeated(self, depth: int) -> Part:
        """One after another, or at once, until one fails, or all are settled, or enough are done."""
        member, items = self._work(depth - 1), self._chance.randint(1, 3)
        settled, parallel = self._chance.choice([False, True]), self._chance.choice([None, 1, 2])
        enough = None if settled else self._chance.choice([None, 0.5, self._chance.randint(1, items)])
        name = self._name("each_settled" if settled else "each")
        options: dict[str, Any] = {"parallel": parallel, "settled": settled, "enough": enough}
        make = partial(each, name, member.make(), lambda log: [log] * items, **options)
        if member.event == "never":
            return Part(make, "never")
        needed = items if enough is None else math.ceil(items / 2) if enough == 0.5 else int(enough)
        is_lost = member.event == "failed" and not settled
        ended = items - needed + 1 if is_lost else needed
        return Part(make, "failed" if is_lost else "done", member.least_s * math.ceil(ended / (parallel or items)))

    def _members(self, depth: int) -> list[Part]:
        return [self._work(depth - 1) for _ in range(self._chance.randint(2, 3))]

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"


def limited(flow: Flow[Log], deadline_s: float | None) -> Flow[Log]:
    return replace(flow, limits=FlowLimits(deadline_s=deadline_s))


RETRIES = Retries(attempts=2, delay_s=SHORT_S, max_delay_s=SHORT_S, jitter=0.0)

FUNCTIONS: list[tuple[Callable[..., Any], str, float, dict[str, Any]]] = [
    (at_once, "done", 0.0, {}),
    (at_once, "done", 0.0, {"blocking": False}),
    (a_while, "done", SHORT_S, {}),
    (a_while_in_a_thread, "done", SHORT_S, {"timeout_s": FAR_S}),
    (at_the_second_attempt, "done", SHORT_S, {"retries": RETRIES}),
    (breaks, "failed", 0.0, {}),
    (too_long, "failed", SOON_S, {"timeout_s": SOON_S}),
    (too_long_in_a_thread, "failed", SOON_S, {"timeout_s": SOON_S}),
    (too_long, "never", 0.0, {}),
    (too_long_in_a_thread, "never", 0.0, {}),
]
TIMELESS = [given for given in FUNCTIONS if given[0] in (at_once, at_the_second_attempt, breaks)]
CALLS: list[tuple[Callable[[], Script], Limits, str, float]] = [
    (Replying, Limits(), "done", 0.0),
    (Replying, Limits(deadline_s=FAR_S), "done", 0.0),
    (partial(Replying, failures=1), Limits(), "done", 0.0),  # of those in a row, one waits
    (Silent, Limits(deadline_s=SOON_S), "failed", SOON_S),
    (Silent, Limits(), "never", 0.0),
]
