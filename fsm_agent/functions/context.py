"""The context of a running function: what it may know and do of the agent call that it is part of."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic

from typing_extensions import TypeVar

from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import FunctionCall

Deps = TypeVar("Deps", default=object, covariant=True)
_BY_HAND = FunctionCall(name="", arguments_json="{}")


def _unheard(_: Any) -> None:
    """Discard an event: the function was called by hand, without observers."""


def _never() -> bool:
    return False


class Context(Value, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """The argument of a function whose first parameter is annotated ``Context`` or ``Context[MyDeps]``.

    The parameter is not in the schema: no model sees it or can fill it.  Every attempt at a call has its own.
    A test makes one of just the ``deps``.

    Args:
        deps: What the agent's caller shares with its functions: a database, a user, a cache.
        call: The model's function call.
        agent_call_id: The id of the agent call.
        depth: How many agent calls this one is inside of; 0 for one that no function started.
        attempt: The number of this run of the call, from 1; more than 1 after a retry.
        emit: Reports progress to observers; not visible to the model.
        is_cancelled: Whether the agent call is being stopped: a long function checks it now and then, and returns.
        release: Removes the results of these rounds (from 1) from all later requests to the model.
    """

    hidden = ("deps", "emit", "is_cancelled", "release")

    deps: Deps
    call: FunctionCall = _BY_HAND
    agent_call_id: str = ""
    depth: int = 0
    attempt: int = 1
    emit: Callable[[Any], None] = _unheard
    is_cancelled: Callable[[], bool] = _never
    release: Callable[[Iterable[int]], None] = _unheard

    @property
    def idempotency_key(self) -> str:
        """An id that is the same in every attempt at this call, even after a resume, so that a payment is made once."""
        return f"{self.agent_call_id}/{self.call.id}"


def accepts_context(decide: Callable[..., Any], owner: str, first: str = "call") -> bool:
    """Return whether ``decide`` is to be called with a function call and its `Context`, or with the call alone.

    A second parameter is the context unless it has a default; with one, if its name or annotation shows it.

    Args:
        decide: An approver, a predicate of function calls, or a check of outputs.
        owner: Its name in the error.
        first: What it is called with beside the context.

    Raises:
        UsageError: It takes neither.
    """
    if isinstance(decide, type):  # an object of a class is no decision
        raise _unfit(decide, owner, first)
    try:
        parameters = inspect.signature(decide).parameters.values()
    except (TypeError, ValueError):  # not callable, or written in C without a signature
        raise _unfit(decide, owner, first) from None
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    is_open = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if by_position and _is_context(by_position[0].annotation):
        raise _unfit(decide, owner, first)
    if not (by_position or is_open) or len(needed) > 2 or any(p.kind is p.KEYWORD_ONLY for p in needed):
        raise _unfit(decide, owner, first)
    second = by_position[1] if len(by_position) > 1 else None
    return second is not None and (second in needed or second.name == "context" or "Context" in str(second.annotation))


def _is_context(annotation: object) -> bool:
    return getattr(annotation, "__origin__", annotation) is Context or str(annotation).partition("[")[0] == "Context"


def _unfit(decide: object, owner: str, first: str) -> UsageError:
    return UsageError(f"{owner} is {decide!r}: a callable of ({first}) or ({first}, context) would be right")
