"""Find what the present code cannot act on: functions that were removed, or take other arguments now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsm_agent.call.approval_policy import approved_keys
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskApproval
from fsm_agent.call.interpret import unrunnable
from fsm_agent.call.journal import header_of
from fsm_agent.call.outcomes import Approved, Modified
from fsm_agent.call.process import SEPARATOR, Process
from fsm_agent.errors import OutcomeError
from fsm_agent.messages.message import FunctionCall


def calls_in(process: Process) -> Iterator[tuple[str, AgentCall[Any]]]:
    """Yield the waiting agent calls in a process, which may be one itself, each with its path."""
    paths = {""}
    for effect in process.effects:
        path = effect.key.rpartition(SEPARATOR)[0]
        while path not in paths:
            paths.add(path)
            path = path.rpartition(SEPARATOR)[0]
    for path in sorted(paths):
        owner = process.owner(f"{path}{SEPARATOR}").process if path else process
        if isinstance(owner, AgentCall):
            yield path, owner


def lost_approval(process: Process) -> str | None:
    """Return which approved function call the code of a process cannot run, and why; None: it can run all."""
    for path, call in calls_in(process):
        approved = approved_keys(call.record) if call.record.round else ()
        begun = call.record.in_doubt if approved else ()  # these may have run, which is a question of its own
        for f in call.record.pending:
            if f"{AskApproval.prefix}:{f.id}" in approved and f not in begun:
                key = f"{path}{SEPARATOR}{f.id}" if path else f.id
                if (problem := unrunnable(f, call.prompt)) is not None:
                    return _lost(key, f, problem)
    return None


def missing_function(process: Process) -> str | None:
    """Return which function is missing that a process was about to run, and where; None: all are there.

    A function that may have run already is a question of its own.
    """
    for path, call in calls_in(process):
        begun = call.record.in_doubt if call.record.round else ()
        for f in call.record.pending:
            if f.name not in call.prompt.by_name and f not in begun:
                key, problem = f"{path}{SEPARATOR}{f.id}" if path else f.id, unrunnable(f, call.prompt)
                return f"the call {key!r} of {f.name!r} was about to run, and {problem}; answer RunAgain() to skip it"
    return None


def loses(process: Process, key: str, outcome: object) -> str | None:
    """Return why an outcome is an approval that the code cannot act on; None: it is none, or the code can.

    Args:
        process: The process.
        key: The key of the effect.
        outcome: Any outcome.
    """
    if not isinstance(outcome, Approved | Modified):
        return None
    path, _, own = key.rpartition(SEPARATOR)
    try:
        call = process.owner(key).process
    except OutcomeError:  # nothing waits for it
        return None
    if not isinstance(call, AgentCall):
        return None
    for f in call.record.pending:
        if own == f"{AskApproval.prefix}:{f.id}":
            if isinstance(outcome, Modified):
                if f.name in call.prompt.by_name and not _has_changed(process):
                    return None  # the modified arguments are wrong, not the code; the model gets an error
                f = f.changed(arguments_json=outcome.arguments_json)
            problem = unrunnable(f, call.prompt)
            return problem if problem is None else _lost(f"{path}{SEPARATOR}{f.id}" if path else f.id, f, problem)
    return None


def _lost(key: str, f: FunctionCall, problem: str) -> str:
    return f"the call {key!r} of {f.name!r} was approved, and {problem}; restore the code that can run it"


def _has_changed(process: Process) -> bool:
    """Return whether the code of a process is not that with which its journal began."""
    header = "" if process.journal is None else process.journal.header
    return bool(header) and header_of(header).fingerprint != process.fingerprint
