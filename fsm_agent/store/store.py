r"""The `Store` protocol, for runs with their journals, leases and signals, and for the queue of due runs.

Rules
=====

- *Time never decides who may write.*  `Store.append` checks only that the lease is the newest, and that the entries
  follow the last stored entry.  A holder whose lease has expired may continue until another holder claims the run.
  Leases use the store's clock, and due times are Unix times.
- *Only the holder appends, and everyone else sends signals.*  An answer, a cancellation, an injection or a late outcome
  is a signal.  Sending a signal needs neither a lease nor the agent's code.  The holder removes a signal in the append
  that contains the signal's entry.  The first signal under the key of an open question answers it, and later ones are
  refused.
- *The store is the queue.*  A run is due from the time set by its last suspension.  It is due at once if its lease was
  not released, or if a pending signal wakes it.  A run whose holder dies is therefore always claimed again.  A run that
  is due at once is queued by the time at which it became due: the time of its creation, a signal, its last suspension,
  or the end of its lease.
- *Priority comes first.*  The due run with the highest priority is claimed first and, among equals, the one that has
  been due longest.  A run with a low priority waits as long as runs with a higher priority are due.
- *An append may be repeated.*  If a connection breaks during a commit, the caller cannot know whether the commit
  happened.  A superseded holder may not repeat an append, because the new holder has already read the journal.

All methods except `submit` block, and all are thread-safe.  Lines, headers, bodies and names are strings without lone
surrogates.  A line or a header contains no line break (``"\n"``), and the name of a run is not empty.  If an argument
breaks these rules, a `UsageError` is raised and nothing is written.

A lease is the newest if its fence, holder and claim time are those of the run.  The claim time matters if a run was
deleted and created again, because its fences then restart at 1.
"""

from __future__ import annotations

import builtins
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Protocol, TypedDict, Unpack

from fsm_agent._internal.structs import Value
from fsm_agent.messages.events import Question
from fsm_agent.store.errors import LeaseLost

FIRST_FENCE = 1  # the fence of a lease from `Store.create`
MAX_PRIORITY = 100
MAX_NAME_BYTES = 1000  # of names, states and kinds of questions, in UTF-8; a Postgres index cannot hold longer ones
MAX_KEY_BYTES = 2000  # of the key of a question, which includes the path of a process
MAX_TIME_S = 253_402_300_799.0  # Unix time of the last second of the year 9999, where calendars end


class Lease(Value, frozen=True):
    """The right to append to a run until another claim supersedes it.

    Examples:
        >>> store = MemoryStore()
        >>> _ = Agent(Script("Hi."), name="desk", store=store).runs.submit("Hello", run_id="run-1")
        >>> lease = store.claim("worker-1", for_s=60, agents=["desk"])
        >>> lease.run, lease.holder, lease.fence
        ('run-1', 'worker-1', 1)
    """

    run: str
    agent: str  # as passed to `Store.create`
    holder: str  # the name of a driver; an OS process may have many
    fence: int  # starts at 1 and increases with each claim
    since_s: float  # Unix time of the claim
    until_s: float  # Unix time from which others may claim the run
    n: int  # number of entries at the claim
    tries: int  # claims in a row without progress, including this one; see `Store.append`


class Suspension(Value, frozen=True, kw_only=True):
    """The state of a run when its holder releases it.

    Examples:
        >>> Suspension(state="Completed", is_ended=True).is_failed
        False
    """

    state: str
    due_s: float | None = None  # Unix time when the run is due; 0.0 or less means at once, None only after a signal
    is_ended: bool = False
    is_failed: bool = False  # the run has ended in a failure
    questions: tuple[Question, ...] = ()  # all open questions
    wakes_on: str | None = None  # only an answer to the question with this key makes the run due; None for any signal
    unread: int = 0  # the pending signals that the holder leaves; only a further one makes the run due
    is_in_vain: bool | None = None  # the driver failed, so `Lease.tries` stays; None: only if it is due at once


class Start(Value, frozen=True, kw_only=True):
    """The time at which a run without a holder is first due, and the run's place in the queue.

    Signals do not make the run due earlier, but claiming the run by name starts it at once.

    Examples:
        >>> Start(priority=10).after
        ()
    """

    due_s: float = 0.0  # Unix time; 0.0 or less means at once
    after: tuple[str, ...] = ()  # runs of this store that must have ended, or been deleted, before this one is due
    service: str = ""  # the name of the `RunFollower` that picks the run up if its caller is gone, for `list`
    priority: int = 0  # from -MAX_PRIORITY to MAX_PRIORITY, the highest first; kept until the run has ended


class Head(Value, frozen=True):
    """The newest run of a conversation.

    Examples:
        >>> Head("customer-17").version
        0
    """

    conversation: str
    version: int = 0  # the number of runs in the conversation
    run: str = ""  # the newest run; empty before the first


class Signal(Value, frozen=True):
    """A message to a run, to be read by its holder.

    Examples:
        >>> store = MemoryStore()
        >>> store.create("run-1", "the header", agent="desk")
        True
        >>> store.signal("run-1", "", "hello", by="ann")
        >>> [(signal.body, signal.by) for signal in store.load("run-1").signals]
        [('hello', 'ann')]
    """

    id: int  # unique in the store; later signals have greater ids
    key: str  # the key of the question that it answers; empty if it answers no question
    body: str
    by: str  # the sender, for people
    at_s: float


class Run(Value, frozen=True, kw_only=True):
    """The facts about a run that a store knows without reading the run's journal.

    Examples:
        >>> agent = Agent(Script("Hi."), name="desk", store=MemoryStore())
        >>> result = agent.call("Hello", run_id="run-1")
        >>> [(run.id, run.state) for run in agent.store.list()]
        [('run-1', 'Completed')]
    """

    id: str
    agent: str
    n: int  # number of entries
    state: str  # at the last suspension; "" before the first
    is_ended: bool
    due_s: float | None  # as in `Suspension`, but 0.0 while it has a holder or a pending signal that wakes it
    holder: str | None  # None without a lease, or with an expired one
    created_s: float
    updated_s: float  # the time of the last entry or suspension
    waits: tuple[Question, ...]  # open questions, by key
    priority: int = 0  # as in `Start`
    service: str = ""  # as in `Start`
    title: str = ""  # a few words about the run; empty if unknown
    is_failed: bool = False  # the run has ended in a failure


class RunFilter(TypedDict, total=False):
    """The filter for `Store.list`.  A run must satisfy all given conditions.

    Attributes:
        agent: The name of the agent.
        state: The run's state at its last suspension.
        ended: Whether the run has ended.
        failed: Whether the run has ended in a failure.
        asked: Whether to return only runs with open questions.
        waiting_for: The kind of an open question, such as ``"approval"``, ``"answer"`` or ``"stuck"``.
        due_before: A Unix time before which the run is due, with or without a holder.
        changed_before: A Unix time before which the run was last changed.
        changed_after: A Unix time at or after which the run was last changed.
        text: Text that occurs in the name or the title, ignoring case.
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
    """A page of runs, with the position at which the next page begins.

    Attributes:
        next: The ``after`` argument to `Store.list` for the next page, or None on the last page.

    Examples:
        >>> page = MemoryStore().list(limit=10)
        >>> page, page.next
        ([], None)
    """

    next: str | None = None


class RunCount(Value, frozen=True, kw_only=True):
    """The number of an agent's runs that share a state and have the same kinds of open questions.

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
    waits_for: tuple[str, ...]  # kinds of open questions
    count: int
    oldest_s: float  # Unix time of the last suspension of the run that has gone longest without one


class RunsHealth(Value, frozen=True, kw_only=True):
    """Counts of the runs in a store that are in progress or need attention.

    Attributes:
        due: Number of runs that are due and have no holder.
        oldest_due_s: How long the oldest due run has been waiting, in seconds, or 0.0 if no run is due.
        held: Number of runs with a holder.
        asked: Number of runs with open questions, which `Store.list` finds with ``asked=True``.
        stuck: Number of the ``asked`` runs that their workers' code could not drive.

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
    snapshot: tuple[int, bytes] | None  # the newest snapshot, after the number of its last entry
    lines: tuple[str, ...]  # the entries after the requested number
    signals: tuple[Signal, ...]  # the pending signals, the oldest first
    run: Run


class Store(Protocol):
    """A place where runs are kept.

    Attributes:
        is_volatile: Whether runs are lost when the OS process ends.  The methods of a volatile store never wait for a
            disk or a server.
        is_read_only: Whether the store is open for reading only, so that each write raises `ReadOnly`.

    Examples:
        >>> store: Store = MemoryStore()
        >>> store.list()
        []
    """

    is_volatile: bool
    is_read_only: bool

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
        """Create a run and, if there is a holder, claim it in the same commit, before any worker can.

        The run is on disk when this method returns.  A lease without entries may reach the disk later, with the first
        entry.

        Args:
            run: The name of the run, which must not be empty.
            header: The first line of its journal.
            agent: The name of the agent that can drive the run; see `claim`.
            title: A few words about the run, for people.
            follows: The head of a conversation, as read by the caller.  The run becomes the next head in the same
                commit.
            holder: The name of the holder of the new run, or None for no holder.
            for_s: How long the lease lasts, in seconds.
            lines: The first entries, written in the same commit.  They need a holder.
            start: The time at which the run is due, and its priority.  None means at once, with priority 0.  If there
                is a holder, it must be None.

        Returns:
            The lease, or True if there is no holder.  False means that the run already exists with the same header;
            nothing is changed.

        Raises:
            RunExists: If the run exists with another header.
            Conflict: If the conversation has continued.  Nothing is written.
            RunUnknown: If a run in ``start.after`` does not exist.  Nothing is written.
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
        """Take the lease on a run.  Each claim raises the run's fence, even a claim by the same holder.

        A run that has ended is never due, so it can be claimed only by name.

        Args:
            holder: The name of the holder.
            for_s: How long the lease lasts, in seconds; a finite number.
            run: The name of the run, or None to claim a due run without a holder: the one with the highest priority or,
                among equals, the one that has been due longest.
            agents: With ``run=None``, the agents whose runs may be claimed; empty for all agents.
            now_s: The Unix time at which runs must be due, or None for now.
            fingerprints: With ``run=None``, only runs begun by code with one of these fingerprints (as given in their
                headers) are claimed; None for any code.

        Returns:
            The lease, or None if ``run`` is None and no run is due.

        Raises:
            RunUnknown: If the run does not exist.
            RunBusy: If the run has a holder, which may be this one.
        """

    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        """Extend leases to ``for_s`` seconds from now, in one commit.

        Returns:
            For each lease, in order: the number of pending signals, or a `LeaseLost` if the lease was superseded by
            another claim or released, or the run was deleted.
        """

    def pending_signals(self, names: Sequence[str]) -> Collection[str]:
        """Return the runs, among those given, that have pending signals."""

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
        """Add either all or none of the entries after the first ``n``.  They are on disk when this method returns.

        Without a suspension, the lease and the questions stay as they are.  A suspension releases the lease in the same
        commit, and its questions replace the open questions.  If a question with the same key is already open, it stays
        unchanged, even if it has been answered.  Once an answer has been consumed, in this append or before, its
        question can be asked again.

        A run with more pending signals than ``unread`` is due regardless of the suspension, unless it has ended or is
        waiting for other signals.  A run that has ended is never due.  New entries reset `Lease.tries`.  So does a
        suspension, unless its ``is_in_vain`` says that the driver failed.

        Repeating an append has no effect if nothing else has claimed the run in the meantime.  The repeated call must
        pass the same lease, ``n`` and lines, and a suspension if the first call did.

        Args:
            lease: The lease.
            n: The number of the last stored entry.
            lines: The new entries, if any.
            suspension: The state in which the run is released, or None if the holder keeps the run.
            took: The ids of the signals that are used up and removed.
            snapshot: The compressed record after these entries, which replaces the earlier snapshot.

        Returns:
            The number of pending signals.

        Raises:
            LeaseLost: If the lease was superseded or released, or other entries follow the first ``n``.  Nothing is
                written.
        """

    def ask(self, lease: Lease, questions: Sequence[Question]) -> None:
        """Replace a run's open questions without giving up the lease, so that people can answer while the run is held.

        The questions follow the same rules as those in a suspension; see `append`.

        Args:
            lease: The lease.
            questions: All open questions.

        Raises:
            LeaseLost: If the lease was superseded or released.
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
        """Append without blocking; see `append`.  Appends from several threads may share one commit."""

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        """Return a run with its entries and pending signals.

        Args:
            run: The name of the run.
            after: The number after which entries are returned, or None for the entries after the snapshot.

        Raises:
            RunUnknown: If the run does not exist.
        """

    def signal(self, run: str, key: str, body: str, *, by: str = "", signal_id: str = "", content: str = "") -> None:
        """Add a signal to a run.  If the signal wakes the run, it becomes due at once.

        Args:
            run: The name of the run.
            key: The key of the open question that the signal answers, or an empty string if it is not an answer.
            body: The text of the signal.
            by: The name of the person who sends the signal, for display.
            signal_id: An id for the signal, or an empty string.  A run accepts only one signal with a given id.
                Sending the same signal again has no effect and raises none of the errors below.
            content: The text to compare when a signal is repeated; by default, the body.

        Raises:
            RunUnknown: If the run does not exist.
            NotAsked: If the run has no such open question, or has ended.
            AlreadyAnswered: If the question has already been answered.
            SignalExists: If the run has a signal with this id but different content.
        """

    def signalled(self, run: str, signal_id: str) -> str | None:
        """Return the content of the signal with this id, even if it has been used up, or None if there is none.

        Raises:
            RunUnknown: If the run does not exist.
        """

    def get(self, run: str) -> Run:
        """Return what the store knows about a run without reading its journal or its snapshot.

        Raises:
            RunUnknown: If the run does not exist.
        """

    def list(self, *, after: str | None = None, limit: int = 100, **which: Unpack[RunFilter]) -> Page:
        """Return a page of runs, the most recently changed first.

        The cost depends on the size of the page, not of the store, with three exceptions.  With `RunFilter.prefix` or
        `RunFilter.service`, all runs that match these conditions are examined.  With `RunFilter.due_before`, all runs
        are examined.  With `RunFilter.text`, a limited number of runs is examined, so a page may be short or empty even
        if there is a next page.  A run that changes between two pages moves to the front, so later pages do not include
        it.

        Args:
            after: The `Page.next` of the previous page, or None for the first page.
            limit: The maximum number of runs to return.
            which: The conditions of `RunFilter`.
        """

    def stats(self) -> builtins.list[RunCount]:
        """Count the runs by agent, state and kinds of open questions.  All runs are examined."""

    def health(self) -> RunsHealth:
        """Count the runs that are in progress or need attention.

        The cost does not grow with the number of ended runs.
        """

    def head(self, conversation: str) -> Head:
        """Return the head of a conversation.  It has version 0 if the conversation has no runs."""

    def delete(self, run: str) -> None:
        """Delete a run with its journal, signals and questions.  A conversation's head stays the same.

        Runs that are waiting for this run to end will start as if it had ended.

        Raises:
            RunUnknown: If the run does not exist.
            RunBusy: If the run has a holder.
        """

    def wait(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` seconds until a run may be due.  This may return early for no reason."""

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        """Wait up to ``timeout_s`` seconds until a run may have been released.

        This may return early for no reason, and may miss changes made by other processes.  A caller that is waiting for
        a run must also check it from time to time.

        Args:
            seen: The value that the previous call returned, so that no change is missed, or -1 to return at once.
            timeout_s: The longest time to wait, in seconds.

        Returns:
            A number that changes with each suspension.
        """

    def close(self) -> None:
        """Finish submitted work, and close files and connections.  Calling this again has no effect.

        From then on, methods that read or write raise a `StoreError`, unless the store is volatile.  The store's leases
        expire normally, or at once if other stores can tell that it was closed.
        """
