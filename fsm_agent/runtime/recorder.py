"""Recorders: what keeps the journal of a process that is being driven.

A driver writes what has come before it performs what the new state wants, and before a listener hears of it; outcomes
that come together are one append.  A recorder has the lease of the run, hears of what others post, and gives the run
back in the end.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from fsm_agent._internal.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from fsm_agent.runtime.reconciler import Reconciler


class PostedOutcome(Value, frozen=True):
    """The outcome that somebody else posted to the process."""

    id: int
    key: str
    document: str  # the outcome as JSON, as `Process.decode` reads it
    by: str  # who posted it, for people


class Recorder(Protocol):
    """The journal of one drive of one process.

    Attributes:
        run: The name of the run.
        lost: The error, if somebody else has claimed the run.
        patience_s: How long the driver may only wait for a moment to come; beyond it the run rests.  None: for ever.
        is_instant: Its `write` never waits, so a driver need not either.
        redact: Returns an outcome as it may be kept; None: all of it may.
        posts: Posted outcomes, to be taken by the driver; filled from any thread.
    """

    @property
    def run(self) -> str: ...

    @property
    def lost(self) -> Exception | None: ...

    patience_s: float | None
    is_instant: bool
    redact: Callable[[Any], Any] | None
    posts: deque[PostedOutcome]

    @property
    def is_behind(self) -> bool:
        """True if something has to be written before the driver goes on, or the run was lost."""

    def flush_now(self) -> None:
        """Have what has come written before the driver goes on, also where that could wait."""

    def attach(self, driver: Reconciler) -> None:
        """Begin to renew the lease, and to have the driver notice posts."""

    def detach(self) -> None:
        """End what `attach` began."""

    def mark_taken(self, post: PostedOutcome, error: Exception | None = None) -> None:
        """Take note that a post is used up, and report the error for which it was not taken, if there is one."""

    def report_later(self, key: str, future: Any) -> None:
        """Post what a function comes to that goes on although the run was lost; its future is given."""

    def finish(self, *, is_stopped: bool) -> None:
        """Have the next write give the run back, unless that was done.

        Args:
            is_stopped: The driver was stopped, so others may go on at once; otherwise the process rests or has ended.
        """

    def write(self) -> None:
        """Write what has come; return when it is on disk.

        Raises:
            StoreError: The lease was lost, or the store failed.
        """

    def submit(self) -> Future[Any] | None:
        """Begin to write without blocking; None: it is done."""

    def complete_write(self, future: Future[Any]) -> Future[Any] | None:
        """Take what became of `submit`; return a future of more work that would block, or None.

        Raises:
            StoreError: The lease was lost, or the store failed.
        """
