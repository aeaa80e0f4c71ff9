"""The output of a running call, and `TerminalHook`, which shows it for any agent."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fsm_agent.call.record import State
from fsm_agent.call.result import CallResult
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.messages.events import (
    Done,
    Event,
    FunctionEnded,
    FunctionStarted,
    Inside,
    ReplyCompleted,
    Stepped,
    Suspended,
    TextDelta,
    Where,
)
from fsm_agent.messages.reply import Usage

_LOG = logging.getLogger("fsm_agent.hooks")


class LiveOutput:
    """Shows the events of a call on a screen, and its text as it arrives.

    Args:
        screen: The output.
        is_live: Whether to write text before it is final.  None means True if stdout is a terminal.
    """

    def __init__(self, screen: Screen, *, is_live: bool | None = None) -> None:
        self.screen = screen
        self.has_written = False
        self._is_live = screen.out.is_terminal if is_live is None else is_live

    def take(self, event: Event) -> None:
        self.screen.take(event)
        if self._is_live and isinstance(event, TextDelta):
            self.screen.write(event.text)
            self.has_written = True
        elif self._is_live and isinstance(event, ReplyCompleted):
            self.screen.end_line()

    def finish(self, text: str) -> None:
        """Show the whole answer, unless its text was already written."""
        self.screen.pause()
        if not self.has_written:
            self.screen.line(text)
            self.screen.pause()
        self.has_written = False


def overview(result: Any) -> Iterator[str]:
    """Yield short lines about a call or a flow that has ended: a call's rounds and functions, then tokens and cost."""
    usage = result.usage
    if isinstance(result, CallResult):
        calls = Counter([call.name for call in result.function_calls])
        failed = Counter([call.name for call in result.function_calls if call.error is not None])
        rounds = _format_count(result.record.rounds, "round")
        yield f"{rounds}, {_format_count(calls.total(), 'function call')}"
        for name, count in calls.items():
            often = f" {count} times" if count > 1 else ""
            yield f"  {one_line(name)}{often}{f', {failed[name]} failed' if failed[name] else ''}"
    yield _tokens(usage)
    by_agent = result.usage_by_agent if isinstance(result, CallResult) else {}
    if len(by_agent) > 1:
        for path, used in by_agent.items():
            yield f"  {one_line(path) or 'itself'}: {_tokens(used)}"
    if usage.cost_usd is not None:
        yield f"cost: ${usage.cost_usd:.6f}"


def _answer(result: Any) -> str | None:
    """Return the text of a call, or the data of a flow as ASCII JSON; None if it ended without an answer."""
    if isinstance(result, CallResult):
        return result.text or "" if result.state is State.COMPLETED else None
    return None if result.ending.is_failure else json.dumps(result.to_dict()["data"], indent=2)


def _format_count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _tokens(usage: Usage) -> str:
    return f"{_format_count(usage.input_tokens or 0, 'token')} in, {usage.output_tokens or 0:,} out"


class TerminalHook:
    """A hook that prints what ``fsm-agent ask`` prints: the answer on stdout, and steps and functions on stderr.

    Lines about a nested agent begin with the agent's path.  At the end, the hook writes an overview to stderr: rounds,
    functions, tokens and cost.  Its own errors are logged and never raised.

    Args:
        quiet: Show only the answer.

    Examples:
        >>> Agent(Script("Hi."), hooks=[TerminalHook(quiet=True)]).call("Hello").output
        Hi.
        'Hi.'
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._screen = Screen(quiet=quiet)
        self._driven = set[Where]()  # running calls
        self._unknown = _ShownCall(self, Where(""))

    def of_call(self, where: Where) -> _ShownCall:
        """Return the hook for one call."""
        if not where.path:
            self._driven.add(where)
        return _ShownCall(self, where)

    def on_event(self, event: Event) -> None:
        """Show an event without a known call, such as an event from a sink."""
        self._unknown.on_event(event)


class _ShownCall:
    """The hook for one call.  If several calls run, each line names its call."""

    def __init__(self, hook: TerminalHook, where: Where) -> None:
        self._hook = hook
        self._where = where
        self._output = LiveOutput(hook._screen)

    def on_event(self, event: Event) -> None:
        try:
            self._show(event)
        except Exception:
            _LOG.exception("the terminal could not show a %s", type(event).__name__)
        finally:
            if isinstance(event, Done | Suspended):
                self._hook._driven.discard(self._where)

    def _show(self, event: Event) -> None:
        is_one_of_many = not self._where.path and len(self._hook._driven) > 1
        screen, whose = self._hook._screen, f"{one_line(self._where.call)}: " if is_one_of_many else ""
        if isinstance(event, Done):
            result: Any = event.result
            if (answer := _answer(result)) is not None:
                self._output.finish(answer)
            else:
                screen.tell(f"{whose}ended without an answer: {result.record.ending.reason}")
            for line in overview(result):
                screen.tell(whose + line)
            screen.pause()
        elif isinstance(event, Suspended):
            screen.tell(f"{whose}waits for {', '.join(event.keys)}")
            screen.pause()
        elif is_one_of_many and isinstance(event, Stepped | FunctionStarted | FunctionEnded):
            screen.take(Inside(self._where.call, event))
        else:
            self._output.take(event)
