"""Functions, outputs and a message that requests of every wire are tested with."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

from fsm_agent.functions import Function
from fsm_agent.messages import Message

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 8


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def wait(seconds: float = 1.0) -> None:
    """Wait."""


class City(BaseModel):
    name: str
    country: str


class Loose(BaseModel):
    name: str = ""


ADD, WAIT = Function.of(add), Function.of(wait)
STRICT_ADD = {**ADD.parameters, "additionalProperties": False}  # what a wire with a strict mode is sent of it
USER = Message.of("user", "hi")


def consumed(value: Any) -> Any:
    """Return a value of a TypedDict with its iterables read, which validates them; objects become dictionaries."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, dict):
        return {key: consumed(inner) for key, inner in value.items()}
    return [consumed(item) for item in value] if isinstance(value, Iterator | list) else value


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what validates a type of an SDK; to make it takes half a second."""
    return TypeAdapter(kind)
