"""Restore a run of a flow from its snapshot, in another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fsm_agent._internal.lazy_import import pydantic, pydantic_core
from fsm_agent._internal.values import differing, from_json, to_json
from fsm_agent.call.invariants import inconsistency
from fsm_agent.call.record import CallRecord
from fsm_agent.call.signing import verified
from fsm_agent.errors import OutcomeError, SnapshotError
from fsm_agent.flows.data_json import describe_json_error
from fsm_agent.flows.definition.states import CallState, End, LiveState, ParallelState, SubflowState
from fsm_agent.flows.process.document import FORMAT, Document, FlowJson, MembersJson
from fsm_agent.flows.process.flow_run import FlowRun
from fsm_agent.flows.process.record import FlowRecord, MembersRecord, Stage, step_name
from fsm_agent.flows.process.run_context import RunContext
from fsm_agent.flows.values import case_name

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow


class _Position(msgspec.Struct):
    version: int = 1
    state: str = ""
    steps: int = 0


def restore(
    document: str | bytes,
    flow: Flow[Any],
    run_context: RunContext | None = None,
    *,
    signing_key: str | bytes | None = None,
) -> FlowRun[Any]:
    """Return the run that `FlowRun.snapshot` wrote, ready to be driven on.

    Trust a document only as far as you trust code; see `fsm_agent.restore`.

    Args:
        document: The JSON.
        flow: The flow.
        run_context: What the run has besides its record.
        signing_key: Of `FlowRun.snapshot`.

    Raises:
        SnapshotError: The document is damaged, of another flow or a newer version, or its state no longer exists.
    """
    try:
        read: Document = from_json(verified(document, signing_key), Document)
    except ValueError as error:
        raise SnapshotError(f"expected the snapshot of a flow, of format {FORMAT}: {error}") from None
    if read.flow != flow.name:
        raise SnapshotError(f"snapshot: expected one of the flow {flow.name!r}, got one of {read.flow!r}")
    run: FlowRun[Any] = FlowRun(flow, _flow_record(flow, bytes(read.record)), run_context)
    try:
        run.record = run.closed_again()
    except OutcomeError as error:
        raise SnapshotError(f"the snapshot contradicts itself: {error}") from None
    return run


def _flow_record(flow: Flow[Any], document: bytes) -> FlowRecord:
    where = f"snapshot of the flow {flow.name!r}"
    try:
        document = _upgraded(flow, document)
        r: FlowJson = from_json(document, FlowJson)
        data = _data(flow, bytes(r.data), where)
    except SnapshotError:
        raise
    except (ValueError, TypeError, LookupError) as error:
        raise SnapshotError(f"{where} cannot be read: {describe_json_error(error)}") from None
    stage: Any = flow.state_enum
    if r.state not in stage.__members__:
        known = ", ".join(flow.states)
        raise SnapshotError(
            f"{where}: expected a state that the flow has ({known}), got {r.state!r}; if it has a new name, raise the"
            f" version of the flow and add renamed({r.state}=…) to its upgrades"
        )
    record = FlowRecord(**{**differing(r), "state": stage[r.state], "data": data, "children": {}})
    _check(flow, record, where, [*r.children])
    _check_inbox(flow, record, where)
    state: Any = flow.states.get(r.state)
    children = {name: _child_record(state, data, bytes(raw), where) for name, raw in r.children.items()}
    return record.changed(children=children)


def _data(flow: Flow[Any], document: bytes, where: str) -> Any:
    """Return the data in a record.

    Raises:
        SnapshotError: They lack a field, or have one that would be lost.
    """
    names = from_json(document, dict[str, msgspec.Raw]).keys() if document.startswith(b"{") else set[str]()
    known = getattr(flow.data, "__dataclass_fields__", None) or getattr(flow.data, "model_fields", {})
    try:
        data = flow.adapter.validate_json(document)
    except pydantic.ValidationError as error:
        problem = describe_json_error(error)
        if lacking := [
            item["loc"][0] for item in error.errors() if item["type"] == "missing" and len(item["loc"]) == 1
        ]:
            problem += f"; if it is new, add reshaped(add={{{lacking[0]!r}: …}}), or rename=…, to the upgrades"
        raise SnapshotError(f"{where} cannot be read: {problem}") from None
    if not names <= known.keys():  # aliases, say, unless they are no fields at all
        kept = from_json(flow.data_json(data), dict[str, msgspec.Raw])
        if lost := [name for name in names if name not in kept]:
            what = f"expected the fields of {case_name(flow.data)} in its data, got {lost[0]!r} as well"
            right = f"raise the version of the flow and add reshaped(drop=[{lost[0]!r}]), or rename=…, to its upgrades"
            raise SnapshotError(f"{where}: {what}; {right}")
    return data


def _check(flow: Flow[Any], r: FlowRecord, where: str, children: list[str]) -> None:
    """Refuse a record that contradicts itself."""
    state = flow.states.get(str(r.state))
    problem = ""
    if isinstance(state, End) != (r.ending is not None):
        problem = f"it stands in {r.state}, and has {'an' if r.ending else 'no'} ending"
    elif r.trace and r.trace[-1].to != r.state:
        problem = (
            f"it stands in {r.state}, and its trace ends in {r.trace[-1].to}{_hint(flow, r.trace[-1].to, r.state)}"
        )
    elif (works := [*children, *r.once]) and works != [r.here]:
        hint = _hint(flow, works[0].partition("#")[0], r.state) if len(works) == 1 else ""
        problem = f"it stands in {r.here}, and waits for {works}{hint}"
    elif isinstance(state, LiveState) and not works:
        problem = f"it stands in {r.here}, and waits for nothing"
    elif works and bool(children) != isinstance(state, CallState | SubflowState | ParallelState):
        problem = f"{r.state} is another kind of state by now"
    if problem:
        raise SnapshotError(f"{where} contradicts itself: {problem}")


def _check_inbox(flow: Flow[Any], r: FlowRecord, where: str) -> None:
    """Refuse answers that came early and that the flow cannot take any more."""
    for name, answers in r.inbox.items():
        if (state := flow.early.get(name)) is None:
            what = f"expected {name} to take its early answers ({len(answers)}), got no such state with early=True"
            raise SnapshotError(f"{where}: {what}; declare it, or drop them in an upgrade")
        if name == str(r.state):
            raise SnapshotError(f"{where} contradicts itself: it waits for {name}, and keeps an early answer for it")
        for answer in answers:
            try:
                state.answer_types.load(answer.text)
            except OutcomeError as error:
                raise SnapshotError(f"{where} keeps an early answer that cannot be read: {error}") from None


def _hint(flow: Flow[Any], old: str, new: Any) -> str:
    """Return a hint if an upgrade has renamed a state in one place only."""
    if old in flow.states:
        return ""
    return f", which the flow has not: as only renamed({old}={str(new)!r}) in upgrades renames a state everywhere"


def _child_record(state: Any, data: Any, raw: bytes, where: str) -> Any:
    match state:
        case SubflowState():
            return _flow_record(state.flow, raw)
        case ParallelState():
            return _members_record(state, data, raw, where)
    try:
        record: CallRecord = from_json(raw, CallRecord)
    except ValueError as error:
        raise SnapshotError(f"{where}: expected the record of an agent call: {str(error)[:500]}") from None
    if problem := inconsistency(record):
        raise SnapshotError(f"{where} contradicts itself: {problem}")
    return record


def _members_record(state: ParallelState[Any, Any], data: Any, raw: bytes, where: str) -> MembersRecord:
    try:
        r: MembersJson = from_json(raw, MembersJson)
        stage = Stage(r.state)
    except ValueError as error:
        raise SnapshotError(f"{where}: expected the members of {state.name}: {str(error)[:500]}") from None
    members = {name: (member, item) for name, member, item in state.members_of(data)}
    if unknown := [name for name in (*r.children, *r.once, *r.settled) if name not in members]:
        known = ", ".join([*members][:10])
        raise SnapshotError(f"{where}: expected members of {state.name} ({known}), got {unknown[0]!r}")
    begun = [*r.children, *r.once, *r.settled]
    if r.ending is None and len(begun) != r.begun:
        raise SnapshotError(f"{where}: expected the {r.begun} members of {state.name} that began, got {len(begun)}")
    there = {*begun}
    if r.ending is None and (new := [name for name in [*members][: r.begun] if name not in there]):
        what = f"expected the {r.begun} members of {state.name} that began, got the new {new[0]!r} among them"
        raise SnapshotError(f"{where}: {what}; add new ones after the others")
    children = {name: _child_record(*members[name], bytes(raw), where) for name, raw in r.children.items()}
    lost = 0 if state.is_lenient else sum([settled.failure is not None for settled in r.settled.values()])
    if r.ending is None and len(members) - lost < state.needed(len(members)):
        what = f"expected enough={state.enough} to be in reach, got {lost} failures of {len(members)} members"
        raise SnapshotError(f"{where}: {state.name}: {what}")
    return MembersRecord(**{**differing(r), "state": stage, "lost": lost, "children": children})


def _upgraded(flow: Flow[Any], document: bytes) -> bytes:
    """Return the JSON record of a run, upgraded to the flow's version.

    Raises:
        SnapshotError: It is newer, or a function to upgrade it is missing.
    """
    before: _Position = from_json(document, _Position)
    version = before.version
    if version == flow.version:
        return document
    where = f"snapshot of the flow {flow.name!r}"
    if version > flow.version:
        raise SnapshotError(f"{where}: expected version {flow.version} or lower, got {version}")
    data = pydantic_core.from_json(document)
    while version < flow.version:
        upgrade = flow.upgrades.get(version)
        if upgrade is None:
            right = f"pass upgrades={{{version}: …}}, such as renamed(…) or reshaped(…)"
            what = f"expected an upgrade of version {version}, got none"
            raise SnapshotError(f"{where}, version {before.version}: {what}; {right}")
        for step in upgrade if isinstance(upgrade, Sequence) else [upgrade]:
            data = step(data)
        version += 1
        data = {**data, "version": version}
    if data["state"] != before.state:
        data["former_names"] = [*data.get("former_names", ()), step_name(before.state, before.steps)]
    data["upgraded_from"] = data.get("upgraded_from") or before.version
    return to_json(data).encode()


def present_name(flow: Flow[Any], version: int, name: str) -> str:
    """Return what a state of an older version is called by now: an answer may have been posted under that name."""
    data: dict[str, Any] = {"state": name, "inbox": {name: []}}
    try:
        for number in range(version, flow.version):
            upgrade = flow.upgrades[number]
            for step in upgrade if isinstance(upgrade, Sequence) else [upgrade]:
                data = step(data)
        (present,) = data["inbox"]
    except Exception:  # of an upgrade that reads more of a record than its names
        return name
    return str(present)
