"""Drivers of processes whose journals are written: each of the ways, heard and unheard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fsm_agent.machine.process import Process
from fsm_agent.runtime import World, adrive, arun, drive, run
from fsm_agent.runtime.recorder import Recorder

Sink = Callable[[Any], Any]
Way = Callable[[Process, World, Recorder | None, Sink], None]


def by_run(process: Process, world: World, recorder: Recorder | None, sink: Sink) -> None:
    run(process, world.changed(threads=0), sink, recorder)


def by_threads(process: Process, world: World, recorder: Recorder | None, sink: Sink) -> None:
    run(process, world, sink, recorder)


def by_run_unheard(process: Process, world: World, recorder: Recorder | None, sink: Sink) -> None:
    run(process, world, None, recorder)


def by_drive(process: Process, world: World, recorder: Recorder | None, sink: Sink) -> None:
    events = drive(process, world, recorder=recorder)
    try:
        for event in events:
            sink(event)
    finally:
        events.close()


def by_arun(process: Process, world: World, recorder: Recorder | None, sink: Sink) -> None:
    asyncio.run(arun(process, world, sink, recorder))


def by_arun_unheard(process: Process, world: World, recorder: Recorder | None, sink: Sink) -> None:
    asyncio.run(arun(process, world, None, recorder))


def by_adrive(process: Process, world: World, recorder: Recorder | None, sink: Sink) -> None:
    async def main() -> None:
        events = adrive(process, world, recorder=recorder)
        try:
            async for event in events:
                sink(event)
        finally:
            await events.aclose()

    asyncio.run(main())


WAYS: list[Way] = [by_run, by_threads, by_drive, by_arun, by_adrive, by_run_unheard, by_arun_unheard]
HEARD: list[Way] = WAYS[:5]
