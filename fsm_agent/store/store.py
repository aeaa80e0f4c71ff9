r"""The protocol of stores: journals, letter boxes and leases, and the queue of the runs that are due.

Rules
=====

- *Time never decides.*  Only the pair (fence, number of the last entry) does: `Store.append` is refused unless the
  fence is that of the newest lease and the entries follow the last one.  A holder whose time is up, but whose run
  nobody took, goes on.  Leases are timed by the store's clock, due times are Unix time.
- *Only the holder appends; everybody else posts.*  An answer, a cancellation, an injection or a late report is put into
  the run's letter box, without a lease and without the agent's code.  The holder uses it up in the append that contains
  its entry.  The first post under the key of an open question takes it; a later one learns who answered, and when.
- *The store is the queue.*  A run is due from the time that its last rest said; one whose lease was not given back, or
  that has unread posts which its rest heeds, is due at once.  So a holder's death is always followed by another claim.
  What is due at once has been due since then: since it was created, posted to or given back, or since its lease was
  over.
- *An append may be repeated*: nobody knows what became of a commit whose connection broke.  Who has been outdated since
  may not: another holder has read what became of it.

All methods block and are safe to call from many threads; `submit` does not block.  Lines, headers, bodies and names are
texts that may hold anything but half surrogates; a line or a header holds no line break (``"\n"``), and the name of a
run is not empty.  All else is a `UsageError`, and nothing is written.

A lease is the newest if its fence, its holder and the time of its claim are those of the run.  One that was deleted and
begun again counts its fences from 1 again, and a lease of the old one never fits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from fsm_agent._internal.values import Value
from fsm_agent.machine.process import Question


class Lease(Value, frozen=True):
    """The right to append to a run, as long as nobody claims it anew."""

    run: str
    agent: str  # the run's, as given to `Store.create`
    holder: str  # the name of one that drives, not of an OS process
    fence: int  # one more than that of the lease before; from 1
    since_s: float  # Unix time of the claim
    until_s: float  # Unix time at which others may claim the run
    n: int  # how many entries there were at the claim
    tries: int  # claims since the last entry or the last rest that was not due at once, this one included


class Rest(Value, frozen=True, kw_only=True):
    """The state in which a run is given back."""

    state: str
    due_s: float | None = None  # Unix time at which it is to be claimed; 0.0 or less: at once; None: only after a post
    is_ended: bool = False
    questions: tuple[Question, ...] = ()  # those that are open from now on
    heeds: str | None = None  # the key of the only question whose answer makes it due; None: any post does


class Head(Value, frozen=True):
    """The place that a conversation has come to."""

    conversation: str
    version: int = 0  # how many runs it has
    run: str = ""  # the newest; empty before the first


class Post(Value, frozen=True):
    """A letter in the box of a run."""

    id: int  # unique in the store; later ones have greater ones
    key: str  # of the question that it answers; empty: none
    body: str
    by: str  # who posted it; for people
    at_s: float


class Run(Value, frozen=True, kw_only=True):
    """The row of a run: all that can be known of it without its journal."""

    id: str
    agent: str
    n: int  # entries
    state: str  # at the last rest; "" before the first
    is_ended: bool
    due_s: float | None  # as in `Rest`, and 0.0 while it has unread posts that it heeds, or a holder
    holder: str | None  # None: nobody has it, or the time of its lease is up
    created_s: float
    updated_s: float  # of the last entry or rest
    waits: tuple[Question, ...]  # open questions, by key


class Loaded(Value, frozen=True, kw_only=True):
    """One consistent view of a run."""

    header: str
    snapshot: tuple[int, bytes] | None  # the newest, and how many entries it comprises
    lines: tuple[str, ...]  # entries, from the first that was asked for
    posts: tuple[Post, ...]  # unread, the oldest first
    run: Run


class Store(Protocol):
    """A place where runs are kept.

    Attributes:
        is_volatile: True if nothing outlives the OS process, and no method ever waits for a disk or a server.
    """

    is_volatile: bool

    def create(
        self,
        run: str,
        header: str,
        *,
        agent: str,
        follows: Head | None = None,
        holder: str | None = None,
        for_s: float = 0.0,
    ) -> Lease | bool:
        """Begin a run, which is due at once; with a holder, claim it in the same commit, so that no other is faster.

        Args:
            run: Its name: any text but the empty one.
            header: The first line of its journal.
            agent: Who can drive it; see `claim`.
            follows: The head of a conversation as it was read; the run becomes its next head in the same commit.
            holder: A name for the lease of a run that is begun; None: nobody claims it.
            for_s: How many seconds that lease lasts.

        Returns:
            The lease, or True without a holder; False if the run is there already, with the same header: then nobody
            has claimed it.

        Raises:
            RunExists: It is there with another header.
            Conflict: The conversation has moved on.  Nothing is written.
        """

    def claim(
        self,
        holder: str,
        *,
        for_s: float,
        run: str | None = None,
        agents: Sequence[str] = (),
        now_s: float | None = None,
    ) -> Lease | None:
        """Take the lease of a run; each claim raises its fence, also one by the same holder.

        An ended run can be claimed by its name alone, to be read, say: it is never due, also when that lease is over.

        Args:
            holder: A name for the lease.
            for_s: How many seconds it lasts; a finite number.
            run: The run; None: of those due that nobody holds, the one that has been due longest.
            agents: Only runs of these agents, if there are any; for ``run=None``.
            now_s: Unix time at which runs have to be due; None: now.

        Returns:
            None only for ``run=None``: nothing is due.

        Raises:
            RunUnknown: There is no such run.
            RunBusy: Somebody else holds it, or this holder does.
        """

    def renew(self, lease: Lease, *, for_s: float) -> int:
        """Have a lease last for ``for_s`` seconds from now; return how many posts wait.

        Raises:
            LeaseLost: Another claim has outdated it, it was given back, or the run was deleted.
        """

    def append(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        rest: Rest | None = None,
        *,
        took: Sequence[int] = (),
        snapshot: bytes | None = None,
    ) -> int:
        """Add entries behind the first ``n``, all or nothing; they are on disk when this returns.

        A rest gives the lease back in the same commit, and its questions replace those that are open: one under a key
        that is open already stays as it is, answered or not; one whose answer was used up, in this append or before, is
        asked anew.  Without a rest the lease stays, the questions stay, and
        the run is due, so that a holder's death is followed by a claim.  While posts are unread, the run is due
        whatever the rest says, unless it has ended, or heeds other posts; an ended run is never due.  Entries reset
        `Lease.tries`, and so does a rest that is not due at once.

        Repeated with the same lease, the same ``n`` and the same lines, and with a rest exactly if the first had one,
        it changes nothing, as long as nobody has claimed the run since.

        Args:
            lease: The lease.
            n: The number of the last entry.
            lines: The entries; there may be none.
            rest: The state in which the run is given back.
            took: Ids of posts that are used up.
            snapshot: The record after these entries, compressed; it replaces the one before.

        Returns:
            How many posts wait.

        Raises:
            LeaseLost: The lease is outdated or given back, or other entries follow the first ``n``.  Nothing is
                written.
        """

    def submit(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        rest: Rest | None = None,
        *,
        took: Sequence[int] = (),
        snapshot: bytes | None = None,
    ) -> Future[int]:
        """Do the same as `append` without blocking; what many submit at a time becomes one commit."""

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        """Return a run as it is.

        Args:
            run: Its name.
            after: Its lines begin behind the entry with this number; None: behind the snapshot.

        Raises:
            RunUnknown: There is no such run.
        """

    def post(self, run: str, key: str, body: str, *, by: str = "") -> None:
        """Put a letter into the box of a run, which is due from now on if it heeds it.

        Args:
            run: The run.
            key: That of an open question, which is answered by it; empty: no question's.
            body: The letter.
            by: Who posts it.

        Raises:
            RunUnknown: There is no such run.
            NotAsked: There is no such question, or the run has ended.
            AlreadyAnswered: Somebody answered it before.
        """

    def list(
        self,
        *,
        agent: str | None = None,
        ended: bool | None = None,
        asked: bool = False,
        due_before: float | None = None,
        limit: int = 100,
    ) -> list[Run]:
        """Return runs, the last changed first.

        Args:
            agent: Only this agent's.
            ended: Only those that have ended, or have not.
            asked: Only those with open questions.
            due_before: Only those that are due before this Unix time, held or not.
            limit: At most so many.
        """

    def head(self, conversation: str) -> Head:
        """Return where a conversation stands; one without runs has version 0."""

    def delete(self, run: str) -> None:
        """Delete a run with its journal, posts and questions; a conversation keeps its head.

        Raises:
            RunUnknown: There is no such run.
            RunBusy: Somebody holds it.
        """

    def wait(self, timeout_s: float) -> None:
        """Wait until something may be due, for at most ``timeout_s`` seconds: a hint, which may return at any time."""

    def close(self) -> None:
        """Close files and connections; safe to repeat.

        What was submitted is finished.  From then on whatever would read or write a run is a `StoreError`, unless the
        store is volatile.  Leases that it holds last as long as they promise, or end at once where others can tell.
        """
