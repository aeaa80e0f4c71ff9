"""The arguments of a prompt that say nothing of the type of its answer, for type checkers."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    from typing import _SpecialForm

    from fsm_agent.functions.toolset import Functions
    from fsm_agent.prompts.prompt import Handler

# What is no `type`, as `int | str` or `Literal[…]`: mypy cannot tell what an answer of that is.
Form: TypeAlias = "UnionType | _SpecialForm"


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
