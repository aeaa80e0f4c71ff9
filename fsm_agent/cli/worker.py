"""The commands ``fsm-agent worker`` and ``submit``, which use a store as a queue.

The first SIGTERM or SIGINT stops the worker at its next step, and the second ends the process.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Annotated, Any

import typer

from fsm_agent._internal.text import guess
from fsm_agent.agents.runnable import Runnable
from fsm_agent.cli import loading, options
from fsm_agent.cli.errors import option
from fsm_agent.cli.flows import data_of
from fsm_agent.cli.options import Many, open_store
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.flows.flow import Flow
from fsm_agent.store.claiming import OnChange
from fsm_agent.workers import Engine, engine_of
from fsm_agent.workers.health import HealthServer
from fsm_agent.workers.worker import PATIENCE_S, Worker

DRAIN_S = 25.0  # less than the 30 s after which Kubernetes kills a process that it asked to stop


def worker(
    store: options.StoreOption,
    agents: options.AgentsModule,
    deps: options.Deps = None,
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", help="Runs at once; by default, 1.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, metavar="N", help="Runs at once, in one event loop.")] = None,
    patience: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="How long to hold a waiting run.")
    ] = PATIENCE_S,
    once: Annotated[bool, typer.Option("--once", help="Exit when nothing is due.")] = False,
    engine: Annotated[
        str | None, typer.Option(metavar="ENGINE", help="The engine that schedules runs: dbos or temporal.")
    ] = None,
    create: options.Create = False,
    only_known: Annotated[bool, typer.Option("--only-known", help="Ignore runs that began with other code.")] = False,
    keep: Annotated[int | None, typer.Option(min=0, metavar="N", help="How many ended runs to keep.")] = None,
    max_age: Annotated[float | None, options.span("How long to keep them, e.g. 30d.")] = None,
    drain_s: Annotated[
        float,
        typer.Option(min=0.0, metavar="SECONDS", help="How long to wait for running steps when stopping."),
    ] = DRAIN_S,
    on_change: Annotated[
        OnChange, typer.Option(metavar="HOW", help="What to do if a run's code has changed: report, rest or stop.")
    ] = "report",
    health_port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Serve /live, /ready, /health and /metrics.")
    ] = None,
    health_host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address for these pages.")] = "127.0.0.1",
) -> None:
    """Continue due runs in a store until stopped. Start one worker per processor."""
    if threads is not None and tasks is not None:
        raise typer.BadParameter("expected --threads or --tasks, got both; leave one out", param_hint="--tasks")
    kept = open_store(store, must_exist=not create, makes="--create")
    with Screen(log_format="%(asctime)s %(levelname)s %(message)s") as screen, kept as runs:
        found, prompts = option("--agents", loading.load_runnables, agents)
        crew = Worker(
            found,
            runs,
            deps=loading.load_deps(deps, found),
            prompts=prompts,
            patience_s=patience,
            drain_s=drain_s,
            on_change=on_change,
            only_known=only_known,
            keep=keep,
            max_age_s=max_age,
        )
        driving = None if engine is None else option("--engine", _engine, engine, crew, once or tasks is not None)
        names = ", ".join([one_line(agent.name) for agent in found])
        with _stop_by_signals(crew), _probed(crew, health_host, health_port, screen):
            screen.tell(f"worker {os.getpid()} for {names}" + ("" if once else "; Ctrl-C ends it at the next step"))
            if driving is not None:
                advanced = driving.run(threads=threads or 1)
            elif tasks is None:
                advanced = crew.run(threads=threads or 1, once=once)
            else:
                advanced = asyncio.run(crew.arun(tasks=tasks, once=once))
        # A run that is advanced twice counts twice, so "2 runs" would be ambiguous
        what = {0: "no run", 1: "1 run"}.get(advanced, f"runs {advanced} times")
        screen.tell(f"worker {os.getpid()} stops: it advanced {what}")


@contextmanager
def _probed(crew: Worker, host: str, port: int | None, screen: Screen) -> Iterator[None]:
    """If a port is given, answer health probes inside the ``with`` block."""
    if port is None:
        yield
        return
    try:
        server = HealthServer(crew, port, host)
    except OSError as error:
        raise ConfigError(f"port {port} of {host!r} cannot be used: {error.strerror}") from None
    with server:
        screen.tell(f"health: http://{host}:{server.port}/health")
        yield


def _engine(name: str, crew: Worker, is_own_claim: bool) -> Engine:
    if is_own_claim:
        raise UsageError(
            "expected an engine without --once and --tasks, which ask the store which run is due; leave them out"
        )
    return engine_of(name, crew)


@contextmanager
def _stop_by_signals(crew: Worker) -> Iterator[None]:
    """Make the first signal stop the worker at its next step, and the second one end the process."""

    def stop(number: int, frame: FrameType | None) -> None:
        if crew.is_stopping:
            os._exit(128 + number)
        crew.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def submit(
    store: options.StoreOption,
    agents: options.AgentsModule,
    task: Annotated[
        str | None, typer.Argument(help="The task, which follows piped input; for a flow, its data.")
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="The agent that does the task.")] = None,
    run_id: Annotated[
        str | None, typer.Option(metavar="RUN", help="The name of the run; an existing name refers to the same run.")
    ] = None,
    delay: Annotated[float | None, options.span("How long to wait before the run starts, such as 90s.")] = None,
    priority: Annotated[
        int, typer.Option(min=-100, max=100, metavar="N", help="Runs with higher priorities start first.")
    ] = 0,
    after: Annotated[Many, typer.Option(metavar="RUN", help="A run that must end first. Repeatable.")] = None,
    extra: Annotated[
        Many, typer.Option(metavar="NAME=VALUE", help="Your own data, stored with the run. Repeatable.")
    ] = None,
    by: Annotated[str, typer.Option(metavar="USER", help="The user who submits the task.")] = "",
    deps: options.Deps = None,
    create: options.Create = False,
) -> None:
    """Put a task into a store for a worker, and print the name of the run."""
    with Screen() as screen, open_store(store, must_exist=not create, makes="--create") as runs:
        chosen = _chosen(option("--agents", loading.load_runnables, agents)[0], agent, agents)
        is_flow = isinstance(chosen, Flow)
        runnable = replace(chosen, store=runs) if is_flow else chosen.changed(store=runs)
        task = option("task", lambda: options.written_task(task, is_needed=True))
        if not task:
            raise typer.BadParameter("expected a task, got none", param_hint="task")
        handle = runnable.runs.submit(
            data_of(runnable, task, "task") if is_flow else task,
            run_id=run_id,
            priority=priority,
            extra=option("--extra", options.pairs, extra or ()),
            by=by,
            deps=loading.load_deps(deps),
            delay_s=delay or 0.0,
            after=after or (),
        )
        screen.line(handle.run_id)
        again = f"fsm-agent worker {options.store_option(store)} --agents {agents}{options.deps_option(deps)}"
        screen.tell(f"a worker does it: {again}")


def _chosen(found: list[Runnable], name: str | None, named: str) -> Any:
    if name is None and len(found) == 1:
        return found[0]
    by_name = {runnable.name: runnable for runnable in found}
    if name in by_name:
        return by_name[name]
    there = ", ".join(map(one_line, by_name))
    if name is None:
        what = f"expected one agent, got several in {named}; pass --agent with one of {there}"
        raise typer.BadParameter(what, param_hint="--agent")
    raise UsageError(f"--agent: expected an agent of {named} ({there}), got {name!r}{guess(name, by_name)}")
