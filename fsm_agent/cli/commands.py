"""The commands of ``fsm-agent``, each with its line of help and the module that it is loaded from when it is used."""

from __future__ import annotations

import shutil
from functools import cache
from importlib import import_module
from io import StringIO
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from fsm_agent import __version__
from fsm_agent.cli import NARROW

_UsageError: Any = typer.BadParameter.__base__  # for which Typer has no public name
_Context: Any = TyperCommand.context_class
_Help: Any = _Context.formatter_class


class CommandLocation(NamedTuple):
    """The module and the name of a command."""

    module: str  # in this package
    name: str  # of the function, or of the app whose commands follow the command's name
    help: str


COMMANDS = {
    "demo": CommandLocation(
        "demo.command",
        "demo",
        "Show a real model at work: functions, types, a parse error, log probabilities, approval.",
    ),
    "ask": CommandLocation("ask", "ask", "Ask a model, and let it call functions."),
    "chat": CommandLocation("chat", "chat", "Talk with a model: each line is a turn. /help shows the commands."),
    "diagram": CommandLocation("drawings", "diagram", "Draw the states of an agent call."),
    "worker": CommandLocation(
        "runs.worker",
        "worker",
        "Advance the runs in a store that are due, until it is stopped; start one for each processor.",
    ),
    "submit": CommandLocation(
        "submit", "submit", "Put a task into a store, for a worker to do; print the name of the run."
    ),
    "serve": CommandLocation(
        "serve",
        "serve",
        "Serve a chat page for an agent or a flow on this machine: conversations, approvals, forms, pictures.",
    ),
    "runs": CommandLocation("runs.commands", "app", "Runs in a store: see them, answer them, continue them."),
    "inspect": CommandLocation(
        "inspecting", "inspect", "Show the runs in a store in a browser, live, and answer their questions there."
    ),
    "prompts": CommandLocation("prompts", "app", "Prompts in files: list them, check all of them, show one."),
    "agents": CommandLocation(
        "agents.commands", "app", "Agents of classes and configurations: list, check and run them."
    ),
    "models": CommandLocation("local_models", "app", "Models that run on this machine: list and find them."),
    "providers": CommandLocation("providers", "app", "Providers of models: their keys, wires and addresses."),
    "mcp": CommandLocation("mcp", "app", "Functions, agents and flows as tools of an MCP server."),
    "flows": CommandLocation("flows", "app", "Flows: list, check, draw and run them, answer their questions."),
}


class _NarrowHelp(_Help):  # type: ignore[misc]
    """Help whose options and commands stand above what they do: there is no room for both in one line."""

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        """Write each term, and its explanation indented below it."""
        super().write_dl(rows, col_max=2, col_spacing=col_spacing)


class _NarrowContext(_Context):  # type: ignore[misc]
    """The context of a command on a narrow terminal."""

    formatter_class = _NarrowHelp


class LateCommands(TyperGroup):
    """The commands of the table: until one is used, only its name and its line of help are here."""

    def __init__(self, **attributes: Any) -> None:
        stand_ins = {
            name: TyperCommand(name, help=location.help, short_help=location.help)
            for name, location in COMMANDS.items()
        }
        super().__init__(**{**attributes, "commands": stand_ins})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the given name, its command, and the words after it."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, stand_in and load_command(str(stand_in.name)), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; without boxes, lines of errors are broken between words here, since Typer does not."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            if _columns >= NARROW:
                raise
            text = StringIO()
            error.show(text)
            folded = import_module(f"{__package__}.terminal").folded
            typer.echo("\n".join([folded(line, _columns) for line in text.getvalue().splitlines()]), err=True)
            raise typer.Exit(error.exit_code) from None


@cache
def load_command(name: str) -> Any:
    """Return a command of the table with its options, or with the commands in it."""
    location = COMMANDS[name]
    found = getattr(import_module(f"{__package__}.{location.module}"), location.name)
    whole = typer.Typer()
    if isinstance(found, typer.Typer):
        whole.add_typer(found, name=name)
    else:
        whole.command(name)(found)
    command = typer.main.get_group(whole).commands[name]
    if _columns < NARROW:
        for inner in (command, *getattr(command, "commands", {}).values()):
            inner.context_class = _NarrowContext
            inner.short_help = inner.short_help or inner.help  # all of it, where Typer would cut it off
    return command


_LEAST = 12  # columns that help is broken at; it has to be indented in them
_columns = max(_LEAST, shutil.get_terminal_size().columns)
app = typer.Typer(
    cls=LateCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"terminal_width": _columns - 1} if _columns < NARROW else None,
)
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
