"""A run of a flow: a process that follows the flow's table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from fsm_agent._internal.structs import Vector
from fsm_agent._internal.text import format_moment
from fsm_agent.call.effects import describe_effects
from fsm_agent.call.journal import signed, stored_name
from fsm_agent.call.outcomes import Returned
from fsm_agent.call.process import (
    INBOX,
    SEPARATOR,
    TABLE_WATCHES,
    ChildHandle,
    Deadline,
    EffectValue,
    Owner,
    Process,
    check_given,
    open_effects,
    questions_of,
    wakes_at_s,
)
from fsm_agent.call.snapshots import check_forkable, with_id
from fsm_agent.errors import (
    FlowError,
    FsmAgentError,
    IllegalTrigger,
    InboxFull,
    OutcomeError,
    SnapshotError,
    UsageError,
)
from fsm_agent.flows.data_json import DataError
from fsm_agent.flows.definition import FlowDefinition
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
from fsm_agent.flows.record import AwaitAnswer, Edited, FlowEnding, FlowRecord, Timer, step_name
from fsm_agent.flows.snapshot import document_of, present_key, record_from, was_called
from fsm_agent.flows.states import ENDS, FIRST_TIME, End, LiveState, Row, SubflowState, due_at_s, event_name
from fsm_agent.flows.transition_table import EDITED, KEPT, NOTES, STAYS, UNTIL_KNOWN
from fsm_agent.flows.values import Failure
from fsm_agent.messages.event_json import EXACT, JsonResult, masked_data
from fsm_agent.messages.events import Event, Question, Stepped
from fsm_agent.messages.reply import Usage
from fsm_agent.validation import safe_repr

if TYPE_CHECKING:  # what imports this module
    from fsm_agent.flows.flow import Flow

D = TypeVar("D")
_BEFORE_STEPS = ("", "answer:", "run:", "start:", "reconcile:", "sleep:")  # in keys, before the name of a step


class FlowRun(FlowProcess, Generic[D]):
    """One run of a flow: a mutable object around an immutable record.

    Examples:
        >>> @wait(bool)
        ... def review(text: str) -> str:
        ...     return text
        >>> letters = Flow("letters", str, start=review, rows=[review.done(end("over"))])
        >>> run = letters.prepare("Dear Ada")
        >>> run.state, run.data
        ('Seeded', 'Dear Ada')
        >>> run.give(review, True)
        >>> run.state
        'over'
    """

    record: FlowRecord
    problem: Exception | None = None  # raised by the function of a state, in this OS process
    _is_to_end = False  # the outer process ends, so no row may take the cancellation

    def __init__(self, flow: FlowDefinition[D], record: FlowRecord, run_context: RunContext | None = None) -> None:
        self.flow = cast("Flow[D]", flow)
        context = run_context or self.flow._run_context()
        super().__init__(record, context.for_run(self.flow, record.extra, record.by))
        self.machine = flow.machine
        self._ahead = record  # the record after the current advance, until the step is committed

    def __str__(self) -> str:
        name = self.record.id or (self.journal.run if self.journal is not None else "")
        run = f"the run {name!r}" if name else "a run"
        return f"{run} of the flow {self.flow.name!r} in {self.record.state}"

    def __repr__(self) -> str:
        return f"FlowRun({self.flow.name!r}, {self.record.id!r}, {self.state}, {self.data!r})"

    @property
    def state(self) -> str:
        """The name of the current state."""
        return str(self.record.state)

    @property
    def data(self) -> D:
        """The current data."""
        data: D = self.record.data
        return data

    @property
    def result_so_far(self) -> FlowResult[D]:
        """The result so far."""
        return self.flow.make_result(self)

    def result(self) -> FlowResult[D]:
        """Return the result of the run.

        Raises:
            FlowFailed: If the run failed.
            FlowSuspended: If the run has not ended and is waiting for a person, a set time or a driver.
        """
        ending = self.record.ending
        if not self.record.trace:
            raise FlowSuspended(f"{self} has not begun; call run.flow.run(run), arun or stream to drive it", run=self)
        if ending is None:
            raise FlowSuspended(f"{self} waits for {_describe_wait(self)}", run=self)
        if ending.is_failure:
            why = f": {ending.detail}" if ending.detail else ""
            last = self.record.trace[-1]
            cause = self.problem if last.trigger == "failed" and last.key.startswith("run:") else None
            raise FlowFailed(f"{self} has failed{why}", run=self) from cause
        return self.result_so_far

    def snapshot(self, *, signing_key: str | bytes | None = None) -> str:
        """Return the run as JSON, including the records of its agent calls.

        The JSON contains no callables, clients, keys or ``deps``.  `Flow.restore` reads it in any process.

        Args:
            signing_key: A key of at least 32 bytes.  `restore` with the same key then refuses a document that has been
                changed.

        Raises:
            SnapshotError: If the record holds a value that could not be read back.
            UsageError: If the key is too short.
        """
        text = document_of(self.flow, self.record)
        return text if signing_key is None else signed(text, signing_key)

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the table and of the agents' prompts."""
        return self.flow.fingerprint

    def beginning(self, name: str) -> tuple[str, str]:
        """Return ``"flow"`` and the data as JSON."""
        return "flow", self.flow.data_json(self.data)

    def now_s(self) -> float:
        return self.run_context.own_environment.clock.now()

    def forked(self, data: D | None = None, *, by: str = "") -> FlowRun[D]:
        """Return an independent run that continues from here, with new ids and without a store.

        With new data, the fork enters its current state again.  The state's question, members, agent call and time
        begin anew.  The deadline stays the same.  An ``edited`` step in the trace shows who changed the data.

        Args:
            data: New data, or None to keep the data.
            by: The name of the person who changes the data, for display.

        Raises:
            FlowError: If the data has the wrong type.
            UsageError: If ``data`` is given but the run has not begun or has ended, or if the run is in the middle of a
                function that must not run twice.
        """
        edit = None if data is None else edit_of(self, data, by)
        check_forkable(self, f"{self} cannot be forked now")
        document = self.snapshot()
        if self.record.id:
            document = with_id(document, self.run_context.own_environment.new_id())
        fork: FlowRun[D] = restore(document, self.flow, self.run_context)
        if edit is not None:
            fork.advance("", edit.changed(at_s=fork.now_s()))
        return fork

    # An answer may have the key of a question that was asked before the run was upgraded

    def advance(self, key: str, outcome: Any) -> None:
        if not isinstance(key, str):
            what = f"key of advance: expected the key of an effect, such as 'answer:review#1', got {safe_repr(key)}"
            raise UsageError(f"{what}; to answer by a state, call give(state, value)")
        check_given(key, outcome)
        super().advance(self._now_called(key), outcome)

    def owner(self, key: str) -> Owner:
        return super().owner(self._now_called(key))

    def _inner(self, key: str) -> tuple[Process | None, str]:
        return super()._inner(self._now_called(key))

    def present_key(self, key: str) -> str:
        """Return the key of a stored question with the current names of all its steps."""
        if version := self.record.asked_version:
            key = present_key(self.flow, version, key, is_old=True)
        return super().present_key(key)

    def _now_called(self, key: str) -> str:
        r, upgrades = self.record, self.flow.upgrades
        if upgrades and key != "begin":
            version = r.upgraded_from or min(upgrades)  # an inner run that is replayed began under the current version
            key = present_key(self.flow, version, key)
            name = name_in(key.partition(SEPARATOR)[0])
            state, _, step = name.partition("#")
            if step == str(r.steps) and state != r.state and was_called(self.flow, version, state, str(r.state)):
                key = key.replace(name, r.here, 1)  # states have swapped their names
        first, separator, rest = key.partition(SEPARATOR)
        for before in self.record.former_names:
            prefix = first.removesuffix(before)
            if prefix != first and prefix in _BEFORE_STEPS:
                return f"{prefix}{self.record.here}{separator}{rest}"
        return key

    # Its states

    def state_of(self, name: str) -> tuple[LiveState[Any, Any], Any]:
        # Children begin before their step is committed, so they are also looked for in the record ahead.
        for r in (self.record, self._ahead):
            if name in r.children or name in r.once:
                state: Any = self.flow.states[r.state]
                return state, r.data
        raise OutcomeError(f"{self}: expected the step {self.record.here!r}, got {name!r}")

    def own_effects(self) -> list[EffectValue]:
        found, timer = super().own_effects(), self._timer()
        if timer is not None:
            found.append(Timer(timer.key, timer.at_s))
        return found

    def _timer(self) -> Deadline | None:
        r = self.record
        state = self.flow.timed.get(r.state)
        if state is None:
            return None
        at_s = r.due_at_s
        if at_s == 0.0:  # the record is older than the field, or than the time of the state
            at_s = due_at_s(f"flow {self.flow.name!r}", state, r.data, r.entered_at_s)
        return None if at_s is None else Deadline(at_s, f"{Timer.prefix}:{r.here}")

    @property
    def own_deadline_s(self) -> float | None:
        return self.record.deadline_s

    @property
    def deadline(self) -> Deadline | None:
        """The earliest of the deadlines of the run, its current state and its children."""
        inner, timer = super().deadline, self._timer()
        return inner or timer if inner is None or timer is None else min(inner, timer)

    def state_result(self) -> StateResult:
        r = self.record
        assert r.ending is not None
        if r.ending.is_failure:
            return StateResult("failed", Failure(str(r.state), r.ending.detail, data=r.data), 0.0)
        return StateResult("done", r.data, 0.0)

    # Steps

    def _own_step(self, record: Any, key: str, outcome: Any, steps: list[Event]) -> Any:
        r, key = self._addressed(record, key, outcome)
        if key.startswith(f"{INBOX}:"):
            return self._with_early(r, name_in(key), key, outcome, steps)
        # An early answer is taken in the step that enters its state, and not by the driver as another outcome.  It has
        # been in the journal since it came.  A second entry could be lost with the process that had to write it,
        # and two drivers could take two answers in different orders.
        while True:
            trigger, answer, detail, state_result = self._read_outcome(key, outcome)
            # The clock of another machine may be behind.  A state that seemed to be left before it was entered would
            # have a negative time in traces, and its timer would count from the past.
            at_s = max(outcome.at_s, r.entered_at_s)
            rule = self.rule_for(r, trigger) if trigger in ENDS else ""
            moved = self.take_row(r, trigger, answer, key, at_s, steps, detail)
            if trigger in NOTES:
                noted = self.noted(moved, key, trigger)
                r = self._react(noted, at_s, steps) if trigger == "run_again" and noted.reaction is not None else noted
            elif rule in STAYS:
                r = moved
            else:
                if key == "begin":
                    moved = moved.changed(id=outcome.id, started_at_s=at_s)
                usage = r.total_usage if state_result is None else r.total_usage + state_result.usage
                r = self._entered(moved, usage, at_s, detail, steps)
                r = r if r.reaction is None else self._react(r, at_s, steps)
            if not r.inbox or r.ending is not None or (name := str(r.state)) not in r.inbox:
                return r
            outcome, *later = r.inbox[name]  # the answer to what was asked by this step
            key = f"{AwaitAnswer.prefix}:{r.here}"
            rest = {other: answers for other, answers in r.inbox.items() if other != name}
            r = r.changed(inbox={**rest, name: tuple(later)} if later else rest)

    def _addressed(self, r: FlowRecord, key: str, outcome: Any) -> tuple[FlowRecord, str]:
        """Return the record, with edited data if any, and the key that the outcome answers."""
        if type(outcome) is Edited:
            r = r.changed(data=self.flow.data_of(bytes(outcome.data)))
        is_due = self.flow.early and key.startswith(f"{INBOX}:") and name_in(key) == str(r.state)
        return r, f"{AwaitAnswer.prefix}:{r.here}" if is_due else key

    def read_event(self, key: str, outcome: Any) -> tuple[str, Any, Any, Any]:
        key = self._now_called(key)
        super().read_event(key, outcome)  # refuses what nothing asks for
        r, key = self._addressed(self.record, key, outcome)
        if key.startswith(f"{INBOX}:"):
            return KEPT, r, None, self
        trigger, answer, _, _ = self._read_outcome(key, outcome)
        return trigger, r, answer, self

    def _with_early(self, r: FlowRecord, name: str, key: str, outcome: Returned, steps: list[Event]) -> FlowRecord:
        """Keep an answer that came before its state was entered, and return the resulting record."""
        moved = self.take_row(r, KEPT, None, key, max(outcome.at_s, r.entered_at_s), steps)
        inbox = {**r.inbox, name: (*r.inbox.get(name, ()), outcome)}
        return moved.changed(inbox=inbox)  # type: ignore[no-any-return]

    def check_unasked(self, key: str, outcome: Any) -> None:
        """Refuse an outcome that no effect asked for, unless it is an early answer."""
        prefix, _, name = key.partition(":")
        r, state = self.record, self.flow.early.get(name)
        if prefix != INBOX or not r.trace:
            super().check_unasked(key, outcome)
        if state is None:
            known = ", ".join(self.flow.early) or "none"
            raise OutcomeError(f"{key!r}: expected a state of {self} with early=True ({known}), got {name!r}")
        if type(outcome) is not Returned or outcome.is_error:
            raise OutcomeError(f"answer to {key!r}: expected Returned(text=…), got {type(outcome).__name__}")
        state.answer_types.load(outcome.text)
        kept = sum([len(answers) for answers in r.inbox.values()])
        if kept >= r.limits.inbox and name != str(r.state):
            raise InboxFull(
                f"{key!r}: expected at most {r.limits.inbox} early answers (limits.inbox), got one more for {self}"
            )

    def moved(self, key: str, record: Any) -> tuple[Sequence[str], Mapping[str, EffectValue | None]] | None:
        name, is_inside, _ = key.partition(SEPARATOR)
        if is_inside:
            return ((name,), {}) if record.trace is self.record.trace else None
        # An answer that is kept for later changes no effect.  Any other step of the run may change all of them.
        return ((), {}) if record.inbox is not self.record.inbox and record.steps == self.record.steps else None

    # Answers for its states

    def inboxes_of(self, state: LiveState[Any, Any]) -> list[str]:
        is_early = self.flow.early.get(state.name) is state and self.record.ending is None
        return [*([f"{INBOX}:{state.name}"] if is_early else []), *super().inboxes_of(state)]

    def keys_of(self, state: LiveState[Any, Any]) -> list[str]:
        is_early = self.flow.early.get(state.name) is state and state.name != self.state and self.record.ending is None
        return [*([f"{INBOX}:{state.name}"] if is_early else []), *super().keys_of(state)]

    # Its times

    def renewed(self, at_s: float) -> FlowRecord:
        r = self.record
        if not r.steps:
            return r
        # The times begin again, or a run that is retried after hours would fail at once.
        changes: dict[str, Any] = {"entered_at_s": at_s, "first_due_at_s": {}}
        if r.limits.deadline_s is not None:
            changes["started_at_s"] = at_s
        if (state := self.flow.timed.get(r.state)) is not None:
            self._keep_time(state, r.changed(first_due_at_s={}), at_s, changes)
            due = changes["due_at_s"]
            is_taken = any(row.trigger == "elapsed" and row.source is state for row in self.flow.own_rows)
            if state.until is not None and due is not None and due <= at_s and not is_taken:
                changes |= {"due_at_s": None, "first_due_at_s": {}}  # it would fail at once, whenever it is retried
        return r.changed(**changes)

    def _time_over(self) -> str:
        state, timer = self.flow.timed[self.state], self._timer()
        if state.until is not None or not state.restart or timer is None:
            return f"the time of {state.name} is over"
        within_s = timer.at_s - self.record.entered_at_s if callable(state.within_s) else state.within_s
        return f"the {within_s:g} s of {state.name} are over"

    def take_row(
        self, record: Any, trigger: str, answer: Any, key: str, at_s: float, steps: list[Event], detail: str = ""
    ) -> Any:
        """Take a row of the table.  A note that names the trigger is added to any exception from a guard or action."""
        try:
            return super().take_row(record, trigger, answer, key, at_s, steps, detail)
        except IllegalTrigger:
            raise
        except Exception as error:
            error.add_note(f"raised by a guard or an action of {record.state} --{trigger}-->, in {self}")
            raise

    # A cancellation and the deadline can be taken by rows; see `fsm_agent.flows.transition_table`

    def end_with(self, outcome: Any) -> None:
        self._is_to_end = True
        try:
            super().end_with(outcome)
        finally:
            self._is_to_end = False

    def outlasts(self, outcome: Any) -> bool:
        return self.rule_for(self.record, self._end_of(outcome)) in STAYS

    def rule_for(self, r: FlowRecord, trigger: str) -> str:
        """Return the rule of the row for a cancellation or the deadline, or an empty string if the run ends."""
        if self._is_to_end or trigger in r.reacted_to:
            return ""
        rule = self.flow.reactions.get((str(r.state), trigger), "")
        if rule != UNTIL_KNOWN:
            return rule
        once = r.once.get(r.here, NOT_BEGUN)
        return FIRST_TIME if once.phase == NOT_BEGUN.phase else UNTIL_KNOWN

    def _end_of(self, outcome: Any) -> str:
        """Return the trigger that an outcome for the whole run causes."""
        if outcome.kind == "expired" and self.record.limits.deadline_s is None:
            return "cancelled"  # the time of the outer state is over
        return str(outcome.kind)

    def _react(self, r: FlowRecord, at_s: float, steps: list[Event]) -> FlowRecord:
        """Take the row for a cancellation or deadline that had to wait for a result, and return the new record."""
        assert r.reaction is not None
        trigger, detail = r.reaction
        # The waiting row has noted the trigger as taken, but only the next row takes it.
        rest = tuple([one for one in r.reacted_to if one != trigger])
        r = self._ahead = r.changed(reaction=None, reacted_to=rest)
        if r.ending is not None:
            return r
        rule = self.rule_for(r, trigger)
        why: Any = Failure(trigger, detail, str(r.state))
        moved: FlowRecord = self.take_row(r, trigger, why, "", at_s, steps, detail)
        if rule in STAYS:
            return moved
        return self._entered(moved, r.usage, at_s, detail, steps)

    def _read_outcome(self, key: str, outcome: Any) -> tuple[str, Any, str, StateResult | None]:
        """Return an outcome's trigger, its answer for the rows, a reason for people to read, and the state's result."""
        kind = "" if isinstance(outcome, StateResult) else outcome.kind
        if key == "begin":
            return "begun", None, "", None
        if kind == EDITED:
            return kind, None, f"by {outcome.by}" if outcome.by else "", None
        if key == "":
            limit, end = self.record.limits.deadline_s, self._end_of(outcome)
            reason = getattr(outcome, "reason", f"{limit:g} s are over" if limit else "")
            if end != kind:
                reason = "the time of the outer state is over"
            doubt = "" if self.outlasts(outcome) else in_doubt(self.record)
            detail = "; ".join(filter(None, [reason, doubt]))
            return end, Failure(end, detail, str(self.record.state), self._data_inside()), detail, None
        if key.startswith(f"{Timer.prefix}:"):
            detail = "; ".join(filter(None, [self._time_over(), in_doubt(self.record)]))
            return "elapsed", self._data_inside(), detail, None
        if kind in NOTES:
            return kind, None, "", None
        _, state, state_result = self.result_of_state(key, outcome)
        if state_result.trigger == "failed":
            why: Failure = state_result.answer
            return "failed", why, ": ".join(filter(None, [why.reason, why.detail])), state_result
        return (
            event_name("done", state.answer_types.case_of(state_result.answer)),
            state_result.answer,
            "",
            state_result,
        )

    def _data_inside(self) -> Any:
        """Return the data of the current state's inner flow, or None if it has none."""
        child = self.record.children.get(self.record.here)
        return child.data if isinstance(child, FlowRecord) else None

    def _entered(self, r: FlowRecord, usage: Usage, at_s: float, detail: str, steps: list[Event]) -> FlowRecord:
        """Enter the state that the step leads to, and return the resulting record."""
        to: Any = self.flow.states[str(r.state)]
        n = r.steps + 1
        changes: dict[str, Any] = {
            "steps": n,
            "entered_at_s": at_s,
            "usage": usage,
            "former_names": (),
            "asked_version": 0,
        }
        changes |= {"once": {}, "children": {}, "due_at_s": 0.0}
        if isinstance(to, End):
            changes["ending"] = FlowEnding(to.name, to.is_failure, to.detail or detail if to.is_failure else "")
        elif n > r.limits.steps:
            detail = f"{r.limits.steps} states were entered, which is the limit"
            moved = self.take_row(r.changed(**changes), "exhausted", None, "", at_s, steps, detail)
            return self._entered(moved, usage, at_s, detail, steps)
        else:
            with noting(to, self):
                child = child_record(to, r.data, r.depth, self.run_context)
                if to.is_timed:
                    self._keep_time(to, r, at_s, changes)
            name = step_name(r.state, n)
            changes |= {"once": {name: NOT_BEGUN}} if child is None else {"children": {name: child}}
        self._ahead = r.changed(**changes)
        return self._ahead

    def _keep_time(self, to: LiveState[Any, Any], r: FlowRecord, at_s: float, changes: dict[str, Any]) -> None:
        """Add the time limit of a state that is entered to the changes to the record."""
        due = r.first_due_at_s.get(to.name)
        if due is None:
            due = due_at_s(f"flow {self.flow.name!r}", to, r.data, at_s)
            if due is not None and not to.restart:
                changes["first_due_at_s"] = {**r.first_due_at_s, to.name: due}
        changes["due_at_s"] = due

    def watch(self, step: Stepped) -> None:
        for watch in TABLE_WATCHES.get():
            watch(self.flow, step)

    def checked_data(self, data: Any, before: Any, by: Row[D]) -> Any:
        """Check the data that an action returned, and return it."""
        try:
            self.flow.data_check.check(data, before)
        except DataError as error:
            what = f"result of the action {getattr(by.action, '__name__', repr(by.action))} of the row {by!r}"
            raise FlowError(f"flow {self.flow.name!r}: {what}: {error}") from None
        return data


class FlowResult(JsonResult, Generic[D]):
    """The result of a run of a flow.

    Attributes:
        run: The run.

    Examples:
        >>> @execute
        ... def double(n: int) -> int:
        ...     return 2 * n
        >>> doubling = Flow("doubling", int, start=double, rows=[double.done(end("over"), do=lambda n, more: more)])
        >>> result = doubling.call(4)
        >>> result.output, result.state
        (8, 'over')
    """

    __slots__ = ("run",)

    def __init__(self, run: FlowRun[D]) -> None:
        self.run = run

    @property
    def record(self) -> FlowRecord:
        """The whole record of the run."""
        return self.run.record

    @property
    def output(self) -> D:
        """The last data of the flow."""
        return self.run.data

    @property
    def state(self) -> str:
        """The name of the end."""
        return self.run.state

    @property
    def ending(self) -> FlowEnding | None:
        """How the run ended, or None if it has not ended."""
        return self.record.ending

    @property
    def extra(self) -> Mapping[str, Any]:
        """The data that the caller passed as ``extra``."""
        return self.record.extra

    @property
    def usage(self) -> Usage:
        """The tokens of all agent calls."""
        return self.record.total_usage

    @property
    def trace(self) -> Vector[Stepped]:
        """The steps of the flow, without those of its agent calls."""
        return self.record.trace

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON data: its state, complete data and usage; see `CallResult.to_dict`."""
        ending = self.ending
        fields = {
            "state": str(self.state),
            "failed": ending is not None and ending.is_failure,
            "reason": None if ending is None else str(ending.state),
            "detail": ending.detail or None if ending is not None else None,
            "data": json.loads(self.run.flow.data_json(self.run.data)),
            "usage": self.usage,
            "states": [str(step.to) for step in self.trace],
            "waits_for": [effect.key for effect in self.run.effects],
        }
        told: dict[str, Any] = masked_data(fields, EXACT)
        return told

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlowResult) and self.record == other.record

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.state}, {self.run.data!r})"


class _OfRun(FsmAgentError):
    def __init__(self, message: str, *, run: FlowRun[Any]) -> None:
        super().__init__(message)
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), run=self.run), (str(self),), vars(self)

    @property
    def run_id(self) -> str:
        """The name of the run in the flow's store, for ``runs.resume``, or ``""`` if there is no store."""
        return stored_name(self.run.journal)

    @property
    def result(self) -> FlowResult[Any]:
        """The result so far."""
        return self.run.result_so_far


class FlowFailed(_OfRun):
    """A flow failed.  ``run.record.ending`` says why.

    Attributes:
        __cause__: The exception from the function of the last state, if it was raised in this OS process.

    Examples:
        >>> @execute
        ... def divide(n: int) -> int:
        ...     return 1 // n
        >>> try:
        ...     Flow("dividing", int, start=divide, rows=[divide.done(end("over"))]).call(0)
        ... except FlowFailed as error:
        ...     print(error.run.record.ending.detail)
        raised: ZeroDivisionError: integer division or modulo by zero
    """


class FlowSuspended(_OfRun):
    """A flow is waiting for a person, or until a distant time.

    Examples:
        >>> @wait(bool)
        ... def review(text: str) -> str:
        ...     return text
        >>> letters = Flow("letters", str, start=review, rows=[review.done(end("over"))], store=MemoryStore())
        >>> try:
        ...     letters.call("Dear Ada")
        ... except FlowSuspended as waiting:
        ...     print([question.text for question in waiting.questions])
        ...     print(letters.runs.resume(waiting.run_id, {review: True}).state)
        ['Dear Ada']
        over
    """

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions, as in `Suspended`."""
        return questions_of(self.run)

    @property
    def wake_at_s(self) -> float | None:
        """The Unix time at which the run continues even without an answer, or None if it needs an answer."""
        return wakes_at_s(self.run)


@child_record.register(SubflowState)
def _run_record(state: SubflowState[Any, Any], data: Any, depth: int, run_context: RunContext) -> FlowRecord:
    given = state.given(data)
    try:
        return state.flow.record_of(given, depth)
    except FlowError as error:
        raise FlowError(f"given of the subflow {state.name!r}: {error}") from None


@child_handle.register(SubflowState)
def _run_handle(state: SubflowState[Any, Any], data: Any, record: FlowRecord, run_context: RunContext) -> ChildHandle:
    flow = state.flow
    return ChildHandle(FlowRun(flow, record, run_context.inside(flow)), flow.hooks, hears_inside=True, name=flow.name)


def _until(at_s: float | None) -> str:
    return "" if at_s is None else f", until {format_moment(at_s)}"


def _describe_wait(run: FlowRun[Any]) -> str:
    effects, name = list(open_effects(run)), stored_name(run.journal)
    first = next((effect for effect in effects if effect.question is not None), None)
    if not isinstance(first, AwaitAnswer):
        asked: list[Any] = sorted(effects, key=lambda effect: effect is not first)
        return describe_effects(asked, name, "flow", "run")
    until = {question.key: question.until_s for question in questions_of(run)}
    named = [
        f"{e.key!r} ({e.state.answer_types!r}{_until(until[e.key])})" if isinstance(e, AwaitAnswer) else repr(e.key)
        for e in effects[:3]
        if not isinstance(e, Timer)
    ]
    step = f"flow.runs.resume({name!r}, {{{first.key!r}: …}})" if name else f"error.run.give({first.state.name}, …)"
    then = "" if name else "; flow.run(error.run)"
    return f"{', '.join(named)}; answer with {step}{then}, where … is {first.state.answer_types!r}"


def restore(
    document: str | bytes,
    flow: FlowDefinition[Any],
    run_context: RunContext | None = None,
    *,
    signing_key: str | bytes | None = None,
) -> FlowRun[Any]:
    """Return the run that `FlowRun.snapshot` wrote, ready to continue.

    Treat a document like code, and restore it only if you trust its source; see `fsm_agent.call.restore`.
    """
    run: FlowRun[Any] = FlowRun(flow, record_from(document, flow, signing_key), run_context)
    try:
        run.record = run.closed_again()
    except OutcomeError as error:
        raise SnapshotError(f"the snapshot contradicts itself: {error}") from None
    return run


def edit_of(run: FlowRun[Any], data: Any, by: str) -> Edited:
    """Return the outcome that replaces the data of a run."""
    flow = run.flow
    flow.record_of(data)  # refuses what is of another type
    if not isinstance(flow.states.get(run.state), LiveState):
        what, right = "one that has ended", "fork a step before its end"
        if not run.record.trace:
            what, right = "one that has not begun", f"begin another with {flow.name}.prepare(…) or call(…)"
        raise UsageError(f"{run}: expected a run in a state that can take other data, got {what}; {right}")
    return Edited(data=msgspec.Raw(flow.data_json(data).encode()), by=by)
