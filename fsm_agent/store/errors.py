"""Errors of stores, with what the caller may want to know as attributes.

```
StoreError                     nothing was changed
├── RunUnknown, RunExists      there is no such run; there is another one of this name
├── RunBusy, LeaseLost         another holder has the run; another one has claimed it since
├── NotAsked, AlreadyAnswered  no such question is open; somebody has answered it before
└── Conflict                   the conversation has moved on, or its newest turn has not ended
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.errors import FsmAgentError

if TYPE_CHECKING:
    import datetime
else:
    datetime = deferred("datetime")


class StoreError(FsmAgentError):
    """A store cannot do what was asked; nothing was changed."""


class RunUnknown(StoreError):
    """There is no run of this name."""


class RunExists(StoreError):
    """There is another run of this name."""


class RunBusy(StoreError):
    """Somebody else drives the run.

    Args:
        run: Its name.
        holder: Who drives it.
        since_s: Unix time since when.
        until_s: Unix time at which the lease ends, unless it is renewed.
    """

    def __init__(self, run: str, holder: str, since_s: float, until_s: float) -> None:
        super().__init__(run, holder, since_s, until_s)
        self.run, self.holder, self.since_s, self.until_s = run, holder, since_s, until_s

    def __str__(self) -> str:
        until = _moment(self.until_s)
        return f"the run {self.run!r} is driven by {self.holder!r}; its lease lasts until {until} and may be renewed"


class LeaseLost(StoreError):
    """The lease of a run is outdated, since somebody else claimed it, or entries do not follow the last one."""


class NotAsked(StoreError):
    """No such question of the run is open."""


class AlreadyAnswered(StoreError):
    """Somebody has answered the question before.

    Args:
        run: The run.
        key: The key of the question.
        by: Who answered.
        at_s: Unix time of the answer.
    """

    def __init__(self, run: str, key: str, by: str, at_s: float) -> None:
        super().__init__(run, key, by, at_s)
        self.run, self.key, self.by, self.at_s = run, key, by, at_s

    def __str__(self) -> str:
        at = _moment(self.at_s)
        return f"the question {self.key!r} of the run {self.run!r} was answered by {self.by or 'somebody'!r} at {at}"


class Conflict(StoreError):
    """A turn of a conversation was not begun: the conversation has moved on, or its newest turn has not ended.

    Args:
        conversation: Its name.
        run: Its newest run.
        what: Why it cannot go on yet, and how it can; empty: it has moved on.
    """

    def __init__(self, conversation: str, run: str, what: str = "") -> None:
        super().__init__(conversation, run, what)
        self.conversation, self.run, self.what = conversation, run, what

    def __str__(self) -> str:
        if self.what:
            return f"the conversation {self.conversation!r} cannot go on yet: {self.what}"
        return (
            f"the conversation {self.conversation!r} has moved on: its newest run is {self.run!r};"
            " call again, to go on from there: this turn was not begun"
        )


def _moment(at_s: float) -> str:
    try:
        return datetime.datetime.fromtimestamp(at_s, datetime.UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError):  # beyond the calendar
        return f"the Unix time {at_s:g}"
