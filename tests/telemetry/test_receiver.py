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
from support.paths import ROOT
from support.traces import Receiver, Traces

from fsm_agent import Agent, CallSuspended, Denied, Prompt, client_for, function
from fsm_agent.clients import Network

exporting = pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http.trace_exporter", reason="the exporter is in the extra dev"
)

PROCESS = '''
import sys
from fsm_agent import Agent, Approved, CallSuspended, function
from fsm_agent.telemetry import instrument
from fsm_agent.testing import Script, call
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
    return Agent(Script(*entries), functions=[pay], name="shop", store=path)

if what == "asks":
    with trace.get_tracer("web").start_as_current_span("POST /orders"):
        try:
            shop(call("pay", amount=3)).call("Buy it.", run_id="order-17")
        except CallSuspended:
            pass
else:
    assert shop("It is paid.").resume("order-17", {"ask:1.0": Approved()}, by="ann").output == "It is paid."
provider.shutdown()
'''


def test_one_trace_of_two_processes(tmp_path: Path) -> None:
    """The first asks for an approval, and ends; the second gives it, and goes on."""
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


def bodies(receiver: Receiver) -> bytes:
    return b"".join(receiver.bodies)


def test_secrets_are_in_no_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirteen, each at a place of its own; what is asked of the model and answered is not in it either."""
    asked: list[httpx.Request] = []
    turns = [
        {"tool_calls": [_asks("find", what="secret-in-an-argument"), _asks("fail"), _asks("pay")]},
        {"content": "secret-in-an-answer"},
    ]

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if len(asked) == 1:
            return httpx.Response(429, json={"error": {"message": "secret-in-the-text-of-an-error"}})
        message = {"role": "assistant", "content": None, **turns[len(asked) - 2]}
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

    monkeypatch.setenv("OPENAI_API_KEY", "secret-in-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.invalid/secret-in-the-base-url/v1")
    headers = {"x-session": "secret-in-a-header"}
    traces = Traces()
    with Receiver() as receiver, httpx.Client(transport=httpx.MockTransport(reply)) as client:
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor

        exporter = exporting.OTLPSpanExporter(receiver.url)
        traces.provider.add_span_processor(SimpleSpanProcessor(exporter))
        with traces.recording():
            for model in (
                client_for("openai-chat:m", headers=headers, network=Network(client=client)),
                client_for(
                    "openai-chat:m",
                    api_key="secret-in-the-key",
                    base_url="https://api.invalid/v1?token=secret-in-a-query",
                    network=Network(client=client),
                ),
            ):
                asked.clear()
                agent = Agent(
                    model,
                    functions=[find, fail, pay],
                    name="shop",
                    store=str(tmp_path / "runs.db"),
                    system="Be kind.",
                    world={"backoff": None},
                )
                task = Prompt("Where is {{ what }}?")(what="secret-in-a-value-of-a-prompt")
                extra = {"ticket": "secret-in-extra"}
                run = f"r-{bool(model.name)}-{id(model)}"
                with pytest.raises(CallSuspended) as raised:
                    agent.call(task, deps=Vault(), extra=extra, run_id=run)
                (key,) = [effect.key for effect in raised.value.call.effects]
                result = agent.resume(run, {key: Denied("secret-in-the-reason-of-a-denial")}, deps=Vault())
                assert result.output == "secret-in-an-answer"
        assert len(receiver.spans) > 10
        sent = bodies(receiver)
    everything = str([(request.url, request.headers, request.content) for request in asked])
    assert "secret-in-the-key" in everything  # it was there to be found
    assert [secret for secret in (*SECRETS, "secret-in-an-answer", "secret-") if secret.encode() in sent] == []
    traces.provider.shutdown()


def _asks(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": f"c-{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
