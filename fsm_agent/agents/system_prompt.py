"""The system prompt in front of the dialog of a call: always the agent's, unless the caller keeps the dialog's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.vector import Vector
from fsm_agent.call.result import CallResult
from fsm_agent.errors import PromptError, UsageError
from fsm_agent.functions.context import LATER
from fsm_agent.messages.message import FunctionCall, FunctionResult, Message, renumbered
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.template import check_used
from fsm_agent.validation import check, shown, wrong

if TYPE_CHECKING:
    import inspect
else:
    inspect = deferred("inspect")

NO_ARGS: Mapping[str, Any] = {}
NO_DEPS = (None,)
System: TypeAlias = str | Prompt | Callable[[Any], str] | Callable[[], str]


def check_system(system: object) -> None:
    """Refuse a system prompt that is a function of anything but the deps of a call, or nothing.

    Raises:
        UsageError: It names the function.
    """
    if isinstance(system, str | Prompt):
        return
    right = "a function of the deps of a call, such as def system(deps: Shop) -> str"
    if inspect.iscoroutinefunction(system) or isinstance(system, type):
        raise wrong("system of an agent", system, right)
    if not _takes(system, NO_DEPS) and not _takes(system, ()):
        raise wrong("system of an agent", system, right)


def _takes(function: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*args)
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return bool(args)
    return True


def is_of_deps(system: System) -> bool:
    """Return whether a system prompt is made of the deps of a call."""
    return not isinstance(system, str | Prompt) and _takes(system, NO_DEPS)


def check_system_needs(system: System, agent: str, deps: object) -> None:
    """Refuse a call without deps whose system prompt cannot be made without.

    Raises:
        UsageError: It names the agent.
    """
    if deps is None and is_of_deps(system) and not _takes(system, ()):
        raise UsageError(
            f"deps=: expected some, got None: system of the agent {agent!r} is a function of them; pass deps=…, or give"
            " its parameter a default if it can do without"
        )


class SystemPrompt:
    """The part of a call's options that concerns its system prompt.

    Args:
        system: The agent's.
        agent: The agent's name, for errors.
        args: The values for its variables; None: the values from the dialog.
        keep: Keep a system message at the start of the dialog.
        deps: The deps of the call.
    """

    __slots__ = ("_agent", "_args", "_deps", "_keep", "_system")

    def __init__(
        self, system: System, agent: str, args: Mapping[str, Any] | None = None, keep: bool = False, deps: Any = None
    ) -> None:
        check("keep_system", keep, isinstance(keep, bool), "True or False")
        if args is not None:
            check("system_args", args, isinstance(args, Mapping), "values by name, such as {'name': 'Ada'}")
            if not isinstance(system, Prompt):
                raise UsageError(
                    f"system_args: expected none, since system of the agent {agent!r} has no variables, got"
                    f" {shown(args)};"
                    " pass a Prompt as system"
                )
        self._system = system
        self._agent = agent
        self._args = args
        self._keep = keep
        self._deps = deps

    def before(self, dialog: Dialog) -> Dialog:
        """Return a dialog with the agent's system prompt as its first message, in place of any other.

        An agent without one keeps a system message that the caller wrote, and removes one that an agent added.

        Raises:
            PromptError: A variable is missing or not used.
            UsageError: The function of the deps does not return a text.
        """
        has_own = len(dialog) > 0 and dialog[0].role == "system"
        if has_own and self._keep:
            if self._args is not None:
                raise UsageError("expected either system_args or keep_system=True, got both; leave one out")
            return dialog
        args = self._values(dialog)
        is_late = self.is_late(dialog)
        text = "" if is_late else self._text(args, has_own)
        rest = dialog.messages
        if not text and not is_late:
            if not has_own or dialog.system_args is None:
                return dialog
            return _like(dialog, renumbered(rest[1:]), NO_ARGS)
        message = Message.of("system", text)
        if has_own:
            messages = rest if rest[0] == message else Vector([message, *rest[1:]])
        else:
            messages = Vector(renumbered([message, *rest]))
        return _like(dialog, messages, args)

    def is_late(self, dialog: Dialog) -> bool:
        """Return whether the system prompt of a dialog is made by its driver, which has the deps.

        Until then an empty system message holds its place.
        """
        is_kept = self._keep and len(dialog) > 0 and dialog[0].role == "system"
        return self._deps is LATER and not is_kept and is_of_deps(self._system)

    def text(self) -> str:
        """Return the system prompt of a dialog whose driver makes it.

        Raises:
            UsageError: There are no deps, or the function of them does not return a text.
        """
        return self._text(NO_ARGS, may_keep=False)

    def _values(self, dialog: Dialog) -> Mapping[str, Any]:
        """Return the values for the variables, from the call or from the dialog."""
        if not isinstance(self._system, Prompt):
            return NO_ARGS
        if self._args is not None:
            check_used(self._system.template, self._args)
            return self._args
        used = self._system.variables
        return {name: value for name, value in (dialog.system_args or {}).items() if name in used}

    def _text(self, args: Mapping[str, Any], may_keep: bool) -> str:
        system = self._system
        if isinstance(system, str):
            return system
        if isinstance(system, Prompt):
            try:
                return system.render(**args).text
            except PromptError as error:
                kept = ", or keep_system=True to keep what the dialog begins with" if may_keep else ""
                right = f"pass the variables as call(…, system_args={{…}}){kept}"
                raise PromptError(f"system of the agent {self._agent!r}: {error}; {right}") from error
        check_system_needs(system, self._agent, self._deps)
        makes: Any = system
        text: object = makes(self._deps) if is_of_deps(system) and self._deps is not None else makes()
        if not isinstance(text, str):
            raise wrong(f"what system of the agent {self._agent!r} returned", text, "a string")
        return text


def _like(dialog: Dialog, messages: Vector[Message] | list[Message], args: Mapping[str, Any]) -> Dialog:
    summary, shift = dialog.summary, len(messages) - len(dialog)
    return Dialog(
        messages,
        top_prompt=dialog.top_prompt,
        system_args=args,
        governed_by=dialog.governed_by,
        summary=None if summary is None else summary.inherited(shift),
    )


def dialog_before(after: object) -> Dialog:
    """Return the dialog that a task follows.

    Raises:
        UsageError: It is not a dialog, or asks for functions that have no results.
    """
    if isinstance(after, CallResult):
        after = after.dialog
    right = "the result of a call, a Dialog, or a list of messages"
    check("after", after, isinstance(after, Dialog | list | tuple), right)
    dialog = after if isinstance(after, Dialog) else Dialog(cast("Any", after))
    if (asked := call_without_result(dialog)) is not None:
        raise UsageError(
            f"after=: expected a dialog in which each function has its result, got one that still waits for {asked};"
            " let its call end first"
        )
    return dialog


def call_without_result(dialog: Dialog) -> str | None:
    """Return the name, with the id, of the first function call of a dialog that has no result; None: each has one.

    Services refuse such a dialog, and a result that is missing among others is a mistake that is hard to see.
    """
    calls: Sequence[FunctionCall] = ()
    results = list[str]()
    for message in dialog.messages:
        if message.role == "tool":
            results += [part.provider_id or part.id for part in message.parts if isinstance(part, FunctionResult)]
        elif len(results) < len(calls):
            break
        else:
            calls, results = message.function_calls if message.role == "assistant" else (), []
    if len(results) >= len(calls):
        return None
    left = Counter(results)
    for call in calls:
        id = call.provider_id or call.id
        if not left[id]:
            return f"{call.name!r} (id {id!r})"
        left[id] -= 1
    return None
