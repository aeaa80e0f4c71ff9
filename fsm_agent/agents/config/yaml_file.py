"""Reads YAML as plain data with lines. Its size is bounded, including what anchors could expand to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.agents.config.source import Keys
from fsm_agent.errors import ConfigError

if TYPE_CHECKING:
    import yaml
else:
    yaml = deferred("yaml")

MAX_VALUES = 20_000  # including values behind aliases
MAX_DEPTH = 50
MAX_NUMBER_CHARS = 100

_PREFIX = "tag:yaml.org,2002:"
_MERGE = f"{_PREFIX}merge"
_TEXTS = (f"{_PREFIX}str", f"{_PREFIX}timestamp")  # a configuration has no dates
_SCALARS = tuple([f"{_PREFIX}{name}" for name in ("bool", "int", "float", "null")])


def read_yaml(text: str) -> tuple[Any, dict[Keys, int]]:
    """Return the data of a document, and the line on which each value begins.

    Raises:
        ValueError: It is not YAML, has a tag or a key twice, or exceeds the bounds.
        ConfigError: PyYAML is not installed.
    """
    try:
        marked, unmarked = yaml.MarkedYAMLError, yaml.YAMLError
    except ModuleNotFoundError:
        raise ConfigError("YAML files need PyYAML; pip install 'fsm-agent[yaml]', or write TOML or JSON") from None
    try:
        reader = _Reader(text)
        return reader.read(), reader.lines
    except marked as error:  # its own text shows lines of the file, which may hold secrets
        mark = error.problem_mark or error.context_mark
        position = "" if mark is None else f" (at line {mark.line + 1}, column {mark.column + 1})"
        raise ValueError(f"{error.problem or error.context}{position}") from None
    except unmarked as error:
        raise ValueError(f"{type(error).__name__}: a character that YAML does not allow") from None


class _Reader:
    """The nodes of one document, and the values made from them."""

    def __init__(self, text: str) -> None:
        self._loader = yaml.SafeLoader(text)
        self._compose = self._loader.compose_node
        self._loader.compose_node = self._composed
        self._nodes = 0
        self._values = 0
        self.lines: dict[Keys, int] = {}

    def read(self) -> Any:
        """Return the value of the document; None: it is empty."""
        try:
            node = self._loader.get_single_node()
            return None if node is None else self._value(node, ())
        finally:
            self._loader.dispose()

    def _composed(self, parent: Any, index: Any) -> Any:
        """Do what the loader does, a bounded number of times."""
        self._nodes += 1
        if self._nodes > 2 * MAX_VALUES:  # a key is one, too
            raise ValueError(f"expected at most {MAX_VALUES} values, got more")
        return self._compose(parent, index)

    def _value(self, node: yaml.Node, keys: Keys) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _refused(node, f"expected at most {MAX_VALUES} values, with those that aliases repeat, got more")
        if len(keys) > MAX_DEPTH:
            raise _refused(node, f"expected at most {MAX_DEPTH} levels, got more")
        self.lines.setdefault(keys, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_PREFIX}map":
            return self._mapping(node, keys)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_PREFIX}seq":
            return [self._value(item, (*keys, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag in _TEXTS:
            return node.value
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS and len(node.value) <= MAX_NUMBER_CHARS:
            try:
                return self._loader.construct_object(node)
            except ValueError:
                raise _refused(node, "a value does not fit its tag") from None
        raise _refused(node, f"expected plain data, got a value of the kind {node.tag.removeprefix(_PREFIX):.40}")

    def _mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for name, value in node.value:
            if name.tag == _MERGE:
                bases = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for base in reversed(bases):  # the first wins
                    if not isinstance(base, yaml.MappingNode):
                        raise _refused(base, "expected a mapping behind '<<'")
                    merged |= self._value(base, keys)
                continue
            if not isinstance(name, yaml.ScalarNode) or name.tag not in _TEXTS:
                raise _refused(name, "expected a text as a key; put it into quotes")
            if name.value in own:
                raise _refused(name, f"expected each key once, got {name.value:.60} twice")
            position = (*keys, name.value)
            self.lines[position] = name.start_mark.line + 1
            own[name.value] = self._value(value, position)
        return {**merged, **own}


def _refused(node: yaml.Node, problem: str) -> ValueError:
    mark = node.start_mark
    return ValueError(f"{problem} (at line {mark.line + 1}, column {mark.column + 1})")
