"""Are errors and signals lines with a code, and do the small commands do what they say?"""

from __future__ import annotations

import json
import re
import runpy
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import typer
from command_line import KEY, MODEL, ran, refused
from starlette.testclient import TestClient
from typer.testing import CliRunner

from fsm_agent import Agent
from fsm_agent.call import CallFailed
from fsm_agent.cli import TerminalHook, app
from fsm_agent.clients import register_client
from fsm_agent.errors import Overloaded
from fsm_agent.mcp import ToolServer
from fsm_agent.store import Runs
from fsm_agent.testing import Script, function_call

HERE = Path(__file__).parent


class TestErrors:
    def test_a_bug_is_said_to_be_one_and_debug_shows_its_place(self, model: Callable[..., Script]):
        for words in ((), ("--debug",)):
            model(KeyError("[red]\x1b[31m"))
            told = ran("ask", "?", *MODEL, *words, code=1).stderr
            assert "bug" in told
            assert "\x1b" not in told
            assert ("Traceback" in told) is bool(words)

    @pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
    def test_a_signal_ends_it_as_ctrl_c_does(self, number: int, code: int, model: Callable[..., Script]):
        model(lambda _: signal.raise_signal(number))
        before = [signal.signal(signal.SIGTERM, signal.SIG_DFL), signal.signal(signal.SIGHUP, signal.SIG_DFL)]
        try:
            ended = ran("ask", "?", *MODEL, "--json", code=code)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        finally:
            signal.signal(signal.SIGTERM, before[0])
            signal.signal(signal.SIGHUP, before[1])
        last = json.loads(ended.stdout.splitlines()[-1])
        assert (last["type"], last["exit_status"]) == ("failure", code)
        assert "Traceback" not in ended.stderr

    def test_no_key_is_in_an_error(self):
        told = refused("runs", "list", "--store", f"{KEY}.db")
        assert KEY not in told
        assert "sk-a***" in told

    def test_an_unknown_command_is_guessed_and_colours_are_for_terminals(self):
        assert "'ask'" in refused("aks", code=2)
        for words in (["providers"], ["--help"], ["ask", "--help"]):
            assert "\x1b" not in ran(*words).output


def test_every_command_has_a_help_that_its_table_tells_before_it_is_loaded():
    told = ran("--help").stdout
    for line in told.splitlines():
        words = line.strip("│ ").split(maxsplit=1)
        if len(words) == 2 and line.startswith("│ ") and words[0].isalpha():
            assert words[1].split()[0].strip("…") in ran(words[0], "--help").stdout, words


def test_the_help_of_each_command_is_one_screen():
    top = typer.main.get_command(app)
    asked: list[tuple[str, ...]] = [()]
    for name in top.commands:
        _, command, _ = top.resolve_command(typer.Context(top), [name])
        asked += [(name,), *[(name, inner) for inner in getattr(command, "commands", ())]]
    rows = {words: ran(*words, "--help", env={"COLUMNS": "80"}).stdout.count("\n") for words in asked}
    assert len(rows) > 35
    assert {words: count for words, count in rows.items() if count > 40} == {}


class TestProviders:
    def test_the_list_says_what_is_set_and_never_its_value(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", "https://me:hunter22@example.com/v1")
        told = ran("providers").stdout
        rows = {row.split()[0]: row for row in told.splitlines()}
        assert "OPENAI_API_KEY (set)" in rows["openai"]
        assert "GROQ_API_KEY (not set)" in rows["groq"]
        assert "openai-responses or openai-chat" in rows["openai"]
        assert "this machine" in rows["local"]
        assert KEY not in told
        assert "hunter22" not in told


def test_the_diagram_of_every_agent():
    drawn = ran("diagram").stdout
    assert "flowchart" in drawn
    assert "ParseException" in drawn
    assert "'no'" in refused("diagram", "--output", "no/a.dot")
    assert "a.bmp" in refused("diagram", "--output", "a.bmp")


def hide(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Make a module missing, and have the modules that need it imported anew."""
    for name in [*sys.modules]:
        if name.startswith("fsm_agent.web.") and name.endswith(("_page", "_server")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)


class TestServers:
    def test_what_cannot_be_served_is_named(self, here: Path):
        (here / "shop_tools.py").write_text(
            "from fsm_agent import function\nfrom fsm_agent.mcp import serve\n"
            "def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n"
            "@function(depends_on=['add'])\ndef refund(order: str) -> str:\n    'Refund.'\n    return order\n"
            "sums = serve('sums', [add])\nnumber = 3\n"
        )
        for words, code, at_fault in (
            (["shop_tools:refund"], 1, "'refund'"),
            (["shop_tools:nothing"], 1, "nothing"),
            (["shop_tools:number"], 1, "3"),
            (["shop_tools:sums", "--name", "x"], 2, "--name"),
        ):
            assert at_fault in refused("mcp", "serve", *words, code=code)

    def test_the_kind_and_the_port_are_those_that_are_asked_for(self, here: Path, monkeypatch: pytest.MonkeyPatch):
        (here / "sums.py").write_text("def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n")
        served: list[Any] = []

        def serve_http(server: ToolServer, *, port: int, ready: Callable[[str], None]) -> None:
            served.append((server.name, port))
            ready("http://here")

        monkeypatch.setattr(ToolServer, "run_http", serve_http)
        monkeypatch.setattr(ToolServer, "run_stdio", lambda server: served.append((server.name, None)))
        assert "http://here" in ran("mcp", "serve", "sums:add", "--http", "--port", "7").stderr
        ran("mcp", "serve", "sums:add")
        assert served == [("sums", 7), ("sums", None)]

    def test_the_inspector_names_what_it_lacks(self, here: Path, monkeypatch: pytest.MonkeyPatch):
        with closing(Runs(here / "runs.db")):
            pass
        assert "'nothing.db'" in refused("inspect", "--store", "nothing.db", "--no-browser")
        assert "no_such_module" in refused(
            "inspect", "--store", "runs.db", "--no-browser", "--agents", "no_such_module"
        )
        hide(monkeypatch, "uvicorn")
        assert "fsm-agent[inspect]" in refused("inspect", "--store", "runs.db", "--no-browser")


class TestChatPage:
    @pytest.fixture(autouse=True)
    def _host(self, here: Path) -> None:
        (here / "host.py").write_text(
            "from fsm_agent import Agent\nfrom fsm_agent.testing import Script\nagent = Agent(Script(), name='host')\n"
            "two = [agent, agent.changed(name='other')]\ndef who(request):\n    return None\n"
        )

    @pytest.fixture
    def served(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str]]:
        """The applications that the command has served, each with its host."""
        pytest.importorskip("uvicorn")
        found: list[tuple[Any, str]] = []
        monkeypatch.setattr("uvicorn.Config", lambda app, *, host, **_: found.append((app, host)))
        monkeypatch.setattr("uvicorn.Server", lambda _: SimpleNamespace(run=lambda: None, started=True))
        return found

    @pytest.mark.parametrize("missing", ["uvicorn", "starlette.applications"])
    def test_it_names_what_it_lacks(self, monkeypatch: pytest.MonkeyPatch, missing: str):
        hide(monkeypatch, missing)
        told = refused("serve", "host:agent")
        assert "fsm-agent[serve]" in told
        assert "bug" not in told

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "localhost.example.com", ""])
    def test_it_opens_no_port_to_other_machines_without_a_login(self, host: str, served: list[tuple[Any, str]]):
        assert "--user" in refused("serve", "host:agent", "--host", host, code=2)
        assert served == []
        ran("serve", "host:agent", "--host", host, "--user", "host:who")
        assert [address for _, address in served] == [host]

    def test_the_token_of_the_environment_is_in_the_address(
        self, served: list[tuple[Any, str]], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("FSM_AGENT_TOKEN", "recognisable_0123456789")
        assert ran("serve", "host:agent", "--port", "7").stdout.endswith("/?token=recognisable_0123456789\n")

    @pytest.mark.parametrize("token", ["short", "a" * 19, "a" * 20 + "&b=c"])
    def test_a_token_that_is_none_is_named_and_not_shown(self, token: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("FSM_AGENT_TOKEN", token)
        told = refused("serve", "host:agent")
        assert "FSM_AGENT_TOKEN" in told
        assert token not in told
        assert "module:name" in refused("serve", "host:two", code=2)

    def test_with_a_token_only_its_holder_gets_in(self, served: list[tuple[Any, str]]):
        printed = [ran("serve", "host:agent", "--token").stdout.strip() for _ in range(2)]
        assert printed[0] != printed[1], "each time a new token"
        home, _, token = printed[0].partition("?token=")
        assert len(token) >= 40
        with TestClient(served[0][0], base_url="http://127.0.0.1:8000") as browser:
            for url in (home, f"{home}conversations", f"{home}?token=x", "http://127.0.0.1:8000/conversations"):
                for headers in ({}, {"authorization": f"Bearer {token}x"}, {"authorization": token}):
                    assert browser.get(url, headers=headers).status_code == 403
            assert not browser.cookies
            assert browser.get(f"{home}conversations", headers={"authorization": f"Bearer {token}"}).json() == []
            assert browser.get(printed[0]).status_code == 200
            assert browser.get(f"{home}conversations").json() == []
            assert browser.get(home, headers={"host": "evil.example"}).status_code == 421


DESK = """
from fsm_agent import Agent, AgentBase, Context, function
from fsm_agent.flows import Flow, ask, end
from fsm_agent.testing import Script, function_call

class Shop:
    def __init__(self, name):
        self.name = name

@function(needs_approval=False)
def look(context: Context[Shop]) -> str:
    "Look."
    return context.deps.name

def says():
    return Script(*[function_call("look"), lambda request: request.messages[-1].text] * 9)

class Clerk(AgentBase[str]):
    expertise = "You look."
    functions = [look]

agent = Agent(says(), functions=[look], name="desk")

@ask(agent)
def asking(data: str) -> str:
    return data

flow = Flow("looks", str, start=asking, rows=[asking.done(end("over"), do=lambda d, a: a)])
corner, wrong = Shop("corner"), lambda agent: agent
"""


class TestDeps:
    DRIVE: ClassVar[dict[str, tuple[str, ...]]] = {
        "ask": ("ask", "?", "--function", "desk:look", *MODEL),
        "chat": ("chat", "--function", "desk:look", *MODEL),
        "runs resume": ("runs", "resume", "one", "--store", "runs.db", "--function", "desk:look", *MODEL),
        "agents run": ("agents", "run", "clerk.toml", "?"),
        "flows run": ("flows", "run", "desk:flow", '"?"'),
        "worker": ("worker", "--agents", "desk:agent", "--store", "runs.db", "--once"),
        "serve": ("serve", "desk:agent"),
        "mcp serve": ("mcp", "serve", "desk:look"),
    }

    @pytest.fixture(autouse=True)
    def _desk(self, here: Path) -> None:
        (here / "desk.py").write_text(DESK)
        (here / "clerk.toml").write_text('agent_type = "desk:Clerk"\nmodel = "house:m"\n')
        register_client("house", lambda model: Script(function_call("look"), lambda asked: asked.messages[-1].text))
        with closing(Runs(here / "runs.db")) as runs:
            agent = Agent(Script(), name="ask", store=runs)
            agent.runs.submit("?", run_id="one")

    @pytest.mark.parametrize("command", DRIVE)
    def test_a_command_that_drives_takes_deps_and_refuses_the_wrong_ones_alike(
        self, command: str, model: Callable[..., Script]
    ):
        words = self.DRIVE[command]
        model()
        for deps, at_fault in (("Shop", "Shop"), ("wrong", "(agent)"), (None, "None")):
            told = refused(*words, *(() if deps is None else ("--deps", f"desk:{deps}")), code=2)
            assert "Invalid value for --deps" in told
            assert at_fault in told
        assert "nothing" in refused(*words, "--deps", "desk:nothing")

    @pytest.mark.parametrize("command", ["ask", "chat", "runs resume", "agents run", "flows run"])
    def test_functions_find_them(self, command: str, model: Callable[..., Script]):
        if command not in ("agents run", "flows run"):
            model(function_call("look"), lambda request: request.messages[-1].text)
        assert "corner" in ran(*self.DRIVE[command], "--deps", "desk:corner", input="?\n").stdout

    async def test_tools_of_a_server_find_them(self, monkeypatch: pytest.MonkeyPatch):
        mcp = pytest.importorskip("mcp")
        served: list[ToolServer] = []
        monkeypatch.setattr(ToolServer, "run_stdio", lambda server: served.append(server))
        ran(*self.DRIVE["mcp serve"], "--deps", "desk:corner")
        async with mcp.Client(served[0].official) as client:
            assert (await client.call_tool("look", {})).content[0].text == "corner"

    def test_the_command_that_continues_a_run_has_them(self, here: Path, model: Callable[..., Script]):
        (here / "desk.py").write_text(DESK.replace("=False", "=True"))
        model(function_call("look"))
        kept = ("--store", "runs.db", "--run-id", "two", "--deps", "desk:corner")
        for words in (self.DRIVE["ask"], self.DRIVE["flows run"]):
            told = ran(*words, *kept[:3], words[0], *kept[4:], code=3).stderr
            assert re.search(r"fsm-agent (runs resume|flows run) .* --deps desk:corner", told)


def test_a_shell_completes_commands_and_options():
    def words(line: str) -> list[str]:
        variables = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        ended = CliRunner().invoke(app, prog_name="fsm-agent", env=variables | {"_FSM_AGENT_COMPLETE": "complete_fish"})
        assert (ended.exit_code, ended.stderr) == (0, "")
        return [found.partition("\t")[0] for found in ended.stdout.splitlines() if found]

    assert words("fsm-agent a") == ["ask", "agents"]
    assert words("fsm-agent runs d") == ["diagram", "diff", "delete"]
    assert "--prompt" in words("fsm-agent ask --p")


class TestTerminalHook:
    def test_piped_the_answer_is_alone_and_progress_has_the_path_of_who_makes_it(
        self, capsys: pytest.CaptureFixture[str]
    ):
        runpy.run_path(str(HERE / "shown_agent.py"))["guide"].call("What do I wear?")
        out, err = capsys.readouterr()
        assert out == "[b]Take a coat.\n"
        lines = err.splitlines()
        assert lines[-5:] == [
            "1 round, 1 function call",
            "  ask_weather",
            "1,500 tokens in, 150 out",
            "  itself: 300 tokens in, 30 out",
            "  run:1.0: 1,200 tokens in, 120 out",
        ]
        for inside in ("measure(city='Berlin')", "measure → 11.5", "Calling → Completed (answered)"):
            assert f"run:1.0: {inside}" in lines
        assert "run:1.0: measure raised ValueError: it has sunk" in lines
        assert lines.index("run:1.0: Calling → Completed (answered)") < lines.index("ask_weather → It is mild.")
        assert "\x1b" not in err

    def test_functions_are_counted_and_those_that_failed(self, capsys: pytest.CaptureFixture[str]):
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        script = Script(
            [function_call("add", a=1, b=2), function_call("add", a=1, b="x")], function_call("add", a=3, b=4), "7"
        )
        Agent(script, functions=[add], hooks=[TerminalHook()]).call("Add.")
        told = capsys.readouterr().err.splitlines()
        assert told[-3:-1] == ["2 rounds, 3 function calls", "  add 3 times, 1 failed"]

    def test_a_call_that_fails_has_its_overview_and_no_answer(self, capsys: pytest.CaptureFixture[str]):
        busy = Script(*[Overloaded("busy")] * 9)
        with pytest.raises(CallFailed):
            Agent(busy, hooks=[TerminalHook()], environment={"backoff": lambda *_: 0.0}).call("Hi")
        out, err = capsys.readouterr()
        assert out == ""
        assert "→ Failed" in err
        assert err.splitlines()[-2].startswith("0 rounds")
