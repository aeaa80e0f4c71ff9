"""The definition of a flow: its states, its table, its machine and its data.  This module does not run flows."""

# The annotations are evaluated, not kept as strings: dataclasses copy them into the `__init__` of each subclass, where
# the names of this module are unknown.

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from functools import cached_property
from os import PathLike
from typing import Any, Generic, TypeAlias

import pydantic

from fsm_agent._internal.structs import fields_alone, to_json
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.hooks import are_heard, check_hooks
from fsm_agent.call.journal import FlowTable
from fsm_agent.call.machine import row_name
from fsm_agent.errors import FlowError, UsageError
from fsm_agent.flows.checks import Agents, check_agents, check_arguments, check_flow, named_states
from fsm_agent.flows.data_json import DataError, describe_json_error, dumped, kept_adapter
from fsm_agent.flows.record import FlowLimits, FlowRecord
from fsm_agent.flows.states import (
    CallState,
    D,
    FunctionState,
    LiveState,
    Row,
    State,
    SubflowState,
    WaitState,
    states_inside,
)
from fsm_agent.flows.transition_table import (
    CANCELLED,
    EDITED,
    EXPIRED,
    FAILED,
    TableEntry,
    entries_of,
    machine_for,
    rows_in_states,
    states_enum,
    with_defaults,
)
from fsm_agent.flows.values import DataCheck
from fsm_agent.functions.function import Function
from fsm_agent.prompts.prompt import fingerprint_under
from fsm_agent.runtime.environment import Approve
from fsm_agent.store.runs import Runs
from fsm_agent.store.store import Store
from fsm_agent.validation import plain_json, require, safe_repr

TABLE_BYTES = 16_384  # of the tables in the header of a journal
_COPIED = (("rows", tuple), ("hooks", tuple), ("upgrades", dict), ("agents", dict), ("environment", dict))
MOST_NAMED = 5  # members of a state, in words
Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class FlowDefinition(Generic[D]):
    """The base class of `Flow`: everything that its runs need, except the verbs that drive them."""

    name: str
    data: type[D]
    _: KW_ONLY
    start: LiveState[D, Any]
    rows: Sequence[Row[D]]
    limits: FlowLimits = field(default_factory=FlowLimits)
    version: int = 1
    upgrades: Mapping[int, Upgrade | Sequence[Upgrade]] = field(default_factory=dict)
    store: Runs | Store | str | PathLike[str] | None = None
    approve: Approve[Any] | None = None
    answer: Callable[[Any], Any] | None = None
    hooks: Sequence[Any] = ()
    agents: Agents = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[str, State[Any]] = field(init=False)
    own_rows: tuple[Row[Any], ...] = field(init=False)  # rows for every state are copied to the states
    table: tuple[Row[Any], ...] = field(init=False)  # including the default rows

    __getstate__ = fields_alone

    def __post_init__(self) -> None:
        check_arguments(self)
        check_hooks(self.hooks)
        for name, kind in _COPIED:  # or what the caller does to them later would change some parts of the flow
            object.__setattr__(self, name, kind(getattr(self, name)))
        states = named_states(self)
        live = [state for state in states.values() if isinstance(state, LiveState)]
        own_rows = rows_in_states(f"flow {self.name!r}", self.start, self.rows)
        table = with_defaults(own_rows, live, self.limits.deadline_s is not None)
        object.__setattr__(self, "own_rows", own_rows)
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "table", table)
        check_flow(self)
        for end in (FAILED, CANCELLED, EXPIRED):
            if end is not EXPIRED or self.limits.deadline_s is not None:
                states[end.name] = end
        _ = self.state_enum  # refuses names that Python reserves
        if self.agents:
            check_agents(self, self.agents)

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, {len(self.live)} states, {len(self.rows)} rows)"

    @cached_property
    def live(self) -> tuple[LiveState[Any, Any], ...]:
        return tuple([state for state in self.states.values() if isinstance(state, LiveState)])

    @cached_property
    def timed(self) -> Mapping[str, LiveState[Any, Any]]:
        """The states whose time can run out, by name."""
        return {state.name: state for state in self.live if state.is_timed}

    @cached_property
    def reactions(self) -> Mapping[tuple[str, str], str]:
        """The rules for the rows that handle a cancellation or the deadline, by state and trigger."""
        return {(row.source.name, row.trigger): row.rule for row in reversed(self.table) if row.rule}

    @cached_property
    def early(self) -> Mapping[str, WaitState[Any, Any]]:
        """The states that accept answers before they are entered, by name."""
        return {state.name: state for state in self.live if isinstance(state, WaitState) and state.is_early}

    @cached_property
    def entries(self) -> tuple[TableEntry, ...]:
        """An entry for each trigger of each row, including the default rows."""
        return tuple(entries_of(self))

    @cached_property
    def row_names(self) -> Mapping[str, bool]:
        """All rows by name, and whether the user wrote each one."""
        return {
            row_name(entry.source, entry.event, entry.to, entry.guard): not entry.is_default for entry in self.entries
        }

    @cached_property
    def state_enum(self) -> type[StrEnum]:
        return states_enum(self)

    @cached_property
    def machine(self) -> Any:
        """The `transitions` machine of the table."""
        return machine_for(self)

    @cached_property
    def adapter(self) -> pydantic.TypeAdapter[D]:
        return kept_adapter(self.data)

    @cached_property
    def fingerprint(self) -> str:
        """A fingerprint of the table and of the agents' prompts."""
        rows = [(entry.event, entry.source, entry.to, entry.guard) for entry in self.entries if entry.event != EDITED]
        asked = [  # states of two inner flows may have the same name, but different roles
            f"{state.name} {state.agent if isinstance(state.agent, str) else ''}: {state.answer_types!r}:"
            f" {fingerprint_under(agent.prompt, agent.system)}"
            for state, agents in _calls(self)
            if (agent := state.agent_in(agents)) is not None
        ]
        flows = [state for state, _ in states_inside(self.live) if isinstance(state, SubflowState)]
        inside = [f"{state.name}: {state.flow.fingerprint}" for state in flows]
        text = repr([self.name, self.version, rows, sorted(asked), sorted(inside)])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @cached_property
    def tables(self) -> Mapping[str, FlowTable]:
        """The tables of the flow and its inner flows, by name, for programs that do not have the flow's code."""
        rows = [(e.source, e.event, e.guard, e.to) for e in self.entries if not e.is_default]
        states = {name: _words_of(state) for name, state in self.states.items()}
        found = {self.name: FlowTable(self.start.name, states, tuple(rows))}
        for inner in flows_inside(self):
            found = {**inner.tables, **found}
        return found

    @cached_property
    def tables_json(self) -> bytes:
        """The tables as JSON for a journal's header, or an empty string if they are too large."""
        text = to_json(self.tables).encode()
        return text if len(text) <= TABLE_BYTES else b""

    @cached_property
    def has_listener(self) -> bool:
        """Whether the flow, or an inner agent or flow, has hooks.

        An agent chosen by the data is assumed to have hooks.
        """
        if any(one.hooks for one in (self, *flows_inside(self))):
            return True
        asked = [state.agent_in(agents) for state, agents in _calls(self)]
        return any(agent is None or are_heard(agent.hooks, agent.prompt) for agent in asked)

    @cached_property
    def data_check(self) -> DataCheck:
        return DataCheck(self.data)

    def data_json(self, data: D) -> str:
        """Return data as JSON."""
        return dumped(self.adapter, data, f"flow {self.name!r}", self.data.__name__)

    def data_of(self, document: str | bytes) -> D:
        """Read the flow's data from JSON."""
        try:
            return self.adapter.validate_json(document)
        except (ValueError, TypeError) as error:  # TypeError: a lone surrogate
            what = f"expected JSON of {self.data.__name__}, got {safe_repr(document)}"
            raise FlowError(f"flow {self.name!r}: {what}: {describe_json_error(error)}") from None

    def record_of(self, data: D, depth: int = 0, extra: Mapping[str, Any] | None = None, by: str = "") -> FlowRecord:
        """Return the record of a run that has not begun."""
        try:
            self.data_check.check(data)
        except DataError as error:
            raise FlowError(f"flow {self.name!r}: {error}") from None
        stage: Any = self.state_enum
        return FlowRecord(
            flow=self.name,
            version=self.version,
            state=stage["Seeded"],
            data=data,
            depth=depth,
            limits=self.limits,
            extra={} if extra is None else plain_json("extra", extra),
            by=by,
        )


def _words_of(state: State[Any]) -> str:
    if isinstance(state, LiveState) and state.members:
        return f"members: {', '.join([_words_of(member) for member in state.members[:MOST_NAMED]])}"
    return state.words


# What is in a flow


def agents_of(flow: FlowDefinition[Any]) -> list[Agent[Any, Any]]:
    """Return the agents of a flow, including those in its inner flows and members."""
    return [agent for state, agents in _calls(flow) if (agent := state.agent_in(agents)) is not None]


def functions_of(flow: FlowDefinition[Any]) -> list[Function]:
    """Return the functions that the states of a flow run, including states in its inner flows and members."""
    return [state.function for state, _ in states_inside(flow.live) if isinstance(state, FunctionState)]


def _calls(flow: FlowDefinition[Any]) -> list[tuple[CallState[Any, Any], Agents]]:
    """Return the states that ask agents, including those in inner flows and members, each with its agents by role."""
    return [found for found in states_inside(flow.live, flow.agents) if isinstance(found[0], CallState)]


def flows_inside(flow: FlowDefinition[Any]) -> list[FlowDefinition[Any]]:
    """Return the inner flows, at any depth."""
    return [state.flow for state, _ in states_inside(flow.live) if isinstance(state, SubflowState)]


def check_clients(flow: FlowDefinition[Any], clients: Mapping[Any, Any]) -> None:
    """Refuse models for states that ask no agent.  A test would otherwise silently use the real model."""
    asking = [state for state, _ in _calls(flow)]
    known = [known_key for state in asking for known_key in state.client_keys]
    for key, client in clients.items():
        is_client = hasattr(client, "acomplete") and not isinstance(client, type)
        require(f"clients[{safe_repr(key)}]", client, is_client, "a client, such as Script('…') in tests")
        if not any(key is known_key for known_key in known):
            names = ", ".join([state.name for state in asking]) or "none"
            right = f"states of the flow {flow.name!r} that ask an agent ({names})"
            raise UsageError(f"clients: expected {right}, got {safe_repr(key)}")
