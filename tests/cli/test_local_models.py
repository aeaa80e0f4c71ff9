"""Do the commands of models fetch, show, find and remove a model of the Hub, and can it be asked?"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.hub_server import HubServer
from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.clients.local import hub

pytestmark = pytest.mark.skipif(not hub.is_installed(), reason="no huggingface_hub: pip install 'fsm-agent[hub]'")

SMALL = b"GGUF" + bytes(range(256))


@pytest.fixture(autouse=True)
def _nothing_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="fsm-agent", catch_exceptions=False)


@pytest.mark.system
def test_a_model_is_fetched_listed_found_and_removed(monkeypatch: pytest.MonkeyPatch):
    with HubServer({"o/small-GGUF": {"small-Q4_K_M.gguf": SMALL}}) as server, monkeypatch.context() as there:
        there.setattr(hub, "fetch", partial(hub.fetch, endpoint=server.url))
        fetched = run("models", "fetch", "local:hf:o/small-GGUF")
    path = Path(fetched.stdout.strip())
    assert path.read_bytes() == SMALL, fetched.stderr
    assert "Fetching small-Q4_K_M.gguf" in fetched.stderr
    assert "fsm-agent ask --model local:hf:o/small-GGUF" in fetched.stderr
    assert run("models", "path", "hf:o/small-GGUF:q4_k_m").stdout == fetched.stdout
    listed = json.loads(run("models", "list", "--json").stdout)
    name = "local:hf:o/small-GGUF:small-Q4_K_M.gguf"
    assert {"name": name, "path": str(path), "size_bytes": len(SMALL)} in listed["here"]
    assert [set(one) for one in listed["recommended"]] == [set(hub.Recommended._fields)] * 3
    removed = run("models", "remove", "hf:o/small-GGUF")
    assert removed.stdout == "removed hf:o/small-GGUF:small-Q4_K_M.gguf (0 MB)\n"
    gone = run("models", "path", "hf:o/small-GGUF")
    assert (gone.exit_code, gone.stdout) == (1, "")
    assert "is not here; to fetch it: fsm-agent models fetch hf:o/small-GGUF" in gone.stderr


def test_the_documentation_names_the_recommended_models():
    page = (Path(__file__).parents[2] / "docs" / "start.md").read_text("utf-8")
    for one in hub.RECOMMENDED:
        row = (f"`{one.name}`", f"{one.file_gb:g} GB", f"{one.memory_gb:g} GB", one.licence, one.good_for)
        assert f"| {' | '.join(row)} |\n" in page


def test_without_a_network_ask_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("xllamacpp")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    asked = run("ask", "--model", "local:hf:o/none", "hello")
    assert asked.exit_code == 1
    *_, last = asked.stderr.splitlines()
    assert "'hf:o/none' cannot be fetched: " in last
    assert "Traceback" not in asked.stderr
