"""The agent call: its table, its record, and how replies are interpreted.

All decisions are made here.  The code is pure: it uses no clock, network or randomness.  Everything that waits is an
effect, which `fsm_agent.runtime` performs.
"""

import fsm_agent.prompts  # before its modules; see CONTRIBUTING.md
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import (
    AskApproval,
    AskSummary,
    Begin,
    CallModel,
    CheckOutput,
    Reconcile,
    Request,
    RunFunction,
    Sleep,
    StartFunction,
)
from fsm_agent.call.journal import Chain, Entry, Header, Journal, header_of
from fsm_agent.call.limits import Limits
from fsm_agent.call.machine import Explanation, RowVerdict, explain, explain_step, machine_of, row_name, take_row
from fsm_agent.call.outcomes import (
    Approved,
    Begun,
    Cancelled,
    Checked,
    CheckFailed,
    CheckRefused,
    Denied,
    Expired,
    FunctionFailed,
    Injected,
    Interrupted,
    ModelFailed,
    Modified,
    Outcome,
    Replied,
    Returned,
    RunAgain,
    Slept,
    Started,
    Stopped,
)
from fsm_agent.call.phases import PhaseDetector, PhaseHook, PhaseRule
from fsm_agent.call.prices import Price
from fsm_agent.call.process import ChildHandle, EffectValue, Process
from fsm_agent.call.record import CallRecord, Reason, RequestFailure, State
from fsm_agent.call.replaying import replay
from fsm_agent.call.result import CallFailed, CallResult, CallSuspended, RoundReport, rounds_of
from fsm_agent.call.snapshots import restore, snapshot
from fsm_agent.call.stop_conditions import (
    Stop,
    StopContext,
    any_of,
    max_cost_usd,
    max_function_calls,
    max_tokens,
    stop_on,
)
from fsm_agent.call.transition_table import ROWS

__all__ = [
    "ROWS",
    "AgentCall",
    "Approved",
    "AskApproval",
    "AskSummary",
    "Begin",
    "Begun",
    "CallFailed",
    "CallModel",
    "CallRecord",
    "CallResult",
    "CallSuspended",
    "Cancelled",
    "Chain",
    "CheckFailed",
    "CheckOutput",
    "CheckRefused",
    "Checked",
    "ChildHandle",
    "Denied",
    "EffectValue",
    "Entry",
    "Expired",
    "Explanation",
    "FunctionFailed",
    "Header",
    "Injected",
    "Interrupted",
    "Journal",
    "Limits",
    "ModelFailed",
    "Modified",
    "Outcome",
    "PhaseDetector",
    "PhaseHook",
    "PhaseRule",
    "Price",
    "Process",
    "Reason",
    "Reconcile",
    "Replied",
    "Request",
    "RequestFailure",
    "Returned",
    "RoundReport",
    "RowVerdict",
    "RunAgain",
    "RunFunction",
    "Sleep",
    "Slept",
    "StartFunction",
    "Started",
    "State",
    "Stop",
    "StopContext",
    "Stopped",
    "any_of",
    "explain",
    "explain_step",
    "header_of",
    "machine_of",
    "max_cost_usd",
    "max_function_calls",
    "max_tokens",
    "replay",
    "restore",
    "rounds_of",
    "row_name",
    "snapshot",
    "stop_on",
    "take_row",
]
