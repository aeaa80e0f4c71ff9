"""The commands ``fsm-agent agents …``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import to_jsonable_python
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from fsm_agent._internal.plain_text import plain
from fsm_agent.agents.agent import Agent
from fsm_agent.agents.agent_base import AgentBase
from fsm_agent.agents.config import AgentConfig, imported
from fsm_agent.agents.config_files import SUFFIXES
from fsm_agent.agents.registry import AGENTS, build_agent
from fsm_agent.cli.json_lines import LineWriter
from fsm_agent.cli.models import GUESSES, Approve, Debug, Json, JsonLines, Many, guesses
from fsm_agent.cli.options import modules_here, pairs
from fsm_agent.cli.render import Approver, json_text, tell_waits
from fsm_agent.cli.reporting import FAILED, SUSPENDED, error_text, in_options, option, reporting
from fsm_agent.cli.terminal import TABLE_WIDTH, Screen, error_line
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.errors import CallSuspended, UsageError
from fsm_agent.messages.events import Event, Where

_LEAST = 40  # columns next to the names
app = typer.Typer(no_args_is_help=True, help="Agents of classes and configurations: list, check and run them.")

Module = Annotated[
    Many,
    typer.Option("--module", help="A module to import, for the agents in it. Repeatable."),
]
ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="A configuration in TOML, YAML or JSON.")]


@app.command("list")
def list_agents(
    sources: Annotated[Many, typer.Argument(metavar="[MODULE|FILE]...", help="Modules, or configurations.")] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the classes of agents that modules and configurations have."""
    with reporting(debug), Screen() as screen, redirect_stdout(sys.stderr):
        for source in sources or ():
            if source.endswith(SUFFIXES):
                with _build_agent(Path(source), (), {}):
                    pass
            else:
                _import([source])
        ours = __name__.partition(".")[0]
        users = {kind: cls for kind, cls in sorted(AGENTS.items()) if cls.__module__.partition(".")[0] != ours}
        found = {kind: _described(cls) for kind, cls in users.items()}
        if as_json:
            screen.line(json_text(found))
        elif found and screen.columns is not None and screen.columns < max(TABLE_WIDTH, _names_width(found) + _LEAST):
            for kind, about in found.items():
                screen.prose(f"{kind}: {about['class']}", "bold", hang="  ")
                for key in ("description", "capabilities", "agent_group"):
                    if value := about[key]:
                        screen.prose(value if isinstance(value, str) else ", ".join(value), indent="  ", hang="  ")
        elif found:
            screen.show(_table(found), is_whole=True)
        else:
            screen.tell("no agents are registered; name a module, as in fsm-agent agents list my_agents")


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Configurations in TOML, YAML or JSON.")],
    module: Module = None,
    available: Annotated[bool, typer.Option("--available", help="Treat a missing key or address as an error.")] = False,
    debug: Debug = False,
) -> None:
    """Check configurations: keys, values, and everything that they name; no model is asked."""
    with reporting(debug), Screen() as screen, redirect_stdout(sys.stderr):
        problems = [error for file in files if (error := _check_config(file, module, available, screen))]
        for error in problems:
            error_line(in_options(str(error)))
        if problems:
            raise typer.Exit(FAILED)


def _check_config(file: Path, modules: Many, must_be_available: bool, screen: Screen) -> UsageError | None:
    """Return the error in a configuration, or None after reporting that it is valid."""
    try:
        with _build_agent(file, modules, {}) as agent:
            try:
                agent.check_available()
            except UsageError as error:
                if must_be_available:
                    raise
                screen.tell(f"{file}: {error}")
            names = ", ".join([f"{name} ({sub.client.name})" for name, sub in agent.agents.items()])
            screen.prose(f"{file}: {agent.name} is valid, with {names}")
    except UsageError as error:
        return error
    return None


@app.command()
def run(
    file: ConfigFile,
    task: Annotated[str, typer.Argument(help="The task.")],
    module: Module = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Ask this model, as provider:model."),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="A preset: creative, balanced or deterministic.")] = None,
    var: Annotated[Many, typer.Option(help="A further variable of the prompt, as name=value. Repeatable.")] = None,
    approve: Approve = False,
    as_json: JsonLines = False,
    debug: Debug = False,
) -> None:
    """Have the agent of a configuration do a task."""
    lines = LineWriter(as_json)
    with reporting(debug, lines), Screen() as screen, redirect_stdout(sys.stderr):
        overrides = {name: value for name, value in {"model": model, "profile": profile}.items() if value is not None}
        values = option("--var", pairs, var or ())
        with _build_agent(file, module, overrides) as agent:
            watched = _watch_agent(agent, _Steps(screen, lines), screen, approve)
            try:
                output = watched(watched.prompt(task=task, **values) if values else task)
            except CallSuspended as waiting:
                answers = tell_waits(waiting, screen, _command_for(waiting, watched), _NOT_KEPT)
                told = {"waits_for": [effect.key for effect in waiting.call.effects], "answer_with": answers}
                lines.end("suspended", error=error_text(waiting), exit_status=SUSPENDED, **told)
                raise
        screen.pause()
        if lines:
            lines.end("result", output=output)
        else:
            plain_output = to_jsonable_python(output, serialize_unknown=True)
            screen.line(plain_output if isinstance(output, str) else json_text(plain_output))


@app.command()
def schema(debug: Debug = False) -> None:
    """Print the JSON schema of configurations, for editors."""
    with reporting(debug), Screen() as screen:
        screen.line(json_text(AgentConfig.model_json_schema()))


def _watch_agent(agent: AgentBase[Any], steps: _Steps, screen: Screen, approve: bool) -> AgentBase[Any]:
    """Return the agent with a hook, and an approver where one is missing; sub-agents are replaced in it."""
    for name, sub in agent.agents.items():
        options = {"hooks": [*sub.hooks, steps], **_approver(sub, screen, approve)}
        if sub is agent:
            return agent.changed(**options)
        agent.agents[name] = replace(sub, **options)
    return agent


def _approver(agent: Agent[Any, Any], screen: Screen, approve: bool) -> dict[str, Any]:
    """Return the person at the terminal as approver, if the model guesses and the agent has no approver."""
    if approve:
        return {"approve": lambda _: True}
    if not (isinstance(agent.client, HttpClient) and guesses(agent.client.name, None)) or not agent.functions:
        return {}
    screen.tell(GUESSES)
    return {} if agent.approve is not None else {"approve": Approver(screen)}


def _command_for(waiting: CallSuspended, agent: AgentBase[Any]) -> str:
    """Return the command that answers a call of the agent when a key and the answer follow; "" if it is not kept."""
    journal, store = waiting.call.journal, agent.store
    if journal is None or not journal.is_stored or not isinstance(store, str | PathLike):
        return ""
    return f"fsm-agent runs answer {shlex.quote(journal.run)} --store {shlex.quote(str(store))}"


_NOT_KEPT = "the call was not kept; pass --approve, or add a store to the configuration to answer later"


class _Steps:
    """A hook that shows the steps of calls."""

    def __init__(self, screen: Screen, lines: LineWriter) -> None:
        self._screen = screen
        self._lines = lines

    def of_call(self, where: Where) -> _StepsOfCall:
        return _StepsOfCall(self, where)

    def show(self, event: Event, where: Where) -> None:
        self._screen.pause()
        self._lines.take(event, where)
        self._screen.take(event)


class _StepsOfCall:
    """The hook of one call."""

    def __init__(self, steps: _Steps, where: Where) -> None:
        self._steps = steps
        self._where = where

    def on_event(self, event: Event) -> None:
        self._steps.show(event, self._where)


def _import(modules: Many) -> None:
    with modules_here():
        for module in modules or ():
            imported(module, module)


@contextmanager
def _build_agent(file: Path, modules: Any, overrides: dict[str, Any]) -> Iterator[AgentBase[Any]]:
    """Yield the agent of a configuration; modules are found in its folder, too."""
    with modules_here(file.parent.absolute()):
        for module in modules or ():
            imported(module, module)
        agent = build_agent(file, **overrides)
    with agent:
        yield agent


def _described(cls: type[AgentBase[Any]]) -> dict[str, Any]:
    return {
        "class": f"{cls.__module__}:{cls.__qualname__}",
        "description": cls.description,
        "capabilities": list(cls.capabilities),
        "agent_group": list(cls.agent_group),
    }


def _names_width(found: dict[str, dict[str, Any]]) -> int:
    """Return the columns of the names of agents and classes, which are not broken."""
    longest = (max(map(cell_len, names)) for names in ([*found], [about["class"] for about in found.values()]))
    return sum(longest)


def _table(found: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("agent_type", "class", "description", "capabilities", "sub-agents"):
        table.add_column(name, overflow="fold", no_wrap=name in ("agent_type", "class"))
    for kind, about in found.items():
        cells = (
            kind,
            about["class"],
            about["description"],
            *map(", ".join, (about["capabilities"], about["agent_group"])),
        )
        table.add_row(*[Text(plain(cell)) for cell in cells])
    return table
