"""Roles: names in place of agents in the states of a flow, until `Flow.bound` says which agent each is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from fsm_agent._internal.hints import guess
from fsm_agent.agents.agent import Agent
from fsm_agent.flows.definition.states import CallState, LiveState, SubflowState
from fsm_agent.flows.errors import FlowError
from fsm_agent.validation import shown

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow

Agents: TypeAlias = Mapping[str, Agent[Any, Any]]  # by role
NO_AGENTS: Agents = {}


def roles_of(flow: Flow[Any]) -> dict[str, list[CallState[Any, Any]]]:
    """Return the roles of a flow, and of flows inside of it that are not bound; each with its states."""
    found: dict[str, list[CallState[Any, Any]]] = {}
    for state in _calls(flow.live):
        if isinstance(state.agent, str):
            found.setdefault(state.agent, []).append(state)
    return found


def _calls(works: Iterable[LiveState[Any, Any]]) -> Iterator[CallState[Any, Any]]:
    for work in works:
        if isinstance(work, CallState):
            yield work
        elif isinstance(work, SubflowState) and not work.flow.agents:
            yield from _calls(work.flow.live)
        yield from _calls(work.members)


def check_agents(flow: Flow[Any], agents: Agents) -> None:
    """Refuse bindings that leave a role without an agent, or give it one that its states cannot ask.

    Raises:
        FlowError: It names the role, the state and what is bound.
    """
    where = f"flow {flow.name!r}"
    for role, states in roles_of(flow).items():
        here = f"{where}: role {role!r} of the state {states[0].name}"
        agent = agents.get(role)
        if agent is None:
            bound = f" (bound: {', '.join(agents)})" if agents else ""
            raise FlowError(f"{here}: expected an agent, got none{bound}; call bound({role}=agent)")
        if not isinstance(agent, Agent):
            raise FlowError(f"{here}: expected an Agent, got {shown(agent)}")
        for state in states:
            state.check_agent(f"{where}: {state.name}, role {role!r}", agent)


def check_names(flow: Flow[Any], names: Iterable[str]) -> None:
    """Refuse names that are not roles of the flow.

    Raises:
        FlowError: It names the roles of the flow.
    """
    roles = roles_of(flow)
    for name in names:
        if name not in roles:
            known = f"one of its roles ({', '.join(roles)})" if roles else "no role, since it has none"
            raise FlowError(f"flow {flow.name!r}: expected {known}, got {name!r}{guess(name, roles)}")
