"""Guides to a type whose values a model has to write: its schema, an example, or both."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from fsm_agent.errors import PromptError, hint
from fsm_agent.prompts.rendering.example import kind_of, prompt_example
from fsm_agent.prompts.rendering.schema import name_of, prompt_schema
from fsm_agent.validation import shown

GuideMode: TypeAlias = Literal["full", "schema_only", "example_only"]
MODES: tuple[GuideMode, ...] = get_args(GuideMode)


def prompt_guide(kind: Any, mode: GuideMode = "full") -> str:
    """Return the schema of a type, an example of its values, or the one behind the other.

    Args:
        kind: The type, or a value of it, which completes the example.
        mode: ``"full"``, ``"schema_only"`` or ``"example_only"``.

    Raises:
        PromptError: There is no such mode, or the type has no schema or example.

    Examples:
        >>> class Ticket(PromptModel):
        ...     text: str
        >>> print(prompt_guide(Ticket, "schema_only"))
        ### Schema for `Ticket`
        {
          "text": "string"
        }
    """
    if mode not in MODES:
        raise PromptError(f"mode: expected a known mode, got {shown(mode)}{hint(str(mode), MODES)}")
    if mode == "schema_only":
        return prompt_schema(kind_of(kind))
    if mode == "example_only":
        return prompt_example(kind)
    of = kind_of(kind)
    example = f"### Example\nHere is an example of a valid `{name_of(of)}` object:\n{prompt_example(kind)}"
    return f"{prompt_schema(of)}\n\n{example}"
