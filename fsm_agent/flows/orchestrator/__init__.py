"""The orchestrator: a model plans, a team of agents does the steps, and a table decides what follows a failure."""

from fsm_agent.flows.orchestrator.job import Entry
from fsm_agent.flows.orchestrator.orchestrator import Orchestrator
from fsm_agent.flows.orchestrator.result import OrchestrationResult
from fsm_agent.flows.orchestrator.strategy import (
    Accept,
    Blueprint,
    GiveUp,
    Loop,
    OrchestratorConfig,
    Reject,
    Remedy,
    Step,
    Strategy,
    Supply,
)

__all__ = [
    "Accept",
    "Blueprint",
    "Entry",
    "GiveUp",
    "Loop",
    "OrchestrationResult",
    "Orchestrator",
    "OrchestratorConfig",
    "Reject",
    "Remedy",
    "Step",
    "Strategy",
    "Supply",
]
