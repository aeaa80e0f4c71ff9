"""Which tools need a store: those in which a second answer to one question could do something twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fsm_agent.flows.as_function import FlowDelegate
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.states import CallState, FunctionState, LiveState, SubflowState
from fsm_agent.functions.function import Function
from fsm_agent.functions.toolset import Toolset


class Needs(NamedTuple):
    """What is known of a tool and of everything inside it."""

    reason: str = ""  # why it needs a store; empty: nothing that is known needs one
    is_open: bool = False  # some of its functions are known in a call alone, as those of an MCP server


def needs_of(function: Function) -> Needs:
    """Return whether a tool needs a store."""
    reason, is_open = "", False
    for item in _inside(function):
        if isinstance(item, Function):
            reason = reason or _reason(item, function)
        else:
            is_open = True
    return Needs(reason, is_open)


def problem_of(function: Function, *, has_store: bool) -> str:
    """Return why a function cannot be served, and the remedy; empty: it can."""
    tool = f"the tool {function.name!r}"
    if function.depends_on:
        needed = ", ".join(function.depends_on)
        return f"{tool} depends on {needed}, but each call of a tool is a call of its own; pass depends_on=()"
    if function.delegate is not None and function.delegate.is_handoff:
        return f"{tool} takes the conversation over, but a server has no conversation; serve the agent itself"
    reason = "" if has_store else needs_of(function).reason
    return f"{tool} needs a store, because {reason}; pass store='runs.db'" if reason else ""


def _reason(item: Function, tool: Function) -> str:
    where = "it" if item is tool else f"its function {item.name!r}"
    if item.needs_approval not in (None, False):
        return f"{where} needs approval"
    return f"{where} must not run twice" if item.once else ""


def _inside(function: Function) -> Iterator[Any]:
    """Yield a function and all functions inside it; None stands for functions that are known in a call alone."""
    seen = set[int]()
    left: list[Any] = [function]
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Toolset):
            left += item.functions
        elif isinstance(item, Function):
            yield item
            if isinstance(item.delegate, FlowDelegate):
                left += _of_flow(item.delegate.flow)
            elif item.delegate is not None:
                left += [offered for agent in item.delegate.agents for offered in _of_agent(agent)]
        else:
            yield None


def _of_agent(agent: Any) -> Iterable[Any]:
    """Return the functions of an agent and of its prompt, and the sources of others."""
    own: tuple[Any, ...] = () if agent.prompt.is_borrowed else agent.prompt.offers
    return (*own, *agent.functions)


def _of_flow(flow: Flow[Any], agents: Any = None) -> Iterator[Any]:
    agents = flow.agents or agents or {}
    works: list[LiveState[Any, Any]] = list(flow.live)
    while works:
        work = works.pop()
        works += work.members
        if isinstance(work, FunctionState):
            yield work.function
        elif isinstance(work, SubflowState):
            yield from _of_flow(work.flow, agents)
        elif isinstance(work, CallState):
            agent = work.agent_in(agents)
            yield from (None,) if agent is None else _of_agent(agent)
