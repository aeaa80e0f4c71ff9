"""Turns: the runs of a conversation, each of which follows the one before.

A turn keeps what is new in it alone: the messages of its task and those that came of it.  What was said before is read
from the turns that it follows, back to one that keeps the messages before it itself, because a policy had left some of
them out or the caller had given others.  So a turn costs the same on disk however long the conversation is.

What a conversation has come to with a turn:

- a turn that was answered counts as it is;
- one that ended without an answer is left out as a whole, unless functions were called in it: then it counts with their
  results, and ends with a message that says so;
- one that has not ended does not count yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fsm_agent.lifecycle.record import CallRecord, State
from fsm_agent.lifecycle.seeding import Seed, seed_of, with_earlier
from fsm_agent.lifecycle.snapshots import record_of
from fsm_agent.machine.journal import Header, header_of
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import Usage
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.store.errors import Conflict, RunUnknown
from fsm_agent.store.store import Head, Run

if TYPE_CHECKING:
    from fsm_agent.store.runs import Runs

UNANSWERED = "(This turn ended without an answer: {reason}.)"


class StoredTurn(NamedTuple):
    """A run of a conversation, as it is in the store."""

    row: Run
    header: Header
    seed: Seed
    record: CallRecord | None  # without the messages of earlier turns; None: it has not ended

    @property
    def usage(self) -> Usage:
        """Tokens of the conversation up to here."""
        return self.seed.usage if self.record is None else self.seed.usage + self.record.usage


def turn_of(runs: Runs, run: str, conversation: str = "") -> StoredTurn:
    """Return a turn.

    Raises:
        RunUnknown: It was deleted.
        JournalError: It is damaged or forged.
    """
    try:
        loaded = runs.store.load(run, after=None)
    except RunUnknown:
        raise RunUnknown(
            f"the run {run!r} of the conversation {conversation!r} was deleted, so what was said there is lost:"
            " call('…', after=…) goes on from another dialog"
        ) from None
    header = header_of(loaded.header)
    saved = runs.read_snapshot(loaded) if loaded.run.is_ended else None
    record = None if saved is None else record_of(saved.document)
    if record is not None and record.ending is None:  # somebody gave the run up
        record = None
    return StoredTurn(loaded.run, header, seed_of(header), record)


def head_before(header: Header) -> Head:
    """Return the head of its conversation that a run follows."""
    return Head(header.conversation, header.turn - 1, header.follows)


def dialog_at(runs: Runs, run: str, conversation: str, known: Mapping[str, Dialog]) -> Dialog:
    """Return the dialog that a conversation has come to with a run.

    Args:
        runs: Where the runs are.
        run: The run; empty: none.
        conversation: The name, for errors.
        known: Dialogs by their runs, which need not be read.

    Raises:
        RunUnknown: A run that is needed was deleted.
        JournalError: One is damaged or forged.
    """
    turns = list[StoredTurn]()
    while run and run not in known:
        turns.append(turn := turn_of(runs, run, conversation))
        run = turn.header.follows if turn.seed.is_continued else ""
    dialog = known[run] if run else Dialog()
    for turn in reversed(turns):
        dialog = _dialog_after(turn, dialog)
    return dialog


def messages_before(runs: Runs, header: Header) -> Sequence[Message]:
    """Return the messages of earlier turns that a run does not keep itself."""
    if not header.follows or not seed_of(header).is_continued:
        return ()
    return without_system(dialog_at(runs, header.follows, header.conversation, {}))


def without_system(dialog: Dialog) -> Sequence[Message]:
    """Return the messages behind the system prompt."""
    return dialog[1:] if len(dialog) and dialog[0].role == "system" else tuple(dialog)


def turns_back(runs: Runs, head: Head) -> Iterator[Run]:
    """Yield the runs of a conversation, the newest first, up to the first that was deleted."""
    run = head.run
    while run:
        try:
            loaded = runs.store.load(run, after=None)
        except RunUnknown:
            return
        yield loaded.run
        run = header_of(loaded.header).follows


def needed_runs(runs: Runs, conversation: str) -> set[str]:
    """Return the runs from which a conversation can be read."""
    found = set[str]()
    run = runs.store.head(conversation).run
    while run:
        try:
            header = header_of(runs.store.load(run, after=None).header)
        except RunUnknown:
            break
        found.add(run)
        run = header.follows if seed_of(header).is_continued else ""
    return found


def check_ended(row: Run, conversation: str) -> None:
    """Refuse to go on from a turn that has not ended.

    Raises:
        Conflict: It says who is at it, or what it waits for.
    """
    if row.is_ended:
        return
    run = row.id
    if row.holder is not None:
        what = f"{row.holder!r} is at its newest turn, the run {run!r}: call again when that has ended"
    elif row.waits:
        asked = row.waits[0]
        what = (
            f"its newest turn, the run {run!r}, waits for an answer to {asked.key!r} ({asked.kind}):"
            f" agent.resume({run!r}, {{{asked.key!r}: …}}) goes on with it, agent.runs.cancel({run!r}) ends it"
        )
    else:
        what = f"its newest turn, the run {run!r}, has not ended, and nobody is at it: agent.resume({run!r}) goes on"
    raise Conflict(conversation, run, what)


def _dialog_after(turn: StoredTurn, before: Dialog) -> Dialog:
    """Return the dialog behind a turn; ``before`` is that of the turn that it follows."""
    seed, record = turn.seed, turn.record
    start = 1 if len(seed.dialog) and seed.dialog[0].role == "system" else 0
    kept = without_system(before) if seed.is_continued else seed.dialog[start : start + seed.earlier]
    if record is None or not (_is_answered(record) or record.function_calls):
        if seed.is_continued:
            return before
        return _make_dialog(seed, [*seed.dialog[:start], *kept], seed.governed_by)
    messages = with_earlier(record.dialog, kept if seed.is_continued else (), start)
    if record.ending is not None and not _is_answered(record) and messages[-1].role != "assistant":
        messages = messages.push(Message.of("assistant", UNANSWERED.format(reason=record.ending.reason)))
    return _make_dialog(seed, messages, record.governed_by)


def _is_answered(record: CallRecord) -> bool:
    """Return whether a call ended well, and not before any reply."""
    return record.state is State.COMPLETED and record.dialog[-1].role != "user"


def _make_dialog(seed: Seed, messages: Sequence[Message], governed_by: str) -> Dialog:
    return Dialog(messages, system_args=None if seed.is_system_own else {}, governed_by=governed_by)
