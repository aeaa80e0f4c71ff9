"""The agent call: its table, its record, and the interpretation of replies.

All decisions are made here, and are pure: no clock, no network, no randomness.  Everything that waits is an effect,
which `fsm_agent.runtime` performs.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.lifecycle.call import AgentCall as AgentCall
    from fsm_agent.lifecycle.call_result import CallResult as CallResult
    from fsm_agent.lifecycle.effects import AskApproval as AskApproval
    from fsm_agent.lifecycle.effects import AskSummary as AskSummary
    from fsm_agent.lifecycle.effects import Begin as Begin
    from fsm_agent.lifecycle.effects import CallModel as CallModel
    from fsm_agent.lifecycle.effects import CheckOutput as CheckOutput
    from fsm_agent.lifecycle.effects import FindOut as FindOut
    from fsm_agent.lifecycle.effects import Request as Request
    from fsm_agent.lifecycle.effects import RunFunction as RunFunction
    from fsm_agent.lifecycle.effects import Settings as Settings
    from fsm_agent.lifecycle.effects import Sleep as Sleep
    from fsm_agent.lifecycle.effects import StartFunction as StartFunction
    from fsm_agent.lifecycle.interpret import Stop as Stop
    from fsm_agent.lifecycle.interpret import StopContext as StopContext
    from fsm_agent.lifecycle.limits import Limits as Limits
    from fsm_agent.lifecycle.outcomes import Approved as Approved
    from fsm_agent.lifecycle.outcomes import Begun as Begun
    from fsm_agent.lifecycle.outcomes import Cancelled as Cancelled
    from fsm_agent.lifecycle.outcomes import Checked as Checked
    from fsm_agent.lifecycle.outcomes import CheckFailed as CheckFailed
    from fsm_agent.lifecycle.outcomes import CheckRefused as CheckRefused
    from fsm_agent.lifecycle.outcomes import Denied as Denied
    from fsm_agent.lifecycle.outcomes import Expired as Expired
    from fsm_agent.lifecycle.outcomes import FunctionFailed as FunctionFailed
    from fsm_agent.lifecycle.outcomes import Injected as Injected
    from fsm_agent.lifecycle.outcomes import Interrupted as Interrupted
    from fsm_agent.lifecycle.outcomes import ModelFailed as ModelFailed
    from fsm_agent.lifecycle.outcomes import Modified as Modified
    from fsm_agent.lifecycle.outcomes import Outcome as Outcome
    from fsm_agent.lifecycle.outcomes import Replied as Replied
    from fsm_agent.lifecycle.outcomes import Returned as Returned
    from fsm_agent.lifecycle.outcomes import RunAgain as RunAgain
    from fsm_agent.lifecycle.outcomes import Slept as Slept
    from fsm_agent.lifecycle.outcomes import Started as Started
    from fsm_agent.lifecycle.outcomes import Stopped as Stopped
    from fsm_agent.lifecycle.prices import Price as Price
    from fsm_agent.lifecycle.record import CallRecord as CallRecord
    from fsm_agent.lifecycle.record import Reason as Reason
    from fsm_agent.lifecycle.record import RequestFailure as RequestFailure
    from fsm_agent.lifecycle.record import State as State
    from fsm_agent.lifecycle.reports.phases import PhaseDetector as PhaseDetector
    from fsm_agent.lifecycle.reports.phases import PhaseHook as PhaseHook
    from fsm_agent.lifecycle.reports.phases import PhaseRule as PhaseRule
    from fsm_agent.lifecycle.reports.rounds import RoundReport as RoundReport
    from fsm_agent.lifecycle.reports.rounds import rounds_of as rounds_of
    from fsm_agent.lifecycle.reports.spans import spans_of as spans_of
    from fsm_agent.lifecycle.snapshots import restore as restore
    from fsm_agent.lifecycle.snapshots import snapshot as snapshot
    from fsm_agent.lifecycle.stopping import any_of as any_of
    from fsm_agent.lifecycle.stopping import max_cost_usd as max_cost_usd
    from fsm_agent.lifecycle.stopping import max_function_calls as max_function_calls
    from fsm_agent.lifecycle.stopping import max_tokens as max_tokens
    from fsm_agent.lifecycle.stopping import stop_on as stop_on
    from fsm_agent.lifecycle.table import ROWS as ROWS
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "call": "AgentCall",
            "call_result": "CallResult",
            "effects": (
                "AskApproval AskSummary Begin CallModel CheckOutput FindOut Request RunFunction Settings Sleep "
                "StartFunction"
            ),
            "interpret": "Stop StopContext",
            "limits": "Limits",
            "outcomes": (
                "Approved Begun Cancelled CheckFailed CheckRefused Checked Denied Expired FunctionFailed Injected "
                "Interrupted ModelFailed Modified Outcome Replied Returned RunAgain Slept Started Stopped"
            ),
            "prices": "Price",
            "record": "CallRecord Reason RequestFailure State",
            "reports.phases": "PhaseDetector PhaseHook PhaseRule",
            "reports.rounds": "RoundReport rounds_of",
            "reports.spans": "spans_of",
            "snapshots": "restore snapshot",
            "stopping": "any_of max_cost_usd max_function_calls max_tokens stop_on",
            "table": "ROWS",
        },
    )
