"""Where do the pieces of a function call's arguments belong that Gemini streams by path?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.providers.arriving_text import ArrivingText

# One step of a path (RFC 9535): `.name`, `[3]`, `['name']` or `["name"]`.
_STEP = re.compile(r"\.([^.*\[\]'\"]+)|\[(\d{1,7})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MAX_STEPS = 64


class _ArrivingString(ArrivingText):
    """A string among the arguments."""

    __slots__ = ("will_continue",)

    def __init__(self) -> None:
        super().__init__()
        self.will_continue = False


class StreamedArguments:
    """The arguments of one call; `value` can also be set at once.

    A piece is Vertex AI's `PartialArg`: a path, a value, and whether more of the same string will come.
    """

    def __init__(self) -> None:
        self.value: Any = {}

    def put(self, piece: Mapping[str, Any]) -> bool:
        """Put a piece where its path says; False when there is no such place."""
        steps = _steps(piece.get("jsonPath"))
        place, last = self.value, steps[-1] if steps else None
        for step, next_step in pairwise(steps):
            if not _is_place(place, step):
                return False
            place = _at(place, step, [] if isinstance(next_step, int) else {})
        if not _is_place(place, last):
            return False
        text = piece.get("stringValue")
        if not isinstance(text, str):
            known = next((name for name in ("numberValue", "boolValue") if name in piece), "")
            _at(place, last, None)
            place[last] = piece.get(known)
            return True
        string = _at(place, last, None)
        if not (isinstance(string, _ArrivingString) and string.will_continue):
            string = place[last] = _ArrivingString()
        string.add(text)
        string.will_continue = piece.get("willContinue") is True
        return True

    def json(self) -> str:
        """All that has come, as JSON."""
        return pydantic_core.to_json(_joined(self.value)).decode()


def _steps(path: Any) -> list[str | int]:
    """The steps of a path; none when it is no path."""
    steps: list[str | int] = []
    if not isinstance(path, str) or not path.startswith("$"):
        return []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or len(steps) == _MAX_STEPS:
            return []
        name, index, *quoted = match.groups()
        text = next((text for text in quoted if text is not None), "")
        steps.append(int(index) if index else name or _ESCAPED.sub(r"\1", text))
        at = match.end()
    return steps


def _is_place(place: Any, step: Any) -> bool:
    if isinstance(step, int):
        return isinstance(place, list) and step <= len(place)
    return isinstance(step, str) and isinstance(place, dict)


def _at(place: Any, step: Any, empty: Any) -> Any:
    """What stands there; ``empty`` when nothing did."""
    if isinstance(place, dict):
        return place.setdefault(step, empty)
    if step == len(place):
        place.append(empty)
    return place[step]


def _joined(value: Any) -> Any:
    """Arguments with their strings in one piece."""
    if isinstance(value, _ArrivingString):
        value.end()
        return str(value)
    if isinstance(value, list):
        return [_joined(item) for item in value]
    return {key: _joined(item) for key, item in value.items()} if isinstance(value, dict) else value
