"""Flows: state machines of the user's own, whose states wait for agents, functions, people, time and other flows.

`definition` holds what is declared, `process` what decides while one runs.  A `Flow` drives its runs by the same two
loops, stores and journals as an `Agent` its calls.  No agent knows of flows.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.flows.definition.any_state import any_state as any_state
    from fsm_agent.flows.definition.declare import call as call
    from fsm_agent.flows.definition.declare import cancelled as cancelled
    from fsm_agent.flows.definition.declare import each as each
    from fsm_agent.flows.definition.declare import end as end
    from fsm_agent.flows.definition.declare import execute as execute
    from fsm_agent.flows.definition.declare import expired as expired
    from fsm_agent.flows.definition.declare import failure as failure
    from fsm_agent.flows.definition.declare import gather as gather
    from fsm_agent.flows.definition.declare import pause as pause
    from fsm_agent.flows.definition.declare import race as race
    from fsm_agent.flows.definition.declare import subflow as subflow
    from fsm_agent.flows.definition.declare import wait as wait
    from fsm_agent.flows.diagram import flow_diagram as flow_diagram
    from fsm_agent.flows.diagram import run_diagram as run_diagram
    from fsm_agent.flows.errors import FlowError as FlowError
    from fsm_agent.flows.errors import FlowFailed as FlowFailed
    from fsm_agent.flows.errors import FlowSuspended as FlowSuspended
    from fsm_agent.flows.flow import Flow as Flow
    from fsm_agent.flows.process.effects import AwaitAnswer as AwaitAnswer
    from fsm_agent.flows.process.flow_result import FlowResult as FlowResult
    from fsm_agent.flows.process.flow_run import FlowRun as FlowRun
    from fsm_agent.flows.process.record import FlowLimits as FlowLimits
    from fsm_agent.flows.renaming import renamed as renamed
    from fsm_agent.flows.reshaping import reshaped as reshaped
    from fsm_agent.flows.values import Failure as Failure
    from fsm_agent.flows.values import into as into
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "definition.declare": "call cancelled each end execute expired failure gather pause race subflow wait",
            "values": "Failure into",
            "definition.any_state": "any_state",
            "diagram": "flow_diagram run_diagram",
            "errors": "FlowError FlowFailed FlowSuspended",
            "flow": "Flow",
            "process.effects": "AwaitAnswer",
            "process.flow_result": "FlowResult",
            "process.flow_run": "FlowRun",
            "process.record": "FlowLimits",
            "renaming": "renamed",
            "reshaping": "reshaped",
        },
        former={
            "call_chosen": "call(choose, str)",
            "call_whole": "call(agent, whole=True)",
            "each_settled": "each(…, settled=True)",
            "snapshot": "a method, run.snapshot()",
        },
    )
