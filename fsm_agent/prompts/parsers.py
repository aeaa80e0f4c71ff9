"""Parsers of answers: the first strategy that finds one, and tags, fenced blocks and signals.

They are pure, and take linear time in the length of the text.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, overload

from pydantic_core import ValidationError
from typing_extensions import TypeForm

from fsm_agent.errors import ParseError, PromptError, UsageError
from fsm_agent.functions.schema import described_errors
from fsm_agent.prompts.output import (
    CUT_OFF,
    MAX_BROKEN,
    MAX_LENGTH,
    MAX_REPAIRED,
    MENDED,
    Output,
    Parsed,
    Parser,
    ParserInput,
    kinds_of,
    member,
    nearly,
    too_long,
)
from fsm_agent.prompts.partial_output import PartialReader
from fsm_agent.prompts.repairs import granted, repaired
from fsm_agent.prompts.scanning import (
    Block,
    blocks,
    bracketed,
    broken_brackets,
    elements,
    is_tag,
    mentioned,
    without_thought,
)
from fsm_agent.validation import require, safe_repr

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Repair = Literal["json", "names"]
Finder: TypeAlias = "Callable[[str], str | Iterable[str] | None]"

_MAX_CANDIDATES = 1000  # of one strategy are tried
_MAX_SHOWN = 5  # of what one strategy found
_UNSET: Any = object()


class ParsingStrategy(Parser[T_co]):
    """A way to find an answer in a text.  Use it as a parser of its first candidate, or pass several to `first_of`.

    Attributes:
        name: What it looks for, in errors.
        is_json: Whether its candidates are JSON, and its value is their data.  Otherwise, the value is the text.
        opening: A regular expression after which JSON is the answer, for a text that is still arriving.  Without one,
            the answer is unknown until the end.
    """

    name: str
    is_json = False
    opening: str | None = None

    @abstractmethod
    def candidates(self, text: str) -> Iterable[str]:
        """Return the pieces of a text that may be the answer, the likeliest first."""

    def broken(self, text: str) -> Iterable[str]:
        """Return the pieces that may be the answer once they are repaired."""
        return self.candidates(text)

    def read(self, source: ParserInput) -> T_co | Parsed[T_co]:
        return first_of(self).read(source)

    @property
    def label(self) -> str:
        return f"{type(self).__name__}({self.name})"


class _Own(ParsingStrategy[str]):
    """A function that finds pieces of a text."""

    def __init__(self, function: Callable[[str], str | Iterable[str] | None]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def candidates(self, text: str) -> Iterable[str]:
        found = self.function(text)
        return () if found is None else (found,) if isinstance(found, str) else found


class _FirstOf(Parser[T_co]):
    """The parser of the first candidate that is valid."""

    def __init__(
        self,
        strategies: tuple[ParsingStrategy[Any] | Finder, ...],
        expect: Any,
        repairs: Collection[Repair],
        max_length: int,
    ) -> None:
        right = bool(strategies) and all(
            isinstance(one, ParsingStrategy) or (callable(one) and not isinstance(one, Parser | type))
            for one in strategies
        )
        what = "one or more, such as tagged('answer'), json_anywhere, or a function that finds text in text"
        require("the strategies of first_of", strategies, right, what)
        is_right = not isinstance(repairs, str) and set(repairs) <= {*get_args(Repair)}
        require("the repairs of first_of", repairs, is_right, "a tuple of 'json' and 'names', or of one of them, or ()")
        require(
            "max_length of first_of", max_length, type(max_length) is int and max_length > 0, "a whole number from 1 on"
        )
        self.strategies = tuple([one if isinstance(one, ParsingStrategy) else _Own(one) for one in strategies])
        self.repairs, self.max_length = frozenset(repairs), max_length
        self.is_typed = expect is not _UNSET and expect is not str  # texts are read as JSON, too
        self.output = _output(Any if expect is _UNSET else Annotated[str, "in JSON"] if expect is str else expect)

    @property
    def label(self) -> str:
        names = ", ".join(strategy.name for strategy in self.strategies)
        return f"first_of({names}; {self.output.name}; {', '.join(sorted(self.repairs))})"

    def arriving(self, parser_args: Mapping[str, Any]) -> PartialReader | None:
        opening = self.strategies[0].opening
        if not self.is_typed or opening is None:
            return None
        return PartialReader(self.output, opening, parser_args, self.max_length)

    def read(self, source: ParserInput) -> Parsed[Any]:
        text = source.text
        if len(text) > self.max_length:
            raise too_long(text, self.max_length)
        attempt, answer = _Attempt(self, source), without_thought(text)
        for strategy in self.strategies:
            searched = answer if attempt.wants_json(strategy) else text
            for candidate in islice(strategy.candidates(searched), _MAX_CANDIDATES):
                if (found := attempt.strictly(strategy, candidate, searched)) is not None:
                    return found
        if "json" in self.repairs and not source.is_cut and len(text) <= MAX_REPAIRED:
            looks = granted(text)
            for strategy in filter(attempt.wants_json, self.strategies):
                for candidate in islice(strategy.broken(answer), MAX_BROKEN):
                    if (found := attempt.mended(strategy, repaired(candidate, looks))) is not None:
                        return found
        if "names" in self.repairs and (found := attempt.nearly()) is not None:
            return found
        raise attempt.refusal()


class _Attempt:
    """The attempt of a parser at one answer, and what it found."""

    def __init__(self, parser: _FirstOf[Any], source: ParserInput) -> None:
        self.parser, self.output, self.context = parser, parser.output, source.parser_args
        self.problems: dict[ParsingStrategy[Any], list[str]] = {strategy: [] for strategy in parser.strategies}
        self.others: list[tuple[ParsingStrategy[Any], str, ValidationError | None, tuple[str, ...]]] = []
        self.is_there = False  # JSON
        self.is_cut = source.is_cut

    def wants_json(self, strategy: ParsingStrategy[Any]) -> bool:
        """Return whether what the strategy finds is read as JSON."""
        return strategy.is_json or self.parser.is_typed

    def strictly(self, strategy: ParsingStrategy[Any], candidate: str, text: str) -> Parsed[Any] | None:
        if self.is_cut and _may_go_on(candidate, text, self.wants_json(strategy)):
            raise ParseError(CUT_OFF)
        if not self.wants_json(strategy):
            return Parsed(candidate)
        return self._validated(strategy, candidate, ())

    def mended(self, strategy: ParsingStrategy[Any], document: str) -> Parsed[Any] | None:
        return self._validated(strategy, document, (MENDED,)) if document else None

    def nearly(self) -> Parsed[Any] | None:
        for _, document, problem, notes in self.others:
            if problem is None:
                found = member(self.output, document)
            else:
                found = nearly(self.output, document, problem, self.context)
            if found is not None:
                return found.changed(repairs=(*notes, *found.repairs))
        return None

    def _validated(self, strategy: ParsingStrategy[Any], document: str, notes: tuple[str, ...]) -> Parsed[Any] | None:
        try:
            value = self.output.validated(document, self.context)
        except ValidationError as error:
            problem = (
                error.with_traceback(None) if kinds_of(error) else None
            )  # the traceback would keep its frames alive
        else:
            if "json" in self.parser.repairs or not (twice := _repeated(document)):
                return Parsed(value, notes)
            self.problems[strategy].append(f"the name {twice!r:.120} is given twice")
            return None
        if problem is None and (found := member(self.output, document)) is not None and not found.repairs:
            return found
        if len(self.others) < MAX_BROKEN:
            self.others.append((strategy, document, problem, notes))
        self.is_there = self.is_there or problem is not None
        if len(self.problems[strategy]) <= _MAX_SHOWN and not notes:
            self.problems[strategy].append("no JSON" if problem is None else described_errors(problem))
        return None

    def refusal(self) -> ParseError:
        """Return the error that lists what each strategy found."""
        if self.is_there:
            what = f"no {self.output.name} among the JSON"
        else:
            what = "no JSON" if all(map(self.wants_json, self.problems)) else "nothing of what is looked for"
        lines = [f"there is {what} in the answer:"]
        for strategy, problems in self.problems.items():
            lines += [f"{strategy.name}: {problem}" for problem in problems[:_MAX_SHOWN] or ["not found"]]
            lines += [f"{strategy.name}: and more"] if len(problems) > _MAX_SHOWN else []
        return ParseError("\n".join(lines))


@overload
def first_of(
    *strategies: ParsingStrategy[Any] | Finder,
    expect: TypeForm[T],
    repairs: Collection[Repair] = ...,
    max_length: int = ...,
) -> Parser[T]: ...
@overload
def first_of(
    *strategies: ParsingStrategy[T], repairs: Collection[Repair] = ..., max_length: int = ...
) -> Parser[T]: ...
@overload
def first_of(
    *strategies: ParsingStrategy[Any] | Finder, repairs: Collection[Repair] = ..., max_length: int = ...
) -> Parser[Any]: ...
def first_of(
    *strategies: ParsingStrategy[Any] | Finder,
    expect: Any = _UNSET,
    repairs: Collection[Repair] = ("json", "names"),
    max_length: int = MAX_LENGTH,
) -> Parser[Any]:
    """Return the parser that tries strategies in order.  The first valid candidate wins.

    It first tries each strategy strictly, then repairs broken JSON, and then corrects names and values if exactly one
    right name or value is close enough.  It never alters a candidate that is already valid.

    Args:
        strategies: `tagged`, `json_block`, `json_anywhere`, `keyword`, `regex`, `code`, `verbatim`, or your own pure
            function, which returns the piece of the text that may be the answer, several such pieces, or None.
        expect: The type that the answer must have; by default JSON of any type, and any text.
        repairs: What may be repaired: ``"json"``, ``"names"``, both or neither.  Without ``"json"``, an object with a
            duplicate name is refused as well.
        max_length: The most characters of an answer.  Longer answers are refused.

    Raises:
        UsageError: If one of these is wrong, or ``expect`` is not a type that pydantic can validate.

    Examples:
        >>> answer = first_of(tagged("answer"), verbatim)
        >>> answer("<answer>42</answer>"), answer("42")
        ('42', '42')
    """
    return _FirstOf(strategies, expect, repairs, max_length)


def _output(expect: Any) -> Output:
    try:
        return _kept_output(expect)
    except TypeError:  # not hashable
        return _made_output(expect)


def _made_output(expect: Any) -> Output:
    try:
        return Output(expect)
    except PromptError as error:
        raise UsageError(f"expect: expected dict, list or a type for pydantic, got {safe_repr(expect)}") from error


_kept_output = lru_cache(maxsize=64)(_made_output)


def _may_go_on(candidate: str, text: str, is_json: bool) -> bool:
    """Return whether a piece may be incomplete because it ends where the text was cut."""
    last_line = candidate.rpartition("\n")[2]
    is_last = text.rstrip().casefold().endswith(last_line.strip().casefold())
    return is_last and not (is_json and last_line.rstrip().endswith(("}", "]", '"')))


def _repeated(document: str) -> str | None:
    """Return a name that an object of the document has twice."""
    found: list[str] = []

    def counted(pairs: list[tuple[str, Any]]) -> None:
        names = Counter(name for name, _ in pairs)
        found.extend(name for name, count in names.items() if count > 1)

    try:
        json.loads(document, object_pairs_hook=counted)
    except (ValueError, RecursionError):
        return None
    return found[0] if found else None


class _Tagged(ParsingStrategy[str]):
    """The content of an element."""

    def __init__(self, tag: str) -> None:
        require("the tag of tagged", tag, isinstance(tag, str) and is_tag(tag), "a name such as 'answer'")
        self.tag, self.name = tag, f"<{tag}>"
        self.opening = rf"<{re.escape(tag)}(?:\s[^<>]*+)?>"

    def candidates(self, text: str) -> Iterable[str]:
        return [element.content for element in elements(text, (self.tag,))]


class _Code(ParsingStrategy[str]):
    """The content of a fenced block."""

    def __init__(self, language: str | None, *, is_json: bool = False) -> None:
        right = language is None or (isinstance(language, str) and language != "" and not language.split()[1:])
        require("the language of code", language, right, "the word after the fence, such as 'python', or None")
        self.language, self.is_json = language, is_json
        words = "(?:|json|jsonc|json5)" if is_json else re.escape(language or "")
        self.opening = rf"\n[ \t]*+(?:`{{3,}}+|~{{3,}}+)[ \t]*+(?i:{words})(?:[ \t][^\n`]*+)?\n"
        self.name = "a block of JSON" if is_json else "a block of code" if language is None else f"a {language} block"

    def candidates(self, text: str) -> Iterable[str]:
        return (block.content for block in blocks(text) if self._is_right(block))

    def _is_right(self, block: Block) -> bool:
        if self.is_json:
            return block.info.casefold() in ("", "json", "jsonc", "json5")
        return self.language is None or block.info.casefold() == self.language.casefold()


class _Brackets(ParsingStrategy[Any]):
    """JSON objects and arrays, wherever they stand."""

    name, is_json, opening = "JSON anywhere", True, ""

    def candidates(self, text: str) -> Iterable[str]:
        return bracketed(text)

    def broken(self, text: str) -> Iterable[str]:
        return broken_brackets(text)


class _Keyword(ParsingStrategy[str]):
    """The first of some words that is in the text."""

    def __init__(self, words: tuple[str, ...]) -> None:
        right = bool(words) and all(isinstance(word, str) and word for word in words)
        require("the words of keyword", words, right, "one or more strings")
        self.words, self.name = words, f"one of {', '.join(map(repr, words))}"

    def candidates(self, text: str) -> Iterable[str]:
        folded = text.casefold()
        return (word for word in self.words if word.casefold() in folded)


class _Regex(ParsingStrategy[str]):
    """The match of a pattern."""

    def __init__(self, regex: str | re.Pattern[str], max_length: int) -> None:
        try:
            self.regex = re.compile(regex)
        except (re.error, TypeError, RecursionError, OverflowError) as error:  # the third: brackets within brackets
            raise UsageError(
                f"the pattern of regex: expected a regular expression, got {regex!r:.200}: {error}"
            ) from error
        self.max_length, self.name = max_length, f"the pattern {self.regex.pattern!r}"

    def candidates(self, text: str) -> Iterator[str]:
        if len(text) > self.max_length:
            limit = f"regex(…, max_length={self.max_length})"
            raise ParseError(f"the answer has {len(text)} characters, and {limit} looks at no more: give a shorter one")
        for match in self.regex.finditer(text):
            yield match[1] if self.regex.groups and match[1] is not None else match[0]


class _Verbatim(ParsingStrategy[str]):
    """The text as it is."""

    name = "the whole text"

    def candidates(self, text: str) -> Iterable[str]:
        return (text,)


class _WholeJson(_Verbatim):
    """The text as JSON."""

    name, is_json = "the whole text", True


def tagged(tag: str) -> ParsingStrategy[str]:
    """Return the strategy of the trimmed content of ``<tag>…</tag>``.  The case counts, and attributes are ignored.

    Examples:
        >>> first_of(tagged("answer"))("I think <answer>42</answer>.")
        '42'
    """
    return _Tagged(tag)


def code(language: str | None = None) -> ParsingStrategy[str]:
    """Return the strategy of fenced blocks of Markdown.

    Args:
        language: The whole word behind the fence, in any case: ``py`` is not ``python``.  By default, any word or none
            will do.

    Examples:
        >>> reply = '''Here it is:
        ... ```sql
        ... SELECT 1
        ... ```'''
        >>> first_of(code("sql"))(reply)
        'SELECT 1'
    """
    return _Code(language)


def keyword(*words: str) -> ParsingStrategy[str]:
    """Return the strategy of the first word, as given here, that is in the text, in any case or inside another word.

    Examples:
        >>> first_of(keyword("yes", "no"))("Yes, of course.")
        'yes'
    """
    return _Keyword(words)


def regex(pattern: str | re.Pattern[str], *, max_length: int = 10_000) -> ParsingStrategy[str]:
    """Return the strategy of a pattern's matches: the first group if it has groups, else the whole match.

    Args:
        pattern: The regular expression.  The answer is not under your control: a pattern that backtracks, such as
            ``(a+)+$``, may run forever, and no deadline ends it.
        max_length: The most characters of an answer.  Longer answers are refused.

    Examples:
        >>> first_of(regex("order ([0-9]+)"))("It is order 17.")
        '17'
    """
    return _Regex(pattern, max_length)


json_block: ParsingStrategy[Any] = _Code(None, is_json=True)
"""The strategy of JSON in a fenced block.

Examples:
    >>> reply = '''```json
    ... {"count": 2}
    ... ```'''
    >>> first_of(json_block, expect=dict)(reply)
    {'count': 2}
"""
json_anywhere: ParsingStrategy[Any] = _Brackets()
"""The strategy of JSON objects and arrays, wherever they are.

Examples:
    >>> first_of(json_anywhere, expect=dict)('So: {"count": 2}.')
    {'count': 2}
"""
verbatim: ParsingStrategy[str] = _Verbatim()
"""The strategy of the text as it is.

Examples:
    >>> first_of(verbatim)("  as it is ")
    '  as it is '
"""
_ANSWER = (_WholeJson(), _Tagged("answer"), json_block, json_anywhere)


def extract_json(text: str, expect: Any = Any, *, max_length: int = MAX_LENGTH) -> Any:
    """Return the first JSON document in ``text`` that fits.

    The search covers, in this order, the whole text, ``<answer>…</answer>``, code fences, and prose.  In
    ``see [1]: {"k": 1}`` it finds ``[1]``, and with ``expect=dict`` the object.  It repairs nothing, and does not try
    inner documents of a document alone.

    Args:
        text: A model's answer.
        expect: The type that the document must have: ``dict``, ``list``, or any other type that pydantic validates.
            The result is an instance of it.
        max_length: The most characters of a text.  Longer texts are refused.

    Raises:
        ParseError: If no document fits; the error lists what was found in each place.
        UsageError: If ``expect`` is not a type that pydantic can validate.

    Examples:
        >>> extract_json('Here: {"count": 2}. Good luck!')
        {'count': 2}
    """
    return first_of(*_ANSWER, expect=expect, repairs=(), max_length=max_length)(text)


RAW = "raw"
_ATTRIBUTE = re.compile(r"""([^\s=/"']++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"']++)))?""")
_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


class TagContent(str):
    """The trimmed content of a tag, as a text that also knows the tag's attributes.

    Attributes:
        attributes: The texts of attributes as written, by name.  An attribute without a value is empty.

    Examples:
        >>> note = TagContent("Buy a lamp.", {"by": "Ada"})
        >>> note, note.attributes["by"]
        ('Buy a lamp.', 'Ada')
    """

    __slots__ = ("attributes",)
    attributes: Mapping[str, str]

    def __new__(cls, content: str, attributes: Mapping[str, str] = _NO_ATTRIBUTES) -> TagContent:
        made = super().__new__(cls, content)
        made.attributes = attributes
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return TagContent, (str(self), dict(self.attributes))


class TagParser(Parser[dict[str, Any]]):
    """Reads an answer in tags into a dictionary: lists of contents by name, signals as True or False, and ``raw``.

    It finds the outermost elements of each name, whose case counts.  It ignores other text, unlisted tags, and tags
    that are never closed.  A single error lists all that is missing.

    Args:
        xml: Names of ``<name …>content</name>``.  Contents are `TagContent`s, with the tag's attributes.
        md: Whole words behind the fences of blocks such as ```` ```python ````: ``py`` is not ``python``.
        signals: Names of tags that are present or absent: ``<name>``, ``<name/>``.
        required: Names that must be present.  A name that is not in the other lists counts as one of ``xml``.
        max_length: The most characters of an answer.  Longer answers are refused.

    Raises:
        UsageError: If a name is not the name of a tag, is listed twice, or is ``raw``, or if no name is given.

    Examples:
        >>> TagParser(xml=["answer"], signals=["DONE"])("<answer>42</answer> <DONE>")
        {'raw': '<answer>42</answer> <DONE>', 'answer': ['42'], 'DONE': True}
    """

    def __init__(
        self,
        *,
        xml: Iterable[str] = (),
        md: Iterable[str] = (),
        signals: Iterable[str] = (),
        required: Iterable[str] = (),
        max_length: int = MAX_LENGTH,
    ) -> None:
        lists = {"xml": xml, "md": md, "signals": signals, "required": required}
        for name, value in lists.items():
            require(f"{name} of a TagParser", value, not isinstance(value, str), "a list of names, such as ['answer']")
        self.md, self.signals, self.required = tuple(md), tuple(signals), tuple(required)
        xml = tuple(xml)
        self.xml = (*xml, *[name for name in self.required if name not in (*xml, *self.md, *self.signals)])
        self.max_length = max_length
        names = (*self.xml, *self.md, *self.signals)
        if not names:
            raise UsageError("a TagParser: expected names to look for, got none; pass xml, md, signals or required")
        for name in names:
            require("a name of a TagParser", name, isinstance(name, str) and is_tag(name), "a name such as 'answer'")
        if twice := sorted({name for name in names if names.count(name) > 1 or name == RAW}):
            raise UsageError(f"a TagParser: expected each name once, and not 'raw', got {', '.join(twice)} twice")

    @property
    def label(self) -> str:
        return f"TagParser({self.xml}; {self.md}; {self.signals}; {self.required})"

    def read(self, source: ParserInput) -> dict[str, Any]:
        text = source.text
        if len(text) > self.max_length:
            raise ParseError(f"the answer has {len(text)} characters, and at most {self.max_length} are read")
        found: dict[str, Any] = {RAW: text, **{name: [] for name in (*self.xml, *self.md)}}
        for element in elements(text, self.xml):
            written = attributes_of(element.attributes) if element.attributes else {}
            attributes = {name: value or "" for name, value in written.items()}
            found[element.name].append(TagContent(element.content, attributes))
        if self.md:
            for block in blocks(text):
                if block.info in self.md:
                    found[block.info].append(block.content)
        if self.signals:
            signalled = mentioned(text, self.signals)
            found |= {name: name in signalled for name in self.signals}
        if missing := [name for name in self.required if not found[name]]:
            named = mentioned(text, self.xml) if self.xml else set[str]()
            raise ParseError("\n".join([self._problem(name, named) for name in missing]))
        return found

    def _problem(self, name: str, named: Iterable[str]) -> str:
        """Return what the model is told about a missing name."""
        if name in self.md:
            return f"No {name} block found, it should be provided as ```{name}\n…\n```"
        if name in self.signals:
            return f"No {name} signal found, it should be provided as <{name}/>"
        why = f"The tag <{name}> is never closed" if name in named else f"No {name} tags found"
        return f"{why}, it should be provided as <{name}>…</{name}>"


def attributes_of(written: str) -> dict[str, str | None]:
    """Return attributes by name, with None for a missing value.  The first of duplicate attributes counts."""
    found: dict[str, str | None] = {}
    for attribute in _ATTRIBUTE.finditer(written):
        name, *values = attribute.groups()
        found.setdefault(name, next((value for value in values if value is not None), None))
    return found
