"""Shows values to a model as text and images: with their class's template, or with a line for each field.

A class declares its template in ``__prompt_template__``, or in a file that ``__prompt_file__`` names.
``__prompt_for__`` maps the names and types of targets to templates.  The template for a target object may also use ``{{
self.name }}``, ``{{ target.name }}`` and ``{self:schema_only}``.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

import pydantic

from fsm_agent.errors import PromptError, hint
from fsm_agent.messages.message import Attachment, Document, Image, Payload, Text
from fsm_agent.prompts.fields import (
    PromptField,
    RecordField,
    description_of,
    docstring_of,
    fields_of,
    is_record,
    is_skipped,
    label_of,
    names_of,
    tag_of,
    text_of_member,
)
from fsm_agent.prompts.template import attributes, found, names_replaced, read_template, render, variables
from fsm_agent.prompts.type_text import MODES, prompt_guide
from fsm_agent.validation import require

_FORM = re.compile(r"\{\{ *self *: *(\w+) *\}\}|\{ *self *: *(\w+) *\}")
_SELF = "self_"  # Jinja2 reserves self


@lru_cache(maxsize=1024)
def _readable(template: str) -> str:
    """Return the template with variable names that Jinja2 accepts."""
    return names_replaced(_FORM.sub(lambda form: f"{{{{ {_SELF}{form[1] or form[2]} }}}}", template), {"self": _SELF})


def render_for(template: str, value: Any, target: object) -> str:
    """Return a value's text for a target object."""
    readable = _readable(template)
    forms = {mode: f"{_SELF}{mode}" for mode in MODES}
    guides = {name: prompt_guide(value, mode) for mode, name in forms.items() if name in variables(readable)}
    return render(readable, {_SELF: value, "target": target, **guides})


def check_context(template: Any, kind: type, target: type, owner: str) -> None:
    """Check a class's template for target objects of a type."""
    used = _variables_of(template, owner, _readable)
    shown = {_SELF: "self", "target": "target", **{f"{_SELF}{mode}": f"self:{mode}" for mode in MODES}}
    for name in sorted(used - shown.keys()):
        shown_name = f"self:{name.removeprefix(_SELF)}" if name.startswith(_SELF) else name
        raise PromptError(f"{owner}: expected a known name, got {shown_name}{hint(shown_name, shown.values())}")
    for name, attribute in sorted(attributes(_readable(template))):
        of = {_SELF: kind, "target": target}.get(name)
        if of is not None and is_record(of) and not hasattr(of, attribute) and attribute not in names_of(of):
            fields = ", ".join(names_of(of)) or "none"
            raise PromptError(f"{owner}: expected one of the fields ({fields}), got {shown[name]}.{attribute}")


TEMPLATE, FILE, FOR = "__prompt_template__", "__prompt_file__", "__prompt_for__"
DECLARATIONS = (TEMPLATE, FILE, FOR)


@lru_cache(maxsize=1024)
def template_of(kind: type) -> str | None:
    """Return the template that a class declares or inherits, or None if it has none."""
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
    """Return a class's templates for targets, by the target's name or type."""
    found: dict[Any, str] = {}
    for base in reversed(kind.__mro__):
        declared = vars(base).get(FOR) or {}
        right = "a mapping of names or types to templates"
        require(f"{FOR} of {base.__qualname__}", declared, isinstance(declared, Mapping), right, PromptError)
        found |= declared
    for target, template in found.items():
        owner = f"{FOR}[{getattr(target, '__qualname__', target)!r}] of {kind.__qualname__}"
        if isinstance(target, type):
            check_context(template, kind, target, owner)
        else:
            right = "the name of a type, or a type"
            require(f"a target of {kind.__qualname__}", target, isinstance(target, str), right, PromptError)
            _checked(template, kind, owner)
    return found


def targets_of(kind: type) -> list[str]:
    """Return the names of all targets that a class's templates and fields mention."""
    named = [mark.target for field in fields_of(kind) for mark in field.marks if mark.target]
    return list(dict.fromkeys([*[target for target in templates_for(kind) if isinstance(target, str)], *named]))


def check_declarations(kind: type) -> None:
    """Check a class's prompt declarations."""
    for name in vars(kind):
        if name.startswith("__prompt_") and name not in DECLARATIONS:
            meant = hint(name, DECLARATIONS)
            raise PromptError(f"{kind.__qualname__}: expected a known declaration, got {name}{meant}")
    template_of(kind)
    templates_for(kind)


def _checked(template: Any, kind: type, owner: str) -> str:
    """Check that all the template's variables are fields or properties of the class, and return the template."""
    known = names_of(kind)
    if unknown := sorted(_variables_of(template, owner).difference(known)):
        names = ", ".join(known) or "none"
        raise PromptError(f"{owner}: expected its fields ({names}), got {', '.join(unknown)}")
    return template  # type: ignore[no-any-return]


def _variables_of(template: Any, owner: str, readable: Callable[[str], str] | None = None) -> frozenset[str]:
    require(owner, template, isinstance(template, str), "a string", PromptError)
    try:
        return variables(readable(template) if readable else template)
    except PromptError as error:
        raise PromptError(f"{owner}: {error}") from error


def _read_template_file(file: Any, base: type) -> str:
    """Return the text of a file that is next to the class's module or in the working directory."""
    require(f"{FILE} of {base.__qualname__}", file, isinstance(file, str | Path), "a path", PromptError)
    origin = getattr(sys.modules.get(base.__module__), "__file__", None)
    folders = [*([Path(origin).absolute().parent] if origin else []), Path.cwd()]
    advice = (
        "; check its spelling, that the path is relative to the module of the class or to the working directory, and"
        " that the file is packaged"
    )
    return read_template(found(file, folders, base.__qualname__, advice))


MAX_DEPTH = 50  # of nested values
_SEQUENCES = (list, tuple, set, frozenset)
_MODELS = "fsm_agent.prompts.models"  # its classes define to_prompt as `prompt_text`
_UNTOLD: tuple[Any, ...] = (object.__str__, pydantic.BaseModel.__str__)  # defaults that do not count as a class's own

_open: ContextVar[tuple[tuple[object, str], ...]] = ContextVar("_open", default=())  # values being printed


def prompt_text(value: Any, target: object = None) -> str:
    """Return a value as text for a model.

    - A pydantic model or dataclass is printed with its template, its own ``__str__``, or one line for each field.
    - An enum member is printed as its value and meaning.
    - Lists and dictionaries are printed item by item.
    - A value with a ``to_prompt`` method is printed as the text that it returns.
    - Any other value is printed as its ``str``.

    Args:
        value: The value.
        target: The intended reader: a target's name, or an object whose type is in ``__prompt_for__``.

    Raises:
        PromptError: If the target is unknown, a template is wrong, or the value contains itself.

    Examples:
        >>> print(prompt_text({"count": 2, "items": ["lamp"]}))
        count: 2
        items: ["lamp"]
    """
    if target is None:
        return _text(value, None)
    kind: Any = type(value)
    if not is_record(kind):
        raise PromptError(f"{kind.__name__}: expected a model or dataclass for the target {target!r}, got another type")
    if isinstance(target, str):
        check_target(kind, target)
        return _text(value, target)
    templates = templates_for(kind)
    for base in type(target).__mro__:
        if base in templates:
            with _inside(value, kind.__name__):
                return render_for(templates[base], value, target)
    known = ", ".join([item.__name__ for item in templates if isinstance(item, type)]) or "none"
    raise PromptError(f"{kind.__name__}: expected one of its targets ({known}), got a {type(target).__name__}")


def text_without_method(value: Any) -> str:
    """Return a value's text without using its ``to_prompt`` method, so that the method can call this function."""
    return _text(value, None, is_asking=True)


def check_target(kind: type, target: str) -> None:
    """Refuse a target for which a class declares nothing."""
    if target not in (known := targets_of(kind)):
        raise PromptError(f"{kind.__name__}: expected one of its targets, got {target!r}{hint(target, known)}")


def printed(value: Any) -> Any:
    """Return the value's own text for a template, or the value itself if it has none.

    Raises:
        TypeError: If the value is a function, a generator or a coroutine, whose text is an address in memory.
    """
    if inspect.isroutine(value):
        name = getattr(value, "__name__", "")
        raise TypeError(f"expected a value, got the function {name}; call it, or read the key {name!r} as x[{name!r}]")
    if isinstance(value, Generator | Coroutine | AsyncGenerator):
        name = getattr(value, "__name__", "")
        raise TypeError(f"expected a value, got the {type(value).__name__} {name}; pass what it gives, such as a list")
    return prompt_text(value) if any(map(_has_text, _inner(value, _values_of))) else value


def is_worded(value: Any) -> bool:
    """Return whether JSON would lose text that the author of a value's class wrote for models.

    Such text is an enum member's meaning, or what ``to_prompt`` returns for the value or a value inside it.
    """
    return any(_has_meaning(item) or hasattr(item, "to_prompt") for item in _inner(value, _values_of))


def _inner(value: Any, fields: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """Yield a value and the values inside it, in order.  Cycles are allowed.

    Args:
        value: The value.
        fields: A function that returns the values of the record fields to include.
    """
    pending, seen = [value], set[int]()
    while pending:
        item = pending.pop()
        yield item
        if not _is_compound(item) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Mapping):
            inside: Iterable[Any] = [*item, *item.values()]
        elif isinstance(item, _SEQUENCES):
            inside = item
        else:
            inside = [item.root] if isinstance(item, pydantic.RootModel) else fields(item)
        pending += reversed([*inside])


def _values_of(record: Any) -> list[Any]:
    kind: Any = type(record)
    return [getattr(record, field.name) for field in fields_of(kind)]


def is_attachment(value: Any) -> bool:
    """Return whether a value is an image, a document, or a list of these."""
    if isinstance(value, list | tuple) and value:
        return all(isinstance(item, Image | Document) for item in value)
    return isinstance(value, Image | Document)


def _has_text(value: Any) -> bool:
    return isinstance(value, Enum | pydantic.RootModel | Image | Document | Payload) or is_record(type(value))


@contextmanager
def _inside(value: Any, step: str) -> Iterator[None]:
    """Mark a value as being printed, and refuse cycles and deep nesting."""
    opened = _open.get()
    path = "".join([*[name for _, name in opened], step])
    if any(item is value for item, _ in opened):
        raise PromptError(f"{path} cannot be printed: it contains itself")
    if len(opened) >= MAX_DEPTH:
        raise PromptError(f"{path[:200]}… cannot be printed: it is nested more than {MAX_DEPTH} deep")
    token = _open.set((*opened, (value, step)))
    try:
        yield
    finally:
        _open.reset(token)


def _has_meaning(value: Any) -> bool:
    return isinstance(value, Enum) and not is_skipped(value) and bool(description_of(value))


def _has_own(kind: Any) -> bool:
    method = getattr(kind, "to_prompt", None)
    return inspect.isfunction(method) and method.__module__ != _MODELS


def _text(value: Any, target: str | None, step: str = "", *, is_asking: bool = False) -> str:
    if not is_asking and target is None and _has_own(type(value)) and all(item is not value for item, _ in _open.get()):
        with _inside(value, step or type(value).__name__):
            return str(value.to_prompt())
    if isinstance(value, Enum):
        return text_of_member(value)
    if is_attachment(value):
        return ""
    if not _is_compound(value):
        return _scalar(value)
    opened = _open.get()
    if opened and opened[-1][0] is value:  # called by its own __str__ or to_prompt
        if _renders_itself(type(value)):
            return _listed(value, target)
        if _has_own(type(value)):
            return _record(value, target) if is_record(type(value)) else _scalar(value)
    with _inside(value, step or type(value).__name__):
        if isinstance(value, pydantic.RootModel):
            return _text(value.root, None, ".root")
        if is_record(type(value)):
            return _record(value, target)
        return _mapping(value) if isinstance(value, Mapping) else _sequence(value)


def _is_compound(value: Any) -> bool:
    return isinstance(value, (Mapping, *_SEQUENCES, pydantic.RootModel)) or is_record(type(value))


def _record(value: Any, target: str | None) -> str:
    kind: Any = type(value)
    template = template_of(kind) if target is None else templates_for(kind).get(target)
    if template is not None:
        return render(template, {name: getattr(value, name) for name in variables(template)})
    return str(value) if target is None and _renders_itself(kind) else _listed(value, target)


def _renders_itself(kind: Any) -> bool:
    return is_record(kind) and kind.__str__ not in _UNTOLD and template_of(kind) is None


def _listed(value: Any, target: str | None) -> str:
    kind: Any = type(value)
    tag = tag_of(kind)
    lines: list[str] = []
    for field in fields_of(kind):
        look = field.look(target)
        if look is None or field.info.exclude:
            continue
        item = getattr(value, field.name)
        if tag and field.name == tag[0]:
            lines.insert(0, f"{tag[1]}: {' '.join(doc.split())}" if (doc := docstring_of(kind)) else tag[1])
        elif not field.is_picture and not is_attachment(item):
            lines.append(_line(field, look, item, target))
    return "\n".join(lines)


def _line(field: RecordField, look: PromptField, value: Any, target: str | None) -> str:
    key = look.rename or field.description or field.name
    if look.format_with is not None:
        return _entry(key, str(look.format_with(value)))
    kind: Any = type(value)
    if is_record(kind) and target is not None and target in targets_of(kind):
        with _inside(value, f".{field.name}"):
            return _entry(key, _record(value, target), is_block=True)
    return _named(key, value, f".{field.name}")


def _named(key: str, value: Any, step: str) -> str:
    text = _text(value, None, step)
    kind: Any = type(value)
    is_listed = is_record(kind) and not (_renders_itself(kind) or _has_own(kind)) and template_of(kind) is None
    return _entry(key, text, is_block=is_listed or (_is_compound(value) and "\n" in text))


def _entry(key: str, text: str, *, is_block: bool = False) -> str:
    """Return a line that begins with a key.  Further lines are indented so that they do not look like keys."""
    if is_block:
        return f"{key}:\n  {_indented(text)}" if text else f"{key}:"
    return f"{key}: {_indented(text)}"


def _sequence(value: Any) -> str:
    items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
    kept = [(index, item) for index, item in enumerate(items) if not is_attachment(item)]
    if not any(_needs_lines(item) for _, item in kept):
        return json.dumps([_simplify_value(item) for _, item in kept], ensure_ascii=False)
    texts = [_text(item, None, f"[{index}]") for index, item in kept]
    return "\n".join([f"- {_indented(text)}" for text in texts])


def _mapping(mapping: Mapping[Any, Any]) -> str:
    value = {key: item for key, item in mapping.items() if not is_attachment(item)}
    keys = [label_of(key) if isinstance(key, Enum) else _indented(str(key)) for key in value]
    if not any(map(_needs_lines, value.values())):
        return json.dumps(dict(zip(keys, map(_simplify_value, value.values()), strict=True)), ensure_ascii=False)
    return "\n".join([_named(key, item, f"[{key!r}]") for key, item in zip(keys, value.values(), strict=True)])


def _needs_lines(value: Any) -> bool:
    return _is_compound(value) or _has_meaning(value) or _has_own(type(value))


def _simplify_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return label_of(value)
    return value if isinstance(value, str | int | float | None) else _scalar(value)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Payload):
        return value.to_text()
    return f"<{len(value)} bytes>" if isinstance(value, bytes | bytearray) else str(value)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def prompt_parts(value: Any, target: object = None) -> tuple[Attachment | Text, ...]:
    """Return a value as message parts: its images and documents in field order, then its text.

    Use them in a message with ``Message.of("user", *prompt_parts(value))``.

    Args:
        value: The value.
        target: The intended reader; see `prompt_text`.

    Raises:
        PromptError: If the value cannot be printed; see `prompt_text`.
        UsageError: If a field that is declared as an image does not hold one.

    Examples:
        >>> prompt_parts({"count": 2})
        (Text(text='{"count": 2}'),)
    """
    text = prompt_text(value, target)  # also refuses a value that contains itself
    attachments = attachments_in(value, target if isinstance(target, str) else None, may_read=True)
    return (*attachments, *([Text(text)] if text else []))


def attachments_in(value: Any, target: str | None = None, *, may_read: bool = False) -> Iterator[Attachment]:
    """Yield the images and documents in a value, in order.  Cycles are allowed.

    The target decides which fields are included.  ``may_read`` allows images to be read from their sources, such as
    paths.
    """

    def shown(record: Any) -> Iterator[Any]:
        kind: Any = type(record)
        for field in _readable_fields(kind):
            look, item = field.look(target), getattr(record, field.name, None)
            if look is None or field.info.exclude or item is None:
                continue
            if not look.image or isinstance(item, Image):
                yield item
            elif may_read:
                yield Image.of(item)

    for item in _inner(value, shown):
        if isinstance(item, Image | Document):
            yield item
        elif isinstance(item, Payload):
            yield from [part for part in item.parts if not isinstance(part, Text)]


def _readable_fields(kind: type) -> Sequence[RecordField]:
    """Return a record's fields, or an empty result if its annotations are meant only for type checkers."""
    try:
        return fields_of(kind)
    except PromptError:
        return ()
