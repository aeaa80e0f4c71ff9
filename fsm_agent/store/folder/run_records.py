"""The records of which a run's file consists, and the fold that makes the present state of the run of them.

A record is a line of JSON that says what happened, followed by the lines that it brings: the header, or entries, as
they are.  Since the line says how many bytes follow, and their checksum, the lines may hold any text, a record is
written all at once, and one that was cut off is known.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from fsm_agent._internal.values import Tagged, Value, decoder_of
from fsm_agent.machine.process import Question
from fsm_agent.store.store import Head, Lease, Post, Rest, Run


class Begun(Tagged, frozen=True, tag="run", omit_defaults=True):
    """The run was created; its header follows."""

    nonce: str  # of this run, which may be deleted and created anew; it has to be the first field
    id: str
    agent: str
    at_s: float
    follows: Head | None = None  # the head of a conversation that it has moved on
    bytes: int = 0
    crc: int = 0
    version: int = 1  # of the format


class Claimed(Tagged, frozen=True, tag="claimed", omit_defaults=True):
    """Somebody claimed the run."""

    fence: int
    holder: str
    instance: str  # the store that holds it; see `Holders`
    at_s: float
    until_s: float


class Renewed(Tagged, frozen=True, tag="renewed", omit_defaults=True):
    """The lease was renewed."""

    until_s: float


class Posted(Tagged, frozen=True, tag="posted", omit_defaults=True):
    """Somebody posted."""

    post: Post


class Appended(Tagged, frozen=True, tag="appended", omit_defaults=True):
    """The holder appended; the entries follow."""

    fence: int
    n: int  # of the last entry before
    at_s: float
    lines: int = 0
    bytes: int = 0
    crc: int = 0
    rest: Rest | None = None
    took: tuple[int, ...] = ()
    snapshot: str = ""  # the name of its file


Record: TypeAlias = Begun | Claimed | Renewed | Posted | Appended

_SNAPSHOT = re.compile(r"(?:[a-z0-9%~_-]+\.[0-9]+)?")  # a name in the folder of snapshots, and no path out of it
_BEGINNING = b'{"kind":"run","nonce":"'
_decoder = decoder_of(Record)


class Asked(Value, frozen=True):
    """A question that is open, or answered while the answer is unread."""

    question: Question
    by: str = ""
    at_s: float | None = None  # of the answer


class State(Value, frozen=True, kw_only=True):
    """A run as it is after a record."""

    size: int  # bytes of the file until the end of the record
    begun: Begun
    n: int = 0
    fence: int = 0
    tries: int = 0
    holder: str = ""
    instance: str = ""
    since_s: float = 0.0
    until_s: float | None = None  # the end of the lease, even if it has passed; None: it was given back
    state: str = ""
    is_ended: bool = False
    rest_s: float | None = 0.0  # when it is due, as the last rest said
    heeds: str | None = None  # the same
    due_since_s: float
    updated_s: float
    posts: tuple[Post, ...] = ()
    asked: Mapping[str, Asked] = {}
    snapshot: tuple[int, str, int] | None = None  # entries, file, and where the entries behind it begin

    @property
    def due_s(self) -> float | None:
        """Unix time from which the run is due; 0.0: now; None: never, as it is."""
        if self.is_ended:
            return None
        return 0.0 if self.until_s is not None or _is_woken(self.posts, self.heeds) else self.rest_s

    def is_due(self, at_s: float) -> bool:
        """Return True if the run is due at this Unix time, held or not."""
        return (due_s := self.due_s) is not None and due_s <= at_s

    @property
    def open(self) -> tuple[Question, ...]:
        """The questions that nobody has answered."""
        return tuple([asked.question for _, asked in sorted(self.asked.items()) if asked.at_s is None])

    def row(self, now_s: float) -> Run:
        """Return what is known of the run without its journal."""
        is_held = self.until_s is not None and self.until_s > now_s
        return Run(
            id=self.begun.id,
            agent=self.begun.agent,
            n=self.n,
            state=self.state,
            is_ended=self.is_ended,
            due_s=self.due_s,
            holder=self.holder if is_held else None,
            created_s=self.begun.at_s,
            updated_s=self.updated_s,
            waits=self.open,
        )

    def is_of(self, lease: Lease) -> bool:
        """Return True if nobody has claimed the run after this lease, nor deleted it and begun it again."""
        return (self.fence, self.holder, self.since_s) == (lease.fence, lease.holder, lease.since_s)


class DamagedError(ValueError):
    """A file cannot be read."""


class TornError(DamagedError):
    """A file ends in the midst of a record.

    Args:
        size: How many bytes are good.
    """

    def __init__(self, size: int) -> None:
        super().__init__(f"at byte {size}: the record is cut off")
        self.size = size


def encoded(record: Record, lines: Sequence[str] = ()) -> tuple[Record, bytes]:
    """Return a record that says what lines it brings, and the bytes of all that."""
    body = "".join([f"{line}\n" for line in lines]).encode()
    if body and isinstance(record, Begun | Appended):
        record = record.changed(bytes=len(body), crc=zlib.crc32(body))
    return record, line_of(record) + body


def line_of(record: Record) -> bytes:
    """Return the line of a record, without those that it brings."""
    return msgspec.json.encode(record) + b"\n"


def decoded(data: bytes, start: int = 0) -> Iterator[tuple[Record, bytes, int]]:
    """Yield the records of a file, or the rest of one, each with the lines that it brings, and its end in the file.

    Args:
        data: The bytes.
        start: Where they begin in the file.

    Raises:
        TornError: The last record was cut off.
        DamagedError: A record cannot be read.
    """
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1
        if not end:
            if not start + at and not data.startswith(_BEGINNING[: len(data)]):
                raise DamagedError("at byte 0: it is no run")
            raise TornError(start + at)
        try:
            record: Record = _decoder.decode(memoryview(data)[at:end])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedError(f"at byte {start + at}: {error}") from None
        body = b""
        if isinstance(record, Begun | Appended) and record.bytes:
            body = data[end : end + record.bytes]
            if len(body) < record.bytes:
                raise TornError(start + at)
            if zlib.crc32(body) != record.crc:
                raise DamagedError(
                    f"at byte {start + end}: the next {record.bytes} bytes are not those of {record.crc}"
                )
            end += record.bytes
        if isinstance(record, Appended) and not _SNAPSHOT.fullmatch(record.snapshot):
            raise DamagedError(f"at byte {start + at}: {record.snapshot[:80]!r} is no name of a snapshot")
        yield record, body, start + end
        at = end


def lines_of(body: bytes) -> list[str]:
    """Return the lines that a record brings."""
    return body.decode().split("\n")[:-1]


def folded(state: State | None, record: Record, size: int) -> State:
    """Return the state after one more record.

    Args:
        state: The state before; None: there was none.
        record: The record.
        size: Where it ends.

    Raises:
        DamagedError: It cannot follow.
    """
    if state is None:
        if not isinstance(record, Begun) or record.version != 1:
            raise DamagedError(f"it begins with {record!r:.200}: a run of version 1 would be right")
        return State(size=size, begun=record, due_since_s=record.at_s, updated_s=record.at_s)
    match record:
        case Claimed() if record.fence == state.fence + 1:
            return state.changed(
                size=size,
                fence=record.fence,
                tries=state.tries + 1,
                holder=record.holder,
                instance=record.instance,
                since_s=record.at_s,
                until_s=record.until_s,
                due_since_s=record.until_s,
            )
        case Renewed() if state.until_s is not None:
            return state.changed(size=size, until_s=record.until_s, due_since_s=record.until_s)
        case Posted():
            return _posted(state, record.post).changed(size=size)
        case Appended() if (record.fence, record.n) == (state.fence, state.n) and state.until_s is not None:
            return _appended(state, record, size)
    raise DamagedError(f"at byte {state.size}: {record!r:.200} cannot follow")


def _is_woken(posts: Sequence[Post], heeds: str | None) -> bool:
    return any(heeds is None or post.key == heeds for post in posts)


def _posted(state: State, post: Post) -> State:
    if (asked := state.asked.get(post.key)) is not None:
        state = state.changed(asked={**state.asked, post.key: Asked(asked.question, post.by, post.at_s)})
    since_s = state.due_since_s
    if _is_woken((post,), state.heeds) and (state.due_s is None or state.due_s > post.at_s):
        since_s = post.at_s
    return state.changed(posts=(*state.posts, post), due_since_s=since_s)


def _appended(state: State, record: Appended, size: int) -> State:
    n = state.n + record.lines
    posts = state.posts
    if record.took:
        posts = tuple([post for post in posts if post.id not in record.took])
    changes: dict[str, Any] = {"size": size, "n": n, "posts": posts}
    if record.lines:
        changes |= {"tries": 0, "updated_s": record.at_s}
    elif record.rest is not None and record.rest.due_s != 0.0:
        changes["tries"] = 0
    if record.snapshot:
        changes["snapshot"] = n, record.snapshot, size
    if (rest := record.rest) is not None:
        unread = {post.key for post in posts}
        kept = {key: asked for key, asked in state.asked.items() if asked.at_s is None or key in unread}
        changes |= {
            "until_s": None,
            "state": rest.state,
            "is_ended": rest.is_ended,
            "rest_s": rest.due_s,
            "heeds": rest.heeds,
            "due_since_s": rest.due_s if rest.due_s and not _is_woken(posts, rest.heeds) else record.at_s,
            "updated_s": record.at_s,
            "asked": {question.key: kept.get(question.key, Asked(question)) for question in rest.questions},
        }
    return state.changed(**changes)
