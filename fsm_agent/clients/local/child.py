"""The program that runs in the child process and serves the embedded model.

It imports nothing from the package, which starts it by this file's path.  It reads one line of JSON from stdin
(`model`, `alias`, `api_key`, `context_tokens`, and `chat_template` or null), and writes one to stdout: `base_url`, or
`error` and `detail`.  It serves until the parent closes its stdin or dies.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from typing import Any

if sys.platform == "linux":
    import fcntl


def end_with_parent() -> threading.Thread:
    """End this process as soon as its stdin ends.

    A thread waits for the end, but cannot run while the engine loads a model and holds the GIL.  On Linux, the kernel
    therefore also watches the pipe: when an O_ASYNC pipe ends, the process gets SIGIO, whose default action ends it
    (fcntl(2), signal(7)).  Nothing is sent on stdin after the first line.
    """
    if sys.platform == "linux":
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO})
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
        if select.select([0], [], [], 0)[0]:
            os._exit(0)  # stdin ended before the signal was set up
    waiting = threading.Thread(target=_wait_for_end, name="stdin", daemon=True)
    waiting.start()
    return waiting


def _wait_for_end() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)  # not sys.exit: the engine's destructors hang or crash when a request is in flight


def parameters(engine: Any, config: dict[str, Any]) -> Any:
    """Return the engine's parameters: one thread, one slot, loopback, a key, no output.

    A second thread would spin at barriers.  While another process is busy, that costs nine tenths of the speed.  With
    several slots, the unified KV cache changes answers.  Both were measured with xllamacpp 2026.10.11549.
    """
    params = engine.CommonParams()
    params.model.path = config["model"]
    params.model_alias = {config["alias"]}  # otherwise replies show the file's path
    params.n_ctx = config["context_tokens"]
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [config["api_key"]]
    params.ui, params.verbosity, params.cache_ram_mib = False, 0, 0  # the prompt cache is 8 GiB by default
    if config["chat_template"] is not None:
        params.chat_template = config["chat_template"]
    return params


def serve(config: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """Start the server, and return `(server, report)`; the report is for the parent process.

    The caller must keep a reference to the server.
    """
    try:
        engine = importlib.import_module("xllamacpp")
    except ImportError as error:
        return None, {"error": "engine missing", "detail": str(error)}
    try:
        params = parameters(engine, config)
    except (AttributeError, TypeError) as error:
        version = getattr(engine, "__version__", "unknown")
        return None, {"error": "engine mismatch", "detail": f"version {version}: {error}"}
    refused = ""
    for verbosity in (0, 1):  # the exception gives no reason, so try again with the engine's errors on stderr
        params.verbosity = verbosity
        try:
            server = engine.Server(params)
            return server, {"base_url": f"{server.listening_address}/v1"}
        except (RuntimeError, ValueError) as error:
            refused = str(error)
    wait_for_log()
    return None, {"error": "model refused", "detail": refused}


def wait_for_log() -> None:
    """Wait up to a second until stderr stops growing, because exit does not wait for the engine's log thread."""
    size_bytes, deadline = 0, time.monotonic() + 1
    while time.monotonic() < deadline and (size_bytes == 0 or size_bytes != os.fstat(2).st_size):
        size_bytes = os.fstat(2).st_size
        time.sleep(0.1)


def main() -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    reports = os.dup(1)
    os.dup2(2, 1)  # output of native code must not mix with the report
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(0)  # the parent died
    waiting = end_with_parent()
    server, report = serve(json.loads(line))
    os.write(reports, json.dumps(report).encode() + b"\n")
    os.close(reports)
    if server is None:
        os._exit(1)
    waiting.join()


if __name__ == "__main__":
    main()
