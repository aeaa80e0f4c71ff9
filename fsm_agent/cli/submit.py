"""The command ``fsm-agent submit``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fsm_agent._internal.hints import guess
from fsm_agent.agents.runnable import Runnable
from fsm_agent.cli.flows import wrong_data
from fsm_agent.cli.models import Debug, Deps, Many
from fsm_agent.cli.options import load_deps, load_runnables, pairs, store_option, written_task
from fsm_agent.cli.reporting import option, reporting
from fsm_agent.cli.runs.commands import AgentsModule
from fsm_agent.cli.runs.operating import seconds_of
from fsm_agent.cli.runs.reading import StorePath, opened
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.errors import UsageError
from fsm_agent.flows.flow import Flow


def submit(
    store: StorePath,
    agents: AgentsModule,
    task: Annotated[
        str | None, typer.Argument(help="The task, after piped input; for a flow, its data as JSON.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Which agent or flow of the module does it, if it has several.")
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(help="The name of the run; the same name and task is the same run. By default a new one."),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Start it this much later: 90s, 15m, 12h, 30d or 8w.")
    ] = None,
    priority: Annotated[int, typer.Option(min=-100, max=100, help="Workers take a higher one first.")] = 0,
    after: Annotated[Many, typer.Option(metavar="RUN", help="A run that must end first. Repeatable.")] = None,
    extra: Annotated[Many, typer.Option(help="Data of yours in the run, as name=value. Repeatable.")] = None,
    by: Annotated[str, typer.Option(metavar="USER", help="Who asks: the worker's deps may depend on it.")] = "",
    deps: Deps = None,
    create: Annotated[bool, typer.Option("--create", help="Make the store if it does not exist.")] = False,
    debug: Debug = False,
) -> None:
    """Put a task into a store, for a worker to do; print the name of the run."""
    with (
        reporting(debug),
        Screen() as screen,
        redirect_stdout(sys.stderr),
        opened(store, must_exist=not create, makes="--create") as runs,
    ):
        found, _ = option("--agents", load_runnables, agents)
        chosen = _chosen(found, agent, agents)
        runnable = replace(chosen, store=runs) if isinstance(chosen, Flow) else chosen.changed(store=runs)
        task = option("task", lambda: written_task(task, is_needed=True))
        if not task:
            raise typer.BadParameter("expected a task, got none", param_hint="task")
        options: dict[str, Any] = {
            "run_id": run_id,
            "priority": priority,
            "extra": option("--extra", pairs, extra or ()),
            "by": by,
            "deps": option("--deps", load_deps, deps),
        }
        if delay is not None:
            options["delay_s"] = seconds_of(delay, "--delay")
        if after:
            options["after"] = list(after)
        handle = runnable.runs.submit(_task(runnable, task), **options)
        screen.line(handle.run_id)
        has_deps = "" if deps is None else f" --deps {deps}"
        screen.tell(f"a worker does it: fsm-agent worker {store_option(store)} --agents {agents}{has_deps}")


def _chosen(found: list[Runnable], name: str | None, named: str) -> Any:
    if name is None and len(found) == 1:
        return found[0]
    names = [runnable.name for runnable in found]
    for runnable in found:
        if runnable.name == name:
            return runnable
    there = ", ".join(map(one_line, names))
    if name is None:
        raise typer.BadParameter(
            f"expected one agent, got several in {named}; pass --agent with one of {there}", param_hint="--agent"
        )
    raise UsageError(f"--agent: expected an agent of {named} ({there}), got {name!r}{guess(name, names)}")


def _task(runnable: Any, task: str) -> Any:
    """Return what is submitted: of a flow, its data."""
    if not isinstance(runnable, Flow):
        return task
    try:
        return runnable.adapter.validate_json(task)
    except ValidationError as error:
        raise typer.BadParameter(wrong_data(runnable, error), param_hint="task") from None
