"""Make the pictures of ``docs/inspector.md`` with Chromium: ``PYTHONPATH=tests python tools/inspector_pictures.py``."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from support.chromium import MISSING, chromium, served
from support.inspected_runs import Moving, fill, forecaster, letters, shop
from support.paths import ROOT

from fsm_agent.store import SqliteStore

FOLDER = ROOT / "docs" / "inspector"
WIDE, NARROW = {"width": 1180, "height": 720}, {"width": 390, "height": 780}
PICTURES = [  # name, path, colours, window
    ("list", "", "light", WIDE),
    ("approval", "run?id=desk-3", "light", {"width": 1180, "height": 860}),
    ("time-travel", "run?id=ticket-8#n7", "dark", {"width": 1060, "height": 800}),
    ("failure", "run?id=degrees-paris", "dark", WIDE),
    ("compare", "compare?a=degrees-rome&b=degrees-paris", "light", WIDE),
    ("narrow-list", "", "light", NARROW),
    ("narrow-run", "run?id=letter-9", "dark", NARROW),
]


def main() -> None:
    assert not MISSING, MISSING
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        clock = Moving(time.time() - 900)
        runs = fill(SqliteStore(Path(folder) / "runs.db", clock), clock)
        agents = [shop(runs), letters(runs), forecaster(runs)]
        with closing(runs), served(runs, name="runs.db", agents=agents) as server, chromium() as browser:
            for name, path, scheme, window in PICTURES:
                (FOLDER / f"{name}.png").write_bytes(_taken(browser, server, path, scheme, window))
                print(name, (FOLDER / f"{name}.png").stat().st_size)


def _taken(browser: Any, server: Any, path: str, scheme: str, window: dict[str, int]) -> bytes:
    context = browser.new_context(viewport=window, color_scheme=scheme, device_scale_factor=1)
    page = context.new_page()
    page.goto(server.url)
    page.goto(server.url.partition("?")[0] + path)
    page.wait_for_timeout(600)
    taken: bytes = page.screenshot()
    context.close()
    return taken


if __name__ == "__main__":
    main()
