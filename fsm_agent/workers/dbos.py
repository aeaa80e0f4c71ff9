"""The DBOS engine, in which a run's job is a row in the DBOS queue, written in the store's transaction."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import sqlalchemy
from dbos import DBOS, DBOSConfig

from fsm_agent.runtime.log import LOG
from fsm_agent.store.sql.engine_jobs import JOB, QUEUE, dbos_schema
from fsm_agent.workers.engine import Engine

POLL_S = 0.2  # how often a worker asks for jobs
KEEP_S = 3600.0  # how long finished jobs are kept
TIDY_S, MOST_TIDIED = 60.0, 1000


class DbosEngine(Engine):
    """Drives the runs that DBOS has jobs for.

    Each OS process has a single DBOS instance, whose tables are in a schema next to the store's.
    """

    _tidied_s = 0.0  # monotonic

    @contextmanager
    def serving(self, threads: int) -> Iterator[None]:
        address = self.store.address
        tables = sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(address.conninfo), pool_size=5
        )
        DBOS(
            config=DBOSConfig(
                name="fsm_agent",
                system_database_engine=tables,
                system_database_url="postgresql:///store",  # unused, because there is an engine
                dbos_system_schema=dbos_schema(address.schema),
                executor_id=uuid.uuid4().hex,  # so that no executor restarts the jobs of another
                application_version="1",  # jobs hold only names, so any version can do them
                use_listen_notify=False,
                log_level="WARNING",
            )
        )
        try:
            DBOS.workflow(name=JOB)(lambda run: self._do(run))
            DBOS.listen_queues([QUEUE])
            DBOS.launch()
            # Settings that people have changed, such as a rate limit, are kept.
            queue = DBOS.register_queue(QUEUE, polling_interval_sec=POLL_S, on_conflict="never_update")
            limit = queue.global_concurrency
            queue.set_worker_concurrency(threads if limit is None else min(threads, limit))
            try:
                yield
            finally:
                DBOS.destroy(workflow_completion_timeout_sec=int(self.leave_s))
        finally:
            DBOS.destroy(destroy_registry=True)
            tables.dispose()

    def pause(self, seconds: float) -> None:
        if time.monotonic() >= self._tidied_s + TIDY_S:
            self._tidied_s = time.monotonic()
            try:
                self._tidy()
            except Exception as error:  # from the database
                LOG.warning("finished jobs of DBOS could not be removed: %s", error)
        super().pause(seconds)

    def _tidy(self) -> None:
        before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=KEEP_S)
        done = DBOS.list_workflows(
            completed_before=before.isoformat(), limit=MOST_TIDIED, load_input=False, load_output=False
        )
        DBOS.delete_workflows([job.workflow_id for job in done])
        if len(done) == MOST_TIDIED:
            self._tidied_s = 0.0  # there are more

    def _do(self, run: str) -> None:
        try:
            in_s = self.drive(run)
            if in_s is not None:
                self.store.tell(run, in_s)
        except Exception as error:  # from the store; the run will be found again
            LOG.warning("run %s could not be announced: %s", run, error)
