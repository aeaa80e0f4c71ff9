"""Are the tools of providers values, and is a wrong one refused without showing its secrets?"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent.errors import UsageError
from fsm_agent.messages import CodeExecution, ComputerUse, HostedMCP, Settings, UserLocation, WebSearch
from fsm_agent.testing import as_json

TOKEN = "the.token.that.nobody.may.see.0815"
SERVER = HostedMCP("files", "https://host/mcp", allowed_tools=("read", "list"), authorization=TOKEN)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: WebSearch(allowed_domains="example.com"), "WebSearch.allowed_domains: .*'example.com'"),
        (lambda: WebSearch(allowed_domains=("",)), r"WebSearch.allowed_domains: .*\(''"),
        (lambda: WebSearch(allowed_domains=("https://example.com",)), "'https://example.com'"),
        (lambda: WebSearch(blocked_domains=("a.b", "c d")), "WebSearch.blocked_domains: .*'c d'"),
        (lambda: WebSearch(allowed_domains=("a.b",), blocked_domains=("c.d",)), "blocked_domains"),
        (lambda: WebSearch(max_uses=True), "WebSearch.max_uses: .*True"),
        (lambda: WebSearch(max_uses=0), "WebSearch.max_uses: .*0"),
        (lambda: WebSearch(context_size="big"), "WebSearch.context_size: .*'big'"),
        (lambda: ComputerUse(width=0), "ComputerUse.width: .*0"),
        (lambda: ComputerUse(height=None), "ComputerUse.height: .*None"),
        (lambda: ComputerUse(environment="amiga"), "ComputerUse.environment: .*'amiga'"),
        (lambda: HostedMCP("a b", "https://h"), "HostedMCP.label: .*'a b'"),
        (lambda: HostedMCP(3, "https://h"), "HostedMCP.label: .*3"),
        (lambda: HostedMCP("a", "https://h", require_approval="maybe"), "HostedMCP.require_approval: .*'maybe'"),
        (lambda: HostedMCP("a", "https://h", allowed_tools=["x"]), r"HostedMCP.allowed_tools: .*\['x'\]"),
        (lambda: HostedMCP("a", f"ftp://{TOKEN}"), "the url of MCP server 'a'"),
        (lambda: HostedMCP("a", f"https://u:{TOKEN}@h/x"), "the url of MCP server 'a'"),
        (lambda: HostedMCP("a", f"https://h/{TOKEN}\n"), "the url of MCP server 'a'"),
        (lambda: HostedMCP("a", f"https://h/ {TOKEN}"), "the url of MCP server 'a'"),
        (lambda: HostedMCP("a", f"https:///{TOKEN}"), "the url of MCP server 'a'"),
        (lambda: HostedMCP("a", None), "the url of MCP server 'a'"),
        (lambda: HostedMCP("a", "https://h", authorization=""), "the authorization of MCP server 'a'"),
        (lambda: HostedMCP("a", "https://h", authorization=3), "the authorization of MCP server 'a'"),
        (lambda: HostedMCP("a", "https://h", headers={"X": f"{TOKEN}\n"}), "the header 'X' of MCP server 'a'"),
        (lambda: HostedMCP("a", "https://h", headers={"": TOKEN}), "the header '' of MCP server 'a'"),
        (lambda: HostedMCP("a", "https://h", headers={"X": 3}), "the header 'X' of MCP server 'a'"),
        (lambda: HostedMCP("a", "https://h", headers=[("X", TOKEN)]), "the headers of MCP server 'a'.* list"),
        (lambda: Settings(hosted_tools=[WebSearch()]), "settings.hosted_tools: .*a list"),
        (lambda: Settings(hosted_tools=({"authorization": TOKEN},)), "settings.hosted_tools: .*a dict"),
        (lambda: Settings(hosted_tools=(WebSearch(), WebSearch(max_uses=1))), "settings.hosted_tools: .*WebSearch"),
        (lambda: Settings(hosted_tools=(SERVER, SERVER)), "settings.hosted_tools: .*HostedMCP"),
        (lambda: pickle.dumps(SERVER), "'files'"),
    ],
)
def test_what_makes_no_sense_is_refused_and_not_shown(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        make()
    assert TOKEN not in str(caught.value)


def test_they_are_values_and_json() -> None:
    assert ComputerUse() == ComputerUse(width=1280, height=800, environment="browser")
    search = WebSearch(
        allowed_domains=("example.com", "example.org/news"),
        max_uses=1,
        context_size="low",
        user_location=UserLocation(country="AT", city="Wien"),
    )
    other = HostedMCP("more", f"http://h/?k={TOKEN}", headers={"X-Key": TOKEN}, require_approval="auto")
    settings = Settings(hosted_tools=(search, CodeExecution(), ComputerUse(), SERVER, other))
    assert len(as_json(settings)["hosted_tools"]) == len({*settings.hosted_tools, *settings.hosted_tools}) == 5
    assert copy.copy(SERVER) is copy.deepcopy(SERVER) is SERVER
    assert TOKEN not in repr(settings)
