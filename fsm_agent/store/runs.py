"""Runs: processes whose journals are kept in a store.

`Runs` is a store with the rules by which runs are kept in it: keys, redaction, leases.  It knows processes, headers and
posts.  How runs are claimed is in `fsm_agent.store.claiming`, how they are forked in `fsm_agent.store.forking`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from fsm_agent._internal.values import to_json
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.outcomes import Cancelled, Outcome
from fsm_agent.machine.process import INBOX, prefix_of
from fsm_agent.mistakes import check
from fsm_agent.store import checks, pruning
from fsm_agent.store.claiming import Definition
from fsm_agent.store.forking import Forking
from fsm_agent.store.lease_renewal import RENEWER
from fsm_agent.store.recorder import Posted
from fsm_agent.store.store import Run


class Runs(Forking):
    """The runs of agents, in a store.

    Args:
        store: A `Store`, or the path of a file of SQLite.
        signing_key: Signs journals and snapshots, so that they cannot be forged without it; 32 bytes or more.
        redact: Applied to each outcome before it is taken: what it leaves out reaches neither the store nor the model.
            A pure function, which returns an outcome of the same kind.
        lease_s: How many seconds a lease lasts; a live holder renews it.
        patience_s: How many seconds a driver idles before it gives the run back, when it waits only for a time to come,
            such as that of the next attempt at a model; None: without limit.

    Examples:
        >>> agent = Agent(Script("Hi."), name="host", store=Runs(MemoryStore()))
        >>> agent.call("Hello", run_id="r1").output
        'Hi.'
    """

    def look_at(self, run: str, definition: Definition) -> Any:
        """Return the process of a run as it is in the store, without claiming the run.

        Raises:
            RunUnknown: The run does not exist.
            JournalError: As `resume` does.
            ReplayError: As `resume` does.
        """
        return self._fold_run(self.store.load(run, after=None), definition)

    def replay(self, run: str, definition: Definition) -> Any:
        """Fold the whole journal of a run and verify each entry; return the process, without claiming the run.

        Raises:
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and takes other steps than the journal.
        """
        loaded = self.store.load(run, after=0)
        return self._fold_run(loaded.changed(snapshot=None), definition)

    # Posts

    def answer(self, run: str, answers: Mapping[str, Outcome], *, by: str = "", at_s: float | None = None) -> None:
        """Post answers to open questions, by key; the key ``""`` is for outcomes that answer none, such as `Cancelled`.

        A key such as ``inbox:review`` is that of a state of a flow whose answers may come before it asks.

        Args:
            run: The name of the run.
            answers: Outcomes by the keys of the questions.
            by: Who answers, for people.
            at_s: Unix time of the answers that have none of their own; None: now.

        Raises:
            RunUnknown: The run does not exist.
            NotAsked: The run has no such open question, or has ended.
            AlreadyAnswered: The question was answered before.
            UsageError: ``answers`` is not a mapping, or a value is not an outcome that its question accepts; nothing is
                posted.
        """
        right = "outcomes by the keys of the questions, such as {'ask:2.0': Approved()}"
        check("answers", answers, isinstance(answers, Mapping) and all(isinstance(key, str) for key in answers), right)
        for key, outcome in answers.items():
            if not isinstance(outcome, Outcome):
                raise UsageError(f"the answer to {key!r} is {outcome!r:.80}: an outcome such as Approved() is right")
        if any(answers):
            checks.check_answers(answers, self.store.load(run, after=None).run)
        for key, outcome in answers.items():
            kept = outcome if outcome.at_s else outcome.changed(at_s=time.time() if at_s is None else at_s)
            kept = kept if self.redact is None else self.redact(kept)
            body = to_json(Posted(key, msgspec.Raw(to_json(kept).encode())))
            self.store.post(run, "" if prefix_of(key) == INBOX else key, body, by=by)
        RENEWER.ring(run)

    def cancel(self, run: str, reason: str = "", *, by: str = "") -> None:
        """Post a cancellation; the driver of the run, the present or the next, ends it."""
        self.answer(run, {"": Cancelled(reason=reason)}, by=by)

    # Maintenance

    def prune(
        self,
        *,
        max_age_s: float | None = None,
        keep: int | None = None,
        now_s: float | None = None,
        is_dry: bool = False,
    ) -> list[Run]:
        """Delete runs that have ended, the oldest first, and return them.

        Runs that have not ended stay, and so do those that are needed to read a conversation.

        Args:
            max_age_s: Delete runs that ended more than this many seconds ago.
            keep: Delete all but this many of the newest runs.
            now_s: Unix time from which ages are counted; None: now.
            is_dry: Return the runs without deleting them.

        Raises:
            UsageError: Neither an age nor a count is given, or one is negative.
        """
        return pruning.prune(self, max_age_s=max_age_s, keep=keep, now_s=now_s, is_dry=is_dry)

    def needed_by(self, run: str) -> str:
        """Return the name of the conversation that needs a run to be read; empty: none does.

        Raises:
            RunUnknown: The run does not exist.
        """
        return pruning.conversation_of(self, self.store.load(run, after=None).run)

    def export(self, run: str, redact: Callable[[Outcome], Outcome] | None = None) -> Iterator[str]:
        """Yield the journal of a run as lines of JSON: its header, then its entries, as they are in the store.

        Args:
            run: The name of the run.
            redact: A pure function, applied to each outcome, and to the first messages of the run as `Injected`; it
                returns an outcome of the same kind.  A redacted export has no digests, none of the caller's ``extra``
                and arguments, and a first line that marks it as redacted.

        Raises:
            RunUnknown: The run does not exist.
            JournalError: With ``redact``: the run is not that of an agent call.
        """
        loaded = self.store.load(run, after=0)
        if redact is None:
            return iter((loaded.header, *loaded.lines))
        return pruning.redact_journal(loaded, redact)

    def close(self) -> None:
        """Close the store."""
        self.store.close()
