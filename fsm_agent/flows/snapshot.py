"""Writes runs of flows as JSON, reads them in any process, and upgrades them to the flow's current version.

A document includes the records of children, each in a format that depends on the state that began the child.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import pydantic
import pydantic_core
from msgspec import field

from fsm_agent._internal.structs import Value, differing, from_json, to_json
from fsm_agent.call.journal import verified
from fsm_agent.call.process import SEPARATOR
from fsm_agent.call.record import CallRecord
from fsm_agent.call.snapshots import inconsistency
from fsm_agent.errors import FlowError, OutcomeError, SnapshotError
from fsm_agent.flows.data_json import describe_json_error
from fsm_agent.flows.definition import FlowDefinition, Upgrade
from fsm_agent.flows.record import FlowRecord, MembersRecord, Stage, step_name
from fsm_agent.flows.states import CallState, End, LiveState, ParallelState, SubflowState
from fsm_agent.flows.values import case_name
from fsm_agent.validation import plain_json, require, safe_repr

FORMAT: Literal[1] = 1
_KEY = re.compile(r"((?:[a-z]+:)?)([^#:/]+)([#:/].*)?", re.DOTALL)  # answer:review#3, triage#1/ask:2.0, warmly/model:0
_BY_KEY = ("once", "children", "settled")  # parts of a record
_BY_STATE = ("first_due_at_s", "inbox")
_NO_FIELDS: Mapping[str, Any] = {}
_MOST_FIELDS = 100  # of the data that an upgrade is tried with
_UNKNOWN: tuple[Any, ...] = ("", 0, (), {})  # values for the fields of data of which only the names are known


class _FieldMissing(SnapshotError):
    """An upgrade expects a field that the data does not have."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class Document(Value, frozen=True):
    """The JSON document of a run of a flow."""

    format: Literal[1]
    flow: str
    record: msgspec.Raw


class FlowJson(FlowRecord, frozen=True, kw_only=True, eq=False):
    """The record of a flow, with its data and children as JSON."""

    state: str
    data: msgspec.Raw
    children: Mapping[str, msgspec.Raw] = field(default_factory=dict)


class MembersJson(MembersRecord, frozen=True, kw_only=True, eq=False):
    """The record of a group of members, with their children as JSON."""

    state: str
    children: Mapping[str, msgspec.Raw] = field(default_factory=dict)


def document_of(flow: FlowDefinition[Any], record: FlowRecord) -> str:
    """Return the record of a run as JSON."""
    try:
        return to_json(Document(FORMAT, flow.name, _flow_json(flow, record)))
    except (ValueError, OutcomeError) as error:
        raise SnapshotError(f"expected a run that can be read again, so it is not saved: {str(error)[:500]}") from None


def _flow_json(flow: FlowDefinition[Any], r: FlowRecord) -> msgspec.Raw:
    data = msgspec.Raw(flow.data_json(r.data).encode())
    children = {name: _child_json(flow.states[str(r.state)], child) for name, child in r.children.items()}
    fields = {**differing(r), "state": str(r.state), "data": data, "children": children, "asked_version": 0}
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


# Read


class _Position(msgspec.Struct):
    version: int = 1
    state: str = ""
    steps: int = 0


def record_from(document: str | bytes, flow: FlowDefinition[Any], signing_key: str | bytes | None = None) -> FlowRecord:
    """Return the record that `document_of` wrote, upgraded to the current version of the flow."""
    try:
        read: Document = from_json(verified(document, signing_key), Document)
    except ValueError as error:
        raise SnapshotError(f"expected the snapshot of a flow, of format {FORMAT}: {error}") from None
    if read.flow != flow.name:
        raise SnapshotError(f"snapshot: expected one of the flow {flow.name!r}, got one of {read.flow!r}")
    return _flow_record(flow, bytes(read.record))


def record_of_seed(flow: FlowDefinition[Any], version: int, data: msgspec.Raw, **fields: Any) -> FlowRecord:
    """Return the upgraded record of a run that began under some version of the flow and has no snapshot."""
    r = FlowJson(flow=flow.name, version=version, state="Seeded", data=data, limits=flow.limits, **fields)
    return _flow_record(flow, to_json(r).encode(), "header")


def _flow_record(flow: FlowDefinition[Any], document: bytes, of: str = "snapshot") -> FlowRecord:
    where = f"{of} of the flow {flow.name!r}"
    try:
        document = _upgraded(flow, document, where)
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


def _data(flow: FlowDefinition[Any], document: bytes, where: str) -> Any:
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
    if not names <= known.keys():  # aliases, or unknown fields
        kept = from_json(flow.data_json(data), dict[str, msgspec.Raw])
        if lost := [name for name in names if name not in kept]:
            what = f"expected the fields of {case_name(flow.data)} in its data, got {lost[0]!r} as well"
            right = f"raise the version of the flow and add reshaped(drop=[{lost[0]!r}]), or rename=…, to its upgrades"
            raise SnapshotError(f"{where}: {what}; {right}")
    return data


def _check(flow: FlowDefinition[Any], r: FlowRecord, where: str, children: list[str]) -> None:
    state = flow.states.get(str(r.state))
    problem = ""
    if isinstance(state, End) != (r.ending is not None):
        problem = f"it is in {r.state}, but has {'an' if r.ending else 'no'} ending"
    elif r.trace and r.trace[-1].to != r.state:
        problem = f"it is in {r.state}, but its trace ends in {r.trace[-1].to}"
    elif (works := [*children, *r.once]) and works != [r.here]:
        problem = f"it is in {r.here}, but waits for {works}"
    elif isinstance(state, LiveState) and not works:
        problem = f"it is in {r.here}, but waits for nothing"
    elif works and bool(children) != isinstance(state, CallState | SubflowState | ParallelState):
        problem = f"{r.state} is now another kind of state"
    if problem:
        raise SnapshotError(f"{where} contradicts itself: {problem}")


def _check_inbox(flow: FlowDefinition[Any], r: FlowRecord, where: str) -> None:
    """Refuse early answers that the flow can no longer accept."""
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


def _upgraded(flow: FlowDefinition[Any], document: bytes, where: str) -> bytes:
    """Return the JSON record of a run, upgraded to the flow's version."""
    before: _Position = from_json(document, _Position)
    version = before.version
    if version == flow.version:
        return document
    if version > flow.version:
        raise SnapshotError(f"{where}: expected version {flow.version} or lower, got {version}")
    data = pydantic_core.from_json(document)
    while version < flow.version:
        if version not in flow.upgrades:
            right = f"pass upgrades={{{version}: …}}, such as renamed(…) or reshaped(…)"
            what = f"expected an upgrade of version {version}, got none"
            raise SnapshotError(f"{where}, version {before.version}: {what}; {right}")
        for step in _steps_of(flow, version):
            data = _record_after(step, data, f"{where}, version {before.version}: upgrade of version {version}")
        version += 1
        data = {**data, "version": version}
    if data["state"] != before.state:
        data["former_names"] = [*data.get("former_names", ()), step_name(before.state, before.steps)]
    data |= {"upgraded_from": data.get("upgraded_from") or before.version, "asked_version": before.version}
    return to_json(data).encode()


def _record_after(step: Upgrade, record: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        made = step(record)
    except SnapshotError:
        raise
    except Exception as error:
        raise SnapshotError(f"{where}: it raised {type(error).__name__}: {str(error)[:500]}") from error
    if not (isinstance(made, dict) and {"flow", "state", "data"} <= made.keys()):
        raise SnapshotError(f"{where}: expected the record, with flow, state and data, got {safe_repr(made)}")
    return made


def present_key(flow: FlowDefinition[Any], version: int, key: str, *, is_old: bool = False) -> str:
    """Return a key from an older version with the current names of its states.  Answers may still use such a key.

    If the flow still uses a name, the name stays unchanged, unless the key is certainly from the older version.
    """
    parts = key.split(SEPARATOR)
    states: Mapping[str, Any] = flow.states
    for number, part in enumerate(parts):
        found = _KEY.fullmatch(part)
        if found is None:
            break
        is_known = (found[2] in states and not is_old) or found[2].isdecimal()  # the members of `each` are numbers
        name = found[2] if is_known else _present_name(flow, version, found[2])
        parts[number] = f"{found[1]}{name}{found[3] or ''}"
        state = next(iter(states.values())) if name.isdecimal() else states.get(name)
        if not isinstance(state, ParallelState):  # an inner flow has versions of its own
            break
        states = {member.name: member for member in state.members}
    return SEPARATOR.join(parts)


def _present_name(flow: FlowDefinition[Any], version: int, name: str) -> str:
    for number in range(version, flow.version):
        for step in _steps_of(flow, number):
            name = _name_after(step, flow, number, name)
    return name


def _name_after(step: Upgrade, flow: FlowDefinition[Any], version: int, name: str) -> str:
    """Return the name that an upgrade gives to a state.

    The upgrade is tried on a record that holds only this name.  If the upgrade also reads fields of the data, they are
    added, with a few values that are tried in turn.
    """
    for value in _UNKNOWN:
        data: dict[str, Any] = {}
        while len(data) < _MOST_FIELDS:
            record = {"flow": flow.name, "version": version, "state": name, "inbox": {name: []}, "data": {**data}}
            try:
                (new,) = step(record)["inbox"]
                return str(new)
            except Exception as error:  # it needs a field, another value, or more of a record than its names and data
                field = _missing_field(error)
                if field is None or field in data:
                    break
                data[field] = value
    return name


def _missing_field(error: Exception) -> str | None:
    """Return the field of the data that an upgrade did not find, or None if it failed for another reason."""
    named = error.args if isinstance(error, KeyError) else (getattr(error, "field", None),)
    return next((name for name in named if isinstance(name, str)), None)


def was_called(flow: FlowDefinition[Any], version: int, before: str, name: str) -> bool:
    """Return whether a state had another name in this version or a later one."""
    return any(_present_name(flow, number, before) == name for number in range(version, flow.version))


def _steps_of(flow: FlowDefinition[Any], version: int) -> Sequence[Upgrade]:
    """Return the upgrades from one version to the next, or none if they are missing."""
    upgrade = flow.upgrades.get(version, ())
    return upgrade if isinstance(upgrade, Sequence) else [upgrade]


# Upgrades


def renamed(**states: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an upgrade that gives states new names.

    For example, ``upgrades={1: renamed(person="customer")}``.

    States are renamed wherever the record of a run names them: its current state, the keys that it waits for, its
    members, its early answers, and its trace.  Data and answers stay the same.  Inner flows have their own upgrades.

    Args:
        states: The new names, by old name.  Two states may swap names.

    Raises:
        FlowError: If no name is given, or one is not a valid name for a state.

    Examples:
        >>> upgrade = renamed(look="search")                        # for Flow(…, version=2, upgrades={1: upgrade})
        >>> callable(upgrade)
        True
    """
    if not states:
        raise FlowError("renamed: expected old names with new ones, as in renamed(old='new'), got none")
    for old, new in states.items():
        if not isinstance(new, str) or not new.isidentifier():
            raise FlowError(f"renamed: expected a Python identifier for {old}, got {safe_repr(new)}")

    def upgrade(record: dict[str, Any]) -> dict[str, Any]:
        stands = record.get("state", "")
        return {**_renamed(record, states), "state": states.get(stands, stands)}

    return upgrade


def _renamed(record: Mapping[str, Any], states: Mapping[str, str]) -> dict[str, Any]:
    """Return the record of a flow or of members with new names in its keys."""

    def named(key: str) -> str:
        found = _KEY.fullmatch(key)
        if found is None or found[2] not in states:
            return key
        return f"{found[1]}{states[found[2]]}{found[3] or ''}"

    made = dict(record)
    for parts, rename in ((_BY_KEY, named), (_BY_STATE, lambda name: states.get(name, name))):
        made |= {part: {rename(key): value for key, value in made[part].items()} for part in parts if part in made}
    for key, child in made.get("children", {}).items():
        if "begun" in child and "flow" not in child:  # members, whose states are states of this flow
            made["children"][key] = _renamed(child, states)
    if "trace" in made:  # members have states of their own
        made["trace"] = [_step(step, states if "flow" in made else {}, named) for step in made["trace"]]
    if (ending := made.get("ending")) is not None:
        made["ending"] = {**ending, "state": states.get(ending["state"], ending["state"])}
    return made


def _step(step: Mapping[str, Any], states: Mapping[str, str], named: Callable[[str], str]) -> dict[str, Any]:
    ends = {end: states.get(step[end], step[end]) for end in ("source", "to")}
    return {**step, **ends, **({"key": named(step["key"])} if step.get("key", "begin") != "begin" else {})}


def reshaped(
    *, add: Mapping[str, Any] = _NO_FIELDS, drop: Sequence[str] = (), rename: Mapping[str, str] = _NO_FIELDS
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an upgrade that changes the fields of the data.

    For example, ``upgrades={1: reshaped(add={"lang": "en"}, drop=["old"], rename={"text": "words"})}``.

    To change fields of nested values, write your own function that takes and returns the record.  Inner flows have
    their own upgrades.

    Args:
        add: The values of new fields, by name, as in JSON.  A field that has a default need not be listed.
        drop: The names of removed fields.
        rename: The new names of fields, by old name.  Two fields may swap names.

    Raises:
        FlowError: If no field is given, a field is given twice, or a value cannot be expressed as JSON.

    Examples:
        >>> upgrade = reshaped(add={"note": ""}, rename={"txt": "text"})     # for Flow(…, upgrades={1: upgrade})
        >>> callable(upgrade)
        True
    """
    is_list = isinstance(drop, Sequence | frozenset | set) and not isinstance(drop, str)
    require("drop of reshaped", drop, is_list, "a list of fields, such as ['old']", FlowError)
    if not (add or drop or rename):
        raise FlowError("reshaped: expected fields, got none; pass add={'lang': 'en'}, drop=['old'], …")
    made, gone = [*add, *rename.values()], [*drop, *rename]
    for names in (made, gone):
        for name in names:
            require("a field of reshaped", name, isinstance(name, str) and bool(name), "a field name", FlowError)
            require("a field of reshaped", name, names.count(name) == 1, "one change of each field", FlowError)
    added = plain_json("add of reshaped", add) if add else {}

    def upgrade(record: dict[str, Any]) -> dict[str, Any]:
        data = record["data"]
        where = f"data of version {record.get('version', 1)} of the flow {record['flow']!r}"
        if not isinstance(data, dict):
            raise SnapshotError(f"{where}: expected fields for reshaped to change, got {safe_repr(data)}")
        for name in gone:
            if name not in data:
                raise _FieldMissing(f"{where}: expected one of its fields ({', '.join(data)}), got {name!r}", name)
        kept = {rename.get(name, name): value for name, value in data.items() if name not in drop}
        for name in made:
            if name in data and name not in gone:
                raise SnapshotError(f"{where}: expected a new field to add, got {name!r}; leave it out, or rename it")
        return {**record, "data": {**kept, **added}}

    return upgrade
