"""Workers advance the due runs in a store, one or many at a time.

The store is the queue, so a worker needs only the store and the agents' code.  There may be any number of workers, in
any number of OS processes.  A run that must wait longer than the worker's patience rests in the store until it is due,
and the next free worker claims it (see `fsm_agent.store.claiming`).  `fsm_agent.workers.pool` describes how a worker
stops; the command `fsm-agent worker` calls `Worker.stop` on SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar, get_args

from fsm_agent._internal.structs import is_amount, is_whole
from fsm_agent.agents.options import UNNAMED
from fsm_agent.agents.runnable import Runnable, Sink
from fsm_agent.call.derived_events import last_event
from fsm_agent.call.journal import Header, header_of
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import GivenDeps, Made, deps_for
from fsm_agent.messages.events import Event, Stepped
from fsm_agent.prompts.prompt import Prompt, by_path
from fsm_agent.runtime import portal
from fsm_agent.runtime.drive_loop import Driver
from fsm_agent.runtime.drivers import AsyncDriver, SyncDriver
from fsm_agent.runtime.portal import Aborted, ThreadTask, in_thread
from fsm_agent.store.checks import fingerprint_in
from fsm_agent.store.claiming import (
    Claimed,
    OnChange,
    ProcessFactory,
    aclaim,
    give_back,
    is_of_code,
)
from fsm_agent.store.errors import LeaseLost, RunBusy, RunUnknown
from fsm_agent.store.listing import STUCK, each_listed
from fsm_agent.store.recorder import StoreRecorder
from fsm_agent.store.rescheduling import stuck_in
from fsm_agent.store.runs import Runs, opened
from fsm_agent.store.store import Lease, Run, Store
from fsm_agent.validation import require
from fsm_agent.workers.health import Heartbeat, RunsCollector, WorkerHealth
from fsm_agent.workers.pool import LEAVE_S, WorkerPool

IDLE_S = 1.0  # how often a thread that waits for work checks whether the worker was stopped
PATIENCE_S = 5.0  # a run waits for short backoffs and rests during longer ones
TASKS = 100  # runs that are driven at a time under asyncio
STORE_PATIENCE_S = 300.0  # how long a store may fail, for example while its server restarts
PRUNE_S = 3600.0  # how often old runs are deleted
LOOK_S = 60.0  # how often stuck runs are searched for
STUCK_AT_A_TIME = 1_000  # stuck runs that are read at a time
_log = logging.getLogger("fsm_agent")

Done = TypeVar("Done")
D = TypeVar("D", bound=Driver)


class Worker:
    """Advances the runs of some agents.

    Args:
        agents: The agents, flows and orchestrators whose runs the worker claims, matched by name.
        runs: The store that holds the runs: a path, a `Store`, or `Runs` with options.
        deps: The dependencies that functions get in their `Context`: a value for all runs, or a function that makes one
            for each run, given the agent's name, the run's ``extra`` and the user who asked.
        prompts: Prompts that were passed with tasks; they are found by their paths.
        patience_s: How long the worker keeps a run that is waiting, in seconds, for example before a request is
            repeated.  During a longer wait, the run rests in the store.
        store_patience_s: How long the store may keep failing before the worker gives up, in seconds.
        drain_s: How long, in seconds, runs in progress may take to reach their next step once the worker is stopped.
            After this time, they are interrupted and released.  None means no limit.
        on_change: What happens to a run if its code has changed since it last stopped.  "report" continues with the
            current code, and logs changed prompts.  "rest" asks a person first, as for a stuck run.  "stop" makes the
            worker raise the error and leaves the run to others; use it for the first worker with a new version.
        keep: The number of ended runs to keep in the store, or None for all.  Older ones are deleted each hour; see
            `Runs.prune`.
        max_age_s: How long to keep ended runs in the store, in seconds, or None for no limit.
        only_known: Whether to claim only runs that began under this code, judging by its fingerprint, so that two
            versions can run side by side.

    Examples:
        >>> @function(needs_approval=True)
        ... def erase() -> str:
        ...     "Erase."
        ...     return "gone"
        >>> clerk = Agent(Script(function_call("erase"), "Done."), functions=[erase], name="clerk", store=MemoryStore())
        >>> try:
        ...     clerk.call("Tidy up.", run_id="tidy")
        ... except CallSuspended:
        ...     clerk.runs.all.answer("tidy", {"ask:1.0": Approved()})
        >>> Worker([clerk], clerk.runs.all).run(once=True)      # how many runs it has advanced
        1
    """

    def __init__(
        self,
        agents: Iterable[Runnable],
        runs: Runs | Store | str | os.PathLike[str],
        *,
        deps: GivenDeps[Any] = None,
        prompts: Iterable[Prompt[Any]] = (),
        patience_s: float = PATIENCE_S,
        store_patience_s: float = STORE_PATIENCE_S,
        drain_s: float | None = None,
        on_change: OnChange = "report",
        only_known: bool = False,
        keep: int | None = None,
        max_age_s: float | None = None,
    ) -> None:
        for what, value in {"patience_s": patience_s, "store_patience_s": store_patience_s}.items():
            require(what, value, is_amount(value), "a number of seconds")
        require("drain_s", drain_s, drain_s is None or is_amount(drain_s), "a number of seconds, or None")
        require("on_change", on_change, on_change in get_args(OnChange), "'report', 'rest' or 'stop'")
        self.runs = opened(runs)
        self.patience_s = patience_s
        self.store_patience_s = store_patience_s
        self.drain_s = drain_s
        self.on_change = on_change
        self._failure: Exception | None = None  # with on_change="stop"
        self._agents: dict[str, Runnable] = {}
        require("agents", agents, isinstance(agents, Iterable), "a list of Agents and Flows")
        given = [*agents]
        for agent in given:
            require("an agent", agent, isinstance(agent, Runnable), "an Agent or a Flow")
        for agent in chain.from_iterable(agent._sub_runnables for agent in given):
            require("name of an agent", agent.name, agent.name != UNNAMED, "a name, by which it finds its runs")
            if self._agents.setdefault(agent.name, agent) is not agent:
                raise UsageError(f"agents: expected different names, got two named {agent.name!r}; rename one")
        require("agents", agents, bool(self._agents), "one agent or more")
        for agent in given:
            agent._check_deps(deps)
        require("keep", keep, keep is None or is_whole(keep, 0), "a whole number of at least 0, or None")
        require("max_age_s", max_age_s, max_age_s is None or is_amount(max_age_s), "a number of seconds, or None")
        self._keep, self._max_age_s = keep, max_age_s
        self._prompts = by_path(prompts)
        self._known: tuple[str, ...] | None = None
        if only_known:
            own = [*self._prompts.values()]
            self._known = tuple(sorted(set().union(*(agent._fingerprints(own) for agent in self._agents.values()))))
        self._deps = deps
        self.stopping = threading.Event()
        self._wakers: set[Callable[[], None]] = set()  # called when the worker is stopped
        self._driving: dict[Driver, StoreRecorder] = {}
        self.heartbeat = Heartbeat()
        self.runs_collector = RunsCollector(self.runs)
        self._looking = threading.Lock()
        self._looks_at_s = 0.0  # monotonic time of the next search for stuck runs
        self._tried: set[tuple[str, int]] = set()  # stuck runs that were tried, and how many entries each had

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self.stopping.is_set()

    @property
    def agents(self) -> Sequence[str]:
        """The names of the agents whose runs this worker drives."""
        return [*self._agents]

    @property
    def held(self) -> int:
        """The number of runs that are being driven."""
        return len(self._driving)

    def held_by_agent(self) -> Mapping[str, int]:
        """Return the number of runs that are being driven, for each agent."""
        held = dict.fromkeys(self._agents, 0)
        for recorder in [*self._driving.values()]:
            held[recorder.lease.agent] += 1
        return held

    def health(self) -> WorkerHealth:
        """Return the worker's health, from any thread; see `HealthServer` for probes over HTTP."""
        heartbeat, is_alive = self.heartbeat, self.heartbeat.is_beating
        return WorkerHealth(
            is_alive=is_alive,
            is_ready=is_alive and not self.is_stopping and not heartbeat.is_store_away,
            held=self.held,
            advanced=heartbeat.counts["advanced_runs"].total(),
            last_step_s=heartbeat.last_step_s,
        )

    def run(self, *, threads: int = 1, once: bool = False) -> int:
        """Advance due runs until `stop` is called, and return the number of times that a run was advanced.

        Args:
            threads: How many runs are driven at a time.
            once: Whether to return as soon as no run is due.

        Raises:
            Exception: If the store has failed for too long, or the code cannot drive a run and ``on_change="stop"``.
        """
        require("threads", threads, is_whole(threads, 1), "a whole number of at least 1")
        end_pruning = self._begin_pruning()
        try:
            return self._unless_failed(portal.call(WorkerPool(self, self._drive_in_thread, threads, once).run()))
        finally:
            end_pruning()

    async def arun(self, *, tasks: int = TASKS, once: bool = False) -> int:
        """The async version of `run`.  A run needs a task, not a thread, so one OS process can drive a thousand runs.

        Plain functions run in threads, as with `acall`.  If the task that awaits this is cancelled, all runs are
        released at once.

        Args:
            tasks: How many runs are driven at a time.
            once: Whether to return as soon as no run is due.

        Raises:
            Exception: If the store has failed for too long, or the code cannot drive a run and ``on_change="stop"``.
        """
        require("tasks", tasks, is_whole(tasks, 1), "a whole number of at least 1")
        end_pruning = self._begin_pruning()
        try:
            return self._unless_failed(await WorkerPool(self, self.adrive_claimed, tasks, once).run())
        finally:
            await in_thread(end_pruning)

    def _begin_pruning(self) -> Callable[[], None]:
        if self._keep is None and self._max_age_s is None:
            return lambda: None
        is_over = threading.Event()
        thread = threading.Thread(target=self._prune_now_and_then, args=(is_over,), daemon=True, name="fsm_agent prune")
        thread.start()

        def end() -> None:
            is_over.set()
            thread.join(LEAVE_S)

        return end

    def _prune_now_and_then(self, is_over: threading.Event) -> None:
        while True:
            try:
                pruned = self.runs.prune(keep=self._keep, max_age_s=self._max_age_s)
                _log.info("deleted %d runs that had ended", len(pruned))
            except Exception as error:  # from the store; the next attempt is in an hour
                _log.warning("old runs could not be deleted: %s", error)
            if is_over.wait(PRUNE_S):
                return

    def stop(self) -> None:
        """Ask `run` and `arun` to return.  This may be called from any thread or signal handler.

        Each run in progress is stopped and released after a step at which no request or function is in progress, or
        after ``drain_s`` seconds at the latest.
        """
        self.stopping.set()
        for wake in [*self._wakers]:
            wake()

    @contextmanager
    def woken_at_stop(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call a function when the worker is stopped, or immediately if it already has been."""
        self._wakers.add(wake)
        try:
            if self.is_stopping:
                wake()
            yield
        finally:
            self._wakers.discard(wake)

    def interrupt(self) -> None:
        """Make the drivers that run in threads release their runs immediately, even in the middle of a step."""
        for driver in [*self._driving]:
            if isinstance(driver, SyncDriver):
                driver.rest()

    def advance(self) -> bool:
        """Claim the next due run and drive it as far as possible, or return False if there is none.

        If no run is due, the worker tries one that got stuck under other code.
        """
        return self._drive_taken(self.take_next())

    def drive(self, run_id: str) -> bool:
        """Drive one run as far as possible, for a queue or an engine that decides which run to drive and when.

        A run that fails is recorded as failed or released, as in `run`, and its error is not raised.

        Args:
            run_id: The name of the run.

        Returns:
            False if there was nothing to do because the run has ended or is waiting for an answer.

        Raises:
            RunUnknown: If the run does not exist.
            RunBusy: If another holder is driving the run.  That holder may be dead, so try again after the error's
                ``until_s``.
            UsageError: If the worker does not have the run's agent.
            JournalError: If the code cannot drive the run and ``on_change="stop"``.
            ReplayError: If the code no longer takes the steps in the journal and ``on_change="stop"``.
        """
        return self._unless_failed(self._drive_taken(self._take(self._claim_named(run_id))))

    async def adrive(self, run_id: str) -> bool:
        """The async version of `drive`.  If the task is cancelled, the run is released and is due at once."""
        claimed = await aclaim(lambda: self._take(self._claim_named(run_id)))
        if claimed is not None:
            await self.adrive_claimed(claimed)
        return self._unless_failed(claimed is not None)

    def _unless_failed(self, result: Done) -> Done:
        if self._failure is not None:
            raise self._failure
        return result

    def release_stuck(self) -> bool:
        """For engines: make a run that is stuck under other code due again, or return False if there is none."""
        lease = self._claim_stuck()
        if lease is not None:
            self.runs.claims.give_back(lease, self.runs.store.load(lease.run, after=lease.n))
        return lease is not None

    def _drive_taken(self, claimed: Claimed | None) -> bool:
        if claimed is not None:
            self._drive(claimed)
        return claimed is not None

    def take_next(self) -> Claimed | None:
        """Claim the next due run, or return None if no run is due."""
        return self._take(self.runs.claims.claim_due([*self._agents], self._known) or self._claim_stuck())

    def wait_for_work(self) -> None:
        """Wait up to `IDLE_S` seconds until a run may be due."""
        self.runs.store.wait(IDLE_S)

    def _claim_named(self, run_id: str) -> Lease | None:
        run = self.runs.store.get(run_id)
        if run.agent not in self._agents:
            known = ", ".join(map(repr, self._agents))
            raise UsageError(f"the run {run_id!r}: expected one of {known}, which this worker has, got {run.agent!r}")
        # An engine may have another clock and call this early, so only a due time of None means that there is nothing
        # to do.
        return None if run.is_ended or run.due_s is None else self.runs.claims.claim(run_id)

    def _claim_stuck(self) -> Lease | None:
        """Claim a run that got stuck under other code, for example because a deployment was rolled back."""
        with self._looking:
            if time.monotonic() < self._looks_at_s:
                return None
            for name, agent in self._agents.items():
                for run in each_listed(self.runs.store, agent=name, waiting_for=STUCK, at_a_time=STUCK_AT_A_TIME):
                    stuck = stuck_in(run)
                    if stuck is None or (run.id, run.n) in self._tried:
                        continue
                    with suppress(RunBusy, RunUnknown):
                        is_other = self._is_other(agent, run, stuck.fingerprint)
                        lease = self.runs.claims.claim(run.id) if is_other else None
                        if is_other is not None:
                            self._tried.add((run.id, run.n))
                        if lease is not None:
                            return lease
            self._looks_at_s = time.monotonic() + LOOK_S
        return None

    def _is_other(self, agent: Runnable, run: Run, fingerprint: str) -> bool | None:
        """Return whether this code's fingerprint differs from the given one, or None if that is not known yet."""
        header = self.runs.store.load(run.id, after=run.n).header
        if self._known is not None and fingerprint_in(header) not in self._known:
            return False
        try:
            factory = self._factory(agent, header_of(header))
        except Exception as error:  # `deps` could not be made, or the header is damaged
            _log.info("run %s is stuck and cannot be tried: %s", run.id, error)
            return None
        return self.runs.claims.fingerprint(header, factory) not in ("", fingerprint)

    def _take(self, lease: Lease | None) -> Claimed | None:
        if lease is None:
            return None
        try:
            return self._prepare(lease)
        except Exception as error:
            if self.on_change == "stop" and is_of_code(error):
                self._failure = error
                self.stop()
            self._give_up(lease, error)
            return None, None

    def _prepare(self, lease: Lease) -> Claimed:
        header = header_of(self.runs.store.load(lease.run, after=lease.n).header)
        factory = self._factory(self._agents[lease.agent], header)
        process, recorder = self.runs.claims.load_claimed(lease, factory, self.on_change)
        if recorder is not None:
            recorder.puts_off = True
            if recorder.patience_s is None or recorder.patience_s > self.patience_s:
                recorder.patience_s = self.patience_s
        return process, recorder

    def _drive(self, claimed: Claimed) -> None:
        process, recorder = claimed
        if recorder is None:
            return
        try:
            with self._noted(SyncDriver, process, recorder) as (driver, tell), driver:
                for event in driver.events():
                    if event is None:
                        driver.wait()
                    elif self._is_last(event, tell, driver):
                        return
            if tell is not None:
                tell(last_event(process))
        except Aborted:
            _log.info("run %s was interrupted and given back", recorder.run)
        except Exception as error:
            self._give_up(recorder.lease, error, process.fingerprint)

    async def _drive_in_thread(self, claimed: Claimed) -> None:
        """Drive a run in its own thread, because a user's plain code may need to run outside an event loop.

        If the task is cancelled, the run is released.
        """
        thread = ThreadTask(partial(self._drive, claimed)).start()
        ended = asyncio.wrap_future(thread.future)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            thread.abort.is_to_rest = True
            thread.abort.set()
            try:
                await ended
            except Aborted:  # before it began
                await asyncio.to_thread(give_back, claimed)
            raise

    async def adrive_claimed(self, claimed: Claimed) -> None:
        """Drive a claimed run as far as possible, under asyncio."""
        process, recorder = claimed
        if recorder is None:
            return
        try:
            with self._noted(AsyncDriver, process, recorder) as (driver, tell):
                async with driver:
                    for event in driver.events():
                        reported = event or await driver.wait()
                        if reported is not None and self._is_last(reported, tell, driver):
                            return
            if tell is not None:
                tell(last_event(process))
        except Exception as error:
            await asyncio.to_thread(self._give_up, recorder.lease, error, process.fingerprint)

    @contextmanager
    def _noted(self, kind: type[D], process: Any, recorder: StoreRecorder) -> Iterator[tuple[D, Sink | None]]:
        """Make a driver, which counts until the end of the ``with`` block, and the listener that it tells."""
        agent = self._agents[recorder.lease.agent]
        tell, environment = agent._listener_to(process), agent._environment_of(process)
        driver = kind(process, environment, is_streamed=tell is not None, recorder=recorder)
        self._driving[driver] = recorder
        try:
            yield driver, tell
        finally:
            del self._driving[driver]
            self.heartbeat.count("advanced_runs", recorder.lease.agent)

    def _is_last(self, event: Event, tell: Sink | None, driver: Driver) -> bool:
        if tell is not None:
            tell(event)
        if not isinstance(event, Stepped):
            return False
        self.heartbeat.count("steps", self._driving[driver].lease.agent)
        return self.is_stopping and not driver.active and bool(driver.process.effects)

    def _give_up(self, lease: Lease, error: Exception, fingerprint: str | None = None) -> None:
        """Log why a run could not be driven, and release the run.

        ``fingerprint`` is that of the code that drove it, or None if the run was not driven.
        """
        is_lost = isinstance(error, LeaseLost | RunUnknown)
        self.heartbeat.count("lost_leases" if is_lost else "failed_drives", lease.agent)
        if is_lost:
            _log.info("run %s was taken or deleted by another process: %s", lease.run, error)
            return
        has_raised = fingerprint is not None or not is_of_code(error)
        if has_raised:
            _log.warning("run %s of agent %r raised an exception", lease.run, lease.agent, exc_info=error)
        else:  # the error says what differs; a traceback would show only the code that reads journals
            stuck = "" if self.on_change == "stop" else f", or answer its question {STUCK!r} with RunAgain or Cancelled"
            _log.warning(
                "run %s of agent %r: this code cannot continue it: %s; start a worker with code that can%s",
                *(lease.run, lease.agent, " ".join(str(error).split()), stuck),
            )
        with suppress(RunUnknown):
            with suppress(LeaseLost):  # it was released already
                self.runs.claims.put_off(lease, error, fingerprint)
            if has_raised:
                self._log_next_try(self.runs.store.get(lease.run))

    def _log_next_try(self, run: Run) -> None:
        if stuck_in(run) is not None:
            _log.warning("run %s is stuck until its question %r is answered", run.id, STUCK)
        elif run.due_s and run.holder is None:
            now_s = min(time.time(), run.updated_s)  # as in `after_attempt`; the store may have a clock of its own
            _log.warning("run %s is tried again in %.0f s", run.id, max(0.0, run.due_s - now_s))

    def _factory(self, agent: Runnable, header: Header) -> ProcessFactory:
        deps = deps_for(self._deps, agent.name, header.extra, header.by)
        return agent._definition_of_run(header, Made(deps), self._prompts)
