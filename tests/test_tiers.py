"""Does the gate refuse tests that are not deterministic, and leave them to the other tiers?"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system
CONFTEST = "import tiers\npytest_plugins = ['tiers']\n"
SETTINGS = "[tool.pytest.ini_options]\nmarkers = ['system', 'nightly']\npythonpath = ['tests']\n"
BODIES = {
    "sleep": "import time\n{mark}\ndef test_it():\n    time.sleep(0.02)\n",
    "sleep in a task": "import asyncio\n{mark}\ndef test_it():\n    asyncio.run(asyncio.sleep(0.02))\n",
    "sleep in a thread": (
        "import threading\nfrom time import sleep\n{mark}\ndef test_it():\n"
        "    thread = threading.Thread(target=sleep, args=(0.02,))\n    thread.start()\n    thread.join()\n"
    ),
    "sleep of the package in a thread": (
        "import threading\nfrom fsm_agent.runtime import SystemClock\n{mark}\ndef test_it():\n"
        "    thread = threading.Thread(target=SystemClock().sleep, args=(0.02,))\n"
        "    thread.start()\n    thread.join()\n"
    ),
    "process": "import subprocess\n{mark}\ndef test_it():\n    subprocess.run(['true'])\n",
    "port": "import socket\n{mark}\ndef test_it():\n    with socket.socket() as s:\n        s.bind(('127.0.0.1', 0))\n",
    "port of a fixture that is shared": (
        "import socket\n@pytest.fixture(scope='module')\ndef port():\n    with socket.socket() as s:\n"
        "        s.bind(('127.0.0.1', 0))\n        yield s\n{mark}\ndef test_it(port):\n    assert port\n"
    ),
    "bound": (
        "import time\n{mark}\ndef test_it():\n    began = time.monotonic()\n"
        "    took = time.monotonic() - began\n    assert took < 5\n"
    ),
}


def ran(folder: Path, body: str, mark: str) -> tuple[int, str]:
    tests = folder / "tests"
    tests.mkdir()
    shutil.copy(Path(__file__).with_name("tiers.py"), tests)
    (tests / "conftest.py").write_text(CONFTEST)
    (folder / "pyproject.toml").write_text(SETTINGS)
    (tests / "test_it.py").write_text("import pytest\n" + body.replace("{mark}", mark))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:fsm_agent"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", BODIES)
def test_the_gate_refuses(kind: str, tmp_path: Path) -> None:
    code, said = ran(tmp_path, BODIES[kind], "")
    assert code == 1
    assert f"the gate has no {kind.partition(' ')[0]}" in said


@pytest.mark.parametrize("tier", ["system", "nightly"])
def test_other_tiers_may(tier: str, tmp_path: Path) -> None:
    assert ran(tmp_path, BODIES["sleep"], f"@pytest.mark.{tier}")[0] == 0
