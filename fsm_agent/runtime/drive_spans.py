"""The spans of one drive: one for each process in it, each step of a flow, and each effect that is performed.

    invoke_agent shop                    the process that is driven
      chat gpt-5-mini                    its effects
      execute_tool look                  with whatever the function traces inside
      invoke_agent billing               a process inside: an agent as a function, or one that takes over
    invoke_workflow letters
      step drafting                      a state, from when it is entered
        invoke_agent warm                its agent, or the agents of its members

A span of a process inside begins with its first effect.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fsm_agent._internal.redaction import mask_keys, masked_arguments
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskApproval, AskSummary, CallModel, CheckOutput, Reconcile, RunFunction, Sleep
from fsm_agent.call.outcomes import CheckFailed, CheckRefused, FunctionFailed, ModelFailed, Replied, Returned
from fsm_agent.call.process import SEPARATOR, prefix_of
from fsm_agent.messages.events import Event, Inside, Stepped
from fsm_agent.messages.message import Document, FunctionCall, FunctionResult, Image, Message, Reasoning, Text
from fsm_agent.messages.reply import Usage
from fsm_agent.runtime import span_attributes as names
from fsm_agent.runtime.activity import Activity
from fsm_agent.runtime.probes import ABANDONED, TIMED_OUT
from fsm_agent.runtime.tracing import Facts, Instrumentation

if TYPE_CHECKING:
    from fsm_agent.runtime.driver import Driver

Came: TypeAlias = tuple[Facts, str]  # attributes, and the type of an error
Described: TypeAlias = tuple[str, SpanKind, Facts]
MAX_TEXT = 10_000  # characters of each text, where texts are recorded
_MAX_NAME = 200  # characters of what a server calls itself, its model and its reply
# The names of providers in the conventions, where they are not those of the catalog.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}

_QUESTIONS = {
    AskApproval.prefix: "approve",
    "answer": "answer",
    Reconcile.prefix: "reconcile",
    RunFunction.prefix: "run",
}


def is_program(client: Any) -> bool:
    """Return whether a client is no model, but a program that answers in place of one: a class of agents."""
    return hasattr(client, "bound_to")


@lru_cache(256)
def model_facts(name: str) -> Mapping[str, str]:
    """Return the provider and the model of a client with this name, such as ``"openai:gpt-5-mini"``."""
    provider, _, model = name.partition(":")
    provider = provider.removesuffix("-chat")
    return {names.PROVIDER: _PROVIDERS.get(provider, provider), names.MODEL: model or name}


def described(activity: Activity, content: bool) -> Described:
    """Return the name, the kind and the attributes of the span of an effect that begins.

    Args:
        activity: The effect that begins.
        content: Whether messages, arguments and results are recorded.
    """
    effect = activity.effect
    describe = _DESCRIBED.get(effect.prefix)
    if describe is None:
        return f"perform {effect.prefix}", SpanKind.INTERNAL, {names.KEY: activity.key}
    return describe(activity, effect, content)


def _request(activity: Activity, effect: CallModel | AskSummary, content: bool) -> Described:
    client: Any = getattr(effect, "client", None) or activity.environment.client
    if is_program(client):
        return "answer", SpanKind.INTERNAL, {names.KEY: activity.key}
    facts: Facts = {names.OPERATION: names.CHAT, **model_facts(client.name)}
    if type(effect) is AskSummary:
        facts[names.PURPOSE] = "summary"
    elif activity.driver.is_streamed:
        facts[names.STREAM] = True
    if effect.attempt > 1:
        facts[names.ATTEMPT] = effect.attempt
    settings = effect.request.settings
    if settings.temperature is not None:
        facts[names.TEMPERATURE] = settings.temperature
    if settings.top_p is not None:
        facts[names.TOP_P] = settings.top_p
    if settings.max_tokens is not None:
        facts[names.MAX_TOKENS] = settings.max_tokens
    if content:
        messages = effect.request.messages
        facts[names.INPUT] = _messages_json([m for m in messages if m.role != "system"])
        if system := [part for m in messages if m.role == "system" for part in _parts(m)]:
            facts[names.SYSTEM] = json.dumps(system)
    return f"{names.CHAT} {facts[names.MODEL]}", SpanKind.CLIENT, facts


def _function(activity: Activity, effect: RunFunction, content: bool) -> Described:
    call = effect.call
    if not isinstance(activity.process, AgentCall):  # of a state of a flow: no model has asked for it
        return f"run {call.name}", SpanKind.INTERNAL, {names.KEY: activity.key}
    facts: Facts = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL: call.name, names.TOOL_TYPE: "function"}
    facts[names.TOOL_CALL] = _short(call.provider_id or call.id)
    if content:
        facts[names.ARGUMENTS] = masked_arguments(call.arguments_json[:MAX_TEXT])
    return f"{names.EXECUTE_TOOL} {call.name}", SpanKind.INTERNAL, facts


def _approval(activity: Activity, effect: AskApproval | Reconcile, content: bool) -> Described:
    name = f"{_QUESTIONS[effect.prefix]} {effect.call.name}"
    return name, SpanKind.INTERNAL, {names.KEY: activity.key, names.TOOL: effect.call.name}


def _answer(activity: Activity, effect: Any, content: bool) -> Described:
    return f"answer {effect.state.name}", SpanKind.INTERNAL, {names.KEY: activity.key}


def _check(activity: Activity, effect: CheckOutput, content: bool) -> Described:
    return "check", SpanKind.INTERNAL, {names.KEY: activity.key}


def _wait(activity: Activity, effect: Sleep, content: bool) -> Described:
    name = "backoff" if isinstance(activity.process, AgentCall) else "wait"
    return name, SpanKind.INTERNAL, {names.KEY: activity.key}


_DESCRIBED: dict[str, Callable[[Activity, Any, bool], Described]] = {
    CallModel.prefix: _request,
    AskSummary.prefix: _request,
    RunFunction.prefix: _function,
    AskApproval.prefix: _approval,
    Reconcile.prefix: _approval,
    "answer": _answer,
    CheckOutput.prefix: _check,
    Sleep.prefix: _wait,
}


def question_name(key: str, process: Any) -> str:
    """Return the name of the span of a question, or "" if the key belongs to no question.

    Args:
        key: The key of the question, without its path.
        process: The process that asks it.
    """
    prefix, _, about = key.partition(":")
    if prefix not in _QUESTIONS:
        return ""
    if isinstance(process, AgentCall):
        about = next((f.name for f in process.record.round if f.id == about), "function")
    return f"{_QUESTIONS[prefix]} {about.partition('#')[0]}"


def came_of(activity: Activity, outcome: Any, content: bool) -> Came:
    """Return the attributes of an outcome, and the type of the error, if it is one.

    Args:
        activity: The effect that has ended.
        outcome: The outcome, as for `Measurement.end`.
        content: Whether messages, arguments and results are recorded.
    """
    if outcome is ABANDONED:
        return {}, "cancelled"
    if outcome is TIMED_OUT:
        return {}, "timeout"
    if isinstance(outcome, BaseException):
        return {}, type(outcome).__qualname__
    if activity.effect.question is not None:
        return {names.VERDICT: getattr(outcome, "kind", "none")}, ""
    if (read := _CAME_OF.get(type(outcome))) is not None:
        return read(activity, outcome, content)
    return {}, ""


def _replied(activity: Activity, outcome: Replied, content: bool) -> Came:
    reply = outcome.reply
    facts = tokens(reply.usage)
    if reply.finish:
        facts[names.FINISH_REASONS] = [reply.finish]
    if reply.model:
        facts[names.RESPONSE_MODEL] = _short(reply.model)
    if reply.response_id:
        facts[names.RESPONSE_ID] = _short(reply.response_id)
    if content:
        facts[names.OUTPUT] = _messages_json([reply.message], finish_reason=reply.finish or "stop")
    return facts, ""


def _ran(activity: Activity, outcome: Returned | FunctionFailed, content: bool) -> Came:
    facts: Facts = {}
    if (attempts := getattr(getattr(activity, "run", None), "attempt", 1)) > 1:
        facts[names.ATTEMPTS] = attempts
    if content and isinstance(activity.process, AgentCall):
        facts[names.RESULT] = _text(outcome.text)
    has_failed = isinstance(outcome, FunctionFailed) or outcome.is_error
    return facts, "tool_error" if has_failed else ""


_CAME_OF: dict[type, Callable[[Activity, Any, bool], Came]] = {
    Replied: _replied,
    ModelFailed: lambda activity, outcome, content: ({}, outcome.error.kind),
    Returned: _ran,
    FunctionFailed: _ran,
    CheckRefused: lambda activity, outcome, content: ({}, outcome.kind),
    CheckFailed: lambda activity, outcome, content: ({}, outcome.kind),
}


def tokens(usage: Usage) -> Facts:
    """Return the counts of tokens that are known."""
    return {
        name: count
        for name, count in (
            (names.INPUT_TOKENS, usage.input_tokens),
            (names.OUTPUT_TOKENS, usage.output_tokens),
            (names.CACHED_TOKENS, usage.cached_tokens),
            (names.CACHE_WRITE_TOKENS, usage.cache_write_tokens),
            (names.REASONING_TOKENS, usage.reasoning_tokens),
        )
        if count is not None
    }


def _short(name: str) -> str:
    return mask_keys(name[:_MAX_NAME])


def _messages_json(messages: Iterable[Message], **more: str) -> str:
    return json.dumps([{"role": message.role, "parts": _parts(message), **more} for message in messages])


def _parts(message: Message) -> list[dict[str, Any]]:
    """Return the parts of a message as the conventions have them, without the contents of files."""
    found: list[dict[str, Any]] = []
    for part in message.parts:
        match part:
            case Text():
                found.append({"type": "text", "content": _text(part.text)})
            case Reasoning():
                found.append({"type": "reasoning", "content": _text(part.text)})
            case FunctionCall():
                arguments = masked_arguments(part.arguments_json[:MAX_TEXT])
                call = {"id": part.provider_id or part.id, "name": part.name, "arguments": arguments}
                found.append({"type": "tool_call", **call})
            case FunctionResult():
                found.append(
                    {"type": "tool_call_response", "id": part.provider_id or part.id, "response": _text(part.text)}
                )
            case Image() | Document():
                modality = "image" if isinstance(part, Image) else "document"
                found.append({"type": "blob", "modality": modality, "mime_type": part.media_type or ""})
    return found


def _text(text: str) -> str:
    return mask_keys(text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…")


_W3C = TraceContextTextMapPropagator()
_ERROR = Status(StatusCode.ERROR)
# What is tried again by rows with these triggers, unless they end the call.
_TRIED_AGAIN = {"model_failed": "model", "too_long": "model", "parse_failed": "answer", "check_refused": "answer"}
_MAX_QUESTIONS = 20  # that the span of a process which rests says are open
_LOOKED_BACK = 64  # steps, for the time at which a question was asked


class Begun(msgspec.Struct):
    """The span of a process that has begun, before a driver has it."""

    span: Span
    since_s: float


class _Origin(msgspec.Struct):
    """The facts in the header of a run that its spans need."""

    conversation: str = ""
    traceparent: str = ""


class Place:
    """A process in the drive, its span, and the span of its state if it is a flow.

    Args:
        process: The process.
        span: Its span, or None if it has no span of its own, as the members of a state.
        inside: The context of the work in it.
        facts: The attributes of its span that its metrics have, too.
        since_s: When it began, in monotonic time.
    """

    __slots__ = ("facts", "inside", "own", "process", "since_s", "span", "step", "step_name", "steps")

    def __init__(self, process: Any, span: Span | None, inside: Context, facts: Facts, since_s: float) -> None:
        self.process = process
        self.span = span
        self.own = self.inside = inside
        self.facts = facts
        self.since_s = since_s
        self.step: Span | None = None
        self.step_name = ""
        self.steps = -1  # how many states it has entered; it is no flow: -1


class EffectSpan:
    """The span of an effect that is performed."""

    __slots__ = ("_activity", "_facts", "_here", "_of", "_since_s", "_span")

    def __init__(self, of: Instrumentation, activity: Activity, span: Span, facts: Facts) -> None:
        self._of = of
        self._activity = activity
        self._span = span
        self._facts = facts
        self._here = trace.set_span_in_context(span)  # on the present context, with the program's baggage
        self._since_s = time.perf_counter()

    def enter(self) -> Any:
        return contexts.attach(self._here)

    def leave(self, token: Any) -> None:
        contexts.detach(token)

    def end(self, outcome: Any, /) -> None:
        activity, duration_s = self._activity, time.perf_counter() - self._since_s
        found, error = came_of(activity, outcome, self._of.content)
        if self._of.is_metered:
            self._of.measure(self._facts, found, error, duration_s)
        _end(self._span, found, error)


class AnswerSpan:
    """The span of a question that was answered from elsewhere; it begins when the question was asked."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def enter(self) -> None:
        """Do nothing: the answer is there."""

    def leave(self, token: Any) -> None:
        """Do nothing."""

    def end(self, outcome: Any, /) -> None:
        _end(self._span, {}, type(outcome).__qualname__ if isinstance(outcome, BaseException) else "")


class DriveSpans:
    """The spans of one drive.

    A process that was driven before has a link to the span in which it began.  If no other span is around the present
    drive, it continues that trace.

    Args:
        of: Records the spans.
        driver: The driver.
    """

    def __init__(self, of: Instrumentation, driver: Driver) -> None:
        self._of = of
        self._driver = driver
        process: Any = driver.process
        before = getattr(process, "traced", None)
        origin = _origin_of(process)
        if type(before) is not Begun:
            if before is None and origin.traceparent:
                before = context_of(origin.traceparent)
            before = self._of.begin(process, driver.environment.name, before if before and before.is_valid else None)
        self._root = self._begin_place(process, before.span, None, before.since_s, driver.environment)
        self._places = {"": self._root}
        if driver.recorder is not None:
            before.span.set_attribute(names.RUN_ID, driver.recorder.run)
        if origin.conversation:
            before.span.set_attribute(names.CONVERSATION, origin.conversation)

    @property
    def is_placed(self) -> bool:
        """True if the drive has a place in a trace; else nothing records spans."""
        span = self._root.span
        return span is not None and span.get_span_context().is_valid

    def _begin_place(self, process: Any, span: Span, around: Context | None, since_s: float, environment: Any) -> Place:
        facts: Facts = {names.OPERATION: names.INVOKE_AGENT}
        if not isinstance(process, AgentCall):
            facts[names.OPERATION] = names.INVOKE_WORKFLOW
        elif environment is not None and not is_program(environment.client):
            found = model_facts(process.record.model or environment.client.name)
            facts |= found
            span.set_attributes(found)
        place = Place(process, span, trace.set_span_in_context(span, around), facts, since_s)
        self._follow_flow(place)
        return place

    # Effects

    def performing(self, activity: Activity) -> EffectSpan:
        name, kind, facts = described(activity, self._of.content)
        place = self._place(activity.path, activity)
        span = self._of.tracer.start_span(name, place.inside, kind, facts)
        return EffectSpan(self._of, activity, span, facts)

    def _place(self, path: str, activity: Activity | None = None) -> Place:
        """Return the place at a path; begin the spans of the processes on it that are new."""
        if (known := self._places.get(path)) is not None:
            return known
        path_around, _, name = path.rpartition(SEPARATOR)
        around = self._place(path_around)
        inner = around.process.inside_of(name)
        process = inner.process
        if inner.name:
            environment = None if activity is None or activity.path != path else activity.environment
            span = self._of.start(process, inner.name, around.inside, {names.PATH: path})
            place = self._begin_place(process, span, around.inside, time.perf_counter(), environment)
        else:
            place = Place(process, None, around.inside, {}, 0.0)
        self._places[path] = place
        return place

    # Answers

    def answering(self, key: str, outcome: Any) -> AnswerSpan | None:
        path, _, own = key.rpartition(SEPARATOR)
        process = self._driver.process.owner(key).process if path else self._driver.process
        name = question_name(own, process)
        if not name:
            return None
        facts = {names.KEY: key, names.VERDICT: getattr(outcome, "kind", "")}
        waited_s = self._driver.environment.clock.now() - _asked_at_s(process.record.trace, prefix_of(key))
        began = time.time_ns() - round(max(0.0, waited_s) * 1e9)  # the clock of a call may be that of a test
        return AnswerSpan(
            self._of.tracer.start_span(name, self._place(path).inside, SpanKind.INTERNAL, facts, start_time=began)
        )

    # Steps

    def stepped(self, steps: Sequence[Event]) -> None:
        flows: dict[str, list[Stepped]] = {}
        for event in steps:
            path, step = "", event
            if type(event) is Inside:
                path, step = event.path, event.event
            assert isinstance(step, Stepped)
            if step.trigger in _TRIED_AGAIN:
                self._count_retry(step)
            if (place := self._places.get(path)) is not None:
                if place.steps >= 0:
                    flows.setdefault(path, []).append(step)
                elif len(self._places) > 1:
                    self._close_ended(place, path, step)
        for path, own in flows.items():
            if (place := self._places.get(path)) is not None:
                self._follow_flow(place, path, own)
                if path and place.process.record.ending is not None:
                    self._close_inside(path)

    def _close_ended(self, place: Place, path: str, step: Stepped) -> None:
        """End the spans of processes inside that a step has ended."""
        self._close_inside(f"{path}{SEPARATOR}{step.key}" if path else step.key)
        if path and place.process.record.ending is not None:
            self._close_inside(path)

    def _count_retry(self, step: Stepped) -> None:
        if step.to != "Failed":
            self._of.retries.add(1, {names.RETRY: _TRIED_AGAIN[step.trigger]})

    def _follow_flow(self, place: Place, path: str = "", taken: Sequence[Stepped] = ()) -> None:
        """End the span of the state that a flow has left, and begin the span of its present state."""
        record = place.process.record
        steps = getattr(record, "steps", -1)
        if not hasattr(record, "here") or steps == place.steps:
            return
        if place.step is not None:
            self._close_inside(f"{path}{SEPARATOR}{place.step_name}" if path else place.step_name)
            trigger = taken[-1].trigger if taken else ""
            _end(place.step, {names.TRIGGER: trigger}, "failed" if trigger == "failed" else "")
        first = steps - len(taken) + 1  # an advance may lead through several states
        for n, step in enumerate(taken[:-1], first):
            if n > place.steps and place.steps >= 0:
                self._start_step(place, step.to, f"{step.to}#{n}").end()
        place.steps, place.step, place.inside = max(steps, 0), None, place.own
        if steps > 0 and record.ending is None:
            place.step_name = record.here
            place.step = self._start_step(place, str(record.state), record.here)
            place.inside = trace.set_span_in_context(place.step, place.own)

    def _start_step(self, place: Place, state: str, step: str) -> Span:
        return self._of.tracer.start_span(f"step {state}", place.own, attributes={names.STEP: step})

    # Ends

    def close(self, raised: object) -> None:
        for path in sorted(self._places, reverse=True)[:-1]:
            self._end_place(self._places.pop(path), None)
        root = self._root
        process = root.process
        if process.record.ending is None and root.span is not None:
            process.traced = root.span.get_span_context()
            if raised is None and root.span.is_recording():
                questions = [question for effect in process.effects if (question := effect.question) is not None]
                for question in questions[:_MAX_QUESTIONS]:
                    root.span.add_event(names.QUESTION, {names.KEY: question.key, names.QUESTION: question.kind})
        self._end_place(root, raised)

    def _close_inside(self, path: str) -> None:
        """End the spans of a process inside, and of the processes inside it."""
        if path in self._places:
            below = f"{path}{SEPARATOR}"
            for inside in sorted([known for known in self._places if known.startswith(below)], reverse=True):
                self._end_place(self._places.pop(inside), None)
            self._end_place(self._places.pop(path), None)

    def _end_place(self, place: Place, raised: object) -> None:
        if place.step is not None:
            place.step.end()
        if place.span is None:
            return
        r = place.process.record
        facts: Facts = {names.CALL_ID: r.id, names.STATE: str(r.state)}
        usage = r.total_usage
        if usage.input_tokens is not None:
            facts[names.ALL_INPUT_TOKENS] = usage.input_tokens
        if usage.output_tokens is not None:
            facts[names.ALL_OUTPUT_TOKENS] = usage.output_tokens
        error = _failure(place.process)
        if isinstance(raised, BaseException) and not isinstance(raised, GeneratorExit):  # who only stops to listen
            error = error or type(raised).__qualname__
        _end(place.span, facts, error)
        if self._of.is_metered:
            self._of.measure(place.facts, {}, error, time.perf_counter() - place.since_s)


def context_of(traceparent: str) -> SpanContext:
    """Return the place in a trace that a traceparent names; without a traceparent it is not valid."""
    return trace.get_current_span(_W3C.extract({"traceparent": traceparent}, Context())).get_span_context()


def traceparent_of(span: Span) -> str:
    """Return the traceparent of a span, or "" if the span is not valid because nothing records spans."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent", "")


def parent_and_links(before: SpanContext | None) -> tuple[Context | None, Sequence[Link]]:
    """Return the parent of the span of a drive, None for the present one, and its links.

    Args:
        before: Where the process began, or was driven before; None if it begins now.
    """
    if before is None:
        return None, ()
    is_around = trace.get_current_span().get_span_context().is_valid
    return None if is_around else trace.set_span_in_context(NonRecordingSpan(before)), [Link(before)]


def _origin_of(process: Any) -> _Origin:
    header = "" if process.journal is None else process.journal.header
    return msgspec.json.decode(header, type=_Origin) if header else _Origin()


def _failure(process: Any) -> str:
    """Return why a process has failed, without details, or "" if it has not failed."""
    ending = process.record.ending
    if ending is None:
        return ""
    if isinstance(process, AgentCall):
        return str(ending.reason).replace(" ", "_") if str(process.record.state) == "Failed" else ""
    return str(ending.state) if getattr(ending, "is_failure", False) else ""


def _asked_at_s(steps: Sequence[Stepped], prefix: str) -> float:
    """Return the Unix time at which a question was asked: the time of the last step that answered no such question."""
    at_s = math.inf
    for step in reversed(steps[-_LOOKED_BACK:]):
        at_s = step.at_s
        if prefix_of(step.key) != prefix:
            break
    return at_s


def _end(span: Span, facts: Facts, error: str) -> None:
    if span.is_recording():
        if error:
            facts[names.ERROR] = error
            span.set_status(_ERROR)
        span.set_attributes(facts)
    span.end()
