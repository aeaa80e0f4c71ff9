"""Agents as users write them: classes, configuration, hooks and metrics.

This package neither decides nor waits: agents seed calls, and drivers advance them.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.agents.agent import Agent as Agent
    from fsm_agent.agents.agent_base import AgentBase as AgentBase
    from fsm_agent.agents.agent_base import AsyncAgentBase as AsyncAgentBase
    from fsm_agent.agents.batch import TaskResult as TaskResult
    from fsm_agent.agents.batch import TaskResults as TaskResults
    from fsm_agent.agents.classification import Calibration as Calibration
    from fsm_agent.agents.classification import Classification as Classification
    from fsm_agent.agents.config import AgentConfig as AgentConfig
    from fsm_agent.agents.conversation import Conversation as Conversation
    from fsm_agent.agents.delegation.handoffs import handoff as handoff
    from fsm_agent.agents.metrics import Metrics as Metrics
    from fsm_agent.agents.registry import build_agent as build_agent
    from fsm_agent.agents.run_handle import RunHandle as RunHandle
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "agent": "Agent",
            "agent_base": "AgentBase AsyncAgentBase",
            "classification": "Calibration Classification",
            "config": "AgentConfig",
            "conversation": "Conversation",
            "delegation.handoffs": "handoff",
            "batch": "TaskResult TaskResults",
            "metrics": "Metrics",
            "registry": "build_agent",
            "run_handle": "RunHandle",
        },
    )
