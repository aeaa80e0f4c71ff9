"""Is a run that waits for people begun in one OS process and continued in another, by the system's clock?"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Generator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, Approved, Context, Denied, Modified, SqliteStore, function
from fsm_agent.errors import OutcomeError
from fsm_agent.flows import Flow, FlowSuspended, ask, end, wait
from fsm_agent.runtime import SystemClock
from fsm_agent.store import AlreadyAnswered, NotAsked, Runs
from fsm_agent.testing import Script, function_call

pytestmark = pytest.mark.system

RUN = "r"


@pytest.fixture(scope="module")
def elsewhere() -> Generator[ProcessPoolExecutor]:
    """Another OS process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@dataclass(frozen=True)
class Ticket:
    text: str
    reply: str = ""


@function(needs_approval=True, once=True)
def refund(context: Context[str], order: int) -> str:
    """Refund an order."""
    with open(context.deps, "a", encoding="utf-8") as file:
        file.write(f"refunded {order}\n")
    return f"refunded {order}"


@ask(Agent("openai:gpt-5-mini", name="support", functions=[refund]))
def helping(d: Ticket) -> str:
    return d.text


@wait(str, within_s=0.5)
def clerk(d: Ticket) -> str:
    return f"{d.text}?"


@wait(str, within_s=3600)
def manager(d: Ticket) -> str:
    return f"The clerk has not answered: {d.text}"


def put(d: Ticket, text: str) -> Ticket:
    return replace(d, reply=text)


FLOWS = {
    "support": Flow("support", Ticket, start=helping, rows=[helping.done(end("helped"), do=put)]),
    "escalation": Flow(
        "escalation", Ticket, start=clerk,
        rows=[clerk.elapsed(manager), clerk.done(end("by_clerk"), do=put), manager.done(end("by_manager"), do=put)],
    ),
}  # fmt: skip


def drive(
    name: str, folder: str, says: Mapping[str, Any] | None, words: list[Any] | None = None, is_async: bool = False
) -> tuple[str, Ticket]:
    """Begin a run, or answer it, as far as it goes without waiting; return where it stands, and its data."""
    with closing(Runs(SqliteStore(f"{folder}/runs.db"), patience_s=0)) as runs:
        flow = replace(FLOWS[name], store=runs, environment={"clock": SystemClock()})
        options: dict[str, Any] = {"deps": f"{folder}/log.txt"}
        if words is not None:
            options["clients"] = {helping: Script(*words)}
        answers = {flow.states.get(name, name): answer for name, answer in (says or {}).items()}
        try:
            if says is None:
                result = flow.call(Ticket("My money, please"), run_id=RUN, **options)
            elif is_async:
                result = asyncio.run(flow.runs.aresume(RUN, answers, **options))
            else:
                result = flow.runs.resume(RUN, answers, **options)
        except FlowSuspended as waiting:
            return f"waits in {waiting.run.state}", waiting.run.data
        return result.state, result.output


def said_last(request: Any) -> str:
    return str(request.messages[-1].text)


ASK = "helping#1/ask:1.0"


@pytest.mark.parametrize(
    ("answer", "done", "told"),
    [
        (Approved(), ["refunded 17"], "refunded 17"),
        (Modified('{"order": 18}'), ["refunded 18"], "refunded 18"),
        (Denied("it is too old"), [], "it is too old"),
    ],
)
def test_an_approval_in_another_process_and_the_first_one_counts(
    answer: Any, done: list[str], told: str, elsewhere: ProcessPoolExecutor, tmp_path: Path
) -> None:
    folder = str(tmp_path)
    assert drive("support", folder, None, [function_call("refund", order=17)])[0] == "waits in helping"
    place, data = elsewhere.submit(drive, "support", folder, {ASK: answer}, [said_last], True).result(60)
    assert place == "helped"
    assert told in data.reply
    with pytest.raises((AlreadyAnswered, NotAsked, OutcomeError)):
        drive("support", folder, {ASK: Approved()})
    assert drive("support", folder, {}) == (place, data)
    log = tmp_path / "log.txt"
    assert (log.read_text().splitlines() if log.exists() else []) == done


def test_a_time_that_is_over_in_another_process(elsewhere: ProcessPoolExecutor, tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert drive("escalation", folder, None)[0] == "waits in clerk"
    place = ""
    for _ in range(600):
        place, _ = elsewhere.submit(drive, "escalation", folder, {}).result(60)
        if place != "waits in clerk":
            break
    assert place == "waits in manager"
    assert drive("escalation", folder, {"manager": "yes"}) == ("by_manager", Ticket("My money, please", "yes"))
