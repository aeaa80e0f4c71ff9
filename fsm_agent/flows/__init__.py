"""Flows: state machines of the user's own, whose states wait for agents, functions, people, time and other flows.

`states`, `declare`, `table` and `checks` are about what is declared; `record`, `process`, `branches` and `run` decide
while a flow runs, and are pure.  A `Flow` drives its runs by the same two loops, stores and journals as an `Agent` its
calls.  No agent knows of flows.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.flows.declare import any_state as any_state
    from fsm_agent.flows.declare import ask as ask
    from fsm_agent.flows.declare import cancelled as cancelled
    from fsm_agent.flows.declare import each as each
    from fsm_agent.flows.declare import end as end
    from fsm_agent.flows.declare import execute as execute
    from fsm_agent.flows.declare import expired as expired
    from fsm_agent.flows.declare import gather as gather
    from fsm_agent.flows.declare import pause as pause
    from fsm_agent.flows.declare import race as race
    from fsm_agent.flows.declare import subflow as subflow
    from fsm_agent.flows.declare import wait as wait
    from fsm_agent.flows.diagram import flow_diagram as flow_diagram
    from fsm_agent.flows.diagram import run_diagram as run_diagram
    from fsm_agent.flows.errors import FlowError as FlowError
    from fsm_agent.flows.errors import FlowFailed as FlowFailed
    from fsm_agent.flows.errors import FlowSuspended as FlowSuspended
    from fsm_agent.flows.flow import Flow as Flow
    from fsm_agent.flows.record import AwaitAnswer as AwaitAnswer
    from fsm_agent.flows.record import FlowLimits as FlowLimits
    from fsm_agent.flows.record import FlowResult as FlowResult
    from fsm_agent.flows.run import FlowRun as FlowRun
    from fsm_agent.flows.snapshot import renamed as renamed
    from fsm_agent.flows.snapshot import reshaped as reshaped
    from fsm_agent.flows.values import Failure as Failure
    from fsm_agent.flows.values import into as into
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "declare": "any_state ask cancelled each end execute expired gather pause race subflow wait",
            "diagram": "flow_diagram run_diagram",
            "errors": "FlowError FlowFailed FlowSuspended",
            "flow": "Flow",
            "record": "AwaitAnswer FlowLimits FlowResult",
            "run": "FlowRun",
            "snapshot": "renamed reshaped",
            "values": "Failure into",
        },
    )
