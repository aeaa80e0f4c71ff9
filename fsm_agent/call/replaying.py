"""Replay a journal: a process takes the recorded steps again, and an error says where its steps differ.

Effects whose outcomes are in the journal are not performed again; all others are.  A ``once`` function that had begun
is in doubt instead (`fsm_agent.runtime.run_function`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from fsm_agent.call.journal import Chain, Line, entry_of, retried_in, step_of
from fsm_agent.call.process import Process
from fsm_agent.errors import JournalError, ReplayError, UsageError

Steps: TypeAlias = Sequence[tuple[str, str]]  # paths and triggers


def replay(
    process: Process,
    lines: Iterable[str],
    chain: Chain,
    fingerprint: str = "",
    earlier: tuple[int, Any] | None = None,
) -> int:
    """Advance a process with a journal's entries, and return the highest fence among them.

    Args:
        process: The process in its state before the first entry.
        lines: The entries.
        chain: The chain of digests up to the first entry, for verifying the entries.
        fingerprint: The fingerprint of the code that wrote the entries, for error messages.
        earlier: The number of an earlier entry to which a `Retried` may go back, and the record after it.

    Raises:
        JournalError: If the entries are damaged, reordered or forged, or come from another journal.
        ReplayError: If the current code takes different steps.

    Examples:
        >>> from fsm_agent.store import MemoryStore
        >>> store = MemoryStore()
        >>> _ = Agent(Script("Hi."), name="clerk", store=store).call("Hello", run_id="r")
        >>> kept = store.load("r", after=0)
        >>> again = Agent(Script(), name="clerk").prepare("Hello")
        >>> _ = replay(again, kept.lines, Chain(kept.header))
        >>> again.output
        'Hi.'
    """
    fence = 0
    lines = [*lines]
    keeps_records = any('"retried"' in line for line in lines)
    records = _known_records(process, chain.n, earlier) if keeps_records else {}
    for line in lines:
        entry = chain.verified(line)
        if entry.fence < fence:
            raise JournalError(f"fence of entry {entry.n}: expected {fence} or more, got {entry.fence}")
        fence = entry.fence
        if (retried := retried_in(entry)) is not None:
            if retried.step not in records:
                raise JournalError(f"entry {entry.n} goes back to entry {retried.step}, which is unknown here")
            spent = process.record.total_usage
            process.return_to(records[retried.step])
            process.renew(retried.at_s)
            if retried.is_charged:
                process.charge(spent)
            records[entry.n] = process.record
            if process.journal is not None:
                process.journal.entries.append(entry_of(entry).changed(record=process.record))
            continue
        then = _steps_text(entry.steps)
        now_called = {path: process.present_key(path) for path, _ in entry.steps if path}
        try:
            process.advance(entry.key, process.decode(entry.key, bytes(entry.outcome)))
        except (UsageError, ValueError) as error:
            raise ReplayError(
                f"{_entry_text(entry)} {then} was taken then; now: {error}; {_cause_text(process, fingerprint)}"
            ) from error
        steps = tuple(map(step_of, process.steps))
        if steps != entry.steps and not _are_renamed(process, now_called, entry.steps, steps):
            raise ReplayError(
                f"{_entry_text(entry)} {then} was taken then, and {_steps_text(steps)} would be now;"
                f" {_cause_text(process, fingerprint)}"
            )
        if keeps_records:
            records[entry.n] = process.record
    return fence


def _are_renamed(process: Process, now_called: Mapping[str, str], then: Steps, now: Steps) -> bool:
    """Return whether steps differ only because states in their paths have new names.

    ``now_called`` holds the new paths before the advance.  A child that has begun in it is known after it.
    """
    return len(then) == len(now) and all(
        one == other or (one[1] == other[1] and other[0] in (now_called.get(one[0]), process.present_key(one[0])))
        for one, other in zip(then, now, strict=True)
    )


def _known_records(process: Process, n: int, earlier: tuple[int, Any] | None) -> dict[int, Any]:
    journal = process.journal
    known = {} if journal is None else dict(enumerate(journal.records, journal.n_before))
    return {**known, n: process.record, **({} if earlier is None else {earlier[0]: earlier[1]})}


def _entry_text(entry: Line) -> str:
    return f"entry {entry.n} (key {entry.key!r}):"


def _steps_text(steps: Steps) -> str:
    return " and ".join([repr(f"{path}: {trigger}" if path else trigger) for path, trigger in steps]) or "no step"


def _cause_text(process: Process, fingerprint: str) -> str:
    if fingerprint and fingerprint != process.fingerprint:
        return (
            f"the definition has changed from {fingerprint} to {process.fingerprint}: its prompt, functions, their"
            " policies or its output"
        )
    return (
        "the definition is the same: a parser, a check, a predicate, other code that it calls or an approver has"
        " changed"
    )
