"""Is the program that runs found by the name of its module, where a file names it?"""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fsm_agent import build_agent
from fsm_agent.testing import Script, registries

PROGRAM = """\
from fsm_agent import AgentBase, build_agent, function
from fsm_agent.prompts import Prompts
from fsm_agent.testing import Script, function_call

@function
def search(query: str) -> str:
    "Search."
    return f"{query}: 1879"

class Reporter(AgentBase):
    agent_type = "reporter"

prompt = Prompts()("ask")
agent = build_agent({"agent_type": "one_file:Reporter"}, client=Script(function_call("search", query="lamps"), "Told."))
answer = agent.call(prompt(task="lamps"))
print(answer.output, answer.function_calls[0].result, type(agent) is Reporter)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "ask.md").write_text('+++\nfunctions = ["one_file:search"]\n+++\nFind: {{ task }}\n')
    (tmp_path / "one_file.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with registries():
        yield tmp_path / "one_file.py"


@pytest.mark.parametrize("as_module", [False, True])
def test_a_program_of_one_file_names_itself_in_its_files(program, as_module, capsys):
    if as_module:
        runpy.run_module("one_file", run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(program), run_name="__main__")
    assert capsys.readouterr().out == "Told. lamps: 1879 True\n"
    assert "one_file" not in sys.modules


def test_a_program_without_a_file_finds_a_module_by_its_name(program, monkeypatch):
    (program.parent / "beside.py").write_text(
        "from fsm_agent import AgentBase\n\nclass Reporter(AgentBase):\n    system = 'Tell.'\n"
    )
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # as at a prompt
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    assert type(build_agent({"agent_type": "beside:Reporter"}, client=Script())).__module__ == "beside"


@pytest.mark.system
@pytest.mark.parametrize("words", [["one_file.py"], ["-m", "one_file"]])
def test_python_runs_it(program, words):
    done = subprocess.run([sys.executable, *words], cwd=program.parent, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("Told. lamps: 1879 True\n", 0)
