"""What does every driver do with an outcome, and how much time is left?"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import TypeAlias

from fsm_agent.call import AgentCall
from fsm_agent.events import Event
from fsm_agent.outcomes import Expired, Outcome
from fsm_agent.perform import World

Events: TypeAlias = Generator[Event, None, None]
AsyncEvents: TypeAlias = AsyncGenerator[Event, None]


def advance(call: AgentCall, key: str, outcome: Outcome) -> tuple[Event, ...]:
    """The step, taken before anybody is told of it; none when a listener has ended the call meanwhile."""
    if call.record.ending is not None:
        return ()
    call.advance(key, outcome)
    return (call.step,)


def time_left(call: AgentCall, world: World) -> float | None:
    r = call.record
    if r.limits.deadline_s is None or r.deadline_s is None:
        return None
    return max(0.0, r.deadline_s - world.clock.now())


def is_late(call: AgentCall, world: World) -> bool:
    return call.record.limits.deadline_s is not None and time_left(call, world) == 0.0


def expire(call: AgentCall, world: World) -> tuple[Event, ...]:
    return advance(call, "", Expired(at_s=world.clock.now()))
