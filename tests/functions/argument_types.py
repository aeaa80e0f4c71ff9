"""Types of arguments: one of each kind that a signature may have."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

from pydantic import BaseModel
from typing_extensions import TypedDict


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


@dataclasses.dataclass
class Box:
    at: Point
    size: float = 1.0


class Query(TypedDict):
    text: str


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Opaque:
    """Nothing that pydantic knows."""
