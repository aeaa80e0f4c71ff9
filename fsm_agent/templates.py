"""How does a prompt's text with its variables become what is said?

Jinja2 in its immutable sandbox: `{{ name }}` only, so JSON needs no escaping; a missing variable is an error
that lists the names.  Only templates that developers write come here: what users and models say is never one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, UndefinedError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fsm_agent.errors import PromptError

_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
)


@lru_cache(maxsize=1024)
def _compiled(template: str) -> Template:
    return _ENVIRONMENT.from_string(template)


@lru_cache(maxsize=1024)
def variables(template: str) -> frozenset[str]:
    """The names that ``template`` uses and does not define itself.

    Raises:
        PromptError: The template's syntax is wrong.
    """
    try:
        return frozenset(meta.find_undeclared_variables(_ENVIRONMENT.parse(template)))
    except TemplateSyntaxError as error:
        raise PromptError(f"the template {template[:60]!r} is wrong in line {error.lineno}: {error.message}") from error


def render(template: str, values: Mapping[str, Any]) -> str:
    """``template`` with ``values`` in their places.

    Raises:
        PromptError: A variable is missing, or the template fails.
    """
    if "{" not in template:
        return template
    needed = variables(template)
    try:
        return _compiled(template).render(values)
    except (TemplateError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        missing = sorted(needed - values.keys()) if isinstance(error, UndefinedError) else ()
        problem = f"cannot be rendered: {error}"
        if missing:
            given = ", ".join(sorted(values)) or "none"
            problem = f"needs the variable(s) {', '.join(missing)}; given: {given}"
        raise PromptError(f"the template {template[:60]!r} {problem}") from error
