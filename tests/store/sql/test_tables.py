"""Are the tables of an older release upgraded, and the tables of a newer release refused?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from support.postgres import PostgresServer

from fsm_agent.store import PostgresStore, SqliteStore, StoreError
from fsm_agent.store.sql import tables

MORE = "ALTER TABLE run ADD COLUMN more {text}; CREATE INDEX run_more ON run (more)"
Opened = Callable[..., Any]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.system)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Return a function that opens a store, always the same one."""
    place: Any = tmp_path / "runs.db"
    make: Any = SqliteStore
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        place, make = (
            server.url("t" + hashlib.blake2b(str(tmp_path).encode(), digest_size=8).hexdigest()),
            PostgresStore,
        )
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(make(place, **options)))


def test_a_later_version_is_reached_by_its_steps_once(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    opened().create("r", "header", agent="a")
    monkeypatch.setattr(tables, "STEPS", (MORE, "UPDATE run SET more = 'new'"))
    for _ in range(2):
        store = opened()
        assert store.load("r").header == "header"
        assert [tuple(row) for row in store._read(lambda c: c("SELECT id, more FROM run"))] == [("r", "new")]
    monkeypatch.setattr(tables, "STEPS", (MORE,))
    for is_read_only in (False, True):
        with pytest.raises(StoreError, match=str(tables.FIRST + 2)):
            opened(read_only=is_read_only)


def test_an_older_version_is_not_read_and_stays_as_it_is(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    opened().create("r", "header", agent="a")
    monkeypatch.setattr(tables, "STEPS", (MORE,))
    with pytest.raises(StoreError, match=str(tables.FIRST)):
        opened(read_only=True)
    monkeypatch.undo()
    assert opened().load("r").header == "header"


def test_a_step_that_fails_leaves_the_older_version(opened: Opened, monkeypatch: pytest.MonkeyPatch):
    opened()
    monkeypatch.setattr(tables, "STEPS", (MORE, "DROP TABLE nowhere"))
    with pytest.raises(StoreError, match="nowhere"):
        opened()
    monkeypatch.undo()
    assert opened().create("r", "header", agent="a")


def test_tables_without_a_version_are_damaged(opened: Opened):
    opened()._write(lambda c: c("DELETE FROM fsm_agent_store"))
    with pytest.raises(StoreError, match="version"):
        opened()


def test_a_version_from_before_the_first_release_is_refused(opened: Opened):
    opened()._write(lambda c: c("UPDATE fsm_agent_store SET version = 9"))
    with pytest.raises(StoreError, match="9"):
        opened()
