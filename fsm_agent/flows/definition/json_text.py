"""Values as JSON that can be read again, and errors that say why a value cannot."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import fields, is_dataclass
from typing import Any

from fsm_agent._internal.lazy_import import pydantic, pydantic_core
from fsm_agent.errors import OutcomeError
from fsm_agent.functions.arguments import described_errors
from fsm_agent.validation import shown

_WHOLE = "the value"
_HEAD = "Pydantic serializer warnings:"  # above what is found
_MOST_SHOWN = 500  # characters of a problem
_ILL_TYPED = re.compile(
    r"Expected `(.*?)` .*?\[(?:field_name='(.*?)', )?input_value=(.*), input_type="
)  # pydantic's words
_NO_JSON = re.compile(r"^input: Invalid JSON: (.*) \(given: .*\)$")


class Unwritable(OutcomeError):
    """JSON cannot hold the value unchanged; ``problem`` says what was expected, and what came."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.problem = problem


def dumped(adapter: pydantic.TypeAdapter[Any], value: Any, where: str, right: str) -> str:
    """Return a value as JSON that can be read again.

    Raises:
        Unwritable: JSON cannot hold the value unchanged.
    """
    try:
        text = adapter.serializer.to_json(value, warnings="error", by_alias=True).decode()
        again = adapter.validator.validate_json(text)
        is_equal = bool(again == value)
        lost = lost_in_json(value, again) if is_equal else ""
    except (ValueError, TypeError, RecursionError) as error:
        why = describe_json_error(error)
        problem = f"expected {right}, got {shown(value)}"
        if not why.startswith(f"{_WHOLE}: "):
            problem = f"{problem}: {why.removeprefix('input: ')}"
        raise Unwritable(where, problem) from None
    unchanged = f"expected {right} that JSON keeps unchanged, got {shown(value)}"
    if not is_equal:
        raise Unwritable(where, f"{unchanged}, which comes back as {shown(again)}")
    if lost:
        raise Unwritable(where, f"{unchanged}, which comes back without {lost}")
    return text


def lost_in_json(value: Any, again: Any) -> str:
    """Return what JSON does not keep of a value, though the one that comes back is equal; empty: nothing.

    Equality does not look at the length that bounds a deque, or at what makes the entries of a defaultdict.
    """
    if isinstance(value, deque) and value.maxlen != again.maxlen:
        return f"maxlen={value.maxlen}; use a tuple of the last {value.maxlen} items"
    factory = getattr(again, "default_factory", None)
    if isinstance(value, defaultdict) and value.default_factory is not factory:
        return "its default_factory; use a plain dict"
    if isinstance(value, dict):
        pairs = [(item, again[key]) for key, item in value.items()]
    elif isinstance(value, list | tuple | deque):
        pairs = list(zip(value, again, strict=True))
    elif isinstance(value, pydantic.BaseModel):
        pairs = [(item, vars(again)[name]) for name, item in vars(value).items()]
    elif is_dataclass(value):
        pairs = [(getattr(value, field.name), getattr(again, field.name)) for field in fields(value)]
    else:
        return ""
    return next((lost for one, other in pairs if one is not other and (lost := lost_in_json(one, other))), "")


def describe_json_error(error: Exception) -> str:
    """Return in one line what is wrong with JSON, or with a value that JSON cannot hold."""
    text = described_errors(error) if isinstance(error, pydantic.ValidationError) else str(error)
    lines = [line.strip() for line in text.splitlines()]
    if isinstance(error, pydantic_core.PydanticSerializationError) and (found := _ILL_TYPED.findall(text)):
        lines = [f"{field or _WHOLE}: expected {right}, got {actual}" for right, field, actual in found]
    lines = [_NO_JSON.sub(r"invalid JSON, \1", line) for line in lines]
    return "; ".join([line for line in lines if line != _HEAD])[:_MOST_SHOWN]
