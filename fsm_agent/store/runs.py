"""Runs: processes whose journals are kept in a store.

`Runs` is a store with the rules by which runs are kept in it: keys, redaction, leases.  It knows processes, headers and
posts.  How runs are claimed is in `fsm_agent.store.claiming`, how they are forked in `fsm_agent.store.forking`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

import msgspec

from fsm_agent._internal.values import from_json, to_json
from fsm_agent.call.outcomes import Cancelled, Outcome, RunAgain, Stopped
from fsm_agent.call.process import INBOX, prefix_of
from fsm_agent.errors import OutcomeError, UsageError
from fsm_agent.store import checks, pruning, retrying
from fsm_agent.store.checks import check_answers, check_one_answer
from fsm_agent.store.claiming import Definition
from fsm_agent.store.errors import LeaseLost, NotAsked, RunBusy, RunUnknown
from fsm_agent.store.forking import Forking
from fsm_agent.store.leases import RENEWER
from fsm_agent.store.listing import STUCK
from fsm_agent.store.recorder import Posted
from fsm_agent.store.store import Run, RunsHealth
from fsm_agent.validation import check


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
        read_only: The store at this path or address is neither made nor written: what would write raises `ReadOnly`.

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
        return self.fold_run(self.store.load(run, after=None), definition)

    def replay(self, run: str, definition: Definition) -> Any:
        """Fold the whole journal of a run and verify each entry; return the process, without claiming the run.

        Raises:
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and takes other steps than the journal.
        """
        loaded = self.store.load(run, after=0)
        return self.fold_run(loaded.changed(snapshot=None), definition)

    # Posts

    def answer(
        self,
        run: str,
        answers: Mapping[str, Outcome],
        *,
        by: str = "",
        at_s: float | None = None,
        typed: Collection[str] = (),
        post_id: str = "",
        content: str = "",
    ) -> None:
        """Post answers to open questions, by key; the key ``""`` is for outcomes that answer none, such as `Cancelled`.

        An answer has to fit the schema that is in its question.  A key such as ``inbox:review`` is that of a state of a
        flow whose answers may come before it asks: there is no question yet, so only the driver checks those.

        Args:
            run: The name of the run.
            answers: Outcomes by the keys of the questions.
            by: Who answers, for people.
            at_s: Unix time of the answers that have none of their own; None: now.
            typed: The keys of answers that the types of their states have written: their schemas are not asked.
            post_id: An id of the one answer, such as that of a payment: to post it again under this id changes nothing,
                however often it is tried, and whatever became of the run meanwhile.  Empty: it has none.
            content: What is the same when the answer is posted again; empty: its key and its outcome.

        Raises:
            RunUnknown: The run does not exist.
            NotAsked: The run has no such open question, or has ended.
            AlreadyAnswered: The question was answered before.
            PostExists: Another answer was posted under ``post_id``.
            UsageError: ``answers`` is not a mapping, or a value is not an outcome that its question accepts, or does
                not fit its schema; nothing is posted.
        """
        right = "a mapping of question keys to outcomes, such as {'ask:2.0': Approved()}"
        check("answers", answers, isinstance(answers, Mapping) and all(isinstance(key, str) for key in answers), right)
        for key, outcome in answers.items():
            if not isinstance(outcome, Outcome):
                raise UsageError(f"the answer to {key!r}: expected an outcome such as Approved(), got {outcome!r:.80}")
        named = {}
        if post_id:
            check_one_answer(answers)
            content = content or to_json([[key, from_json(to_json(outcome), Any)] for key, outcome in answers.items()])
            if self.is_posted(run, post_id, content):
                return
            named = {"post_id": post_id, "content": _digest(content)}
        if any(answers):
            check_answers(answers, self.store.get(run), typed)
        for key, outcome in answers.items():
            kept = outcome if outcome.at_s else outcome.changed(at_s=time.time() if at_s is None else at_s)
            kept = kept if self.redact is None else self.redact(kept)
            body = to_json(Posted(key, msgspec.Raw(to_json(kept).encode())))
            self.store.post(run, "" if prefix_of(key) == INBOX else key, body, by=by, **named)
            if not key and isinstance(outcome, Cancelled | Stopped):
                self._end_before_start(run)
        RENEWER.ring(run)

    def is_posted(self, run: str, post_id: str, content: str) -> bool:
        """Return whether a post of this id was made, used up or not.

        Raises:
            RunUnknown: The run does not exist.
            PostExists: It has another content.
        """
        checks.check_post_id(post_id)
        return checks.is_repeated_post(run, post_id, self.store.posted(run, post_id), _digest(content))

    def cancel(self, run: str, reason: str = "", *, by: str = "") -> None:
        """Post a cancellation; the driver of the run, the present or the next, ends it.

        Raises:
            RunUnknown: The run does not exist.
            NotAsked: The run has ended.
            AlreadyAnswered: The run is stuck, and the question about it was answered before.
        """
        asked = [question.key for question in self.store.get(run).waits]
        self.answer(run, {STUCK if STUCK in asked else "": Cancelled(reason=reason)}, by=by)

    # For operators

    def retry(self, run: str, *, by: str = "", at_s: float | None = None) -> int:
        """Make a run that has failed go on, under its name; return the number of the last entry that counts.

        The failure is undone, and nothing else: what was done before is not done again, and a request to a model is
        made anew with all its attempts.  A function that must not run twice, and had begun, is not run either: the run
        asks what became of it, as after a crash.  Deadlines and the times of states count anew; a moment, ``until``,
        that has passed fails no state.  Cancellations that the failed run has not read are dropped.  The journal keeps
        what was undone, and says who has retried the run.  It is due at once; the code of its agent is not needed here.

        Args:
            run: The name of the run.
            by: Who retries it, for people.
            at_s: Unix time; None: now.

        Raises:
            RunUnknown: The run does not exist.
            RunBusy: Another holder has it.
            UsageError: It has not failed; or its last entry was no failure, so that something would be done twice; or
                its conversation has gone on.
            JournalError: Its journal is damaged or forged, or its signing key is missing.
        """
        return retrying.retry(self, run, by=by, at_s=time.time() if at_s is None else at_s)

    def requeue(self, run: str, *, by: str = "") -> bool:
        """Make a run due now that rests or is stuck; return False if it was due already.

        A stuck run is tried again.  One that waits for a person, or for a time to come, is looked at by the next driver
        and rests again.

        Raises:
            RunUnknown: The run does not exist.
            RunBusy: Another holder drives it.
            UsageError: It has ended.
        """
        row = self.store.get(run)
        if row.is_ended:
            right = f"; call retry({run!r}) to continue it" if row.is_failed else ", so it needs no driver"
            raise UsageError(f"the run {run!r} has ended in {row.state!r}{right}")
        if any(question.key == STUCK for question in row.waits):
            self.answer(run, {STUCK: RunAgain()}, by=by)
            return True
        if row.due_s == 0.0 and row.holder is None:
            return False
        lease = self.claim(run)
        self.give_back(lease, self.store.load(run, after=lease.n))
        RENEWER.ring(run)
        return True

    def _end_before_start(self, run: str) -> None:
        """Make a run due that was to start later, since no post does that; its driver then ends it."""
        row = self.store.get(run)
        if row.n == 0 and row.due_s != 0.0 and not row.is_ended:
            with suppress(LeaseLost, RunBusy, RunUnknown):  # then it has a driver, or it is gone
                lease = self.claim(run)
                self.give_back(lease, self.store.load(run, after=lease.n))

    def only_question(self, run: str) -> str:
        """Return the key of the only open question of a run.

        Raises:
            RunUnknown: The run does not exist.
            NotAsked: It asks nothing, or has ended.
            OutcomeError: It asks several questions.
        """
        row = self.store.get(run)
        if row.is_ended:
            raise checks.ended_run(run)
        keys = [question.key for question in row.waits]
        if not keys:
            raise NotAsked(f"the run {run!r} has no open question now")
        if len(keys) > 1:
            named = ", ".join(map(repr, keys))
            raise OutcomeError(f"the run {run!r} asks {len(keys)} questions; answer each by its key: {named}")
        return keys[0]

    # Maintenance

    def health(self) -> RunsHealth:
        """Return how many runs are due, held, asked and stuck, and how long the first of them waits for a driver.

        A run that is due for long has no worker: none has its agent, or none is running.

        Raises:
            StoreError: The store failed.
        """
        return self.store.health()

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
        return pruning.conversation_of(self, self.store.get(run))

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


def _digest(content: str) -> str:
    return sha256(content.encode()).hexdigest()
