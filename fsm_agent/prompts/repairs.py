"""Repairs to answers: broken JSON, JSON inside other text, and names and values that are nearly right.

A name or value is corrected if exactly one of the expected names or values is close enough.

Two texts are close if they differ only in case, spaces, hyphens and underscores.  They are also close if they differ by
one typo (an extra, missing or wrong letter, or two swapped letters), provided that both have at least four letters, the
same first letter and the same digits.  So "unapproved" is not close to "approved", nor is "step 2" to "step 1".

Repairs are silent: the model is not told about them, but `CallResult.repairs` lists them.  If an answer cannot be
repaired, `ask_to_fix` in `fsm_agent.call.transition_table` writes the message to the model, using the text from
`Prompt.on_exception`.  Once an answer is usable, the table also removes that message and the failed answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, SupportsIndex

from pydantic_core import ValidationError, from_json, to_json

from fsm_agent.functions.arguments import CONTAINERS, is_json_text, place_of, schemas_at

_MAX_ROUNDS = 8  # of corrections, each of which may reveal further errors
_MAX_ERRORS = 50  # that each round looks at
_MAX_NAME = 100  # characters of names that are compared
_MAX_CHOICES = 1000
_LEAST_LETTERS = 4
MISSING = ("missing", "missing_argument")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument", "no_such_attribute")
_UNLISTED = ("enum", "literal_error")
UNCLEAR = "unclear_union"  # pydantic's type for the errors of `fsm_agent.prompts.unions`
_UNTAGGED = (UNCLEAR, "union_tag_invalid", "union_tag_not_found")
MATCHED = frozenset((*MISSING, *_UNKNOWN, *_UNLISTED, *_UNTAGGED, *CONTAINERS))  # errors that a near miss may cause
_IGNORED = re.compile(r"[\s_-]+")
_DIGITS = re.compile(r"\d+")

Schema = Mapping[str, Any]


def matched(
    document: str, validated: Callable[[str], Any], schema: Schema, error: ValidationError
) -> tuple[Any, tuple[str, ...]] | None:
    """Correct names and values in a document, and return its value with the corrections.

    Return None if the corrected document is invalid.
    """
    data = {"": from_json(document)}  # with a key, so that the whole value can be replaced
    schema = {"properties": {"": schema}, "$defs": schema.get("$defs", {})}
    notes: list[str] = []
    for _ in range(_MAX_ROUNDS):
        new = [*_corrected(data, schema, error)]
        if not new:
            return None
        notes += new
        try:
            return validated(to_json(data[""], inf_nan_mode="constants").decode()), tuple(notes)
        except ValidationError as problem:
            error = problem.with_traceback(None)  # a traceback would keep its frames alive
    return None


def _corrected(data: Any, schema: Schema, error: ValidationError) -> Iterator[str]:
    """Correct ``data`` where possible, and yield the corrections."""
    for item in error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_ERRORS]:
        kind, path = item["type"], ("", *item["loc"])
        if kind in _UNLISTED:
            yield from _value_at(data, schema, path)
        elif kind in (*MISSING, *_UNKNOWN) and len(path) > 1:
            yield from _name_at(data, schema, path)
        elif kind in _UNTAGGED:
            yield from _tag_at(data, schema, path)
        elif kind in CONTAINERS:
            yield from _text_at(data, schema, path)


def _text_at(data: Any, schema: Schema, path: Sequence[Any]) -> Iterator[str]:
    """Replace a string with the list or object that it holds: Claude, for one, writes some of its JSON twice."""
    holder, key, _ = _found(data, schema, path)
    if holder is not None and is_json_text(actual := holder[key]):
        with suppress(ValueError):  # not JSON
            holder[key] = from_json(actual)
            yield f"the text at {_words(path)} was taken for the JSON in it"


def _value_at(data: Any, schema: Schema, path: Sequence[Any]) -> Iterator[str]:
    holder, key, schemas = _found(data, schema, path)
    if holder is None or not isinstance(actual := holder[key], str):
        return
    allowed = [choice for s in schemas for choice in (*s.get("enum", ()), *([s["const"]] if "const" in s else ()))]
    allowed = [*dict.fromkeys(choice for choice in allowed if isinstance(choice, str))]
    if actual not in allowed and (right := only_close(actual, allowed)) is not None:
        holder[key] = right
        yield f"{actual!r:.120} at {_words(path)} was taken for {right!r}"


def _name_at(data: Any, schema: Schema, path: Sequence[Any]) -> Iterator[str]:
    holder, key, schemas = _found(data, schema, path[:-1])
    fields = holder[key] if holder is not None else None
    if isinstance(fields, dict):
        known = _names(schemas)
        absent = [name for name in known if name not in fields]
        wanted = [path[-1]] if path[-1] in known else [only_close(path[-1], absent)] if path[-1] in fields else []
        yield from _renamed(fields, known, wanted)


def _tag_at(data: Any, schema: Schema, path: Sequence[Any]) -> Iterator[str]:
    holder, key, schemas = _found(data, schema, path)
    fields = holder[key] if holder is not None else None
    if not isinstance(fields, dict):
        return
    known = _names(schemas)
    absent = [name for name in known if name not in fields]
    yield from _renamed(fields, known, [only_close(name, absent) for name in fields if name not in known])
    for name in fields:
        if not any(_is_free(s["properties"][name]) for s in schemas if name in s.get("properties", ())):
            yield from _value_at(data, schema, (*path, name))


def _names(schemas: Iterable[Schema]) -> dict[str, None]:
    return {name: None for s in schemas for name in s.get("properties", ())}


def _is_free(schema: Schema) -> bool:
    return schema.get("type") == "string" and "enum" not in schema and "const" not in schema


def _renamed(fields: dict[str, Any], known: Iterable[str], wanted: Iterable[str | None]) -> Iterator[str]:
    for right in wanted:
        if right is None or right in fields:
            continue
        unknown = [name for name in fields if name not in known]
        actual = only_close(right, unknown)
        if actual is None or only_close(actual, [name for name in known if name not in fields]) != right:
            continue
        renamed = {right if name == actual else name: value for name, value in fields.items()}
        fields.clear()
        fields.update(renamed)
        yield f"the name {actual!r:.120} was taken for {right!r}"


def only_close(actual: Any, right: Iterable[str]) -> str | None:
    """Return the only text in ``right`` that is close to ``actual``, or None if none or several are close."""
    if not isinstance(actual, str) or len(actual) > _MAX_NAME:
        return None
    choices = [choice for choice in right if abs(len(choice) - len(actual)) <= _MAX_NAME][:_MAX_CHOICES]
    plain = _fold_text(actual)
    close = [choice for choice in choices if _fold_text(choice) == plain]
    close = close or [choice for choice in choices if _is_slip(plain, _fold_text(choice))]
    return close[0] if len(close) == 1 else None


def _fold_text(text: str) -> str:
    return _IGNORED.sub("", text).casefold()


def _is_slip(a: str, b: str) -> bool:
    if min(len(a), len(b)) < _LEAST_LETTERS or abs(len(a) - len(b)) > 1 or a[0] != b[0]:
        return False
    if _DIGITS.findall(a) != _DIGITS.findall(b):
        return False
    first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    swapped = a[first + 1 : first + 2] + a[first : first + 1] + a[first + 2 :]
    rests = (a[first + 1 :], b[first:]), (a[first:], b[first + 1 :]), (a[first + 1 :], b[first + 1 :])
    return swapped == b[first:] or any(x == y for x, y in rests)


def _found(data: Any, schema: Schema, path: Sequence[Any]) -> tuple[Any, Any, list[Schema]]:
    """Return `(container, key, schemas)` for a position in a document.

    A position may also name a union member, which is not part of the document.
    """
    holder, steps = place_of(data, path)
    return holder, steps[-1] if steps else None, schemas_at(schema, steps)


def _words(path: Sequence[Any]) -> str:
    return ".".join(str(step)[:100] for step in path[1:20] if step != "") or "the top"


_LOOKS = 8  # reads per character that json_repair may take; it succeeds with 2 to 4
_MAX_LOOKS = 200_000  # hostile text then takes a second or two


def repaired(document: str, looks: list[int]) -> str:
    """Return the document as json_repair repairs it, or "" if that fails or takes more than ``looks`` reads.

    json_repair looks ahead and starts over, so hostile text takes it more than quadratic time (12 s for 3,000
    characters).  It may also raise any exception.
    """
    import json_repair

    try:
        return str(json_repair.repair_json(_Metered.of(document, looks), skip_json_loads=True))
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return ""


def granted(text: str) -> list[int]:
    """Return a counter that limits how often all repairs of ``text`` together may read it."""
    return [min(_LOOKS * len(text), _MAX_LOOKS)]


class _OutOfLooks(RuntimeError):
    """Raised when a metered text is read too often.  This exception never leaves this module."""


class _Metered(str):
    """Text that can be read only a limited number of times.  This bounds the work that any reader does."""

    __slots__ = ("looks",)
    looks: list[int]  # the number left, shared by all slices of a text

    @classmethod
    def of(cls, text: str, looks: list[int]) -> _Metered:
        metered = cls(text)
        metered.looks = looks
        metered.pay(1 + len(text) // 16)
        return metered

    def pay(self, looks: int) -> None:
        self.looks[0] -= looks
        if self.looks[0] < 0:
            raise _OutOfLooks

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        result = str.__getitem__(self, key)
        if isinstance(key, slice):
            return _Metered.of(result, self.looks)
        self.pay(1)
        return result

    def __add__(self, other: str) -> _Metered:
        return _Metered.of(str.__add__(self, other), self.looks)

    def __iter__(self) -> Iterator[str]:
        self.pay(len(self))
        return str.__iter__(self)

    def find(self, wanted: str, start: Any = 0, end: Any = None, /) -> int:
        result = str.find(self, wanted, start, end)
        self.pay(1 + ((len(self) if result < 0 else result) - start) // 16)
        return result
