"""An agent call whose functions include agents or flows: their calls and runs are processes inside of it.

The call of such an agent stands in for the effect that runs its function, under the same key: it begins when the
function would be run, what it waits for is wanted under ``run:2.0/…``, and its end is the function's outcome.  So its
questions suspend the outer call, and its record is part of the outer one's, in snapshots and journals.

An agent that takes the dialog over is a child, too, under the name of the handoff: ``to:billing/…``.  Its end is that
of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from fsm_agent.errors import JournalError, OutcomeError, UsageError
from fsm_agent.functions.delegate import Delegate
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import Default
from fsm_agent.lifecycle.call import NEVER, UNASKED, AgentCall
from fsm_agent.lifecycle.costs.budget import Overrun, exceeded, has_budget, within
from fsm_agent.lifecycle.delegation.function_events import with_functions
from fsm_agent.lifecycle.delegation.handoff import HandedOver, Relayed
from fsm_agent.lifecycle.effects import Effect, RunFunction
from fsm_agent.lifecycle.interpret import output_text
from fsm_agent.lifecycle.outcomes import Begun, FunctionFailed, Injected, Outcome, Returned
from fsm_agent.lifecycle.record import TAKES_OVER, CallRecord, State, successor_name
from fsm_agent.lifecycle.table import MACHINE
from fsm_agent.machine.nesting import Parent
from fsm_agent.machine.process import SEPARATOR, Inner
from fsm_agent.messages.event import Event, Inside, Stepped
from fsm_agent.messages.message import FunctionCall

if TYPE_CHECKING:
    from fsm_agent.machine.process import Process


class _Successor(NamedTuple):
    """The wait for the agent that has the dialog; its call, a child, stands in for it."""

    key: str
    function: Function


class _Own(AgentCall[Any]):
    """The call without its children, on which their parent tries its own steps."""

    __slots__ = ()

    def overrun(self, at_s: float) -> None:
        """End the call, as the calls inside of it have exceeded its budget."""
        self.after, answer = self.record, Overrun(at_s=at_s)
        MACHINE.events["over_budget"].trigger(self, self, answer, self.prompt)
        self._commit("over_budget", "", answer, answer, "")  # type: ignore[arg-type]

    def own_effects(self) -> tuple[Any, ...]:
        r = self.record
        if r.state is not State.HANDED_OVER:
            return AgentCall.own_effects(self)
        return (_Successor(self._successor(r), self.prompt.by_name[_first(r.governed_by)]),)

    def _subject(self, key: str, outcome: Any) -> FunctionCall | None:
        if type(outcome) is HandedOver:
            asked = [effect.call for effect in self.effects if isinstance(effect, RunFunction) and effect.key == key]
            return asked[0] if asked else None
        return None if type(outcome) is Relayed else AgentCall._subject(self, key, outcome)


class DelegatingCall(Parent, AgentCall[Any]):  # type: ignore[misc]  # of both, what is a parent's goes first
    """An agent call with children.

    Attributes:
        inners: The agents inside of it and their calls, present and former, by name; for listeners.
    """

    steps: tuple[Event, ...] = ()  # type: ignore[assignment]

    def __init__(self, record: CallRecord, prompt: Any, **parts: Any) -> None:
        AgentCall.__init__(self, record, prompt, **parts)
        self._own = _Own(record, prompt, **parts)
        self._cells: dict[str, Process] = {}
        self._looks = {}
        self.inners: dict[str, tuple[Delegate, Any]] = {}

    outcome = AgentCall.outcome
    definition = AgentCall.definition
    __str__ = AgentCall.__str__

    # The state is the record's alone: there is nothing to be committed beside it

    @property
    def state(self) -> State:
        state: State = self.record.state
        return state

    @state.setter
    def state(self, state: State) -> None:
        pass

    @property
    def step(self) -> Stepped:
        return self.record.trace[-1] if self.record.trace else NEVER

    @step.setter
    def step(self, step: Stepped) -> None:
        pass

    def as_events(self, steps: Sequence[Event]) -> Sequence[Event]:
        """Return steps as listeners are told of them: with the beginnings and ends of functions that are agents."""
        return tuple(with_functions(self, steps))

    def inside_of(self, name: str) -> Inner:
        """Return the call that is or was a child, and its listeners."""
        delegate, call = self.inners[name]
        return Inner(call, delegate.hooks, delegate.hears_inside)

    # What its children need; see `Parent`

    def own_effects(self) -> tuple[Effect, ...]:
        children = self.record.children
        return tuple([effect for effect in self._at(self.record).effects if effect.key not in children])

    @property
    def own_deadline_s(self) -> float | None:
        r = self.record
        return None if r.limits.deadline_s is None else r.deadline_s

    def child(self, name: str, record: Any) -> Process:
        delegate = self._delegate(name)
        call: Process = delegate.call_of(record, self.deps, self.has_approver)
        self.inners[name] = delegate, call
        return call

    def world_of(self, name: str) -> Any:
        return self._delegate(name).world

    def begin(self, record: CallRecord, name: str, child: Any) -> None:
        child.advance("begin", Begun(at_s=record.trace[-1].at_s, id=f"{record.id}{SEPARATOR}{name}"))

    def end_of(self, name: str, child: Any) -> Outcome | Relayed:
        r: CallRecord = child.record
        if name.startswith(TAKES_OVER):
            return Relayed(name=name.removeprefix(TAKES_OVER), record=r, at_s=r.trace[-1].at_s)
        function, f = self._function(name)
        at_s = r.trace[-1].at_s
        if (why := r.failure) is None:
            try:
                return _returned(function, f, child.output, r, at_s)
            except UsageError as error:  # of `returns` of a flow, or of `format`
                why = str(error)
        if function.on_error == "fail":
            return FunctionFailed(text=why, usage=r.total_usage, at_s=at_s)
        if isinstance(function.on_error, Default):
            with suppress(UsageError):
                return _returned(function, f, function.on_error.value, r, at_s)
        return Returned(text=f"{function.name} failed: {why}", is_error=True, usage=r.total_usage, at_s=at_s)

    def encode_own(self, key: str, outcome: Any) -> str:
        return AgentCall.encode(self, key, outcome)

    def decode_own(self, key: str, document: bytes | str) -> Any:
        return AgentCall.decode(self, key, document)

    # Steps

    def advance(self, key: str, outcome: Any) -> None:
        if self.record.state is State.HANDED_OVER and SEPARATOR not in key:
            (name,) = self.record.children
            if type(outcome) is Injected and not key:  # for the agent that has the dialog
                key = f"{name}{SEPARATOR}"
            elif key:
                raise OutcomeError(Parent._unwanted(self, key))
            elif type(outcome) not in UNASKED:
                raise OutcomeError(AgentCall._unwanted(self, key, outcome))
        Parent.advance(self, key, outcome)
        self._output, self.problem = self._own._output, self._own.problem

    def _own_step(self, record: Any, key: str, outcome: Any, steps: list[Event]) -> Any:
        own = self._at(record)
        if record.state is State.HANDED_OVER and type(outcome) is not Relayed:  # its child has ended by it
            (key,) = record.children
            own = self._at(record.changed(children={}))
            outcome = self.end_of(key, self._cell(record, key))
        own.advance(key, outcome)
        steps.append(own.step)
        if type(outcome) is Begun and record.governed_by and own.record.ending is None:
            self._hand_over("", _first(record.governed_by), steps)
        children = own.record.children
        while (wanted := self._unseeded(children)) is not None:
            function, key = wanted.function, wanted.key
            if type(wanted) is _Successor:
                r, is_own = own.record, self.system_args is None
                path = r.governed_by.partition(SEPARATOR)[2]
                child = function.delegate.succeeding(r, path, self.deps, is_own)
                children = {**children, key: within(child, r)}
                continue
            if function.delegate.is_handoff:
                self._hand_over(key, function.name, steps)
                continue
            try:
                child = function.delegate.seeded(wanted.call, record.depth + 1, self.deps)
                children = {**children, key: within(child, own.record)}
            except UsageError as error:  # of the model, such as an empty task
                own.advance(key, Returned(text=str(error), is_error=True, at_s=own.step.at_s))
                steps.append(own.step)
        return own.record if children is own.record.children else own.record.changed(children=children)

    def _settled(self, record: Any, moved: list[str], steps: list[Event]) -> Any:
        record = Parent._settled(self, record, moved, steps)
        if record.ending is None and record.children and has_budget(record.limits) and exceeded(record):
            own, newest = self._at(record), steps[-1]
            step: Any = newest.event if isinstance(newest, Inside) else newest
            own.overrun(step.at_s)
            steps.append(own.step)
            return own.record
        return record

    def _hand_over(self, key: str, name: str, steps: list[Event]) -> None:
        """Take the step by which another agent gets the dialog."""
        own, delegate = self._own, self.prompt.by_name[name].delegate
        assert delegate is not None
        outcome: Any = HandedOver(name=name, agent=delegate.agent_name, at_s=own.step.at_s)
        own.advance(key, outcome)
        steps.append(own.step)

    def _unseeded(self, children: Mapping[str, Any]) -> Any:
        """Return the effect of an agent whose call has to be seeded; None: there is none."""
        found: tuple[Any, ...] = self._own.effects
        for effect in found:
            is_run = type(effect) is RunFunction and effect.function.delegate is not None
            if (is_run or type(effect) is _Successor) and effect.key not in children:
                return effect
        return None

    def _at(self, record: CallRecord) -> _Own:
        """Return the call without its children as it is in a record; their steps change nothing of its effects."""
        own = self._own
        if own.record.trace is not record.trace:
            own._effects = None
        own.record, own.state = record, record.state
        return own

    def _check(self, key: str, outcome: Any) -> None:
        """Leave it to the step, which refuses what nothing waits for."""

    @property
    def output(self) -> Any:
        r = self.record
        if r.successor is None:
            return AgentCall.output.__get__(self)
        name = successor_name(r.governed_by)
        inner = self.inners[name][1] if name in self.inners else None
        if inner is None or inner.record.ending != r.ending:
            inner = self._delegate(name).call_of(r.successor, self.deps, self.has_approver)
            self.inners[name] = self._delegate(name), inner
        return inner.output

    def closed_again(self) -> CallRecord:
        r = AgentCall.closed_again(self)
        if not r.children:
            return r
        closed = {}
        for name, child in r.children.items():
            inner: Any = self.child(name, child)
            closed[name] = inner.closed_again()
        return r.changed(children=closed)

    def return_to(self, record: CallRecord) -> None:
        AgentCall.return_to(self, record)
        self._own.return_to(record)

    def _function(self, name: str) -> tuple[Function, FunctionCall]:
        """Return the function whose work a child does, and the function call."""
        for r in (self._own.record, self.record):  # the own one may be a step ahead
            for f in r.round:
                if name == f"{RunFunction.prefix}:{f.id}":
                    return self.prompt.by_name[f.name], f
        raise JournalError(f"the record of {self} has the child {name!r}, and no function of the round is it")

    def _delegate(self, name: str) -> Delegate:
        is_successor = name.startswith(TAKES_OVER)
        function = self.prompt.by_name[name.removeprefix(TAKES_OVER)] if is_successor else self._function(name)[0]
        if function.delegate is None:
            raise JournalError(f"the record of {self} has the child {name!r}, and {function.name!r} is no agent by now")
        return function.delegate


def _first(path: str) -> str:
    """Return the first handoff of a path."""
    return path.partition(SEPARATOR)[0]


def _returned(function: Function, f: FunctionCall, value: Any, r: CallRecord, at_s: float) -> Returned:
    return Returned(text=output_text(function, f, value), usage=r.total_usage, at_s=at_s)
