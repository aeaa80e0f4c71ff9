"""Policies for functions: retries, dependencies, timeouts, approval, and how exceptions are handled.

`fsm_agent.runtime.run_function` applies them, but `fsm_agent.runtime.drive_loop` enforces timeouts.  The limits of a
whole call, such as its rounds, are in `fsm_agent.call.limits`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, TypedDict

from fsm_agent._internal.structs import Value, is_amount, is_whole
from fsm_agent.errors import UsageError, hint
from fsm_agent.messages.message import FunctionCall
from fsm_agent.validation import Rules, or_none, require_fields

# What happens when a function raises: the model sees the error, the function is retried first (`Retries`), or the agent
# call fails.
OnError: TypeAlias = Literal["tell", "retry", "fail"]
Middleware: TypeAlias = Callable[[FunctionCall, Callable[[FunctionCall], Any]], Any]  # (call, next) -> result

_VERSION = re.compile(r"[A-Za-z0-9._+-]{0,40}")


class Default(Value, frozen=True):
    """The result to use when a function raises an exception.

    Examples:
        >>> @function(on_error=Default(0))
        ... def stock(item: str) -> int:
        ...     "How many there are."
        ...     raise ConnectionError("no line")
        >>> agent = Agent(Script(function_call("stock", item="lamp"), "None."), functions=[stock])
        >>> agent.call("How many?").function_calls[0].result
        '0'
    """

    value: Any


class Retries(Value, frozen=True, kw_only=True):
    """How often to try a function that raises exceptions and how long to wait in between.  The wait doubles each time.

    Examples:
        >>> tries = []
        >>> @function(retries=Retries(attempts=2, delay_s=0))
        ... def look() -> str:
        ...     "Look."
        ...     tries.append(1)
        ...     if len(tries) == 1:
        ...         raise ConnectionError("no line")
        ...     return "found"
        >>> Agent(Script(function_call("look"), "Found."), functions=[look]).call("Look.").function_calls[0].result
        'found'
    """

    attempts: int = 4  # the number of attempts, including the first one
    delay_s: float = 0.1  # the seconds before the second attempt
    max_delay_s: float = 5.0
    jitter: float = 0.5  # the wait is multiplied by a random number between 1 - jitter and 1
    retry_if: Callable[[Exception], bool] | None = None  # whether to retry after this exception; None always retries

    def __post_init__(self) -> None:
        require_fields(self, "Retries", _RETRIES)
        if self.delay_s > self.max_delay_s:
            right = f"at most max_delay_s={self.max_delay_s!r}"
            raise UsageError(f"delay_s of Retries: expected {right}, got {self.delay_s!r}")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Policy:
    """The options of a function, in addition to its definition.  Every `Function` is a policy.

    Examples:
        >>> @function(max_calls=3)
        ... def add(a: int, b: int) -> int:
        ...     return a + b
        >>> isinstance(add, Policy), add.max_calls
        (True, 3)
    """

    acall: Callable[..., Any] | None = field(default=None, repr=False)  # the async version of the callable
    blocking: bool = True  # under asyncio, a plain function runs in a thread unless this is False
    # True always asks, False never asks, and None asks if there is an approver.  A pure predicate on the call, or on
    # the call and its `Context`, returns True or False.
    needs_approval: bool | Callable[..., bool] | None = None
    repeatable: bool = False  # True to run equal calls again even if nothing else has run since (a clock, a poll)
    version: str = ""
    deprecated: str = ""  # what to use instead; shown to the model, and when a `Toolset` selects the function
    max_calls: int | None = None  # the most calls in one agent call, after which it is no longer offered
    max_failures: int | None = None  # the most failures in one agent call, after which it is no longer offered
    depends_on: tuple[str, ...] | list[str] = ()  # functions that must have succeeded in this agent call first
    timeout_s: float | None = None  # the limit for one run with its retries; the model sees the timeout as an error
    retries: Retries | None = None
    on_error: OnError | Default = "tell"
    # The function must not run twice.  Its start is noted before it begins, on disk if the run is in a store.  If its
    # result is lost, `reconcile` or a person must say what happened.  `reconcile` gets the `Context` with the
    # `idempotency_key` of the run in doubt, and returns `Returned`, `FunctionFailed`, `RunAgain`, or None.
    once: bool = False
    reconcile: Callable[..., Any] | None = field(default=None, repr=False)
    middleware: tuple[Middleware, ...] | list[Middleware] = field(default=(), repr=False)  # the outermost comes first
    format: Callable[[Any, FunctionCall], str] | None = field(default=None, repr=False)  # makes the text for the model


def check_policy(policy: Policy, owner: str) -> None:
    """Check a policy, and convert the lists in it to tuples."""
    for name in ("depends_on", "middleware"):
        if isinstance(value := getattr(policy, name), list):
            object.__setattr__(policy, name, tuple(value))
    require_fields(policy, owner, _POLICY)
    if policy.once and (policy.retries or policy.on_error == "retry"):
        right = "either retries or once=True, which forbids a second run"
        raise UsageError(f"{owner}: expected {right}, got both; remove one")
    if policy.reconcile is not None and not policy.once:
        raise UsageError(f"reconcile of {owner}: expected once=True, got False; pass once=True, or remove reconcile")


def check_names(policy: Iterable[str]) -> None:
    """Reject names that are not policies, and suggest the closest policy."""
    names = [item.name for item in fields(Policy)]
    for name in policy:
        if name not in names:
            raise UsageError(f"unknown policy {name!r} of a function{hint(name, names)}")


def is_plain(value: Any) -> bool:
    """Return whether a value is callable, is not a class, and returns a result that need not be awaited."""
    if isinstance(value, type):  # the objects that it returns would count as true
        return False
    return callable(value) and not any(map(inspect.iscoroutinefunction, (value, type(value).__call__)))


def takes(value: Any, count: int) -> bool:
    """Return whether a callable takes this many positional arguments.  One without a signature is assumed to do so."""
    try:
        signature = inspect.signature(value, follow_wrapped=False)  # a decorator may give more arguments
    except ValueError:  # written in C
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _is_count(value: Any) -> bool:
    return is_whole(value, 1)


def _is_predicate(value: Any) -> bool:
    return is_plain(value) and takes(value, 1)


def _are_names(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) and name for name in value)


def _is_layer(value: Any) -> bool:
    return callable(value) and not isinstance(value, type) and takes(value, 2)


_COUNT = (or_none(_is_count), "None or a whole number of at least 1")
_RETRIES: Rules = (
    ("attempts", _is_count, "a whole number of at least 1, which counts the first attempt"),
    ("delay_s", is_amount, "at least 0 seconds"),
    ("max_delay_s", is_amount, "at least 0 seconds"),
    ("jitter", lambda value: is_amount(value) and value <= 1, "a number from 0 to 1"),
    ("retry_if", or_none(_is_predicate), "None or a plain predicate of the exception"),
)
_POLICY: Rules = (
    (
        "needs_approval",
        or_none(lambda value: isinstance(value, bool) or is_plain(value)),
        "None, a bool or a plain predicate of the call",
    ),
    (
        "version",
        lambda value: isinstance(value, str) and _VERSION.fullmatch(value) is not None,
        "a string such as '2' or '1.4.0' (40 letters, digits and '._+-' at most)",
    ),
    ("max_calls", *_COUNT),
    ("max_failures", *_COUNT),
    ("depends_on", _are_names, "a tuple of function names, such as ('login',)"),
    ("timeout_s", or_none(lambda value: is_amount(value) and value > 0), "None or a number of seconds above 0"),
    ("retries", or_none(lambda value: isinstance(value, Retries)), "None or Retries(attempts=3)"),
    (
        "on_error",
        lambda value: isinstance(value, Default) or value in ("tell", "retry", "fail"),
        "'tell', 'retry', 'fail' or Default(…)",
    ),
    ("reconcile", or_none(lambda value: callable(value) and takes(value, 1)), "None or a function of the Context"),
    (
        "middleware",
        lambda value: isinstance(value, tuple) and all(map(_is_layer, value)),
        "a tuple of callables of (call, next), such as (logged,)",
    ),
    (
        "format",
        or_none(lambda value: is_plain(value) and takes(value, 2)),
        "None or a plain function of (value, call)",
    ),
)


class AgentPolicy(TypedDict, total=False):
    """For type checkers: the `Policy` fields that an agent used as a function accepts."""

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
    """For type checkers: all fields of a `Policy`."""

    acall: Callable[..., Any] | None
    blocking: bool
    retries: Retries | None
    once: bool
    reconcile: Callable[..., Any] | None
    middleware: tuple[Middleware, ...] | list[Middleware]
