"""The arguments of a prompt, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fsm_agent.functions.toolset import Functions
    from fsm_agent.messages.hosted_tools import HostedTool
    from fsm_agent.prompts.prompt import Handler, Mode, Prompt


class PromptValues(TypedDict, total=False):
    """The fields of a `Prompt` that say nothing of the type of its answer, without ``template`` and ``path``."""

    functions: Functions
    on_exception: Handler
    on_interrupt: Handler
    on_final: Handler
    on_loop: Handler
    on_form: Handler
    mode: Mode | None
    max_length: int
    hosted_tools: Sequence[HostedTool]
    settings: Mapping[str, Any]
    finalizer: str | Prompt | None


class PromptOptions(PromptValues, total=False):
    """The fields of a `Prompt` that are given by name, without ``output`` and ``parser``."""

    path: str


class PromptOverrides(PromptValues, total=False):
    """The options that are given beside the files of a prompt."""

    output: Any
    parser: Callable[[str], Any] | None
