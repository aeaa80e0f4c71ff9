"""Locks on files: who gets them, who waits, what remains when a process is killed, and the substitute on Windows."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import closing
from importlib import reload
from pathlib import Path

import pytest

from fsm_agent._internal import system as file_locks

HOLD = """
import sys
from fsm_agent._internal.system import try_lock
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


def test_a_file_system_without_locks_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr("fcntl.flock", flock)
    with path.open("rb") as file, pytest.raises(OSError, match=os.strerror(errno.ENOTSUP)):
        file_locks.try_lock(file.fileno())


def test_windows_locks_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    reload(file_locks)
    try:
        with path.open("rb") as first, path.open("rb") as second:
            assert not file_locks.HAVE_FLOCK
            assert all(file_locks.try_lock(file.fileno()) for file in (first, second))
    finally:
        monkeypatch.undo()
        reload(file_locks)


def test_the_line_of_the_users_own_code_is_the_place_of_an_error() -> None:
    def fail() -> None:
        os.strerror("not a number")  # type: ignore[arg-type]

    with pytest.raises(TypeError) as caught:
        fail()
    line = fail.__code__.co_firstlineno + 1
    assert file_locks.place_of(caught.value) == f"test_system.py:{line}"
    assert file_locks.with_place("no", caught.value) == f"no (test_system.py:{line})"
    assert file_locks.with_place("no", TypeError()) == "no"
    with pytest.raises(ValueError, match="x") as of_library:
        exec(compile("int('x')", "json.py", "exec"), {"__name__": "json.decoder"})
    assert file_locks.place_of(of_library.value).startswith("test_system.py:")
