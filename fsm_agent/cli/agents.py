"""The commands ``fsm-agent agents …``, which check agent configurations and run agents."""

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
from fsm_agent.cli import loading, options
from fsm_agent.cli.errors import FAILED, in_options, option
from fsm_agent.cli.options import Many
from fsm_agent.cli.output import Advice, Command, tell_waits
from fsm_agent.cli.questions import Approver
from fsm_agent.cli.terminal import Screen, error_line, json_text
from fsm_agent.clients.http_client import HttpClient
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Event, Where
from fsm_agent.named_objects import imported

NOT_KEPT = "the call was not kept; pass --approve, or add a store to the configuration to answer later"
app = typer.Typer(no_args_is_help=True, help="Check and run agents in configuration files, and print their schema.")

Module = Annotated[Many, typer.Option("--module", help="A module that registers agents. Repeatable.")]


@app.command(cls=Command)
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Configurations in TOML, YAML or JSON.")],
    module: Module = None,
    available: Annotated[bool, typer.Option("--available", help="Treat a missing key or address as an error.")] = False,
) -> None:
    """Check the keys and values of configurations, and the objects that they name, without a model."""
    with Screen() as screen:
        problems = list[UsageError]()
        for file in files:
            try:
                _check_config(file, module, available, screen)
            except UsageError as error:
                problems.append(error)
        for problem in problems:
            error_line(in_options(str(problem)))
        if problems:
            raise typer.Exit(FAILED)


def _check_config(file: Path, modules: Many, must_be_available: bool, screen: Screen) -> None:
    with _build_agent(file, modules, {}) as agent:
        try:
            agent.check_available()
        except UsageError as error:
            if must_be_available:
                raise
            screen.tell(f"{file}: {error}")
        names = ", ".join([f"{name} ({sub.client.name})" for name, sub in agent.agents.items()])
        screen.prose(f"{file}: {agent.name} is valid, with {names}")


@app.command(cls=Command)
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A configuration in TOML, YAML or JSON.")],
    task: Annotated[str, typer.Argument(help="The task.")],
    module: Module = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Use this model, as provider:model.")] = None,
    profile: Annotated[str | None, typer.Option(help="A preset: creative, balanced or deterministic.")] = None,
    var: Annotated[Many, typer.Option(help="Another variable of the prompt, as name=value. Repeatable.")] = None,
    deps: options.Deps = None,
    approve: options.Approve = False,
    as_json: options.JsonLines = False,
) -> None:
    """Give a task to the agent of a configuration."""
    with Screen(as_json=as_json) as screen:
        overrides = {name: value for name, value in {"model": model, "profile": profile}.items() if value is not None}
        values = option("--var", options.pairs, var or ())
        with _build_agent(file, module, overrides) as agent:
            for sub in agent.agents.values():
                options.check_client(sub.client)  # before a run is made
            given = loading.load_deps(deps, [agent])
            watched = _watch_agent(agent, screen, approve)
            try:
                output = watched(watched.prompt(task=task, **values) if values else task, deps=given)
            except CallSuspended as waiting:
                tell_waits(waiting, screen, Advice(command=_command_for(waiting, watched), otherwise=NOT_KEPT))
                raise
        screen.end("result", output=output)
        if not as_json:
            plain_output = to_jsonable_python(output, serialize_unknown=True)
            screen.line(plain_output if isinstance(output, str) else json_text(plain_output))


@app.command(cls=Command)
def schema() -> None:
    """Print the JSON schema of configurations, for editors."""
    with Screen() as screen:
        screen.line(json_text(AgentConfig.model_json_schema()))


def _watch_agent(agent: AgentBase[Any], screen: Screen, approve: bool) -> AgentBase[Any]:
    """Add a hook to an agent and its sub-agents, and an approver where it is needed."""
    for name, sub in agent.agents.items():
        changes = {"hooks": [*sub.hooks, _Steps(screen)], **_approver(sub, screen, approve)}
        if sub is agent:
            return agent.changed(**changes)
        agent.agents[name] = replace(sub, **changes)
    return agent


def _approver(agent: Agent[Any, Any], screen: Screen, approve: bool) -> dict[str, Any]:
    """Let the person at the terminal approve functions if the model may guess wrongly and the agent has no approver."""
    if approve:
        return {"approve": lambda _: True}
    if not (isinstance(agent.client, HttpClient) and options.guesses(agent.client.name, None)) or not agent.functions:
        return {}
    screen.tell(options.GUESSES)
    return {} if agent.approve is not None else {"approve": Approver(screen)}


def _command_for(waiting: CallSuspended, agent: AgentBase[Any]) -> str:
    """Return the command that answers a call, up to the key and the answer, or "" if the call was not stored."""
    journal, store = waiting.call.journal, agent.store
    if journal is None or not journal.is_stored or not isinstance(store, str | PathLike):
        return ""
    return f"fsm-agent runs answer {shlex.quote(journal.run)} {options.store_option(str(store))}"


class _Steps:
    """A hook that shows calls' events on a screen."""

    def __init__(self, screen: Screen, where: Where | None = None) -> None:
        self._screen, self._where = screen, where

    def of_call(self, where: Where) -> _Steps:
        return _Steps(self._screen, where)

    def on_event(self, event: Event) -> None:
        self._screen.take(event, self._where)


@contextmanager
def _build_agent(file: Path, modules: Any, overrides: dict[str, Any]) -> Iterator[AgentBase[Any]]:
    """Yield the agent that a configuration describes.  Modules in the configuration's folder are also found."""
    with loading.modules_here(file.parent.absolute()):
        for module in modules or ():
            imported(module, module)
        agent = build_agent(file, **overrides)
    with agent:
        yield agent
