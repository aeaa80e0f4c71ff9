"""The members of an enumeration, with what they mean."""

from __future__ import annotations

from enum import Enum
from typing import Any, Self


class PromptChoice(str):
    """The value of an enumeration's member, with its meaning for a model.

    ``GREETING = PromptChoice("Greeting", "User wants to greet or say hello")`` is a member of any ``Enum``, and equal
    to the text.

    Args:
        value: The text that models read and write.
        description: What it means.
        skip: Leave the member out of schemas; where it is printed, it is the text alone.

    Examples:
        >>> class Mood(PromptEnum):
        ...     HAPPY = PromptChoice("happy", "smiles a lot")
        ...     SAD = "sad"
        >>> Agent(Script("happy"), output=Mood).call("How is she?").output
        <Mood.HAPPY: 'happy'>
    """

    description: str
    skip: bool

    def __new__(cls, value: str, description: str = "", *, skip: bool = False) -> Self:
        choice = super().__new__(cls, value)
        choice.description = description
        choice.skip = skip
        return choice


def label_of(member: Enum) -> str:
    """Return the word for a member: its value if that is a text, otherwise its name."""
    return str.__str__(member.value) if isinstance(member.value, str) else member.name or str(member.value)


def is_skipped(member: Enum) -> bool:
    """Return whether schemas leave the member out."""
    value: Any = member.value
    return isinstance(value, PromptChoice) and value.skip


def description_of(member: Enum) -> str:
    """Return what the member means: the description of its `PromptChoice`, or its own docstring."""
    value: Any = member.value
    description = value.description if isinstance(value, PromptChoice) else ""
    return " ".join(str(description or vars(member).get("__doc__") or "").split())


def text_of_member(member: Enum) -> str:
    """Return the member with its meaning; one that is skipped, or means nothing, is its word alone."""
    description = "" if is_skipped(member) else description_of(member)
    return f"{label_of(member)}: {description}" if description else label_of(member)
