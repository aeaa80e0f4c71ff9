"""Flows: state machines of the user's own, whose states wait for agents, functions, people, time and other flows.

`states`, `declare`, `table`, `checks` and `definition` concern the declaration of a flow.  `record`, `process`,
`members` and `run` decide while a flow runs, and are pure.  A `Flow` drives its runs with the two loops, the stores and
the journals with which an `Agent` drives its calls.  Agents do not depend on flows.
"""

from fsm_agent.flows.declare import ask, each, end, execute, gather, pause, race, subflow, wait
from fsm_agent.flows.diagram import flow_diagram, run_diagram
from fsm_agent.flows.errors import FlowError
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.record import AwaitAnswer, FlowLimits
from fsm_agent.flows.run import FlowFailed, FlowResult, FlowRun, FlowSuspended
from fsm_agent.flows.snapshot import renamed, reshaped
from fsm_agent.flows.table import any_state, cancelled, expired
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
