"""Make our objects usable as fields of pydantic models and dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pydantic_core
from pydantic_core import CoreSchema, core_schema

T = TypeVar("T")


def schema_of(kind: type[T], read: Callable[[str], T], write: Callable[[T], str]) -> CoreSchema:
    """Return the schema of a field that holds an object: ``write`` returns its JSON, and ``read`` takes it.

    A ValueError of either is a validation error.
    """

    def validated(value: Any) -> T:
        if isinstance(value, kind):
            return value
        return read(pydantic_core.to_json(value, inf_nan_mode="constants").decode())

    def written(value: T) -> Any:
        return pydantic_core.from_json(write(value))

    return core_schema.no_info_plain_validator_function(
        validated, serialization=core_schema.plain_serializer_function_ser_schema(written, when_used="json")
    )
