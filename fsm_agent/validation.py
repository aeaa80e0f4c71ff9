"""Raises errors for wrong values.  Each error says what was expected and what was given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fsm_agent._internal.masking import mask_keys
from fsm_agent._internal.structs import is_finite, is_whole
from fsm_agent.errors import UsageError

Rules: TypeAlias = tuple[
    tuple[str, Callable[[Any], bool], str], ...
]  # for each field, a check and a description of valid values

MAX_SHOWN_CHARS = 80
MAX_DEPTH = 50  # levels of nested JSON


def safe_repr(value: object) -> str:
    """Return a shortened `repr` of a value for messages, without API keys.

    For a mapping, only numbers and None are shown, because other values may be secrets.
    """
    if isinstance(value, Mapping):
        plain = {key: repr(item) if isinstance(item, int | float | None) else "…" for key, item in value.items()}
        text = f"{{{', '.join([f'{key!r}: {item}' for key, item in plain.items()])}}}"
    else:
        try:
            text = repr(value)
        except ValueError:  # an integer with too many digits for Python to print
            return f"a huge {type(value).__name__}"
    text = mask_keys(text)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def invalid(what: str, value: object, right: str, kind: type[UsageError] = UsageError) -> UsageError:
    """Return the error for an argument with a wrong value, with a message that says "expected {right}"."""
    return kind(f"{what}: expected {right}, got {safe_repr(value)}")


def require(what: str, value: object, is_right: bool, right: str, kind: type[UsageError] = UsageError) -> None:
    """If the value is wrong, raise the error that `invalid` returns."""
    if not is_right:
        raise invalid(what, value, right, kind)


def require_fields(instance: object, owner: str, rights: Rules, kind: type[UsageError] = UsageError) -> None:
    """For the first field with a wrong value, raise the error that `invalid` returns."""
    for name, is_right, right in rights:
        value = getattr(instance, name)
        require(f"{name} of {owner}", value, is_right(value), right, kind)


def or_none(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check that takes None, too."""
    return lambda value: value is None or is_right(value)


def plain_json(what: str, value: object) -> dict[str, Any]:
    """Return a copy of a mapping in its JSON form, made of dictionaries, lists and plain values.

    Raises:
        UsageError: If JSON cannot represent a value.  The message says which one.
    """
    require(what, value, isinstance(value, Mapping), "a mapping such as {'ticket': 17}")
    plain: dict[str, Any] = _plain_json(what, value, MAX_DEPTH)
    return plain


def _plain_json(what: str, value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        require(what, value, not any("\ud800" <= c <= "\udfff" for c in value), "text without lone surrogates")
        return str(value)
    if is_whole(value):
        return int(value)
    if isinstance(value, float) and is_finite(value):
        return float(value)
    if isinstance(value, Mapping | list | tuple) and not depth:
        raise UsageError(f"{what[:MAX_SHOWN_CHARS]}…: expected data nested at most {MAX_DEPTH} deep, got deeper data")
    if isinstance(value, Mapping):
        for key in value:
            require(f"a key of {what}", key, isinstance(key, str), "text")
        return {
            _plain_json(f"a key of {what}", k, 1): _plain_json(f"{what}[{k!r:.40}]", item, depth - 1)
            for k, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain_json(f"{what}[{index}]", item, depth - 1) for index, item in enumerate(value)]
    right = "text, a finite number, True, False, None, or a list or mapping of these"
    raise invalid(what, value, right)
