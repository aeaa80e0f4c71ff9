"""Handles for following, answering and awaiting runs that another process drives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeAlias

import pydantic_core

from fsm_agent._internal.structs import is_amount, to_json
from fsm_agent.agents.runnable import Result, Runnable, result_of
from fsm_agent.call.outcomes import Outcome
from fsm_agent.errors import JournalError, UsageError
from fsm_agent.messages.events import Event, Question
from fsm_agent.store import checks as answer_checks
from fsm_agent.store.claiming import ProcessFactory, replay_run
from fsm_agent.store.errors import StoreError
from fsm_agent.store.following import Follower
from fsm_agent.store.history import read
from fsm_agent.store.rescheduling import STUCK_STATE, check_not_stuck
from fsm_agent.store.store import MAX_TIME_S, Run, Start
from fsm_agent.store.watching import is_settled
from fsm_agent.validation import invalid


class RunHandle(Generic[Result]):
    """A handle for a stored run that a `Worker` drives.  ``runs.submit`` and ``runs.get`` return handles.

    A handle holds no lease and drives nothing.  A run may have any number of handles, in any process or thread.  One
    thread per OS process watches all runs that handles are waiting for.  It checks them as soon as the store reports
    that a run has been released, and looks for new entries every quarter of a second.

    Attributes:
        run_id: The name of the run.

    Examples:
        >>> clerk = Agent(Script("Sorted."), name="clerk", store=MemoryStore())
        >>> run = clerk.runs.submit("Sort the inbox.", run_id="inbox-17")     # nothing has been asked yet
        >>> Worker([clerk], clerk.runs.all).run(once=True)                   # in another OS process, say
        1
        >>> run.result(timeout_s=60).output
        'Sorted.'
    """

    def __init__(self, runnable: Runnable, run_id: str, definition: ProcessFactory) -> None:
        self.run_id = run_id
        self._runnable = runnable
        self._definition = definition
        self._runs = runnable.runs.all

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._runnable.name!r}, run_id={self.run_id!r})"

    @property
    def state(self) -> str:
        """The state after the last journal entry, or ``"Stuck"`` if the current code cannot drive the run.

        It is read directly from the journal, so neither the run's code nor its prompt is needed.

        Raises:
            RunUnknown: If the run no longer exists.
            JournalError: If the journal is damaged or forged.
        """
        history = read(self._runs, self.run_id)
        if not history.is_sound:
            raise JournalError(f"the journal of the run {self.run_id!r} is damaged: {history.verdict}")
        is_stuck = history.run.state == STUCK_STATE and history.run.holder is None
        return STUCK_STATE if is_stuck else history.process.state

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions, as in `Suspended`."""
        return self._runs.store.get(self.run_id).waits

    def result(self, timeout_s: float | None = None) -> Result:
        """Wait until the run has ended, and return its result or raise its error, like ``call``.

        Args:
            timeout_s: The maximum number of seconds to wait, or None for no limit.

        Raises:
            TimeoutError: If the run did not end in time.
            CallFailed: If the run ended without an output.  A flow raises `FlowFailed`.
            CallSuspended: If the run is waiting for a person; use `answer`.  A flow raises `FlowSuspended`.
            RunUnknown: If the run was deleted.
            ReplayError: If the run is stuck because the code of its workers has changed and now takes different steps.
            JournalError: If the journal is damaged or forged, or belongs to another run.
        """
        ends_s = _end_of(timeout_s)
        while (result := self._settled()) is None:
            future = self._watch(is_settled)
            try:
                if self._settled() is None:  # the run may have ended before it was watched
                    future.result(None if ends_s is None else max(0.0, ends_s - time.monotonic()))
            except TimeoutError:
                raise self._timed_out(timeout_s) from None
            finally:
                future.cancel()
        return result()

    async def aresult(self, timeout_s: float | None = None) -> Result:
        """The async version of `result`."""
        ends_s = _end_of(timeout_s)
        while (result := await asyncio.to_thread(self._settled)) is None:
            future = self._watch(is_settled)
            try:
                if await asyncio.to_thread(self._settled) is None:
                    left_s = None if ends_s is None else max(0.0, ends_s - time.monotonic())
                    await asyncio.wait_for(asyncio.wrap_future(future), left_s)
            except TimeoutError:
                raise await asyncio.to_thread(self._timed_out, timeout_s) from None
            finally:
                future.cancel()
        return result()

    def stream(self) -> Generator[Event]:
        """Yield the run's past events, then new events as its entries are written, and finally `Done`.

        A journal contains steps, complete replies, function results and changes to the dialog: `Stepped`,
        `ReplyCompleted`, `FunctionEnded` and `HistoryChanged`, and `Inside` events that wrap one of these.  Only the
        driver's own stream contains deltas, starts, progress and durations.  If the run is waiting for a person, the
        last event is `Suspended`.

        If the code has changed too much for some events to be reproduced, a message is logged and those events are read
        from the journal.  They include steps, replies and results, but not changes to the dialog.

        Raises:
            CallFailed: If the run ended without an output.  It is raised after `Done`.  A flow raises `FlowFailed`.
            RunUnknown: If the run was deleted.
            ReplayError: If the code has changed since the run last stopped and now takes different steps.  It is raised
                at the end.
            JournalError: If the journal is damaged or forged, or belongs to another run.
        """
        follower = self._follower()
        while True:
            yield from follower.events(follower.load())
            if is_settled(follower.run):
                break
            future = self._watch(follower.is_news)
            try:
                future.result()
            finally:
                future.cancel()
        yield from self._last(follower)

    async def astream(self) -> AsyncGenerator[Event]:
        """The async version of `stream`."""
        follower = await asyncio.to_thread(self._follower)
        while True:
            for event in await asyncio.to_thread(lambda: [*follower.events(follower.load())]):
                yield event
            if is_settled(follower.run):
                break
            await asyncio.wrap_future(self._watch(follower.is_news))
        for event in self._last(follower):
            yield event

    def cancel(self, reason: str = "", *, by: str = "") -> None:
        """Cancel the run.  Its current or next driver ends it.

        A run that is scheduled for later becomes due at once and ends without a request to a model.

        Args:
            reason: The reason, for display.
            by: The name of the person who cancels the run, for display.

        Raises:
            NotAsked: If the run has ended.
            RunUnknown: If the run was deleted.
        """
        self._runs.cancel(self.run_id, reason, by=by)

    def answer(self, answers: Any, *, by: str = "", signal_id: str = "") -> None:
        """Answer the run's questions.  This method does not drive the run; its next driver uses the answers.

        Args:
            answers: Answers by key, as for ``resume``, or a single answer if one question is open.
            by: The name of the person who answers, for display.
            signal_id: An id for a single answer.  Repeating the answer with the same id has no effect.

        Raises:
            NotAsked: If the run is not asking this question, or has ended.
            AlreadyAnswered: If another answer came first.
            SignalExists: If a different answer has this ``signal_id``.
            OutcomeError: If the run is asking several questions and the answer has no key.
            UsageError: If the question does not accept this kind of answer.
        """
        runs, content = self._runs, ""
        if signal_id:
            answer_checks.check_one_answer(answers)
            content = _content_of(answers)
            if runs.is_posted(self.run_id, signal_id, content):
                return
        if not isinstance(answers, Mapping):
            answers = {runs.only_question(self.run_id): answers}
        outcomes = self._runnable._outcomes(self.run_id, answers, self._definition)
        given = [id(answer) for answer in answers.values()]
        typed = [key for key, outcome in outcomes.items() if id(outcome) not in given]  # outcomes made from values
        at_s = runs.claims.clock_of(self._definition).now()
        runs.answer(self.run_id, outcomes, by=by, at_s=at_s, typed=typed, signal_id=signal_id, content=content)

    def _watch(self, is_news: Callable[[Run], bool]) -> Future[Run]:
        return self._runs.watcher.watch(self.run_id, is_news)

    def _follower(self) -> Follower:
        return Follower(self._runs, self.run_id, self._definition)

    def _settled(self) -> Callable[[], Result] | None:
        """Return a function that returns the run's result or raises its error, or None if it is too early."""
        if not is_settled(self._runs.store.get(self.run_id)):
            return None
        loaded = self._runs.store.load(self.run_id, after=None)
        if not is_settled(loaded.run):
            return None
        check_not_stuck(loaded.run)
        return partial(result_of, replay_run(self._runs.journals, loaded, self._definition))

    def _last(self, follower: Follower) -> Generator[Event]:
        """Yield the last event of a run that has ended or waits for a person."""
        check_not_stuck(follower.run)
        yield follower.last()
        if not follower.process.effects:
            result_of(follower.process)

    def _timed_out(self, timeout_s: float | None) -> TimeoutError:
        try:
            run = self._runs.store.get(self.run_id)
            who = f"{run.holder!r} drives it" if run.holder is not None else "no driver has claimed it; start a worker"
            if run.holder is None and run.due_s != 0.0:
                who = "it is not due yet"
        except StoreError as error:
            who = str(error)
        return TimeoutError(f"the run {self.run_id!r} has not ended within {timeout_s} s; {who}")


Before: TypeAlias = str | RunHandle[Any] | Sequence[str | RunHandle[Any]]  # runs that must end first


def _content_of(answers: Mapping[Any, Any]) -> str:
    """Return the answers as a string.  Equal answers give equal strings, even if the run now asks other questions."""
    told = [[getattr(whom, "name", whom), value] for whom, value in answers.items()]
    return pydantic_core.to_json(
        [[name, to_json(value) if isinstance(value, Outcome) else value] for name, value in told], fallback=repr
    ).decode()


def _end_of(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def runs_named(after: Any) -> tuple[str, ...] | None:
    """Return the names of the runs in ``after``, or None if ``after`` is neither a run nor a list of runs."""
    if isinstance(after, str | RunHandle):
        return runs_named([after])
    if not isinstance(after, list | tuple) or not all(isinstance(run, str | RunHandle) for run in after):
        return None
    return tuple([run if isinstance(run, str) else run.run_id for run in after])


def start_of(after: tuple[str, ...], delay_s: float, priority: int, service: str, now_s: float) -> Start:
    """Return when and where a run starts.  ``now_s`` is the time from which the delay is counted."""
    if not is_amount(delay_s):
        raise invalid("delay_s", delay_s, "at least 0 seconds")
    if now_s + delay_s > MAX_TIME_S:
        raise UsageError(f"delay_s: expected a delay that ends by the year 9999, got {delay_s!r}")
    return Start(due_s=now_s + delay_s if delay_s else 0.0, after=after, priority=priority, service=service)
