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

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypedDict

from fsm_agent._internal.structs import Value
from fsm_agent.messages.events import Question
from fsm_agent.store.errors import LeaseLost

MAX_PRIORITY = 100
MAX_NAME_BYTES = 1000  # of names, states and kinds of questions, in UTF-8: an index of Postgres holds no longer ones
MAX_KEY_BYTES = 2000  # of the key of a question, which has the path of the process that asks
MAX_TIME_S = 253_402_300_799.0  # Unix time of the last second that calendars have: the end of the year 9999

if TYPE_CHECKING:
    import builtins
    from typing import Unpack


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
    """The state in which a run is given back.

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
    """When a run that has no holder yet is due for the first time, and how it is queued.

    No signal makes the run due before; to claim it by its name starts it.

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
    """Which runs `Store.list` returns; a run has to satisfy all that is given.

    Attributes:
        agent: The name of their agent.
        state: The state of their last suspension.
        ended: They have ended (True), or have not (False).
        failed: They have ended in a failure (True), or have not (False).
        asked: They have open questions.
        waiting_for: They have an open question of this kind, such as ``"approval"``, ``"answer"`` or ``"stuck"``.
        due_before: They are due before this Unix time, with or without a holder.
        changed_before: They have changed last before this Unix time.
        changed_after: They have changed last at this Unix time or after it.
        text: Their name or title contains this, in whatever case.
        prefix: Their name begins with this.
        service: The name of their service, as in `Start`.
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
    """Runs, and where the next ones begin.

    Attributes:
        next: For `Store.list(after=…)`; None: these are the last.

    Examples:
        >>> page = MemoryStore().list(limit=10)
        >>> page, page.next
        ([], None)
    """

    next: str | None = None


class RunCount(Value, frozen=True, kw_only=True):
    """How many runs of an agent are in a state, and wait for the same.

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
    """How the runs of a store are.

    Attributes:
        due: How many wait for a driver: due, and without a holder.
        oldest_due_s: For how many seconds the one that is due longest has been so; 0.0: none is due.
        held: How many have a holder.
        asked: How many have open questions, as `Store.list` finds with ``asked=True``.
        stuck: How many of these cannot be driven by the code that there was.

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
        is_volatile: True if nothing outlives the OS process, and no method waits for a disk or a server.

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
        start: Start | None = None,
    ) -> Lease | bool:
        """Create a run, which is due at once; with a holder, claim it in the same commit, before a worker can.

        What is returned is on disk; but a lease, as that of `claim`, may be so with its first entry only.

        Args:
            run: The name of the run: any string but the empty one.
            header: The first line of its journal.
            agent: The name of the agent that can drive it; see `claim`.
            title: What it is about, in a few words, for people.
            follows: The head of a conversation as it was read; the run becomes its next head in the same commit.
            holder: The name of the holder of the new run; None: it has none.
            for_s: How many seconds the lease lasts.
            start: When the run is due, and its priority; None: at once, with priority 0.  Not with a holder.

        Returns:
            The lease, or True without a holder.  False if the run exists already with the same header; it is not
            claimed then, and stays as it is.

        Raises:
            RunExists: The run exists with another header.
            Conflict: The conversation has moved on.  Nothing is written.
            RunUnknown: A run of ``start.after`` does not exist.  Nothing is written.
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
        """Take the lease of a run; each claim raises its fence, also one by the same holder.

        An ended run can be claimed by its name only.  It is never due, not even when that lease has expired.

        Args:
            holder: The name of the holder.
            for_s: How many seconds the lease lasts; a finite number.
            run: The name of the run; None: the run without a holder of the highest priority that has been due longest.
            agents: With ``run=None``: only runs of these agents; empty: of all agents.
            now_s: Unix time at which runs have to be due; None: now.
            fingerprints: With ``run=None``: only runs that were begun by code with one of these fingerprints, as their
                headers have them; None: by any code.

        Returns:
            The lease; None if ``run`` is None and no run is due.

        Raises:
            RunUnknown: The run does not exist.
            RunBusy: The run has a holder, which may be this one.
        """

    def renew(self, lease: Lease, *, for_s: float) -> int:
        """Extend a lease to ``for_s`` seconds from now; return the number of pending signals.

        Raises:
            LeaseLost: The lease was superseded by another claim or given back, or the run was deleted.
        """

    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        """`renew` many leases in one commit; return what it returns or raises for each, in their order."""

    def pending_signals(self, names: Sequence[str]) -> Collection[str]:
        """Return those of these runs that have pending signals, by name."""

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
        """Add entries after the first ``n``, all or nothing; they are on disk when this returns.

        Without a suspension, the lease and the questions stay.  A suspension gives the lease back in the same commit,
        and its questions replace the open ones.  A question whose key is open already stays as it is, answered or not.
        A question whose answer was used up, in this append or before, is asked again.

        A run with pending signals is due whatever the suspension says, unless it has ended or waits for other signals.
        An ended run is never due.  Entries reset `Lease.tries`, and so does a suspension that is neither due at once
        nor in vain.

        A repeated append changes nothing if no other claim came in between.  It has the same lease, the same ``n`` and
        the same lines, and a suspension exactly if the first had one.

        Args:
            lease: The lease.
            n: The number of the last entry.
            lines: The new entries; may be empty.
            suspension: The state in which the run is given back; None: the holder keeps it.
            took: Ids of signals that are used up.
            snapshot: The compressed record after these entries; it replaces the snapshot before.

        Returns:
            The number of pending signals.

        Raises:
            LeaseLost: The lease was superseded or given back, or other entries follow the first ``n``.  Nothing is
                written.
        """

    def ask(self, lease: Lease, questions: Sequence[Question]) -> None:
        """Make questions the open ones of a run that keeps its holder, so that they can be answered meanwhile.

        They are kept as those of a suspension are.  The lease stays, and nothing else of the run changes.

        Args:
            lease: The lease.
            questions: All open questions.

        Raises:
            LeaseLost: The lease was superseded or given back.
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
        """Append without blocking; the work of many threads becomes one commit.  See `append`."""

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        """Return a run with its entries and pending signals.

        Args:
            run: The name of the run.
            after: The number of the entry after which the lines begin; None: that of the snapshot.

        Raises:
            RunUnknown: The run does not exist.
        """

    def signal(self, run: str, key: str, body: str, *, by: str = "", signal_id: str = "", content: str = "") -> None:
        """Add a signal to a run, which becomes due at once if that wakes it.

        Args:
            run: The name of the run.
            key: The key of the open question that the signal answers; empty: it answers none.
            body: The text of the signal.
            by: Who posts it, for people.
            signal_id: A signal of an id is made once in the life of the run: to repeat it changes nothing, and raises
                none of the errors below.  Empty: it has none.
            content: What a repeated post has to have in common with the first; empty: the body.

        Raises:
            RunUnknown: The run does not exist.
            NotAsked: The run has no such open question, or has ended.
            AlreadyAnswered: The question was answered before.
            SignalExists: The run has a signal of this id with another content.
        """

    def signalled(self, run: str, signal_id: str) -> str | None:
        """Return the content of the signal of this id, whether or not it was used up; None: no signal has it.

        Raises:
            RunUnknown: The run does not exist.
        """

    def get(self, run: str) -> Run:
        """Return the row of a run; neither its journal nor its snapshot is read.

        Raises:
            RunUnknown: The run does not exist.
        """

    def list(self, *, after: str | None = None, limit: int = 100, **which: Unpack[RunFilter]) -> Page:
        """Return a page of runs, the last changed first.

        A page costs as much as it has runs, however many the store has; but `RunFilter.prefix` and `RunFilter.service`
        look at all runs that have them, `RunFilter.due_before` looks at all runs, and `RunFilter.text` at so many that
        a page may be short, or empty, although there is a next one.  A run that changes meanwhile comes to the front,
        so that later pages do not have it.

        Args:
            after: The `Page.next` of the page before; None: the first page.
            limit: The largest number of runs to return.
            which: Those of `RunFilter`.
        """

    def stats(self) -> builtins.list[RunCount]:
        """Return how many runs there are, by agent, state and what they wait for; it looks at all runs."""

    def health(self) -> RunsHealth:
        """Return how the runs are; it counts those that are due, held or asked, whatever number has ended."""

    def head(self, conversation: str) -> Head:
        """Return the head of a conversation; its version is 0 if it has no runs."""

    def delete(self, run: str) -> None:
        """Delete a run with its journal, signals and questions; a conversation keeps its head.

        Runs that are to start after it start as if it had ended.

        Raises:
            RunUnknown: The run does not exist.
            RunBusy: The run has a holder.
        """

    def wait(self, timeout_s: float) -> None:
        """Wait until a run may be due, for at most ``timeout_s`` seconds; may return earlier for no reason."""

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        """Wait until a run may have been given back, for at most ``timeout_s`` seconds.

        It may return earlier for no reason, and not hear of what others do: who waits for a run looks now and then.

        Args:
            seen: What the call before returned, so that nothing in between is missed; -1: return at once.
            timeout_s: How long to wait.

        Returns:
            A number that is another after each suspension.
        """

    def close(self) -> None:
        """Close files and connections; safe to repeat.

        Submitted work is finished first.  After that, methods that read or write raise a `StoreError`, unless the store
        is volatile.  Leases of this store expire at their time, or at once where other stores can tell that it closed.
        """
