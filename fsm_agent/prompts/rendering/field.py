"""Metadata of a field for the renderers: `PromptField`, in its ``Annotated``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from fsm_agent._internal.values import Value, differing
from fsm_agent.mistakes import check


class PromptField(Value, frozen=True, kw_only=True, eq=False):  # or typing takes example=True for example=1
    """Metadata of a field that is printed for a model; it stands in ``Annotated``, as pydantic's ``Field`` does.

    A field may have several: one that names a ``target`` counts for texts for this target, over those that name none.
    Of pydantic's ``Field``, ``description``, ``examples`` and ``exclude`` count as well.

    Args:
        description: What the field means: the key of its line, unless ``rename`` is given, and its comment in schemas.
        rename: The key of its line.  Schemas and examples keep the name, or alias, that pydantic reads.
        skip: Leave the field out of texts, schemas and examples; with a target, out of texts for that target.
        format_with: A function from the field's value to its text.
        example: A value for examples, of the field's type.
        image: The value is a picture, from any source that `Image.of` takes.
        target: The field is in texts for this target, and in no texts for targets that it does not name.
    """

    description: str | None = None
    rename: str | None = None
    skip: bool = False
    format_with: Callable[[Any], str] | None = None
    example: Any = msgspec.UNSET
    image: bool = False
    target: str | None = None

    def __post_init__(self) -> None:
        for name in ("description", "rename", "target"):
            value = getattr(self, name)
            is_right = value is None or (isinstance(value, str) and value != "")
            check(f"{name} of a PromptField", value, is_right, "a text")
        for name in ("skip", "image"):
            value = getattr(self, name)
            check(f"{name} of a PromptField", value, isinstance(value, bool), "True or False")
        is_callable = self.format_with is None or callable(self.format_with)
        check("format_with of a PromptField", self.format_with, is_callable, "a function of the value")


def merged(marks: Iterable[PromptField]) -> PromptField:
    """Return one mark that says all that these do; the later ones count more."""
    merged_marks: dict[str, Any] = {}
    for mark in marks:
        merged_marks |= differing(mark)
    return PromptField(**merged_marks)
