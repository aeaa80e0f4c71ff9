"""The annotations of the functions of a flow, compared with what they will be given and what they shall return.

These checks find what a type checker finds, where a mismatch is certain.  A parameter without an annotation passes, and
so does a type that no value can be checked against.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from fsm_agent._internal.annotations import UNIONS, types_of, without_notes
from fsm_agent.call.result import CallResult
from fsm_agent.errors import hint as hint_of
from fsm_agent.flows.definition.answer_types import ANY, Failure, union_of
from fsm_agent.flows.definition.guards import takes_answer
from fsm_agent.flows.definition.into_field import IntoField, fields_of
from fsm_agent.flows.definition.states import (
    ENDS,
    CallState,
    EachState,
    FunctionState,
    GatherState,
    LiveState,
    Row,
    SubflowState,
    WaitState,
    WholeCallState,
)
from fsm_agent.flows.errors import FlowError

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow

_NUMBERS = (bool, int, float, complex)
_SECOND = {"done": "answer", **dict.fromkeys(("failed", *ENDS), "failure")}  # what rows are given beside the data
_SECONDS, _MOMENT = float | timedelta | None, datetime | float | None
_Hints = Mapping[str, Any]
_Body = tuple[Callable[..., Any], Any, str]  # a function of the data, what it shall return, and what that is


def check_annotations(flow: Flow[Any]) -> None:
    """Refuse functions with the wrong number of parameters, or with annotations that contradict their use.

    Raises:
        FlowError: It names the state or the row.
    """
    where = f"flow {flow.name!r}"
    for state in flow.live:
        _check_work(where, state, flow.data, "the data of the flow")
    for row in flow.own_rows:
        for what, function, returned in (("guard", row.guard, bool), ("action", row.action, flow.data)):
            if function is None:
                continue
            here = f"{where}: {what} of the row {row!r}"
            if isinstance(function, IntoField):
                _check_into(here, row, function, flow.data)
                continue
            second, hints = "its data" if isinstance(row.source, SubflowState) else "None", _hints(function)
            if _check_second(here, what, function, _SECOND.get(row.trigger, second)):
                _check_parameter(here, function, hints, 1, _answer_kind(row), "its answer")
            _check_parameter(here, function, hints, 0, flow.data, "the data of the flow")
            result = "True or False" if what == "guard" else "the data of the flow"
            _check_returned(here, function, hints, returned, result)


def _check_work(where: str, state: LiveState[Any, Any], data: Any, what: str) -> None:
    """Check the functions of a state and of its members against the type of the data that they are given."""
    here = f"{where}: {state.name}"
    for function, returned, result in _bodies(state):
        if not isinstance(state, FunctionState):  # which is checked where it is declared
            _check_count(here, function, "(data)")
        hints = _hints(function)
        _check_parameter(here, function, hints, 0, data, what)
        _check_returned(here, function, hints, returned, result)
    if isinstance(state, EachState):
        _check_work(where, state.member, _item_of(state.over), f"an item of {state.name}")
    elif isinstance(state, GatherState):
        for member in state.members:
            _check_work(where, member, data, what)


def _bodies(state: LiveState[Any, Any]) -> Iterator[_Body]:
    if callable(state.within_s):
        yield state.within_s, _SECONDS, "a number of seconds, or a timedelta,"
    if callable(state.until):
        yield state.until, _MOMENT, "a datetime with a time zone, or Unix seconds"
    match state:
        case CallState():
            yield state.task, object, "a task for the agent"
            if callable(state.agent):
                yield state.agent, Any, ""
        case WaitState():
            yield state.question, object, "a question"
        case FunctionState(function=function) if function.call is not None:
            yield function.call, Any, ""
        case SubflowState():
            yield state.start, state.flow.data, f"the data of the flow {state.flow.name!r}"
        case EachState():
            yield state.over, Any, ""


def _item_of(over: Callable[..., Any]) -> Any:
    """Return the type of the items that a function returns; `Any`: its annotation does not tell."""
    kind = _strip_annotations(_hints(over).get("return", Any))
    arguments = get_args(kind)
    if len(arguments) == 2 and arguments[1] is ... and get_origin(kind) is tuple:
        return arguments[0]
    return arguments[0] if len(arguments) == 1 else Any


def _answer_kind(row: Row[Any]) -> Any:
    """Return the type of the answer that the functions of a row are given."""
    if row.trigger == "elapsed":
        return row.source.flow.data if isinstance(row.source, SubflowState) else NoneType
    if row.trigger != "done":
        return Failure
    if row.case is ANY:
        kind = union_of(row.source.answer_types.types)  # type: ignore[attr-defined]
    else:
        kind = type(row.case) if isinstance(row.case, Enum | bool) else row.case
    return CallResult.__class_getitem__(kind) if isinstance(row.source, WholeCallState) else kind


def _check_into(here: str, row: Row[Any], action: IntoField, data: Any) -> None:
    """Refuse a field that the data have not, and one of another type than the answer's."""
    fields, field, kind = fields_of(data), action.field, _answer_kind(row)
    if not fields:
        right = "use a frozen dataclass, or an action that returns the data"
        raise FlowError(f"{here}, {action!r}: expected data with fields, got {_named(data)}; {right}")
    if field not in fields:
        near = hint_of(field, fields)
        raise FlowError(f"{here}, {action!r}: expected a field of {_named(data)}, got {field!r}{near}")
    if kind is NoneType and row.trigger not in _SECOND:
        what = f"expected a trigger that brings an answer, got {row.trigger!r}"
        raise FlowError(f"{here}, {action!r}: {what}; write an action of your own")
    if not (fits(kind, fields[field]) and _holds(fields[field], kind)):
        right = f"declare {field}: {_named(kind)}, or write an action that returns the data"
        if get_origin(kind) is CallResult:  # which data cannot hold
            right = f"write an action that keeps a part of it, as replace(d, {field}=a.output) does"
        what = f"expected {_named(fields[field])} for the field {field!r}, got {_named(kind)}"
        raise FlowError(f"{here}, {action!r}: {what}; {right}")


def _holds(hint: Any, kind: Any) -> bool:
    """Return False if a field of a number is too narrow for another kind of number."""
    kinds = [one for one in types_of(_strip_annotations(kind)) if one in _NUMBERS]
    known = [one for one in types_of(_strip_annotations(hint)) if one in _NUMBERS]
    return not kinds or not known or max(map(_NUMBERS.index, kinds)) <= max(map(_NUMBERS.index, known))


def _check_second(here: str, what: str, function: Callable[..., Any], answer: str) -> bool:
    """Check what a function of a row takes, and return whether it is given the answer: only a guard may do without."""
    if what == "action":
        _check_count(here, function, f"(data, {answer})")
        return True
    try:
        return takes_answer(function, answer)
    except FlowError as error:
        raise FlowError(f"{here}: {error}") from None


def _check_count(here: str, function: Callable[..., Any], takes: str) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, say
        return
    try:
        signature.bind(*takes.split(","))
    except TypeError:
        name = getattr(function, "__name__", repr(function))
        given = f"({', '.join(signature.parameters)})"
        raise FlowError(f"{here}: {name}: expected the parameters {takes}, got {given}") from None


def _check_parameter(here: str, function: Callable[..., Any], hints: _Hints, index: int, kind: Any, what: str) -> None:
    name = _parameter(function, index)
    hint = hints.get(name, Any) if name else Any
    if not fits(kind, hint):
        parameter = f"parameter {name!r} of {getattr(function, '__name__', function)}"
        raise FlowError(f"{here}: {parameter}: expected {_named(kind)}, {what}, got {_named(hint)}")


def _check_returned(here: str, function: Callable[..., Any], hints: _Hints, kind: Any, what: str) -> None:
    hint = hints.get("return", Any)
    is_right = _judges(hint) if kind is bool else fits(hint, kind) and (hint is not NoneType or kind is Any)
    if not is_right:
        right = f"; declare -> {_named(kind)}" if kind is not object else "; return it"
        result = f"result of {getattr(function, '__name__', function)}"
        raise FlowError(f"{here}: {result}: expected {what}, got {_named(hint)}{right}")


def _judges(hint: Any) -> bool:
    """Return whether a guard may return values of a type: True and False, and not numbers in their place."""
    return fits(hint, bool) and not any(one in _NUMBERS[1:] for one in types_of(_strip_annotations(hint)))


def _parameter(function: Callable[..., Any], index: int) -> str:
    """Return the name of a positional parameter; empty: it has no name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[: index + 1]
    except (TypeError, ValueError):
        return ""
    is_own = len(parameters) > index and all(p.kind is not p.VAR_POSITIONAL for p in parameters)
    return parameters[index].name if is_own else ""


def _hints(function: Callable[..., Any]) -> _Hints:
    """Return the annotations of a function by parameter, and of ``return``; none, if they cannot be resolved."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):  # types that are local to a function
        return {}


# Types


def fits(kind: Any, hint: Any) -> bool:
    """Return False if a value of one type is certainly wrong where another is annotated."""
    kind, hint = _strip_annotations(kind), _strip_annotations(hint)
    if get_origin(kind) in UNIONS:
        return all(fits(one, hint) for one in get_args(kind))
    if get_origin(hint) in UNIONS:
        return any(fits(kind, one) for one in get_args(hint))
    if get_origin(kind) is Literal:
        return get_origin(hint) is Literal or all(fits(type(value), hint) for value in get_args(kind))
    if get_origin(hint) is Literal:
        return any(fits(kind, type(value)) for value in get_args(hint))
    one, other = get_origin(kind) or kind, get_origin(hint) or hint
    if not (_is_plain(one) and _is_plain(other)):
        return True
    if not _may_be(one, other):
        return False
    return one is not other or _arguments_fit(one, get_args(kind), get_args(hint))


def _arguments_fit(origin: Any, ones: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    if origin is tuple and ones and others:
        if others[-1] is ...:
            return all(fits(one, others[0]) for one in ones if one is not ...)
        if ones[-1] is ...:
            return all(fits(ones[0], other) for other in others)
        return len(ones) == len(others) and all(map(fits, ones, others))
    return len(ones) != len(others) or all(map(fits, ones, others))


def _may_be(kind: type, hint: type) -> bool:
    is_number = kind in _NUMBERS and hint in _NUMBERS  # Python takes one for the other
    return is_number or issubclass(kind, hint) or issubclass(hint, kind)


def _strip_annotations(kind: Any) -> Any:
    """Return a type without what `Annotated` and `NewType` add to it; None as its class."""
    kind = without_notes(kind)
    return NoneType if kind is None else kind


def _is_plain(kind: Any) -> bool:
    return isinstance(kind, type) and kind not in (Any, object) and not getattr(kind, "_is_protocol", False)


def _named(kind: Any) -> str:
    """Return a type as it is written in code."""
    kind = _strip_annotations(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in UNIONS:
        return " | ".join(map(_named, arguments))
    if origin is Literal or not arguments:
        if kind is NoneType or kind is ...:
            return "None" if kind is NoneType else "..."
        return str(kind).replace("typing.", "") if origin is Literal else getattr(kind, "__name__", None) or repr(kind)
    return f"{getattr(origin, '__name__', origin)}[{', '.join(map(_named, arguments))}]"
