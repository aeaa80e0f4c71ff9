"""Delegation: agents and flows that work for an agent call, as functions or by taking over its dialog.

They run as inner processes.  An inner call replaces the effect that would run the function.  It starts when the
function would run, its effects have keys such as ``run:2.0/…``, and its end is the function's outcome.  The inner
call's questions therefore suspend the outer call, and its record is part of the outer record, in snapshots and journals
too.

An agent that takes over the dialog also runs as a child, which is named after the handoff: ``to:billing/…``.  When this
child ends, the call ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from fsm_agent.call.effects import AskSummary, CallModel, Effect, RunFunction
from fsm_agent.call.limits import Overrun, exceeded, with_limits_left
from fsm_agent.call.outcomes import Begun, FunctionFailed, HandedOver, HandoffEnded, Injected, Outcome, Returned
from fsm_agent.call.process import SEPARATOR, ChildHandle, refusal_of
from fsm_agent.call.record import TAKES_OVER, CallRecord, ContextUse, State, successor_name
from fsm_agent.call.requests import effects_of
from fsm_agent.call.transition_table import OF_ANSWERS, UNASKED, take_step
from fsm_agent.call.triggers import output_text
from fsm_agent.errors import JournalError, UsageError
from fsm_agent.functions.context import Delegate
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import Default
from fsm_agent.messages.events import Event, unwrapped
from fsm_agent.messages.message import FunctionCall


class _HandoffTarget(NamedTuple):
    """The effect that a call waits for once its dialog has been handed over.

    The other agent's call, which is a child, performs it.
    """

    key: str
    function: Function


class Delegation:
    """Starts a call's inner agents, and turns their ends into outcomes for the call.

    One advance may take several steps of the call, because it also starts children and reacts to their ends.  A step
    may therefore start from a record that is not committed yet.

    Attributes:
        ahead: The record after the call's own latest step, which may not be committed yet.
        parsed: The final or refused reply in the current advance, or None.
    """

    def __init__(self, call: Any) -> None:
        self.call = call
        self.ahead: CallRecord = call.record
        self.parsed: Any = None
        self._alone: tuple[Any, tuple[Any, ...]] = (None, ())  # a trace, and the call's own effects after it

    def address(self, key: str, outcome: Any) -> str:
        """Return the key under which the call takes an outcome.

        After a handoff, the key leads to the other agent's call.
        """
        call = self.call
        if call.record.state is not State.HANDED_OVER or SEPARATOR in key:
            return key
        (name,) = call.record.children
        if type(outcome) is Injected and not key:  # for the agent that has the dialog
            return f"{name}{SEPARATOR}"
        if key or type(outcome) not in UNASKED:
            raise refusal_of(call.effects, key, outcome, call.record.state)
        return key

    def own_effects(self) -> tuple[Effect, ...]:
        record = self.call.record
        return tuple([effect for effect in self.effects_alone(record) if effect.key not in record.children])

    def child(self, name: str, record: Any) -> ChildHandle:
        delegate = self._delegate(name)
        call = delegate.call_of(record, self.call.deps, self.call.has_approver)
        return ChildHandle(
            call, delegate.hooks, delegate.hears_inside, lambda: delegate.environment, name=delegate.agent_name
        )

    def begin(self, record: CallRecord, name: str, child: Any) -> None:
        at_s = record.trace[-1].at_s
        # An answer given by hand may lack a time.  A driver then begins the child at the right time.
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

    # Steps

    def own_step(self, record: CallRecord, key: str, outcome: Any, steps: list[Event]) -> CallRecord:
        """Take the call's step for an outcome, and all steps that follow from it.  Return the record after them."""
        if record.state is State.HANDED_OVER and type(outcome) is not HandoffEnded:  # the outcome has ended its child
            (key,) = record.children
            outcome = self.result_of_child(key, self.call.child_process(record, key))
            record = record.changed(children={})
        r = self._step_alone(record, key, outcome, steps)
        if type(outcome) is Begun and record.governed_by and r.ending is None:
            r = self._hand_over(r, "", _first(record.governed_by), outcome.at_s, steps)
        children = r.children
        while (wanted := self._unseeded(r, children)) is not None:
            function, name = wanted.function, wanted.key
            if type(wanted) is _HandoffTarget:
                path = r.governed_by.partition(SEPARATOR)[2]
                child = function.delegate.take_over(r, path, self.call.deps, self.call.system_args is None)
                children = {**children, name: with_limits_left(child, r.limits, r.total_usage)}
                continue
            at_s = r.trace[-1].at_s
            if function.delegate.is_handoff:
                r = self._hand_over(r, name, function.name, at_s, steps)
                continue
            try:
                child = function.delegate.seeded(wanted.call, record.depth + 1, self.call.deps)
                children = {**children, name: with_limits_left(child, r.limits, r.total_usage)}
            except UsageError as error:  # of the model, such as an empty task
                r = self._step_alone(r, name, Returned(text=str(error), is_error=True, at_s=at_s), steps)
        return r if children is r.children else r.changed(children=children)

    def _step_alone(self, record: CallRecord, key: str, outcome: Any, steps: list[Event]) -> CallRecord:
        call = self.call
        about = self._subject(record, key, outcome)
        trigger, event = call.read(record, about, outcome)
        if type(outcome) in OF_ANSWERS and type(about) is not AskSummary:
            self.parsed = event
        use = call.view.use(record) if type(about) is CallModel and call.view is not None else None
        return self._take(record, trigger, key, outcome, event, steps, use)

    def _subject(self, record: CallRecord, key: str, outcome: Any) -> Any:
        if type(outcome) is HandoffEnded:
            return None
        effects = self.effects_alone(record)
        if type(outcome) is HandedOver:
            return next((f.call for f in effects if isinstance(f, RunFunction) and f.key == key), None)
        return self.call.subject(effects, key, outcome)

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
        self.ahead, step = take_step(record, trigger, key, outcome, event, self.call.prompt, use)
        steps.append(step)
        return self.ahead

    def within_budget(self, record: CallRecord, steps: list[Event]) -> CallRecord:
        """End the call if it and its inner agents have together exceeded its budget, and return the record."""
        if record.ending is None and record.children and exceeded(record):
            overrun = Overrun(at_s=unwrapped(steps[-1])[1].at_s)
            return self._take(record, "over_budget", "", overrun, overrun, steps)
        return record

    def _hand_over(self, r: CallRecord, key: str, name: str, at_s: float, steps: list[Event]) -> CallRecord:
        delegate = self.call.prompt.by_name[name].delegate
        assert delegate is not None
        return self._step_alone(r, key, HandedOver(name=name, agent=delegate.agent_name, at_s=at_s), steps)

    def _unseeded(self, r: CallRecord, children: Mapping[str, Any]) -> Any:
        """Return the effect of an inner agent whose call has not been made yet, or None if there is none."""
        for effect in self.effects_alone(r):
            is_run = type(effect) is RunFunction and effect.function.delegate is not None
            if (is_run or type(effect) is _HandoffTarget) and effect.key not in children:
                return effect
        return None

    def effects_alone(self, r: CallRecord) -> tuple[Any, ...]:
        """Return the call's own effects in a record, without those of its children.

        They are cached by the record's trace.
        """
        if self._alone[0] is not r.trace:
            if r.state is State.HANDED_OVER:
                found: tuple[Any, ...] = (
                    _HandoffTarget(self.call.successor(r), self.call.prompt.by_name[_first(r.governed_by)]),
                )
            else:
                found = effects_of(self.call, r)
            self._alone = r.trace, found
        return self._alone[1]

    def output_of_successor(self, r: CallRecord) -> Any:
        """Return the output of the agent that took over the dialog and ended the call."""
        name, inners = successor_name(r.governed_by), self.call.inners
        if name not in inners or inners[name].process.record.ending != r.ending:
            inners[name] = self.child(name, r.successor)
        return inners[name].process.output

    def _function(self, name: str) -> tuple[Function, FunctionCall]:
        for r in (self.ahead, self.call.record):
            for f in r.round:
                if name == f"{RunFunction.prefix}:{f.id}":
                    return self.call.prompt.by_name[f.name], f
        raise JournalError(
            f"the child {name!r} of {self.call}: expected a function of the round, got none of this name"
        )

    def _delegate(self, name: str) -> Delegate:
        is_successor = name.startswith(TAKES_OVER)
        function = self.call.prompt.by_name[name.removeprefix(TAKES_OVER)] if is_successor else self._function(name)[0]
        if function.delegate is None:
            raise JournalError(
                f"the child {name!r} of {self.call}: expected an agent, got {function.name!r}, which is no longer one"
            )
        return function.delegate


def _first(path: str) -> str:
    return path.partition(SEPARATOR)[0]
