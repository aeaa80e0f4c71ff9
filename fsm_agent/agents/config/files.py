"""Configuration files in TOML, YAML and JSON, with the lines of their values."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from fsm_agent.agents.config.source import Keys, Source
from fsm_agent.agents.config.yaml_file import read_yaml
from fsm_agent.errors import ConfigError

MAX_FILE_BYTES = 1_000_000
MAX_SEARCHED_CHARS = 5_000_000  # characters that are read again to find lines
MAX_DOTS = 1000  # of a key
SUFFIXES = (".toml", ".yaml", ".yml", ".json")


def read_file(file: Path) -> tuple[Any, Source]:
    """Return the content of a configuration file, and where its values stand.

    Raises:
        ConfigError: The file is missing, too long, or not in its format.
    """
    if file.suffix not in SUFFIXES:
        raise ConfigError(
            f"the configuration file: expected '.toml', '.yaml', '.yml' or '.json', got {str(file)!r}; rename it,"
            " or read"
            " it yourself and pass the mapping, as build_agent(read(text))"
        )
    format_ = "YAML" if file.suffix == ".yml" else file.suffix[1:].upper()
    try:
        text = _content(file)
        if format_ == "YAML":
            values, lines = read_yaml(text)
            return values, Source(file, lines.get)
        whole: Callable[[str], Any] = _toml if format_ == "TOML" else from_json
        part = _toml if format_ == "TOML" else partial(from_json, allow_partial=True)
        return whole(text), Source(file, Lines(text, part).find)
    except OSError as error:
        raise ConfigError(f"the configuration file {str(file)!r} cannot be read: {error.strerror}") from error
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the configuration file {str(file)!r}: expected {format_}: {error}") from None


def _content(file: Path) -> str:
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"the configuration file {str(file)!r}: expected at most {MAX_FILE_BYTES} bytes, got more")
    return content.decode("utf-8-sig")


def _toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML document; deep keys are refused, as they would take quadratic time."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.partition("=")[0].count(".") > MAX_DOTS:
            raise ValueError(f"expected at most {MAX_DOTS} parts in a key, got more (at line {number})")
    return tomllib.loads(text)


class Lines:
    """The lines on which the values of a file begin.

    A value is found by bisection: it begins after the longest prefix of the file that lacks it.

    Args:
        text: The file's.
        read: Returns the values in the first lines of the file; raises a `ValueError` if a value is cut.
    """

    def __init__(self, text: str, read: Callable[[str], Any]) -> None:
        self._lines = text.splitlines(keepends=True)
        self._parse = read
        self._left = MAX_SEARCHED_CHARS

    def find(self, keys: Keys) -> int | None:
        """Return the line of the value that keys lead to; None: it is not there, or the file is too long to search."""
        if not keys:
            return 1 if self._left > 0 else None
        without, behind = (
            0,
            len(self._lines),
        )  # a prefix of so many lines lacks the value; one of so many has it, or cuts it
        if self._has(behind, keys) is not True:
            return None
        while behind - without > 1:
            middle = (without + behind) // 2
            for count in range(middle, behind):
                has = self._has(count, keys)
                if self._left < 0:
                    return None
                if has is not None:
                    break
            else:
                has = True  # cut up to there
            if has:
                behind = middle
            else:
                without = count
        return without + 1

    def _has(self, count: int, keys: Keys) -> bool | None:
        """Return whether the first lines have the value; None: they cannot be read, or no more may be."""
        text = "".join(self._lines[:count])
        self._left -= len(text)
        if self._left < 0:
            return None
        try:
            return _has(self._parse(text), keys)
        except (ValueError, RecursionError):
            return None


def _has(values: Any, keys: Keys) -> bool:
    for key in keys:
        is_there = (
            key in values if isinstance(values, Mapping) else isinstance(values, list) and key in range(len(values))
        )
        if not is_there:
            return False
        values = values[key]
    return True
