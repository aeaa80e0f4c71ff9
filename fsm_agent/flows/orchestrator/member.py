"""Makes agents of the members of a team: agents, functions, flows, objects with an expertise."""

from __future__ import annotations

import inspect
import json
from typing import Any

from fsm_agent.agents.agent import Agent
from fsm_agent.agents.agent_base import AgentBase
from fsm_agent.agents.delegation.program import Program, agent_of
from fsm_agent.agents.runnable import Runnable
from fsm_agent.call.effects import Request
from fsm_agent.call.limits import Limits
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.errors import ProviderError, UsageError
from fsm_agent.flows.errors import FlowError
from fsm_agent.functions.function import Function
from fsm_agent.messages.message import FunctionCall, FunctionResult
from fsm_agent.messages.reply import Reply
from fsm_agent.validation import shown

_RIGHT = (
    "an Agent, an AgentBase, a function of the task, a Function of one argument (of a flow, flow.as_function(…)),"
    " or an object with an expertise and an execute(task)"
)


def agent_and_skill(member: Any) -> tuple[Agent[Any, Any], str]:
    """Return the agent that does the steps of a member, and what the member can do.

    Raises:
        FlowError: It cannot do a step.
    """
    try:
        if isinstance(member, AgentBase):
            return member, type(member).description or type(member).expertise
        if isinstance(member, Agent):
            return member, member.system if isinstance(member.system, str) else ""
        if isinstance(member, Runnable):  # a flow, or another orchestrator
            member = member.as_function()  # type: ignore[attr-defined]
        if isinstance(member, Function):
            return _calling(member), member.description
        if inspect.isroutine(member):
            return agent_of(member.__name__, member, str), inspect.getdoc(member) or ""
        execute = getattr(member, "execute", None)
        if not isinstance(member, type) and callable(execute) and hasattr(member, "expertise"):
            name = getattr(member, "name", type(member).__name__)
            expertise = member.expertise() if callable(member.expertise) else member.expertise
            return agent_of(name, execute, getattr(member, "output", str)), str(expertise)
    except UsageError as error:
        raise FlowError(f"agents: expected members that can do a step, got {shown(member)}: {error}") from error
    raise FlowError(f"agents: expected {_RIGHT}, got {shown(member)}")


def models_of(member: Any) -> list[Any]:
    """Return the models of a member's agents; a member that is plain code has none."""
    agents = [member, *getattr(member, "agents", {}).values()] if isinstance(member, Agent) else []
    return [agent.model for agent in agents if not isinstance(agent.model, Program)]


def _calling(function: Function) -> Agent[Any, Any]:
    """Return an agent that calls a function with its task, and answers with the result.

    Raises:
        FlowError: The function takes more than one text, or none.
    """
    properties = function.parameters.get("properties", {})
    needed = function.parameters.get("required", [])
    name = next(iter(needed or properties), "")
    if len(needed) > 1 or properties.get(name, {}).get("type") != "string":
        raise FlowError(f"agents: expected functions of one text, got {function.name!r}, which needs other arguments")
    client = _Caller(function.name, name)
    return Agent(client, name=function.name, functions=[function], limits=Limits(recalls=0, parse_retries=0))


class _Caller(SyncVerbs):
    """A client that asks for one function, with the task as its argument, and answers with the result."""

    takes_images = False
    reports_logprobs = False

    def __init__(self, name: str, argument: str) -> None:
        self.name = f"function:{name}"
        self._function, self._argument = name, argument

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the request for the function, or its result.

        Raises:
            ProviderError: The function has failed.
        """
        message = request.messages[-1]
        results = [part for part in message.parts if isinstance(part, FunctionResult)]
        if not results:
            arguments = json.dumps({self._argument: message.text})
            return Reply.of(FunctionCall(name=self._function, arguments_json=arguments))
        if results[0].is_error:
            raise ProviderError(f"the function {self._function!r} failed: {results[0].text}", retryable=False)
        return Reply.of(results[0].text)
