"""One agent call as a process, from its initial data to its end."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Self, TypedDict, Unpack

import pydantic_core

from fsm_agent._internal.structs import New, Out, from_json, quick_json, to_json
from fsm_agent.call.delegation import Delegation
from fsm_agent.call.derived_events import with_functions, with_history
from fsm_agent.call.effects import AskSummary, CallModel, Effect
from fsm_agent.call.journal import Entry, Journal, steps_json
from fsm_agent.call.limits import Limits
from fsm_agent.call.machine import Explanation
from fsm_agent.call.outcomes import FinalReply, ModelFailed, Outcome, Replied, Stopped, TooLong
from fsm_agent.call.process import NARROWED, SEPARATOR, ChildHandle, Deadline, Process, refusal_of
from fsm_agent.call.record import TAKES_OVER, CallRecord, Reason, State, successor_name
from fsm_agent.call.requests import effects_left, effects_of
from fsm_agent.call.result import CallResult, result_of
from fsm_agent.call.rounds import ApprovalGate, closed_again
from fsm_agent.call.stop_conditions import StopWhen
from fsm_agent.call.transition_table import OF_ANSWERS, OF_FUNCTIONS, ROWS, UNASKED, take_step
from fsm_agent.call.triggers import (
    TableEvent,
    checked_output,
    first_call,
    parse_answer,
    read,
    read_reply,
    read_summary,
    was_in_branch,
)
from fsm_agent.errors import ContextTooLong, OutcomeError, SnapshotError, UsageError
from fsm_agent.messages.events import Event, Inside, Stepped
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import MissingPrompt, Prompt, PromptChange


class CallParts(TypedDict, total=False):
    """The arguments to `AgentCall` that are not stored in its record."""

    settings: Settings
    args: Mapping[str, Any]
    stop_when: StopWhen | None
    check: Callable[..., Any] | None
    view: Any  # a `View` of `fsm_agent.context.fitting`, or None
    deps: Any
    has_approver: bool


_NO_ARGS: Mapping[str, Any] = {}

NEVER = Stepped("", "", "", "", 0.0)
_UNPARSED = object()
# What user code raises, besides PickleError, when it cannot be pickled or loaded.
UNPICKLABLE = (AttributeError, EOFError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)


class AgentCall(Process, Generic[Out]):
    """One run of the state machine over a dialog: a mutable object around an immutable record.

    A driver performs the call's `effects` and passes their outcomes to `advance`.  Agents and flows among the call's
    functions run as its children.

    Args:
        record: The call's state.
        prompt: The task's prompt, with its functions, output and handlers.
        settings: Options for requests to the model.
        args: Options for this call only, which override the options of its prompt.
        stop_when: A pure function that may end the call after a reply.
        check: A function that judges each answer before it becomes the output; see `Agent`.
        view: A view that selects the part of the dialog that the model sees; by default, all of it.
        deps: The functions' dependencies, for their `Context`.
        has_approver: Whether the driver has an approver, which decides about every function unless the function's
            policy exempts it.

    Attributes:
        problem: The exception that the parser or check raised on the latest reply, or that a function raised to fail
            the call; None if there is none.  The record holds only the exception's type and text.
        prompt_change: How the prompt has changed since the snapshot or run was made, or None if it has not changed.
        client: The client for the model that the record names.  If it is None, the driver looks up a client by that
            name, or uses its own.
        opening: A function that makes the system prompt when the call begins, or None if the dialog already has one.
        system_args: See `Dialog`.  They are unknown to a restored call, which assumes that its system message came from
            the agent.

    Examples:
        >>> from fsm_agent.call import Begun, Replied
        >>> asked = AgentCall.seed(Dialog([Message.of("user", "hi")]), Prompt("{{ task }}"))
        >>> [effect.key for effect in asked.effects]
        ['begin']
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> _ = asked.advance(asked.effects[0].key, Replied(reply=Reply.of("hello")))
        >>> asked.state, asked.result_so_far.output
        (<State.COMPLETED: 'Completed'>, 'hello')
    """

    rows = ROWS
    record: CallRecord

    def __init__(
        self,
        record: CallRecord,
        prompt: Prompt[Out],
        *,
        settings: Settings = Settings(),
        args: Mapping[str, Any] = _NO_ARGS,
        stop_when: StopWhen | None = None,
        check: Callable[..., Any] | None = None,
        view: Any = None,
        deps: Any = None,
        has_approver: bool = False,
    ) -> None:
        if check is not None and record.state is State.SEEDED and not record.is_checked:
            record = record.changed(is_checked=True)
        super().__init__(record)
        if settings.hosted_tools or prompt.may_host:
            prompt = prompt.answering(settings.hosted_tools, has_approver=has_approver)
        self.prompt = prompt
        self.settings = settings
        self.args = args
        self.stop_when = stop_when
        self.check = check
        self.view = view
        self.deps = deps
        self.has_approver = has_approver
        self.problem: Exception | None = None
        self.prompt_change: PromptChange | None = None
        self.system_args: Mapping[str, Any] | None = _NO_ARGS
        self.client: Any = None
        self.opening: Callable[[], str] | None = None
        self.delegation = Delegation(self) if prompt.delegates else None
        self._output: Any = _UNPARSED
        self._changed: tuple[str, Any] | None = None  # the output as the check has changed it, and its JSON

    @classmethod
    def seed(
        cls,
        dialog: Dialog,
        prompt: Prompt[New],
        *,
        limits: Limits = Limits(),
        depth: int = 0,
        extra: Mapping[str, Any] | None = None,
        parser_args: Mapping[str, Any] | None = None,
        **options: Unpack[CallParts],
    ) -> AgentCall[New]:
        """Return a call that has not begun.

        Args:
            dialog: The conversation so far, including the task.
            prompt: The task's prompt.
            limits: The budgets.
            depth: The number of agent calls that this call is nested in.
            extra: The caller's JSON-serializable data, kept in the record.
            parser_args: JSON-serializable arguments for the prompt's parser and validators, kept in the record.
            options: The other arguments to `AgentCall`.
        """
        record = CallRecord.of(dialog.messages, limits=limits, depth=depth, extra=extra, parser_args=parser_args)
        made: Any = cls
        call: AgentCall[New] = made(record, prompt.for_call(), **options)
        call.system_args = dialog.system_args
        return call

    @property
    def state(self) -> State:
        """The current state."""
        return self.record.state

    @property
    def step(self) -> Stepped:
        """The latest step that the call itself, rather than one of its inner calls, has taken."""
        return self.record.trace[-1] if self.record.trace else NEVER

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects that the call is waiting for.  A call that has ended has no effects."""
        if self.delegation is not None:
            return super().effects  # type: ignore[return-value]
        if self._effects is None:
            self._effects = effects_of(self, self.record)
        return self._effects  # type: ignore[return-value]

    @property
    def deadline(self) -> Deadline | None:
        if self.delegation is not None:
            return super().deadline
        return None if (at_s := self.record.deadline_s) is None else Deadline(at_s, "")

    @property
    def own_deadline_s(self) -> float | None:
        return self.record.deadline_s

    def beginning(self, name: str) -> tuple[str, str]:
        """Return ``("call", task)``.  The task's text is empty if the call has taken over a dialog."""
        r = self.record
        if name.startswith(TAKES_OVER):
            return "call", ""
        return "call", "\n\n".join([message.text for message in r.dialog[: r.seeded_with] if message.role != "system"])

    def cancel(self, reason: str = "") -> None:
        """Cancel the call, from any thread or from one of its functions.

        The driver ends the call at once, whatever it is waiting for, and ignores later outcomes.  A function that runs
        in the driver's own thread has to return first; see `drivers.run`.  A call without a driver ends when a driver
        picks it up, or when you call ``advance("", Cancelled())``.
        """
        super().cancel(reason)

    def stop(self, reason: str = "") -> None:
        """Stop the call after its latest reply.  Any thread may call this method, and so may the call's own functions.

        As with `stop_when`, the call completes with `Reason.STOPPED` and no output, and pending function calls do not
        run.
        """
        outcome = Stopped(reason=reason)
        self.request_end(outcome.kind, outcome.reason)

    def advance(self, key: str, outcome: Outcome) -> None:
        """Take the outcome of one effect.  This is atomic, synchronous and pure.

        Args:
            key: The effect's key, or ``""`` for `Cancelled`, `Stopped`, `Expired` and `Injected`, which are not
                responses to an effect.
            outcome: The outcome.

        Raises:
            OutcomeError: If no effect has this key, or the effect does not accept this outcome.  The call is unchanged.
            IllegalTrigger: If the call has ended.
        """
        if self.delegation is not None:
            self.delegation.parsed = None
            super().advance(self.delegation.address(key, outcome), outcome)
            if self.delegation.parsed is not None:
                self._keep_parsed(self.delegation.parsed)
            return
        # Without children, the rest of `Process.advance` would take a tenth of each step.
        r, effects = self.record, self.effects
        about = self.subject(effects, key, outcome)
        document = "" if self.journal is None else self.encode(key, outcome)
        trigger, event = self.read(r, about, outcome)
        use = self.view.use(r) if type(about) is CallModel and self.view is not None else None
        record, step = take_step(r, trigger, key, outcome, event, self.prompt, use)
        left = None
        if record.state is r.state and (trigger == "approved" or type(outcome) in OF_FUNCTIONS):
            left = effects_left(self, r, effects, key)
        if self.journal is not None:
            self.journal.add(Entry(key, document, steps_json((step,)), record), r)
        if type(outcome) in OF_ANSWERS and type(about) is not AskSummary:
            self._keep_parsed(event)
        elif type(outcome) is ModelFailed:
            self.problem = None  # the problem of an earlier answer is not why the model failed
        self.steps = (step,)
        self._effects = None  # before the record is set, so that they are computed again if this is interrupted
        self.record = record
        self._effects = left
        self.change = None if left is None else NARROWED

    def explain(self, event: Any, *, key: str = "") -> Explanation:
        if not key and self.record.state is State.HANDED_OVER and not isinstance(event, Stepped | Inside):
            (name,) = self.record.children  # the call that has the dialog takes the outcome, as in `advance`
            key = f"{name}{SEPARATOR}"
        return super().explain(event, key=key)

    def read_event(self, key: str, outcome: Outcome) -> tuple[str, Any, Any, Any]:
        r = self.record
        trigger, event = self.read(r, self.subject(effects_of(self, r), key, outcome), outcome)
        return trigger, r, event, self.prompt

    def read(self, r: CallRecord, about: Any, outcome: Outcome) -> tuple[str, TableEvent]:
        """Return `(trigger, event)` for an outcome: its trigger, and the event that the table receives."""
        if type(about) is AskSummary:
            return read_summary(r, about, outcome)  # type: ignore[arg-type]
        if type(outcome) is ModelFailed and outcome.error.kind == ContextTooLong.__name__ and self.view is not None:
            return "too_long", TooLong(outcome.error, self.view.tightened(r, about.request))
        if type(outcome) is not Replied:
            return read(r, about if type(about) is FunctionCall else None, outcome, self.prompt)
        gate = ApprovalGate(self.has_approver, self.deps)
        return read_reply(r, outcome.reply, self.prompt, self.stop_when, self._ran_last(), gate)

    def _keep_parsed(self, event: TableEvent) -> None:
        """Keep the output that was parsed from the latest reply, or the exception that the parser or check raised."""
        self._output, self.problem = _UNPARSED, None
        if type(event) is FinalReply:
            self._output, self.problem = event.output, event.error

    def as_events(self, before: CallRecord, steps: Sequence[Event]) -> Sequence[Event]:
        """Return steps as events for listeners, including the changes to the dialog since the record ``before``."""
        return with_history(self, before, steps if self.delegation is None else tuple(with_functions(self, steps)))

    # Its children; see `Process`

    def own_effects(self) -> tuple[Effect, ...]:
        return effects_of(self, self.record) if self.delegation is None else self.delegation.own_effects()

    def child(self, name: str, record: Any) -> ChildHandle:
        return self._agents(name).child(name, record)

    def begin(self, record: CallRecord, name: str, child: Any) -> None:
        self._agents(name).begin(record, name, child)

    def result_of_child(self, name: str, child: Any) -> Any:
        return self._agents(name).result_of_child(name, child)

    def _agents(self, name: str) -> Delegation:
        if self.delegation is None:
            raise OutcomeError(f"{self}: expected agents among its functions, got none that could perform {name!r}")
        return self.delegation

    def _own_step(self, record: CallRecord, key: str, outcome: Any, steps: list[Event]) -> CallRecord:
        return self._agents(key).own_step(record, key, outcome, steps)

    def _settle_children(self, record: Any, ended: list[str], steps: list[Event]) -> Any:
        return self._agents("").within_budget(super()._settle_children(record, ended, steps), steps)

    def _check(self, key: str, outcome: Any) -> None:
        """Do nothing, because the step itself checks the outcome."""

    # Its journal

    def journaled(self) -> Self:
        """Begin a journal in memory, which `undo`, `redo`, `fork` and `states` need, and return the call."""
        if self.journal is None:
            self.journal = Journal(self.record)
        return self

    @property
    def states(self) -> list[CallRecord]:
        """The records since the journal began, one per step.

        Raises:
            UsageError: If the call has no journal.
        """
        return self._kept("states").records

    def undo(self) -> None:
        """Return to the state before the last step.

        Raises:
            UsageError: If the call has no journal or no step to undo, is being driven, or is in a store.
        """
        self.return_to(self._kept("undo").undo())

    def redo(self) -> None:
        """Redo the step that was last undone.

        Raises:
            UsageError: If the call has no journal or no step to redo, is being driven, or is in a store.
        """
        self.return_to(self._kept("redo").redo())

    def fork(self, at: int) -> AgentCall[Out]:
        """Return a new call that continues from an earlier state of this one.

        Args:
            at: The index of the state in `states`.

        Raises:
            UsageError: If the call has no journal, or no state has this index.
        """
        states = self._kept("states").records
        if not -len(states) <= at < len(states):
            raise UsageError(f"the state to fork at: expected 0 to {len(states) - 1}, got {at!r:.80}")
        parts = {name: getattr(self, name) for name in CALL_PARTS}
        if self.view is not None:  # its state is of one call
            parts["view"] = type(self.view)(self.view.plan)
        forked = type(self)(states[at], self.prompt, **parts).journaled()
        forked.client = self.client
        return forked

    def _kept(self, use: str) -> Journal:
        if self.journal is None:
            raise UsageError(f"{use}: expected a call with a journal, got {self} without one; call journaled() first")
        if use != "states" and self.driver is not None and self.driver() is not None:
            raise UsageError(f"{use} is not possible while {self} is being driven")
        if use != "states" and self.journal.is_stored:
            raise UsageError(f"{use} is not possible: {self} is in a store, which only grows; use fork() to copy it")
        return self.journal

    def return_to(self, record: CallRecord) -> None:
        super().return_to(record)
        self._output, self.problem = _UNPARSED, None
        if self.delegation is not None:
            self.delegation.ahead = record

    def renewed(self, at_s: float) -> CallRecord:
        return self.record.renewed(at_s)

    @property
    def fingerprint(self) -> str:
        return self.prompt.fingerprint

    def encode_own(self, key: str, outcome: Outcome) -> str:
        try:
            if type(outcome) is not Replied:  # their fields are checked when they are made
                return quick_json(outcome)
            is_lasting = self.journal is None or self.journal.is_lasting or outcome.reply.logprobs
            return to_json(outcome) if is_lasting else quick_json(outcome)
        except ValueError as error:
            what = f"the outcome of {key!r}: expected one that a journal can be read again with"
            raise OutcomeError(f"{what}: {str(error)[:500]}") from None

    def decode_own(self, key: str, document: bytes | str) -> Outcome:
        try:
            outcome: Outcome = from_json(document, Outcome)
        except ValueError as error:
            raise OutcomeError(f"the outcome for {key!r} cannot be read: {error}") from None
        return outcome

    @property
    def result_so_far(self) -> CallResult[Out]:
        return CallResult(self)

    def __str__(self) -> str:
        return f"the agent call {self.record.id!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.record, self._code(), self.system_args is None)

    def portable(self) -> tuple[Callable[..., AgentCall], tuple[Any, ...]]:
        """Return a picklable function and its arguments, which together recreate this call.

        If the prompt or other code cannot be pickled or unpickled, the new call contains only its record.
        """
        try:
            code: bytes | str = pickle.dumps(self._code())
        except (pickle.PickleError, *UNPICKLABLE) as error:
            code = str(error)
        return _received, (self.record, self.prompt.path, code, self.system_args is None)

    def _code(self) -> dict[str, Any]:
        """Return the arguments that the call was made with, except its record."""
        if self.record.ending is not None:
            return {"prompt": self.prompt}
        return {name: getattr(self, name) for name in ("prompt", *CALL_PARTS)}

    def closed_again(self) -> CallRecord:
        """Apply the functions' policies again to pending calls that were not approved, and return the new record.

        Inner calls are dropped if their function was removed or is no longer an agent.
        """
        r, agents = self.record, {f"run:{f.id}" for f in self.record.round if f.name in self.prompt.delegates}
        if r.state is State.HANDED_OVER:
            agents.add(self.successor(r))
        for name in r.children.keys() - agents:
            usage = r.usage + r.children[name].total_usage
            r = r.changed(usage=usage, children={other: r.children[other] for other in r.children if other != name})
        r = closed_again(r, self.prompt, ApprovalGate(self.has_approver, self.deps))
        if not r.children:
            return r
        inner = {name: self.child(name, child).process for name, child in r.children.items()}
        return r.changed(children={name: child.closed_again() for name, child in inner.items()})

    def successor(self, r: CallRecord) -> str:
        """Return the name of the inner call that has taken over the dialog.

        Raises:
            SnapshotError: If the prompt no longer has the handoff.
        """
        name, handoffs = r.governed_by.partition(SEPARATOR)[0], self.prompt.handoffs
        if name not in handoffs:
            known = ", ".join(map(repr, sorted(handoffs))) or "none"
            raise SnapshotError(
                f"{self} was handed over by {name!r}: expected a handoff of the prompt ({known}), but it is no"
                " longer one"
            )
        return successor_name(name)

    def result(self) -> CallResult[Out]:
        """Return the call's result.

        Raises:
            CallFailed: If the call ended without an output.  Its cause is the provider's or parser's error, if any.
            CallSuspended: If the call has not ended and is waiting for an answer.
        """
        return result_of(self)

    @property
    def output(self) -> Any:
        """The answer as the prompt's parser returned it, or None if the call has no answer."""
        r = self.record
        if r.successor is not None and self.delegation is not None:
            return self.delegation.output_of_successor(r)
        if r.ending is None or r.ending.reason is not Reason.ANSWERED:
            return pydantic_core.from_json(r.ending.output_json) if r.ending and r.ending.output_json else None
        if (document := r.ending.output_json) is None:
            return self._parsed_output(r)
        if self._changed is None or self._changed[0] != document:
            self._changed = document, checked_output(document, r, self.prompt)
        return self._changed[1]

    @property
    def proposed(self) -> Any:
        """The parsed answer that is waiting for the check, or None if there is none."""
        return self._parsed_output(self.record) if self.record.state is State.CHECKING else None

    def _parsed_output(self, r: CallRecord) -> Any:
        if self._output is _UNPARSED and r.reply is not None:  # restored from a snapshot, which holds no objects
            call, in_branch = first_call(r.reply.message), was_in_branch(r)
            self._output = parse_answer(r, r.reply, self.prompt, call, in_branch=in_branch).value
        return self._output

    def subject(self, effects: Sequence[Effect], key: str, outcome: Any) -> Any:
        """Return the function call that a key belongs to, or the effect itself if it concerns no function call.

        Raises:
            OutcomeError: If no effect is waiting for this outcome.
        """
        for wanted in effects:
            if wanted.key == key:
                if type(outcome) not in wanted.outcomes:
                    break
                return getattr(wanted, "call", wanted)
        if key == "" and type(outcome) in UNASKED:
            return None
        raise refusal_of(effects, key, outcome, self.record.state)

    def _ran_last(self) -> tuple[str, ...]:
        """Return the fingerprint of the function call that ran last, if it succeeded and no other ran in its round."""
        # A repeated call may be skipped only if nothing else has run since, because another function may have changed
        # its result.  So look only at the newest round in which a function ran.  The functions of a round run at the
        # same time, so the result is known only if all of them are the same call and succeeded.
        if not self.record.runs:
            return ()
        last: FunctionCall | None = None
        for f in reversed(self.record.function_calls):
            if not f.was_run or f.is_cached:
                continue
            if last is not None and f.id.partition(".")[0] != last.id.partition(".")[0]:
                break
            if not f.succeeded or (last is not None and f.fingerprint != last.fingerprint):
                return ()
            last = last or f
        if last is None or (self.view is not None and self.view.hides(self.record, last.id)):
            return ()  # nothing has run, or the model was not shown the result
        return (last.fingerprint,)


CALL_PARTS = tuple(AgentCall.__init__.__kwdefaults__ or ())  # keyword arguments; the attributes have the same names


def _remade(record: CallRecord, code: dict[str, Any], is_system_own: bool) -> AgentCall:
    call: AgentCall[Any] = AgentCall(record, **code)
    if is_system_own:
        call.system_args = None
    return call


def _received(record: CallRecord, path: str, code: bytes | str, is_system_own: bool) -> AgentCall:
    problem = code
    if isinstance(code, bytes):
        try:
            return _remade(record, pickle.loads(code), is_system_own)
        except (pickle.PickleError, *UNPICKLABLE) as error:
            problem = f"{type(error).__name__}: {error}"
    return _remade(record, {"prompt": MissingPrompt(path, str(problem))}, is_system_own)
