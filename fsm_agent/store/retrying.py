"""Retry failed runs: which entries a retry undoes, and the entry by which a run continues from those before.

A retry undoes the failure and nothing else.  What was done stays done: a run whose last entry is a success, by which a
row of its flow ended it in a failure, cannot be retried.  The journal keeps what was undone, and says who has retried.
"""

from __future__ import annotations

from fsm_agent._internal.values import to_json
from fsm_agent.call.journal import Entry, Retried, header_of, line_of
from fsm_agent.errors import UsageError
from fsm_agent.store.claiming import STUCK_STATE, Claiming
from fsm_agent.store.leases import RENEWER
from fsm_agent.store.recorder import Saved, count_to_keep, is_end_request
from fsm_agent.store.store import Loaded, Rest, Run

RETRIED_STATE = "Retried"  # of a run that was retried and has had no driver since, if its state is not known


def retry(runs: Claiming, run: str, *, by: str, at_s: float) -> int:
    """Make a failed run go on; see `Runs.retry`."""
    _check_failed(runs, runs.store.get(run))
    lease = runs.claim(run)
    loaded = runs.store.load(run, after=None)
    try:
        _check_failed(runs, loaded.run)
        saved = runs.read_snapshot(loaded)
        step, state = _goes_on_from(runs, loaded, saved)
        chain = runs.chain_after(loaded, saved)
    except BaseException:
        runs.give_back(lease, loaded)
        raise
    entry = Entry("", to_json(Retried(step=step, at_s=at_s)), "[]", None, by)
    late = [post.id for post in loaded.posts if is_end_request(post)]  # they meant the run that has failed
    runs.store.append(lease, lease.n, chain.written([entry], lease.fence), Rest(state=state, due_s=0.0), took=late)
    RENEWER.ring(run)
    return step


def _check_failed(runs: Claiming, run: Run) -> None:
    """Refuse to retry a run that has not failed, or that its conversation has left behind.

    Raises:
        UsageError: It says what was expected.
    """
    if not run.is_ended:
        raise UsageError(f"the run {run.id!r} has not ended; call requeue({run.id!r}), or answer its questions")
    if not run.is_failed:
        raise UsageError(f"the run {run.id!r}: expected one that failed, got one that ended in {run.state!r}")
    header = header_of(runs.store.load(run.id, after=run.n).header)
    if header.conversation and (newest := runs.store.head(header.conversation).run) != run.id:
        raise UsageError(
            f"the run {run.id!r}: expected the newest turn of the conversation {header.conversation!r}, {newest!r},"
            " got an"
            f" earlier one; call fork({run.id!r}), which makes a run of its own that can go on"
        )


def _goes_on_from(runs: Claiming, loaded: Loaded, saved: Saved | None) -> tuple[int, str]:
    """Return the number of the last entry that counts, and the state after it.

    Raises:
        UsageError: The run cannot be retried.
    """
    run = loaded.run
    if run.state == STUCK_STATE:  # it was cancelled without its code: no entry is a failure
        return run.n, RETRIED_STATE
    if saved is not None and saved.before is not None and loaded.snapshot is not None and loaded.snapshot[0] == run.n:
        return saved.before.step, saved.before.state
    last = [line_of(line) for line in runs.store.load(run.id, after=run.n - 1).lines]
    problem = "its last entry is a success, which would be done twice"
    if count_to_keep([(line.key, bytes(line.outcome).decode()) for line in last]) is not None:
        problem = "it ended under an earlier release, which kept nothing to go on from"
    raise UsageError(
        f"the run {run.id!r} cannot be retried: {problem}; call fork({run.id!r}, step=…) to continue from a step of"
        " your"
        " choice"
    )
