"""Does a receiver of OTLP get what was recorded: one trace of two OS processes, and never a secret?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from support.paths import ROOT
from support.traces import Receiver, Traces

from fsm_agent import Agent, CallSuspended, Denied, Prompt, function
from fsm_agent.clients import Network, client_for
from fsm_agent.store import SqliteStore
from fsm_agent.testing import FakeClock

pytestmark = pytest.mark.system

exporting = pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http.trace_exporter", reason="the exporter is in the extra dev"
)

PROCESS = '''
import sys
from fsm_agent import Agent, Approved, CallSuspended, function
from fsm_agent.runtime import instrument
from fsm_agent.runtime.environment import SystemClock
from fsm_agent.testing import Script, function_call
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

what, url, path = sys.argv[1:]
provider = TracerProvider(resource=Resource.create({"service.name": what}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url)))
trace.set_tracer_provider(provider)
instrument()

@function(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    with trace.get_tracer("bank").start_as_current_span("transfer"):
        return f"paid {amount}"

def shop(*entries):
    return Agent(Script(*entries), functions=[pay], name="shop", store=path, environment={"clock": SystemClock()})

if what == "asks":
    with trace.get_tracer("web").start_as_current_span("POST /orders"):
        try:
            shop(function_call("pay", amount=3)).call("Buy it.", run_id="order-17")
        except CallSuspended:
            pass
else:
    assert shop("It is paid.").runs.resume("order-17", {"ask:1.0": Approved()}, by="ann").output == "It is paid."
provider.shutdown()
'''


def test_one_trace_of_two_processes(tmp_path: Path) -> None:
    """The first asks for an approval and ends; the second gives it and continues."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    with Receiver() as receiver:
        for what in ("asks", "answers"):
            command = [sys.executable, "-c", PROCESS, what, receiver.url, str(tmp_path / "runs.db")]
            done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=50)
            assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
        spans = receiver.spans
    assert len({span.trace_id for span in spans}) == 1
    names = {span.span_id: span.name for span in spans}
    placed = sorted((names.get(span.parent_span_id, ""), span.name) for span in spans)
    assert placed == [
        ("", "POST /orders"),
        ("POST /orders", "invoke_agent shop"),
        ("execute_tool pay", "transfer"),
        ("invoke_agent shop", "approve pay"),
        ("invoke_agent shop", "chat script"),
        ("invoke_agent shop", "chat script"),
        ("invoke_agent shop", "execute_tool pay"),
        ("invoke_agent shop", "invoke_agent shop"),
    ]
    first, second = [span for span in spans if span.name == "invoke_agent shop"]
    assert [link.span_id for link in second.links] == [first.span_id]
    approval = next(span for span in spans if span.name == "approve pay")
    assert approval.start_time_unix_nano <= first.end_time_unix_nano < second.start_time_unix_nano  # since it was asked
    assert second.start_time_unix_nano <= approval.end_time_unix_nano


class Vault:
    """Dependencies whose repr is a secret."""

    def __repr__(self) -> str:
        return "secret-in-the-repr-of-deps"


SECRETS = (
    "secret-in-the-key",
    "secret-in-a-header",
    "secret-in-the-environment",
    "secret-in-a-value-of-a-prompt",
    "secret-in-an-argument",
    "secret-in-a-result",
    "secret-in-the-text-of-an-error",
    "secret-in-a-query",
    "secret-in-the-base-url",
    "secret-in-the-repr-of-deps",
    "secret-in-extra",
    "secret-in-the-reason-of-a-denial",
    "secret-in-an-exception",
)


TASK = Prompt("Where is {{ what }}?", path="where")
TURNS = [
    {"tool_calls": [("find", {"what": "secret-in-an-argument"}), ("fail", {}), ("pay", {})]},
    {"content": "secret-in-an-answer"},
]


def answer_of(turn: dict[str, Any]) -> httpx.Response:
    calls = [
        {"id": f"c-{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for name, arguments in turn.get("tool_calls", ())
    ]
    message = {"role": "assistant", "content": turn.get("content"), **({"tool_calls": calls} if calls else {})}
    return httpx.Response(200, json={"id": "r", "model": "m", "choices": [{"index": 0, "message": message}]})


@function
def find(what: str) -> str:
    """Find."""
    return f"{what}: secret-in-a-result"


@function
def fail() -> str:
    """Fail."""
    raise OSError("secret-in-an-exception")


@function(needs_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


IN_THE_CLIENT = {"api_key": "secret-in-the-key", "base_url": "https://api.invalid/v1?token=secret-in-a-query"}
OF_THE_ENVIRONMENT = {
    "OPENAI_API_KEY": "secret-in-the-environment",
    "OPENAI_BASE_URL": "https://api.invalid/secret-in-the-base-url/v1",
}


@pytest.mark.parametrize("options", [IN_THE_CLIENT, {"headers": {"x-session": "secret-in-a-header"}}])
def test_secrets_are_in_no_span(options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirteen secrets, each in another place.  The requests and answers of the model are not there either."""
    for name, value in OF_THE_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    seen: list[str] = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.url} {[*request.headers.items()]} {request.content.decode()}")
        if len(seen) == 1:
            return httpx.Response(429, json={"error": {"message": "secret-in-the-text-of-an-error"}})
        return answer_of(TURNS[len(seen) - 2])

    traces, clock = Traces(), FakeClock()
    client = httpx.AsyncClient(transport=httpx.MockTransport(reply))
    with Receiver() as receiver:
        traces.provider.add_span_processor(SimpleSpanProcessor(exporting.OTLPSpanExporter(receiver.url)))
        with traces.recording():
            agent = Agent(
                client_for("openai-chat:m", network=Network(client=client), **options),
                functions=[find, fail, pay],
                name="shop",
                store=SqliteStore(tmp_path / "runs.db", clock.now),
                environment={"clock": clock},
            )
            with pytest.raises(CallSuspended) as raised:
                agent.call(
                    TASK(what="secret-in-a-value-of-a-prompt"),
                    deps=Vault(),
                    extra={"ticket": "secret-in-extra"},
                    run_id="r1",
                )
            (key,) = [effect.key for effect in raised.value.call.effects]
            denied = {key: Denied("secret-in-the-reason-of-a-denial")}
            result = agent.runs.resume("r1", denied, deps=Vault(), prompt=TASK)
        traces.provider.shutdown()
        assert result.output == "secret-in-an-answer"
        assert [span.name for span in receiver.spans].count("chat m") == 3
        sent = b"".join(receiver.bodies)
    kept = f"{seen} {agent.runs.all.store.load('r1', after=0)} {Vault()}"
    unused = {*OF_THE_ENVIRONMENT.values(), "secret-in-a-header"} if "api_key" in options else {*IN_THE_CLIENT.values()}
    assert [secret for secret in SECRETS if secret not in kept and secret not in f"{unused}"] == []  # there to be found
    assert [secret for secret in (*SECRETS, "secret-") if secret.encode() in sent] == []
    agent.runs.all.store.close()
