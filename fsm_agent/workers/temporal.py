"""The Temporal engine, in which a run's job is a workflow with one activity, started after the store's commit."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from anyio.from_thread import start_blocking_portal
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import Worker

from fsm_agent.errors import ConfigError
from fsm_agent.runtime.log import LOG
from fsm_agent.store.sql.engine_jobs import JOB, temporal_channel
from fsm_agent.workers.engine import Engine

BEAT, DAY = timedelta(seconds=2), timedelta(days=1)  # how often a worker reports that it is alive; the longest job
QUIETLY = ApplicationErrorCategory.BENIGN
LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"


@workflow.defn(name=JOB, sandboxed=False)
class _Job:
    @workflow.run
    async def run(self, run: str) -> None:
        await workflow.execute_activity(JOB, run, schedule_to_close_timeout=DAY, heartbeat_timeout=5 * BEAT)


class TemporalEngine(Engine):
    """Drives the runs that Temporal has jobs for.

    Temporal's address and namespace are taken from ``TEMPORAL_ADDRESS`` and similar environment variables.
    """

    _session: psycopg.Connection | None = None
    _is_beginner = False  # one worker starts the workflows of all

    @contextmanager
    def serving(self, threads: int) -> Iterator[None]:
        self._queue = temporal_channel(self.store.address.schema)
        with ThreadPoolExecutor(threads) as self._threads, start_blocking_portal() as self._portal:
            worker = self._portal.call(self._connect, threads)
            try:
                with self._portal.wrap_async_context_manager(worker):
                    yield
            finally:
                self._hang_up()

    def pause(self, seconds: float) -> None:
        try:
            self._session = self._session or psycopg.connect(self.store.address.conninfo, autocommit=True)
            if not self._is_beginner and self._session.execute(LOCK, (self._queue,)).fetchone() == (True,):
                self._session.execute(f"LISTEN {self._queue}")
                self._is_beginner, self.hears_since_s = True, time.monotonic()
            for note in self._session.notifies(timeout=seconds):
                self._portal.call(self._begin, *json.loads(note.payload))
        except Exception as error:  # from the database or Temporal
            LOG.warning("a job for Temporal could not be started; its run will be found again: %s", error)
            self._hang_up()
            time.sleep(seconds)

    def _hang_up(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session, self._is_beginner = None, False

    async def _connect(self, threads: int) -> Worker:
        options: dict[str, Any] = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
        try:
            self._client = await Client.connect(**options)
        except RuntimeError as error:
            raise ConfigError(f"Temporal at {options['target_host']} cannot be reached: {error}") from error
        work: dict[str, Any] = {"workflows": [_Job], "activities": [self._do], "max_concurrent_activities": threads}
        work |= {"graceful_shutdown_timeout": timedelta(seconds=self.leave_s), "on_fatal_error": self._fail}
        return Worker(self._client, task_queue=self._queue, **work)

    async def _fail(self, error: BaseException) -> None:
        self.worker.stop()  # the error is raised at the end of `serving`

    async def _begin(self, run: str, due_s: float) -> None:
        delay, job = timedelta(seconds=max(0.0, due_s - time.time())), f"{self._queue}/{run[:200]}/{uuid.uuid4().hex}"
        await self._client.start_workflow(JOB, run, id=job, task_queue=self._queue, start_delay=delay or None)

    @activity.defn(name=JOB)
    async def _do(self, run: str) -> None:
        driving = asyncio.get_running_loop().run_in_executor(self._threads, self.drive, run)
        while not driving.done():
            await asyncio.wait([driving], timeout=BEAT.total_seconds())
            activity.heartbeat()
        if (in_s := driving.result()) is not None:
            raise ApplicationError("later", next_retry_delay=timedelta(seconds=in_s), category=QUIETLY)
