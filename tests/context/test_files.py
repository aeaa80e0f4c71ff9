"""Can every kind of file be in a message, whatever its origin?"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from fsm_agent import Agent, Dialog, Document, Image, Message, function
from fsm_agent.clients import Network, client_for
from fsm_agent.testing import Script, function_call

PDF = Document.of(b"%PDF-1.4 x")
FILES = {
    "a PDF": PDF,
    "one by URL": Document.of("https://example.org/a.pdf"),
    "a text": Document.of(b"hello", name="a.txt"),
    "an empty text": Document(data=b"", media_type="text/plain"),
    "a picture": Image.of("https://example.org/a.png"),
}
REPLIES: dict[str, Any] = {
    "openai-chat:gpt-5": {"choices": [{"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}]},
    "openai:gpt-5": {
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}],
    },
    "anthropic:claude-sonnet-4-5": {"stop_reason": "end_turn", "content": [{"type": "text", "text": "ok"}]},
    "google:gemini-2.5-flash": {"candidates": [{"content": {"parts": [{"text": "ok"}]}, "finishReason": "STOP"}]},
}


def model(name: str) -> tuple[Any, list[bytes]]:
    """A client whose provider answers, and the bodies that it is sent."""
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        return httpx.Response(200, content=json.dumps(REPLIES[name]))

    transport = httpx.MockTransport(answer)
    own = Network(client=lambda: httpx.AsyncClient(transport=transport))
    return client_for(name, api_key="sk-x", network=own), bodies


@pytest.mark.parametrize("name", REPLIES)
def test_a_pdf_in_a_question_is_sent_over_every_wire(name: str) -> None:
    client, bodies = model(name)
    assert Agent(client).call(Message.of("user", "See", PDF)).output == "ok"
    assert b"JVBERi0xLjQgeA==" in bodies[0]


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
@pytest.mark.parametrize("where", ["question", "history", "result"])
def test_under_the_default_context_of_a_known_window(file: Any, where: str) -> None:
    @function
    def read() -> tuple[str, Any]:
        """Read."""
        return "see", file

    asked = Message.of("user", "See", file)
    script = Script(function_call("read"), "ok", name="openai:gpt-4o")
    agent = Agent(script, functions=[read])
    if where == "result":
        assert agent.call("Read it.").output == "ok"
    elif where == "history":
        assert Agent(Script("ok", name="openai:gpt-4o")).call("Again?", after=Dialog([asked])).output == "ok"
    else:
        assert Agent(Script("ok", name="openai:gpt-4o")).call(asked).output == "ok"


def test_a_stream_takes_them_too() -> None:
    events = [*Agent(Script("ok", name="openai:gpt-4o")).stream(Message.of("user", "See", PDF))]
    assert events[-1].result.output == "ok"
