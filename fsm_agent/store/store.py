r"""The protocol of stores: journals, signals and leases, and the queue of the runs that are due.

Rules
=====

- *Time never decides.*  Only the pair (fence, number of the last entry) does: `Store.append` is refused unless the
  fence is that of the newest lease and the entries follow the last one.  A holder whose lease has expired may continue
  until another holder claims the run.  Leases are timed by the store's clock, due times are Unix time.
- *Only the holder appends; all others send signals.*  An answer, a cancellation, an injection or a late outcome is a
  signal to
  the run.  It takes neither a lease nor the agent's code.  The holder removes a signal in the append that contains its
  entry.  The first signal under the key of an open question answers it; a later one is refused, with the name of who
  answered, and when.
- *The store is the queue.*  A run is due from the time that its last suspension set.  It is due at once while its lease
  was not given back, and while it has pending signals that its suspension is woken by.  So the death of a holder is
  always followed by another claim.  A run that is due at once counts as due since it was created, posted to or given
  back, or since its lease expired.
- *Priority comes first.*  Of the runs that are due, one of the highest priority is claimed, and of these the one that
  has been due longest.  Nothing else lets a run of a low priority pass: it waits as long as others are due.
- *An append may be repeated*, since a commit whose connection broke may have happened or not.  A holder that was
  superseded may not repeat it: the new holder has read the journal as it was.

All methods block, except `submit`, and are safe to call from many threads.  Lines, headers, bodies and names are
strings without half surrogate pairs.  A line or a header holds no line break (``"\n"``), and the name of a run is not
empty.  Other arguments are a `UsageError`, and nothing is written.

A lease is the newest if its fence, its holder and the time of its claim are those of the run.  The time tells it from
the lease of a run that was deleted and created again: that run counts its fences from 1 again.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Protocol, TypedDict, Unpack

from fsm_agent._internal.structs import Value
from fsm_agent.messages.events import Question
from fsm_agent.store.errors import LeaseLost

FIRST_FENCE = 1  # of the lease that `Store.create` gives
MAX_PRIORITY = 100
MAX_NAME_BYTES = 1000  # of names, states and kinds of questions, in UTF-8: an index of Postgres holds no longer ones
MAX_KEY_BYTES = 2000  # of the key of a question, which has the path of the process that asks
MAX_TIME_S = 253_402_300_799.0  # Unix time of the last second that calendars have: the end of the year 9999


class Lease(Value, frozen=True):
    """The right to append to a run, until another claim supersedes it.

    Examples:
        >>> store = MemoryStore()
        >>> _ = Agent(Script("Hi."), name="desk", store=store).runs.submit("Hello", run_id="run-1")
        >>> lease = store.claim("worker-1", for_s=60, agents=["desk"])
        >>> lease.run, lease.holder, lease.fence
        ('run-1', 'worker-1', 1)
    """

    run: str
    agent: str  # of the run, as passed to `Store.create`
    holder: str  # the name of a driver, of which an OS process may have many
    fence: int  # one more than that of the lease before; from 1
    since_s: float  # Unix time of the claim
    until_s: float  # Unix time at which others may claim the run
    n: int  # how many entries there were at the claim
    tries: int  # claims, this one included, since the last entry, or suspension that was not due at once or in vain


class Suspension(Value, frozen=True, kw_only=True):
    """The state of a run when its holder gives it back.

    Examples:
        >>> Suspension(state="Completed", is_ended=True).is_failed
        False
    """

    state: str
    due_s: float | None = None  # Unix time at which the run is due; 0.0 or less: at once; None: only after a signal
    is_ended: bool = False
    is_failed: bool = False  # it has ended in a failure
    questions: tuple[Question, ...] = ()  # the open questions from now on
    wakes_on: str | None = None  # the key of the only question whose answer makes the run due; None: any signal does
    is_in_vain: bool = False  # its driver failed: `Lease.tries` goes on counting, although it is not due at once


class Start(Value, frozen=True, kw_only=True):
    """When a run without a holder is first due, and how it is queued.

    Signals do not make the run due earlier.  Claiming it by its name starts it.

    Examples:
        >>> Start(priority=10).after
        ()
    """

    due_s: float = 0.0  # Unix time; 0.0 or less: at once
    after: tuple[str, ...] = ()  # runs of this store; it is not due before each of them has ended or was deleted
    service: str = ""  # the name of the `RunFollower` that goes on with it when it is left behind, for `list`
    priority: int = 0  # from -MAX_PRIORITY to MAX_PRIORITY, the highest first; kept until the run has ended


class Head(Value, frozen=True):
    """The newest run of a conversation.

    Examples:
        >>> Head("customer-17").version
        0
    """

    conversation: str
    version: int = 0  # the number of its runs
    run: str = ""  # the newest run; empty before the first


class Signal(Value, frozen=True):
    """A message to a run, for its next holder to read.

    Examples:
        >>> store = MemoryStore()
        >>> store.create("run-1", "the header", agent="desk")
        True
        >>> store.signal("run-1", "", "hello", by="ann")
        >>> [(signal.body, signal.by) for signal in store.load("run-1").signals]
        [('hello', 'ann')]
    """

    id: int  # unique in the store, and greater than those of earlier signals
    key: str  # of the question that it answers; empty: it answers none
    body: str
    by: str  # who posted it, for people
    at_s: float


class Run(Value, frozen=True, kw_only=True):
    """The row of a run: what a store knows about it without its journal.

    Examples:
        >>> agent = Agent(Script("Hi."), name="desk", store=MemoryStore())
        >>> result = agent.call("Hello", run_id="run-1")
        >>> [(run.id, run.state) for run in agent.store.list()]
        [('run-1', 'Completed')]
    """

    id: str
    agent: str
    n: int  # entries
    state: str  # at the last suspension; "" before the first
    is_ended: bool
    due_s: float | None  # as in `Suspension`, but 0.0 while it has a holder or pending signals that wake it
    holder: str | None  # None: it has no lease, or its lease has expired
    created_s: float
    updated_s: float  # the time of the last entry or suspension
    waits: tuple[Question, ...]  # open questions, by key
    priority: int = 0  # as in `Start`
    service: str = ""  # as in `Start`
    title: str = ""  # what it is about, in a few words; empty: not known
    is_failed: bool = False  # it has ended in a failure


class RunFilter(TypedDict, total=False):
    """The filter of `Store.list`.  A run must satisfy every given condition.

    Attributes:
        agent: The name of the agent.
        state: The state of the last suspension.
        ended: Whether the run has ended.
        failed: Whether the run has ended in a failure.
        asked: Whether the run has open questions.
        waiting_for: The kind of an open question, such as ``"approval"``, ``"answer"`` or ``"stuck"``.
        due_before: The run is due before this Unix time, with or without a holder.
        changed_before: The last change of the run was before this Unix time.
        changed_after: The last change of the run was at or after this Unix time.
        text: A text that the name or the title contains; upper and lower case do not matter.
        prefix: The beginning of the name.
        service: The name of the service, as in `Start`.
    """

    agent: str | None
    state: str | None
    ended: bool | None
    failed: bool | None
    asked: bool
    waiting_for: str | None
    due_before: float | None
    changed_before: float | None
    changed_after: float | None
    text: str
    prefix: str
    service: str


class Page(list[Run]):
    """A page of runs, and where the next page begins.

    Attributes:
        next: The argument ``after`` of `Store.list` for the next page, or None on the last page.

    Examples:
        >>> page = MemoryStore().list(limit=10)
        >>> page, page.next
        ([], None)
    """

    next: str | None = None


class RunCount(Value, frozen=True, kw_only=True):
    """How many runs of an agent are in a state and wait for the same kinds of answers.

    Examples:
        >>> agent = Agent(Script("Hi."), name="desk", store=MemoryStore())
        >>> result = agent.call("Hello", run_id="run-1")
        >>> [(count.agent, count.state, count.count) for count in agent.store.stats()]
        [('desk', 'Completed', 1)]
    """

    agent: str
    state: str
    is_ended: bool
    is_failed: bool
    waits_for: tuple[str, ...]  # the kinds of their open questions
    count: int
    oldest_s: float  # Unix time of the last suspension of the one that has changed least recently


class RunsHealth(Value, frozen=True, kw_only=True):
    """The health of the runs of a store.

    Attributes:
        due: How many runs wait for a driver: they are due and have no holder.
        oldest_due_s: For how many seconds the longest waiting of them has been due, or 0.0 if no run is due.
        held: How many runs have a holder.
        asked: How many runs have open questions, as `Store.list` finds them with ``asked=True``.
        stuck: How many of these could not be driven by the code of their workers.

    Examples:
        >>> MemoryStore().health().due
        0
    """

    due: int
    oldest_due_s: float
    held: int
    asked: int
    stuck: int


class Loaded(Value, frozen=True, kw_only=True):
    """One consistent view of a run.

    Examples:
        >>> store = MemoryStore()
        >>> store.create("run-1", "the header", agent="desk")
        True
        >>> loaded = store.load("run-1")
        >>> loaded.header, loaded.lines, loaded.run.n
        ('the header', (), 0)
    """

    header: str
    snapshot: tuple[int, bytes] | None  # the number of the entry that it follows, and the newest snapshot
    lines: tuple[str, ...]  # the entries after the number that was passed
    signals: tuple[Signal, ...]  # the pending signals, the oldest first
    run: Run


class Store(Protocol):
    """A place where runs are kept.

    Attributes:
        is_volatile: Whether nothing outlives the OS process, and no method waits for a disk or a server.

    Examples:
        >>> store: Store = MemoryStore()
        >>> store.list()
        []
    """

    is_volatile: bool

    def create(
        self,
        run: str,
        header: str,
        *,
        agent: str,
        title: str = "",
        follows: Head | None = None,
        holder: str | None = None,
        for_s: float = 0.0,
        lines: Sequence[str] = (),
        start: Start | None = None,
    ) -> Lease | bool:
        """Create a run, which is due at once.  With a holder, claim it in the same commit, before a worker can.

        The run is on disk when this returns.  A lease without entries, here or from `claim`, may reach the disk with
        its first entry.

        Args:
            run: The name of the run, which must not be empty.
            header: The first line of its journal.
            agent: The name of the agent that can drive it; see `claim`.
            title: A few words about the run, for people.
            follows: The head of a conversation as it was read.  The run becomes its next head in the same commit.
            holder: The name of the holder of the new run, or None for no holder.
            for_s: How many seconds the lease lasts.
            lines: The first entries of the holder, in the same commit.  Only with a holder.
            start: When the run is due, and its priority.  None for at once, with priority 0.  Not with a holder.

        Returns:
            The lease, or True without a holder.  False if the run exists already with the same header; it is then not
            claimed and not changed.

        Raises:
            RunExists: If the run exists with another header.
            Conflict: If the conversation has continued.  Nothing is written.
            RunUnknown: If a run of ``start.after`` does not exist.  Nothing is written.
        """

    def claim(
        self,
        holder: str,
        *,
        for_s: float,
        run: str | None = None,
        agents: Sequence[str] = (),
        now_s: float | None = None,
        fingerprints: Sequence[str] | None = None,
    ) -> Lease | None:
        """Take the lease of a run.  Each claim raises its fence, even a claim by the same holder.

        An ended run can only be claimed by its name.  It is never due, not even after that lease has expired.

        Args:
            holder: The name of the holder.
            for_s: How many seconds the lease lasts; a finite number.
            run: The name of the run.  With None, a due run without a holder is claimed: one of the highest priority,
                and of these the one that has been due longest.
            agents: With ``run=None``, only runs of these agents are claimed.  Empty for all agents.
            now_s: The Unix time at which runs must be due, or None for now.
            fingerprints: With ``run=None``, only runs begun by code with one of these fingerprints (in their headers)
                are claimed.  None for any code.

        Returns:
            The lease, or None if ``run`` is None and no run is due.

        Raises:
            RunUnknown: If the run does not exist.
            RunBusy: If the run has a holder, which may be this one.
        """

    def renew(self, lease: Lease, *, for_s: float) -> int:
        """Extend a lease to ``for_s`` seconds from now; return the number of pending signals.

        Raises:
            LeaseLost: If the lease was superseded by another claim or given back, or the run was deleted.
        """

    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        """`renew` many leases in one commit.  Return the result or the error of each, in the order of the leases."""

    def pending_signals(self, names: Sequence[str]) -> Collection[str]:
        """Return the names of the given runs that have pending signals."""

    def append(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        suspension: Suspension | None = None,
        *,
        took: Sequence[int] = (),
        snapshot: bytes | None = None,
    ) -> int:
        """Add entries after the first ``n``, all or nothing.  They are on disk when this returns.

        Without a suspension, the lease and the questions stay.  A suspension gives the lease back in the same commit,
        and its questions replace the open ones.  A question whose key is already open stays unchanged, answered or not.
        A question whose answer was used up, in this append or before, is asked again.

        A run with pending signals is due regardless of the suspension, unless it has ended or waits for other signals.
        An ended run is never due.  Entries reset `Lease.tries`, and so does a suspension that is neither due at once
        nor in vain.

        A repeated append changes nothing if no other claim came in between.  It has the same lease, the same ``n`` and
        the same lines, and it has a suspension exactly if the first append had one.

        Args:
            lease: The lease.
            n: The number of the last entry.
            lines: The new entries; may be empty.
            suspension: The state in which the run is given back, or None if the holder keeps the run.
            took: Ids of signals that are used up.
            snapshot: The compressed record after these entries, which replaces the earlier snapshot.

        Returns:
            The number of pending signals.

        Raises:
            LeaseLost: If the lease was superseded or given back, or other entries follow the first ``n``.  Nothing is
                written.
        """

    def ask(self, lease: Lease, questions: Sequence[Question]) -> None:
        """Replace the open questions of a run that keeps its holder, so that they can be answered meanwhile.

        The questions are kept like the questions of a suspension.  The lease stays, and nothing else changes.

        Args:
            lease: The lease.
            questions: All open questions.

        Raises:
            LeaseLost: If the lease was superseded or given back.
        """

    def submit(
        self,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        suspension: Suspension | None = None,
        *,
        took: Sequence[int] = (),
        snapshot: bytes | None = None,
    ) -> Future[int]:
        """Append without blocking.  The work of many threads becomes one commit.  See `append`."""

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        """Return a run with its entries and pending signals.

        Args:
            run: The name of the run.
            after: The number of the entry after which the lines begin, or None for the number of the snapshot.

        Raises:
            RunUnknown: If the run does not exist.
        """

    def signal(self, run: str, key: str, body: str, *, by: str = "", signal_id: str = "", content: str = "") -> None:
        """Add a signal to a run.  If the signal wakes the run, it becomes due at once.

        Args:
            run: The name of the run.
            key: The key of the open question that the signal answers, or empty if it answers no question.
            body: The text of the signal.
            by: The person who sends it; shown to people.
            signal_id: An id, or empty.  A signal with an id is made once in the life of the run.  Repeating it changes
                nothing and raises none of the errors below.
            content: What a repeated signal must have in common with the first; by default, the body.

        Raises:
            RunUnknown: If the run does not exist.
            NotAsked: If the run has no such open question, or has ended.
            AlreadyAnswered: If the question was answered before.
            SignalExists: If the run has a signal with this id but different content.
        """

    def signalled(self, run: str, signal_id: str) -> str | None:
        """Return the content of the signal with this id, even if it is used up, or None if no signal has it.

        Raises:
            RunUnknown: If the run does not exist.
        """

    def get(self, run: str) -> Run:
        """Return the row of a run, without reading its journal or its snapshot.

        Raises:
            RunUnknown: If the run does not exist.
        """

    def list(self, *, after: str | None = None, limit: int = 100, **which: Unpack[RunFilter]) -> Page:
        """Return a page of runs, the last changed first.

        The cost of a page depends on its runs, not on the size of the store, with three exceptions.
        `RunFilter.prefix` and `RunFilter.service` look at all runs that have them.  `RunFilter.due_before` looks at all
        runs.  `RunFilter.text` looks at a limited number, so a page may be short or empty although a next one exists.
        A run that changes meanwhile moves to the front, so that later pages do not have it.

        Args:
            after: The `Page.next` of the previous page, or None for the first page.
            limit: The largest number of runs to return.
            which: The conditions of `RunFilter`.
        """

    def stats(self) -> builtins.list[RunCount]:
        """Return the number of runs by agent, state and what they wait for.  This looks at all runs."""

    def health(self) -> RunsHealth:
        """Return the health of the runs.  The cost depends on the due, held and asked runs, not on the ended ones."""

    def head(self, conversation: str) -> Head:
        """Return the head of a conversation.  Its version is 0 if the conversation has no runs."""

    def delete(self, run: str) -> None:
        """Delete a run with its journal, signals and questions.  A conversation keeps its head.

        Runs that start after it start as if it had ended.

        Raises:
            RunUnknown: If the run does not exist.
            RunBusy: If the run has a holder.
        """

    def wait(self, timeout_s: float) -> None:
        """Wait until a run may be due, for at most ``timeout_s`` seconds.  It may return earlier without a reason."""

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        """Wait until a run may have been given back, for at most ``timeout_s`` seconds.

        It may return earlier without a reason, and it may miss changes by other processes.  Therefore a caller that
        waits for a run must also look now and then.

        Args:
            seen: The result of the previous call, so that nothing in between is missed.  With -1, return at once.
            timeout_s: The most seconds to wait.

        Returns:
            A number that changes with each suspension.
        """

    def close(self) -> None:
        """Close files and connections.  It is safe to repeat this.

        Submitted work is finished first.  After that, methods that read or write raise a `StoreError`, unless the store
        is volatile.  Leases of this store expire at their time, or at once if other stores can tell that it closed.
        """
