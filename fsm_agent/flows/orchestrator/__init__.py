"""The orchestrator: a model makes a plan, a team of agents carries out its steps, and a table handles failures."""

from fsm_agent.flows.orchestrator.job import Attempt, Job, OrchestrationResult
from fsm_agent.flows.orchestrator.orchestrator import Orchestrator
from fsm_agent.flows.orchestrator.plan import (
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
    "Attempt",
    "Blueprint",
    "GiveUp",
    "Job",
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
