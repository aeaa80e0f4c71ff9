"""A Python program that runs in a thread, in place of an OS process: for the tests of the gate."""

from __future__ import annotations

import io
import itertools
import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

IMPORTS = "import os, sys, time, json\n"  # of the code, where a real Python runs it

_pids = itertools.count(2**30)  # more than any system gives: nobody else can be hurt
_ends: dict[int, int] = {}  # a file that is readable once the program has ended


class FakeProcess:
    """Stands in for `subprocess.Popen` of ``python … -c code *arguments``.

    The code has its own ``sys``, ``os``, ``json``, ``time.sleep`` and ``print``, as far as tests need them.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        env: Mapping[str, str] | None,
        **_: Any,
    ) -> None:
        if "-c" not in command:
            raise FileNotFoundError(2, "No such file or directory")
        at = list(command).index("-c")
        self.pid = next(_pids)
        into, out, err = os.dup(stdin), os.dup(stdout), os.dup(stderr)
        _ends[self.pid], self._end = os.pipe()
        self.status = 0
        self._is_over = threading.Event()
        files = io.open(into, "rb"), io.open(out, "wb", 0), io.open(err, "wb", 0)  # noqa: UP020, SIM115
        self._thread = threading.Thread(target=self._run, args=(command[at + 1], command[at + 2 :], env, files))
        self._thread.start()

    def _run(self, code: str, arguments: Sequence[str], env: Mapping[str, str] | None, files: Any) -> None:
        stdin = io.TextIOWrapper(files[0], "utf-8")
        stdout, stderr = (io.TextIOWrapper(file, "utf-8", write_through=True) for file in files[1:])
        environ = dict(os.environ if env is None else env)
        sys = SimpleNamespace(stdin=stdin, stdout=stdout, stderr=stderr, argv=["-c", *arguments], exit=_exit)
        own = {"sys": sys, "os": SimpleNamespace(environ=environ), "json": json}
        own["time"] = SimpleNamespace(sleep=self._is_over.wait)
        own["print"] = lambda *words, file=stdout: print(*words, file=file, flush=True)
        try:
            exec(code.removeprefix(IMPORTS), own)
        except SystemExit as end:
            self.status = end.code if isinstance(end.code, int) else 1
            if isinstance(end.code, str):
                stderr.write(end.code)
        except (OSError, ValueError):  # nobody listens any more, as SIGPIPE tells
            self.status = -13
        finally:
            for file in (stdin, stdout, stderr):
                with suppress(OSError, ValueError):
                    file.close()
            os.close(self._end)

    def poll(self) -> None:
        return None

    def wait(self) -> int:
        self._is_over.set()
        self._thread.join()
        os.close(_ends.pop(self.pid))
        return self.status


def _exit(status: int | str = 0) -> None:
    raise SystemExit(status)


@pytest.fixture(autouse=True)
def _no_process_in_the_gate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of tests that are not marked ``system`` are `FakeProcess`."""
    if request.node.get_closest_marker("system") is None:
        monkeypatch.setattr("subprocess.Popen", FakeProcess)
        monkeypatch.setattr(os, "pidfd_open", lambda pid: os.dup(_ends[pid]), raising=False)
