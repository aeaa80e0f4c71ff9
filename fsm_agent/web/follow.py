"""Lets any number of clients follow runs, from any step, across broken connections and restarts.

A position in a run is a number of steps, which the journal and drivers count in the same way.  Past events come from
the journal, and new events come from the driver if it is in this process; otherwise, the journal is read again.  It
therefore makes no difference whether a client reloads, has a second tab or reaches another server, or whether a worker
drives the run.  The inspector's pages do not follow runs; `fsm_agent.web.inspector.News` tells them what has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Self, TypeAlias

from pydantic import ValidationError

from fsm_agent.agents.agent_base import AgentBase
from fsm_agent.agents.run_handle import RunHandle
from fsm_agent.agents.runnable import Runnable, adrive_claimed
from fsm_agent.agents.stored_runs import aclaim_run
from fsm_agent.call.header import seed_of
from fsm_agent.call.journal import header_of
from fsm_agent.errors import UsageError
from fsm_agent.functions.arguments import described_errors
from fsm_agent.functions.context import LATER, GivenDeps, check_deps
from fsm_agent.messages.events import Done, Event
from fsm_agent.messages.message import Message
from fsm_agent.prompts.prompt import Prompt, by_path
from fsm_agent.runtime.log import LOG
from fsm_agent.store.claiming import ProcessFactory
from fsm_agent.store.errors import LeaseLost, NotAsked, RunBusy, RunUnknown
from fsm_agent.store.following import Follower
from fsm_agent.store.listing import each_listed, is_undriven
from fsm_agent.store.rescheduling import check_not_stuck
from fsm_agent.store.runs import Runs
from fsm_agent.store.sql.sqlite import MemoryStore
from fsm_agent.store.store import Run, RunFilter
from fsm_agent.store.watching import is_settled
from fsm_agent.validation import require, safe_repr
from fsm_agent.web.event_log import EventLog, is_last, is_step
from fsm_agent.web.requests import BadRequest, ClientRequest, answer_questions

Item: TypeAlias = tuple[int, Event]  # the number of steps so far, including the event's own
RETRY_S = 1.0  # delay before a run that made no progress is driven again
SWEEP_S = 5.0  # between two searches for abandoned runs
TAKEN_UP = 100  # abandoned runs picked up at each search


class RunFollower:
    """Drives the runs of an agent or a flow and sends their events to any number of listeners.

    Runs are driven here, each in its own task, or by workers.  A run continues even if no client is listening.  With a
    store, the next process picks up the run after a crash; without one, runs are kept in memory.  Runs that other
    programs have put into the store are driven here only after a call to `answer` or `cancel`.

    Use a follower in a single event loop.  Open it with ``async with RunFollower(agent) as live``, or call `close` when
    you are done.

    Args:
        runnable: The agent or flow.
        drives: Whether runs are driven here.  If False, a `Worker` drives them.
        service: The name by which the service finds its runs after a crash or in its other processes.  Two services
            with the same agent and store but different ``deps`` need different names.
        deps: The ``deps`` in the `Context` that functions get: a value for all runs, or a function that makes one for
            each run, given the agent's name, the run's ``extra`` and the user.  With ``drives=False``, the worker's
            deps are used.
        prompts: Prompts that were passed with tasks; they are found by their paths, as for `Worker`.

    Attributes:
        kept_runs: The maximum number of runs in memory if there is no store.  The runs that stopped earliest are
            forgotten first.
        kept_bytes: The maximum total size of these runs' journals, in bytes.

    Examples:
        >>> async def main():
        ...     async with RunFollower(Agent(Script("Hi."), name="host", store=MemoryStore())) as live:
        ...         run = await live.begin("Hello", run_id="r1")
        ...         events = [event async for _, event in live.follow(run)]
        ...         return events[-1].result.output
        >>> import asyncio
        >>> asyncio.run(main())
        'Hi.'
    """

    kept_runs = 1000
    kept_bytes = 100_000_000

    def __init__(
        self,
        runnable: Runnable,
        *,
        drives: bool = True,
        service: str = "live",
        deps: GivenDeps[Any] = None,
        prompts: Iterable[Prompt[Any]] = (),
    ) -> None:
        require("service", service, isinstance(service, str) and bool(service), "a name such as 'live'")
        self.has_store = getattr(runnable, "store", None) is not None
        self.runnable: Any = runnable if self.has_store else with_store(runnable, MemoryStore())
        self.has_conversations = hasattr(self.runnable, "conversation")
        self.runs: Runs = self.runnable.runs.all
        if drives:
            self.runnable._check_deps(deps)
        else:
            check_deps(deps)
        self.runnable._definition({"deps": LATER})  # refuses an unknown provider, or a role without an agent
        self._prompts = by_path(prompts)
        self._deps, self._drives, self._service = deps, drives, service
        self._driven: dict[str, EventLog] = {}
        self._failed: dict[str, EventLog] = {}  # of drives that raised an exception, until the next one or `SWEEP_S`
        self._tasks: set[asyncio.Task[None]] = set()
        self._sizes: dict[str, dict[str, int]] = {}  # of runs in memory, by conversation, the oldest first
        self._is_closed = False

    async def __aenter__(self) -> Self:
        if self._drives and self.has_store:
            self._keep(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def begin(
        self, task: Any, *, run_id: str | None = None, conversation: str | None = None, **options: Any
    ) -> str:
        """Begin a run, unless a run with this name and task exists, and return its name.

        Args:
            task: The task for an agent, or the data for a flow, as for ``submit``.
            run_id: The name of the run.  The default is a new name.
            conversation: The conversation that the run continues, or None.
            options: Options for ``submit``, such as ``extra``, ``args`` and ``by`` (the user according to your login).

        Raises:
            RunExists: If another run has this name.
            Conflict: If the newest turn of the conversation has not ended.
            UsageError: If the task or an option is invalid, or a flow is given a conversation.
        """
        self._check_open()
        if conversation is None:
            of = self.runnable
        elif self.has_conversations:
            of = self.runnable.conversation(conversation)
        else:
            raise UsageError(f"expected an agent, which has conversations, got {safe_repr(self.runnable)}")
        if self._drives:
            options = {"service": self._service, **options}
        run: str = (await of.runs.asubmit(task, run_id=run_id, **options)).run_id
        if not self.has_store:
            self._bound_memory(run)
        self._start(run)
        return run

    async def answer(self, run: str, answers: Any, *, by: str = "") -> int:
        """Answer a run's questions, continue the run, and return the number of steps that it had taken before.

        Args:
            run: The name of the run.
            answers: The answers, as for ``resume``.
            by: The user who answers.  Take the name from your login, never from the client's data.

        Raises:
            RunUnknown: If no run has this name.
            NotAsked: If the run is not asking this question, or has ended.
            AlreadyAnswered: If another answer came first.
            OutcomeError: If an answer does not fit its question.
            ReplayError: If the code has changed since the run last stopped and now takes different steps.
        """
        self._check_open()
        past = await self._past(run)
        steps = sum([is_step(event) for event in await asyncio.to_thread(read_new_events, past)])
        if past.problem is not None:
            raise past.problem
        definition = await asyncio.to_thread(self._definition_of, run)
        await asyncio.to_thread(RunHandle(self.runnable, run, definition).answer, answers, by=by)
        self._start(run)
        return steps

    async def take(
        self, asked: ClientRequest, *, by: str = "", task: Callable[[Message], Any] | None = None
    ) -> tuple[str, int]:
        """Begin or answer a run for a client's request.

        The run's name combines the conversation and the client's name for the run, so conversations never share a run.
        A flow has one run for each conversation.

        Args:
            asked: The client's request, as read by a translator.
            by: The user who sends the request; see `answer`.  A ``deps`` function gets the user who began the run.
            task: A function that converts a message to an agent's task, or to a flow's data.  By default, an agent's
                task is the message, and a flow's data is the message's text, parsed if it is JSON.

        Returns:
            The run's name, and the value of ``after`` for `follow`.

        Raises:
            NotAsked: If the conversation does not exist, or is not asking this question.
            AlreadyAnswered: If another answer came first.
            UsageError: See `begin` and `answer`.
        """
        self._check_tools(asked.tools)
        if asked.message is not None:
            said: Any = _task_of(self.runnable, asked.message) if task is None else task(asked.message)
            conversation = asked.conversation if self.has_conversations else None
            name = self.run_of(asked)
            if asked.is_again and name is not None:
                await asyncio.to_thread(self._retry, name, by)
            return await self.begin(said, run_id=name, conversation=conversation, by=by), 0
        newest = await self.newest(asked.conversation)
        if newest is None:
            raise NotAsked(f"the conversation {asked.conversation!r} does not exist")
        waits = (await asyncio.to_thread(self.runs.store.get, newest)).waits
        return newest, await self.answer(newest, answer_questions(waits, asked), by=by)

    def _check_tools(self, tools: Collection[str]) -> None:
        """Refuse a client's tool that the agent does not have, because its model would never call it.

        Nothing is refused if the tool may be elsewhere: in a flow, an MCP server, an inner agent or another prompt.
        """
        prompt = getattr(self.runnable, "prompt", None)
        if prompt is None or not prompt.is_fixed or prompt.delegates or self._prompts:
            return
        if unknown := set(tools).difference([function.name for function in prompt.offers if function.call is None]):
            what = f"the agent has no function {min(unknown)!r} without a callable, for the client to run"
            raise BadRequest(f"tools: {what}; add one to the agent", "unknown_tool")

    def _retry(self, run: str, by: str) -> None:
        """Retry a run of this agent if it has failed."""
        with suppress(RunUnknown, RunBusy):  # busy if a second click came first
            self.runnable.runs.get(run)  # refuses a run of another agent, whose name a client may have sent
            if self.runs.store.get(run).is_failed:
                self.runs.retry(run, by=by)

    def run_of(self, asked: ClientRequest) -> str | None:
        """Return the name of the run that a request begins or repeats, or None if the run needs a new name."""
        if not self.has_conversations:
            return asked.conversation
        own = asked.run.replace("%", "%25").replace(":", "%3A")  # the last colon ends the conversation's name
        return f"{asked.conversation}:{own}" if own else None

    async def newest(self, conversation: str) -> str | None:
        """Return the newest run of a conversation, or None if it has no runs."""
        if self.has_conversations:
            return (await asyncio.to_thread(self.runs.store.head, conversation)).run or None
        try:
            return (await asyncio.to_thread(self.runs.store.get, conversation)).id
        except RunUnknown:
            return None

    async def cancel(self, run: str, reason: str = "", *, by: str = "") -> None:
        """Cancel a run, whether it is driven here or in another process.

        Raises:
            RunUnknown: If no run has this name.
            NotAsked: If the run has ended.
            UsageError: If the run belongs to another agent.
        """
        own = await self.runnable.runs.aget(run)
        await asyncio.to_thread(partial(own.cancel, reason, by=by))
        self._start(run)

    async def follow(self, run: str, *, after: int = 0, to_end: bool = False) -> AsyncGenerator[Item]:
        """Yield a run's events after its first ``after`` steps, each with the number of steps so far.

        The last event is `Done`, or `Suspended` if the run is waiting for a person.  If the follower is closed, the
        stream simply ends.  Past events are steps, complete replies and function results; new events also include
        pieces of replies.  A client that reconnects must discard what it received after the last step.

        Args:
            run: The name of the run.
            after: The number of steps that the client already has.
            to_end: Whether to continue after `Suspended`, until `Done`.

        Raises:
            RunUnknown: If no run has this name.
            ReplayError: If the code has changed since the run last stopped and now takes different steps.  This is
                raised at the end.
            JournalError: If the journal is damaged, forged, or from another run.
        """
        require("after", after, type(after) is int and after >= 0, "the number of steps that the client has")
        place = _Cursor(await self._past(run), after, to_end)
        while not self._is_closed and not place.is_over:
            told = self._driven.get(run) or self._failed.get(run)
            ways = self._read_on(run, place) if told is None else self._hear(place, told)
            async with aclosing(ways) as items:
                async for item in items:
                    yield item

    async def close(self) -> None:
        """Stop driving runs, which other drivers can then continue at once.  Questions stay open."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Followers

    async def _past(self, run: str) -> Follower:
        definition = await asyncio.to_thread(self._definition_of, run)
        return await asyncio.to_thread(Follower, self.runs, run, definition)

    def _options_of(self, run: str) -> dict[str, Any]:
        """Return the options for a run, with the prompt that it began with if it is among ``prompts``."""
        if not (self._prompts and self.has_conversations):  # flows have no prompts
            return {"deps": self._deps}
        path = seed_of(header_of(self.runs.store.load(run, after=None).header)).prompt
        return {"deps": self._deps, "prompt": self._prompts.get(path)}

    def _definition_of(self, run: str) -> ProcessFactory:
        """Return the definition for reading a run."""
        definition: ProcessFactory = self.runnable._definition({**self._options_of(run), "deps": LATER})
        return definition

    async def _hear(self, place: _Cursor, told: EventLog) -> AsyncGenerator[Item]:
        """Yield the events from before the driver claimed the run, then the driver's events."""
        base = await told.base()
        if base is not None and place.past.n > base:  # it has read what the driver wrote; the steps are counted again
            place.past, place.counted = await self._past(place.past.run.id), 0
        for item in await asyncio.to_thread(place.read, base):
            yield item
        if base is not None:
            async for steps, event in told.items():
                if place.is_new(place.counted + steps, event):
                    yield place.counted + steps, event
                if place.ends_with(event):
                    return
            place.pass_by(place.counted + told.steps, told.waits)
        told.raise_error()

    async def _read_on(self, run: str, place: _Cursor) -> AsyncGenerator[Item]:
        """Yield the new events in the journal, then the last event if the run has stopped; otherwise, wait for more."""
        for item in await asyncio.to_thread(place.read, None):
            yield item
        row = place.past.run
        if is_settled(row) and run not in self._driven:
            check_not_stuck(row)
            last = place.past.last()
            if row.waits != place.waits or isinstance(last, Done):  # it may only have waited for a set time before
                yield place.counted, last
                place.waits = row.waits
            if place.ends_with(last):
                return
        await self._wait(run, place.past)

    async def _wait(self, run: str, past: Follower) -> None:
        """Wait until the journal has more entries, or until the run can be driven here."""
        if self._is_left(past.run):
            self._start(run)
        if run in self._driven:
            return

        def is_news(row: Run) -> bool:
            return row.n != past.n or row.is_ended or row.waits != past.run.waits or self._is_left(row)

        watched = asyncio.wrap_future(self.runs.watcher.watch(run, is_news))
        await asyncio.wait([watched], timeout=SWEEP_S)
        watched.cancel()

    # Drivers

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("this RunFollower is closed, because the service is shutting down")

    def _start(self, run: str) -> None:
        if self._drives and not self._is_closed and run not in self._driven:
            self._failed.pop(run, None)
            self._driven[run] = told = EventLog()
            self._keep(self._drive(run, told))

    def _keep(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drive(self, run: str, told: EventLog) -> None:
        try:
            options = await asyncio.to_thread(self._options_of, run)
            process, recorder = await aclaim_run(self.runnable, run, options)
            if recorder is not None:
                recorder.rests_for_people = recorder.puts_off = True
                told.begin(recorder.lease.n)
                await adrive_claimed(self.runnable, (process, recorder), told.take)
        except (RunBusy, LeaseLost, RunUnknown):
            pass  # another process drives it, or has deleted it, and the journal says so
        except Exception as error:
            LOG.warning("run %s cannot be driven", run, exc_info=error)
            told.error = error
        finally:
            del self._driven[run]
            told.end()
        if not self.has_store:
            self._bound_memory(run)
        if told.error is None:
            await self._look_after(run, told)
            return
        self._failed[run] = told  # for those who have begun the run but do not listen yet
        await asyncio.sleep(SWEEP_S)
        if self._failed.get(run) is told:
            del self._failed[run]

    async def _look_after(self, run: str, told: EventLog) -> None:
        """Continue a run that was answered just as it stopped, or that waits until a set time."""
        try:
            row = await asyncio.to_thread(self.runs.store.get, run)
        except RunUnknown:
            return
        if row.is_ended or row.due_s is None or row.holder is not None:
            return
        await asyncio.sleep(max(0.0 if told.steps else RETRY_S, row.due_s - time.time()))
        self._start(run)

    async def _sweep(self) -> None:
        """Pick up runs that another process has abandoned."""
        while True:
            try:
                for run in await asyncio.to_thread(self._left_behind):
                    self._start(run)
            except Exception as error:  # the store may be available again at the next search
                LOG.warning("the runs of %r cannot be listed: %s", self.runnable.name, error)
            await asyncio.sleep(SWEEP_S)

    def _left_behind(self) -> list[str]:
        """Return this service's runs that are due and have no holder."""
        which: RunFilter = {"agent": self.runnable.name, "service": self._service, "ended": False}
        which["due_before"] = time.time()
        due = each_listed(self.runs.store, at_a_time=TAKEN_UP, **which)
        left = (row.id for row in due if self._is_left(row) and row.id not in self._driven)
        return [*islice(left, TAKEN_UP)]

    def _is_left(self, run: Run) -> bool:
        """Return whether a run waits for this service to drive it.  Runs from other programs wait for a `Worker`."""
        return self._drives and run.service == self._service and is_undriven(run)

    # Without a store

    def _bound_memory(self, run: str) -> None:
        """Record a run's size and, if a limit is exceeded, forget the conversations that stopped earliest."""
        store = self.runs.store
        with suppress(RunUnknown):
            loaded = store.load(run)
            size = sum(map(len, (loaded.header, *loaded.lines))) + (len(loaded.snapshot[1]) if loaded.snapshot else 0)
            name = header_of(loaded.header).conversation or run  # a run without a conversation is one of its own
            self._sizes[name] = {**self._sizes.pop(name, {}), run: size}
        for name, sizes in [*self._sizes.items()]:
            kept = [size for sizes in self._sizes.values() for size in sizes.values()]
            if len(kept) <= self.kept_runs and sum(kept) <= self.kept_bytes:
                return
            if run in sizes or any(one in self._driven for one in sizes):
                continue
            for one in sizes:
                with suppress(RunUnknown, RunBusy):
                    store.delete(one)
            store.forget(name)  # type: ignore[attr-defined]  # it is a `MemoryStore`
            del self._sizes[name]


def with_store(runnable: Any, store: Any) -> Any:
    """Return a copy of an agent or flow with another store."""
    if isinstance(runnable, AgentBase) or not isinstance(runnable, Runnable):
        raise UsageError(
            f"expected an agent or a flow with a store, got {safe_repr(runnable)}; pass it store='runs.db'"
        )
    if hasattr(runnable, "changed"):
        return runnable.changed(store=store)
    return replace(runnable, store=store)  # type: ignore[type-var]


def _task_of(runnable: Any, message: Message) -> Any:
    """Return the message as an agent's task, or its text as a flow's data."""
    adapter = getattr(runnable, "adapter", None)
    if adapter is None:
        return message if hasattr(runnable, "conversation") else message.text
    with suppress(ValueError):
        return adapter.validate_python(message.text)
    try:
        return adapter.validate_json(message.text)
    except ValidationError as error:
        found = "; ".join(described_errors(error).splitlines())
        raise BadRequest(f"the text: expected data of the flow {runnable.name!r}: {found}", "bad_data") from None


class _Cursor:
    """A listener's position in a run."""

    def __init__(self, past: Follower, after: int, to_end: bool) -> None:
        self.past = past
        self.counted = 0  # steps read from the journal
        self.waits: Any = None  # the questions that were last reported to it
        self.is_over = False
        self._after, self._to_end = after, to_end

    def read(self, base: int | None) -> list[Item]:
        """Return the new events in the journal, up to entry number ``base`` if it is given."""
        found: list[Item] = []
        for event in read_new_events(self.past, base):
            self.counted += is_step(event)
            if self.is_new(self.counted, event):
                found.append((self.counted, event))
        self._after = max(self._after, self.counted)
        return found

    def is_new(self, steps: int, event: Event) -> bool:
        """Return whether an event is new to the listener."""
        return steps > self._after or (steps == self._after and not is_step(event))

    def ends_with(self, event: Event) -> bool:
        self.is_over = is_last(event, self._to_end)
        return self.is_over

    def pass_by(self, steps: int, waits: Any) -> None:
        """Skip the events in the journal that have already come from a driver."""
        self._after, self.waits = max(self._after, steps), waits


def read_new_events(past: Follower, base: int | None = None) -> list[Event]:
    """Return the events in the entries that are not read yet, up to entry number ``base`` if it is given."""
    if base is not None and past.n >= base:
        return []
    loaded = past.load()
    if base is not None and past.n + len(loaded.lines) > base:
        loaded = loaded.changed(lines=loaded.lines[: base - past.n], run=loaded.run.changed(n=base))
    return [*past.events(loaded)]
