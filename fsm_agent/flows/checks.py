"""Checks a flow's definition.  Each error names the row or the state and says what was expected."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, EnumType
from functools import lru_cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, get_args, get_origin

import msgspec
import pydantic

from fsm_agent._internal.structs import is_finite, is_whole, type_adapter, without_notes
from fsm_agent._internal.text import guess
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.options import check_environment
from fsm_agent.call.machine import row_name
from fsm_agent.call.result import CallResult
from fsm_agent.errors import FlowError, hint
from fsm_agent.flows.record import FlowLimits
from fsm_agent.flows.states import (
    CallState,
    End,
    FunctionState,
    GatherState,
    LiveState,
    ParallelState,
    PauseState,
    Row,
    State,
    SubflowState,
    WaitState,
    event_name,
    may_be_abandoned,
    moment_s,
    states_inside,
)
from fsm_agent.flows.transition_table import (
    EVERY,
    RESERVED,
    cases_at,
    cases_of,
    check_parameters,
    is_covered,
    pure,
    reached_from,
    takes_answer,
)
from fsm_agent.flows.values import ANY, IntoField, case_name, check_resolved, fields_of, hints_of, may_hold
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import is_plain, takes
from fsm_agent.functions.toolset import Toolset
from fsm_agent.validation import Rules, require, require_fields, safe_repr

if TYPE_CHECKING:  # what imports this module
    from fsm_agent.flows.definition import FlowDefinition

_NAME = "a string such as 'support'"
_REPLACEMENTS = {list: "tuple[…, ...]", set: "frozenset[…]", dict: "Mapping[…, …]", bytearray: "bytes"}
_LEADS = ("done", "elapsed", "cancelled", "expired")  # triggers that are not failures
_SECONDS = "a number of seconds above 0, a timedelta, or a function of the data that returns either"
_MOMENT = "a datetime with a time zone, Unix seconds, or a function of the data that returns either"
Agents: TypeAlias = Mapping[str, Agent[Any, Any]]  # by role
NO_AGENTS: Agents = {}


# States with a time limit may be abandoned, and so may members once enough others have returned values.  A running
# function then has no one to report to.  If it must not run twice, its outcome would stay in doubt forever.


def check_abandonment(here: str, state: LiveState[Any, Any], agents: Agents) -> None:
    """Refuse a state that might be abandoned while a function that must not run twice is running."""
    for what in _once_in([state], agents) if may_be_abandoned(state) else ():
        raise refused(here, what)
    if agents and isinstance(state, SubflowState) and not state.flow.agents:
        for inner in state.flow.live:
            check_abandonment(f"{here}: {inner.name}", inner, agents)


def refused(here: str, what: str, right: str = "give it a state of its own, without a time limit") -> FlowError:
    """Return the error for a function that must not run twice in a state that may be abandoned."""
    lost = "its outcome is lost if the state is left while it runs"
    return FlowError(f"{here}: expected functions that may run twice, got {what}: {lost}; {right}")


def once_of(functions: Iterable[Any], seen: Sequence[Agent[Any, Any]] = (), *, is_late: bool = False) -> Iterator[str]:
    """Yield the functions that must not run twice, including the functions of agents and flows.

    Sources other than toolsets are skipped, because they are asked for their functions again in each call.

    Args:
        functions: The functions.
        seen: Agents whose functions are already being visited.
        is_late: Whether all agents that the functions refer to have been defined by now.
    """
    for function in functions:
        if isinstance(function, Toolset):
            yield from once_of(function.functions, seen, is_late=is_late)
            continue
        delegate = function.delegate if isinstance(function, Function) else None
        if isinstance(function, Function) and function.once:
            yield function.name
        elif (flow := getattr(delegate, "flow", None)) is not None:
            yield from _once_in(flow.live, flow.agents)
        elif delegate is not None and (is_late or getattr(delegate, "is_known", True)):
            (agent,) = delegate.agents
            if not any(agent is one for one in seen):
                yield from once_of(agent.functions, (*seen, agent), is_late=is_late)


def _once_in(states: Iterable[LiveState[Any, Any]], agents: Agents) -> Iterator[str]:
    for state, bound in states_inside(states, agents):
        if isinstance(state, FunctionState) and state.function.once:
            yield state.name
        elif isinstance(state, CallState) and (agent := state.agent_in(bound)) is not None:
            yield from [f"{name} of its agent {agent.name}" for name in once_of(agent.functions, (agent,))]


# Arguments


def check_arguments(flow: FlowDefinition[Any]) -> None:
    """Refuse arguments that no run could use."""
    require("the name of a flow", flow.name, isinstance(flow.name, str) and bool(flow.name), _NAME, FlowError)
    require_fields(flow, f"the flow {flow.name!r}", _RIGHTS, FlowError)
    for n in flow.upgrades:
        right = f"a version from 1 to {flow.version - 1}"
        require(f"a version in upgrades of the flow {flow.name!r}", n, 1 <= n < flow.version, right, FlowError)
    check_environment(f"the flow {flow.name!r}", flow.environment, FlowError)


def _are_upgrades(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    steps = [upgrade if isinstance(upgrade, Sequence) else [upgrade] for upgrade in value.values()]
    return all(map(is_whole, value)) and all(one and all(map(is_plain, one)) for one in steps)


def _are_agents(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(role, str) and isinstance(agent, Agent) for role, agent in value.items())


def _answers(value: Any) -> bool:
    return value is None or (callable(value) and not isinstance(value, type) and takes(value, 1))


_RIGHTS: Rules = (
    ("rows", lambda v: isinstance(v, Sequence) and not isinstance(v, str), "a list of rows"),
    ("limits", lambda v: isinstance(v, FlowLimits), "FlowLimits such as FlowLimits(steps=100)"),
    ("version", lambda v: is_whole(v, 1), "a whole number of at least 1"),
    (
        "upgrades",
        _are_upgrades,
        "a mapping of versions to functions, or to lists of them, such as {1: renamed(old='new')}",
    ),
    ("approve", lambda v: v is None or callable(v), "a function of a FunctionCall or None"),
    ("answer", _answers, "a function of an AwaitAnswer or None"),
    ("agents", _are_agents, "a mapping of roles to agents"),
)


# The table


def named_states(flow: FlowDefinition[Any]) -> dict[str, State[Any]]:
    """Return the states of a flow by name, in the order of the rows."""
    where = f"flow {flow.name!r}"
    named: dict[str, State[Any]] = {}
    require(f"{where}: start", flow.start, isinstance(flow.start, LiveState), "a state with rows", FlowError)
    for row in flow.rows:
        right = "a row such as state.done(target)"
        if isinstance(row, tuple) and row:
            right = "a row; unpack rows with a star: *any_state(…)"
        require(f"{where}: rows", row, isinstance(row, Row), right, FlowError)
        target = f"{where}: target of a row of {row.source.name}"
        require(target, row.to, isinstance(row.to, State), "a state or an end", FlowError)
    for state in [flow.start, *[state for row in flow.rows for state in (row.source, row.to)]]:
        if state is not EVERY and not _is_same(named.setdefault(state.name, state), state):
            raise FlowError(f"{where}: expected states with different names, got two named {state.name!r}; rename one")
    return named


def _is_same(one: State[Any], other: State[Any]) -> bool:
    """Return whether two states are the same object, or two ends with equal fields."""
    return one is other or (isinstance(one, End) and isinstance(other, End) and vars(one) == vars(other))


def check_flow(flow: FlowDefinition[Any]) -> None:
    """Check everything about a flow that can be checked before it runs."""
    where = f"flow {flow.name!r}"
    check_data(where, flow.data)
    for state in flow.states.values():
        _check_name(where, state)
        if isinstance(state, LiveState):
            _check_work(where, state, flow.agents)
    for row in flow.own_rows:
        _check_row(where, row, has_deadline=flow.limits.deadline_s is not None)
        _check_functions(where, row, flow.data)
    _check_takers(where, flow)
    _check_ways(where, flow)


# The data


def check_data(where: str, data: Any) -> None:
    """Refuse a data type whose values could be changed in place or cannot be saved."""
    if not _is_frozen(data):
        right = "a frozen dataclass or pydantic model, a NamedTuple or a plain type"
        is_thawed = dataclasses.is_dataclass(data) or (isinstance(data, type) and issubclass(data, pydantic.BaseModel))
        remedy = "add frozen=True" if is_thawed else "make it a field of one"
        raise FlowError(f"{where}: data: expected {right}, got {case_name(data)!r}; {remedy}")
    check_resolved(where, data)
    for path, kind in _fields(data, case_name(data), set()):
        origin = get_origin(kind) or kind
        if origin is CallResult:  # it holds code
            right = "keep its output, or its dialog, as in replace(d, dialog=result.dialog)"
            what = f"expected what JSON can hold, got a CallResult; {right}"
            raise FlowError(f"{where}: field {path} of the data: {what}")
        if isinstance(origin, type) and origin in _REPLACEMENTS:
            what = f"expected {_REPLACEMENTS[origin]}, got {origin.__name__}, which can be changed in place"
            raise FlowError(f"{where}: field {path} of the data: {what}")
        if dataclasses.is_dataclass(origin) and not _is_frozen(origin):
            what = f"expected a frozen dataclass, got {case_name(origin)}, which can be changed in place"
            raise FlowError(f"{where}: field {path} of the data: {what}; pass frozen=True to it")
    if problem := _lost_always(data):
        raise FlowError(f"{where}: data: expected a type that JSON keeps unchanged, got {case_name(data)}: {problem}")


@lru_cache(512)
def _lost_always(data: type) -> str:
    """Return the reason why JSON can never keep a type's values unchanged, judging by the type's two schemas, or ""."""
    try:
        reads, writes = (
            _objects(type_adapter(data).json_schema(mode=mode)) for mode in ("validation", "serialization")
        )
    except Exception:  # the type has its own schema: its values are checked when they are written
        return ""
    for name, read in reads.items():
        written = writes.get(name, {}).get("properties", {})
        for field, schema in read.get("properties", {}).items():
            if field not in written:
                return f"{name}.{field} is read, but not written; leave exclude=True out, and give it one alias"
            if schema.get("writeOnly"):
                return f"{name}.{field} is secret, and is written as asterisks; pass it as deps"
        if read.get("additionalProperties") is False and (more := written.keys() - read.get("properties", {}).keys()):
            return f"{name}.{min(more)} is written, but cannot be read; set extra='ignore'"
    return ""


def _objects(schema: dict[str, Any]) -> dict[str, Any]:
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
    """Yield the type and the path of every field inside a type."""
    for argument in get_args(kind):
        yield path, argument
        yield from _fields(argument, path, seen)
    is_class = isinstance(kind, type) and get_origin(kind) is None and kind not in seen
    if not (is_class and (dataclasses.is_dataclass(kind) or issubclass(kind, pydantic.BaseModel | tuple))):
        return
    seen.add(kind)
    for name, found in hints_of(kind).items():
        if get_origin(found) is not ClassVar:
            yield f"{path}.{name}", found
            yield from _fields(found, f"{path}.{name}", seen)


# States


def _check_name(where: str, state: State[Any]) -> None:
    what, name = f"{where}: name of a state", state.name
    is_identifier = isinstance(name, str) and name.isidentifier()
    require(what, name, is_identifier, "a Python identifier, which keys can hold", FlowError)
    is_free = len(name) < 3 or not name[0] == name[-1] == "_"
    require(what, name, is_free, "a name without underscores at both ends, which Python reserves", FlowError)
    require(what, name, name not in RESERVED, "a name that is not reserved for every flow", FlowError)


def _check_work(where: str, state: LiveState[Any, Any], agents: Agents) -> None:
    here = f"{where}: {state.name}"
    _check_time(here, state)
    for function in state.functions_of_data:
        check_parameters(here, function, "data")
    if isinstance(state, FunctionState) and state.function.once and state.is_timed:
        option = "until" if state.within_s is None else "within_s"
        why = "when the time is over, its result stays unknown"
        raise FlowError(f"{here}: expected once=True without {option}, got both: {why}; leave {option} out")
    check_abandonment(here, state, agents)
    if isinstance(state, CallState):
        _check_call(here, state)
    if not isinstance(state, ParallelState):
        state.answer_types.check(here)
        if empty := [kind for kind in state.answer_types.types if isinstance(kind, EnumType) and not len(kind)]:
            raise FlowError(f"{here}: expected an enum with members, got {empty[0].__name__}, which has none")
        return
    state.answer_types.check_values(here)
    names = [member.name for member in state.members]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FlowError(f"{here}: expected members with different names, got two named {twice[0]!r}; rename one")
    _check_counts(here, state)
    for member in state.members:
        _check_name(where, member)
        _check_work(where, member, agents)
        _check_member(here, member)


def _check_time(here: str, state: LiveState[Any, Any]) -> None:
    """Refuse a time that no run could use."""
    within_s, until, seconds = state.within_s, state.until, state.seconds_option
    if within_s is not None and until is not None:
        raise FlowError(f"{here}: expected {seconds} or until, got both; leave one out")
    if isinstance(state, PauseState) and not state.is_timed:
        raise FlowError(f"{here}: expected {seconds} ({_SECONDS}) or until, got neither")
    for name, time, right in ((seconds, within_s, _SECONDS), ("until", until, _MOMENT)):
        if callable(time):
            pure(f"{here}: {name}", time)
        elif time is not None:
            is_right = moment_s(time) is not None if name == "until" else is_finite(time) and time > 0
            require(f"{here}: {name}", time, is_right, right, FlowError)
    require(f"{here}: restart", state.restart, isinstance(state.restart, bool), "True or False", FlowError)
    if not (state.restart or state.is_timed):
        raise FlowError(f"{here}: expected a time limit with restart=False, got none; pass within_s=… or until=…")


def _check_member(here: str, member: LiveState[Any, Any]) -> None:
    if member.is_timed:
        right = "pass within_s to the state around it, or use a subflow as the member"
        raise FlowError(f"{here}: member {member.name}: expected no time of its own, got one; {right}")
    if isinstance(member, WaitState) and member.is_early:
        right = "use a state of the flow itself, or a subflow as the member"
        raise FlowError(f"{here}: member {member.name}: expected early=False, got True; {right}")


def _check_counts(here: str, state: ParallelState[Any, Any]) -> None:
    """Check the options ``parallel`` and ``enough``."""
    is_count = state.parallel is None or is_whole(state.parallel, 1)
    require(f"{here}: parallel", state.parallel, is_count, "a whole number of at least 1, or None for all", FlowError)
    if (enough := state.enough) is None:
        return
    if state.is_lenient:
        what = "expected enough=… or settled=True, which waits for all members"
        raise FlowError(f"{here}: {what}, got settled=True and enough={safe_repr(enough)}; leave one out")
    is_share = isinstance(enough, float) and 0 < enough <= 1
    most = len(state.members) if isinstance(state, GatherState) else math.inf
    count = "a whole number of at least 1" if most == math.inf else f"a whole number from 1 to {most}"
    is_right = is_share or (is_whole(enough, 1) and enough <= most)
    require(f"{here}: enough", enough, is_right, f"{count}, or a share such as 0.5", FlowError)


def _check_call(here: str, state: CallState[Any, Any]) -> None:
    if isinstance(state.agent, Agent):
        state.check_agent(here, state.agent)
    elif isinstance(state.agent, str):
        require(f"{here}: role", state.agent, state.agent.isidentifier(), "a Python identifier", FlowError)


# Rows


def _check_row(where: str, row: Row[Any], has_deadline: bool) -> None:
    source: Any = row.source  # the state that made the row, so the trigger fits
    if row.trigger == "expired" and not has_deadline:
        right = "pass limits=FlowLimits(deadline_s=…)"
        raise FlowError(f"{where}: row {row!r}: expected a flow with a deadline, got none; {right}")
    if row.trigger == "elapsed" and not source.is_timed:
        what = f"expected {source.name} to have a time limit, got none; pass within_s=… or until=…"
        raise FlowError(f"{where}: row {row!r}: {what}")
    for what, function in (("guard", row.guard), ("action", row.action)):
        if function is not None:
            pure(f"{where}: {what} of the row {row!r}", function)
    _check_case(where, row, source)


def _check_functions(where: str, row: Row[Any], data: Any) -> None:
    if row.guard is not None:
        if getattr(row.guard, "__name__", "<lambda>") == "<lambda>":
            right = "a named function, which the diagram can show"
            raise FlowError(f"{where}: guard of the row {row!r}: expected {right}, got one without a name; use def")
        try:
            takes_answer(row.guard)
        except FlowError as error:
            raise FlowError(f"{where}: guard of the row {row!r}: {error}") from None
    here = f"{where}: action of the row {row!r}"
    if isinstance(row.action, IntoField):
        _check_into(here, row, row.action, data)
    elif row.action is not None:
        check_parameters(here, row.action, "data", "answer")


def _check_into(here: str, row: Row[Any], action: IntoField, data: Any) -> None:
    """Refuse a field that the data lacks or whose type differs from the answer's.  Type checkers notice neither."""
    fields, field, kind = fields_of(data), action.field, row.source.type_for(row.trigger, row.case)  # type: ignore[attr-defined]
    if not fields:
        right = "use a frozen dataclass, or an action that returns the data"
        raise FlowError(f"{here}, {action!r}: expected data with fields, got {case_name(data)}; {right}")
    if field not in fields:
        what = f"expected a field of {case_name(data)}, got {field!r}"
        raise FlowError(f"{here}, {action!r}: {what}{hint(field, fields)}")
    if kind is NoneType and row.trigger != "done":
        what = f"expected a trigger that brings an answer, got {row.trigger!r}"
        raise FlowError(f"{here}, {action!r}: {what}; write an action of your own")
    if not may_hold(fields[field], kind):
        right = f"declare {field}: {case_name(kind)}, or write an action that returns the data"
        if get_origin(kind) is CallResult:  # which data cannot hold
            right = f"write an action that keeps a part of it, as replace(d, {field}=a.output) does"
        what = f"expected {case_name(fields[field])} for the field {field!r}, got {case_name(kind)}"
        raise FlowError(f"{here}, {action!r}: {what}; {right}")


def _check_case(where: str, row: Row[Any], source: LiveState[Any, Any]) -> None:
    """Refuse a row for a type of answer that its state never returns."""
    cases = source.answer_types.cases
    if row.case is ANY or any(row.case is case or without_notes(row.case) == without_notes(case) for case in cases):
        return
    known, right = ", ".join(map(case_name, cases)), ""
    if cases == (ANY,):
        known, right = f"{source.answer_types!r} alone", "; leave of=… out"
    what = f"expected what {source.name} gives ({known}), got {case_name(row.case)}{right}"
    raise FlowError(f"{where}: row {row!r}: {what}")


def _check_takers(where: str, flow: FlowDefinition[Any]) -> None:
    """Check that, for each state, trigger and type, the last row has no guard and all others have one."""
    takers: dict[tuple[str, str], list[Row[Any]]] = {}
    useful: set[int] = set()
    for row in flow.table:
        for case in cases_of(row):
            event = event_name(row.trigger, case)
            rows = takers.setdefault((row.source.name, event), [])
            if is_covered(row, rows):
                continue
            if row.guard is not None and any(_is_named_alike(before, row) for before in rows):
                name = row_name(row.source.name, event, row.to.name, row.guard.__name__)
                right = "guards with different names, by which traces and tests tell rows apart"
                raise FlowError(f"{where}: expected {right}, got two rows {name}; rename one guard")
            rows.append(row)
            useful.add(id(row))
    for row in flow.own_rows:
        if id(row) not in useful:
            right = "remove it, or move it up"
            raise FlowError(f"{where}: row {row!r}: expected a case that no earlier row takes, got none; {right}")
    for state in flow.live:
        _check_taken(where, state, takers)


def _is_named_alike(before: Row[Any], row: Row[Any]) -> bool:
    return before.to is row.to and before.guard is not None and before.guard.__name__ == row.guard.__name__  # type: ignore[union-attr]


def _check_taken(where: str, state: LiveState[Any, Any], takers: dict[tuple[str, str], list[Row[Any]]]) -> None:
    """Refuse a state that has an outcome for which there is no row."""
    outcomes = [(trigger, case) for trigger in state.triggers for case in cases_at(state, trigger)]
    for trigger, case in outcomes:
        event = event_name(trigger, case)
        rows = takers.get((state.name, event), [])
        if not rows:
            written = f"{type(case).__name__}.{case.name}" if isinstance(case, Enum) else case_name(case)
            of = "" if case is ANY else f", of={'None' if case is NoneType else written}"
            right = f"add {state.name}.{trigger}(…{of})"
            raise FlowError(f"{where}: expected a row of {state.name} that takes {event!r}, got none; {right}")
        if rows[-1].guard is not None:
            what = f"expected a last row of {state.name} without a guard for {event!r}, got {rows[-1]!r}"
            raise FlowError(f"{where}: {what}; add a row without when=…")
    if isinstance(state, PauseState) and all(row.is_default for row in takers[state.name, "elapsed"]):
        right = f"add {state.name}.elapsed(…)"
        raise FlowError(f"{where}: expected a row of {state.name} that takes 'elapsed', got none; {right}")


def _check_ways(where: str, flow: FlowDefinition[Any]) -> None:
    """Check that each state can be reached from the start, and can reach an end that the user defined."""
    reached = reached_from([flow.start], flow.own_rows)
    if lost := [state.name for state in flow.live if state.name not in reached]:
        raise FlowError(f"{where}: expected a row that leads to {lost[0]}, got none; add one, or remove its rows")
    ending = {state.name for state in flow.states.values() if isinstance(state, End)}
    while more := {r.source.name for r in flow.own_rows if r.trigger in _LEADS and r.to.name in ending} - ending:
        ending |= more
    if stuck := [state.name for state in flow.live if state.name not in ending]:
        raise FlowError(f"{where}: expected a way from {stuck[0]} to an end, got only failures; add a row to an end")


# Roles: names that stand for agents until `Flow.bound` assigns the agents


def roles_of(flow: FlowDefinition[Any]) -> dict[str, list[CallState[Any, Any]]]:
    """Return the roles in a flow and in its unbound inner flows, each with the states that use it."""
    found: dict[str, list[CallState[Any, Any]]] = {}
    for state, agents in states_inside(flow.live, flow.agents):
        if isinstance(state, CallState) and isinstance(state.agent, str) and agents is flow.agents:
            found.setdefault(state.agent, []).append(state)
    return found


def check_agents(flow: FlowDefinition[Any], agents: Agents) -> None:
    """Refuse to bind agents if a role would have no agent or an unsuitable one."""
    where = f"flow {flow.name!r}"
    for role, states in roles_of(flow).items():
        here = f"{where}: role {role!r} of the state {states[0].name}"
        agent = agents.get(role)
        if agent is None:
            bound = f" (bound: {', '.join(agents)})" if agents else ""
            raise FlowError(f"{here}: expected an agent, got none{bound}; call bound({role}=agent)")
        require(here, agent, isinstance(agent, Agent), "an Agent", FlowError)
        for state in states:
            state.check_agent(f"{where}: {state.name}, role {role!r}", agent)


def check_names(flow: FlowDefinition[Any], names: Iterable[str]) -> None:
    """Refuse names that are not roles in the flow."""
    roles = roles_of(flow)
    for name in names:
        if name not in roles:
            known = f"one of its roles ({', '.join(roles)})" if roles else "no role, since it has none"
            raise FlowError(f"flow {flow.name!r}: expected {known}, got {name!r}{guess(name, roles)}")
