"""A call's system prompt, which precedes the dialog: text, a prompt, or a function of the deps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from fsm_agent._internal.structs import Vector
from fsm_agent.errors import PromptError, UsageError
from fsm_agent.functions.context import LATER
from fsm_agent.messages.message import Message, Text, renumbered
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.template import check_used
from fsm_agent.validation import invalid, require, safe_repr

NO_ARGS: Mapping[str, Any] = {}

NO_DEPS = (None,)

System: TypeAlias = str | Prompt | Callable[[Any], str] | Callable[[], str]


def check_system(system: object) -> None:
    """Reject a system prompt function that is async, or that takes anything other than deps."""
    if isinstance(system, str | Prompt):
        return
    right = "a function of the deps of a call, such as def system(deps: Shop) -> str"
    if inspect.iscoroutinefunction(system) or isinstance(system, type):
        raise invalid("system of an agent", system, right)
    if not _takes(system, NO_DEPS) and not _takes(system, ()):
        raise invalid("system of an agent", system, right)


def _takes(function: Any, args: tuple[Any, ...]) -> bool:
    try:
        inspect.signature(function).bind(*args)
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return bool(args)
    return True


def is_of_deps(system: System) -> bool:
    """Return whether a system prompt is a function of deps."""
    return not isinstance(system, str | Prompt) and _takes(system, NO_DEPS)


def check_system_needs(system: System, agent: str, deps: object) -> None:
    """Reject a call without deps if its system prompt is a function that needs them."""
    if deps is None and is_of_deps(system) and not _takes(system, ()):
        raise UsageError(
            f"deps=: expected a value, got None: system of the agent {agent!r} is a function of the deps; pass deps=…,"
            " or give its parameter a default"
        )


@dataclass(frozen=True, slots=True, repr=False)  # deps may hold secrets
class SystemPrompt:
    """The system prompt of a call."""

    system: System
    agent: str  # its name
    args: Mapping[str, Any] | None = None  # the values of the prompt's variables, or None for those of the dialog
    keep: bool = False
    deps: Any = None

    def __post_init__(self) -> None:
        require("keep_system", self.keep, isinstance(self.keep, bool), "True or False")
        if self.args is not None:
            require("system_args", self.args, isinstance(self.args, Mapping), "values by name, such as {'name': 'Ada'}")
            if not isinstance(self.system, Prompt):
                raise UsageError(
                    f"system_args: expected none, since system of the agent {self.agent!r} has no variables, got"
                    f" {safe_repr(self.args)}; pass a Prompt as system"
                )

    def before(self, dialog: Dialog) -> Dialog:
        """Return a dialog that begins with the agent's system prompt, which replaces any other.

        If the agent has no system prompt, a system message that the caller wrote stays, and one that an agent added is
        removed.
        """
        has_own = len(dialog) > 0 and dialog[0].role == "system"
        if has_own and self.keep:
            if self.args is not None:
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
        """Return whether the driver makes the system prompt, because only the driver has the deps.

        Until then, an empty system message takes its place.
        """
        is_kept = self.keep and len(dialog) > 0 and dialog[0].role == "system"
        return self.deps is LATER and not is_kept and is_of_deps(self.system)

    def text(self) -> str:
        """Return the system prompt that was left for the driver to make, now that the deps are known."""
        return self._text(NO_ARGS, may_keep=False)

    def _values(self, dialog: Dialog) -> Mapping[str, Any]:
        if not isinstance(self.system, Prompt):
            return NO_ARGS
        if self.args is not None:
            check_used(self.system.template, self.args)
            return self.args
        used = self.system.variables
        return {name: value for name, value in (dialog.system_args or {}).items() if name in used}

    def _text(self, args: Mapping[str, Any], may_keep: bool) -> str:
        system = self.system
        if isinstance(system, str):
            return system
        if isinstance(system, Prompt):
            try:
                message = system.render(**args)
            except PromptError as error:
                kept = ", or keep_system=True to keep what the dialog begins with" if may_keep else ""
                right = f"pass the variables as call(…, system_args={{…}}){kept}"
                raise PromptError(f"system of the agent {self.agent!r}: {error}; {right}") from error
            if any(not isinstance(part, Text) for part in message.parts):
                raise UsageError(
                    f"system of the agent {self.agent!r}: expected text, got an image or document in system_args;"
                    " pass it with the task"
                )
            return message.text
        check_system_needs(system, self.agent, self.deps)
        makes: Any = system
        text: object = makes(self.deps) if is_of_deps(system) and self.deps is not None else makes()
        if not isinstance(text, str):
            raise invalid(f"the return value of system of the agent {self.agent!r}", text, "a string")
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
