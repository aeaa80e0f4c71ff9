"""Builds a call's messages from the system prompt, the dialog so far, and the task's prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from fsm_agent._internal.structs import Value, Vector
from fsm_agent.agents.options import TASK
from fsm_agent.agents.system_prompt import NO_ARGS, SystemPrompt
from fsm_agent.call.result import CallResult
from fsm_agent.context.fitting import kept
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import LATER, misfit
from fsm_agent.functions.function import Function
from fsm_agent.functions.toolset import functions_of
from fsm_agent.messages.message import HistorySummary, Message, Payload, Text, unpaired
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt, Task, task_message
from fsm_agent.runtime.environment import Client
from fsm_agent.runtime.log import LOG
from fsm_agent.validation import require

if TYPE_CHECKING:
    from fsm_agent.agents.agent import Agent


class PromptResolver:
    """Adds an agent's functions and output type to the prompts for its calls.

    Attributes:
        is_fixed: Whether every call has the same functions.
    """

    __slots__ = ("_finalizer", "_functions", "_output", "_prompt", "_resolved", "is_fixed")

    def __init__(self, functions: Iterable[Any], prompt: Prompt, output: Any, finalizer: Any = None) -> None:
        self._functions = tuple(functions)
        self._prompt = prompt
        self._output = output
        self._finalizer = finalizer
        self._resolved = WeakKeyDictionary[Prompt, Prompt]()
        self.is_fixed = prompt.is_fixed and all(isinstance(item, Function) for item in self._functions)

    def offered(self, deps: Any) -> tuple[Function, ...]:
        """Return the functions that a call offers to its model."""
        if self.is_fixed:
            return self._functions
        return functions_of(self._functions, lambda toolset: toolset.for_call(deps))

    def for_call(self, prompt: Prompt, deps: Any) -> Prompt:
        """Return ``prompt`` with everything that the agent adds to it for a call."""
        return prompt if self.is_fixed and prompt is self._prompt else self.resolve(prompt, self.offered(deps))

    def resolve(self, prompt: Prompt, offered: tuple[Function, ...]) -> Prompt:
        """Return ``prompt``, with the agent's functions, output type and finalizer where the prompt sets none.

        This also asks the MCP servers in the prompt for their tools.
        """
        prompt = (prompt.unresolved or prompt).for_call()
        if prompt is self._prompt and self.is_fixed:
            return prompt
        has_own = prompt.offers and not prompt.is_borrowed
        functions = prompt.offers if has_own else offered
        output = self._output if prompt.output is str and prompt.parser is None else prompt.output
        finalizer = prompt.finalizer or self._finalizer
        if functions == prompt.offers and output is prompt.output and finalizer is prompt.finalizer:
            return prompt
        resolved = self._resolved.get(prompt)
        if resolved is None or resolved.offers != functions:
            make = prompt.extend if has_own else prompt.borrowing
            resolved = self._resolved[prompt] = make(functions=functions, output=output, finalizer=finalizer)
        return resolved


def check_parser_args(prompt: Prompt, parser_args: Mapping[str, Any]) -> None:
    """Reject parser arguments for a prompt that has neither a parser nor an output type with validators."""
    if prompt.parser is None and prompt.output is str:
        raise UsageError(
            f"parser_args: expected a prompt with a parser or a type as output, got neither, for {parser_args!r:.200}"
        )


def check_needs(deps: object, functions: Iterable[Function]) -> None:
    """Reject ``deps`` that do not fit a function, such as None or a built-in value in place of the declared class."""
    if deps is LATER:
        return
    for function in functions:
        if not (kind := function.deps_type):
            continue
        if deps is None:
            raise UsageError(
                f"deps=: expected {kind}, got None: function {function.name!r} takes Context[{kind}]; pass"
                f" deps={kind}(…), or annotate it Context[{kind} | None] if it can do without"
            )
        if misfit(deps, function.deps_class):
            raise UsageError(
                f"deps=: expected {kind}, got {type(deps).__name__}: function {function.name!r} takes Context[{kind}]"
            )


def needs_of(function: Function | None) -> dict[str, Any]:
    """Return the deps types that an agent must declare because its function needs them."""
    return {} if function is None else {"deps_type": function.deps_type, "deps_class": function.deps_class}


def dialog_before(after: object) -> Dialog:
    """Return the dialog that precedes a task.  Each function call in it must have one result."""
    if isinstance(after, CallResult):
        after = after.dialog
    right = "the result of a call, a Dialog, or a list of messages"
    require("after", after, isinstance(after, Dialog | list | tuple), right)
    dialog = after if isinstance(after, Dialog) else Dialog(cast("Any", after))
    if (flaw := unpaired(dialog.messages)) is not None:
        raise UsageError(f"after=: expected a dialog in which each call has one result, got {flaw}")
    return dialog


class ResolvedTask(Value, frozen=True):
    """A call's messages, and the prompt that governs the answer."""

    messages: Vector[Message]
    system_args: Mapping[str, Any] | None
    prompt: Prompt
    governed_by: str = ""
    summary: HistorySummary | None = None
    is_system_late: bool = False


def resolve_task(agent: Agent[Any, Any], task: Any, deps: Any, options: Mapping[str, Any] = NO_ARGS) -> ResolvedTask:
    """Return a call's messages, and the prompt that governs the answer."""
    prompt, system = agent.prompt, agent.system
    after, system_args = options.get("after"), options.get("system_args")
    is_plain = isinstance(system, str) and prompt.template == TASK.template
    if is_plain and isinstance(task, str) and after is system_args is None:
        return ResolvedTask(Vector([*agent._system_messages, task_message(task)]), NO_ARGS, prompt)
    system_prompt = SystemPrompt(agent.system, agent.name, system_args, options.get("keep_system", False), deps)
    before = Dialog() if after is None else dialog_before(after)
    checked = len(before)
    if agent._keep and isinstance(after, CallResult):
        before, checked = kept(agent._keep, before), 0
    match task:
        case str() | Payload():
            dialog = _put_in_words(agent, before, task, options.get("model"))
        case Prompt() | Task():
            task = _visible_task(agent, task, options.get("model"))
            dialog, prompt = before.put(task), task.prompt if isinstance(task, Task) else task
        case Message():
            dialog = before.append(task)
        case Dialog() | list() | tuple():
            if after is not None:
                raise UsageError(
                    "after=: expected None, since the task is a dialog and holds the whole conversation; leave after"
                    " out, or pass only the newest message as the task"
                )
            dialog = task if isinstance(task, Dialog) else Dialog(task)
            prompt = dialog.top_prompt or prompt
        case _:
            right = "text, a Payload such as Payload.text('…').with_image('cat.png'), a Prompt, a Message or a Dialog"
            raise UsageError(f"the task: expected {right}, got {task!r:.60}")
    newest, flaw = dialog.tail, unpaired(dialog.messages, checked)
    if flaw is not None:
        raise UsageError(f"the dialog: expected one in which each call has one result, got {flaw}")
    if newest is None or _is_blank(newest):
        raise UsageError("the dialog: expected one that ends with a task, got an empty task")
    is_late = system_prompt.is_late(dialog)
    dialog = system_prompt.before(dialog)
    return ResolvedTask(dialog.messages, dialog.system_args, prompt, dialog.governed_by, dialog.summary, is_late)


def _is_blank(message: Message) -> bool:
    return message.role == "user" and not any(not isinstance(p, Text) or p.text.strip() for p in message.parts)


def _put_in_words(agent: Agent[Any, Any], dialog: Dialog, task: str | Payload, model: str | Client | None) -> Dialog:
    """Add a task, given as text or a payload, to a dialog.  Images and documents follow the prompt."""
    asked = task if isinstance(task, str) else _visible(agent, task, model)
    if agent.prompt.template != TASK.template:
        return dialog.put(Task(agent.prompt, {"task": asked}))
    return dialog.append(task_message(asked) if isinstance(asked, str) else asked.message)


def _visible(agent: Agent[Any, Any], payload: Payload, model: str | Client | None) -> Payload:
    """Return the parts of a payload that the call's model accepts.  Some models accept no images."""
    seen = payload.without_images
    if seen == payload:
        return payload
    client = agent._client_of(model)
    if getattr(client, "takes_images", True):
        return payload
    if client.name not in agent._blind:
        agent._blind.add(client.name)
        LOG.warning("the model %r does not support images or PDFs; they are left out of its requests", client.name)
    return seen


def _visible_task(agent: Agent[Any, Any], task: Prompt | Task, model: str | Client | None) -> Prompt | Task:
    """Return a task with only those parts of its payloads that the call's model accepts."""
    if not isinstance(task, Task) or not any(isinstance(v, Payload) for v in task.values.values()):
        return task
    values = {
        name: _visible(agent, value, model) if isinstance(value, Payload) else value
        for name, value in task.values.items()
    }
    return Task(task.prompt, values)
