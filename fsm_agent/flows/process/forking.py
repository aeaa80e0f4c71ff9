"""Fork a run of a flow: a run of its own that continues from the same record, or from one with other data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fsm_agent._internal.values import to_json
from fsm_agent.call.snapshots import check_forkable, with_id
from fsm_agent.errors import UsageError
from fsm_agent.flows.definition.states import LiveState
from fsm_agent.flows.process.effects import Edited
from fsm_agent.flows.process.snapshot import restore

if TYPE_CHECKING:
    from fsm_agent.flows.process.flow_run import FlowRun


def forked(run: FlowRun[Any], data: Any, by: str) -> FlowRun[Any]:
    """Return a run of its own that continues from another, see `FlowRun.forked`."""
    edit = None if data is None else edit_of(run, data, by)
    check_forkable(run, f"{run} cannot be forked now")
    document = run.snapshot()
    if run.record.id:
        document = with_id(document, run.run_context.own_world.new_id())
    fork = restore(document, run.flow, run.run_context)
    if edit is not None:
        fork.advance("", edit.changed(at_s=fork.now_s()))
    return fork


def edit_of(run: FlowRun[Any], data: Any, by: str) -> Edited:
    """Return the outcome that gives a run other data, without a time.

    Raises:
        FlowError: The data are of another type.
        UsageError: The run is in no state that could be entered again.
    """
    flow = run.flow
    flow.record_of(data)  # refuses what is of another type
    if not isinstance(flow.states.get(run.state), LiveState):
        what, right = "one that has ended", "fork a step before its end"
        if not run.record.trace:
            what, right = "one that has not begun", f"begin another with {flow.name}.seed(…) or call(…)"
        raise UsageError(f"{run}: expected a run in a state that can take other data, got {what}; {right}")
    return Edited(data=msgspec.Raw(flow.data_json(data).encode()), by=by)


def edit_json(run: FlowRun[Any], data: Any, by: str) -> str:
    """Return `edit_of` as JSON."""
    return to_json(edit_of(run, data, by))
