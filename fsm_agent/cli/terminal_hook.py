"""`TerminalHook`: what ``fsm-agent ask`` shows of a call, for any agent."""

from __future__ import annotations

import logging
from typing import Any

from fsm_agent.cli.terminal import Screen
from fsm_agent.messages.event import Done, Event, ReplyCompleted, Suspended, TextDelta

_LOG = logging.getLogger("fsm_agent.hooks")


class Showing:
    """The events of a call on a screen, its text as it comes.

    Args:
        screen: The output.
        is_live: Whether text is written before it is final; by default on a terminal.
    """

    def __init__(self, screen: Screen, *, is_live: bool | None = None) -> None:
        self.screen = screen
        self.has_written = False
        self._is_live = screen.out.is_terminal if is_live is None else is_live

    def take(self, event: Event) -> None:
        """Show an event."""
        self.screen.take(event)
        if self._is_live and isinstance(event, TextDelta):
            self.screen.write(event.text)
            self.has_written = True
        elif self._is_live and isinstance(event, ReplyCompleted):
            self.screen.end_line()

    def finish(self, text: str) -> None:
        """Show the whole answer, unless it was written as it came."""
        self.screen.pause()
        if not self.has_written:
            self.screen.line(text)
            self.screen.pause()
        self.has_written = False


class TerminalHook:
    """A hook that shows what ``fsm-agent ask`` shows: the answer on stdout, steps and functions on stderr.

    It changes nothing: its own errors are logged, and raised nowhere.

    Args:
        quiet: Only the answer is shown.
        steps: Whether steps and functions are.
    """

    def __init__(self, *, quiet: bool = False, steps: bool = True) -> None:
        self._showing = Showing(Screen(quiet=quiet, steps=steps))

    def on_event(self, event: Event) -> None:
        """Show an event."""
        try:
            if isinstance(event, Done):
                result: Any = event.result
                self._showing.finish(result.text or "")
            elif isinstance(event, Suspended):
                self._showing.screen.tell(f"waits for {', '.join(event.keys)}")
                self._showing.screen.pause()
            else:
                self._showing.take(event)
        except Exception:
            _LOG.exception("the terminal could not show a %s", type(event).__name__)
