"""Do the commands of models list and find the contents of the Hub's cache, and say how to fetch the rest?"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from command_line import ran, refused
from support.hub_cache import FILES, fill_cache


@pytest.fixture(autouse=True)
def cache(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Hub's cache with these files, as ``hf download`` leaves them."""
    monkeypatch.delenv("FSM_AGENT_LOCAL_MODEL", raising=False)
    return fill_cache(here / "hub", monkeypatch)


def test_what_is_in_the_cache_is_listed_beside_what_is_recommended(cache: Path):
    shown = ran("models").stdout
    here = {line.split()[0] for line in shown.splitlines() if line.endswith(" MB")}
    models = {f"local:hf:{repo}:{name}" for repo, names in FILES.items() for name in names}
    split, picture, page = ("local:hf:o/many:many-fp16-0", "local:hf:o/many:mmproj", "local:hf:o/one:README")
    assert {name for name in here if name.startswith("local:hf:")} == {
        name for name in models if not name.startswith((split, picture, page))
    }
    recommended = re.findall(r"^local:hf:([^:]+):", shown.partition("recommended:")[2], re.MULTILINE)
    assert len(recommended) == 3
    for repo in recommended:
        assert f"hf download {repo} --include " in shown
    assert "local:hf:o/one:one.Q8_0.gguf  0 MB\n" in shown


def test_the_file_that_is_meant_is_found():
    assert Path(ran("models", "hf:o/many").stdout.strip()).read_bytes() == b"GGUFmany-q4_k_m.gguf"


@pytest.mark.parametrize("command", [["models", "hf:o/none"], ["ask", "?", "--model", "local:hf:o/none"]])
def test_what_is_not_there_is_fetched_by_the_command_that_is_named(command: list[str]):
    assert "run: hf download o/none --include " in refused(*command)


def test_a_model_of_the_cache_may_be_the_usual_one(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FSM_AGENT_LOCAL_MODEL", "hf:o/one")
    shown = ran("models").stdout.partition("recommended:")[0]
    assert shown.count("local:hf:o/one:one.Q8_0.gguf") == 1
    assert "local: " not in shown


def test_what_was_downloaded_and_is_no_model_is_named():
    assert "page.gguf" in refused("ask", "?", "--model", "local:hf:o/page")


def test_without_the_extra_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "fsm-agent[hub]" in refused("models", "hf:o/one")
    assert "hf download " in ran("models").stdout
