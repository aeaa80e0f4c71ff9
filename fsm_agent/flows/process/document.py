"""The JSON of a run of a flow, which `FlowRun.snapshot` writes.

It holds the records of children, each in the format of its kind.  The flow tells which kind a child is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import field

from fsm_agent._internal.values import Value, differing, to_json
from fsm_agent.errors import OutcomeError, SnapshotError
from fsm_agent.flows.definition.states import ParallelState, SubflowState
from fsm_agent.flows.process.record import FlowRecord, MembersRecord

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow

FORMAT: Literal[1] = 1


class Document(Value, frozen=True):
    """A run of a flow in JSON."""

    format: Literal[1]
    flow: str
    record: msgspec.Raw


class FlowJson(FlowRecord, frozen=True, kw_only=True, eq=False):
    """A record of a flow whose data and children are JSON."""

    state: str
    data: msgspec.Raw
    children: Mapping[str, msgspec.Raw] = field(default_factory=dict)


class MembersJson(MembersRecord, frozen=True, kw_only=True, eq=False):
    """A record of members whose children are JSON."""

    state: str
    children: Mapping[str, msgspec.Raw] = field(default_factory=dict)


def document_of(flow: Flow[Any], record: FlowRecord) -> str:
    """Return the record of a run as JSON.

    Raises:
        SnapshotError: It holds a value that could not be read again.
    """
    try:
        return to_json(Document(FORMAT, flow.name, _flow_json(flow, record)))
    except (ValueError, OutcomeError) as error:
        raise SnapshotError(f"expected a run that can be read again, so it is not saved: {str(error)[:500]}") from None


def _flow_json(flow: Flow[Any], r: FlowRecord) -> msgspec.Raw:
    data = msgspec.Raw(flow.data_json(r.data).encode())
    children = {name: _child_json(flow.states[str(r.state)], child) for name, child in r.children.items()}
    fields = {**differing(r), "state": str(r.state), "data": data, "children": children}
    return msgspec.Raw(to_json(FlowJson(**fields)).encode())


def _child_json(state: Any, record: Any) -> msgspec.Raw:
    match state:
        case SubflowState():
            return _flow_json(state.flow, record)
        case ParallelState():
            known = {member.name: member for member in state.members}  # `each` has one state for all its members
            children = {
                name: _child_json(known.get(name, state.members[0]), child) for name, child in record.children.items()
            }
            fields = {**differing(record), "state": str(record.state), "children": children}
            return msgspec.Raw(to_json(MembersJson(**fields)).encode())
    return msgspec.Raw(to_json(record).encode())
