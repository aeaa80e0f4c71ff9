"""Actions are tags that a model writes into its answer.  Each is declared as a class, and an `ActionSet` reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Unpack, dataclass_transform

import pydantic

from fsm_agent._internal.structs import Value
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.functions.arguments import described_errors
from fsm_agent.prompts.fields import RecordField, docstring_of, fields_of
from fsm_agent.prompts.intents import framed_prompt
from fsm_agent.prompts.json_in_text import Element, elements, mentioned, unescaped
from fsm_agent.prompts.output import CUT_OFF, MAX_LENGTH, Output, Parsed, Parser, ParserInput, check_length, nearly
from fsm_agent.prompts.parsers import attributes_of
from fsm_agent.prompts.prompt import Prompt, PromptOptions
from fsm_agent.prompts.quoting import is_name
from fsm_agent.prompts.type_text import name_of
from fsm_agent.validation import require

_PART = "action_part"
_ATTRIBUTE, _INNER_TEXT = "attribute", "inner_text"


def Attribute(description: str = "", *, default: Any = ..., alias: str | None = None) -> Any:
    """Declare a field that is an attribute of the tag.

    Args:
        description: The meaning of the attribute, for the model.
        default: The value to use if the tag lacks the attribute.  Without a default, the attribute is required.
        alias: The attribute's name in the tag; by default, the field's name.

    Examples:
        >>> class Move(Action):
        ...     "Move something."
        ...     what: str = Attribute("what to move")
        >>> Move(what="lamp").what
        'lamp'
    """
    return _declared(_ATTRIBUTE, description, default, alias)


def InnerText(description: str = "", *, default: Any = ...) -> Any:
    """Declare the field that holds the text between the tags, with surrounding whitespace removed.

    Args:
        description: The meaning of the text, for the model.
        default: The value to use if the tag is empty.  Without a default, the text is required.

    Examples:
        >>> class Note(Action):
        ...     "Write a note."
        ...     text: str = InnerText("what to write")
        >>> Note(text="Buy a lamp.").text
        'Buy a lamp.'
    """
    return _declared(_INNER_TEXT, description, default, None)


def _declared(part: str, description: str, default: Any, alias: str | None) -> Any:
    extra: dict[str, Any] = {_PART: part}
    return pydantic.Field(default, description=description or None, alias=alias, json_schema_extra=extra)


@dataclass_transform(kw_only_default=True, field_specifiers=(Attribute, InnerText))
class Action(pydantic.BaseModel):
    """A tag with attributes and inner text.  The class's docstring tells the model what the action does.

    For example, ``class SendMessage(Action, tag="SendMessage")`` may have the fields ``to: str = Attribute("…")`` and
    ``content: str = InnerText("…")``.  The model then writes ``<SendMessage to="Ada">Hello</SendMessage>``.  By
    default, the tag is the class name.

    Examples:
        >>> class Move(Action):
        ...     "Move something."
        ...     what: str = Attribute("what to move")
        ...     to: str = InnerText("where")
        >>> ActionSet(Move).extract_actions('<Move what="lamp">the hall</Move>')
        [Move(what='lamp', to='the hall')]
    """

    model_config = pydantic.ConfigDict(frozen=True)

    action_tag: ClassVar[str]

    if TYPE_CHECKING:

        def __init_subclass__(cls, *, tag: str | None = None, **config: Unpack[pydantic.ConfigDict]) -> None: ...
    else:

        def __init_subclass__(cls, *, tag=None, **config):
            super().__init_subclass__(**config)
            cls.action_tag = cls.__name__ if tag is None else tag

    @classmethod
    def __pydantic_init_subclass__(cls, *, tag: str | None = None, **config: Any) -> None:
        super().__pydantic_init_subclass__(**config)
        name = cls.__name__
        is_right = tag is None or (isinstance(tag, str) and is_name(tag))
        require(f"the tag of {name}", tag, is_right, "a name such as 'move', or None")
        texts = [field.name for field in fields_of(cls) if _part(field) == _INNER_TEXT]
        for field in fields_of(cls):
            if _part(field) is None:
                raise UsageError(f"{name}.{field.name}: expected an Attribute(…) or an InnerText(…), got neither")
        if len(texts) > 1:
            raise UsageError(f"{name}: expected one InnerText(…), got two: {' and '.join(texts)}")


def inner_text_of(action: type[Action]) -> str | None:
    """Return the name of the inner-text field, or None if the action has none."""
    return next((field.json_name for field in fields_of(action) if _part(field) == _INNER_TEXT), None)


def doc_of(action: type[Action]) -> str:
    """Return an action's description for the model: its tag, and a line for each field."""
    fields = fields_of(action)
    attributes = "".join([f' {field.json_name}="..."' for field in fields if _part(field) == _ATTRIBUTE])
    end = f">...</{action.action_tag}>" if inner_text_of(action) else " />"
    lines = [_line(f"- `<{action.action_tag}{attributes}{end}`", " ".join(docstring_of(action).split()))]
    for field in fields:
        kind = name_of(field.info.annotation)
        notes = [str(_part(field)), *([kind] if kind != "string" else [])]
        notes += [] if field.info.is_required() else ["optional"]
        lines.append(_line(f"  - `{field.json_name}` ({', '.join(notes)})", field.description or ""))
    return "\n".join(lines)


def _part(field: RecordField) -> str | None:
    extra = field.info.json_schema_extra
    return str(extra[_PART]) if isinstance(extra, dict) and _PART in extra else None


def _line(form: str, meaning: str) -> str:
    return f"{form}: {meaning}" if meaning else form


A = TypeVar("A", bound=Action)

_MAX_ACTIONS = 10_000  # of one answer
_MAX_PROBLEMS = 100  # of one answer; each is checked for near misses
_MAX_SHOWN = 10


class _Read(Value, Generic[A], frozen=True):
    action: A | None
    notes: tuple[str, ...] = ()
    problem: str = ""


class ActionSet(Parser[list[A]]):
    """A set of actions, with the text that describes them to the model and a parser for answers that contain them.

    The parser reads only the tags of these actions and decodes their entities.  Everything else counts as text,
    including tags inside an action.

    Args:
        actions: Subclasses of `Action`.
        prompt: The template for ``prompt`` and ``build_prompt``.  ``{{ actions_doc }}`` inserts the description of the
            actions.  You provide the values for all other variables.  A value that looks like an action or a tag from
            the template is quoted.
        strict: Whether an unreadable action, such as one that lacks a required attribute, is an error.  Otherwise, it
            is left out and reported as a repair.
        options: Options for the `Prompt`.

    Attributes:
        actions_doc: The description of the actions.

    Raises:
        UsageError: If no action is given, a class is not an action, or two actions have the same tag.
        PromptError: If the template is wrong.

    Examples:
        >>> class Move(Action):
        ...     "Move something."
        ...     what: str = Attribute("what to move")
        >>> moves = ActionSet(Move)
        >>> moves.extract_actions('I take it. <Move what="lamp"/>')
        [Move(what='lamp')]
        >>> moves.strip_actions('I take it. <Move what="lamp"/>')
        'I take it. '
    """

    def __init__(
        self, *actions: type[A], prompt: str | None = None, strict: bool = True, **options: Unpack[PromptOptions]
    ) -> None:
        require("the actions of an ActionSet", actions, bool(actions), "one or more classes")
        for action in actions:
            is_right = isinstance(action, type) and issubclass(action, Action) and action is not Action
            require("an action of an ActionSet", action, is_right, "a subclass of Action")
        self.actions, self.strict = {action.action_tag: action for action in actions}, strict
        if len(self.actions) < len(actions):
            raise UsageError(f"expected actions with different tags, got the same tag twice in {actions!r:.300}")
        self.actions_doc = "\n".join([doc_of(action) for action in actions])
        self._prompt: Prompt[list[A]] | None = None
        if prompt is not None:
            self._prompt = framed_prompt(prompt, "actions_doc", self.actions_doc, self.actions, self, **options)

    @property
    def label(self) -> str:
        return f"ActionSet({self.actions_doc}; {self.strict})"

    @property
    def prompt(self) -> Prompt[list[A]]:
        """The prompt that describes the actions and parses them from the answer.

        Raises:
            UsageError: If the set was created without a template.
        """
        if self._prompt is None:
            raise UsageError("this ActionSet has no prompt; pass ActionSet(…, prompt='… {{ actions_doc }} …')")
        return self._prompt

    def build_prompt(self, **values: Any) -> str:
        """Return the prompt's text, with these values for its variables."""
        return self.prompt.render(**values).text

    def read(self, source: ParserInput) -> Parsed[list[A]]:
        """Return the actions in an answer, in order, with the repairs that were needed to read them.

        Raises:
            ParseError: If an action is unreadable and the set is strict, or if the answer is cut off or too long.
        """
        text = source.text
        check_length(text, MAX_LENGTH)
        if source.is_cut:
            raise ParseError(CUT_OFF)
        actions, notes, problems = list[A](), list[str](), list[str]()
        attempt = _Attempt(self.actions, source.parser_args)
        found = attempt.outermost(text)
        if len(found) > _MAX_ACTIONS:
            raise ParseError(f"the answer has {len(found)} actions, and at most {_MAX_ACTIONS} are read")
        for element in found:
            read = attempt.read(element)
            actions += [read.action] if read.action is not None else []
            notes += read.notes
            problems += [read.problem] if read.problem else []
            if len(problems) > _MAX_PROBLEMS:
                raise _refusal(problems)
        left = mentioned("<\n".join(_between(text, found)), self.actions)  # start tags without an end
        problems += [f"the tag <{name}> is never closed" for name in self.actions if name in left]
        if problems and self.strict:
            raise _refusal(problems)
        return Parsed(actions, (*notes, *[f"an action was left out: {problem}" for problem in problems]))

    def extract_actions(self, text: str) -> list[A]:
        """Return the actions in ``text``; see `read`."""
        return self(text)

    def transform_actions(self, text: str, transformer: Callable[[A], str]) -> str:
        """Return the text with each action replaced by the result of ``transformer``.

        Unreadable actions stay in the text.
        """
        attempt = _Attempt(self.actions, {})
        pieces, end = list[str](), 0
        for element in attempt.outermost(text):
            action = attempt.read(element).action
            if action is None:
                continue
            value: Any = transformer(action)
            what = f"the return value of the transformer for {action!r:.80}"
            require(what, value, isinstance(value, str), "a string")
            pieces += [text[end : element.start], value]
            end = element.end
        return "".join([*pieces, text[end:]])

    def strip_actions(self, text: str) -> str:
        """Return the text without its actions."""
        return self.transform_actions(text, lambda _: "")


class _Attempt(Generic[A]):
    def __init__(self, actions: Mapping[str, type[A]], context: Mapping[str, Any]) -> None:
        self.actions, self.context = actions, context
        self.problems = 0

    def outermost(self, text: str) -> list[Element]:
        """Return the elements that are not inside another element."""
        found = list[Element]()
        for element in elements(text, self.actions):
            if not found or element.start >= found[-1].end:
                found.append(element)
        return found

    def read(self, element: Element) -> _Read[A]:
        action = self.actions[element.name]
        source = attributes_of(element.attributes)
        data = {name: unescaped(value) for name, value in source.items() if value is not None}
        inner = inner_text_of(action)
        notes = list[str]()
        if inner is None and element.content:
            if inside := mentioned(element.content, self.actions):
                return self._wrong(f"<{element.name}> has <{min(inside)}> inside, and takes no text")
            notes.append(f"the text in <{element.name}> was passed over: {element.content!r:.120}")
        elif inner is not None and inner in data and not element.content:
            notes.append(f"the attribute {inner!r} of <{element.name}> was taken for its text")
        elif inner is not None and element.is_paired:
            data[inner] = unescaped(element.content)
        try:
            return _Read(action.model_validate_strings(data, context=self.context), tuple(notes))
        except pydantic.ValidationError as error:
            problem = error.with_traceback(None)
        if self.problems < _MAX_PROBLEMS and (found := self._nearly(action, data, problem)) is not None:
            return _Read(found.value, (*notes, *found.repairs))
        return self._wrong(f"<{element.name}>: {described_errors(problem)}")

    def _wrong(self, problem: str) -> _Read[A]:
        self.problems += 1
        return _Read(None, (), problem)

    def _nearly(self, action: type[A], data: dict[str, str], problem: pydantic.ValidationError) -> Parsed[A] | None:
        try:
            return nearly(Output(action), json.dumps(data), problem, self.context)
        except ValueError:  # half a surrogate pair
            return None


def _between(text: str, found: list[Element]) -> Iterator[str]:
    end = 0
    for element in found:
        yield text[end : element.start]
        end = element.end
    yield text[end:]


def _refusal(problems: list[str]) -> ParseError:
    more = [f"and {len(problems) - _MAX_SHOWN} more"] if len(problems) > _MAX_SHOWN else []
    return ParseError("\n".join(["some actions cannot be read:", *problems[:_MAX_SHOWN], *more]))
