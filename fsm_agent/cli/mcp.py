"""The command ``fsm-agent mcp serve``."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext, redirect_stdout
from typing import Annotated, Any

import typer

from fsm_agent.cli.models import Debug
from fsm_agent.cli.options import load_object
from fsm_agent.cli.reporting import option, reporting
from fsm_agent.cli.runs.reading import KEY_VARIABLE, opened
from fsm_agent.mcp.server import ToolServer, serve

app = typer.Typer(no_args_is_help=True, help="Functions, agents and flows as tools of an MCP server.")


@app.callback()
def mcp() -> None:
    """Functions, agents and flows as tools of an MCP server."""


@app.command("serve")
def serve_tools(
    tools: Annotated[
        str,
        typer.Argument(metavar="MODULE:NAME", help="A function, an agent, a flow, a list of these, or a ToolServer."),
    ],
    name: Annotated[str | None, typer.Option(help="The name of the server; by default that of the module.")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="The file, or its address, to keep calls in: needed by what needs approval or must not run twice.",
        ),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP, on this machine; else over stdio.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of HTTP; 0: any that is free.")] = 8000,
    debug: Debug = False,
) -> None:
    """Serve functions, agents and flows as tools, over stdio or HTTP, until the client goes or Ctrl-C."""
    with reporting(debug):
        kept = nullcontext() if store is None else opened(store, must_exist=False)
        with kept as runs:
            with redirect_stdout(sys.stderr):  # what modules print is not the protocol
                server = _server(option("MODULE:NAME", load_object, tools), tools, name, runs)
            if http:
                server.run_http(port=port, ready=lambda url: typer.echo(f"{server.name}: {url}", err=True))
            else:
                server.run_stdio()


def _server(found: Any, named: str, name: str | None, runs: Any) -> ToolServer:
    if isinstance(found, ToolServer):
        if name is not None or runs is not None:
            raise typer.BadParameter(
                f"expected functions, agents or flows, got the server {named}, which has its own",
                param_hint="--name, --store",
            )
        return found
    functions = found if isinstance(found, list | tuple) else [found]
    name = name or named.partition(":")[0].rpartition(".")[2]
    return serve(name, functions, store=runs, signing_key=os.environ.get(KEY_VARIABLE) or None)
