"""How does a person use an agent call?"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, closing
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from weakref import WeakKeyDictionary

from fsm_agent.call import AgentCall
from fsm_agent.dialogs import Dialog
from fsm_agent.drivers import adrive, arun, drive, run
from fsm_agent.effects import Settings
from fsm_agent.errors import UsageError
from fsm_agent.events import Event
from fsm_agent.functions import Function
from fsm_agent.limits import Limits
from fsm_agent.messages import Message
from fsm_agent.perform import Approve, World
from fsm_agent.prompts import Prompt
from fsm_agent.reading import StopWhen
from fsm_agent.results import CallResult
from fsm_agent.running import current_depth
from fsm_agent.snapshots import restore
from fsm_agent.templates import render

if TYPE_CHECKING:
    from fsm_agent.client import Client

Task: TypeAlias = str | Prompt | Message | Dialog


@dataclass(frozen=True, eq=False)
class Agent:
    """One identity: a model, a system prompt, functions, the type of its answers, and limits.

    ``call``, ``acall``, ``stream`` and ``astream`` are one machine under different drivers.  An agent keeps no
    conversation: it may be used from many threads and tasks, and ``result.dialog`` goes into the next call.

    Args:
        model: ``"provider:model"``, or a client.
        system: The system prompt; text, or a `Prompt` whose variables are given to `init_dialog`.
        functions: What the model may ask for: `Function`s or plain callables.
        output: The type of the answer; see `Prompt`.
        name: For traces and snapshots.
        limits: The budgets of each call.
        settings: How the model shall answer.
        stop_when: Ends a call at a reply; see `StopContext`.
        approve: Says whether a function that needs approval may be called; without one, the call is suspended.
        world: More of what performs effects: ``clock``, ``backoff``, ``threads``, ``new_id``; see `World`.
    """

    model: str | Client
    _: KW_ONLY
    system: str | Prompt = ""
    functions: Iterable[Function | Callable[..., Any]] = ()
    output: Any = str
    name: str = "agent"
    limits: Limits = Limits()
    settings: Settings = Settings()
    stop_when: StopWhen | None = None
    approve: Approve | None = None
    world: Mapping[str, Any] = field(default_factory=dict)
    prompt: Prompt = field(init=False, repr=False)  # of tasks that are given in words

    def __post_init__(self) -> None:
        prompt = Prompt("{{ task }}", path=self.name, functions=self.functions, output=self.output)
        object.__setattr__(self, "functions", prompt.functions)
        object.__setattr__(self, "prompt", prompt)

    @cached_property
    def client(self) -> Client:
        """What asks the model; made on first use when ``model`` is a name."""
        if not isinstance(self.model, str):
            return self.model
        from fsm_agent.client import client_for

        return client_for(self.model)

    @cached_property
    def _governing(self) -> WeakKeyDictionary[Prompt, Prompt]:
        return WeakKeyDictionary()

    @cached_property
    def _world(self) -> World:
        return World.of(self.client, approve=self.approve, **self.world)

    def init_dialog(self, **values: Any) -> Dialog:
        """A fresh dialog: the system prompt, if there is one, with its variables."""
        if isinstance(self.system, Prompt):
            text = render(self.system.template, values)
            return Dialog([Message.of("system", text)], top_prompt=self._governed(self.system))
        return Dialog([Message.of("system", self.system)] if self.system else ())

    def seed(
        self,
        task: Task,
        /,
        *,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> AgentCall:
        """An agent call that has not begun.

        Args:
            task: Text (taken as it is), a prompt, a user's message, or a dialog that waits for an answer.
            args: Settings for this call, over the agent's.
            parser_args: Keyword arguments for the prompt's parser.
            values: The prompt's variables.

        Raises:
            UsageError: A variable is missing, a setting unknown, or a dialog has nothing to answer.
        """
        if values and not isinstance(task, Prompt):
            raise UsageError(f"the variables {', '.join(sorted(values))} are for a Prompt, not for {task!r:.60}")
        match task:
            case Dialog():
                dialog = task
            case Message():
                dialog = self.init_dialog().append(task)
            case str() | Prompt():
                dialog = self.init_dialog().put(task, **values)
            case _:
                raise UsageError(f"the task is {task!r:.60}: text, a Prompt, a Message or a Dialog would be right")
        if dialog.tail is None or dialog.tail.function_calls:
            what = "asks for functions that have no results" if dialog.tail else "is empty"
            raise UsageError(f"the dialog {what}: one that ends with a task would be right")
        prompt = self.prompt if dialog.top_prompt is None or isinstance(task, str | Message) else dialog.top_prompt
        return AgentCall.seed(
            dialog,
            self._parsed(self._governed(prompt), parser_args),
            limits=self.limits,
            depth=current_depth(),
            settings=self.settings.override(args or {}),
            stop_when=self.stop_when,
        )

    def restore(
        self,
        document: str | bytes,
        prompt: Prompt | None = None,
        *,
        args: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
    ) -> AgentCall:
        """A call of this agent from its `snapshot`, with the prompt and arguments that it was made with.

        Raises:
            SnapshotError: The document is damaged, or of another prompt.
        """
        governed = self._parsed(self.prompt if prompt is None else self._governed(prompt), parser_args)
        return restore(document, governed, settings=self.settings.override(args or {}), stop_when=self.stop_when)

    def call(self, task: Task, /, **options: Any) -> CallResult:
        """Have the task done; the same arguments as `seed`.  Works inside a running event loop, too.

        Raises:
            CallFailed: The call ended without an output.
            CallSuspended: It waits for somebody who is not here; see its ``call``.
        """
        return self.run(self.seed(task, **options))

    async def acall(self, task: Task, /, **options: Any) -> CallResult:
        """`call` for asyncio."""
        return await self.arun(self.seed(task, **options))

    def run(self, call: AgentCall, sink: Callable[[Event], Any] | None = None) -> CallResult:
        """Drive a call from wherever it stands; with a sink, every event is given to it."""
        return run(call, self._world, sink).result()

    async def arun(self, call: AgentCall, sink: Callable[[Event], Any] | None = None) -> CallResult:
        """`run` for asyncio."""
        return (await arun(call, self._world, sink)).result()

    def stream(self, task: Task | AgentCall, /, **options: Any) -> Generator[Event]:
        """What happens, as it happens: deltas and steps in one order, `Done` (or `Suspended`) last.

        Raises:
            CallFailed: After `Done`, when the call failed.
        """
        call = task if isinstance(task, AgentCall) else self.seed(task, **options)
        with closing(drive(call, self._world)) as events:
            yield from events
        if not call.effects:
            call.result()

    async def astream(self, task: Task | AgentCall, /, **options: Any) -> AsyncGenerator[Event]:
        """`stream` for asyncio."""
        call = task if isinstance(task, AgentCall) else self.seed(task, **options)
        async with aclosing(adrive(call, self._world)) as events:
            async for event in events:
                yield event
        if not call.effects:
            call.result()

    def _governed(self, prompt: Prompt) -> Prompt:
        """``prompt`` with the agent's functions and output where it has none of its own."""
        functions = prompt.functions or self.functions
        output = self.output if prompt.output is str and prompt.parser is None else prompt.output
        if functions == prompt.functions and output is prompt.output:
            return prompt
        governed = self._governing.get(prompt)
        if governed is None:
            governed = self._governing[prompt] = prompt.extend(functions=functions, output=output)
        return governed

    def _parsed(self, prompt: Prompt, parser_args: Mapping[str, Any] | None) -> Prompt:
        if not parser_args:
            return prompt
        if prompt.parser is None:
            raise UsageError(f"parser_args {dict(parser_args)!r} need a prompt with a parser")
        return prompt.extend(parser=partial(prompt.parser, **parser_args))

    def close(self) -> None:
        """Close the connections, if the agent made any; a client that it was given is its giver's to close."""
        if isinstance(self.model, str) and "client" in self.__dict__:
            self.client.close()

    async def aclose(self) -> None:
        """`close` for asyncio."""
        if isinstance(self.model, str) and "client" in self.__dict__:
            await self.client.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
