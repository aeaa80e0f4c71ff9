"""Parsers for answers: strategies that are tried in order, and a parser for tags, fenced blocks and signals.

They are pure and, except for `regex`, take time linear in the length of the text.  A prompt without a parser
reads answers as `fsm_agent.prompts.output` says.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache, partial
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, overload

from pydantic_core import ValidationError
from typing_extensions import TypeForm

from fsm_agent.errors import ParseError, PromptError, UsageError
from fsm_agent.functions.arguments import described_errors
from fsm_agent.prompts.json_in_text import (
    blocks,
    bracketed,
    broken_brackets,
    elements,
    is_tag,
    mentioned,
    without_thought,
)
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
    check_length,
    kinds_of,
    member,
    nearly,
    too_long_to_repair,
)
from fsm_agent.prompts.partial_output import PartialReader
from fsm_agent.prompts.repairs import granted, repaired
from fsm_agent.validation import require, safe_repr

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Repair = Literal["json", "names"]
Finder: TypeAlias = "Callable[[str], str | Iterable[str] | None]"

_MAX_CANDIDATES = 1000  # that are tried for one strategy
_MAX_SHOWN = 5  # problems of one strategy
_UNSET: Any = object()


@dataclass(frozen=True, eq=False)
class ParsingStrategy(Parser[T_co]):
    """Finds candidates for the answer in text.

    Used as a parser, it returns the first one; `first_of` combines several strategies.

    Attributes:
        name: The name for error messages, which says what the strategy looks for.
        find: A function that returns the pieces of text that may be the answer, the most likely first.
        find_broken: A function that returns the pieces that may be the answer once they are repaired, if these pieces
            differ from those of ``find``.
        is_json: Whether candidates are JSON, so that the value is their data.  Otherwise, the value is the text.
        opening: A regular expression for the text before the JSON, so that a reply can be read as it arrives.  Without
            it, the answer is known only when the reply is complete.
    """

    name: str
    find: Callable[[str], Iterable[str]]
    _: KW_ONLY
    find_broken: Callable[[str], Iterable[str]] | None = None
    is_json: bool = False
    opening: str | None = None

    def read(self, source: ParserInput) -> T_co | Parsed[T_co]:
        return first_of(self).read(source)

    @property
    def label(self) -> str:
        return self.name


def _strategy(given: ParsingStrategy[Any] | Finder) -> ParsingStrategy[Any]:
    if isinstance(given, ParsingStrategy):
        return given
    return ParsingStrategy(getattr(given, "__name__", type(given).__name__), partial(_found_by, given))


def _found_by(finder: Finder, text: str) -> Iterable[str]:
    found = finder(text)
    return () if found is None else (found,) if isinstance(found, str) else found


class _FirstOf(Parser[T_co]):
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
        is_right = type(max_length) is int and max_length > 0
        require("max_length of first_of", max_length, is_right, "a whole number of at least 1")
        self.strategies = tuple(map(_strategy, strategies))
        self.repairs, self.max_length = frozenset(repairs), max_length
        self.is_typed = expect is not _UNSET and expect is not str  # then strategies for text read JSON, too
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
        check_length(text, self.max_length)
        attempt, answer = _Attempt(self, source.parser_args), without_thought(text)
        for strategy in self.strategies:
            is_json = self.wants_json(strategy)
            searched = answer if is_json else text
            for candidate in islice(strategy.find(searched), _MAX_CANDIDATES):
                if source.is_cut and _may_go_on(candidate, searched, is_json):
                    raise ParseError(CUT_OFF)
                found = attempt.validated(strategy, candidate) if is_json else Parsed(candidate)
                if found is not None:
                    return found
        if "json" in self.repairs and not source.is_cut and len(text) <= MAX_REPAIRED:
            looks = granted(text)
            for strategy in filter(self.wants_json, self.strategies):
                for candidate in islice((strategy.find_broken or strategy.find)(answer), MAX_BROKEN):
                    document = repaired(candidate, looks)
                    if document and (found := attempt.validated(strategy, document, (MENDED,))) is not None:
                        return found
        if "names" in self.repairs and (found := attempt.nearly()) is not None:
            return found
        raise attempt.refusal(too_long_to_repair(text) if "json" in self.repairs else "")

    def wants_json(self, strategy: ParsingStrategy[Any]) -> bool:
        """Return whether the strategy's candidates are read as JSON."""
        return strategy.is_json or self.is_typed


class _Attempt:
    def __init__(self, parser: _FirstOf[Any], context: Mapping[str, Any]) -> None:
        self.parser, self.output, self.context = parser, parser.output, context
        self.problems: dict[ParsingStrategy[Any], list[str]] = {strategy: [] for strategy in parser.strategies}
        self.others: list[tuple[ParsingStrategy[Any], str, ValidationError | None, tuple[str, ...]]] = []
        self.is_there = False  # JSON

    def nearly(self) -> Parsed[Any] | None:
        for _, document, problem, notes in self.others:
            if problem is None:
                found = member(self.output, document)
            else:
                found = nearly(self.output, document, problem, self.context)
            if found is not None:
                return found.changed(repairs=(*notes, *found.repairs))
        return None

    def validated(
        self, strategy: ParsingStrategy[Any], document: str, notes: tuple[str, ...] = ()
    ) -> Parsed[Any] | None:
        try:
            value = self.output.validated(document, self.context)
        except ValidationError as error:
            problem = error.with_traceback(None) if kinds_of(error) else None  # a traceback would keep its frames alive
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

    def refusal(self, note: str) -> ParseError:
        """Return the error that lists what each strategy found, with a note about the answer."""
        if self.is_there:
            what = f"no {self.output.name} among the JSON"
        else:
            what = "no JSON" if all(map(self.parser.wants_json, self.problems)) else "nothing of what is looked for"
        lines = [f"there is {what} in the answer{note}:"]
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
    """Return a parser that tries strategies in order and returns the first valid candidate.

    The parser first tries each strategy strictly.  If that fails, it repairs broken JSON, and finally it corrects a
    name or value if exactly one of the expected ones is close enough.  A valid candidate is never altered.

    Args:
        strategies: `tagged`, `json_block`, `json_anywhere`, `keyword`, `regex`, `code`, `verbatim`, or your own pure
            function from the text to a candidate, several candidates, or None.
        expect: The answer's type; by default, JSON of any type, or any text.
        repairs: What may be repaired: ``"json"``, ``"names"``, both or neither.  Without ``"json"``, objects with
            duplicate names are also refused.
        max_length: The maximum number of characters in an answer.  Longer answers are refused.

    Raises:
        UsageError: If an argument is wrong, or pydantic cannot validate ``expect``.

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
    last_line = candidate.rpartition("\n")[2]
    is_last = text.rstrip().casefold().endswith(last_line.strip().casefold())
    return is_last and not (is_json and last_line.rstrip().endswith(("}", "]", '"')))


def _repeated(document: str) -> str | None:
    """Return a name that occurs twice in one of the document's objects, or None if there is none."""
    found: list[str] = []

    def counted(pairs: list[tuple[str, Any]]) -> None:
        names = Counter(name for name, _ in pairs)
        found.extend(name for name, count in names.items() if count > 1)

    try:
        json.loads(document, object_pairs_hook=counted)
    except (ValueError, RecursionError):
        return None
    return found[0] if found else None


def tagged(tag: str) -> ParsingStrategy[str]:
    """Find the content of ``<tag>…</tag>``, trimmed.  The tag is case-sensitive, and attributes are ignored.

    Examples:
        >>> first_of(tagged("answer"))("I think <answer>42</answer>.")
        '42'
    """
    require("the tag of tagged", tag, isinstance(tag, str) and is_tag(tag), "a name such as 'answer'")
    return ParsingStrategy(f"<{tag}>", partial(_contents, tag), opening=rf"<{re.escape(tag)}(?:\s[^<>]*+)?>")


def _contents(tag: str, text: str) -> Iterable[str]:
    return (element.content for element in elements(text, (tag,)))


def code(language: str | None = None) -> ParsingStrategy[str]:
    """Find the contents of fenced Markdown blocks.

    Args:
        language: The word after the fence, ignoring case; ``py`` does not match ``python``.  By default, every block
            matches.

    Examples:
        >>> reply = '''Here it is:
        ... ```sql
        ... SELECT 1
        ... ```'''
        >>> first_of(code("sql"))(reply)
        'SELECT 1'
    """
    right = language is None or (isinstance(language, str) and language != "" and not language.split()[1:])
    require("the language of code", language, right, "the word after the fence, such as 'python', or None")
    if language is None:
        return ParsingStrategy("a block of code", partial(_code_in, None), opening=_opening_of(""))
    words = (language.casefold(),)
    return ParsingStrategy(f"a {language} block", partial(_code_in, words), opening=_opening_of(language))


def _code_in(words: Collection[str] | None, text: str) -> Iterable[str]:
    return (content for info, content in blocks(text) if words is None or info.casefold() in words)


def _opening_of(*words: str) -> str:
    """Return the pattern for the line that opens a fenced block."""
    return rf"\n[ \t]*+(?:`{{3,}}+|~{{3,}}+)[ \t]*+(?i:{'|'.join(map(re.escape, words))})(?:[ \t][^\n`]*+)?\n"


def keyword(*words: str) -> ParsingStrategy[str]:
    """Find the first of these words that occurs in the text, ignoring case, even as part of a longer word.

    Examples:
        >>> first_of(keyword("yes", "no"))("Yes, of course.")
        'yes'
    """
    right = bool(words) and all(isinstance(word, str) and word for word in words)
    require("the words of keyword", words, right, "one or more strings")
    return ParsingStrategy(f"one of {', '.join(map(repr, words))}", partial(_words_in, words))


def _words_in(words: Iterable[str], text: str) -> Iterable[str]:
    folded = text.casefold()
    return (word for word in words if word.casefold() in folded)


def regex(pattern: str | re.Pattern[str], *, max_length: int = 10_000) -> ParsingStrategy[str]:
    """Find a pattern's matches: the first group if there is one, otherwise the whole match.

    Args:
        pattern: The regular expression.  Because the answer is untrusted, a pattern that backtracks, such as
            ``(a+)+$``, may run forever, and no deadline will stop it.
        max_length: The maximum number of characters in an answer.  Longer answers are refused.

    Examples:
        >>> first_of(regex("order ([0-9]+)"))("It is order 17.")
        '17'
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:  # the third: brackets within brackets
        what = "the pattern of regex"
        raise UsageError(f"{what}: expected a regular expression, got {pattern!r:.200}: {error}") from error
    return ParsingStrategy(f"the pattern {compiled.pattern!r}", partial(_matches, compiled, max_length))


def _matches(pattern: re.Pattern[str], max_length: int, text: str) -> Iterator[str]:
    if len(text) > max_length:
        limit = f"regex(…, max_length={max_length})"
        raise ParseError(f"the answer has {len(text)} characters, and {limit} looks at no more: give a shorter one")
    for match in pattern.finditer(text):
        yield match[1] if pattern.groups and match[1] is not None else match[0]


def _whole(text: str) -> Iterable[str]:
    return (text,)


_JSON_WORDS = ("", "json", "jsonc", "json5")
json_block: ParsingStrategy[Any] = ParsingStrategy(
    "a block of JSON", partial(_code_in, _JSON_WORDS), is_json=True, opening=_opening_of(*_JSON_WORDS)
)
"""The strategy that finds JSON in a fenced block.

Examples:
    >>> reply = '''```json
    ... {"count": 2}
    ... ```'''
    >>> first_of(json_block, expect=dict)(reply)
    {'count': 2}
"""
json_anywhere: ParsingStrategy[Any] = ParsingStrategy(
    "JSON anywhere", bracketed, find_broken=broken_brackets, is_json=True, opening=""
)
"""The strategy that finds JSON objects and arrays anywhere in the text.

Examples:
    >>> first_of(json_anywhere, expect=dict)('So: {"count": 2}.')
    {'count': 2}
"""
verbatim: ParsingStrategy[str] = ParsingStrategy("the whole text", _whole)
"""The strategy that takes the text as it is.

Examples:
    >>> first_of(verbatim)("  as it is ")
    '  as it is '
"""
_ANSWER = (ParsingStrategy[Any]("the whole text", _whole, is_json=True), tagged("answer"), json_block, json_anywhere)


def extract_json(text: str, expect: Any = Any, *, max_length: int = MAX_LENGTH) -> Any:
    """Return the first JSON document in ``text`` that has the expected type.

    The function tries the whole text, then ``<answer>…</answer>``, code fences, and prose.  In ``see [1]: {"k": 1}``,
    it finds ``[1]`` or, with ``expect=dict``, the object.  It does not repair JSON, and never returns part of a larger
    document.

    Args:
        text: A model's answer.
        expect: The type of the result: ``dict``, ``list``, or any other type that pydantic can validate.
        max_length: The maximum number of characters in the text.  Longer text is refused.

    Raises:
        ParseError: If no document has this type.  The error lists what was found in each place.
        UsageError: If pydantic cannot validate ``expect``.

    Examples:
        >>> extract_json('Here: {"count": 2}. Good luck!')
        {'count': 2}
    """
    return first_of(*_ANSWER, expect=expect, repairs=(), max_length=max_length)(text)


RAW = "raw"
_ATTRIBUTE = re.compile(r"""([^\s=/"']++)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"']++)))?""")
_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


class TagContent(str):
    """A tag's trimmed content, as a string that also holds the tag's attributes.

    Attributes:
        attributes: The attributes' values as written, by name; "" for an attribute without a value.

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
    """Reads tags into a dictionary: lists of contents by name, signals as booleans, and the whole text as ``raw``.

    For each name, the parser finds the outermost elements.  Names are case-sensitive.  All other text, including
    unlisted and unclosed tags, is ignored.  A single error lists everything that is missing.

    Args:
        xml: The names of elements ``<name …>content</name>``.  Their contents are `TagContent` strings.
        md: The words after the opening fences of code blocks, such as ``python``; ``py`` does not match ``python``.
        signals: The names of tags that are merely present or absent: ``<name>`` or ``<name/>``.
        required: The names that must be present.  A name that is in no other list counts as one of ``xml``.
        max_length: The maximum number of characters in an answer.  Longer answers are refused.

    Raises:
        UsageError: If no name is given, or a name is not a valid tag, is listed twice, or is ``raw``.

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
        check_length(text, self.max_length)
        found: dict[str, Any] = {RAW: text, **{name: [] for name in (*self.xml, *self.md)}}
        for element in elements(text, self.xml):
            written = attributes_of(element.attributes) if element.attributes else {}
            attributes = {name: value or "" for name, value in written.items()}
            found[element.name].append(TagContent(element.content, attributes))
        if self.md:
            for info, content in blocks(text):
                if info in self.md:
                    found[info].append(content)
        if self.signals:
            signalled = mentioned(text, self.signals)
            found |= {name: name in signalled for name in self.signals}
        if missing := [name for name in self.required if not found[name]]:
            named = mentioned(text, self.xml) if self.xml else set[str]()
            raise ParseError("\n".join([self._problem(name, named) for name in missing]))
        return found

    def _problem(self, name: str, named: Iterable[str]) -> str:
        if name in self.md:
            return f"No {name} block found; provide it as ```{name}\n…\n```"
        if name in self.signals:
            return f"No {name} signal found; provide it as <{name}/>"
        why = f"The tag <{name}> is never closed" if name in named else f"No {name} tags found"
        return f"{why}; provide it as <{name}>…</{name}>"


def attributes_of(written: str) -> dict[str, str | None]:
    """Return attributes by name, with None for a missing value.  If several have the same name, the first one wins."""
    found: dict[str, str | None] = {}
    for attribute in _ATTRIBUTE.finditer(written):
        name, *values = attribute.groups()
        found.setdefault(name, next((value for value in values if value is not None), None))
    return found
