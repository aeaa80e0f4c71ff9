"""Locks on files: who gets them, who waits, what is left when a process is killed, and what Windows does instead."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from importlib import reload
from pathlib import Path
from types import ModuleType

import pytest

from fsm_agent._internal import file_locks

HOLD = """
import sys
from fsm_agent._internal.file_locks import try_lock
file = open(sys.argv[1], "rb")
print(try_lock(file.fileno()), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "x.lock").touch()
    return tmp_path / "x.lock"


def test_shared_locks_let_each_other_in_and_no_exclusive_one(path: Path) -> None:
    with path.open("rb") as first, path.open("rb") as second, path.open("rb") as third:
        assert file_locks.try_lock(first.fileno(), shared=True)
        assert file_locks.try_lock(second.fileno(), shared=True)
        assert not file_locks.try_lock(third.fileno())
    with path.open("rb") as last:
        assert file_locks.try_lock(last.fileno())


@pytest.mark.system
def test_a_lock_is_free_once_its_process_was_killed(path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    with path.open("rb") as file, closing(holder.stdout), closing(holder.stdin):
        assert holder.stdout.readline() == b"True\n"
        assert not file_locks.try_lock(file.fileno())
        holder.kill()
        holder.wait()
        assert file_locks.try_lock(file.fileno())


def test_lock_waits_and_says_so_once(path: Path) -> None:
    waits, has_it, said = threading.Event(), threading.Event(), list[str]()

    def other() -> None:
        with path.open("rb") as file:
            file_locks.lock(file.fileno(), lambda: (said.append("waits"), waits.set()))
            has_it.set()

    with path.open("rb") as file:
        file_locks.lock(file.fileno(), lambda: said.append("never"))
        thread = threading.Thread(target=other)
        thread.start()
        assert waits.wait(30)
        assert not has_it.is_set()
    thread.join(30)
    assert has_it.is_set()
    assert said == ["waits"]


def test_a_file_system_without_locks_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr("fcntl.flock", flock)
    with path.open("rb") as file, pytest.raises(OSError, match=os.strerror(errno.ENOTSUP)):
        file_locks.try_lock(file.fileno())


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Load the module without `fcntl`; yield what is asked of `msvcrt`, whose first two locks fail."""
    asked: list[str] = []

    def locking(descriptor: int, mode: int, length: int) -> None:
        asked.append(f"{mode} {length}")
        if len(asked) < 3:
            raise OSError(errno.EDEADLK, "Resource deadlock avoided")

    msvcrt = ModuleType("msvcrt")
    msvcrt.__dict__.update(locking=locking, LK_LOCK=1)
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    reload(file_locks)
    yield asked
    monkeypatch.undo()
    reload(file_locks)


def test_on_windows_a_lock_is_asked_for_until_it_is_given(windows: list[str], path: Path) -> None:
    said: list[str] = []
    with path.open("rb") as file:
        file_locks.lock(file.fileno(), lambda: said.append("waits"))
    assert windows == ["1 1"] * 3
    assert said == ["waits"]
    assert not file_locks.HAVE_FLOCK
