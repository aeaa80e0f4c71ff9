"""A store's tables, in SQL that both SQLite and Postgres understand, and the migrations between their versions."""

from __future__ import annotations

from fsm_agent.store import checks
from fsm_agent.store.errors import StoreError
from fsm_agent.store.sql.statements import Sql

FIRST = 12  # the version of `TABLES`; lower versions are older than the first release
STEPS: tuple[str, ...] = ()  # the statements that migrate each version, from `FIRST` on, to the next

# The columns of a run:
# - `due` and `wakes_on` are as in `Run.due_s` and `Suspension`.
# - `wake` is when a worker may claim the run: when it becomes or became due or, while it has a holder, when the lease
#   ends.  Null if only a signal wakes it.
# - `until` is the end of the lease, even if it has passed.  Null if the lease was released.
# - `given_back` is the `n` of the append that released the lease.
# - `asks` has the kinds of open questions; see `Group`.
# - `pending` counts the signals, so that a suspension and a signal at the same time change the same row.
# - `instance` names the instance whose death ends the lease.
#
# An append without a suspension changes no column that is in an index.  It writes two pages: that of the run, and the
# last one of its lines.  So `updated` is the time of the last suspension, and `touched` the time of the last entry.
#
# The `place` of a line has the key of its run in the upper 32 bits, and its number in the lower 32 bits.  Line 0 is
# the header.
#
# In `predecessor`, `before` is a run that must end before `run` is due, and `due` is the earliest time for that.
TABLES = """
CREATE TABLE run (
    key {new_key}, id {text} NOT NULL UNIQUE, agent {text} NOT NULL, n {int} NOT NULL, state {text} NOT NULL,
    is_ended {bool} NOT NULL, is_failed {bool} NOT NULL, asks {text} NOT NULL, due {real}, wake {real}, wakes_on {text},
    pending {int} NOT NULL, priority {int} NOT NULL, fence {int} NOT NULL, tries {int} NOT NULL, holder {text} NOT NULL,
    instance {text} NOT NULL, since {real} NOT NULL, until {real}, given_back {int} NOT NULL, created {real} NOT NULL,
    updated {real} NOT NULL, touched {real} NOT NULL, service {text} NOT NULL, title {text} NOT NULL,
    fingerprint {text} NOT NULL
) {roomy};
CREATE INDEX run_queue ON run (agent, priority, wake, key) WHERE wake IS NOT NULL;
CREATE INDEX run_held ON run (instance) WHERE until IS NOT NULL;
CREATE INDEX run_group ON run (agent, is_failed, is_ended, asks, state, updated, key) WHERE until IS NULL;
CREATE INDEX run_asks ON run (asks) WHERE asks <> '';
CREATE INDEX run_of_service ON run (service, is_ended) WHERE service <> '';
CREATE TABLE journal (place {key}, line {text} NOT NULL) {plain};
CREATE TABLE snapshot (run {key}, n {int} NOT NULL, record {bytes} NOT NULL) {plain};
CREATE TABLE question (
    run {int} NOT NULL, key {text} NOT NULL, kind {text} NOT NULL, about {text} NOT NULL, answers {text} NOT NULL,
    schema {text} NOT NULL, answered_by {text} NOT NULL, answered {real}, PRIMARY KEY (run, key)
) {sorted};
CREATE TABLE signal (
    id {serial}, run {int} NOT NULL, key {text} NOT NULL, body {text} NOT NULL, sent_by {text} NOT NULL,
    sent {real} NOT NULL
) {plain};
CREATE INDEX signal_of_run ON signal (run);
CREATE TABLE signalled (run {int} NOT NULL, id {text} NOT NULL, content {text} NOT NULL, PRIMARY KEY (run, id))
    {sorted};
CREATE TABLE conversation (name {text} PRIMARY KEY, version {int} NOT NULL, run {text} NOT NULL) {plain};
CREATE TABLE predecessor (before {int} NOT NULL, run {int} NOT NULL, due {real} NOT NULL, PRIMARY KEY (before, run))
    {sorted};
CREATE INDEX predecessor_of_run ON predecessor (run);
CREATE TABLE fsm_agent_store (version {int} NOT NULL) {plain}"""


def version_of(c: Sql, place: str) -> int | None:
    """Return the version of the tables, or None if there are no tables."""
    if not c(c.is_store):
        return None
    versions = c("SELECT version FROM fsm_agent_store")
    if len(versions) != 1:
        raise StoreError(f"the store {place} is damaged: expected one version, got {len(versions)}")
    [[version]] = versions
    if version > newest():
        raise StoreError(
            f"the store {place}: expected a version up to {newest()}, which this release of fsm_agent supports, got"
            f" {version}; upgrade fsm_agent"
        )
    if version < FIRST:
        raise StoreError(
            f"{place}: expected version {FIRST} or newer, got {version}, which a prerelease wrote; use a new place"
        )
    return int(version)


def newest() -> int:
    """Return the version that this release reads and writes."""
    return FIRST + len(STEPS)


def prepare(c: Sql, place: str) -> None:
    """Make the tables, or migrate them to the newest version, in a transaction that writes."""
    if (version := version_of(c, place)) is None:
        if c(c.is_taken):
            raise StoreError(
                f"{place}: expected a store, or an empty place, got the tables of another program or of a"
                " prerelease; use a separate database or file"
            )
        version = FIRST
        _execute(c, TABLES)
        c("INSERT INTO fsm_agent_store VALUES (:version)", version=version)
    for step in STEPS[version - FIRST :]:
        _execute(c, step)
    c("UPDATE fsm_agent_store SET version = :version", version=newest())


def check_readable(c: Sql, place: str) -> None:
    """Check that the tables have the newest version, without changing them."""
    if (version := version_of(c, place)) is None:
        raise checks.no_store(place)
    if version < newest():
        raise StoreError(
            f"the store {place}: expected version {newest()}, got {version}; open it once for writing to upgrade it"
        )


def _execute(c: Sql, statements: str) -> None:
    for statement in statements.format(**c.types).split(";"):
        c(statement)
