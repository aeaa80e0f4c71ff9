"""Flows are state machines that you define.  Their states wait for agents, functions, people, time and other flows.

`states`, `declare`, `transition_table`, `checks` and `definition` declare a flow.  The pure modules `record`,
`process`, `parallel` and `run` decide what a running flow does next.  A `Flow` drives its runs with the same loops,
stores and journals as an `Agent`.  Agents do not depend on flows.
"""

import fsm_agent.agents  # before its modules; see CONTRIBUTING.md
import fsm_agent.diagrams  # before its modules; see CONTRIBUTING.md
from fsm_agent.errors import FlowError
from fsm_agent.flows.declare import ask, each, end, execute, gather, pause, race, subflow, wait
from fsm_agent.flows.diagram import flow_diagram, run_diagram
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.record import AwaitAnswer, FlowLimits
from fsm_agent.flows.run import FlowFailed, FlowResult, FlowRun, FlowSuspended
from fsm_agent.flows.snapshot import renamed, reshaped
from fsm_agent.flows.stored_runs import FlowRuns
from fsm_agent.flows.transition_table import any_state, cancelled, expired
from fsm_agent.flows.values import Failure, into

__all__ = [
    "AwaitAnswer",
    "Failure",
    "Flow",
    "FlowError",
    "FlowFailed",
    "FlowLimits",
    "FlowResult",
    "FlowRun",
    "FlowRuns",
    "FlowSuspended",
    "any_state",
    "ask",
    "cancelled",
    "each",
    "end",
    "execute",
    "expired",
    "flow_diagram",
    "gather",
    "into",
    "pause",
    "race",
    "renamed",
    "reshaped",
    "run_diagram",
    "subflow",
    "wait",
]
