"""Do the examples of agents do what they show?"""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from support.paths import ROOT

from fsm_agent import Agent, ProviderError, RateLimited, function
from fsm_agent.testing import Pieces, Script, function_call


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bank_support", "block_card=False risk=1"),
        ("custom_agent", "Air scatters blue light most."),
        ("triage", "repairs: Your router is running again."),
    ],
)
def test_it_runs_as_it_stands(name, says, tmp_path):
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines()[-1].endswith(says)


EXAMPLES = [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples" / "support_chat").glob("*.py")]
OFFLINE = ("bank_support", "corrections", "custom_agent", "drawing", "orchestrator", "support", "triage")
EMBEDDED = ("person", "sums")  # they load their model


@pytest.mark.system
@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem not in EMBEDDED], ids=lambda path: path.stem)
def test_without_arguments_it_runs_offline_or_tells_how_to_run_it(path, tmp_path):
    command = [sys.executable, "-W", "error", str(path)]
    for _ in range(2):  # what it keeps does not stop it the second time
        done = subprocess.run(
            command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False
        )
        is_usage = f"{path.stem}" in done.stderr and done.returncode == 1 and "Traceback" not in done.stderr
        assert (done.returncode == 0 and bool(done.stdout)) if path.stem in OFFLINE else is_usage, done


@pytest.mark.system
def test_the_tests_of_the_project_pass_and_fail_when_they_should(tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(ROOT / "examples" / "project", folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "fsm_agent"]

    def tested():
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    done = tested()
    assert done.returncode == 0, done.stdout + done.stderr
    config = folder / "texts.toml"
    config.write_text(config.read_text().replace("rounds = 3", "ronuds = 3"))
    done = tested()
    assert (done.returncode, "'rounds'" in done.stdout) == (1, True)


def test_a_wrong_answer_and_an_interruption_are_told_in_words_of_ones_own(example, capsys):
    example("corrections").main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].strip().startswith("stock says: 3 in stock")
    assert "Attempt 1 was no order: " in lines[3]
    assert lines[-1] == "item='lamp' count=3"


def test_pictures_are_written_where_it_is_said(example, tmp_path):
    example("drawing").main(str(tmp_path))
    assert "counting" in (tmp_path / "flow.mmd").read_text()
    assert "ParseException" in (tmp_path / "call.mmd").read_text()
    assert (tmp_path / "run.mmd").exists()


@pytest.mark.parametrize("answer", ["cheap", ""])
def test_the_tests_of_an_agent_hold(example, answer):
    tests = example("test_shop")
    tests.test_an_answer_without_a_number_is_asked_for_again_once(answer)
    with Script(function_call("price", item="lamp"), "30") as model:
        tests.test_it_looks_the_price_up(model)


def test_the_endpoint_does_not_run_out_of_answers(example):
    (agent,) = example("chat_completions").AGENTS.values()
    assert not isinstance(agent.model, Script)


class TestCodingAgent:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "sums.py").write_text("def add(a, b):\n    return a - b\n")
        (tmp_path / "secret.txt").write_text("nothing for you")
        return tmp_path / "work"

    @pytest.mark.system
    def test_it_reads_changes_and_runs_what_is_allowed(self, example, folder, monkeypatch):
        coding = example("coder")
        test = "python3 -B -c 'import sums; print(sums.add(2, 2))'"  # -B: a change within a second is seen
        model = Script(
            function_call("list_files"),
            function_call("read_file", path="sums.py"),
            function_call("shell", command=test),
            function_call("replace_in_file", path="sums.py", old="a - b", new="a + b"),
            function_call("shell", command=test),
            function_call("shell", command="touch forbidden"),
            "It adds now.",
        )
        monkeypatch.setattr("sys.stdin", io.StringIO("a\nnot that\n"))  # the test is allowed for good
        result = coding.coder(folder, model).call("Make it add.")
        results = [done.result or done.error for done in result.function_calls]
        assert result.output == "It adds now."
        assert json.loads(results[0]) == ["sums.py"]
        assert (results[2], results[4]) == ("0\n\nexit status 0", "4\n\nexit status 0")
        assert results[5].endswith("not that")
        assert not (folder / "forbidden").exists()
        assert (folder / "sums.py").read_text() == "def add(a, b):\n    return a + b\n"

    @pytest.mark.parametrize("path", ["../secret.txt", "/etc/passwd", "link"])
    def test_nothing_outside_of_the_folder_is_touched(self, example, folder, path):
        (folder / "link").symlink_to(folder.parent / "secret.txt")
        model = Script(
            [
                function_call("read_file", path=path),
                function_call("replace_in_file", path=path, old="nothing", new="all"),
            ],
            "I cannot.",
        )
        result = example("coder").coder(folder, model).call("Read it.")
        assert [done.error is not None for done in result.function_calls] == [True, True]
        assert (folder.parent / "secret.txt").read_text() == "nothing for you"


class TestDocuments:
    @pytest.fixture
    def library(self, example, tmp_path):
        (tmp_path / "lease.md").write_text("# Lease\n\nThe rent is 900 EUR.\n\nThe lease ends on 31 May 2030.\n")
        (tmp_path / "cat.txt").write_text("The cat is called Tom.\n")
        (tmp_path / "picture.png").write_bytes(b"\x89PNG the lease ends")
        return example("documents").Library(tmp_path)

    def test_passages_are_found_by_their_words(self, library):
        assert next(found.source for found in library.search("When does the lease end? ends")) == "lease.md#3"
        assert [found.source for found in library.search("Tom")] == ["cat.txt#1"]
        assert library.search("volcano") == []

    def test_an_answer_names_its_sources_and_no_others(self, example, library):
        model = Script(
            function_call("search", query="lease ends"),
            '{"answer": "On 31 May 2030.", "sources": ["lease.md#9"]}',
            '{"answer": "On 31 May 2030.", "sources": ["lease.md#3"]}',
        )
        result = example("documents").librarian(model).call("When does the lease end?", deps=library)
        assert (result.output.answer, result.output.sources) == ("On 31 May 2030.", ["lease.md#3"])
        assert "31 May 2030" in (result.function_calls[0].result or "")
        assert "unknown source 'lease.md#9'" in model.requests[2].messages[-1].text


class TestNightly:
    def test_tickets_are_done_once_and_reported(self, example, tmp_path, monkeypatch, capsys):
        nightly = example("nightly")
        monkeypatch.chdir(tmp_path)
        lines = [{"id": n, "text": text} for n, text in enumerate(["It is slow.", "It is broken!", "What is it?"], 1)]
        (tmp_path / "tickets.jsonl").write_text("\n".join(map(json.dumps, lines)))
        model = Script(
            by={
                "slow": '{"kind": "wish", "urgent": false, "summary": "Make it fast."}',
                "broken": Script(
                    RateLimited("busy", retry_after_s=0), '{"kind": "bug", "urgent": true, "summary": "Mend it."}'
                ),
                "What": Script(*["no JSON"] * 9),
            }
        )
        monkeypatch.setattr(nightly, "MODEL", model)
        for _ in range(2):
            nightly.submit("tickets.jsonl")
        nightly.report()
        assert capsys.readouterr().out.splitlines() == [f"ticket-{n}: not begun" for n in (1, 2, 3)]
        nightly.work()
        nightly.work()
        nightly.report()
        assert capsys.readouterr().out.splitlines() == [
            "ticket-2: bug: Mend it.",
            "ticket-1: wish: Make it fast.",
            "ticket-3: failed: unparseable",
        ]


# The endpoint of `examples/chat_completions.py`, and the official client of OpenAI

SECRET = "sk-recognisable0123456789"
HELLO: Any = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def endpoint(example: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of the endpoint, and its agents."""
    openai, uvicorn = pytest.importorskip("openai"), pytest.importorskip("uvicorn")
    chat_completions = example("chat_completions")
    monkeypatch.setattr(chat_completions, "AGENTS", {})
    config = uvicorn.Config(chat_completions.app, log_level="error")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield client, chat_completions.AGENTS
        server.should_exit = True
        thread.join(30)


@pytest.mark.system
def test_models_texts_and_streams(endpoint):
    client, agents = endpoint
    model = Script("Good day.", Pieces("Good ", "day."))
    agents["host"] = Agent(model, system="Be polite.", name="host")
    assert [found.id for found in client.models.list()] == ["host"]
    done = client.chat.completions.create(model="host", messages=HELLO)
    assert (done.choices[0].message.content, done.choices[0].finish_reason) == ("Good day.", "stop")
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
    pieces = [
        chunk.choices[0].delta.content
        for chunk in client.chat.completions.create(model="host", messages=HELLO, stream=True)
    ]
    assert pieces == ["", "Good ", "day.", None]
    dialog: Any = [*HELLO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "How are you?"}]
    model = Script("Fine.")
    agents["host"] = agents["host"].changed(model=model)
    client.chat.completions.create(model="host", messages=dialog)
    assert [message.text for message in model.requests[0].messages] == ["Be polite.", "Hello", "Hi.", "How are you?"]

    @function
    def now() -> str:
        """Return the time."""
        return "noon"

    agents["clock"] = Agent(Script(function_call("now"), "It is noon."), functions=[now], name="clock")
    done = client.chat.completions.create(model="clock", messages=HELLO)
    assert done.choices[0].message.content == "It is noon.", "functions of the server are its own"


@pytest.mark.system
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_named_and_tell_nothing_of_the_server(endpoint, stream):
    client, agents = endpoint
    openai = pytest.importorskip("openai")

    @function(needs_approval=True)
    def refund() -> str:
        """Refund."""
        return "done"

    agents["desk"] = Agent(Script(function_call("refund")), functions=[refund], name="desk")
    agents["broken"] = Agent(Script(ProviderError(f"no such key {SECRET}", retryable=False)), name="broken")

    def ask(model: str, messages: Any = HELLO) -> None:
        found = client.chat.completions.create(model=model, messages=messages, stream=stream)
        if stream:
            list(found)

    with pytest.raises(openai.NotFoundError, match="nobody"):
        ask("nobody")
    with pytest.raises(openai.BadRequestError):
        ask("desk", [])
    with pytest.raises(openai.APIError, match="person"):
        ask("desk")
    with pytest.raises(openai.APIError, match="failed") as caught:
        ask("broken")
    assert SECRET[6:] not in str(caught.value)
