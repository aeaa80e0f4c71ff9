"""Are models of the Hub found, chosen, fetched once, checked, and removed, and does each fault say what to do?"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hub_server import REVISION, HubServer

from fsm_agent.clients.local import hub, model
from fsm_agent.errors import ConfigError

pytestmark = pytest.mark.skipif(not hub.is_installed(), reason="no huggingface_hub: pip install 'fsm-agent[hub]'")

SMALL = b"GGUF" + bytes(range(256)) * 40
CHUNK = 10 * 1024 * 1024  # what huggingface_hub writes at once
REPOS = {
    "o/one": {"one.Q8_0.gguf": SMALL, "README.md": b"#"},
    "o/many": {
        "many-q4_k_m.gguf": SMALL + b"4",
        "many-q4_k_s.gguf": SMALL + b"S",
        "many-q8_0.gguf": SMALL + b"8",
        "many-fp16-00001-of-00002.gguf": SMALL,
        "mmproj-many-q4_k_m.gguf": SMALL,
    },
    "o/odd": {"a.gguf": SMALL, "b.gguf": SMALL + b"b"},
    "o/parts": {"p-q4_k_m-00001-of-00002.gguf": SMALL, "p-q4_k_m-00002-of-00002.gguf": SMALL},
    "o/large": {"large.Q4_K_M.gguf": b"GGUF" + os.urandom(CHUNK + CHUNK // 2)},
    "o/none": {"weights.gguf": b"PK" + SMALL},
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer(REPOS) as running:
        yield running


class Fetches:
    """Fetches from a server, and keeps what is said."""

    def __init__(self, server: HubServer) -> None:
        self.server = server
        self.said: list[str] = []
        self.progress: list[tuple[int, int]] = []

    def __call__(self, name: str) -> Path:
        progress = self.progress
        return hub.fetch(
            hub.hub_model(name),
            say=self.said.append,
            progress=lambda *at: progress.append(at),
            endpoint=self.server.url,
        )


@pytest.fixture
def fetched(server: HubServer) -> Fetches:
    return Fetches(server)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF", hub.HubModel("Qwen/Qwen2.5-0.5B-Instruct-GGUF")),
        ("hf:o/r:Q4_K_M", hub.HubModel("o/r", "Q4_K_M")),
        ("hf:o/r:sub/model-q8_0.gguf", hub.HubModel("o/r", "sub/model-q8_0.gguf")),
    ],
)
def test_a_name_says_repository_and_file(name: str, parsed: hub.HubModel):
    assert hub.hub_model(name) == parsed
    assert str(parsed) == name


@pytest.mark.parametrize(
    "name", ["hf:", "hf:o", "hf:o/", "hf:/r", "hf:o/r/x", "hf:o/..", "hf:o/r:../x", "hf:o/r:/x", "hf:o /r", "o/r"]
)
def test_what_names_nothing_is_refused(name: str):
    with pytest.raises(ConfigError, match=re.escape(repr(name))):
        hub.hub_model(name)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("hf:o/one", "one.Q8_0.gguf"),
        ("hf:o/many", "many-q4_k_m.gguf"),
        ("hf:o/many:Q4_K_S", "many-q4_k_s.gguf"),
        ("hf:o/many:many-q8_0.gguf", "many-q8_0.gguf"),
        ("hf:o/odd:b.gguf", "b.gguf"),
    ],
)
def test_the_file_that_is_meant_is_fetched_once(fetched: Fetches, name: str, file: str):
    path = fetched(name)
    assert path.name == file
    assert path.read_bytes() == REPOS[hub.hub_model(name).repo][file]
    assert fetched.said == [f"Fetching {file} (0 MB) from {hub.hub_model(name).repo}"]
    assert fetched.progress[-1] == (path.stat().st_size, path.stat().st_size)
    assert hub.find_cached(hub.hub_model(name)) == path
    before = len(fetched.server.requests)
    assert fetched(name) == path
    assert [method for method, *_ in fetched.server.requests[before:] if method == "GET"] == ["GET"]  # of the list


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("hf:o/many:Q2_K", "'many-q4_k_m.gguf', 'many-q4_k_s.gguf'"),
        ("hf:o/odd", "'a.gguf', 'b.gguf'"),
        ("hf:o/parts", "'o/parts'"),
        ("hf:o/unknown", "HF_TOKEN"),
        ("hf:o/none", "'weights.gguf'"),
    ],
)
def test_what_cannot_be_fetched_says_why(fetched: Fetches, name: str, named: str):
    with pytest.raises(ConfigError) as raised:
        fetched(name)
    assert named in str(raised.value)
    assert hub.find_cached(hub.hub_model(name)) is None


@pytest.mark.parametrize(
    "listing",
    [
        b"null",
        b"{}",
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"id": "o/one", "siblings": [{"rfilename": null}]}',
        b'{"id": "o/one", "siblings": [{"rfilename": "a.gguf", "size": "x"}]}',
        b'{"id": "o/one", "sha": 1, "siblings": [{"rfilename": "a.gguf"}]}',
    ],
)
def test_what_is_no_hub_is_named(fetched: Fetches, listing: bytes):
    fetched.server.listing = listing
    with pytest.raises(ConfigError, match="HF_ENDPOINT"):
        fetched("hf:o/one")


def test_without_a_network_the_error_is_clear():
    with pytest.raises(ConfigError, match="'hf:o/one'"):
        hub.fetch(hub.hub_model("hf:o/one"), say=str, progress=lambda *_: None, endpoint="http://127.0.0.1:9")


@pytest.mark.system
def test_a_download_that_broke_off_goes_on_where_it_ended(fetched: Fetches):
    fetched.server.breaks_after_bytes = CHUNK + 1000
    path = fetched("hf:o/large")
    assert path.read_bytes() == REPOS["o/large"]["large.Q4_K_M.gguf"]
    gets = [span for method, where, span in fetched.server.requests if method == "GET" and "/resolve/" in where]
    assert gets == ["", f"bytes={CHUNK}-"]
    done = [at for at, _ in fetched.progress]
    assert done == sorted(done)


def test_a_damaged_file_is_removed_and_named(fetched: Fetches):
    fetched.server.damages = True
    with pytest.raises(ConfigError, match=r"'one\.Q8_0\.gguf'"):
        fetched("hf:o/one")
    assert hub.find_cached(hub.hub_model("hf:o/one")) is None
    fetched.server.damages = False
    assert fetched("hf:o/one").read_bytes() == SMALL


def everything_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("etag", ["../../../dear", "../../../victim", "..", "/etc/victim", "x" * 64, "A" * 40])
def test_a_hub_that_states_a_path_for_a_checksum_is_refused(fetched: Fetches, cache: Path, tmp_path: Path, etag: str):
    (tmp_path / "dear").write_bytes(b"GGUF, and dear")
    before = everything_in(tmp_path) | {cache}
    fetched.server.etag = etag
    with pytest.raises(ConfigError, match="ETag"):
        fetched("hf:o/one")
    assert everything_in(tmp_path) <= before
    assert (tmp_path / "dear").read_bytes() == b"GGUF, and dear"


@pytest.mark.parametrize("commit", ["../../../../pwn", "main", "a" * 41])
def test_a_hub_that_states_a_path_for_a_commit_is_refused(fetched: Fetches, tmp_path: Path, commit: str):
    before = everything_in(tmp_path)
    fetched.server.commit = commit
    with pytest.raises(ConfigError, match=r"revision|commit"):
        fetched("hf:o/one")
    fetched.server.listing = json.dumps(
        {"id": "o/one", "sha": REVISION, "siblings": [{"rfilename": "one.Q8_0.gguf"}]}
    ).encode()
    with pytest.raises(ConfigError, match="commit"):
        fetched("hf:o/one")
    assert everything_in(tmp_path) == before


def test_a_name_of_a_file_cannot_command_the_terminal(fetched: Fetches):
    fetched.server.repos = {"o/odd": {"m\x1b[31m\u202e.gguf": SMALL}}
    fetched("hf:o/odd")
    assert all(line.isprintable() for line in fetched.said)


def test_what_is_in_the_cache_is_listed_and_removed(fetched: Fetches, cache: Path):
    assert [*hub.cached_models()] == []
    for name in ("hf:o/many", "hf:o/many:Q8_0", "hf:o/one"):
        fetched(name)
    assert [str(one.model) for one in hub.cached_models()] == [
        "hf:o/many:many-q4_k_m.gguf",
        "hf:o/many:many-q8_0.gguf",
        "hf:o/one:one.Q8_0.gguf",
    ]
    assert [str(gone.model) for gone in hub.remove(hub.hub_model("hf:o/many:q8_0"))] == ["hf:o/many:many-q8_0.gguf"]
    assert {str(one.model) for one in hub.cached_models()} == {"hf:o/many:many-q4_k_m.gguf", "hf:o/one:one.Q8_0.gguf"}
    hub.remove(hub.hub_model("hf:o/many"))
    assert [str(one.model) for one in hub.cached_models()] == ["hf:o/one:one.Q8_0.gguf"]
    blobs = [*cache.glob("models--o--many/blobs/*")]
    assert blobs == []
    with pytest.raises(ConfigError, match="'hf:o/many'"):
        hub.remove(hub.hub_model("hf:o/many"))


def test_a_token_reaches_the_hub_and_no_error(fetched: Fetches, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "hf_verysecrettoken")
    with pytest.raises(ConfigError) as raised:
        fetched("hf:o/unknown")
    assert "Bearer hf_verysecrettoken" in fetched.server.tokens
    assert "verysecret" not in str(raised.value)


def test_a_model_of_the_hub_is_found_by_name(fetched: Fetches, monkeypatch: pytest.MonkeyPatch):
    assert model.find_model("hf:o/one") is None
    path = fetched("hf:o/one")
    assert model.find_model("hf:o/one") == path
    monkeypatch.setenv("FSM_AGENT_LOCAL_MODEL", "hf:o/one")
    assert model.find_model() == path


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "huggingface_hub" else real(name))
    assert model.find_model("hf:o/one") is None
    with pytest.raises(ConfigError, match=r"run: pip install 'fsm-agent\[hub\]'"):
        hub.fetch(hub.hub_model("hf:o/one"), say=str, progress=lambda *_: None)
