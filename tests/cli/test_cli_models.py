"""Do the commands of models list and find the contents of the Hub's cache, and say how to fetch the rest?"""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path

import pytest
from command_line import ran, refused

FILES = {
    "o/one": ("one.Q8_0.gguf", "README.md"),
    "o/many": (
        "many-q4_k_m.gguf",
        "many-q4_k_s.gguf",
        "many-q8_0.gguf",
        "many-fp16-00001-of-00002.gguf",
        "mmproj-many-q4_k_m.gguf",
    ),
    "o/odd": ("a.gguf", "deep/b.gguf"),
    "o/page": ("page.gguf",),
}


@pytest.fixture(autouse=True)
def cache(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Hub's cache with these files, as ``hf download`` leaves them."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="pip install 'fsm-agent[hub]'")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(here / "hub"))
    monkeypatch.delenv("FSM_AGENT_LOCAL_MODEL", raising=False)
    for repo, names in FILES.items():
        folder = here / "hub" / f"models--{repo.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text("a" * 40)
        for name in names:
            file = folder / "snapshots" / ("a" * 40) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"<html>" if repo == "o/page" else b"GGUF" + name.encode())
    return here / "hub"


def test_what_is_in_the_cache_is_listed_beside_what_is_recommended(cache: Path):
    listed = json.loads(ran("models", "--json").stdout)
    here = {row["name"]: row for row in listed["here"]}
    models = {f"local:hf:{repo}:{name}" for repo, names in FILES.items() for name in names}
    split, picture, page = ("local:hf:o/many:many-fp16-0", "local:hf:o/many:mmproj", "local:hf:o/one:README")
    assert {name for name in here if name.startswith("local:hf:")} == {
        name for name in models if not name.startswith((split, picture, page))
    }
    one = here["local:hf:o/one:one.Q8_0.gguf"]
    assert (Path(one["path"]).read_bytes(), one["size_bytes"]) == (b"GGUFone.Q8_0.gguf", 17)
    shown = ran("models").stdout
    for row in listed["recommended"]:
        repo = row["name"].removeprefix("hf:").partition(":")[0]
        assert f"local:{row['name']}\n" in shown
        assert f"hf download {repo} --include " in shown
    assert "local:hf:o/one:one.Q8_0.gguf  0 MB\n" in shown


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("hf:o/one", "one.Q8_0.gguf"),
        ("local:hf:o/many", "many-q4_k_m.gguf"),
        ("hf:o/many:Q4_K_S", "many-q4_k_s.gguf"),
        ("hf:o/many:many-q8_0.gguf", "many-q8_0.gguf"),
        ("hf:o/odd:deep/b.gguf", "deep/b.gguf"),
    ],
)
def test_the_file_that_is_meant_is_found(name: str, file: str):
    assert Path(ran("models", name).stdout.strip()).read_bytes() == b"GGUF" + file.encode()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf:o/none", ["o/none", "--include", "*Q4_K_M.gguf", "--include", "*q4_k_m.gguf"]),
        ("hf:o/many:q2_k", ["o/many", "--include", "*Q2_K.gguf", "--include", "*q2_k.gguf"]),
        ("hf:o/one:two.gguf", ["o/one", "two.gguf"]),
    ],
)
def test_what_is_not_there_is_fetched_by_the_command_that_is_named(name: str, words: list[str]):
    for command in (["models", name], ["ask", "?", "--model", f"local:{name}"]):
        told = refused(*command)
        assert repr(name) in told
        assert shlex.split(told.partition("run: ")[2]) == ["hf", "download", *words]


def test_a_name_that_may_mean_several_files_is_not_guessed():
    assert "'a.gguf', 'deep/b.gguf'" in refused("models", "hf:o/odd")


@pytest.mark.parametrize(
    "name", ["hf:", "hf:o", "hf:o/", "hf:/r", "hf:o/r/x", "hf:o/..", "hf:o/r:../x", "hf:o/r:/x", "hf:o /r", "o/r"]
)
def test_what_names_nothing_on_the_hub_is_refused(name: str):
    assert repr(name) in refused("models", name)


def test_a_model_of_the_cache_may_be_the_usual_one(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FSM_AGENT_LOCAL_MODEL", "hf:o/one")
    names = [row["name"] for row in json.loads(ran("models", "--json").stdout)["here"]]
    assert names.count("local:hf:o/one:one.Q8_0.gguf") == 1
    assert "local:" not in names


def test_what_was_downloaded_and_is_no_model_is_named():
    assert "page.gguf" in refused("ask", "?", "--model", "local:hf:o/page")


def test_without_the_extra_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "huggingface_hub" else real(name))
    assert "fsm-agent[hub]" in refused("models", "hf:o/one")
    assert json.loads(ran("models", "--json").stdout)["recommended"]
