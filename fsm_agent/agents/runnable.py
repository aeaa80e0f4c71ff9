"""What agents, conversations, flows and orchestrators have in common: the verbs that run them.

Each kind makes processes with `seed`, and answers what a driver asks about them.  The verbs are written once, here:
they drive a process to its end or event by event, in this thread or under asyncio, from the start or from a store.
Each kind adds the types of its own tasks and results.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from fsm_agent._internal.lazy_import import deferred, pydantic_core
from fsm_agent._internal.values import to_json
from fsm_agent.agents.persistence import aclaim
from fsm_agent.call.journal import Header, header_of
from fsm_agent.call.outcomes import Outcome
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import LATER
from fsm_agent.messages.events import Event
from fsm_agent.messages.reply import Usage
from fsm_agent.runtime.async_driver import AsyncDriver
from fsm_agent.runtime.drivers import arun, drive, last_event, run
from fsm_agent.runtime.world import World
from fsm_agent.validation import shown

if TYPE_CHECKING:
    import asyncio

    from fsm_agent.agents import many, run_handle
    from fsm_agent.agents.delegation import from_functions
    from fsm_agent.agents.many import TaskResults
    from fsm_agent.agents.options import Progress
    from fsm_agent.agents.run_handle import RunHandle
    from fsm_agent.runtime.inner_calls import InnerCalls
    from fsm_agent.store import checks as answer_checks
    from fsm_agent.store.claiming import Claimed, Definition
    from fsm_agent.store.recorder import StoreRecorder
    from fsm_agent.store.runs import Runs
else:
    asyncio, many = deferred("asyncio"), deferred("fsm_agent.agents.many")
    answer_checks = deferred("fsm_agent.store.checks")
    run_handle = deferred("fsm_agent.agents.run_handle")
    from_functions = deferred("fsm_agent.agents.delegation.from_functions")

Sink: TypeAlias = Callable[[Event], Any]
# The usage of processes that a program drives, for the call that the program answers.
USED_INSIDE: ContextVar[list[Usage] | None] = ContextVar("fsm_agent_used_inside", default=None)
Answers: TypeAlias = Mapping[Any, Any]
START_OPTIONS = ("delay_s", "priority", "service")  # which `submit` has besides those of `seed`
SUBMIT_OPTIONS = ("after", *START_OPTIONS)
RESUMED: Any = ...  # in place of a task: a run of the store is continued
MAP_OPTIONS = ("concurrency", "progress", "fail_fast")  # which `map` has besides those of each call


class Runnable(ABC):
    """Anything that can be called: the verbs over the processes that it makes.

    Attributes:
        name: The name by which its runs in a store find it.
        process_type: The class of its processes.
    """

    name: str
    process_type: ClassVar[type[Any]]
    _seeds_from_disk = False  # `seed` reads a store that is on disk

    # The verbs that each kind types.  With named parameters here, type checkers would refuse those of every kind.

    @abstractmethod
    def seed(self, *args: Any, **options: Any) -> Any:
        """Return a process that has not begun."""

    @abstractmethod
    def call(self, *args: Any, **options: Any) -> Any:
        """Make a process, drive it, and return its result."""

    @abstractmethod
    async def acall(self, *args: Any, **options: Any) -> Any:
        """`call` for asyncio."""

    @abstractmethod
    def stream(self, *args: Any, **options: Any) -> Generator[Any]:
        """Yield the events of a process as they happen."""

    @abstractmethod
    def astream(self, *args: Any, **options: Any) -> AsyncGenerator[Any]:
        """`stream` for asyncio."""

    @abstractmethod
    def submit(self, *args: Any, **options: Any) -> RunHandle[Any]:
        """Put a process into the store, for a `Worker` to drive; return the handle of its run."""

    @abstractmethod
    async def asubmit(self, *args: Any, **options: Any) -> RunHandle[Any]:
        """`submit` for asyncio."""

    @abstractmethod
    def handle(self, *args: Any, **options: Any) -> RunHandle[Any]:
        """Return the handle of a run of the store."""

    @abstractmethod
    def resume(self, *args: Any, **options: Any) -> Any:
        """Continue a run of the store from its last rest; return the result of one that has ended."""

    @abstractmethod
    async def aresume(self, *args: Any, **options: Any) -> Any:
        """`resume` for asyncio."""

    @abstractmethod
    def replay(self, *args: Any, **options: Any) -> Any:
        """Return the process of a stored run, rebuilt from its whole journal."""

    @abstractmethod
    def at(self, *args: Any, **options: Any) -> Any:
        """Return the process of a stored run as it was after a step, to be read."""

    @abstractmethod
    def fork(self, *args: Any, **options: Any) -> str:
        """Make another run that continues from a step of a stored run; return its name."""

    @abstractmethod
    def map(self, *args: Any, **options: Any) -> TaskResults[Any]:
        """Do many tasks in threads, and return their ends in the order of the tasks."""

    @abstractmethod
    async def amap(self, *args: Any, **options: Any) -> TaskResults[Any]:
        """`map` for asyncio."""

    @property
    def with_sub_agents(self) -> Sequence[Runnable]:
        """This runnable, and those inside it that may have runs of their own in a store."""
        return (self,)

    # What each kind says

    @abstractmethod
    def check_options(self, options: Mapping[str, Any], task: Any = None, others: Collection[str] = ()) -> None:
        """Refuse options that its calls do not have.

        Args:
            options: The options.
            task: The task of the call; None: it is not known yet.
            others: Options that the verb has besides those of a call.

        Raises:
            UsageError: It names the first such option, and what was probably meant.
        """

    @property
    @abstractmethod
    def runs(self) -> Runs:
        """The runs in its store."""

    @abstractmethod
    def world_of(self, process: Any) -> World:
        """Return the world in which the effects of a process are performed."""

    @abstractmethod
    def listener_to(self, process: Any) -> Sink | None:
        """Return a callback that forwards the events of a process to the hooks, or None if there are no hooks."""

    @abstractmethod
    def definition(self, *args: Any, **options: Any) -> Definition:
        """Return how its processes are rebuilt from a store, with these options of `resume`."""

    @abstractmethod
    def definition_of(self, process: Any) -> Definition:
        """Return how a process is rebuilt from a store, with the options of its `seed`."""

    def definition_of_run(self, header: Header, deps: Any, prompts: Mapping[str, Any]) -> Definition:
        """Return how a `Worker` makes the process of a run.

        Args:
            header: The header of the run's journal.
            deps: As of `check_deps`.
            prompts: Prompts of tasks, by their paths.
        """
        return self.definition(deps=deps)

    @abstractmethod
    def check_deps(self, deps: Any) -> None:
        """Refuse deps with which its runs cannot be driven.

        Args:
            deps: A value, or a function of (agent, extra, user) that makes it, which is not called here.

        Raises:
            UsageError: They are neither; or a value with which a function of an agent cannot do.
        """

    @abstractmethod
    def fingerprints(self, prompts: Sequence[Any]) -> set[str]:
        """Return the fingerprints of the code of runs that it can begin, with its own prompt or one of these."""

    # For functions of other calls: see `Context.call`

    def seed_inside(self, task: Any, options: Mapping[str, Any], around: InnerCalls) -> Any:
        """Return a process that has not begun, for a function of the process around it.

        Raises:
            UsageError: It cannot be part of another.
        """
        raise UsageError(
            f"expected an agent or a flow, which can be part of another call, got {shown(self)}, whose runs are its"
            " own;"
            " use its call(…)"
        )

    def call_inside(self, task: Any, options: Mapping[str, Any], around: InnerCalls) -> Any:
        """Do a task as part of the call around, and return its result."""
        return from_functions.call_inside(self, task, options, around)

    async def acall_inside(self, task: Any, options: Mapping[str, Any], around: InnerCalls) -> Any:
        """`call_inside` for asyncio."""
        return await from_functions.acall_inside(self, task, options, around)

    def outcomes(self, run_id: str, answers: Answers, definition: Definition) -> Mapping[str, Outcome]:
        """Return answers to the questions of a run as outcomes by key."""
        return answers

    def check_process(self, process: Any, verb: str) -> None:
        """Refuse to drive anything but a process of this kind.

        Args:
            process: What was given.
            verb: The method that was called, ``run`` or ``arun``.

        Raises:
            UsageError: It names the method to call.
        """
        if not isinstance(process, self.process_type):
            right = f"{'call' if verb == 'run' else 'acall'}({shown(process)})"
            raise UsageError(f"{verb}: expected {self._a_process}, got {shown(process)}; use {right}")

    @property
    def _a_process(self) -> str:
        kind = self.process_type.__name__
        return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"

    def result_of(self, process: Any) -> Any:
        """Return the result of a process that was driven; raise its failure, or what it waits for."""
        if (used := USED_INSIDE.get()) is not None:
            used.append(process.record.total_usage)
        return process.result()

    # How they are done

    def run(self, process: Any, sink: Sink | None = None) -> Any:
        """Drive a process from wherever it stands; with a sink, every event is given to it.

        Raises:
            UsageError: It is not a process of this kind, or it is being driven already.
        """
        self.check_process(process, "run")
        return self._drive(process, sink)

    def _drive(self, process: Any, sink: Sink | None, *, is_shared: bool = True) -> Any:
        process, recorder = self._claim(process)
        run(process, self.world_of(process), _both(self.listener_to(process), sink), recorder, is_shared=is_shared)
        return self.result_of(process)

    async def arun(self, process: Any, sink: Sink | None = None) -> Any:
        """`run` for asyncio."""
        self.check_process(process, "arun")
        return await self._adrive(process, sink)

    async def _adrive(self, process: Any, sink: Sink | None) -> Any:
        recorder = None
        if process.journal is not None:
            process, recorder = await self._aclaim(process)
        await self.adrive_claimed(process, recorder, sink)
        return self.result_of(process)

    def _stream(self, task: Any, options: Mapping[str, Any]) -> Generator[Any]:
        if task is RESUMED:
            process, recorder = self.resumption(options)()
        else:
            process, recorder = self._claim(self._process_in(task, options) or self.seed(task, **options))
        tell = self.listener_to(process)
        with closing(drive(process, self.world_of(process), recorder=recorder)) as events:
            for event in events:
                if tell is not None:
                    tell(event)
                yield event
        if not process.effects:
            self.result_of(process)

    async def _astream(self, task: Any, options: Mapping[str, Any]) -> AsyncGenerator[Any]:
        if task is RESUMED:
            process, recorder = await aclaim(self.resumption(options))
        else:
            process, recorder = await self.abegin(task, options)
        tell = self.listener_to(process)
        # Without `adrive`: a loop that ends closes all async generators beside each other, also one inside of this one.
        async with AsyncDriver(process, self.world_of(process), is_streamed=True, recorder=recorder) as driver:
            for event in driver.events():
                reported = event or await driver.wait()
                if reported is not None:
                    if tell is not None:
                        tell(reported)
                    yield reported
        last = last_event(process)
        if tell is not None:
            tell(last)
        yield last
        if not process.effects:
            self.result_of(process)

    # For those that drive processes in tasks of their own

    async def abegin(self, task: Any, options: Mapping[str, Any]) -> Claimed:
        """Make the process of a task, and claim its run; return both, to be driven with `adrive_claimed`."""
        return await self._aclaim(self._process_in(task, options) or await self._aseed(task, options))

    def resumption(self, options: Mapping[str, Any]) -> Callable[[], Claimed]:
        """Return a function that claims a run of the store, to be continued.

        Args:
            options: Those of `resume`, with ``run_id`` and ``answers``, without ``sink``.

        Raises:
            UsageError: There is no ``run_id``, or an option is unknown.
        """
        rest = {name: value for name, value in options.items() if name not in ("run_id", "answers")}
        run_id = options.get("run_id")
        if not isinstance(run_id, str) or "sink" in rest:
            raise UsageError(
                "a stream: expected a task, or the run_id of a run in the store to continue, and no sink; pass"
                " run_id='…'"
            )
        by, post_id, _, definition = self._resumption(rest)
        return partial(self._reclaim, run_id, options.get("answers"), by, definition, post_id)

    def adrive_claimed(self, process: Any, recorder: StoreRecorder | None, sink: Sink | None) -> Awaitable[Any]:
        """Drive a process that was claimed, as far as it goes, whatever comes of it."""
        return arun(process, self.world_of(process), _both(self.listener_to(process), sink), recorder)

    def _process_in(self, task: Any, options: Mapping[str, Any]) -> Any:
        """Return the task if it is a process, which has its options already; else None."""
        if not isinstance(task, self.process_type):
            return None
        self.check_process(task, "run")
        for name, value in options.items():
            if value is not None and value is not False:
                raise UsageError(
                    f"{name}: expected none beside {self._a_process}, which has its own; pass seed(…, {name}=…)"
                )
        return task

    async def _aseed(self, task: Any, options: Mapping[str, Any]) -> Any:
        if self._seeds_from_disk:
            return await asyncio.to_thread(partial(self.seed, task, **options))
        return self.seed(task, **options)

    def _submit(self, task: Any, after: tuple[str, ...], options: Mapping[str, Any]) -> RunHandle[Any]:
        """Put a task into the store.

        Args:
            task: The task.
            after: The names of runs that have to end before.
            options: Those of `seed`, and `START_OPTIONS`.
        """
        delay_s, priority, service = options.get("delay_s", 0.0), options.get("priority", 0), options.get("service", "")
        of_seed = {name: value for name, value in options.items() if name not in START_OPTIONS}
        self.check_options(of_seed, task, SUBMIT_OPTIONS)
        for name in ("clients", "model"):
            if (value := of_seed.get(name)) is not None and not isinstance(value, str):
                raise UsageError(
                    f"{name}: expected a name, since a store keeps no objects, got {shown(value)}; leave it out,"
                    " and the"
                    " worker uses that of its agent"
                )
        runs = self.runs
        process = self.seed(task, **_without_deps(of_seed))
        definition = self.definition_of(process)
        name = runs.claims.submit(process, definition, run_handle.start_of(after, delay_s, priority, service))
        return run_handle.RunHandle(self, name, definition)

    async def _asubmit(self, task: Any, after: tuple[str, ...], options: Mapping[str, Any]) -> RunHandle[Any]:
        if self.runs.store.is_volatile:
            return self._submit(task, after, options)
        return await asyncio.to_thread(self._submit, task, after, options)

    def _handle(self, run_id: str, options: Mapping[str, Any]) -> RunHandle[Any]:
        definition = self._to_read(options)
        run = self.runs.store.get(run_id)
        if run.agent != definition.agent:
            raise UsageError(f"the run {run_id!r}: expected one of {definition.agent!r}, got one of {run.agent!r}")
        return run_handle.RunHandle(self, run_id, definition)

    def _to_read(self, options: Mapping[str, Any]) -> Definition:
        """Return how its processes are rebuilt from a store to be read, for which no deps are needed."""
        return self.definition(**_without_deps(options))

    def post_answers(self, run_id: str, answers: Any, by: str, definition: Definition, post_id: str = "") -> None:
        """Post answers to a run: a mapping by key, or the one answer to its only open question."""
        content = ""
        if post_id:
            answer_checks.check_one_answer(answers)
            content = _content_of(answers)
            if self.runs.is_posted(run_id, post_id, content):
                return
        if not isinstance(answers, Mapping):
            answers = {self.runs.only_question(run_id): answers}
        outcomes = self.outcomes(run_id, answers, definition)
        given = [id(answer) for answer in answers.values()]
        typed = [key for key, outcome in outcomes.items() if id(outcome) not in given]  # they were made of values
        at_s = self.runs.claims.clock_of(definition).now()
        self.runs.answer(run_id, outcomes, by=by, at_s=at_s, typed=typed, post_id=post_id, content=content)

    def _resume(self, run_id: str, answers: Any, options: Mapping[str, Any]) -> Any:
        by, post_id, sink, definition = self._resumption(options)
        process, recorder = self._reclaim(run_id, answers, by, definition, post_id)
        run(process, self.world_of(process), _both(self.listener_to(process), sink), recorder)
        return self.result_of(process)

    async def _aresume(self, run_id: str, answers: Any, options: Mapping[str, Any]) -> Any:
        by, post_id, sink, definition = self._resumption(options)
        process, recorder = await aclaim(partial(self._reclaim, run_id, answers, by, definition, post_id))
        await self.adrive_claimed(process, recorder, sink)
        return self.result_of(process)

    def _resumption(self, options: Mapping[str, Any]) -> tuple[str, str, Sink | None, Definition]:
        """Return, from the options of `resume`: who answers, the id, the sink, and how to rebuild the process."""
        rest = {name: value for name, value in options.items() if name not in ("by", "post_id", "sink")}
        self.check_deps(rest.get("deps"))
        return options.get("by", ""), options.get("post_id", ""), options.get("sink"), self.definition(**rest)

    def _map(
        self, tasks: Iterable[Any], concurrency: int, progress: Progress, fail_fast: bool, options: Mapping[str, Any]
    ) -> TaskResults[Any]:
        self._check_map(tasks, options)
        return _outputs(
            many.map_tasks(lambda task: self.call(task, **options), tasks, concurrency, progress, fail_fast)
        )

    async def _amap(
        self, tasks: Iterable[Any], concurrency: int, progress: Progress, fail_fast: bool, options: Mapping[str, Any]
    ) -> TaskResults[Any]:
        self._check_map(tasks, options)
        do = partial(self.acall, **options)
        return _outputs(await many.amap_tasks(do, tasks, concurrency, progress, fail_fast))

    def _check_map(self, tasks: Iterable[Any], options: Mapping[str, Any]) -> None:
        """Refuse options with which each task would fail; tasks that come one by one are not touched."""
        first = tasks[0] if isinstance(tasks, list | tuple) and tasks else None
        self.check_options(options, first, MAP_OPTIONS)
        if options.get("run_id") is not None:
            raise UsageError(
                f"run_id: expected none, since map begins a run for each task, got {options['run_id']!r:.80};"
                " leave it out"
            )

    # Runs in a store

    def _claim(self, process: Any) -> Claimed:
        """Return a process and its recorder; if its run has begun before, the stored process."""
        if process.journal is None or not process.journal.header:
            return process, None
        return self.runs.claims.begin(process, self.definition_of(process))

    async def _aclaim(self, process: Any) -> Claimed:
        """`_claim` for asyncio."""
        if process.journal is None or not process.journal.header or self.runs.store.is_volatile:
            return self._claim(process)
        return await aclaim(partial(self._claim, process))

    def _reclaim(self, run_id: str, answers: Any, by: str, definition: Definition, post_id: str = "") -> Claimed:
        """Post the answers to a run, claim it, and return its process and its recorder."""
        if definition.check is not None:
            header = header_of(self.runs.store.load(run_id, after=None).header)
            definition.check(definition.make(header, None))
        from fsm_agent.store.errors import RunBusy

        if answers is not None:
            self.post_answers(run_id, answers, by, definition, post_id)
        try:
            return self.check_resumed(self.runs.claims.resume(run_id, definition))
        except RunBusy as error:
            error.is_answered = answers is not None
            raise

    def check_resumed(self, claimed: Claimed) -> Claimed:
        """Refuse a run that was claimed and cannot be driven here."""
        return claimed


def _content_of(answers: Mapping[Any, Any]) -> str:
    """Return the answers as a text, which is equal for equal answers even if the run asks for others by then."""
    told = [[getattr(whom, "name", whom), value] for whom, value in answers.items()]
    return pydantic_core.to_json(
        [[name, to_json(value) if isinstance(value, Outcome) else value] for name, value in told], fallback=repr
    ).decode()


def _without_deps(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options with deps that only the driver of a run has, unless there are some."""
    return options if options.get("deps") is not None else {**options, "deps": LATER}


def _both(tell: Sink | None, sink: Sink | None) -> Sink | None:
    """Return a listener that calls both, the hooks first; None: there is neither."""
    if tell is None or sink is None:
        return tell or sink

    def tell_both(event: Event) -> None:
        tell(event)
        sink(event)

    return tell_both


def _outputs(ends: TaskResults[Any]) -> TaskResults[Any]:
    """Return the ends of tasks with outputs in place of whole results."""
    return many.TaskResults(
        [
            replace(end, result=getattr(end.error, "result", None))
            if end.output is None
            else replace(end, output=end.output.output, result=end.output)
            for end in ends
        ]
    )
