"""Keeps the events from a run that is being driven, in one list that any number of listeners can read.

Steps, replies and function results stay in the list.  Pieces of replies are dropped some time after their step, so a
slow listener gets the whole reply at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator
from typing import Any

from fsm_agent.messages.events import (
    Done,
    Event,
    FunctionEnded,
    FunctionProgress,
    HistoryChanged,
    PartialOutput,
    ReplyCompleted,
    Stepped,
    Suspended,
    UsageReported,
    unwrapped,
)

BACKLOG = 1000  # pieces of earlier steps that are kept
LATEST = 100  # pieces kept of a step, if each replaces the previous one
_LASTING = Stepped | ReplyCompleted | FunctionEnded | HistoryChanged | Suspended | Done
_REPLACED = FunctionProgress | PartialOutput | UsageReported


def is_step(event: Event) -> bool:
    """Return whether an event counts as a step of its run."""
    return isinstance(unwrapped(event)[1], Stepped)


def is_last(event: Event, to_end: bool = False) -> bool:
    """Return whether no event follows this one, at least until a person answers.  Timers do not count."""
    return isinstance(event, Done) or (isinstance(event, Suspended) and bool(event.questions) and not to_end)


class EventLog:
    """A run's events since it was claimed, each with the number of steps since then."""

    def __init__(self) -> None:
        self.steps = 0
        self.waits: Any = None  # the questions that it waits for at the end
        self.error: Exception | None = None
        self._base: int | None = None  # the number of journal entries when the run was claimed
        self._has_begun = asyncio.Event()
        self._log: list[tuple[int, Event] | None] = []
        self._open: dict[str, list[int]] = defaultdict(list)  # positions of pieces since the last step, by path
        self._latest: dict[str, deque[int]] = defaultdict(deque)
        self._closed: deque[list[int]] = deque()  # positions of pieces of earlier steps
        self._pieces = 0  # the number of these
        self._ended: dict[str, Event] = {}  # ends of functions whose step has not come yet, by its key
        self._is_over = False
        self._news = asyncio.Event()  # set, and replaced, when there is something new

    # For its driver

    def begin(self, base: int) -> None:
        """Record how many entries the journal has."""
        self._base = base
        self._has_begun.set()

    def take(self, event: Event) -> None:
        """Add an event from the driver."""
        path, inner = unwrapped(event)
        if isinstance(inner, FunctionEnded):  # listeners get it with its step, as in the journal
            self._ended[f"{path}/run:{inner.id}"] = event
            return
        if isinstance(inner, Stepped):
            if (ended := self._ended.pop(f"{path}/{inner.key}", None)) is not None:
                self._add(ended)
            self.steps += 1
            self._close(path)
        elif isinstance(inner, Done | Suspended):
            self.waits = getattr(inner, "questions", None)
            for ended in self._ended.values():
                self._add(ended)
            self._ended.clear()
        elif not isinstance(inner, _LASTING):
            self._note_piece(path, inner)
        self._add(event)

    def end(self) -> None:
        """Record that no more events will follow."""
        self._is_over = True
        self._has_begun.set()
        self._wake()

    # For listeners

    async def base(self) -> int | None:
        """Return how many entries the journal had when the run was claimed, or None if it was not claimed."""
        await self._has_begun.wait()
        return self._base

    async def items(self) -> AsyncGenerator[tuple[int, Event]]:
        """Yield past and new events, each with its number of steps."""
        position = 0
        while True:
            while position < len(self._log):
                item = self._log[position]
                position += 1
                if item is not None:
                    yield item
            if self._is_over:
                return
            await self._news.wait()

    def raise_error(self) -> None:
        if self.error is not None:
            raise self.error

    # The list

    def _add(self, event: Event) -> None:
        self._log.append((self.steps, event))
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _note_piece(self, path: str, inner: Event) -> None:
        position = len(self._log)
        self._open[path].append(position)
        if isinstance(inner, _REPLACED):
            latest = self._latest[path]
            latest.append(position)
            if len(latest) > LATEST:
                self._log[latest.popleft()] = None

    def _close(self, path: str) -> None:
        """Drop the oldest pieces of replies, because the process at ``path`` has taken a step."""
        self._latest.pop(path, None)
        if pieces := self._open.pop(path, None):
            self._closed.append(pieces)
            self._pieces += len(pieces)
        while self._pieces > BACKLOG:
            dropped = self._closed.popleft()
            self._pieces -= len(dropped)
            for position in dropped:
                self._log[position] = None
