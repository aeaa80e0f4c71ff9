"""Copies of values and of dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any


def replace(value: Any, /, **changes: Any) -> Any:
    """Return a copy that differs: what `copy.replace` does from Python 3.13 on."""
    return value.changed(**changes) if hasattr(value, "changed") else dataclasses.replace(value, **changes)
