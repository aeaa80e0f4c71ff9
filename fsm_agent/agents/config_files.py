"""Reads configuration files in TOML, YAML and JSON as plain data, using bounded time and memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fsm_agent.errors import ConfigError

MAX_FILE_BYTES = 1_000_000
MAX_DOTS = 1000  # in a key of TOML, whose reader takes quadratic time for them
MAX_VALUES = 20_000  # of a YAML document, including repetitions by aliases
MAX_DEPTH = 50
MAX_NUMBER_CHARS = 100
SUFFIXES = (".toml", ".yaml", ".yml", ".json")
_TAG = "tag:yaml.org,2002:"
_TEXTS = (f"{_TAG}str", f"{_TAG}merge")
_PLAIN = tuple([f"{_TAG}{name}" for name in ("map", "seq", "bool", "int", "float", "null")])


def read_file(file: Path) -> Any:
    """Return the contents of a configuration file."""
    what = f"the configuration file {str(file)!r}"
    if file.suffix not in SUFFIXES:
        raise ConfigError(
            f"{what}: expected '.toml', '.yaml', '.yml' or '.json'; rename it, or read it yourself and pass the mapping"
        )
    readers: Mapping[str, Callable[[str], Any]] = {".toml": _read_toml, ".json": _read_json}
    read = readers.get(file.suffix, _read_yaml)
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"at most {MAX_FILE_BYTES} bytes, got more")
        return read(content.decode("utf-8-sig"))
    except ModuleNotFoundError:
        raise ConfigError("YAML files need PyYAML; pip install 'fsm-agent[yaml]', or write TOML or JSON") from None
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        format_ = file.suffix[1:].upper().replace("YML", "YAML")
        raise ConfigError(f"{what}: expected {format_}: {error}") from None


def _read_json(text: str) -> Any:
    def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            _check_once([name for name, _ in pairs])
        return found

    return json.loads(text, object_pairs_hook=each_once)


def _check_once(names: list[str]) -> None:
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise ValueError(f"each key once, got {name:.60} twice")


def _read_toml(text: str) -> dict[str, Any]:
    import tomllib

    for number, line in enumerate(text.splitlines(), 1):
        if line.partition("=")[0].count(".") > MAX_DOTS:
            raise ValueError(f"at most {MAX_DOTS} parts in a key, got more (at line {number})")
    return tomllib.loads(text)


def _read_yaml(text: str) -> Any:
    """Return the data in a YAML document."""
    import yaml

    nodes = iter(range(2 * MAX_VALUES))  # a key is a node, too

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        def compose_node(self, parent: Any, index: Any) -> Any:
            if next(nodes, None) is None:
                raise ValueError(f"at most {MAX_VALUES} values, got more")
            return super().compose_node(parent, index)

    # A configuration has no dates: `system: 2026-11-22` is text.
    Loader.yaml_implicit_resolvers = {
        first: [item for item in items if item[0] != f"{_TAG}timestamp"]
        for first, items in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        # Nodes are counted before values are made, because aliases and merges can grow exponentially.
        for count, _ in enumerate(_walk(node) if node is not None else ()):
            if count > MAX_VALUES:
                raise ValueError(f"at most {MAX_VALUES} values, with those that aliases repeat, got more")
        return None if node is None else _constructed(loader, node)
    except yaml.MarkedYAMLError as error:  # its text shows lines of the file, which may hold secrets
        mark = error.problem_mark or error.context_mark
        position = "" if mark is None else f" (at line {mark.line + 1}, column {mark.column + 1})"
        raise ValueError(f"{error.problem or error.context}{position}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{type(error).__name__}: a character that YAML does not allow") from None


def _constructed(loader: Any, node: Any) -> Any:
    try:
        return loader.construct_document(node)
    except (ValueError, LookupError):  # the text may be a secret
        raise ValueError("plain data, got a value that does not fit its tag") from None


def _walk(node: Any, depth: int = 0) -> Iterator[None]:
    """Yield once for each value below a node, following aliases.  Refuse anything that is not plain data."""
    yield
    if depth > MAX_DEPTH:
        raise ValueError(f"at most {MAX_DEPTH} levels, got more")
    items: list[Any] = node.value if isinstance(node.value, list) else []
    if node.tag not in (*_TEXTS, *_PLAIN) or isinstance(node.value, list) != node.tag.endswith((":map", ":seq")):
        raise ValueError(f"plain data, got a value of the kind {node.tag.removeprefix(_TAG):.40}")
    if node.tag in _PLAIN and not items and len(node.value) > MAX_NUMBER_CHARS:
        raise ValueError(f"a number of at most {MAX_NUMBER_CHARS} characters, got a longer one")
    if node.tag.endswith(":map"):
        names = [name.value for name, _ in items if name.tag in _TEXTS]
        if len(names) < len(items):
            raise ValueError("texts as keys, got another value; put it into quotes")
        _check_once(names)
        items = [value for _, value in items]
    for item in items:
        yield from _walk(item, depth + 1)
