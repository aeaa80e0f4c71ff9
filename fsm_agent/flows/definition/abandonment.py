"""States that may be abandoned while they run, and the check that keeps ``once`` functions out of them.

A state with ``within_s`` is abandoned when its time is over, and so are the members of a state for which others were
enough.  A function that is running then has no one to report to.  If it must not run twice, its outcome would stay in
doubt for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fsm_agent.agents.agent import Agent
from fsm_agent.flows.definition.states import CallState, FunctionState, LiveState, SubflowState, may_be_abandoned
from fsm_agent.flows.errors import FlowError
from fsm_agent.functions.function import Function
from fsm_agent.functions.toolset import Toolset

if TYPE_CHECKING:
    from fsm_agent.flows.definition.roles import Agents


def check_abandonment(here: str, state: LiveState[Any, Any], agents: Agents) -> None:
    """Refuse a state that may be abandoned while a function runs that must not run twice; agents may come later.

    Raises:
        FlowError: It names the function.
    """
    for what in _once_in([state], agents) if may_be_abandoned(state) else ():
        raise refused(here, what)
    if agents and isinstance(state, SubflowState) and not state.flow.agents:
        for inner in state.flow.live:
            check_abandonment(f"{here}: {inner.name}", inner, agents)


def refused(here: str, what: str, right: str = "give it a state of its own, without a time limit") -> FlowError:
    """Return the error for a function that must not run twice, in a state that may be abandoned."""
    lost = "its outcome is lost if the state is left while it runs"
    return FlowError(f"{here}: expected functions that may run twice, got {what}: {lost}; {right}")


def once_of(functions: Iterable[Any], seen: Sequence[Agent[Any, Any]] = (), *, is_late: bool = False) -> Iterator[str]:
    """Yield the functions that must not run twice, those of agents and flows among them included.

    Args:
        functions: The functions; sources other than toolsets are skipped, because they are asked anew for each call.
        seen: Agents to skip, because their functions are being visited already.
        is_late: Every agent that a function names exists by now.
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


def _once_in(works: Iterable[LiveState[Any, Any]], agents: Agents) -> Iterator[str]:
    for work in works:
        if isinstance(work, FunctionState) and work.function.once:
            yield work.name
        elif isinstance(work, CallState) and (agent := work.agent_in(agents)) is not None:
            yield from [f"{name} of its agent {agent.name}" for name in once_of(agent.functions, (agent,))]
        elif isinstance(work, SubflowState):
            yield from _once_in(work.flow.live, work.flow.agents or agents)
        yield from _once_in(work.members, agents)
