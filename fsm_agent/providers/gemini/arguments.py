"""Arguments of a function call that Gemini streams in pieces by path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.providers.streams import ArrivingText

# One step of a path (RFC 9535): `.name`, `[3]`, `['name']` or `["name"]`.
_STEP = re.compile(r"\.([^.*\[\]'\"]+)|\[(\d{1,7})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MAX_STEPS = 64


class _ArrivingString(ArrivingText):
    """A string among the arguments that is still arriving."""

    __slots__ = ("will_continue",)

    def __init__(self) -> None:
        super().__init__()
        self.will_continue = False


class StreamedArguments:
    """The arguments of one call; `value` can also be set at once.

    A piece is Vertex AI's `PartialArg`: a path, a value, and whether more of the same string follows.
    """

    def __init__(self) -> None:
        self.value: Any = {}

    def put(self, piece: Mapping[str, Any]) -> bool:
        """Put a piece at its path; return False if the path does not exist."""
        steps = _steps(piece.get("jsonPath"))
        container, last = self.value, steps[-1] if steps else None
        for step, next_step in pairwise(steps):
            if not _has_step(container, step):
                return False
            container = _descend(container, step, [] if isinstance(next_step, int) else {})
        if not _has_step(container, last):
            return False
        text = piece.get("stringValue")
        if not isinstance(text, str):
            kind = next((name for name in ("numberValue", "boolValue") if name in piece), "")
            _descend(container, last, None)
            container[last] = piece.get(kind)
            return True
        string = _descend(container, last, None)
        if not (isinstance(string, _ArrivingString) and string.will_continue):
            string = container[last] = _ArrivingString()
        string.add(text)
        string.will_continue = piece.get("willContinue") is True
        return True

    def json(self) -> str:
        """Return the received arguments as JSON."""
        return pydantic_core.to_json(_join_strings(self.value)).decode()


def _steps(path: Any) -> list[str | int]:
    """Return the steps of a path; [] if it is not a path."""
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


def _has_step(container: Any, step: Any) -> bool:
    if isinstance(step, int):
        return isinstance(container, list) and step <= len(container)
    return isinstance(step, str) and isinstance(container, dict)


def _descend(container: Any, step: Any, empty: Any) -> Any:
    """Return the value at the step, set to ``empty`` if there was none."""
    if isinstance(container, dict):
        return container.setdefault(step, empty)
    if step == len(container):
        container.append(empty)
    return container[step]


def _join_strings(value: Any) -> Any:
    """Return the value with its strings joined."""
    if isinstance(value, _ArrivingString):
        value.end()
        return str(value)
    if isinstance(value, list):
        return [_join_strings(item) for item in value]
    return {key: _join_strings(item) for key, item in value.items()} if isinstance(value, dict) else value
