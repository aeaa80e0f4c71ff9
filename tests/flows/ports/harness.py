"""What a port of a published graph has, and how its script is played, a day after the other.

A port is a module `p<number>_<name>` with a `PORT`.  `test_ports` explores it and plays its days.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fsm_agent import Context
from fsm_agent.flows import AwaitAnswer, Flow, FlowFailed, FlowSuspended
from fsm_agent.store import SqliteStore
from fsm_agent.testing import FakeClock, Script

START_S = 1_000_000_000.0  # the first day
RUN = "r"


@dataclass(frozen=True)
class Day:
    """The events of a run on one day.

    Attributes:
        at: The state at the end of the day: the state that the run waits in, or its end.
        answers: The answers of people and programs, by state or by key.
        models: The replies of models, by state.
        after_s: The start of the day, in seconds after the first day.
        shows: The question that a person sees, or None for any question.
    """

    at: str
    answers: Mapping[Any, Any] = field(default_factory=dict)
    models: Mapping[Any, Sequence[Any]] = field(default_factory=dict)
    after_s: float = 0.0
    shows: Any = None


@dataclass(frozen=True)
class Port:
    """A published graph, ported to this package.

    Attributes:
        flow: The flow.
        start: The first data.
        days: The script.
        check: Asserts what the authors mean, of the last data and of the lines that the functions logged.
        gives: The answers of each state, for `explore`.
    """

    flow: Flow[Any]
    start: Any
    days: Sequence[Day]
    check: Callable[[Any, list[str]], None]
    gives: Mapping[Any, Sequence[Any]]


def port(name: str) -> Port:
    made: Port = importlib.import_module(name).PORT
    return made


def log(context: Context[str], line: str) -> str:
    """Do what must be seen from outside, in whichever process."""
    with open(context.deps, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    return line


def logged(folder: str) -> list[str]:
    file = Path(folder, "log.txt")
    return file.read_text("utf-8").splitlines() if file.exists() else []


def play(name: str, number: int, folder: str, is_async: bool) -> str:
    """Do what can be done on a day, and return where the run stands."""
    made = port(name)
    day = made.days[number]
    clock = FakeClock(START_S + day.after_s)
    flow = replace(made.flow, store=SqliteStore(f"{folder}/runs.db", clock.now), environment={"clock": clock})
    scripts = {state: Script(*words) for state, words in day.models.items()}
    options: dict[str, Any] = {"deps": f"{folder}/log.txt", "clients": scripts}
    try:
        if number == 0:
            result = (
                asyncio.run(flow.acall(made.start, run_id=RUN, **options))
                if is_async
                else flow.call(made.start, run_id=RUN, **options)
            )
        elif is_async:
            result = asyncio.run(flow.runs.aresume(RUN, day.answers, **options))
        else:
            result = flow.runs.resume(RUN, day.answers, **options)
    except FlowSuspended as waiting:
        run = waiting.run
        shown = [effect.shown for effect in run.effects if isinstance(effect, AwaitAnswer)]
        assert day.shows in (None, *shown), f"day {number} shows {shown}"
        assert flow.runs.at(RUN).data == run.data, "a query gives what the run has come to"
    except FlowFailed as failed:
        run = failed.run
    else:
        run = result.run
    for script in scripts.values():
        script.assert_exhausted()
    if number == len(made.days) - 1:
        made.check(run.data, logged(folder))
    return str(run.state)
