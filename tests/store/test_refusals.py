"""Do all stores refuse what they could not keep, before anything of it is written?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import MemoryStore, Runs, UsageError
from fsm_agent.store import RunBusy, Store, StoreError
from fsm_agent.store.sqlite import SqliteStore

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "runs.db"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = STORES[request.param](tmp_path)
    made.create("r", "header", agent="a")
    yield made
    made.close()


@pytest.mark.parametrize("text", [b"one", 5, None])
def test_a_line_that_is_no_text_is_refused(store: Store, text: Any):
    lease = store.claim("w", for_s=9, run="r")
    assert lease is not None
    for what, use in (
        ("the header", lambda: store.create("s", text, agent="a")),
        ("a line", lambda: store.append(lease, 0, ["one", text])),
    ):
        with pytest.raises(UsageError, match=f"^{what} is {text!r}: a text would be right"):
            use()
    assert [run.id for run in store.list()] == ["r"]
    assert store.load("r").lines == ()


@pytest.mark.parametrize("for_s", [math.inf, math.nan, "9"])
def test_a_lease_for_no_finite_time_is_refused(store: Store, for_s: Any):
    lease = store.claim("w", for_s=0, run="r")
    assert lease is not None
    for use in (lambda: store.claim("w", for_s=for_s, run="r"), lambda: store.renew(lease, for_s=for_s)):
        with pytest.raises(UsageError, match=f"^for_s is {for_s!r}: a finite number of seconds would be right"):
            use()
    assert store.claim("v", for_s=9, run="r").fence == 2  # type: ignore[union-attr]


def test_a_lease_that_lasts_beyond_the_calendar_is_told_of(store: Store):
    store.claim("w", for_s=1e12, run="r")
    with pytest.raises(RunBusy, match=r"its lease lasts until the Unix time 1\.\d+e\+12 and may be renewed"):
        store.claim("v", for_s=9, run="r")


@pytest.mark.parametrize("path", ["a\0b", "a\ud83d"])
@pytest.mark.parametrize("opened", [SqliteStore, Runs])
def test_a_path_that_no_system_takes_is_refused(opened: Any, path: str):
    with pytest.raises(UsageError, match=r"^the path of a store is 'a"):
        opened(path)


def test_a_path_that_is_too_long_is_named():
    with pytest.raises(StoreError, match="x' cannot be opened: File name too long"):
        Runs("x" * 5000)


def test_a_folder_is_no_store(tmp_path: Any):
    with pytest.raises(UsageError, match=r"^store is .*, a folder: a file in it, such as '.*runs\.db', is right"):
        Runs(tmp_path)
