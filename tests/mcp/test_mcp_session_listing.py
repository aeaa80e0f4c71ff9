"""Is the list of an MCP server bounded and plain, whatever it says, and read again when it has changed?"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp_http_stub import HttpStub, text

from fsm_agent.agents import Agent
from fsm_agent.mcp import MCPServer, MCPServerError
from fsm_agent.testing import Script, function_call

MAX_TOOLS, MAX_PAGES, MAX_CHARS, MAX_DESCRIPTION_CHARS = 2_000, 200, 2_000_000, 10_000
OPEN = {"type": "object"}


@pytest.fixture
def stub() -> Iterator[HttpStub]:
    with HttpStub() as stub:
        yield stub


def tool(name: str, **facts: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": OPEN, **facts}


class TestBounds:
    def test_as_many_tools_as_may_be(self, stub: HttpStub) -> None:
        stub.pages = [[tool(f"t{n}") for n in range(MAX_TOOLS - 1)], [tool("last")]]
        with MCPServer.http(stub.url) as server:
            assert len(server.functions) == MAX_TOOLS

    @pytest.mark.parametrize(
        ("pages", "told"),
        [
            ([[tool(f"t{n}") for n in range(MAX_TOOLS + 1)]], f"more than {MAX_TOOLS} tools"),
            ([[tool(f"t{n}") for n in range(MAX_TOOLS)], [tool("last")]], f"more than {MAX_TOOLS} tools"),
            ([[tool(f"t{n}")] for n in range(MAX_PAGES + 1)], f"more than {MAX_PAGES} pages"),
            ([[]] * (MAX_PAGES + 1), f"more than {MAX_PAGES} pages"),
            ([[tool("x" * (1_000 + 1))]], "name is longer than 1000 characters"),
            (
                [[tool(f"t{n}", description="x" * MAX_DESCRIPTION_CHARS) for n in range(201)]],
                f"more than {MAX_CHARS} characters, .*'t1[0-9]+'",
            ),
            (
                [[tool("wide", inputSchema={**OPEN, "enum": ["x" * MAX_CHARS]})]],
                f"more than {MAX_CHARS} characters, .*'wide'",
            ),
        ],
        ids=["a page", "two pages", "pages", "empty pages", "a name", "descriptions", "a schema"],
    )
    def test_more_is_refused(self, stub: HttpStub, pages: list[Any], told: str) -> None:
        stub.pages = pages
        with pytest.raises(MCPServerError, match=told) as caught:
            _ = MCPServer.http(stub.url).functions
        assert len(str(caught.value)) < 300

    def test_a_list_that_cannot_be_read_is_told_with_its_server(self, stub: HttpStub) -> None:
        stub.pages = [[{"name": 5}]]
        with pytest.raises(MCPServerError, match=r"127\.0\.0\.1"):
            _ = MCPServer.http(stub.url).functions

    def test_long_texts_are_cut(self, stub: HttpStub) -> None:
        long = "x" * 5_000_000
        schema = {**OPEN, "properties": {"a": {"anyOf": [{"type": "string", "description": long}], "title": long}}}
        stub.pages = [[tool("one", description=long, inputSchema=schema), tool("two", title=long)]]
        with MCPServer.http(stub.url) as server:
            one, two = server.functions
        cut = "x" * (MAX_DESCRIPTION_CHARS - 1) + "…"
        assert (one.description, two.description) == (cut, cut)
        assert one.parameters["properties"]["a"] == {"anyOf": [{"type": "string", "description": cut}], "title": cut}


HIDDEN = "\x1b[31m\u202e\u2066\x07\x00\x9b\U000e0041"


def test_what_a_model_reads_of_it_is_plain(stub: HttpStub) -> None:
    names = {"de\u202escription": {"type": "string", "enum": ["a\u202e"]}, "description": {"type": "string"}}
    schema = {**OPEN, "description": f"so{HIDDEN}", "properties": names, "default": {"a": 1}}
    stub.pages = [[tool(f"do{HIDDEN}", description=f"a{HIDDEN}\nb\tcé", inputSchema=schema), tool("x", title=HIDDEN)]]
    script = Script("Done.")
    with MCPServer.http(stub.url) as server:
        Agent(script, functions=[server]).call("Do it.")
    done, untold = script.requests[0].functions
    assert done.name.isascii()
    assert done.name.isprintable()
    assert (done.description, untold.description) == ("a[31m\nb\tcé", "[31m")
    assert done.parameters == {**schema, "description": "so[31m"}  # what arguments have to fit stays


def test_null_for_an_argument_that_may_be_left_out_is_left_out(stub: HttpStub) -> None:
    kinds = {"due": {"type": "string"}, "by": {"type": ["string", "null"]}, "after": {"type": ["string", "null"]}}
    kinds["where"] = {"type": "object", "properties": {"city": {"type": "string"}}}
    stub.pages = [[tool("find", inputSchema={**OPEN, "properties": kinds, "required": ["by"]})]]
    given: list[dict[str, Any]] = []
    stub.tools = {"find": lambda **arguments: given.append(arguments) or text("found")}
    with MCPServer.http(stub.url) as server:
        asked = function_call("find", due=None, by=None, after=None, where={"city": None})
        Agent(Script(asked, "Done."), functions=[server]).call("Find it.")
    assert given == [{"by": None, "after": None, "where": {}}]


@pytest.mark.timeout(30)  # far more than it takes, and far less than a search that explodes
def test_a_schema_that_means_harm_holds_up_neither_the_start_nor_a_call(stub: HttpStub) -> None:
    properties = {f"p{n}": {"type": "string", "pattern": rf"^\w{{190}}x{{{n + 1}}}$"} for n in range(300)}
    schema = {**OPEN, "required": [f"p{n}" for n in range(4_000)], "properties": properties}
    stub.pages = [[tool("wide", inputSchema=schema)]]
    with MCPServer.http(stub.url) as server:
        result = Agent(Script(function_call("wide"), "Sorry."), functions=[server]).call("Do it.")
    assert "p0: Field required" in (result.function_calls[0].error or "")


CHANGING = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

lists, changes = 0, int(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    id, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            capabilities, info = {"tools": {"listChanged": True}}, {"name": "changing", "version": "1"}
            send(id=id, result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
        case "tools/list" if "cursor" not in params:
            lists += 1
            tool = {"name": f"first{lists}", "inputSchema": {"type": "object"}}
            if lists <= changes:
                send(method="notifications/tools/list_changed")
            send(id=id, result={"tools": [tool], "nextCursor": "1"})
        case "tools/list":
            send(id=id, result={"tools": [{"name": "second", "inputSchema": {"type": "object"}}]})
        case str() if id is not None:
            send(id=id, error={"code": -32601, "message": "unknown"})
"""


@pytest.mark.system
class TestChanges:
    """The server announces changed tools while it lists them, several times in a row."""

    @pytest.mark.parametrize("changes", [0, 2])
    def test_a_list_that_changed_while_it_was_read_is_read_again(self, changes: int) -> None:
        with MCPServer.stdio(sys.executable, "-c", textwrap.dedent(CHANGING), str(changes)) as server:
            assert [function.name for function in server.functions] == [f"first{changes + 1}", "second"]

    def test_one_that_changes_all_the_time_is_used_and_not_kept(self) -> None:
        with MCPServer.stdio(sys.executable, "-c", textwrap.dedent(CHANGING), "1000") as server:
            assert [function.name for function in server.functions] == ["first6", "second"]
            assert [function.name for function in server.functions] == ["first9", "second"]


@pytest.mark.parametrize(
    ("hints", "is_once"),
    [
        (None, False),
        ({}, False),
        ({"destructiveHint": True}, True),
        ({"destructiveHint": True, "idempotentHint": False}, True),
        ({"destructiveHint": True, "idempotentHint": True}, False),
        ({"destructiveHint": False}, False),
        ({"idempotentHint": False}, False),
        ({"readOnlyHint": True}, False),
    ],
)
def test_a_tool_that_destroys_must_not_run_twice_unless_it_is_idempotent(
    stub: HttpStub, hints: dict[str, bool] | None, is_once: bool
) -> None:
    stub.pages = [[tool("erase") if hints is None else tool("erase", annotations=hints)]]
    with MCPServer.http(stub.url) as server:
        (function,) = server.functions
        assert function.once is is_once
