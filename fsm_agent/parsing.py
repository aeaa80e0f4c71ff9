"""How does a model's text become what the prompt asked for?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from typing import Any

from json_repair import repair_json
from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from fsm_agent.errors import ParseError, PromptError
from fsm_agent.functions import described_errors

MAX_REPAIRED = 100_000  # characters; a longer answer is taken as it is or not at all
_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_TOKEN = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
_OPENER = re.compile(r"[{\[]")
_RESTARTS = 8  # how many openers that never close are passed over: keeps the scan linear


class Output:
    """A type that an answer must have: its JSON schema for the wire, its parser for what comes back.

    Args:
        type: ``str``, a pydantic model, a dataclass, an `Enum`, a union: whatever pydantic can validate.

    Raises:
        PromptError: pydantic has no schema for it.
    """

    def __init__(self, type: Any = str) -> None:
        self.type = type
        try:
            self._adapter: TypeAdapter[Any] | None = None if type is str else TypeAdapter(type)
            self._bare_schema = self._adapter and self._adapter.json_schema()
        except (PydanticUserError, PydanticSchemaGenerationError) as error:
            raise PromptError(f"the output type {type!r} has no JSON schema: {error}") from error

    @property
    def name(self) -> str:
        """What the wire calls the type; letters, digits and underscores."""
        return re.sub(r"\W+", "_", getattr(self.type, "__name__", "answer"), flags=re.ASCII)[:64]

    @property
    def is_wrapped(self) -> bool:
        """Whether the schema is not one of an object, which wires demand: it then goes as ``{"value": …}``."""
        return self._bare_schema is not None and self._bare_schema.get("type") != "object"

    @cached_property
    def schema(self) -> dict[str, Any] | None:
        """JSON Schema of an object; None for plain text."""
        if self._bare_schema is None or not self.is_wrapped:
            return self._bare_schema
        bare = dict(self._bare_schema)
        definitions = {"$defs": bare.pop("$defs")} if "$defs" in bare else {}
        return {"type": "object", "properties": {"value": bare}, "required": ["value"], **definitions}

    def parse(self, text: str, *, is_cut: bool = False) -> Any:
        """``text`` as a value of the type.

        Args:
            text: What the model said: bare JSON, or JSON somewhere in prose or a code fence, or nearly JSON.
            is_cut: The answer ended at the token limit, so nothing in it is mended.

        Raises:
            ParseError: It is not; the error says what is wrong with each field, in words for the model.
        """
        if self._adapter is None:
            if not text.strip():
                raise ParseError("the answer is empty")
            return text
        if isinstance(self.type, type) and issubclass(self.type, Enum) and (member := _member(self.type, text)):
            return member
        problem: ValidationError | None = None
        for document in _documents(text, mended=not is_cut):
            try:
                return self._adapter.validate_json(self._unwrapped(document))
            except ValidationError as error:
                if error.errors(include_url=False)[0]["type"] != "json_invalid":
                    problem = problem or error
        if is_cut:
            raise ParseError("the answer was cut off at the token limit: give a shorter one")
        if problem is None:
            raise ParseError(f"there is no {self.name} in JSON in the answer")
        raise ParseError(f"the answer is no valid {self.name}:\n{described_errors(problem)}") from problem

    def _unwrapped(self, document: str) -> str | bytes:
        if self.is_wrapped and '"value"' in document:
            try:
                value = from_json(document)
            except ValueError:
                return document
            if isinstance(value, dict) and value.keys() == {"value"}:
                return to_json(value["value"])
        return document


def _member(type: type[Enum], text: str) -> Enum | None:
    """The member that the text names, by its value or name, in any case and punctuation."""
    said = text.strip().strip("\"'`*.! ").casefold()
    return next((m for m in type if said in (str(m.value).casefold(), m.name.casefold())), None)


def _documents(text: str, *, mended: bool) -> Iterator[str]:
    """Pieces of the text that may be the answer's JSON, the likeliest first; mended ones last."""
    yield text
    fenced = _FENCED.findall(text)
    yield from fenced
    yield from _balanced(text)
    if mended and len(text) <= MAX_REPAIRED:
        for document in fenced[:_RESTARTS] or [text]:
            if opener := _OPENER.search(document):
                yield str(repair_json(document[opener.start() :], skip_json_loads=True))


def extract_json(text: str) -> Any:
    """The first JSON document in ``text``: all of it, in a code fence, or somewhere in prose.

    Raises:
        ParseError: There is none.
    """
    for document in _documents(text, mended=False):
        try:
            return from_json(document)
        except ValueError:
            continue
    raise ParseError("there is no JSON in the answer")


def _balanced(text: str) -> Iterator[str]:
    """Each balanced ``{…}`` or ``[…]`` of the text that stands in no other, in linear time."""
    start = 0
    for _ in range(_RESTARTS):
        opened, depth, in_string = -1, 0, False
        for match in _TOKEN.finditer(text, start):
            token = match[0]
            if in_string:
                in_string = token != '"'
            elif token == '"':
                in_string = depth > 0
            elif token in "{[":
                opened = opened if depth else match.start()
                depth += 1
            elif token in "}]" and depth:
                depth -= 1
                if depth == 0:
                    yield text[opened : match.end()]
        if depth == 0:
            return
        start = opened + 1  # this one never closes: look behind it
