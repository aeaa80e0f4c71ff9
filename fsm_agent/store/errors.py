"""The errors that stores raise, with their details as attributes.

```
StoreError                     the store could not perform an operation
├── RunUnknown, RunExists      the run does not exist; the name is taken by another run
├── RunBusy, LeaseLost         another holder has the run; another holder has claimed it since
├── NotAsked, AlreadyAnswered  the question is not open; it was answered before
├── SignalExists               another signal was sent under the same id
├── Conflict                   the conversation has moved on, or its newest turn has not ended
├── ReadOnly                   the store was opened for reading only
└── StoreClosed                the store was closed
```
"""

from __future__ import annotations

from fsm_agent._internal.text import format_moment
from fsm_agent.errors import FsmAgentError


class StoreError(FsmAgentError):
    """A store could not perform an operation.

    Nothing was changed unless the message says that the failure may have happened after the write.

    Examples:
        >>> try:
        ...     SqliteStore("no/such/folder/runs.db")
        ... except StoreError:
        ...     print("it cannot be opened")
        it cannot be opened
    """


class RunUnknown(StoreError):
    """The run does not exist.

    Examples:
        >>> try:
        ...     Agent(Script(), name="host", store=MemoryStore()).runs.resume("r9")
        ... except RunUnknown:
        ...     print("it is not in this store")
        it is not in this store
    """


class RunExists(StoreError):
    """Another run already has this name.

    Examples:
        >>> agent = Agent(Script("Hi."), name="host", store=MemoryStore())
        >>> _ = agent.call("Hello", run_id="r1")
        >>> try:
        ...     agent.call("Something else", run_id="r1")
        ... except RunExists:
        ...     print("the name is taken")
        the name is taken
    """


class RunBusy(StoreError):
    """Another holder is driving the run.

    Args:
        run: The name of the run.
        holder: The name of the run's holder.
        since_s: The Unix time at which the holder claimed the run.
        until_s: The Unix time at which the lease ends, unless it is renewed.

    Attributes:
        is_answered: Whether the answers in the request were posted.  If so, they will reach the holder; do not pass
            them again.

    Examples:
        >>> RunBusy("refund-17", "host:42", since_s=0.0, until_s=15.0).holder
        'host:42'
    """

    def __init__(self, run: str, holder: str, since_s: float, until_s: float) -> None:
        super().__init__(run, holder, since_s, until_s)
        self.run, self.holder, self.since_s, self.until_s = run, holder, since_s, until_s
        self.is_answered = False

    def __str__(self) -> str:
        until = format_moment(self.until_s)
        posted = "; the answers were posted and will reach it, so do not give them again" if self.is_answered else ""
        busy = f"the run {self.run!r} is driven by {self.holder!r}; its lease lasts until {until} and may be renewed;"
        busy += f" call runs.get({self.run!r}).result() to wait for it"
        return busy + posted


class LeaseLost(StoreError):
    """Another claim has superseded the run's lease, or the entries do not follow the last stored entry.

    Examples:
        >>> store = MemoryStore()
        >>> _ = store.create("r1", "header", agent="host")
        >>> lease = store.claim("one", for_s=0.0, run="r1")
        >>> _ = store.claim("another", for_s=60.0, run="r1")
        >>> try:
        ...     store.append(lease, 0, ["entry"])
        ... except LeaseLost:
        ...     print(store.get("r1").holder)
        another
    """


class NotAsked(StoreError):
    """The run has no such open question.

    Examples:
        >>> agent = Agent(Script("Hi."), name="host", store=MemoryStore())
        >>> _ = agent.call("Hello", run_id="r1")
        >>> try:
        ...     agent.runs.all.answer("r1", {"ask:1.0": Approved()})
        ... except NotAsked as error:
        ...     print("it asks nothing")
        it asks nothing
    """


class AlreadyAnswered(StoreError):
    """The question has already been answered.

    Args:
        run: The name of the run.
        key: The key of the question.
        by: The person who answered.
        at_s: The Unix time of the answer.

    Examples:
        >>> AlreadyAnswered("refund-17", "ask:1.0", by="ann", at_s=1_800_000_000.0).by
        'ann'
    """

    def __init__(self, run: str, key: str, by: str, at_s: float) -> None:
        super().__init__(run, key, by, at_s)
        self.run, self.key, self.by, self.at_s = run, key, by, at_s

    def __str__(self) -> str:
        by = f" by {self.by!r}" if self.by else ""
        return f"the question {self.key!r} of the run {self.run!r} was answered{by} at {format_moment(self.at_s)}"


class SignalExists(StoreError):
    """The run already has a different signal with this id.

    Args:
        run: The name of the run.
        signal_id: The id.

    Examples:
        >>> SignalExists("order-17", "payment-3").signal_id
        'payment-3'
    """

    def __init__(self, run: str, signal_id: str) -> None:
        super().__init__(run, signal_id)
        self.run, self.signal_id = run, signal_id

    def __str__(self) -> str:
        return (
            f"signal_id={self.signal_id!r}: the run {self.run!r} already has a signal with this id and other content;"
            " use a new id for each signal, and repeat an id only to repeat its signal"
        )


class Conflict(StoreError):
    """The next turn of a conversation could not begin.

    Either the conversation has moved on, or its newest turn has not ended.

    Args:
        conversation: The name of the conversation.
        run: The name of its newest run.
        what: Why no turn can begin yet and what to do about it, or an empty string if the conversation has moved on.

    Examples:
        >>> Conflict("customer-17", "run-2").run
        'run-2'
    """

    def __init__(self, conversation: str, run: str, what: str = "") -> None:
        super().__init__(conversation, run, what)
        self.conversation, self.run, self.what = conversation, run, what

    def __str__(self) -> str:
        if self.what:
            return f"the conversation {self.conversation!r} cannot continue yet: {self.what}"
        return (
            f"the conversation {self.conversation!r} has moved on, so this turn was not begun: its newest run is"
            f" {self.run!r}; call again to follow that run"
        )


class ReadOnly(StoreError):
    """The store is open for reading only.

    Args:
        store: The store's path or address, without a password.

    Examples:
        >>> Agent(Script("Hi."), name="host", store=(runs := Runs("runs.db"))).call("Hello", run_id="r1").output
        'Hi.'
        >>> try:
        ...     Runs("runs.db", read_only=True).prune(keep=0)
        ... except ReadOnly:
        ...     print(len(runs.store.list()))
        1
    """

    def __init__(self, store: str) -> None:
        super().__init__(store)
        self.store = store

    def __str__(self) -> str:
        return f"the store {self.store!r} is open for reading only; open it without read_only to write"


class StoreClosed(StoreError):
    """The store is closed for good.  To continue, open another `Store` with the same runs.

    Args:
        store: The store's path or address, without a password.

    Examples:
        >>> runs = Runs("runs.db")
        >>> runs.close()
        >>> try:
        ...     runs.store.list()
        ... except StoreClosed:
        ...     print("it is closed")
        it is closed
    """

    def __init__(self, store: str) -> None:
        super().__init__(store)
        self.store = store

    def __str__(self) -> str:
        return f"the store {self.store!r} is closed"
