"""Does an MCP server over HTTP answer only this machine, at every address?"""

from __future__ import annotations

import threading
from queue import Queue

import httpx
import pytest

from fsm_agent import function
from fsm_agent.mcp import serve

pytestmark = pytest.mark.system
BEGIN = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}


@function
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture(params=["127.0.0.1", "127.0.0.2", "localhost"])
def url(request: pytest.FixtureRequest) -> str:
    found: Queue[str] = Queue()
    server = serve("sums", [add])
    served = threading.Thread(
        target=server.run_http, kwargs={"host": request.param, "port": 0, "ready": found.put}, daemon=True
    )
    served.start()
    return found.get(timeout=60)


def status(url: str, **headers: str) -> int:
    accept = {"accept": "application/json, text/event-stream"}
    return httpx.post(url, json=BEGIN, headers=accept | headers, timeout=60).status_code


def test_a_page_of_another_site_gets_nothing(url: str) -> None:
    assert status(url) == 200
    assert status(url, host="evil.example") == 421
    assert status(url, origin="http://evil.example") == 403
