"""Type variables that several modules share."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypeVar

Out = TypeVar("Out", default=Any, covariant=True)  # the output of an agent call
New = TypeVar("New")  # that of the prompt that a function is given
