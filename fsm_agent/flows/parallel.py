"""The process that runs the members of one state as its children, with a small table of its own.

At most `ParallelState.parallel` members run at once, and the others begin later, in order.  The cost of a step
therefore does not depend on the number of members.  Results are kept as JSON and read back in the order of the members.
`ROWS` decides when a group is complete, and whether a member that fails or wins ends the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, TypeAlias

from fsm_agent.call.machine import Row, machine_of
from fsm_agent.call.process import SEPARATOR, ChildHandle, EffectValue
from fsm_agent.call.record import OnceRun
from fsm_agent.errors import OutcomeError
from fsm_agent.flows.process import (
    NOT_BEGUN,
    FlowProcess,
    RunContext,
    StateResult,
    child_handle,
    child_record,
    in_doubt,
    name_in,
    noting,
)
from fsm_agent.flows.record import FlowEnding, MembersRecord, Settled, Stage
from fsm_agent.flows.states import LiveState, ParallelState, SubflowState
from fsm_agent.flows.transition_table import NOTES
from fsm_agent.flows.values import Failure
from fsm_agent.messages.events import Event, Stepped

Member: TypeAlias = tuple[str, LiveState[Any, Any], Any]  # name, state and data of a member


class Members(FlowProcess):
    """The process that runs the members of one state."""

    record: MembersRecord

    def __init__(
        self, state: ParallelState[Any, Any], data: Any, record: MembersRecord, run_context: RunContext
    ) -> None:
        super().__init__(record, run_context)
        self.machine = _machine()
        self.state = state
        self.data = data

    def __str__(self) -> str:
        return f"the members of {self.state.name!r}"

    @cached_property
    def members(self) -> list[Member]:
        return list(self.state.members_of(self.data))

    @cached_property
    def needed(self) -> int:
        return self.state.needed(len(self.members))

    @cached_property
    def _by_name(self) -> dict[str, Member]:
        return {member[0]: member for member in self.members}

    @property
    def result_so_far(self) -> MembersRecord:
        return self.record

    @property
    def fingerprint(self) -> str:
        """Always empty, because the flow's own fingerprint covers the members."""
        return ""

    def beginning(self, name: str) -> tuple[str, str]:
        """Return ``"members"``, because each member describes its own beginning."""
        return "members", ""

    def state_of(self, name: str) -> tuple[LiveState[Any, Any], Any]:
        try:
            _, state, data = self._by_name[name]
        except KeyError:
            raise OutcomeError(f"{self.state!r}: expected one of its members, got {name!r}") from None
        return state, data

    def state_result(self) -> StateResult:
        r, state = self.record, self.state
        assert r.ending is not None
        if r.ending.is_failure:
            where = r.ending.where
            data = self._loaded(where).data if where in r.settled else None
            return StateResult("failed", Failure(r.ending.state, r.ending.detail, where, data), 0.0)
        names = [name for name, _, _ in self.members]
        if state.enough is not None:
            names = [name for name in names if name in r.settled and r.settled[name].failure is None]
        values = tuple([self._loaded(name) for name in names])
        return StateResult("done", values[0] if state.is_race else values, 0.0)

    def watch(self, step: Stepped) -> None:
        """Do nothing, because coverage is measured only for users' tables."""

    def slot(self, key: str) -> str:
        return name_in(key)

    def moved(self, key: str, record: Any) -> tuple[Sequence[str], Mapping[str, EffectValue | None]] | None:
        """Return what a step has changed: the names of child members, and the other members' effects by name."""
        begun = self.record.begun
        if key in ("", "begin"):
            return None
        first = key.partition(SEPARATOR)[0]
        names = [first if first in self.record.children else name_in(first)]
        if record.begun != begun:
            names += [name for name, _, _ in self.members[begun : record.begun]]
        own: dict[str, EffectValue | None] = {}
        for name in names:
            if name in record.once:
                own[name] = self.effect_of(name, record.once[name])
            elif name in self.record.once:
                own[name] = None
        return [name for name in names if name in self.record.children or name in record.children], own

    def _loaded(self, name: str) -> Any:
        settled, state = self.record.settled[name], self.state_of(name)[0]
        if settled.failure is None:
            return state.answer_types.load(settled.text)
        return replace(settled.failure, data=state.answer_types.load(settled.text)) if settled.text else settled.failure

    def _own_step(self, record: Any, key: str, outcome: Any, steps: list[Event]) -> Any:
        trigger, event = self._read(key, outcome)
        if isinstance(event, StateResult):
            record = record.changed(usage=record.usage + event.usage)
        moved = self.take_row(record, trigger, event, key, event.at_s, steps)
        if trigger in NOTES:
            return self.noted(moved, key, trigger)
        return moved.changed(id=outcome.id) if trigger == "begun" else moved

    def _read(self, key: str, outcome: Any) -> tuple[str, Any]:
        """Return the trigger that an outcome causes, and the argument for that trigger's guards and actions."""
        if not isinstance(outcome, StateResult) and (key in ("", "begin") or outcome.kind in NOTES):
            return outcome.kind, outcome
        name, _, state_result = self.result_of_state(key, outcome)
        return "gave" if state_result.trigger == "done" else "broke", state_result._replace(where=name)

    def read_event(self, key: str, outcome: Any) -> tuple[str, Any, Any, Any]:
        super().read_event(key, outcome)  # refuses what nothing asks for
        trigger, event = self._read(key, outcome)
        return trigger, self.record, event, self


# Guards and actions are pure functions of the record, the outcome and the `Members`


def is_out_of_reach(r: MembersRecord, _: Any, members: Members) -> bool:
    """Return whether more values are needed than there are members."""
    return len(members.members) < members.needed


def is_empty(r: MembersRecord, _: Any, members: Members) -> bool:
    return not members.members


def is_enough(r: MembersRecord, _: StateResult, members: Members) -> bool:
    """Return whether no more values are needed after this one."""
    return len(r.settled) - r.lost + 1 >= members.needed


def is_last(r: MembersRecord, _: StateResult, members: Members) -> bool:
    return len(r.settled) == len(members.members) - 1


def breaks_all(r: MembersRecord, _: StateResult, members: Members) -> bool:
    """Return whether the group fails because too few members are left after this failure."""
    return not members.state.is_lenient and len(members.members) - r.lost - 1 < members.needed


def begin(r: MembersRecord, _: Any, members: Members) -> MembersRecord:
    """Begin as many members as may run at once."""
    begun, count = r.begun, len(members.members)
    room = (members.state.parallel or count) - len(r.once) - len(r.children)
    if begun == count or room <= 0:
        return r
    once: dict[str, OnceRun] = {}
    children: dict[str, Any] = {}
    for name, state, data in members.members[begun : begun + room]:
        with noting(state, members):
            child = child_record(state, data, r.depth, members.run_context)
        if child is None:
            once[name] = NOT_BEGUN
        else:
            children[name] = child
        begun += 1
    return r.changed(
        once={**r.once, **once} if once else r.once,
        children={**r.children, **children} if children else r.children,
        begun=begun,
    )


def keep(r: MembersRecord, state_result: StateResult, members: Members) -> MembersRecord:
    """Keep the result of a member and begin the next one."""
    return begin(_settled(r, state_result, members), state_result, members)


def join(r: MembersRecord, state_result: StateResult, members: Members) -> MembersRecord:
    r = _settled(r, state_result, members)
    return _ended(r, FlowEnding(Stage.COMPLETED))


def fail(r: MembersRecord, state_result: StateResult, members: Members) -> MembersRecord:
    r = _settled(r, state_result, members)
    failures = [(name, r.settled[name].failure) for name, _, _ in members.members if name in r.settled]
    name, why = next((name, failure) for name, failure in failures if failure is not None)
    return _ended(r, FlowEnding(why.reason, True, why.detail, name))


def keep_reason(r: MembersRecord, outcome: Any, members: Members) -> MembersRecord:
    return _ended(r, FlowEnding(outcome.kind, True, getattr(outcome, "reason", "")))


def fail_for_want(r: MembersRecord, _: Any, members: Members) -> MembersRecord:
    has, needed = len(members.members), members.needed
    detail = f"{members.state.name} has {has} item(s), but {needed} values are needed"
    return _ended(r, FlowEnding("too few", True, detail, members.state.name))


def end_empty(r: MembersRecord, _: Any, members: Members) -> MembersRecord:
    return _ended(r, FlowEnding(Stage.COMPLETED))


def stay(r: MembersRecord, _: Any, members: Members) -> MembersRecord:
    return r


def _settled(r: MembersRecord, state_result: StateResult, members: Members) -> MembersRecord:
    name = state_result.where
    state, answer = members.state_of(name)[0], state_result.answer
    if state_result.trigger != "failed":
        settled = Settled(state.answer_types.dump(answer))
    elif isinstance(state, SubflowState) and answer.data is not None:
        settled = Settled(state.answer_types.dump(answer.data), replace(answer, data=None))
    else:
        settled = Settled(failure=replace(answer, data=None) if answer.data is not None else answer)
    once = r.once
    if name in once:
        once = dict(once)
        del once[name]
    lost = r.lost + 1 if settled.failure is not None and not members.state.is_lenient else r.lost
    return r.changed(once=once, settled=r.settled.added(name, settled), lost=lost)


def _ended(r: MembersRecord, ending: FlowEnding) -> MembersRecord:
    """Return the record of the group's end, without the abandoned members."""
    detail = "; ".join(filter(None, [ending.detail, in_doubt(r)]))
    ending = ending if detail == ending.detail else ending.changed(detail=detail)
    return r.changed(ending=ending, usage=r.total_usage, once={}, children={})


_LIVE = (Stage.SEEDED, Stage.WORKING)

ROWS: tuple[Row, ...] = (
    ("begun", Stage.SEEDED, Stage.FAILED, is_out_of_reach, fail_for_want),
    ("begun", Stage.SEEDED, Stage.COMPLETED, is_empty, end_empty),
    ("begun", Stage.SEEDED, Stage.WORKING, None, begin),
    ("gave", Stage.WORKING, Stage.COMPLETED, is_enough, join),
    ("gave", Stage.WORKING, None, None, keep),
    ("broke", Stage.WORKING, Stage.FAILED, breaks_all, fail),
    ("broke", Stage.WORKING, Stage.COMPLETED, is_last, join),
    ("broke", Stage.WORKING, None, None, keep),
    *[(note, Stage.WORKING, None, None, stay) for note in NOTES],
    ("cancelled", _LIVE, Stage.FAILED, None, keep_reason),
    ("expired", _LIVE, Stage.FAILED, None, keep_reason),
)


@cache
def _machine() -> Any:
    return machine_of(ROWS, Stage)


@child_record.register(ParallelState)
def _members_record(state: ParallelState[Any, Any], data: Any, depth: int, run_context: RunContext) -> MembersRecord:
    return MembersRecord(state=Stage.SEEDED, depth=depth)


@child_handle.register(ParallelState)
def _members_handle(
    state: ParallelState[Any, Any], data: Any, record: MembersRecord, run_context: RunContext
) -> ChildHandle:
    return ChildHandle(Members(state, data, record, run_context), (), hears_inside=True)
