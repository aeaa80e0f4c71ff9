"""Turns: the runs of a conversation, in order.

A turn stores only the messages of its task and the messages that its call added.  Earlier messages are read from
earlier turns, so a turn's size on disk does not depend on the length of the conversation.  If a policy left some
messages out, or the caller passed others, the turn stores its earlier messages itself, and reading stops there.

The dialog after a turn:

- A turn with an answer contributes all its messages.
- A turn that ended without an answer is left out unless it called functions.  In that case, it contributes its
  messages, including the functions' results, followed by a message that says that there was no answer.
- A turn that has not ended contributes nothing yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fsm_agent.call.header import Seed, seed_of
from fsm_agent.call.journal import Header, header_of
from fsm_agent.call.record import CallRecord, State
from fsm_agent.call.snapshots import record_of, with_earlier
from fsm_agent.messages.message import Message
from fsm_agent.messages.reply import Usage
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.store.errors import Conflict, RunUnknown
from fsm_agent.store.journals import Journals
from fsm_agent.store.store import Head, Run

UNANSWERED = "(This turn ended without an answer: {reason}.)"


class StoredTurn(NamedTuple):
    """A turn of a conversation in its stored form."""

    row: Run
    header: Header
    seed: Seed
    record: CallRecord | None  # without the messages of earlier turns; None if the turn has not ended

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended for good.  A failed turn may be retried while it is the newest."""
        return self.row.is_ended and not self.row.is_failed

    @property
    def usage(self) -> Usage:
        """The tokens that the conversation has used up to and including this turn."""
        return self.seed.usage if self.record is None else self.seed.usage + self.record.usage


def turn_of(journals: Journals, run: str, conversation: str = "") -> StoredTurn:
    """Return the turn whose run has this name."""
    try:
        loaded = journals.store.load(run, after=None)
    except RunUnknown:
        raise RunUnknown(
            f"the run {run!r} of the conversation {conversation!r} was deleted, so what was said there is lost;"
            " use call('…', after=…) to continue another dialog"
        ) from None
    header = header_of(loaded.header)
    saved = journals.read_snapshot(loaded) if loaded.run.is_ended else None
    record = None if saved is None else record_of(saved.document)
    if record is not None and record.ending is None:  # a stuck run that was cancelled without its code
        record = None
    return StoredTurn(loaded.run, header, seed_of(header), record)


def head_before(header: Header) -> Head:
    """Return the conversation's head before a run."""
    return Head(header.conversation, header.turn - 1, header.follows)


def dialog_at(journals: Journals, run: str, conversation: str, known: dict[str, Dialog]) -> Dialog:
    """Return the dialog of a conversation after a run.

    Args:
        journals: The journals of the runs.
        run: The name of the run, or an empty string for the start of the conversation.
        conversation: The name of the conversation, for errors.
        known: A cache for one dialog, keyed by the name of its run, which is updated to the newest dialog that can no
            longer change.
    """
    turns = list[StoredTurn]()
    while run and run not in known:
        turns.append(turn := turn_of(journals, run, conversation))
        run = turn.header.follows if turn.seed.is_continued else ""
    dialog = known[run] if run else Dialog()
    for turn in reversed(turns):
        dialog = _dialog_after(turn, dialog)
        if turn is not turns[0] or turn.is_over:
            known.clear()
            known[turn.row.id] = dialog
    return dialog


def messages_before(journals: Journals, header: Header) -> Sequence[Message]:
    """Return the messages from earlier turns that a run does not store itself."""
    if not header.follows or not seed_of(header).is_continued:
        return ()
    return without_system(dialog_at(journals, header.follows, header.conversation, {}))


def without_system(dialog: Dialog) -> Sequence[Message]:
    """Return the messages after the system prompt."""
    return dialog[1:] if len(dialog) and dialog[0].role == "system" else tuple(dialog)


def turns_back(journals: Journals, conversation: str) -> Iterator[tuple[Run, Header]]:
    """Yield a conversation's runs and their headers, the newest first, until one is missing from the store."""
    run = journals.store.head(conversation).run
    while run:
        try:
            loaded = journals.store.load(run, after=None)
        except RunUnknown:
            return
        header = header_of(loaded.header)
        yield loaded.run, header
        run = header.follows


def needed_runs(journals: Journals, conversation: str) -> set[str]:
    """Return the names of the runs that are needed to read a conversation."""
    found = set[str]()
    for row, header in turns_back(journals, conversation):
        found.add(row.id)
        if not seed_of(header).is_continued:
            break
    return found


def check_ended(row: Run, conversation: str) -> None:
    """Refuse to follow a turn that has not ended.

    Raises:
        Conflict: If the turn has not ended.  The error names its holder, or the question that it waits for.
    """
    if row.is_ended:
        return
    run = row.id
    if row.holder is not None:
        what = f"{row.holder!r} drives its newest turn, the run {run!r}; call again when that has ended"
    elif row.waits:
        asked = row.waits[0]
        what = (
            f"its newest turn, the run {run!r}, waits for an answer to {asked.key!r} ({asked.kind});"
            f" call agent.runs.resume({run!r}, {{{asked.key!r}: …}}) to continue it, or"
            f" agent.runs.all.cancel({run!r}) to end it"
        )
    else:
        what = (
            f"its newest turn, the run {run!r}, has not ended and has no driver; call agent.runs.resume({run!r}) to"
            f" continue it, or agent.runs.all.cancel({run!r}) to end it"
        )
    raise Conflict(conversation, run, what)


def _dialog_after(turn: StoredTurn, before: Dialog) -> Dialog:
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
    dialog = _make_dialog(seed, messages, record.governed_by)
    dialog.summary = None if record.summary is None else record.summary.inherited()
    return dialog


def _is_answered(record: CallRecord) -> bool:
    return record.state is State.COMPLETED and record.dialog[-1].role != "user"


def _make_dialog(seed: Seed, messages: Sequence[Message], governed_by: str) -> Dialog:
    return Dialog(messages, system_args=None if seed.is_system_own else {}, governed_by=governed_by)
