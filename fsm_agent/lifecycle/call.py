"""One agent call, from its seed to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, cast

from fsm_agent._internal.generics import New, Out
from fsm_agent._internal.lazy_import import deferred, pydantic_core
from fsm_agent._internal.spelled_out import spelled_out
from fsm_agent._internal.values import from_json, quick_json, to_json
from fsm_agent.errors import (
    CallFailed,
    CallSuspended,
    FsmAgentError,
    IllegalTrigger,
    OutcomeError,
    ParseError,
    SnapshotError,
    UsageError,
)
from fsm_agent.functions.function import Function
from fsm_agent.functions.hosted import declared
from fsm_agent.lifecycle.approval import Gate, closed_again
from fsm_agent.lifecycle.call_result import CallResult
from fsm_agent.lifecycle.delegation.handoff import Relayed
from fsm_agent.lifecycle.effects import (
    EFFECTS,
    TEXT,
    AskApproval,
    Begin,
    CallModel,
    Effect,
    FindOut,
    Request,
    RunFunction,
    Settings,
    Sleep,
    StartFunction,
    explained,
)
from fsm_agent.lifecycle.function_budgets import (
    drafts,
    gone,
    has_to_finish,
    is_final,
    offered,
    ready,
    rounds_used_up,
)
from fsm_agent.lifecycle.interpret import Answer, FinalReply, StopWhen, first_call, parse_answer, read, read_reply
from fsm_agent.lifecycle.limits import Limits
from fsm_agent.lifecycle.outcomes import (
    Cancelled,
    Expired,
    FunctionFailed,
    Injected,
    ModelFailed,
    Outcome,
    Replied,
    Returned,
    Stopped,
)
from fsm_agent.lifecycle.record import ASKING, CallRecord, Ending, OnceRun, Reason, State, successor_name
from fsm_agent.lifecycle.reports.failure import RequestFailure
from fsm_agent.lifecycle.table import MACHINE, at_round_limit
from fsm_agent.machine.journal import Entry, Journal, own_step_json
from fsm_agent.machine.process import NARROWED, SEPARATOR, Change, Deadline, Driven, Owner
from fsm_agent.machine.watching import STEP_WATCHES
from fsm_agent.messages.event import Stepped
from fsm_agent.messages.hosted_tool import merged
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.fingerprint import PromptChange
from fsm_agent.prompts.prompt import MissingPrompt, Prompt

if TYPE_CHECKING:
    import pickle
    from typing import TypedDict, Unpack

    import transitions

    from fsm_agent.lifecycle.context.view import View
    from fsm_agent.lifecycle.delegation import delegating_call
    from fsm_agent.machine import rows

    class CallParts(TypedDict, total=False):
        """The parts of an `AgentCall` that are in no record."""

        settings: Settings
        args: Mapping[str, Any]
        stop_when: StopWhen | None
        view: View | None
        deps: Any
        has_approver: bool

else:
    pickle = deferred("pickle")
    delegating_call = deferred("fsm_agent.lifecycle.delegation.delegating_call")
    rows = deferred("fsm_agent.machine.rows")
    transitions = deferred("transitions")

_BEGINNING = (Begin("begin"),)
_ROUND_LIMIT = at_round_limit.__name__
UNASKED = (Cancelled, Stopped, Expired, Injected)
_OF_FUNCTIONS = (Returned, FunctionFailed, Relayed)
_NO_ARGS: Mapping[str, Any] = {}
_NOT_BEGUN = OnceRun(attempt=0, phase="cleared")

NEVER = Stepped("", "", "", "", 0.0)
_UNPARSED = object()
# Exceptions, beside PickleError, that foreign code raises when it cannot be pickled or loaded.
UNPICKLABLE = (AttributeError, EOFError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError)


class AgentCall(Driven, Generic[Out]):
    """One run of the machine over a dialog: the one mutable cell around a record.

    `effects` is what it waits for, `advance` takes the outcome of one of them; a driver needs no more.

    Args:
        record: The state of the call; `AgentCall.seed` makes a fresh one, `restore` one from a snapshot.
        prompt: The task's: functions, output, handlers.
        settings: Options of the request to the model.
        args: Some of them for this call alone, over those of its prompt.
        stop_when: Ends the call at a reply; pure.
        view: Selects the part of the dialog that the model is shown; None: all of it.
        deps: The dependencies of functions, for their `Context`; not inspected here.
        has_approver: Whether the driver has an approver, who then decides on every function whose policy does not
            exempt it.

    Attributes:
        problem: The exception of the prompt's parser at the latest reply, or of the function with which the call has
            failed; None when the parser took the answer or was not called.  The record keeps its type and text alone.
            A traceback holds the frames of the call, and through them the call itself, so a driver logs that of a
            parser and drops it; that of a function is the cause of `CallFailed`, for whoever made the call.
        prompt_change: The change of its prompt since a snapshot or a run was made, which this call goes on with; None:
            there is none.
        client: The client of the model in its record, for its driver; not inspected here.  None: that model's name
            stands for it, or the driver has its own.
        system_args: See `Dialog`.  Of a call that was restored they are not known, and it is taken for granted that an
            agent put the system message there.
    """

    __slots__ = (
        "_effects",
        "_folded",
        "_newest",
        "_output",
        "after",
        "args",
        "change",
        "client",
        "deps",
        "guard",
        "has_approver",
        "problem",
        "prompt",
        "prompt_change",
        "record",
        "settings",
        "state",
        "step",
        "stop_when",
        "system_args",
        "view",
    )

    def __init__(
        self,
        record: CallRecord,
        prompt: Prompt[Out],
        *,
        settings: Settings = Settings(),
        args: Mapping[str, Any] = _NO_ARGS,
        stop_when: StopWhen | None = None,
        view: View | None = None,
        deps: Any = None,
        has_approver: bool = False,
    ) -> None:
        self.record = record
        if settings.hosted_tools or prompt.may_host:
            prompt = prompt.answering(settings.hosted_tools, has_approver=has_approver)
        self.prompt = prompt
        self.settings = settings
        self.args = args
        self.stop_when = stop_when
        self.view = view
        self.deps = deps
        self.has_approver = has_approver
        self.state: State = record.state  # set by `transitions`; committed with the record
        self.after = record  # the record that the row's action returned
        self.step: Stepped = NEVER  # the latest
        self.guard = ""  # the name of the guard that let the row be taken
        self.problem: Exception | None = None
        self.prompt_change: PromptChange | None = None
        self.system_args: Mapping[str, Any] | None = _NO_ARGS
        self.client: Any = None
        self.end_request = None
        self.driver = None
        self.journal = None
        self.change: Change | None = None
        self._effects: tuple[Effect, ...] | None = None
        self._newest: FunctionCall | None = None  # of the first `_folded` function calls of the record: see `_ran_last`
        self._folded = 0
        self._output: Any = _UNPARSED

    @classmethod
    @spelled_out(__init__, without=("self", "record", "prompt"))
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
            dialog: The conversation so far, the task included.
            prompt: The task's.
            limits: The budgets.
            depth: How many agent calls this one is inside of.
            extra: Data of the caller's that JSON can hold, kept in the record.
            parser_args: Arguments for the prompt's parser and validators that JSON can hold, kept in the record.
            options: ``settings``, ``args``, ``stop_when``, ``view``, ``deps``, ``has_approver``.
        """
        make: type[AgentCall[Any]] = call_class(prompt) if cls is AgentCall else cls
        record = CallRecord.of(dialog.messages, limits=limits, depth=depth, extra=extra, parser_args=parser_args)
        call = make(record, prompt.for_call(), **options)
        call.system_args = dialog.system_args
        return call

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects that the call waits for now; empty once it has ended."""
        if self._effects is None:
            self._effects = self.own_effects()
        return self._effects

    @property
    def steps(self) -> tuple[Stepped]:
        """The step of the last `advance`."""
        return (self.step,)

    @property
    def deadline(self) -> Deadline | None:
        """The moment when the call expires."""
        if self.record.limits.deadline_s is None or (at_s := self.record.deadline_s) is None:
            return None
        return Deadline(at_s, "")

    def owner(self, key: str) -> Owner:
        """Return the call itself: it has no children."""
        return Owner(self, "", ())

    def cancel(self, reason: str = "") -> None:
        """Cancel the call, from any thread or from one of its functions.

        Its driver ends it at once, whatever it waits for, and no outcome that comes later counts.  A function that runs
        in the driver's own thread is waited for (see `fsm_agent.runtime.drive`).  A call that nobody drives is ended by
        its next driver, or by ``advance("", Cancelled())``.
        """
        super().cancel(Cancelled(reason=reason).reason)  # a reason that is no text is refused here

    def stop(self, reason: str = "") -> None:
        """End the call well, with the reply that it has, from any thread or from one of its functions.

        It is as if `stop_when` had ended it with this reason: the call completes with `Reason.STOPPED` and no output,
        and function calls that are pending are not run.  For the rest it is as with `cancel`.
        """
        outcome = Stopped(reason=reason)
        self.request_end(outcome.kind, outcome.reason)

    def advance(self, key: str, outcome: Outcome) -> None:
        """Take the outcome of one effect.  All or nothing, synchronous, pure.

        Args:
            key: The effect's key; ``""`` for `Cancelled`, `Stopped`, `Expired` and `Injected`, which answer nothing.
            outcome: The outcome.

        Raises:
            OutcomeError: The call waits for nothing under ``key``, or not for this.  The call is unchanged.
            IllegalTrigger: The call has ended.  It is unchanged.
        """
        r = self.record
        about = self._subject(key, outcome)
        document = "" if self.journal is None else self.encode(key, outcome)
        if type(outcome) is Replied:
            gate = Gate(self.has_approver, self.deps)
            trigger, answer = read_reply(r, outcome.reply, self.prompt, self.stop_when, self._ran_last(), gate)
        else:
            trigger, answer = read(r, about, outcome, self.prompt)
        self.after = r
        try:
            if not MACHINE.events[trigger].trigger(self, self, answer, self.prompt):
                raise transitions.MachineError(f"the guards {rows.guard_names(MACHINE, trigger, r.state)} said no")
            self._commit(trigger, key, outcome, answer, document)
        except transitions.MachineError as error:
            self.state = r.state
            legal = ", ".join(sorted(MACHINE.get_triggers(r.state.name))) or "none: it has ended"
            why = f"{trigger!r} is not possible in {r.state}: {error.value}"
            raise IllegalTrigger(f"{why}; possible: {legal}") from error
        except BaseException:
            self.state = self.record.state  # the new record's, when Ctrl-C came after the commit
            raise

    def _commit(self, trigger: str, key: str, outcome: Outcome, answer: Answer, document: str) -> None:
        """Make the record of the row the call's, with the changes that all rows have in common."""
        before, after = self.record, self.after
        changes: dict[str, Any] = {"state": self.state}
        output, problem = self._output, self.problem
        usage = served_by = left = None
        limited = rounds_used_up(before.limits) if self.guard == _ROUND_LIMIT else ""
        detail = limited if after.ending is None else after.ending.detail
        kind = type(outcome)
        if kind in CallModel.outcomes:
            changes["turn"] = before.turn + 1
            detail = detail or _problem(answer)
        if kind is Replied:
            reply: Reply = outcome.reply  # type: ignore[union-attr]
            usage, served_by = reply.usage, reply.served_by
            changes["replies"] = before.replies + 1
            changes["usage"] = before.usage + usage
            changes["reply"] = reply
            output, problem = (answer.output, answer.error) if type(answer) is FinalReply else (_UNPARSED, None)
            if reply.adapted or after.repairs:
                detail = "; ".join([*filter(None, [detail]), *after.repairs, *reply.adapted])
        elif kind in _OF_FUNCTIONS:
            usage = _of_function(before, outcome, changes)
            if self.state is before.state:
                left = self._left(key)
        elif trigger == "handed_over":
            detail = detail or outcome.agent  # type: ignore[union-attr]
        if trigger == "model_failed":  # a reply may say so, too
            changes["failures"] = before.failures.push(_failure(before, key, answer, outcome.at_s, self.state))
        step = Stepped(before.state, trigger, self.state, key, outcome.at_s, self.guard, detail, usage, served_by)
        for watch in STEP_WATCHES.get():
            watch(step)
        changes["trace"] = before.trace.push(step)
        record = after.changed(**changes)
        if self.journal is not None:
            self.journal.add(Entry(key, document, own_step_json(trigger), record), before)
        self._output, self.problem = output, problem
        self.step = step
        self._effects = None  # before the record: after an interruption in between they are computed anew
        self.record = record
        self._effects = left
        self.change = None if left is None else NARROWED

    # Its journal

    def journaled(self) -> Self:
        """Begin to keep a journal in memory, as `undo` and `states` need one; return the call itself."""
        if self.journal is None:
            self.journal = Journal(self)
        return self

    @property
    def states(self) -> list[CallRecord]:
        """The records from the beginning of the journal to the present one, one per step.

        Raises:
            UsageError: The call keeps no journal.
        """
        return self._kept("states").records

    def undo(self) -> None:
        """Return to the state before the last step.

        Raises:
            UsageError: The call keeps no journal, something drives it, or there is no step to undo; or its journal is
                in a store, where nothing is ever undone.
        """
        self.return_to(self._kept("undo").undo())

    def redo(self) -> None:
        """Take the step again that was undone last.

        Raises:
            UsageError: As `undo` does.
        """
        self.return_to(self._kept("redo").redo())

    def fork(self, at: int) -> AgentCall[Out]:
        """Return a call that goes on from an earlier state of this one, on its own.

        Args:
            at: The index of the state in `states`.

        Raises:
            UsageError: The call keeps no journal, or there is no such state.
        """
        states = self._kept("states").records
        if not -len(states) <= at < len(states):
            raise UsageError(f"there is no state {at!r} to fork at: there are {len(states)}, from 0")
        forked = type(self)(states[at], self.prompt, **{name: getattr(self, name) for name in _OPTIONS}).journaled()
        forked.client = self.client
        return forked

    def _kept(self, use: str) -> Journal:
        if self.journal is None:
            raise UsageError(f"{use} needs a journal, and {self} keeps none: journaled() begins one")
        if use != "states" and self.driver is not None and self.driver() is not None:
            raise UsageError(f"{use} is not possible while {self} is being driven")
        if use != "states" and self.journal.is_stored:
            raise UsageError(f"{use} is not possible: {self} is in a store, which only grows; fork() makes a copy")
        return self.journal

    def return_to(self, record: CallRecord) -> None:
        """Be in the state of an earlier record."""
        self.step = record.trace[-1] if record.trace else NEVER
        self._output, self.problem = _UNPARSED, None
        self._newest, self._folded = None, 0
        self._effects = None
        self.record, self.state = record, record.state

    @property
    def definition(self) -> str:
        """A fingerprint of the prompt, its handlers, its functions and their policies."""
        return self.prompt.fingerprint

    def encode(self, key: str, outcome: Outcome) -> str:
        """Return an outcome as JSON.

        Raises:
            OutcomeError: It holds something that could not be read again.
        """
        try:
            if type(outcome) is not Replied:  # their fields are checked when they are made
                return quick_json(outcome)
            is_lasting = self.journal is None or self.journal.is_lasting or outcome.reply.logprobs
            return to_json(outcome) if is_lasting else quick_json(outcome)
        except ValueError as error:
            what = f"the outcome of {key!r} is not taken, as no journal could be read again with it"
            raise OutcomeError(f"{what}: {str(error)[:500]}") from None

    def decode(self, key: str, document: bytes | str) -> Outcome:
        """Return the outcome that JSON holds.

        Raises:
            OutcomeError: It is damaged, or of no kind that there is.
        """
        try:
            outcome: Outcome = from_json(document, Outcome)
        except ValueError as error:
            raise OutcomeError(f"the outcome for {key!r} cannot be read: {error}") from None
        return outcome

    @property
    def outcome(self) -> CallResult[Out]:
        """The result so far, whether or not the call has ended well."""
        return CallResult(self)

    def __str__(self) -> str:
        return f"the agent call {self.record.id!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (self.record, self._code(), self.system_args is None)

    def portable(self) -> tuple[Callable[..., AgentCall], tuple[Any, ...]]:
        """Return a function and its arguments, all of which can be pickled, that make this call again.

        Where the prompt or other code cannot be pickled here or loaded there, that call has its record alone.
        """
        try:
            code: bytes | str = pickle.dumps(self._code())
        except (pickle.PickleError, *UNPICKLABLE) as error:
            code = str(error)
        return _received, (self.record, self.prompt.path, code)

    def _code(self) -> dict[str, Any]:
        """Return the arguments of the call beside its record; of one that has ended, the prompt alone."""
        if self.record.ending is not None:
            return {"prompt": self.prompt}
        return {name: getattr(self, name) for name in ("prompt", *_OPTIONS)}

    def closed_again(self) -> CallRecord:
        """Return the record with the policies applied again to the pending calls that nobody has approved.

        The calls inside of functions that are gone, or no agents by now, are dropped.
        """
        r, agents = self.record, {f"run:{f.id}" for f in self.record.round if f.name in self.prompt.delegates}
        if r.state is State.HANDED_OVER:
            agents.add(self._successor(r))
        for name in r.children.keys() - agents:
            usage = r.usage + r.children[name].total_usage
            r = r.changed(usage=usage, children={other: r.children[other] for other in r.children if other != name})
        return closed_again(r, self.prompt, Gate(self.has_approver, self.deps))

    def _successor(self, r: CallRecord) -> str:
        """Return the name of the call of the agent that has taken the dialog over.

        Raises:
            SnapshotError: There is no such handoff by now.
        """
        name, handoffs = r.governed_by.partition(SEPARATOR)[0], self.prompt.handoffs
        if name not in handoffs:
            known = ", ".join(map(repr, sorted(handoffs))) or "none"
            raise SnapshotError(f"{self} was handed over by {name!r}, which is no handoff by now; there are: {known}")
        return successor_name(name)

    def result(self) -> CallResult[Out]:
        """Return the result of the call.

        Raises:
            CallFailed: It ended without an output; the provider's or the parser's error, if any, is the cause.
            CallSuspended: It has not ended, and waits for somebody.
        """
        r = self.record
        if r.ending is None:
            raise CallSuspended(
                f"the agent call waits in {r.state} for {explained(self.effects, self._run)}", call=self
            )
        if r.state is State.FAILED:
            circumstances = f"in {r.trace[-1].source}, round {r.rounds}, after {r.turn} request(s), call {r.id!r}"
            cause = self._cause(r.ending)
            detail = cause if r.ending.reason is Reason.MODEL_FAILED else r.ending.detail
            why = f"{r.ending.reason}: {detail} ({circumstances})"
            raise CallFailed(why, call=self) from cause
        return CallResult(self)

    @property
    def _run(self) -> str:
        """The name of its run in a store; empty: it is in none."""
        return self.journal.run if self.journal is not None and self.journal.is_stored else ""

    def _cause(self, ending: Ending) -> Exception | None:
        """Return the exception behind a failure; one that was raised in another process is made from what was kept."""
        if ending.reason is Reason.FUNCTION_FAILED:
            return FsmAgentError(ending.detail) if self.problem is None else self.problem
        report = ending.error
        if report is None:
            return None
        if ending.reason is Reason.MODEL_FAILED:
            return report.exception()
        return ParseError(f"{report.kind}: {report.message}") if self.problem is None else self.problem

    @property
    def output(self) -> Any:
        """The answer as the prompt's parser returned it; None as long as there is none."""
        r = self.record
        if r.ending is None or r.ending.reason is not Reason.ANSWERED:
            return pydantic_core.from_json(r.ending.output_json) if r.ending and r.ending.output_json else None
        if self._output is _UNPARSED and r.reply is not None:  # restored from a snapshot, which holds no objects
            in_branch = r.trace[-1].source == State.PARSE_EXCEPTION
            self._output = parse_answer(r, r.reply, self.prompt, first_call(r.reply.message), in_branch=in_branch).value
        return self._output

    def own_effects(self) -> tuple[Effect, ...]:
        """Return the effects that the call itself waits for; it has no others, unless it delegates."""
        wanted = _WANTED.get(self.record.state)
        return () if wanted is None else wanted(self, self.record)

    def _beginning(self, r: CallRecord) -> tuple[Effect, ...]:
        return _BEGINNING

    def _reply(self, r: CallRecord) -> tuple[Effect, ...]:
        request, is_priced = self._request(), r.limits.cost_usd is not None
        refusal = self.view.refusal if self.view else None
        return (CallModel(f"model:{r.turn}", request, r.attempt, is_priced, refusal),)

    def _nap(self, r: CallRecord) -> tuple[Effect, ...]:
        return (Sleep(f"sleep:{r.turn}", r.wake_at_s),)

    def _round(self, r: CallRecord) -> tuple[Effect, ...]:
        """Return what is waited for of a round: the approvals of its function calls first, then their results."""
        pending = r.pending
        if asks := [AskApproval(f"ask:{f.id}", f) for f in pending if f.needs_approval]:
            return tuple(asks)
        wanted: list[Effect] = []
        named = self.prompt.by_name
        for f in ready(r, pending, self.prompt):
            function = named.get(f.name) or gone(f.name)
            if function.call is not None and (function.once or f.id in r.once):
                wanted.append(self._once(f, function))
            else:
                wanted.append(RunFunction(f"run:{f.id}", f, function))
        return tuple(wanted)

    def _once(self, f: FunctionCall, function: Function) -> Effect:
        """Return what is waited for of a function that must not run twice."""
        run = self.record.once.get(f.id, _NOT_BEGUN)
        attempt = run.attempt + 1 if run.phase == "cleared" else run.attempt
        name = f.id if attempt == 1 else f"{f.id}:{attempt}"
        if run.phase == "cleared":
            return StartFunction(f"start:{name}", f)
        if run.phase == "doubtful":
            return FindOut(f"doubt:{name}", f, function, f"{self.record.id}/{f.id}")
        return RunFunction(f"run:{name}", f, function, is_once=True)

    def _left(self, key: str) -> tuple[Effect, ...] | None:
        """Return a round's effects without ``key``; None: they have to be computed anew, as others may begin now."""
        prompt = self.prompt
        if prompt.depended_on or prompt.handoffs or prompt.in_order or self.record.limits.parallel is not None:
            return None
        effects = self.effects
        for i, effect in enumerate(effects):
            if effect.key == key:
                return effects[:i] + effects[i + 1 :]
        return effects

    def _request(self) -> Request:
        r, prompt = self.record, self.prompt
        functions: tuple[Function, ...] = ()
        is_last = is_final(r, prompt)
        if is_last or r.branch:
            prompt = prompt.governing(is_final=is_last, in_branch=bool(r.branch))
        settings = self.settings
        if is_last or prompt.settings or prompt.hosted_tools or self.args:
            settings = self._settings(prompt, is_last)
        if not is_last and settings.tool_choice != "none":
            functions = offered(r, prompt)
            if settings.hosted_tools:
                functions = declared(functions, settings.hosted_tools)
        messages: Sequence[Message] = self.view(r) if self.view else r.dialog
        if is_last and has_to_finish(r, self.prompt):  # said in requests alone, so no later turn reads it
            messages = (*messages, Message.of("user", self.prompt.handler_text("final", rounds=r.rounds)))
        output, mode = prompt.expected, prompt.mode
        if mode is not None:
            output = TEXT if self.prompt.mode == "two_stage" and drafts(r, self.prompt) else output
            mode = None if mode == "two_stage" else mode
        return Request(
            messages=(*messages, *r.branch) if r.branch else messages,
            functions=functions,
            tool_choice="auto" if r.rounds or not functions else settings.tool_choice,  # once, or it could never end
            output=output,
            mode=mode,
            settings=settings,
            branch_length=len(r.branch) if r.branch else 0,
        )

    def _settings(self, prompt: Prompt, is_last: bool) -> Settings:
        """Return the settings of a request that this prompt governs."""
        settings = self.settings
        if prompt.settings or self.args:
            settings = settings.override({**prompt.settings, **self.args})
        if is_last:
            return settings.override({"hosted_tools": ()}) if settings.hosted_tools else settings
        if prompt.hosted_tools:
            return settings.override({"hosted_tools": merged(settings.hosted_tools, prompt.hosted_tools)})
        return settings

    def _subject(self, key: str, outcome: Outcome) -> FunctionCall | None:
        """Return the function call that ``key`` is about; refuse keys and outcomes that nothing waits for."""
        for wanted in self._effects or self.effects:
            if wanted.key == key:
                if type(outcome) not in wanted.outcomes:
                    break
                return getattr(wanted, "call", None)
        if key == "" and type(outcome) in UNASKED:
            return None
        raise OutcomeError(self._unwanted(key, outcome))

    def _unwanted(self, key: str, outcome: Outcome) -> str:
        """Return the error text for an outcome that nothing waits for."""
        if not isinstance(key, str):
            return f"the key is {key!r:.80}: that of an effect, such as 'ask:2.0', and then its outcome, would be right"
        if isinstance(outcome, type):
            return f"the outcome for {key!r} is the class {outcome.__name__}: an object of it would be right"
        kinds = {effect.key: type(effect) for effect in self.effects}
        kind = kinds.get(key) or EFFECTS.get(key.partition(":")[0])
        if kind is None or type(outcome) not in kind.outcomes:
            right = " or ".join(t.__name__ for t in kind.outcomes) if kind else "the key of an effect"
            return f"{type(outcome).__name__} answers no {key!r}: {right} would"
        keys = ", ".join(map(repr, kinds)) or "nothing: it has ended"
        return f"nothing was asked under {key!r} in {self.record.state}; waited for: {keys}"

    def _ran_last(self) -> tuple[str, ...]:
        """Return the fingerprint of the function call that ran last, if it succeeded and no other ran in its round.

        Anything else that has run since may have changed what a call would find, and so may any other function of the
        same round.  Derived from the record, each call processed once.
        """
        if not self.record.runs:
            return ()
        calls, newest = self.record.function_calls, self._newest
        index = "" if newest is None else newest.id.partition(".")[0]  # of the message, and so of the round
        for f in calls.since(self._folded):
            if f.was_run and not f.is_cached:
                before, index = index, f.id.partition(".")[0]
                has_company = index == before
                if has_company and not newest.fingerprint:  # type: ignore[union-attr]
                    continue  # it has had other company already
                is_alone = not has_company or newest.fingerprint == f.fingerprint  # type: ignore[union-attr]
                newest = f if is_alone and f.succeeded else f.changed(fingerprint="")
        self._folded, self._newest = len(calls), newest
        if newest is None or (self.view is not None and newest.id in self.view.masked_calls(self.record)):
            return ()  # nothing has run, or the model does not see its result
        return (newest.fingerprint,)


# By state: what the call waits for there.
_WANTED: Mapping[State, Callable[[AgentCall[Any], CallRecord], tuple[Effect, ...]]] = {
    State.SEEDED: AgentCall._beginning,
    **dict.fromkeys(ASKING, AgentCall._reply),
    State.TOOL_INTERRUPT: AgentCall._round,
    State.BACKOFF: AgentCall._nap,
}


def _problem(answer: Answer) -> str:
    """Return the problem of an outcome after which the call goes on all the same."""
    if type(answer) is FinalReply:
        return answer.problem
    return answer.error.message if type(answer) is ModelFailed else ""


def _of_function(before: CallRecord, outcome: Any, changes: dict[str, Any]) -> Usage | None:
    """Add what the end of a function changes beside its call; return the tokens that it took, as it is an agent."""
    if type(outcome) is Returned and outcome.releases:
        changes["released"] = (*before.released, *outcome.releases)
    if outcome.usage is UNUSED:
        return None
    changes["usage"] = before.usage + outcome.usage
    return outcome.usage  # type: ignore[no-any-return]


def _failure(before: CallRecord, key: str, answer: Any, at_s: float, to: State) -> RequestFailure:
    """Return the report of a request that failed."""
    delay_s = answer.delay_s if to is State.BACKOFF else None
    number, report = before.rounds + 1, answer.error
    return RequestFailure(key=key, attempt=before.attempt, round=number, report=report, at_s=at_s, delay_s=delay_s)


_OPTIONS = tuple(AgentCall.__init__.__kwdefaults__ or ())  # arguments of a call by keyword, stored under the same names


def call_class(prompt: Prompt[Any]) -> type[AgentCall[Any]]:
    """Return the class of the calls of a prompt, which delegates if some of its functions are agents."""
    return delegating_call.DelegatingCall if prompt.delegates else AgentCall


def _remade(record: CallRecord, code: dict[str, Any], is_system_own: bool = False) -> AgentCall:
    call: AgentCall = call_class(code["prompt"])(record, **code)
    if is_system_own:
        call.system_args = None
    return call


def _received(record: CallRecord, path: str, code: bytes | str) -> AgentCall:
    """Return the call that `AgentCall.portable` wrote."""
    problem = code
    if isinstance(code, bytes):
        try:
            return _remade(record, pickle.loads(code))
        except (pickle.PickleError, *UNPICKLABLE) as error:
            problem = f"{type(error).__name__}: {error}"
    return AgentCall(record, cast("Any", MissingPrompt(path, str(problem))))
