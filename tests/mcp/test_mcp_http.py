"""What becomes of an MCP server over HTTP that forgets, fails, or says too much?"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conformance.client_requests import shown_by
from mcp_http_stub import HttpStub
from support.fault_server import CLOSE, SSE_HEAD, STALL, FaultServer, chunk, http
from support.paths import ROOT
from support.ports import free_port

from fsm_agent.mcp import MCPServer, MCPServerError, MCPToolError
from fsm_agent.mcp.bounds import MAX_BYTES

pytest.importorskip("mcp")

SECRET = "recognisable-0123456789"


@pytest.fixture
def stub() -> Iterator[HttpStub]:
    with HttpStub() as stub:
        yield stub


@pytest.mark.system
def test_headers_go_with_every_request_and_the_session_is_ended(stub):
    with MCPServer.http(stub.url, headers={"X-Key": SECRET}) as server:
        assert [function.name for function in server.functions] == ["ask"]
        assert server.call("ask") == "yes"
    assert {headers["x-key"] for _, _, headers in stub.heard} == {SECRET}
    assert stub.heard[-1][0] == "DELETE"


@pytest.mark.nightly
def test_at_exit_the_session_is_ended_without_a_word(stub):
    """The host has a name, which a loop looks up in a thread; an interpreter that exits starts none."""
    url = stub.url.replace("127.0.0.1", "localhost")
    code = f"from fsm_agent import MCPServer; server = MCPServer.http({url!r}); print(server.call('ask'))"
    run = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "yes\n", "")
    assert stub.heard[-1][0] == "DELETE"


@pytest.mark.system
@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_no_proxy_stands_before_this_machine(stub, variable, monkeypatch):
    with FaultServer([CLOSE]) as proxy:
        monkeypatch.setenv(variable, proxy.base_url)
        for host in ("127.0.0.1", "localhost"):
            with MCPServer.http(stub.url.replace("127.0.0.1", host), headers={"Authorization": SECRET}) as server:
                assert server.call("ask") == "yes"
        assert proxy.n_connections == 0


@pytest.mark.system
@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc": "2.0", "id": 3, "result": "%b"}',
        b'{"jsonrpc": "2.0", "id": 3, "result": {"content": "%b"}}',
        b'{"jsonrpc": "2.0", "id": 3, "error": {"code": 7, "message": "no: %b"}}',
        b'{"jsonrpc": "2.0", "id": 3, "result": {"isError": true, "content": [{"type": "text", "text": "no: %b"}]}}',
        b"%b",
    ],
    ids=["no result", "no content", "an error", "a failure", "no JSON"],
)
def test_nothing_secret_is_logged_or_raised(stub, body, caplog):
    """The package's HTTP client writes every URL at INFO, and keys may be in it; pydantic quotes what it refuses."""
    caplog.set_level(logging.DEBUG)
    stub.answer = lambda id: (body % SECRET.encode()).replace(b'"id": 3', b'"id": %d' % id)
    server = MCPServer.http(f"{stub.url}/{SECRET}?k={SECRET}", headers={"X-Key": SECRET})
    with server, pytest.raises(MCPToolError, match=r"\*\*\*") as caught:
        server.call("ask")
    assert "HTTP Request: POST http://127.0.0.1" in caplog.text
    assert SECRET[-8:] not in caplog.text + shown_by(caught.value)


def test_nothing_secret_is_logged_of_a_server_that_is_none(caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(MCPServerError) as caught:
        _ = MCPServer.http(f"http://127.0.0.1:9/{SECRET}?k={SECRET}", headers={"X-Key": SECRET}).functions
    assert SECRET[-8:] not in caplog.text + shown_by(caught.value)


@pytest.mark.system
def test_the_status_of_a_server_that_refuses_is_told():
    told = "cannot be used: Server returned an error response: HTTP status 401"
    with FaultServer([http(b"no", status=401)] * 5) as server, pytest.raises(MCPServerError, match=f"{told}$"):
        _ = MCPServer.http(f"{server.base_url}/mcp").functions


@pytest.mark.system
def test_bodies_are_bounded_over_the_old_transport_too(caplog):
    events = [SSE_HEAD, chunk(b"event: endpoint\ndata: /message\n\n"), STALL]
    with FaultServer(events, [http(b"x", content_encoding="gzip")]) as server:
        far = MCPServer.http(f"{server.base_url}/sse", sse=True, start_timeout_s=1.0)
        with pytest.raises(MCPServerError, match="did not answer in 1 s"):
            _ = far.functions
    assert "the answer came as 'gzip', which was not asked for" in caplog.text


@pytest.mark.system
def test_a_session_that_the_server_forgot_is_begun_anew(stub):
    with MCPServer.http(stub.url) as server:
        stub.sessions.clear()
        assert server.call("ask") == "yes"
        assert [method for _, method, _ in stub.heard].count("initialize") == 2


@pytest.mark.system
def test_a_server_that_went_away_is_used_again_when_it_is_back():
    port = free_port()  # which no other test is given meanwhile
    with HttpStub(port) as stub:
        server = MCPServer.http(stub.url)
        assert server.call("ask") == "yes"
    with pytest.raises(MCPServerError, match="ended before the tool 'ask' answered: All connection attempts failed"):
        server.call("ask")
    with HttpStub(port), server:
        assert server.call("ask") == "yes"


@pytest.mark.system
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
