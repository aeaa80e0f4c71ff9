"""A store's SQL statements.  Each function reads or writes runs in the caller's transaction.

In Postgres, a statement sees only what was committed before it began.  Each change to a run therefore first changes or
locks the run's row in a separate statement, and then reads.  Otherwise, a signal and a suspension at the same moment
could miss each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from fsm_agent._internal.structs import from_json
from fsm_agent.errors import hint
from fsm_agent.messages.events import Question
from fsm_agent.store import checks
from fsm_agent.store.errors import AlreadyAnswered, Conflict, LeaseLost, NotAsked, RunBusy, RunExists, StoreError
from fsm_agent.store.listing import ALL, KINDS, STUCK, Group, RunQuery, behind, kinds_in
from fsm_agent.store.store import (
    FIRST_FENCE,
    Head,
    Lease,
    Loaded,
    Page,
    Run,
    RunCount,
    RunsHealth,
    Signal,
    Start,
    Suspension,
)

_ROW = (
    "key, id, agent, n, state, is_ended, due, holder, until, created, touched, title, is_failed, asks, priority,"
    " service"
)
_GROUP = ("agent", "is_failed", "is_ended", "asks", "state")
_LEASED = "id = :id AND fence = :fence AND since = :since AND holder = :holder AND until IS NOT NULL"
_GIVEN_BACK = (
    ", state = :state, is_ended = :is_ended, is_failed = :is_failed, wakes_on = :wakes_on, due = :due, wake = :wake,"
    " until = NULL, given_back = :before, asks = '', updated = :now"
)
_MOST_VALUES = 500  # values in one statement
_MOST_GROUPS = 100  # groups in one statement
# The agents and priorities of runs that are due or will be.  Each is found by one step in the index.
_AGENTS = """
WITH RECURSIVE agents (agent) AS (
    SELECT min(agent) FROM run WHERE wake IS NOT NULL
    UNION ALL
    SELECT (SELECT min(r.agent) FROM run r WHERE r.agent > agents.agent AND r.wake IS NOT NULL) FROM agents
    WHERE agent IS NOT NULL)"""
_QUEUES = """, queue (agent, priority) AS (
    SELECT agent, (SELECT max(r.priority) FROM run r WHERE r.agent = agents.agent AND r.wake IS NOT NULL) FROM agents
    WHERE agent IS NOT NULL
    UNION ALL
    SELECT agent, (SELECT max(r.priority) FROM run r
        WHERE r.agent = queue.agent AND r.priority < queue.priority AND r.wake IS NOT NULL)
    FROM queue WHERE priority IS NOT NULL)"""
_OF_QUEUE = "FROM run r WHERE r.agent = queue.agent AND r.priority = queue.priority AND r.wake"
# The first run of each group.  Each is found by one step in the index, after the last run of the previous group.
# SQLite only uses the index if the columns are compared with expressions that are not columns.
_GROUPS = """
WITH RECURSIVE first (key) AS (
    SELECT * FROM (SELECT key FROM run WHERE until IS NULL
        ORDER BY agent, is_failed, is_ended, asks, state, updated, key LIMIT 1) AS one
    UNION ALL
    SELECT (SELECT r.key FROM run r
        WHERE r.until IS NULL AND (r.agent, r.is_failed, r.is_ended, r.asks, r.state, r.updated) > (
            coalesce(this.agent, ''), coalesce(this.is_failed, false), coalesce(this.is_ended, false),
            coalesce(this.asks, ''), coalesce(this.state, ''), 1e300
        ) ORDER BY r.agent, r.is_failed, r.is_ended, r.asks, r.state, r.updated, r.key LIMIT 1)
    FROM first JOIN run this ON this.key = first.key)
SELECT agent, is_failed, is_ended, asks, state FROM first JOIN run ON run.key = first.key"""


class Sql(Protocol):
    """A transaction.  Call it with a statement and named values to get the rows.

    Attributes:
        now_s: The Unix time at the beginning of the transaction, by the store's clock.
        types: The SQL for types and kinds of tables.
        for_update: The clause that locks the rows that a statement reads.
        skip_locked: Like ``for_update``, but skips rows that others have locked.
        is_store: A statement that returns a row if the tables of a store exist.
        is_taken: A statement that returns a row if other tables exist.
    """

    now_s: float
    types: Mapping[str, str]
    for_update: str
    skip_locked: str
    is_store: str
    is_taken: str

    def __call__(self, statement: str, /, **values: Any) -> list[Any]: ...

    def many(self, statement: str, rows: Sequence[Mapping[str, Any]], /) -> object:
        """Execute a statement once for each set of values."""

    def tell(self, run: str, due_s: float) -> None:
        """Announce that a run is due, with effect once the transaction is committed."""

    def tell_rest(self) -> None:
        """Announce that a run was released, with effect once the transaction is committed."""


class NewRun(NamedTuple):
    """The arguments of `Store.create`."""

    run: str
    header: str
    agent: str
    title: str
    follows: Head | None
    lines: Sequence[str]
    start: Start


class Taker(NamedTuple):
    """The holder of a new lease."""

    holder: str
    for_s: float
    instance: str  # the instance whose death ends the lease; empty if there is none


class Append(NamedTuple):
    """The arguments to `Store.append`, with a due time that is not negative."""

    lease: Lease
    n: int
    lines: Sequence[str]
    suspension: Suspension | None
    took: Sequence[int]
    snapshot: bytes | None


# Beginnings and ends


def create(c: Sql, new: NewRun, taker: Taker | None) -> Lease | float | None:
    """Create a run, unless it already exists with this header.

    Returns:
        The run's lease or, if there is no holder, the Unix time at which the run is due (infinity if other runs must
        end first), or None if the run already exists.
    """
    due_s, until_s = new.start.due_s, None if taker is None else c.now_s + taker.for_s
    row = {
        **{"id": new.run, "agent": new.agent, "n": len(new.lines), "state": "", "is_ended": False, "is_failed": False},
        **{"asks": "", "due": due_s, "wake": until_s or due_s or c.now_s, "pending": 0, "priority": new.start.priority},
        **{"wakes_on": checks.UNTIL_DUE if due_s else None, "tries": 0 if taker is None or new.lines else 1},
        **{"fence": 0 if taker is None else FIRST_FENCE, "since": 0.0 if taker is None else c.now_s, "until": until_s},
        **{"holder": "" if taker is None else taker.holder, "instance": "" if taker is None else taker.instance},
        **{"given_back": -1, "created": c.now_s, "updated": c.now_s, "touched": c.now_s, "title": new.title},
        **{"service": new.start.service, "fingerprint": checks.fingerprint_in(new.header)},
    }
    made = _insert(c, "run", row, " ON CONFLICT DO NOTHING RETURNING key")
    if not made:
        there = c("SELECT line FROM run JOIN journal ON place = key << 32 WHERE id = :id", id=new.run)
        if not there or there[0][0] != new.header:
            raise RunExists(
                f"the run {new.run!r} already exists and began differently; choose another name, or call"
                f" runs.resume({new.run!r}) to continue that run"
            )
        return None
    [[key]] = made
    _write_lines(c, key, 0, [new.header, *new.lines])
    if new.follows is not None:
        _follow(c, new.follows, new.run)
    if taker is not None and until_s is not None:
        return Lease(new.run, new.agent, taker.holder, FIRST_FENCE, c.now_s, until_s, len(new.lines), 1)
    is_awaiting = _await(c, key, new.run, new.start) if new.start.after else False
    return math.inf if is_awaiting else due_s or c.now_s


def _follow(c: Sql, head_before: Head, run: str) -> None:
    """Make a run the next head of a conversation.  If another run has followed the same head, raise `Conflict`."""
    moved = "INSERT INTO conversation VALUES (:name, 1, :run) ON CONFLICT DO NOTHING RETURNING version"
    values: dict[str, Any] = {"name": head_before.conversation, "run": run}
    if head_before.version:
        moved = "UPDATE conversation SET version = version + 1, run = :run WHERE name = :name AND version = :version"
        moved += " AND run = :head RETURNING version"
        values |= {"version": head_before.version, "head": head_before.run}
    if not c(moved, **values):
        raise Conflict(head_before.conversation, head(c, head_before.conversation).run)


def _await(c: Sql, key: int, run: str, start: Start) -> bool:
    """Make a new run wait for the runs in ``start.after``, and return whether any of them has not ended."""
    awaited = set[int]()
    for name in sorted({*start.after}):  # locked, so that none of them ends before this is committed
        found = c(f"SELECT key, is_ended FROM run WHERE id = :id {c.for_update}", id=name)
        if not found or name == run:
            raise checks.unknown_run(name)
        awaited |= {before for before, is_ended in found if not is_ended}
    if awaited:
        c(
            "UPDATE run SET due = NULL, wake = NULL, wakes_on = :wakes_on WHERE key = :key",
            wakes_on=checks.UNTIL_DUE,
            key=key,
        )
        rows = [{"before": before, "run": key, "due": start.due_s} for before in awaited]
        c.many("INSERT INTO predecessor VALUES (:before, :run, :due)", rows)
    return bool(awaited)


def end(c: Sql, key: int) -> list[tuple[str, float]]:
    """Set the due times of the runs that waited only for this run to end, and return both."""
    found: list[tuple[str, float]] = []
    for run, due_s in c("SELECT run, due FROM predecessor WHERE before = :key ORDER BY run", key=key):
        # If two runs end at the same time, the second waits here until the first is committed, and sees it below.
        c(f"SELECT 1 FROM run WHERE key = :run {c.for_update}", run=run)
        c("DELETE FROM predecessor WHERE before = :key AND run = :run", key=key, run=run)
        found += c(
            "UPDATE run SET due = :due, wake = :wake WHERE key = :run AND fence = 0"
            " AND NOT EXISTS (SELECT 1 FROM predecessor WHERE run = :run) RETURNING id, wake",
            **{"due": due_s, "wake": due_s or c.now_s, "run": run},
        )
    return found


def delete(c: Sql, key: int) -> None:
    """Delete a locked run."""
    first = key << 32
    c("DELETE FROM journal WHERE place BETWEEN :first AND :last", first=first, last=first + 0xFFFFFFFF)
    for table in ("snapshot", "question", "signal", "signalled", "predecessor"):
        c(f"DELETE FROM {table} WHERE run = :run", run=key)
    c("DELETE FROM run WHERE key = :key", key=key)


# Leases


def find(c: Sql, agents: Sequence[str], fingerprints: Sequence[str] | None, due_s: float) -> int | None:
    """Lock the next run to be claimed and return its key, or return None if no unlocked run is due.

    Args:
        c: The transaction.
        agents: The agents whose runs may be found; empty for all.
        fingerprints: The fingerprints of the code that must have begun the runs; None for any.
        due_s: Unix time at which runs without a holder must be due.
    """
    chosen, values = "", {"latest": max(due_s, c.now_s), "due": due_s, "now": c.now_s}
    if fingerprints is not None:
        if not fingerprints:
            return None
        names, some = _listed("fingerprint", fingerprints)
        chosen, values = f" AND r.fingerprint IN {names}", {**values, **some}
    is_due = f"<= :latest AND r.wake <= CASE WHEN r.until IS NULL AND r.due > 0 THEN :due ELSE :now END{chosen}"
    begin, named = _agents(agents)
    since = f"(SELECT min(r.wake) {_OF_QUEUE} {is_due})"
    queues = c(f"{begin}{_QUEUES} SELECT agent, priority, {since} FROM queue", **values, **named)
    found = sorted([(-priority, wake_s, agent) for agent, priority, wake_s in queues if wake_s is not None])
    first = f"SELECT r.key FROM run r WHERE r.agent = :agent AND r.priority = :priority AND r.wake {is_due}"
    for lowness, _, agent in found:
        rows = c(f"{first} ORDER BY r.wake, r.key LIMIT 1 {c.skip_locked}", **values, agent=agent, priority=-lowness)
        if rows:
            return int(rows[0][0])
    return None


def _agents(names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the beginning of a statement about these agents (or all agents), together with its values."""
    if not names:
        return _AGENTS, {}
    values = {f"agent{number}": name for number, name in enumerate(dict.fromkeys(names))}
    return f"WITH RECURSIVE agents (agent) AS (VALUES {', '.join([f'(:{name})' for name in values])})", values


def take(c: Sql, key: int, taker: Taker) -> Lease:
    """Take the lease of a locked run."""
    until_s = c.now_s + taker.for_s
    [[run, agent, fence, n, tries]] = c(
        "UPDATE run SET fence = fence + 1, tries = tries + 1, holder = :holder, instance = :instance, since = :now,"
        " until = :until, due = CASE WHEN is_ended THEN NULL ELSE 0.0 END,"
        " wake = CASE WHEN is_ended THEN NULL ELSE :until END WHERE key = :key RETURNING id, agent, fence, n, tries",
        **{"holder": taker.holder, "instance": taker.instance, "now": c.now_s, "until": until_s, "key": key},
    )
    return Lease(run, agent, taker.holder, fence, c.now_s, until_s, n, tries)


def lock_free(c: Sql, run: str) -> int:
    """Lock a run and return its key, or raise if the run does not exist or has a holder."""
    found = c(f"SELECT key, holder, since, until FROM run WHERE id = :id {c.for_update}", id=run)
    if not found:
        raise checks.unknown_run(run)
    key, holder, since_s, until_s = found[0]
    if until_s is not None and until_s > c.now_s:
        raise RunBusy(run, holder, since_s, until_s)
    return int(key)


def instances(c: Sql) -> list[str]:
    """Return the instances with unexpired leases."""
    held = "SELECT DISTINCT instance FROM run WHERE instance <> '' AND until IS NOT NULL AND until > :now"
    return [instance for (instance,) in c(held, now=c.now_s)]


def has_leases(c: Sql, instance: str) -> bool:
    """Return whether an instance has leases, expired or not, on runs that have not ended."""
    held = "SELECT 1 FROM run WHERE instance = :instance AND until IS NOT NULL AND NOT is_ended LIMIT 1"
    return bool(c(held, instance=instance))


def end_leases(c: Sql, dead: Collection[str]) -> None:
    """End the leases of instances."""
    names, values = _listed("instance", dead)
    c(
        "UPDATE run SET until = :now, wake = CASE WHEN is_ended THEN NULL ELSE :now END"
        f" WHERE instance IN {names} AND until IS NOT NULL AND until > :now",
        now=c.now_s,
        **values,
    )


def renew(c: Sql, leases: Sequence[Lease], until_s: float) -> list[int | LeaseLost]:
    """Extend leases to ``until_s``.

    Return the number of pending signals for each lease, or the error if the lease was lost.
    """
    held, unread_of = {_identity(lease) for lease in leases}, dict[tuple[Any, ...], int]()
    for some, values in _in_parts("id", [lease.run for lease in leases]):
        locked = f"SELECT key, pending, id, fence, since, holder FROM run WHERE id IN {some} AND until IS NOT NULL"
        rows = c(f"{locked} ORDER BY id {c.for_update}", **values)
        found = {key: (unread, tuple(one)) for key, unread, *one in rows if tuple(one) in held}
        unread_of |= {one: unread for unread, one in found.values()}
        for keys, numbers in _in_parts("key", [*found]):
            wake = "CASE WHEN is_ended THEN NULL ELSE :until END"
            c(f"UPDATE run SET until = :until, wake = {wake} WHERE key IN {keys}", until=until_s, **numbers)
    return [unread_of.get(_identity(lease), checks.lost_lease(lease)) for lease in leases]


def _identity(lease: Lease) -> tuple[Any, ...]:
    return lease.run, lease.fence, lease.since_s, lease.holder


def pending_signals(c: Sql, names: Sequence[str]) -> set[str]:
    """Return the runs, among those given, that have pending signals."""
    found = set[str]()
    for some, values in _in_parts("id", names):
        found |= {run for (run,) in c(f"SELECT id FROM run WHERE id IN {some} AND pending > 0", **values)}
    return found


def next_wake_s(c: Sql, agents: Sequence[str], after_s: float) -> float | None:
    """Return the first Unix time after ``after_s`` at which a run of these agents becomes due without a signal."""
    begin, named = _agents(agents)
    wake = f"(SELECT min(r.wake) {_OF_QUEUE} > :after)"
    [[wake_s]] = c(f"{begin}{_QUEUES} SELECT min({wake}) FROM queue", after=after_s, **named)
    return None if wake_s is None else float(wake_s)


# Entries, questions and signals


def append(c: Sql, new: Append) -> tuple[int, int, bool]:
    """Add entries and, if there is a suspension, release the lease.

    Returns:
        The key of the run, the number of pending signals, and whether the append was new.
    """
    lease, suspension, n = new.lease, new.suspension, new.n + len(new.lines)
    if not 0 <= new.n < 1 << 32:  # no run has so many entries, and Postgres columns hold no larger numbers
        raise checks.misplaced_entries(lease, new.n, lease.n)
    changed = "" if suspension is None and not new.lines else ", touched = :now"
    if new.lines or (suspension is not None and not _is_in_vain(suspension)):
        changed += ", tries = 0"
    values = {**_lease_values(lease), "n": n, "before": new.n, "now": c.now_s}
    if suspension is not None:
        changed += _GIVEN_BACK
        due_s = None if suspension.is_ended else suspension.due_s
        values |= {"state": suspension.state, "is_ended": suspension.is_ended, "is_failed": suspension.is_failed}
        values |= {"wakes_on": suspension.wakes_on, "due": due_s, "wake": c.now_s if due_s == 0.0 else due_s}
    made = c(f"UPDATE run SET n = :n{changed} WHERE {_LEASED} AND n = :before RETURNING key, pending", **values)
    if not made:
        return *_repeated(c, new, n), False
    [[key, count]] = made
    if new.lines:
        _write_lines(c, key, new.n + 1, new.lines)
    if new.took:
        for some, values in _in_parts("id", new.took):
            count -= len(c(f"DELETE FROM signal WHERE run = :run AND id IN {some} RETURNING id", run=key, **values))
        c("UPDATE run SET pending = :pending WHERE key = :key", pending=count, key=key)
    if new.snapshot is not None:
        c(
            "INSERT INTO snapshot VALUES (:run, :n, :record)"
            " ON CONFLICT (run) DO UPDATE SET n = excluded.n, record = excluded.record",
            **{"run": key, "n": n, "record": new.snapshot},
        )
    if suspension is not None:
        _ask_at_rest(c, key, suspension, count)
    return key, count, True


def _is_in_vain(suspension: Suspension) -> bool:
    return suspension.due_s == 0.0 if suspension.is_in_vain is None else suspension.is_in_vain


def _repeated(c: Sql, new: Append, end_n: int) -> tuple[int, int]:
    """Return the run's key and number of pending signals if this is a repeated append; otherwise raise `LeaseLost`."""
    lease, lines = new.lease, tuple(new.lines)
    leased = _LEASED.removesuffix(" AND until IS NOT NULL")
    found = c(f"SELECT key, n, pending, until, given_back FROM run WHERE {leased}", **_lease_values(lease))
    if not found:
        raise checks.lost_lease(lease)
    [[key, there, count, until_s, returned]] = found
    if new.suspension is None:
        is_next = until_s is not None and bool(lines) and new.n >= lease.n and end_n <= there
    else:
        is_next = until_s is None and new.n == returned and end_n == there
    if is_next and _lines(c, key, new.n, end_n) == lines:
        return key, count
    raise checks.lost_lease(lease) if until_s is None else checks.misplaced_entries(lease, new.n, there)


def _ask_at_rest(c: Sql, key: int, suspension: Suspension, count: int) -> None:
    """Replace the questions of a run that was released, and make it due if a pending signal wakes it."""
    asks = _ask(c, key, suspension.questions)
    woken = ""
    is_new = count > suspension.unread and not suspension.is_ended and suspension.due_s != 0.0
    if is_new and _is_woken(c, key, suspension.wakes_on):
        woken = ", due = 0.0, wake = :wake"
    if asks or woken:
        wake_s = min(c.now_s, suspension.due_s or c.now_s)
        c(f"UPDATE run SET asks = :asks{woken} WHERE key = :key", asks=asks, wake=wake_s, key=key)


def _is_woken(c: Sql, key: int, wakes_on: str | None) -> bool:
    return wakes_on is None or bool(
        c("SELECT 1 FROM signal WHERE run = :run AND key = :key LIMIT 1", run=key, key=wakes_on)
    )


def ask(c: Sql, lease: Lease, questions: Sequence[Question]) -> None:
    """Replace the questions of a run that its holder keeps."""
    found = c(f"SELECT key FROM run WHERE {_LEASED} {c.for_update}", **_lease_values(lease))
    if not found:
        raise checks.lost_lease(lease)
    [[key]] = found
    c("UPDATE run SET asks = :asks WHERE key = :key", asks=_ask(c, key, questions), key=key)


def _ask(c: Sql, key: int, questions: Sequence[Question]) -> str:
    """Replace a run's questions, and return the kinds of the open ones.

    An answered question stays until its answer is used up, and can then be asked again.
    """
    asked = {question.key: question for question in reversed(questions)}
    there = c("SELECT key, kind, answered FROM question WHERE run = :run", run=key)
    unread_keys = {name for (name,) in c("SELECT key FROM signal WHERE run = :run", run=key)} if there and asked else ()
    kinds = list[str]()
    for name, kind, answered in there:
        if name in (asked if answered is None else unread_keys):
            asked.pop(name, None)
            kinds += [kind] if answered is None else []
        else:
            c("DELETE FROM question WHERE run = :run AND key = :key", run=key, key=name)
    rows = [
        {
            **{"run": key, "key": question.key, "kind": question.kind, "about": question.about},
            **{"answers": json.dumps(question.answers), "schema": question.schema},
        }
        for question in asked.values()
    ]
    if rows:
        c.many("INSERT INTO question VALUES (:run, :key, :kind, :about, :answers, :schema, '', NULL)", rows)
    return _asks_of(kinds + [question.kind for question in asked.values()])


def _asks_of(kinds: Iterable[str]) -> str:
    """Return the kinds of questions as text for the ``asks`` column."""
    return KINDS.join(sorted({*kinds}))


def signalled(c: Sql, run: str, signal_id: str) -> str | None:
    """Return the content of the signal with this id, or None if there is none."""
    content = "SELECT content FROM run LEFT JOIN signalled s ON s.run = run.key AND s.id = :signal WHERE run.id = :id"
    if not (found := c(content, signal=signal_id, id=run)):
        raise checks.unknown_run(run)
    there: str | None = found[0][0]
    return there


def signal(c: Sql, run: str, name: str, body: str, by: str, signal_id: str, content: str) -> bool:
    """Add a signal to a run, and return whether it makes the run due."""
    found = c(f"SELECT key, is_ended, until IS NOT NULL, wakes_on FROM run WHERE id = :id {c.for_update}", id=run)
    if not found:
        raise checks.unknown_run(run)
    if signal_id and checks.is_repeated_signal(run, signal_id, signalled(c, run, signal_id), content):
        return False
    key, is_ended, is_held, wakes_on = found[0]
    if is_ended:
        raise checks.ended_run(run)
    if name:
        _answer(c, run, key, name, by)
    if signal_id:
        _insert(c, "signalled", {"run": key, "id": signal_id, "content": content})
    _insert(c, "signal", {"run": key, "key": name, "body": body, "sent_by": by, "sent": c.now_s})
    is_waking = bool(is_held) or wakes_on is None or wakes_on == name
    woken = ", due = 0.0" if is_waking else ""
    if is_waking and not is_held:  # a run that is due keeps its place in the queue
        woken += ", wake = CASE WHEN wake < :now THEN wake ELSE :now END"
    c(f"UPDATE run SET pending = pending + 1{woken} WHERE key = :key", key=key, now=c.now_s)
    return is_waking


def _answer(c: Sql, run: str, key: int, name: str, by: str) -> None:
    questions = c("SELECT key, kind, answered_by, answered FROM question WHERE run = :run ORDER BY key", run=key)
    answers = {asked: (answered_by, at_s) for asked, _, answered_by, at_s in questions}
    if name not in answers:
        open_keys = [asked for asked, (_, at_s) in answers.items() if at_s is None]
        raise NotAsked(f"the run {run!r} asks no question {name!r}{hint(name, open_keys)}")
    if answers[name][1] is not None:
        raise AlreadyAnswered(run, name, *answers[name])
    closed = "UPDATE question SET answered_by = :by, answered = :now WHERE run = :run AND key = :key"
    c(closed, by=by, now=c.now_s, run=key, key=name)
    asks = _asks_of([kind for asked, kind, _, at_s in questions if at_s is None and asked != name])
    c("UPDATE run SET asks = :asks WHERE key = :key", asks=asks, key=key)


# Readings


def load(c: Sql, run: str, after: int | None) -> Loaded:
    """Return a run with its entries and signals."""
    row = _row(c, run)
    key, n = row[0], row[3]
    snapshot = c("SELECT n, record FROM snapshot WHERE run = :run", run=key)
    if after is None:
        after = snapshot[0][0] if snapshot else 0
    if not (header := _lines(c, key, -1, 0)):
        raise StoreError(f"the run {run!r} is damaged: its header is missing")
    signals = c("SELECT id, key, body, sent_by, sent FROM signal WHERE run = :run ORDER BY id", run=key)
    return Loaded(
        header=header[0],
        snapshot=(snapshot[0][0], bytes(snapshot[0][1])) if snapshot else None,
        lines=_lines(c, key, after, n) if after < n else (),
        signals=tuple([Signal(*columns) for columns in signals]),
        run=_run(c, row),
    )


def get(c: Sql, run: str) -> Run:
    """Return the row of a run."""
    return _run(c, _row(c, run))


def _row(c: Sql, run: str) -> Sequence[Any]:
    if not (found := c(f"SELECT {_ROW} FROM run WHERE id = :id", id=run)):
        raise checks.unknown_run(run)
    row: Sequence[Any] = found[0]
    return row


def select(c: Sql, asked: RunQuery) -> Page:
    """Return a page of rows, the most recently changed first."""
    rows = _few(c, asked) if asked.is_narrow else _of_groups(c, asked)
    found = sorted([((row[10], row[0]), row) for row in rows if asked.takes_group(_group(row))], reverse=True)
    page, last = Page(), asked.before
    for n, (place, row) in enumerate([one for one in found if one[0] < asked.before] if asked.limit else ()):
        if len(page) == asked.limit or n == asked.looked:
            page.next = f"{last[0]!r}~{last[1]}"
            break
        last = place
        if asked.takes(place[0], row[6], row[1], row[11], row[15]):
            page.append(_run(c, row))
    return page


def _few(c: Sql, asked: RunQuery) -> list[Any]:
    prefix, service, ended = [asked.which.get(name) for name in ("prefix", "service", "ended")]
    where = list[str]()
    # NUL characters may be stored in another form, so look only for the prefix before them here.
    if least := str(prefix or "").rstrip("\0"):
        where += ["id >= :least"] + (["id < :behind"] if behind(least) else [])
    if service:
        where += ["service = :service", "service <> ''"]
    where += [] if ended is None else ["is_ended = :ended"]
    values = {"least": least, "behind": behind(least), "service": service, "ended": ended}
    return c(f"SELECT {_ROW} FROM run{' WHERE ' if where else ''}{' AND '.join(where)}", **values)


def _of_groups(c: Sql, asked: RunQuery) -> list[Any]:
    """Return the first rows in each wanted group, and all rows of runs with a holder."""
    rows = c(f"SELECT {_ROW} FROM run WHERE until IS NOT NULL")
    first_s, end_s = asked.times
    at_s, number = min(asked.before, (end_s, 0))
    due_before = asked.which.get("due_before")
    values: dict[str, Any] = {
        "at": at_s,
        "number": number,
        "first": first_s,
        "limit": 1 + (asked.limit + 1 if asked.looked == ALL else asked.looked),
        "due_before": due_before,
    }
    last = "ORDER BY updated DESC, key DESC LIMIT :limit"
    chosen = [group for group in groups(c) if asked.takes_group(group)]
    for begin in range(0, len(chosen), _MOST_GROUPS):
        some, of_groups = chosen[begin : begin + _MOST_GROUPS], list[str]()
        for i, group in enumerate(some):
            values |= {f"{name}{i}": value for name, value in zip(_GROUP, group, strict=True)}
            of_group = " AND ".join([f"{name} = :{name}{i}" for name in _GROUP])
            of_groups.append(
                f"SELECT * FROM (SELECT updated, key FROM run WHERE until IS NULL AND {of_group}"
                " AND (updated, key) < (:at, :number) AND updated >= :first"
                f"{'' if due_before is None else ' AND due < :due_before'} {last}) AS of_group{i}"
            )
        found = f"SELECT key FROM ({' UNION ALL '.join(of_groups)}) AS found {last}"
        rows += c(f"SELECT {_ROW} FROM run WHERE key IN ({found})", **values)
    return rows


def groups(c: Sql) -> list[Group]:
    """Return the groups of the runs without a holder."""
    return [Group(*row) for row in c(_GROUPS)]


def stats(c: Sql) -> list[RunCount]:
    """Count the runs of each group."""
    group = ", ".join(_GROUP)
    counts = c(f"SELECT {group}, count(*), min(updated) FROM run GROUP BY {group} ORDER BY {group}")
    return [
        RunCount(
            agent=agent,
            state=state,
            is_ended=bool(is_ended),
            is_failed=bool(is_failed),
            waits_for=kinds_in(asks),
            count=count,
            oldest_s=oldest_s,
        )
        for agent, is_failed, is_ended, asks, state, count, oldest_s in counts
    ]


def health(c: Sql) -> RunsHealth:
    """See `Store.health`.  A run whose holder is dead counts as held until a worker looks at it."""
    due, since = (f"(SELECT {what} {_OF_QUEUE} <= :now)" for what in ("count(*)", "min(r.wake)"))
    [[many, since_s]] = c(f"{_AGENTS}{_QUEUES} SELECT sum({due}), min({since}) FROM queue", now=c.now_s)
    held = "SELECT count(*) FROM run WHERE until IS NOT NULL AND until > :now AND NOT is_ended"
    [[held_now]] = c(held, now=c.now_s)
    asked = c("SELECT asks, count(*) FROM run WHERE asks <> '' GROUP BY asks")
    return RunsHealth(
        due=int(many or 0),
        oldest_due_s=0.0 if since_s is None else max(0.0, c.now_s - since_s),
        held=held_now,
        asked=sum([count for _, count in asked]),
        stuck=sum([count for asks, count in asked if STUCK in kinds_in(asks)]),
    )


def head(c: Sql, conversation: str) -> Head:
    """Return the head of a conversation."""
    found = c("SELECT version, run FROM conversation WHERE name = :name", name=conversation)
    return Head(conversation, *found[0]) if found else Head(conversation)


def _insert(c: Sql, table: str, row: Mapping[str, Any], clause: str = "") -> list[Any]:
    values = ", ".join([f":{name}" for name in row])
    return c(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values}){clause}", **row)


def _write_lines(c: Sql, key: int, n: int, lines: Sequence[str]) -> None:
    rows = [{"place": place, "line": line} for place, line in enumerate(lines, (key << 32) + n)]
    c.many("INSERT INTO journal VALUES (:place, :line)", rows)


def _lines(c: Sql, key: int, after: int, end_n: int) -> tuple[str, ...]:
    first = key << 32
    found = "SELECT line FROM journal WHERE place BETWEEN :first AND :last ORDER BY place"
    return tuple([line for (line,) in c(found, first=first + after + 1, last=first + end_n)])


def _questions(c: Sql, key: int) -> tuple[Question, ...]:
    found = c(
        "SELECT key, kind, about, answers, schema FROM question WHERE run = :run AND answered IS NULL ORDER BY key",
        run=key,
    )
    return tuple(
        [Question(name, kind, about, _answers(name, answers), schema) for name, kind, about, answers, schema in found]
    )


def _answers(question: str, text: str) -> tuple[str, ...]:
    try:
        answers: tuple[str, ...] = from_json(text, tuple[str, ...])
    except ValueError as error:
        raise StoreError(f"the question {question!r} is damaged: its answers are {text!r:.80}: {error}") from None
    return answers


def _run(c: Sql, row: Sequence[Any]) -> Run:
    key, run, agent, n, state, is_ended, due_s, holder, until_s, created_s, touched_s, *more = row
    title, is_failed, asks, priority, service = more
    return Run(
        id=run,
        agent=agent,
        n=n,
        state=state,
        is_ended=bool(is_ended),
        due_s=due_s,
        holder=holder if until_s is not None and until_s > c.now_s else None,
        created_s=created_s,
        updated_s=touched_s,
        waits=_questions(c, key) if asks else (),
        title=title,
        is_failed=bool(is_failed),
        priority=priority,
        service=service,
    )


def _group(row: Sequence[Any]) -> Group:
    return Group(row[2], row[12], row[5], row[13], row[4])


def _lease_values(lease: Lease) -> dict[str, Any]:
    return {"id": lease.run, "fence": lease.fence, "since": lease.since_s, "holder": lease.holder}


def _listed(name: str, values: Collection[Any]) -> tuple[str, dict[str, Any]]:
    """Return a list of named values as SQL, and the values by name."""
    named = {f"{name}{number}": value for number, value in enumerate(values)}
    return f"({', '.join([f':{one}' for one in named])})", named


def _in_parts(name: str, values: Sequence[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Divide values into parts that fit into one statement each, and return `_listed` for each part."""
    parts = range(0, len(values), _MOST_VALUES)
    return [_listed(name, values[first : first + _MOST_VALUES]) for first in parts]
