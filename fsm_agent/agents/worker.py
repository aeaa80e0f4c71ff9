"""Workers: they advance the due runs of a store, one after another or many at a time.

The store is the queue, so a worker needs only the store and the agents' code.  There may be any number of workers, in
any number of OS processes.  A run that must wait longer than the worker's patience rests in the store, and the next
free worker takes it when it is due.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, TypeAlias

from tenacity import wait_exponential

from fsm_agent._internal.field_checks import is_amount
from fsm_agent.agents.arguments import UNNAMED
from fsm_agent.agents.persistence import runs_of
from fsm_agent.agents.runnable import Runnable
from fsm_agent.errors import UsageError
from fsm_agent.machine.journal import Header, header_of
from fsm_agent.messages.event import Stepped
from fsm_agent.mistakes import check
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.retry_delay import delay_s
from fsm_agent.runtime.sync_driver import SyncDriver
from fsm_agent.store.claiming import Definition, stuck_under
from fsm_agent.store.errors import LeaseLost, RunUnknown
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Lease, Rest, Run, Store

PATIENCE_S = 5.0  # short backoffs are waited for, longer ones rest
RETRY_S = 4.0  # until a run is claimed again whose `deps` could not be made
IDLE_S = 1.0  # after which an idle worker checks whether it was stopped
STORE_PATIENCE_S = 300.0  # for a store that fails repeatedly, such as a server that restarts
LOOK_S = 60.0  # after which runs that are stuck are looked for again
MOST_ASKED = 10_000  # runs among which they are looked for
STORE_WAIT = wait_exponential(multiplier=0.1, max=30)  # before it is tried again
_log = logging.getLogger("fsm_agent")


Deps: TypeAlias = Mapping[str, Any] | Callable[[str, Mapping[str, Any]], Any]


class Worker:
    """Advances the runs of some agents.

    Args:
        agents: The agents, flows and orchestrators by whose names runs are claimed; other runs are left alone.
        runs: Where the runs are: a path, a `Store`, or `Runs` with options.
        deps: What functions find in their `Context`: a mapping by the agent's name, or a function of the agent's name
            and the run's ``extra`` that makes it.
        prompts: Those of tasks that had prompts of their own, found by their paths.
        patience_s: How many seconds a run may only wait, such as for the next attempt at a model, before it rests.
        store_patience_s: How many seconds the store may fail before the worker gives up.

    Examples:
        >>> @function(needs_approval=True)
        ... def erase() -> str:
        ...     "Erase."
        ...     return "gone"
        >>> clerk = Agent(Script(call("erase"), "Done."), functions=[erase], name="clerk", store=MemoryStore())
        >>> try:
        ...     clerk.call("Tidy up.", run_id="tidy")
        ... except CallSuspended:
        ...     clerk.runs.answer("tidy", {"ask:1.0": Approved()})
        >>> Worker([clerk], clerk.runs).run(once=True)      # how many runs it has advanced
        1
    """

    def __init__(
        self,
        agents: Iterable[Runnable],
        runs: Runs | Store | str | os.PathLike[str],
        *,
        deps: Deps | None = None,
        prompts: Iterable[Prompt[Any]] = (),
        patience_s: float = PATIENCE_S,
        store_patience_s: float = STORE_PATIENCE_S,
    ) -> None:
        for what, value in {"patience_s": patience_s, "store_patience_s": store_patience_s}.items():
            check(what, value, is_amount(value), "a number of seconds")
        self.runs = runs_of(runs)
        self.patience_s = patience_s
        self.store_patience_s = store_patience_s
        self._agents: dict[str, Runnable] = {}
        check("agents", agents, isinstance(agents, Iterable), "a list of Agents and Flows")
        given = [*agents]
        for agent in given:
            check("an agent", agent, isinstance(agent, Runnable), "an Agent or a Flow")
        for agent in chain.from_iterable(agent.with_sub_agents for agent in given):
            check("name of an agent", agent.name, agent.name != UNNAMED, "one of its own, by which it finds its runs,")
            if self._agents.setdefault(agent.name, agent) is not agent:
                raise UsageError(f"two agents are named {agent.name!r}: runs find theirs by name, so give one another")
        check("agents", agents, bool(self._agents), "one Agent or more")
        self._prompts = {prompt.path: prompt for prompt in prompts}
        self._deps: Deps = {} if deps is None else deps
        self._stopping = threading.Event()
        self._looking = threading.Lock()
        self._looks_at_s = 0.0  # monotonic; for runs that are stuck
        self._tried: set[tuple[str, int]] = set()  # those that were stuck, and at how many entries

    @property
    def is_stopping(self) -> bool:
        """True once `stop` was called."""
        return self._stopping.is_set()

    def run(self, *, threads: int = 1, once: bool = False) -> int:
        """Advance what is due until `stop` is called; return how many times a run was advanced.

        Args:
            threads: How many runs are driven at a time.
            once: Return as soon as nothing is due.

        Raises:
            Exception: The store has failed for too long.
        """
        check("threads", threads, isinstance(threads, int) and threads >= 1, "1 or more")
        crew = [_Member(self, once) for _ in range(threads)]
        for member in crew:
            member.start()
        for member in crew:
            member.join()
        for member in crew:
            if member.error is not None:
                raise member.error
        return sum(member.advanced for member in crew)

    def stop(self) -> None:
        """Make `run` return, from any thread or signal handler: finish work in progress, and give runs back.

        A driver stops at its next step, as soon as no request and no function is in progress.
        """
        self._stopping.set()

    def advance(self) -> bool:
        """Claim the run that has been due longest, and drive it as far as it goes; return False if none is due.

        When no run is due, a run that is stuck under other code is tried.
        """
        lease = self.runs.claim_due([*self._agents]) or self._claim_stuck()
        if lease is None:
            return False
        try:
            self._drive(lease)
        except (LeaseLost, RunUnknown) as error:
            _log.info("run %s: another process has it, or has deleted it: %s", lease.run, error)
        except Exception:
            _log.warning("run %s of agent %r raised, and is given back", lease.run, lease.agent, exc_info=True)
            with suppress(LeaseLost, RunUnknown):  # then it was given back already
                self._give_back(lease)
        return True

    def _claim_stuck(self) -> Lease | None:
        """Claim a run that got stuck under other code, such as a deployment that was rolled back."""
        with self._looking:
            if time.monotonic() < self._looks_at_s:
                return None
            for name, agent in self._agents.items():
                for run in self.runs.store.list(agent=name, asked=True, limit=MOST_ASKED):
                    under = stuck_under(run)
                    if under is None or (run.id, run.n) in self._tried:
                        continue
                    self._tried.add((run.id, run.n))
                    if self._is_other(agent, run, under) and (lease := self.runs.claim(run.id)) is not None:
                        return lease
            self._looks_at_s = time.monotonic() + LOOK_S
        return None

    def _is_other(self, agent: Runnable, run: Run, fingerprint: str) -> bool:
        """Return whether the present code is other than that of this fingerprint."""
        header = self.runs.store.load(run.id, after=run.n).header
        try:
            definition = self._definition(agent, header_of(header))
        except Exception as error:  # of whoever makes `deps`; or the header is damaged
            _log.info("run %s is stuck, and cannot be tried: %s", run.id, error)
            return False
        return self.runs.fingerprint(header, definition) not in ("", fingerprint)

    def _give_back(self, lease: Lease) -> None:
        """Give back a run that could not be driven at all, to be tried again later; its questions stay open.

        A run with unread posts would be due at once, before all others: its lease is left to expire.
        """
        loaded = self.runs.store.load(lease.run, after=lease.n)
        if not loaded.posts:
            rest = Rest(state=loaded.run.state, due_s=time.time() + RETRY_S, questions=loaded.run.waits)
            self.runs.store.append(lease, lease.n, (), rest)

    def _drive(self, lease: Lease) -> None:
        agent = self._agents[lease.agent]
        header = header_of(self.runs.store.load(lease.run, after=lease.n).header)
        process, recorder = self.runs.load_claimed(lease, self._definition(agent, header))
        if recorder is None:
            return
        if recorder.patience_s is None or recorder.patience_s > self.patience_s:
            recorder.patience_s = self.patience_s
        tell = agent.listener_to(process)
        with SyncDriver(process, agent.world_of(process), is_streamed=tell is not None, recorder=recorder) as driver:
            for event in driver.events():
                if event is None:
                    driver.wait()
                    continue
                if tell is not None:
                    tell(event)
                if self.is_stopping and isinstance(event, Stepped) and not driver.active:
                    return

    def _definition(self, agent: Runnable, header: Header) -> Definition:
        return agent.definition_of_run(header, self._deps_of(agent, header), self._prompts)

    def _deps_of(self, agent: Runnable, header: Header) -> Any:
        if callable(self._deps):
            return self._deps(agent.name, header.extra)
        return self._deps.get(agent.name)


class _Member(threading.Thread):
    """A thread of a worker, which drives one run at a time."""

    def __init__(self, worker: Worker, once: bool) -> None:
        super().__init__(daemon=True, name="fsm_agent worker")
        self._worker = worker
        self._once = once
        self._failing_since_s: float | None = None  # monotonic; None: the store works
        self._failures = 0  # in a row
        self.advanced = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._worker.is_stopping and self._goes_on():
                pass
        except BaseException as error:  # the store's: the others stop as well
            self.error = error
            self._worker.stop()

    def _goes_on(self) -> bool:
        """Advance a run, or wait for one; return False if nothing is due and the worker is to end."""
        try:
            if self._worker.advance():
                self.advanced += 1
            elif self._once:
                return False
            else:
                self._worker.runs.store.wait(IDLE_S)
        except Exception as error:
            self._outlast(error)
        else:
            self._failing_since_s = None
        return True

    def _outlast(self, error: Exception) -> None:
        """Wait before a store that failed is tried again; raise its error if it has failed for too long."""
        now_s, patience_s = time.monotonic(), self._worker.store_patience_s
        if self._failing_since_s is None:
            self._failing_since_s, self._failures = now_s, 0
        failed_s = now_s - self._failing_since_s
        if failed_s >= patience_s:
            _log.error("the store has failed for %.0f s, so the worker gives up: %s", failed_s, error)
            raise error
        self._failures += 1
        pause_s = min(delay_s(STORE_WAIT, self._failures, error), patience_s - failed_s)
        _log.warning("the store failed; it is tried again in %.1f s: %s", pause_s, error)
        self._worker._stopping.wait(pause_s)
