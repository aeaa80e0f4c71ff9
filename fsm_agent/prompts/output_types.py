"""Refuse what cannot be the type of an answer, before a model is asked for one."""

from __future__ import annotations

from collections.abc import Mapping

from fsm_agent.errors import PromptError
from fsm_agent.validation import shown

_KINDS = ("typing", "typing_extensions", "types")  # modules whose objects are types although they are no classes


def check_type(output: object, what: str) -> None:
    """Refuse what is not an output type, as an instance, a name or a list of types is.

    Raises:
        PromptError: It says what is probably meant.
    """
    kind = type(output)
    if isinstance(output, type) or output is None or kind.__module__ in _KINDS:
        return
    if hasattr(output, "__get_pydantic_core_schema__"):
        right = f"its type, {kind.__name__}"
    elif isinstance(output, str):
        right = f"the type itself, {output}" if output.isidentifier() else "a type such as int, or a model of pydantic"
    elif isinstance(output, list | tuple) and all(isinstance(item, type) for item in output):
        names = [item.__name__ for item in output]
        right = (
            f"list[{names[0]}]"
            if len(names) == 1
            else f"a union, {' | '.join(names)}"
            if names
            else "a type such as list[str]"
        )
    elif isinstance(output, Mapping):
        right = "a model of pydantic, a dataclass or a TypedDict with these fields (pydantic.create_model makes one)"
    elif callable(output):
        right = "a type, or Prompt(…, parser=…) for a function of the text"
    else:
        right = f"its type, {kind.__name__}" if kind.__module__ != "builtins" else f"a type such as {kind.__name__}"
    raise PromptError(f"{what}: expected {right}, got {shown(output)}, which has no JSON schema")
