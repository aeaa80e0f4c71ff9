"""Python code in place of a model: the `answer` method of an agent class, or a function in a team.

The code runs as the only request in an agent call.  Like any agent call, this call has states, events, a deadline and a
store, and it can be nested.  The code itself is plain Python: no record contains its progress, so it starts again if
the call is driven again before the code has returned.  If it must survive a crash or wait for a person, write a flow
instead.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from inspect import Parameter
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

from fsm_agent._internal.structs import type_adapter
from fsm_agent._internal.system import with_place
from fsm_agent._internal.text import cut
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.runnable import USED_INSIDE
from fsm_agent.call.effects import Request
from fsm_agent.call.limits import Limits
from fsm_agent.call.result import CallSuspended
from fsm_agent.call.triggers import error_text
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.errors import ProgramError, UsageError
from fsm_agent.functions.context import Context
from fsm_agent.messages.events import Delta
from fsm_agent.messages.message import Payload, Text
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.prompts.output import CHANGED, Output
from fsm_agent.runtime.portal import in_thread
from fsm_agent.runtime.run_function import program_of
from fsm_agent.validation import safe_repr

MAX_SHOWN_CHARS = 200  # of an exception's text
PROGRAM = "program:"  # prefix for the names of clients that run the user's code


class Program(SyncVerbs):
    """A client whose replies are the results of a function.

    The function, plain or ``async``, takes the text of the newest user message, or a `Payload` if the message contains
    more than text.  A second parameter receives the call's `Context`.

    Attributes:
        raised: The exception that the function raised, if any.
        used: The tokens used by the agent calls that the function made.
    """

    takes_images = True
    reports_logprobs = False

    def __init__(self, name: str, function: Callable[..., Any], output: Any) -> None:
        self.name = f"{PROGRAM}{name}"
        self._function = function
        self._output = output
        self._expected = Output(output)  # the same reading as in the call
        self._context: Context[Any] | None = None  # the context of the call; see `bound_to`
        self.raised: Exception | None = None
        self.used = UNUSED

    def bound_to(self, context: Context[Any]) -> Program:
        """Return a copy of this program for a single call."""
        bound = copy(self)
        bound._context, bound.raised, bound.used = context, None, UNUSED
        return bound

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the function's result.  A plain function runs in a thread."""
        with self._answering(request) as arguments:
            if inspect.iscoroutinefunction(inspect.unwrap(self._function)):
                found = await _within(self._function(*arguments), timeout_s)
            else:
                found = await _within(in_thread(partial(self._function, *arguments)), timeout_s)
        return await in_thread(partial(self._reply, found))  # because the output type may have slow validators

    @contextmanager
    def _answering(self, request: Request) -> Iterator[tuple[Any, ...]]:
        """Yield the function's arguments, and count the tokens of agent calls made inside the block as its usage."""
        context: Context[Any] = Context(deps=None) if self._context is None else self._context
        arguments = (_task(request), context) if _takes_context(self._function) else (_task(request),)
        used = list[Usage]()
        token = USED_INSIDE.set(used)
        try:
            with program_of(context):
                yield arguments
        except Exception as error:
            self.raised = error
            raise self._failure(error) from error
        finally:
            USED_INSIDE.reset(token)
            self.used = sum(used, UNUSED)

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        yield await self.acomplete(request, timeout_s=timeout_s)

    def close(self) -> None:
        """Do nothing, because the agents close themselves."""

    async def aclose(self) -> None:
        """Do nothing, because the agents close themselves."""

    def _reply(self, found: Any) -> Reply:
        """Return the function's result as a reply that the output type can read."""
        if self._output is str and isinstance(found, str):
            return Reply.of(str(found)).changed(usage=self.used)
        try:
            checked = type_adapter(self._output).validate_python(found, strict=True)
            text = self._expected.kept(checked, self._expected.validated)
            return Reply.of(text).changed(usage=self.used)
        except ValueError as error:  # includes errors from pydantic
            named = "data of JSON" if self._output is Any else getattr(self._output, "__name__", str(self._output))
            right = "return one, or declare the type that it returns"
            why = f"{right}; {error}" if str(error).startswith(CHANGED) else right
            raise ProgramError(
                f"the return value of {self._named}: expected {named}, got {safe_repr(found)}; {why}"
            ) from error

    def _failure(self, error: Exception) -> ProgramError:
        """Return the error for a function's exception, after which the request is not retried."""
        if isinstance(error, TimeoutError) and not str(error):
            return ProgramError(f"{self._named} did not return in time")
        text = cut(" ".join(error_text(error).split()), MAX_SHOWN_CHARS)
        told = with_place(f"{self._named} raised {type(error).__name__}: {text}".removesuffix(": "), error)
        if isinstance(error, CallSuspended) or hasattr(error, "wake_at_s"):  # a call or a flow is suspended
            waits = with_place(
                f"{self._named} called an agent or a flow that waits for a person, but it cannot wait itself", error
            )
            told = f"{waits}; pass approve=… to that agent to decide at once, or use a flow, which can wait, as in"
            told += " flow.bound(agent.agents)"
        return ProgramError(told)

    @property
    def _named(self) -> str:
        return f"{self._function.__name__} of {self.name.removeprefix(PROGRAM)!r}"


LIMITS = Limits(recalls=0, parse_retries=0)  # a program is not asked again


def agent_of(name: str, function: Callable[..., Any], output: Any) -> Agent[Any, Any]:
    """Return an agent that performs each task with a single call to a function.

    ``output`` is the output type if the function has no return annotation.
    """
    check_program(name, function)
    output = returned_type(function, output)
    return Agent(Program(name, function, output), name=name, output=output, limits=LIMITS)


def check_program(name: str, function: Callable[..., Any]) -> None:
    """Reject a function that cannot be called with a task, or with a task and a `Context`."""
    arguments = (None, None) if _takes_context(function) else (None,)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        called = function.__name__
        right = f"{called}(self, task) or {called}(self, task, context), with defaults for all else"
        raise UsageError(f"{called} of {name!r}: expected {right}, got another signature ({error})") from None


def _takes_context(function: Callable[..., Any]) -> bool:
    parameters = [*inspect.signature(function).parameters.values()][1:2]
    is_second = bool(parameters) and parameters[0].kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return is_second and (parameters[0].name == "context" or "Context" in str(parameters[0].annotation))


def returned_type(function: Any, output: Any) -> Any:
    """Return the type in a function's return annotation, or ``output`` if there is no annotation."""
    annotation = getattr(inspect.unwrap(function), "__annotations__", {}).get("return", Any)
    try:
        found = evaluated(annotation, function)
    except (NameError, TypeError, AttributeError):  # a type that is local or only known to type checkers
        if output not in (str, Any):
            return output
        raise UsageError(
            f"{function.__name__}: expected a type of its module as the return annotation, got {annotation!r:.80};"
            " set output=… of the class, or annotate with the type itself"
        ) from None
    return output if found in (Any, None, type(None)) or isinstance(found, TypeVar) else found


def evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """Return a return annotation as a type.  Parameter annotations may refer to unknown names, so they are ignored."""
    written = inspect.unwrap(getattr(function, "func", function))  # a partial function has func
    written = written if inspect.isroutine(written) else written.__call__
    try:
        names = dict(inspect.getclosurevars(written).nonlocals)
    except (TypeError, ValueError):  # written in C, or with a name that is given a value later
        names = {}
    alone = SimpleNamespace(__annotations__={"return": annotation})
    return get_type_hints(alone, getattr(written, "__globals__", None), names)["return"]


def _task(request: Request) -> str | Payload:
    message = next(message for message in reversed(request.messages) if message.role == "user")
    parts: Any = message.parts
    return message.text if all(isinstance(part, Text) for part in parts) else Payload(tuple(parts))


async def _within(found: Awaitable[Any], timeout_s: float | None) -> Any:
    return await asyncio.wait_for(found, timeout_s)
