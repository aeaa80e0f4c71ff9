"""Do the commands of models fetch, show, find and remove a model of the Hub, and can it be asked?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.hub_server import HubServer

from fsm_agent.clients.local import hub

pytestmark = pytest.mark.skipif(not hub.is_installed(), reason="no huggingface_hub: pip install 'fsm-agent[hub]'")

SMALL = b"GGUF" + bytes(range(256))


def run(server: HubServer | None, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    endpoint = "http://127.0.0.1:9" if server is None else server.url
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "COLUMNS": "80"}
    command = [sys.executable, "-m", "fsm_agent", *arguments]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=100)


def test_a_model_is_fetched_listed_found_and_removed(tmp_path: Path):
    with HubServer({"o/small-GGUF": {"small-Q4_K_M.gguf": SMALL}}) as server:
        fetched = run(server, tmp_path, "models", "fetch", "local:hf:o/small-GGUF")
    path = Path(fetched.stdout.strip())
    assert path.read_bytes() == SMALL, fetched.stderr
    assert "Fetching small-Q4_K_M.gguf" in fetched.stderr
    assert "fsm-agent ask --model local:hf:o/small-GGUF" in fetched.stderr
    assert run(None, tmp_path, "models", "path", "hf:o/small-GGUF:q4_k_m").stdout == fetched.stdout
    listed = json.loads(run(None, tmp_path, "models", "list", "--json").stdout)
    name = "local:hf:o/small-GGUF:small-Q4_K_M.gguf"
    assert {"name": name, "path": str(path), "size_bytes": len(SMALL)} in listed["here"]
    assert [set(one) for one in listed["recommended"]] == [set(hub.Recommended._fields)] * 3
    removed = run(None, tmp_path, "models", "remove", "hf:o/small-GGUF")
    assert removed.stdout == "removed hf:o/small-GGUF:small-Q4_K_M.gguf (0 MB)\n"
    gone = run(None, tmp_path, "models", "path", "hf:o/small-GGUF")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "is not here; to fetch it: fsm-agent models fetch hf:o/small-GGUF" in gone.stderr


def test_the_documentation_names_the_recommended_models():
    page = (Path(__file__).parents[2] / "docs" / "start.md").read_text("utf-8")
    for one in hub.RECOMMENDED:
        row = (f"`{one.name}`", f"{one.file_gb:g} GB", f"{one.memory_gb:g} GB", one.licence, one.good_for)
        assert f"| {' | '.join(row)} |\n" in page


def test_without_a_network_ask_says_so_in_one_line(tmp_path: Path):
    pytest.importorskip("xllamacpp")
    asked = run(None, tmp_path, "ask", "--model", "local:hf:o/none", "hello")
    assert asked.returncode == 1
    assert "'hf:o/none' cannot be fetched: " in asked.stderr
    assert "Traceback" not in asked.stderr
