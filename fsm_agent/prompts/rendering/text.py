"""Values as a model reads them: a line for each field, or what their class's template says."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any

import pydantic

from fsm_agent.errors import PromptError, hint
from fsm_agent.messages.message import Document, Image
from fsm_agent.prompts.rendering.choices import description_of, is_skipped, label_of, text_of_member
from fsm_agent.prompts.rendering.context import render_for
from fsm_agent.prompts.rendering.declared import targets_of, template_of, templates_for
from fsm_agent.prompts.rendering.fields import PromptField, RecordField, docstring_of, fields_of, is_record, tag_of
from fsm_agent.prompts.template import render, variables

MAX_DEPTH = 50  # of values within values
_SEQUENCES = (list, tuple, set, frozenset)
_MODELS = "fsm_agent.prompts.rendering.model"  # whose classes have a to_prompt that is `prompt_text`
_UNTOLD: tuple[Any, ...] = (object.__str__, pydantic.BaseModel.__str__)  # what a class has that says nothing itself

_open: ContextVar[tuple[tuple[object, str], ...]] = ContextVar("_open", default=())  # being printed, with their names


def prompt_text(value: Any, target: object = None) -> str:
    """Return a value as text for a model.

    A pydantic model or dataclass is what its template says, or its ``__str__`` if it has one of its own, or a line for
    each field.  A member of an enumeration is its value with its meaning; lists and dictionaries have what is in them.
    What has a ``to_prompt`` of its own is what that returns.  Anything else is its ``str``.

    Args:
        value: The value.
        target: Who or what the text is for: the name of a target, or an object whose type is in ``__prompt_for__``.

    Raises:
        PromptError: There is no such target, a template is wrong, or the value contains itself.

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
    raise PromptError(
        f"{kind.__name__}: expected a target that it has a text for ({known}), got a {type(target).__name__}"
    )


def text_without_method(value: Any) -> str:
    """Return the text that a value has without its ``to_prompt``, for that method to build on."""
    return _text(value, None, is_asking=True)


def check_target(kind: type, target: str) -> None:
    """Refuse a target that a class does not have.

    Raises:
        PromptError: It has none of this name.
    """
    if target not in (known := targets_of(kind)):
        raise PromptError(f"{kind.__name__}: expected one of its targets, got {target!r}{hint(target, known)}")


def shown(value: Any) -> Any:
    """Return the text of a value that a template prints, if it has one of its own; otherwise the value."""
    return prompt_text(value) if _any_inside(value, _has_text) else value


def is_worded(value: Any) -> bool:
    """Return whether JSON of a value would leave out what its author says of it to models.

    That is the meaning of a member of an enumeration, or the ``to_prompt`` of any value, also of one inside of it.
    """
    return _any_inside(value, lambda item: _has_meaning(item) or hasattr(item, "to_prompt"))


def _any_inside(value: Any, is_it: Callable[[Any], bool]) -> bool:
    """Return whether a value is it, or one in its lists, dictionaries and fields, which may contain themselves."""
    pending, seen = [value], set[int]()
    while pending:
        item = pending.pop()
        if is_it(item):
            return True
        if not _is_compound(item) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Mapping):
            pending += [*item, *item.values()]
        elif isinstance(item, _SEQUENCES):
            pending += item
        elif isinstance(item, pydantic.RootModel):
            pending.append(item.root)
        else:
            kind: Any = type(item)
            pending += [getattr(item, field.name) for field in fields_of(kind)]
    return False


def is_attachment(value: Any) -> bool:
    """Return whether a value is a picture or document, or a list of nothing else."""
    if isinstance(value, list | tuple) and value:
        return all(isinstance(item, Image | Document) for item in value)
    return isinstance(value, Image | Document)


def _has_text(value: Any) -> bool:
    return isinstance(value, Enum | pydantic.RootModel) or is_record(type(value))


@contextmanager
def _inside(value: Any, step: str) -> Iterator[None]:
    """Remember that a value is being printed.

    Raises:
        PromptError: It is being printed already, or lies too deep.
    """
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
    """Return whether a type has a ``to_prompt`` of its own, which is not the one that calls `prompt_text`."""
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
    if opened and opened[-1][0] is value:  # its own __str__ or to_prompt is asking
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
    """Return whether a record has a text of its own, and no template."""
    return is_record(kind) and kind.__str__ not in _UNTOLD and template_of(kind) is None


def _listed(value: Any, target: str | None) -> str:
    """Return a line for each field of a record."""
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
    """Return a line with a key; what follows on further lines is indented, so that nothing in it looks like a key."""
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


def _mapping(value: Mapping[Any, Any]) -> str:
    keys = [label_of(key) if isinstance(key, Enum) else _indented(str(key)) for key in value]
    if not any(map(_needs_lines, value.values())):
        return json.dumps(dict(zip(keys, map(_simplify_value, value.values()), strict=True)), ensure_ascii=False)
    return "\n".join([_named(key, item, f"[{key!r}]") for key, item in zip(keys, value.values(), strict=True)])


def _needs_lines(value: Any) -> bool:
    """Return whether a value inside another needs lines of its own."""
    return _is_compound(value) or _has_meaning(value) or _has_own(type(value))


def _simplify_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return label_of(value)
    return value if isinstance(value, str | int | float | None) else _scalar(value)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"<{len(value)} bytes>" if isinstance(value, bytes | bytearray) else str(value)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")
