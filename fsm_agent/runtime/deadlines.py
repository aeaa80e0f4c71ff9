"""Take the step of an outcome, and keep the call's deadline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, TypeAlias

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.outcomes import Expired, Outcome
from fsm_agent.messages.event import Event
from fsm_agent.runtime.world import World

if TYPE_CHECKING:
    import logging
else:
    logging = deferred("logging")

Events: TypeAlias = Generator[Event, None, None]
AsyncEvents: TypeAlias = AsyncGenerator[Event, None]


def advance(call: AgentCall, key: str, outcome: Outcome) -> tuple[Event, ...]:
    """Take the step of an outcome, before it is reported; return it, or none when a listener has ended the call."""
    if call.record.ending is not None:
        return ()
    call.advance(key, outcome)
    if call.step.trigger == "parse_failed":
        log_problem(call)
    return (call.step,)


def log_problem(call: AgentCall) -> None:
    """Log what the parser raised at the latest reply, and drop its traceback.

    A `ValueError` is how a parser refuses an answer (DEBUG); any other exception is a failure of its own (WARNING).
    """
    problem = call.problem
    if problem is None:
        return
    level = logging.DEBUG if isinstance(problem, ValueError) else logging.WARNING
    words = "call %s: the parser of prompt %r raised %s"
    logging.getLogger("fsm_agent").log(
        level, words, call.record.id, call.prompt.path, type(problem).__name__, exc_info=problem
    )
    left, seen = list[BaseException | None]([problem]), set[int]()
    while left:
        if (error := left.pop()) is not None and id(error) not in seen:
            seen.add(id(error))
            error.__traceback__ = None
            left += [error.__cause__, error.__context__]


def time_left(call: AgentCall, world: World) -> float | None:
    r = call.record
    if r.limits.deadline_s is None or r.deadline_s is None:
        return None
    return max(0.0, r.deadline_s - world.clock.now())


def is_late(call: AgentCall, world: World) -> bool:
    return call.record.limits.deadline_s is not None and time_left(call, world) == 0.0


def expire(call: AgentCall, world: World) -> tuple[Event, ...]:
    return advance(call, "", Expired(at_s=world.clock.now()))
