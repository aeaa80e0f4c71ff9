"""A real Chromium, driven by playwright, and a server of the inspector on loopback."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from fsm_agent.store import Runs

PROGRAM = shutil.which("chromium")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
MISSING = (
    "Chromium is not installed (Debian: chromium)"
    if PROGRAM is None
    else "playwright is not installed (PyPI: playwright)"
    if find_spec("playwright") is None
    else ""
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(runs: Runs, **options: Any) -> Iterator[Any]:
    """The server of the command, in a thread."""
    from fsm_agent.web import inspector_server as of_command

    server = of_command.InspectorServer(of_command.Inspector(runs, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(60)
        assert not thread.is_alive()
