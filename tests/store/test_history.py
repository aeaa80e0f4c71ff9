"""What is there to read of a run without the code of its agents, and is it what was?"""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fsm_agent import Agent, Approved, CallFailed, CallSuspended, Limits, Prompt, Retry, UsageError, function, handoff
from fsm_agent.diagrams import trace_diagram
from fsm_agent.errors import Overloaded
from fsm_agent.flows import Flow, ask, end, execute
from fsm_agent.store import MemoryStore, ReadOnly, Runs, SqliteStore, StoreError
from fsm_agent.store.history import read
from fsm_agent.testing import FakeClock, Script, function_call


@function(needs_approval=True)
def refund(order: str, amount: float) -> str:
    """Pay a customer back."""
    return f"{amount:.2f} EUR for {order}"


def desk(store: Any, task: str = "Pay A-17 back", *, outer: Any = "All is done.") -> Agent[Any, Any]:
    payer = Agent(Script(function_call("refund", order="A-17", amount=2.5), "Paid."), functions=[refund], name="payer")
    model = Script(function_call("payer", task=task), outer)
    return Agent(model, functions=[payer.as_function("payer", "Pays.")], name="desk", store=store)


def states_in(record: Any, path: str = "") -> dict[str, str]:
    record = getattr(record, "record", record)
    found = {path: str(record.state)}
    for name, child in record.children.items():
        found |= states_in(child, f"{path}/{name}" if path else name)
    return found


def test_an_agent_inside_is_unfolded():
    agent = desk(MemoryStore())
    with pytest.raises(CallSuspended):
        agent.call("Please refund A-17.", run_id="r")
    agent.runs.resume("r", {_key(agent): Approved()}, by="ann")
    reading = read(agent.runs.all, "r")
    assert (reading.kind, reading.title, reading.is_sound) == ("call", "Please refund A-17.", True)
    inside = reading.processes["run:1.0"]
    assert (inside.kind, inside.name, inside.task, inside.n) == ("call", "payer", "Pay A-17 back", 2)
    assert inside.state == "Completed"
    assert [entry.by for entry in reading.entries if entry.kind == "approved"] == ["ann"]
    for n in range(len(reading.entries) + 1):
        assert dict(reading.at(n).states) == states_in(agent.runs.at("r", n).record), n
    assert "Completed" in str(trace_diagram(inside.trace))
    replies = [entry.moves for entry in reading.entries if entry.kind == "replied"]
    assert {len(moves) for moves in replies} == {1, 2}
    assert all(moves[0].step.usage for moves in replies), "an outcome belongs to the process that took it"
    assert not any(move.step.usage for moves in replies for move in moves[1:])
    for wrong in (-1, len(reading.entries) + 1):
        with pytest.raises(IndexError):
            reading.at(wrong)


def _key(agent: Agent[Any, Any]) -> str:
    (question,) = agent.runs.all.store.get("r").waits
    assert set(json.loads(question.schema)["properties"]) == {"order", "amount"}
    return question.key


@dataclass(frozen=True)
class Check:
    what: str


def test_a_flow_of_an_agent_inside_has_ended_when_its_result_has_come_though_the_run_has_not_its_table():
    @execute
    def look(c: Check) -> str:
        raise LookupError(f"no {c.what}")

    over, lost = end("over"), end("lost", failed=True)
    checking = Flow("checking", Check, start=look, rows=[look.done(over), look.failed(lost)])
    model = Script([function_call("checking", what="A"), function_call("checking", what="B")], "Neither is there.")
    clerk = Agent(model, functions=[checking], name="clerk", limits=Limits(parallel=2))
    agent = Agent(
        Script(function_call("clerk", task="Look."), "No."), functions=[clerk], name="desk", store=MemoryStore()
    )
    agent.call("Are A and B there?", run_id="r")
    reading = read(agent.runs.all, "r")
    assert reading.table("run:1.0/run:1.1") is None
    for n in range(len(reading.entries) + 1):
        record = agent.runs.at("r", n).record
        assert dict(reading.at(n).states) == states_in(record), n


def test_a_handoff_has_no_task_of_its_own():
    billing = Agent(Script("It is paid."), name="billing")
    agent = Agent(
        Script(function_call("billing")), functions=[handoff(billing, name="billing")], name="desk", store=MemoryStore()
    )
    agent.call("Who pays?", run_id="r")
    reading = read(agent.runs.all, "r")
    (path,) = [path for path in reading.processes if path]
    assert path.startswith("to:")
    assert (reading.processes[path].name, reading.processes[path].task) == ("billing", "")
    assert reading.processes[path].state == "Completed"


def test_a_long_task_is_cut():
    agent = desk(MemoryStore(), "x" * 9_000)
    with pytest.raises(CallSuspended):
        agent.call("y" * 900, run_id="r")
    reading = read(agent.runs.all, "r")
    for text in (reading.processes["run:1.0"].task, reading.title):
        assert len(text) <= 2_000
        assert text.endswith("…")


def test_a_title_is_one_plain_line():
    agent = Agent(Script(*"123"), name="clerk", store=MemoryStore())
    for n, task in enumerate(["a\n b\t\x1b[31mc\u202e", "\x00", "Straße"]):
        agent.call(task, run_id=f"r{n}")
    store = agent.runs.all.store
    assert [store.get(f"r{n}").title for n in range(3)] == ["a b [31mc", "", "Straße"]


def test_a_damaged_journal_is_read_as_far_as_it_goes(tmp_path: Path):
    agent = desk(tmp_path / "runs.db")
    with pytest.raises(CallSuspended):
        agent.call("Please refund A-17.", run_id="r")
    with agent.runs.all.store._connections.one() as connection:
        connection.execute("UPDATE journal SET line = '{' WHERE place = (SELECT max(place) FROM journal)")
    reading = read(agent.runs.all, "r")
    assert (len(reading.entries), reading.is_sound) == (2, False)
    assert "entry 3" in reading.verdict
    assert dict(reading.at(2).states) == {"": "ToolInterrupt", "run:1.0": "Calling"}
    agent.runs.all.close()


def test_a_signed_journal_is_verified_with_its_key(tmp_path: Path):
    path = tmp_path / "runs.db"
    with closing(Runs(path, signing_key="k" * 32)) as runs:
        with suppress(CallSuspended):
            desk(runs).call("Please refund A-17.", run_id="r")
        assert read(runs, "r").verdict == "verified by its signatures"
    with closing(Runs(path, read_only=True)) as runs:
        reading = read(runs, "r")
        assert (reading.is_sound, reading.verdict[:6]) == (True, "signed")


def test_runs_are_opened_for_reading_only(tmp_path: Path):
    path = tmp_path / "runs.db"
    with pytest.raises(StoreError, match="expected a store"):
        Runs(path, read_only=True)
    assert [*tmp_path.iterdir()] == []
    agent = desk(path)
    with pytest.raises(CallSuspended):
        agent.call("Please refund A-17.", run_id="r")
    with closing(Runs(path, read_only=True)) as runs:
        assert read(runs, "r").title == "Please refund A-17."
        for write in (lambda: runs.cancel("r"), lambda: runs.requeue("r"), lambda: desk(runs).runs.resume("r")):
            with pytest.raises(ReadOnly):
                write()
        with pytest.raises(ReadOnly):
            desk(runs).call("Another.", run_id="new")
    with pytest.raises(UsageError, match="store"):
        Runs(agent.runs.all.store, read_only=True)
    agent.runs.all.close()


@pytest.mark.skipif(not hasattr(os, "statvfs"), reason="there is no such call")
def test_a_store_on_a_disk_that_is_read_only_is_read_without_a_file_beside_it(tmp_path: Path, monkeypatch: Any):
    path = tmp_path / "runs.db"
    agent = desk(path)
    with suppress(CallSuspended):
        agent.call("Please refund A-17.", run_id="r")
    real = os.statvfs(path)
    is_read_only = SimpleNamespace(f_flag=real.f_flag | os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda path: is_read_only)
    with closing(Runs(path, read_only=True)) as runs:  # what is written to from elsewhere is read as before
        with suppress(CallSuspended):
            agent.call("Please refund A-18.", run_id="s")
        assert read(runs, "s").title == "Please refund A-18."
    agent.runs.all.close()
    before = {file.name for file in tmp_path.iterdir()}
    with closing(Runs(path, read_only=True)) as runs:
        assert read(runs, "r").title == "Please refund A-17."
        assert {file.name for file in tmp_path.iterdir()} == before


def test_what_was_retried_had_failed(tmp_path: Path):
    """The same trigger leads to a pause as well, which the table alone cannot tell from the failure."""
    busy = Overloaded("busy", status=529)
    clock = FakeClock()
    with closing(Runs(SqliteStore(tmp_path / "runs.db", clock.now))) as runs:
        agent = Agent(Script(busy, busy, "Hi."), name="host", limits=Limits(recalls=1), store=runs)
        agent = replace(agent, environment={"clock": clock})
        with pytest.raises(CallFailed):
            agent.call("Hello", run_id="r")
        runs.retry("r", by="ann")
        (back,) = [move.step for move in read(runs, "r").process.moves if move.step.trigger == "retried"]
        assert (back.source, back.to) == ("Failed", "Calling")
        reading, n = read(runs, "r"), runs.store.get("r").n
        [retried] = [entry for entry in reading.entries if entry.kind == "retried"]
        assert (retried.by, retried.undoes_to, reading.is_sound) == ("ann", 1, True)
        assert [reading.at(at).states for at in (4, n)] == [{"": "Failed"}, {"": "Calling"}]


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def no_shouting(output: str, context: Any) -> str:
    if output.isupper():
        raise Retry("do not shout")
    return output


NUMBER = {"output": int}
REFUSALS: dict[str, tuple[list[Any], dict[str, Any], dict[int, str]]] = {
    "an answer": (["x", "7"], NUMBER, {2: "no int"}),
    "arguments": ([function_call("add", a="q", b=1), "Done."], {}, {2: "'q'"}),
    "an unknown function": ([function_call("sub"), "Done."], {}, {2: "'sub'"}),
    "one call of two": ([[function_call("add", a=1, b=2), function_call("sub")], "Done."], {}, {2: "'sub'"}),
    "a repeated call": ([function_call("add", a=1, b=2), function_call("add", a=1, b=2), "3"], {}, {4: "add"}),
    "by a check": (["HEY", "Hey"], {"check": no_shouting}, {3: "do not shout"}),
    "by words of one's own": (
        ["x", "7"],
        {"prompt": Prompt("{{ task }}", output=int, on_exception="Oh no: {{ error_message }}!")},
        {2: "Oh no: "},
    ),
    "as arguments": (
        [function_call("give_final_answer", value="x"), function_call("give_final_answer", value=7)],
        {"prompt": Prompt("{{ task }}", output=int, mode="function")},
        {2: "'x'"},
    ),
    "nothing": (["7"], NUMBER, {}),
    "the last": (["x", "y"], {**NUMBER, "limits": Limits(parse_retries=1)}, {2: "no int", 3: "no int"}),
    "the last round": (
        [function_call("add", a=1, b=2), function_call("add", a=2, b=2)],
        {"limits": Limits(rounds=1)},
        {4: "round 2"},
    ),
}


@pytest.mark.parametrize("refused", REFUSALS)
def test_why_a_reply_was_refused_is_known_without_code(refused):
    replies, options, whys = REFUSALS[refused]
    agent = Agent(Script(*replies), functions=[add], name="clerk", store=MemoryStore(), **options)
    entries = entries_of(agent)
    assert {entry.n: entry.why for entry in entries if entry.why}.keys() == whys.keys()
    for n, said in whys.items():
        assert said in entries[n - 1].why, n
    sent = [part.text for request in agent.model.requests for message in request.messages for part in texts(message)]
    for entry in entries:  # what is said to have been told, was told
        is_end = entry.moves[-1].step.to == "Failed"
        assert not entry.why or is_end or all(line in "\n".join(sent) for line in entry.why.splitlines())


def texts(message: Any) -> list[Any]:
    return [part for part in message.parts if hasattr(part, "text")]


def entries_of(agent: Any) -> Any:
    with suppress(CallFailed):
        agent.call("How many?", run_id="r")
    return read(agent.runs.all, "r").entries


def test_why_is_known_of_an_agent_in_a_flow_in_an_agent_and_after_a_retry(tmp_path):
    counter = Agent(Script("x", "y", "z", "7"), output=int, name="counter", limits=Limits(parse_retries=2))

    @ask(counter)
    def counting(c: Check) -> str:
        return c.what

    flow = Flow(
        "counted", Check, start=counting, rows=[counting.done(end("over")), counting.failed(end("lost", failed=True))]
    )
    model = Script(function_call("counted", what="A"), "There are seven.")
    outer = Agent(model, functions=[flow.as_function("counted", "Counts.")], name="outer", store=tmp_path / "r.db")
    outer.call("How many?", run_id="r")
    whys = {entry.path: entry.why for entry in read(outer.runs.all, "r").entries if entry.why}
    assert whys.keys() == {"run:1.0/counting#1"}
    assert "no int" in whys["run:1.0/counting#1"]


def test_the_end_of_a_failed_run_is_told_in_its_picture_without_code():
    agent = Agent(Script("x"), output=int, name="clerk", store=MemoryStore(), limits=Limits(parse_retries=0))
    entries_of(agent)
    assert "no int" in str(trace_diagram(read(agent.runs.all, "r").process.trace))


def test_a_long_reason_is_cut():
    agent = Agent(Script("x", "7"), check=long_winded, name="clerk", store=MemoryStore())
    assert len(entries_of(agent)[2].why) < 5_000


def long_winded(output: str, context: Any) -> str:
    if output == "x":
        raise Retry("no " * 100_000)
    return output
