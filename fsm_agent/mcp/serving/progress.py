"""Progress of a tool call, as its client is told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from pydantic_core import to_json

from fsm_agent._internal.plain_text import plain
from fsm_agent.call.process import SEPARATOR
from fsm_agent.messages.events import Event, FunctionProgress, Inside, Stepped

Report: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
MAX_WAITING = 100  # reports of one call; a client that reads too slowly misses the oldest
MAX_CHARS = 1000  # of one report


class Progress:
    """Hears the events of a call, and reports those that tell how far it has come.

    Args:
        report: Sends a number that grows, no total, and a text.
        tool: The name of the tool.
    """

    def __init__(self, report: Report, tool: str) -> None:
        self._report = report
        self._tool = tool
        self._count = 0
        self._waiting = deque[tuple[int, str]](maxlen=MAX_WAITING)
        self._news = asyncio.Event()
        self._is_over = False

    def hear(self, event: Event) -> None:
        """Take an event of the call."""
        text = self._text(event)
        if text:
            self._count += 1
            self._waiting.append((self._count, text[:MAX_CHARS]))
            self._news.set()

    def end(self) -> None:
        """Have `send` return when all is sent."""
        self._is_over = True
        self._news.set()

    async def send(self) -> None:
        """Send reports until `end`; those that the client does not take are dropped."""
        while True:
            await self._news.wait()
            self._news = asyncio.Event()
            while self._waiting:
                number, text = self._waiting.popleft()
                try:
                    await self._report(number, None, text)
                except Exception:  # its connection is gone, which ends the call by itself
                    return
            if self._is_over:
                return

    def _text(self, event: Event) -> str:
        where = ""
        while isinstance(event, Inside):
            where, event = SEPARATOR.join(filter(None, [where, event.path])), event.event
        if isinstance(event, FunctionProgress):
            return plain(event.data if isinstance(event.data, str) else _json(event.data))
        if where and isinstance(event, Stepped):  # the way of the call around it says nothing
            return plain(f"{where.partition(SEPARATOR)[2] or self._tool}: {event.to}")
        return ""


def _json(data: Any) -> str:
    return to_json(data, fallback=str).decode()
