"""Checks of plain values: numbers that survive JSON, times and counts."""

from __future__ import annotations

import sys

_LARGEST = 2**63 - 1  # the largest integer that common readers of JSON accept


def is_whole(value: object, least: float = -_LARGEST) -> bool:
    """Return whether ``value`` is an integer from ``least`` on that survives JSON; False for booleans."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST


def is_finite(value: object) -> bool:
    """Return whether ``value`` is a finite number; False for booleans."""
    if type(value) is float:
        return value - value == 0.0
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def is_amount(value: object) -> bool:
    """Return whether ``value`` is a finite number from 0 on."""
    return is_finite(value) and value >= 0  # type: ignore[operator]
