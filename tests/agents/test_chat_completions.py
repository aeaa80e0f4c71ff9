"""Does OpenAI's official client talk to an agent through the endpoint of the docs?"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.paths import ROOT

pytest.importorskip("uvicorn")
pytest.importorskip("openai")

import openai
import uvicorn

from fsm_agent import Agent, ProviderError, function
from fsm_agent.testing import Pieces, Script, call

SECRET = "sk-recognisable0123456789"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of the endpoint, and its agents."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import chat_completions

    monkeypatch.setattr(chat_completions, "AGENTS", {})
    config = uvicorn.Config(chat_completions.app, log_level="error")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield client, chat_completions.AGENTS
        server.should_exit = True
        thread.join(30)


HELLO: Any = [{"role": "user", "content": "Hello"}]


@pytest.mark.system
def test_models_texts_and_streams(endpoint):
    client, agents = endpoint
    model = Script("Good day.", Pieces("Good ", "day."))
    agents["host"] = Agent(model, system="Be polite.", name="host")
    assert [found.id for found in client.models.list()] == ["host"]
    done = client.chat.completions.create(model="host", messages=HELLO)
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ("Good day.", "stop")
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
    pieces = [
        chunk.choices[0].delta.content
        for chunk in client.chat.completions.create(model="host", messages=HELLO, stream=True)
    ]
    assert pieces == ["", "Good ", "day.", None]
    dialog: Any = [*HELLO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "How are you?"}]
    model = Script("Fine.")
    agents["host"] = agents["host"].changed(model=model)
    client.chat.completions.create(model="host", messages=dialog)
    assert [message.text for message in model.requests[0].messages] == ["Be polite.", "Hello", "Hi.", "How are you?"]

    @function
    def now() -> str:
        """Return the time."""
        return "noon"

    agents["clock"] = Agent(Script(call("now"), "It is noon."), functions=[now], name="clock")
    done = client.chat.completions.create(model="clock", messages=HELLO)
    assert done.choices[0].message.content == "It is noon.", "functions of the server are its own"


@pytest.mark.system
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_named_and_tell_nothing_of_the_server(endpoint, stream):
    client, agents = endpoint

    @function(needs_approval=True)
    def refund() -> str:
        """Refund."""
        return "done"

    agents["desk"] = Agent(Script(call("refund")), functions=[refund], name="desk")
    agents["broken"] = Agent(Script(ProviderError(f"no such key {SECRET}", retryable=False)), name="broken")

    def ask(model: str, messages: Any = HELLO) -> None:
        found = client.chat.completions.create(model=model, messages=messages, stream=stream)
        if stream:
            list(found)

    with pytest.raises(openai.NotFoundError, match="nobody"):
        ask("nobody")
    with pytest.raises(openai.BadRequestError):
        ask("desk", [])
    with pytest.raises(openai.APIError, match="person"):
        ask("desk")
    with pytest.raises(openai.APIError, match="failed") as caught:
        ask("broken")
    assert SECRET[6:] not in str(caught.value)
