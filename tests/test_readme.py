"""Is everything in the README true?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from provider_table import table
from stub_server import StubServer

from fsm_agent.registry import scoped_registry

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.strip().splitlines()[-1][:40])
def test_every_python_block_runs(block, monkeypatch, capsys):
    with StubServer(["42"] * 8) as server, scoped_registry():
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-readme")
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_the_test_of_the_readme_passes_with_the_installed_plugin(tmp_path):
    (block,) = [block for block in BLOCKS if "def test_" in block]
    (tmp_path / "test_readme_example.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fsm-coverage", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "MISSED" in done.stdout


def test_the_ci_runs_the_command_of_the_readme():
    (command,) = re.findall(r"^\[ -e \.venv/dev \].*$", README, re.MULTILINE)
    shown = (ROOT / ".ci" / "run").read_text().replace("exec bash -c", "printf '%s\\n'")
    script = re.sub(r"^if ! command.*?^fi$", "", shown, flags=re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        ["bash", "-c", script.replace('$(dirname "$0")/..', str(ROOT))], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == command


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_links_into_the_repository_lead_somewhere(link):
    assert (ROOT / link).exists()


def test_the_states_are_those_of_the_machine():
    from fsm_agent.record import State

    assert all(f"`{state}`" in README for state in State)


def test_the_table_of_providers_is_that_of_the_catalogue():
    assert table() in README
