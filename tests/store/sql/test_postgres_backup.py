"""Is a schema that was saved with pg_dump and restored, as the docs say, a store from which all runs go on?"""

from __future__ import annotations

import re
import shlex
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.postgres import NOT_HERE, PostgresServer, programs

from fsm_agent import Agent, Approved, CallSuspended, function
from fsm_agent.store import Runs
from fsm_agent.testing import Script, function_call

pytest.importorskip("psycopg", reason="psycopg is not installed")
if programs() is None or not (programs() / "pg_dump").exists():  # type: ignore[operator]
    pytest.skip(NOT_HERE, allow_module_level=True)

ADDRESS = "postgresql://agents@db.internal/work"


def commands() -> list[list[str]]:
    """Return the commands that the docs say: to save, and to restore."""
    page = (ROOT / "docs" / "production.md").read_text("utf-8").replace(" \\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^(pg_(?:dump|restore) .*)$", page, re.M)]


def run(server: PostgresServer, command: list[str], folder: Path) -> None:
    """Run a command of the docs, for this server."""
    url = server.url().partition("?")[0]
    words = [word.replace(ADDRESS, url).replace("orders.dump", str(folder / "a.dump")) for word in command[1:]]
    ended = subprocess.run([programs() / command[0], *words], capture_output=True, text=True)  # type: ignore[operator]
    assert ended.returncode == 0, ended.stderr


@function(needs_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def clerk(runs: Runs, *said: Any) -> Agent[Any, Any]:
    return Agent(Script(*said), name="clerk", functions=[pay], store=runs)


@pytest.mark.nightly
def test_what_was_saved_goes_on(postgres: PostgresServer, tmp_path: Path) -> None:
    save, restore = commands()
    with closing(Runs(postgres.url("orders"))) as runs:
        clerk(runs, "Done.").call("Go.", run_id="ended")
        clerk(runs).runs.submit("Go.", run_id="put in")
        with pytest.raises(CallSuspended):
            clerk(runs, function_call("pay")).call("Go.", run_id="asks")
        before = {row.id: runs.store.load(row.id) for row in runs.store.list()}
        run(postgres, save, tmp_path)
        for name in before:
            runs.store.delete(name)
    run(postgres, restore, tmp_path)
    with closing(Runs(postgres.url("orders"))) as runs:
        assert {row.id: runs.store.load(row.id) for row in runs.store.list()} == before
        assert clerk(runs, "Paid.").runs.resume("asks", Approved()).output == "Paid."
        assert clerk(runs, "Done.").runs.resume("put in").output == "Done."
