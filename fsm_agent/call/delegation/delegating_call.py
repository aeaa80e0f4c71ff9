"""An agent call whose functions include agents or flows: their calls and runs are processes inside of it.

The call of such an agent performs the effect that runs its function.  It starts when the function would be run, its
effects have keys such as ``run:2.0/…``, and its end is the function's outcome.  So its questions suspend the outer
call, and its record is part of the outer record, in snapshots and journals.

An agent that takes the dialog over is a child, too, under the name of the handoff: ``to:billing/…``.  Its end is the
end of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fsm_agent.call.budget import Overrun, exceeded, has_budget, with_budget_left
from fsm_agent.call.call import OF_ANSWERS, UNASKED, AgentCall
from fsm_agent.call.call_step import take_step
from fsm_agent.call.composite import Parent
from fsm_agent.call.delegation.function_events import with_functions
from fsm_agent.call.derived_events import with_history
from fsm_agent.call.effects import AskSummary, CallModel, Effect, RunFunction
from fsm_agent.call.interpret import HandedOver, HandoffEnded, output_text
from fsm_agent.call.machine import Explanation
from fsm_agent.call.outcomes import Begun, FunctionFailed, Injected, Outcome, Returned
from fsm_agent.call.process import SEPARATOR, Inner, Process
from fsm_agent.call.record import TAKES_OVER, CallRecord, ContextUse, State, successor_name
from fsm_agent.call.requests import effects_of
from fsm_agent.errors import JournalError, OutcomeError, UsageError
from fsm_agent.functions.context import Delegate
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import Default
from fsm_agent.messages.events import Event, Inside, Stepped
from fsm_agent.messages.message import FunctionCall


class _HandoffTarget(NamedTuple):
    """The effect of a call whose dialog was handed over; the call of the other agent, a child, performs it."""

    key: str
    function: Function


class DelegatingCall(Parent, AgentCall[Any]):
    """An agent call with children: a parent whose own steps are those of an agent call.

    One advance may take several steps: to seed a child and to take its end belong to the advance that leads to it.  So
    own steps start from records that are not committed yet, and the call's record changes when all steps are taken.

    Attributes:
        inners: The agents inside of it and their calls, present and former, by name; for listeners.
    """

    def __init__(self, record: CallRecord, prompt: Any, **parts: Any) -> None:
        AgentCall.__init__(self, record, prompt, **parts)
        self.forget_children()
        self.inners: dict[str, tuple[Delegate, Any]] = {}
        self._ahead: CallRecord = self.record  # the newest record that one of its own steps led to
        self._parsed: Any = None  # the final reply of the present advance, or a refused one, if there is one
        self._alone: tuple[Any, tuple[Any, ...]] = (None, ())  # a trace, and the call's own effects after it

    result_so_far = AgentCall.result_so_far
    fingerprint = AgentCall.fingerprint
    own_deadline_s = AgentCall.own_deadline_s
    __str__ = AgentCall.__str__

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The present effects of the call and the agents inside of it."""
        found: tuple[Any, ...] = Parent.effects.__get__(self)
        return found

    def as_events(self, before: CallRecord, steps: Sequence[Event]) -> Sequence[Event]:
        """Return steps as events for listeners, with the starts and ends of functions that are agents."""
        return with_history(self, before, tuple(with_functions(self, steps)))

    def inside_of(self, name: str) -> Inner:
        """Return the call of a present or former child, and its listeners."""
        delegate, call = self.inners[name]
        return Inner(call, delegate.hooks, delegate.hears_inside, name=delegate.agent_name)

    # What its children need; see `Parent`

    def own_effects(self) -> tuple[Effect, ...]:
        children = self.record.children
        return tuple([effect for effect in self._effects_alone(self.record) if effect.key not in children])

    def child(self, name: str, record: Any) -> Process:
        delegate = self._delegate(name)
        call: Process = delegate.call_of(record, self.deps, self.has_approver)
        self.inners[name] = delegate, call
        return call

    def world_of(self, name: str) -> Any:
        return self._delegate(name).world

    def begin(self, record: CallRecord, name: str, child: Any) -> None:
        at_s = record.trace[-1].at_s
        # An answer that was given by hand may not say when: a driver begins the child then, since its times count.
        if at_s or not record.started_at_s:
            child.advance("begin", Begun(at_s=at_s, id=f"{record.id}{SEPARATOR}{name}"))

    def result_of_child(self, name: str, child: Any) -> Outcome | HandoffEnded:
        r: CallRecord = child.record
        if name.startswith(TAKES_OVER):
            return HandoffEnded(name=name.removeprefix(TAKES_OVER), record=r, at_s=r.trace[-1].at_s)
        function, f = self._function(name)
        at_s = r.trace[-1].at_s
        duration_s = max(0.0, at_s - r.started_at_s) if r.started_at_s else 0.0
        took: dict[str, Any] = {"usage": r.total_usage, "at_s": at_s, "duration_s": duration_s}
        if (why := r.failure) is None:
            try:
                return Returned(text=output_text(function, f, child.output), **took)
            except UsageError as error:  # of `returns` of a flow, or of `format`
                why = str(error)
        if function.on_error == "fail":
            return FunctionFailed(text=why, **took)
        if isinstance(function.on_error, Default):
            with suppress(UsageError):
                return Returned(text=output_text(function, f, function.on_error.value), **took)
        return Returned(text=f"{function.name} failed: {why}", is_error=True, **took)

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
                raise OutcomeError(self._unwanted_text(key))
            elif type(outcome) not in UNASKED:
                raise OutcomeError(self._refusal_of(self.effects, key, outcome))
        self._parsed = None
        Parent.advance(self, key, outcome)
        if self._parsed is not None:
            self._keep_parsed(self._parsed)

    read_event = AgentCall.read_event

    def explain(self, event: Any, *, key: str = "") -> Explanation:
        if not key and self.record.state is State.HANDED_OVER and not isinstance(event, Stepped | Inside):
            (name,) = self.record.children  # as in `advance`: an outcome for the call is one for who has its dialog
            key = f"{name}{SEPARATOR}"
        return Parent.explain(self, event, key=key)

    def _own_step(self, record: CallRecord, key: str, outcome: Any, steps: list[Event]) -> CallRecord:
        if record.state is State.HANDED_OVER and type(outcome) is not HandoffEnded:  # its child has ended by it
            (key,) = record.children
            outcome = self.result_of_child(key, self._child_process(record, key))
            record = record.changed(children={})
        r = self._step_alone(record, key, outcome, steps)
        if type(outcome) is Begun and record.governed_by and r.ending is None:
            r = self._hand_over(r, "", _first(record.governed_by), outcome.at_s, steps)
        children = r.children
        while (wanted := self._unseeded(r, children)) is not None:
            function, name = wanted.function, wanted.key
            if type(wanted) is _HandoffTarget:
                path = r.governed_by.partition(SEPARATOR)[2]
                child = function.delegate.take_over(r, path, self.deps, self.system_args is None)
                children = {**children, name: with_budget_left(child, r)}
                continue
            at_s = r.trace[-1].at_s
            if function.delegate.is_handoff:
                r = self._hand_over(r, name, function.name, at_s, steps)
                continue
            try:
                child = function.delegate.seeded(wanted.call, record.depth + 1, self.deps)
                children = {**children, name: with_budget_left(child, r)}
            except UsageError as error:  # of the model, such as an empty task
                r = self._step_alone(r, name, Returned(text=str(error), is_error=True, at_s=at_s), steps)
        return r if children is r.children else r.changed(children=children)

    def _step_alone(self, record: CallRecord, key: str, outcome: Any, steps: list[Event]) -> CallRecord:
        """Take a step of the call itself: return the record after it, and add the step to ``steps``."""
        about = self._subject(self._effects_alone(record), key, outcome)
        trigger, event = self._read(record, about, outcome)
        if type(outcome) in OF_ANSWERS and type(about) is not AskSummary:
            self._parsed = event
        use = self.view.use(record) if type(about) is CallModel and self.view is not None else None
        return self._take(record, trigger, key, outcome, event, steps, use)

    def _take(
        self,
        record: CallRecord,
        trigger: str,
        key: str,
        outcome: Any,
        event: Any,
        steps: list[Event],
        use: ContextUse | None = None,
    ) -> CallRecord:
        self._ahead, step = take_step(record, trigger, key, outcome, event, self.prompt, use)
        steps.append(step)
        return self._ahead

    def _settle_children(self, record: Any, ended: list[str], steps: list[Event]) -> Any:
        record = Parent._settle_children(self, record, ended, steps)
        if record.ending is None and record.children and has_budget(record.limits) and exceeded(record):
            newest = steps[-1]
            step: Any = newest.event if isinstance(newest, Inside) else newest
            overrun = Overrun(at_s=step.at_s)
            return self._take(record, "over_budget", "", overrun, overrun, steps)
        return record

    def _hand_over(self, r: CallRecord, key: str, name: str, at_s: float, steps: list[Event]) -> CallRecord:
        """Take the step that hands the dialog over to another agent; return the record after it."""
        delegate = self.prompt.by_name[name].delegate
        assert delegate is not None
        return self._step_alone(r, key, HandedOver(name=name, agent=delegate.agent_name, at_s=at_s), steps)

    def _unseeded(self, r: CallRecord, children: Mapping[str, Any]) -> Any:
        """Return the effect of an agent whose call is not seeded yet, or None."""
        for effect in self._effects_alone(r):
            is_run = type(effect) is RunFunction and effect.function.delegate is not None
            if (is_run or type(effect) is _HandoffTarget) and effect.key not in children:
                return effect
        return None

    def _effects_alone(self, r: CallRecord) -> tuple[Any, ...]:
        """Return the effects of the call in a record, as if it had no children; cached by the call's own trace."""
        if self._alone[0] is not r.trace:
            if r.state is State.HANDED_OVER:
                found: tuple[Any, ...] = (
                    _HandoffTarget(self._successor(r), self.prompt.by_name[_first(r.governed_by)]),
                )
            else:
                found = effects_of(self, r)
            self._alone = r.trace, found
        return self._alone[1]

    def _subject(self, effects: Sequence[Any], key: str, outcome: Any) -> Any:
        if type(outcome) is HandoffEnded:
            return None
        if type(outcome) is HandedOver:
            asked = [effect.call for effect in effects if isinstance(effect, RunFunction) and effect.key == key]
            return asked[0] if asked else None
        return AgentCall._subject(self, effects, key, outcome)

    def _check(self, key: str, outcome: Any) -> None:
        """Do nothing: the step of the call checks the outcome."""

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
        self._ahead = record

    renew = Parent.renew

    def renewed(self, at_s: float) -> CallRecord:
        r: CallRecord = self.record
        return r.renewed(at_s)

    def _function(self, name: str) -> tuple[Function, FunctionCall]:
        """Return the function that a child performs, and the function call."""
        for r in (self._ahead, self.record):
            for f in r.round:
                if name == f"{RunFunction.prefix}:{f.id}":
                    return self.prompt.by_name[f.name], f
        raise JournalError(f"the child {name!r} of {self}: expected a function of the round, got none of this name")

    def _delegate(self, name: str) -> Delegate:
        is_successor = name.startswith(TAKES_OVER)
        function = self.prompt.by_name[name.removeprefix(TAKES_OVER)] if is_successor else self._function(name)[0]
        if function.delegate is None:
            raise JournalError(
                f"the child {name!r} of {self}: expected an agent, got {function.name!r}, which is no longer one"
            )
        return function.delegate


def _first(path: str) -> str:
    """Return the first handoff of a path."""
    return path.partition(SEPARATOR)[0]
