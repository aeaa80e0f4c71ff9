"""The base class of runs and of members: processes whose states wait for children or effects.

A state that asks an agent, runs another flow or has members begins a child process.  A state that runs a function or
waits for an answer has no child, and its effect belongs to the process itself.  Either way, the state's result is a
`StateResult`.  `fsm_agent.flows.parallel` decides what happens to the other members when one fails.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial, singledispatch
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from fsm_agent._internal.structs import from_json, quick_json
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.task_messages import resolve_task
from fsm_agent.call.call import AgentCall
from fsm_agent.call.derived_events import with_functions, with_history
from fsm_agent.call.effects import Begin, Reconcile, RunFunction, StartFunction
from fsm_agent.call.limits import with_limits_left
from fsm_agent.call.machine import Explanation
from fsm_agent.call.outcomes import Begun, FunctionFailed, Outcome, Returned, Started
from fsm_agent.call.process import SEPARATOR, ChildHandle, EffectValue, Process, prefix_of
from fsm_agent.call.record import UNHEARD, CallRecord, OnceRun, State
from fsm_agent.errors import FlowError, OutcomeError, UsageError
from fsm_agent.flows.checks import once_of, refused
from fsm_agent.flows.record import AwaitAnswer, Edited, FlowProcessRecord, RunOnData
from fsm_agent.flows.states import A, CallState, FunctionState, LiveState, WaitState, WholeCallState, may_be_abandoned
from fsm_agent.flows.values import Failure
from fsm_agent.functions.context import Made, check_deps, deps_for, is_maker
from fsm_agent.messages.events import Event, Inside, Stepped
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.runtime.environment import Environment
from fsm_agent.runtime.run_function import InnerCalls
from fsm_agent.validation import safe_repr

if TYPE_CHECKING:  # what imports this module
    from fsm_agent.flows.flow import Flow

FlowOutcome: TypeAlias = Outcome | Edited
NOT_BEGUN = OnceRun(attempt=0, phase="cleared")
BEGINNING = (Begin("begin"),)


class RunContext:
    """Everything that a run of a flow needs besides its record.  Inner flows and members share it.

    ``has_approver`` says whether this flow or an outer process has an approver, and ``has_listener`` whether hooks
    receive events, including events from children that have just ended.
    """

    def __init__(self, flow: Flow[Any], deps: Any, clients: Mapping[Any, Any], environment: Environment) -> None:
        check_deps(deps)
        self.deps = deps.value if isinstance(deps, Made) else deps
        self._makes_deps = is_maker(deps)
        self.clients = dict(clients)
        self.agents = flow.agents
        self.answer = flow.answer
        self.approve = flow.approve
        self.has_approver = flow.approve is not None
        self.own_environment = environment
        self.has_listener = flow.has_listener
        self._environments: dict[tuple[CallState[Any, Any], Agent[Any, Any]], Environment] = {}

    def for_run(self, flow: Flow[Any], extra: Mapping[str, Any], by: str) -> RunContext:
        """Return the context of one run, with deps that are made for this run."""
        if not self._makes_deps:
            return self
        made = copy(self)
        made._makes_deps = False
        made.deps = deps_for(self.deps, flow.name, extra, by)
        flow._check_deps(Made(made.deps))
        return made

    def join(self, around: InnerCalls) -> None:
        """Use the outer call's clock, and also its approver if the run has none."""
        environment = around.environment
        if self.approve is None:
            self.approve, self.has_approver = environment.approve, around.has_approver
        self.own_environment = self.own_environment.changed(clock=environment.clock, approve=self.approve)

    def inside(self, flow: Flow[Any]) -> RunContext:
        """Return the context of an inner flow, which may have its own agents, ``answer`` and ``approve``."""
        if not flow.agents and flow.approve is None and flow.answer is None:
            return self
        made = copy(self)
        made.agents = flow.agents or self.agents
        made.answer = self.answer if flow.answer is None else flow.answer
        if flow.approve is not None:
            made.approve, made.has_approver, made._environments = flow.approve, True, {}
        return made

    def environment(self, state: CallState[Any, Any], agent: Agent[Any, Any]) -> Environment:
        """Return the environment for a state's call to an agent."""
        key = agent if agent in state.client_keys else state
        client = self.clients.get(key, self.clients.get(state)) if self.clients else None
        approve = agent.approve or self.approve
        if client is None and approve is agent.approve:
            return agent._own_environment
        if (state, agent) not in self._environments:
            made = agent._own_environment if client is None else agent._environment_with(client)
            self._environments[state, agent] = made.changed(approve=approve)
        return self._environments[state, agent]


class StateResult(NamedTuple):
    """The result of a state: a trigger, and the answer for its rows."""

    trigger: str
    answer: Any
    at_s: float
    usage: Usage = UNUSED  # of a child
    where: str = ""


@contextmanager
def noting(state: LiveState[Any, Any], process: Process) -> Iterator[None]:
    """Name the state and the process in a note on any exception from the state's functions."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by a function of the state {state.name!r}, in {process}")
        raise


@singledispatch
def child_record(state: LiveState[Any, Any], data: Any, depth: int, run_context: RunContext) -> Any:
    """Return the record of the child that a state begins, or None if the state has no child.

    If this raises an exception, the state is not entered.
    """
    return None


@singledispatch
def child_handle(state: LiveState[Any, Any], data: Any, record: Any, run_context: RunContext) -> ChildHandle:
    """Return a state's child process, made from its record, with its listeners and its environment."""
    raise OutcomeError(f"{state!r} has no child")


@child_record.register(WaitState)
def _check_question(state: WaitState[Any, Any], data: Any, depth: int, run_context: RunContext) -> None:
    if state.question(data) is None:
        raise FlowError(f"question of {state.name!r}: expected what the person is shown, got None")


@child_record.register(CallState)
def _call_record(state: CallState[Any, Any], data: Any, depth: int, run_context: RunContext) -> CallRecord:
    agent, task = state.agent_for(data, run_context.agents), state.task(data)
    try:
        resolved = resolve_task(agent, task, run_context.deps)
    except UsageError as error:
        raise FlowError(f"state {state.name!r}: {error}") from error
    state.prompt_for(agent, task)  # it may refuse the task
    return CallRecord.of(resolved.messages, limits=agent.limits, depth=depth)


@child_handle.register(CallState)
def _call_handle(state: CallState[Any, Any], data: Any, record: CallRecord, run_context: RunContext) -> ChildHandle:
    agent = state.agent_for(data, run_context.agents)
    prompt = agent._resolve_prompt(state.prompt_for(agent, state.task(data)), run_context.deps)
    parts = agent._call_parts(prompt, None, run_context.deps)
    parts["has_approver"] = parts["has_approver"] or run_context.has_approver
    call = AgentCall(record, prompt, **parts)
    return ChildHandle(call, agent.hooks, environment=partial(run_context.environment, state, agent), name=agent.name)


class FlowProcess(Process):
    """The base class of processes whose states wait for children and effects."""

    record: Any
    may_be_abandoned = False  # whether the outer process may abandon it while it runs

    def __init__(self, record: FlowProcessRecord, run_context: RunContext) -> None:
        super().__init__(record)
        self.run_context = run_context
        self._ended: list[str] = []  # children that ended in the last advance

    @property
    def deps(self) -> Any:
        return self.run_context.deps

    @abstractmethod
    def state_of(self, name: str) -> tuple[LiveState[Any, Any], Any]:
        """Return the state that a step or member name refers to, and the data for it."""

    # The methods for children; see `Process`

    def child(self, name: str, record: Any) -> ChildHandle:
        state, data = self.state_of(name)
        inner = child_handle(state, data, record, self.run_context)
        process = inner.process
        if self.may_be_abandoned or may_be_abandoned(state):
            if isinstance(process, FlowProcess):
                process.may_be_abandoned = True
            else:  # some functions were unknown when the flow was defined
                for what in once_of(inner.process.prompt.offers, is_late=True):
                    raise refused(state.name, f"{what} of its agent")
        return inner

    def as_events(self, before: Any, steps: Sequence[Event]) -> Sequence[Event]:
        """Return the events that listeners get for steps, including starts and ends of agents used as functions."""
        return with_history(self, before, tuple(with_functions(self, steps)))

    def advance(self, key: str, outcome: Any) -> None:
        # Listeners receive the last steps of a child after it has ended, so it is kept for one more advance,
        # or for good if there are listeners, because hooks may keep events and look up their calls at any time.
        if self._ended:
            if not self.run_context.has_listener:
                for name in self._ended:
                    if name not in self.record.children:  # a name is still there if the step after its end failed
                        self.inners.pop(name, None)
            self._ended = []
        super().advance(key, outcome)

    def _remove_child(self, record: Any, name: str) -> Any:
        self._ended.append(name)
        return super()._remove_child(record, name)

    def begin(self, record: Any, name: str, child: Any) -> None:
        if record.budget_left is not None:
            child.record = with_limits_left(child.record, record.budget_left, record.total_usage)
        with noting(self.state_of(name)[0], self):
            child.advance("begin", Begun(at_s=record.trace[-1].at_s, id=f"{record.id}{SEPARATOR}{name}"))

    def result_of_child(self, name: str, child: Any) -> StateResult:
        r, (state, _) = child.record, self.state_of(name)
        at_s = r.trace[-1].at_s
        if not isinstance(child, AgentCall):
            state_result: StateResult = child.state_result()
            answer = state_result.answer
            if state_result.trigger == "failed" and not answer.where:  # a group names the member
                answer = replace(answer, where=state.name)
            return state_result._replace(answer=answer, at_s=at_s, usage=r.total_usage)
        ending, detail = r.ending, r.ending.detail
        if r.state is State.COMPLETED:
            output = child.output
            # A call that was stopped has no output either.  None is an answer if the model has given it in JSON and
            # the state expects it, or if the call says that it was answered.
            is_given = ending.output_json is not None and NoneType in state.answer_types.types
            if output is not None or ending.reason == "answered" or is_given:
                answer = child.result_so_far if isinstance(state, WholeCallState) else output
                return StateResult("done", answer, at_s, r.total_usage)
            detail = detail or "it was stopped before an answer"
        return StateResult("failed", Failure(str(ending.reason), detail, state.name), at_s, r.total_usage)

    # Its own effects

    def own_effects(self) -> list[EffectValue]:
        r = self.record
        found: list[EffectValue] = [] if r.trace else [*BEGINNING]
        for name, once in r.once.items():
            effect = self.effect_of(name, once)
            if effect is not None:
                found.append(effect)
        return found

    def effect_of(self, name: str, once: OnceRun) -> EffectValue | None:
        """Return the effect of a state that has no child, or None if the state only waits until its time runs out."""
        state, data = self.state_of(name)
        if isinstance(state, WaitState):
            return AwaitAnswer(f"answer:{name}", state, state.question(data))
        if isinstance(state, FunctionState):
            return _function_effect(state, data, name, once, self.record.id)
        return None

    def result_of_state(self, key: str, outcome: Any) -> tuple[str, LiveState[Any, Any], StateResult]:
        """Return the name of the step or member that an outcome concerns, its state, and its result."""
        if isinstance(outcome, StateResult):
            return key, self.state_of(key)[0], outcome
        name = name_in(key)
        state, _ = self.state_of(name)
        kind = type(outcome)
        if kind is FunctionFailed or (kind is Returned and outcome.is_error):
            if isinstance(state, WaitState):
                raise OutcomeError(f"answer to {key!r}: expected JSON of {state.answer_types!r}, got an error")
            why = Failure(getattr(outcome, "reason", "") or "raised", outcome.text, state.name)
            return name, state, StateResult("failed", why, outcome.at_s, outcome.usage)
        if kind is not Returned:
            right = "Returned(text=…) or FunctionFailed(text=…)"
            raise OutcomeError(f"outcome of {name!r}: expected {right}, got {kind.__name__}")
        try:
            return name, state, StateResult("done", state.answer_types.load(outcome.text), outcome.at_s, outcome.usage)
        except OutcomeError as error:
            if not (isinstance(state, FunctionState) and key.startswith(RunFunction.prefix)):
                raise  # a person answered, who may try again
            why = Failure("wrong type", str(error), state.name)
            return name, state, StateResult("failed", why, outcome.at_s, outcome.usage)

    def noted(self, record: Any, key: str, trigger: str) -> Any:
        """Return the record with a note about a function that must not run twice."""
        name = name_in(key)
        run = record.once[name]
        if trigger == "started":
            run = OnceRun(attempt=run.attempt + 1)
        else:
            run = run.changed(phase="doubtful" if trigger == "interrupted" else "cleared")
        return record.changed(once={**record.once, name: run})

    def encode_own(self, key: str, outcome: Any) -> str:
        try:
            return quick_json(outcome)
        except ValueError as error:
            raise OutcomeError(f"outcome of {key!r}: expected one that JSON can hold: {str(error)[:500]}") from None

    def decode_own(self, key: str, document: bytes | str) -> Any:
        try:
            return from_json(document, FlowOutcome)
        except ValueError as error:
            raise OutcomeError(f"outcome of {key!r}: expected JSON of an outcome: {str(error)[:500]}") from None

    def _now_called(self, key: str) -> str:
        """Return a key with the current name of its first step."""
        return key

    def present_key(self, key: str) -> str:
        return super().present_key(self._now_called(key))

    # Answers for its states

    def _inner_flows(self) -> Iterator[tuple[str, FlowProcess]]:
        for name in self.record.children:
            if isinstance(inner := self.child_process(self.record, name), FlowProcess):
                yield name, inner

    def keys_of(self, state: LiveState[Any, Any]) -> list[str]:
        """Return the keys, including keys in inner processes, under which a state can be answered."""
        effects = [effect for effect in self.own_effects() if effect.prefix not in ("begin", "sleep")]
        found = [effect.key for effect in effects if self.state_of(name_in(effect.key))[0] is state]
        found += [name for name in self.record.children if self.state_of(name)[0] is state]
        return found + [
            f"{name}{SEPARATOR}{key}" for name, inner in self._inner_flows() for key in inner.keys_of(state)
        ]

    def inboxes_of(self, state: LiveState[Any, Any]) -> list[str]:
        """Return the keys, including keys in inner processes, under which a state accepts an early answer."""
        return [f"{name}{SEPARATOR}{key}" for name, inner in self._inner_flows() for key in inner.inboxes_of(state)]

    def give(self, state: LiveState[Any, A], value: A | Failure, *, at_s: float | None = None) -> None:
        """Supply the result of a state: a person's answer, or an operator's decision in place of another result.

        A run that has not begun begins first.

        Args:
            state: The state, here or in an inner flow.  A state with ``early=True`` takes an answer before it is
                entered.
            value: The value that the state returns, or a `Failure`.
            at_s: The Unix time of the answer, or None for now.

        Raises:
            OutcomeError: If the run does not wait for the state, or the value has the wrong type.
            UsageError: If ``state`` is not a state.
        """
        if not isinstance(state, LiveState):
            what = f"state of give: expected a state, such as flow.states['review'], got {safe_repr(state)}"
            raise UsageError(f"{what}; to answer by a key, call advance(key, Returned(text=…))")
        at_s = self.now_s() if at_s is None else at_s
        outcome = outcome_of(state, value).changed(at_s=at_s)
        if self._has_to_begin() or prefix_of(self._key_of(state, value)) == StartFunction.prefix:
            trial = self._trial()  # several steps: if one of them is not possible, none is taken
            trial.advance(trial._ready_key_of(state, value, at_s), outcome)
        self.advance(self._ready_key_of(state, value, at_s), outcome)

    def explain(self, event: Any, *, key: str | LiveState[Any, Any] = "") -> Explanation:
        """Explain why a step took its row, or which row an answer would take.  The run does not change.

        Args:
            event: A step of the run or of an inner run, taken from the trace or the events, or a possible answer.  An
                answer is a value or a `Failure` if ``key`` is a state.  Otherwise, it is an outcome, as for `advance`.
            key: The state that would return the value, or the key of the effect that the outcome would answer.

        Returns:
            The rows of the trigger in the order in which they are tried, what each guard returned or raised, and the
            row that is taken.  If several steps follow, the first one is explained.

        Raises:
            OutcomeError: If the run does not wait for the state or the effect, or the value has the wrong type.
            UsageError: If the step belongs to another table.

        Examples:
            >>> def is_short(text: str, good: bool) -> bool:
            ...     return len(text) < 10
            >>> @wait(bool)
            ... def review(text: str) -> str:
            ...     return text
            >>> rows = [review.done(end("sent"), of=True, when=is_short), review.done(end("kept"))]
            >>> try:
            ...     Flow("letters", str, start=review, rows=rows).call("Dear Ada, hello")
            ... except FlowSuspended as waiting:
            ...     print(waiting.run.explain(True, key=review))
            'done True' in review:
              refused    review --done True [is_short]--> sent
              taken      review --done True--> kept
        """
        process: FlowProcess = self
        if key == "" and not hasattr(event, "kind") and not isinstance(event, Stepped | Inside):
            what = f"event of explain: expected a step or an outcome, got {safe_repr(event)}"
            raise UsageError(f"{what}; name the state that gives it, as in explain({safe_repr(event)}, key=review)")
        if isinstance(key, LiveState):
            state, process = key, self._trial()
            key = process._ready_key_of(state, event, self.record.trace[-1].at_s if self.record.trace else self.now_s())
            event = outcome_of(state, event)
        return super(FlowProcess, process).explain(event, key=key)

    def _trial(self) -> Self:
        """Return a copy that can take steps while this process stays unchanged."""
        trial = copy(self)
        trial.journal, trial._ended = None, []
        trial.forget_children()
        return trial

    def _has_to_begin(self) -> bool:
        return any(effect.key == Begin.prefix for effect in self.effects)

    def _ready_key_of(self, state: LiveState[Any, Any], value: Any, at_s: float) -> str:
        """Begin the run and the state's function, if they have not begun, and return the key of the state's result."""
        if self._has_to_begin():
            self.advance(Begin.prefix, Begun(at_s=at_s, id=self.run_context.own_environment.new_id()))
        key = self._key_of(state, value)
        if prefix_of(key) == StartFunction.prefix:
            self.advance(key, Started(at_s=at_s))
            key = self._key_of(state, value)
        return key

    def _key_of(self, state: LiveState[Any, Any], value: Any) -> str:
        keys = self.keys_of(state)
        if len(keys) != 1:
            open_keys = ", ".join([repr(effect.key) for effect in self.effects]) or "nothing, since it has ended"
            what = f"{len(keys)} of them" if keys else "none"
            asked = f"expected one open question to give {safe_repr(value)} to, got {what}"
            raise OutcomeError(f"{state!r}: {asked} (the run waits for {open_keys})")
        return keys[0]

    def now_s(self) -> float:
        return time.time()

    def closed_again(self) -> Any:
        """Apply the functions' policies to the pending calls again, and return the resulting record."""
        r = self.record
        closed = {name: self.child_process(r, name) for name in r.children}
        return r.changed(children={name: cell.closed_again() for name, cell in closed.items()}) if closed else r  # type: ignore[attr-defined]


def outcome_of(state: LiveState[Any, Any], value: Any) -> Returned | FunctionFailed:
    """Return a state's value or `Failure` as an outcome."""
    if isinstance(value, Failure):
        if value.data is not None:
            raise OutcomeError(f"{state.name}: expected a Failure without data, got one with data")
        return FunctionFailed(text=value.detail or value.reason, reason=value.reason)
    return Returned(text=state.answer_types.dump(value))


def in_doubt(record: FlowProcessRecord) -> str:
    """Describe the functions that must not run twice and that have begun but not ended."""
    begun = sorted(_in_doubt(record, ""))
    return f"{', '.join(begun)} {UNHEARD}" if begun else ""


def _in_doubt(record: Any, path: str) -> Iterable[str]:
    if isinstance(record, CallRecord):
        yield from [f"{path}{f.name}" for f in record.in_doubt]
    else:
        yield from [f"{path}{name}" for name, run in record.once.items() if run.phase != NOT_BEGUN.phase]
    for name, child in record.children.items():
        inner = getattr(child, "record", child)  # of a flow inside an agent call
        if isinstance(inner, CallRecord | FlowProcessRecord):
            yield from _in_doubt(inner, f"{path}{name}{SEPARATOR}")


def name_in(key: str) -> str:
    """Return the name of the step or member that a key concerns.  A child's key is its name."""
    return key.partition(":")[2].partition(":")[0] or key


def _function_effect(state: FunctionState[Any, Any], data: Any, name: str, once: OnceRun, id: str) -> EffectValue:
    function = state.function
    call = FunctionCall(id=name, name=state.function.name, arguments_json="{}")
    if not function.once:
        return RunOnData(f"run:{name}", call, function, data=data)
    # The keys differ by attempt, so that the late outcome of an abandoned attempt does not answer another.
    attempt = once.attempt + 1 if once.phase == "cleared" else once.attempt
    subject = name if attempt == 1 else f"{name}:{attempt}"
    if once.phase == "cleared":
        return StartFunction(f"start:{subject}", call)
    if once.phase == "doubtful":
        types = state.answer_types
        return Reconcile(f"reconcile:{subject}", call, function, f"{id}/{name}", tuple(types.names), types.schema)
    return RunOnData(f"run:{subject}", call, function, is_once=True, data=data)
