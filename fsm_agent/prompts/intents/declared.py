"""An enumeration that is a prompt's text, the type of its output, and the parser of the answer."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.errors import UsageError
from fsm_agent.prompts.intents.frame import IntentExtractor
from fsm_agent.prompts.intents.framed_prompt import framed_prompt
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.rendering.schema import prompt_schema
from fsm_agent.validation import check

if TYPE_CHECKING:
    from typing import Unpack

    from fsm_agent.prompts.options import PromptOptions

E = TypeVar("E", bound=Enum)


@with_options_shown(Prompt, without=("template", "parser", "output"))
def intent(*, prompt: str, tag: str = "intent", **options: Unpack[PromptOptions]) -> Callable[[type[E]], type[E]]:
    """Return the decorator that makes an intent of an enumeration.

    It gives the class ``prompt``, a `Prompt` whose output is a member; ``build_prompt(…)``, the text of the prompt with
    its variables; ``extract(text)``, the member that an answer names; and ``extractor``, the parser.  On a `PromptEnum`
    type checkers know them.

    Args:
        prompt: The template.  ``{{ intents_doc }}`` is what `prompt_schema` says of the enumeration; other variables
            are the prompt's.  No value can be read as one of its tags, nor as that of the answer.
        tag: The name of the element in which the model answers.
        options: Those of the `Prompt`.

    Raises:
        UsageError: The class is no enumeration with members, or has one of these names already.
        PromptError: The template is wrong.

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
        check("the class of an intent", kind, is_right, "an enumeration with members, such as a PromptEnum")
        extractor = IntentExtractor(tag, kind)
        made = framed_prompt(prompt, "intents_doc", prompt_schema(kind), (tag,), extractor, **options)

        def build_prompt(**values: Any) -> str:
            return made.render(**values).text

        methods = {"build_prompt": staticmethod(build_prompt), "extract": staticmethod(extractor.extract_intent)}
        for name, value in {"prompt": made, "extractor": extractor, **methods}.items():
            if name in kind.__members__:
                raise UsageError(
                    f"{kind.__name__}.{name}: expected another name for a member, since an intent uses this one"
                )
            setattr(kind, name, value)
        return kind

    return declare
