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
MAX_SEARCHED_CHARS = 5_000_000  # that are read again to find a line
SUFFIXES = (".toml", ".yaml", ".yml", ".json")


def read_file(file: Path) -> tuple[Any, Source]:
    """Return the content of a configuration file, and where its values stand.

    Raises:
        ConfigError: The file is not there, too long, or not in its format.
    """
    if file.suffix not in SUFFIXES:
        raise ConfigError(
            f"the configuration file {str(file)!r} does not end in '.toml', '.yaml', '.yml' or '.json'; what another"
            " reader makes of it is taken as well: build_agent(read(text)), say"
        )
    format_ = "YAML" if file.suffix == ".yml" else file.suffix[1:].upper()
    try:
        text = _content(file)
        if format_ == "YAML":
            values, lines = read_yaml(text)
            return values, Source(file, lines.get)
        whole: Callable[[str], Any] = tomllib.loads if format_ == "TOML" else from_json
        part = tomllib.loads if format_ == "TOML" else partial(from_json, allow_partial=True)
        return whole(text), Source(file, partial(line_of, text, part))
    except OSError as error:
        raise ConfigError(f"the configuration file {str(file)!r} cannot be read: {error.strerror}") from error
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the configuration file {str(file)!r} is not {format_}: {error}") from None


def _content(file: Path) -> str:
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"the configuration file {str(file)!r} has more than {MAX_FILE_BYTES} bytes")
    return content.decode("utf-8-sig")


def line_of(text: str, read: Callable[[str], Any], keys: Keys) -> int | None:
    """Return the line on which the value begins that ``keys`` lead to; None: it is not there.

    It is found by reading the first lines alone: the value begins behind the last of them without it.

    Args:
        text: The file's.
        read: Returns the values in the first lines of the file; raises a `ValueError` where a value is cut.
        keys: Lead to the value.
    """
    lines = text.splitlines(keepends=True)
    left = MAX_SEARCHED_CHARS
    without, behind = 0, len(lines)  # lines that are read without the value; lines from which on it is there, or cut
    if not _has(read(text), keys):
        return None
    while behind - without > 1:
        middle = (without + behind) // 2
        for count in range(middle, behind):
            start = "".join(lines[:count])
            left -= len(start)
            if left < 0:
                return None
            try:
                values = read(start)
            except ValueError:
                continue
            if _has(values, keys):
                behind = middle
            else:
                without = count
            break
        else:
            behind = middle
    return without + 1


def _has(values: Any, keys: Keys) -> bool:
    for key in keys:
        is_there = (
            key in values if isinstance(values, Mapping) else isinstance(values, list) and key in range(len(values))
        )
        if not is_there:
            return False
        values = values[key]
    return True
