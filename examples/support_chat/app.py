"""A support chat as a service, with FastAPI, approvals on the page, and conversations in SQLite.

Run it with ``PASSWORD=… uvicorn app:app`` in this folder, and open http://127.0.0.1:8000 with any name and this
password.  The embedded model answers; ``MODEL=openai:gpt-5-mini`` selects a larger one.  If you stop the service in the
middle of an answer and start it again, the page shows the rest.
"""

from __future__ import annotations

import base64
import hmac
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request

from fsm_agent import Agent, CallResult, function
from fsm_agent.web import serve

ORDERS = {"A-17": {"what": "a lamp", "state": "delivered", "euros": 40}, "B-2": {"what": "a desk", "state": "sent"}}


@function
def find_order(number: str) -> str:
    """Look an order up, such as A-17."""
    order = ORDERS.get(number)
    return str(order) if order else f"there is no order {number}"


@function(needs_approval=True)
def refund(number: str, euros: int) -> str:
    """Refund part of the price of an order; a person has to approve it."""
    return f"{euros} euros of {number} are refunded"


def user_of(request: Request) -> str:
    """Return the user who sent a request, by HTTP basic authentication; in production, use your own login."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    try:
        name, _, password = base64.b64decode(given).decode().partition(":")
    except ValueError:
        name, password = "", ""
    right = os.environ.get("PASSWORD", "")
    if kind != "Basic" or not name or not right or not hmac.compare_digest(password.encode(), right.encode()):
        raise HTTPException(401, "name and password, please", {"www-authenticate": 'Basic realm="support"'})
    return name


def make_app(model: Any, store: str = "support.db") -> FastAPI:
    """Return the service; a test passes a `Script` as its model."""
    agent = Agent(
        model,
        name="support",
        system="You help customers of a shop. Look orders up before you say anything about them.",
        functions=[find_order, refund],
        store=store,
    )
    page = serve(agent, user=user_of)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with page.state.live:  # at the end it gives back what it drives
            yield

    app = FastAPI(title="Support", lifespan=lifespan)

    async def ask(question: str, request: Request) -> Any:
        return await agent.acall(question, extra={"user": user_of(request)})

    app.post("/api/ask", response_model=CallResult[str])(ask)  # for programs: one answer, as JSON
    app.mount("/", page)  # for people: the chat
    return app


app = make_app(os.environ.get("MODEL", "local:"))

if __name__ == "__main__":
    sys.exit(__doc__)
