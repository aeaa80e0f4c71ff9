"""Python code in the place of a model: what the `call` of a class of agents is wherever an `Agent` is wanted.

So it is one request of an agent call, with its states, events, deadline and place inside of another call.  What it does
is plain Python: it is in no record, and begins anew when the call is driven again before it has returned.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fsm_agent._internal.closing import Closing
from fsm_agent._internal.lazy_import import deferred
from fsm_agent.agents.agent import Agent
from fsm_agent.errors import ProviderError, TimedOut, UsageError
from fsm_agent.lifecycle.effects import Request
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.messages.event import Delta
from fsm_agent.messages.message import Text
from fsm_agent.messages.payload import Payload
from fsm_agent.messages.reply import Reply
from fsm_agent.mistakes import shown
from fsm_agent.runtime.thread_task import run_coroutine

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")


class Program(Closing):
    """A client whose replies are what a function returns for the newest message of the user.

    Args:
        name: The agent whose program it is.
        call: The function: it is given a text, or a `Payload` if there is more than text; plain or a coroutine
            function.
        output: The type of what it returns.
    """

    takes_images = True
    reports_logprobs = False

    def __init__(self, name: str, call: Callable[[Any], Any], output: Any) -> None:
        self.name = f"program:{name}"
        self._call = call
        self._output = output
        self._kind = TypeAdapter[Any](output)

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return what the function returns; a coroutine function runs in an event loop of its own."""
        try:
            found = self._call(_task(request))
            if inspect.isawaitable(found):
                found = run_coroutine(_within(found, timeout_s))
        except Exception as error:
            raise _failure(error) from error
        return self._reply(found)

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Do the same under asyncio; a plain function runs in a thread."""
        try:
            if not inspect.iscoroutinefunction(inspect.unwrap(self._call)):
                found = await _within(asyncio.to_thread(self._call, _task(request)), timeout_s)
            else:
                found = await _within(self._call(_task(request)), timeout_s)
        except Exception as error:
            raise _failure(error) from error
        return self._reply(found)

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Delta | Reply]:
        """Yield the reply: it is there as a whole, or not at all."""
        yield self.complete(request, timeout_s=timeout_s)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Do the same under asyncio."""
        yield await self.acomplete(request, timeout_s=timeout_s)

    def close(self) -> None:
        """Close nothing: its agents are closed by themselves."""

    async def aclose(self) -> None:
        """Close nothing: its agents are closed by themselves."""

    def _reply(self, found: Any) -> Reply:
        """Return what was returned as a reply, from which the output can be read.

        Raises:
            ProviderError: It is not of the type.
        """
        if self._output is str and isinstance(found, str):
            return Reply.of(str(found))
        try:
            checked = self._kind.validate_python(found, strict=True)
            return Reply.of(self._kind.dump_json(checked, by_alias=True).decode())
        except (ValidationError, ValueError) as error:
            kind = getattr(self._output, "__name__", None) or str(self._output)
            raise ProviderError(
                f"call of {self.name.partition(':')[2]!r} returned {shown(found)}, and {kind} is what it shall return:"
                " the annotation of its result says what it does",
                retryable=False,
            ) from error


def agent_of(name: str, function: Any, call: Callable[[Any], Any], output: Any) -> Agent[Any, Any]:
    """Return an agent that does what a program does, once: it is not asked again.

    Args:
        name: Its name.
        function: The program, as it was written.
        call: The program, as it is called.
        output: The type of its output, if its annotation does not say.

    Raises:
        UsageError: It cannot be called with a task alone.
    """
    try:
        inspect.signature(call).bind(None)
    except TypeError as error:
        right = "call(self, task) would be right, and defaults for what else it takes"
        raise UsageError(f"call of {name!r} cannot be called with a task alone ({error}): {right}") from None
    output = _returned(function, output)
    limits = Limits(recalls=0, parse_retries=0)
    return Agent(Program(name, call, output), name=name, output=output, limits=limits)


def agents_with_runs(value: Any) -> list[Any]:
    """Return the agents in whose names a store may have runs: of an `AgentBase` its sub-agents; else the object."""
    if not hasattr(type(value), "as_agent"):
        return [value]
    found = [agent for agent in (value.as_agent(), *value.agents.values()) if not isinstance(agent.model, Program)]
    return [*{id(agent): agent for agent in found}.values()]


def _returned(function: Any, output: Any) -> Any:
    """Return the type that a function says it returns; without one, ``output``."""
    try:
        found = get_type_hints(inspect.unwrap(function)).get("return", Any)
    except (NameError, TypeError):  # of a type that is known to type checkers alone, or in a function
        return output
    return output if found is Any or found is None or isinstance(found, TypeVar) else found


def _task(request: Request) -> str | Payload:
    message = next(message for message in reversed(request.messages) if message.role == "user")
    parts: Any = message.parts
    return message.text if all(isinstance(part, Text) for part in parts) else Payload(tuple(parts))


async def _within(found: Awaitable[Any], timeout_s: float | None) -> Any:
    return await asyncio.wait_for(found, timeout_s)


def _failure(error: Exception) -> ProviderError:
    """Return an exception of the program as the failure of its request, after which it is not asked again."""
    if isinstance(error, TimeoutError) and not str(error):
        return TimedOut("it has not returned in time", retryable=False)
    return ProviderError(f"{type(error).__name__}: {error}", retryable=False)
