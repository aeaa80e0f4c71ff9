"""Render the template of a prompt with its variables.

Jinja2 in its immutable sandbox: `{{ name }}` only, so JSON needs no escaping; a missing variable is an error
that lists the names.  Only developers' templates are rendered: text of users and models is never a template.

A template of nothing but names, as most are, is filled in without Jinja2, which takes a while to load.  A value that is
a pydantic model, a dataclass or a member of an enumeration, is printed by `rendering`, which is loaded for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, TypeAlias

from fsm_agent._internal.hints import hint
from fsm_agent._internal.lazy_import import deferred, pattern
from fsm_agent._internal.values import Value
from fsm_agent.errors import PromptError

if TYPE_CHECKING:
    import jinja2
    import jinja2.meta as jinja2_meta
    import jinja2.nodes as jinja2_nodes
    import jinja2.sandbox as jinja2_sandbox

    from fsm_agent.prompts.rendering import text as value_text
else:
    jinja2, jinja2_meta, jinja2_sandbox = deferred("jinja2"), deferred("jinja2.meta"), deferred("jinja2.sandbox")
    jinja2_nodes = deferred("jinja2.nodes")
    value_text = deferred("fsm_agent.prompts.rendering.text")  # which renders templates itself

TextGuard: TypeAlias = Callable[[str], str]

_NAME = pattern(r"(?<!\{)\{\{ *([A-Za-z][A-Za-z0-9_]*) *\}\}")
_SYNTAX = pattern(r"\{[{%#]|\r")  # Jinja2 turns CR LF into LF
_NO_VARIABLES = frozenset(("true", "false", "none", "self", "super", "loop", "caller", "varargs", "kwargs")) | {
    *("range", "dict", "lipsum", "cycler", "joiner", "namespace")  # Jinja2's globals
}
_PLAIN = frozenset((str, int, float, bool, type(None)))  # what is printed as Python does


class Joined(str):
    """The text of a template, with the others that it includes, extends or imports.

    Args:
        text: The template.
        parts: The texts of the others, by the names under which templates have them.
    """

    __slots__ = ("_hash", "parts")

    _hash: int
    parts: Mapping[str, str]

    def __new__(cls, text: str, parts: Mapping[str, str]) -> Joined:
        made = super().__new__(cls, text)
        made.parts = parts
        made._hash = hash((text, tuple(sorted(parts.items()))))
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Joined) and str.__eq__(self, other) and self.parts == other.parts

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, (str(self), dict(self.parts))


class Reference(Value, frozen=True):
    """The place in a template that names others."""

    line: int
    names: tuple[str, ...]  # of which the first that is there is taken; none: they are computed
    is_optional: bool = False
    is_base: bool = False  # it is extended


@cache
def _environment() -> jinja2.Environment:
    return jinja2_sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        finalize=_printed,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _printed(value: Any) -> Any:
    """Return what a template prints of a value."""
    if type(value) in _PLAIN or isinstance(value, jinja2.Undefined):
        return value
    return value_text.shown(value)


@cache
def _guarded_environment(guard: TextGuard) -> jinja2.Environment:
    def printed(value: Any) -> Any:
        text = _printed(value)
        return guard(text) if isinstance(text, str) else text

    return _environment().overlay(finalize=printed)


@lru_cache(maxsize=1024)
def _compiled(template: str, guard: TextGuard | None = None) -> jinja2.Template:
    environment = _guarded_environment(guard) if guard else _environment()
    if isinstance(template, Joined):
        environment = environment.overlay(loader=jinja2.DictLoader(template.parts))
    return environment.from_string(str(template))


@lru_cache(maxsize=1024)
def _pieces(template: str) -> tuple[str, ...] | None:
    """Return texts, and between them names; None when the template holds anything else."""
    pieces = _NAME.split(template)
    if any(map(_SYNTAX.search, pieces[::2])):
        return None
    if any(iskeyword(name) or name in _NO_VARIABLES for name in pieces[1::2]):
        return None
    return tuple(pieces)


@lru_cache(maxsize=1024)
def variables(template: str) -> frozenset[str]:
    """Return the names that ``template`` uses and does not define itself.

    Raises:
        PromptError: The template's syntax is wrong.
    """
    if (pieces := _pieces(template)) is not None:
        return frozenset(pieces[1::2])
    try:
        parts = template.parts if isinstance(template, Joined) else {}
        return frozenset(_needed(str(template), parts, frozenset(), set()))
    except jinja2.TemplateSyntaxError as error:
        raise _wrong_syntax(template, error) from error
    except RecursionError:
        raise PromptError(f"the template {template[:60]!r} is nested too deeply") from None


def _needed(
    template: str, parts: Mapping[str, str], assigned: frozenset[str], seen: set[tuple[str, frozenset[str]]]
) -> Iterator[str]:
    """Yield the names that a template and its parts use, and neither they nor those around them define."""
    tree = _environment().parse(template)
    yield from jinja2_meta.find_undeclared_variables(tree) - assigned
    if not parts:
        return
    assigned = assigned.union([node.name for node in tree.find_all(jinja2_nodes.Name) if node.ctx == "store"])
    for name in [name for reference in _references(tree) for name in reference.names if name in parts]:
        if (name, assigned) not in seen:
            seen.add((name, assigned))
            yield from _needed(parts[name], parts, assigned, seen)


def references(template: str) -> list[Reference]:
    """Return the places where a template includes, extends or imports others, in order.

    Raises:
        PromptError: The template's syntax is wrong.
    """
    if "{%" not in template:
        return []
    variables(template)
    return list(_references(_environment().parse(template)))


def _references(tree: jinja2_nodes.Template) -> Iterator[Reference]:
    kinds = (jinja2_nodes.Include, jinja2_nodes.Extends, jinja2_nodes.Import, jinja2_nodes.FromImport)
    for node in tree.find_all(kinds):
        named: Any = node.template  # type: ignore[attr-defined]
        items = named.items if isinstance(named, jinja2_nodes.List | jinja2_nodes.Tuple) else [named]
        names = [item.value for item in items if isinstance(item, jinja2_nodes.Const) and isinstance(item.value, str)]
        is_optional = bool(getattr(node, "ignore_missing", False))
        is_base = isinstance(node, jinja2_nodes.Extends)
        yield Reference(node.lineno, tuple(names) if len(names) == len(items) else (), is_optional, is_base)


def check_used(template: str, values: Mapping[str, Any]) -> None:
    """Refuse values that ``template`` does not use.

    Args:
        template: The template.
        values: The values, by the names of variables.

    Raises:
        PromptError: The template uses no variable of some name.
    """
    used = variables(template)
    for name in sorted(values.keys() - used):
        word = re.escape(name)
        other = re.search(rf"\$?\{{ *{word} *\}}(?!\}})|\$\b{word}\b|%\({word}\)[a-z]|<{word}>|\[{word}\]", template)
        meant = f"; write {{{{ {name} }}}} for {other[0]!r}" if other else hint(name, sorted(used))
        raise PromptError(f"the template {template[:60]!r} uses no variable {name!r}{meant}")


def render(template: str, values: Mapping[str, Any], guard: TextGuard | None = None) -> str:
    """Return ``template`` with ``values`` in their places.

    Args:
        template: The template.
        values: The values, by the names of variables.
        guard: Makes every text that the template prints of a value harmless; one function for good.

    Raises:
        PromptError: A variable is missing, or the template fails.
    """
    if "{" not in template:
        return template
    needed = variables(template)
    pieces = _pieces(template)
    try:
        if pieces is None or not needed <= values.keys():
            return _compiled(template, guard).render(values)
        texts = list(pieces)
        filled_in = [_filled_in(values[name]) for name in pieces[1::2]]
        texts[1::2] = map(guard, filled_in) if guard else filled_in
        return "".join(texts)
    except PromptError:  # of a template inside of this one
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise _failed(template, needed, values, error) from error
    except jinja2.TemplateError as error:
        raise _failed(template, needed, values, error) from error


def _filled_in(value: Any) -> str:
    return str(value if type(value) in _PLAIN else value_text.shown(value))


def attributes(template: str) -> frozenset[tuple[str, str]]:
    """Return the attributes that ``template`` reads of its variables, as pairs of names."""
    found = _environment().parse(template).find_all(jinja2_nodes.Getattr)
    return frozenset([(node.node.name, node.attr) for node in found if isinstance(node.node, jinja2_nodes.Name)])


def names_replaced(template: str, names: Mapping[str, str]) -> str:
    """Return ``template`` with other names for some of its variables.

    Raises:
        PromptError: The template's syntax is wrong.
    """
    pieces = []
    before = ""
    try:
        for _, kind, text in _environment().lex(template):
            is_variable = kind == "name" and before != "."
            pieces.append(names.get(text, text) if is_variable else text)
            before = before if kind == "whitespace" else text
    except jinja2.TemplateSyntaxError as error:
        raise _wrong_syntax(template, error) from error
    return "".join(pieces)


def _wrong_syntax(template: str, error: jinja2.TemplateSyntaxError) -> PromptError:
    return PromptError(f"the template {template[:60]!r} is wrong in line {error.lineno}: {error.message}")


def _failed(template: str, needed: frozenset[str], values: Mapping[str, Any], error: Exception) -> PromptError:
    missing = sorted(needed - values.keys()) if isinstance(error, jinja2.UndefinedError) else ()
    problem = f"cannot be rendered: {error}"
    if missing:
        names = ", ".join(sorted(values)) or "none"
        problem = f"needs the variable(s) {', '.join(missing)}; given: {names}"
    return PromptError(f"the template {template[:60]!r} {problem}")
