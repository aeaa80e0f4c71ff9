"""Models from the Hugging Face Hub: ``hf:owner/repo``, ``hf:owner/repo:file.gguf`` or ``hf:owner/repo:Q4_K_M``.

They are looked up in the Hub's cache on this machine, which other programs share.  ``hf download``, a command in
`huggingface_hub` (the extra ``hub``), fetches them, and ``hf cache`` removes them.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fsm_agent.errors import ConfigError
from fsm_agent.named_objects import needing

PREFIX = "hf:"
SUFFIX = ".gguf"
QUANTIZATIONS = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0")  # in order of preference
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_NO_MODEL = re.compile(r"(^|[-_./])(mmproj|imatrix)", re.IGNORECASE)  # GGUF files that are not models
_SHOWN = 12  # how many files an error lists


class HubModel(NamedTuple):
    """A repository on the Hub, and optionally one of its files.

    Attributes:
        repo: Owner and repository, as ``owner/name``.
        file: A file's name, or a quantization that the file's name contains; "" if neither is given.
    """

    repo: str
    file: str = ""

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}" + (f":{self.file}" if self.file else "")


class CachedModel(NamedTuple):
    """A model file in the cache."""

    model: HubModel
    path: Path
    size_bytes: int


class Recommended(NamedTuple):
    """A recommended model, which is larger than the embedded one and works better.

    Attributes:
        name: The name to use after ``local:``.
        file_gb: Size of the download.
        memory_gb: Memory needed to run the model with a context of 4,096 tokens.
        licence: The licence for the weights.
        good_for: What the model is good for.
    """

    name: str
    file_gb: float
    memory_gb: float
    licence: str
    good_for: str


# Sizes and licences are from the model cards (2026-11); memory is estimated from the file and the usual context.
RECOMMENDED = (
    Recommended("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M", 0.5, 0.8, "Apache-2.0", "short answers, simple functions"),
    Recommended("hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M", 1.1, 1.6, "Apache-2.0", "functions, extraction, chat"),
    Recommended("hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", 2.5, 3.4, "Apache-2.0", "several functions, longer tasks; it reasons"),
)


def is_hub_name(name: str) -> bool:
    """Return whether ``name`` begins with ``hf:``."""
    return name.startswith(PREFIX)


def hub_model(name: str) -> HubModel:
    """Return the model named by ``hf:owner/repo[:file]``.

    Raises:
        ConfigError: If the name has another form.
    """
    repo, _, file = name.removeprefix(PREFIX).partition(":")
    owner, slash, rest = repo.partition("/")
    if not is_hub_name(name) or not (owner and slash and rest) or "/" in rest or _is_odd(repo) or _is_odd(file):
        raise ConfigError(f"the local model: expected 'hf:owner/repo' or 'hf:owner/repo:Q4_K_M', got {name!r:.80}")
    return HubModel(repo, file)


def _is_odd(part: str) -> bool:
    """Return whether a string cannot be a name on the Hub, for example a path that leads out of a directory."""
    return ".." in part or part.startswith("/") or re.search(r"[^\w./+-]", part) is not None


def find_cached(model: HubModel) -> Path:
    """Return a model's file in the cache, without using the network.

    Raises:
        ConfigError: If the file is not in the cache, the name matches several files, or `huggingface_hub` is not
            installed.
    """
    found = {one.model.file: one.path for one in cached_models() if one.model.repo == model.repo}
    name = _choose_file(model, found) if found else None
    if name is None:
        raise ConfigError(f"{str(model)!r} is not in the Hub's cache; run: {command_to_fetch(model)}")
    return found[name]


def command_to_fetch(model: HubModel) -> str:
    """Return the command that downloads a model into the cache."""
    if model.file.lower().endswith(SUFFIX):
        return f"hf download {model.repo} {shlex.quote(model.file)}"
    quantization = model.file or QUANTIZATIONS[0]
    patterns = dict.fromkeys(f"*{word}{SUFFIX}" for word in (quantization.upper(), quantization.lower()))
    return shlex.join(["hf", "download", model.repo, *[word for one in patterns for word in ("--include", one)]])


def cached_models() -> Iterator[CachedModel]:
    """Yield the GGUF models in the cache, in their newest revisions.

    Raises:
        ConfigError: If `huggingface_hub` is not installed.
    """
    with needing("hub", "a model of the Hub"):
        import huggingface_hub
        from huggingface_hub import errors as hub_errors

    try:
        repos = huggingface_hub.scan_cache_dir(huggingface_hub.constants.HF_HUB_CACHE).repos
    except hub_errors.CacheNotFound:
        return
    for repo in sorted(repos, key=lambda repo: repo.repo_id):
        seen = set()
        for revision in sorted(repo.revisions, key=lambda revision: revision.last_modified, reverse=True):
            for file in sorted(revision.files, key=lambda file: str(file.file_path)):
                name = file.file_path.relative_to(revision.snapshot_path).as_posix()
                if repo.repo_type == "model" and _is_model(name) and name not in seen:
                    seen.add(name)
                    yield CachedModel(HubModel(repo.repo_id, name), file.file_path, file.size_on_disk)


def _choose_file(model: HubModel, files: Iterable[str]) -> str | None:
    names = sorted(files)
    if model.file in names:
        return model.file
    if model.file:
        meant = [name for name in names if _is_quantized(name, model.file)]
    else:
        meant = next((some for q in QUANTIZATIONS if (some := [n for n in names if _is_quantized(n, q)])), names)
    if len(meant) > 1:
        raise ConfigError(f"{str(model)!r} may mean any of {_list_names(meant)}; name one of these files behind ':'")
    return meant[0] if meant else None


def _is_quantized(file: str, quantization: str) -> bool:
    """Return whether a file's name contains a quantization as a word, in upper or lower case."""
    return re.search(rf"(?i)(?<![a-z0-9]){re.escape(quantization)}(?![a-z0-9_])", file) is not None


def _is_model(file: str) -> bool:
    return file.lower().endswith(SUFFIX) and not _PART.search(file) and not _NO_MODEL.search(file)


def _list_names(names: Iterable[str]) -> str:
    shown = [repr(name) for name in sorted(names)]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"{', '.join(shown[:_SHOWN])}{more}"


def is_installed() -> bool:
    """Return whether `huggingface_hub` is installed, without importing it."""
    return importlib.util.find_spec("huggingface_hub") is not None
