"""The commands ``fsm-agent serve``, ``inspect`` and ``mcp serve``, which start servers for people and programs."""

from __future__ import annotations

import os
import re
import sys
import threading
import webbrowser
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from fsm_agent.cli import loading, options
from fsm_agent.cli.errors import option
from fsm_agent.cli.output import Command
from fsm_agent.cli.terminal import Screen
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.functions.context import LATER
from fsm_agent.mcp import ToolServer
from fsm_agent.mcp import serve as serve_mcp
from fsm_agent.named_objects import needing

HOST = "127.0.0.1"
TOKEN = "FSM_AGENT_TOKEN"
CLOSE_S = 3  # how long open streams may continue after the server is stopped
_USER = "A function, as module:name, that returns the user who sent a request, or None to refuse it."
_TOKEN = "Require a token, which keeps out other users of this machine."
_AGENTS = "The module with the agents or flows, to show dialogs and data at each step."
_TOOLS = "A function, an agent, a flow, a list of these, or a ToolServer."
mcp = typer.Typer(no_args_is_help=True, help="Serve functions, agents and flows as tools over MCP.")


def serve(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent or flow, as module:name.")],
    store: options.OptionalStore = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 8000,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on; other machines require --user.")
    ] = HOST,
    user: Annotated[str | None, typer.Option(metavar="MODULE:NAME", help=_USER)] = None,
    token: Annotated[bool, typer.Option("--token", help=_TOKEN)] = False,
    deps: options.Deps = None,
) -> None:
    """Serve a chat page for an agent or a flow, with conversations, approvals, forms and pictures."""
    with Screen() as screen:
        if host not in (HOST, "localhost", "::1") and user is None:
            what = "expected --user, your login, before other machines may connect, got none"
            raise typer.BadParameter(what, param_hint="--host")
        if token and user is not None:
            raise typer.BadParameter("expected --token or --user, got both; leave one out", param_hint="--token")
        found, _ = option("agent", loading.load_runnables, agent)
        if len(found) != 1:
            names = ", ".join([one.name for one in found])
            what = f"expected one agent or flow, got {names or 'none'} in {agent}; pass module:name"
            raise typer.BadParameter(what, param_hint="AGENT")
        known = None if user is None else option("--user", loading.load_callable, user)
        with needing("serve"):
            import uvicorn

            from fsm_agent.web import serve as served
            from fsm_agent.web.auth import require_token
            from fsm_agent.web.follow import with_store
        runnable = found[0] if store is None else with_store(found[0], store)
        app: Any = served(runnable, user=known, deps=loading.load_deps(deps, [runnable]))
        if known is None and (token or os.environ.get(TOKEN)):
            app, address = require_token(app, host=host, port=port, command="serve", token=_token())
            screen.line(address)
            screen.tell(f"{runnable.name}; anyone with the address is its user; Ctrl-C ends it")
        else:
            where = f"[{host}]" if ":" in host else host
            screen.tell(f"{runnable.name} at http://{where}:{port}; Ctrl-C ends it")
        config = uvicorn.Config(
            app, host=host, port=port, log_level="warning", server_header=False, timeout_graceful_shutdown=CLOSE_S
        )
        server = uvicorn.Server(config)
        server.run()
        if not server.started:
            raise UsageError(f"port {port} of {host} cannot be used")


def _token() -> str | None:
    """Return the token from the environment, or None.  With it, pages stay open across restarts of the server."""
    token = os.environ.get(TOKEN)
    if token and not re.fullmatch(r"[A-Za-z0-9_-]{20,200}", token):
        raise ConfigError(
            f"{TOKEN}: expected 20 to 200 letters, digits, - and _ that cannot be guessed, got something else"
        )
    return token or None


def inspect(
    store: options.StoreOption,
    agents: Annotated[str | None, typer.Option(metavar="MODULE", help=_AGENTS)] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on this machine; 0 for any free port.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show runs without changing anything.")] = False,
) -> None:
    """Show the runs in a store in a browser, live. You can also answer their questions there."""
    with Screen() as screen, options.open_store(store, read_only=read_only) as runs:
        found, prompts = ([], []) if agents is None else option("--agents", loading.load_runnables, agents)
        with needing("inspect"):
            from fsm_agent.web.inspector import Inspector
            from fsm_agent.web.inspector_server import InspectorServer
        file = Path(os.path.expanduser(store))
        inspector = Inspector(
            runs,
            name=options.shown_store(store),
            file=file if "://" not in store and file.exists() else None,
            agents=found,
            prompts=prompts,
            is_read_only=read_only,
            user=lambda _: options.user_or(None),
        )
        server = InspectorServer(inspector, port)
        screen.line(server.url)
        screen.tell("Ctrl-C ends it; the address lets anyone answer questions" if not read_only else "Ctrl-C ends it")
        if not no_browser:
            # With a browser in the terminal, `open` returns only when the browser is closed, and it needs the server
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        with suppress(KeyboardInterrupt):
            server.run()


@mcp.callback()
def _mcp() -> None:
    """Serve functions, agents and flows as tools over MCP."""


@mcp.command("serve", cls=Command)
def serve_tools(
    tools: Annotated[str, typer.Argument(metavar="MODULE:NAME", help=_TOOLS)],
    name: Annotated[str | None, typer.Option(help="The name of the server; by default, the module's name.")] = None,
    store: options.OptionalStore = None,
    deps: options.Deps = None,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP on this machine instead of stdio.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port for HTTP; 0 for any free port.")] = 8000,
) -> None:
    """Serve functions, agents and flows as tools, over stdio or HTTP, until the client leaves or Ctrl-C is pressed.

    Without a store, waiting calls are lost when the server ends.
    """
    with options.open_if_named(store) as runs:
        with redirect_stdout(sys.stderr):  # what modules print is not part of the protocol
            server = _tool_server(option("MODULE:NAME", loading.load_object, tools), tools, name, runs, deps)
        if http:
            server.run_http(port=port, ready=lambda url: typer.echo(f"{server.name}: {url}", err=True))
        else:
            server.run_stdio()


def _tool_server(found: Any, named: str, name: str | None, runs: Any, deps: str | None) -> Any:
    if isinstance(found, ToolServer):
        if name is not None or runs is not None or deps is not None:
            what = f"expected functions, agents or flows, got the server {named}, which has its own"
            raise typer.BadParameter(what, param_hint="--name, --store, --deps")
        return found
    functions = found if isinstance(found, list | tuple) else [found]
    name = name or named.partition(":")[0].rpartition(".")[2]
    key = os.environ.get(options.KEY_VARIABLE) or None
    given = loading.load_deps(deps, [serve_mcp(name, functions, deps=LATER).agent])  # so that their errors name --deps
    return serve_mcp(name, functions, store=runs, signing_key=key, deps=given)
