"""Checks of plain values: numbers that survive JSON, times and counts."""

from __future__ import annotations

import sys

_LARGEST = 2**63 - 1  # what every reader of JSON takes for a whole number


def is_whole(value: object, least: float = -_LARGEST) -> bool:
    """Return whether ``value`` is a whole number from ``least`` that survives JSON; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _LARGEST


def is_finite(value: object) -> bool:
    """Return whether ``value`` is a number, and neither infinite nor no number at all; True and False are none."""
    if type(value) is float:
        return value - value == 0.0
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def is_amount(value: object) -> bool:
    """Return whether ``value`` is a finite number from 0."""
    return is_finite(value) and value >= 0  # type: ignore[operator]
