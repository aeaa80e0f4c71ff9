"""The command ``fsm-agent worker``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from types import FrameType
from typing import Annotated, Any

import typer

from fsm_agent._internal.plain_text import plain
from fsm_agent.cli.models import Debug, Deps
from fsm_agent.cli.options import load_deps, load_runnables
from fsm_agent.cli.reporting import option, reporting
from fsm_agent.cli.runs.commands import AgentsModule
from fsm_agent.cli.runs.operating import seconds_of
from fsm_agent.cli.runs.reading import StorePath, opened
from fsm_agent.cli.terminal import Screen, one_line
from fsm_agent.errors import ConfigError, UsageError
from fsm_agent.runtime.log import traceback_text
from fsm_agent.workers import Engine, engine_of
from fsm_agent.workers.health import HealthServer
from fsm_agent.workers.worker import PATIENCE_S, Worker

DRAIN_S = 25.0  # less than the 30 s after which Kubernetes kills what it has asked to end


class Change(StrEnum):
    """What happens to a run if its code has changed."""

    REPORT = "report"
    REST = "rest"
    STOP = "stop"


def worker(
    store: StorePath,
    agents: AgentsModule,
    deps: Deps = None,
    threads: Annotated[int | None, typer.Option(min=1, help="How many runs to drive at a time; by default 1.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="The same, as tasks of one event loop.")] = None,
    patience: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="A run that waits longer rests in the store.")
    ] = PATIENCE_S,
    once: Annotated[bool, typer.Option("--once", help="Exit when nothing is due; otherwise Ctrl-C ends it.")] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="[dbos|temporal]",
            help="What decides which run is due; the store's address names it.",
        ),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Make the store if it does not exist.")] = False,
    only_known: Annotated[
        bool, typer.Option("--only-known", help="Leave alone the runs that began under other code.")
    ] = False,
    keep: Annotated[int | None, typer.Option(min=0, help="How many ended runs to keep, each hour.")] = None,
    max_age: Annotated[
        str | None, typer.Option(metavar="SPAN", help="How long to keep them: 90s, 15m, 12h, 30d or 8w.")
    ] = None,
    drain_s: Annotated[
        float,
        typer.Option(min=0.0, metavar="SECONDS", help="How long a stop waits for steps to end."),
    ] = DRAIN_S,
    on_change: Annotated[Change, typer.Option(help="If its code has changed: continue, ask, or end.")] = Change.REPORT,
    health_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve /live, /ready, /health and /metrics here."),
    ] = None,
    health_host: Annotated[str, typer.Option(metavar="ADDRESS", help="Its address.")] = "127.0.0.1",
    debug: Debug = False,
) -> None:
    """Advance the runs in a store that are due, until it is stopped; start one for each processor."""
    if threads is not None and tasks is not None:
        raise typer.BadParameter("expected --threads or --tasks, got both; leave one out", param_hint="--tasks")
    kept = opened(store, must_exist=not create, makes="--create")
    with reporting(debug), _log_plainly(), Screen() as screen, redirect_stdout(sys.stderr), kept as runs:
        found, prompts = option("--agents", load_runnables, agents)
        crew = Worker(
            found,
            runs,
            deps=option("--deps", load_deps, deps, found),
            prompts=prompts,
            patience_s=patience,
            drain_s=drain_s,
            on_change=on_change.value,
            only_known=only_known,
            keep=keep,
            max_age_s=None if max_age is None else seconds_of(max_age, "--max-age"),
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
        screen.tell(f"worker {os.getpid()} stops: it advanced runs {advanced} time{'' if advanced == 1 else 's'}")


@contextmanager
def _probed(crew: Worker, host: str, port: int | None, screen: Screen) -> Iterator[None]:
    """Answer probes, if a port is given."""
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
    """Make the first signal stop the worker at its next step, and the second end the OS process."""

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


class _Plain(logging.Formatter):
    """A formatter whose lines hold no control characters: errors quote models and functions."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Return a traceback from the first frame of the user's code."""
        return traceback_text(ei[1])


@contextmanager
def _log_plainly() -> Iterator[None]:
    """Write the library's warnings to stderr, with their tracebacks."""
    log, handler = logging.getLogger("fsm_agent"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
