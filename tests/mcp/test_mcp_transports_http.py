"""What happens if an MCP server over HTTP forgets, fails, or says too much?"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import closing, nullcontext
from typing import Any

import pytest
from conformance.client_requests import shown_by

pytest.importorskip("mcp")

import httpx2
from mcp_http_stub import HttpStub, text
from support.fault_server import SSE_HEAD, STALL, FaultServer, chunk, http

from fsm_agent.mcp import MCPServer, MCPServerError, MCPToolError

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
    """The package's HTTP client logs every URL at INFO, and URLs may contain keys.  Pydantic quotes refused values."""
    caplog.set_level(logging.DEBUG)
    stub.answer = lambda id: (body % SECRET.encode()).replace(b'"id": 3', b'"id": %d' % id)
    server = MCPServer.http(f"{stub.url}/{SECRET}?k={SECRET}", headers={"X-Key": SECRET})
    with server, pytest.raises(MCPToolError, match=r"\*\*\*") as caught:
        server.call("ask")
    assert "HTTP Request: POST http://127.0.0.1" in caplog.text
    assert SECRET[-8:] not in caplog.text + shown_by(caught.value)


def test_nothing_secret_is_logged_of_a_server_that_is_none(stub, caplog):
    caplog.set_level(logging.DEBUG)
    stub.is_away = True
    with pytest.raises(MCPServerError) as caught:
        _ = MCPServer.http(f"{stub.url}/{SECRET}?k={SECRET}", headers={"X-Key": SECRET}).functions
    assert SECRET[-8:] not in caplog.text + shown_by(caught.value)


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_no_proxy_stands_before_this_machine(stub, variable, monkeypatch):
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    real, proxies = httpx2.AsyncHTTPTransport.__init__, []

    def noted(transport: Any, *given: Any, **options: Any) -> None:
        proxies.append(options.get("proxy"))
        real(transport, *given, **options)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "__init__", noted)
    for host, is_here in (("127.0.0.1", True), ("localhost", True), ("far.invalid", False)):
        proxies.clear()
        with MCPServer.http(stub.url.replace("127.0.0.1", host), headers={"Authorization": SECRET}) as server:
            assert server.call("ask") == "yes"
        assert any(proxies) is not is_here


def test_the_status_of_a_server_that_refuses_is_told(stub):
    stub.status = 401
    with pytest.raises(MCPServerError, match=r"HTTP status 401$"):
        _ = MCPServer.http(stub.url).functions


@pytest.mark.system
def test_bodies_are_bounded_over_the_old_transport_too(caplog):
    events = [SSE_HEAD, chunk(b"event: endpoint\ndata: /message\n\n"), STALL]
    with FaultServer(events, [http(b"x", content_encoding="gzip")]) as server:
        far = MCPServer.http(f"{server.base_url}/sse", sse=True, start_timeout_s=10.0)
        with pytest.raises(MCPServerError):
            _ = far.functions
    assert "'gzip'" in caplog.text


def test_a_session_that_the_server_forgot_is_begun_anew(stub):
    with MCPServer.http(stub.url) as server:
        assert server.call("ask") == "yes"
        stub.sessions.clear()
        assert server.call("ask") == "yes"
        assert [method for _, method, _ in stub.heard].count("initialize") == 2


def test_a_server_that_went_away_is_used_again_when_it_is_back(stub):
    with MCPServer.http(stub.url) as server:
        assert server.call("ask") == "yes"
        stub.is_away = True
        with pytest.raises(MCPServerError, match="'ask'"):
            server.call("ask")
        stub.is_away = False
        assert server.call("ask") == "yes"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"no JSON", "JSON"),
        (json.dumps({"jsonrpc": "2.0", "id": 3, "result": {"content": 7}}).encode(), "content"),
        (b'{"jsonrpc": "2.0", "id": 3, "error": {"code": 7, "message": "no: ' + SECRET.encode() + b'"}}', r"\*\*\*"),
        (b" " * (32 * 1024 * 1024 + 1), "the answer: .*bytes"),
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


@pytest.mark.parametrize(
    ("method", "error", "named", "options"),
    [
        ("tools/list", MCPServerError, "'far'", {"start_timeout_s": 0.05}),
        ("tools/call", MCPToolError, "'ask'", {"timeout_s": 0.01}),
    ],
)
def test_what_takes_too_long_is_named(stub, method, error, named, options):
    at_once = stub.reply

    async def never(request: Any, message: dict[str, Any]) -> Any:
        return await (asyncio.Event().wait() if message.get("method") == method else at_once(request, message))

    stub.reply = never
    with closing(MCPServer.http(stub.url, name="far", **options)) as server:
        with pytest.raises(error, match=named) as caught:
            server.call("ask")
        assert type(caught.value) is error


def test_the_lines_of_an_event_stream_are_bounded_one_by_one(stub):
    body, mib = stub.body, 1024 * 1024
    stub.kind = "text/event-stream"
    for sizes, is_read in (([17, 17], True), ([33], False)):
        comments = b"".join([b":%b\n" % (b" " * size * mib) for size in sizes])
        stub.answer = lambda id, comments=comments: b"\n" + comments + b"data:" + body(id, text("yes"))
        with MCPServer.http(stub.url) as server, nullcontext() if is_read else pytest.raises(MCPToolError):
            assert server.call("ask") == "yes"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("size", [1, 4096])
@pytest.mark.parametrize(
    ("said", "read"),
    [
        (rb"cut \ud83d", "cut \ufffd"),
        (rb"cut \uD83D.", "cut \ufffd."),
        (rb"cut \ude00", "cut \ufffd"),
        (rb"\ud83d\ud83d\ude00\n", "\ufffd\N{GRINNING FACE}\n"),
        (rb"whole \ud83d\ude00 \\ud83d \\\ud83d", "whole \N{GRINNING FACE} \\ud83d \\\ufffd"),
        (b"caf\xe9 caf\xc3\xa9", "caf\ufffd caf\xe9"),
    ],
)
def test_half_a_character_and_a_wrong_byte_are_replaced(stub, kind, size, said, read):
    body = stub.body
    stub.kind, stub.chunk_bytes = kind, size
    stub.answer = lambda id: body(id, text("@")).replace(b"@", said)
    with MCPServer.http(stub.url) as server:
        assert server.call("ask") == read


@pytest.mark.parametrize(
    "value", [float("nan"), "\udcff", object()], ids=["no number", "half a character", "an object"]
)
def test_arguments_that_are_no_json_are_not_sent_and_the_session_goes_on(stub, value):
    with MCPServer.http(stub.url) as server:
        assert server.call("ask") == "yes"
        n_heard = len(stub.heard)
        with pytest.raises(MCPToolError, match="the tool 'ask'"):
            server.call("ask", word=value)
        assert len(stub.heard) == n_heard
        assert server.call("ask") == "yes"
