"""JSON that is not complete yet."""

from __future__ import annotations

import re
from typing import Any

from fsm_agent._internal.lazy_import import pattern, pydantic_core
from fsm_agent.errors import ParseError
from fsm_agent.prompts.json_repairs import granted, repaired
from fsm_agent.prompts.parser import MAX_REPAIRED

_LITERALS = ("true", "false", "null")
_LAST_WORD = pattern(r"[\[,:]\s*([a-z]{1,4}+)$", re.ASCII)
_START = pattern(r"[{\[]")


def partial_json(text: str) -> Any:
    """Return what the beginning of a JSON document says so far.

    Strings may be cut, names and numbers may not; half a literal is the literal that it must become.  What stands
    before the first bracket is passed over, and nearly-JSON is repaired.

    Raises:
        ParseError: No JSON has begun.
    """
    start = _START.search(text)
    if start is None:
        raise ParseError("no JSON object or array has begun in the answer")
    document = text[start.start() :]
    for candidate in (document + _missing(document), document):
        try:
            return pydantic_core.from_json(candidate, allow_partial="trailing-strings")
        except (ValueError, TypeError):  # the latter: half a surrogate pair
            continue
    if len(document) <= MAX_REPAIRED and (mended := repaired(document, granted(document))):
        return pydantic_core.from_json(mended)
    raise ParseError("the JSON object or array that begins in the answer is broken")


def _missing(document: str) -> str:
    """Return the rest of the literal at the end."""
    word = _LAST_WORD.search(document, max(0, len(document) - 200))
    if word is None:
        return ""
    return next((literal[len(word[1]) :] for literal in _LITERALS if literal.startswith(word[1])), "")
