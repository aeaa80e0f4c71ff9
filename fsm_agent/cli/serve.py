"""The command ``fsm-agent serve``."""

from __future__ import annotations

import os
import re
import sys
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

from fsm_agent.cli.models import Debug, Deps
from fsm_agent.cli.options import load_callable, load_deps, load_runnables
from fsm_agent.cli.reporting import option, reporting
from fsm_agent.cli.terminal import Screen
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.web.follow import with_store

HOST = "127.0.0.1"
TOKEN = "FSM_AGENT_TOKEN"
CLOSE_S = 3  # until open streams are cut, once the server is stopped


def serve(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent or flow, as module:name.")],
    store: Annotated[
        str | None, typer.Option(help="The file to keep conversations in, or its address; by default the agent's own.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 8000,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address; another machine needs --user.")] = HOST,
    user: Annotated[
        str | None,
        typer.Option(help="A function of a request that returns who sends it, or None to refuse it, as module:name."),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Print an address with a token, against other users of this machine.")
    ] = False,
    deps: Deps = None,
    debug: Debug = False,
) -> None:
    """Serve a chat page for an agent or a flow on this machine: conversations, approvals, forms, pictures."""
    with reporting(debug), Screen() as screen, redirect_stdout(sys.stderr):
        if host not in (HOST, "localhost", "::1") and user is None:
            raise typer.BadParameter(
                "expected --user, your login, before other machines may connect, got none", param_hint="--host"
            )
        if token and user is not None:
            raise typer.BadParameter("expected --token or --user, got both; leave one out", param_hint="--token")
        found, _ = option("agent", load_runnables, agent)
        if len(found) != 1:
            names = ", ".join([one.name for one in found])
            raise typer.BadParameter(
                f"expected one agent or flow, got {names or 'none'} in {agent}; pass module:name", param_hint="AGENT"
            )
        runnable = found[0] if store is None else with_store(found[0], store)
        known = None if user is None else option("--user", load_callable, user)
        try:
            import uvicorn

            from fsm_agent.web.auth import require_token
            from fsm_agent.web.chat_page import serve as served
        except ModuleNotFoundError as error:
            raise ConfigError(f"serve needs {error.name}; run pip install 'fsm-agent[serve]'") from None
        app: Any = served(runnable, user=known, deps=option("--deps", load_deps, deps, [runnable]))
        if known is None and (token or os.environ.get(TOKEN)):
            app, address = require_token(app, host=host, port=port, command="serve", token=_token())
            screen.line(address)
            screen.tell(f"{runnable.name}; anyone with the address is its user; Ctrl-C ends it")
        else:
            where = f"[{host}]" if ":" in host else host
            screen.tell(f"{runnable.name} at http://{where}:{port}; Ctrl-C ends it")
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            server_header=False,
            timeout_graceful_shutdown=CLOSE_S,
        )
        server = uvicorn.Server(config)
        server.run()
        if not server.started:
            raise UsageError(f"port {port} of {host} cannot be used")


def _token() -> str | None:
    """Return the token of the environment, which lets open pages stay open while the server restarts; None: unset."""
    token = os.environ.get(TOKEN)
    if token and not re.fullmatch(r"[A-Za-z0-9_-]{20,200}", token):
        raise ConfigError(
            f"{TOKEN}: expected 20 to 200 letters, digits, - and _ that cannot be guessed, got another text"
        )
    return token or None
