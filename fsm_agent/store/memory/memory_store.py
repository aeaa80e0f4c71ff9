"""A store in memory: for tests, and for runs that need not outlive their OS process."""

from __future__ import annotations

import builtins
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from fsm_agent._internal.forks import at_fork
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.messages.question import Question
from fsm_agent.store import checks
from fsm_agent.store.changes import wait_limit_s
from fsm_agent.store.checks import (
    check_append,
    check_claim,
    check_conversation,
    check_create,
    check_for_s,
    check_post,
    check_questions,
    check_run,
    is_repeated_post,
)
from fsm_agent.store.errors import AlreadyAnswered, Conflict, LeaseLost, RunBusy
from fsm_agent.store.listing import Place, health_of, page_of, paged, wanted
from fsm_agent.store.memory.due_queue import DueQueue
from fsm_agent.store.memory.listed_runs import ListedRuns
from fsm_agent.store.memory.stored_run import (
    StoredRun,
    effective_due_s,
    is_repeated,
    is_woken,
    merge_questions,
    open_questions,
    row_of,
)
from fsm_agent.store.store import (
    Head,
    Lease,
    Loaded,
    Page,
    Post,
    Rest,
    Run,
    RunCount,
    RunFilter,
    RunsHealth,
    Start,
)

if TYPE_CHECKING:
    from typing import Unpack


class MemoryStore:
    """A store in memory; see `Store` for its methods.

    Args:
        clock: Returns the Unix time.

    Examples:
        >>> agent = Agent(Script("Hi."), name="host", store=MemoryStore())
        >>> agent.call("Hello", run_id="r1").output, [run.id for run in agent.runs.store.list()]
        ('Hi.', ['r1'])
    """

    is_volatile = True

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._runs: dict[str, StoredRun] = {}
        self._heads: dict[str, Head] = {}
        self._queue = DueQueue[StoredRun]()
        self._listed = ListedRuns()
        self._last_run = self._last_post = 0
        self._lock = threading.Lock()
        self._due = threading.Condition(self._lock)
        self._changes = 0  # counts the times that a run became due, or due earlier than before
        self._waiting = 0
        self._looked = threading.local()  # `vain`: the arguments of the thread's last claim that found nothing
        with _making:
            _stores.add(self)

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
        starts = check_create(run, header, agent, title, follows, holder, for_s, start)
        with self._lock:
            if (old := self._runs.get(run)) is not None:
                if old.header != header:
                    raise checks.other_header(run)
                return False
            before = [self._get(name) for name in dict.fromkeys(starts.after)]
            awaited = [awaited for awaited in before if not awaited.is_ended]
            if follows is not None:
                name = follows.conversation
                if (head := self._heads.get(name, Head(name))) != follows:
                    raise Conflict(name, head.run)
                self._heads[name] = Head(name, head.version + 1, run)
            now_s = self._clock()
            self._last_run += 1
            self._runs[run] = kept = StoredRun(run, self._last_run, header, agent, title, starts, now_s)
            self._listed.put(kept)
            if holder is not None:
                return self._take(kept, holder, for_s, now_s)
            kept.awaits = len(awaited)
            for one in awaited:
                one.followers.append(kept)
            if not awaited:
                self._start(kept, now_s)
        return True

    def _start(self, kept: StoredRun, now_s: float) -> None:
        """Make due a run that was never claimed."""
        if kept.due_s:
            self._queue.make_due_at(kept, kept.due_s)
            self._notify()
        else:
            self._make_due(kept, now_s)

    def _end(self, kept: StoredRun, now_s: float) -> None:
        """Make due the runs that awaited the end of this one alone."""
        for after in kept.followers:
            if not after.fence and self._runs.get(after.name) is after:
                after.awaits -= 1
                if not after.awaits:
                    self._start(after, now_s)
        kept.followers = []

    def claim(
        self,
        holder: str,
        *,
        for_s: float,
        run: str | None = None,
        agents: Sequence[str] = (),
        now_s: float | None = None,
        definitions: Sequence[str] | None = None,
    ) -> Lease | None:
        check_claim(holder, for_s, run, agents)
        with self._lock:
            clock_s = self._clock()
            if run is None:
                due_s = clock_s if now_s is None else now_s
                due = self._queue.longest_due(agents, clock_s, due_s, definitions)
                if due is None:
                    self._looked.vain = self._changes, tuple(agents), due_s, clock_s
                    return None
                kept = due
            else:
                kept = self._get(run)
                self._check_free(kept, clock_s)
            return self._take(kept, holder, for_s, clock_s)

    def _count_held(self, now_s: float) -> int:
        """Return how many runs have a lease that lasts."""
        lasting = [kept for kept in self._listed.held.values() if kept.until_s is not None and kept.until_s > now_s]
        return sum([not kept.is_ended for kept in lasting])

    def renew(self, lease: Lease, *, for_s: float) -> int:
        check_for_s(for_s)
        with self._lock:
            kept = self._run_of(lease)
            if kept.until_s is None:
                raise checks.lost_lease(lease)
            until_s, kept.until_s = kept.until_s, self._clock() + for_s
            if kept.until_s < until_s:
                self._queue.hold(kept, kept.until_s)
            return len(kept.posts)

    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        return [checks.result_or_loss(self.renew, lease, for_s=for_s) for lease in leases]

    def unread(self, names: Sequence[str]) -> Collection[str]:
        with self._lock:
            return {run for run in names if (kept := self._runs.get(run)) is not None and kept.posts}

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
        rest = check_append(lines, rest)
        with self._lock:
            kept = self._run_of(lease)
            if kept.until_s is None or kept.n != n:
                if not is_repeated(kept, lease, n, lines, rest):
                    raise (
                        checks.lost_lease(lease) if kept.until_s is None else checks.misplaced_entries(lease, n, kept.n)
                    )
                return len(kept.posts)
            if lines:
                kept.add(lines)
            if lines or (rest is not None and rest.due_s != 0.0 and not rest.is_in_vain):
                kept.tries = 0
            for post in took:
                kept.posts.pop(post, None)
            if snapshot is not None:
                kept.snapshot = kept.n, snapshot
            if lines or rest is not None:
                kept.updated_s = self._clock()
            if rest is not None:
                kept.returned_at = n
                self._give_back(kept, rest)
            return len(kept.posts)

    def ask(self, lease: Lease, questions: Sequence[Question]) -> None:
        check_questions(questions)
        with self._lock:
            kept = self._run_of(lease)
            if kept.until_s is None:
                raise checks.lost_lease(lease)
            self._ask(kept, questions)
            self._listed.put(kept)
            self._notify()

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
        future = Future[int]()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(self.append(lease, n, lines, rest, took=took, snapshot=snapshot))
        except Exception as error:
            future.set_exception(error)
        return future

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        check_run(run)
        with self._lock:
            kept = self._get(run)
            if after is None:
                after = kept.snapshot[0] if kept.snapshot is not None else 0
            return Loaded(
                header=kept.header,
                snapshot=kept.snapshot,
                lines=tuple(kept.lines[after : kept.n]),
                posts=tuple(kept.posts.values()),
                run=row_of(kept, self._clock()),
            )

    def post(self, run: str, key: str, body: str, *, by: str = "", post_id: str = "", content: str = "") -> None:
        check_post(run, key, body, by, post_id)
        with self._lock:
            kept = self._get(run)
            if post_id and is_repeated_post(run, post_id, kept.posted.get(post_id), content or body):
                return
            if kept.is_ended:
                raise checks.ended_run(run)
            now_s = self._clock()
            if key:
                if (asked := kept.asked.get(key)) is None:
                    raise checks.unknown_question(run, key, [open_.key for open_ in open_questions(kept)])
                if asked.at_s is not None:
                    raise AlreadyAnswered(run, key, asked.by, asked.at_s)
                asked.by, asked.at_s = by, now_s
                self._listed.put(kept)
            if post_id:
                kept.posted[post_id] = content or body
            self._last_post += 1
            was_woken = is_woken(kept)
            kept.posts[self._last_post] = Post(self._last_post, key, body, by, now_s)
            if kept.until_s is None and is_woken(kept) > was_woken and kept.due_s != 0.0:  # 0.0: it was due before
                self._make_due(kept, now_s)
            else:
                self._notify()

    def posted(self, run: str, post_id: str) -> str | None:
        check_run(run)
        with self._lock:
            return self._get(run).posted.get(post_id)

    def get(self, run: str) -> Run:
        check_run(run)
        with self._lock:
            return row_of(self._get(run), self._clock())

    @with_options_shown("fsm_agent.store.store:RunFilter")
    def list(self, *, after: str | None = None, limit: int = 100, **which: Unpack[RunFilter]) -> Page:
        asked = wanted(after, limit, which)

        def is_wanted(place: Place, kept: StoredRun) -> bool:
            return asked.takes(place, effective_due_s(kept), kept.name, kept.title, kept.service)

        with self._lock:
            found = ((place, kept if is_wanted(place, kept) else None) for place, kept in self._listed.found(asked))
            rows, following = paged(found, asked)
            now_s = self._clock()
            return page_of([row_of(kept, now_s) for _, kept in rows], following)

    def stats(self) -> builtins.list[RunCount]:
        with self._lock:
            counts = self._listed.counted()
        return [group.counted(*counts[group]) for group in sorted(counts)]

    def health(self) -> RunsHealth:
        with self._lock:
            now_s = self._clock()
            since = self._queue.due_since(now_s)
            asked = [(group.asks, count) for group, (count, _) in self._listed.counted().items()]
            return health_of(len(since), min(since, default=None), self._count_held(now_s), asked, now_s)

    def head(self, conversation: str) -> Head:
        check_conversation(conversation)
        with self._lock:
            return self._heads.get(conversation, Head(conversation))

    def delete(self, run: str) -> None:
        check_run(run)
        with self._lock:
            kept = self._get(run)
            self._check_free(kept, self._clock())
            del self._runs[run]
            self._listed.remove(kept)
            kept.ticket = 0
            self._end(kept, self._clock())

    def forget(self, conversation: str) -> None:
        """Delete a conversation; its runs stay.  For those that bound what they keep in memory."""
        check_conversation(conversation)
        with self._lock:
            self._heads.pop(conversation, None)

    def wait(self, timeout_s: float) -> None:
        with self._lock:
            now_s = self._clock()
            vain = getattr(self._looked, "vain", None) or (self._changes, (), now_s, now_s)
            changes, agents, due_s, looked_s = vain
            self._looked.vain = None
            if changes != self._changes:  # a run has become due since this thread claimed in vain
                return
            timeout_s = wait_limit_s(timeout_s, self._queue.next_due_s(agents, due_s, looked_s), due_s, looked_s, now_s)
            self._waiting += 1
            try:
                self._due.wait(max(0.0, timeout_s))
            finally:
                self._waiting -= 1

    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        with self._lock:
            self._waiting += 1
            try:
                self._due.wait_for(lambda: self._changes != seen, max(0.0, timeout_s))
            finally:
                self._waiting -= 1
            return self._changes

    def close(self) -> None:
        """Do nothing; runs in memory need no closing."""

    def _take(self, kept: StoredRun, holder: str, for_s: float, now_s: float) -> Lease:
        if not kept.fence:
            kept.awaits = 0
        kept.fence += 1
        kept.tries += 1
        kept.holder, kept.since_s, kept.until_s = holder, now_s, now_s + for_s
        self._queue.hold(kept, kept.until_s)
        self._listed.put(kept)
        return Lease(kept.name, kept.agent, holder, kept.fence, now_s, kept.until_s, kept.n, kept.tries)

    def _get(self, run: str) -> StoredRun:
        if (kept := self._runs.get(run)) is None:
            raise checks.unknown_run(run)
        return kept

    def _run_of(self, lease: Lease) -> StoredRun:
        """Return the run of a lease; raise if the lease was superseded."""
        # The fence alone is not enough: a run that was deleted and created again counts its fences from 1 again.
        kept = self._runs.get(lease.run)
        if kept is None or kept.fence != lease.fence or kept.since_s != lease.since_s or kept.holder != lease.holder:
            raise checks.lost_lease(lease)
        return kept

    def _check_free(self, kept: StoredRun, now_s: float) -> None:
        if kept.until_s is not None and kept.until_s > now_s:
            raise RunBusy(kept.name, kept.holder, kept.since_s, kept.until_s)

    def _make_due(self, kept: StoredRun, now_s: float) -> None:
        since_s = min(now_s, kept.due_s) if kept.due_s else now_s
        self._queue.make_due(kept, since_s)
        self._notify()

    def _notify(self) -> None:
        self._changes += 1
        if self._waiting:
            self._due.notify_all()

    def _ask(self, kept: StoredRun, questions: Sequence[Question]) -> None:
        unread = {post.key for post in kept.posts.values()}
        kept.asked = merge_questions(kept.asked, questions, unread)

    def _give_back(self, kept: StoredRun, rest: Rest) -> None:
        kept.until_s = None
        kept.state, kept.is_ended, kept.is_failed = rest.state, rest.is_ended, rest.is_failed
        kept.heeds = rest.heeds
        kept.due_s = due_s = rest.due_s
        if rest.questions or kept.asked:
            self._ask(kept, rest.questions)
        self._listed.put(kept)
        kept.ticket = 0
        if rest.is_ended:
            self._end(kept, kept.updated_s)
        if rest.is_ended or (due_s is None and not is_woken(kept)):
            self._notify()  # those who wait for a rest
            return
        if due_s == 0.0 or is_woken(kept):
            self._make_due(kept, kept.updated_s)
        elif due_s is not None:
            self._queue.make_due_at(kept, due_s)
            self._notify()


_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()
_making = threading.Lock()  # held while a store is made, and during a fork
_forking: list[MemoryStore] = []  # the stores that wait for the end of a fork


def _before_fork() -> None:
    """Wait until no thread changes a store: a forked process would have a copy that is half changed, and locked."""
    _making.acquire()
    _forking.extend(_stores)
    for store in _forking:
        store._lock.acquire()


def _after_fork() -> None:
    for store in _forking:
        store._lock.release()
    _forking.clear()
    _making.release()


at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
