"""The statements of a `SqliteStore`: each function reads or writes runs in the transaction of its caller."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Collection, Iterator, Sequence
from sqlite3 import Connection
from typing import Any, NamedTuple

from fsm_agent._internal.values import from_json
from fsm_agent.messages.question import Question
from fsm_agent.store import checks
from fsm_agent.store.errors import AlreadyAnswered, Conflict, RunBusy, StoreError
from fsm_agent.store.listing import Group, Place, Wanted, behind, health_of, page_of, paged
from fsm_agent.store.store import Head, Lease, Loaded, Page, Post, Rest, Run, RunCount, RunsHealth, Start

# Two runs of an agent and a priority without a holder: the one that has been due at once for longest, and the one whose
# due time came first.
FREE = """
SELECT * FROM (SELECT queued, key FROM run
    WHERE agent = :agent AND priority = :priority AND until IS NULL AND due = 0.0{also} ORDER BY queued, key LIMIT 1)
UNION ALL SELECT * FROM (SELECT due, key FROM run
    WHERE agent = :agent AND priority = :priority AND until IS NULL AND due > 0.0 AND due <= :due_s{also}
    ORDER BY due LIMIT 1)"""
HELD = """
SELECT until, key, agent FROM run
    WHERE instance = :instance AND priority = :priority AND until IS NOT NULL AND due IS NOT NULL
    AND until <= :until_s{also} ORDER BY until"""
CHOSEN = " AND definition IN (SELECT value FROM json_each(:definitions))"
_LASTS = "(until > :now_s AND instance NOT IN (SELECT value FROM json_each(:dead)))"  # the lease
HOLDING = "SELECT DISTINCT instance, priority FROM run WHERE until IS NOT NULL AND due IS NOT NULL"
PRIORITIES = """
WITH RECURSIVE priorities (of) AS (
    SELECT max(priority) FROM run WHERE agent = :agent AND until IS NULL AND due IS NOT NULL
    UNION ALL
    SELECT (SELECT max(priority) FROM run
        WHERE agent = :agent AND priority < of AND until IS NULL AND due IS NOT NULL)
    FROM priorities WHERE of IS NOT NULL)
SELECT of FROM priorities WHERE of IS NOT NULL"""
AGENTS = """
WITH RECURSIVE agents (name) AS (
    SELECT min(agent) FROM run WHERE until IS NULL AND due IS NOT NULL
    UNION ALL
    SELECT (SELECT min(agent) FROM run WHERE agent > name AND until IS NULL AND due IS NOT NULL)
    FROM agents WHERE name IS NOT NULL)
SELECT name FROM agents WHERE name IS NOT NULL"""
_GROUP = ("agent", "is_failed", "is_ended", "asks", "state")
# One after the other, with more and more of the columns free: SQLite finds no place in an index by a row of values.
NEXT_GROUP = " UNION ALL ".join(
    [
        f"SELECT * FROM (SELECT {', '.join(_GROUP)} FROM run"
        f" WHERE {' AND '.join([f'{name} = :{name}' for name in _GROUP[:n]] + [f'{_GROUP[n]} > :{_GROUP[n]}'])}"
        f" ORDER BY {', '.join(_GROUP[n:])} LIMIT 1)"
        for n in reversed(range(len(_GROUP)))
    ]
)
OF_GROUP = """
SELECT updated, key FROM run
    WHERE agent = ? AND is_failed = ? AND is_ended = ? AND asks = ? AND state = ?
    AND (updated, key) < (?, ?) AND updated >= ? ORDER BY updated DESC, key DESC"""
COUNTS = """
SELECT agent, is_failed, is_ended, asks, state, count(*), min(updated) FROM run
    GROUP BY agent, is_failed, is_ended, asks, state"""
DUE_FREE = """
SELECT count(*), min(iif(due = 0.0, queued, due)) FROM run
    WHERE until IS NULL AND due IS NOT NULL AND due <= :now_s"""
DUE_HELD = f"""
SELECT count(*), min(min(until, :now_s)) FROM run
    WHERE until IS NOT NULL AND due IS NOT NULL AND NOT {_LASTS}"""
HOLDERS = f"SELECT count(*) FROM run WHERE until IS NOT NULL AND due IS NOT NULL AND {_LASTS}"
OF_ASKS = """
SELECT count(*) FROM run WHERE agent = ? AND is_failed = ? AND is_ended = ? AND asks = ? AND state = ?"""
NEXT_FREE = """
SELECT min(due) FROM run
    WHERE agent = ? AND priority = ? AND until IS NULL AND due IS NOT NULL AND due > ?"""
NEXT_HELD = """
SELECT min(until) FROM run
    WHERE instance = ? AND priority = ? AND until IS NOT NULL AND due IS NOT NULL AND until > ?"""

_MOST_VALUES = 500  # in one statement
_PLACES = "BETWEEN key << 32 AND (key << 32) + 0xffffffff"  # the places of the lines of a run
_LAST = f"journal ON place = (SELECT max(place) FROM journal WHERE place {_PLACES})"  # to be joined to a run
_N = "place - (key << 32)"
_ROW = (
    f"key, id, agent, {_N}, state, is_ended, due, holder, until, created, max(updated, at), title, is_failed, asks,"
    " priority, service"
)
_ASKS = (  # of the run with this key
    "coalesce((SELECT group_concat(kind, char(10)) FROM (SELECT DISTINCT kind FROM question WHERE run = :key AND"
    " answered IS NULL ORDER BY kind)), '')"
)


class Claim(NamedTuple):
    """The arguments of a claim, with the time and the dead instances."""

    holder: str
    for_s: float
    run: str | None
    agents: tuple[str, ...]
    due_s: float  # Unix time at which runs have to be due
    now_s: float
    dead: frozenset[str]  # instances whose OS process is dead, so that their leases are over
    definitions: tuple[str, ...] | None = None  # fingerprints of the code that began the run; None: any


def create(
    connection: Connection,
    run: str,
    header: str,
    agent: str,
    title: str,
    follows: Head | None,
    start: Start,
    now_s: float,
) -> bool:
    """Create a run; return False if it exists already."""
    old = connection.execute("SELECT line FROM run JOIN journal ON place = key << 32 WHERE id = ?", (run,))
    if (row := old.fetchone()) is not None:
        if row[0] != header:
            raise checks.other_header(run)
        return False
    if follows is not None:
        if (now := head(connection, follows.conversation)) != follows:
            raise Conflict(now.conversation, now.run)
        connection.execute(
            "INSERT OR REPLACE INTO conversation VALUES (?, ?, ?)", (now.conversation, now.version + 1, run)
        )
    awaited = _unended(connection, start.after)
    due_s = None if awaited else start.due_s
    heeds = None if due_s == 0.0 else checks.UNTIL_DUE
    key = connection.execute(
        "INSERT INTO run (id, agent, state, is_ended, due, queued, heeds, unread, fence, tries, holder, instance,"
        " since, given_back, created, updated, priority, service, title, definition)"
        " VALUES (?, ?, '', 0, ?, ?, ?, 0, 0, 0, '', '', 0.0, -1, ?, ?, ?, ?, ?, ?)",
        (
            *(run, agent, due_s, now_s if due_s == 0.0 else due_s, heeds, now_s, now_s),
            *(start.priority, start.service, title),
            checks.definition_in(header),
        ),
    ).lastrowid
    assert key is not None
    connection.execute("INSERT INTO journal VALUES (?, ?, ?)", (key << 32, now_s, header))
    for before in awaited:
        connection.execute("INSERT INTO predecessor VALUES (?, ?, ?)", (before, key, start.due_s))
    return True


def _unended(connection: Connection, runs: Sequence[str]) -> set[int]:
    """Return the keys of those runs that have not ended; raise if one does not exist."""
    found = set[int]()
    for run in runs:
        row = connection.execute("SELECT key, is_ended FROM run WHERE id = ?", (run,)).fetchone()
        if row is None:
            raise checks.unknown_run(run)
        if not row[1]:
            found.add(row[0])
    return found


def _end(connection: Connection, key: int, now_s: float) -> None:
    """Make due the runs that awaited the end of this one alone."""
    after = connection.execute("SELECT run, due FROM predecessor WHERE before = ?", (key,)).fetchall()
    if not after:
        return
    connection.execute("DELETE FROM predecessor WHERE before = ?", (key,))
    connection.executemany(
        "UPDATE run SET due = :due, queued = max(:due, :queued) WHERE key = :run AND fence = 0"
        " AND NOT EXISTS (SELECT 1 FROM predecessor WHERE run = :run)",
        [{"run": run, "due": due_s, "queued": 0.0 if due_s else now_s} for run, due_s in after],
    )


def instances(connection: Connection, run: str | None) -> set[str]:
    """Return the instances that hold leases: all of them, or that of a run."""
    if run is None:
        return {instance for instance, _ in connection.execute(HOLDING)}
    held = connection.execute("SELECT instance FROM run WHERE id = ? AND until IS NOT NULL", (run,))
    return {instance for (instance,) in held}


def has_leases(connection: Connection, instance: str) -> bool:
    """Return whether an instance holds leases."""
    held = "SELECT 1 FROM run WHERE instance = ? AND until IS NOT NULL AND due IS NOT NULL LIMIT 1"
    return connection.execute(held, (instance,)).fetchone() is not None


def find(connection: Connection, claim: Claim) -> int | None:
    """Return the key of the run to claim; None: no run is due."""
    if claim.run is not None:
        return _free(connection, claim.run, claim.now_s, claim.dead)
    found: list[tuple[int, float, int]] = []
    also = "" if claim.definitions is None else CHOSEN
    chosen = {} if claim.definitions is None else {"definitions": json.dumps(claim.definitions)}
    for agent in claim.agents or [name for (name,) in connection.execute(AGENTS)]:
        for (priority,) in connection.execute(PRIORITIES, {"agent": agent}).fetchall():
            queue = {"agent": agent, "priority": priority, "due_s": claim.due_s, **chosen}
            free = connection.execute(FREE.format(also=also), queue)
            due = [(-priority, since_s, key) for since_s, key in free]
            found += due
            if due:
                break
    for instance, priority in connection.execute(HOLDING).fetchall():
        until_s = math.inf if instance in claim.dead else claim.now_s
        queue = {"instance": instance, "priority": priority, "until_s": until_s, **chosen}
        for ended_s, key, agent in connection.execute(HELD.format(also=also), queue):
            if not claim.agents or agent in claim.agents:
                found.append((-priority, min(ended_s, claim.now_s), key))
                break
    return min(found)[2] if found else None


def take(connection: Connection, claim: Claim, instance: str) -> Lease | None:
    """Take the lease of the run that `find` returns; None: no run is due."""
    if (key := find(connection, claim)) is None:
        return None
    until_s = claim.now_s + claim.for_s
    connection.execute(
        "UPDATE run SET fence = fence + 1, tries = tries + 1, holder = ?, instance = ?, since = ?, until = ?,"
        " due = CASE WHEN is_ended THEN NULL ELSE 0.0 END WHERE key = ?",
        (claim.holder, instance, claim.now_s, until_s, key),
    )
    taken = f"SELECT id, agent, fence, {_N}, tries FROM run JOIN {_LAST} WHERE key = ?"
    run, agent, fence, n, tries = connection.execute(taken, (key,)).fetchone()
    return Lease(run, agent, claim.holder, fence, claim.now_s, until_s, n, tries)


def renew(connection: Connection, lease: Lease, until_s: float) -> int:
    """Extend a lease to ``until_s``; return the number of unread posts."""
    renewed = connection.execute(
        "UPDATE run SET until = ? WHERE id = ? AND fence = ? AND since = ? AND holder = ? AND until IS NOT NULL",
        (until_s, lease.run, lease.fence, lease.since_s, lease.holder),
    )
    if not renewed.rowcount:
        raise checks.lost_lease(lease)
    return int(connection.execute("SELECT unread FROM run WHERE id = ?", (lease.run,)).fetchone()[0])


def unread(connection: Connection, names: Sequence[str]) -> set[str]:
    """Return those of these runs that have unread posts."""
    found = set[str]()
    for first in range(0, len(names), _MOST_VALUES):
        some = names[first : first + _MOST_VALUES]
        asked = f"SELECT id FROM run WHERE unread > 0 AND id IN ({', '.join('?' * len(some))})"
        found.update([run for (run,) in connection.execute(asked, tuple(some))])
    return found


def ask(connection: Connection, lease: Lease, questions: Sequence[Question]) -> None:
    """Replace the questions of a run that keeps its holder."""
    row = connection.execute(
        "SELECT key FROM run WHERE id = ? AND fence = ? AND since = ? AND holder = ? AND until IS NOT NULL",
        (lease.run, lease.fence, lease.since_s, lease.holder),
    ).fetchone()
    if row is None:
        raise checks.lost_lease(lease)
    _ask(connection, row[0], questions)
    connection.execute(f"UPDATE run SET asks = {_ASKS} WHERE key = :key", {"key": row[0]})


class Append(NamedTuple):
    """The arguments of `Store.append`; the due time of the rest is not negative."""

    lease: Lease
    n: int
    lines: tuple[str, ...]
    rest: Rest | None
    took: tuple[int, ...]
    snapshot: bytes | None


def append(connection: Connection, new: Append, now_s: float) -> int:
    """Add entries; give the lease back if there is a rest; return the number of unread posts."""
    lease, rest, end = new.lease, new.rest, new.n + len(new.lines)
    row = connection.execute(
        f"SELECT key, {_N}, unread, tries, until, given_back FROM run JOIN {_LAST}"
        " WHERE id = ? AND fence = ? AND since = ? AND holder = ?",
        (lease.run, lease.fence, lease.since_s, lease.holder),
    ).fetchone()
    if row is None:
        raise checks.lost_lease(lease)
    key, there, unread, tries, until_s, returned = row
    if until_s is None or there != new.n:
        if rest is None:
            is_next = until_s is not None and new.lines and new.n >= lease.n and end <= there
        else:
            is_next = until_s is None and new.n == returned and end == there
        if is_next and _lines(connection, key, new.n, end) == new.lines:
            return int(unread)  # a repeated append
        raise checks.lost_lease(lease) if until_s is None else checks.misplaced_entries(lease, new.n, there)
    rows = enumerate(new.lines, (key << 32) + new.n + 1)
    connection.executemany("INSERT INTO journal VALUES (?, ?, ?)", [(row_id, now_s, line) for row_id, line in rows])
    for post_id in new.took:
        unread -= connection.execute("DELETE FROM post WHERE id = ? AND run = ?", (post_id, key)).rowcount
    if new.snapshot is not None:
        connection.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?)", (key, end, new.snapshot))
    if rest is not None:
        _give_back(connection, key, new.n, rest, unread, now_s)
    if new.lines and tries:
        connection.execute("UPDATE run SET tries = 0 WHERE key = ?", (key,))
    if new.took:
        connection.execute("UPDATE run SET unread = ? WHERE key = ?", (unread, key))
    return int(unread)


def _give_back(connection: Connection, key: int, n: int, rest: Rest, unread: int, now_s: float) -> None:
    _ask(connection, key, rest.questions)
    if rest.is_ended:
        due_s = queued_s = None
        _end(connection, key, now_s)
    elif rest.due_s == 0.0 or (unread and _is_woken(connection, key, rest.heeds)):
        due_s, queued_s = 0.0, min(now_s, rest.due_s or now_s)
    else:
        due_s = queued_s = rest.due_s
    asks = _ASKS if rest.questions else "''"
    connection.execute(
        "UPDATE run SET state = :state, is_ended = :is_ended, is_failed = :is_failed, due = :due_s, queued = :queued_s,"
        f" heeds = :heeds, asks = {asks}, until = NULL, given_back = :n, updated = :now_s, tries = tries * :counts"
        " WHERE key = :key",
        {
            **{"state": rest.state, "is_ended": rest.is_ended, "is_failed": rest.is_failed, "heeds": rest.heeds},
            **{"due_s": due_s, "queued_s": queued_s, "n": n, "now_s": now_s, "key": key},
            "counts": rest.due_s == 0.0 or rest.is_in_vain,
        },
    )


def _is_woken(connection: Connection, key: int, heeds: str | None) -> bool:
    """Return whether a run with unread posts heeds one of them."""
    heeded = "SELECT 1 FROM post WHERE run = ? AND key = ?"
    return heeds is None or connection.execute(heeded, (key, heeds)).fetchone() is not None


def _ask(connection: Connection, key: int, questions: Sequence[Question]) -> None:
    """Replace the questions; a question is asked again when its answer was used up."""
    kept = dict[str, bool]()
    asked = {question.key for question in questions}
    is_kept = (
        "SELECT key, answered IS NULL OR EXISTS (SELECT 1 FROM post WHERE post.run = question.run"
        " AND post.key = question.key) FROM question WHERE run = ?"
    )
    for name, is_open_or_unread in connection.execute(is_kept, (key,)).fetchall():
        if name in asked and is_open_or_unread:
            kept[name] = True
        else:
            connection.execute("DELETE FROM question WHERE run = ? AND key = ?", (key, name))
    for question in questions:
        if question.key not in kept:
            kept[question.key] = True
            connection.execute(
                "INSERT INTO question VALUES (?, ?, ?, ?, ?, '', NULL, ?)",
                (key, question.key, question.kind, question.about, json.dumps(question.answers), question.schema),
            )


class NewPost(NamedTuple):
    """The arguments of `Store.post`."""

    run: str
    key: str
    body: str
    by: str
    post_id: str
    content: str


def posted(connection: Connection, run: str, post_id: str) -> str | None:
    """Return the content of the post of an id; None: no post has it."""
    found = "SELECT content FROM run LEFT JOIN posted ON posted.run = run.key AND posted.id = ? WHERE run.id = ?"
    row: tuple[str | None] | None = connection.execute(found, (post_id, run)).fetchone()
    if row is None:
        raise checks.unknown_run(run)
    return row[0]


def post(connection: Connection, new: NewPost, now_s: float) -> None:
    """Add a post to a run."""
    run, key, body, by, post_id, content = new
    found = "SELECT key, is_ended, until IS NOT NULL, heeds FROM run WHERE id = ?"
    row = connection.execute(found, (run,)).fetchone()
    if row is None:
        raise checks.unknown_run(run)
    if post_id and checks.is_repeated_post(run, post_id, posted(connection, run, post_id), content):
        return
    if row[1]:
        raise checks.ended_run(run)
    if key:
        asked = "SELECT answered_by, answered FROM question WHERE run = ? AND key = ?"
        if (answer := connection.execute(asked, (row[0], key)).fetchone()) is None:
            raise checks.unknown_question(run, key, [question.key for question in _questions(connection, row[0])])
        if answer[1] is not None:
            raise AlreadyAnswered(run, key, *answer)
        connection.execute(
            "UPDATE question SET answered_by = ?, answered = ? WHERE run = ? AND key = ?", (by, now_s, row[0], key)
        )
    if post_id:
        connection.execute("INSERT INTO posted VALUES (?, ?, ?)", (row[0], post_id, content))
    connection.execute(
        "INSERT INTO post (run, key, body, posted_by, posted) VALUES (?, ?, ?, ?, ?)", (row[0], key, body, by, now_s)
    )
    answered = f", asks = {_ASKS}" if key else ""
    connection.execute(
        f"UPDATE run SET unread = unread + 1{answered}, due = iif(:is_heeded, 0.0, due),"
        " queued = iif(:is_heeded, min(coalesce(queued, :now_s), :now_s), queued) WHERE key = :key",
        {"key": row[0], "now_s": now_s, "is_heeded": row[2] or row[3] is None or row[3] == key},
    )


def load(connection: Connection, run: str, after: int | None, now_s: float) -> Loaded:
    """Return a run as it is."""
    row = connection.execute(f"SELECT {_ROW} FROM run JOIN {_LAST} WHERE id = ?", (run,)).fetchone()
    if row is None:
        raise checks.unknown_run(run)
    key = row[0]
    snapshot = connection.execute("SELECT n, record FROM snapshot WHERE run = ?", (key,)).fetchone()
    if after is None:
        after = snapshot[0] if snapshot is not None else 0
    if not (header := _lines(connection, key, -1, 0)):
        raise StoreError(f"the run {run!r} is damaged: its header is missing")
    posts = "SELECT id, key, body, posted_by, posted FROM post WHERE run = ? ORDER BY id"
    return Loaded(
        header=header[0],
        snapshot=snapshot,
        lines=_lines(connection, key, after, row[3]),
        posts=tuple([Post(*columns) for columns in connection.execute(posts, (key,))]),
        run=_run(connection, row, now_s),
    )


def get(connection: Connection, run: str, now_s: float) -> Run:
    """Return the row of a run."""
    row = connection.execute(f"SELECT {_ROW} FROM run JOIN {_LAST} WHERE id = ?", (run,)).fetchone()
    if row is None:
        raise checks.unknown_run(run)
    return _run(connection, row, now_s)


def groups(connection: Connection) -> Iterator[Group]:
    """Yield the groups of runs that there are, by one step in an index for each."""
    group = Group("", -1, 0, "", "")  # type: ignore[arg-type]  # before all of them
    while (row := connection.execute(NEXT_GROUP, group._asdict()).fetchone()) is not None:
        yield (group := Group(*row))


def select(connection: Connection, asked: Wanted, now_s: float) -> Page:
    """Return a page of rows, the last changed first."""
    if asked.is_narrow:
        return _select_narrow(connection, asked, now_s)
    held = f"SELECT {_ROW} FROM run JOIN {_LAST} WHERE until IS NOT NULL"  # see `updated`
    rows = {(row[10], row[0]): row for row in connection.execute(held) if asked.takes_group(_group(row))}
    first_s, end_s = asked.times
    before = min(asked.before, (end_s, 0))  # in one comparison: SQLite finds its place in an index by one alone
    chosen = [group for group in groups(connection) if asked.takes_group(group)]
    found = [connection.execute(OF_GROUP, (*group, *before, first_s)) for group in chosen]
    places = heapq.merge(sorted(rows, reverse=True), *found, reverse=True)
    row_of = f"SELECT {_ROW} FROM run JOIN {_LAST} WHERE key = ? AND until IS NULL"

    words_of = "SELECT id, title FROM run WHERE key = ?"

    def wanted_rows() -> Iterator[tuple[Place, Any]]:
        for place in places:
            is_read = not asked.which.get("text") or place in rows
            if not is_read and not asked.has_text(*connection.execute(words_of, (place[1],)).fetchone()):
                yield place, None
                continue
            row = rows.pop(place, None) or connection.execute(row_of, (place[1],)).fetchone()
            if row is None:  # it has a holder, and another place
                continue
            yield place, row if asked.takes(place, row[6], row[1], row[11], row[15]) else None

    page, following = paged(wanted_rows(), asked)
    for cursor in found:
        cursor.close()
    return page_of([_run(connection, row, now_s) for _, row in page], following)


def _select_narrow(connection: Connection, asked: Wanted, now_s: float) -> Page:
    """Return a page of the runs whose names begin alike, or that are of one service."""
    prefix, service, ended = [asked.which.get(name) for name in ("prefix", "service", "ended")]
    which = ["id >= :prefix AND (:behind = '' OR id < :behind)"] if prefix else []
    which += ["service = :service AND service != ''"] if service else []
    which += ["is_ended = :ended"] if ended is not None else []
    found = connection.execute(
        f"SELECT {_ROW} FROM run JOIN {_LAST} WHERE {' AND '.join(which)}",
        {"prefix": prefix, "behind": behind(str(prefix or "")), "service": service, "ended": ended},
    )
    rows = [row for row in found if asked.takes_group(_group(row))]
    rows = [row for row in rows if asked.takes((row[10], row[0]), row[6], row[1], row[11], row[15])]
    rows.sort(key=lambda row: (row[10], row[0]), reverse=True)
    page, following = paged(iter([((row[10], row[0]), row) for row in rows]), asked)
    return page_of([_run(connection, row, now_s) for _, row in page], following)


def stats(connection: Connection) -> list[RunCount]:
    """Return how many runs there are of each group."""
    return [Group(*row[:5]).counted(*row[5:]) for row in connection.execute(COUNTS)]


def health(connection: Connection, now_s: float, dead: Collection[str]) -> RunsHealth:
    """Return how the runs are."""
    leases = {"now_s": now_s, "dead": json.dumps([*dead])}
    [due, since_s] = connection.execute(DUE_FREE, leases).fetchone()
    [left, left_since_s] = connection.execute(DUE_HELD, leases).fetchone()
    [held] = connection.execute(HOLDERS, leases).fetchone()
    asking = [group for group in groups(connection) if group.asks]
    asked = [(group.asks, connection.execute(OF_ASKS, group).fetchone()[0]) for group in asking]
    first_s = min([at_s for at_s in (since_s, left_since_s) if at_s is not None], default=None)
    return health_of(due + left, first_s, held, asked, now_s)


def head(connection: Connection, conversation: str) -> Head:
    """Return the head of a conversation."""
    found = connection.execute("SELECT version, run FROM conversation WHERE name = ?", (conversation,)).fetchone()
    return Head(conversation, *found) if found is not None else Head(conversation)


def delete(connection: Connection, run: str, now_s: float, dead: Collection[str]) -> None:
    """Delete a run without a holder."""
    key = _free(connection, run, now_s, dead)
    _end(connection, key, now_s)
    first = key << 32
    connection.execute("DELETE FROM journal WHERE place BETWEEN ? AND ?", (first, first + 0xFFFFFFFF))
    for table in ("snapshot", "question", "post", "posted", "predecessor"):
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (key,))
    connection.execute("DELETE FROM run WHERE key = ?", (key,))


def next_due_s(
    connection: Connection, agents: Sequence[str], due_s: float, now_s: float
) -> tuple[float | None, float | None]:
    """Return when a run of these agents is due by itself after ``due_s``, and when a lease ends after ``now_s``."""
    free = [
        connection.execute(NEXT_FREE, (agent, priority, due_s)).fetchone()[0]
        for agent in agents or [name for (name,) in connection.execute(AGENTS).fetchall()]
        for (priority,) in connection.execute(PRIORITIES, {"agent": agent}).fetchall()
    ]
    held = [
        connection.execute(NEXT_HELD, (*holding, now_s)).fetchone()[0]
        for holding in connection.execute(HOLDING).fetchall()
    ]
    first_s, end_s = [min([at_s for at_s in times if at_s is not None], default=None) for times in (free, held)]
    return first_s, end_s


def _free(connection: Connection, run: str, now_s: float, dead: Collection[str]) -> int:
    """Return the key of a run; raise if it does not exist or has a holder."""
    row = connection.execute("SELECT key, holder, since, until, instance FROM run WHERE id = ?", (run,)).fetchone()
    if row is None:
        raise checks.unknown_run(run)
    key, holder, since_s, until_s, instance = row
    if until_s is not None and until_s > now_s and instance not in dead:
        raise RunBusy(run, holder, since_s, until_s)
    return int(key)


def _lines(connection: Connection, key: int, after: int, end: int) -> tuple[str, ...]:
    first = key << 32
    found = connection.execute(
        "SELECT line FROM journal WHERE place BETWEEN ? AND ? ORDER BY place", (first + after + 1, first + end)
    )
    return tuple([line for (line,) in found])


def _questions(connection: Connection, key: int) -> tuple[Question, ...]:
    found = connection.execute(
        "SELECT key, kind, about, answers, schema FROM question WHERE run = ? AND answered IS NULL ORDER BY key", (key,)
    )
    return tuple(
        [Question(name, kind, about, _answers(name, text), schema) for name, kind, about, text, schema in found]
    )


def _answers(question: str, text: str) -> tuple[str, ...]:
    try:
        answers: tuple[str, ...] = from_json(text, tuple[str, ...])
    except ValueError as error:
        raise StoreError(f"the question {question!r} is damaged: its answers are {text!r:.80}: {error}") from None
    return answers


def _run(connection: Connection, row: Sequence[Any], now_s: float) -> Run:
    key, run, agent, n, state, is_ended, due_s, holder, until_s, created_s, updated_s, title, is_failed, *_ = row
    asks, priority, service = row[13:]
    return Run(
        id=run,
        agent=agent,
        n=n,
        state=state,
        is_ended=bool(is_ended),
        due_s=due_s,
        holder=holder if until_s is not None and until_s > now_s else None,
        created_s=created_s,
        updated_s=updated_s,
        waits=_questions(connection, key) if asks else (),
        title=title,
        is_failed=bool(is_failed),
        priority=priority,
        service=service,
    )


def _group(row: Sequence[Any]) -> Group:
    return Group(row[2], row[12], row[5], row[13], row[4])
