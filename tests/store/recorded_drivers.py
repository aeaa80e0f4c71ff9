"""Drivers of processes whose journals are written: each of the ways, heard and unheard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from support.kept_runs import team_header
from support.nested_process import Team

from fsm_agent.call import Chain, Journal, replay
from fsm_agent.runtime import Environment, adrive, arun, drive, run

Sink = Callable[[Any], Any]
Way = Callable[[Any, Environment, Any, Sink], None]  # of a process, and the recorder of its run


def by_run(process: Any, environment: Environment, recorder: Any, sink: Sink) -> None:
    run(process, environment.changed(threads=0), sink, recorder)


def by_threads(process: Any, environment: Environment, recorder: Any, sink: Sink) -> None:
    run(process, environment, sink, recorder)


def by_run_unheard(process: Any, environment: Environment, recorder: Any, sink: Sink) -> None:
    run(process, environment, None, recorder)


def by_drive(process: Any, environment: Environment, recorder: Any, sink: Sink) -> None:
    events = drive(process, environment, recorder=recorder)
    try:
        for event in events:
            sink(event)
    finally:
        events.close()


def by_arun(process: Any, environment: Environment, recorder: Any, sink: Sink) -> None:
    asyncio.run(arun(process, environment, sink, recorder))


def by_arun_unheard(process: Any, environment: Environment, recorder: Any, sink: Sink) -> None:
    asyncio.run(arun(process, environment, None, recorder))


def by_adrive(process: Any, environment: Environment, recorder: Any, sink: Sink) -> None:
    async def main() -> None:
        events = adrive(process, environment, recorder=recorder)
        try:
            async for event in events:
                sink(event)
        finally:
            await events.aclose()

    asyncio.run(main())


def journaled(team: Team) -> Team:
    """Begin the journal of a run."""
    team.journal = Journal(team.record, "r1", team_header())
    return team


def read_again(fresh: Any, one: Any) -> None:
    """Give a fresh process all that has come to one, by way of the lines of its journal."""
    header = team_header()
    lines = Chain(header).written(one.journal.since(0), 1)
    assert replay(fresh, lines, Chain(header)) == (1 if lines else 0)


EVERY: list[Way] = [by_run, by_threads, by_drive, by_arun, by_adrive, by_run_unheard, by_arun_unheard]
HEARD: list[Way] = EVERY[:5]
WAYS: list[Way] = [by_run, by_arun]  # all that is no comparison of drivers: one of each world
