"""The fields of a `Policy` as arguments, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from fsm_agent.functions.policy import Default, Middleware, OnError, Retries
from fsm_agent.messages.message import FunctionCall


class AgentPolicy(TypedDict, total=False):
    """The fields of a `Policy` that an agent as a function takes."""

    needs_approval: bool | Callable[..., bool] | None
    repeatable: bool
    version: str
    deprecated: str
    max_calls: int | None
    max_failures: int | None
    depends_on: tuple[str, ...] | list[str]
    timeout_s: float | None
    on_error: OnError | Default
    format: Callable[[Any, FunctionCall], str] | None


class PolicyOptions(AgentPolicy, total=False):
    """All fields of a `Policy`."""

    acall: Callable[..., Any] | None
    blocking: bool
    retries: Retries | None
    once: bool
    reconcile: Callable[..., Any] | None
    middleware: tuple[Middleware, ...] | list[Middleware]
