"""Flows: state machines of the user's own, whose states wait for agents, functions, people, time and other flows.

`definition` holds what is declared, `process` what decides while one runs.  A `Flow` drives its runs by the same two
loops, stores and journals as an `Agent` its calls.  No agent knows of flows.
"""

from fsm_agent.flows.definition.declaring import (
    call,
    call_chosen,
    call_whole,
    each,
    each_settled,
    end,
    execute,
    failure,
    gather,
    pause,
    race,
    subflow,
    wait,
)
from fsm_agent.flows.definition.kinds import Failure
from fsm_agent.flows.diagram import flow_diagram, run_diagram
from fsm_agent.flows.errors import FlowError, FlowFailed, FlowSuspended
from fsm_agent.flows.flow import Flow
from fsm_agent.flows.process.effects import AwaitAnswer
from fsm_agent.flows.process.flow_result import FlowResult
from fsm_agent.flows.process.flow_run import FlowRun
from fsm_agent.flows.process.record import FlowLimits
from fsm_agent.flows.process.snapshot import snapshot
from fsm_agent.flows.renaming import renamed

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
    "call",
    "call_chosen",
    "call_whole",
    "each",
    "each_settled",
    "end",
    "execute",
    "failure",
    "flow_diagram",
    "gather",
    "pause",
    "race",
    "renamed",
    "run_diagram",
    "snapshot",
    "subflow",
    "wait",
]
