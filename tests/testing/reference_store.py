"""A store that is right and simple, in memory; stores of one folder have the same runs."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fsm_agent.errors import UsageError
from fsm_agent.messages import Question
from fsm_agent.store import (
    AlreadyAnswered,
    Choice,
    Conflict,
    Head,
    Lease,
    LeaseLost,
    NotAsked,
    QueueFull,
    ReadOnly,
    Rest,
    Run,
    RunBusy,
    RunExists,
    RunUnknown,
    Start,
    StoreError,
)
from fsm_agent.store.checks import result_or_loss, tags_of
from fsm_agent.store.spending import changed, check_spend, moment, wait_s
from fsm_agent.store.store import MAX_PRIORITY, Loaded, Page, Post, RunCount, RunFilter, RunsHealth


class Kept:
    """A run."""

    def __init__(
        self, name: str, header: str, agent: str, start: Start, now_s: float, title: str = "", number: int = 0
    ) -> None:
        self.name, self.header, self.agent, self.title, self.number = name, header, agent, title, number
        self.start, self.awaits = start, set[str]()
        self.lines: list[str] = []
        self.posts: list[Post] = []
        self.asked: dict[str, tuple[Question, str | None, float]] = {}  # the question, who answered, when
        self.snapshot: tuple[int, bytes] | None = None
        self.state, self.is_ended, self.is_failed = "", False, False
        self.due_s: float | None = max(0.0, start.due_s)
        self.heeds: str | None = "no question" if self.due_s else None
        self.due_since_s = self.created_s = self.updated_s = now_s
        self.fence = self.tries = 0
        self.holder, self.since_s = "", 0.0
        self.until_s: float | None = None  # None: nobody has it
        self.done: set[tuple[int, int, tuple[str, ...], bool]] = set()


class Shared:
    """All runs of a folder."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.runs: dict[str, Kept] = {}
        self.heads: dict[str, Head] = {}
        self.spent = defaultdict[str, list[tuple[float, int]]](list)
        self.last_post = self.last_run = 0


_PLACES: defaultdict[Path, Shared] = defaultdict(Shared)


class ReferenceStore:
    """A store without a fault."""

    choice: Choice | None = None  # of the claim under way
    is_volatile = False  # as far as its other stores can tell

    def __init__(self, folder: Path, clock: Callable[[], float], *, read_only: bool = False) -> None:
        if read_only and folder not in _PLACES:
            raise StoreError("there is no store")
        self._shared, self.clock, self.is_read_only = _PLACES[folder], clock, read_only
        self.writer = ThreadPoolExecutor(1)
        self.is_closed = False

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
        check_texts(run, agent, header, title, lines=[header])
        self.check_writable()
        if not run:
            raise UsageError("a run without a name")
        check_start(start, holder)
        start = start or Start()
        with self.shared.changed:
            if run in self.shared.runs:
                if self.kept(run).header != header:
                    raise RunExists(f"there is another run {run!r}")
                return False
            now_s = self.clock()
            self.check_queue(agent, start)
            awaits = self.unended(start.after)
            if follows is not None:
                self.follow(follows, run)
            self.shared.last_run += 1
            self.shared.runs[run] = kept = Kept(run, header, agent, start, now_s, title, self.shared.last_run)
            if awaits:
                kept.awaits, kept.due_s, kept.heeds = awaits, None, "no question"
            if holder is not None:
                return self.take(kept, holder, now_s, for_s)
            self.shared.changed.notify_all()
            return True

    def check_queue(self, agent: str, start: Start) -> None:
        size = len([kept for kept in self.shared.runs.values() if kept.agent == agent and not kept.fence])
        if start.queue_limit is not None and size >= start.queue_limit:
            raise QueueFull(agent, size, start.queue_limit)

    def unended(self, runs: Sequence[str]) -> set[str]:
        return {run for run in runs if not self.kept(run).is_ended}

    def end(self, run: str, now_s: float) -> None:
        for kept in self.shared.runs.values():
            if run in kept.awaits:
                kept.awaits.discard(run)
                if not kept.awaits and not kept.fence:
                    kept.due_s, kept.due_since_s = max(0.0, kept.start.due_s), now_s

    def follow(self, head: Head, run: str) -> None:
        now = self.head(head.conversation)
        if now != head:
            raise Conflict(head.conversation, now.run)
        self.shared.heads[head.conversation] = Head(head.conversation, head.version + 1, run)

    def claim(
        self,
        holder: str,
        *,
        for_s: float,
        run: str | None = None,
        agents: Sequence[str] = (),
        now_s: float | None = None,
        choice: Choice | None = None,
    ) -> Lease | None:
        check_texts(holder, *agents)
        self.check_writable()
        with self.shared.changed:
            at_s = self.clock()
            if run is None:
                self.choice = choice
                run = self.longest_due(at_s, at_s if now_s is None else now_s, agents)
                if run is None:
                    return None
            self.check_free(self.kept(run), at_s, holder)
            return self.take(self.kept(run), holder, at_s, for_s)

    def longest_due(self, at_s: float, due_s: float, agents: Sequence[str]) -> str | None:
        free = [
            (-kept.start.priority, kept.due_s or kept.due_since_s, kept.name)
            for kept in self.shared.runs.values()
            if kept.due_s is not None and kept.due_s <= due_s and not (kept.until_s is not None and kept.until_s > at_s)
            if not agents or kept.agent in agents
            if self.is_chosen(kept)
        ]
        return min(free)[2] if free else None

    def is_chosen(self, kept: Kept) -> bool:
        if self.choice is None:
            return True
        definition, key = tags_of(kept.header)
        wanted = self.choice.definitions
        is_wanted = (wanted is None or definition in wanted) and key not in self.choice.busy
        return is_wanted and self.has_room(kept.agent, key)

    def has_room(self, agent: str, key: str) -> bool:
        assert self.choice is not None
        held = [other for other in self.shared.runs.values() if self.is_held(other)]
        limit, of_key = dict(self.choice.limits).get(agent), self.choice.key_limit
        with_key = [other for other in held if tags_of(other.header)[1] == key]
        return (limit is None or sum(other.agent == agent for other in held) < limit) and (
            of_key is None or not key or len(with_key) < of_key
        )

    def is_held(self, kept: Kept) -> bool:
        return kept.until_s is not None and kept.until_s > self.clock() and not kept.is_ended

    def check_free(self, kept: Kept, at_s: float, holder: str) -> None:
        if kept.until_s is not None and kept.until_s > at_s:
            raise RunBusy(kept.name, kept.holder, kept.since_s, kept.until_s)

    def take(self, kept: Kept, holder: str, at_s: float, for_s: float) -> Lease:
        kept.fence += 1
        kept.tries += 1
        kept.holder, kept.since_s, kept.until_s = holder, at_s, at_s + for_s
        if not kept.is_ended:
            kept.due_s, kept.due_since_s = 0.0, kept.until_s
        return Lease(kept.name, kept.agent, holder, kept.fence, at_s, kept.until_s, len(kept.lines), kept.tries)

    def newest(self, lease: Lease) -> Kept:
        kept = self.shared.runs.get(lease.run)
        if kept is None or (kept.fence, kept.holder, kept.since_s) != (lease.fence, lease.holder, lease.since_s):
            raise LeaseLost(f"the lease of {lease.run!r} is outdated")
        return kept

    def renew(self, lease: Lease, *, for_s: float) -> int:
        self.check_writable()
        with self.shared.changed:
            kept = self.newest(lease)
            if kept.until_s is None:
                raise LeaseLost(f"the run {lease.run!r} was given back")
            kept.until_s = kept.due_since_s = self.clock() + for_s
            return len(kept.posts)

    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        return [result_or_loss(self.renew, lease, for_s=for_s) for lease in leases]

    def unread(self, names: Sequence[str]) -> Collection[str]:
        with self.shared.changed:
            return {name for name in names if name in self.shared.runs and self.shared.runs[name].posts}

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
        check_texts(*([rest.state] if rest is not None else []), lines=lines)
        self.check_writable()
        with self.shared.changed:
            now_s = self.clock()
            kept = self.newest(lease)
            if self.is_done(kept, lease, n, lines, rest):
                return len(kept.posts)
            self.check_follows(kept, lease, n)
            self.write(kept, lease, n, lines, rest, took, snapshot, now_s)
            return len(kept.posts)

    def is_done(self, kept: Kept, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None) -> bool:
        return (lease.fence, n, tuple(lines), rest is not None) in kept.done

    def check_follows(self, kept: Kept, lease: Lease, n: int) -> None:
        if kept.until_s is None or len(kept.lines) != n:
            raise LeaseLost(f"the run {lease.run!r} was given back, or has {len(kept.lines)} entries, not {n}")

    def write(
        self,
        kept: Kept,
        lease: Lease,
        n: int,
        lines: Sequence[str],
        rest: Rest | None,
        took: Sequence[int],
        snapshot: bytes | None,
        now_s: float,
    ) -> None:
        kept.lines += lines
        kept.posts = [post for post in kept.posts if post.id not in took]
        if lines or (rest is not None and (rest.due_s is None or rest.due_s > 0.0)):
            kept.tries = 0
        if lines or rest is not None:
            kept.done.add((lease.fence, n, tuple(lines), rest is not None))
            kept.updated_s = now_s
        if snapshot is not None:
            kept.snapshot = len(kept.lines), snapshot
        if rest is not None:
            self.give_back(kept, rest, now_s)

    def give_back(self, kept: Kept, rest: Rest, now_s: float) -> None:
        kept.until_s, kept.state, kept.is_ended = None, rest.state, rest.is_ended
        kept.is_failed = rest.is_failed
        kept.asked = self.asked_now(kept, rest)
        kept.heeds = rest.heeds
        is_woken = any(rest.heeds in (None, post.key) for post in kept.posts)
        kept.due_s = None if rest.is_ended else 0.0 if is_woken else rest.due_s
        kept.due_since_s = now_s
        if rest.is_ended:
            self.end(kept.name, now_s)
        self.shared.changed.notify_all()

    def asked_now(self, kept: Kept, rest: Rest) -> dict[str, Any]:
        unread = {post.key for post in kept.posts}
        kept_on = {key: asked for key, asked in kept.asked.items() if asked[1] is None or key in unread}
        return {question.key: kept_on.get(question.key, (question, None, 0.0)) for question in rest.questions}

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
        assert self.shared
        return self.writer.submit(self.append, lease, n, lines, rest, took=took, snapshot=snapshot)

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        with self.shared.changed:
            kept = self.kept(run)
            if after is None:
                after = kept.snapshot[0] if kept.snapshot is not None else 0
            lines, posts = tuple(kept.lines[after:]), tuple(kept.posts)
            return Loaded(header=kept.header, snapshot=kept.snapshot, lines=lines, posts=posts, run=self.row(kept))

    def post(self, run: str, key: str, body: str, *, by: str = "") -> None:
        check_texts(key, body, by)
        self.check_writable()
        with self.shared.changed:
            now_s, kept = self.clock(), self.kept(run)
            self.check_open(kept, key)
            self.answer(kept, key, body, by, now_s)
            if self.is_heeded(kept, key):
                if kept.until_s is None and kept.due_s != 0.0:
                    kept.due_since_s = now_s
                kept.due_s = 0.0
            self.shared.changed.notify_all()

    def is_heeded(self, kept: Kept, key: str) -> bool:
        return kept.until_s is not None or kept.heeds in (None, key)

    def check_open(self, kept: Kept, key: str) -> None:
        if kept.is_ended or (key and key not in kept.asked):
            raise NotAsked(f"the run {kept.name!r} does not ask {key!r}")
        if key and (by := kept.asked[key][1]) is not None:
            raise AlreadyAnswered(kept.name, key, by, kept.asked[key][2])

    def answer(self, kept: Kept, key: str, body: str, by: str, now_s: float) -> None:
        if key:
            kept.asked[key] = (kept.asked[key][0], by, now_s)
        kept.posts.append(Post(self.next_id(kept), key, body, by, now_s))

    def next_id(self, kept: Kept) -> int:
        self.shared.last_post += 1
        return self.shared.last_post

    def get(self, run: str) -> Run:
        return self.load(run).run

    def list(self, *, after: str | None = None, limit: int = 100, **which: Any) -> Page:
        for name, value in which.items():
            is_text = name in ("agent", "state", "waiting_for", "text")
            if name not in RunFilter.__optional_keys__ or not isinstance(value, str if is_text else int | float | None):
                raise UsageError(f"there is no filter {name!r} of {value!r}")
        check_texts(which.get("agent") or "")
        before = self.place_in(after)
        with self.shared.changed:
            found = sorted([(kept.updated_s, kept.number, kept.name) for kept in self.shared.runs.values()])[::-1]
            rows = [(place, self.row(self.kept(place[2]))) for place in found]
        rows = [(place, row) for place, row in rows if place[:2] < before and self.is_wanted(row, which)]
        page = Page([row for _, row in rows[:limit]])
        if len(rows) > limit > 0:
            (moment, number, _), _ = rows[limit - 1]
            page.next = f"{moment!r}~{number}"
        return page

    def place_in(self, after: Any) -> tuple[float, int]:
        if after is None:
            return float("inf"), 0
        try:
            moment, number = after.split("~")
            return float(moment), int(number)
        except (AttributeError, ValueError):
            raise UsageError(f"after is {after!r}: the `next` of a page, or None, would be right") from None

    def is_wanted(self, row: Run, which: RunFilter) -> bool:
        kinds, text = {question.kind for question in row.waits}, which.get("text", "").casefold()
        due_before, before_s = which.get("due_before"), which.get("changed_before")
        return (
            which.get("agent") in (None, row.agent)
            and which.get("state") in (None, row.state)
            and which.get("ended") in (None, row.is_ended)
            and which.get("failed") in (None, row.is_failed)
            and (not which.get("asked") or bool(kinds))
            and (which.get("waiting_for") is None or which.get("waiting_for") in kinds)
            and (due_before is None or (row.due_s is not None and row.due_s < due_before))
            and (before_s is None or row.updated_s < before_s)
            and row.updated_s >= (which.get("changed_after") or 0.0)
            and text in f"{row.id}\n{row.title}".casefold()
        )

    def stats(self) -> list[RunCount]:
        groups = defaultdict[Any, list[float]](list)
        for row in self.list(limit=10**6):
            kinds = tuple(sorted({question.kind for question in row.waits}))
            groups[row.agent, row.state, row.is_ended, row.is_failed, kinds].append(row.updated_s)
        return [
            RunCount(
                agent=agent,
                state=state,
                is_ended=ended,
                is_failed=failed,
                waits_for=kinds,
                count=len(times),
                oldest_s=min(times),
            )
            for (agent, state, ended, failed, kinds), times in sorted(groups.items())
        ]

    def health(self) -> RunsHealth:
        rows, now_s = self.list(limit=10**6), self.clock()
        due = [row for row in rows if row.due_s is not None and row.due_s <= now_s and row.holder is None]
        found = [self.kept(row.id) for row in due]
        since = [kept.due_s or kept.due_since_s if kept.until_s is None else kept.until_s for kept in found]
        asked = [row for row in rows if row.waits]
        return RunsHealth(
            due=len(due),
            oldest_due_s=max([now_s - at_s for at_s in since], default=0.0),
            held=len([row for row in rows if row.holder is not None and not row.is_ended]),
            asked=len(asked),
            stuck=len([row for row in asked if any(question.kind == "stuck" for question in row.waits)]),
        )

    def row(self, kept: Kept) -> Run:
        return Run(
            id=kept.name,
            agent=kept.agent,
            n=len(kept.lines),
            state=kept.state,
            is_ended=kept.is_ended,
            due_s=kept.due_s,
            holder=kept.holder if kept.until_s is not None and kept.until_s > self.clock() else None,
            created_s=kept.created_s,
            updated_s=kept.updated_s,
            waits=tuple([question for _, (question, by, _) in sorted(kept.asked.items()) if by is None]),
            priority=kept.start.priority,
            title=kept.title,
            is_failed=kept.is_failed,
        )

    def kept(self, run: str) -> Kept:
        check_texts(run)
        if run not in self.shared.runs:
            raise RunUnknown(f"there is no run {run!r}")
        return self.shared.runs[run]

    def head(self, conversation: str) -> Head:
        check_texts(conversation)
        return self.shared.heads.get(conversation, Head(conversation))

    def delete(self, run: str) -> None:
        self.check_writable()
        with self.shared.changed:
            self.check_free(self.kept(run), self.clock(), "")
            del self.shared.runs[run]
            self.end(run, self.clock())
            self.shared.changed.notify_all()

    def spend(self, name: str, amount: int, *, limit: int, within_s: float) -> float:
        check_spend(name, amount, limit, within_s)
        with self.shared.changed:
            now_s, spent = self.clock(), self.shared.spent[name]
            spent[:] = [(at_s, used) for at_s, used in spent if at_s > now_s - within_s]
            left_s = wait_s(spent, amount, limit, within_s, now_s)
            if not left_s:
                spent[:] = sorted({**dict(spent), **dict(changed(spent, amount, moment(now_s, within_s)))}.items())
            return left_s

    def wait(self, timeout_s: float) -> None:
        with self.shared.changed:
            now_s = self.clock()
            free = [kept for kept in self.shared.runs.values() if kept.due_s is not None and kept.until_s is None]
            times = [max(0.0, kept.due_s - now_s) for kept in free]  # 0: it became due after it was looked for
            self.shared.changed.wait(min([timeout_s, *times]))

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        with self.shared.changed:
            self.shared.changed.wait_for(lambda: self.rests() != seen, timeout_s)
            return self.rests()

    def rests(self) -> int:
        return sum(kept.fence - (kept.until_s is not None) for kept in self.shared.runs.values())

    def close(self) -> None:
        self.writer.shutdown()
        self.is_closed = not self.is_volatile

    def check_writable(self) -> None:
        if self.is_read_only:
            raise ReadOnly("the reference")

    @property
    def shared(self) -> Shared:
        if self.is_closed:
            raise StoreError("the store is closed")
        return self._shared


def check_texts(*texts: str, lines: Sequence[str] = ()) -> None:
    if any("\n" in line for line in lines):
        raise UsageError("a line of two lines")
    try:
        "".join([*texts, *lines]).encode()
    except UnicodeEncodeError:
        raise UsageError("half a surrogate pair") from None


def check_start(start: Start | None, holder: str | None) -> None:
    if start is None:
        return
    if holder is not None:
        raise UsageError("a start of a run with a holder")
    limit = start.queue_limit
    is_right = type(start.priority) is int and abs(start.priority) <= MAX_PRIORITY and math.isfinite(start.due_s)
    if not is_right or not isinstance(start.after, tuple) or not (limit is None or (type(limit) is int and limit > 0)):
        raise UsageError(f"the start is {start!r}")
    check_texts(*start.after)
