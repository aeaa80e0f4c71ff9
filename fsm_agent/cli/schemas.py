"""The type of an answer, from a command line: ``--output`` and ``--schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic_core import core_schema, from_json, to_json

from fsm_agent.cli.options import load_object
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.functions.schema import REFUSALS, ArgumentsValidator, refused
from fsm_agent.prompts.output import Output

MAX_CHARS = 100_000  # of a schema
MAX_NODES = 5_000
_DEFS = ("$defs", "definitions")
_PLAIN: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool}


def output_type(named: str) -> Any:
    """Return the type that ``module:name`` names, or one of ``str``, ``int``, ``float`` and ``bool``.

    Raises:
        UsageError: It is no type that an answer can have.
        ConfigError: There is no such module or name.
    """
    found = _PLAIN.get(named) or load_object(named, "output")
    Output(found)  # refuses what JSON cannot be
    return found


def schema_type(path: str) -> Any:
    """Return a type from a file with a JSON Schema.

    Raises:
        UsageError: The file cannot be read, or holds no schema.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MAX_CHARS + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"schema: expected a file with a JSON Schema, got {path!r:.80}: {error!s:.200}") from None
    if len(text) > MAX_CHARS:
        raise UsageError(f"schema: expected at most {MAX_CHARS} characters, got more")
    try:
        schema = from_json(text)
    except ValueError as error:
        raise UsageError(f"schema: expected JSON: {error}") from None
    if not isinstance(schema, dict):
        raise UsageError(f"schema: expected an object of JSON, got {schema!r:.60}")
    return _of_schema(schema)


def _of_schema(schema: dict[str, Any]) -> Any:
    """Return a type whose values fit a schema."""
    schema = _Inlining(schema).inlined({name: value for name, value in schema.items() if name not in _DEFS})
    validator = ArgumentsValidator({"type": "object", "properties": {"value": schema}, "required": ["value"]})

    def check(value: Any) -> Any:
        try:
            return validator.validate_json(to_json({"value": value}).decode())["value"]
        except REFUSALS as error:
            problem: ParseError = refused(error)
            raise ValueError(str(problem)) from None

    class Answer:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
            return core_schema.no_info_after_validator_function(check, core_schema.any_schema())

        @classmethod
        def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> dict[str, Any]:
            return dict(schema)

    return Answer


class _Inlining:
    """Puts what references in a schema lead to in their place.

    Raises:
        UsageError: One leads nowhere or to itself, or the whole would be too large.
    """

    def __init__(self, whole: dict[str, Any]) -> None:
        self._whole = whole
        self._open: list[str] = []
        self._left = MAX_NODES

    def inlined(self, schema: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise UsageError(f"schema: expected at most {MAX_NODES} parts, references followed, got more")
        if isinstance(schema, list):
            return [self.inlined(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._referred(reference)
        return {name: self.inlined(value) for name, value in schema.items()}

    def _referred(self, reference: str) -> Any:
        where, _, name = reference.removeprefix("#/").partition("/")
        target = self._whole.get(where, {}).get(name) if where in _DEFS else None
        if target is None or reference in self._open:
            problem = "leads to itself" if target is not None else "leads nowhere"
            right = "a reference such as '#/$defs/name'"
            raise UsageError(f"schema: expected {right}, got {reference!r:.80}, which {problem}")
        self._open.append(reference)
        try:
            return self.inlined(target)
        finally:
            self._open.pop()
