"""The runs of a flow or an orchestrator in its store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from fsm_agent.agents.run_handle import Before, RunHandle, runs_named
from fsm_agent.agents.runnable import Sink, arun, astream, run, stream
from fsm_agent.agents.runs import BoundRuns
from fsm_agent.flows.run import FlowRun, edit_json
from fsm_agent.flows.states import D
from fsm_agent.functions.context import GivenDeps
from fsm_agent.messages.events import Event
from fsm_agent.runtime.environment import Client
from fsm_agent.store.claiming import aclaim
from fsm_agent.validation import check

Clients: TypeAlias = Mapping[Any, Client]  # by state; mappings are invariant in their keys
Answers: TypeAlias = Mapping[Any, Any]
Task = TypeVar("Task", contravariant=True)
Result = TypeVar("Result", covariant=True)


class FlowRuns(BoundRuns, Generic[Task, D, Result]):
    """The runs of a flow or an orchestrator in its store; ``flow.runs``.

    Attributes:
        all: The runs of the whole store, as `Runs`.

    Examples:
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return f"Hello, {name}."
        >>> rows = [greet.done(end("said"), do=lambda name, text: text)]
        >>> hello = Flow("hello", str, start=greet, rows=rows, store=MemoryStore())
        >>> run = hello.runs.submit("Ada", run_id="ada")
        >>> hello.runs.resume("ada").output
        'Hello, Ada.'
    """

    def submit(
        self,
        data: Task,
        /,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
        after: Before | None = None,
        delay_s: float = 0.0,
        priority: int = 0,
        service: str = "",
    ) -> RunHandle[Result]:
        """Put a run into the store, for a `Worker` to drive, and return its handle.

        Args:
            data: What it works on, as of `Flow.call`.
            deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it.
            clients: Models by state, in place of those of their agents; for tests, a `Script` each.
            extra: Data of yours that JSON can hold, kept in the record.
            by: Who asks, by your login: kept in the record, and the ``user`` of a function of deps.
            run_id: The name of its run in the flow's store; None: a new one.  If the store has a run of this name with
                the same data, that run is continued.
            after: The runs that have to end before, as names or handles; in whatever way they end.
            delay_s: How many seconds from now it starts, by the clock of this machine.  No signal starts it earlier; a
                cancellation ends it at once.
            priority: From -100 to 100; of the runs that are due, workers take one of the highest priority.  It holds
                until the run has ended.
            service: The name of the `RunFollower` that goes on with the run as with its own; empty: workers do.

        Raises:
            UsageError: The flow has no store, or an option is one that no store keeps.
            RunExists: Another run has this ``run_id``.
            RunUnknown: A run of ``after`` does not exist.
        """
        options = {"deps": deps, "clients": clients, "extra": extra, "by": by, "run_id": run_id}
        return self._submit(data, _names(after), (delay_s, priority, service), options)

    async def asubmit(
        self,
        data: Task,
        /,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
        extra: Mapping[str, Any] | None = None,
        by: str = "",
        run_id: str | None = None,
        after: Before | None = None,
        delay_s: float = 0.0,
        priority: int = 0,
        service: str = "",
    ) -> RunHandle[Result]:
        """`submit` for asyncio."""
        options = {"deps": deps, "clients": clients, "extra": extra, "by": by, "run_id": run_id}
        return await self._asubmit(data, _names(after), (delay_s, priority, service), options)

    def get(
        self,
        run_id: str,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> RunHandle[Result]:
        """Return the handle of a run, in any OS process: to wait for it, follow, answer or cancel it.

        Args:
            run_id: The run.
            deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it.
            clients: Models by state, in place of those of their agents; for tests, a `Script` each.

        Raises:
            RunUnknown: There is no such run.
            UsageError: It is one of another flow.
        """
        return self._get(run_id, {"deps": deps, "clients": clients})

    async def aget(
        self,
        run_id: str,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> RunHandle[Result]:
        """`get` for asyncio."""
        return await asyncio.to_thread(self._get, run_id, {"deps": deps, "clients": clients})

    def resume(
        self,
        run_id: str,
        answers: Answers | Any = None,
        *,
        by: str = "",
        signal_id: str = "",
        sink: Sink | None = None,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> Result:
        """Continue a run of the store from its last rest; return the result of one that has ended.

        Args:
            run_id: The run.
            answers: The answers to its questions, by state or key: ``{review: Approve("ann")}`` for one of `wait`,
                ``{"triage#1/ask:2.0": Approved()}`` for one of an agent call inside.  What is no mapping is the one
                answer to the only open question.
            by: Who answers, for people.
            signal_id: An id of the one answer: given again under it, as after `RunBusy`, it counts once.
            sink: Receives every event.
            deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it.
            clients: Models by state, in place of those of their agents; for tests, a `Script` each.

        Raises:
            RunUnknown: There is no such run.
            RunBusy: Another holder drives it; the answers reach it all the same.
            NotAsked: The run asks no such question.
            AlreadyAnswered: Another answer came first.
            OutcomeError: An answer has none of the types of its question, or several are open and one has no key.
            ReplayError: The code has changed, and decides otherwise than it did since the last rest.
            FlowFailed: It ended in a failure.
            FlowSuspended: It waits for an answer again.
        """
        claimer = self._claimer(run_id, answers, by, signal_id, {"deps": deps, "clients": clients})
        result: Result = run(self._runnable, claimer(), sink)
        return result

    async def aresume(
        self,
        run_id: str,
        answers: Answers | Any = None,
        *,
        by: str = "",
        signal_id: str = "",
        sink: Sink | None = None,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> Result:
        """`resume` for asyncio."""
        claimer = self._claimer(run_id, answers, by, signal_id, {"deps": deps, "clients": clients})
        result: Result = await arun(self._runnable, await aclaim(claimer), sink)
        return result

    def stream(
        self,
        run_id: str,
        answers: Answers | Any = None,
        *,
        by: str = "",
        signal_id: str = "",
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> Generator[Event]:
        """Continue a run of the store, and yield its events as they happen; see `resume` and `Flow.stream`."""
        options = {"deps": deps, "clients": clients}
        return stream(self._runnable, lambda: self._claimer(run_id, answers, by, signal_id, options)())

    def astream(
        self,
        run_id: str,
        answers: Answers | Any = None,
        *,
        by: str = "",
        signal_id: str = "",
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> AsyncGenerator[Event]:
        """`stream` for asyncio."""
        options = {"deps": deps, "clients": clients}
        return astream(self._runnable, lambda: aclaim(self._claimer(run_id, answers, by, signal_id, options)))

    def replay(
        self,
        run_id: str,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> FlowRun[D]:
        """Return a stored run, rebuilt from its whole journal. Each entry is verified.

        Args:
            run_id: The run.
            deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it.
            clients: Models by state, in place of those of their agents; for tests, a `Script` each.

        Raises:
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise.
        """
        run: FlowRun[D] = self.all.replay(run_id, self._to_read({"deps": deps, "clients": clients}))
        return run

    def at(
        self,
        run_id: str,
        step: int | str | None = None,
        *,
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> FlowRun[D]:
        """Return a stored run as it was after a step, to read its ``data``, ``state``, ``record``, ``result_so_far``.

        Reading takes no lease and writes nothing: another process may drive the run meanwhile.  The run that you get
        takes no step.  `fork` makes one in the store that does, and `FlowRun.forked` one without a store.  A
        `MemoryStore` receives several entries at once, so a run that is being driven may be further on.

        Args:
            run_id: The run.
            step: The number of an entry of its journal, as ``fsm-agent runs show`` counts them; 0: before the first.
                Or the name of a step, such as ``"review#3"``: as it was when this state had been entered.  None: as the
                store has it.
            deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it.
            clients: Models by state, in place of those of their agents; for tests, a `Script` each.

        Raises:
            RunUnknown: There is no such run.
            UsageError: It has no such step.
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise up to this step.
        """
        run: FlowRun[D] = self.all.at(run_id, step, self._to_read({"deps": deps, "clients": clients}))
        return run

    def fork(
        self,
        run_id: str,
        step: int | str | None = None,
        *,
        data: D | None = None,
        new_run_id: str | None = None,
        by: str = "",
        deps: GivenDeps[Any] = None,
        clients: Clients | None = None,
    ) -> str:
        """Make another run that continues from a step of a stored run; return its name.

        The fork waits as its run did at this step.  ``resume(name)`` continues it; a worker does so when one of its
        questions is answered, or one of its times has come.  Earlier steps are not repeated.  Later steps run again,
        with other idempotency keys.

        Args:
            run_id: The run, which stays as it is.
            step: As of `at`.
            data: Other data, with which the state is entered anew; see `FlowRun.forked`.  None: the same.
            new_run_id: The name of the fork; None: a new one.  To make the same fork again changes nothing.
            by: Who forks it and changes the data, for people.
            deps: What functions find in their `Context`: a value, or a function of (agent, extra, user) that makes it.
            clients: Models by state, in place of those of their agents; for tests, a `Script` each.

        Raises:
            RunUnknown: There is no such run.
            RunExists: Another run has the name of the fork.
            FlowError: The data are of another type.
            UsageError: It has no such step, or no state there that could be entered anew with ``data``; or it is in the
                midst of a function that must not run twice.
            JournalError: The journal is damaged, foreign or forged.
            ReplayError: The code has changed, and decides otherwise up to this step.
        """
        definition = self._to_read({"deps": deps, "clients": clients})
        run: FlowRun[D] = self.all.at(run_id, step, definition)
        assert run.journal is not None
        edit = "" if data is None else edit_json(run, data, by)
        return self.all.fork(run_id, run.journal.n, new_run_id, definition, by=by, edit=edit)


def _names(after: Any) -> tuple[str, ...]:
    """Return the names of the runs that have to end before.

    Raises:
        UsageError: It names no runs.
    """
    before = () if after is None else runs_named(after)
    check("after", after, before is not None, "the name or the handle of a run, or a list of them")
    return before or ()
