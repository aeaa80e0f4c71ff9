"""Run one function according to its policy.

The model sees an exception from the function unless `Function.on_error` says otherwise.  `KeyboardInterrupt` and
similar exceptions reach the driver.  `SystemExit` does so only from the main thread, where a signal handler may have
raised it.  After the run was cancelled, an exception is not an outcome, because a stopped driver would keep it instead
of running the function again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from itertools import count
from types import CoroutineType
from typing import Any, NoReturn, TypeAlias, TypedDict

from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import Reconcile, RunFunction
from fsm_agent.call.interpret import error_text, typed_error_text, unprepared
from fsm_agent.call.outcomes import FunctionFailed, Returned
from fsm_agent.call.process import SEPARATOR, EffectValue, InsideWait, Process, open_effects, wakes_at_s
from fsm_agent.call.record import CallRecord, Limits
from fsm_agent.call.spending import has_budget, with_limits_left
from fsm_agent.errors import Retry
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function, result_text
from fsm_agent.functions.policy import Default, Retries
from fsm_agent.messages.events import Event, FunctionProgress
from fsm_agent.messages.message import Attachment, FunctionCall, Message, Text
from fsm_agent.messages.payload import Payload
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.runtime.environment import Environment, PostedOutcome, Recorder
from fsm_agent.runtime.log import LOG, log_error, traceback_text, words
from fsm_agent.runtime.portal import Aborted, Place, in_thread
from fsm_agent.runtime.retry_delay import doubled_s
from fsm_agent.validation import invalid


def is_in_doubt(process: Process) -> bool:
    """Return whether the outcome of a function is unknown, in a process at rest or in a nested process."""
    return any(effect.prefix == Reconcile.prefix for effect in open_effects(process))


class InnerCalls:
    """The agents and flows that one run of a function calls, over all of its attempts.

    ``key`` identifies the function call and stays the same after a resume.  ``asks_for_them`` is True if the outer run
    asks the questions of the inner runs.

    Attributes:
        posts: The answers to questions of the inner runs, by the keys of the questions in the outer run.
        used_posts: The answers that have been taken.
        waits: What the inner runs wait for.  Until they have it, nothing that the function returns or raises counts as
            an outcome.
        is_left: True if the driver no longer waits for the function.
        is_over: True if the function will not be run again.
    """

    def __init__(
        self,
        outer: Any,
        key: str,
        depth: int,
        environment: Environment,
        recorder: Recorder | None,
        asks_for_them: bool = False,
    ) -> None:
        self.key = key
        self.depth = depth
        self.asks_for_them = asks_for_them
        self.posts: list[PostedOutcome] = []
        self.used_posts: list[PostedOutcome] = []
        self.waits: list[InsideWait] = []
        self.environment = environment
        self.recorder = recorder
        self.is_left = False
        self.is_over = False
        self._outer = outer
        self._numbers = count(1)
        self._processes: list[Process] = []

    @property
    def usage(self) -> Usage:
        """The tokens of the calls so far, including unfinished and failed calls."""
        return sum([process.record.total_usage for process in self._processes], UNUSED)

    @property
    def has_approver(self) -> bool:
        """True if the outer call has an approver."""
        return self.environment.approve is not None or bool(getattr(self._outer, "has_approver", False))

    @property
    def may_rest(self) -> bool:
        """True if a stopped inner call is continued when the function is run again."""
        return self.is_left and not self.is_over

    def next_name(self) -> str:
        """Return the name of the next inner run, which stays the same when the function is run again."""
        return f"{self.key}/{next(self._numbers)}"

    def add(self, process: Process) -> None:
        self._processes.append(process)

    def inner_record(self, record: Any) -> Any:
        """Return the record of a new inner process, with its depth and the remaining limits."""
        outer = self._outer.record
        limits = outer.limits if isinstance(outer, CallRecord) else outer.budget_left or Limits()
        if record.depth < self.depth:  # it was made in a thread that the function started
            record = record.changed(depth=self.depth)
        if has_budget(limits):
            record = with_limits_left(record, limits, outer.total_usage + self.usage)
        until_s = getattr(outer, "deadline_s", None)
        if until_s is None or not isinstance(record, CallRecord):  # a flow inside ends with its function
            return record
        left_s, own_s = max(0.0, until_s - self.environment.clock.now()), record.limits.deadline_s
        is_shorter = own_s is None or left_s < own_s
        return record.changed(limits=record.limits.changed(deadline_s=left_s)) if is_shorter else record

    def posts_for(self, run: str) -> list[PostedOutcome]:
        """Return the answers to questions of an inner run, with the keys that the run knows."""
        prefix = self._place_of(run)
        own = [post for post in self.posts if post.key.startswith(prefix) and post not in self.used_posts]
        self.used_posts += own
        return [post.changed(key=post.key.removeprefix(prefix)) for post in own]

    def wait_for(self, process: Process, run: str) -> None:
        """Make the function wait for everything that an inner process waits for."""
        prefix = self._place_of(run)
        effects: list[EffectValue] = [effect.changed(key=f"{prefix}{effect.key}") for effect in open_effects(process)]
        self.waits.append(InsideWait(run, tuple(effects), wakes_at_s(process)))

    def _place_of(self, run: str) -> str:
        """Return the prefix of an inner run's keys here; "%" and "/" in a name given by the caller are escaped."""
        number = run.removeprefix(f"{self.key}{SEPARATOR}")
        return f"{number.replace('%', '%25').replace(SEPARATOR, '%2F')}{SEPARATOR}"

    def check(self) -> None:
        if self.is_left:
            raise Aborted


Tell: TypeAlias = Callable[[FunctionProgress], object]
Ended: TypeAlias = Returned | FunctionFailed
_RETRIES, _NO_RETRIES = Retries(), Retries(attempts=1)


class _Times(TypedDict):
    at_s: float
    duration_s: float


class FunctionExecution:
    """The execution of one function call, including retries.

    ``tell`` receives its events, from any thread.  Tracebacks are made only for a listener.

    Attributes:
        inner: The agent calls that the function makes, or None if the function takes no `Context`.
        raised: The exception that makes the agent call fail, until its driver takes it.
        traceback: The traceback of the function's exception, as text.
    """

    def __init__(
        self,
        effect: RunFunction,
        call: AgentCall,
        environment: Environment,
        tell: Tell | None = None,
        *,
        has_listener: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        self.effect = effect
        self.function: Function = effect.function
        self.environment = environment
        self.attempt = 1
        self.ended: Ended | None = None  # its outcome, as soon as there is one
        self.is_cached = False
        self.is_cancelled = False  # its outcome is no longer wanted
        self.has_listener = has_listener
        self.raised: Exception | None = None
        self.traceback = ""
        self.releases: tuple[int, ...] = ()
        self.returned: str | None = None  # the result before the pipeline
        self.changes: tuple[Event, ...] = ()  # the events of the pipeline
        self.is_plain = self.function.is_plain and environment.results is None  # no policy and no pipeline apply
        self.depth = call.record.depth + 1
        self.started_at_s = environment.clock.now()
        self._call = call
        self._tell = tell
        self.inner: InnerCalls | None = None
        if self.function.takes_context:
            key = f"{self.agent_call_id}/{effect.call.id}"
            asks_for_them = recorder is not None and not effect.is_once
            self.inner = InnerCalls(call, key, self.depth, environment, recorder, asks_for_them)

    def cancel(self, *, is_over: bool = True) -> None:
        """Mark the run as no longer wanted.  ``is_over`` means that the function will not be run again."""
        self.is_cancelled = True
        if self.inner is not None:
            self.inner.is_over = is_over
            self.inner.is_left = True

    @property
    def is_waiting(self) -> bool:
        """True if a run that the function has begun cannot continue now."""
        return self.inner is not None and bool(self.inner.waits)

    def check(self) -> None:
        # Its waits were interrupted, so an exception now says nothing about the function.
        if self.is_cancelled:
            raise Aborted

    def context(self) -> Context[Any] | None:
        """Return the `Context` for the function, or None if it takes none."""
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
        """Call the function.  A coroutine function returns its coroutine."""
        try:
            return self.function.run(call.arguments_json, context)
        except SystemExit as error:
            _raise_exit(error)

    def ainvoke(self, call: FunctionCall, context: Context[Any] | None = None) -> Any:
        """Call the function, in its async version if there is one.  The result may be awaitable."""
        try:
            return self.function.arun(call.arguments_json, context)
        except SystemExit as error:
            _raise_exit(error)

    def _emit(self, data: Any) -> None:
        if self._tell is not None:
            self._tell(FunctionProgress(self.effect.call.id, self.effect.call.name, data))

    def times(self) -> _Times:
        now = self.environment.clock.now()
        return _Times(at_s=now, duration_s=max(0.0, now - self.started_at_s))

    def preparation_failure(self, error: Exception) -> Ended:
        if self.function.on_error == "fail":
            return FunctionFailed(text=unprepared(error), **self.times())
        return _error_result(
            f"The function {self.function.name} was run, but {unprepared(error)}. Go on without it.", self
        )

    def with_usage(self, ended: Ended) -> Ended:
        """Return an outcome with the tokens of the inner calls."""
        usage = UNUSED if self.inner is None else self.inner.usage
        return ended if usage == UNUSED else ended.changed(usage=usage)

    @property
    def agent_call_id(self) -> str:
        return self._call.record.id

    @property
    def messages(self) -> Sequence[Message]:
        return self._call.record.dialog

    def _release(self, rounds: Iterable[int]) -> None:
        released, newest = tuple(rounds), self._call.record.rounds + 1
        if wrong := [n for n in released if not 1 <= n <= newest]:
            raise invalid("the round to release", wrong[0], f"1 to {newest}, the present round")
        self.releases = (*self.releases, *released)


_run: ContextVar[FunctionExecution | None] = ContextVar("fsm_agent_run", default=None)
_PROGRAM_DEPTH: ContextVar[int] = ContextVar("fsm_agent_program_depth", default=0)


def current_run() -> FunctionExecution | None:
    """Return the function execution around the running code, or None outside functions."""
    return _run.get()


def current_depth() -> int:
    """Return the number of agent calls around the running code."""
    run = _run.get()
    return max(run.depth if run else 0, _PROGRAM_DEPTH.get())


@contextmanager
def program_of(context: Context[Any]) -> Iterator[None]:
    """Run a program that answers in place of a model.  Agent calls inside it are one level deeper."""
    token = _PROGRAM_DEPTH.set(context.depth + 1)
    try:
        yield
    finally:
        _PROGRAM_DEPTH.reset(token)


async def run_function(run: FunctionExecution, place: Place) -> Ended | None:
    """Run a function according to its policy.  A plain function runs at ``place``.

    Return the outcome, or None if the function waits; see `InnerCalls.waits`.
    """
    token = _run.set(run)
    try:
        run.ended = await _ended(run, place)
    except (Aborted, BaseExceptionGroup):  # a function with a task group raises `Aborted` in a group
        if not run.is_waiting or run.is_cancelled:
            raise
    finally:
        _run.reset(token)
    if run.is_waiting:  # even if the function caught `Aborted`
        run.ended = None
    return run.ended


async def _ended(run: FunctionExecution, place: Place) -> Ended:
    while True:
        attempt = partial(_attempt, run, place)
        value: Any = await in_thread(attempt) if place is Place.THREAD else attempt()
        ended: Ended | float = await place.wait_for(value) if isinstance(value, CoroutineType) else value
        if not isinstance(ended, float):
            break
        await place.wait_for(run.environment.clock.asleep(ended))
        run.check()
        run.attempt += 1
    if run.environment.results is None or not isinstance(ended, Returned):
        return ended
    beside = Place.HERE if place is Place.HERE else Place.THREAD  # steps of the pipeline may block
    piping = run.environment.results.aapply(run.effect.call, ended, run.messages, beside)
    try:
        piped = await piping
    except asyncio.CancelledError as error:
        raise_own_cancellation(error)
        return run.with_usage(_preparation_failed(_cancellation_error(error), run))
    except Exception as error:
        return run.with_usage(_preparation_failed(error, run))
    run.returned, run.changes = ended.text, piped.events
    return run.with_usage(piped.outcome)


def _attempt(run: FunctionExecution, place: Place) -> Ended | float | Coroutine[Any, Any, Ended | float]:
    """Call the function with its middleware at ``place``.

    Return the outcome, the seconds until the next attempt, or a coroutine that awaits the function and returns these.
    """
    try:
        if place is Place.LOOP:
            value = run.ainvoke(run.effect.call) if run.is_plain else _acall_through_middleware(run)
        else:
            value = run.invoke(run.effect.call) if run.is_plain else _call_through_middleware(run)
    except asyncio.CancelledError as error:  # from an event loop that the function runs
        return _after_error(_cancellation_error(error), run)
    except Exception as error:
        return _after_error(error, run)
    return _awaited(value, run) if inspect.isawaitable(value) else _kept(_result_outcome(value, run), run)


async def _awaited(pending: Awaitable[Any], run: FunctionExecution) -> Ended | float:
    try:
        value = await _value_of(pending)
    except Exception as error:
        return _after_error(error, run)
    return _kept(_result_outcome(value, run), run)


def _after_error(error: Exception, run: FunctionExecution) -> Ended | float:
    """Return the outcome of a failed attempt, or the seconds until the next one."""
    function = run.function
    retries = function.retries or (_RETRIES if function.on_error == "retry" else _NO_RETRIES)
    if not _is_worth_it(error, retries, run):
        return _kept(_error_outcome(error, run), run)
    _log_raised(error, run)
    error.__traceback__ = None  # an exception object that is raised again would collect the frames of all attempts
    jitter = 1 - retries.jitter * run.environment.random()
    return doubled_s(retries.delay_s, retries.max_delay_s, run.attempt) * jitter


def _kept(ended: Ended, run: FunctionExecution) -> Ended:
    """Record a final outcome at once, so that a driver that is stopped now keeps it."""
    ended = run.with_usage(ended)
    if not run.is_waiting and (run.environment.results is None or not isinstance(ended, Returned)):
        run.ended = ended
    return ended


def _is_worth_it(error: Exception, retries: Retries, run: FunctionExecution) -> bool:
    if isinstance(error, Retry) or run.attempt >= retries.attempts:
        return False
    return (retries.retry_if is None or retries.retry_if(error)) and not run.is_cancelled


def _call_through_middleware(run: FunctionExecution) -> Any:
    def innermost(call: FunctionCall) -> Any:
        return run.invoke(call, run.context())

    step: Callable[[FunctionCall], Any] = innermost
    for use in reversed(run.function.middleware):
        step = partial(_call_middleware, use, step)
    return step(run.effect.call)


def _call_middleware(use: Callable[..., Any], following: Callable[[FunctionCall], Any], call: FunctionCall) -> Any:
    return use(call, following)


async def _acall_through_middleware(run: FunctionExecution) -> Any:
    """Call the function through middleware, some of which may be async."""
    function = run.function

    async def innermost(call: FunctionCall) -> Any:
        if function.blocking and function.acall is None and not function.is_async:
            return await _value_of(await in_thread(partial(run.invoke, call, run.context())))
        return await _value_of(run.ainvoke(call, run.context()))

    step: Callable[[FunctionCall], Awaitable[Any]] = innermost
    for use in reversed(function.middleware):
        step = partial(_acall_middleware, getattr(use, "acall", use), step)
    return await step(run.effect.call)


async def _acall_middleware(
    use: Callable[..., Any], following: Callable[[FunctionCall], Any], call: FunctionCall
) -> Any:
    value = use(call, following)
    return await value if inspect.isawaitable(value) else value


async def _value_of(value: Any) -> Any:
    """Return a value, awaited if needed; a cancellation from elsewhere becomes the function's error."""
    try:
        return await value if inspect.isawaitable(value) else value
    except SystemExit as error:
        _raise_exit(error)
    except asyncio.CancelledError as error:
        raise_own_cancellation(error)
        raise _cancellation_error(error) from error


def _raise_exit(error: SystemExit) -> NoReturn:
    """Raise the `SystemExit` in the main thread, where signal handlers run, and a `RuntimeError` in other threads."""
    if threading.current_thread() is threading.main_thread():
        raise error
    raise RuntimeError(f"the function called sys.exit({error.code!r:.200})") from error


def raise_own_cancellation(error: asyncio.CancelledError) -> None:
    """Raise the error if this task itself was cancelled, not only something that it awaited."""
    with suppress(RuntimeError):  # no loop runs here
        if (task := asyncio.current_task()) and task.cancelling():
            raise error


def _cancellation_error(error: asyncio.CancelledError) -> Exception:
    failure = RuntimeError("something that the function awaited was cancelled")
    failure.__cause__ = error
    return failure


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
    function, call = run.function, run.effect.call
    is_payload = isinstance(value, Payload)
    parts: Sequence[Any]
    if is_payload:
        parts = [part.text if isinstance(part, Text) else part for part in value.parts]
    else:
        parts = value if isinstance(value, (list, tuple)) else (value,)
    attachments = tuple([part for part in parts if isinstance(part, Attachment)])
    if function.format is not None or not (attachments or is_payload):
        return function.format_result(value, call), attachments
    words = [part for part in parts if not isinstance(part, Attachment)]
    return "\n".join([function.format_result(part, call) for part in words]), attachments


def _error_outcome(error: Exception, run: FunctionExecution) -> Ended:
    """Return the outcome for an exception; by default the model sees its type and text, but no traceback."""
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

    The model sees neither the result, which these steps may have to redact, nor the exception's text, which may quote
    it.
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
    return f"call {words(run.agent_call_id, 100)}: function {run.function.name!r} ({run.effect.key})"


def _error_result(text: str, run: FunctionExecution) -> Returned:
    return Returned(text=text, is_error=True, releases=run.releases, **run.times())


def timeout_outcome(run: FunctionExecution) -> Ended:
    """Return the outcome of a function that exceeded its timeout."""
    LOG.warning("%s did not return within %g s", _log_subject(run), run.function.timeout_s)
    text = f"TimeoutError: {run.function.name} did not return within {run.function.timeout_s:g} s"
    return run.with_usage(_error_result(text, run))
