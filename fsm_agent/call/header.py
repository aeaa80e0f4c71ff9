"""The header of an agent call's journal: the call's initial data, and how to make the call from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

import msgspec

from fsm_agent._internal.structs import Value, Vector, from_json, quick_json, to_json
from fsm_agent.call.call import AgentCall, CallParts
from fsm_agent.call.journal import VERSION, Header
from fsm_agent.call.limits import Limits
from fsm_agent.call.record import CallRecord
from fsm_agent.call.snapshots import restored, snapshot_in_run, with_earlier, without_earlier
from fsm_agent.errors import JournalError, UsageError
from fsm_agent.messages.message import HistorySummary, Message
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.prompts.prompt import Prompt, change_of


class Seed(Value, frozen=True, kw_only=True):
    """A call's initial data, without its code.

    If the call is a turn in a conversation, the messages from earlier turns belong after its system message.
    """

    prompt: str  # the path of the prompt
    dialog: Vector[Message]
    is_continued: bool = False  # the messages from earlier turns must be read from the previous run
    earlier: int = 0  # the number of messages from earlier turns in ``dialog``, after the system message
    is_system_own: bool = False  # the system message is the caller's, not an agent's
    is_system_late: bool = False  # the system message is empty, and the driver makes it when the call begins
    usage: Usage = UNUSED  # of earlier turns
    summary: HistorySummary | None = None  # of the beginning of the dialog, with the messages from earlier turns
    limits: Limits = Limits()
    depth: int = 0
    is_attended: bool = False  # it has an approver
    is_checked: bool = False  # it has a check of its answers
    governed_by: str = ""  # the path of handoffs to the agent that governs the dialog
    args: Mapping[str, Any] = msgspec.field(default_factory=dict)  # settings of this call, which override the agent's
    parser_args: Mapping[str, Any] = msgspec.field(default_factory=dict)
    model: str = ""  # of this call; empty for the agent's model


class ConversationTurn(Value, frozen=True):
    """A call's position in a conversation."""

    conversation: str
    turn: int  # from 1
    follows: str  # the previous run; empty for the first turn
    new: int  # the number of new messages at the end of the call's first messages
    is_continued: bool
    usage: Usage

    def earlier(self, dialog: Sequence[Message]) -> range:
        """Return the range that the messages from earlier turns occupy in the call's dialog."""
        return range(_start(dialog), len(dialog) - self.new)


def _start(dialog: Sequence[Message]) -> int:
    return 1 if len(dialog) and dialog[0].role == "system" else 0


def header_of_call(
    call: AgentCall,
    agent: str,
    args: Mapping[str, Any] | None,
    turn: ConversationTurn | None = None,
    *,
    is_offer_late: bool = False,
) -> str:
    """Return the journal header for a call that has not begun.

    ``is_offer_late`` is True if the functions depend on deps, so that the fingerprint is not known yet.

    Raises:
        UsageError: If an argument cannot be written as JSON.
    """
    record = call.record
    seed: Any = Seed(  # an object, which is written together with the header; a header that was read has it as JSON
        prompt=call.prompt.path,
        dialog=record.dialog,
        summary=record.summary,
        limits=record.limits,
        depth=record.depth,
        is_attended=call.has_approver,
        is_checked=record.is_checked,
        args=args or {},
        parser_args=record.parser_args,
        governed_by=record.governed_by,
        model=record.model,
        is_system_own=call.system_args is None and _start(record.dialog) == 1,
        is_system_late=call.opening is not None,
    )
    version: Literal[1] = VERSION
    fingerprint = "" if is_offer_late else call.fingerprint
    header = Header(version=version, agent=agent, fingerprint=fingerprint, seed=seed, extra=record.extra, by=record.by)
    if tables := [f.delegate.tables_json[1:-1] for f in call.prompt.offers if f.delegate and f.delegate.tables_json]:
        header = header.changed(tables=msgspec.Raw(b"{" + b",".join(tables) + b"}"))
    if turn is not None:
        seed = seed.changed(
            dialog=without_earlier(record.dialog, turn.earlier(record.dialog)) if turn.is_continued else record.dialog,
            is_continued=turn.is_continued,
            earlier=0 if turn.is_continued else len(turn.earlier(record.dialog)),
            usage=turn.usage,
        )
        header = header.changed(seed=seed, conversation=turn.conversation, turn=turn.turn, follows=turn.follows)
    try:
        return quick_json(header)  # without a check of the messages, which `Dialog` has done
    except ValueError as error:
        raise UsageError(f"the call cannot be kept in a store: {str(error)[:500]}") from None


def seed_of(header: Header) -> Seed:
    """Read the seed in a header."""
    try:
        seed: Seed = from_json(bytes(header.seed), Seed)
    except ValueError as error:
        what = f"the header of the journal: expected an agent call, got a run of {header.agent!r} ({error})"
        raise JournalError(f"{what}; continue a flow with fsm-agent flows run, or with resume of the flow") from None
    return seed


def request_differences(one: Header, other: Header) -> list[str]:
    """Describe in words how the calls in two headers differ.

    Code and the agent's system prompt are not compared.
    """
    differs = [name for (name, a), (_, b) in zip(_requested(one), _requested(other), strict=True) if a != b]
    return list(dict.fromkeys([_WORDS.get(name, name) for name in differs]))


def _requested(header: Header) -> list[tuple[str, Any]]:
    seed = seed_of(header)
    if not seed.is_system_own:
        seed = seed.changed(dialog=Vector(seed.dialog[_start(seed.dialog) :]), is_system_late=False)
    plain = header.changed(fingerprint="", seed=msgspec.Raw(), tables=msgspec.Raw(), traceparent="")
    return [(name, getattr(value, name)) for value in (plain, seed) for name in value.__struct_fields__]


_WORDS = {  # for fields, as a caller knows them
    "dialog": "task",
    "turn": "place in its conversation",
    "follows": "place in its conversation",
    "is_continued": "place in its conversation",
    "earlier": "place in its conversation",
    "is_system_own": "system message",
    "is_attended": "approve",
    "is_checked": "check",
    "forked": "run that it is a fork of",
    "forked_by": "run that it is a fork of",
    "edit": "run that it is a fork of",
}


def earlier_messages(header: Header, count: int) -> range:
    """Return the range of the ``count`` messages from earlier turns, which the run does not store."""
    start = _start(seed_of(header).dialog)
    return range(start, start + count)


def on_its_own(header: Header, earlier: Sequence[Message]) -> Header:
    """Return a turn's header, rewritten to hold all messages, for a run outside any conversation."""
    seed = seed_of(header)
    whole = seed.changed(dialog=with_earlier(seed.dialog, earlier, _start(seed.dialog)), is_continued=False, earlier=0)
    return header.changed(seed=msgspec.Raw(to_json(whole).encode()), conversation="", turn=0, follows="")


def turn_snapshot(call: AgentCall) -> str:
    """Return a snapshot of a call, without the messages from its conversation's earlier turns."""
    earlier = None if call.journal is None else call.journal.earlier
    return snapshot_in_run(call, earlier or range(0))


def call_of(
    header: Header,
    seed: Seed,
    document: str | None,
    prompt: Prompt,
    earlier: Sequence[Message] = (),
    **parts: Unpack[CallParts],
) -> AgentCall:
    """Return the call as it began, or as it was at its last snapshot.

    If a pending function has been removed, the model gets an error, unless the function was approved (`lost_approval`).
    A run that began without a check continues without one, so that its journal can still be read.
    """
    if not seed.is_checked:
        parts["check"] = None
    if document is None:
        dialog = with_earlier(seed.dialog, earlier, _start(seed.dialog))
        record = CallRecord.of(
            dialog,
            limits=seed.limits,
            depth=seed.depth,
            extra=header.extra,
            by=header.by,
            parser_args=seed.parser_args,
            governed_by=seed.governed_by,
            summary=seed.summary,
        )
        record = record.changed(model=seed.model, is_checked=seed.is_checked)
        call = AgentCall(record, prompt, **parts)
    else:
        call = restored(document, prompt, earlier, _start(seed.dialog), **parts)
    call.prompt_change = change_of(prompt, header.fingerprint)
    return call
