"""Models and enumerations with prompt methods, whose declarations are checked when the class is created.

The texts themselves come from `fsm_agent.prompts.type_text` (schemas and examples) and `fsm_agent.prompts.values`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pydantic

from fsm_agent.errors import PromptError
from fsm_agent.messages.message import Attachment, Text
from fsm_agent.prompts.fields import TYPE_MARK, UNMARKED, text_of_member
from fsm_agent.prompts.type_text import GuideMode, prompt_example, prompt_guide, prompt_schema
from fsm_agent.prompts.values import check_declarations, prompt_parts, prompt_text, text_without_method
from fsm_agent.validation import require, safe_repr

if TYPE_CHECKING:
    from fsm_agent.prompts.output import Parser
    from fsm_agent.prompts.prompt import Prompt


class PromptModel(pydantic.BaseModel):
    """A pydantic model whose prompt templates are checked when the class is created.

    Like any other class that is shown to a model, it may declare these attributes:

    - ``__prompt_template__`` is the template for a value; its variables are fields and properties.
    - ``__prompt_file__`` names a file with this template, next to the class's module or in the working directory.
    - ``__prompt_for__`` maps targets to templates.  A target is a name or the type of the object that the text is for.
      The template has the variables ``self`` (the value) and ``target`` (the object), and ``{self:schema_only}``,
      ``{self:example_only}`` and ``{self:full}``.

    Text for a target without a template has one line per field.  An unknown variable, a syntax error or a missing file
    raises an error when the class is created.

    Examples:
        >>> class Ticket(PromptModel):
        ...     text: str
        ...     urgent: bool = False
        >>> print(prompt_text(Ticket(text="It is late.")))
        text: It is late.
        urgent: false
    """

    __prompt_template__: ClassVar[str | None]
    __prompt_file__: ClassVar[str | Path | None]
    __prompt_for__: ClassVar[Mapping[Any, str]]

    @classmethod
    def __pydantic_init_subclass__(cls, **arguments: Any) -> None:
        super().__pydantic_init_subclass__(**arguments)
        check_declarations(cls)

    def to_prompt(self, mode: GuideMode | None = None) -> str:
        """Return the value as text or, if given a mode, the guide to its type; see `prompt_text` and `prompt_guide`."""
        return text_without_method(self) if mode is None else prompt_guide(self, mode)

    def to_prompt_for(self, target: object) -> str:
        """Return the value as text for a target; see `prompt_text`."""
        return prompt_text(self, target)

    def to_prompt_parts(self) -> tuple[Attachment | Text, ...]:
        """Return the value as images and text; see `prompt_parts`."""
        return prompt_parts(self)

    def to_prompt_parts_for(self, target: object) -> tuple[Attachment | Text, ...]:
        """Return the value as images and text for a target; see `prompt_parts`."""
        return prompt_parts(self, target)

    @classmethod
    def prompt_schema(cls) -> str:
        """Return the schema for the model's values; see `prompt_schema`."""
        return prompt_schema(cls)

    @classmethod
    def prompt_example(cls) -> str:
        """Return an example of the model's values; see `prompt_example`."""
        return prompt_example(cls)


class TypeMarked(pydantic.BaseModel):
    """A pydantic model whose JSON names its class: ``class Found(TypeMarked, PromptModel)``.

    Dumps contain ``"__type": "Found"``; schemas, prompts and fields do not.  A document may omit this entry, but is
    refused if it names another class.

    Attributes:
        type_name: The name in JSON; by default, the class name.  Subclasses do not inherit it.

    Examples:
        >>> class Found(TypeMarked, PromptModel):
        ...     page: int
        >>> Found(page=3).model_dump_json()
        '{"__type":"Found","page":3}'
    """

    type_name: ClassVar[str]

    @classmethod
    def __pydantic_init_subclass__(cls, **arguments: Any) -> None:
        super().__pydantic_init_subclass__(**arguments)
        name = vars(cls).get("type_name", cls.__name__)
        if "type_name" in cls.model_fields:
            right = "use ClassVar[str], or rename the field"
            raise PromptError(f"{cls.__qualname__}: expected type_name to name its type, got a field; {right}")
        require(f"type_name of {cls.__qualname__}", name, isinstance(name, str) and name != "", "a string", PromptError)
        cls.type_name = name

    @pydantic.model_validator(mode="before")
    @classmethod
    def _read_type(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or TYPE_MARK not in data:
            return data
        if data[TYPE_MARK] != cls.type_name:
            raise ValueError(f"{TYPE_MARK}: expected {cls.type_name!r}, or none, got {safe_repr(data[TYPE_MARK])}")
        return {name: value for name, value in data.items() if name != TYPE_MARK}

    @pydantic.model_serializer(mode="wrap")
    def _write_type(self, write: pydantic.SerializerFunctionWrapHandler, info: pydantic.SerializationInfo) -> Any:
        return write(self) if info.context is UNMARKED else {TYPE_MARK: self.type_name, **write(self)}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: pydantic.GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema for the fields, which is the same for reading and writing."""
        return handler({name: part for name, part in core_schema.items() if name != "serialization"})


class _Intent:
    """The names that `intent` adds to an enumeration.

    They are in a separate class because Pyright needs one to know the variables' types.
    """

    if TYPE_CHECKING:
        prompt: ClassVar[Prompt[Self]]
        extractor: ClassVar[Parser[Self]]

        @classmethod
        def build_prompt(cls, **values: Any) -> str: ...
        @classmethod
        def extract(cls, text: str) -> Self: ...


class PromptEnum(_Intent, StrEnum):
    """A string enumeration whose members may be a `PromptChoice`.

    Examples:
        >>> class Mood(PromptEnum):
        ...     HAPPY = "happy"
        ...     SAD = "sad"
        >>> prompt_text(Mood.SAD)
        'sad'
    """

    def __new__(cls, value: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value  # with its description
        return member

    def to_prompt(self) -> str:
        """Return the member with its meaning; see `prompt_text`."""
        return text_of_member(self)

    @classmethod
    def prompt_schema(cls) -> str:
        """Return all members with their meanings; see `prompt_schema`."""
        return prompt_schema(cls)
