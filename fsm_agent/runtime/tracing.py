"""The spans of one drive (the work of one driver on a process), for each process, flow step and effect.

    invoke_agent shop                    the driven process
      chat gpt-5-mini                    its effects
      execute_tool look                  with everything that the function traces
      invoke_agent billing               a nested process: an agent as a function, or one that takes over
    invoke_workflow letters
      step drafting                      a state, from when it is entered
        invoke_agent warm                its agent, or the agents of its members

The span of a nested process begins with its first effect.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fsm_agent._internal import __version__
from fsm_agent.call.call import AgentCall
from fsm_agent.call.process import SEPARATOR, Process, prefix_of
from fsm_agent.messages.events import Event, Stepped, unwrapped
from fsm_agent.runtime import span_names as names
from fsm_agent.runtime.activity import Activity
from fsm_agent.runtime.drive_loop import Driver
from fsm_agent.runtime.span_attributes import Facts, came_of, described, is_program, known, model_facts, question_name

_W3C = TraceContextTextMapPropagator()
_ERROR = Status(StatusCode.ERROR)
# What these triggers try again, unless they end the call.
_TRIED_AGAIN = {"model_failed": "model", "too_long": "model", "parse_failed": "answer", "check_refused": "answer"}
_MAX_QUESTIONS = 20  # how many open questions the span of a resting process lists
_LOOKED_BACK = 64  # how many steps are searched for the time at which a question was asked


class Begun(msgspec.Struct):
    """The span of a process that has begun but does not have a driver yet."""

    span: Span
    since_s: float


class _Origin(msgspec.Struct):
    conversation: str = ""
    traceparent: str = ""


class Place:
    """A process in the drive, with its span and, if it is a flow, the span of its current state.

    The group that holds a state's members has no span.  ``facts`` are the attributes that the span and its metrics
    share.
    """

    def __init__(self, process: Any, span: Span | None, inside: Context, facts: Facts, since_s: float) -> None:
        self.process = process
        self.span = span
        self.own = self.inside = inside
        self.facts = facts
        self.since_s = since_s
        self.step: Span | None = None
        self.step_name = ""
        self.steps = -1  # how many states it has entered; -1 if it is not a flow


class EffectSpan:
    """The span of an effect."""

    def __init__(self, of: SpanProbe, activity: Activity, span: Span, facts: Facts) -> None:
        self._of = of
        self._activity = activity
        self._span = span
        self._facts = facts
        self._here = trace.set_span_in_context(span)  # in the current context, which has the program's baggage
        self._since_s = time.perf_counter()

    def enter(self) -> Any:
        """Make this the running code's current span, and return a token."""
        return contexts.attach(self._here)

    def leave(self, token: Any) -> None:
        """Undo `enter`.  Call this in the same context."""
        contexts.detach(token)

    def end(self, outcome: Any, /) -> None:
        """Record the effect's outcome.  Callers may do this from any thread, but only once.

        ``outcome`` may also be None, an exception, `ABANDONED` or `TIMED_OUT`.
        """
        activity, duration_s = self._activity, time.perf_counter() - self._since_s
        found, error = came_of(activity, outcome, self._of.content)
        if self._of.is_metered:
            self._of.measure(self._facts, found, error, duration_s)
        _end(self._span, found, error)


class AnswerSpan:
    """The span of a question that someone outside this drive has answered.  It begins when the question was asked."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, outcome: Any, /) -> None:
        _end(self._span, {}, type(outcome).__qualname__ if isinstance(outcome, BaseException) else "")


# Bucket bounds from the conventions.
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_COUNTS = tuple(4**n for n in range(14))
_DIMENSIONS = (names.OPERATION, names.PROVIDER, names.MODEL, names.RESPONSE_MODEL, names.TOOL)
_TOKEN_TYPES = (("input", names.INPUT_TOKENS), ("output", names.OUTPUT_TOKENS))


class SpanProbe:
    """The probe that records the spans and metrics of all drives; see `instrument` for the arguments.

    Attributes:
        is_metered: True if metrics are recorded, as of the last drive that began.
    """

    def __init__(self, tracer_provider: Any, meter_provider: Any, content: bool) -> None:
        name, version = "fsm_agent", __version__
        self.content = content
        self.is_metered: bool
        self.tracer = trace.get_tracer(name, version, tracer_provider)
        meter = metrics.get_meter(name, version, meter_provider)
        self._meter_provider = meter_provider
        self._durations = meter.create_histogram(
            names.DURATION, "s", "GenAI operation duration.", explicit_bucket_boundaries_advisory=_SECONDS
        )
        self._tokens = meter.create_histogram(
            names.TOKENS,
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_COUNTS,
        )
        self.retries = meter.create_counter(names.RETRIES, "{retry}", "What was tried again.")

    def creating(self, process: Process, name: str) -> str:
        """Return the W3C traceparent for the header of a run that is about to be stored, or "" if nothing is traced.

        ``name`` is the name of the agent or flow.
        """
        begun: Any = process.traced
        if type(begun) is not Begun:
            begun = self.begin(process, name, begun)
            process.traced = begun
        return traceparent_of(begun.span)

    def here(self) -> str:
        """Return the W3C traceparent of the running code, for a run that others will drive."""
        return traceparent_of(trace.get_current_span())

    def drive(self, driver: Driver) -> DriveSpans | None:
        """Return the spans for a new drive, or None if nothing records them."""
        process: Any = driver.process
        if process.record.ending is not None:
            return None
        # Checked here, because a program may set its providers late.  The API alone records nothing.
        providing = type(self._meter_provider or metrics.get_meter_provider())
        self.is_metered = not providing.__module__.startswith(metrics.__name__)
        drive = DriveSpans(self, driver)
        process.traced = None
        return drive if self.is_metered or drive.is_placed else None

    # For the spans of a drive

    def begin(self, process: Any, name: str, before: SpanContext | None) -> Begun:
        """Begin a driven process's span.  ``before`` is its span in earlier drives."""
        parent, links = parent_and_links(before)
        return Begun(self.start(process, name, parent, {}, links), time.perf_counter())

    def start(self, process: Any, name: str, parent: Context | None, facts: Mapping[str, Any], links: Any = ()) -> Span:
        is_agent = isinstance(process, AgentCall)
        operation = names.INVOKE_AGENT if is_agent else names.INVOKE_WORKFLOW
        attributes: Facts = {names.OPERATION: operation, **facts}
        if name:
            attributes[names.AGENT if is_agent else names.WORKFLOW] = name
        return self.tracer.start_span(f"{operation} {name}".strip(), parent, attributes=attributes, links=links)

    def measure(self, facts: Facts, found: Facts, error: str, duration_s: float) -> None:
        """Record the metrics of an operation that has ended.

        ``facts`` are the attributes known when it began, ``found`` are the attributes of its outcome, and ``error`` is
        the type of its error, or "".
        """
        if names.OPERATION not in facts:
            return
        if (attempts := found.get(names.ATTEMPTS, 1)) > 1:
            self.retries.add(attempts - 1, {names.RETRY: "function"})
        kept = {name: each[name] for name in _DIMENSIONS for each in (facts, found) if name in each}
        if error:
            kept[names.ERROR] = error
        self._durations.record(duration_s, kept)
        for token_type, name in _TOKEN_TYPES:
            if name in found:
                self._tokens.record(found[name], {**kept, names.TOKEN_TYPE: token_type})


class DriveSpans:
    """The spans of one drive.

    If the process was driven before, this drive's spans link to the span in which it began and, unless another span is
    active, continue that trace.
    """

    def __init__(self, of: SpanProbe, driver: Driver) -> None:
        self._of = of
        self._driver = driver
        process: Any = driver.process
        before = process.traced
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
        """True if the drive is part of a trace."""
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
        """Return the place at a path, and begin the spans of any new processes along the path."""
        if (known := self._places.get(path)) is not None:
            return known
        path_around, _, name = path.rpartition(SEPARATOR)
        around = self._place(path_around)
        inner = around.process.inners[name]
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
        """Begin the span for a posted outcome that the process is about to take.  Return None if it has no span."""
        path, _, own = key.rpartition(SEPARATOR)
        process = self._driver.process.owner(key).process if path else self._driver.process
        name = question_name(own, process)
        if not name:
            return None
        facts = {names.KEY: key, names.VERDICT: getattr(outcome, "kind", "")}
        waited_s = self._driver.environment.clock.now() - _asked_at_s(process.record.trace, prefix_of(key))
        began = time.time_ns() - round(max(0.0, waited_s) * 1e9)  # in real time: the call may have a test's clock
        return AnswerSpan(
            self._of.tracer.start_span(name, self._place(path).inside, SpanKind.INTERNAL, facts, start_time=began)
        )

    # Steps

    def stepped(self, steps: Sequence[Event]) -> None:
        flows: dict[str, list[Stepped]] = {}
        for event in steps:
            path, step = unwrapped(event)
            if step.trigger in _TRIED_AGAIN and step.to != "Failed":
                self._of.retries.add(1, {names.RETRY: _TRIED_AGAIN[step.trigger]})
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
        if step.key:  # otherwise, as for an injected message, the path is that of the process itself
            self._close_inside(f"{path}{SEPARATOR}{step.key}" if path else step.key)
        if path and place.process.record.ending is not None:
            self._close_inside(path)

    def _follow_flow(self, place: Place, path: str = "", taken: Sequence[Stepped] = ()) -> None:
        """End the span of the state that a flow has left, and begin the span of its current state."""
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
        usage = r.total_usage
        used = {names.ALL_INPUT_TOKENS: usage.input_tokens, names.ALL_OUTPUT_TOKENS: usage.output_tokens}
        facts: Facts = {names.CALL_ID: r.id, names.STATE: str(r.state), **known(used)}
        error = _failure(place.process)
        if isinstance(raised, BaseException) and not isinstance(raised, GeneratorExit):  # closing a drive is no error
            error = error or type(raised).__qualname__
        _end(place.span, facts, error)
        if self._of.is_metered:
            self._of.measure(place.facts, {}, error, time.perf_counter() - place.since_s)


def context_of(traceparent: str) -> SpanContext:
    """Return the span context for a traceparent.  For "", the context is invalid."""
    return trace.get_current_span(_W3C.extract({"traceparent": traceparent}, Context())).get_span_context()


def traceparent_of(span: Span) -> str:
    """Return a span's traceparent, or "" if nothing is recorded."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent", "")


def parent_and_links(before: SpanContext | None) -> tuple[Context | None, Sequence[Link]]:
    """Return the parent and the links for a drive's span.  A parent of None means the active span.

    ``before`` is the span in which the process began or was last driven, or None if it begins now.
    """
    if before is None:
        return None, ()
    is_around = trace.get_current_span().get_span_context().is_valid
    return None if is_around else trace.set_span_in_context(NonRecordingSpan(before)), [Link(before)]


def _origin_of(process: Any) -> _Origin:
    header = "" if process.journal is None else process.journal.header
    return msgspec.json.decode(header, type=_Origin) if header else _Origin()


def _failure(process: Any) -> str:
    """Return why a process has failed, without details, or ""."""
    ending = process.record.ending
    if ending is None:
        return ""
    if isinstance(process, AgentCall):
        return str(ending.reason).replace(" ", "_") if str(process.record.state) == "Failed" else ""
    return str(ending.state) if getattr(ending, "is_failure", False) else ""


def _asked_at_s(steps: Sequence[Stepped], prefix: str) -> float:
    """Return the Unix time of the step that asked a question.  Each later step answered a question of the same kind."""
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
