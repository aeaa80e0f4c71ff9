"""One intent in a tag: the frame of what a user says, and the parser of the answer."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, overload

from fsm_agent.errors import ParseError, ParseFailed, TagNotFound, UsageError
from fsm_agent.prompts.extraction.first_of import MAX_LENGTH
from fsm_agent.prompts.extraction.parsing import Parsed, Parser, ParserInput
from fsm_agent.prompts.extraction.scanning import elements, mentioned, unescaped
from fsm_agent.prompts.intents.quoting import is_name, quoted, unquoted
from fsm_agent.prompts.output import CUT_OFF, Output, member
from fsm_agent.prompts.rendering.choices import is_skipped, label_of
from fsm_agent.validation import check

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")


class IntentExtractor(Parser[T]):
    """The parser of an intent: what stands in the first element of some name.

    Members of an enumeration are found by value or name, in any case, with or without underscores, and one slip of the
    pen away from exactly one of them; what was put right is reported.

    Args:
        tag: The name of the element.
        intent: An `Enum` or a `Literal`; by default any text.

    Raises:
        UsageError: The tag is no name, or there is nothing to choose.

    Examples:
        >>> IntentExtractor("intent", Literal["buy", "sell"])("<intent>buy</intent>")
        'buy'
    """

    @overload
    def __init__(self: IntentExtractor[str], tag: str) -> None: ...
    @overload
    def __init__(self, tag: str, intent: TypeForm[T]) -> None: ...
    def __init__(self, tag: str, intent: Any = str) -> None:
        check("the tag of an intent", tag, isinstance(tag, str) and is_name(tag), "a name such as 'intent'")
        right = "an Enum or a Literal with something to choose"
        self.tag, self.intent, self.output = tag, intent, Output(intent)
        check("the intent of a frame", intent, intent is str or bool(self.choices), right)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tag, self.intent)

    @property
    def label(self) -> str:
        return f"IntentExtractor({self.tag}; {', '.join(self.choices)})"

    @property
    def choices(self) -> list[str]:
        """The words to choose from, without those that prompts do not tell."""
        if isinstance(self.intent, type) and issubclass(self.intent, Enum):
            return [label_of(member) for member in self.intent if not is_skipped(member)]
        return [str(choice) for choice in get_args(self.intent)]

    def read(self, source: ParserInput) -> Parsed[T]:
        """Return the intent.

        Raises:
            TagNotFound: There is no such element.
            ParseFailed: It holds none of the intents.
        """
        text = source.text
        if len(text) > MAX_LENGTH:
            raise ParseError(f"the answer has {len(text)} characters, and at most {MAX_LENGTH} are read")
        found = next(elements(text, (self.tag,)), None)
        if found is None:
            raise ParseError(CUT_OFF) if source.is_cut else TagNotFound(self.tag, self._missing(text))
        content = found.content
        value: Any = unescaped(content)
        parsed: Parsed[T] | None = Parsed(value) if self.intent is str else member(self.output, value)
        if parsed is None or not content:
            one_of = f": it is one of {', '.join(self.choices)}" if self.choices else ""
            raise ParseFailed(content, f"{content!r:.120} in <{self.tag}> is not an intent{one_of}")
        return parsed

    def extract_intent(self, text: str) -> T:
        """Return the intent in a text; see `read`."""
        return self(text)

    def _missing(self, text: str) -> str:
        why = "is never closed" if mentioned(text, (self.tag,)) else "is not in the answer"
        one_of = f" with one of {', '.join(self.choices)} in it" if self.choices else ""
        return f"the tag <{self.tag}> {why}: give <{self.tag}>…</{self.tag}>{one_of}"


class IntentFrame(Generic[T]):
    """The tag around what a user says, and the tag in which the model answers.

    ``IntentFrame("query", "intent", UserIntent)`` wraps a text and extracts a ``UserIntent``.

    Args:
        input_tag: The name of the element around the text.
        extractor_tag: The name of the element in the answer.
        intent: What may stand in it; see `IntentExtractor`.

    Attributes:
        extractor: The parser, for a `Prompt`.

    Examples:
        >>> frame = IntentFrame("said", "intent", Literal["buy", "sell"])
        >>> frame.extractor("<intent>sell</intent>")
        'sell'
    """

    @overload
    def __init__(self: IntentFrame[str], input_tag: str, extractor_tag: str) -> None: ...
    @overload
    def __init__(self, input_tag: str, extractor_tag: str, intent: TypeForm[T]) -> None: ...
    def __init__(self, input_tag: str, extractor_tag: str, intent: Any = str) -> None:
        right = "a name such as 'query'"
        check("the input tag of a frame", input_tag, isinstance(input_tag, str) and is_name(input_tag), right)
        self.input_tag, self.extractor_tag = input_tag, extractor_tag
        self.extractor: IntentExtractor[T] = IntentExtractor(extractor_tag, intent)
        self._names = (input_tag, extractor_tag)

    def wrap(self, text: str) -> str:
        """Return the text in its tag, in which it stays whatever it says.

        What could be read as one of the two tags is quoted: ``</query>`` becomes ``<quoted:/query>``, also where it is
        written with other letters, marks that cannot be seen, or escapes.  All other text is left as it is.
        """
        check("the text of a frame", text, isinstance(text, str), "a string")
        return f"<{self.input_tag}>{quoted(text, self._names)}</{self.input_tag}>"

    def unwrap(self, wrapped: str) -> str:
        """Return the text that was wrapped, exactly.

        Raises:
            UsageError: `wrap` did not make it.
        """
        start, end = f"<{self.input_tag}>", f"</{self.input_tag}>"
        right = f"what wrap returned, {start}…{end}"
        is_framed = isinstance(wrapped, str) and wrapped.startswith(start) and wrapped.endswith(end)
        check("the wrapped text", wrapped, is_framed and len(wrapped) >= len(start + end), right)
        try:
            return unquoted(wrapped[len(start) : -len(end)], self._names)
        except ValueError as error:
            raise UsageError(f"the wrapped text: expected what this frame wrapped: {error}") from None

    def extract_intent(self, text: str) -> T:
        """Return the intent in a model's answer; see `IntentExtractor.read`."""
        return self.extractor(text)
