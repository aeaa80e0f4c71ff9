"""The statements of a `PostgresStore`: each method reads or writes runs in the transaction of its caller.

A statement sees what was committed before it began.  So each change of a run locks its row first, in a statement of
its own, and reads afterwards.  Otherwise a post and a rest at the same moment could miss each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fsm_agent._internal.values import from_json
from fsm_agent.messages.question import Question
from fsm_agent.store import checks
from fsm_agent.store.errors import AlreadyAnswered, Conflict, LeaseLost, RunBusy, StoreError
from fsm_agent.store.listing import Group, Place, Wanted, behind, health_of, page_of, paged
from fsm_agent.store.store import Head, Lease, Loaded, Page, Post, Rest, Run, RunCount, RunsHealth, Start

if TYPE_CHECKING:
    from psycopg import Connection

_ROW = (
    "key, id, agent, n, state, is_ended, due, holder, until, created, greatest(updated, touched) AS changed, title,"
    " is_failed, asks, priority, service"
)
_GROUP = "agent, is_failed, is_ended, asks, state"
_LEASED = "id = %s AND fence = %s AND since = %s AND holder = %s"
# Due times are by the clock of who claims, and the other times, since when a run is due at once, by that of the store.
_IS_DUE = "wake <= %(latest)s AND wake <= CASE WHEN until IS NULL AND due > 0 THEN %(due)s ELSE %(now)s END"
_CHOSEN = " AND definition = ANY(%(definitions)s::text[])"
_AGENTS = """
WITH RECURSIVE agents (name) AS (
    SELECT min(agent) FROM {s}.run WHERE wake IS NOT NULL
    UNION ALL SELECT (SELECT min(agent) FROM {s}.run WHERE agent > name AND wake IS NOT NULL)
    FROM agents WHERE name IS NOT NULL)
SELECT name FROM agents WHERE name IS NOT NULL"""
# The agents and priorities of which a run is due, with the one that has been so longest.  Each priority of an agent is
# found by one step in the index.
_DUE_QUEUES = f"""
WITH RECURSIVE queue (agent, priority) AS (
    SELECT name, (SELECT max(priority) FROM {{s}}.run WHERE agent = name AND wake IS NOT NULL)
    FROM unnest(%(agents)s::text[]) AS agents (name)
    UNION ALL
    SELECT agent, (SELECT max(r.priority) FROM {{s}}.run r
        WHERE r.agent = queue.agent AND r.priority < queue.priority AND r.wake IS NOT NULL)
    FROM queue WHERE priority IS NOT NULL)
SELECT queue.agent, queue.priority, longest.wake, longest.key FROM queue, LATERAL (
    SELECT wake, key FROM {{s}}.run r
    WHERE r.agent = queue.agent AND r.priority = queue.priority AND {_IS_DUE}{{also}}
    ORDER BY wake, key LIMIT 1) AS longest"""
_AGENTS_AT_ONCE = 50  # of more, Postgres thinks it worth its while to compile the query, which takes 100 ms
_FIRST_DUE = f"""
SELECT key FROM {{s}}.run WHERE agent = %(agent)s AND priority = %(priority)s AND {_IS_DUE}{{also}}
ORDER BY wake, key LIMIT 1 FOR UPDATE SKIP LOCKED"""
_SESSIONS = (  # of which some process holds the lock that `Session` describes
    "SELECT objid::int FROM pg_locks WHERE locktype = 'advisory' AND classid = 1718840673 AND objsubid = 2 AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class NewPost(NamedTuple):
    """The arguments of `Store.post`."""

    run: str
    key: str
    body: str
    by: str
    post_id: str
    content: str


class Append(NamedTuple):
    """The arguments of `Store.append`; the due time of the rest is not negative."""

    lease: Lease
    n: int
    lines: tuple[str, ...]
    rest: Rest | None
    took: tuple[int, ...]
    snapshot: bytes | None


class RunTables:
    """The tables of a schema.

    Args:
        schema: Its name, which needs no quotes.
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def create(
        self,
        c: Connection[Any],
        run: str,
        header: str,
        agent: str,
        title: str,
        follows: Head | None,
        start: Start,
        now_s: float,
    ) -> float | None:
        """Create a run, unless it exists already with this header.

        Returns:
            Unix time at which it is due: infinite if others have to end before.  None: it exists.
        """
        s = self.schema
        if follows is not None:  # those that follow the same head wait here for each other
            name = encode(follows.conversation)
            c.execute(f"INSERT INTO {s}.conversation VALUES (%s, 0, '') ON CONFLICT DO NOTHING", (name,))
            c.execute(f"SELECT 1 FROM {s}.conversation WHERE name = %s FOR UPDATE", (name,))
        made = c.execute(
            f"INSERT INTO {s}.run (id, agent, header, n, state, is_ended, due, wake, unread, fence, tries, holder,"
            " instance, since, given_back, created, updated, touched, priority, heeds, title, definition,"
            " service)"
            " VALUES (%s, %s, %s, 0, '', false, %s, %s, 0, 0, 0, '', 0, 0, -1, %s, %s, 0, %s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            (
                *(encode(run), encode(agent), encode(header), start.due_s, start.due_s or now_s, now_s, now_s),
                *(start.priority, checks.UNTIL_DUE if start.due_s else None, encode(title)),
                *map(encode, [checks.definition_in(header), start.service]),
            ),
        )
        if not made.rowcount:
            there = c.execute(f"SELECT header FROM {s}.run WHERE id = %s", (encode(run),)).fetchone()
            if there != (encode(header),):
                raise checks.other_header(run)
            return None
        if follows is not None:
            if (now := self.head(c, follows.conversation)) != follows:
                raise Conflict(now.conversation, now.run)
            following = f"UPDATE {s}.conversation SET version = %s, run = %s WHERE name = %s"
            c.execute(following, (now.version + 1, encode(run), encode(now.conversation)))
        return math.inf if start.after and self._await(c, run, start) else start.due_s or now_s

    def _await(self, c: Connection[Any], run: str, start: Start) -> bool:
        """Make a new run due only after the runs before it; return whether there are any that have not ended."""
        s, names = self.schema, [encode(name) for name in start.after]
        found = c.execute(  # and let none of them end in between
            f"SELECT id, key, is_ended FROM {s}.run WHERE id = ANY(%s) ORDER BY key FOR SHARE", (names,)
        ).fetchall()
        known = {name for name, _, _ in found}
        for name in start.after:
            if encode(name) not in known or name == run:
                raise checks.unknown_run(name)
        if awaited := [key for _, key, is_ended in found if not is_ended]:
            row = c.execute(
                f"UPDATE {s}.run SET due = NULL, wake = NULL, heeds = %s WHERE id = %s RETURNING key",
                (checks.UNTIL_DUE, encode(run)),
            ).fetchone()
            assert row is not None
            c.execute(
                f"INSERT INTO {s}.predecessor SELECT before, %s, %s FROM unnest(%s::bigint[]) AS t (before)",
                (row[0], start.due_s, awaited),
            )
        return bool(awaited)

    def end(self, c: Connection[Any], run: str, now_s: float) -> list[tuple[str, float]]:
        """Make due the runs that awaited the end of this one alone; return them with their due times."""
        s = self.schema
        before = f"(SELECT key FROM {s}.run WHERE id = %s)"
        found = c.execute(f"SELECT run, due FROM {s}.predecessor WHERE before = {before}", (encode(run),)).fetchall()
        if not found:
            return []
        after = [key for key, _ in found]
        # Of two that end at the same time, the second waits here until the first is committed, and sees it below.
        c.execute(f"SELECT 1 FROM {s}.run WHERE key = ANY(%s) ORDER BY key FOR UPDATE", (after,))
        c.execute(f"DELETE FROM {s}.predecessor WHERE before = {before}", (encode(run),))
        due = c.execute(
            f"UPDATE {s}.run r SET due = t.due, wake = CASE WHEN t.due = 0 THEN %s ELSE t.due END"
            " FROM unnest(%s::bigint[], %s::float8[]) AS t (run, due) WHERE key = t.run AND fence = 0"
            f" AND NOT EXISTS (SELECT 1 FROM {s}.predecessor p WHERE p.run = t.run) RETURNING r.id, wake",
            (now_s, after, [due_s for _, due_s in found]),
        )
        return [(_decode(name), wake_s) for name, wake_s in due]

    def find(
        self,
        c: Connection[Any],
        agents: Sequence[str],
        due_s: float,
        now_s: float,
        definitions: Sequence[str] | None = None,
    ) -> int | None:
        """Lock the run to claim, and return its key; None: none is due that others have not locked.

        Args:
            c: The connection.
            agents: Of these agents; empty: of all.
            due_s: Unix time at which runs without a holder have to be due.
            now_s: Unix time at which leases have to be over.
            definitions: Begun by code with one of these fingerprints; None: by any.
        """
        names = [encode(agent) for agent in agents]
        if not names:
            names = [name for (name,) in c.execute(_AGENTS.format(s=self.schema))]
        wanted: dict[str, Any] = {"latest": max(due_s, now_s), "due": due_s, "now": now_s}
        also = "" if definitions is None else _CHOSEN
        if definitions is not None:
            wanted["definitions"] = [*map(encode, definitions)]
        queues: list[Any] = []  # the agents and priorities of which a run is due
        for first in range(0, len(names), _AGENTS_AT_ONCE):
            some = {**wanted, "agents": names[first : first + _AGENTS_AT_ONCE]}
            queues += c.execute(_DUE_QUEUES.format(s=self.schema, also=also), some).fetchall()
        for agent, priority, _, _ in sorted(queues, key=lambda queue: (-queue[1], *queue[2:])):
            queue = {**wanted, "agent": agent, "priority": priority}
            if (row := c.execute(_FIRST_DUE.format(s=self.schema, also=also), queue).fetchone()) is not None:
                return int(row[0])
        return None

    def take(self, c: Connection[Any], key: int, holder: str, instance: int, now_s: float, for_s: float) -> Lease:
        """Take the lease of a run that is locked."""
        row = c.execute(
            f"UPDATE {self.schema}.run SET fence = fence + 1, tries = tries + 1, holder = %s, instance = %s,"
            " since = %s, until = %s, due = CASE WHEN is_ended THEN NULL ELSE 0 END,"
            " wake = CASE WHEN is_ended THEN NULL ELSE %s END WHERE key = %s RETURNING id, agent, fence, n, tries",
            (encode(holder), instance, now_s, now_s + for_s, now_s + for_s, key),
        ).fetchone()
        assert row is not None  # it is locked
        run, agent, fence, n, tries = row
        return Lease(_decode(run), _decode(agent), holder, fence, now_s, now_s + for_s, n, tries)

    def end_leases_of_the_dead(self, c: Connection[Any], now_s: float, grace_s: float) -> int:
        """End the leases whose session is over, and return how many; none soon after a start of the server.

        Sessions end with the server, too, and those who had them need a moment to begin new ones.
        """
        return c.execute(
            f"UPDATE {self.schema}.run SET until = %s, wake = CASE WHEN is_ended THEN NULL ELSE %s END"
            f" WHERE until > %s AND instance <> 0 AND instance NOT IN ({_SESSIONS})"
            " AND pg_postmaster_start_time() < clock_timestamp() - make_interval(secs => %s)",
            (now_s, now_s, now_s, grace_s),
        ).rowcount

    def renew(self, c: Connection[Any], lease: Lease, until_s: float) -> int:
        """Extend a lease to ``until_s``; return the number of unread posts."""
        row = c.execute(
            f"UPDATE {self.schema}.run SET until = %s, wake = CASE WHEN is_ended THEN NULL ELSE %s END"
            f" WHERE {_LEASED} AND until IS NOT NULL RETURNING unread",
            (until_s, until_s, *_lease_key(lease)),
        ).fetchone()
        if row is None:
            raise checks.lost_lease(lease)
        return int(row[0])

    def renew_all(self, c: Connection[Any], leases: Sequence[Lease], until_s: float) -> list[int | LeaseLost]:
        """`renew` for many leases in one statement; return what it returns or raises for each."""
        if not leases:
            return []
        s, columns = self.schema, zip(*map(_lease_key, leases), strict=True)
        found = c.execute(
            # Rows are locked in the order of their names, as by appends that are committed together.
            f"WITH lease AS (SELECT * FROM unnest(%s::text[], %s::bigint[], %s::float8[], %s::text[]) WITH ORDINALITY"
            "  AS lease (id, fence, since, holder, place)),"
            f" held AS (SELECT key, place FROM {s}.run JOIN lease USING (id, fence, since, holder)"
            "  WHERE until IS NOT NULL ORDER BY id FOR UPDATE OF run)"
            f" UPDATE {s}.run SET until = %s, wake = CASE WHEN is_ended THEN NULL ELSE %s END FROM held"
            " WHERE run.key = held.key RETURNING held.place, run.unread",
            (*map(list, columns), until_s, until_s),
        )
        unread = {int(place): int(count) for place, count in found}
        return [unread.get(place, checks.lost_lease(lease)) for place, lease in enumerate(leases, 1)]

    def unread(self, c: Connection[Any], names: Sequence[str]) -> set[str]:
        """Return those of these runs that have unread posts."""
        by_id = {encode(name): name for name in names}
        found = c.execute(f"SELECT id FROM {self.schema}.run WHERE id = ANY(%s) AND unread > 0", ([*by_id],))
        return {by_id[run] for (run,) in found}

    def ask(self, c: Connection[Any], lease: Lease, questions: Sequence[Question]) -> None:
        """Replace the questions of a run that keeps its holder."""
        s = self.schema
        locked = f"SELECT key FROM {s}.run WHERE {_LEASED} AND until IS NOT NULL FOR UPDATE"
        if (row := c.execute(locked, _lease_key(lease)).fetchone()) is None:
            raise checks.lost_lease(lease)
        self._ask(c, row[0], questions)
        c.execute(f"UPDATE {s}.run SET asks = {self._asks} WHERE key = %(key)s", {"key": row[0]})

    def append(self, c: Connection[Any], new: Append, now_s: float) -> int:
        """Add entries; give the lease back if there is a rest; return the number of unread posts."""
        s, lease, rest, end = self.schema, new.lease, new.rest, new.n + len(new.lines)
        lines = [encode(line) for line in new.lines]
        row = c.execute(
            f"SELECT key, n, unread, tries, until, given_back FROM {s}.run WHERE {_LEASED} FOR UPDATE",
            _lease_key(lease),
        ).fetchone()
        if row is None:
            raise checks.lost_lease(lease)
        key, there, unread, tries, until_s, returned = row
        if until_s is None or there != new.n:
            if rest is None:
                is_next = until_s is not None and bool(lines) and new.n >= lease.n and end <= there
            else:
                is_next = until_s is None and new.n == returned and end == there
            if is_next and [line for (line,) in self._entries(c, key, new.n, end)] == lines:
                return int(unread)  # a repeated append
            raise checks.lost_lease(lease) if until_s is None else checks.misplaced_entries(lease, new.n, there)
        if new.took:
            gone = c.execute(f"DELETE FROM {s}.post WHERE run = %s AND id = ANY(%s)", (key, [*new.took]))
            unread -= gone.rowcount
        if new.snapshot is not None:
            c.execute(
                f"INSERT INTO {s}.snapshot VALUES (%s, %s, %s)"
                " ON CONFLICT (run) DO UPDATE SET n = excluded.n, record = excluded.record",
                (key, end, new.snapshot),
            )
        if rest is not None:
            self._ask(c, key, rest.questions)
        self._write(c, key, new, lines, unread, 0 if lines else tries, now_s)
        return int(unread)

    def _write(
        self, c: Connection[Any], key: int, new: Append, lines: list[str], unread: int, tries: int, now_s: float
    ) -> None:
        """Write the entries and the row of the run, in one statement."""
        rest = new.rest
        changed: dict[str, Any] = {"n": new.n + len(lines), "unread": unread, "tries": tries}
        if lines or rest is not None:
            changed["touched"] = now_s
        if rest is not None:
            if rest.is_ended:
                due_s = wake_s = None
            elif rest.due_s == 0.0 or (unread and self._is_woken(c, key, rest.heeds)):
                due_s, wake_s = 0.0, min(now_s, rest.due_s or now_s)
            else:
                due_s = wake_s = rest.due_s
            changed |= {"state": encode(rest.state), "is_ended": rest.is_ended, "due": due_s, "wake": wake_s}
            changed |= {"heeds": None if rest.heeds is None else encode(rest.heeds), "until": None}
            changed |= {"given_back": new.n, "updated": now_s, "tries": tries}
            changed |= {} if rest.due_s == 0.0 or rest.is_in_vain else {"tries": 0}
            changed |= {"is_failed": rest.is_failed}
        assigned = ", ".join([f"{name} = %({name})s" for name in changed])
        if rest is not None:
            assigned += f", asks = {self._asks}" if rest.questions else ", asks = ''"
        update = f"UPDATE {self.schema}.run SET {assigned} WHERE key = %(key)s"
        if lines:
            many = "SELECT %(key)s::bigint, %(before)s + i::int, line FROM unnest(%(lines)s::text[]) WITH ORDINALITY"
            update = f"WITH written AS (INSERT INTO {self.schema}.entry {many} AS t (line, i)) {update}"
        c.execute(update, {**changed, "key": key, "before": new.n, "lines": lines})

    @property
    def _asks(self) -> str:
        """What has the kinds of the open questions of the run with this key."""
        kinds = f'SELECT DISTINCT kind COLLATE "C" AS kind FROM {self.schema}.question'
        return (
            "coalesce((SELECT string_agg(kind, E'\\n' ORDER BY kind) FROM"
            f" ({kinds} WHERE run = %(key)s AND answered IS NULL) AS open), '')"
        )

    def _is_woken(self, c: Connection[Any], key: int, heeds: str | None) -> bool:
        """Return whether a run with unread posts heeds one of them."""
        heeded = f"SELECT 1 FROM {self.schema}.post WHERE run = %s AND key = %s"
        return heeds is None or c.execute(heeded, (key, encode(heeds))).fetchone() is not None

    def _ask(self, c: Connection[Any], key: int, questions: Sequence[Question]) -> None:
        """Replace the questions; a question is asked again when its answer was used up."""
        s, asked = self.schema, {encode(question.key): question for question in reversed(questions)}
        c.execute(
            f"DELETE FROM {s}.question q WHERE run = %s AND NOT (key = ANY(%s) AND (answered IS NULL"
            f" OR EXISTS (SELECT 1 FROM {s}.post p WHERE p.run = q.run AND p.key = q.key)))",
            (key, [*asked]),
        )
        if not asked:
            return
        columns = [(q.kind, q.about, json.dumps(q.answers), q.schema) for q in asked.values()]
        kinds, abouts, answers, schemas = ([encode(text) for text in column] for column in zip(*columns, strict=True))
        c.execute(
            f"INSERT INTO {s}.question (run, key, kind, about, answers, schema, answered_by)"
            " SELECT %s, t.*, '' FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[]) AS t"
            " ON CONFLICT DO NOTHING",
            (key, [*asked], kinds, abouts, answers, schemas),
        )

    def posted(self, c: Connection[Any], run: str, post_id: str) -> str | None:
        """Return the content of the post of an id; None: no post has it."""
        s = self.schema
        found = f"SELECT content FROM {s}.run r LEFT JOIN {s}.posted p ON p.run = r.key AND p.id = %s WHERE r.id = %s"
        row = c.execute(found, (encode(post_id), encode(run))).fetchone()
        if row is None:
            raise checks.unknown_run(run)
        return None if row[0] is None else _decode(row[0])

    def post(self, c: Connection[Any], new: NewPost, now_s: float) -> bool:
        """Add a post to a run; return whether it makes the run due."""
        s, (run, key, body, by, post_id, content) = self.schema, new
        found = f"SELECT key, is_ended, until IS NOT NULL, heeds FROM {s}.run WHERE id = %s FOR UPDATE"
        row = c.execute(found, (encode(run),)).fetchone()
        if row is None:
            raise checks.unknown_run(run)
        if post_id and checks.is_repeated_post(run, post_id, self.posted(c, run, post_id), content):
            return False
        if row[1]:
            raise checks.ended_run(run)
        if key:
            place = (row[0], encode(key))
            asked = f"SELECT answered_by, answered FROM {s}.question WHERE run = %s AND key = %s"
            if (answer := c.execute(asked, place).fetchone()) is None:
                raise checks.unknown_question(run, key, [q.key for q in self._questions(c, [row[0]]).get(row[0], ())])
            if answer[1] is not None:
                raise AlreadyAnswered(run, key, _decode(answer[0]), answer[1])
            taken = f"UPDATE {s}.question SET answered_by = %s, answered = %s WHERE run = %s AND key = %s"
            c.execute(taken, (encode(by), now_s, *place))
        if post_id:
            named = f"INSERT INTO {s}.posted VALUES (%s, %s, %s)"
            c.execute(named, (row[0], encode(post_id), encode(content)))
        posted = f"INSERT INTO {s}.post (run, key, body, posted_by, posted) VALUES (%s, %s, %s, %s, %s)"
        c.execute(posted, (row[0], encode(key), encode(body), encode(by), now_s))
        is_held, heeds = row[2], row[3]
        is_heeded = is_held or heeds is None or heeds == encode(key)
        woken = ", due = 0" if is_heeded else ""
        if key:
            woken += f", asks = {self._asks}"
        if is_heeded and not is_held:
            woken += ", wake = least(wake, %(now_s)s)"  # `least` passes over nulls
        update = f"UPDATE {s}.run SET unread = unread + 1{woken} WHERE key = %(key)s"
        c.execute(update, {"now_s": now_s, "key": row[0]})
        return bool(is_heeded)

    def load(self, c: Connection[Any], run: str, after: int | None, now_s: float) -> Loaded:
        """Return a run as it is."""
        s = self.schema
        row = c.execute(f"SELECT {_ROW}, header FROM {s}.run WHERE id = %s", (encode(run),)).fetchone()
        if row is None:
            raise checks.unknown_run(run)
        key = row[0]
        snapshot = c.execute(f"SELECT n, record FROM {s}.snapshot WHERE run = %s", (key,)).fetchone()
        if after is None:
            after = snapshot[0] if snapshot is not None else 0
        posts = c.execute(f"SELECT id, key, body, posted_by, posted FROM {s}.post WHERE run = %s ORDER BY id", (key,))
        return Loaded(
            header=_decode(row[-1]),
            snapshot=snapshot and (snapshot[0], bytes(snapshot[1])),
            lines=tuple([_decode(line) for (line,) in self._entries(c, key, after, row[3])]),
            posts=tuple([Post(id, _decode(k), _decode(body), _decode(by), at_s) for id, k, body, by, at_s in posts]),
            run=self._runs(c, [row[:-1]], now_s)[0],
        )

    def get(self, c: Connection[Any], run: str, now_s: float) -> Run:
        """Return the row of a run."""
        row = c.execute(f"SELECT {_ROW} FROM {self.schema}.run WHERE id = %s", (encode(run),)).fetchone()
        if row is None:
            raise checks.unknown_run(run)
        return self._runs(c, [row], now_s)[0]

    def groups(self, c: Connection[Any]) -> list[Group]:
        """Return the groups of runs that there are, by one step in an index for each."""
        first = f"SELECT {_GROUP} FROM {self.schema}.run"
        order = f"ORDER BY {_GROUP} LIMIT 1"
        following = f"{first} WHERE ({_GROUP}) > (g.agent, g.is_failed, g.is_ended, g.asks, g.state) {order}"
        rows = c.execute(
            f"WITH RECURSIVE g AS (({first} {order})"
            f" UNION ALL SELECT following.* FROM g CROSS JOIN LATERAL ({following}) AS following) SELECT * FROM g"
        )
        return [_group(*row) for row in rows]

    def select(self, c: Connection[Any], asked: Wanted, now_s: float) -> Page:
        """Return a page of rows, the last changed first."""
        if asked.is_narrow:
            return self._select_narrow(c, asked, now_s)
        held = c.execute(f"SELECT {_ROW} FROM {self.schema}.run WHERE until IS NOT NULL").fetchall()
        rows = [row for row in held if asked.takes_group(_group(row[2], row[12], row[5], row[13], row[4]))]
        chosen = [group for group in self.groups(c) if asked.takes_group(group)]
        first_s, end_s = asked.times
        moment, number = min(asked.before, (end_s, 0))
        due_before = asked.which.get("due_before")
        is_due = "" if due_before is None else " AND due < %(due_before)s"
        of_group = (
            f"SELECT {_ROW} FROM {self.schema}.run AS run WHERE (run.agent, run.is_failed, run.is_ended, run.asks,"
            " run.state) = (g.agent, g.is_failed, g.is_ended, g.asks, g.state) AND until IS NULL"
            " AND (updated, key) < (%(moment)s, %(number)s) AND updated >= %(first_s)s"
            f"{is_due} ORDER BY updated DESC, key DESC LIMIT %(limit)s"
        )
        agents, failed, ended, asks, states = zip(*chosen, strict=True) if chosen else ([],) * 5
        rows += c.execute(
            f"SELECT found.* FROM unnest(%(agents)s::text[], %(failed)s::bool[], %(ended)s::bool[], %(asks)s::text[],"
            f" %(states)s::text[]) AS g ({_GROUP}) CROSS JOIN LATERAL ({of_group}) AS found"
            " ORDER BY changed DESC, key DESC LIMIT %(limit)s",
            {
                **{"agents": [*map(encode, agents)], "failed": [*failed], "ended": [*ended]},
                **{"asks": [*map(encode, asks)], "states": [*map(encode, states)], "moment": moment, "number": number},
                **{"first_s": first_s, "due_before": due_before, "limit": asked.looked + 1},
            },
        ).fetchall()
        rows.sort(key=lambda row: (row[10], row[0]), reverse=True)
        places = [((row[10], row[0]), row) for row in rows]
        marked = [
            (place, row if self._takes(asked, place, row) else None) for place, row in places if place < asked.before
        ]
        page, following = paged(iter(marked), asked)
        return page_of(self._runs(c, [row for _, row in page], now_s), following)

    def _select_narrow(self, c: Connection[Any], asked: Wanted, now_s: float) -> Page:
        """Return a page of the runs whose names begin alike, or that are of one service."""
        prefix, service = encode(asked.which.get("prefix") or ""), encode(asked.which.get("service") or "")
        ended, end = asked.which.get("ended"), behind(prefix)
        which = (["id >= %(prefix)s"] if prefix else []) + (["id < %(end)s"] if end else [])
        which += ["service = %(service)s AND service <> ''"] if service else []
        which += ["is_ended = %(ended)s"] if ended is not None else []
        found = c.execute(
            f"SELECT {_ROW} FROM {self.schema}.run WHERE {' AND '.join(which)} ORDER BY changed DESC, key DESC",
            {"prefix": prefix, "end": end, "service": service, "ended": ended},
        ).fetchall()
        rows = [row for row in found if asked.takes_group(_group(row[2], row[12], row[5], row[13], row[4]))]
        places = [((row[10], row[0]), row) for row in rows]
        page, following = paged(iter([(at, row) for at, row in places if self._takes(asked, at, row)]), asked)
        return page_of(self._runs(c, [row for _, row in page], now_s), following)

    def _takes(self, asked: Wanted, place: Place, row: Sequence[Any]) -> bool:
        return asked.takes(place, row[6], *map(_decode, (row[1], row[11], row[15])))

    def stats(self, c: Connection[Any]) -> list[RunCount]:
        """Return how many runs there are of each group."""
        rows = c.execute(
            f"SELECT {_GROUP}, count(*), min(updated) FROM {self.schema}.run GROUP BY {_GROUP} ORDER BY {_GROUP}"
        )
        return [_group(*row[:5]).counted(*row[5:]) for row in rows]

    def health(self, c: Connection[Any], now_s: float) -> RunsHealth:
        """Return how the runs are; one whose holder's session is over is held until somebody looks for such."""
        s = self.schema
        due, since_s = c.execute(f"SELECT count(*), min(wake) FROM {s}.run WHERE wake <= %s", (now_s,)).fetchone() or (
            0,
            0,
        )
        is_held = "until IS NOT NULL AND until > %s AND NOT is_ended"
        [held] = c.execute(f"SELECT count(*) FROM {s}.run WHERE {is_held}", (now_s,)).fetchone() or (0,)
        asked: list[tuple[str, int]] = []
        for group in [group for group in self.groups(c) if group.asks]:
            row = [encode(value) if isinstance(value, str) else value for value in group]
            counted = f"SELECT count(*) FROM {s}.run WHERE ({_GROUP}) = (%s, %s, %s, %s, %s)"
            asked += [(group.asks, count) for (count,) in c.execute(counted, row)]
        return health_of(due, since_s, held, asked, now_s)

    def head(self, c: Connection[Any], conversation: str) -> Head:
        """Return the head of a conversation."""
        found = f"SELECT version, run FROM {self.schema}.conversation WHERE name = %s"
        row = c.execute(found, (encode(conversation),)).fetchone()
        return Head(conversation) if row is None else Head(conversation, row[0], _decode(row[1]))

    def delete(self, c: Connection[Any], run: str, now_s: float) -> None:
        """Delete a run without a holder."""
        key = self.lock_free(c, run, now_s)
        for table in ("entry", "snapshot", "question", "post", "posted", "predecessor"):
            c.execute(f"DELETE FROM {self.schema}.{table} WHERE run = %s", (key,))
        c.execute(f"DELETE FROM {self.schema}.run WHERE key = %s", (key,))

    def lock_free(self, c: Connection[Any], run: str, now_s: float) -> int:
        """Lock a run and return its key; raise if it does not exist or has a holder."""
        found = f"SELECT key, holder, since, until FROM {self.schema}.run WHERE id = %s FOR UPDATE"
        row = c.execute(found, (encode(run),)).fetchone()
        if row is None:
            raise checks.unknown_run(run)
        key, holder, since_s, until_s = row
        if until_s is not None and until_s > now_s:
            raise RunBusy(run, _decode(holder), since_s, until_s)
        return int(key)

    def next_due_s(self, c: Connection[Any], after_s: float) -> float | None:
        """Return the first Unix time after ``after_s`` at which a run becomes due by itself."""
        row = c.execute(f"SELECT min(wake) FROM {self.schema}.run WHERE wake > %s", (after_s,)).fetchone()
        return None if row is None else row[0]

    def remind(self, c: Connection[Any], agents: Sequence[str], now_s: float, older_s: float, limit: int) -> list[str]:
        """Have runs without a holder count as due since now, and return their names; see `PostgresStore.remind`."""
        is_forgotten = "(wake <= %s OR until IS NOT NULL AND wake <= until)"
        found = c.execute(
            f"UPDATE {self.schema}.run SET wake = %s WHERE key IN (SELECT key FROM {self.schema}.run"
            f" WHERE agent = ANY(%s) AND wake <= %s AND {is_forgotten}"
            " ORDER BY wake LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id",
            (now_s, [encode(agent) for agent in agents], now_s, now_s - older_s, limit),
        )
        return [_decode(run) for (run,) in found]

    def _entries(self, c: Connection[Any], key: int, after: int, end: int) -> Any:
        return c.execute(
            f"SELECT line FROM {self.schema}.entry WHERE run = %s AND n > %s AND n <= %s ORDER BY n", (key, after, end)
        )

    def _questions(self, c: Connection[Any], keys: Sequence[int]) -> dict[int, list[Question]]:
        """Return the open questions of runs."""
        is_open = (
            f"SELECT run, key, kind, about, answers, schema FROM {self.schema}.question"
            " WHERE run = ANY(%s) AND answered IS NULL ORDER BY key"
        )
        found: dict[int, list[Question]] = {}
        for run, key, kind, about, answers, schema in c.execute(is_open, ([*keys],)) if keys else ():
            question = Question(_decode(key), _decode(kind), _decode(about), _answers(key, answers), _decode(schema))
            found.setdefault(run, []).append(question)
        return found

    def _runs(self, c: Connection[Any], rows: Sequence[Any], now_s: float) -> list[Run]:
        waits = self._questions(c, [row[0] for row in rows if row[13]])
        return [self._run(row, waits.get(row[0], ()), now_s) for row in rows]

    def _run(self, row: Sequence[Any], waits: Sequence[Question], now_s: float) -> Run:
        _, run, agent, n, state, is_ended, due_s, holder, until_s, created_s, updated_s, title, is_failed, *_ = row
        return Run(
            id=_decode(run),
            agent=_decode(agent),
            n=n,
            state=_decode(state),
            is_ended=is_ended,
            due_s=due_s,
            holder=_decode(holder) if until_s is not None and until_s > now_s else None,
            created_s=created_s,
            updated_s=updated_s,
            waits=tuple(waits),
            title=_decode(title),
            is_failed=is_failed,
            priority=row[14],
            service=_decode(row[15]),
        )


def encode(text: str) -> str:
    """Return a text as Postgres takes it, which has no zero characters."""
    return text.replace("\x1a", "\x1a1").replace("\x00", "\x1a0") if "\x00" in text or "\x1a" in text else text


def _decode(text: str) -> str:
    return text.replace("\x1a0", "\x00").replace("\x1a1", "\x1a") if "\x1a" in text else text


def _group(agent: str, is_failed: bool, is_ended: bool, asks: str, state: str) -> Group:
    return Group(_decode(agent), is_failed, is_ended, _decode(asks), _decode(state))


def _lease_key(lease: Lease) -> tuple[str, int, float, str]:
    return encode(lease.run), lease.fence, lease.since_s, encode(lease.holder)


def _answers(question: str, text: str) -> tuple[str, ...]:
    try:
        answers: tuple[str, ...] = from_json(text, tuple[str, ...])
    except ValueError as error:
        raise StoreError(f"the question {question!r} is damaged: its answers are {text!r:.80}: {error}") from None
    return answers
