"""Checks that functions are pure, so that two calls return equal values and change no variable outside the function."""

from __future__ import annotations

import copy
import inspect
import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import wraps
from types import ModuleType
from typing import Any

from fsm_agent.flows.flow import Flow
from fsm_agent.flows.states import CallState, EachState, LiveState, Row, SubflowState, WaitState
from fsm_agent.validation import safe_repr

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NOT_LOOKED_INTO = (ModuleType, type)
_MOST_COPIED = 10_000  # items of a variable that is compared


def tested(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that calls a function twice and returns the first result.

    Args:
        what: A name for error messages, such as "the guard of the row a --done--> b".
        function: The function.

    Raises:
        AssertionError: If the two results differ, the second call raises, or the first call changes a variable outside
            the function.
    """
    name = f"{what}: {getattr(function, '__name__', repr(function))}"

    @wraps(function)
    def twice(*arguments: Any) -> Any:
        before = {variable: _copy(value) for variable, value in _outside(function)}
        first = function(*arguments)
        for variable, value in _outside(function):
            if variable in before and not _is_same(_copy(value), before[variable]):
                raise AssertionError(
                    f"{name} is not pure: it changes {variable}, which was {safe_repr(before[variable])}"
                )
        try:
            second = function(*arguments)
        except Exception as error:
            raise AssertionError(
                f"{name} is not pure: it returns {safe_repr(first)}, and then raises {error!r}"
            ) from error
        if not _is_same(first, second):
            returns = f"it returns {safe_repr(first)}, and then {safe_repr(second)}"
            raise AssertionError(f"{name} is not pure: {returns} for the same arguments")
        return first

    return twice


def machine_of_tested(flow: Flow[Any]) -> Any:
    """Return a flow's machine with guards and actions that are called twice."""
    twin = copy.copy(flow)
    object.__setattr__(twin, "table", tuple(map(_tested_row, flow.table)))
    object.__setattr__(twin, "state_enum", flow.state_enum)  # the same states
    return twin.machine


def _tested_row(row: Row[Any]) -> Row[Any]:
    made = copy.copy(row)
    for what in ("guard", "action"):
        if (function := getattr(row, what)) is not None:
            setattr(made, what, tested(f"the {what} of the row {row!r}", function))
    return made


def check_bodies(state: LiveState[Any, Any], data: Any) -> None:
    """Call the pure functions of a state and its members twice.

    Raises:
        AssertionError: If a function is not pure.
    """
    for what, function in _bodies(state):
        tested(f"{what} of {state.name}", function)(data)
    if isinstance(state, EachState):
        for _, member, item in state.members_of(data):
            check_bodies(member, item)
        return
    for member in state.members:
        check_bodies(member, data)


def _bodies(state: LiveState[Any, Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for option in ("within_s", "until"):
        if callable(function := getattr(state, option, None)):
            yield option, function
    match state:
        case CallState():
            yield "the task", state.task
            if not isinstance(state.agent, str) and callable(choose := state.agent) and inspect.isroutine(choose):
                yield "the choice", choose
        case WaitState():
            yield "the question", state.question
        case SubflowState():
            yield "the start", state.given
        case EachState():
            yield "the items", _as_list(state.over)


def _as_list(over: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns its items as a list, because two iterators are never equal."""

    @wraps(over)
    def items(data: Any) -> list[Any]:
        return list(over(data))

    return items


def _outside(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each outside variable that the function's code uses."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    namespace = function.__globals__
    yield from [(name, namespace[name]) for name in code.co_names if name in namespace]


class _Attributes(dict[str, Any]):
    """An object's attributes.  New attributes do not count as changes, because they may be cached values."""

    def __eq__(self, before: object) -> bool:
        return isinstance(before, dict) and all(_is_same(self.get(name), value) for name, value in before.items())

    __hash__ = None


def _copy(value: Any) -> Any:
    """Return a copy that can be compared with the value later, to detect changes in place."""
    kind = type(value)
    if isinstance(value, list | set | dict | bytearray | deque):
        return copy.copy(value) if len(value) <= _MOST_COPIED else value
    is_plain = inspect.isroutine(value) or isinstance(value, _NOT_LOOKED_INTO) or not hasattr(value, "__dict__")
    return value if is_plain or kind.__module__.partition(".")[0] == "fsm_agent" else _Attributes(vars(value))


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal or, if their type compares only identity, have the same representation."""
    try:
        if one is other or bool(one == other):
            return True
    except Exception:  # raised by the user's comparison
        pass
    return type(one) is type(other) and _ADDRESS.sub("", repr(one)) == _ADDRESS.sub("", repr(other))
