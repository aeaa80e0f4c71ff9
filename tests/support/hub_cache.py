"""A cache of the Hugging Face Hub, as ``hf download`` leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def fill_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder the Hub's cache for one test, with `FILES`.  Return it."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="pip install 'fsm-agent[hub]'")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    for repo, names in FILES.items():
        cached = folder / f"models--{repo.replace('/', '--')}"
        (cached / "refs").mkdir(parents=True)
        (cached / "refs" / "main").write_text("a" * 40)
        for name in names:
            file = cached / "snapshots" / ("a" * 40) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"<html>" if repo == "o/page" else b"GGUF" + name.encode())
    return folder
