"""The orchestrator: a model plans, a team of agents does the steps, and a table decides what to do after a failure."""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.flows.orchestrator.job import Attempt as Attempt
    from fsm_agent.flows.orchestrator.job import Job as Job
    from fsm_agent.flows.orchestrator.job import OrchestrationResult as OrchestrationResult
    from fsm_agent.flows.orchestrator.orchestrator import Orchestrator as Orchestrator
    from fsm_agent.flows.orchestrator.plan import Accept as Accept
    from fsm_agent.flows.orchestrator.plan import Blueprint as Blueprint
    from fsm_agent.flows.orchestrator.plan import GiveUp as GiveUp
    from fsm_agent.flows.orchestrator.plan import Loop as Loop
    from fsm_agent.flows.orchestrator.plan import OrchestratorConfig as OrchestratorConfig
    from fsm_agent.flows.orchestrator.plan import Reject as Reject
    from fsm_agent.flows.orchestrator.plan import Remedy as Remedy
    from fsm_agent.flows.orchestrator.plan import Step as Step
    from fsm_agent.flows.orchestrator.plan import Strategy as Strategy
    from fsm_agent.flows.orchestrator.plan import Supply as Supply
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "job": "Attempt Job OrchestrationResult",
            "orchestrator": "Orchestrator",
            "plan": "Accept Blueprint GiveUp Loop OrchestratorConfig Reject Remedy Step Strategy Supply",
        },
    )
