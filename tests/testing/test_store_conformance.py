"""Does each check of the suite of stores catch a store that is wrong in just that?"""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from reference_store import Kept, ReferenceStore, check_texts

from fsm_agent.errors import FsmAgentError, UsageError
from fsm_agent.store import (
    AlreadyAnswered,
    Choice,
    Conflict,
    Head,
    Lease,
    LeaseLost,
    QueueFull,
    Rest,
    Run,
    RunExists,
    RunUnknown,
    Start,
    Store,
)
from fsm_agent.store.store import Loaded, Page, RunCount, RunFilter, RunsHealth
from fsm_agent.testing import StoreConformance
from fsm_agent.testing.storages import Storage, waiting

WAITING = waiting("k")


class ReferenceSuite(StoreConformance):
    make: ClassVar[type[ReferenceStore]] = ReferenceStore

    def opened(self, folder: Path, clock: Callable[[], float]) -> Store:
        return self.make(folder, clock)

    def opened_to_read(self, folder: Path, clock: Callable[[], float]) -> Store:
        return self.make(folder, clock, read_only=True)


class TestReference(ReferenceSuite):
    """Without a fault, nothing is found."""


class JumpingTime:
    """The system's time, which a sleep moves on at once."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def time(self) -> float:
        return time.time() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        self.ahead_s += seconds


class TestOwnClock(ReferenceSuite):
    """One with a clock of its own is waited for: leases so long that they do not run out by themselves take no time."""

    takes_clock = False
    short_s = 2.0
    jumping = JumpingTime()

    @pytest.fixture(autouse=True)
    def _sleeps_are_jumps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fsm_agent.testing.storages.time", self.jumping)

    def opened(self, folder: Path, clock: Callable[[], float]) -> Store:
        return ReferenceStore(folder, self.jumping.time)

    def opened_to_read(self, folder: Path, clock: Callable[[], float]) -> Store:
        return ReferenceStore(folder, self.jumping.time, read_only=True)


# what is kept


class IsNotDueAtFirst(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        made = super().create(run, header, agent=agent, follows=follows, **more)
        if made:
            self.kept(run).due_s = self.clock()
        return made


class TakesAnyHeader(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        try:
            return super().create(run, header, agent=agent, follows=follows, **more)
        except RunExists:
            return False


class AlwaysMadeTheRun(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        super().create(run, header, agent=agent, follows=follows, **more)
        return True


class HoldsNoNewRun(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        made = super().create(run, header, agent=agent, follows=follows, **more)
        if made:
            self.kept(run).until_s = None
        return made


class HoldsWhatIsThere(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        made = super().create(run, header, agent=agent, follows=follows, **more)
        return made or (more.get("holder") is not None and self.take(self.kept(run), "", self.clock(), 1.0))


class BeginsInTwoSteps(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        made = super().create(run, header, agent=agent, follows=follows)
        self.clock()
        if made and (holder := more.get("holder")) is not None:
            made = self.claim(holder, for_s=more["for_s"], run=run) or False
        return made


class NamesNoRun(ReferenceStore):
    def kept(self, run: str) -> Kept:
        if run not in self.shared.runs:
            raise RunUnknown("there is no such run")
        return super().kept(run)


class CountsFromOne(ReferenceStore):
    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        return super().load(run, after=after and after - 1)


class KeepsTheSnapshotOfARefusedAppend(ReferenceStore):
    def append(self, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None = None, **more: Any) -> int:
        if more.get("snapshot") is not None:
            self.kept(lease.run).snapshot = n, more["snapshot"]
        return super().append(lease, n, lines, rest, **more)


class UsesPostsUpInARefusedAppend(ReferenceStore):
    def check_follows(self, kept: Kept, lease: Lease, n: int) -> None:
        if n > len(kept.lines):
            kept.posts.clear()
        super().check_follows(kept, lease, n)


class RefusesRepetitions(ReferenceStore):
    def is_done(self, kept: Kept, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None) -> bool:
        return rest is not None and super().is_done(kept, lease, n, lines, rest)


class RemembersTheLastAppend(ReferenceStore):
    def is_done(self, kept: Kept, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None) -> bool:
        return n + len(lines) == len(kept.lines) and super().is_done(kept, lease, n, lines, rest)


class RefusesRepeatedRests(ReferenceStore):
    def is_done(self, kept: Kept, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None) -> bool:
        return rest is None and super().is_done(kept, lease, n, lines, rest)


class GivesBackWhatIsRepeated(ReferenceStore):
    def is_done(self, kept: Kept, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None) -> bool:
        done = super().is_done(kept, lease, n, lines, None)
        if done and rest is not None:
            self.give_back(kept, rest, self.clock())
        return done or super().is_done(kept, lease, n, lines, rest)


class RepeatsWithAnyRest(ReferenceStore):
    def is_done(self, kept: Kept, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None) -> bool:
        return super().is_done(kept, lease, n, lines, None) or super().is_done(kept, lease, n, lines, WAITING)


class RepeatsForThoseBefore(ReferenceStore):
    def append(self, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None = None, **more: Any) -> int:
        if self.is_done(self.kept(lease.run), lease, n, lines, rest):
            return 0
        return super().append(lease, n, lines, rest, **more)


class GoesOnWhenClosed(ReferenceStore):
    def close(self) -> None:
        pass


class DoesNothingWithoutLines(ReferenceStore):
    def append(self, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None = None, **more: Any) -> int:
        return super().append(lease, n, lines, rest, **more) if lines else 0


class SplitsLinesAnywhere(ReferenceStore):
    def load(self, run: str, *, after: int | None = 0) -> Loaded:
        loaded = super().load(run, after=after)
        return loaded.changed(lines=tuple("\n".join(loaded.lines).splitlines()))


class EndsTextsAtNul(ReferenceStore):
    def answer(self, kept: Kept, key: str, body: str, by: str, now_s: float) -> None:
        super().answer(kept, key, body.partition("\0")[0], by, now_s)


class TakesHalfCharacters(ReferenceStore):
    def append(self, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None = None, **more: Any) -> int:
        return super().append(lease, n, [line.encode("utf-8", "replace").decode() for line in lines], rest, **more)


class TakesNoName(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        return super().create(run or "?", header, agent=agent, follows=follows, **more)


class FoldsCase(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        if run.casefold() in self.shared.runs and run != run.casefold():
            raise RunExists(f"there is another run {run!r}")
        return super().create(run, header, agent=agent, follows=follows, **more)


class ForgetsSnapshots(ReferenceStore):
    def append(self, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None = None, **more: Any) -> int:
        posts = super().append(lease, n, lines, rest, **more)
        if more.get("snapshot") is None:
            self.kept(lease.run).snapshot = None
        return posts


class KeepsTheFirstSnapshot(ReferenceStore):
    def write(self, kept: Kept, *arguments: Any) -> None:
        before = kept.snapshot
        super().write(kept, *arguments)
        kept.snapshot = before or kept.snapshot


class KeepsItsHeadsToItself(ReferenceStore):
    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        super().__init__(folder, clock)
        self.heads: dict[str, Head] = {}

    def follow(self, head: Head, run: str) -> None:
        super().follow(head, run)
        self.heads[head.conversation] = self.shared.heads[head.conversation]

    def head(self, conversation: str) -> Head:
        return self.heads.get(conversation, Head(conversation))


class SubmitsOutOfOrder(ReferenceStore):
    def submit(self, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None = None, **more: Any) -> Any:
        self.writer = ThreadPoolExecutor(1) if n == 5 else self.writer
        if n == 4:
            self.is_overtaken = threading.Event()
            self.writer.submit(self.is_overtaken.wait, 20)
        future = super().submit(lease, n, lines, rest, **more)
        if n == 5:
            future.add_done_callback(lambda _: self.is_overtaken.set())
        return future


class SubmitsNoSnapshots(ReferenceStore):
    def submit(self, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None = None, **more: Any) -> Future[int]:
        return super().submit(lease, n, lines, rest, took=more.get("took", ()))


class FailsTogether(ReferenceStore):
    failure: LeaseLost | None = None

    def submit(self, *arguments: Any, **more: Any) -> Future[int]:
        def append() -> int:
            if self.failure is not None:
                raise self.failure
            try:
                return self.append(*arguments, **more)
            except LeaseLost as error:
                self.failure = error
                raise

        return self.writer.submit(append)


class BlocksInSubmit(ReferenceStore):
    def submit(self, *arguments: Any, **more: Any) -> Future[int]:
        future = Future[int]()
        future.set_result(self.append(*arguments, **more))
        return future


class ListsByAge(ReferenceStore):
    def list(self, **filters: Any) -> list[Run]:
        return sorted(super().list(**filters), key=lambda run: -run.created_s)


class ListsWithoutLimit(ReferenceStore):
    def list(self, *, limit: int = 100, **filters: Any) -> list[Run]:
        return super().list(**filters)


class ListsFreeRunsAsDue(ReferenceStore):
    def list(self, **filters: Any) -> list[Run]:
        runs = super().list(**filters)
        return [run for run in runs if not run.holder] if filters.get("due_before") is not None else runs


class ListsWhatIsDueAtThatTime(ReferenceStore):
    def list(self, *, due_before: float | None = None, **filters: Any) -> list[Run]:
        return super().list(due_before=due_before and due_before + 0.001, **filters)


class ListsAnsweredQuestions(ReferenceStore):
    def list(self, *, asked: bool = False, **filters: Any) -> list[Run]:
        return [run for run in super().list(**filters) if not asked or self.kept(run.id).asked]


class ForgetsTheTitle(ReferenceStore):
    def get(self, run: str) -> Run:
        return super().get(run).changed(title="")


class GetsWhatIsNotThere(ReferenceStore):
    def get(self, run: str) -> Run:
        return super().get(run) if run in self.shared.runs else self.row(Kept(run, "", "", Start(), 0.0))


class LosesSchemas(ReferenceStore):
    def asked_now(self, kept: Kept, rest: Rest) -> dict[str, Any]:
        plain = [question.changed(schema="") for question in rest.questions]
        return super().asked_now(kept, rest.changed(questions=tuple(plain)))


class FailsForEver(ReferenceStore):
    def give_back(self, kept: Kept, rest: Rest, now_s: float) -> None:
        super().give_back(kept, rest.changed(is_failed=rest.is_failed or kept.is_failed), now_s)


class FailsByName(ReferenceStore):
    def is_wanted(self, row: Run, which: RunFilter) -> bool:
        failed = which.pop("failed", None)
        return super().is_wanted(row, which) and failed in (None, row.is_ended)


class WaitsForParts(ReferenceStore):
    def is_wanted(self, row: Run, which: RunFilter) -> bool:
        kind = which.get("waiting_for") or ""
        rest = RunFilter(**{**which, "waiting_for": None})  # type: ignore[typeddict-item]
        return super().is_wanted(row, rest) and any(kind in question.kind for question in row.waits)


class WaitsForWhatWasAnswered(ReferenceStore):
    def is_wanted(self, row: Run, which: RunFilter) -> bool:
        asked = [question for question, _, _ in self.kept(row.id).asked.values()]
        return super().is_wanted(row.changed(waits=tuple(asked)), which)


class FindsWordsInOneCase(ReferenceStore):
    def is_wanted(self, row: Run, which: RunFilter) -> bool:
        return super().is_wanted(row, which) and which.get("text", "") in f"{row.id} {row.title}"


class FindsNoTitles(ReferenceStore):
    def is_wanted(self, row: Run, which: RunFilter) -> bool:
        return super().is_wanted(row.changed(title=""), which)


class TakesAnyFilter(ReferenceStore):
    def list(self, **which: Any) -> Page:
        try:
            return super().list(**which)
        except UsageError:
            return Page()


class BeginsAgainAfterNonsense(ReferenceStore):
    def place_in(self, after: Any) -> tuple[float, int]:
        try:
            return super().place_in(after)
        except UsageError:
            return super().place_in(None)


class GoesOnByTimeAlone(ReferenceStore):
    def place_in(self, after: Any) -> tuple[float, int]:
        moment, number = super().place_in(after)
        return moment, number if after is None else -1


class EndsAfterOnePage(ReferenceStore):
    def list(self, **which: Any) -> Page:
        return Page(super().list(**which))


class GoesOnByCount(ReferenceStore):
    def list(self, *, after: str | None = None, limit: int = 100, **which: Any) -> Page:
        first, whole = int((after or "0").removesuffix("~")), super().list(limit=10**6, **which)
        page = Page(whole[first : first + limit])
        page.next = f"{first + limit}~" if len(whole) > first + limit > first else None
        return page


class CountsByState(ReferenceStore):
    def stats(self) -> list[RunCount]:
        return [count.changed(agent="a") for count in super().stats()]


class CountsTheNewest(ReferenceStore):
    def stats(self) -> list[RunCount]:
        newest = max([row.updated_s for row in self.list()], default=0.0)
        return [count.changed(oldest_s=newest) for count in super().stats()]


class WritesWhatItReads(ReferenceStore):
    def check_writable(self) -> None:
        pass


class MakesWhatItReads(ReferenceStore):
    def __init__(self, folder: Path, clock: Callable[[], float], *, read_only: bool = False) -> None:
        folder.joinpath("runs").touch()
        super().__init__(folder, clock, read_only=read_only)


class ComparesRunsAlone(ReferenceStore):
    def follow(self, head: Head, run: str) -> None:
        now = self.head(head.conversation)
        super().follow(now if now.run == head.run else head, run)


class LeavesTheLoserBehind(ReferenceStore):
    def follow(self, head: Head, run: str) -> None:
        self.shared.runs[run] = Kept(run, "header", "a", Start(), self.clock())
        super().follow(head, run)


class LetsAllFollow(ReferenceStore):
    def follow(self, head: Head, run: str) -> None:
        super().follow(self.head(head.conversation), run)


class FollowsInTwoSteps(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        if follows is not None:
            if self.head(follows.conversation) != follows:
                raise Conflict(follows.conversation, self.head(follows.conversation).run)
            self.clock()
            follows = self.head(follows.conversation)
        return super().create(run, header, agent=agent, follows=follows, **more)


class DeletesWhatIsHeld(ReferenceStore):
    def delete(self, run: str) -> None:
        self.kept(run)
        del self.shared.runs[run]


class DeletesTheHead(ReferenceStore):
    def delete(self, run: str) -> None:
        super().delete(run)
        for name, head in list(self.shared.heads.items()):
            if head.run == run:
                del self.shared.heads[name]


class DeletesWhatWasGivenBackAlone(ReferenceStore):
    def delete(self, run: str) -> None:
        kept = self.kept(run)
        if kept.until_s is not None:
            kept.until_s += 9
        super().delete(run)


class ComparesFencesAlone(ReferenceStore):
    def newest(self, lease: Lease) -> Kept:
        kept = self.shared.runs.get(lease.run)
        return super().newest(lease if kept is None else lease.changed(holder=kept.holder, since_s=kept.since_s))


class PicksUpWhatWasDeleted(ReferenceStore):
    deleted: ClassVar[dict[str, Kept]] = {}

    def delete(self, run: str) -> None:
        kept = self.kept(run)
        super().delete(run)
        self.deleted[run] = kept

    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        made = super().create(run, header, agent=agent, follows=follows, **more)
        if run in self.deleted:
            self.kept(run).posts = self.deleted.pop(run).posts
        return made


# leases


class SaysHowLongInsteadOfWhen(ReferenceStore):
    def take(self, kept: Kept, holder: str, at_s: float, for_s: float) -> Lease:
        return super().take(kept, holder, at_s, for_s).changed(until_s=for_s)


class LetsItsHolderIn(ReferenceStore):
    def check_free(self, kept: Kept, at_s: float, holder: str) -> None:
        if kept.holder != holder:
            super().check_free(kept, at_s, holder)


class NamesTheClaimant(ReferenceStore):
    def check_free(self, kept: Kept, at_s: float, holder: str) -> None:
        if kept.until_s is not None and kept.until_s > at_s:
            super().check_free(_named(kept, holder or kept.holder), at_s, holder)


def _named(kept: Kept, holder: str) -> Kept:
    other = Kept(kept.name, kept.header, kept.agent, Start(), kept.created_s)
    other.holder, other.since_s, other.until_s = holder, kept.since_s, kept.until_s
    return other


class KeepsTheFenceOfItsHolder(ReferenceStore):
    def take(self, kept: Kept, holder: str, at_s: float, for_s: float) -> Lease:
        kept.fence -= kept.holder == holder
        return super().take(kept, holder, at_s, for_s)


class BelievesOldHolders(ReferenceStore):
    def newest(self, lease: Lease) -> Kept:
        return self.kept(lease.run)


class EndsLeasesTooLate(ReferenceStore):
    def longest_due(self, at_s: float, due_s: float, agents: Sequence[str]) -> str | None:
        return super().longest_due(at_s - 0.001, due_s, agents)


class EndsLeasesByTime(ReferenceStore):
    def check_follows(self, kept: Kept, lease: Lease, n: int) -> None:
        super().check_follows(kept, lease, n)
        if kept.until_s is not None and kept.until_s <= self.clock():
            raise LeaseLost(f"the lease of {lease.run!r} is over")


class RenewsWhatWasGivenBack(ReferenceStore):
    def renew(self, lease: Lease, *, for_s: float) -> int:
        self.newest(lease).until_s = self.clock() + for_s
        return 0


class RenewsFromTheOldEnd(ReferenceStore):
    def renew(self, lease: Lease, *, for_s: float) -> int:
        end_s = self.newest(lease).until_s or 0.0
        return super().renew(lease, for_s=end_s + for_s - self.clock())


class RenewsInSilence(ReferenceStore):
    def renew(self, lease: Lease, *, for_s: float) -> int:
        super().renew(lease, for_s=for_s)
        return 0


class RenewsNoneIfOneIsLost(ReferenceStore):
    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        return [self.renew(lease, for_s=for_s) for lease in leases]


class ForgetsItsChoice(ReferenceStore):
    def is_chosen(self, kept: Kept) -> bool:
        return True


class ChoosesByDefinitionAlone(ReferenceStore):
    def is_chosen(self, kept: Kept) -> bool:
        self.choice = None if self.choice is None else self.choice.changed(busy=())
        return super().is_chosen(kept)


class LeavesNoRoom(ReferenceStore):
    def has_room(self, agent: str, key: str) -> bool:
        return True


class LeavesRoomForAgentsAlone(ReferenceStore):
    def has_room(self, agent: str, key: str) -> bool:
        return super().has_room(agent, "")


class LeavesRoomForKeysAlone(ReferenceStore):
    def has_room(self, agent: str, key: str) -> bool:
        return super().has_room("", key)


class CountsTheDead(ReferenceStore):
    def is_held(self, kept: Kept) -> bool:
        return kept.until_s is not None


class CountsOneTooFew(ReferenceStore):
    def has_room(self, agent: str, key: str) -> bool:
        assert self.choice is not None
        choice = self.choice
        self.choice = choice.changed(limits=tuple([(name, limit + 1) for name, limit in choice.limits]))
        try:
            return super().has_room(agent, key)
        finally:
            self.choice = choice


class SaysThatTheDeadDrive(ReferenceStore):
    def health(self) -> RunsHealth:
        health = super().health()
        left = [kept for kept in self.shared.runs.values() if kept.until_s is not None and not kept.is_ended]
        return health.changed(due=health.due + health.held - len(left), held=len(left))


class CountsStuckApart(ReferenceStore):
    def health(self) -> RunsHealth:
        health = super().health()
        return health.changed(asked=health.asked - health.stuck)


class IsDueSinceTheLastRest(ReferenceStore):
    def health(self) -> RunsHealth:
        since = [kept.updated_s for kept in self.shared.runs.values() if kept.due_s == 0.0]
        return super().health().changed(oldest_due_s=self.clock() - min(since, default=self.clock()))


class SpendsForItselfAlone(ReferenceStore):
    def spend(self, name: str, amount: int, *, limit: int, within_s: float) -> float:
        return super().spend(f"{name} of {id(self)}", amount, limit=limit, within_s=within_s)


class RefusesWhatNeverFits(ReferenceStore):
    def spend(self, name: str, amount: int, *, limit: int, within_s: float) -> float:
        return within_s if amount > limit else super().spend(name, amount, limit=limit, within_s=within_s)


class KeepsWhatIsGivenBack(ReferenceStore):
    def spend(self, name: str, amount: int, *, limit: int, within_s: float) -> float:
        if amount < 0:
            self.shared.spent[name].append((self.clock(), amount))
            return 0.0
        return super().spend(name, amount, limit=limit, within_s=within_s)


class SpendsInTwoSteps(ReferenceStore):
    def spend(self, name: str, amount: int, *, limit: int, within_s: float) -> float:
        if sum([used for _, used in self._shared.spent[name]]) >= limit:
            return within_s
        time.sleep(0.01)
        self._shared.spent[name].append((self.clock(), amount))
        return 0.0


class RenewsInAnotherOrder(ReferenceStore):
    def renew_all(self, leases: Sequence[Lease], *, for_s: float) -> Sequence[int | LeaseLost]:
        return super().renew_all(sorted(leases, key=lambda lease: lease.run), for_s=for_s)


class SeesPostsEverywhere(ReferenceStore):
    def unread(self, names: Sequence[str]) -> Any:
        return set(names)


class IsDueTooLate(ReferenceStore):
    def longest_due(self, at_s: float, due_s: float, agents: Sequence[str]) -> str | None:
        return super().longest_due(at_s, due_s - 0.001, agents)


class KnowsOnlyNow(ReferenceStore):
    def longest_due(self, at_s: float, due_s: float, agents: Sequence[str]) -> str | None:
        return super().longest_due(at_s, at_s, agents)


class ClaimsOnlyWhatIsDue(ReferenceStore):
    def claim(self, holder: str, *, run: str | None = None, **more: Any) -> Lease | None:
        if run is not None and (self.kept(run).due_s or 0.0) > self.clock():
            return None
        return super().claim(holder, run=run, **more)


class ClaimsByName(ReferenceStore):
    def longest_due(self, at_s: float, due_s: float, agents: Sequence[str]) -> str | None:
        names = sorted(self.shared.runs)
        free = [name for name in names if (self.kept(name).due_s or 0.0) <= due_s and self.kept(name).until_s is None]
        return next((name for name in free if not agents or self.kept(name).agent in agents), None)


class ClaimsOfAllAgents(ReferenceStore):
    def longest_due(self, at_s: float, due_s: float, agents: Sequence[str]) -> str | None:
        return super().longest_due(at_s, due_s, ())


class PutsNewRunsFirst(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, follows: Head | None = None, **more: Any) -> Lease | bool:
        made = super().create(run, header, agent=agent, follows=follows, **more)
        self.kept(run).due_since_s = -self.clock() if made else self.kept(run).due_since_s
        return made


class KeepsTheDueTimeOfTheLastRest(ReferenceStore):
    def take(self, kept: Kept, holder: str, at_s: float, for_s: float) -> Lease:
        due_s = kept.due_s
        lease = super().take(kept, holder, at_s, for_s)
        kept.due_s = due_s
        return lease


class WakesTheDead(ReferenceStore):
    def give_back(self, kept: Kept, rest: Rest, now_s: float) -> None:
        super().give_back(kept, rest, now_s)
        if kept.posts:
            kept.due_s = 0.0


class TakesPostsForTheDead(ReferenceStore):
    def check_open(self, kept: Kept, key: str) -> None:
        if key:
            super().check_open(kept, key)


class CountsTriesForEver(ReferenceStore):
    def write(self, kept: Kept, *arguments: Any) -> None:
        tries = kept.tries
        super().write(kept, *arguments)
        kept.tries = tries


class ForgivesAtEachRest(ReferenceStore):
    def give_back(self, kept: Kept, rest: Rest, now_s: float) -> None:
        super().give_back(kept, rest, now_s)
        kept.tries = 0


class ForgivesNoRest(ReferenceStore):
    def write(self, kept: Kept, lease: Lease, n: int, lines: Sequence[str], *arguments: Any) -> None:
        tries = kept.tries
        super().write(kept, lease, n, lines, *arguments)
        kept.tries = 0 if lines else tries


class IsDueOnceItWasClaimed(ReferenceStore):
    def take(self, kept: Kept, holder: str, at_s: float, for_s: float) -> Lease:
        lease = super().take(kept, holder, at_s, for_s)
        kept.due_s = 0.0
        return lease


class GivesSomeRunsTwice(ReferenceStore):
    def take(self, kept: Kept, holder: str, at_s: float, for_s: float) -> Lease:
        lease = super().take(kept, holder, at_s, for_s)
        if kept.name == "r7" and kept.fence == 1:
            kept.until_s = None
        return lease


class ClaimsInTwoSteps(ReferenceStore):
    def claim(
        self,
        holder: str,
        *,
        for_s: float,
        run: str | None = None,
        agents: Sequence[str] = (),
        now_s: float | None = None,
    ) -> Lease | None:
        run = run or self.longest_due(0.0, 1e12, agents)
        if run is None:
            return None
        self.check_free(self.kept(run), 0.0, holder)
        return self.take(self.kept(run), holder, self.clock(), for_s)


class AppendsInTwoSteps(ReferenceStore):
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
        kept = self.newest(lease)
        if not self.is_done(kept, lease, n, lines, rest):
            self.check_follows(kept, lease, n)
            self.write(kept, lease, n, lines, rest, took, snapshot, self.clock())
        return len(kept.posts)


class HeedsAll(ReferenceStore):
    def is_heeded(self, kept: Kept, key: str) -> bool:
        return True


class HeedsNothingElseForEver(ReferenceStore):
    def give_back(self, kept: Kept, rest: Rest, now_s: float) -> None:
        super().give_back(kept, rest.changed(heeds=rest.heeds or kept.heeds), now_s)


class LosesAnEntry(ReferenceStore):
    def write(self, kept: Kept, *arguments: Any) -> None:
        super().write(kept, *arguments)
        if len(kept.lines) == 7:
            del kept.lines[3]


class WaitsForItself(ReferenceStore):
    def wait(self, timeout_s: float) -> None:
        threading.Event().wait(timeout_s)


class HearsNoRests(ReferenceStore):
    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        threading.Event().wait(0.0 if seen < 0 else timeout_s)
        return 0


class SaysTheSameAfterARest(ReferenceStore):
    def wait_for_rest(self, seen: int, timeout_s: float) -> int:
        super().wait_for_rest(seen, min(0.001, timeout_s))
        return 0


class HearsNoPosts(ReferenceStore):
    def wait(self, timeout_s: float) -> None:
        with self.shared.changed:
            runs, before = self.shared.runs, len(self.shared.runs)
            self.shared.changed.wait_for(lambda: len(runs) > before, timeout_s)


class WaitsUntilSomethingHappens(ReferenceStore):
    def wait(self, timeout_s: float) -> None:
        super().wait(timeout_s + 2)


# posts and questions


class NumbersPostsByRun(ReferenceStore):
    def next_id(self, kept: Kept) -> int:
        return max([post.id for post in kept.posts], default=0) + 1


class UsesAllPostsUp(ReferenceStore):
    def write(self, kept: Kept, *arguments: Any) -> None:
        super().write(kept, *arguments)
        if arguments[4]:
            kept.posts.clear()


class HasTheRestDecide(ReferenceStore):
    def give_back(self, kept: Kept, rest: Rest, now_s: float) -> None:
        super().give_back(kept, rest, now_s)
        kept.due_s = rest.due_s


class TakesTheLastAnswer(ReferenceStore):
    def check_open(self, kept: Kept, key: str) -> None:
        try:
            super().check_open(kept, key)
        except AlreadyAnswered:
            kept.posts = [post for post in kept.posts if post.key != key]


class ListsQuestionsAsAsked(ReferenceStore):
    def row(self, kept: Kept) -> Run:
        row = super().row(kept)
        return row.changed(waits=tuple([question for question, by, _ in kept.asked.values() if by is None]))


class WakesForNothing(ReferenceStore):
    def check_open(self, kept: Kept, key: str) -> None:
        kept.due_s = 0.0
        super().check_open(kept, key)


class AddsQuestionsUp(ReferenceStore):
    def asked_now(self, kept: Kept, rest: Rest) -> dict[str, Any]:
        return kept.asked | super().asked_now(kept, rest)


class ClosesQuestionsAtEachAppend(ReferenceStore):
    def write(self, kept: Kept, *arguments: Any) -> None:
        super().write(kept, *arguments)
        if arguments[3] is None:
            kept.asked = {}


class AsksEachTimeAnew(ReferenceStore):
    def asked_now(self, kept: Kept, rest: Rest) -> dict[str, Any]:
        return {question.key: (question, None, 0.0) for question in rest.questions}


class ShowsTheLastWords(ReferenceStore):
    def asked_now(self, kept: Kept, rest: Rest) -> dict[str, Any]:
        asked = super().asked_now(kept, rest)
        return {question.key: (question, *asked[question.key][1:]) for question in rest.questions}


class AsksOnceForAll(ReferenceStore):
    answered: ClassVar[dict[str, Any]] = {}

    def asked_now(self, kept: Kept, rest: Rest) -> dict[str, Any]:
        self.answered.update({key: asked for key, asked in kept.asked.items() if asked[1] is not None})
        return super().asked_now(kept, rest) | {
            question.key: self.answered[question.key] for question in rest.questions if question.key in self.answered
        }


class HasRefusedAnswersStay(ReferenceStore):
    def asked_now(self, kept: Kept, rest: Rest) -> dict[str, Any]:
        return {question.key: kept.asked.get(question.key, (question, None, 0.0)) for question in rest.questions}


class AnswersInTwoSteps(ReferenceStore):
    def post(self, run: str, key: str, body: str, *, by: str = "") -> None:
        kept = self.kept(run)
        self.check_open(kept, key)
        self.answer(kept, key, body, by, self.clock())
        kept.due_s = 0.0


class WakesNobody(ReferenceStore):
    def post(self, run: str, key: str, body: str, *, by: str = "") -> None:
        due_s = self.kept(run).due_s
        super().post(run, key, body, by=by)
        self.kept(run).due_s = due_s

    def give_back(self, kept: Kept, rest: Rest, now_s: float) -> None:
        super().give_back(kept, rest, now_s)
        kept.due_s = rest.due_s


class CountsPostsTooEarly(ReferenceStore):
    """It is trap 1 of databases: a statement that waits for a row sees the letters of before."""

    def append(self, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None = None, **more: Any) -> int:
        posts = list(self.kept(lease.run).posts)
        self.clock()
        count = super().append(lease, n, lines, rest, **more)
        if rest is not None and not posts:
            self.kept(lease.run).due_s = rest.due_s
        return count


class LooksForTheHolderTooEarly(ReferenceStore):
    def post(self, run: str, key: str, body: str, *, by: str = "") -> None:
        is_held = self.kept(run).until_s is not None
        self.clock()
        super().post(run, key, body, by=by)
        if is_held:  # its holder will see to it
            self.kept(run).due_s = None


# how runs start


class IgnoresStarts(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, start: Start | None = None, **more: Any) -> Lease | bool:
        start = start and start.changed(due_s=0.0)
        return super().create(run, header, agent=agent, start=start, **more)


class CountsDelaysFromNow(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, start: Start | None = None, **more: Any) -> Lease | bool:
        if start is not None and start.due_s < self.clock():
            start = start.changed(due_s=0.0)
        return super().create(run, header, agent=agent, start=start, **more)


class StartsAtAPost(ReferenceStore):
    def is_heeded(self, kept: Kept, key: str) -> bool:
        return super().is_heeded(kept, key) or not kept.fence


class ClaimsTheLowestFirst(ReferenceStore):
    def longest_due(self, at_s: float, due_s: float, agents: Sequence[str]) -> str | None:
        for kept in self.shared.runs.values():
            kept.start = kept.start.changed(priority=-abs(kept.start.priority))
        return super().longest_due(at_s, due_s, agents)


class ForgetsPriorities(ReferenceStore):
    def take(self, kept: Kept, holder: str, at_s: float, for_s: float) -> Lease:
        kept.start = kept.start.changed(priority=0)
        return super().take(kept, holder, at_s, for_s)


class StartsAfterTheFirst(ReferenceStore):
    def end(self, run: str, now_s: float) -> None:
        for kept in self.shared.runs.values():
            kept.awaits = {run} if run in kept.awaits else kept.awaits
        super().end(run, now_s)


class StartsWhatIsHeld(ReferenceStore):
    def end(self, run: str, now_s: float) -> None:
        for kept in self.shared.runs.values():
            if run in kept.awaits:
                kept.due_s = 0.0
        super().end(run, now_s)


class ComesAfterNobody(ReferenceStore):
    def unended(self, runs: Sequence[str]) -> set[str]:
        return super().unended([run for run in runs if run in self.shared.runs])


class LooksForTheEndTooEarly(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, start: Start | None = None, **more: Any) -> Lease | bool:
        awaits = self.unended(start.after) if start is not None else set()
        self.clock()
        made = super().create(run, header, agent=agent, start=start, **more)
        if awaits:
            self.kept(run).due_s = None
        return made


class EndsInTwoSteps(ReferenceStore):
    def append(self, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None = None, **more: Any) -> int:
        is_last = {kept.name for kept in self.shared.runs.values() if kept.awaits == {lease.run}}
        self.clock()
        count = super().append(lease, n, lines, rest, **more)
        for kept in self.shared.runs.values():
            if not kept.fence and kept.start.after and kept.name not in is_last:
                kept.due_s = None
        return count


class CountsAllRuns(ReferenceStore):
    def check_queue(self, agent: str, start: Start) -> None:
        if start.queue_limit is not None and len(self.shared.runs) >= start.queue_limit:
            raise QueueFull(agent, len(self.shared.runs), start.queue_limit)


class LetsAllIn(ReferenceStore):
    def check_queue(self, agent: str, start: Start) -> None:
        """Refuse none."""


class CountsInTwoSteps(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, start: Start | None = None, **more: Any) -> Lease | bool:
        super().check_queue(agent, start or Start())
        self.clock()
        return super().create(run, header, agent=agent, start=start, **more)

    def check_queue(self, agent: str, start: Start) -> None:
        """It was done before."""


class StartsAnew(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, start: Start | None = None, **more: Any) -> Lease | bool:
        made = super().create(run, header, agent=agent, start=start, **more)
        if start is not None:
            self.kept(run).start = start
        return made


class TakesAnyStart(ReferenceStore):
    def create(self, run: str, header: str, *, agent: str, start: Start | None = None, **more: Any) -> Lease | bool:
        if start is not None and start.priority > 100:
            start = start.changed(priority=100)
        return super().create(run, header, agent=agent, start=start, **more)


class HearsNoStarts(ReferenceStore):
    def wait(self, timeout_s: float) -> None:
        time.sleep(timeout_s)


FAULTS: list[tuple[str, type[ReferenceStore], dict[str, Any]]] = [
    ("a_new_run_is_due_and_empty", IsNotDueAtFirst, {}),
    ("creating_again_changes_nothing", TakesAnyHeader, {}),
    ("creating_again_changes_nothing", AlwaysMadeTheRun, {}),
    ("many_create_one_run_once", AlwaysMadeTheRun, {}),
    ("an_unknown_run_is_named", NamesNoRun, {}),
    ("entries_come_back_in_order", CountsFromOne, {}),
    ("an_append_follows_the_last_entry", KeepsTheSnapshotOfARefusedAppend, {}),
    ("an_append_follows_the_last_entry", UsesPostsUpInARefusedAppend, {}),
    ("an_append_can_be_repeated", RefusesRepetitions, {}),
    ("an_append_can_be_repeated", RemembersTheLastAppend, {}),
    ("a_giving_back_can_be_repeated", RefusesRepeatedRests, {}),
    ("a_repeated_append_gives_nothing_back", GivesBackWhatIsRepeated, {}),
    ("a_repetition_has_a_rest_if_the_first_had_one", RepeatsWithAnyRest, {}),
    ("a_repetition_is_refused_after_another_claim", RepeatsForThoseBefore, {}),
    ("a_closed_store_says_so", GoesOnWhenClosed, {}),
    ("an_append_may_have_no_lines", DoesNothingWithoutLines, {}),
    ("any_text_comes_back", SplitsLinesAnywhere, {}),
    ("any_text_comes_back", EndsTextsAtNul, {}),
    ("what_cannot_be_kept_is_refused", TakesHalfCharacters, {}),
    ("what_cannot_be_kept_is_refused", TakesNoName, {}),
    ("names_stay_apart", FoldsCase, {}),
    ("a_snapshot_replaces_the_one_before", ForgetsSnapshots, {}),
    ("a_snapshot_replaces_the_one_before", KeepsTheFirstSnapshot, {}),
    ("what_is_kept_outlives_its_store", KeepsItsHeadsToItself, {}),
    ("submit_does_what_append_does", SubmitsOutOfOrder, {}),
    ("submit_does_what_append_does", SubmitsNoSnapshots, {}),
    ("what_is_submitted_fails_alone", FailsTogether, {}),
    ("submit_does_not_block", BlocksInSubmit, {}),
    ("list_has_the_last_changed_first", ListsByAge, {}),
    ("list_has_the_last_changed_first", ListsWithoutLimit, {}),
    ("list_has_what_was_asked_for", ListsFreeRunsAsDue, {}),
    ("list_has_what_was_asked_for", ListsWhatIsDueAtThatTime, {}),
    ("list_has_what_was_asked_for", ListsAnsweredQuestions, {}),
    ("a_conversation_is_a_chain_of_runs", ComparesRunsAlone, {}),
    ("a_conversation_is_a_chain_of_runs", LeavesTheLoserBehind, {}),
    ("of_many_who_follow_a_head_one_does", LetsAllFollow, {}),
    ("a_head_is_compared_and_moved_in_one", FollowsInTwoSteps, {}),
    ("a_deleted_run_is_gone", DeletesWhatIsHeld, {}),
    ("a_deleted_run_is_gone", DeletesTheHead, {}),
    ("a_run_that_nobody_holds_any_more_can_be_deleted", DeletesWhatWasGivenBackAlone, {}),
    ("a_run_that_was_deleted_begins_anew", ComparesFencesAlone, {}),
    ("a_run_that_was_deleted_begins_anew", PicksUpWhatWasDeleted, {}),
    ("a_claim_gives_a_lease", SaysHowLongInsteadOfWhen, {}),
    ("a_run_is_begun_with_a_lease", HoldsNoNewRun, {}),
    ("a_run_is_begun_with_a_lease", HoldsWhatIsThere, {}),
    ("a_run_is_begun_and_claimed_in_one", BeginsInTwoSteps, {}),
    ("a_run_is_held_by_one", LetsItsHolderIn, {"holder": "w"}),
    ("a_run_is_held_by_one", NamesTheClaimant, {"holder": "v"}),
    ("each_claim_raises_the_fence", KeepsTheFenceOfItsHolder, {}),
    ("a_lease_that_is_over_is_taken", BelievesOldHolders, {}),
    ("a_lease_that_is_over_is_taken", EndsLeasesTooLate, {}),
    ("a_lease_that_nobody_takes_goes_on", EndsLeasesByTime, {}),
    ("a_lease_that_was_given_back_is_over", RenewsWhatWasGivenBack, {}),
    ("a_renewal_counts_from_now", RenewsFromTheOldEnd, {}),
    ("a_renewal_counts_from_now", RenewsInSilence, {}),
    ("a_claim_may_choose_by_definition_and_key", ForgetsItsChoice, {}),
    ("a_claim_may_choose_by_definition_and_key", ChoosesByDefinitionAlone, {}),
    ("claims_leave_room", LeavesNoRoom, {}),
    ("claims_leave_room", LeavesRoomForKeysAlone, {}),
    ("claims_leave_room", CountsTheDead, {}),
    ("claims_leave_room", CountsOneTooFew, {}),
    ("claims_leave_room_for_keys", LeavesRoomForAgentsAlone, {}),
    ("many_who_claim_leave_room", CountsOneTooFew, {"choice": Choice(limits=(("a", 3),))}),
    ("many_who_claim_leave_room", LeavesRoomForAgentsAlone, {"choice": Choice(key_limit=3)}),
    ("a_claim_leaves_room_in_one", LeavesNoRoom, {}),
    ("a_limit_is_shared", SpendsForItselfAlone, {}),
    ("a_limit_is_shared", RefusesWhatNeverFits, {}),
    ("what_is_given_back_leaves_with_what_was_spent", KeepsWhatIsGivenBack, {}),
    ("many_who_spend_never_exceed_the_limit", SpendsInTwoSteps, {}),
    ("many_leases_are_renewed_together", RenewsNoneIfOneIsLost, {}),
    ("many_leases_are_renewed_together", RenewsInAnotherOrder, {}),
    ("many_leases_are_renewed_together", SeesPostsEverywhere, {}),
    ("a_run_is_due_at_the_time_of_its_rest", IsDueTooLate, {}),
    ("a_run_is_due_at_the_time_of_its_rest", KnowsOnlyNow, {}),
    ("a_named_run_need_not_be_due", ClaimsOnlyWhatIsDue, {}),
    ("what_has_been_due_longest_is_claimed_first", ClaimsByName, {}),
    ("what_has_been_due_longest_is_claimed_first", ClaimsOfAllAgents, {}),
    ("nobody_waits_for_ever", ClaimsByName, {}),
    ("nobody_waits_for_ever", PutsNewRunsFirst, {}),
    ("a_run_that_was_not_given_back_is_due", KeepsTheDueTimeOfTheLastRest, {}),
    ("an_ended_run_is_never_due", WakesTheDead, {}),
    ("an_ended_run_is_never_due", TakesPostsForTheDead, {}),
    ("tries_are_the_claims_since_the_last_entry", CountsTriesForEver, {}),
    ("tries_are_the_claims_since_the_last_entry", ForgivesAtEachRest, {}),
    ("a_rest_that_is_not_due_at_once_resets_tries", ForgivesNoRest, {}),
    ("an_ended_run_can_be_claimed_by_its_name", IsDueOnceItWasClaimed, {}),
    ("many_who_claim_have_a_run_each", GivesSomeRunsTwice, {}),
    ("a_run_is_looked_at_and_claimed_in_one", ClaimsInTwoSteps, {"run": "r"}),
    ("a_run_is_looked_at_and_claimed_in_one", ClaimsInTwoSteps, {"run": None}),
    ("an_append_compares_and_writes_in_one", AppendsInTwoSteps, {}),
    ("two_holders_never_mix", LosesAnEntry, {}),
    ("wait_hears_of_a_new_run", WaitsForItself, {}),
    ("wait_hears_of_a_post", HearsNoPosts, {}),
    ("a_rest_is_heard", HearsNoRests, {}),
    ("a_rest_is_heard", SaysTheSameAfterARest, {}),
    ("wait_ends", WaitsUntilSomethingHappens, {}),
    ("a_run_is_got_without_its_journal", ForgetsTheTitle, {}),
    ("a_run_is_got_without_its_journal", GetsWhatIsNotThere, {}),
    ("a_run_is_got_without_its_journal", LosesSchemas, {}),
    ("a_failure_is_told_from_another_end", FailsForEver, {}),
    ("a_failure_is_told_from_another_end", FailsByName, {}),
    ("runs_are_found_by_what_they_wait_for", WaitsForParts, {}),
    ("runs_are_found_by_what_they_wait_for", WaitsForWhatWasAnswered, {}),
    ("runs_are_found_by_state_time_and_words", FindsWordsInOneCase, {}),
    ("runs_are_found_by_state_time_and_words", FindsNoTitles, {}),
    ("what_is_no_filter_is_refused", TakesAnyFilter, {}),
    ("what_is_no_filter_is_refused", BeginsAgainAfterNonsense, {}),
    ("pages_have_each_run_once", GoesOnByTimeAlone, {}),
    ("pages_have_each_run_once", EndsAfterOnePage, {}),
    ("a_page_goes_on_where_the_one_before_ended", GoesOnByCount, {}),
    ("health_counts", SaysThatTheDeadDrive, {}),
    ("health_counts", CountsStuckApart, {}),
    ("health_counts", IsDueSinceTheLastRest, {}),
    ("runs_are_counted", CountsByState, {}),
    ("runs_are_counted", CountsTheNewest, {}),
    ("a_store_that_only_reads_writes_nothing", WritesWhatItReads, {}),
    ("a_store_that_only_reads_makes_nothing", MakesWhatItReads, {}),
    ("posts_wait_in_order", NumbersPostsByRun, {}),
    ("posts_wait_in_order", UsesAllPostsUp, {}),
    ("a_run_with_unread_posts_is_due", HasTheRestDecide, {}),
    ("a_run_may_heed_one_question_alone", HeedsAll, {}),
    ("a_run_may_heed_one_question_alone", HeedsNothingElseForEver, {}),
    ("a_question_is_answered_once", TakesTheLastAnswer, {}),
    ("a_question_is_answered_once", ListsQuestionsAsAsked, {}),
    ("a_refused_post_wakes_nobody", WakesForNothing, {}),
    ("a_rest_says_which_questions_are_open", AddsQuestionsUp, {}),
    ("a_rest_says_which_questions_are_open", ClosesQuestionsAtEachAppend, {}),
    ("a_question_that_is_asked_again_stays_as_it_is", AsksEachTimeAnew, {}),
    ("a_question_that_is_asked_again_stays_as_it_is", ShowsTheLastWords, {}),
    ("a_question_can_be_asked_anew", AsksOnceForAll, {}),
    ("a_question_whose_answer_was_refused_is_asked_again", HasRefusedAnswersStay, {}),
    ("of_many_who_answer_one_does", TakesTheLastAnswer, {}),
    ("a_question_is_looked_at_and_answered_in_one", AnswersInTwoSteps, {}),
    ("a_post_at_the_time_of_a_giving_back_is_not_lost", WakesNobody, {}),
    ("a_post_and_a_giving_back_take_turns", CountsPostsTooEarly, {"first": "append"}),
    ("a_post_and_a_giving_back_take_turns", LooksForTheHolderTooEarly, {"first": "post"}),
    ("a_run_starts_at_its_time", IgnoresStarts, {}),
    ("a_run_has_been_due_since_its_time", CountsDelaysFromNow, {}),
    ("no_post_starts_a_run", StartsAtAPost, {}),
    ("the_highest_priority_is_claimed_first", ClaimsTheLowestFirst, {}),
    ("a_run_keeps_its_priority", ForgetsPriorities, {}),
    ("a_run_starts_after_others", StartsAfterTheFirst, {}),
    ("a_run_that_others_come_after_may_start_by_name", StartsWhatIsHeld, {}),
    ("a_run_comes_after_known_ones", ComesAfterNobody, {}),
    ("an_end_and_a_run_after_it_take_turns", LooksForTheEndTooEarly, {"first": "create"}),
    ("of_two_that_end_at_once_one_starts_the_next", EndsInTwoSteps, {}),
    ("a_full_queue_is_named", CountsAllRuns, {}),
    ("of_many_who_put_in_a_last_one_one_does", LetsAllIn, {}),
    ("a_queue_is_counted_and_joined_in_one", CountsInTwoSteps, {}),
    ("a_start_is_kept_as_it_was", StartsAnew, {}),
    ("a_wrong_start_is_refused", TakesAnyStart, {}),
    ("wait_hears_of_a_start", HearsNoStarts, {}),
]


@pytest.mark.system
@pytest.mark.parametrize(("check", "wrong", "case"), FAULTS, ids=[f"{w.__name__}-{check}" for check, w, _ in FAULTS])
def test_a_wrong_store_is_caught(
    check: str, wrong: type[ReferenceStore], case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsm_agent.testing.storages.PATIENCE_S", 0.3)
    monkeypatch.setattr("fsm_agent.testing.storages.HELD_UP_S", 1.0)  # the thread of the second may begin late
    storage, suite = Storage(lambda clock: wrong(tmp_path, clock)), ReferenceSuite()
    monkeypatch.setattr(ReferenceSuite, "make", wrong)
    case |= {"tmp_path": tmp_path} if check.startswith("a_store_that_only_reads") else {}
    with pytest.raises((AssertionError, pytest.fail.Exception, FsmAgentError, ValueError)):
        getattr(suite, f"test_{check}")(storage=storage, **case)
    storage.close()


def test_each_check_has_a_fault_that_it_catches() -> None:
    checks = {name.removeprefix("test_") for name in dir(StoreConformance) if name.startswith("test_")}
    assert checks == {check for check, _, _ in FAULTS}


def test_no_fault_is_forgotten() -> None:
    wrong = {fault for fault in globals().values() if inspect.isclass(fault) and issubclass(fault, ReferenceStore)}
    assert wrong - {ReferenceStore} == {fault for _, fault, _ in FAULTS}


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=r"StoreConformance\.opened is missing"):
        StoreConformance().opened(tmp_path, lambda: 0.0)


@pytest.mark.system
def test_what_the_suite_needs_is_named() -> None:
    code = "import sys; sys.modules['pytest'] = None; from fsm_agent.testing import StoreConformance"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: StoreConformance needs pytest: pip install pytest" in done.stderr
