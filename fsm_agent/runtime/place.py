"""Where an activity runs plain code of the user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeVar

from fsm_agent.runtime import portal
from fsm_agent.runtime.thread_task import in_thread

T = TypeVar("T")


class Place(Enum):
    """Where an activity runs plain code of the user, such as a function.

    Attributes:
        HERE: In the thread of the caller, which nothing can wake: its connections and its thread-locals are at hand.
            The coroutine that performs the activity never waits; what is async runs in the loop of the portal.
        THREAD: In a daemon thread, which a cancellation leaves behind.
        LOOP: In the thread of the event loop.
    """

    HERE = "here"
    THREAD = "thread"
    LOOP = "loop"

    async def call(self, work: Callable[[], T]) -> T:
        """Call plain code there."""
        return await in_thread(work) if self is Place.THREAD else work()

    async def wait_for(self, awaitable: Awaitable[T]) -> T:
        """Wait for async code."""
        return portal.call(_await(awaitable)) if self is Place.HERE else await awaitable


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable
