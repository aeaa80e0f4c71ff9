"""What becomes of an MCP server over HTTP that forgets, fails, or says too much?"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from mcp_http_stub import HttpStub

from fsm_agent.mcp.bounds import MAX_BYTES
from fsm_agent.mcp.client import MCPServer, MCPServerError, MCPToolError

pytest.importorskip("mcp")

SECRET = "recognisable-0123456789"


@pytest.fixture
def stub() -> Iterator[HttpStub]:
    with HttpStub() as stub:
        yield stub


def test_headers_go_with_every_request_and_the_session_is_ended(stub):
    with MCPServer.http(stub.url, headers={"X-Key": SECRET}) as server:
        assert [function.name for function in server.functions] == ["ask"]
        assert server.call("ask") == "yes"
    assert {headers["x-key"] for _, _, headers in stub.heard} == {SECRET}
    assert stub.heard[-1][0] == "DELETE"


def test_a_session_that_the_server_forgot_is_begun_anew(stub):
    with MCPServer.http(stub.url) as server:
        stub.sessions.clear()
        assert server.call("ask") == "yes"
        assert [method for _, method, _ in stub.heard].count("initialize") == 2


def test_a_server_that_always_forgets_is_asked_twice_and_no_more(stub):
    with MCPServer.http(stub.url) as server:
        stub.forgets = True
        with pytest.raises(MCPToolError, match="Session terminated"):
            server.call("ask")
        assert [method for _, method, _ in stub.heard].count("tools/call") == 2


def test_a_server_that_went_away_is_used_again_when_it_is_back():
    with HttpStub() as stub:
        server = MCPServer.http(stub.url)
        assert server.call("ask") == "yes"
    with pytest.raises(MCPServerError, match="ended before the tool 'ask' answered: All connection attempts failed"):
        server.call("ask")
    with HttpStub(int(stub.url.split(":")[2].split("/")[0])), server:
        assert server.call("ask") == "yes"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"no JSON", "Failed to parse JSON response"),
        (json.dumps({"jsonrpc": "2.0", "id": 3, "result": {"content": 7}}).encode(), "content"),
        (
            b'{"jsonrpc": "2.0", "id": 3, "error": {"code": 7, "message": "no: ' + SECRET.encode() + b'"}}',
            r"no: \*\*\*",
        ),
        (b" " * (MAX_BYTES + 1), "longer than"),
    ],
    ids=["no JSON", "no result", "an error", "too long"],
)
def test_an_answer_that_is_none_is_told_and_the_session_goes_on(stub, body, told):
    with MCPServer.http(stub.url, headers={"Authorization": f"Bearer {SECRET}"}) as server:
        good = stub.answer
        stub.answer = lambda id: body.replace(b'"id": 3', b'"id": %d' % id)
        with pytest.raises(MCPToolError, match=told) as caught:
            server.call("ask")
        assert len(str(caught.value)) < 3000
        stub.answer = good
        assert server.call("ask") == "yes"
        assert [method for _, method, _ in stub.heard].count("initialize") == 1
