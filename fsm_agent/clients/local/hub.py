"""Models from the Hugging Face Hub: ``hf:owner/repo``, ``hf:owner/repo:file.gguf`` or ``hf:owner/repo:Q4_K_M``.

`huggingface_hub` (the extra ``hub``) fetches them into its own cache, which other programs share.  So an interrupted
download resumes, ``HF_HOME``, ``HF_TOKEN`` and ``HF_ENDPOINT`` apply, and ``hf cache`` lists the files.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fsm_agent._internal.lazy_import import deferred
from fsm_agent.clients.local.gguf import is_gguf, sha256
from fsm_agent.errors import ConfigError

if TYPE_CHECKING:
    import huggingface_hub
    from huggingface_hub import errors as hub_errors
else:
    huggingface_hub, hub_errors = deferred("huggingface_hub"), deferred("huggingface_hub.errors")

PREFIX = "hf:"
QUANTIZATIONS = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0")  # the first that there is, if none is named
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_NO_MODEL = re.compile(r"(^|[-_./])(mmproj|imatrix)", re.IGNORECASE)  # GGUF files that are no models
_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # of a commit or a small file; of a large one
_QUERY = re.compile(r"\?[^\s'\"]+")
_SHOWN = 12  # files in an error
_REASON_CHARS = 300

Progress = Callable[[int, int], None]  # bytes so far, bytes in all


class HubModel(NamedTuple):
    """A repository of the Hub, and perhaps one of its files.

    Attributes:
        repo: Owner and repository, as ``owner/name``.
        file: A file of it, or a quantization that is part of one's name; empty: neither is named.
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
    """A model that is a step up from the embedded one.

    Attributes:
        name: To be put behind ``local:``.
        file_gb: Size of the download.
        memory_gb: What it takes when it runs, at 4,096 tokens of context.
        licence: Of the weights.
        good_for: What to expect of it.
    """

    name: str
    file_gb: float
    memory_gb: float
    licence: str
    good_for: str


# Sizes and licences as the model cards say (2026-11); memory is the file and the usual context, estimated.
RECOMMENDED = (
    Recommended("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M", 0.5, 0.8, "Apache-2.0", "short answers, simple functions"),
    Recommended("hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M", 1.1, 1.6, "Apache-2.0", "functions, extraction, chat"),
    Recommended("hf:Qwen/Qwen3-4B-GGUF:Q4_K_M", 2.5, 3.4, "Apache-2.0", "several functions, longer tasks; it reasons"),
)


def is_hub_name(name: str) -> bool:
    """Return whether a name is one of a model on the Hugging Face Hub: ``hf:…``."""
    return name.startswith(PREFIX)


def hub_model(name: str) -> HubModel:
    """Return what ``hf:owner/repo[:file]`` names.

    Raises:
        ConfigError: It is no such name.
    """
    repo, _, file = name.removeprefix(PREFIX).partition(":")
    owner, slash, rest = repo.partition("/")
    if not is_hub_name(name) or not (owner and slash and rest) or "/" in rest or _is_odd(repo) or _is_odd(file):
        raise ConfigError(f"local model {name!r} names nothing on the Hub: 'hf:owner/repo' or 'hf:owner/repo:Q4_K_M'")
    return HubModel(repo, file)


def _is_odd(part: str) -> bool:
    """Return True for what is no name on the Hub, and might be a way out of a directory."""
    return ".." in part or part.startswith("/") or re.search(r"[^\w./+-]", part) is not None


def find_cached(model: HubModel) -> Path | None:
    """Return the file of a model in the cache, or None; asks no network.

    Raises:
        ConfigError: Several files are there, and the name leaves it open which of them is meant.
    """
    if not is_installed():
        return None
    found = {one.model.file: one.path for one in cached_models() if one.model.repo == model.repo}
    name = _choose_file(model, found) if found else None
    return None if name is None else found[name]


def cached_models() -> Iterator[CachedModel]:
    """Yield the GGUF models in the cache, newest revisions only.

    Raises:
        ConfigError: `huggingface_hub` is not installed.
    """
    _check_installed()
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


def fetch(model: HubModel, *, say: Callable[[str], None], progress: Progress, endpoint: str | None = None) -> Path:
    """Fetch a model into the cache, or what is missing of it, and return its file.

    Its checksum is compared with the one that the Hub states; a file that differs is removed.

    Args:
        model: The model.
        say: Called with lines of text for the user.
        progress: Called with the bytes so far and in all.
        endpoint: Another Hub, such as a mirror; None: that of ``HF_ENDPOINT``, or huggingface.co.

    Raises:
        ConfigError: There is no such model, no network, or no `huggingface_hub`; or the file is damaged.
    """
    _check_installed()
    with _explain_errors(model), _check_names():
        info = huggingface_hub.HfApi(endpoint=endpoint).model_info(model.repo, files_metadata=True)
        _check_name("the revision", info.sha)
        files = {file.rfilename: file for file in info.siblings or () if _is_model(file.rfilename)}
        name = _choose_file(model, files)
        if name is None:
            raise ConfigError(f"{str(model)!r} names no GGUF model: in {model.repo!r} there {_list_names(files)}")
        size_bytes = files[name].size or 0
        say(f"Fetching {_printable(name)} ({size_bytes / 1e6:.0f} MB) from {model.repo}")
        path = Path(
            huggingface_hub.hf_hub_download(
                model.repo, name, revision=info.sha, endpoint=endpoint, tqdm_class=_bar(progress, size_bytes)
            )
        )
        lfs = files[name].lfs
        if (lfs is not None and sha256(path) != lfs.sha256) or not is_gguf(path):
            _remove(path, name)
            raise ConfigError(f"{name!r} as fetched from {model.repo!r} is damaged, and was removed: fetch it again")
        return path


@contextmanager
def _check_names() -> Iterator[None]:
    """Refuse responses whose headers name a place outside of the cache.

    `huggingface_hub` (2.4) makes paths of the commit and the ETag that a server states.  A hook reads the responses
    that it reads: a request of our own before the download could be answered otherwise.
    """

    def check(response: Any) -> None:
        headers = response.headers
        if response.request.method == "HEAD" and (etag := headers.get("X-Linked-ETag") or headers.get("ETag")):
            _check_name("the ETag", etag.removeprefix("W/").strip('"'))
        if (commit := headers.get("X-Repo-Commit")) is not None:
            _check_name("the commit", commit)

    def checked_client() -> Any:
        client = made()
        client.event_hooks["response"].append(check)
        return client

    # After a refused connection it makes another client, so each has to have the hook; no public name tells its maker.
    made = import_module("huggingface_hub.utils._http")._GLOBAL_CLIENT_FACTORY
    huggingface_hub.set_client_factory(checked_client)
    try:
        yield
    finally:
        huggingface_hub.set_client_factory(made)


def _check_name(what: str, name: object) -> None:
    """Refuse a name of a file or folder in the cache that no Hub gives: it may lead elsewhere."""
    if not isinstance(name, str) or not _CHECKSUM.fullmatch(name):
        raise LookupError(f"{what} {name!r} is no checksum")


def remove(model: HubModel) -> list[CachedModel]:
    """Remove a model from the cache, from every revision; return what was removed.

    Raises:
        ConfigError: It is not there.
    """
    found = [one for one in cached_models() if one.model.repo == model.repo]
    name = _choose_file(model, {one.model.file: one for one in found}) if model.file else ""
    gone = [one for one in found if name in ("", one.model.file)] if name is not None else []
    if not gone:
        raise ConfigError(f"{str(model)!r} is not in the cache: 'fsm-agent models list' shows what is")
    for one in gone:
        for link in one.path.parents[len(Path(one.model.file).parts)].glob(f"*/{one.model.file}"):
            _remove(link, one.model.file)
    return gone


def _remove(path: Path, file: str) -> None:
    """Remove a file of a model's folder in the cache, and what it links to there: a server may name any other place."""
    content, folder = path.resolve(), path.parents[len(Path(file).parts) + 1].resolve()
    if content.is_relative_to(folder):
        content.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _choose_file(model: HubModel, files: Iterable[str]) -> str | None:
    """Return the file that a name means, of those that there are; None: it means none of them.

    Raises:
        ConfigError: It may mean several.
    """
    names = sorted(files)
    if model.file in names:
        return model.file
    if model.file:
        meant = [name for name in names if _is_quantized(name, model.file)]
    else:
        meant = next((some for q in QUANTIZATIONS if (some := [n for n in names if _is_quantized(n, q)])), names)
    if len(meant) > 1:
        raise ConfigError(
            f"{str(model)!r} may mean several files: there {_list_names(meant)}; name one of them behind ':'"
        )
    return meant[0] if meant else None


def _is_quantized(file: str, quantization: str) -> bool:
    """Return whether a quantization is a word in a file's name, in whatever letters."""
    return re.search(rf"(?i)(?<![a-z0-9]){re.escape(quantization)}(?![a-z0-9_])", file) is not None


def _printable(name: str) -> str:
    """Return a name as it can be shown on a terminal: a server may have put commands to it in there."""
    return name if name.isprintable() else ascii(name)


def _is_model(file: str) -> bool:
    """Return whether a file is a whole model: the parts of one that was split are not."""
    return file.lower().endswith(".gguf") and not _PART.search(file) and not _NO_MODEL.search(file)


def _list_names(names: Iterable[str]) -> str:
    shown = [repr(name) for name in sorted(names)]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"are {', '.join(shown[:_SHOWN])}{more}" if shown else "is none in one file"


def _bar(progress: Progress, size_bytes: int) -> Any:
    """Return a class that is used like tqdm's, and only reports how far a download is.

    Two of it may be made for one file: for what has come, and for what is written.
    """
    from tqdm import tqdm  # type: ignore[import-untyped]

    done_bytes: list[int] = []  # of each

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})
            self.n_done = len(done_bytes)
            done_bytes.append(0)
            self.update(options.get("initial"))

        def update(self, n: float | None = 1) -> None:
            done_bytes[self.n_done] += int(n or 0)
            progress(min(max(done_bytes), size_bytes), size_bytes)

    return Bar


def is_installed() -> bool:
    """Return whether `huggingface_hub` is there; it is not imported."""
    return importlib.util.find_spec("huggingface_hub") is not None


def _check_installed() -> None:
    if not is_installed():
        raise ConfigError("models of the Hub need huggingface_hub; run: pip install 'fsm-agent[hub]'")


@contextmanager
def _explain_errors(model: HubModel) -> Iterator[None]:
    """Have the errors of the Hub say what can be done about them."""
    import httpx2  # huggingface_hub's own

    try:
        yield
    except ConfigError:
        raise
    except hub_errors.GatedRepoError as error:
        page = f"https://huggingface.co/{model.repo}"
        raise ConfigError(
            f"{str(model)!r} requires that you accept its licence at {page}; then set HF_TOKEN"
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise ConfigError(f"no model {model.repo!r} is on the Hub, or it is private and needs HF_TOKEN") from error
    except hub_errors.OfflineModeIsEnabled as error:
        raise ConfigError(f"{str(model)!r} is not in the cache, and HF_HUB_OFFLINE forbids to fetch it") from error
    except (hub_errors.HfHubHTTPError, httpx2.HTTPError, OSError, ValueError) as error:
        first = _QUERY.sub("?…", str(error)).strip().partition("\n")[0]  # addresses of files may be signed
        reason = first[:_REASON_CHARS] or type(error).__name__
        kept = "the downloaded part is kept, and the next attempt continues from there"
        raise ConfigError(f"{str(model)!r} cannot be fetched: {reason}; {kept}") from error
    except (AttributeError, LookupError, RecursionError, TypeError) as error:  # at JSON of another shape
        reason = f"{type(error).__name__}: {error}"[:_REASON_CHARS]
        wrong = "what replies is not a Hub; is HF_ENDPOINT right?"
        raise ConfigError(f"{str(model)!r} cannot be fetched: {wrong} ({reason})") from error
