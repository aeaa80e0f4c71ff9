"""OpenTelemetry: `instrument` records spans and metrics live, and `spans_of` returns the spans for a past call.

Recording needs `opentelemetry-api`: ``pip install 'fsm-agent[otel]'``.  The program's tracer and meter providers decide
where spans and metrics go.

`fsm_agent.runtime.tracing` starts and ends the live spans, and `fsm_agent.runtime.span_attributes` chooses attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Protocol, Self

from fsm_agent.call.record import FAILURES, CallRecord, State
from fsm_agent.messages.events import Event, FunctionEnded, Stepped
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.named_objects import needing
from fsm_agent.runtime import probes
from fsm_agent.runtime import span_names as names
from fsm_agent.validation import require

INTERNAL, CLIENT = 1, 3  # kinds of spans: https://github.com/open-telemetry/opentelemetry-proto (v1.5), trace.proto
FAILED = 2  # status


def spans_of(record: CallRecord, events: Iterable[Event] = ()) -> list[dict[str, Any]]:
    """Return the spans for a call as dictionaries, in the JSON form of the OpenTelemetry protocol.

    The first span represents the call.  It contains a span for each model request, function call, approval and retry
    delay, and for each agent that took over the dialog.  Names and attributes follow OpenTelemetry's conventions for
    generative AI where possible.  Spans contain no text or arguments.  Their ids are derived from the call's id, so the
    same call always has the same spans.  A collector accepts them in this document:
    ``{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}``.

    Args:
        record: The record of the call: ``result.record``.
        events: The events that a listener received.  Without them, a function's span begins with its round or approval.

    Raises:
        UsageError: If ``record`` is not the record of a call.

    Examples:
        >>> result = Agent(Script("Hi.")).call("Hello")
        >>> [span["name"] for span in spans_of(result.record)]
        ['invoke_agent', 'chat']
    """
    require("the record", record, isinstance(record, CallRecord), "the record of a call, such as result.record")
    if not record.trace:
        return []
    durations = {event.id: event.duration_s for event in events if isinstance(event, FunctionEnded)}
    functions = {f.id: f for f in (*record.function_calls, *record.round)}
    root = _root(record)
    spans = [root]
    before_s = since_s = record.started_at_s  # since_s: the latest step that let functions or approvals begin
    for step in record.trace:
        prefix, _, id = step.key.partition(":")
        id = id.partition(":")[0]
        begins_s = since_s if step.source == State.TOOL_INTERRUPT else before_s
        if prefix == "run" and id in durations:
            begins_s = step.at_s - durations[id]
        function = functions.get(id)
        if named := _named(prefix, id if function is None else function.name):
            span = _span(root, record.id, step, begins_s, *named)
            if _has_failed(step, function):
                span["status"] = {"code": FAILED, "message": step.trigger}
            spans.append(span)
        before_s = step.at_s or before_s
        if step.source != State.TOOL_INTERRUPT or prefix == "ask":
            since_s = before_s
    if record.ending is not None:
        root["endTimeUnixNano"] = _nanos(before_s)
    return spans


def _has_failed(step: Stepped, function: FunctionCall | None) -> bool:
    if step.source == State.TOOL_INTERRUPT:
        return function is not None and function.error is not None and step.trigger != "approved"
    has_failed = step.trigger in FAILURES or step.trigger == "check_failed"
    return has_failed or (step.trigger == "relayed" and step.to == State.FAILED)


def _named(prefix: str, function: str) -> tuple[str, int, dict[str, Any]] | None:
    """Return `(name, kind, attributes)` for an effect's span, or None if the effect has no span."""
    match prefix:
        case "model":
            return "chat", CLIENT, {names.OPERATION: names.CHAT}
        case "summary":
            return "chat summary", CLIENT, {names.OPERATION: names.CHAT}
        case "run":
            operation = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL: function}
            return f"execute_tool {function}", INTERNAL, operation
        case "ask":
            return f"approve {function}", INTERNAL, {names.TOOL: function}
        case "check":
            return "check", INTERNAL, {}
        case "sleep":
            return "backoff", INTERNAL, {}
        case "to":
            operation = {names.OPERATION: names.INVOKE_AGENT, names.AGENT: function}
            return f"invoke_agent {function}", INTERNAL, operation
    return None


def _root(record: CallRecord) -> dict[str, Any]:
    ending = record.ending
    span = {
        "traceId": _id(record.id, "", 16),
        "spanId": _id(record.id, "", 8),
        "name": "invoke_agent",
        "kind": INTERNAL,
        "startTimeUnixNano": _nanos(record.started_at_s),
        "attributes": _attributes(
            {
                names.OPERATION: names.INVOKE_AGENT,
                names.CALL_ID: record.id,
                names.STATE: str(record.state),
                names.ROUNDS: record.rounds,
                **({} if ending is None else {names.REASON: str(ending.reason)}),
                **_tokens(record.total_usage, names.ALL_INPUT_TOKENS, names.ALL_OUTPUT_TOKENS),
            }
        ),
    }
    if record.state is State.FAILED and ending is not None:
        span["status"] = {"code": FAILED, "message": str(ending.reason)}
    return span


def _span(
    root: Mapping[str, Any], call_id: str, step: Stepped, begins_s: float, name: str, kind: int, facts: dict[str, Any]
) -> dict[str, Any]:
    facts |= {names.KEY: step.key, names.TRIGGER: step.trigger, names.TO: step.to}
    if step.served_by is not None:
        facts[names.SERVED_BY] = step.served_by
    return {
        "traceId": root["traceId"],
        "spanId": _id(call_id, step.key, 8),
        "parentSpanId": root["spanId"],
        "name": name,
        "kind": kind,
        "startTimeUnixNano": _nanos(begins_s),
        "endTimeUnixNano": _nanos(max(begins_s, step.at_s)),
        "attributes": _attributes(facts | _tokens(step.usage or UNUSED, names.INPUT_TOKENS, names.OUTPUT_TOKENS)),
    }


def _tokens(usage: Usage, input_name: str, output_name: str) -> dict[str, int]:
    used = {input_name: usage.input_tokens, output_name: usage.output_tokens}
    return {name: tokens for name, tokens in used.items() if tokens is not None}


def _attributes(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in facts.items()
    ]


def _id(call_id: str, key: str, size: int) -> str:
    return blake2b(f"{call_id}\n{key}".encode(errors="surrogatepass"), digest_size=size).hexdigest()


def _nanos(at_s: float) -> str:
    return str(round(at_s * 1_000_000) * 1000)


class TracerProvider(Protocol):
    """The `TracerProvider` class of OpenTelemetry, an optional dependency."""

    @property
    def get_tracer(self) -> Callable[..., Any]: ...


class MeterProvider(Protocol):
    """The `MeterProvider` class of OpenTelemetry, an optional dependency."""

    @property
    def get_meter(self) -> Callable[..., Any]: ...


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool = False,
) -> Instrumentation:
    """Record spans and metrics for all agents and flows in this OS process from now on.

    Call ``instrument()`` at the start of a program, after its tracer provider has been set.  In a test, use
    ``with instrument(tracer_provider=provider): …``.  Recording does not affect runs or results.  Exceptions from
    providers and exporters are logged.

    Besides OpenTelemetry's attributes, a span may have ``fsm_agent.call.id``, ``.run.id``, ``.state``, ``.path`` (of an
    inner call), ``.key`` (of an effect), ``.attempt`` (of a request), ``.attempts`` (of a function), ``.purpose``
    (``"summary"``), ``.verdict`` (of an answer, such as ``"approved"``), ``.step`` (in a flow, such as ``"review#3"``)
    and ``.trigger``.  ``fsm_agent.usage.input_tokens`` and ``.output_tokens`` are a call's totals.

    Args:
        tracer_provider: The provider that makes the spans; by default, the program's provider.
        meter_provider: The provider that makes the metrics; by default, the program's provider.
        content: True to record messages, arguments and results, up to 10,000 characters each.  API keys in known
            formats are masked in them, but other secrets are not.

    Raises:
        UsageError: If spans are already being recorded, or ``content`` is not True or False.
        ConfigError: If the extra ``otel`` is not installed.

    Examples:
        >>> with instrument():
        ...     print(Agent(Script("Hi.")).call("Hello").output)
        Hi.
    """
    with needing("otel", "instrument()"):
        from fsm_agent.runtime.tracing import SpanProbe
    # A text such as "false" from the environment must not record what people wrote.
    require("content", content, isinstance(content, bool), "True or False")
    probe = SpanProbe(tracer_provider, meter_provider, content)
    probes.install(probe)
    return Instrumentation(probe)


class Instrumentation:
    """A recording of spans and metrics that ends when `stop` is called or the ``with`` block ends.

    Examples:
        >>> recording = instrument()
        >>> recording.stop()
    """

    def __init__(self, probe: Any) -> None:
        self._probe = probe

    def stop(self) -> None:
        """Stop recording new drives.  Drives that have already begun are recorded until they end."""
        probes.uninstall(self._probe)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
