"""The parser that tries several strategies in order, and the protocol of those."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, get_args, overload

from fsm_agent._internal.lazy_import import deferred, pydantic
from fsm_agent.errors import ParseError, PromptError, UsageError
from fsm_agent.functions.schema import described_errors
from fsm_agent.prompts.extraction.arriving import Arriving
from fsm_agent.prompts.extraction.parsing import Parsed, Parser, ParserInput
from fsm_agent.prompts.extraction.scanning import without_thought
from fsm_agent.prompts.json_repairs import granted, repaired
from fsm_agent.prompts.output import (
    CUT_OFF,
    MAX_BROKEN,
    MAX_REPAIRED,
    MENDED,
    Output,
    kinds_of,
    member,
    nearly,
    too_long,
)
from fsm_agent.prompts.output import MAX_LENGTH as MAX_LENGTH
from fsm_agent.validation import check, shown

if TYPE_CHECKING:
    import json

    from typing_extensions import TypeForm
else:
    json = deferred("json")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Repair = Literal["json", "names"]
Finder: TypeAlias = "Callable[[str], str | Iterable[str] | None]"

_MAX_CANDIDATES = 1000  # of one strategy are tried
_MAX_SHOWN = 5  # of what one strategy found
_UNSET: Any = object()


class ParsingStrategy(Parser[T_co]):
    """A way to find an answer in a text: by itself a parser of its first candidate, or one of several for `first_of`.

    Attributes:
        name: What it looks for, in errors.
        is_json: Its candidates are JSON, and its value is what that says; the value of others is the text.
        opening: A regular expression behind which JSON is the answer, while the text is still arriving; None: that is
            not known yet then.
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
        check("the strategies of first_of", strategies, right, what)
        is_right = not isinstance(repairs, str) and set(repairs) <= {*get_args(Repair)}
        check("the repairs of first_of", repairs, is_right, "a tuple of 'json' and 'names', or of one of them, or ()")
        check(
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

    def arriving(self, parser_args: Mapping[str, Any]) -> Arriving | None:
        opening = self.strategies[0].opening
        if not self.is_typed or opening is None:
            return None
        return Arriving(self.output, opening, parser_args, self.max_length)

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
        self.others: list[tuple[ParsingStrategy[Any], str, pydantic.ValidationError | None, tuple[str, ...]]] = []
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
        except pydantic.ValidationError as error:
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
    """Return the parser that tries strategies in order: the first candidate that is valid wins.

    First each is tried strictly; then broken JSON is repaired; then names and values that are nearly right are put
    right, where exactly one of those that are right is close enough.  What was valid by itself is never altered.

    Args:
        strategies: `tagged`, `json_block`, `json_anywhere`, `keyword`, `regex`, `code`, `verbatim`; or a pure function
            of your own, which returns the piece of the text that may be the answer, several of them, or None.
        expect: The type that the answer must have; by default JSON of any type, and any text.
        repairs: What may be put right: ``"json"``, ``"names"``, both or none.  Without ``"json"``, names that an object
            has twice are refused as well.
        max_length: Longer answers are refused.

    Raises:
        UsageError: One of these is wrong; ``expect`` is not a type that pydantic can validate.

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
        raise UsageError(f"expect: expected dict, list or a type for pydantic, got {shown(expect)}") from error


_kept_output = lru_cache(maxsize=64)(_made_output)


def _may_go_on(candidate: str, text: str, is_json: bool) -> bool:
    """Return whether a piece may be half of what was meant, as it ends where the text was cut."""
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
