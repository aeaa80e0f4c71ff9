"""Seeds: what an agent call began with, in the header of its journal; and the call that a journal stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fsm_agent._internal.values import Value, from_json, quick_json
from fsm_agent._internal.vector import Vector
from fsm_agent.errors import JournalError, SnapshotError, UsageError
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.lifecycle.record import CallRecord
from fsm_agent.lifecycle.snapshot import restored
from fsm_agent.machine.journal import VERSION, Header
from fsm_agent.messages.message import Message
from fsm_agent.prompts.fingerprint import change_of
from fsm_agent.prompts.prompt import Prompt

if TYPE_CHECKING:
    from typing import Unpack

    from fsm_agent.lifecycle.call import CallParts


class Seed(Value, frozen=True, kw_only=True):
    """All that a call began with, beside code."""

    prompt: str  # its path
    dialog: Vector[Message]
    limits: Limits = Limits()
    depth: int = 0
    is_attended: bool = False  # by an approver
    args: Mapping[str, Any] = msgspec.field(default_factory=dict)  # settings of this call, over the agent's
    parser_args: Mapping[str, Any] = msgspec.field(default_factory=dict)


def header_of_call(call: AgentCall, agent: str, args: Mapping[str, Any] | None) -> str:
    """Return the header of the journal of a call that has not begun.

    Messages hold what they declare, since they check it.

    Raises:
        UsageError: An argument cannot be written as JSON.
    """
    r = call.record
    seed: Any = Seed(  # written in its place: a header has it as JSON only when it is read
        prompt=call.prompt.path,
        dialog=r.dialog,
        limits=r.limits,
        depth=r.depth,
        is_attended=call.has_approver,
        args=args or {},
        parser_args=r.parser_args,
    )
    version: Literal[1] = VERSION
    try:
        return quick_json(Header(version=version, agent=agent, definition=call.definition, seed=seed, extra=r.extra))
    except ValueError as error:
        raise UsageError(f"the call cannot be kept in a store: {str(error)[:500]}") from None


def seed_of(header: Header) -> Seed:
    """Return the seed in a header.

    Raises:
        JournalError: It is damaged.
    """
    try:
        seed: Seed = from_json(bytes(header.seed), Seed)
    except ValueError as error:
        raise JournalError(f"the header of the journal holds no agent call: {error}") from None
    return seed


def call_of(header: Header, seed: Seed, document: str | None, prompt: Prompt, **parts: Unpack[CallParts]) -> AgentCall:
    """Return the call as it was at its last rest, or as it began.

    A function that it waits for may be gone by now: the model is told.  A change of the prompt since the run began is
    the call's ``prompt_change``.

    Raises:
        JournalError: The document is damaged.
    """
    if document is None:
        record = CallRecord.of(
            seed.dialog, limits=seed.limits, depth=seed.depth, extra=header.extra, parser_args=seed.parser_args
        )
        call = AgentCall(record, prompt, **parts)
    else:
        try:
            call = restored(document, prompt, **parts)
        except SnapshotError as error:
            raise JournalError(f"the snapshot of the run is damaged: {error}") from error
    call.prompt_change = change_of(prompt, header.definition)
    return call
