"""The actions that a model may write into its answer, and the answers: read, replaced, removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pydantic

from fsm_agent._internal.values import Value
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.errors import ParseError, UsageError
from fsm_agent.functions.schema import described_errors
from fsm_agent.prompts.extraction.first_of import MAX_LENGTH
from fsm_agent.prompts.extraction.parsing import Parsed, Parser, ParserInput
from fsm_agent.prompts.extraction.scanning import Element, elements, mentioned, unescaped
from fsm_agent.prompts.extraction.tags import attributes_of
from fsm_agent.prompts.intents.action import Action, doc_of, inner_text_of
from fsm_agent.prompts.intents.framed_prompt import framed_prompt
from fsm_agent.prompts.output import CUT_OFF, Output, nearly
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.validation import check

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from fsm_agent.prompts.options import PromptOptions

A = TypeVar("A", bound=Action)

_MAX_ACTIONS = 10_000  # of one answer
_MAX_PROBLEMS = 100  # of one answer: so many are looked at for what is nearly right
_MAX_SHOWN = 10


class _Read(Value, Generic[A], frozen=True):
    """An element that was read."""

    action: A | None
    notes: tuple[str, ...] = ()
    problem: str = ""


class ActionSet(Parser[list[A]]):
    """Some actions: the text that describes them, and the parser of answers that hold them.

    Only their tags are looked for: all else is text, other tags included.  The outermost elements count; what stands in
    the inner text of an action is text.  Entities are decoded.

    Args:
        actions: Subclasses of `Action`.
        prompt: The template of ``prompt`` and ``build_prompt``.  ``{{ actions_doc }}`` is the text that describes the
            actions; other variables are the prompt's.  No value can be read as one of its tags, nor as an action.
        strict: An action that cannot be read, such as one without a required attribute, is an error.  Otherwise it is
            left out, and the repairs say so.
        options: Those of the `Prompt`.

    Attributes:
        actions_doc: The text that describes the actions.

    Raises:
        UsageError: There is no action, one is no class of an action, or two have the same tag.
        PromptError: The template is wrong.

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

    @with_options_shown(Prompt, without=("template", "parser", "output"))
    def __init__(
        self, *actions: type[A], prompt: str | None = None, strict: bool = True, **options: Unpack[PromptOptions]
    ) -> None:
        check("the actions of an ActionSet", actions, bool(actions), "one or more classes")
        for action in actions:
            is_right = isinstance(action, type) and issubclass(action, Action) and action is not Action
            check("an action of an ActionSet", action, is_right, "a subclass of Action")
        check("strict of an ActionSet", strict, isinstance(strict, bool), "True or False")
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
        """The prompt that describes the actions and reads them.

        Raises:
            UsageError: It was made without a template.
        """
        if self._prompt is None:
            raise UsageError("this ActionSet has no prompt; pass ActionSet(…, prompt='… {{ actions_doc }} …')")
        return self._prompt

    def build_prompt(self, **values: Any) -> str:
        """Return the text of the prompt with its variables."""
        return self.prompt.render(**values).text

    def read(self, source: ParserInput) -> Parsed[list[A]]:
        """Return the actions of an answer in its order, and the repairs that it took.

        Raises:
            ParseError: One of them cannot be read.
        """
        text = source.text
        if len(text) > MAX_LENGTH:
            raise ParseError(f"the answer has {len(text)} characters, and at most {MAX_LENGTH} are read")
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
        left = mentioned("<\n".join(_between(text, found)), self.actions)  # of which no tag can be made
        problems += [f"the tag <{name}> is never closed" for name in self.actions if name in left]
        if problems and self.strict:
            raise _refusal(problems)
        return Parsed(actions, (*notes, *[f"an action was left out: {problem}" for problem in problems]))

    def extract_actions(self, text: str) -> list[A]:
        """Return the actions of a text; see `read`."""
        return self(text)

    def transform_actions(self, text: str, transformer: Callable[[A], str]) -> str:
        """Return the text with the result of ``transformer`` in place of each action; all else stays as it is.

        An action that cannot be read is none.
        """
        attempt = _Attempt(self.actions, {})
        pieces, end = list[str](), 0
        for element in attempt.outermost(text):
            action = attempt.read(element).action
            if action is None:
                continue
            value: Any = transformer(action)
            check(f"what the transformer made of {action!r:.80}", value, isinstance(value, str), "a string")
            pieces += [text[end : element.start], value]
            end = element.end
        return "".join([*pieces, text[end:]])

    def strip_actions(self, text: str) -> str:
        """Return the text without its actions."""
        return self.transform_actions(text, lambda _: "")


class _Attempt(Generic[A]):
    """The attempt to read the actions of one text."""

    def __init__(self, actions: Mapping[str, type[A]], context: Mapping[str, Any]) -> None:
        self.actions, self.context = actions, context
        self.known: dict[tuple[str, str, str, bool], _Read[A]] = {}  # models repeat themselves
        self.problems = 0

    def outermost(self, text: str) -> list[Element]:
        """Return the elements that are in no other one."""
        found = list[Element]()
        for element in elements(text, self.actions):
            if not found or element.start >= found[-1].end:
                found.append(element)
        return found

    def read(self, element: Element) -> _Read[A]:
        form = (element.name, element.attributes, element.content, element.is_paired)
        if form not in self.known:
            self.known[form] = self._read_element(element)
        return self.known[form]

    def _read_element(self, element: Element) -> _Read[A]:
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
    """Yield the text between elements."""
    end = 0
    for element in found:
        yield text[end : element.start]
        end = element.end
    yield text[end:]


def _refusal(problems: list[str]) -> ParseError:
    more = [f"and {len(problems) - _MAX_SHOWN} more"] if len(problems) > _MAX_SHOWN else []
    return ParseError("\n".join(["some actions cannot be read:", *problems[:_MAX_SHOWN], *more]))
