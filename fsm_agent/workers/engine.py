"""The base class of the engines.  Jobs are only hints: an engine also searches for runs whose jobs were lost."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from importlib import import_module

from fsm_agent._internal.structs import is_whole
from fsm_agent.errors import UsageError
from fsm_agent.named_objects import needing
from fsm_agent.runtime.log import LOG
from fsm_agent.store.errors import RunBusy, RunUnknown
from fsm_agent.store.sql.postgres import PostgresStore
from fsm_agent.validation import require, safe_repr
from fsm_agent.workers.pool import LEAVE_S, StorePatience
from fsm_agent.workers.worker import Worker

LOOK_S = 0.5  # how often lost jobs are looked for
LOST_S = 10.0  # a job counts as lost once its run has been due this long, or its holder has died
DAY_S = 24 * 3600.0


def engine_of(name: str, worker: Worker) -> Engine:
    """Return the engine for a worker: DBOS or Temporal.

    Raises:
        UsageError: If the worker's store is not in Postgres, or its address names another engine.
        ConfigError: If the engine's package is not installed.

    Examples:
        >>> store = "postgresql://me@localhost/shop?engine=dbos"
        >>> engine_of("dbos", Worker([agent], store)).run()     # doctest: +SKIP
        >>> try:
        ...     engine_of("dbos", Worker([Agent(Script(), name="clerk")], MemoryStore()))
        ... except UsageError:
        ...     print("it needs Postgres")
        it needs Postgres
    """
    require("engine", name, name in ("dbos", "temporal"), "'dbos' or 'temporal'")
    store = worker.runs.store
    if not isinstance(store, PostgresStore) or store.address.engine != name:
        right = f"open postgresql://…?engine={name}, also in processes that begin or answer runs"
        what = f"expected a Postgres store with engine={name} in its address, got {safe_repr(store)}"
        raise UsageError(f"engine {name!r}: {what}; {right}")
    if name == "temporal" and store.address.is_pooled:
        raise UsageError("engine 'temporal': expected a store with sessions, got one with pooled=yes; leave pooled out")
    with needing(name, "the engine"):
        module = import_module(f"fsm_agent.workers.{name}")
    made: Engine = getattr(module, f"{name.capitalize()}Engine")(worker, store)
    return made


class Engine(ABC):
    """The base class for engines.  An engine drives a worker's runs when it has jobs for these runs.

    Args:
        worker: The worker that drives the runs.
        store: The worker's store.

    Examples:
        >>> engine: Engine = engine_of("dbos", worker)           # doctest: +SKIP
        >>> engine.run(threads=4)                                # doctest: +SKIP
    """

    def __init__(self, worker: Worker, store: PostgresStore) -> None:
        self.worker = worker
        self.store = store
        self._counting = threading.Lock()
        self._driven = 0
        self.hears_since_s = 0.0  # monotonic; earlier jobs may have been lost

    def run(self, *, threads: int = 1) -> int:
        """Drive runs until `Worker.stop` is called, and return the number of times that a run was driven.

        Args:
            threads: How many runs are driven at a time.

        Raises:
            Exception: If the engine cannot be reached, or the store has failed for too long.
        """
        require("threads", threads, is_whole(threads, 1), "a whole number of at least 1")
        interrupting = threading.Timer(self.worker.drain_s or 0.0, self.worker.interrupt)
        try:
            with self.serving(threads):
                try:
                    self._look_after(threads)
                finally:
                    self.worker.stop()
                    if self.worker.drain_s is not None:
                        interrupting.start()
        finally:
            interrupting.cancel()
        return self._driven

    @property
    def leave_s(self) -> float:
        """The number of seconds that a job in progress may take once the worker is stopped."""
        return DAY_S if self.worker.drain_s is None else self.worker.drain_s + LEAVE_S

    @abstractmethod
    def serving(self, threads: int) -> AbstractContextManager[None]:
        """Accept jobs until the end of the ``with`` block, then finish those that were accepted."""

    def pause(self, seconds: float) -> None:
        """Wait between searches for lost jobs, and do periodic work."""
        time.sleep(seconds)

    def drive(self, run: str) -> float | None:
        """Drive a job's run if there is anything to do.

        This never raises an exception, because the engine would forget a failed job.

        Returns:
            The number of seconds to wait before looking at the run again, or None if there is no need to.
        """
        if self.worker.is_stopping:
            return 0.0
        try:
            is_driven = self.worker.drive(run)
        except RunBusy:  # its holder may be dead
            return self.worker.runs.claims.lease_s
        except RunUnknown:
            return None
        except UsageError as error:
            LOG.warning("all workers under an engine need the same agents: %s", error)
            return None
        except Exception as error:  # from the store
            LOG.warning("run %s could not be driven; it is tried again: %s", run, error)
            return LOST_S
        with self._counting:
            self._driven += is_driven
        return None

    def _look_after(self, threads: int) -> None:
        """Look for runs whose jobs were lost.  While the worker is idle, look for several at a time."""
        self.hears_since_s, patience = time.monotonic(), StorePatience(self.worker)
        while not self.worker.is_stopping:
            try:
                self.worker.release_stuck()
                older_s, free = min(LOST_S, time.monotonic() - self.hears_since_s), threads - self.worker.held
                self.store.remind(self.worker.agents, older_s=older_s, limit=max(1, free))
            except Exception as error:
                self.worker.stopping.wait(patience.pause_s(error))
            else:
                patience.note_success()
                self.pause(LOOK_S)
