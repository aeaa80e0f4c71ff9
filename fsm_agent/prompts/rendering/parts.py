"""Values with pictures, as parts of a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsm_agent.messages.message import Attachment, Document, Image, Text
from fsm_agent.prompts.rendering.fields import fields_of, is_record
from fsm_agent.prompts.rendering.text import prompt_text


def prompt_parts(value: Any, target: object = None) -> tuple[Attachment | Text, ...]:
    """Return a value as parts of a message: its pictures and documents in the order of the fields, then its text.

    ``Message.of("user", *prompt_parts(value))`` is a message of them.

    Args:
        value: The value.
        target: Who or what the text is for; see `prompt_text`.

    Raises:
        PromptError: The value cannot be printed; see `prompt_text`.
        UsageError: A field that is declared as an image holds none.

    Examples:
        >>> prompt_parts({"count": 2})
        (Text(text='{"count": 2}'),)
    """
    text = prompt_text(value, target)  # which also refuses a value that contains itself
    attachments = _attachments(value, target if isinstance(target, str) else None)
    return (*attachments, *([Text(text)] if text else []))


def _attachments(value: Any, target: str | None) -> Iterator[Attachment]:
    kind: Any = type(value)
    if isinstance(value, Image | Document):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _attachments(item, target)
    elif is_record(kind):
        for field in fields_of(kind):
            look = field.look(target)
            if look is None or field.info.exclude:
                continue
            item = getattr(value, field.name)
            if look.image and item is not None and not isinstance(item, Image):
                yield Image.of(item)
            else:
                yield from _attachments(item, target)
