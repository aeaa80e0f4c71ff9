"""The command ``fsm-agent inspect``."""

from __future__ import annotations

import sys
import threading
import webbrowser
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from fsm_agent.cli.models import Debug
from fsm_agent.cli.options import load_runnables, shown_store
from fsm_agent.cli.reporting import option, reporting
from fsm_agent.cli.runs.reading import opened
from fsm_agent.cli.terminal import Screen
from fsm_agent.errors import ConfigError

NEEDS = dict.fromkeys(("starlette", "uvicorn"), "'fsm-agent[inspect]'")


def inspect(
    store: Annotated[
        str,
        typer.Argument(
            envvar="FSM_AGENT_STORE",
            help="The file with the runs, postgresql://host/database, or module:name of a store.",
        ),
    ],
    agents: Annotated[
        str | None,
        typer.Option(
            "--agents",
            help="The module with the agents or flows: dialogs and data are then known at each step.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on this machine; 0: any.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show runs and change nothing.")] = False,
    debug: Debug = False,
) -> None:
    """Show the runs in a store in a browser, live, and answer their questions there."""
    kept = opened(store, read_only=read_only)
    with reporting(debug), Screen() as screen, redirect_stdout(sys.stderr), kept as runs:
        found, prompts = ([], []) if agents is None else option("--agents", load_runnables, agents)
        file = Path(store)
        server = _server_class()(
            runs,
            port=port,
            name=shown_store(store),
            file=file if "://" not in store and file.exists() else None,
            agents=found,
            prompts=prompts,
            is_read_only=read_only,
        )
        screen.line(server.url)
        screen.tell("Ctrl-C ends it; the address lets anyone answer questions" if not read_only else "Ctrl-C ends it")
        if not no_browser:
            # A browser in a terminal ends before `open` returns: it would wait for pages that are not served yet.
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        with suppress(KeyboardInterrupt):
            server.run()


def _server_class() -> Any:
    """Return the class of the server.

    Raises:
        ConfigError: Its libraries are missing.
    """
    try:
        return import_module("fsm_agent.web.server").InspectorServer
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDS:
            raise
        raise ConfigError(f"the inspector needs {missing}; run pip install {NEEDS[missing]}") from None
