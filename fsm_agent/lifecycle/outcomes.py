"""The outcomes of effects.

``kind`` is the trigger's name, and the tag in JSON; ``at_s`` is when it happened (Unix time; 0.0: unknown).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, fields
from functools import partial
from operator import eq
from typing import Annotated, Any, Literal, TypeAlias

from fsm_agent._internal.field_checks import is_finite, is_whole
from fsm_agent._internal.kinds import ByKind
from fsm_agent._internal.values import frozen
from fsm_agent.errors import ErrorReport, OutcomeError
from fsm_agent.messages.message import Attachment, Document, Image, Message
from fsm_agent.messages.reply import Reply
from fsm_agent.mistakes import shown


def _each(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(is_right, value))


# By annotation: a check, and its description.  Other fields are literals, of which only the default is right.
_RIGHT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda value: isinstance(value, str), "a string"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "float": (is_finite, "a finite number"),
    "Reply": (lambda value: isinstance(value, Reply), "a Reply"),
    "ErrorReport": (lambda value: isinstance(value, ErrorReport), "an ErrorReport"),
    "tuple[Attachment, ...]": (
        _each(lambda item: isinstance(item, Image | Document)),
        "a tuple of Images and Documents",
    ),
    "tuple[Message, ...]": (_each(lambda item: isinstance(item, Message)), "a tuple of Messages"),
    "tuple[int, ...]": (_each(lambda item: is_whole(item) and item >= 1), "a tuple of rounds, from 1,"),
}


class _Rules(dict[type, tuple[tuple[str, Any, Callable[[Any], bool], str], ...]]):
    """The rules of each class, field by field: its name, its default, its check."""

    def __missing__(self, cls: Any) -> Any:
        rules = []
        for name, default, annotation in [(item.name, item.default, str(item.type)) for item in fields(cls)]:
            rules.append((name, default, *(_RIGHT.get(annotation) or (partial(eq, default), repr(default)))))
        self[cls] = tuple(rules)
        return self[cls]


_RULES = _Rules()


class _Checked:
    """An outcome whose fields hold what they declare, so that a record with it can be read again."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, default, is_right, right in _RULES[type(self)]:
            value = getattr(self, name)
            if value is not default and not is_right(value):
                raise OutcomeError(f"{type(self).__name__}.{name} is {shown(value)}: {right} would be right")


@frozen(kw_only=True, is_quick=True)
class Begun(_Checked):
    """The start of a call."""

    at_s: float
    id: str = ""  # the call's, unique
    kind: Literal["begun"] = "begun"


@frozen(kw_only=True, is_quick=True)
class Replied(_Checked):
    """The model replied; whether with an answer, a request for functions or nonsense is decided later."""

    reply: Reply
    at_s: float = 0.0
    kind: Literal["replied"] = "replied"


@frozen(kw_only=True, is_quick=True)
class ModelFailed(_Checked):
    """The model did not reply."""

    error: ErrorReport
    delay_s: float = 0.0  # before the next attempt, if that is worth it
    at_s: float = 0.0
    kind: Literal["model_failed"] = "model_failed"


@frozen(kw_only=True, is_quick=True)
class Slept(_Checked):
    """The moment has come."""

    at_s: float = 0.0
    kind: Literal["slept"] = "slept"


@frozen(kw_only=True)
class Approved(_Checked):
    """The function may be called."""

    at_s: float = 0.0
    kind: Literal["approved"] = "approved"


@frozen()
class Modified(_Checked):
    """The function may be called with these arguments instead of the model's; they are checked in the same way."""

    arguments_json: str
    _: KW_ONLY
    at_s: float = 0.0
    kind: Literal["modified"] = "modified"


@frozen()
class Denied(_Checked):
    """The function may not be called; the model is shown the reason."""

    reason: str = ""
    _: KW_ONLY
    at_s: float = 0.0
    kind: Literal["denied"] = "denied"


@frozen(kw_only=True, is_quick=True)
class Returned(_Checked):
    """The function returned or raised; ``text`` is its result or its error."""

    text: str
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()
    is_cached: bool = False  # it was not run: the result of an earlier run was still good
    releases: tuple[int, ...] = ()  # rounds whose results are declared no longer needed
    at_s: float = 0.0
    kind: Literal["returned"] = "returned"


@frozen(kw_only=True)
class FunctionFailed(_Checked):
    """The function raised, and its `Function.on_error` lets the call fail with it."""

    text: str
    at_s: float = 0.0
    kind: Literal["function_failed"] = "function_failed"


@frozen()
class Injected(_Checked):
    """Somebody adds messages before the next request to the model.  Answers no effect: pass it under ``""``."""

    messages: tuple[Message, ...]
    _: KW_ONLY
    at_s: float = 0.0
    kind: Literal["injected"] = "injected"


@frozen(kw_only=True)
class Expired(_Checked):
    """The deadline has passed.  Answers no effect: pass it under the key ``""``."""

    at_s: float = 0.0
    kind: Literal["expired"] = "expired"


@frozen(kw_only=True)
class Cancelled(_Checked):
    """Somebody cancelled the call.  Answers no effect: pass it under the key ``""``."""

    reason: str = ""
    at_s: float = 0.0
    kind: Literal["cancelled"] = "cancelled"


Outcome: TypeAlias = Annotated[
    Begun
    | Replied
    | ModelFailed
    | Slept
    | Approved
    | Modified
    | Denied
    | Returned
    | FunctionFailed
    | Injected
    | Expired
    | Cancelled,
    ByKind(),
]
