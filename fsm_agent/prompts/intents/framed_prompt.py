"""Prompts that keep the values of their variables inside the tags around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from typing_extensions import TypeVar

from fsm_agent.errors import PromptError
from fsm_agent.messages.message import Message
from fsm_agent.prompts.intents.quoting import guard_of
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.template import check_used, render, variables
from fsm_agent.validation import check

Out = TypeVar("Out", default=Any)

_END_TAG = re.compile(r"</\s*([^\W\d][\w.-]*)\s*>")
_JINJA = re.compile(r"\{[{%#]|[%#}]\}|\r")


@dataclass(frozen=True, eq=False)
class FramedPrompt(Prompt[Out]):
    """A prompt in whose values nothing can be read as one of some tags; see `quoted`."""

    tags: tuple[str, ...] = field(default=(), kw_only=True)

    def render(self, /, **values: Any) -> Message:
        """The user's message that asks for the task; see `Prompt.render`."""
        check_used(self.template, values)
        return Message.of("user", render(self.template, values, guard_of(self.tags)))


def framed_prompt(
    template: str, name: str, doc: str, tags: Iterable[str], parser: Callable[[str], Out], **options: Any
) -> Prompt[Out]:
    """Return a prompt that says ``doc`` in place of ``{{ name }}``.

    Args:
        template: The template.
        name: The variable that stands for the documentation.
        doc: The documentation, whose text is no template.
        tags: The names of tags that no value may hold, besides those that the template closes.
        parser: The parser of the answer.
        options: Those of a `Prompt`.

    Raises:
        PromptError: The template does not say ``{{ name }}``, or its syntax is wrong.
    """
    check(
        "the prompt of an intent", template, isinstance(template, str), f"a string with {{{{ {name} }}}}", PromptError
    )
    plain = _JINJA.sub(lambda syntax: f"{{{{ {syntax[0]!r} }}}}", doc)
    filled_in, count = re.subn(rf"\{{\{{ *{name} *\}}\}}", lambda _: plain, template)
    if not count or name in variables(filled_in):
        raise PromptError(f"the prompt {template[:60]!r}: expected {{{{ {name} }}}}, alone in its braces, got none")
    names = tuple(dict.fromkeys([*tags, *_END_TAG.findall(template)]))
    made: Any = FramedPrompt
    return cast("Prompt[Out]", made(filled_in, parser=parser, tags=names, **options))
