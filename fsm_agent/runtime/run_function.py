"""Run one function according to its policy.

An exception of the function is shown to the model unless `Function.on_error` says otherwise.  `KeyboardInterrupt` and
its like propagate to the driver; `SystemExit` does so from the main thread only, where a handler of a signal may have
raised it.  An exception after the run was cancelled is no outcome: a driver that is stopped would keep it, and the
function would not be run again.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypedDict

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.errors import Retry, UsageError
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function, result_text
from fsm_agent.functions.policy import Default, Retries
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.effects import RunFunction
from fsm_agent.lifecycle.interpret import error_text, typed_error_text, unprepared
from fsm_agent.lifecycle.outcomes import FunctionFailed, Returned
from fsm_agent.messages.event import Event, FunctionProgress
from fsm_agent.messages.message import Attachment, FunctionCall, Message
from fsm_agent.messages.reply import UNUSED
from fsm_agent.runtime.abort import Aborted
from fsm_agent.runtime.inner_calls import InnerCalls
from fsm_agent.runtime.log import LOG, log_error, traceback_text, words
from fsm_agent.runtime.result_pipeline import PipelineResult
from fsm_agent.runtime.thread_task import ThreadTask, run_coroutine, settle
from fsm_agent.runtime.world import World

if TYPE_CHECKING:
    import asyncio
    import logging

    from fsm_agent.runtime import retry_delay as waits
    from fsm_agent.runtime.recorder import Recorder
else:
    asyncio, logging = deferred("asyncio"), deferred("logging")
    waits = deferred("fsm_agent.runtime.retry_delay")

Tell: TypeAlias = Callable[[FunctionProgress], object]
Ended: TypeAlias = Returned | FunctionFailed
Wait: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]  # for a coroutine, in sync code

_RETRIES, _NO_RETRIES = Retries(), Retries(attempts=1)


class _Times(TypedDict):
    at_s: float
    duration_s: float


class FunctionExecution:
    """The execution of one function call, retries included.

    Args:
        effect: The effect.
        call: The agent call that it is part of.
        world: The world of that call.
        tell: Takes the events of the execution, from any thread.
        has_listener: Whether there is a listener, for whom tracebacks are made.
        recorder: The recorder of the run that the call is part of; None: it is in no store.

    Attributes:
        inner: The agent calls that the function makes; None: it takes no `Context`.
        raised: The exception that makes the agent call fail, until its driver takes it.
        traceback: The traceback of the function's exception, as text.
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
        "inner",
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
        recorder: Recorder | None = None,
    ) -> None:
        self.effect = effect
        self.function: Function = effect.function
        self.world = world
        self.attempt = 1
        self.ended: Ended | None = None  # its outcome, whether or not the driver has taken it
        self.is_cached = False
        self.is_cancelled = False  # its outcome is no longer wanted
        self.has_listener = has_listener
        self.raised: Exception | None = None
        self.traceback = ""
        self.releases: tuple[int, ...] = ()
        self.returned: str | None = None  # the result before the pipeline
        self.changes: tuple[Event, ...] = ()  # the events of the pipeline
        self.is_plain = self.function.is_plain and world.results is None  # no policy and no pipeline apply
        self.depth = call.record.depth + 1
        self.started_at_s = world.clock.now()
        self._call = call
        self._tell = tell
        self.inner: InnerCalls | None = None
        if self.function.takes_context:
            key = f"{self.agent_call_id}/{effect.call.id}"
            asks_for_them = recorder is not None and not effect.is_once
            self.inner = InnerCalls(call, key, self.depth, world, recorder, asks_for_them)

    def cancel(self, *, is_over: bool = True) -> None:
        """Mark the run as no longer wanted.

        Args:
            is_over: Whether the function will not be run again.
        """
        self.is_cancelled = True
        if self.inner is not None:
            self.inner.is_over = is_over
            self.inner.is_left = True

    @property
    def is_waiting(self) -> bool:
        """True if a run that the function has begun waits for a person to find out what became of a function."""
        return self.inner is not None and bool(self.inner.waits)

    def check(self) -> None:
        """Raise `Aborted` if the run is no longer wanted."""
        # The waits of the function were interrupted, so its exception says nothing about the function.
        if self.is_cancelled:
            raise Aborted

    def context(self) -> Context[Any] | None:
        """Return the `Context` for the function; None if it takes none."""
        if not self.function.takes_context:
            return None
        return Context(
            deps=self._call.deps,
            function_call=self.effect.call,
            agent_call_id=self.agent_call_id,
            depth=self.depth - 1,
            attempt=self.attempt,
            emit=self._emit,
            is_cancelled=lambda: self.is_cancelled,
            release=self._release,
            around=self.inner,
        )

    def invoke(self, call: FunctionCall, context: Context[Any] | None = None) -> Any:
        """Call the function; for a coroutine function, return its coroutine."""
        try:
            return self.function.run(call.arguments_json, context)
        except SystemExit as error:
            _raise_exit(error)

    def ainvoke(self, call: FunctionCall, context: Context[Any] | None = None) -> Any:
        """Call the async version of the function if it has one; the result may be awaitable."""
        try:
            return self.function.arun(call.arguments_json, context)
        except SystemExit as error:
            _raise_exit(error)

    def _emit(self, data: Any) -> None:
        if self._tell is not None:
            self._tell(FunctionProgress(self.effect.call.id, self.effect.call.name, data))

    def times(self) -> _Times:
        """Return when the run ended, which is now, and how long it took."""
        now = self.world.clock.now()
        return _Times(at_s=now, duration_s=max(0.0, now - self.started_at_s))

    def preparation_failure(self, error: Exception) -> Ended:
        """Return the outcome of a function whose result could not be prepared."""
        if self.function.on_error == "fail":
            return FunctionFailed(text=unprepared(error), **self.times())
        return _error_result(
            f"The function {self.function.name} was run, but {unprepared(error)}. Go on without it.", self
        )

    def take_pipeline_result(self, ended: Ended, piped: PipelineResult) -> Ended:
        """Return the outcome with the result of the pipeline."""
        self.returned, self.changes = ended.text, piped.events
        return piped.outcome

    def with_usage(self, ended: Ended) -> Ended:
        """Return an outcome with the tokens of the agent calls that the function has made."""
        usage = UNUSED if self.inner is None else self.inner.usage
        return ended if usage == UNUSED else ended.changed(usage=usage)

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
            raise UsageError(f"the round to release: expected 1 to {newest}, the present round, got {wrong[0]!r:.80}")
        self.releases = (*self.releases, *released)


_run: ContextVar[FunctionExecution | None] = ContextVar("fsm_agent_run", default=None)
_PROGRAM_DEPTH: ContextVar[int] = ContextVar("fsm_agent_program_depth", default=0)


def current_run() -> FunctionExecution | None:
    """Return the execution that the running code is part of; None outside of functions."""
    return _run.get()


def current_depth() -> int:
    """Return the number of agent calls around the running code."""
    run = _run.get()
    return max(run.depth if run else 0, _PROGRAM_DEPTH.get())


@contextmanager
def program_of(context: Context[Any]) -> Iterator[None]:
    """Run code that answers in place of a model; agent calls inside of it are one deeper than the call it answers."""
    token = _PROGRAM_DEPTH.set(context.depth + 1)
    try:
        yield
    finally:
        _PROGRAM_DEPTH.reset(token)


def run_function(run: FunctionExecution, child: ThreadTask[Any] | None = None) -> Ended | None:
    """Run a function in this thread; a coroutine function runs in a new event loop, that of ``child`` if given.

    Returns:
        The outcome; None: the function waits, see `InnerCalls.waits`.
    """
    wait = child.run_coroutine if child else run_coroutine
    token = _run.set(run)
    try:
        with _left_if_waiting(run):
            run.ended = _run_plain(run, wait) if run.is_plain else run.with_usage(_run_with_policy(run, wait))
        return run.ended
    finally:
        _run.reset(token)


async def arun_function(run: FunctionExecution) -> Ended | None:
    """Run a function in this task; a plain one runs in a thread, unless its policy says that it does not block."""
    if run.function.takes_thread:  # all of it in the thread, since a future cannot hold a StopIteration
        return await _run_in_thread(run)
    token = _run.set(run)
    try:
        with _left_if_waiting(run):
            run.ended = await _arun_plain(run) if run.is_plain else run.with_usage(await _arun_with_policy(run))
        return run.ended
    finally:
        _run.reset(token)


@contextmanager
def _left_if_waiting(run: FunctionExecution) -> Iterator[None]:
    """Drop the outcome of a function that waits, however it has taken the `Aborted` by which it was left."""
    try:
        yield
    except (Aborted, BaseExceptionGroup):  # a group, of a function with tasks
        if not run.is_waiting or run.is_cancelled:
            raise
    if run.is_waiting:
        run.ended = None


def _run_plain(run: FunctionExecution, wait: Wait) -> Ended:
    """Run a function without retries, middleware or a pipeline."""
    try:
        value = run.invoke(run.effect.call)
        value = _wait_for(value, wait) if inspect.isawaitable(value) else value
    except BaseException as error:
        return _error_outcome(_as_failure(error, run), run)
    return _result_outcome(value, run)


async def _arun_plain(run: FunctionExecution) -> Ended:
    """Run a function as `_run_plain` does, under asyncio."""
    try:
        value = run.ainvoke(run.effect.call)
        if inspect.isawaitable(value):
            value = await _await_value(value)
    except asyncio.CancelledError as error:
        return _error_outcome(_cancellation_error(error), run)
    except Exception as error:
        return _error_outcome(error, run)
    return _result_outcome(value, run)


def _run_with_policy(run: FunctionExecution, wait: Wait) -> Ended:
    """Run a function with its retries, its middleware and the pipeline."""
    steps = _run_attempts(run)
    delay_s = next(steps)
    try:
        while True:
            if delay_s is not None:
                run.world.clock.sleep(delay_s)
                delay_s = steps.send(None)
                continue
            try:
                value = (
                    wait(_acall_through_middleware(run)) if run.function.is_awaited else _call_through_middleware(run)
                )
                if inspect.isawaitable(value):
                    value = _wait_for(value, wait)
            except BaseException as error:
                delay_s = steps.throw(_as_failure(error, run))
            else:
                delay_s = steps.send(value)
    except StopIteration as end:
        ended: Ended = end.value
    if run.world.results is None or not isinstance(ended, Returned):
        return ended
    try:
        return run.take_pipeline_result(ended, run.world.results.apply(run.effect.call, ended, run.messages, wait))
    except BaseException as error:
        return _preparation_failed(_as_failure(error, run), run)


async def _arun_with_policy(run: FunctionExecution) -> Ended:
    """Run a function as `_run_with_policy` does, under asyncio."""
    steps = _run_attempts(run)
    delay_s = next(steps)
    try:
        while True:
            if delay_s is not None:
                await run.world.clock.asleep(delay_s)
                delay_s = steps.send(None)
                continue
            try:
                value = await _acall_through_middleware(run)
            except asyncio.CancelledError as error:
                delay_s = steps.throw(_cancellation_error(error))
            except Exception as error:
                delay_s = steps.throw(error)
            else:
                delay_s = steps.send(value)
    except StopIteration as end:
        ended: Ended = end.value
    if run.world.results is None or not isinstance(ended, Returned):
        return ended
    try:
        return run.take_pipeline_result(ended, await run.world.results.aapply(run.effect.call, ended, run.messages))
    except asyncio.CancelledError as error:
        return _preparation_failed(_cancellation_error(error), run)
    except Exception as error:
        return _preparation_failed(error, run)


async def _run_in_thread(run: FunctionExecution) -> Ended | None:
    child: ThreadTask[Ended | None] = ThreadTask(partial(run_function, run))
    try:
        return await asyncio.wrap_future(child.start().future)
    except asyncio.CancelledError:
        child.cancel()  # the thread cannot be ended, but its waits can
        raise


def _run_attempts(run: FunctionExecution) -> Generator[float | None, Any, Ended]:
    """Make the attempts of a run, without its calls and waits; return the outcome.

    Yields None for a call of the function: its result is sent in, or its exception is thrown in.  Yields the seconds to
    wait before the next attempt.
    """
    function = run.function
    retries = function.retries or (_RETRIES if function.on_error == "retry" else _NO_RETRIES)
    while True:
        try:
            value = yield None
        except Exception as error:
            if _is_worth_it(error, retries, run):
                _log_raised(error, run)
                error.__traceback__ = None  # an exception object that is raised in each attempt would collect them all
                yield waits.delay_s(waits.BetweenRuns(retries, run.world.random), run.attempt, error)
                if not run.is_cancelled:
                    run.attempt += 1
                    continue
            return _error_outcome(error, run)
        return _result_outcome(value, run)


def _is_worth_it(error: Exception, retries: Retries, run: FunctionExecution) -> bool:
    """Return whether to run the function again."""
    if isinstance(error, Retry) or run.attempt >= retries.attempts:
        return False
    return (retries.retry_if is None or retries.retry_if(error)) and not run.is_cancelled


def _call_through_middleware(run: FunctionExecution) -> Any:
    """Call the function through its middleware, all of it plain; return the result."""

    def innermost(call: FunctionCall) -> Any:
        return run.invoke(call, run.context())

    step: Callable[[FunctionCall], Any] = innermost
    for use in reversed(run.function.middleware):
        step = partial(_call_middleware, use, step)
    return step(run.effect.call)


def _call_middleware(use: Callable[..., Any], following: Callable[[FunctionCall], Any], call: FunctionCall) -> Any:
    return use(call, following)


async def _acall_through_middleware(run: FunctionExecution) -> Any:
    """Call the function through its middleware, some of it async; return the result."""
    function = run.function

    async def innermost(call: FunctionCall) -> Any:
        if function.blocking and function.acall is None and not function.is_async:
            work = partial(run.invoke, call, run.context())
            value = (await asyncio.wrap_future(ThreadTask(lambda _: settle(work)).start().future))()
        else:
            value = run.ainvoke(call, run.context())
        return await _await_value(value) if inspect.isawaitable(value) else value

    step: Callable[[FunctionCall], Awaitable[Any]] = innermost
    for use in reversed(function.middleware):
        step = partial(_acall_middleware, getattr(use, "acall", use), step)
    return await step(run.effect.call)


async def _acall_middleware(
    use: Callable[..., Any], following: Callable[[FunctionCall], Any], call: FunctionCall
) -> Any:
    value = use(call, following)
    return await value if inspect.isawaitable(value) else value


def _wait_for(value: Awaitable[Any], wait: Wait) -> Any:
    """Wait for an awaitable; return its result.  A coroutine that never started is closed, so that it does not warn."""
    try:
        return wait(_await_value(value))
    finally:
        if inspect.iscoroutine(value):
            value.close()


async def _await_value(value: Awaitable[Any]) -> Any:
    """Await a value; a cancellation that does not come from this task is an error of the function."""
    try:
        return await value
    except SystemExit as error:
        _raise_exit(error)
    except asyncio.CancelledError as error:
        raise _cancellation_error(error) from error


def _raise_exit(error: SystemExit) -> NoReturn:
    """Raise the error of a function that would exit; in the main thread, where handlers of signals run, as it is."""
    if threading.current_thread() is threading.main_thread():
        raise error
    raise RuntimeError(f"the function called sys.exit({error.code!r:.200})") from error


def _cancellation_error(error: asyncio.CancelledError) -> Exception:
    """Return the error for a cancellation inside of the function; raise a cancellation of this task."""
    if (task := asyncio.current_task()) and task.cancelling():
        raise error
    return RuntimeError("what the function waited for was cancelled")


def _as_failure(error: BaseException, run: FunctionExecution) -> Exception:
    """Return an exception as a failure of the function; raise one that the driver has to handle."""
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError) and not run.is_cancelled:  # of something that the function awaited
        return RuntimeError("what the function waited for was cancelled")
    raise error


def _result_outcome(value: Any, run: FunctionExecution) -> Ended:
    if run.is_plain and run.function.format is None and (type(value) is str or type(value) is int):
        return Returned(text=result_text(value), **run.times())
    try:
        text, attachments = _content(value, run)
    except Exception as error:
        return _preparation_failed(error, run)
    return Returned(
        text=text,
        attachments=attachments,
        is_cached=run.is_cached,
        releases=run.releases,
        **run.times(),
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


def _error_outcome(error: Exception, run: FunctionExecution) -> Ended:
    """Return the outcome for an exception; by default the model is shown its type and text, not its traceback."""
    run.check()
    if isinstance(error, Retry):
        return _error_result(error_text(error), run)
    _log_raised(error, run)
    text = typed_error_text(error)
    if run.has_listener:
        run.traceback = traceback_text(error)
    match run.function.on_error:
        case "fail":
            run.raised = error
            return FunctionFailed(text=text, **run.times())
        case Default(value):
            return _result_outcome(value, run)
    return _error_result(text, run)


def _preparation_failed(error: Exception, run: FunctionExecution) -> Ended:
    """Return the outcome of a function that has run, but whose format or result pipeline failed.

    The model sees neither the result, which they may have to redact, nor the exception's text, which may quote it.
    """
    run.check()
    log_error(logging.WARNING, f"{_log_subject(run)}: its result could not be prepared", error)
    if run.has_listener:
        run.traceback = traceback_text(error)
    if run.function.on_error == "fail":
        run.raised = error
    return run.preparation_failure(error)


def _log_raised(error: Exception, run: FunctionExecution) -> None:
    attempt = f" at attempt {run.attempt}" if run.attempt > 1 else ""
    log_error(logging.WARNING, f"{_log_subject(run)} raised {type(error).__name__}{attempt}", error)


def _log_subject(run: FunctionExecution) -> str:
    """Return the beginning of a log line about a run."""
    return f"call {words(run.agent_call_id, 100)}: function {run.function.name!r} ({run.effect.key})"


def _error_result(text: str, run: FunctionExecution) -> Returned:
    return Returned(text=text, is_error=True, releases=run.releases, **run.times())


def timeout_outcome(run: FunctionExecution) -> Ended:
    """Return the outcome of a function that exceeded its timeout."""
    LOG.warning("%s did not return within %g s", _log_subject(run), run.function.timeout_s)
    text = f"TimeoutError: {run.function.name} did not return within {run.function.timeout_s:g} s"
    return run.with_usage(_error_result(text, run))
