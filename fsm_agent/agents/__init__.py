"""Agents: classes, configuration, conversations, hooks and metrics.

This package neither makes decisions nor waits.  Agents start calls, and drivers run them.
"""

import fsm_agent.clients  # before its modules; see CONTRIBUTING.md
import fsm_agent.store  # before its modules; see CONTRIBUTING.md
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.agent_base import AgentBase, AsyncAgentBase, build_agent
from fsm_agent.agents.batch import TaskResult, TaskResults
from fsm_agent.agents.classification import Calibration, Classification
from fsm_agent.agents.config import AgentConfig
from fsm_agent.agents.conversation import Conversation
from fsm_agent.agents.handoffs import handoff
from fsm_agent.agents.hooks import Metrics
from fsm_agent.agents.run_handle import RunHandle
from fsm_agent.agents.stored_runs import AgentRuns

__all__ = [
    "Agent",
    "AgentBase",
    "AgentConfig",
    "AgentRuns",
    "AsyncAgentBase",
    "Calibration",
    "Classification",
    "Conversation",
    "Metrics",
    "RunHandle",
    "TaskResult",
    "TaskResults",
    "build_agent",
    "handoff",
]
