"""Text for people, suggestions for misspelled words, and ``${VAR}`` references in a configuration."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any


def format_duration(seconds: float, *, with_days: bool = False) -> str:
    """Return a finite, non-negative duration in its largest units, up to hours or days."""
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
    """Return a Unix time in UTC, or as a number if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"the Unix time {at_s:g}"


def counted(number: int, thing: str) -> str:
    """Return a number with its noun, such as ``1 run`` or ``1,200 runs``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def cut(text: str, most: int) -> str:
    """Return text, cut to at most ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def in_seconds(time: Any) -> Any:
    """Return a timedelta in seconds, and any other value unchanged."""
    return time.total_seconds() if isinstance(time, timedelta) else time


def nearest(word: object, words: Iterable[str], near: float = 0.6) -> str | None:
    """Return the closest known word, or None if no word is close.  The word may be any key of a mapping."""
    close = difflib.get_close_matches(str(word), list(words), n=1, cutoff=near)
    return close[0] if close else None


def guess(word: object, words: Iterable[str], near: float = 0.6) -> str:
    """Return a suggestion to append to a message about an unknown word: the closest known word, if any."""
    meant = nearest(word, words, near)
    return f": did you mean {meant!r}?" if meant else ""


def hint(word: object, words: Iterable[str]) -> str:
    """Return a hint for a message about an unknown word: the closest known word or, if none is close, all of them."""
    words = list(words)
    return guess(word, words) or f"; known: {', '.join(words) or 'none'}"


_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # except tabs and line ends

_SURROGATES = r"\ud800-\udfff"

_REORDERING = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"

_TAGS = r"\U000e0000-\U000e007f"  # letters that are invisible, but read by models

_HIDDEN = re.compile(f"[{_CONTROLS}{_SURROGATES}{_REORDERING}{_TAGS}]+")


# What Unicode says is not drawn: its "default ignorable code points".
_IGNORED = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    r"\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)

_DRAWN = rf"[^\x00-\x7f{_IGNORED}]"

# Joiners within a word or an emoji, and the mark that colors an emoji, are part of what is drawn.
_JOINER = rf"(?:(?<={_DRAWN})|(?<={_DRAWN}\ufe0f))[\u200c\u200d](?={_DRAWN})"

_UNSEEN = re.compile(rf"(?!{_JOINER})(?!(?<={_DRAWN})\ufe0f)(?!\r)[{_IGNORED}{_CONTROLS}{_SURROGATES}\u2028\u2029]")


def escaped(text: str) -> str:
    """Return the text with escapes of JSON for the characters that are not drawn or that reorder others."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda unseen: json.dumps(unseen[0])[1:-1], text)


def plain(text: str) -> str:
    """Return the text without invisible tags, reordering marks and control characters, except line ends and tabs."""
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub("", text)


MAX_SHOWN = 20_000  # characters that are shown; an export is complete

_LINE = 76  # characters of JSON that stay in one line


def shown(text: Any) -> str:
    """Return text for people: without invisible characters (see `plain`), and cut if it is very long."""
    found = plain(str(text))
    if len(found) <= MAX_SHOWN:
        return found
    return f"{found[:MAX_SHOWN]}… ({len(found) - MAX_SHOWN:,} more characters are in the export)"


def pretty(text: Any, *, is_spread: bool = False) -> str:
    """Return JSON on one line if it is short, otherwise with line breaks, and with escapes for what is not drawn.

    Other text is returned as by `shown`.
    """
    try:
        value = json.loads(text) if isinstance(text, str | bytes) else text
        line = json.dumps(value, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return shown(text)
    is_line = len(line) <= _LINE and not is_spread
    return shown(escaped(line if is_line else json.dumps(value, indent=2, ensure_ascii=False)))


_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_NESTED = re.compile(r"\$\{([^{}]*)\$\{")

_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?", re.DOTALL)


def expanded(text: str, environment: Mapping[str, str], label: str = "") -> str:
    """Return the text with its references to environment variables replaced by their values.

    ``${VAR}`` (or ``${env:VAR}``) is replaced by the variable's value, and ``${VAR:-default}`` by the default if the
    variable is missing or empty.  Error messages call the text ``label``.

    Raises:
        ValueError: If a reference is malformed, or its variable is missing.  The message contains no values.
    """
    if nested := _NESTED.search(text):
        owner = f" for {label}" if label else ""
        raise ValueError(f"expected a default without a reference{owner}, got ${{{nested[1]:.80}${{…")
    return _REFERENCE.sub(lambda match: _value(match[1], environment, label), text)


def referenced(text: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of the variables that the text refers to."""
    for reference in _REFERENCE.findall(text):
        match = _VARIABLE.fullmatch(reference)
        if match is not None and match[1] in environment:
            yield environment[match[1]]


def has_reference(text: object) -> bool:
    """Return whether a value is a string that contains a reference."""
    return isinstance(text, str) and _REFERENCE.search(text) is not None


def _value(reference: str, environment: Mapping[str, str], label: str) -> str:
    match = _VARIABLE.fullmatch(reference)
    owner = f" for {label}" if label else ""
    if match is None:
        raise ValueError(f"expected ${{VARIABLE}} or ${{VARIABLE:-default}}{owner}, got ${{{reference:.80}}}")
    name, has_default, default = match.groups()
    if has_default:
        return environment.get(name) or str(default)
    if name not in environment:
        raise ValueError(f"the environment variable {name!r}{owner} is not set; set it, or write ${{{name}:-…}}")
    return environment[name]
