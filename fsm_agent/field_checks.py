"""Does a value hold what its fields declare?"""

from __future__ import annotations

import sys
from typing import Any

_MOST_SHOWN = 80  # characters of a wrong value in an error
_LARGEST = 2**63 - 1  # what every reader of JSON takes for a whole number


def is_whole(value: object) -> bool:
    """Return whether ``value`` is a whole number that survives JSON; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def is_finite(value: object) -> bool:
    """Return whether ``value`` is a number, and neither infinite nor no number at all; True and False are none."""
    if type(value) is float:
        return value - value == 0.0
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def shown(value: Any) -> str:
    """Return ``value`` as Python writes it, or the beginning of that."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python writes out
        return f"a huge {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
