"""The protocol of parsers that see the reply and report their repairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from fsm_agent._internal.values import Value
from fsm_agent._internal.vector import Vector
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import Finish, TokenLogprob
from fsm_agent.validation import check

if TYPE_CHECKING:
    from fsm_agent.prompts.extraction.arriving import Arriving

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ParserInput(Value, frozen=True, kw_only=True):
    """The part of a model's reply that a parser sees.

    Examples:
        >>> shout = parser(lambda reply: reply.text.upper())
        >>> Agent(Script("hi")).call(Prompt("Hello", parser=shout)).output
        'HI'
        >>> ParserInput(text="hi").is_cut
        False
    """

    text: str
    finish: Finish | None = None
    is_cut: bool = False  # it ended at the token limit, and the call does not accept that
    logprobs: tuple[TokenLogprob, ...] = ()
    problems: tuple[str, ...] = ()  # of the answers before it in the exception branch, as the model was told
    parser_args: Mapping[str, Any] = {}
    function_calls: Sequence[FunctionCall] = Vector()  # settled, of all rounds, in the order of the requests


class Parsed(Value, Generic[T], frozen=True):
    """A value, and the repairs without which it could not have been read: one short text each, for people.

    Examples:
        >>> Parsed(3, repairs=("a comma was left out",)).value
        3
    """

    value: T
    repairs: tuple[str, ...] = ()


def checked(value: Any) -> Parsed[Any]:
    """Return what a parser returned as a `Parsed`.

    Raises:
        UsageError: Its repairs are no texts.
    """
    if not isinstance(value, Parsed):
        return Parsed(value)
    repairs: Any = value.repairs
    if not (isinstance(repairs, tuple) and all(isinstance(repair, str) for repair in repairs)):
        raise UsageError(f"the repairs of a Parsed: expected a tuple of strings, got {repairs!r:.200}")
    return value


class Parser(ABC, Generic[T_co]):
    """A parser that sees the reply and may report repairs.

    Its instances are told from plain functions of the text by their class.  They can be called with a text, too, and
    then return the value alone.

    Examples:
        >>> first_word = parser(lambda reply: reply.text.split()[0])
        >>> first_word("yes, please")
        'yes,'
    """

    @abstractmethod
    def read(self, source: ParserInput) -> T_co | Parsed[T_co]:
        """Return the value that a reply means, or a `Parsed` with the repairs that it took.  Pure.

        Raises:
            Exception: It means none; the model is told why and tries again.
        """

    @property
    def label(self) -> str:
        """Its name in the fingerprint of a prompt: it changes with what the parser does."""
        return type(self).__qualname__

    def arriving(self, parser_args: Mapping[str, Any]) -> Arriving | None:
        """Return what reads the output of a reply that is still arriving; None: it is known at the end alone."""
        return None

    def __call__(self, text: str, **parser_args: Any) -> T_co:
        value = self.read(ParserInput(text=text, parser_args=parser_args))
        return value.value if isinstance(value, Parsed) else value


class _FunctionParser(Parser[T_co]):
    """A parser made of a function of the reply."""

    def __init__(self, function: Callable[[ParserInput], T_co | Parsed[T_co]]) -> None:
        self.function = function
        update_wrapper(self, function)

    def read(self, source: ParserInput) -> T_co | Parsed[T_co]:
        return self.function(source)

    @property
    def label(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)

    def __reduce__(self) -> str:
        return self.label  # pickled by its name, as the function would be


@overload
def parser(function: Callable[[ParserInput], Parsed[T]]) -> Parser[T]: ...
@overload
def parser(function: Callable[[ParserInput], T]) -> Parser[T]: ...
def parser(function: Callable[[ParserInput], Any]) -> Parser[Any]:
    """Return a function of the reply as a `Parser`; a decorator.

    Args:
        function: Returns the value, or a `Parsed` with repairs.  Pure: what it returns is computed again when a journal
            is read.

    Examples:
        >>> @parser
        ... def first_word(reply):
        ...     return reply.text.split()[0]
        >>> Agent(Script("42 because …")).call(Prompt("6 * 7?", parser=first_word)).output
        '42'
    """
    check("the function of a parser", function, callable(function), "a function of a ParserInput")
    return _FunctionParser(function)
