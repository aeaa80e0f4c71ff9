"""Runs a function according to its policy.

The model sees an exception that the function raises, unless `Function.on_error` says otherwise.  `KeyboardInterrupt`
and similar exceptions reach the driver.  `SystemExit` does so only from the main thread, where a signal handler may
have raised it.  Once the run has been cancelled, an exception does not count as an outcome, because a stopped driver
would keep it instead of running the function again.

A ``once`` function that another driver has started is not run again.  It is in doubt, and `fsm_agent.call.requests`
asks for its result.  `fsm_agent.runtime.drive_loop` ends a function that exceeds its ``timeout_s``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count, pairwise
from types import CoroutineType
from typing import Any, TypeAlias

from fsm_agent.call.effects import Reconcile, RunFunction
from fsm_agent.call.limits import Limits, with_limits_left
from fsm_agent.call.outcomes import FunctionFailed, Interrupted, Returned
from fsm_agent.call.process import SEPARATOR, EffectValue, InsideWait, Process, open_effects, wakes_at_s
from fsm_agent.call.record import CallRecord
from fsm_agent.call.triggers import error_text, typed_error_text, unprepared
from fsm_agent.errors import Retry
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import ATTACHED, Function, result_text
from fsm_agent.functions.policy import Default, Retries
from fsm_agent.messages.events import Event, FunctionEnded, FunctionProgress, FunctionStarted
from fsm_agent.messages.message import Attachment, FunctionCall, Payload, Text
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.runtime.activity import UserCodeActivity, activity_of, raise_own_cancellation
from fsm_agent.runtime.environment import Environment, PostedOutcome, Recorder
from fsm_agent.runtime.log import LOG, log_error, traceback_text, words
from fsm_agent.runtime.portal import Aborted, Place, in_thread
from fsm_agent.runtime.retry_delay import doubled_s
from fsm_agent.validation import invalid


def is_in_doubt(process: Process) -> bool:
    """Return whether the outcome of some function is unknown, in a process without a driver or in one nested in it."""
    return any(effect.prefix == Reconcile.prefix for effect in open_effects(process))


class InnerCalls:
    """Keeps track of the agents and flows that a function calls during one run, in all its attempts.

    ``key`` identifies the function call and stays the same after a resume.  ``asks_for_them`` is True if the outer run
    asks the questions of the inner runs.

    Attributes:
        posts: The answers to the inner runs' questions, by the keys that the questions have in the outer run.
        used_posts: The ids of the answers that the inner runs were given.
        waits: What the inner runs wait for.  As long as they wait, nothing that the function returns or raises counts
            as an outcome.
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
        self.used_posts: set[int] = set()
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
        """The tokens used by the calls so far, including unfinished and failed ones."""
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
        """Return the record for a new inner process, with its depth and the remaining limits."""
        outer = self._outer.record
        limits = outer.limits if isinstance(outer, CallRecord) else outer.budget_left or Limits()
        if record.depth < self.depth:  # it was made in a thread that the function started
            record = record.changed(depth=self.depth)
        record = with_limits_left(record, limits, outer.total_usage + self.usage)
        until_s = getattr(outer, "deadline_s", None)
        if until_s is None or not isinstance(record, CallRecord):  # a flow inside ends with its function
            return record
        left_s, own_s = max(0.0, until_s - self.environment.clock.now()), record.limits.deadline_s
        is_shorter = own_s is None or left_s < own_s
        return record.changed(limits=record.limits.changed(deadline_s=left_s)) if is_shorter else record

    def posts_for(self, run: str) -> list[PostedOutcome]:
        """Return the unused answers to an inner run's questions, under the keys that the inner run uses."""
        prefix = self.place_of(run)
        own = [post for post in self.posts if post.key.startswith(prefix) and post.id not in self.used_posts]
        self.used_posts.update([post.id for post in own])
        return [post.changed(key=post.key.removeprefix(prefix)) for post in own]

    def wait_for(self, process: Process, run: str) -> None:
        """Make the function wait for everything that an inner process waits for."""
        prefix = self.place_of(run)
        effects: list[EffectValue] = [effect.changed(key=f"{prefix}{effect.key}") for effect in open_effects(process)]
        self.waits.append(InsideWait(run, tuple(effects), wakes_at_s(process)))

    def place_of(self, run: str) -> str:
        """Return the prefix that an inner run's keys have in the outer run.

        In a name that the caller gave, "%" and "/" are escaped.
        """
        number = run.removeprefix(f"{self.key}{SEPARATOR}")
        return f"{number.replace('%', '%25').replace(SEPARATOR, '%2F')}{SEPARATOR}"

    def check(self) -> None:
        if self.is_left:
            raise Aborted


_PROGRAM_DEPTH: ContextVar[int] = ContextVar("fsm_agent_program_depth", default=0)


def current_run() -> FunctionActivity | None:
    """Return the function run that the running code belongs to, or None outside functions."""
    return _run.get()


def current_depth() -> int:
    """Return how many agent calls the running code is nested in."""
    run = _run.get()
    return max(run.process.record.depth + 1 if run else 0, _PROGRAM_DEPTH.get())


@contextmanager
def program_of(context: Context[Any]) -> Iterator[None]:
    """Run a program that answers in place of a model.  Agent calls that it makes are one level deeper."""
    token = _PROGRAM_DEPTH.set(context.depth + 1)
    try:
        yield
    finally:
        _PROGRAM_DEPTH.reset(token)


Ended: TypeAlias = Returned | FunctionFailed
_RETRIES, _NO_RETRIES = Retries(), Retries(attempts=1)


@activity_of(RunFunction)
class FunctionActivity(UserCodeActivity):
    """Runs a function, with its retries.

    Attributes:
        attempt: The number of the attempt, from 1.
        inner: The agent calls that the function makes, or None if it takes no `Context`.
        returned: The result before the pipeline changed it.
        traceback: The traceback of the function's exception, as text, if there is a listener.
    """

    function: Function
    attempt = 1
    inner: InnerCalls | None = None
    ended: Ended | None
    returned: str | None = None
    traceback = ""
    is_cached = False
    _changes: tuple[Event, ...] = ()  # the events of the pipeline
    _releases: tuple[int, ...] = ()

    def prepare(self) -> bool:
        function = self.function = self.effect.function
        self.timeout_s = function.timeout_s
        self.may_run_inline = not (function.takes_context or self.effect.is_once)
        self.is_quick = not (function.blocking or function.is_awaited) and function.is_plain
        takes_thread = not function.is_awaited if self.driver.is_sync else function.takes_thread
        self.place = Place.THREAD if takes_thread else Place.LOOP
        # Another driver, now gone, started this function.  It may have run, so it is in doubt and not run here.
        self.is_instant = self.effect.is_once and self.key not in self.driver.begun
        return function.call is not None

    def announcement(self) -> Sequence[Event]:
        call = self.effect.call
        return (FunctionStarted(call.id, call.name, call.arguments_json),)

    def at_once(self) -> Interrupted:
        return Interrupted(at_s=self.environment.clock.now())

    def begin(self) -> None:
        self.since_s, self._started_at_s = time.monotonic(), self.environment.clock.now()
        # No policy and no pipeline apply.
        self._is_plain = self.function.is_plain and self.environment.results is None
        if not self.function.takes_context:
            return
        r, recorder = self.process.record, self.driver.recorder
        asks_for_them = recorder is not None and not self.effect.is_once
        key = f"{r.id}/{self.effect.call.id}"
        self.inner = InnerCalls(self.process, key, r.depth + 1, self.environment, recorder, asks_for_them)
        if (posts := self.driver.posts_inside) is not None:
            at = len(self.key) + len(SEPARATOR)
            self.inner.posts = [post.changed(key=post.key[at:]) for post in posts.of(self.key)]

    async def perform(self) -> Ended | Interrupted | None:
        """Run the function.  Return its outcome, or None if it waits and will be run again; see `InnerCalls.waits`."""
        token, inner = _run.set(self), self.inner
        try:
            self.ended = await self._run_to_end()
        except (Aborted, BaseExceptionGroup):  # a function with a task group raises `Aborted` in a group
            if inner is None or not inner.waits or self.is_cancelled:
                raise
        finally:
            _run.reset(token)
        if inner is None or not inner.waits:
            return self.ended
        self.ended = None  # even if the function caught `Aborted`
        # A function that must not run twice is in doubt, because it is unknown what it did before it waited.
        return Interrupted(at_s=self.environment.clock.now()) if self.effect.is_once else None

    async def _run_to_end(self) -> Ended:
        place = self.place
        while True:
            value: Any = await in_thread(self._attempt) if place is Place.THREAD else self._attempt()
            ended: Ended | float = await place.wait_for(value) if isinstance(value, CoroutineType) else value
            if not isinstance(ended, float):
                break
            await place.wait_for(self.environment.clock.asleep(ended))
            self.stop_if_cancelled()
            self.attempt += 1
        pipeline = self.environment.results
        if pipeline is None or not isinstance(ended, Returned):
            return ended
        beside = Place.HERE if place is Place.HERE else Place.THREAD  # steps of the pipeline may block
        try:
            piped = await pipeline.aapply(self.effect.call, ended, self.process.record.dialog, beside)
        except asyncio.CancelledError as error:
            raise_own_cancellation(error)
            return self._with_usage(self._preparation_failed(_cancellation_error(error)))
        except Exception as error:
            return self._with_usage(self._preparation_failed(error))
        self.returned, self._changes = ended.text, piped.events
        return self._with_usage(piped.outcome)

    # One attempt

    def _attempt(self) -> Ended | float | Coroutine[Any, Any, Ended | float]:
        """Call the function with its middleware.

        Return the outcome, the seconds until the next attempt, or a coroutine that awaits the function and returns
        these.
        """
        call = self.effect.call
        try:
            if self.place is Place.LOOP:
                value = self.ainvoke(call) if self._is_plain else self._acall_through_middleware(call)
            else:
                value = self.invoke(call) if self._is_plain else self._call_through_middleware(call)
        except asyncio.CancelledError as error:  # from an event loop that the function runs
            return self._after_error(_cancellation_error(error))
        except Exception as error:
            return self._after_error(error)
        return self._awaited(value) if inspect.isawaitable(value) else self._kept(self._result_outcome(value))

    async def _awaited(self, pending: Awaitable[Any]) -> Ended | float:
        try:
            value = await _value_of(pending)
        except Exception as error:
            return self._after_error(error)
        return self._kept(self._result_outcome(value))

    def invoke(self, call: FunctionCall, context: Context[Any] | None = None) -> Any:
        """Call the function.  A coroutine function returns its coroutine."""
        try:
            return self.function.run(call.arguments_json, context)
        except SystemExit as error:
            raise _exit_error(error) from error

    def ainvoke(self, call: FunctionCall, context: Context[Any] | None = None) -> Any:
        """Call the function's async version, or the function itself if it has none.  The result may be awaitable."""
        try:
            return self.function.arun(call.arguments_json, context)
        except SystemExit as error:
            raise _exit_error(error) from error

    def _call_through_middleware(self, call: FunctionCall) -> Any:
        def innermost(call: FunctionCall) -> Any:
            return self.invoke(call, self._context())

        step: Callable[[FunctionCall], Any] = innermost
        for use in reversed(self.function.middleware):
            step = partial(_call_middleware, use, step)
        return step(call)

    async def _acall_through_middleware(self, call: FunctionCall) -> Any:
        """Call the function through middleware, some of which may be async."""
        function = self.function

        async def innermost(call: FunctionCall) -> Any:
            if function.blocking and function.acall is None and not function.is_async:
                return await _value_of(await in_thread(partial(self.invoke, call, self._context())))
            return await _value_of(self.ainvoke(call, self._context()))

        step: Callable[[FunctionCall], Awaitable[Any]] = innermost
        for use in reversed(function.middleware):
            step = partial(_acall_middleware, getattr(use, "acall", use), step)
        return await step(call)

    def _context(self) -> Context[Any] | None:
        """Return the `Context` for the function, or None if it takes none."""
        if not self.function.takes_context:
            return None
        r = self.process.record
        return Context(
            deps=self.process.deps,
            function_call=self.effect.call,
            agent_call_id=r.id,
            depth=r.depth,
            attempt=self.attempt,
            emit=self._emit,
            is_cancelled=lambda: self.is_cancelled,
            release=self._release,
            around=self.inner,
        )

    def _emit(self, data: Any) -> None:
        call = self.effect.call
        self.driver.report(self.key, FunctionProgress(call.id, call.name, data))

    def _release(self, rounds: Iterable[int]) -> None:
        released, newest = tuple(rounds), self.process.record.rounds + 1
        if wrong := [n for n in released if not 1 <= n <= newest]:
            raise invalid("the round to release", wrong[0], f"1 to {newest}, the present round")
        self._releases = (*self._releases, *released)

    # Its outcome

    def _result_outcome(self, value: Any) -> Ended:
        if self._is_plain and self.function.format is None and (type(value) is str or type(value) is int):
            return self._returned(result_text(value))
        try:
            text, attachments = self._content(value)
        except Exception as error:
            return self._preparation_failed(error)
        return self._returned(text, attachments=attachments, is_cached=self.is_cached, releases=self._releases)

    def _returned(self, text: str, **more: Any) -> Returned:
        now = self.environment.clock.now()
        return Returned(text=text, at_s=now, duration_s=max(0.0, now - self._started_at_s), **more)

    def _error_result(self, text: str) -> Returned:
        return self._returned(text, is_error=True, releases=self._releases)

    def _failed(self, text: str) -> FunctionFailed:
        now = self.environment.clock.now()
        return FunctionFailed(text=text, at_s=now, duration_s=max(0.0, now - self._started_at_s))

    def _content(self, value: Any) -> tuple[str, tuple[Attachment, ...]]:
        is_payload = isinstance(value, Payload)
        parts: Sequence[Any]
        if is_payload:
            parts = [part.text if isinstance(part, Text) else part for part in value.parts]
        else:
            parts = value if isinstance(value, (list, tuple)) else (value,)
        files = [part for part in parts if isinstance(part, Attachment)]
        if self.function.format is None and (files or is_payload):
            return self._in_order(parts)
        text = self._text_of(value, files)
        return text, tuple(files)

    def _in_order(self, parts: Sequence[Any]) -> tuple[str, tuple[Attachment, ...]]:
        """Return the text and the files in a list.  If text follows a file, it also says where each file stood."""
        is_mixed = any(isinstance(a, Attachment) and not isinstance(b, Attachment) for a, b in pairwise(parts))
        files, lines = list[Attachment](), list[str]()
        for part in parts:
            if not isinstance(part, Attachment):
                lines.append(self._text_of(part, files))
                continue
            files.append(part)
            if is_mixed:
                lines.append(ATTACHED.format(len(files)))
        return "\n".join(lines), tuple(files)

    def _text_of(self, value: Any, files: list[Attachment]) -> str:
        """Return a value as text for the model, and add the images and documents inside it to ``files``."""
        if self.function.format is not None:
            return self.function.format_result(value, self.effect.call)
        unknown: set[str] = set()
        text = result_text(value, unknown, files)
        if unknown:
            LOG.warning(
                "%s returned %s, which JSON cannot express: the model sees its str(); return text, or pass format=…",
                self._log_subject(),
                words(", ".join(sorted(unknown))),
            )
        return text

    def _after_error(self, error: Exception) -> Ended | float:
        """Return the outcome of a failed attempt, or the seconds until the next attempt."""
        function = self.function
        retries = function.retries or (_RETRIES if function.on_error == "retry" else _NO_RETRIES)
        if not self._is_worth_it(error, retries):
            return self._kept(self._error_outcome(error))
        self._log_raised(error)
        error.__traceback__ = None  # an exception object that is raised again would collect the frames of all attempts
        jitter = 1 - retries.jitter * self.environment.random()
        return doubled_s(retries.delay_s, retries.max_delay_s, self.attempt) * jitter

    def _is_worth_it(self, error: Exception, retries: Retries) -> bool:
        if isinstance(error, Retry) or self.attempt >= retries.attempts:
            return False
        return (retries.retry_if is None or retries.retry_if(error)) and not self.is_cancelled

    def _error_outcome(self, error: Exception) -> Ended:
        """Return the outcome for an exception.  By default, the model sees its type and text, but no traceback."""
        self.stop_if_cancelled()
        if isinstance(error, Retry):
            return self._error_result(error_text(error))
        self._log_raised(error)
        text = typed_error_text(error)
        if self.driver.has_listener:
            self.traceback = traceback_text(error)
        match self.function.on_error:
            case "fail":
                self.raised = error
                return self._failed(text)
            case Default(value):
                return self._result_outcome(value)
        return self._error_result(text)

    def _preparation_failed(self, error: Exception) -> Ended:
        """Return the outcome of a function that has run, but whose result could not be formatted or processed.

        The model sees neither the result, which these steps may have to redact, nor the exception's text, which may
        quote it.
        """
        self.stop_if_cancelled()
        log_error(logging.WARNING, f"{self._log_subject()}: its result could not be prepared", error)
        if self.driver.has_listener:
            self.traceback = traceback_text(error)
        if self.function.on_error == "fail":
            self.raised = error
        return self.preparation_failure(error)

    def preparation_failure(self, error: Exception) -> Ended:
        if self.function.on_error == "fail":
            return self._failed(unprepared(error))
        return self._error_result(
            f"The function {self.function.name} was run, but {unprepared(error)}. Go on without it."
        )

    def _kept(self, ended: Ended) -> Ended:
        """Record a final outcome at once, so that it is kept even if the driver is stopped now."""
        if self.inner is not None:
            ended = self._with_usage(ended)
            if self.inner.waits:  # it will be run again
                return ended
        if self.environment.results is None or not isinstance(ended, Returned):
            self.ended = ended
        return ended

    def _with_usage(self, ended: Ended) -> Ended:
        """Return an outcome that includes the tokens used by the inner calls."""
        usage = UNUSED if self.inner is None else self.inner.usage
        return ended if usage == UNUSED else ended.changed(usage=usage)

    def _log_raised(self, error: Exception) -> None:
        attempt = f" at attempt {self.attempt}" if self.attempt > 1 else ""
        log_error(logging.WARNING, f"{self._log_subject()} raised {type(error).__name__}{attempt}", error)

    def _log_subject(self) -> str:
        return f"call {words(self.process.record.id, 100)}: function {self.function.name!r} ({self.effect.key})"

    # For the driver

    def finish(self, outcome: Any) -> Sequence[Event]:
        if self.is_instant:
            return self.driver.step(self.key, outcome)
        if (posts := self.driver.posts_inside) is not None:
            posts.remove(posts.of(self.key))
        if type(outcome) is FunctionFailed:  # before the step: `CallFailed` needs its cause
            self.process.problem, self.raised = self.raised, None
        steps = self.driver.step(self.key, outcome)
        if not self.driver.has_listener:
            return steps
        call, text = self.effect.call, outcome.text if self.returned is None else self.returned
        is_error = not isinstance(outcome, Returned) or outcome.is_error
        duration_s = outcome.at_s - self._started_at_s
        ended = FunctionEnded(call.id, call.name, text, is_error, duration_s, self.traceback)
        return (*self.wrap_events((ended, *self._changes)), *steps)

    def leave_open(self) -> bool:
        inner, driver, posts = self.inner, self.driver, self.driver.posts_inside
        assert inner is not None
        assert posts is not None
        driver.process.waits_inside[self.key] = tuple(
            [
                wait.changed(effects=tuple([e.changed(key=f"{self.key}{SEPARATOR}{e.key}") for e in wait.effects]))
                for wait in inner.waits
            ]
        )
        posts.remove([post for post in posts.of(self.key) if post.id in inner.used_posts])
        waiting = tuple([f"{self.key}{SEPARATOR}{inner.place_of(wait.run)}" for wait in inner.waits])
        return any(post.key.startswith(waiting) for post in posts.of(self.key))  # they came while the function ran

    def timeout_outcome(self) -> Ended:
        LOG.warning("%s did not return within %g s", self._log_subject(), self.function.timeout_s)
        text = f"TimeoutError: {self.function.name} did not return within {self.function.timeout_s:g} s"
        return self._with_usage(self._error_result(text))

    def abandon(self) -> None:
        recorder = self.driver.recorder
        if self.effect.is_once and recorder is not None and recorder.lost is not None and self.handle is not None:
            self.is_dropped = True  # it continues, and its outcome is posted to the new holder of the run
            recorder.report_later(self.key, self.handle)
            return
        self.is_cancelled = True  # before the inner calls end, which the function may report as an error
        if self.inner is not None:
            self.inner.is_over = self._is_over()
            self.inner.is_left = True
        super().abandon()

    def _is_over(self) -> bool:
        """Return whether the function will not be run again, because its call has an outcome or will soon have one."""
        if self.timeout_s is not None and time.monotonic() >= self.since_s + self.timeout_s:
            return True
        return all(effect.key != self.key for effect in self.driver.process.effects)


_run: ContextVar[FunctionActivity | None] = ContextVar("fsm_agent_run", default=None)


def _call_middleware(use: Callable[..., Any], following: Callable[[FunctionCall], Any], call: FunctionCall) -> Any:
    return use(call, following)


async def _acall_middleware(
    use: Callable[..., Any], following: Callable[[FunctionCall], Any], call: FunctionCall
) -> Any:
    value = use(call, following)
    return await value if inspect.isawaitable(value) else value


async def _value_of(value: Any) -> Any:
    """Return a value, after awaiting it if needed.  A cancellation from elsewhere becomes the function's error."""
    try:
        return await value if inspect.isawaitable(value) else value
    except SystemExit as error:
        raise _exit_error(error) from error
    except asyncio.CancelledError as error:
        raise_own_cancellation(error)
        raise _cancellation_error(error) from error


def _exit_error(error: SystemExit) -> Exception:
    """Raise the `SystemExit` in the main thread, where signal handlers run, or return an error for other threads."""
    if threading.current_thread() is threading.main_thread():
        raise error
    failure = RuntimeError(f"the function called sys.exit({error.code!r:.200})")
    failure.__cause__ = error
    return failure


def _cancellation_error(error: asyncio.CancelledError) -> Exception:
    failure = RuntimeError("something that the function awaited was cancelled")
    failure.__cause__ = error
    return failure
