"""What became of an effect?

``kind`` is the trigger's name, and the tag in JSON; ``at_s`` is when it happened (Unix time; 0.0: unknown).
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated, Literal, TypeAlias

from fsm_agent.errors import ErrorReport
from fsm_agent.kinds import ByKind
from fsm_agent.messages import Attachment, Message
from fsm_agent.replies import Reply
from fsm_agent.values import frozen


@frozen(kw_only=True, is_quick=True)
class Begun:
    """The start of a call."""

    at_s: float
    id: str = ""  # the call's, unique
    kind: Literal["begun"] = "begun"


@frozen(kw_only=True, is_quick=True)
class Replied:
    """The model replied; whether with an answer, a request for functions or nonsense is read later."""

    reply: Reply
    at_s: float = 0.0
    kind: Literal["replied"] = "replied"


@frozen(kw_only=True, is_quick=True)
class ModelFailed:
    """The model did not reply."""

    error: ErrorReport
    delay_s: float = 0.0  # how long to wait before asking again, if that is worth it
    at_s: float = 0.0
    kind: Literal["model_failed"] = "model_failed"


@frozen(kw_only=True, is_quick=True)
class Slept:
    """The moment has come."""

    at_s: float = 0.0
    kind: Literal["slept"] = "slept"


@frozen(kw_only=True)
class Approved:
    """The function may be called."""

    at_s: float = 0.0
    kind: Literal["approved"] = "approved"


@frozen()
class Modified:
    """The function may be called with these arguments instead of the model's; they are checked like those."""

    arguments_json: str
    _: KW_ONLY
    at_s: float = 0.0
    kind: Literal["modified"] = "modified"


@frozen()
class Denied:
    """The function may not be called; the model is told why."""

    reason: str = ""
    _: KW_ONLY
    at_s: float = 0.0
    kind: Literal["denied"] = "denied"


@frozen(kw_only=True, is_quick=True)
class Returned:
    """The function returned or raised; ``text`` is what it said."""

    text: str
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()
    is_cached: bool = False  # it was not run: the result of an earlier run was still good
    releases: tuple[int, ...] = ()  # rounds whose results it says are no longer needed
    at_s: float = 0.0
    kind: Literal["returned"] = "returned"


@frozen(kw_only=True)
class FunctionFailed:
    """The function raised, and its `Function.on_error` says that the call fails with it."""

    text: str
    at_s: float = 0.0
    kind: Literal["function_failed"] = "function_failed"


@frozen()
class Injected:
    """Somebody has something to say before the model is asked again.  Answers no effect: give it under ``""``."""

    messages: tuple[Message, ...]
    _: KW_ONLY
    at_s: float = 0.0
    kind: Literal["injected"] = "injected"


@frozen(kw_only=True)
class Expired:
    """The deadline has passed.  Answers no effect: give it under the key ``""``."""

    at_s: float = 0.0
    kind: Literal["expired"] = "expired"


@frozen(kw_only=True)
class Cancelled:
    """Somebody called it off.  Answers no effect: give it under the key ``""``."""

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
