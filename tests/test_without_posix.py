"""Does it work where locks of files, forks and most signals are missing, as they are on Windows?

It is simulated: the names are gone, and the system beneath is still this one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import without_posix
from support.paths import ROOT

pytestmark = pytest.mark.nightly

POSIX_ONLY = {  # whole modules that a system without POSIX does not load, and the error of those who ask for them
    "fsm_agent.clients.local.child": "the small server of the embedded model",
}
EVERY_MODULE = f"""
import importlib, pkgutil, fsm_agent
for info in pkgutil.walk_packages(fsm_agent.__path__, "fsm_agent."):
    if not info.name.endswith("__main__") and info.name not in {[*POSIX_ONLY]}:
        importlib.import_module(info.name)
print("imported")
"""
A_CALL_AND_A_FLOW = """
import asyncio
from fsm_agent import Agent, function
from fsm_agent.flows import Flow, end, execute, into
from fsm_agent.testing import Script, function_call

@function(timeout_s=5)
def add(a: int, b: int) -> int:
    "Add."
    return a + b

@execute
def twice(x: int) -> int:
    return 2 * x

agent = Agent(Script(function_call("add", a=1, b=2), "3", function_call("add", a=1, b=2), "3"), functions=[add])
print(agent.call("1 + 2?").output, asyncio.run(agent.acall("1 + 2?")).output)
doubling = Flow("doubling", int, start=twice, rows=[twice.done(end("over"), do=lambda x, y: y)])
print(doubling.call(4).output)
"""
A_RUN = """
import sys
from fsm_agent import Agent, Approved, CallSuspended, Worker, function
from fsm_agent.testing import Script, function_call

@function(needs_approval=True)
def refund(order: str) -> str:
    "Pay back."
    return "paid"

shop = Agent(Script(function_call("refund", order="A")) if "begin" in sys.argv else Script("Done."), functions=[refund],
             name="shop", store="runs.db")
if "begin" in sys.argv:
    try:
        shop.call("Refund A.", run_id="r")
    except CallSuspended as waiting:
        print("waits for", *[effect.key for effect in waiting.call.effects])
elif "work" in sys.argv:
    shop.runs.all.answer("r", {"ask:1.0": Approved()})
    Worker([shop], shop.runs.all).run(once=True)
    print(shop.runs.resume("r").output)
"""
A_SNAPSHOT_AND_A_PICTURE = """
from pathlib import Path
from fsm_agent.diagrams import call_diagram, write
from fsm_agent.cli.private_files import write_private
write_private(Path("kept.json"), b"1")
write_private(Path("kept.json"), b"2")
write(call_diagram(), "life.mmd")
print(Path("kept.json").read_text(), Path("life.mmd").exists(), [path.name for path in Path().glob(".*")])
"""


def run(program: str, folder: Path, *arguments: str) -> str:
    file = folder / "program.py"
    file.write_text(program, "utf-8")
    command = [sys.executable, without_posix.__file__, str(file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_simulated_is_there_otherwise():
    """A name that is misspelt would simulate nothing."""
    names = "print([n for n in OF_OS if not hasattr(os, n)], [n for n in OF_SIGNAL if not hasattr(signal, n)])"
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); from support.without_posix import *; {names}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


def test_every_module_can_be_imported(tmp_path):
    assert run(EVERY_MODULE, tmp_path) == "imported\n"


def test_a_call_and_a_flow_run_under_both_drivers(tmp_path):
    assert run(A_CALL_AND_A_FLOW, tmp_path) == "3 3\n8\n"


def test_a_run_waits_on_disk_and_a_worker_continues_it(tmp_path):
    assert run(A_RUN, tmp_path, "begin") == "waits for ask:1.0\n"
    assert run("from fsm_agent.cli import main\nmain()\n", tmp_path, "runs", "list", "--store", "runs.db")
    assert run(A_RUN, tmp_path, "work") == "Done.\n"


def test_files_are_replaced_without_locks(tmp_path):
    assert run(A_SNAPSHOT_AND_A_PICTURE, tmp_path) == "2 True []\n"
