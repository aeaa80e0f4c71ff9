"""Durations and moments, as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any


def format_duration(seconds: float, *, with_days: bool = False) -> str:
    """Return a duration in its largest units, hours or days; it is finite, and not negative."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24} days" if with_days and hours >= 48 else f"{hours:,} h {minutes} min"


def format_moment(at_s: float) -> str:
    """Return a Unix time in UTC; "?": no calendar has it."""
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "?"


def in_seconds(time: Any) -> Any:
    """Return a timedelta as seconds, and anything else as it is."""
    return time.total_seconds() if isinstance(time, timedelta) else time
