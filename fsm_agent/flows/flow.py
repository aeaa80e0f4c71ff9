"""The `Flow` class: a state machine whose states wait for agents, functions, people, time and other flows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ParamSpec, TypeVar, overload

from typing_extensions import Unpack

from fsm_agent.agents.agent import Agent
from fsm_agent.agents.handoffs import check_policy
from fsm_agent.flows.as_function import function_of
from fsm_agent.flows.checks import (
    NO_AGENTS,
    Agents,
    check_agents,
    check_class_attributes,
    check_names,
)
from fsm_agent.flows.definition import FlowDefinition
from fsm_agent.flows.errors import FlowError
from fsm_agent.flows.run import FlowResult, FlowRun
from fsm_agent.flows.states import (
    D,
)
from fsm_agent.flows.verbs import FlowVerbs
from fsm_agent.foreign_names import KnownArguments
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import AgentPolicy
from fsm_agent.validation import require

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, eq=False, repr=False)
class Flow(KnownArguments, FlowVerbs[D, D, D, FlowResult[D]], FlowDefinition[D]):
    """A state machine that you define: a start and a table of rows, checked when the flow is made.

    The states read immutable data of one type, and the actions of the rows return new data.  A flow never changes.
    ``dataclasses.replace(flow, store="runs.db")`` makes a variant of it.

    Args:
        name: The name of the flow in runs, snapshots and diagrams.
        data: The type of the data: a frozen dataclass or pydantic model, a NamedTuple, or a plain type.
        start: The first state.
        rows: The table, tried from the top.  Without a row for it, a failure or the end of a state's time ends the flow
            in `Failed`, a cancellation in `Cancelled`, and the deadline in `Expired`.  `cancelled` and `expired` make
            rows for every state.
        limits: How many states a run may enter, and how long it may take.
        version: The version of the table and the data.  ``upgrades`` brings waiting runs of older versions up to it.
        upgrades: Functions by version.  The function for n turns the JSON record of a run of version n into a record of
            version n+1.  `renamed` and `reshaped` make these functions.  The functions of a list are applied in order.
        store: The store that keeps the runs; see `Agent`.
        approve: Approves functions of agents that have no approver; see `Agent`.
        answer: Answers the questions of `wait`, if the person is here.  It is called with an `AwaitAnswer` and returns
            the answer, or None to leave the question open.
        hooks: Objects whose methods are called with events; see `fsm_agent.agents.hooks`.
        agents: The agents by role, for states that name roles; see `bound`.
        environment: Options of `Environment`, such as ``clock``, ``threads`` and ``new_id``.

    Raises:
        FlowError: If the table is wrong; the message names the row or the state.

    Examples:
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return f"Hello, {name}."
        >>> hello = Flow("hello", str, start=greet, rows=[greet.done(end("said"), do=lambda name, text: text)])
        >>> hello.call("Ada").output
        'Hello, Ada.'
    """

    def __post_init__(self) -> None:
        check_class_attributes(self, Flow, [one.name for one in fields(self)])
        super().__post_init__()

    def make_result(self, run: FlowRun[D]) -> FlowResult[D]:
        """Return the result of a run of the flow."""
        return FlowResult(run)

    def bound(self, agents: Agents = NO_AGENTS, /, **by_role: Agent[Any, Any]) -> Flow[D]:
        """Return this flow with agents for its roles.  A role is a name in place of an agent.

        Write ``flow.bound(researcher=one, editor=another)``, or ``flow.bound(base.agents)`` for the sub-agents that the
        configuration of an `AgentBase` names.  An inner flow that is already bound keeps its agents.

        Args:
            agents: Agents by role.  Roles that no state names are allowed, because a function of `ask` may choose them.
            by_role: Agents by role, which take precedence over ``agents``.

        Raises:
            FlowError: If a role has no agent, if an agent has the wrong output type, or if the flow has no such role.
        """
        require("agents", agents, isinstance(agents, Mapping), "a mapping of roles to agents", FlowError)
        check_names(self, by_role)
        bound = {**self.agents, **agents, **by_role}
        check_agents(self, bound)
        return replace(self, agents=bound)

    @overload
    def as_function(
        self,
        name: str | None = ...,
        description: str | None = ...,
        *,
        start: Callable[P, D],
        returns: Callable[[D], R],
        **policy: Unpack[AgentPolicy],
    ) -> Function[P, R]: ...
    @overload
    def as_function(
        self,
        name: str | None = ...,
        description: str | None = ...,
        *,
        start: Callable[P, D],
        returns: None = ...,
        **policy: Unpack[AgentPolicy],
    ) -> Function[P, D]: ...
    @overload
    def as_function(
        self,
        name: str | None = ...,
        description: str | None = ...,
        *,
        start: None = ...,
        returns: Callable[[D], R],
        **policy: Unpack[AgentPolicy],
    ) -> Function[..., R]: ...
    @overload
    def as_function(
        self,
        name: str | None = ...,
        description: str | None = ...,
        *,
        start: None = ...,
        returns: None = ...,
        **policy: Unpack[AgentPolicy],
    ) -> Function[..., D]: ...
    def as_function(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        start: Callable[..., D] | None = None,
        returns: Callable[[D], Any] | None = None,
        **policy: Unpack[AgentPolicy],
    ) -> Function[..., Any]:
        """Return this flow as a function of an agent, as in ``Agent(…, functions=[letters.as_function(…)])``.

        The run is part of the agent call that asks for it, and shares its tokens, deps, budgets and store.  The call
        waits for everything that the run waits for, under a key like ``run:2.0/answer:review#3``, and yields the events
        of the run as `Inside`.  If the run fails, the model receives the reason.

        Args:
            name: The name of the function for the model; by default, the name of the flow.
            description: The description for the model; by default, the docstring of ``start`` or of the data type.
            start: A pure function that returns the first data; its parameters are the arguments.  By default, the
                fields of the data are the arguments.  If the data are not a JSON object, ``data`` is the only argument.
            returns: A pure function of the last data that returns the result for the model; by default, the data.
            policy: The options of `Function.of` that apply to a flow; ``timeout_s`` is the deadline of each run.

        Raises:
            UsageError: If the policy does not suit a flow, or if ``start`` is a coroutine function or takes a
                `Context`.
        """
        check_policy("flow", name or self.name, policy)
        return function_of(self, name, description, start, returns, {**policy})
