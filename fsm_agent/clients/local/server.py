"""Runs the embedded model's server in a child process that this process owns.

The engine can hang or crash its process, with requests in flight or after `fork`, so it runs in a child.  All callers
in one process share one child per model:

- It serves OpenAI's API on loopback and requires a random key, which it reads from its stdin.
- It ends when its stdin closes: by `close`, at exit, or by the system when this process dies.
- It has its own session, so Ctrl-C in a terminal reaches only this process.
- A forked process owns no server: servers that it inherited are closed, and `local_server` starts a new one.
- A child that died is replaced at the next call to `local_server`, so call that function whenever you need the server.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import IO

from fsm_agent._internal.system import at_fork
from fsm_agent.clients.local.hub import is_hub_name
from fsm_agent.clients.local.model import (
    ERROR_TAIL_CHARS,
    SMOLLM2,
    Progress,
    Say,
    cache_directory,
    fetch_model,
    find_model,
    named_model,
)
from fsm_agent.errors import ConfigError, FsmAgentError, ProviderError, TimedOut

ENGINE = "xllamacpp>=2026.10.11549,<2027"
CONTEXT_TOKENS = 4096
START_TIMEOUT_S = 120.0
CLOSE_TIMEOUT_S = 2.0


class LocalServer:
    """A child process that serves one model.

    It starts when the object is made.  It ends when `close` is called, when the last reference to the object is gone,
    or when this process ends.  Use `local_server` to share one server.

    Attributes:
        base_url: `http://127.0.0.1:<port>/v1`.
        api_key: The key that every request needs, which never appears in a repr or an error.
        model: The model's name in requests.
        pid: The child's process id.

    Raises:
        ConfigError: If the engine is missing, has an unsupported version, or cannot load the model.
        ProviderError: If the child died or hung (`TimedOut`) while starting.
    """

    def __init__(self, model_file: Path) -> None:
        self.model, template = model_file.stem, None
        if SMOLLM2.is_at(model_file):  # the model's own template drops the tools
            self.model, template = SMOLLM2.alias, Path(__file__).with_name("smollm2-tools.jinja").read_text("utf-8")
        self.api_key = secrets.token_urlsafe(32)
        config = {
            "model": str(model_file),
            "alias": self.model,
            "api_key": self.api_key,
            "context_tokens": CONTEXT_TOKENS,
            "chat_template": template,
        }
        with tempfile.TemporaryFile(buffering=0) as errors:
            with _locks.spawning:
                self._process = _spawn(errors)
                self._finalizer = weakref.finalize(self, _end, self._process)
                _owned.add(self)
            self.pid = self._process.pid
            try:
                self.base_url = self._start(config, errors)
            except BaseException:
                self._finalizer()
                raise

    def _start(self, config: dict[str, object], errors: IO[bytes]) -> str:
        to_child, from_child = self._process.stdin, self._process.stdout
        assert to_child is not None
        assert from_child is not None
        report: dict[str, str] = {}
        deadline = time.monotonic() + START_TIMEOUT_S
        timer = threading.Timer(START_TIMEOUT_S, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # the child is dead; its report or its stderr says why
                to_child.write(json.dumps(config).encode() + b"\n")
            for line in iter(from_child.readline, b""):
                if line.startswith(b"{"):  # the interpreter's start-up files may print lines too
                    report = json.loads(line)
                    break
        finally:
            timer.cancel()
            timer.join()
        from_child.close()
        if "base_url" in report:
            return report["base_url"]
        self._finalizer()
        if time.monotonic() >= deadline:
            raise TimedOut(f"local model {self.model!r}: the server did not start in {START_TIMEOUT_S:g} s")
        raise self._failure(report, errors)

    def _failure(self, report: dict[str, str], errors: IO[bytes]) -> FsmAgentError:
        size = errors.seek(0, os.SEEK_END)
        errors.seek(max(0, size - 2 * ERROR_TAIL_CHARS))  # read more than is shown, so that no half of a key remains
        tail = errors.read().decode(errors="replace").replace(self.api_key, "***").strip()[-ERROR_TAIL_CHARS:]
        detail = report.get("detail", "")
        match report.get("error"):
            case "engine missing":
                return _no_engine(detail)
            case "engine mismatch":
                return ConfigError(f"the engine has an unsupported version, {detail}; run: pip install '{ENGINE}'")
            case "model refused":
                return ConfigError(f"local model {self.model!r} cannot be loaded: {detail}\n{tail}".strip())
        end = _exit_text(self._process.returncode)
        return ProviderError(f"local model {self.model!r}: the server ended with {end} while starting\n{tail}".strip())

    @property
    def alive(self) -> bool:
        """True if the child is running and belongs to this process."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the child, even if requests are in flight.

        It is safe to call this repeatedly, from any thread, and after a fork.
        """
        self._finalizer()

    def _disown(self) -> None:
        """After a fork, forget the parent's child and close its pipes here, so that the child ends with the parent."""
        _close_pipes(self._process)
        self._process.returncode = 0  # nothing to wait for, and Popen's lock may stay locked forever

    def __repr__(self) -> str:
        return f"<LocalServer {self.model!r} pid={self.pid} {'alive' if self.alive else 'ended'}>"


def _spawn(errors: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", str(Path(__file__).with_name("child.py"))]  # -P: our modules would hide libraries
    try:
        return subprocess.Popen(
            command,
            bufsize=0,  # unbuffered, so that after a fork the copy has nothing to flush
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
        )
    except OSError as error:
        raise ProviderError(f"cannot start the local model's server with {sys.executable!r}: {error}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    _close_pipes(process)
    try:
        process.wait(CLOSE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _no_engine(detail: str) -> ConfigError:
    return ConfigError(f"the local model needs its engine ({detail}); run: pip install 'fsm-agent[local]'")


def check_engine() -> None:
    """Check that the engine is installed.

    Raises:
        ConfigError: If the engine is not installed.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise _no_engine("No module named 'xllamacpp'")


def _exit_text(returncode: int) -> str:
    if returncode >= 0:
        return f"status {returncode}"
    hint = "; this CPU may lack AVX2" if -returncode == signal.SIGILL else ""
    return f"signal {-returncode} ({signal.strsignal(-returncode)}{hint})"


class _Locks:
    """Two locks, which must be taken in the order below.

    A forked child makes new ones, because other threads may have held these.
    """

    def __init__(self) -> None:
        self.starting = threading.Lock()  # held while `local_server` finds or starts a server
        self.spawning = threading.RLock()  # prevents a fork before `_owned` knows a new child


_locks = _Locks()
_owned: weakref.WeakSet[LocalServer] = weakref.WeakSet()
_shared: dict[str, LocalServer] = {}


def local_server(
    model_path: str | None = None, *, say: Say | None = None, progress: Progress | None = None
) -> LocalServer:
    """Return a model's running server, which this whole process shares.

    Fetch the model and start the server if needed.

    This call blocks: starting takes about half a second, and fetching takes longer.  It is thread-safe.  For the
    arguments, see `find_model` and `fetch_model`.  If the caller did not name the model, the model's file is verified
    first, and fetched again if damaged.

    Raises:
        ConfigError: If the model or the engine is missing or unusable.
        ProviderError: If the server could not be started.
    """
    with _locks.starting:
        name = named_model(model_path)
        is_of_hub = name is not None and is_hub_name(name)
        if is_of_hub and (server := _shared.get(str(name))) is not None and server.alive:
            return server  # each request gets here, and looking through the Hub's cache may be slow
        path = find_model(model_path)
        key = os.path.realpath(path or cache_directory() / SMOLLM2.file_name)
        server = _shared.get(key)
        if server is None or not server.alive:
            if path is None:
                check_engine()
            if path is None or not (name is not None or SMOLLM2.is_intact_at(path)):
                path = fetch_model(say=say, progress=progress)
            if server is not None:
                server.close()
            server = _shared[key] = LocalServer(path)
        if is_of_hub:
            _shared[str(name)] = server
        return server


def _forget_parents_servers() -> None:
    global _locks
    _locks = _Locks()
    for server in list(_owned):
        server._disown()


at_fork(
    before=lambda: _locks.spawning.acquire(),
    after_in_parent=lambda: _locks.spawning.release(),
    after_in_child=_forget_parents_servers,
)
