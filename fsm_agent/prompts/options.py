"""The arguments of a prompt that say nothing of the type of its answer, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from fsm_agent.functions.toolset import Functions
    from fsm_agent.prompts.prompt import Handler


class PromptOptions(TypedDict, total=False):
    """The fields of a `Prompt` that are given by name, without ``output`` and ``parser``."""

    path: str
    functions: Functions
    on_exception: Handler
    on_interrupt: Handler
    on_final: Handler
    on_loop: Handler
    on_form: Handler
    two_stage: bool
