"""Runs in a folder of files that a person can read with ``less``, one for each run.

```
runs/order-17.jsonl            the journal: a line for each thing that happened, entries below the line that brings them
snapshots/order-17.5120        the newest snapshot; the journal says which
conversations/anna.jsonl       the heads of a conversation
holders/  changes  last-post   who lives, that something has changed, the id of the last post
```

An append is one write and one fsync: the rest, the posts that it uses up and the entries are one record; see
`run_records`.  The state of a run is the fold of its file, kept in memory and brought up to date by what has been added
to the file since.  The end of a file that was cut off, by ``kill -9`` or a power cut, was never acknowledged: it is
dropped, and a warning says so.  A file that cannot be read otherwise is named in an error; such a run is not in the
queue, and no other run suffers.

Each method locks the run's file for its time (flock), so the folder has to be on a disk of this machine.  Claims and
renewals are not forced to the disk: whoever could lose one by a power cut has died with it.

A claim without a name looks at the runs as they are known.  If the file ``changes`` says that one has become due, or
after a second, it looks at the size and time of each file first, and reads what was added to those that have changed.
For each run in the folder, ended ones included, that costs about 0.5 µs, or 5 µs: from some ten thousand runs on,
`SqliteStore` is right.

This file has more than 300 lines, because a method of a store makes sense only beside the others.
"""

from __future__ import annotations

import builtins
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from fsm_agent.runtime.private_files import write_private
from fsm_agent.store import refusals
from fsm_agent.store.changes import Changes
from fsm_agent.store.errors import AlreadyAnswered, Conflict, RunBusy, StoreError
from fsm_agent.store.folder.conversations import Conversation, Conversations, is_head
from fsm_agent.store.folder.run_file import (
    Known,
    LockedFile,
    RunFile,
    check_locks,
    close_copies,
    explained,
    make_folder,
    safe_name,
    sync_folder,
    version_of,
)
from fsm_agent.store.folder.run_records import Appended, Begun, Claimed, Posted, Renewed, State, lines_of
from fsm_agent.store.group_commit import GroupCommit
from fsm_agent.store.holders import Holders
from fsm_agent.store.refusals import check_entries, check_for_s, check_new, check_path, check_post, check_text
from fsm_agent.store.store import Head, Lease, Loaded, Post, Rest, Run

_LARGE = 1 << 20  # bytes of the file of changes before it begins anew
_AT_A_TIME = 64  # files that one commit has open
_LOOK_S = 1.0  # after which files are looked at anew, should an OS process have died before it told of a change


class _Append(NamedTuple):
    """The arguments of `FolderStore.append`."""

    lease: Lease
    n: int
    lines: tuple[str, ...]
    rest: Rest | None
    took: tuple[int, ...]
    snapshot: bytes | None


class FolderStore:
    """A store in a folder, which is made if it is not there; see `Store` for its methods.

    All files are readable by their owner only.  A store may be used by many threads, and on both sides of a fork.

    Args:
        path: The folder, on a disk of this machine.
        clock: Returns the Unix time.

    Raises:
        UsageError: This system has no flock.
        StoreError: The folder cannot be made.
    """

    is_volatile = False

    def __init__(self, path: str | os.PathLike[str], clock: Callable[[], float] = time.time) -> None:
        check_locks()
        check_path(path)
        self._path = Path(path).absolute()
        self._runs, self._snapshots = self._path / "runs", self._path / "snapshots"
        for folder in (self._path, self._runs, self._snapshots):
            make_folder(folder)
        self._conversations = Conversations(self._path / "conversations", self._state)
        self._folder_of_runs = str(self._runs)
        self._clock = clock
        self._known: dict[str, Known] = {}  # by the name of the file
        self._is_closed = False
        self._begin()
        _stores.add(self)

    def _begin(self) -> None:
        """Make what an OS process has for itself."""
        self._scanning = threading.Lock()
        self._scan: tuple[object, float] = None, -_LOOK_S  # the version of the changes, and when it was
        self._writer = GroupCommit[_Append](self._commit, self._closed)
        self._changes = Changes(self._version)
        self._holders = Holders(self._path / "holders")
        self._looked = threading.local()  # `vain`: how many changes there were before a claim that found nothing

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
        check_new(run, header, agent, holder, for_s)
        if follows is not None:
            check_text("the name of a conversation", follows.conversation)
        with self._conversation(follows) as conversation:
            head = conversation.head() if conversation is not None else None
            with self._opened(run, create=True) as file:
                if file.state is not None:
                    if file.header() != header:
                        raise refusals.other_header(run)
                    return False
                try:
                    if follows is not None and head != follows:
                        raise Conflict(follows.conversation, head.run if head is not None else "")
                    if conversation is not None and follows is not None:
                        conversation.move(follows.version + 1, run)
                    state = file.write(
                        Begun(nonce=uuid.uuid4().hex, id=run, agent=agent, at_s=self._clock(), follows=follows),
                        [header],
                    )
                    lease = None
                    if holder is not None:
                        lease = self._take(file, state, holder, for_s, self._holders.instance(self._has_leases))
                    file.commit()
                    sync_folder(self._runs)
                except BaseException:
                    os.unlink(file.path)
                    raise
        if lease is not None:
            return lease
        self._ring()
        return True

    def claim(
        self,
        holder: str,
        *,
        for_s: float,
        run: str | None = None,
        agents: Sequence[str] = (),
        now_s: float | None = None,
    ) -> Lease | None:
        check_for_s(for_s)
        for name in (holder, run or "", *agents):
            check_text("the name of a holder, a run or an agent", name)
        instance = self._holders.instance(self._has_leases)
        if run is not None:
            with self._opened(run) as file:
                state = _there(file, run)
                self._check_free(state, self._clock())
                return self._take(file, state, holder, for_s, instance)
        changes = self._changes.count()
        for state in self._due(agents, now_s):
            with self._opened(state.begun.id) as file:
                clock_s = self._clock()
                due_s = clock_s if now_s is None else now_s
                found = file.state
                if found is not None and found.is_due(due_s) and self._is_free(found, clock_s):
                    return self._take(file, found, holder, for_s, instance)
        self._looked.vain = changes
        return None

    def renew(self, lease: Lease, *, for_s: float) -> int:
        check_for_s(for_s)
        with self._opened(lease.run) as file:
            state = file.state
            if state is None or not state.is_of(lease) or state.until_s is None:
                raise refusals.lost(lease)
            file.write(Renewed(until_s=self._clock() + for_s))
            file.commit(is_forced=False)
            return len(state.posts)

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
        check_entries(lines, rest)
        with self._opened(lease.run) as file:
            before = file.state
            unread = self._append(file, _Append(lease, n, tuple(lines), rest, tuple(took), snapshot))
            if file.state is not before:
                file.commit()
                self._remove_snapshots(before, file.state)
        if rest is not None:
            self._ring()
        return unread

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
        check_entries(lines, rest)
        future: Future[int] = self._writer.submit(_Append(lease, n, tuple(lines), rest, tuple(took), snapshot))
        return future

    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        check_text("the name of a run", run)
        with self._opened(run) as file:
            state = _there(file, run)
            snapshot = None
            first, start = 0, 0
            if state.snapshot is not None:
                n, name, end = state.snapshot
                snapshot = n, self._snapshot(name)
                if after is None or after >= n:
                    first, start = n, end
            lines: builtins.list[str] = []
            for record, body, _ in file.records(start):
                if isinstance(record, Appended) and body:
                    lines += lines_of(body)
            return Loaded(
                header=file.header(),
                snapshot=snapshot,
                lines=tuple(lines[(after or 0) - first if after is not None else 0 :]),
                posts=state.posts,
                run=state.row(self._clock()),
            )

    def post(self, run: str, key: str, body: str, *, by: str = "") -> None:
        check_text("the name of a run", run)
        check_post(key, body, by)
        with self._opened(run) as file:
            state = _there(file, run)
            if state.is_ended:
                raise refusals.has_ended(run)
            if key:
                if (asked := state.asked.get(key)) is None:
                    raise refusals.not_asked(run, key, [question.key for question in state.open])
                if asked.at_s is not None:
                    raise AlreadyAnswered(run, key, asked.by, asked.at_s)
            file.write(Posted(Post(self._next_post(), key, body, by, self._clock())))
            file.commit()
        self._ring()

    def list(
        self,
        *,
        agent: str | None = None,
        ended: bool | None = None,
        asked: bool = False,
        due_before: float | None = None,
        limit: int = 100,
    ) -> builtins.list[Run]:
        now_s = self._clock()
        found = [
            state
            for state in self._scanned()
            if (agent is None or state.begun.agent == agent)
            and (ended is None or state.is_ended == ended)
            and (not asked or state.open)
            and (due_before is None or ((due_s := state.due_s) is not None and due_s < due_before))
        ]
        found.sort(key=lambda state: (state.updated_s, state.begun.at_s), reverse=True)
        return [state.row(now_s) for state in found[: max(0, limit)]]

    def head(self, conversation: str) -> Head:
        check_text("the name of a conversation", conversation)
        self._check_open()
        return self._conversations.head(conversation)

    def delete(self, run: str) -> None:
        check_text("the name of a run", run)
        with self._opened(run) as file:
            follows = _there(file, run).begun.follows
        with self._conversation(follows) as conversation:
            newest = conversation.head() if conversation is not None else None
            with self._opened(run) as file:
                state = _there(file, run)
                self._check_free(state, self._clock())
                if conversation is not None and newest is not None and is_head(state, newest):
                    conversation.move(newest.version, run, is_deleted=True)
                os.unlink(file.path)
                sync_folder(self._runs)
                self._remove_snapshots(state, None)

    def wait(self, timeout_s: float) -> None:
        count = getattr(self._looked, "vain", None)
        self._looked.vain = None
        states = [known.state for known in builtins.list(self._known.values()) if known.state is not None]
        now_s = self._clock()
        later = [state.due_since_s - now_s for state in states if not state.is_ended and state.due_since_s > now_s]
        self._changes.wait(self._changes.count() if count is None else count, min([timeout_s, *later]))

    def close(self) -> None:
        """Finish what was submitted, and let go of all leases; safe to repeat."""
        self._writer.close()
        if not self._is_closed:
            self._holders.end(self._has_leases)
        self._is_closed = True

    def _commit(self, appends: Sequence[_Append]) -> Sequence[int | Exception]:
        """Write appends with one fsync for each run; return what came of each."""
        outcomes: dict[int, int | Exception] = {}
        names = [safe_name(append.lease.run) for append in appends]
        order = sorted(range(len(appends)), key=names.__getitem__)  # so that nobody waits for whom it holds up
        runs = [builtins.list(indexes) for _, indexes in groupby(order, key=names.__getitem__)]
        for start in range(0, len(runs), _AT_A_TIME):
            with ExitStack() as stack:
                written = []
                for indexes in runs[start : start + _AT_A_TIME]:
                    try:
                        file = stack.enter_context(self._opened(appends[indexes[0]].lease.run))
                    except StoreError as error:
                        outcomes |= dict.fromkeys(indexes, error)
                        continue
                    before = file.state
                    outcomes |= {index: _outcome(self._append, file, appends[index]) for index in indexes}
                    written.append((file, before, indexes))
                for file, before, indexes in written:
                    if file.state is before:
                        continue
                    try:
                        file.commit()
                    except OSError as error:
                        reason = StoreError(f"{file.path!r}: {error.strerror or error}")
                        outcomes |= {index: reason for index in indexes if isinstance(outcomes[index], int)}
                    else:
                        self._remove_snapshots(before, file.state)
        if any(append.rest is not None for append in appends):
            self._ring()
        return [outcomes[index] for index in range(len(appends))]

    def _append(self, file: RunFile, new: _Append) -> int:
        state, lease = file.state, new.lease
        if state is None or not state.is_of(lease):
            raise refusals.lost(lease)
        if state.until_s is None or state.n != new.n:
            if not _is_repeated(file, new):
                raise refusals.lost(lease) if state.until_s is None else refusals.misplaced(lease, new.n, state.n)
            return len(state.posts)
        if not (new.lines or new.rest or new.took or new.snapshot is not None):
            return len(state.posts)
        name = ""
        if new.snapshot is not None:
            name = f"{safe_name(lease.run)}.{state.size}"
            with explained(self._snapshots / name):
                write_private(self._snapshots / name, new.snapshot)
        record = Appended(
            fence=lease.fence,
            n=new.n,
            at_s=self._clock(),
            lines=len(new.lines),
            rest=_without_past(new.rest),
            took=new.took,
            snapshot=name,
        )
        return len(file.write(record, new.lines).posts)

    def _take(self, file: RunFile, state: State, holder: str, for_s: float, instance: str) -> Lease:
        now_s = self._clock()
        claim = Claimed(fence=state.fence + 1, holder=holder, instance=instance, at_s=now_s, until_s=now_s + for_s)
        new = file.write(claim)
        file.commit(is_forced=False)
        begun = state.begun
        return Lease(begun.id, begun.agent, holder, new.fence, now_s, claim.until_s, new.n, new.tries)

    def _is_free(self, state: State, now_s: float) -> bool:
        return state.until_s is None or state.until_s <= now_s or self._holders.is_dead(state.instance)

    def _check_free(self, state: State, now_s: float) -> None:
        if state.until_s is not None and not self._is_free(state, now_s):
            raise RunBusy(state.begun.id, state.holder, state.since_s, state.until_s)

    def _dead(self, states: Sequence[State], clock_s: float) -> set[str]:
        """Return the stores that are dead, of those that hold some of these runs."""
        held = {state.instance for state in states if state.until_s is not None and state.until_s > clock_s}
        return set(filter(self._holders.is_dead, held))

    def _due(self, agents: Sequence[str], now_s: float | None) -> builtins.list[State]:
        """Return the runs that can be claimed, the one that has been due longest first."""
        self._check_open()
        version, then_s = self._scan
        if self._version() != version or time.monotonic() - then_s > _LOOK_S:
            self._scanned()
        clock_s = self._clock()
        due_s = clock_s if now_s is None else now_s
        states = [known.state for known in builtins.list(self._known.values()) if known.state is not None]
        dead = self._dead(states, clock_s)
        found = [
            state
            for state in states
            if state.is_due(due_s)
            and (state.until_s is None or state.until_s <= clock_s or state.instance in dead)
            and (not agents or state.begun.agent in agents)
        ]
        return sorted(found, key=lambda state: state.due_since_s)

    def _scanned(self) -> builtins.list[State]:
        """Return all runs as they are, after a look at each file."""
        self._check_open()
        found = {}
        with self._scanning, explained(self._runs):
            self._scan = self._version(), time.monotonic()
            before = set(self._known)
            with os.scandir(self._runs) as entries:
                for entry in entries:
                    name, dot, kind = entry.name.rpartition(".")
                    if dot and kind == "jsonl":
                        found[name] = self._looked_at(name, entry)
            for name in before.difference(found):  # other OS processes have deleted them
                self._known.pop(name, None)
        return [state for state in found.values() if state is not None]

    def _looked_at(self, name: str, entry: os.DirEntry[str]) -> State | None:
        try:
            version = version_of(entry.stat(follow_symlinks=False))
            known = self._known.get(name)
            if known is not None and known.version == version:
                return known.state
            with RunFile(self._folder_of_runs, name, self._known) as file:
                return file.state
        except FileNotFoundError:  # it was deleted meanwhile
            return None
        except StoreError as error:
            logging.getLogger("fsm_agent").warning("a run is left out: %s", error)
            self._known[name] = Known(None, version, b"")
            return None

    def _has_leases(self, instance: str) -> bool:
        return any(state.until_s is not None and state.instance == instance for state in self._scanned())

    def _opened(self, run: str, *, create: bool = False) -> RunFile:
        """Return the file of a run, to be entered; what is written and not committed is dropped in the end."""
        self._check_open()
        return RunFile(self._folder_of_runs, safe_name(run), self._known, create=create)

    @contextmanager
    def _conversation(self, follows: Head | None) -> Iterator[Conversation | None]:
        """Lend a conversation, locked; None if there is no head."""
        self._check_open()
        if follows is None:
            yield None
            return
        with self._conversations.locked(follows.conversation) as conversation:
            yield conversation

    def _state(self, run: str) -> State | None:
        with self._opened(run) as file:
            return file.state

    def _next_post(self) -> int:
        """Return an id that is greater than all before, without a wait for the disk: time goes on after a power cut."""
        path = str(self._path / "last-post")
        with LockedFile(path, create=True) as file:
            text = file.read()
            if text.strip() and not text.strip().isdigit():
                raise StoreError(f"{path!r} holds {text[:40]!r}: the id of the last post would be right")
            post = max(int(text or b"0") + 1, time.time_ns() // 1000)
            file.write(b"%d\n" % post, 0)
            return post

    def _snapshot(self, name: str) -> bytes:
        path = self._snapshots / name
        try:
            return path.read_bytes()
        except OSError as error:
            raise StoreError(f"the snapshot {str(path)!r} cannot be read: {error.strerror}") from None

    def _remove_snapshots(self, before: State | None, now: State | None) -> None:
        """Remove the snapshot of an older state, unless it is still the newest."""
        if before is not None and before.snapshot is not None and (now is None or now.snapshot != before.snapshot):
            with suppress(OSError):
                (self._snapshots / before.snapshot[1]).unlink()

    def _ring(self) -> None:
        """Tell all who wait, in any OS process; whoever does not hear of it finds out at the end of its wait."""
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with open(os.open(self._path / "changes", flags, 0o600), "ab", buffering=0) as file:
                if file.write(b".") and file.tell() > _LARGE:
                    file.truncate(0)
        self._changes.add()

    def _version(self) -> object:
        with suppress(OSError):
            return version_of((self._path / "changes").stat())
        return None

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._closed()

    def _closed(self) -> StoreError:
        return StoreError(f"the store {str(self._path)!r} is closed")

    def _begin_anew(self) -> None:
        """Make what the OS process has for itself, after a fork."""
        self._holders.abandon()
        self._begin()


def _there(file: RunFile, run: str) -> State:
    """Return the state of a run that has been created.

    Raises:
        RunUnknown: There is none.
    """
    if file.state is None:
        raise refusals.unknown(run)
    return file.state


def _outcome(append: Callable[[RunFile, _Append], int], file: RunFile, new: _Append) -> int | Exception:
    try:
        return append(file, new)
    except StoreError as error:
        return error
    except OSError as error:
        return StoreError(f"{file.path!r}: {error.strerror or error}")


def _is_repeated(file: RunFile, new: _Append) -> bool:
    """Return True if this append has been done before."""
    return any(
        isinstance(record, Appended)
        and (record.fence, record.n, record.lines) == (new.lease.fence, new.n, len(new.lines))
        and (record.rest is None) == (new.rest is None)
        and lines_of(body) == [*new.lines]
        for record, body, _ in file.records()
    )


def _without_past(rest: Rest | None) -> Rest | None:
    """Return a rest that is due at once, if it was due before there was time."""
    return rest.changed(due_s=0.0) if rest is not None and rest.due_s is not None and rest.due_s < 0.0 else rest


_stores: weakref.WeakSet[FolderStore] = weakref.WeakSet()


def _begin_anew() -> None:
    """Give a forked OS process its own; the files that the other one has open at that moment are not its."""
    close_copies()
    for store in list(_stores):
        store._begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
