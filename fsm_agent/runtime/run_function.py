"""Run one function, as its policy says.

An exception of the function is shown to the model unless `Function.on_error` says otherwise; `KeyboardInterrupt` and
its like go on to the driver.  One that is raised once the run was let go of is no outcome: it would be kept when a
driver is stopped, and the function would not be run again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.errors import Retry, UsageError
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function, result_text
from fsm_agent.functions.policy import Default, Retries
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.effects import RunFunction
from fsm_agent.lifecycle.interpret import error_text, unprepared
from fsm_agent.lifecycle.outcomes import FunctionFailed, Returned
from fsm_agent.messages.event import Event, FunctionProgress
from fsm_agent.messages.message import Attachment, FunctionCall, Message
from fsm_agent.runtime.abort import Aborted
from fsm_agent.runtime.logs.lines import traceback_text, words
from fsm_agent.runtime.logs.log import LOG, log_error
from fsm_agent.runtime.results.pipeline import PipelineResult
from fsm_agent.runtime.thread_task import ThreadTask, run_coroutine, settled
from fsm_agent.runtime.world import World

if TYPE_CHECKING:
    import asyncio
    import logging

    from fsm_agent.runtime import backoff as waits
else:
    asyncio, logging = deferred("asyncio"), deferred("logging")
    waits = deferred("fsm_agent.runtime.backoff")

Tell: TypeAlias = Callable[[FunctionProgress], object]
Ended: TypeAlias = Returned | FunctionFailed
Wait: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]  # for a coroutine, in sync code

_RETRIES, _NO_RETRIES = Retries(), Retries(attempts=1)


class FunctionExecution:
    """One run of one function, retries included: what its policy may read and report.

    Args:
        effect: The effect.
        call: The agent call that it is part of.
        world: The world of that call.
        tell: Takes the events of the run, from any thread.
        has_listener: Whether somebody wants the traceback of what the function raises.

    Attributes:
        raised: The exception with which the function lets the agent call fail, until its driver takes it.
        traceback: That of the exception, as text.
    """

    __slots__ = (
        "_call",
        "_tell",
        "attempt",
        "changes",
        "depth",
        "effect",
        "ended",
        "function",
        "has_listener",
        "is_cached",
        "is_cancelled",
        "is_plain",
        "raised",
        "releases",
        "returned",
        "started_at_s",
        "traceback",
        "world",
    )

    def __init__(
        self,
        effect: RunFunction,
        call: AgentCall,
        world: World,
        tell: Tell | None = None,
        *,
        has_listener: bool = False,
    ) -> None:
        self.effect = effect
        self.function: Function = effect.function
        self.world = world
        self.attempt = 1
        self.ended: Ended | None = None  # its outcome, whether or not it has been taken
        self.is_cached = False
        self.is_cancelled = False  # its outcome is no longer wanted
        self.has_listener = has_listener
        self.raised: Exception | None = None
        self.traceback = ""
        self.releases: tuple[int, ...] = ()
        self.returned: str | None = None  # the result, before it was changed
        self.changes: tuple[Event, ...] = ()  # those of its result
        self.is_plain = self.function.is_plain and world.results is None  # only the function itself runs
        self.depth = call.record.depth + 1
        self.started_at_s = world.clock.now()
        self._call = call
        self._tell = tell

    def cancel(self) -> None:
        """Mark the run as no longer wanted."""
        self.is_cancelled = True

    def check(self) -> None:
        """Raise `Aborted` if the run is no longer wanted.

        What it waited for was ended with it, and retries are over, so an exception says nothing of the function.
        """
        if self.is_cancelled:
            raise Aborted

    def context(self) -> Context[Any] | None:
        """Return the `Context` of the agent call for the function; None for a function that takes none."""
        if not self.function.takes_context:
            return None
        return Context(
            deps=self._call.deps,
            call=self.effect.call,
            agent_call_id=self.agent_call_id,
            depth=self.depth - 1,
            attempt=self.attempt,
            emit=self._emit,
            is_cancelled=lambda: self.is_cancelled,
            release=self._release,
        )

    def invoke(self, call: FunctionCall, context: Context[Any] | None = None) -> Any:
        """Call the function; a coroutine function gives its coroutine."""
        return self.function.run(call.arguments_json, context)

    def ainvoke(self, call: FunctionCall, context: Context[Any] | None = None) -> Any:
        """Call the function's twin under asyncio, if it has one; what comes of it may be awaitable."""
        return self.function.arun(call.arguments_json, context)

    def _emit(self, data: Any) -> None:
        if self._tell is not None:
            self._tell(FunctionProgress(self.effect.call.id, self.effect.call.name, data))

    def unprepared(self, error: Exception) -> Ended:
        """Return the outcome of a run whose result could not be prepared."""
        if self.function.on_error == "fail":
            return FunctionFailed(text=unprepared(error), at_s=self.world.clock.now())
        return _error(f"The function {self.function.name} was run, but {unprepared(error)}. Go on without it.", self)

    def piped(self, ended: Ended, piped: PipelineResult) -> Ended:
        """Return the outcome with its result as the pipeline leaves it."""
        self.returned, self.changes = ended.text, piped.events
        return piped.outcome

    @property
    def agent_call_id(self) -> str:
        """The id of the agent call."""
        return self._call.record.id

    @property
    def messages(self) -> Sequence[Message]:
        """The dialog of the agent call."""
        return self._call.record.dialog

    def _release(self, rounds: Iterable[int]) -> None:
        released, newest = tuple(rounds), self._call.record.rounds + 1
        if wrong := [n for n in released if not 1 <= n <= newest]:
            raise UsageError(f"there is no round {wrong[0]!r} to release: this is round {newest}, and the first is 1")
        self.releases = (*self.releases, *released)


_run: ContextVar[FunctionExecution | None] = ContextVar("fsm_agent_run", default=None)
_PROGRAM_DEPTH: ContextVar[int] = ContextVar("fsm_agent_program_depth", default=0)


def current_run() -> FunctionExecution | None:
    """Return the run that the running code is part of; None outside of functions."""
    return _run.get()


def current_depth() -> int:
    """Return how many agent calls the running code is inside of."""
    run = _run.get()
    return max(run.depth if run else 0, _PROGRAM_DEPTH.get())


@contextmanager
def program_of(context: Context[Any]) -> Iterator[None]:
    """Run code in the place of a model: agent calls inside of it are one deeper than the call that it answers."""
    token = _PROGRAM_DEPTH.set(context.depth + 1)
    try:
        yield
    finally:
        _PROGRAM_DEPTH.reset(token)


def run_function(run: FunctionExecution, child: ThreadTask[Any] | None = None) -> Ended:
    """Run a function in this thread; a coroutine function in a loop of its own, that of ``child`` if there is one."""
    wait = child.run_coroutine if child else run_coroutine
    token = _run.set(run)
    try:
        run.ended = _plain(run, wait) if run.is_plain else _governed(run, wait)
        return run.ended
    finally:
        _run.reset(token)


async def arun_function(run: FunctionExecution) -> Ended:
    """Run a function in this task; a plain one in a thread, unless its policy says that it does not block."""
    if run.function.takes_thread:  # evaluated in the thread: no future can hold a StopIteration
        return await _in_thread(run)
    token = _run.set(run)
    try:
        run.ended = await (_aplain(run) if run.is_plain else _agoverned(run))
        return run.ended
    finally:
        _run.reset(token)


def _plain(run: FunctionExecution, wait: Wait) -> Ended:
    """Run a function whose policy does not affect how it runs."""
    try:
        value = run.invoke(run.effect.call)
        value = _waited_for(value, wait) if inspect.isawaitable(value) else value
    except BaseException as error:
        return _raised(_failure(error, run), run)
    return _returned(value, run)


async def _aplain(run: FunctionExecution) -> Ended:
    """Do the same as `_plain` under asyncio."""
    try:
        value = run.ainvoke(run.effect.call)
        if inspect.isawaitable(value):
            value = await value
    except asyncio.CancelledError as error:
        return _raised(_cancelled(error), run)
    except Exception as error:
        return _raised(error, run)
    return _returned(value, run)


def _governed(run: FunctionExecution, wait: Wait) -> Ended:
    """Run a function whose policy affects how it runs."""
    steps = _attempts(run)
    delay_s = next(steps)
    try:
        while True:
            if delay_s is not None:
                run.world.clock.sleep(delay_s)
                delay_s = steps.send(None)
                continue
            try:
                value = wait(_avalue(run)) if run.function.is_awaited else _value(run)
                if inspect.isawaitable(value):
                    value = _waited_for(value, wait)
            except BaseException as error:
                delay_s = steps.throw(_failure(error, run))
            else:
                delay_s = steps.send(value)
    except StopIteration as end:
        ended: Ended = end.value
    if run.world.results is None or not isinstance(ended, Returned):
        return ended
    try:
        return run.piped(ended, run.world.results.apply(run.effect.call, ended, run.messages, wait))
    except BaseException as error:
        return _unprepared(_failure(error, run), run)


async def _agoverned(run: FunctionExecution) -> Ended:
    """Do the same as `_governed` under asyncio."""
    steps = _attempts(run)
    delay_s = next(steps)
    try:
        while True:
            if delay_s is not None:
                await run.world.clock.asleep(delay_s)
                delay_s = steps.send(None)
                continue
            try:
                value = await _avalue(run)
            except asyncio.CancelledError as error:
                delay_s = steps.throw(_cancelled(error))
            except Exception as error:
                delay_s = steps.throw(error)
            else:
                delay_s = steps.send(value)
    except StopIteration as end:
        ended: Ended = end.value
    if run.world.results is None or not isinstance(ended, Returned):
        return ended
    try:
        return run.piped(ended, await run.world.results.aapply(run.effect.call, ended, run.messages))
    except asyncio.CancelledError as error:
        return _unprepared(_cancelled(error), run)
    except Exception as error:
        return _unprepared(error, run)


async def _in_thread(run: FunctionExecution) -> Ended:
    child: ThreadTask[Ended] = ThreadTask(partial(run_function, run))
    try:
        return await asyncio.wrap_future(child.start().future)
    except asyncio.CancelledError:
        child.cancel()  # what it waits for, if that can be cancelled
        raise


def _attempts(run: FunctionExecution) -> Generator[float | None, Any, Ended]:
    """Return the outcome of a run, attempt by attempt.

    Yield None to be sent the function's result, or to have its exception thrown in; or yield how many seconds to wait
    before the next attempt.
    """
    function = run.function
    retries = function.retries or (_RETRIES if function.on_error == "retry" else _NO_RETRIES)
    while True:
        try:
            value = yield None
        except Exception as error:
            if _is_worth_it(error, retries, run):
                _log_raised(error, run)
                error.__traceback__ = None  # one that is kept, to be raised again and again, would gather them all
                yield waits.delay_s(waits.BetweenRuns(retries, run.world.random), run.attempt, error)
                if not run.is_cancelled:
                    run.attempt += 1
                    continue
            return _raised(error, run)
        return _returned(value, run)


def _is_worth_it(error: Exception, retries: Retries, run: FunctionExecution) -> bool:
    """Return whether to run the function again; False when the run is no longer wanted."""
    if isinstance(error, Retry) or run.attempt >= retries.attempts:
        return False
    return (retries.retry_if is None or retries.retry_if(error)) and not run.is_cancelled


def _value(run: FunctionExecution) -> Any:
    """Return the function's result behind its middleware, all of it plain."""

    def innermost(call: FunctionCall) -> Any:
        return run.invoke(call, run.context())

    step: Callable[[FunctionCall], Any] = innermost
    for use in reversed(run.function.middleware):
        step = partial(_called, use, step)
    return step(run.effect.call)


def _called(use: Callable[..., Any], following: Callable[[FunctionCall], Any], call: FunctionCall) -> Any:
    return use(call, following)


async def _avalue(run: FunctionExecution) -> Any:
    """Return the function's result behind its middleware, some of it awaitable."""
    function = run.function

    async def innermost(call: FunctionCall) -> Any:
        if function.blocking and function.acall is None and not function.is_async:
            work = partial(run.invoke, call, run.context())
            value = (await asyncio.wrap_future(ThreadTask(lambda _: settled(work)).start().future))()
        else:
            value = run.ainvoke(call, run.context())
        return await _awaited(value) if inspect.isawaitable(value) else value

    step: Callable[[FunctionCall], Awaitable[Any]] = innermost
    for use in reversed(function.middleware):
        step = partial(_acalled, getattr(use, "acall", use), step)
    return await step(run.effect.call)


async def _acalled(use: Callable[..., Any], following: Callable[[FunctionCall], Any], call: FunctionCall) -> Any:
    value = use(call, following)
    return await value if inspect.isawaitable(value) else value


def _waited_for(value: Awaitable[Any], wait: Wait) -> Any:
    """Return what an awaitable gives; a coroutine that was left behind before it began is closed."""
    try:
        return wait(_awaited(value))
    finally:
        if inspect.iscoroutine(value):
            value.close()


async def _awaited(value: Awaitable[Any]) -> Any:
    """Return the awaited value; a cancellation that did not come from here is an error of the function."""
    try:
        return await value
    except asyncio.CancelledError as error:
        raise _cancelled(error) from error


def _cancelled(error: asyncio.CancelledError) -> Exception:
    """Return the failure that a cancellation of the function is; raise one that is meant for this task."""
    if (task := asyncio.current_task()) and task.cancelling():
        raise error
    return RuntimeError("what the function waited for was cancelled")


def _failure(error: BaseException, run: FunctionExecution) -> Exception:
    """Return an exception of the function as its failure; raise one that is for the driver to handle."""
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError) and not run.is_cancelled:  # of its own waiting
        return RuntimeError("what the function waited for was cancelled")
    raise error


def _returned(value: Any, run: FunctionExecution) -> Ended:
    if run.is_plain and run.function.format is None and (type(value) is str or type(value) is int):
        return Returned(text=result_text(value), at_s=run.world.clock.now())
    try:
        text, attachments = _content(value, run)
    except Exception as error:
        return _unprepared(error, run)
    return Returned(
        text=text,
        attachments=attachments,
        is_cached=run.is_cached,
        releases=run.releases,
        at_s=run.world.clock.now(),
    )


def _content(value: Any, run: FunctionExecution) -> tuple[str, tuple[Attachment, ...]]:
    """Return the result as text for the model, and its attachments."""
    function, call = run.function, run.effect.call
    parts = value if isinstance(value, (list, tuple)) else (value,)
    attachments = tuple([part for part in parts if isinstance(part, Attachment)])
    if not attachments or function.format is not None:
        return function.format_result(value, call), attachments
    words = [part for part in parts if not isinstance(part, Attachment)]
    return "\n".join([function.format_result(part, call) for part in words]), attachments


def _raised(error: Exception, run: FunctionExecution) -> Ended:
    """Return the outcome of an exception: by default the model is shown its type and text, not its traceback."""
    run.check()
    if isinstance(error, Retry):
        return _error(error_text(error), run)
    _log_raised(error, run)
    text = _error_text(error)
    if run.has_listener:
        run.traceback = traceback_text(error)
    match run.function.on_error:
        case "fail":
            run.raised = error
            return FunctionFailed(text=text, at_s=run.world.clock.now())
        case Default(value):
            return _returned(value, run)
    return _error(text, run)


def _error_text(error: Exception) -> str:
    message = error_text(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _unprepared(error: Exception, run: FunctionExecution) -> Ended:
    """Return the outcome of a function that has run, and whose result its format or the result pipeline failed on.

    The model is shown neither the result, which they may be there to redact, nor the exception's text, which may quote
    it.
    """
    run.check()
    log_error(logging.WARNING, f"{_line(run)}: its result could not be prepared", error)
    if run.has_listener:
        run.traceback = traceback_text(error)
    if run.function.on_error == "fail":
        run.raised = error
    return run.unprepared(error)


def _log_raised(error: Exception, run: FunctionExecution) -> None:
    attempt = f" at attempt {run.attempt}" if run.attempt > 1 else ""
    log_error(logging.WARNING, f"{_line(run)} raised {type(error).__name__}{attempt}", error)


def _line(run: FunctionExecution) -> str:
    """Return the beginning of a line about a run."""
    return f"call {words(run.agent_call_id, 100)}: function {run.function.name!r} ({run.effect.key})"


def _error(text: str, run: FunctionExecution) -> Returned:
    return Returned(text=text, is_error=True, releases=run.releases, at_s=run.world.clock.now())


def timed_out(run: FunctionExecution) -> Returned:
    """Return the outcome of a function that exceeded its timeout."""
    LOG.warning("%s did not return within %g s", _line(run), run.function.timeout_s)
    return _error(f"TimeoutError: {run.function.name} did not return within {run.function.timeout_s:g} s", run)
