"""Flows as functions for agents: everything that an agent call needs to run a flow as one of its functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pydantic
import pydantic_core

from fsm_agent.agents.agent import Agent
from fsm_agent.call.outcomes import Cancelled, Stopped
from fsm_agent.call.record import ProcessRecord
from fsm_agent.errors import UsageError
from fsm_agent.flows.checks import check_agents
from fsm_agent.flows.definition import agents_of
from fsm_agent.flows.record import FlowRecord
from fsm_agent.flows.run import FlowRun, restore
from fsm_agent.flows.snapshot import document_of
from fsm_agent.functions.context import Made
from fsm_agent.functions.function import Function
from fsm_agent.messages.message import FunctionCall
from fsm_agent.runtime.environment import Environment

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow

_DATA = "data"  # the only argument if the data is not a JSON object


def function_of(
    flow: Flow[Any],
    name: str | None,
    description: str | None,
    start: Callable[..., Any] | None,
    returns: Callable[[Any], Any] | None,
    policy: dict[str, Any],
) -> Function[..., Any, Any]:
    """Return a flow as a function; see `Flow.as_function`."""
    check_agents(flow, flow.agents)
    begun = _of_data(flow) if start is None else _of_start(flow, start)
    delegate = FlowDelegate(_within(flow, policy.get("timeout_s")), begun, returns)
    made: Function[..., Any, Any] = replace(
        begun,
        name=name or flow.name,
        description=begun.description if description is None else description,
        call=delegate.call,
        acall=delegate.acall,
        delegate=delegate,
        **policy,
    )
    return made


def _within(flow: Flow[Any], timeout_s: float | None) -> Flow[Any]:
    """Return the flow with a deadline of at most ``timeout_s``."""
    own_s = flow.limits.deadline_s
    if timeout_s is None or (own_s is not None and own_s <= timeout_s):
        return flow
    return replace(flow, limits=flow.limits.changed(deadline_s=timeout_s))


def _of_start(flow: Flow[Any], start: Callable[..., Any]) -> Function[..., Any, Any]:
    made: Function[..., Any, Any] = Function.of(start)
    what = f"start of the flow {flow.name!r} as a function"
    if made.is_async:
        raise UsageError(f"{what}: expected a plain, pure function, got a coroutine function")
    if made.takes_context:
        raise UsageError(f"{what}: expected a function of arguments alone, got one that takes a Context")
    return made


def _of_data(flow: Flow[Any]) -> Function[..., Any, Any]:
    adapter, schema = flow.adapter, flow.adapter.json_schema()
    is_object = "properties" in schema
    if not is_object:
        fields: Any = {_DATA: (flow.data, ...)}
        adapter = pydantic.TypeAdapter(pydantic.create_model("Arguments", **fields))
        schema = adapter.json_schema()
    schema.pop("title", None)
    text = schema.pop("description", "")
    schema["additionalProperties"] = False
    return Function(
        name="start",
        description=text or f"Run the flow {flow.name}.",
        parameters=schema,
        call=lambda data: data,
        validator=_Validator(adapter, schema["properties"], is_object),  # type: ignore[arg-type]
    )


class _Validator:
    """Validates arguments that are the fields of the flow's data."""

    def __init__(self, adapter: pydantic.TypeAdapter[Any], known: dict[str, Any], is_object: bool) -> None:
        self._adapter = adapter
        self._known = known
        self._is_object = is_object

    def validate_json(self, document: str) -> dict[str, Any]:
        """Return the validated data as ``{"data": …}``."""
        arguments = pydantic_core.from_json(document)
        if isinstance(arguments, dict) and (unknown := [name for name in arguments if name not in self._known]):
            raise ValueError(f"expected only the arguments {', '.join(self._known)}, got {unknown[0]!r:.60}")
        value = self._adapter.validate_json(document)
        return {_DATA: value if self._is_object else getattr(value, _DATA)}


class FlowDelegate:
    """A flow that an agent calls as a function; see `fsm_agent.functions.context`."""

    is_handoff = False
    hears_inside = True

    def __init__(self, flow: Flow[Any], start: Function[..., Any, Any], returns: Callable[[Any], Any] | None) -> None:
        self.flow = flow
        self.agent_name, self.hooks = flow.name, flow.hooks
        self._start = start
        self._returns = returns

    @cached_property
    def environment(self) -> Environment:
        return self.flow._own_environment

    @property
    def has_listener(self) -> bool:
        return self.flow.has_listener

    @property
    def agents(self) -> Sequence[Agent[Any, Any]]:
        return agents_of(self.flow)

    @property
    def fingerprint(self) -> str:
        return self.flow.fingerprint

    @property
    def tables_json(self) -> bytes:
        return self.flow.tables_json

    def seeded(self, f: FunctionCall, depth: int, deps: Any) -> ProcessRecord:
        try:
            record = self.flow.record_of(self._start.run(f.arguments_json), depth)
        except Exception as error:  # the user's own code, called with a model's arguments
            raise UsageError(f"{f.name} was not begun: {type(error).__name__}: {error}") from error
        return self.kept(record)

    def take_over(self, record: Any, path: str, deps: Any, is_system_own: bool) -> Any:
        raise UsageError(f"flow {self.flow.name!r} as a function: expected a task, got a dialog; use handoff(…)")

    def call_of(self, record: ProcessRecord, deps: Any, has_approver: bool) -> InnerRun:
        around = self.flow._run_context(Made(deps))
        around.has_approver |= has_approver
        if record.is_outline:
            return InnerRun(restore(record.document, self.flow, around), record, self)
        return InnerRun(FlowRun(self.flow, record.record, around), record, self)

    def kept(self, record: FlowRecord) -> ProcessRecord:
        """Return a run's record in the form in which the outer call stores it."""
        return ProcessRecord(record, lambda record: document_of(self.flow, record))

    def output_of(self, data: Any) -> Any:
        return data if self._returns is None else self._returns(data)

    def call(self, /, *args: Any, **arguments: Any) -> Any:
        """Run the flow by itself, with the arguments that a model would pass."""
        return self.output_of(self.flow.call(self._begun(args, arguments)).run.data)

    async def acall(self, /, *args: Any, **arguments: Any) -> Any:
        """The async version of `call`."""
        return self.output_of((await self.flow.acall(self._begun(args, arguments))).run.data)

    def _begun(self, args: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        if self._start.source is not None:
            return self._start(*args, **arguments)
        if args:
            raise TypeError(f"the function of the flow {self.flow.name!r} takes its arguments by name")
        return self._start.run(pydantic_core.to_json(arguments).decode())


class InnerRun:
    """A run of a flow inside an agent call.  Its `record` is stored as JSON, unlike ``run.record``."""

    def __init__(self, run: FlowRun[Any], record: ProcessRecord, delegate: FlowDelegate) -> None:
        self.run = run
        self.begun_with = run.record
        self._of = run.record
        self._record = record
        self._delegate = delegate

    @property
    def record(self) -> ProcessRecord:
        """The run's record in the form in which the outer call stores it."""
        if self.run.record is not self._of:
            self._of = self.run.record
            self._record = self._delegate.kept(self._of)
        return self._record

    @property
    def output(self) -> Any:
        """The result for the model.

        Raises:
            UsageError: If ``returns`` raises an exception.
        """
        try:
            return self._delegate.output_of(self.run.data)
        except Exception as error:  # from user code
            raise UsageError(f"{type(error).__name__}: {error}") from error

    def advance(self, key: str, outcome: Any) -> None:
        """Apply an outcome to the run.  A stop cancels the run, because a flow cannot give an answer before it ends."""
        self.run.advance(key, _without_stop(outcome))

    def end_with(self, outcome: Any) -> None:
        self.run.end_with(_without_stop(outcome))

    def return_to(self, record: ProcessRecord) -> None:
        """Put the run back into the state that an earlier record describes."""
        earlier = self._delegate.call_of(record, None, False).run.record if record.is_outline else record.record
        self.run.return_to(earlier)
        self._of, self._record = earlier, record

    def closed_again(self) -> ProcessRecord:
        """Apply the functions' policies to the pending calls again, and return the resulting record."""
        self.run.record = self.run.closed_again()
        return self._delegate.kept(self.run.record)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)


def _without_stop(outcome: Any) -> Any:
    return Cancelled(reason=outcome.reason, at_s=outcome.at_s) if isinstance(outcome, Stopped) else outcome
