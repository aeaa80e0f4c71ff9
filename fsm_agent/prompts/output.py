"""Output types, and the parsers that turn a reply into a value of the output type.

`fsm_agent.call.triggers` runs the parser.  `ask_to_fix` in `fsm_agent.call.transition_table` asks the model again.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import EnumType
from functools import cached_property, update_wrapper
from itertools import islice
from typing import Annotated, Any, Generic, Literal, NoReturn, Protocol, TypeVar, cast, get_args, get_origin, overload

import typing_extensions
from pydantic_core import ValidationError, from_json, to_json

from fsm_agent._internal.structs import UNIONS, Value, Vector, type_adapter, type_words, without_notes
from fsm_agent.errors import ParseError, PromptError, UsageError
from fsm_agent.functions.arguments import described_errors, target_of
from fsm_agent.functions.function import Function
from fsm_agent.functions.schema import input_schema, undescribable
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import Finish, TokenLogprob
from fsm_agent.prompts.json_in_text import begins_with_opener, broken, documents, has_documents, is_row, without_thought
from fsm_agent.prompts.repairs import MATCHED, granted, matched, only_close, repaired
from fsm_agent.prompts.unions import adapter_of, tags_of
from fsm_agent.validation import require, safe_repr

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ParserInput(Value, frozen=True, kw_only=True):
    """What a parser sees: a model's reply and facts about the call.

    Args:
        text: The reply's text.
        finish: Why the model stopped.
        is_cut: Whether the text was cut off at the token limit and the call does not accept that.
        logprobs: The log probabilities for the text's tokens, if they were requested.
        problems: The error messages that were sent to the model for its earlier answers in this exception branch.
        parser_args: The call's ``parser_args``.
        function_calls: The finished function calls from all rounds, with their results.

    Examples:
        >>> shout = parser(lambda reply: reply.text.upper())
        >>> Agent(Script("hi")).call(Prompt("Hello", parser=shout)).output
        'HI'
        >>> ParserInput(text="hi").is_cut
        False
    """

    text: str
    finish: Finish | None = None
    is_cut: bool = False
    logprobs: tuple[TokenLogprob, ...] = ()
    problems: tuple[str, ...] = ()
    parser_args: Mapping[str, Any] = {}
    function_calls: Sequence[FunctionCall] = Vector()  # in the order of the requests


class Parsed(Value, Generic[T], frozen=True):
    """A value, with the repairs that were needed to read it, each described briefly for people.

    Examples:
        >>> Parsed(3, repairs=("a comma was left out",)).value
        3
    """

    value: T
    repairs: tuple[str, ...] = ()


def checked(value: Any) -> Parsed[Any]:
    """Return a parser's result as a `Parsed`.  Refuse repairs that are not a tuple of strings."""
    if not isinstance(value, Parsed):
        return Parsed(value)
    repairs: Any = value.repairs
    if not (isinstance(repairs, tuple) and all(isinstance(repair, str) for repair in repairs)):
        raise UsageError(f"the repairs of a Parsed: expected a tuple of strings, got {repairs!r:.200}")
    return value


class Arriving(Protocol):
    """A reader that extracts the output from a reply that is still arriving."""

    def feed(self, piece: str, /) -> tuple[Any] | None:
        """Read the next piece of text.

        Returns:
            The output so far in a 1-tuple, or None if this piece did not change it.

        Raises:
            Exception: If a validator refused part of the output.  You can still feed the next piece.
        """


class Parser(ABC, Generic[T_co]):
    """A parser that sees the whole reply and may report repairs.  A plain function sees only the text.

    When it is called with text, it returns only the value.

    Examples:
        >>> first_word = parser(lambda reply: reply.text.split()[0])
        >>> first_word("yes, please")
        'yes,'
    """

    @abstractmethod
    def read(self, source: ParserInput) -> T_co | Parsed[T_co]:
        """Return the value in a reply, or a `Parsed` that also holds the repairs.  This method must be pure.

        Raises:
            Exception: If the reply is not a valid answer.  The model is told why, and tries again.
        """

    @property
    def label(self) -> str:
        """The parser's name in a prompt's fingerprint.  The name must change when the parser's behavior changes."""
        return type(self).__qualname__

    def arriving(self, parser_args: Mapping[str, Any]) -> Arriving | None:
        """Return a reader for a reply that is still arriving, or None if only a complete reply can be read."""
        return None

    def __call__(self, text: str, **parser_args: Any) -> T_co:
        value = self.read(ParserInput(text=text, parser_args=parser_args))
        return value.value if isinstance(value, Parsed) else value


class _FunctionParser(Parser[T_co]):
    def __init__(self, function: Callable[[ParserInput], T_co | Parsed[T_co]]) -> None:
        self.function = function
        update_wrapper(self, function)

    def read(self, source: ParserInput) -> T_co | Parsed[T_co]:
        return self.function(source)

    @property
    def label(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)

    def __reduce__(self) -> str:
        return self.label  # pickled by name, like the function itself


@overload
def parser(function: Callable[[ParserInput], Parsed[T]]) -> Parser[T]: ...
@overload
def parser(function: Callable[[ParserInput], T]) -> Parser[T]: ...
def parser(function: Callable[[ParserInput], Any]) -> Parser[Any]:
    """Turn a function that takes the reply into a `Parser`.  Use it as a decorator.

    Args:
        function: A pure function that returns the value, or a `Parsed` with repairs.  It is run again when a journal is
            replayed.

    Examples:
        >>> @parser
        ... def first_word(reply):
        ...     return reply.text.split()[0]
        >>> Agent(Script("42 because …")).call(Prompt("6 * 7?", parser=first_word)).output
        '42'
    """
    require("the function of a parser", function, callable(function), "a function of a ParserInput")
    return _FunctionParser(function)


ANSWER = "give_final_answer"  # the function that takes an answer as its arguments
CUT_OFF = "the answer was cut off at the token limit: give a shorter one"
MAX_LENGTH = 1_000_000  # characters of an answer
MAX_REPAIRED = 100_000  # characters; a longer answer is not repaired
MAX_BROKEN = 8  # pieces of one answer that are repaired

# The repairs to an answer, as traces show them.
IN_PROSE = "the JSON was found inside the answer"
MENDED = "the JSON was repaired by json-repair"
_NOT_ANY_TEXT = frozenset({"enum", "const", "format"})
_BRACKETS = frozenset("{[")
QUOTED = "the text had no quotes"
_WITHOUT_PROSE = ("date", "date-time", "time", "duration", "uuid")  # formats of text that nothing else fits

CHANGED = "it would be read again as"  # a different value
_SYNTAX = ("json_invalid", "string_unicode")  # the second: half a surrogate pair
_TAKES_ANYTHING = "PlainValidatorFunctionSchema"  # a user's validator, whose JSON pydantic cannot describe
_NO_CONTEXT: Mapping[str, Any] = {}


class Output:
    """An answer's type, with its JSON schema for requests and its parser for replies.

    The parser skips reasoning in ``<think>`` before the answer.  It does not repair JSON that was cut off at the token
    limit.

    Args:
        type: ``str``, or any type that pydantic can validate, such as a model, a dataclass, an `Enum` or a union.
        max_length: The maximum number of characters in an answer.  Longer answers are refused, unless the type is
            ``str``.

    Attributes:
        is_wrapped: Whether values are sent as ``{"value": …}``, because a request's schema must be an object.

    Raises:
        PromptError: If JSON cannot represent this type.

    Examples:
        >>> Output(list[int]).is_wrapped
        True
    """

    def __init__(self, type: Any = str, max_length: int = MAX_LENGTH) -> None:
        self.type = type
        self.max_length = max_length
        self._bare_schema: dict[str, Any] | None = None
        try:
            self._adapter = None if type is str else adapter_of(type)
            if self._adapter is not None:
                self._bare_schema = self._adapter.json_schema(schema_generator=input_schema())
        except undescribable() as error:
            if _TAKES_ANYTHING not in str(error):
                why = str(error).partition(". Set `arbitrary_types_allowed")[0]  # an option that the user cannot set
                what, remedy = "output: expected a type with a JSON schema", "a function of the text goes into parser="
                raise PromptError(f"{what}, got {type!r}: {why}; {remedy}") from error
        self.is_wrapped = self._bare_schema is not None and self._bare_schema.get("type") != "object"

    @property
    def is_text(self) -> bool:
        """Whether any text is a valid answer."""
        return self._adapter is None

    @property
    def name(self) -> str:
        """The type's name in requests: letters, digits and underscores."""
        is_union = get_origin(self.type) in UNIONS
        kind = self.type.__origin__ if get_origin(self.type) is Annotated else self.type
        name = "answer" if is_union else getattr(kind, "__name__", "answer")
        return re.sub(r"\W+", "_", name, flags=re.ASCII)[:64]

    @property
    def bare_schema(self) -> dict[str, Any]:
        """The JSON Schema for the unwrapped value, or ``{}`` for plain text."""
        return self._bare_schema or {}

    @cached_property
    def read_schema(self) -> dict[str, Any]:
        """The JSON Schema for everything that can be read: `bare_schema`, plus union members without their tags."""
        described = getattr(self._adapter, "all_json_schema", None)
        return self.bare_schema if described is None or self._bare_schema is None else described()

    @cached_property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema for requests, or None for plain text and for types that only a custom validator can check."""
        if self._bare_schema is None or not self.is_wrapped:
            return self._bare_schema
        bare = dict(self._bare_schema)
        definitions = {"$defs": bare.pop("$defs")} if "$defs" in bare else {}
        return {"type": "object", "properties": {"value": bare}, "required": ["value"], **definitions}

    @cached_property
    def function(self) -> Function:
        """The function whose arguments are the answer."""
        what = "Give your final answer once you need no other function. This ends the task."
        return Function(name=ANSWER, description=what, parameters=self.schema or {})

    def parse(self, text: str, *, is_cut: bool = False) -> Any:
        """Return ``text`` as a value of the type; see `read`."""
        return self.read(ParserInput(text=text, is_cut=is_cut)).value

    def read(self, source: ParserInput) -> Parsed[Any]:
        """Return a reply's text as a value of the type, with the repairs that were needed to read it.

        The text may be bare JSON, JSON in prose or in a code fence, broken JSON, or JSON with misspelled names or
        values.  For an `Enum` or a `Literal`, a single word is enough.  If the reply was cut off, plain text is refused
        and JSON is not repaired.

        Args:
            source: The reply, whose ``parser_args`` are the context for pydantic's validators.

        Raises:
            ParseError: If there is no valid value.  The error tells the model what is wrong with each field.
            Exception: If one of the type's validators raises an exception that pydantic does not catch.
        """
        text = source.text
        if self._adapter is None:
            if source.is_cut:
                raise ParseError(CUT_OFF)
            if not text.strip():
                raise ParseError("the answer is empty")
            return Parsed(text)
        check_length(text, self.max_length)
        answer = without_thought(text)
        try:
            value = self.validated(answer, source.parser_args)
        except ValidationError as error:
            problem = error.with_traceback(None)
        else:
            if source.is_cut and self._is_begun_number(answer):
                raise ParseError(CUT_OFF)
            return Parsed(value, () if answer is text else (IN_PROSE,))
        return _Search(self, source if answer is text else source.changed(text=answer)).found(problem)

    def _is_begun_number(self, text: str) -> bool:
        others = [str(choice) for choice in self.choices if str(choice) != text.strip()]
        return text[-1:].isdigit() and (not self.choices or any(other.startswith(text.strip()) for other in others))

    def validated(self, document: str, context: Mapping[str, Any] = _NO_CONTEXT) -> Any:
        """Return a document, which is bare or ``{"value": …}``, as a value of the type.

        Args:
            document: The JSON.
            context: The ``info.context`` for the type's validators.

        Raises:
            ValidationError: If the document is not a value of the type.
        """
        adapter: Any = self._adapter
        if not self.is_wrapped:
            return adapter.validate_json(document, context=context)
        try:
            return self._wrapper.validate_json(document, context=context)["value"]
        except ValidationError as error:
            items = error.errors(include_url=False, include_context=False, include_input=False)
            is_wrapper = all(item["loc"][:1] == ("value",) and item["type"] != "missing" for item in items)
            try:
                return adapter.validate_json(document, context=context)
            except ValidationError:
                if is_wrapper:
                    raise error from None
                raise

    def bare_validated(self, document: str, context: Mapping[str, Any] = _NO_CONTEXT) -> Any:
        """Return an unwrapped document as a value of the type; see `validated`."""
        adapter: Any = self._adapter
        return from_json(document) if adapter is None else adapter.validate_json(document, context=context)

    def document(self, value: Any) -> str:
        """Return a value of the type as JSON that `bare_validated` can read.

        Raises:
            ValueError: If the value is not of the type, or if JSON cannot represent it.
        """
        if self._adapter is None:
            if not isinstance(value, str):
                raise ValueError(f"{type(value).__name__} is not a string")
            return to_json(value).decode()
        written: bytes = self._writer.dump_json(value, round_trip=True, by_alias=True, warnings="error")
        return written.decode()

    def kept(self, value: Any, read: Callable[[str], Any]) -> str:
        """Return a value of the type as JSON from which the same value can be read.

        This is the value's `document` if possible; otherwise, it is the document wrapped as ``{"value": …}`` or in the
        union tag for the value's class.

        Args:
            value: Any value of the type.  If the value's class has no ``__eq__``, values are compared by their JSON.
            read: A function that reads the JSON.

        Raises:
            ValueError: If the value is not of the type, or if JSON cannot represent it unchanged.
        """
        bare = self.document(value)
        problem: ValueError | None = None
        for document in (bare, *self._other_forms(value, bare)):
            try:
                again = read(document)
                if again == value or (again != read(document) and self.document(again) == bare):
                    return document
                error = ValueError(f"{CHANGED} {safe_repr(again)}")
            except ValidationError as refused:
                error = refused
            problem = problem or error
        assert problem is not None
        raise problem

    def _other_forms(self, value: Any, bare: str) -> Iterator[str]:
        if self.is_wrapped:
            yield f'{{"value":{bare}}}'
        if get_origin(self.type) in UNIONS:
            kinds = get_args(self.type)
            for kind, tag in zip(kinds, tags_of(kinds), strict=True):
                if tag is not None and type(value) is kind:
                    yield f"{{{to_json(tag).decode()}:{bare}}}"

    @cached_property
    def _writer(self) -> Any:
        return type_adapter(self.type)

    @cached_property
    def _wrapper(self) -> Any:
        from pydantic import ConfigDict, with_config

        wrapper = cast("Any", typing_extensions.TypedDict)(self.name, {"value": self.type})
        return adapter_of(with_config(ConfigDict(extra="forbid"))(wrapper))

    @cached_property
    def any_schema(self) -> dict[str, Any]:
        """The JSON Schema for the value, bare or wrapped."""
        bare = self.read_schema
        wrapper = {"type": "object", "properties": {"value": bare}}
        return {"anyOf": [bare, *([wrapper] if self.is_wrapped else [])], "$defs": bare.get("$defs", {})}

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values of an `Enum` or a `Literal`."""
        return tuple(self.bare_schema.get("enum", ()))


def check_length(text: str, max_length: int) -> None:
    """Refuse an answer that is too long to read."""
    if len(text) > max_length:
        raise ParseError(f"the answer has {len(text)} characters, and at most {max_length} are read")


def too_long_to_repair(text: str) -> str:
    """Return the end of an error that tells the model why its JSON was not repaired, or "" if it was short enough."""
    if len(text) <= MAX_REPAIRED:
        return ""
    return f"; in an answer of more than {MAX_REPAIRED} characters, the JSON must be valid, because it is not repaired"


class _Search:
    def __init__(self, output: Output, source: ParserInput) -> None:
        self.output, self.source = output, source
        self.problem: ValidationError | None = None  # the first for JSON of another type
        self.others: list[tuple[str, ValidationError, str]] = []  # JSON of another type, and how it was found

    def found(self, problem: ValidationError) -> Parsed[Any]:
        """Search the answer for a value, given the problem that was found when it was read as a whole."""
        text, is_cut = self.source.text, self.source.is_cut
        self._note(text, problem, "")
        if self.problem is not None and begins_with_opener(text):  # it is the whole answer
            return self._nearly() or self._refuse()
        found = None if is_cut else self._in([*_row(text)], MENDED)
        found = found or self._in(documents(text), IN_PROSE) or member(self.output, text, is_cut=is_cut)
        if found is None and not is_cut:
            found = self._in(_quoted(self.output, text), QUOTED) or self._in(_mended(text), MENDED)
        found = found or self._nearly()
        if found is None and is_cut:
            raise ParseError(CUT_OFF)
        return found or self._in(_plain(self.output, text), QUOTED) or self._refuse()

    def _in(self, candidates: Iterable[str], note: str) -> Parsed[Any] | None:
        for document in candidates:
            try:
                return Parsed(self.output.validated(document, self.source.parser_args), (note,))
            except ValidationError as error:
                self._note(document, error, note)
        return None

    def _note(self, document: str, error: ValidationError, note: str) -> None:
        if kinds := kinds_of(error):
            self.problem = self.problem or error.with_traceback(None)
            if len(self.others) < MAX_BROKEN and not MATCHED.isdisjoint(kinds):
                self.others.append((document, error.with_traceback(None), note))

    def _nearly(self) -> Parsed[Any] | None:
        for document, problem, note in self.others:
            if (found := nearly(self.output, document, problem, self.source.parser_args)) is not None:
                return found.changed(repairs=(note, *found.repairs)) if note else found
        return None

    def _refuse(self) -> NoReturn:
        output, problem = self.output, self.problem
        named = type_words(output.type) if get_origin(without_notes(output.type)) in UNIONS else output.name
        if problem is None:
            choices = ": it is one of " + ", ".join(map(repr, output.choices)) if output.choices else ""
            raise ParseError(f"the answer has no {named} in JSON{choices}{too_long_to_repair(self.source.text)}")
        raise ParseError(f"the answer is not a valid {named}:\n{described_errors(problem)}") from problem


def nearly(output: Output, document: str, problem: ValidationError, context: Mapping[str, Any]) -> Parsed[Any] | None:
    """Correct near misses in the JSON's names and values, and return the JSON's value.

    Return None if that does not help.
    """
    if len(document) > MAX_REPAIRED:
        return None
    found = matched(document, lambda right: output.validated(right, context), output.any_schema, problem)
    return None if found is None else Parsed(*found)


def kinds_of(error: ValidationError) -> list[str]:
    """Return pydantic's error types for the document, or an empty list if it is not JSON."""
    kinds = [item["type"] for item in error.errors(include_url=False, include_context=False, include_input=False)]
    return [] if kinds[0] in _SYNTAX else kinds


def member(output: Output, text: str, *, is_cut: bool = False) -> Parsed[Any] | None:
    """Return the `Enum` or `Literal` member that the text names, ignoring case and punctuation, or None.

    Text that was cut off is refused if it may be the beginning of another member.
    """
    type = output.type
    if get_origin(type) is Literal:
        named = [(str(value), value) for value in get_args(type)]
    elif isinstance(type, EnumType):
        members: list[Any] = list(type)
        named = [(str(member.value), member) for member in members] + [(member.name, member) for member in members]
    else:
        return None
    stripped = text.strip()
    bare = stripped.strip("\"'`*.! ")
    choices = [choice for choice in named if choice[0] in (stripped, bare)]
    choices = choices or [choice for choice in named if choice[0].casefold() == bare.casefold()]
    if not choices:
        folded = {name.casefold(): (name, value) for name, value in reversed(named)}  # a name may equal a value
        right = only_close(bare.casefold(), folded)
        choices = [] if right is None else [folded[right]]
    if not choices:
        return None
    name, value = choices[0]
    if is_cut and any(other[1] is not value and other[0].casefold().startswith(bare.casefold()) for other in named):
        return None
    return Parsed(value, () if name == stripped else (f"{stripped!r:.120} was taken for {name!r}",))


def _quoted(output: Output, text: str) -> Iterator[str]:
    """Yield the text as JSON if it is a bare date or has another format that never occurs in prose."""
    if output.bare_schema.get("format") in _WITHOUT_PROSE:
        yield to_json(text.strip()).decode()


def _plain(output: Output, text: str) -> Iterator[str]:
    """Yield the text as JSON if it has no brackets and the type takes any text; otherwise, yield objects and lists."""
    schema = output.bare_schema
    kinds = [target_of(schema, kind.get("$ref", "")) or kind for kind in schema.get("anyOf", [schema])]
    plain = [kind for kind in kinds if kind.get("type") not in ("object", "array")]
    takes_text = [kind.get("type") == "string" and not kind.keys() & _NOT_ANY_TEXT for kind in plain] == [True]
    if takes_text and text.strip() and _BRACKETS.isdisjoint(text):
        yield to_json(text).decode()


def _row(text: str) -> Iterator[str]:
    """If the text consists of several JSON documents in a row, yield them as a single document."""
    if len(text) <= MAX_REPAIRED and is_row(text):
        yield repaired(text, granted(text))


def _mended(text: str) -> Iterator[str]:
    """Yield the broken pieces of the text, each repaired, and then the whole text, repaired."""
    if len(text) > MAX_REPAIRED:
        return
    looks = granted(text)
    for document in islice(broken(text), MAX_BROKEN):
        yield repaired(document, looks)
    if has_documents(text):
        yield repaired(text, looks)


_KINDS = ("typing", "typing_extensions", "types")  # modules of types that are not classes


def check_type(output: object, what: str) -> None:
    """Refuse a value that is not an output type, and suggest the right one."""
    kind = type(output)
    if isinstance(output, type) or kind.__module__ in _KINDS:
        return
    if output is None:
        right = "a type such as int; leave it out for text"
    elif hasattr(output, "__get_pydantic_core_schema__"):
        right = f"its type, {kind.__name__}"
    elif isinstance(output, str):
        right = f"the type itself, {output}" if output.isidentifier() else "a type such as int, or a model of pydantic"
    elif isinstance(output, list | tuple | set | frozenset):
        right = "one type, such as list[int], int | str or Literal['yes', 'no']"
    elif isinstance(output, Mapping):
        right = "a model of pydantic, a dataclass or a TypedDict with these fields (pydantic.create_model makes one)"
    elif callable(output):
        right = "a type, or Prompt(…, parser=…) for a function of the text"
    else:
        right = f"its type, {kind.__name__}" if kind.__module__ != "builtins" else f"a type such as {kind.__name__}"
    raise PromptError(f"{what}: expected {right}, got {safe_repr(output)}, which has no JSON schema")
