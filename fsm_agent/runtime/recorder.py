"""The protocol of recorders, which write the journal of a process while it is driven.

A driver writes an outcome before it starts the effects that follow from it, and before a listener gets its events.
Outcomes that arrive together become one append.  A recorder holds the lease of the run, receives posts, and gives the
run back at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from fsm_agent._internal.values import Value
from fsm_agent.messages.events import Question

if TYPE_CHECKING:
    from fsm_agent.runtime.reconciler import Reconciler


class PostedOutcome(Value, frozen=True):
    """An outcome that was posted to the run of a process."""

    id: int
    key: str
    document: str  # the outcome as JSON, as `Process.decode` reads it
    by: str  # who posted it, for people


class Recorder(Protocol):
    """The journal of one drive of one process.

    Attributes:
        run: The name of the run.
        lost: The error if another holder has claimed the run, or None.
        patience_s: The longest time that the driver waits for a time alone; for more, it gives the run back.  None: no
            limit.
        rests_for_people: A run that waits for a person is given back at once, however little time the person has, so
            that others hear of the question.
        is_lasting: True if the run outlives the OS process, so that the clock of a test must not time it.
        is_instant: True if `write` never blocks, so the driver may call it between two steps.
        redact: Returns an outcome without what must not be stored; None: outcomes are stored as they are.
        posts: Posted outcomes for the driver to take; filled from any thread.
    """

    @property
    def run(self) -> str: ...

    @property
    def lost(self) -> Exception | None: ...

    patience_s: float | None
    rests_for_people: bool
    is_lasting: bool
    is_instant: bool
    redact: Callable[[Any], Any] | None
    posts: deque[PostedOutcome]

    @property
    def is_behind(self) -> bool:
        """True if the driver has to write before it continues, or the run was lost."""

    def flush_now(self) -> None:
        """Require a write before the driver continues, even where it could wait for more entries."""

    def attach(self, driver: Reconciler) -> None:
        """Begin to renew the lease, and to wake the driver for posts."""

    def detach(self) -> None:
        """Undo `attach`."""

    def ask(self, questions: Sequence[Question]) -> None:
        """Let others answer these questions while the run is driven, from the next write on."""

    def mark_taken(self, post: PostedOutcome, error: Exception | None = None) -> None:
        """Note that a post was taken, or refused with an error, which is logged."""

    def mark_used(self, posts: Iterable[int]) -> None:
        """Remove these posts, by their ids, with the next write."""

    def keep(self, key: str, outcome: Any) -> None:
        """Keep an outcome that no row could take, since a guard or an action raised, for the next driver."""

    def report_later(self, key: str, future: Any) -> None:
        """Post the outcome of a function when its future is done, if it is still running after the run was lost."""

    def finish(self, *, is_stopped: bool) -> None:
        """Give the run back with the next write, unless it was given back.

        Args:
            is_stopped: Whether the driver was stopped, so that the run is due at once; otherwise the process rests or
                has ended.
        """

    def write(self) -> None:
        """Write the new entries; return when they are on disk.

        Raises:
            StoreError: The lease was lost, or the store failed.
        """

    def submit(self) -> Future[Any] | None:
        """Begin to write without blocking; return a future for `complete_write`, or None if it is done."""

    def complete_write(self, future: Future[Any]) -> Future[Any] | None:
        """Take the result of a future of `submit`; return a future of more work that would block, or None.

        Raises:
            StoreError: The lease was lost, or the store failed.
        """
