"""What happens to an agent call when the server fails: how often is it asked, how long is the wait, what is the error?

Over every wire format, with a clock that does not really wait.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.fault_server import RESET, FaultServer, http
from tenacity import wait_exponential

from fsm_agent import Agent, CallFailed
from fsm_agent.call import snapshot
from fsm_agent.clients import client_for
from fsm_agent.testing import FakeClock

KEY = "sk-recognisable-0123456789abcdef"
HTML = "<html><body><h1>Bad Gateway</h1></body></html>"
ERROR = {"error": {"message": "the server says no", "type": "server_error"}}

REPLIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]},
    "openai": {
        "status": "completed",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]}],
    },
    "anthropic": {"role": "assistant", "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn"},
    "google": {"candidates": [{"content": {"parts": [{"text": "hello"}]}, "finishReason": "STOP"}]},
}

# What the server does: what the failure is called, how many requests were made, and the waits between in seconds.
# Which faults are which failures is in test_http_client.py and tests/providers/test_failures.py.
FAULTS: dict[str, tuple[list[Any], str, int, list[float]]] = {
    "400": ([http(ERROR, status=400)], "ProviderError", 1, []),
    "401": ([http(ERROR, status=401)], "AuthFailed", 1, []),
    "408": ([http(ERROR, status=408)], "TimedOut", 3, [1, 2]),
    "429": ([http(ERROR, status=429)], "RateLimited", 3, [1, 2]),
    "429 with Retry-After": ([http(ERROR, status=429, retry_after="7")], "RateLimited", 3, [7, 7]),
    "429 until a date": (
        [
            http(
                ERROR,
                status=429,
                date="Sun, 22 Nov 2026 01:00:00 GMT",
                retry_after="Sun, 22 Nov 2026 01:00:30 GMT",
            )
        ],
        "RateLimited",
        3,
        [30, 30],
    ),
    "429 for an hour": ([http(ERROR, status=429, retry_after="3600")], "RateLimited", 1, []),
    "502 in HTML": ([http(HTML, status=502, content_type="text/html")], "Overloaded", 3, [1, 2]),
    "cut JSON": ([http('{"choices": [')], "BadReply", 3, [1, 2]),
    "reset": ([RESET], "TimedOut", 3, [1, 2]),
}

# One of each kind: what a wire reads of an error is in `test_a_refusal_is_an_error_of_its_kind` of all codecs.
OF_ALL_WIRES = ["401", "429 with Retry-After", "cut JSON"]
MATRIX = [(name, provider) for provider in REPLIES for name in (FAULTS if provider == "openai" else OF_ALL_WIRES)]


def agent_of(provider: str, server: FaultServer) -> Agent:
    environment = {"clock": FakeClock(), "backoff": wait_exponential(multiplier=1, max=60)}
    return Agent(
        client_for(f"{provider}:some-model", base_url=f"{server.base_url}", api_key=KEY), environment=environment
    )


@pytest.mark.parametrize(("fault", "provider"), MATRIX)
def test_a_server_that_fails_for_good(provider: str, fault: str) -> None:
    steps, kind, requests, waits = FAULTS[fault]
    with FaultServer(steps) as server:
        agent = agent_of(provider, server)
        with pytest.raises(CallFailed) as caught:
            agent.call("hi")
        assert type(caught.value.__cause__).__name__ == kind
        assert len(server.requests) == requests
        assert agent.environment["clock"].sleeps == waits
        seen = f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {snapshot(caught.value.call)}"
        assert KEY not in seen
        agent.client.close()


@pytest.mark.parametrize(
    ("fault", "provider"),
    [("408", "openai"), ("429 until a date", "openai"), ("cut JSON", "anthropic"), ("reset", "google")],
)
def test_a_server_that_fails_once(provider: str, fault: str) -> None:
    with FaultServer(FAULTS[fault][0], [http(REPLIES[provider])]) as server:
        agent = agent_of(provider, server)
        assert agent.call("hi").output == "hello"
        assert len(server.requests) == 2
        agent.client.close()
