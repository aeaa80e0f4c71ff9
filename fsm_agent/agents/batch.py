"""Runs many tasks with limited concurrency.

The results are in the order of the tasks.  A failed task does not affect the results of the others.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, overload

from fsm_agent._internal.structs import Out, is_whole
from fsm_agent.errors import UsageError
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.named_objects import needing
from fsm_agent.runtime import portal
from fsm_agent.runtime.portal import ThreadTask, abort_in_force
from fsm_agent.validation import require

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

Progress: TypeAlias = bool | Callable[[int, int | None], Any]  # called with (finished, total)
CONCURRENCY = 8  # how many tasks run at a time
LEAVE_S = 5.0  # how long an interrupted task may take to release its run


@dataclass(frozen=True)
class TaskResult(Generic[Out]):
    """The result of one of many tasks.

    Attributes:
        index: The number of the task, from 0.
        task: The task.
        output: The output, or None if the task failed.
        error: The error, or None if the task succeeded.
        result: The full result, or None.  A failed task may have one too.

    Examples:
        >>> item = Agent(Script("4")).map(["2 + 2?"])[0]
        >>> item.task, item.output, item.error
        ('2 + 2?', '4', None)
    """

    index: int
    task: Any
    output: Out | None = None
    error: Exception | None = None
    result: Any = None


class TaskResults(Sequence[TaskResult[Out]]):
    """The results of many tasks, in the order of the tasks.

    Args:
        items: The results, one for each task that was started.

    Examples:
        >>> results = Agent(Script(by={"2 + 2": "4", "3 + 3": "6"})).map(["2 + 2?", "3 + 3?"])
        >>> results.outputs
        ['4', '6']
    """

    def __init__(self, items: Iterable[TaskResult[Out]]) -> None:
        self._items = tuple(items)

    @property
    def outputs(self) -> list[Out]:
        """The outputs, in the order of the tasks.

        Raises:
            ExceptionGroup: If tasks failed.  It contains their errors, each with a note that names the task.
        """
        if errors := [item.error for item in self._items if item.error is not None]:
            raise ExceptionGroup(f"{len(errors)} of {len(self)} tasks failed", errors)
        return [item.output for item in self._items]  # type: ignore[misc]

    @property
    def done(self) -> list[TaskResult[Out]]:
        """The results of tasks that succeeded."""
        return [item for item in self._items if item.error is None]

    @property
    def failed(self) -> list[TaskResult[Out]]:
        """The results of tasks that failed."""
        return [item for item in self._items if item.error is not None]

    @property
    def usage(self) -> Usage:
        """The tokens used by all tasks, including failed ones."""
        return sum([item.result.usage for item in self._items if item.result is not None], UNUSED)

    @overload
    def __getitem__(self, index: int) -> TaskResult[Out]: ...
    @overload
    def __getitem__(self, index: slice) -> TaskResults[Out]: ...
    def __getitem__(self, index: int | slice) -> TaskResult[Out] | TaskResults[Out]:
        return TaskResults(self._items[index]) if isinstance(index, slice) else self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<{len(self)} results, {len(self.failed)} failed>"


def map_calls(
    agent: Any,
    tasks: Iterable[Any],
    concurrency: int,
    progress: Progress,
    fail_fast: bool,
    options: Mapping[str, Any],
) -> TaskResults[Any]:
    """Call an agent or a flow for many tasks, in threads, and return the results.  Ctrl-C interrupts the tasks."""
    results = list[TaskResult[Any]]()
    pending: dict[ThreadTask[Any], tuple[int, Any]] = {}
    ended = SimpleQueue[ThreadTask[Any]]()

    def begin() -> bool:
        while len(pending) < concurrency and (following := next(left, None)) is not None:
            child = ThreadTask[Any](partial(agent.call, following[1], **options))
            pending[child] = following
            child.future.add_done_callback(lambda _, child=child: ended.put(child))  # type: ignore[misc]
            child.start()
        return bool(pending)

    with _reporting(tasks, concurrency, progress, options) as report:
        left = enumerate(tasks)
        try:
            for child in portal.arrivals(ended, begin):
                results.append(_ended(*pending.pop(child), child.future, fail_fast))
                report(len(results))
        finally:
            _interrupt(pending, ended)
    return TaskResults(sorted(results, key=attrgetter("index")))


def _interrupt(pending: Mapping[ThreadTask[Any], Any], ended: SimpleQueue[ThreadTask[Any]]) -> None:
    """Interrupt the unfinished tasks, and wait a limited time for their threads to end."""
    around, until_s = abort_in_force(), time.monotonic() + LEAVE_S
    for child in pending:
        child.abort.is_to_rest = around is None or not around.is_set
        child.abort.set()
    for _ in pending:
        with suppress(Empty):
            ended.get(timeout=max(0.0, until_s - time.monotonic()))


async def amap_calls(
    agent: Any,
    tasks: Iterable[Any],
    concurrency: int,
    progress: Progress,
    fail_fast: bool,
    options: Mapping[str, Any],
) -> TaskResults[Any]:
    """The async version of `map_calls`.  Cancellation cancels the tasks."""
    results = list[TaskResult[Any]]()
    pending: dict[asyncio.Future[Any], tuple[int, Any]] = {}

    def begin() -> bool:
        while len(pending) < concurrency and (following := next(left, None)) is not None:
            pending[asyncio.ensure_future(agent.acall(following[1], **options))] = following
        return bool(pending)

    with _reporting(tasks, concurrency, progress, options) as report:
        left = enumerate(tasks)
        try:
            while begin():
                for future in (await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED))[0]:
                    results.append(_ended(*pending.pop(future), future, fail_fast))
                    report(len(results))
        finally:
            for future in pending:
                future.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
    return TaskResults(sorted(results, key=attrgetter("index")))


def _ended(index: int, task: Any, future: Any, fail_fast: bool) -> TaskResult[Any]:
    """Return a task's result.  Raise its error if ``fail_fast`` is set or the error is not an `Exception`."""
    error = future.exception()
    if error is None:
        result = future.result()
        return TaskResult(index, task, output=result.output, result=result)
    if fail_fast or not isinstance(error, Exception):
        raise error
    error.add_note(f"task {index}: {task!r:.200}")
    return TaskResult(index, task, error=error, result=getattr(error, "result", None))


@contextmanager
def _reporting(
    tasks: object, concurrency: object, progress: Progress, options: Mapping[str, Any]
) -> Iterator[Callable[[int], Any]]:
    """Reject invalid arguments, then yield a function that reports the number of finished tasks."""
    is_list = isinstance(tasks, Iterable) and not isinstance(tasks, str)
    require("tasks", tasks, is_list, "a list of tasks")
    require("concurrency", concurrency, is_whole(concurrency, 1), "a whole number of at least 1")
    is_known = isinstance(progress, bool) or (callable(progress) and not inspect.iscoroutinefunction(progress))
    require("progress", progress, is_known, "True, False, or a plain function of (done, total)")
    if options.get("run_id") is not None:
        raise UsageError(
            f"run_id: expected none, since each task is a run of its own, got {options['run_id']!r:.80}; "
            "to name the runs, use call or submit for each task"
        )
    total = len(tasks) if isinstance(tasks, Sized) else None
    if not isinstance(progress, bool):
        yield lambda done: progress(done, total)
    elif not progress:
        yield lambda done: None
    else:
        with _bar() as bar:
            shown = bar.add_task("tasks", total=total)
            yield lambda done: bar.update(shown, completed=done)


def _bar() -> Bar:
    with needing("cli", "progress=True"):
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress
    return Progress(*Progress.get_default_columns(), MofNCompleteColumn(), console=Console(stderr=True))
