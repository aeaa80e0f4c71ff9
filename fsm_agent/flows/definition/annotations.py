"""The parameters of the functions of a flow, compared with what they will be given.

What type checkers find is found here too, where plain classes are annotated: all else passes.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fsm_agent.flows.definition.kinds import ANY, Failure, case_name
from fsm_agent.flows.definition.states import (
    CallState,
    EachState,
    FunctionState,
    GatherState,
    Row,
    SubflowState,
    WaitState,
    Work,
)
from fsm_agent.flows.errors import FlowError

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow

_NUMBERS = (bool, int, float, complex)
_SECOND = {"done": "answer", "failed": "failure"}  # what guards and actions are given beside the data


def check_annotations(flow: Flow[Any]) -> None:
    """Refuse functions of too few or too many parameters, or annotated for other data or answers than they are given.

    Raises:
        FlowError: It names the state or the row.
    """
    where = f"flow {flow.name!r}"
    for state in flow.live:
        for owner, body in _bodies(state):
            if not isinstance(owner, FunctionState):  # which is checked where it is declared
                _check_count(f"{where}: {owner.name}", body, "(data)")
            _check(f"{where}: {owner.name}", body, 0, flow.data, "the data of the flow")
    for row in flow.rows:
        for what, function in (("guard", row.guard), ("action", row.action)):
            if function is None:
                continue
            here = f"{where}: the {what} of the row {row!r}"
            _check_count(here, function, f"(data, {_SECOND.get(row.trigger, 'None')})")
            _check(here, function, 0, flow.data, "the data of the flow")
            for kind in _answer_kinds(row):
                _check(here, function, 1, kind, "its answer")


def _bodies(state: Work[Any, Any]) -> Iterator[tuple[Work[Any, Any], Callable[..., Any]]]:
    """Yield the functions of a state that are given the data of the flow, each with the state that it is of."""
    match state:
        case CallState():
            yield state, state.task
            if callable(state.agent):
                yield state, state.agent
        case WaitState():
            yield state, state.question
        case FunctionState(function=function) if function.call is not None:
            yield state, function.call
        case SubflowState():
            yield state, state.start
        case EachState():
            yield state, state.over
        case GatherState():
            for member in state.members:
                yield from _bodies(member)


def _answer_kinds(row: Row[Any]) -> tuple[Any, ...]:
    if row.trigger == "failed":
        return (Failure,)
    if row.trigger != "done":
        return ()
    return row.source.kinds.kinds if row.case is ANY else (row.case,)  # type: ignore[attr-defined]


def _check_count(here: str, function: Callable[..., Any], takes: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, say
        return
    try:
        signature.bind(*takes.split(","))
    except TypeError:
        name = getattr(function, "__name__", repr(function))
        raise FlowError(f"{here}: {name} takes ({', '.join(signature.parameters)}): {takes} would be right") from None


def _check(here: str, function: Callable[..., Any], index: int, kind: Any, what: str) -> None:
    try:
        hints = typing.get_type_hints(function)
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
    except (NameError, TypeError, AttributeError):  # local types, or what is no plain function
        return
    hint: Any = hints.get(names[index]) if index < len(names) else None
    if _is_plain(hint) and _is_plain(kind) and not _fits(kind, hint):
        name = getattr(function, "__name__", "")
        takes = f"{name} takes {case_name(hint)}"
        raise FlowError(f"{here}: {takes}, and {what} is {case_name(kind)}: {names[index]}: {case_name(kind)} is right")


def _is_plain(kind: Any) -> bool:
    return isinstance(kind, type) and kind is not Any and not getattr(kind, "_is_protocol", False)


def _fits(kind: type, hint: type) -> bool:
    is_number = kind in _NUMBERS and hint in _NUMBERS  # which stand for one another
    return is_number or issubclass(kind, hint) or issubclass(hint, kind)
