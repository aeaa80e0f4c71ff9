"""Is a schema that was saved with pg_dump while workers ran, and restored, a store from which all runs go on?"""

from __future__ import annotations

import re
import shlex
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.postgres import NOT_HERE, PostgresServer, programs

from fsm_agent import Agent, Approved, Worker, function
from fsm_agent.store import Runs
from fsm_agent.testing import Script, call

pytest.importorskip("psycopg", reason="psycopg is not installed")
if programs() is None or not (programs() / "pg_dump").exists():  # type: ignore[operator]
    pytest.skip(NOT_HERE, allow_module_level=True)

ADDRESS = "postgresql://agents@db.internal/work"
PATIENCE_S = 60.0
RUNS = 20


def commands() -> list[list[str]]:
    """Return the commands that the docs say: to save, and to restore."""
    page = (ROOT / "docs" / "runs.md").read_text("utf-8")
    return [shlex.split(line) for line in re.findall(r"^(pg_(?:dump|restore) .*)$", page, re.M)]


class Halfway:
    """A model that asks for a step, and stands still until it may answer once so many have asked."""

    def __init__(self, many: int) -> None:
        self._many, self._asked = many, 0
        self._lock = threading.Lock()
        self.is_halfway, self.may_answer = threading.Event(), threading.Event()

    def script(self) -> Any:
        model = Script(*[call("step")] * 0)
        halfway = self

        def complete(request: Any, *, timeout_s: float | None = None) -> Any:
            with halfway._lock:
                halfway._asked += 1
                if halfway._asked >= halfway._many:
                    halfway.is_halfway.set()
            if halfway.is_halfway.is_set():
                assert halfway.may_answer.wait(PATIENCE_S)
            rounds = sum(message.role == "assistant" for message in request.messages)
            asked = ["step", "step", "pay"]
            reply = call(asked[rounds]) if rounds < len(asked) else "Done."
            return Script(reply).complete(request, timeout_s=timeout_s)

        model.complete = complete  # type: ignore[method-assign]
        return model


def agent_of(model: Any, done: list[str], runs: Runs) -> Agent[Any]:
    @function
    def step() -> str:
        """Do a step."""
        return "done"

    @function(needs_approval=True)
    def pay() -> str:
        """Pay."""
        done.append("paid")
        return "paid"

    return Agent(model, name="clerk", functions=[step, pay], store=runs)


def run(server: PostgresServer, command: list[str], schema: str, folder: Path) -> None:
    """Run a command of the docs, for this server and schema."""
    url = server.url(schema).partition("?")[0]
    words = [word.replace(ADDRESS, url).replace("orders.dump", str(folder / "a.dump")) for word in command[1:]]
    words = [word.replace("--schema=orders", f"--schema={schema}") for word in words]
    ended = subprocess.run([programs() / command[0], *words], capture_output=True, text=True, timeout=PATIENCE_S)  # type: ignore[operator]
    assert ended.returncode == 0, ended.stderr


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_what_was_saved_while_workers_ran_goes_on(postgres: PostgresServer, tmp_path: Path) -> None:
    """Runs in the midst of a request, that wait for a person, that have ended and that were not begun; each once."""
    save, restore = commands()
    model = Halfway(16)
    with closing(Runs(postgres.url("orders"))) as runs:
        agent = agent_of(model.script(), [], runs)
        for number in range(RUNS):
            agent.submit("Go.", run_id=f"r{number}", priority=RUNS - number)
        worker = Worker([agent], runs)
        thread = threading.Thread(target=worker.run, kwargs={"threads": 6})
        thread.start()
        assert model.is_halfway.wait(PATIENCE_S)
        assert worker.held > 0
        before = lines_of(runs)
        run(postgres, save, "orders", tmp_path)
        after = lines_of(runs)
        model.may_answer.set()
        answer_all(runs)
        worker.stop()
        thread.join(PATIENCE_S)
    run(postgres, restore, "orders", tmp_path)
    with closing(Runs(postgres.url("orders"))) as runs:
        saved = lines_of(runs)
        assert [len(lines) for lines in saved.values()].count(0) > 0, "none was not begun"
        assert any(row.waits for row in runs.store.list(limit=100)), "none waits for a person"
        for name, lines in saved.items():
            assert lines[: len(before[name])] == before[name]
            assert after[name][: len(lines)] == lines
        model, done = Halfway(10**9), list[str]()
        agent = agent_of(model.script(), done, runs)
        worker = Worker([agent], runs)
        thread = threading.Thread(target=worker.run, kwargs={"threads": 4})
        thread.start()
        answer_all(runs)
        worker.stop()
        thread.join(PATIENCE_S)
        assert len(done) == RUNS
        for name in saved:
            assert agent.replay(name).result().output == "Done."


def lines_of(runs: Runs) -> dict[str, tuple[str, ...]]:
    """Return the journals by the names of their runs."""
    return {row.id: runs.store.load(row.id).lines for row in runs.store.list(limit=100)}


def answer_all(runs: Runs) -> None:
    """Approve what is asked until all runs have ended."""
    ends = threading.Event()
    for _ in range(int(PATIENCE_S / 0.05)):
        rows = runs.store.list(limit=100)
        if all(row.is_ended for row in rows):
            return
        for row in rows:
            for question in row.waits:
                runs.answer(row.id, {question.key: Approved()})
        ends.wait(0.05)
    raise AssertionError([(row.id, row.state) for row in runs.store.list(limit=100)])
