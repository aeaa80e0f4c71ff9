"""Journals: the events of a process, from which its record can be rebuilt.

A journal consists of a header and one entry per `Process.advance`.  An entry holds the key and outcome of the advance,
the steps that were taken, who answered, and the fence of the writer: a number that increases whenever the run is
claimed.  Each line ends with a digest of the line and the previous digest.

Without a signing key, the digests reveal damage but not forgery, because anyone can recompute them.  With a key, they
are HMACs.  A journal whose end was cut off is still valid, as an earlier state of the journal.

An entry does not hold the records after its steps, because `replay` takes the same steps again, or raises a
`ReplayError` if the code has changed.  For readers without the code, an entry also holds the states after the steps,
the inner processes that began, and why a reply was refused or a call failed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from fsm_agent._internal.structs import Tagged, Value, decoder_of, from_json
from fsm_agent._internal.text import cut
from fsm_agent.errors import JournalError, SnapshotError, UsageError
from fsm_agent.messages.events import Event, Stepped, unwrapped
from fsm_agent.validation import safe_repr

VERSION: Literal[1] = 1

SIGNATURE_CHARS = 64  # hexadecimal digits of an HMAC-SHA256

DIGEST_BYTES = 16  # 128 bits, enough to detect damage

_DIGEST = b',"digest":"'

_RETRIED = b'{"kind":"retried"'

TASK_CHARS = 2000  # of an inner process's task

WHY_CHARS = 4000

TRACEPARENT_CHARS = 55

_TRACEPARENT = ',"traceparent":'

_FAILED = "Failed"  # the state of an agent call

_SHOWN = 80  # characters of a line in an error

_encoder = msgspec.json.Encoder()


class Header(Value, frozen=True, kw_only=True):
    """The first line of a journal.

    Examples:
        >>> from fsm_agent.store import MemoryStore
        >>> store = MemoryStore()
        >>> _ = Agent(Script("Hi."), name="clerk", store=store).call("Hello", run_id="r")
        >>> kept = store.load("r", after=0)
        >>> header_of(kept.header).agent
        'clerk'
    """

    version: Literal[1]
    agent: str  # the name of the agent or flow that can drive it
    fingerprint: str = ""  # the fingerprint of the code that decides its steps
    seed: msgspec.Raw  # the process's initial data as JSON, for the agent to read
    conversation: str = ""  # the conversation's name; empty if the run is not a turn
    turn: int = 0  # the turn's number, from 1
    follows: str = ""  # the previous run in the conversation
    forked: tuple[str, int] | None = None  # the original run, and the number of the last common entry
    forked_by: str = ""  # who forked it, for display
    edit: msgspec.Raw = msgspec.Raw()  # the outcome after the common entries as JSON without its time, or empty
    tables: msgspec.Raw = msgspec.Raw()  # the tables of its flows by name, as JSON, or empty; see `FlowTable`
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)  # the caller's data
    by: str = ""  # who asked, according to the caller's login; empty if unknown
    traceparent: str = ""  # W3C: where it began in a trace; not part of the request, and always the last field


class FlowTable(Value, frozen=True):
    """A flow's table, for readers who do not have its code."""

    start: str
    states: Mapping[str, str]  # what each state waits for, by its name; "end" or "failure" for an end
    rows: tuple[tuple[str, str, str, str], ...]  # the user's rows: source, event, guard, target


class Beginning(Value, frozen=True):
    """The facts that are known about an inner process when it begins."""

    path: str
    kind: str  # "call", "flow" or "members"
    name: str = ""  # the name of its agent or flow
    task: str = ""  # the messages of a call, the data of a flow as JSON; at most `TASK_CHARS`


class Retried(Tagged, frozen=True, kw_only=True, tag="retried"):
    """The outcome that makes a failed run continue from an earlier entry, as if the later entries did not exist."""

    step: int  # the number of the entry
    at_s: float
    is_charged: bool = False  # whether the tokens of the later entries still count; older journals do not count them


class Line(Value, frozen=True, kw_only=True):
    """One of the lines that follow a journal's header, without its digest."""

    n: int  # from 1
    key: str = ""
    outcome: msgspec.Raw
    steps: tuple[tuple[str, str], ...] = ()  # the path and the trigger of each step
    to: tuple[str, ...] = ()  # the state after each step
    begun: tuple[Beginning, ...] = ()  # the inner processes that have begun
    why: str = ""  # what the model was told about a refused reply, or why the call failed
    by: str = ""  # who posted the outcome, for people; empty if unknown or not posted
    fence: int = 0


class _Signed(Line, frozen=True, kw_only=True):
    digest: str


class _Steps(Value, frozen=True):
    """The fields of a `Line` about its steps."""

    steps: tuple[tuple[str, str], ...]
    to: tuple[str, ...] = ()
    begun: tuple[Beginning, ...] = ()
    why: str = ""


class Entry(Value, frozen=True):
    """The in-memory form of a line: one advance of a process.

    Examples:
        >>> entry = Entry("begin", '{"kind": "begun"}', '"steps":[]', None)
        >>> Chain("{}").written([entry], fence=1)[0][:20]
        '{"n":1,"key":"begin"'
    """

    key: str
    outcome: str  # the outcome as JSON
    steps: str  # the fields about the steps, as `steps_json` writes them
    record: Any  # the record after the entry
    by: str = ""  # who posted the outcome


class Journal:
    """The entries of a process since the journal was attached, and the records between them.

    Args:
        first: The process's record in its current state.
        run: The run's name in its store, or ``""`` if there is no store.
        header: The first line of the stored journal.
        chain: The digests so far, or None if nothing has been written yet.

    Attributes:
        is_lasting: Whether another OS process may read the lines.  If so, each outcome is read back as a check.
        earlier: The range of the messages from earlier turns, or None outside a conversation.

    Examples:
        >>> from fsm_agent.store import MemoryStore
        >>> result = Agent(Script("Hi."), name="clerk", store=MemoryStore()).call("Hello", run_id="r")
        >>> journal: Journal = result.call.journal
        >>> journal.run, journal.n
        ('r', 2)
    """

    def __init__(self, first: Any, run: str = "", header: str = "", chain: Chain | None = None) -> None:
        self.is_lasting = True
        self.earlier: range | None = None
        self.run = run
        self.header = header
        self.chain = chain
        self.first = first
        self.n_before = 0 if chain is None else chain.n
        self.entries: list[Entry] = []
        self.undone: list[Entry] = []  # the next one to redo is last

    @property
    def is_stored(self) -> bool:
        """True if the journal is kept in a store, where nothing can be undone."""
        return self.chain is not None

    @property
    def n(self) -> int:
        """The number of the last entry."""
        return self.n_before + len(self.entries)

    @property
    def record(self) -> Any:
        """The record after the last entry."""
        return self.entries[-1].record if self.entries else self.first

    @property
    def records(self) -> list[Any]:
        """The records from the first to the current one.  Each shares most of its data with the previous one."""
        return [self.first, *[entry.record for entry in self.entries]]

    def since(self, n: int) -> list[Entry]:
        """Return the entries after number ``n``."""
        return self.entries[n - self.n_before :]

    def add(self, entry: Entry, before: Any) -> None:
        """Add an entry that follows the record ``before``, just before the process commits its step."""
        self.settle(before)
        self.entries.append(entry)
        self.undone.clear()

    def settle(self, record: Any) -> None:
        """Drop the last entry if the process was interrupted before it committed the step."""
        if record is not self.record:
            self.entries.pop()

    def undo(self) -> Any:
        """Undo the last entry, and return the record before it."""
        if not self.entries:
            raise UsageError("undo: expected a journal with entries, got an empty one")
        self.undone.append(self.entries.pop())
        return self.record

    def redo(self) -> Any:
        """Redo the entry that was last undone, and return the record after it."""
        if not self.undone:
            raise UsageError("redo: expected an undo since the last advance, got none")
        self.entries.append(self.undone.pop())
        return self.record


class PastJournal(Journal):
    """The journal of a process returned to an earlier state.  Such a process can be read but takes no steps."""

    def add(self, entry: Entry, before: Any) -> None:
        """Reject the entry."""
        raise UsageError(self.refusal)

    @property
    def refusal(self) -> str:
        """The text that says why the process takes no steps, and what to call instead."""
        return (
            f"the run {self.run!r} as it was after entry {self.n} can be read, but takes no step;"
            f" call runs.fork({self.run!r}, step={self.n}) for a run that continues from there, or"
            f" runs.resume({self.run!r}) to continue the run itself"
        )


class Chain:
    """Computes and verifies a journal's digests, line by line.

    Args:
        header: The first line.
        signing_key: If given, the digests are HMACs with this key.
        n: The number of the last line that was written or verified.
        digest: The digest of that line; by default, the digest of the header.

    Examples:
        >>> from fsm_agent.store import MemoryStore
        >>> store = MemoryStore()
        >>> _ = Agent(Script("Hi."), name="clerk", store=store).call("Hello", run_id="r")
        >>> kept = store.load("r", after=0)
        >>> chain = Chain(kept.header)
        >>> [chain.verified(line).key for line in kept.lines]
        ['begin', 'model:0']
    """

    def __init__(self, header: str, signing_key: bytes | None = None, n: int = 0, digest: str | None = None) -> None:
        self._signing_key = signing_key
        self.n = n
        self.start = digest_of(header.encode(), signing_key)  # the digest of the header
        self.digest = self.start if digest is None else digest

    def written(self, entries: Iterable[Entry], fence: int) -> list[str]:
        """Return the next entries as lines with digests."""
        lines = list[str]()
        for entry in entries:
            self.n += 1
            name = _encoder.encode(entry.key).decode()
            posted = f',"by":{_encoder.encode(entry.by).decode()}' if entry.by else ""
            text = f'{{"n":{self.n},"key":{name},"outcome":{entry.outcome},{entry.steps}{posted},"fence":{fence}'
            self.digest = digest_of(f"{self.digest}{text}".encode(), self._signing_key)
            lines.append(f'{text},"digest":"{self.digest}"}}')
        return lines

    def verified(self, line: str) -> Line:
        """Verify the next line and return it.

        Raises:
            JournalError: If the line is damaged, belongs to another journal, or is not the next one.
        """
        data = line.encode("utf-8", "surrogatepass")
        body, found, tail = data.rpartition(_DIGEST)
        digest = tail[:-2].decode("latin-1")
        if not found or tail[-2:] != b'"}' or not hmac.compare_digest(digest.encode(), self._next(body)):
            raise JournalError(
                f"entry {self.n + 1} is damaged, changed, or not the next of this journal: {_shorten(line)}"
            )
        try:
            signed = _decode_line(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise JournalError(f"entry {self.n + 1} cannot be read: {error}: {_shorten(line)}") from None
        if signed.n != self.n + 1:
            raise JournalError(f"the entry after entry {self.n}: expected entry {self.n + 1}, got entry {signed.n}")
        self.n, self.digest = signed.n, digest
        return signed

    def ends_with(self, line: str) -> bool:
        """Return whether this is the last line that was written or verified."""
        return line.encode("utf-8", "surrogatepass").endswith(_DIGEST + self.digest.encode() + b'"}')

    def _next(self, body: bytes) -> bytes:
        return digest_of(self.digest.encode() + body, self._signing_key).encode()


def digest_of(data: bytes, signing_key: bytes | None) -> str:
    """Return a line's digest.  ``data`` begins with the previous line's digest."""
    if signing_key is not None:
        return hmac.digest(signing_key, data, "sha256").hex()
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def is_signed(line: str) -> bool:
    """Return whether an entry's digest is an HMAC."""
    return len(line.rpartition(_DIGEST.decode())[2]) == len('"}') + SIGNATURE_CHARS


def step_of(event: Event) -> tuple[str, str]:
    """Return `(path, trigger)` for a step."""
    path, step = unwrapped(event)
    return path, step.trigger


def steps_json(events: Sequence[Event], begun: Sequence[Beginning] = ()) -> str:
    """Return the fields of a line about some steps and the inner processes that began, as JSON without braces."""
    steps = [unwrapped(event) for event in events]
    triggers = [(path, step.trigger) for path, step in steps]
    why = _why(steps[0][1]) if steps else ""
    return _fields(_Steps(tuple(triggers), tuple([step.to for _, step in steps]), tuple(begun), why))


def _why(step: Stepped) -> str:
    """Return why a step refused a reply or made the call fail, or an empty string."""
    return cut(step.told or (step.detail if step.to == _FAILED else ""), WHY_CHARS)


def _fields(steps: _Steps) -> str:
    return _encoder.encode(steps).decode()[1:-1]


def entry_of(line: Line) -> Entry:
    """Return the entry that a line holds, without its record."""
    steps = _fields(_Steps(line.steps, line.to, line.begun, line.why))
    return Entry(line.key, bytes(line.outcome).decode(), steps, None, line.by)


_decoder = decoder_of(_Signed)


def with_traceparent(header: str, traceparent: str) -> str:
    """Return a header with this traceparent, unless it already has one or ``traceparent`` is invalid.

    The header is not parsed, because it may hold a long dialog.
    """
    if len(traceparent) != TRACEPARENT_CHARS or _TRACEPARENT in header[-TRACEPARENT_CHARS - len(_TRACEPARENT) - 2 :]:
        return header
    return f"{header[:-1]}{_TRACEPARENT}{_encoder.encode(traceparent).decode()}}}"


def header_of(line: str) -> Header:
    """Read a header.

    Raises:
        JournalError: If the line is damaged or was written in another version of the format.

    Examples:
        >>> from fsm_agent.store import MemoryStore
        >>> store = MemoryStore()
        >>> _ = Agent(Script("Hi."), name="clerk", store=store).call("Hello", run_id="r")
        >>> kept = store.load("r", after=0)
        >>> header_of(kept.header).version
        1
    """
    try:
        header: Header = from_json(line, Header)
    except ValueError as error:
        what = f"the header: expected that of a journal of version {VERSION}, got {_shorten(line)}"
        raise JournalError(f"{what}: {error}") from None
    return header


def line_of(text: str) -> Line:
    """Read an entry without verifying its digest."""
    try:
        signed = _decode_line(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, RecursionError) as error:
        raise JournalError(f"expected an entry of a journal, got {_shorten(text)}: {error}") from None
    return signed


def _decode_line(data: bytes) -> _Signed:
    try:
        signed: _Signed = _decoder.decode(data)
    except msgspec.DecodeError as error:  # `to_json` may have written NaN or Infinity, such as log probabilities
        try:
            fields = json.loads(data)
            outcome = msgspec.Raw(json.dumps(fields["outcome"]).encode())
            signed = _decoder.decode(json.dumps({**fields, "outcome": None}))
        except (ValueError, LookupError, TypeError):
            raise error from None
        signed = signed.changed(outcome=outcome)
    return signed


def retried_in(line: Line) -> Retried | None:
    """Return an entry's outcome if it makes a failed run continue, or None for any other entry."""
    if line.key or line.steps or not (outcome := bytes(line.outcome)).startswith(_RETRIED):
        return None
    retried: Retried = from_json(outcome, Retried)
    return retried


def kept_lines(lines: Iterable[str]) -> list[Line]:
    """Return the journal's entries that are still in effect, leaving out undone entries and retries."""
    kept: list[Line] = []
    for text in lines:
        line = line_of(text)
        if (retried := retried_in(line)) is None:
            kept.append(line)
        else:
            kept = [one for one in kept if one.n <= retried.step]
    return kept


def _shorten(line: str) -> str:
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…")


MIN_KEY_BYTES = 32  # the length of the hash; shorter keys weaken it (RFC 2104, section 3)

_HEAD, _TAIL = b'{"signature":"', b'",'  # around the signature, before the signed fields

_START, _END = len(_HEAD), len(_HEAD) + 64


class KeyMissing(JournalError):
    """A run's journal is signed, and the key needed to read it is missing."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self.run = run

    def __str__(self) -> str:
        return (
            f"the run {self.run!r} is signed: expected the signing_key that it was written with, got none; pass"
            " store=Runs('runs.db', signing_key=…), or set FSM_AGENT_SIGNING_KEY for commands"
        )


def stored_name(journal: Journal | None) -> str:
    """Return the run's name in its store, or ``""`` if there is no store."""
    return journal.run if journal is not None and journal.is_stored else ""


def signed(document: str, signing_key: str | bytes) -> str:
    """Return a JSON object with a new first field, ``signature``, which is the HMAC-SHA256 of the given object.

    Raises:
        UsageError: If the key is too short.
    """
    return f'{{"signature":"{_signature(document.encode(), signing_key)}",{document[1:]}'


def has_signature(document: bytes) -> bool:
    """Return whether a document is signed, whatever the key."""
    return document.startswith(_HEAD)


def verified(document: str | bytes, signing_key: str | bytes | None) -> bytes:
    """Check the signature and return the object that was passed to `signed`.

    Without a key, an unsigned document is returned unchanged.

    Raises:
        SnapshotError: If the document was not signed with this key, or if it is signed and no key was passed.
        UsageError: If the key is too short, or the document is neither text nor bytes.
    """
    if not isinstance(document, str | bytes):
        raise UsageError(f"document: expected what snapshot() returned, a string or bytes, got {safe_repr(document)}")
    body = (document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document).strip()
    if signing_key is None:
        if has_signature(body):
            raise SnapshotError("the snapshot is signed; pass the signing_key that it was written with")
        return body
    if not body.startswith(_HEAD) or body[_END : _END + len(_TAIL)] != _TAIL:
        raise SnapshotError(
            "the snapshot: expected a signed one, since signing_key is given, got one without a signature; pass it as"
            " it was written, since reformatting loses the signature"
        )
    signature, body = body[_START:_END], b"{" + body[_END + len(_TAIL) :]
    if not hmac.compare_digest(_signature(body, signing_key).encode(), signature):
        raise SnapshotError("the snapshot was signed with another signing_key, or changed afterwards")
    return body


def key_bytes(signing_key: str | bytes) -> bytes:
    """Return a key as bytes."""
    key = signing_key.encode() if isinstance(signing_key, str) else signing_key
    right = f"signing_key: expected {MIN_KEY_BYTES} bytes or more, such as secrets.token_hex(), got"
    if not isinstance(key, bytes):
        raise UsageError(f"{right} a value of type {type(key).__name__}")
    if len(key) < MIN_KEY_BYTES:
        raise UsageError(f"{right} {len(key)} bytes")
    return key


def _signature(body: bytes, signing_key: str | bytes) -> str:
    return hmac.new(key_bytes(signing_key), body, "sha256").hexdigest()
