"""The agent call: its table, its record, and the interpretation of replies.

All decisions are made here, and are pure: no clock, no network, no randomness.  Everything that waits is an effect,
which `fsm_agent.runtime` performs.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.call.call import AgentCall as AgentCall
    from fsm_agent.call.composite import Parent as Parent
    from fsm_agent.call.effects import AskApproval as AskApproval
    from fsm_agent.call.effects import AskSummary as AskSummary
    from fsm_agent.call.effects import Begin as Begin
    from fsm_agent.call.effects import CallModel as CallModel
    from fsm_agent.call.effects import CheckOutput as CheckOutput
    from fsm_agent.call.effects import FindOut as FindOut
    from fsm_agent.call.effects import Request as Request
    from fsm_agent.call.effects import RunFunction as RunFunction
    from fsm_agent.call.effects import Sleep as Sleep
    from fsm_agent.call.effects import StartFunction as StartFunction
    from fsm_agent.call.interpret import Stop as Stop
    from fsm_agent.call.interpret import StopContext as StopContext
    from fsm_agent.call.journal import Chain as Chain
    from fsm_agent.call.journal import Entry as Entry
    from fsm_agent.call.journal import Header as Header
    from fsm_agent.call.journal import Journal as Journal
    from fsm_agent.call.journal import fold as fold
    from fsm_agent.call.journal import header_of as header_of
    from fsm_agent.call.limits import Limits as Limits
    from fsm_agent.call.machine import Explanation as Explanation
    from fsm_agent.call.machine import RowVerdict as RowVerdict
    from fsm_agent.call.machine import explain as explain
    from fsm_agent.call.machine import explain_step as explain_step
    from fsm_agent.call.machine import machine_of as machine_of
    from fsm_agent.call.machine import row_name as row_name
    from fsm_agent.call.machine import take_row as take_row
    from fsm_agent.call.outcomes import Approved as Approved
    from fsm_agent.call.outcomes import Begun as Begun
    from fsm_agent.call.outcomes import Cancelled as Cancelled
    from fsm_agent.call.outcomes import Checked as Checked
    from fsm_agent.call.outcomes import CheckFailed as CheckFailed
    from fsm_agent.call.outcomes import CheckRefused as CheckRefused
    from fsm_agent.call.outcomes import Denied as Denied
    from fsm_agent.call.outcomes import Expired as Expired
    from fsm_agent.call.outcomes import FunctionFailed as FunctionFailed
    from fsm_agent.call.outcomes import Injected as Injected
    from fsm_agent.call.outcomes import Interrupted as Interrupted
    from fsm_agent.call.outcomes import ModelFailed as ModelFailed
    from fsm_agent.call.outcomes import Modified as Modified
    from fsm_agent.call.outcomes import Outcome as Outcome
    from fsm_agent.call.outcomes import Replied as Replied
    from fsm_agent.call.outcomes import Returned as Returned
    from fsm_agent.call.outcomes import RunAgain as RunAgain
    from fsm_agent.call.outcomes import Slept as Slept
    from fsm_agent.call.outcomes import Started as Started
    from fsm_agent.call.outcomes import Stopped as Stopped
    from fsm_agent.call.phases import PhaseDetector as PhaseDetector
    from fsm_agent.call.phases import PhaseHook as PhaseHook
    from fsm_agent.call.phases import PhaseRule as PhaseRule
    from fsm_agent.call.prices import Price as Price
    from fsm_agent.call.process import AnyEffect as AnyEffect
    from fsm_agent.call.process import EffectValue as EffectValue
    from fsm_agent.call.process import Inner as Inner
    from fsm_agent.call.process import Process as Process
    from fsm_agent.call.record import CallRecord as CallRecord
    from fsm_agent.call.record import Reason as Reason
    from fsm_agent.call.record import RequestFailure as RequestFailure
    from fsm_agent.call.record import State as State
    from fsm_agent.call.result import CallResult as CallResult
    from fsm_agent.call.rounds import RoundReport as RoundReport
    from fsm_agent.call.rounds import rounds_of as rounds_of
    from fsm_agent.call.snapshots import restore as restore
    from fsm_agent.call.snapshots import snapshot as snapshot
    from fsm_agent.call.spans import spans_of as spans_of
    from fsm_agent.call.stopping import any_of as any_of
    from fsm_agent.call.stopping import max_cost_usd as max_cost_usd
    from fsm_agent.call.stopping import max_function_calls as max_function_calls
    from fsm_agent.call.stopping import max_tokens as max_tokens
    from fsm_agent.call.stopping import stop_on as stop_on
    from fsm_agent.call.table import ROWS as ROWS
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "call": "AgentCall",
            "journal": "Chain Entry Header Journal fold header_of",
            "composite": "Parent",
            "process": "AnyEffect EffectValue Inner Process",
            "machine": "Explanation RowVerdict explain explain_step machine_of row_name take_row",
            "result": "CallResult",
            "effects": (
                "AskApproval AskSummary Begin CallModel CheckOutput FindOut Request RunFunction Sleep StartFunction"
            ),
            "interpret": "Stop StopContext",
            "limits": "Limits",
            "outcomes": (
                "Approved Begun Cancelled CheckFailed CheckRefused Checked Denied Expired FunctionFailed Injected "
                "Interrupted ModelFailed Modified Outcome Replied Returned RunAgain Slept Started Stopped"
            ),
            "prices": "Price",
            "record": "CallRecord Reason RequestFailure State",
            "phases": "PhaseDetector PhaseHook PhaseRule",
            "rounds": "RoundReport rounds_of",
            "spans": "spans_of",
            "snapshots": "restore snapshot",
            "stopping": "any_of max_cost_usd max_function_calls max_tokens stop_on",
            "table": "ROWS",
        },
    )
