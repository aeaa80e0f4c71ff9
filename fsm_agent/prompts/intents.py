"""Intents: enumerations that provide the prompt text, the output type, and the parser for the answer.

`FramedPrompt` keeps the values of variables from closing the tags around them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Unpack, cast, get_args, overload

from typing_extensions import TypeForm, TypeVar

from fsm_agent.errors import ParseError, ParseFailed, PromptError, TagNotFound, UsageError
from fsm_agent.prompts.fields import is_skipped, label_of
from fsm_agent.prompts.json_in_text import elements, mentioned, unescaped
from fsm_agent.prompts.output import CUT_OFF, MAX_LENGTH, Output, Parsed, Parser, ParserInput, check_length, member
from fsm_agent.prompts.prompt import Prompt, PromptOptions
from fsm_agent.prompts.quoting import guard_of, is_name, quoted
from fsm_agent.prompts.template import TextGuard, variables
from fsm_agent.prompts.type_text import prompt_schema
from fsm_agent.validation import require

T = TypeVar("T")


class IntentExtractor(Parser[T]):
    """A parser that reads an intent from the first element with a given tag.

    Enum members match by value or name, ignoring case and underscores.  A typo is accepted if exactly one member is
    close, and is reported as a repair.

    Args:
        tag: The name of the element.
        intent: An `Enum` or a `Literal`; by default, any text.

    Raises:
        UsageError: If the tag is not a valid name, or there is nothing to choose from.

    Examples:
        >>> IntentExtractor("intent", Literal["buy", "sell"])("<intent>buy</intent>")
        'buy'
    """

    @overload
    def __init__(self: IntentExtractor[str], tag: str) -> None: ...
    @overload
    def __init__(self, tag: str, intent: TypeForm[T]) -> None: ...
    def __init__(self, tag: str, intent: Any = str) -> None:
        require("the tag of an intent", tag, isinstance(tag, str) and is_name(tag), "a name such as 'intent'")
        right = "an Enum or a Literal with something to choose"
        self.tag, self.intent, self.output = tag, intent, Output(intent)
        require("the intent of a frame", intent, intent is str or bool(self.choices), right)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tag, self.intent)

    @property
    def label(self) -> str:
        return f"IntentExtractor({self.tag}; {', '.join(self.choices)})"

    @property
    def choices(self) -> list[str]:
        """The words to choose from, without the members that are left out of prompts."""
        if isinstance(self.intent, type) and issubclass(self.intent, Enum):
            return [label_of(member) for member in self.intent if not is_skipped(member)]
        return [str(choice) for choice in get_args(self.intent)]

    def read(self, source: ParserInput) -> Parsed[T]:
        """Return the intent.

        Raises:
            TagNotFound: If the answer lacks the element.
            ParseFailed: If its content is not an intent.
            ParseError: If the answer is too long or cut off.
        """
        text = source.text
        check_length(text, MAX_LENGTH)
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
        """Return the intent in ``text``; see `read`."""
        return self(text)

    def _missing(self, text: str) -> str:
        why = "is never closed" if mentioned(text, (self.tag,)) else "is not in the answer"
        one_of = f" with one of {', '.join(self.choices)} in it" if self.choices else ""
        return f"the tag <{self.tag}> {why}: give <{self.tag}>…</{self.tag}>{one_of}"


class IntentFrame(Generic[T]):
    """A pair of tags: one around the user's text, and one for the model's answer.

    ``IntentFrame("query", "intent", UserIntent)`` wraps text in ``<query>`` and reads a ``UserIntent`` from
    ``<intent>``.

    Args:
        input_tag: The name of the element around the text.
        extractor_tag: The name of the element in the answer.
        intent: The intents to choose from; see `IntentExtractor`.

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
        require("the input tag of a frame", input_tag, isinstance(input_tag, str) and is_name(input_tag), right)
        self.input_tag, self.extractor_tag = input_tag, extractor_tag
        self.extractor: IntentExtractor[T] = IntentExtractor(extractor_tag, intent)
        self._names = (input_tag, extractor_tag)

    def wrap(self, text: str) -> str:
        """Return the text wrapped in the input tag, which nothing in the text can close.

        Anything that could be read as one of the two tags is quoted: ``</query>`` becomes ``<quoted:/query>``.  This
        includes tags disguised with similar letters, invisible characters or escapes.  All other text stays unchanged.
        """
        require("the text of a frame", text, isinstance(text, str), "a string")
        return f"<{self.input_tag}>{quoted(text, self._names)}</{self.input_tag}>"

    def extract_intent(self, text: str) -> T:
        """Return the intent in a model's answer; see `IntentExtractor.read`."""
        return self.extractor(text)


Out = TypeVar("Out", default=Any)

_END_TAG = re.compile(r"</\s*([^\W\d][\w.-]*)\s*>")
_JINJA = re.compile(r"\{[{%#]|[%#}]\}|\r")


@dataclass(frozen=True, eq=False)
class FramedPrompt(Prompt[Out]):
    """A prompt whose variable values cannot be read as certain tags; see `quoted`."""

    tags: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def _guard(self) -> TextGuard:
        return guard_of(self.tags)


def framed_prompt(
    template: str, name: str, doc: str, tags: Iterable[str], parser: Callable[[str], Out], **options: Any
) -> Prompt[Out]:
    """Return a prompt with ``doc`` in place of ``{{ name }}``.

    ``doc`` is not treated as a template.  Values cannot contain ``tags`` or the tags that the template closes.

    Raises:
        PromptError: If the template lacks ``{{ name }}``, or its syntax is wrong.
    """
    right = f"a string with {{{{ {name} }}}}"
    require("the prompt of an intent", template, isinstance(template, str), right, PromptError)
    plain = _JINJA.sub(lambda syntax: f"{{{{ {syntax[0]!r} }}}}", doc)
    filled_in, count = re.subn(rf"\{{\{{ *{name} *\}}\}}", lambda _: plain, template)
    if not count or name in variables(filled_in):
        raise PromptError(f"the prompt {template[:60]!r}: expected {{{{ {name} }}}}, alone in its braces, got none")
    names = tuple(dict.fromkeys([*tags, *_END_TAG.findall(template)]))
    made: Any = FramedPrompt
    return cast("Prompt[Out]", made(filled_in, parser=parser, tags=names, **options))


E = TypeVar("E", bound=Enum)


def intent(*, prompt: str, tag: str = "intent", **options: Unpack[PromptOptions]) -> Callable[[type[E]], type[E]]:
    """Return a decorator that turns an enumeration into an intent.

    It adds to the class:

    - ``prompt``: a `Prompt` whose output is a member of the enumeration;
    - ``build_prompt(…)``: the prompt's text, with values for its variables;
    - ``extract(text)``: the member that an answer names;
    - ``extractor``: the parser.

    Type checkers know these names if the class is a `PromptEnum`.

    Args:
        prompt: The template.  ``{{ intents_doc }}`` inserts the enumeration's `prompt_schema`.  You provide the values
            for all other variables.  A value that looks like a tag from the template or the answer is quoted.
        tag: The name of the element for the model's answer.
        options: Options for the `Prompt`.

    Raises:
        UsageError: If the class is not an enumeration with members, or already has one of these names.
        PromptError: If the template is wrong.

    Examples:
        >>> @intent(prompt="What does the customer want? {{ intents_doc }} {{ text }}")
        ... class Wish(PromptEnum):
        ...     BUY = PromptChoice("buy", "wants to buy")
        ...     LEAVE = PromptChoice("leave", "wants to leave")
        >>> Agent(Script("<intent>buy</intent>")).call(Wish.prompt(text="A lamp!")).output
        <Wish.BUY: 'buy'>
    """

    def declare(kind: type[E]) -> type[E]:
        is_right = isinstance(kind, type) and issubclass(kind, Enum) and bool(kind.__members__)
        require("the class of an intent", kind, is_right, "an enumeration with members, such as a PromptEnum")
        extractor = IntentExtractor(tag, kind)
        made = framed_prompt(prompt, "intents_doc", prompt_schema(kind), (tag,), extractor, **options)

        def build_prompt(**values: Any) -> str:
            return made.render(**values).text

        methods = {"build_prompt": staticmethod(build_prompt), "extract": staticmethod(extractor.extract_intent)}
        for name, value in {"prompt": made, "extractor": extractor, **methods}.items():
            if name in kind.__members__:
                raise UsageError(f"{kind.__name__}.{name}: expected another name, since an intent uses this one")
            setattr(kind, name, value)
        return kind

    return declare
