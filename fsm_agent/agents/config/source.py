"""The place that a configuration comes from, and errors that name it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from fsm_agent.errors import ConfigError

Keys: TypeAlias = tuple[str | int, ...]  # the keys that lead to a value

MAX_PROBLEMS = 20
MAX_KEY_CHARS = 60


class Problem(NamedTuple):
    """A mistake in a configuration.

    Attributes:
        keys: Lead to the mistake.
        text: Follows the keys in the message: ": 'sytem' is unknown", ": expected 0 or more, got -1".
    """

    keys: Keys
    text: str


class Source:
    """The origin of a configuration: a file, or code.  It is not part of the configuration's value.

    Args:
        file: None: code.
        line_of: Returns the line on which a value begins, from 1; None: unknown.
    """

    def __init__(self, file: Path | None = None, line_of: Callable[[Keys], int | None] | None = None) -> None:
        self.file = file
        self._line_of = line_of

    @property
    def folder(self) -> Path:
        """The folder to which paths are relative."""
        return Path() if self.file is None else self.file.parent

    def error(self, problems: Iterable[Problem]) -> ConfigError:
        """Return the error that names the file, and the line and keys of each problem."""
        found = list(problems)
        lines = [f"  {self._position(problem.keys)}{problem.text}" for problem in found[:MAX_PROBLEMS]]
        if len(found) > MAX_PROBLEMS:
            lines.append("  … and more")
        where = "" if self.file is None else f" in {str(self.file)!r}"
        return ConfigError("\n".join([f"the agent's configuration{where} is not valid:", *lines]))

    def _position(self, keys: Keys) -> str:
        line = self._line(keys)
        return dotted(keys) if line is None else f"line {line}, {dotted(keys)}"

    def _line(self, keys: Keys) -> int | None:
        """Return the line of a value; if it is missing, the line of the table that should hold it."""
        if self._line_of is None:
            return None
        lines = (self._line_of(keys[:length]) for length in range(len(keys), -1, -1))
        return next((line for line in lines if line is not None), None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source)

    def __hash__(self) -> int:
        return hash(Source)


def dotted(keys: Keys) -> str:
    """Return keys as a message shows them: ``settings.hosted_tools[0].kind``."""
    text = ""
    for key in keys[:MAX_KEY_CHARS]:
        text += f"[{key}]" if isinstance(key, int) else f".{key[:MAX_KEY_CHARS]}"
    return text.removeprefix(".")
