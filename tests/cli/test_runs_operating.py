"""Do the commands of operators do what they say, to the runs that they name, and tell it at 80 columns?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support import shop_agent as shop
from support.postgres import NOT_HERE, PostgresServer, programs
from support.terminal import Terminal
from typer.testing import CliRunner

from fsm_agent import Agent, CallFailed, CallSuspended, function
from fsm_agent.cli import app
from fsm_agent.store import Runs, SqliteStore
from fsm_agent.testing import Script, call

PRINTER = {"is_broken": True}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FSM_AGENT_STORE", "runs.db")
    monkeypatch.delenv("FSM_AGENT_SIGNING_KEY", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(PRINTER, "is_broken", True)
    return tmp_path / "runs.db"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["runs", *arguments], prog_name="fsm-agent", catch_exceptions=False)


def runs(*arguments: str) -> str:
    ended = run(*arguments)
    assert ended.exit_code == 0, ended.stderr
    assert all(len(line) <= 80 for line in ended.stderr.splitlines())
    return str(ended.stdout)


def refused(*arguments: str, code: int = 1) -> str:
    ended = run(*arguments)
    assert ended.exit_code == code, ended.stdout
    return re.sub(r"[│╭╮╰╯─\s]+", " ", ended.stderr)


def begin(store: Any, *names: str) -> None:
    with closing(Runs(store)) as kept:
        for name in names:
            with suppress(CallSuspended):
                shop.shop(store=kept).call(f"Refund order {name}.", run_id=name)


@function(on_error="fail")
def printing(text: str) -> str:
    """Print."""
    if PRINTER["is_broken"]:
        raise RuntimeError("the printer is on fire")
    return "printed"


def fail(store: Any, *names: str) -> None:
    with closing(Runs(store)) as kept:
        for name in names:
            agent = Agent(Script(call("printing", text="x")), functions=[printing], name="press", store=kept)
            with pytest.raises(CallFailed):
                agent.call(f"Print {name}.", run_id=name)


def names(*arguments: str) -> list[str]:
    return [row["id"] for row in json.loads(runs("list", "--json", *arguments))["runs"]]


class TestList:
    def test_those_that_are_wanted(self, store: Path) -> None:
        begin(store, "one", "two")
        fail(store, "broken")
        assert names() == ["broken", "two", "one"]
        assert names("--failed") == ["broken"]
        assert names("--state", "ToolInterrupt") == ["two", "one"]
        assert names("--waiting-for", "approval", "--agent", "shop") == ["two", "one"]
        assert names("--waiting-for", "doubt") == []
        assert names("--text", "ORDER one") == ["one"]
        assert names("--older-than", "1h") == []
        assert set(names("--older-than", "0s")) == {"broken", "two", "one"}
        assert "no span of time" in refused("list", "--older-than", "soon", code=2)

    def test_pages(self, store: Path) -> None:
        begin(store, *[f"r{n}" for n in range(5)])
        found, after = [], []
        while True:
            page = json.loads(runs("list", "--json", "--limit", "2", *after))
            found += [row["id"] for row in page["runs"]]
            if page["next"] is None:
                break
            after = ["--after", page["next"]]
        assert found == ["r4", "r3", "r2", "r1", "r0"]
        told = run("list", "--limit", "2").stderr
        (place,) = re.findall(r"there are more: --after (\S+)", told)
        assert runs("list", "--limit", "9", "--after", place).splitlines()[1].startswith("r2")
        assert "`next` of a page" in refused("list", "--after", "nonsense")

    def test_turns_of_a_conversation_are_filtered_too(self, store: Path) -> None:
        agent = Agent(Script(*"12"), name="clerk", store=str(store))
        for _ in range(2):
            agent.conversation("c").call("hi")
        agent.runs.close()
        assert len(names("--conversation", "c", "--ended")) == 2
        assert names("--conversation", "c", "--failed") == []
        assert "one page" in refused("list", "--conversation", "c", "--after", "1.0~1", code=2)


def test_counts(store: Path) -> None:
    assert "there are no runs" in _made(store).stderr
    begin(store, "one", "two")
    fail(store, "broken")
    lines = [line.split() for line in runs("stats").splitlines()]
    assert lines[0] == ["agent", "state", "runs", "failed", "asking", "stuck", "oldest"]
    assert ["press", "Failed", "1", "1", "-", "-"] in [line[:6] for line in lines]
    assert ["shop", "ToolInterrupt", "2", "-", "2", "-"] in [line[:6] for line in lines]
    assert lines[-1][:5] == ["all", "3", "1", "2", "-"]
    counted = json.loads(runs("stats", "--json"))
    assert {(count["agent"], count["count"], count["is_failed"]) for count in counted} == {
        ("press", 1, True),
        ("shop", 2, False),
    }


def _made(store: Path) -> Any:
    SqliteStore(store).close()
    return run("stats")


class TestRetry:
    def test_a_failed_run_is_due_again(self, store: Path) -> None:
        fail(store, "broken")
        assert runs("retry", "broken", "--by", "ann") == "broken continues from step 2, and is due\n"
        assert names("--failed") == []
        shown = runs("show", "broken")
        assert re.search(r"retried +by ann: continues from step 2", shown)
        PRINTER["is_broken"] = False
        agent = Agent(Script("It is printed."), functions=[printing], name="press", store=str(store))
        assert agent.resume("broken").output == "It is printed."
        agent.runs.close()
        assert "Completed" in runs("diagram", "broken")

    def test_what_is_refused_keeps_nobody_else_from_it(self, store: Path) -> None:
        begin(store, "one")
        fail(store, "a", "b")
        ended = run("retry", "a", "one", "nobody", "b")
        assert ended.exit_code == 1
        assert [line.split()[0] for line in ended.stdout.splitlines()] == ["a", "b"]
        assert "2 of 4 runs were refused" in ended.stderr
        assert "requeue" in refused("retry", "one")


def test_a_run_is_made_due(store: Path) -> None:
    begin(store, "one")
    assert runs("requeue", "one") == "one is due now\n"
    assert runs("requeue", "one") == "one was due already\n"
    fail(store, "broken")
    assert "retry('broken') makes it go on" in refused("requeue", "broken")


def test_runs_are_cancelled(store: Path) -> None:
    begin(store, "one", "two")
    assert runs("cancel", "one", "two", "--reason", "a duplicate", "--by", "ann").count("to be cancelled") == 2
    agent = shop.shop(store=store)
    with pytest.raises(CallFailed, match="a duplicate"):
        agent.resume("one")
    agent.runs.close()
    assert names("--failed") == ["one"]
    assert re.search(r"cancelled +by ann: a duplicate", runs("show", "one"))
    assert "has ended" in refused("cancel", "one")


class TestDelete:
    def test_a_run_that_goes_on_is_not_deleted_unasked(self, store: Path) -> None:
        begin(store, "one", "two")
        told = refused("delete", "one", "two")
        assert "one, two have not ended: nothing was deleted; --yes deletes all the same" in told
        assert names() == ["two", "one"]
        assert runs("delete", "one", "--yes") == "deleted one\n"
        fail(store, "broken")
        assert runs("delete", "broken") == "deleted broken\n"
        assert names() == ["two"]

    @pytest.mark.system
    @pytest.mark.parametrize(("answer", "left"), [("", ["one"]), ("yes", [])])
    def test_a_person_is_asked(self, store: Path, answer: str, left: list[str]) -> None:
        begin(store, "one")
        with Terminal("runs", "delete", "one", FSM_AGENT_STORE=str(store)) as asked:
            asked.read_until("Delete all the same? [y/N] ")
            asked.type(f"{answer}\r")
            asked.read_until()
        assert names() == left


WRITING = """
import sys
from fsm_agent.store import SqliteStore
from fsm_agent.store.store import Rest
store = SqliteStore(sys.argv[1])
n = 0
while True:
    lease = store.create(f"w{n}", "header", agent="a", holder="w", for_s=60.0)
    for i in range(5):
        store.append(lease, i, [f"{n}.{i}" + "x" * 500])
    store.append(lease, 5, (), Rest(state="Completed", is_ended=True), snapshot=b"x" * 900)
    n += 1
    print(n, flush=True)
"""


class TestBackup:
    @pytest.mark.system
    def test_a_copy_is_whole_while_another_process_writes(self, store: Path, tmp_path: Path) -> None:
        """Each copy has all that was told to be written before it, and each run up to an entry."""
        begin(store, "asks")
        root = str(Path(__file__).parents[2])
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITING, str(store)], stdout=subprocess.PIPE, text=True, env=_with_path(root)
        )
        assert writer.stdout is not None
        written = 0
        try:
            for copy in range(4):
                while written < 10 * (copy + 1):
                    written = int(writer.stdout.readline())
                assert "bytes copied to" in runs("backup", f"copy{copy}.db")
                self._check(tmp_path / f"copy{copy}.db", written)
        finally:
            writer.kill()
            writer.wait()
            writer.stdout.close()

    def _check(self, path: Path, written: int) -> None:
        assert [file.name for file in path.parent.glob(f"{path.name}?*")] == []
        assert path.stat().st_mode & 0o077 == 0
        with closing(SqliteStore(path)) as copy:
            kept = {run.id: run for run in copy.list(limit=10**6)}
            assert {f"w{n}" for n in range(written)} <= {*kept}
            for name, row in kept.items():
                loaded = copy.load(name)
                assert len(loaded.lines) == row.n
                if name != "asks":
                    assert [line.partition("x")[0] for line in loaded.lines] == [
                        f"{name[1:]}.{i}" for i in range(row.n)
                    ]
                    assert loaded.snapshot == (None if not row.is_ended else (5, b"x" * 900))
            assert [question.key for question in kept["asks"].waits] == ["ask:3.0"]

    def test_a_copy_goes_on(self, store: Path, tmp_path: Path) -> None:
        begin(store, "one")
        runs("backup", "copy.db")
        assert (tmp_path / "copy.db").stat().st_mode == store.stat().st_mode
        store.unlink()
        agent = shop.shop(store=tmp_path / "copy.db")
        assert agent.runs.claim("one").n == 4
        agent.runs.close()

    def test_a_file_that_is_there_is_left_alone(self, store: Path, tmp_path: Path) -> None:
        begin(store, "one")
        (tmp_path / "mine").write_text("mine")
        assert "there is a file" in refused("backup", "mine")
        assert (tmp_path / "mine").read_text() == "mine"
        assert "cannot be copied to" in refused("backup", "no/such/folder/x.db")
        assert "there is no store" in refused("backup", "x.db", "--store", "nobody.db")
        assert not (tmp_path / "x.db").exists()

    def test_a_damaged_store_is_not_copied(self, store: Path, tmp_path: Path) -> None:
        begin(store, *[f"r{n}" for n in range(9)])
        data = bytearray(store.read_bytes())
        data[3000:9000] = b"\xff" * 6000
        store.write_bytes(data)
        assert run("backup", "copy.db").exit_code == 1
        assert [file.name for file in tmp_path.glob("copy*")] == []

    def test_a_store_in_postgres_names_what_is_right(self) -> None:
        assert "pg_dump" in refused("backup", "x.db", "--store", "postgresql://host/db")


def _with_path(root: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": root}


@pytest.mark.nightly
@pytest.mark.skipif(programs() is None, reason=NOT_HERE)
def test_a_schema_that_is_missing_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """By no command that only reads."""
    import psycopg

    with closing(PostgresServer()) as server:
        for words in (("list",), ("stats",), ("show", "r"), ("diagram", "r"), ("export", "r"), ("diff", "r", "s")):
            told = refused(*words, "--store", server.url("nobody"))
            assert "there is no store at" in told, words
        with psycopg.connect(server.url("nobody").partition("?")[0]) as connection:
            there = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = 'nobody'").fetchall()
        assert there == []
