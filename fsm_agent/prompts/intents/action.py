"""Actions: tags that a model writes into its answer, declared as classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

import pydantic

from fsm_agent.errors import UsageError
from fsm_agent.prompts.intents.quoting import is_name
from fsm_agent.prompts.rendering.fields import RecordField, docstring_of, fields_of
from fsm_agent.prompts.rendering.schema import name_of
from fsm_agent.validation import check

if TYPE_CHECKING:
    from typing import Unpack

_PART = "action_part"
_ATTRIBUTE, _INNER_TEXT = "attribute", "inner_text"


def Attribute(description: str = "", *, default: Any = ..., alias: str | None = None) -> Any:
    """Return the declaration of a field that is an attribute of the tag.

    Args:
        description: What it means.
        default: Its value where the tag has none; without a default it is required.
        alias: Its name in the tag, by default the field's.

    Examples:
        >>> class Move(Action):
        ...     "Move something."
        ...     what: str = Attribute("what to move")
        >>> Move(what="lamp").what
        'lamp'
    """
    return _declared(_ATTRIBUTE, description, default, alias)


def InnerText(description: str = "", *, default: Any = ...) -> Any:
    """Return the declaration of the field that is the text between the tags, trimmed.

    Args:
        description: What it means.
        default: Its value where the tag is empty; without a default it is required.

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
    """A tag with its attributes and inner text; its docstring is what a model is told of it.

    ``class SendMessage(Action, tag="SendMessage")`` is written ``<SendMessage to="Ada">Hello</SendMessage>`` if its
    fields are ``to: str = Attribute("…")`` and ``content: str = InnerText("…")``.  Without ``tag`` it is the name of
    the class.

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
        check(
            f"the tag of {name}",
            tag,
            tag is None or (isinstance(tag, str) and is_name(tag)),
            "a name such as 'move', or None",
        )
        texts = [field.name for field in fields_of(cls) if _part(field) == _INNER_TEXT]
        for field in fields_of(cls):
            if _part(field) is None:
                raise UsageError(
                    f"{name}.{field.name}: expected an Attribute(…) or an InnerText(…) of the tag, got neither"
                )
        if len(texts) > 1:
            raise UsageError(f"{name}: expected one InnerText(…), got two: {' and '.join(texts)}")


def inner_text_of(action: type[Action]) -> str | None:
    """Return the name of the field that is the inner text; None: there is none."""
    return next((field.json_name for field in fields_of(action) if _part(field) == _INNER_TEXT), None)


def doc_of(action: type[Action]) -> str:
    """Return what a model is told of an action: its tag, and a line for each field."""
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
    """Return which part of the tag a field is."""
    extra = field.info.json_schema_extra
    return str(extra[_PART]) if isinstance(extra, dict) and _PART in extra else None


def _line(form: str, meaning: str) -> str:
    return f"{form}: {meaning}" if meaning else form
