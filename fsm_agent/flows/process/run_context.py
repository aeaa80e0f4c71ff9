"""The context of a run of a flow: all that it has besides its record."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from fsm_agent.agents.agent import Agent
from fsm_agent.flows.definition.roles import NO_AGENTS, Agents
from fsm_agent.flows.definition.states import CallState
from fsm_agent.functions.deps import Made, check_deps, deps_for, is_maker
from fsm_agent.runtime.world import World

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow
    from fsm_agent.runtime.inner_calls import InnerCalls


class RunContext:
    """All that a run of a flow has besides its record. Flows and members inside it share it.

    Args:
        deps: What functions find in their `Context`, or a function that makes it.
        clients: Models of states, in place of those of their agents.
        answer: Who is asked the questions of `wait`: called with an `AwaitAnswer`, it returns the answer, or None to
            leave the question open.
        approve: Who is asked about the functions of agents that have no approver of their own.
        agents: The agents by role.
        own_world: The world of the flow itself.

    Attributes:
        has_approver: This flow, or a process around it, has an approver.
    """

    def __init__(
        self,
        deps: Any = None,
        clients: Mapping[Any, Any] | None = None,
        answer: Any = None,
        approve: Any = None,
        agents: Agents = NO_AGENTS,
        own_world: World | None = None,
    ) -> None:
        check_deps(deps)
        self.deps = deps.value if isinstance(deps, Made) else deps
        self._makes_deps = is_maker(deps)
        self.clients = dict(clients or {})
        self.answer = answer
        self.approve = approve
        self.has_approver = approve is not None
        self.agents = agents
        self.own_world: Any = own_world
        self._has_listener = False
        self._outermost = self
        self._worlds: dict[tuple[int, int], tuple[World, Any]] = {}  # with the agent, so that its id is not reused

    @property
    def has_listener(self) -> bool:
        """True if hooks are told of events, including those of children that have just ended."""
        return self._outermost._has_listener

    @has_listener.setter
    def has_listener(self, value: bool) -> None:
        self._outermost._has_listener = value

    def for_run(self, flow: Flow[Any], extra: Mapping[str, Any], by: str) -> RunContext:
        """Return the context of one run, with deps that are made for it."""
        if not self._makes_deps:
            return self
        made = copy(self)
        made._outermost, made._makes_deps = made, False
        made.deps = deps_for(self.deps, flow.name, extra, by)
        flow.check_deps(Made(made.deps))
        return made

    def join(self, around: InnerCalls) -> None:
        """Take the clock, and without an approver the approver, of a call whose function makes the run."""
        world = around.world
        if self.approve is None:
            self.approve, self.has_approver = world.approve, around.has_approver
        self.own_world = self.own_world.changed(clock=world.clock, approve=self.approve)

    def agent(self, state: CallState[Any, Any], data: Any) -> Agent[Any, Any]:
        """Return the agent that a state asks."""
        return state.agent_for(data, self.agents)

    def inside(self, flow: Flow[Any]) -> RunContext:
        """Return the context of a flow inside, which may have its own agents, `answer` and `approve`."""
        if not flow.agents and flow.approve is None and flow.answer is None:
            return self
        made = copy(self)
        made.agents = flow.agents or self.agents
        made.answer = self.answer if flow.answer is None else flow.answer
        if flow.approve is not None:
            made.approve, made.has_approver, made._worlds = flow.approve, True, {}
        return made

    def world(self, state: CallState[Any, Any], agent: Agent[Any, Any]) -> World:
        """Return the world for the call of an agent that a state asks."""
        client = self.clients.get(state.client_key(agent), self.clients.get(state)) if self.clients else None
        approve = agent.approve or self.approve
        if client is None and approve is agent.approve:
            return agent.own_world
        key = id(state), id(agent)
        if key not in self._worlds:
            made = agent.own_world if client is None else agent.world_with(client)
            self._worlds[key] = made.changed(approve=approve), agent
        return self._worlds[key][0]
