"""The checks of a flow, when it is defined: each error names the row or state, and what would be right."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterable
from enum import EnumType
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args, get_origin

import msgspec

from fsm_agent._internal.field_checks import is_whole
from fsm_agent._internal.lazy_import import pydantic
from fsm_agent._internal.type_adapters import type_adapter
from fsm_agent.agents.agent import Agent
from fsm_agent.flows.definition.abandonment import check_abandonment
from fsm_agent.flows.definition.annotations import check_annotations
from fsm_agent.flows.definition.answer_types import ANY, case_name, check_resolved
from fsm_agent.flows.definition.states import (
    ENDS,
    CallState,
    End,
    FunctionState,
    GatherState,
    LiveState,
    ParallelState,
    PauseState,
    Row,
    State,
    WaitState,
    event_name,
)
from fsm_agent.flows.definition.table import RESERVED, cases_at, cases_of, states_in
from fsm_agent.flows.definition.times import check_time
from fsm_agent.flows.errors import FlowError
from fsm_agent.machine.rows import row_name
from fsm_agent.mistakes import shown

if TYPE_CHECKING:
    from fsm_agent.flows.definition.roles import Agents
    from fsm_agent.flows.flow import Flow

_REPLACEMENTS = {list: "tuple[…, ...]", set: "frozenset[…]", dict: "Mapping[…, …]", bytearray: "bytes"}
_LEADS = ("done", "elapsed", "cancelled", "expired")  # triggers that are not failures


def named_states(flow: Flow[Any]) -> dict[str, State[Any]]:
    """Return the states of a flow by name, in the order of the rows.

    Raises:
        FlowError: The rows hold something that is not a state, or two states have the same name.
    """
    where = f"flow {flow.name!r}"
    named: dict[str, State[Any]] = {}
    if not isinstance(flow.start, LiveState):
        raise FlowError(f"{where}: start is {shown(flow.start)}: a state that waits would be right")
    for row in flow.rows:
        if isinstance(row, tuple) and row and all(isinstance(one, Row) for one in row):
            raise FlowError(f"{where}: rows has {shown(row)}: *any_state(…), with the star, would be right")
        if not isinstance(row, Row):
            raise FlowError(f"{where}: rows has {shown(row)}: a row such as state.done(target) would be right")
        if not isinstance(row.to, State):
            what = shown(row.to)
            raise FlowError(f"{where}: {row.source.name} has a row to {what}: a state or an end would be right")
    for state in states_in(flow.start, flow.rows):
        if not _is_same(named.setdefault(state.name, state), state):
            raise FlowError(f"{where}: two states are called {state.name!r}: other names would be right")
    return named


def _is_same(one: State[Any], other: State[Any]) -> bool:
    """Return whether two states are one: ends are, if they are made alike."""
    return one is other or (isinstance(one, End) and isinstance(other, End) and vars(one) == vars(other))


def check_flow(flow: Flow[Any]) -> None:
    """Check everything that can be known before a flow runs.

    Raises:
        FlowError: Something cannot be right.
    """
    where = f"flow {flow.name!r}"
    check_data(where, flow.data)
    for state in flow.states.values():
        _check_name(where, state)
        if isinstance(state, LiveState):
            _check_work(where, state, flow.agents)
    for row in flow.own_rows:
        _check_row(where, row, has_deadline=flow.limits.deadline_s is not None)
    _check_takers(where, flow)
    _check_ways(where, flow)
    check_annotations(flow)


# The data


def check_data(where: str, data: Any) -> None:
    """Refuse data that could be changed in place, or that cannot be saved."""
    if not _is_frozen(data):
        right = "a frozen dataclass or pydantic model, a NamedTuple, or a plain type would be right"
        why = "which can be changed in place" if isinstance(data, type) else "which is no class"
        raise FlowError(f"{where}: the data are {case_name(data)!r}, {why}: {right}")
    check_resolved(where, data)
    for path, kind in _fields(data, case_name(data), set()):
        origin = get_origin(kind) or kind
        if isinstance(origin, type) and origin in _REPLACEMENTS:
            what = f"the field {path} of the data is a {origin.__name__}, which can be changed in place"
            raise FlowError(f"{where}: {what}: {_REPLACEMENTS[origin]} would be right")
        if dataclasses.is_dataclass(origin) and not _is_frozen(origin):
            what = f"the field {path} of the data is a {case_name(origin)}, which can be changed in place"
            raise FlowError(f"{where}: {what}: a frozen dataclass would be right")
    if problem := _lost_always(data):
        raise FlowError(f"{where}: the data {case_name(data)} do not come back from JSON as they were: {problem}")


@lru_cache(512)
def _lost_always(data: type) -> str:
    """Return what a type never reads as it writes it, by the schemas of both; empty: nothing that they show."""
    try:
        reads, writes = (
            _objects(type_adapter(data).json_schema(mode=mode)) for mode in ("validation", "serialization")
        )
    except Exception:  # of a type with a schema of its own: each value is checked when it is written
        return ""
    for name, read in reads.items():
        written = writes.get(name, {}).get("properties", {})
        for field, schema in read.get("properties", {}).items():
            if field not in written:
                return (
                    f"{name}.{field} is read, and is not written: a field without exclude=True, and one alias, is right"
                )
            if schema.get("writeOnly"):
                return f"{name}.{field} is secret, and is written as asterisks: pass it as deps"
        if read.get("additionalProperties") is False and (more := written.keys() - read.get("properties", {}).keys()):
            return f"{name}.{min(more)} is written, and cannot be read: extra='ignore' is right"
    return ""


def _objects(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of objects by name, the root's first."""
    return {schema.get("title", "the data"): schema, **schema.get("$defs", {})}


def _is_frozen(data: Any) -> bool:
    if not isinstance(data, type):
        return False
    parameters = getattr(data, "__dataclass_params__", None)
    if parameters is not None:
        return bool(parameters.frozen)
    if issubclass(data, pydantic.BaseModel):
        return bool(data.model_config.get("frozen"))
    return issubclass(data, int | str | float | bool | tuple | bytes) and not issubclass(data, msgspec.Struct)


def _fields(kind: Any, path: str, seen: set[Any]) -> Iterable[tuple[str, Any]]:
    """Yield the types of all fields inside of a type, with their paths."""
    for argument in get_args(kind):
        yield path, argument
        yield from _fields(argument, path, seen)
    is_class = isinstance(kind, type) and get_origin(kind) is None and kind not in seen
    if not (is_class and (dataclasses.is_dataclass(kind) or issubclass(kind, pydantic.BaseModel | tuple))):
        return
    seen.add(kind)
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):  # local names, which pydantic has found
        return
    for name, hint in hints.items():
        if get_origin(hint) is not typing.ClassVar:
            yield f"{path}.{name}", hint
            yield from _fields(hint, f"{path}.{name}", seen)


# States


def _check_name(where: str, state: State[Any]) -> None:
    if not isinstance(state.name, str) or not state.name.isidentifier():
        right = "a name as Python has them would be right, since it is part of keys"
        raise FlowError(f"{where}: a state is called {state.name!r}: {right}")
    if len(state.name) > 2 and state.name[0] == state.name[-1] == "_":
        right = "a name without underscores at both ends would be right"
        raise FlowError(f"{where}: a state is called {state.name!r}, which Python keeps for itself: {right}")
    if state.name in RESERVED:
        raise FlowError(f"{where}: a state is called {state.name!r}, which is every flow's own: another name is right")


def _check_work(where: str, state: LiveState[Any, Any], agents: Agents) -> None:
    here = f"{where}: {state.name}"
    check_time(here, state)
    if isinstance(state, FunctionState) and state.function.once and state.is_timed:
        option = "until" if state.within_s is None else "within_s"
        what = f"must not run twice and has {option}, after which nothing would be known of its result"
        raise FlowError(f"{here} {what}: leave {option} out")
    check_abandonment(here, state, agents)
    if isinstance(state, CallState):
        _check_call(here, state)
    if not isinstance(state, ParallelState):
        state.answer_types.check(here)
        if empty := [kind for kind in state.answer_types.types if isinstance(kind, EnumType) and not len(kind)]:
            raise FlowError(
                f"{here} gives {empty[0].__name__}, an enum without members: one with members would be right"
            )
        return
    state.answer_types.check_names(here)
    names = [member.name for member in state.members]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FlowError(f"{here} has several members called {twice[0]!r}: a name of its own for each would be right")
    _check_counts(here, state)
    for member in state.members:
        _check_name(where, member)
        _check_work(where, member, agents)
        _check_member(here, member)


def _check_member(here: str, member: LiveState[Any, Any]) -> None:
    if member.is_timed:
        right = "within_s of the state around it, or a subflow as the member, would be right"
        raise FlowError(f"{here}: the member {member.name} has a time of its own: {right}")
    if isinstance(member, WaitState) and member.is_early:
        right = "a state of the flow itself, or a subflow as the member, would be right"
        raise FlowError(f"{here}: the member {member.name} has early=True: {right}")


def _check_counts(here: str, state: ParallelState[Any, Any]) -> None:
    """Check how many members run at once, and how many are enough."""
    if not (state.parallel is None or is_whole(state.parallel, 1)):
        raise FlowError(f"{here} has parallel={state.parallel!r}: 1 or more, or None for all, would be right")
    if (enough := state.enough) is None:
        return
    if state.is_lenient:
        raise FlowError(
            f"{here} has settled=True, with which all members are waited for, and enough={enough!r}: one of the two"
            " would be right"
        )
    is_share = isinstance(enough, float) and 0 < enough <= 1
    most = len(state.members) if isinstance(state, GatherState) else enough
    if not is_share and not (is_whole(enough, 1) and enough <= most):
        count = f"a whole number from 1 to {most}" if isinstance(state, GatherState) else "a whole number from 1 on"
        raise FlowError(f"{here} has enough={enough!r}: {count}, or a share such as 0.5, would be right")


def _check_call(here: str, state: CallState[Any, Any]) -> None:
    if isinstance(state.agent, Agent):
        state.check_agent(here, state.agent)
    elif isinstance(state.agent, str):
        if not state.agent.isidentifier():
            raise FlowError(f"{here} has the role {state.agent!r}: a name as Python has them would be right")
    elif not callable(state.agent):
        raise FlowError(f"{here} asks {shown(state.agent)}: an Agent, or its role, would be right")


# Rows


def _check_row(where: str, row: Row[Any], has_deadline: bool) -> None:
    source = row.source
    if not isinstance(source, LiveState):
        raise FlowError(f"{where}: the row {row!r} leads out of an end: a row out of a state would be right")
    if row.trigger == "expired" and not has_deadline:
        right = "limits=FlowLimits(deadline_s=…) would be right"
        raise FlowError(f"{where}: the row {row!r} never happens: the flow has no deadline: {right}")
    if row.trigger not in (*source.triggers, "elapsed", *ENDS):
        known = ", ".join(source.triggers) or "elapsed"
        raise FlowError(f"{where}: the row {row!r} never happens: of {source.name} comes {known}")
    if row.trigger == "elapsed" and not source.is_timed:
        raise FlowError(f"{where}: the row {row!r} never happens: {source.name} has no within_s=… or until=…")
    for what, function in (("guard", row.guard), ("action", row.action)):
        if function is not None and not callable(function):
            raise FlowError(f"{where}: the {what} of {row!r} is {function!r:.80}: a function would be right")
        if inspect.iscoroutinefunction(function):
            raise FlowError(f"{where}: the {what} of {row!r} is a coroutine function: a plain, pure one would be right")
    if row.guard is not None and getattr(row.guard, "__name__", "<lambda>") == "<lambda>":
        right = "a named function, whose name stands in the diagram, would be right"
        raise FlowError(f"{where}: the guard of the row {row!r} has no name: {right}")
    if row.case is not ANY and not any(row.case is case or row.case == case for case in source.answer_types.cases):
        cases = source.answer_types.cases
        known = (
            ", ".join(map(case_name, cases)) if cases != (ANY,) else f"{source.answer_types!r} alone, so leave of=… out"
        )
        raise FlowError(f"{where}: the row {row!r} never happens: {source.name} gives {known}")


def _check_takers(where: str, flow: Flow[Any]) -> None:
    """Check that the rows of each state, trigger and type end with one without a guard, and only there."""
    takers: dict[tuple[str, str], list[Row[Any]]] = {}
    useful: set[int] = set()
    for row in flow.table:
        for case in cases_of(row):
            event = event_name(row.trigger, case)
            rows = takers.setdefault((row.source.name, event), [])
            if any(before.guard in (None, row.guard) and before.rule in ("", row.rule) for before in rows):
                continue
            if row.guard is not None and any(_is_named_alike(before, row) for before in rows):
                name = row_name(row.source.name, event, row.to.name, row.guard.__name__)
                right = "guards with names of their own, by which traces and tests tell rows apart, would be right"
                raise FlowError(f"{where}: two rows are {name}: {right}")
            rows.append(row)
            useful.add(id(row))
    for row in flow.own_rows:
        if id(row) not in useful:
            right = "remove it, or move it up"
            raise FlowError(f"{where}: the row {row!r} is never taken, since rows before it take all: {right}")
    for state in flow.live:
        _check_taken(where, state, takers)


def _is_named_alike(before: Row[Any], row: Row[Any]) -> bool:
    return before.to is row.to and before.guard is not None and before.guard.__name__ == row.guard.__name__  # type: ignore[union-attr]


def _check_taken(where: str, state: LiveState[Any, Any], takers: dict[tuple[str, str], list[Row[Any]]]) -> None:
    """Refuse a state with an outcome that no row may take."""
    outcomes = [(trigger, case) for trigger in state.triggers for case in cases_at(state, trigger)]
    for trigger, case in outcomes:
        event = event_name(trigger, case)
        rows = takers.get((state.name, event), [])
        if not rows:
            of = f", of={case_name(case)}" if case is not ANY else ""
            right = f"{state.name}.{trigger}(…{of}) would be right"
            raise FlowError(f"{where}: {state.name} has no row for {event!r}: {right}")
        if rows[-1].guard is not None:
            right = "one more row, without when=…, would be right"
            raise FlowError(f"{where}: if {rows[-1]!r} is not taken, no row of {state.name} is: {right}")
    if isinstance(state, PauseState) and all(row.is_default for row in takers[state.name, "elapsed"]):
        raise FlowError(f"{where}: {state.name} has no row for 'elapsed': {state.name}.elapsed(…) would be right")


def _check_ways(where: str, flow: Flow[Any]) -> None:
    """Check that the start leads to each state, and each state to an end that the user declared."""
    ways: dict[str, set[str]] = {}
    for row in flow.own_rows:
        ways.setdefault(row.source.name, set()).add(row.to.name)
    reached, waiting = set[str](), [flow.start.name]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += ways.get(name, ())
    if lost := [state.name for state in flow.live if state.name not in reached]:
        raise FlowError(f"{where}: nothing leads to {lost[0]}: a row to it would be right, or remove its rows")
    ending = {state.name for state in flow.states.values() if isinstance(state, End)}
    while more := {r.source.name for r in flow.own_rows if r.trigger in _LEADS and r.to.name in ending} - ending:
        ending |= more
    if stuck := [state.name for state in flow.live if state.name not in ending]:
        raise FlowError(f"{where}: from {stuck[0]} an end is reached only by failing: a row to an end would be right")
