"""Who is the user of an MCP server with a login, and who may answer the questions of a call?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("mcp")

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.shared.exceptions import MCPError

from fsm_agent import Context, Toolset, function
from fsm_agent.mcp import ToolServer, serve

URL = "http://localhost:8000/mcp"
AUTH = AuthSettings(
    issuer_url="https://login.example.com",  # type: ignore[arg-type]
    resource_server_url=URL,  # type: ignore[arg-type]
    validate_token_resource=False,
)
YES = {"ask:1.0": types.ElicitResult(action="accept", content={"approve": True})}


async def accept(context: Any, params: Any) -> types.ElicitResult:
    return YES["ask:1.0"]


class Tokens:
    """Knows tokens of the form ``client issuer subject``.  The subject may be missing."""

    async def verify_token(self, token: str) -> AccessToken:
        client, issuer, *subject = token.split()
        return AccessToken(
            token=token, client_id=client, scopes=[], claims={"iss": issuer}, subject=subject[0] if subject else None
        )


def user_of(agent: str, extra: Any, user: str) -> str:
    return user


@function
def orders(context: Context[str]) -> str:
    """List the orders of the customer."""
    return f"orders of {context.deps!r}"


@function(needs_approval=True)
def refund(context: Context[str]) -> str:
    """Refund the last order."""
    return f"refunded {context.deps}"


@asynccontextmanager
async def served(server: ToolServer) -> AsyncIterator[Any]:
    """Yield what makes a client with a token, of a server over HTTP in this process."""
    app = server.official.streamable_http_app(auth=AUTH, token_verifier=Tokens())

    @asynccontextmanager
    async def client(token: str, mode: str = "auto") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), headers=headers) as http:
            transport = streamable_http_client(URL, http_client=http)
            async with Client(transport, mode=mode, elicitation_callback=accept) as found:
                yield found

    async with app.router.lifespan_context(app):
        yield client


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(("token", "user"), [("app idp ada", "ada"), ("app idp", "app")])
async def test_the_user_of_deps_is_the_subject_of_the_token_or_its_client(token, user, mode):
    async with served(serve("shop", [orders], deps=user_of)) as client, client(token, mode) as one:
        found = await one.call_tool("orders")
    assert found.content[0].text == f"orders of {user!r}"


async def test_without_a_login_the_user_is_empty():
    async with Client(serve("shop", [orders], deps=user_of).official) as client:
        found = await client.call_tool("orders")
    assert found.content[0].text == "orders of ''"


async def test_tools_are_offered_to_the_user_of_the_token():
    asked: list[str] = []

    def deps(agent: str, extra: Any, user: str) -> str:
        asked.append(user)
        return user

    offered: dict[str, list[str]] = {}
    server = serve("shop", [Toolset([orders]).filtered(lambda function, deps: deps == "ada")], deps=deps)
    async with served(server) as client:
        for subject in ("ada", "bob"):
            async with client(f"app idp {subject}") as one:
                offered[subject] = [tool.name for tool in (await one.list_tools()).tools]
    assert offered == {"ada": ["orders"], "bob": []}


@pytest.mark.parametrize("other", ["app idp bob", "web idp ada", "app elsewhere ada", "app idp"])
async def test_only_the_user_of_the_same_client_and_issuer_may_answer(other):
    async with served(serve("shop", [refund], deps=user_of)) as client:
        async with client("app idp ada") as ada:
            waits = await ada.session.call_tool("refund", {}, allow_input_required=True)
        answered = {"input_responses": YES, "request_state": waits.request_state}
        async with client(other) as stranger:
            with pytest.raises(MCPError, match="requestState"):
                await stranger.session.call_tool("refund", {}, **answered)
        async with client("app idp ada") as ada:
            found = await ada.session.call_tool("refund", {}, **answered)
    assert found.content[0].text == "refunded ada"
