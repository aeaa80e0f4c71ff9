"""Is a file with a conversation replaced whole, on the disk, unseen by others, and without litter?"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT as PROJECT

from fsm_agent.cli.private_files import write_private

ROOT = str(PROJECT)
posix = pytest.mark.skipif(os.name != "posix", reason="modes and locks are those of POSIX")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "call.json"


@pytest.fixture(params=[0o000, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_is_replaced_and_nothing_else_is_left(path: Path) -> None:
    path.write_text("x" * 100_000)
    with path.open() as old:
        write_private(path, b"new")
        assert len(old.read()) == 100_000  # whoever reads it reads on
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["call.json"]


def test_a_link_is_replaced_and_what_it_points_at_stays(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("other")
    path.symlink_to(other)
    write_private(path, b"new")
    assert not path.is_symlink()
    assert other.read_text() == "other"


def test_what_cannot_be_replaced_is_left_as_it_was(path: Path) -> None:
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(path, b"new")
    with pytest.raises(FileNotFoundError):
        write_private(path / "no" / "call.json", b"new")
    assert os.listdir(path.parent) == ["call.json"]


@posix
class TestModes:
    def test_only_the_owner_may_read_a_new_one(self, path: Path, umask: int) -> None:
        write_private(path, b"new")
        assert mode(path) == 0o600
        assert path.read_bytes() == b"new"

    @pytest.mark.parametrize(
        ("before", "after"), [(0o644, 0o600), (0o600, 0o600), (0o400, 0o400), (0o777, 0o600)], ids=oct
    )
    def test_a_stricter_one_stays(self, path: Path, umask: int, before: int, after: int) -> None:
        path.write_text("old")
        path.chmod(before)
        for _ in range(2):
            write_private(path, b"new")
            assert mode(path) == after

    def test_no_moment_shows_it_to_others(self, path: Path) -> None:
        """Neither the new file nor the replaced one, whenever one looks."""
        path.touch(0o600)
        seen = []

        def look(called: str) -> None:
            seen.append([mode(file) for file in path.parent.iterdir()])

        before = os.umask(0)
        try:
            profiled(lambda: write_private(path, b"new"), look)
        finally:
            os.umask(before)
        assert max(map(len, seen)) == 2
        assert {one for modes in seen for one in modes} == {0o600}


def profiled(work: Callable[[], Any], look: Callable[[str], None]) -> None:
    """Do something, and look each time that it calls a function of C."""

    def profile(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and frame.f_code.co_filename.endswith("private_files.py"):
            sys.setprofile(None)
            look(called.__name__)
            sys.setprofile(profile)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)


@posix
def test_it_is_forced_to_the_disk_before_it_gets_its_name_and_the_name_after(path: Path) -> None:
    path.write_bytes(b"old")
    seen: list[tuple[str, bytes, set[int]]] = []

    def look(called: str) -> None:
        if called in ("fsync", "replace"):
            sizes = {file.stat().st_size for file in path.parent.iterdir() if file != path}
            seen.append((called, path.read_bytes()[:3], sizes))

    profiled(lambda: write_private(path, b"new" * 10_000), look)
    assert seen == [("fsync", b"old", {30_000}), ("replace", b"old", {30_000}), ("fsync", b"new", set())]


WRITER = """
import os, sys
from pathlib import Path
from fsm_agent.cli.private_files import write_private

def pause(event, arguments):
    if event == "os.rename":
        print(arguments[0], flush=True)
        sys.stdin.readline()

sys.addaudithook(pause)
write_private(Path(sys.argv[1]), sys.argv[2].encode())
"""


class Writer:
    """Another process that has written the file but not renamed it yet."""

    def __init__(self, path: Path, text: str = "its") -> None:
        command = [sys.executable, "-c", WRITER, str(path), text]
        environment = {**os.environ, "PYTHONPATH": ROOT}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        assert self._process.stdout is not None
        self.fresh = Path(self._process.stdout.readline().strip())

    def go_on(self) -> int:
        self._process.communicate("\n", timeout=30)
        return self._process.returncode

    def die(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=30)


@posix
class TestOtherWriters:
    @pytest.mark.system
    def test_what_the_dead_left_is_removed(self, path: Path) -> None:
        writers = [Writer(path) for _ in range(3)]
        assert len({writer.fresh for writer in writers}) == 3
        for writer in writers:
            assert writer.fresh.read_bytes() == b"its"
            writer.die()
        assert len(os.listdir(path.parent)) == 3
        write_private(path, b"mine")
        assert os.listdir(path.parent) == ["call.json"]
        assert path.read_bytes() == b"mine"

    @pytest.mark.system
    def test_what_the_living_write_stays(self, path: Path) -> None:
        writers = [Writer(path, "one"), Writer(path, "two")]
        write_private(path, b"mine")
        assert path.read_bytes() == b"mine"
        assert len(os.listdir(path.parent)) == 3
        for writer, text in zip(writers, [b"one", b"two"], strict=True):
            assert writer.go_on() == 0
            assert path.read_bytes() == text
        assert os.listdir(path.parent) == ["call.json"]

    def test_a_folder_or_a_link_in_its_place_is_in_nobodys_way(self, path: Path) -> None:
        first = path.with_name(".call.json.0.new")
        first.mkdir()
        path.with_name(".call.json.1.new").symlink_to(path.with_name("other"))
        os.mkfifo(path.with_name(".call.json.2.new"))
        write_private(path, b"mine")
        assert path.read_bytes() == b"mine"
        assert not path.with_name("other").exists()

    def test_many_threads_write_at_once(self, path: Path) -> None:
        texts = [bytes([n]) * 10_000 for n in range(24)]
        start = threading.Barrier(len(texts))
        failures: list[BaseException] = []

        def write(text: bytes) -> None:
            try:
                start.wait(20)
                for _ in range(5):
                    write_private(path, text)
                    assert path.read_bytes() in texts
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        write_private(path, b"")
        assert os.listdir(path.parent) == ["call.json"]


@pytest.mark.system
@posix
def test_a_full_disk_leaves_the_old_file_and_no_other(path: Path) -> None:
    """The limit on the size of files stands for it."""
    path.write_bytes(b"old")
    code = f"""
import resource, signal
from pathlib import Path
from fsm_agent.cli.private_files import write_private
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_private(Path({str(path)!r}), b"x" * 100_000)
except OSError as error:
    print(error.errno)
"""
    run = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": ROOT}
    env.pop("COVERAGE_PROCESS_CONFIG", None)  # it would write a larger file
    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == (str(errno.EFBIG), "")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["call.json"]
