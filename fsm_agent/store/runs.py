"""Runs: processes whose journals are kept in a store.

`Runs` adds signing keys, redaction and leases to a store.  Its `Journals` reads the journals, and its `Claims` creates
runs and decides who drives them.

A retry undoes only the failure, so a run cannot be retried if its last entry is a success that led its flow to a
failure.  The journal keeps the undone entries and says who retried the run.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from typing import Any

import msgspec

from fsm_agent._internal.structs import Vector, from_json, is_amount, is_finite, to_json
from fsm_agent.call.header import seed_of
from fsm_agent.call.journal import Entry, Header, Line, Retried, header_of, line_of, retried_in, steps_json
from fsm_agent.call.outcomes import Cancelled, Injected, Outcome, RunAgain, Stopped
from fsm_agent.call.process import INBOX, prefix_of
from fsm_agent.errors import JournalError, OutcomeError, UsageError
from fsm_agent.store import checks
from fsm_agent.store.claiming import Claims, ProcessFactory, replay_run
from fsm_agent.store.errors import LeaseLost, NotAsked, RunBusy, RunUnknown
from fsm_agent.store.forking import fork, past_of
from fsm_agent.store.journals import Journals
from fsm_agent.store.leases import LEASE_S, RENEWER
from fsm_agent.store.listing import ALL, STUCK
from fsm_agent.store.recorder import Posted, Saved, count_to_keep, is_end_request
from fsm_agent.store.rescheduling import STUCK_STATE, stuck_in
from fsm_agent.store.sql.sqlite import SqliteStore
from fsm_agent.store.store import Loaded, Run, RunsHealth, Store, Suspension
from fsm_agent.store.turns import needed_runs
from fsm_agent.store.watching import RunWatcher
from fsm_agent.validation import require

RETRIED_STATE = "Retried"  # the state of a run not driven since its retry, if its real state is unknown


class Runs:
    """The runs of agents and flows in a store.

    Args:
        store: A `Store`, the path to a SQLite file, or a ``postgresql://`` URL.
        signing_key: A key of 32 bytes or more that signs journals and snapshots, so that they cannot be forged without
            it.
        redact: A pure function that is applied to each outcome before it is used, and returns an outcome of the same
            kind.  The parts that it removes reach neither the store nor the model.
        lease_s: How long a lease lasts, in seconds.  A holder renews it while it is alive.
        patience_s: How long a driver keeps a run that is waiting, in seconds, for example before it repeats a request.
            If the wait will be longer, the driver releases the run.  None means no limit.
        read_only: Whether to open the store for reading only.  The store must already exist, and each write raises
            `ReadOnly`.

    Examples:
        >>> agent = Agent(Script("Hi."), name="host", store=Runs(MemoryStore()))
        >>> agent.call("Hello", run_id="r1").output
        'Hi.'
    """

    def __init__(
        self,
        store: Store | str | os.PathLike[str],
        *,
        signing_key: str | bytes | None = None,
        redact: Callable[[Outcome], Outcome] | None = None,
        lease_s: float = LEASE_S,
        patience_s: float | None = None,
        read_only: bool = False,
    ) -> None:
        require("lease_s", lease_s, is_finite(lease_s) and lease_s > 0.0, "a number of seconds above 0")
        require("patience_s", patience_s, patience_s is None or is_amount(patience_s), "a number of seconds, or None")
        self.store: Store = _open_store(store, read_only)
        self.journals = Journals(self.store, signing_key)
        self.claims = Claims(self.journals, redact=redact, lease_s=lease_s, patience_s=patience_s)
        self.watcher = RunWatcher(self.store)

    # Reading

    def look_at(self, run: str, factory: ProcessFactory) -> Any:
        """Return a run's process as it is in the store, without claiming the run.

        Raises:
            RunUnknown: If the run does not exist.
            JournalError: If the journal is damaged, forged, or from another run.
            ReplayError: If the code has changed and no longer takes the steps in the journal.
        """
        return replay_run(self.journals, self.store.load(run, after=None), factory)

    def replay(self, run: str, factory: ProcessFactory) -> Any:
        """Replay and verify a run's whole journal, and return its process without claiming the run.

        Raises:
            RunUnknown: If the run does not exist.
            JournalError: If the journal is damaged, forged, or from another run.
            ReplayError: If the code has changed and no longer takes the steps in the journal.
        """
        loaded = self.store.load(run, after=0)
        return replay_run(self.journals, loaded.changed(snapshot=None), factory)

    def at(self, run: str, step: int | str | None, factory: ProcessFactory) -> Any:
        """Return a run's process as it was after an entry.  It can be read but takes no steps.

        The run is not claimed, so another holder may be driving it.

        Args:
            run: The name of the run.
            step: The number of the entry, 0 for the run before its first entry, or None for the run as it is stored.
                If steps have names, this may also be the name of the step to which the entry led.  A store in memory
                may lag behind until the run is released.
            factory: The factory that makes the process.

        Raises:
            RunUnknown: If the run does not exist.
            UsageError: If the run has no such entry.
            JournalError: If the journal is damaged, forged, or from another run.
            ReplayError: If the code has changed and no longer takes the steps in the journal up to this entry.
        """
        return past_of(self.journals, run, step, factory)

    def fork(
        self,
        run: str,
        step: int | None,
        name: str | None,
        factory: ProcessFactory | None = None,
        *,
        by: str = "",
        edit: str = "",
    ) -> str:
        """Make a run that continues from an entry of another run, and return its name.

        With a factory, the fork waits for what the run was waiting for after that entry, such as an answer or a set
        time.  Without a factory, the entries are copied unchanged, and the fork is due only once it is resumed.  Making
        the same fork again has no effect.

        Args:
            run: The name of the run.
            step: The number of the last common entry, or None for the last entry of the run.
            name: The name of the fork, or None for a new name.
            factory: The factory that makes the process, or None to fork without the agent's code.
            by: The name of the person who forks the run, for display.
            edit: An outcome to add after the common entries, as JSON without a time, or an empty string for none.  An
                outcome requires a factory.

        Raises:
            RunUnknown: If the run does not exist.
            RunExists: If another run has the name of the fork.
            UsageError: If the run has no such entry, or is in the middle of a function that must not run twice.
            JournalError: If the journal is damaged.
            ReplayError: If the code has changed and no longer takes the steps in the journal up to this entry.
        """
        checks.check_by(by)
        if name is not None:
            checks.check_new_run(name)
        return fork(self.claims, run, step, name, factory, by=by, edit=edit)

    # Signals

    def answer(
        self,
        run: str,
        answers: Mapping[str, Outcome],
        *,
        by: str = "",
        at_s: float | None = None,
        typed: Collection[str] = (),
        signal_id: str = "",
        content: str = "",
    ) -> None:
        """Post answers to open questions, by key.

        The key ``""`` is for outcomes that are not answers, such as `Cancelled`.  A key like ``inbox:review`` belongs
        to a flow's state that accepts answers before it asks.  Such an answer must be JSON.  Only the driver
        checks its type, since there is no question yet, and an answer that no state accepts stays in the store.  Other
        answers must fit their questions' schemas.

        Args:
            run: The name of the run.
            answers: Outcomes by the keys of the questions.
            by: The name of the person who answers, for display.
            at_s: The Unix time for answers that have no time, or None for now.
            typed: The keys of answers that were encoded by the types of their flow states and are not checked against
                schemas.
            signal_id: An id for a single answer, such as a payment's id, or an empty string.  Posting the answer again
                under this id has no effect, even after the run has ended.
            content: The text to compare when an answer is repeated; by default, its key and its outcome.

        Raises:
            RunUnknown: If the run does not exist.
            NotAsked: If the run has no such open question, or has ended.
            AlreadyAnswered: If the question has already been answered.
            SignalExists: If another answer was posted under ``signal_id``.
            UsageError: If ``answers`` is not a mapping, if a value is not an outcome that its question accepts, or if
                it does not fit the question's schema.  Nothing is posted.
        """
        right = "a mapping of question keys to outcomes, such as {'ask:2.0': Approved()}"
        require(
            "answers", answers, isinstance(answers, Mapping) and all(isinstance(key, str) for key in answers), right
        )
        for key, outcome in answers.items():
            if not isinstance(outcome, Outcome):
                right = checks.accepted_at(self.store.get(run), key)
                raise UsageError(f"the answer to {key!r}: expected {right}, got {outcome!r:.80}")
        named = {}
        if signal_id:
            checks.check_one_answer(answers)
            content = content or to_json([[key, from_json(to_json(outcome), Any)] for key, outcome in answers.items()])
            if self.is_posted(run, signal_id, content):
                return
            named = {"signal_id": signal_id, "content": _digest(content)}
        asked = {""}
        if any(answers):
            row = self.store.get(run)
            checks.check_answers(answers, row, typed)
            asked |= {question.key for question in row.waits}
        # Everything that can fail comes before the first post.  The store refuses a key that is not asked.
        keys = sorted(answers, key=lambda key: key in asked or prefix_of(key) == INBOX)
        bodies = {key: self._body(key, answers[key], at_s) for key in keys}
        for key, body in bodies.items():
            self.store.signal(run, "" if prefix_of(key) == INBOX else key, body, by=by, **named)
            if not key and isinstance(answers[key], Cancelled | Stopped):
                self._end_at_once(run)
        RENEWER.ring(run)

    def _body(self, key: str, outcome: Outcome, at_s: float | None) -> str:
        kept = outcome if outcome.at_s else outcome.changed(at_s=time.time() if at_s is None else at_s)
        kept = kept if self.claims.redact is None else self.claims.redact(kept)
        return to_json(Posted(key, msgspec.Raw(to_json(kept).encode())))

    def is_posted(self, run: str, signal_id: str, content: str) -> bool:
        """Return whether a signal with this id was posted to the run, even if it has been used up.

        Raises:
            RunUnknown: If the run does not exist.
            SignalExists: If the signal has different content.
        """
        checks.check_signal_id(signal_id)
        return checks.is_repeated_signal(run, signal_id, self.store.signalled(run, signal_id), _digest(content))

    def cancel(self, run: str, reason: str = "", *, by: str = "") -> None:
        """Post a cancellation.  The run's current or next driver then ends the run.

        A run without a driver ends when it is driven by a worker, by ``runs.resume`` or by its conversation's next
        turn.

        Raises:
            RunUnknown: If the run does not exist.
            NotAsked: If the run has ended.
            AlreadyAnswered: If the run is stuck and the question about it has already been answered.
        """
        asked = [question.key for question in self.store.get(run).waits]
        self.answer(run, {STUCK if STUCK in asked else "": Cancelled(reason=reason)}, by=by)

    # For operators

    def retry(self, run: str, *, by: str = "", at_s: float | None = None) -> int:
        """Continue a failed run under the same name, and return the number of the last entry that is kept.

        Only the failure is undone; earlier steps are not repeated.  A failed model request is made again, with all its
        attempts.  If a function that must not run twice had begun, it is not run again; the run asks what became of it,
        as after a crash.

        The run's usage, costs and limits still include the tokens of undone entries, such as a reply that could not be
        parsed, since they were paid for.  A run over its budget sends no further request, and fails again.

        Deadlines and the times of states are reset, and no state fails because its ``until`` has passed.  Cancellations
        that the failed run had not read are dropped.  The journal keeps the undone entries and records who retried the
        run.  The run is due at once.  The agent's code is not needed.

        Args:
            run: The name of the run.
            by: The name of the person who retries the run, for display.
            at_s: The Unix time of the retry, or None for now.

        Raises:
            RunUnknown: If the run does not exist.
            RunBusy: If the run has a holder.
            UsageError: If the run has not failed, its last entry is not a failure, or its conversation has continued.
            JournalError: If the journal is damaged or forged, or its signing key is missing.
        """
        checks.check_by(by)
        _check_failed(self.store, self.store.get(run))
        lease = self.claims.claim(run)
        loaded = self.store.load(run, after=None)
        try:
            _check_failed(self.store, loaded.run)
            saved = self.journals.read_snapshot(loaded)
            step, state = _goes_on_from(self.store, loaded, saved)
            chain = self.journals.chain_after(loaded, saved)
        except BaseException:
            self.claims.give_back(lease, loaded)
            raise
        retried = Retried(step=step, at_s=time.time() if at_s is None else at_s, is_charged=True)
        entry = Entry("", to_json(retried), steps_json(()), None, by)
        late = [signal.id for signal in loaded.signals if is_end_request(signal)]  # meant for the failed run
        self.store.append(
            lease, lease.n, chain.written([entry], lease.fence), Suspension(state=state, due_s=0.0), took=late
        )
        RENEWER.ring(run)
        return step

    def requeue(self, run: str, *, by: str = "") -> bool:
        """Make a released or stuck run due now.  Return False if it was already due.

        A stuck run is tried again.  If the run is waiting for a person or a set time, the next driver only looks at it
        and releases it again.

        Raises:
            RunUnknown: If the run does not exist.
            RunBusy: If another holder is driving the run.
            UsageError: If the run has ended.
        """
        checks.check_by(by)
        row = self.store.get(run)
        if row.is_ended:
            right = f"; call retry({run!r}) to continue it" if row.is_failed else ", so it needs no driver"
            raise UsageError(f"the run {run!r} has ended in {row.state!r}{right}")
        if any(question.key == STUCK for question in row.waits):
            self.answer(run, {STUCK: RunAgain()}, by=by)
            return True
        if row.due_s == 0.0 and row.holder is None:
            return False
        lease = self.claims.claim(run)
        self.claims.give_back(lease, self.store.load(run, after=lease.n), counts=False)
        RENEWER.ring(run)
        return True

    def _end_at_once(self, run: str) -> None:
        """Make a run due at once if it has not started or was put off, because a signal alone would not end it."""
        row = self.store.get(run)
        if row.due_s != 0.0 and not row.is_ended and stuck_in(row) is None:
            with suppress(LeaseLost, RunBusy, RunUnknown):  # it has a driver, or is gone
                lease = self.claims.claim(run)
                self.claims.give_back(lease, self.store.load(run, after=lease.n))

    def only_question(self, run: str) -> str:
        """Return the key of a run's only open question.

        Raises:
            RunUnknown: If the run does not exist.
            NotAsked: If the run has no open question, or has ended.
            OutcomeError: If the run is asking several questions.
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
        """Count the runs that are due, held, stuck, or waiting for an answer.

        The result also shows how long the oldest due run has been waiting.  If a run has been due for a long time,
        probably no running worker knows its agent.

        Raises:
            StoreError: If the store failed.
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
        """Delete runs that have ended, oldest first, and return them.

        Runs that have not ended are kept, as are runs that are needed to read a conversation.

        Args:
            max_age_s: Delete runs that ended more than this many seconds ago.
            keep: Delete all but this many of the newest ended runs.
            now_s: The Unix time from which ages are counted back, or None for now.
            is_dry: Whether to return the runs without deleting them.

        Raises:
            UsageError: If neither an age nor a count is given, or one is negative.
        """
        if max_age_s is None and keep is None:
            raise UsageError("prune: expected max_age_s or keep, got neither; pass max_age_s=30 * 86400 or keep=1000")
        for name, value in {"max_age_s": max_age_s, "keep": keep}.items():
            require(name, value, value is None or is_amount(value), "a number of at least 0")
        before_s = -math.inf if max_age_s is None else (time.time() if now_s is None else now_s) - max_age_s
        ended = self.store.list(ended=True, limit=ALL)  # the newest first
        old = [run for n, run in enumerate(ended) if run.updated_s < before_s or (keep is not None and n >= keep)]
        needed = cache(partial(needed_runs, self.journals))
        old = [run for run in reversed(old) if not self._needed_by(run, needed)]
        return [run for run in old if is_dry or _try_delete(self.store, run.id)]

    def needed_by(self, run: str) -> str:
        """Return the name of the conversation that needs this run, or an empty string if none does.

        Raises:
            RunUnknown: If the run does not exist.
        """
        return self._needed_by(self.store.get(run), partial(needed_runs, self.journals))

    def _needed_by(self, run: Run, needed: Callable[[str], set[str]]) -> str:
        """See `needed_by`.  ``needed`` is a function that returns the names of the runs that a conversation needs."""
        try:
            name = header_of(self.store.load(run.id, after=run.n).header).conversation
        except (RunUnknown, JournalError):
            return ""
        return name if name and run.id in needed(name) else ""

    def export(self, run: str, redact: Callable[[Outcome], Outcome] | None = None) -> Iterator[str]:
        """Yield a run's stored journal as lines of JSON: first its header, then its entries.

        Args:
            run: The name of the run.
            redact: A pure function that is applied to each outcome, and to the first messages of the run as an
                `Injected`.  The function returns an outcome of the same kind.  A redacted export omits the digests and
                the caller's ``extra`` and arguments, and its first line marks it as redacted.

        Raises:
            RunUnknown: If the run does not exist.
            JournalError: If ``redact`` is given and the run is not an agent call.
        """
        loaded = self.store.load(run, after=0)
        if redact is None:
            return iter((loaded.header, *loaded.lines))
        return _redact_journal(loaded, redact)

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def _digest(content: str) -> str:
    return sha256(content.encode()).hexdigest()


def _check_failed(store: Store, run: Run) -> None:
    if not run.is_ended:
        raise UsageError(f"the run {run.id!r} has not ended; call requeue({run.id!r}), or answer its questions")
    if not run.is_failed:
        raise UsageError(f"the run {run.id!r}: expected one that failed, got one that ended in {run.state!r}")
    header = header_of(store.load(run.id, after=run.n).header)
    if header.conversation and (newest := store.head(header.conversation).run) != run.id:
        raise UsageError(
            f"the run {run.id!r}: expected the newest turn of the conversation {header.conversation!r}, {newest!r}, got"
            f" an earlier one; call fork({run.id!r}), which makes a separate run that can continue"
        )


def _goes_on_from(store: Store, loaded: Loaded, saved: Saved | None) -> tuple[int, str]:
    """Return the number of the last entry that a retry keeps, and the state after it.

    Raises:
        UsageError: If the run cannot be retried.
    """
    run = loaded.run
    if run.state == STUCK_STATE:  # cancelled without its code, so no entry is a failure
        return run.n, RETRIED_STATE
    if saved is not None and saved.before is not None and loaded.snapshot is not None and loaded.snapshot[0] == run.n:
        return saved.before.step, saved.before.state
    last = [line_of(line) for line in store.load(run.id, after=run.n - 1).lines]
    problem = "its last entry is a success, which would be done twice"
    if count_to_keep([(line.key, bytes(line.outcome).decode()) for line in last]) is not None:
        problem = "it kept no state from before its failure"
    raise UsageError(
        f"the run {run.id!r} cannot be retried: {problem}; call fork({run.id!r}, step=…) to continue from a step of"
        " your choice"
    )


def _try_delete(store: Store, run: str) -> bool:
    """Delete a run, or return False if it is gone, has a holder, or was retried since it was listed."""
    try:
        if not store.get(run).is_ended:
            return False
        store.delete(run)
    except (RunUnknown, RunBusy):
        return False
    return True


def _redact_journal(loaded: Loaded, redact: Callable[[Outcome], Outcome]) -> Iterator[str]:
    header = to_json(_redact_header(header_of(loaded.header), redact))
    yield '{"redacted":"this export cannot be resumed or replayed",' + header[1:]
    for text in loaded.lines:
        line = line_of(text)
        outcome = line.outcome
        if retried_in(line) is None:
            try:
                found: Outcome = from_json(bytes(outcome), Outcome)
            except ValueError as error:
                what = f"entry {line.n} cannot be redacted, since it is not of an agent call"
                raise JournalError(f"{what}: {error}") from None
            outcome = msgspec.Raw(to_json(redact(found)).encode())
        yield to_json(Line(n=line.n, key=line.key, outcome=outcome, steps=line.steps, fence=line.fence))


def _redact_header(header: Header, redact: Callable[[Outcome], Outcome]) -> Header:
    seed = seed_of(header)
    dialog = redact(Injected(tuple(seed.dialog)))
    if not isinstance(dialog, Injected):
        raise UsageError(
            f"the return value of redact for the messages of the seed: expected an Injected, got {dialog!r:.80}"
        )
    seed = seed.changed(dialog=Vector(dialog.messages), args={}, parser_args={}, summary=None)
    if edit := bytes(header.edit):
        header = header.changed(edit=msgspec.Raw(to_json(redact(from_json(edit, Outcome))).encode()))
    return header.changed(seed=msgspec.Raw(to_json(seed).encode()), extra={})


def _open_store(store: Store | str | os.PathLike[str], read_only: bool) -> Store:
    """Return a given store, or open the store at a path or a Postgres address.

    No error quotes a URL, because it may hold a password.
    """
    right = "the path of a file such as 'runs.db', postgresql://host/database, a Store, or Runs"
    if not isinstance(store, str | os.PathLike):
        require("store", store, hasattr(store, "is_volatile") and not isinstance(store, type), right)
        if read_only:
            what = "read_only=True: expected a path or an address, got a store that is open"
            raise UsageError(f"{what}; pass Runs({type(store).__name__}(…, read_only=True))")
        return store
    text = os.fspath(store)
    scheme, colon, _ = text.partition("://")
    if colon and scheme in ("postgresql", "postgres"):
        from fsm_agent.store.sql.postgres import PostgresStore  # few programs need it

        return PostgresStore(text, read_only=read_only)
    require("store", f"{scheme}://…" if colon else store, bool(text) and not colon, right)
    if os.path.isdir(os.path.expanduser(text)):
        file = os.path.join(text, "runs.db")
        raise UsageError(f"store: expected a file, got the folder {text!r}; pass a file in it, such as {file!r}")
    return SqliteStore(text, read_only=read_only)


def opened(store: Any) -> Runs:
    """Return the `Runs` for a store, a path, or the runs of an agent."""
    found = getattr(store, "all", store)  # `all` of an agent's runs are the runs of its store
    return found if isinstance(found, Runs) else Runs(found)
