"""Values as JSON that can be read again, and what is wrong with those that cannot."""

from __future__ import annotations

import re
from typing import Any

from fsm_agent._internal.lazy_import import pydantic, pydantic_core
from fsm_agent.errors import OutcomeError
from fsm_agent.functions.function import described_errors
from fsm_agent.mistakes import shown

_MOST_SHOWN = 500  # characters of a problem
_ILL_TYPED = re.compile(
    r"Expected `(.*?)` .*?\[(?:field_name='(.*?)', )?input_value=(.*), input_type="
)  # pydantic's words


def dumped(adapter: pydantic.TypeAdapter[Any], value: Any, where: str, right: str) -> str:
    """Return a value as JSON that can be read again.

    Raises:
        OutcomeError: There is none.
    """
    try:
        text = adapter.serializer.to_json(value, warnings="error").decode()
        again = adapter.validator.validate_json(text)
        is_equal = bool(again == value)
    except (ValueError, TypeError, RecursionError) as error:
        problem = f"{where} has {shown(value)}, and JSON could not be read again as {right}"
        raise OutcomeError(f"{problem}: {explained(error)}") from None
    if not is_equal:
        raise OutcomeError(f"{where} has {shown(value)}, which comes back from JSON as {shown(again)}")
    return text


def explained(error: Exception) -> str:
    """Return in one line what is wrong with JSON, or with a value that shall be written as JSON."""
    text = described_errors(error) if isinstance(error, pydantic.ValidationError) else str(error)
    lines = [line.strip() for line in text.splitlines()]
    if isinstance(error, pydantic_core.PydanticSerializationError) and (found := _ILL_TYPED.findall(text)):
        lines = [f"{field or 'it'}: {right} would be right (given: {actual})" for right, field, actual in found]
    return "; ".join(lines)[:_MOST_SHOWN]
