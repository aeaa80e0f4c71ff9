"""Parse a model's text as the type that the prompt requires."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import EnumType
from functools import cached_property
from itertools import islice
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

from fsm_agent._internal.lazy_import import pattern, pydantic, pydantic_core, typing_extensions
from fsm_agent.errors import ParseError, PromptError, UsageError
from fsm_agent.functions.function import described_errors
from fsm_agent.functions.signature import undescribable
from fsm_agent.prompts.json_repairs import granted, repaired

CUT_OFF = "the answer was cut off at the token limit: give a shorter one"
MAX_REPAIRED = 100_000  # characters; a longer answer is not repaired
_MAX_PIECES = 1000  # of one answer are tried
_NO_JSON = (ValueError, TypeError)  # the latter: half a surrogate pair
_MAX_SHOWN = 5  # of the documents of another type
_RESTARTS = 8  # how many unclosed openers are skipped: keeps the scan linear
_FENCED = pattern(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_TOKEN = pattern(r'\\.|"|[{\[]+|[}\]]+', re.DOTALL)
_OPENER = pattern(r"\s*[{\[(]")
_BEGUN = pattern(  # text that begins so is meant as JSON
    r"""\{\s*(?:["'“/#\\,]|[^\s{}\[\]"',:=]+\s*[:=])|\[\s*(?:[\[{"'“\d.-]|[tT]rue|[fF]alse|null|None)"""
)


class Output:
    """A type that an answer must have: its JSON schema for the wire, its parser for the reply.

    Args:
        type: ``str``, a pydantic model, a dataclass, an `Enum`, a union: any type that pydantic can validate.

    Raises:
        PromptError: pydantic has no schema for it.
    """

    def __init__(self, type: Any = str) -> None:
        self.type = type
        try:
            self._adapter: pydantic.TypeAdapter[Any] | None = None if type is str else pydantic.TypeAdapter(type)
            self._bare_schema = self._adapter and self._adapter.json_schema()
        except undescribable() as error:
            raise PromptError(f"the output type {type!r} has no JSON schema: {error}") from error

    @property
    def name(self) -> str:
        """The name of the type on the wire; letters, digits and underscores."""
        is_union = get_origin(self.type) in (Union, UnionType)
        name = "answer" if is_union else getattr(self.type, "__name__", "answer")
        return re.sub(r"\W+", "_", name, flags=re.ASCII)[:64]

    @property
    def is_wrapped(self) -> bool:
        """True if the schema is not that of an object, which wires demand: the value then goes as ``{"value": …}``."""
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
        """Return ``text`` as a value of the type.

        Args:
            text: A model's answer: bare JSON, or JSON somewhere in prose or a code fence, or nearly JSON; of an `Enum`
                or a `Literal` also just the word.
            is_cut: The answer ended at the token limit: plain text is refused, and JSON is not repaired.

        Raises:
            ParseError: It has no such value; the error describes the problem with each field, for the model.
            Exception: Raised by a validator of the type and passed on by pydantic.
        """
        if self._adapter is None:
            if is_cut:
                raise ParseError(CUT_OFF)
            if not text.strip():
                raise ParseError("the answer is empty")
            return text
        try:
            return self._validated(text)
        except pydantic.ValidationError as error:
            problem = _of_sound_json(error)
        if problem is not None and _OPENER.match(text):  # it is the whole answer
            raise self._refused(problem) from problem
        return self._search(text, problem, is_cut=is_cut)

    def _search(self, text: str, problem: pydantic.ValidationError | None, *, is_cut: bool) -> Any:
        """Return the value that stands somewhere in the text."""
        for document in _documents(text):
            try:
                return self._validated(document)
            except pydantic.ValidationError as error:
                problem = problem or _of_sound_json(error)
        if choices := _members(self.type, text):
            return choices[0]
        if is_cut:
            raise ParseError(CUT_OFF)
        for document in _mended(text):
            try:
                return self._validated(document)
            except pydantic.ValidationError as error:
                problem = problem or _of_sound_json(error)
        if problem is None:
            raise ParseError(f"there is no {self.name} in JSON in the answer{self._choices()}")
        raise self._refused(problem) from problem

    def _refused(self, problem: pydantic.ValidationError) -> ParseError:
        return ParseError(f"the answer is no valid {self.name}:\n{described_errors(problem)}")

    def _validated(self, document: str) -> Any:
        """Return the document as a value of the type, bare or as ``{"value": …}``."""
        adapter = cast("pydantic.TypeAdapter[Any]", self._adapter)
        if not self.is_wrapped:
            return adapter.validate_json(document)
        try:
            return self._wrapper.validate_json(document)["value"]
        except pydantic.ValidationError as error:
            items = error.errors(include_url=False, include_context=False, include_input=False)
            is_wrapper = all(item["loc"][:1] == ("value",) and item["type"] != "missing" for item in items)
            try:
                return adapter.validate_json(document)
            except pydantic.ValidationError:
                if is_wrapper:
                    raise error from None
                raise

    @cached_property
    def _wrapper(self) -> pydantic.TypeAdapter[dict[str, Any]]:
        wrapper = cast("Any", typing_extensions.TypedDict)(self.name, {"value": self.type})
        return pydantic.TypeAdapter(pydantic.with_config(pydantic.ConfigDict(extra="forbid"))(wrapper))

    def _choices(self) -> str:
        choices = (self._bare_schema or {}).get("enum", ())
        return ": it is one of " + ", ".join(map(repr, choices)) if choices else ""


def _of_sound_json(error: pydantic.ValidationError) -> pydantic.ValidationError | None:
    """Return the error if it is one of the type: an error of JSON syntax says nothing of the fields.

    It comes without its traceback, whose frames would stay alive with it.
    """
    kind = error.errors(include_url=False, include_context=False, include_input=False)[0]["type"]
    return None if kind == "json_invalid" else error.with_traceback(None)


def _members(type: Any, text: str) -> list[Any]:
    """Return the members of an `Enum` or a `Literal` in the text: by value or name, in any case and punctuation."""
    if get_origin(type) is Literal:
        named = [(str(value), value) for value in get_args(type)]
    elif isinstance(type, EnumType):
        members: list[Any] = list(type)
        named = [(str(member.value), member) for member in members] + [(member.name, member) for member in members]
    else:
        return []
    bare = text.strip().strip("\"'`*.! ")
    exact = [choice for name, choice in named if name in (text.strip(), bare)]
    return exact or [choice for name, choice in named if name.casefold() == bare.casefold()]


def extract_json(text: str, expect: Any = Any) -> Any:
    """Return the first JSON document in ``text`` that fits: all of it, in a code fence, or somewhere in prose.

    Nothing is repaired, and documents inside a document are not tried alone.

    Args:
        text: A model's answer.
        expect: The type that the document must have: ``dict``, ``list``, or any other that pydantic validates, of which
            an instance is returned.

    Raises:
        ParseError: There is none; the error lists those that do not fit.
        UsageError: ``expect`` is not a type that pydantic can validate.
    """
    try:
        adapter = pydantic.TypeAdapter(expect)
    except undescribable() as error:
        raise UsageError(f"extract_json(expect={expect!r}): dict, list or a type for pydantic is right") from error
    problems: list[str] = []
    for document in (text, *_documents(text)):
        if _is_json(document):
            try:
                return adapter.validate_json(document)
            except pydantic.ValidationError as error:
                problems.append(described_errors(error))
    if not problems:
        raise ParseError("there is no JSON in the answer")
    others = [f"and {len(problems) - _MAX_SHOWN} more"] if len(problems) > _MAX_SHOWN else []
    name = getattr(expect, "__name__", str(expect))
    raise ParseError("\n".join([f"there is no {name} among the JSON in the answer:", *problems[:_MAX_SHOWN], *others]))


def _documents(text: str) -> Iterator[str]:
    """Yield pieces of the text that may be the answer's JSON, the likeliest first."""
    yield from _FENCED.findall(text)
    for start, end in islice(_pieces(text), _MAX_PIECES):
        if end is not None:
            yield text[start:end]
        elif _BEGUN.match(text, start):
            return  # a document inside it is not the answer but a part of one


def _mended(text: str) -> Iterator[str]:
    """Yield the broken pieces of the text, repaired."""
    if len(text) <= MAX_REPAIRED:
        looks = granted(text)
        for document in islice(_broken(text), _RESTARTS):
            yield repaired(document, looks)


def _broken(text: str) -> Iterator[str]:
    """Yield pieces of the text that are meant as JSON and are invalid, the likeliest first."""
    for document in _FENCED.findall(text):
        if _OPENER.match(document) and not _is_json(document):
            yield document
    for start, end in _pieces(text):
        if (text[start] == "[" or _BEGUN.match(text, start)) and not _is_json(text[start:end]):
            yield text[start:]
            yield text[start:end]


def _is_json(document: str) -> bool:
    try:
        pydantic_core.from_json(document)
    except _NO_JSON:
        return False
    return True


def _pieces(text: str) -> Iterator[tuple[int, int | None]]:
    """Yield start and end of each outermost ``{…}`` and ``[…]`` of the text, in linear time.

    One that never closes has no end, and the pieces inside it follow.
    """
    start = 0
    for _ in range(_RESTARTS):
        opened, depth, in_string = -1, 0, False
        for match in _TOKEN.finditer(text, start):
            token = match[0]
            if in_string:
                in_string = token != '"'
            elif token == '"':
                in_string = depth > 0
            elif token[0] in "{[":
                opened = opened if depth else match.start()
                depth += len(token)
            elif token[0] in "}]" and depth:
                if depth <= len(token):
                    yield opened, match.start() + depth
                depth = max(0, depth - len(token))
        if depth == 0:
            return
        yield opened, None
        start = opened + 1
