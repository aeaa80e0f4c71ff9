"""The commands ``fsm-agent agents …``: check agent configurations and run them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_core import to_jsonable_python

from fsm_agent.agents.agent import Agent
from fsm_agent.agents.agent_base import AgentBase, build_agent
from fsm_agent.agents.config import AgentConfig
from fsm_agent.call.result import CallSuspended
from fsm_agent.cli.options import (
    GUESSES,
    Approve,
    Debug,
    Deps,
    JsonLines,
    Many,
    check_client,
    guesses,
    load_deps,
    modules_here,
    pairs,
)
from fsm_agent.cli.output import (
    FAILED,
    SUSPENDED,
    Approver,
    LineWriter,
    error_text,
    in_options,
    json_text,
    option,
    reporting,
    tell_waits,
)
from fsm_agent.cli.terminal import Screen, error_line
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Event, Where
from fsm_agent.named_objects import imported

NOT_KEPT = "the call was not kept; pass --approve, or add a store to the configuration to answer later"
app = typer.Typer(no_args_is_help=True, help="Agents in configuration files: check them, run them, print the schema.")

Module = Annotated[Many, typer.Option("--module", help="A module to import, for the agents in it. Repeatable.")]
ConfigFile = Annotated[Path, typer.Argument(metavar="FILE", help="A configuration in TOML, YAML or JSON.")]


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Configurations in TOML, YAML or JSON.")],
    module: Module = None,
    available: Annotated[bool, typer.Option("--available", help="Treat a missing key or address as an error.")] = False,
    debug: Debug = False,
) -> None:
    """Check configurations: keys, values and everything they name. No model is asked."""
    with reporting(debug), Screen() as screen:
        problems = [error for file in files if (error := _check_config(file, module, available, screen))]
        for error in problems:
            error_line(in_options(str(error)))
        if problems:
            raise typer.Exit(FAILED)


def _check_config(file: Path, modules: Many, must_be_available: bool, screen: Screen) -> UsageError | None:
    """Return the error in a configuration, or report that it is valid and return None."""
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
    var: Annotated[Many, typer.Option(help="Another variable of the prompt, as name=value. Repeatable.")] = None,
    deps: Deps = None,
    approve: Approve = False,
    as_json: JsonLines = False,
    debug: Debug = False,
) -> None:
    """Run the agent of a configuration on a task."""
    lines = LineWriter(as_json)
    with reporting(debug, lines), Screen() as screen:
        overrides = {name: value for name, value in {"model": model, "profile": profile}.items() if value is not None}
        values = option("--var", pairs, var or ())
        with _build_agent(file, module, overrides) as agent:
            for sub in agent.agents.values():
                check_client(sub.client)  # before a run is made
            given = load_deps(deps, [agent])
            watched = _watch_agent(agent, _Steps(screen, lines), screen, approve)
            try:
                output = watched(watched.prompt(task=task, **values) if values else task, deps=given)
            except CallSuspended as waiting:
                answers = tell_waits(waiting, screen, _command_for(waiting, watched), NOT_KEPT)
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
    """Add a hook to an agent and its sub-agents, and an approver where it is needed."""
    for name, sub in agent.agents.items():
        options = {"hooks": [*sub.hooks, steps], **_approver(sub, screen, approve)}
        if sub is agent:
            return agent.changed(**options)
        agent.agents[name] = replace(sub, **options)
    return agent


def _approver(agent: Agent[Any, Any], screen: Screen, approve: bool) -> dict[str, Any]:
    """Make the person at the terminal the approver, if the model is not trusted and the agent has no approver."""
    if approve:
        return {"approve": lambda _: True}
    if not (isinstance(agent.client, HttpClient) and guesses(agent.client.name, None)) or not agent.functions:
        return {}
    screen.tell(GUESSES)
    return {} if agent.approve is not None else {"approve": Approver(screen)}


def _command_for(waiting: CallSuspended, agent: AgentBase[Any]) -> str:
    """Return the command that answers a call, up to the key and the answer, or "" if the call was not stored."""
    journal, store = waiting.call.journal, agent.store
    if journal is None or not journal.is_stored or not isinstance(store, str | PathLike):
        return ""
    return f"fsm-agent runs answer {shlex.quote(journal.run)} --store {shlex.quote(str(store))}"


class _Steps:
    """A hook that shows the steps of calls."""

    def __init__(self, screen: Screen, lines: LineWriter, where: Where | None = None) -> None:
        self._screen, self._lines, self._where = screen, lines, where

    def of_call(self, where: Where) -> _Steps:
        return _Steps(self._screen, self._lines, where)

    def on_event(self, event: Event) -> None:
        self._screen.pause()
        self._lines.take(event, self._where)
        self._screen.take(event)


@contextmanager
def _build_agent(file: Path, modules: Any, overrides: dict[str, Any]) -> Iterator[AgentBase[Any]]:
    """Yield the agent of a configuration.  Modules in the configuration's folder are also found."""
    with modules_here(file.parent.absolute()):
        for module in modules or ():
            imported(module, module)
        agent = build_agent(file, **overrides)
    with agent:
        yield agent
