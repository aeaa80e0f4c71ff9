"""The table of commands.  Each command's module is loaded when the command is used."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from fsm_agent import __version__


class CommandLocation(NamedTuple):
    """Where a command is defined."""

    module: str  # in this package
    name: str  # of the function, or of the app with subcommands
    help: str


COMMANDS = {
    "demo": CommandLocation("demo", "demo", "Show a real model at work: functions, types, an approval."),
    "ask": CommandLocation("ask", "ask", "Ask a model, and let it call functions."),
    "chat": CommandLocation("chat", "chat", "Talk with a model: each line is a turn. /help shows the commands."),
    "diagram": CommandLocation("diagram", "diagram", "Draw the states of an agent call."),
    "runs": CommandLocation("runs", "app", "List, show, answer and continue the runs in a store."),
    "worker": CommandLocation("worker", "worker", "Continue due runs in a store until stopped."),
    "submit": CommandLocation("worker", "submit", "Put a task into a store for a worker."),
    "serve": CommandLocation("servers", "serve", "Serve a chat page for an agent or a flow on this machine."),
    "inspect": CommandLocation("servers", "inspect", "Show the runs in a store in a browser, live."),
    "flows": CommandLocation("flows", "app", "Check, draw and run flows, and answer their questions."),
    "agents": CommandLocation("agents", "app", "Check and run agents in configuration files, and print their schema."),
    "prompts": CommandLocation("prompts", "app", "Check all prompts in files, or show one."),
    "models": CommandLocation("models", "models", "List the models on this machine, and recommended models."),
    "providers": CommandLocation("models", "providers", "List the providers of models: keys, wires and addresses."),
    "mcp": CommandLocation("servers", "mcp", "Serve functions, agents and flows as tools over MCP."),
}


class LateCommands(TyperGroup):
    """Commands that are loaded when they are used.  Until then, each one has only a name and a line of help."""

    def __init__(self, **attributes: Any) -> None:
        stand_ins = {
            name: TyperCommand(name, help=location.help, short_help=location.help)
            for name, location in COMMANDS.items()
        }
        super().__init__(**{**attributes, "commands": stand_ins})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command that was given, the command itself, and the words that follow the name."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, stand_in and load_command(str(stand_in.name)), rest


@cache
def load_command(name: str) -> Any:
    """Import a command, with its options or subcommands."""
    location = COMMANDS[name]
    found = getattr(import_module(f"{__package__}.{location.module}"), location.name)
    whole = typer.Typer()
    if isinstance(found, typer.Typer):
        whole.add_typer(found, name=name)
    else:
        whole.command(name, cls=import_module(f"{__package__}.output").Command)(found)
    return typer.main.get_group(whole).commands[name]


app = typer.Typer(cls=LateCommands, no_args_is_help=True, pretty_exceptions_enable=False)
"""The command ``fsm-agent``, for Typer.

Examples:
    >>> from typer.testing import CliRunner
    >>> CliRunner().invoke(app, ["--help"]).exit_code
    0
"""


def _version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"fsm-agent {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")]


@app.callback()
def fsm_agent(version: Version = False) -> None:
    """One agent call is one explicit finite-state machine."""
