"""Is a configuration of MCP servers read as its users meant it?"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from support.paths import TESTS

from fsm_agent.errors import ConfigError
from fsm_agent.mcp import mcp_servers

SECRET = "recognisable-0123456789"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("MISSING", raising=False)


def transport(entry: dict[str, object]) -> Any:
    return mcp_servers({"mcpServers": {"a": entry}})["a"]._transport


def test_a_file_as_claude_and_cursor_write_it(tmp_path):
    file = tmp_path / "mcp.json"
    files = {"command": "npx", "args": ["-y", "server-filesystem", "/data"], "env": {"KEY": "${TOKEN}", "DEPTH": 3}}
    far = {"type": "http", "url": "https://h.invalid/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    off = {"command": "x", "disabled": True}
    file.write_text(json.dumps({"globalShortcut": "", "mcpServers": {"files": files, "far": far, "off": off}}))
    servers = mcp_servers(file)
    assert list(servers) == ["files", "far"]
    process, http = servers["files"]._transport, servers["far"]._transport
    assert (process.command, process.args) == ("npx", ("-y", "server-filesystem", "/data"))
    assert process.env == {"KEY": SECRET, "DEPTH": "3"}
    assert (http.url, http.headers) == ("https://h.invalid/mcp", {"Authorization": f"Bearer {SECRET}"})
    assert [(server.name, server._prefix) for server in servers.values()] == [("files", "files"), ("far", "far")]
    assert SECRET not in repr(servers)


def test_the_path_of_a_program_may_contain_a_space(tmp_path):
    for name in ("shop", "shop server"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o700)
    command = str(tmp_path / "shop server")
    assert transport({"command": command}).command == command


def test_options_hold_for_all_and_over_the_prefix():
    (server,) = mcp_servers({"servers": {"a": {"command": "x"}}}, prefix="", timeout_s=3).values()
    assert (server.name, server._prefix, server._connection._timeout_s) == ("a", "", 3)


@pytest.mark.parametrize(
    ("text", "filled_in"),
    [
        ("${TOKEN}", SECRET),
        ("${env:TOKEN}", SECRET),
        ("a${TOKEN}b${TOKEN}", f"a{SECRET}b{SECRET}"),
        ("${MISSING:-else:-where}", "else:-where"),
        ("${MISSING:-}", ""),
        ("${EMPTY:-else}", "else"),
        ("${EMPTY}", ""),
        ("${TOKEN:-else}", SECRET),
        ("$TOKEN $ {} ${", "$TOKEN $ {} ${"),
    ],
)
def test_variables_are_filled_in_from_the_environment(text, filled_in):
    assert transport({"command": "x", "args": [text]}).args == (filled_in,)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"command": "x", "env": {"K": "${MISSING}"}}, r"variable 'MISSING' for 'K' in 'env' of MCP server 'a' is not"),
        ({"command": "${input:key}"}, r"'command' of MCP server 'a'.*\$\{input:key\}"),
        ({"comand": "x"}, "MCP server 'a': .*'comand': did you mean 'command'"),
        ({"command": "x", "url": "https://h"}, "MCP server 'a': .*'http' .*'command'.*url, headers"),
        ({"type": "stdio", "url": "https://h"}, "MCP server 'a': .*'stdio' .*'url'"),
        ({"type": "htp", "url": "https://h"}, "MCP server 'a': .*'type' 'htp': did you mean 'http'"),
        ({"command": "x", "args": "${TOKEN}"}, "MCP server 'a': 'args'"),
        ({"url": "https://h", "headers": {"A": ["${TOKEN}"]}}, "MCP server 'a': 'headers.A'"),
        ({"command": "x", "disabled": "maybe"}, "'disabled' of MCP server 'a'"),
        ({"command": f"{sys.executable} x.py --key {SECRET}"}, f"command of an MCP server.*{sys.executable}"),
        ({}, "MCP server 'a': 'command'"),
        ([], "MCP server 'a': .*JSON object"),
    ],
)
def test_a_mistake_is_named_and_no_value_is_shown(entry, told):
    with pytest.raises(ConfigError, match=told) as caught:
        mcp_servers({"mcpServers": {"a": entry}})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "mcp.json': .*JSON"),
        ("[]", "mcp.json': .*JSON object"),
        ('{"mcpserver": {}}', "'mcpServers' or 'servers'.*: did you mean 'mcpServers'"),
        ('{"servers": 3}', "'servers': .*JSON object"),
        (" " * 1024 * 1024 + "{}", "mcp.json': .*bytes"),
    ],
    ids=["no JSON", "a list", "a misspelt part", "no servers", "too long"],
)
def test_a_file_that_is_none(tmp_path, content, told):
    file = tmp_path / "mcp.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=told):
        mcp_servers(file)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        mcp_servers(tmp_path / "another.json")


@pytest.mark.system
def test_a_server_of_a_file_is_used(tmp_path):
    file = tmp_path / "mcp.json"
    here = str(TESTS / "mcp")
    entry = {"command": sys.executable, "args": ["mcp_old_server.py"], "cwd": here}
    file.write_text(json.dumps({"mcpServers": {"old": entry}}))
    with mcp_servers(file)["old"] as server:
        assert server.functions[0].name == "old_find"
