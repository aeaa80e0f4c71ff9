"""Delete old runs, and export journals without their confidential parts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from fsm_agent._internal.field_checks import is_amount
from fsm_agent._internal.values import from_json, to_json
from fsm_agent._internal.vector import Vector
from fsm_agent.call.journal import Header, Line, header_of, line_of, retried_in
from fsm_agent.call.outcomes import Injected, Outcome
from fsm_agent.call.seeding import seed_of
from fsm_agent.errors import JournalError, UsageError
from fsm_agent.store.errors import RunBusy, RunUnknown
from fsm_agent.store.store import Loaded, Run, Store
from fsm_agent.store.turns import needed_runs
from fsm_agent.validation import check

if TYPE_CHECKING:
    from fsm_agent.store.runs import Runs

_ALL = 1 << 31  # more runs than a store has


def prune(runs: Runs, *, max_age_s: float | None, keep: int | None, now_s: float | None, is_dry: bool) -> list[Run]:
    """Delete runs that have ended, the oldest first, and return them; see `Runs.prune`."""
    if max_age_s is None and keep is None:
        raise UsageError("prune() needs to know which runs to delete: pass max_age_s=30 * 86400 or keep=1000")
    for name, value in {"max_age_s": max_age_s, "keep": keep}.items():
        check(name, value, value is None or is_amount(value), "a number from 0 on")
    before_s = -math.inf if max_age_s is None else (time.time() if now_s is None else now_s) - max_age_s
    ended = runs.store.list(ended=True, limit=_ALL)  # the newest first
    old = [run for n, run in enumerate(ended) if run.updated_s < before_s or (keep is not None and n >= keep)]
    is_needed = _Needed(runs)
    return [run for run in reversed(old) if not is_needed(run) and (is_dry or _try_delete(runs.store, run.id))]


class _Needed:
    """Find out whether a conversation is read from a run; each conversation is read once.

    Args:
        runs: The runs and their store.
    """

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._by_conversation: dict[str, set[str]] = {}

    def __call__(self, run: Run) -> str:
        """Return the conversation that is read from a run; empty: none is."""
        try:
            name = header_of(self._runs.store.load(run.id, after=run.n).header).conversation
        except (RunUnknown, JournalError):
            return ""
        if name and name not in self._by_conversation:
            self._by_conversation[name] = needed_runs(self._runs, name)
        return name if name and run.id in self._by_conversation[name] else ""


def conversation_of(runs: Runs, run: Run) -> str:
    """Return the conversation that is read from a run; see `Runs.needed_by`."""
    return _Needed(runs)(run)


def _try_delete(store: Store, run: str) -> bool:
    """Delete a run; return False if it was deleted meanwhile, has a holder, or was retried since it was listed."""
    try:
        if not store.get(run).is_ended:
            return False
        store.delete(run)
    except (RunUnknown, RunBusy):
        return False
    return True


def redact_journal(loaded: Loaded, redact: Callable[[Outcome], Outcome]) -> Iterator[str]:
    """Yield the journal of a run as lines of JSON, each outcome as ``redact`` returns it; see `Runs.export`.

    Raises:
        JournalError: The run is not that of an agent call.
    """
    header = to_json(_redact_header(header_of(loaded.header), redact))
    yield '{"redacted":"this export cannot be resumed or replayed",' + header[1:]
    for text in loaded.lines:
        n, key, raw, steps, fence = (line := line_of(text)).n, line.key, bytes(line.outcome), line.steps, line.fence
        if retried_in(line) is not None:
            yield to_json(Line(n=n, key=key, outcome=line.outcome, steps=steps, fence=fence))
            continue
        try:
            outcome: Outcome = from_json(raw, Outcome)
        except ValueError as error:
            raise JournalError(f"entry {n} cannot be redacted, since it is not of an agent call: {error}") from None
        changed = msgspec.Raw(to_json(redact(outcome)).encode())
        yield to_json(Line(n=n, key=key, outcome=changed, steps=steps, fence=fence))


def _redact_header(header: Header, redact: Callable[[Outcome], Outcome]) -> Header:
    """Return a header without the caller's data and a summary, and with its messages and its edit redacted."""
    seed = seed_of(header)
    dialog = redact(Injected(tuple(seed.dialog)))
    if not isinstance(dialog, Injected):
        raise UsageError(f"what redact returned for the messages of the seed: expected an Injected, got {dialog!r:.80}")
    seed = seed.changed(dialog=Vector(dialog.messages), args={}, parser_args={}, summary=None)
    if edit := bytes(header.edit):
        header = header.changed(edit=msgspec.Raw(to_json(redact(from_json(edit, Outcome))).encode()))
    return header.changed(seed=msgspec.Raw(to_json(seed).encode()), extra={})
