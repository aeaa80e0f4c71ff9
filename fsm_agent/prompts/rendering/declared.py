"""The templates that classes declare.

``__prompt_template__`` is the text of a class's values, ``__prompt_file__`` the file with it, and ``__prompt_for__``
has the texts for targets, by their names, and for objects, by their types.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fsm_agent.errors import PromptError, hint
from fsm_agent.prompts.files.reading import found, read_template
from fsm_agent.prompts.rendering.context import check_context
from fsm_agent.prompts.rendering.fields import fields_of, names_of
from fsm_agent.prompts.template import variables
from fsm_agent.validation import check

TEMPLATE, FILE, FOR = "__prompt_template__", "__prompt_file__", "__prompt_for__"
DECLARATIONS = (TEMPLATE, FILE, FOR)


@lru_cache(maxsize=1024)
def template_of(kind: type) -> str | None:
    """Return the template of a class's values: that of the nearest class above that declares one.

    Raises:
        PromptError: A file and a text are declared together, the file cannot be read, the syntax is wrong, or a
            variable is no field.
    """
    for base in kind.__mro__:
        text, file = vars(base).get(TEMPLATE), vars(base).get(FILE)
        if text is not None and file is not None:
            raise PromptError(f"{base.__qualname__}: expected {TEMPLATE} or {FILE}, got both; leave one out")
        if file is not None:
            return _checked(_read_template_file(file, base), kind, f"{FILE} of {kind.__qualname__}")
        if TEMPLATE in vars(base):
            return None if text is None else _checked(text, kind, f"{TEMPLATE} of {kind.__qualname__}")
    return None


@lru_cache(maxsize=1024)
def templates_for(kind: type) -> Mapping[Any, str]:
    """Return the templates of a class for targets, by name or type.

    Raises:
        PromptError: One of them is wrong.
    """
    found: dict[Any, str] = {}
    for base in reversed(kind.__mro__):
        declared = vars(base).get(FOR) or {}
        right = "a mapping of names or types to templates"
        check(f"{FOR} of {base.__qualname__}", declared, isinstance(declared, Mapping), right, PromptError)
        found |= declared
    for target, template in found.items():
        owner = f"{FOR}[{getattr(target, '__qualname__', target)!r}] of {kind.__qualname__}"
        if isinstance(target, type):
            check_context(template, kind, target, owner)
        else:
            check(
                f"a target of {kind.__qualname__}",
                target,
                isinstance(target, str),
                "the name of a type, or a type",
                PromptError,
            )
            _checked(template, kind, owner)
    return found


def targets_of(kind: type) -> list[str]:
    """Return the names of all targets of a class: those with a template, and those that a field names."""
    named = [mark.target for field in fields_of(kind) for mark in field.marks if mark.target]
    return list(dict.fromkeys([*[target for target in templates_for(kind) if isinstance(target, str)], *named]))


def check_declarations(kind: type) -> None:
    """Check all that a class declares.

    Raises:
        PromptError: Something is wrong with it.
    """
    for name in vars(kind):
        if name.startswith("__prompt_") and name not in DECLARATIONS:
            raise PromptError(
                f"{kind.__qualname__}: expected a known declaration, got {name}{hint(name, DECLARATIONS)}"
            )
    template_of(kind)
    templates_for(kind)


def _checked(template: Any, kind: type, owner: str) -> str:
    """Return the template, all of whose variables are fields or properties of the class."""
    check(owner, template, isinstance(template, str), "a string", PromptError)
    try:
        used = variables(template)
    except PromptError as error:
        raise PromptError(f"{owner}: {error}") from error
    known = names_of(kind)
    if unknown := sorted(used.difference(known)):
        names = ", ".join(known) or "none"
        raise PromptError(f"{owner}: expected its fields ({names}), got {', '.join(unknown)}")
    return str(template)


def _read_template_file(file: Any, base: type) -> str:
    """Return the text of a file beside the module of the class, or in the working directory."""
    check(f"{FILE} of {base.__qualname__}", file, isinstance(file, str | Path), "a path", PromptError)
    origin = getattr(sys.modules.get(base.__module__), "__file__", None)
    folders = [*([Path(origin).absolute().parent] if origin else []), Path.cwd()]
    advice = (
        ". Is its name spelled right, is the path relative to the class's module or to the working directory, and is it"
        " packaged?"
    )
    return read_template(found(file, folders, base.__qualname__, advice))
