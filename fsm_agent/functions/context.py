"""What does a running function know of the agent call that it is part of?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fsm_agent._internal.values import frozen
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import FunctionCall

if TYPE_CHECKING:
    import typing_extensions

    Deps = typing_extensions.TypeVar("Deps", default=Any)
else:
    Deps = TypeVar("Deps")
_BY_HAND = FunctionCall(name="", arguments_json="{}")


def _unheard(_: Any) -> None:
    """Nobody listens: the function was called by hand."""


def _never() -> bool:
    return False


@frozen(kw_only=True, eq=False)
class Context(Generic[Deps]):
    """What a function is given when its first parameter is annotated ``Context`` or ``Context[MyDeps]``.

    The parameter is not in the schema: no model sees it or can fill it.  Every attempt at a call has its own.
    A test makes one of just the ``deps``.

    Args:
        deps: What the caller of the agent shares with its functions: a database, a user, a cache.
        call: What the model asked for.
        agent_call_id: Which agent call this is.
        depth: How many agent calls this one is inside of; 0 for one that no function started.
        attempt: Which run of this call it is, from 1; more than 1 after a retry.
        emit: Tells observers how far it is; the model sees nothing of it.
        is_cancelled: Whether the agent call is being stopped: a long function asks now and then, and returns.
        release: Takes the results of these rounds (from 1) out of what the model is sent from now on.
    """

    deps: Deps = field(repr=False)
    call: FunctionCall = _BY_HAND
    agent_call_id: str = ""
    depth: int = 0
    attempt: int = 1
    emit: Callable[[Any], None] = field(default=_unheard, repr=False)
    is_cancelled: Callable[[], bool] = field(default=_never, repr=False)
    release: Callable[[Iterable[int]], None] = field(default=_unheard, repr=False)

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt at this call, also after a resume: a payment made under it is made once."""
        return f"{self.agent_call_id}/{self.call.id}"


def accepts_context(decide: Callable[..., Any], owner: str) -> bool:
    """Return whether ``decide`` is to be called with a function call and its `Context`, or with the call alone.

    A second parameter is the context unless it has a default; with one, when it is called or annotated so.

    Args:
        decide: An approver, or a predicate of function calls.
        owner: Its name in an error.

    Raises:
        UsageError: It takes neither.
    """
    try:
        parameters = inspect.signature(decide).parameters.values()
    except (TypeError, ValueError):  # it cannot be called, or is written in C and does not tell
        raise _unfit(decide, owner) from None
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    is_open = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not (by_position or is_open) or len(needed) > 2 or any(p.kind is p.KEYWORD_ONLY for p in needed):
        raise _unfit(decide, owner)
    second = by_position[1] if len(by_position) > 1 else None
    return second is not None and (second in needed or second.name == "context" or "Context" in str(second.annotation))


def _unfit(decide: object, owner: str) -> UsageError:
    return UsageError(f"{owner} is {decide!r}: a callable of (call) or (call, context) would be right")
