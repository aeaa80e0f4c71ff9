"""A run in memory, and the values that are derived from it."""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent.machine.journal import PendingLines
from fsm_agent.messages.question import Question
from fsm_agent.store.checks import UNTIL_DUE, definition_in
from fsm_agent.store.listing import Group, asks_of
from fsm_agent.store.store import Lease, Post, Rest, Run, Start


class OpenQuestion:
    """A question that is open, or that has an unread answer."""

    __slots__ = ("at_s", "by", "question")

    def __init__(self, question: Question) -> None:
        self.question = question
        self.at_s: float | None = None  # the time of its answer; None: it is open
        self.by = ""


class StoredRun:
    """A run; ``until_s`` is the end of its lease until the lease is given back, even after that time has passed."""

    __slots__ = (
        *("agent", "asked", "created_s", "due_s", "fence", "heeds", "returned_at", "header", "holder", "is_ended"),
        *("is_failed", "n", "name", "number", "ticket", "posts", "since_s", "snapshot", "state", "title", "tries"),
        *("until_s", "updated_s", "_lines", "_unread", "awaits", "followers", "priority", "service", "definition"),
        *("listed", "posted"),
    )

    def __init__(self, name: str, number: int, header: str, agent: str, title: str, start: Start, now_s: float) -> None:
        self.name, self.number, self.header, self.agent, self.title = name, number, header, agent, title
        self.priority, self.service, self.definition = start.priority, start.service, definition_in(header)
        self.awaits = 0  # how many runs have to end before this one is due
        self.followers: list[StoredRun] = []  # the runs that await the end of this one
        self.n = 0  # entries
        self._lines: list[str] = []  # the entries that were read before
        self._unread: list[tuple[int, Sequence[str]]] = []  # the others, with the number of entries before each
        self.posts: dict[int, Post] = {}
        self.posted: dict[str, str] = {}  # the contents of the posts that have ids, used up or not
        self.asked: dict[str, OpenQuestion] = {}
        self.snapshot: tuple[int, bytes] | None = None
        self.state, self.is_ended, self.is_failed = "", False, False
        self.due_s: float | None = start.due_s  # of the last rest
        self.heeds: str | None = UNTIL_DUE if start.due_s or start.after else None  # of the last rest
        self.created_s = self.updated_s = now_s
        self.fence = self.tries = self.ticket = 0
        self.holder, self.since_s = "", 0.0
        self.until_s: float | None = None
        self.listed: tuple[Group, float] | None = None  # where `ListedRuns` has it
        self.returned_at = -1  # the ``n`` of the append that gave the lease back

    @property
    def lines(self) -> list[str]:
        """The entries; they are written out, and their digests computed, at the first read."""
        while self._unread:
            before, lines = self._unread[0]
            self._lines[before:] = lines
            del self._unread[0]
        return self._lines

    def add(self, lines: Sequence[str]) -> None:
        """Add entries; all or none, even when interrupted."""
        self._unread += [(self.n, lines if type(lines) is PendingLines else tuple(lines))]
        self.n += len(lines)


def is_repeated(kept: StoredRun, lease: Lease, n: int, lines: Sequence[str], rest: Rest | None) -> bool:
    """Return whether this lease has made this append before."""
    end = n + len(lines)
    if rest is None:
        is_next = kept.until_s is not None and bool(lines) and n >= lease.n and end <= kept.n
    else:
        is_next = kept.until_s is None and n == kept.returned_at and end == kept.n
    return is_next and kept.lines[n:end] == list(lines)


def merge_questions(
    before: dict[str, OpenQuestion], questions: Sequence[Question], unread: set[str]
) -> dict[str, OpenQuestion]:
    """Return the questions after a rest; a question is asked again when its answer was used up."""
    now: dict[str, OpenQuestion] = {}
    for question in questions:
        asked = before.get(question.key)
        if asked is None or (asked.at_s is not None and question.key not in unread):
            asked = OpenQuestion(question)
        now.setdefault(question.key, asked)
    return now


def open_questions(kept: StoredRun) -> list[Question]:
    """Return the unanswered questions, sorted by key."""
    return [asked.question for _, asked in sorted(kept.asked.items()) if asked.at_s is None]


def effective_due_s(kept: StoredRun) -> float | None:
    """Return the time at which a run is due, as `Run.due_s` defines it."""
    if kept.is_ended:
        return None
    if kept.until_s is not None or is_woken(kept):
        return 0.0
    return None if kept.awaits else kept.due_s


def is_woken(kept: StoredRun) -> bool:
    """Return whether a run has an unread post that it heeds."""
    return bool(kept.posts) and (kept.heeds is None or any(post.key == kept.heeds for post in kept.posts.values()))


def row_of(kept: StoredRun, now_s: float) -> Run:
    """Return the row of a run."""
    return Run(
        id=kept.name,
        agent=kept.agent,
        n=kept.n,
        state=kept.state,
        is_ended=kept.is_ended,
        due_s=effective_due_s(kept),
        holder=kept.holder if kept.until_s is not None and kept.until_s > now_s else None,
        created_s=kept.created_s,
        updated_s=kept.updated_s,
        waits=tuple(open_questions(kept)),
        priority=kept.priority,
        service=kept.service,
        title=kept.title,
        is_failed=kept.is_failed,
    )


def group_of(kept: StoredRun) -> Group:
    """Return the group of a run, see `fsm_agent.store.listing`."""
    asks = asks_of([question.kind for question in open_questions(kept)]) if kept.asked else ""
    return Group(kept.agent, kept.is_failed, kept.is_ended, asks, kept.state)
