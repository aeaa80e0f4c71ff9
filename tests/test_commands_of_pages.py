"""Do the commands of the pages exist, with the options that they are shown with, and do what their page says?"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from support.doc_examples import EXAMPLE, PAGES
from support.paths import ROOT
from support.postgres import NOT_HERE, PostgresServer, programs
from support.programs import needs_dot
from support.stub_server import StubServer
from typer.main import get_command
from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.testing import registries

TEXTS = {str(page.relative_to(ROOT)): page.read_text("utf-8").replace("\\\n", "") for page in PAGES}
IN_BLOCK, IN_TEXT = (
    re.compile(r"^(?:\$ |cat \S+ \| )?(fsm-agent [a-z-].*)$", re.MULTILINE),
    re.compile(r"`(fsm-agent [^`]+)`"),
)
COMMANDS = [
    (page, command)
    for page, text in TEXTS.items()
    for command in chain(IN_BLOCK.findall(text), IN_TEXT.findall(re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)))
]


def words_of(command: str) -> list[str]:
    """Return the words of a command, without its name, its comment and what the shell does."""
    return shlex.split(re.sub(r"\s[#<>|].*$", "", command.replace("…", "")))[1:]


def problem(words: list[str]) -> str:
    """Return what is wrong with the names of a command and of its options, or empty."""
    found: Any = get_command(app)
    while hasattr(found, "commands") and words and not words[0].startswith("-"):
        if words[0] not in found.commands:
            return f"no command {words[0]!r}"
        _, found, words = found.resolve_command(click.Context(found), words)
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }
    used = [word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][\w-]*(=.*)?", word)]
    return ", ".join([f"no option {option}" for option in used if option not in known])


def test_each_command_that_a_page_shows_exists_with_its_options() -> None:
    assert len(COMMANDS) > 40
    problems = {f"{page}: {command}": problem(words_of(command)) for page, command in COMMANDS}
    assert {command: what for command, what in problems.items() if what} == {}


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., list[tuple[int, str]]]]:
    """Yield how a reader types the commands of a page, in an empty folder, with a stub in place of the models."""

    def typed(page: str, replies: list[Any], *, only: str = "", stdin: str | None = None) -> list[tuple[int, str]]:
        commands = [command for command in IN_BLOCK.findall(TEXTS[page]) if re.match(only, command)]
        ended = []
        with StubServer(replies) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-pages")
            for command in commands:
                words = words_of(re.sub(r"\b(openai|anthropic):", "openai-chat:", command))  # the stub's
                into = re.findall(r" > (\S+)", command)
                done = CliRunner().invoke(app, words, input=stdin, catch_exceptions=False)
                for file in into:
                    (tmp_path / file).write_text(done.stdout)
                ended.append((done.exit_code, f"{command}\n{done.stdout}{done.stderr}"))
        return ended

    modules = {*sys.modules}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with registries():
        yield typed
    for name in {*sys.modules} - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def asks(name: str, arguments: str) -> dict[str, Any]:
    """Return a reply that asks for a function."""
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.system
@needs_dot
def test_the_commands_of_the_page_on_flows_do_what_it_says(reader: Any, tmp_path: Path) -> None:
    (example,) = [code for code, _ in EXAMPLE.findall(TEXTS["docs/flows.md"]) if 'Flow("letters"' in code]
    declared = re.sub(r'"(?:anthropic|openai):[^"]*"', '"openai-chat:gpt-5-mini"', example.partition("models = {")[0])
    (tmp_path / "shop.py").write_text(declared)
    checked, drawn, run, answered, continued, replayed, forked = reader("docs/flows-reference.md", ["Hi.", "Hi.", "1"])
    assert [code for code, _ in (checked, drawn, run, answered, continued, replayed, forked)] == [
        *(0, 0),
        3,  # it waits for a person
        *(0, 0, 0, 0),
    ]
    assert "review" in checked[1]
    assert (tmp_path / "letters.svg").read_text().rstrip().endswith("</svg>")
    assert "fsm-agent flows answer shop:letters letter-18 review" in run[1]
    assert "post: Hi. under letter-18/sending#4" in answered[1] + continued[1]
    assert "drafting#1" in replayed[1]
    assert "letter-19 continues letter-18 from step" in forked[1]


@pytest.mark.system
def test_the_commands_of_the_page_on_agents_work_in_a_copy_of_the_project(reader: Any, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "project", tmp_path, dirs_exist_ok=True)
    checked, run, schema = reader("docs/agents.md", ['{"text": "A city of rain.", "confidence": 0.9}'])
    assert [code for code, _ in (checked, run, schema)] == [0, 0, 0]
    assert "A city of rain." in run[1]
    assert '"properties"' in (tmp_path / "agent.schema.json").read_text()


@pytest.mark.system
def test_the_commands_of_the_first_page_ask_a_model(reader: Any, tmp_path: Path) -> None:
    (example,) = [code for code, _ in EXAMPLE.findall(TEXTS["docs/start.md"]) if "def add(" in code]
    (tmp_path / "mymodule.py").write_text(example.partition("agent =")[0])
    replies = [asks("add", '{"a": 17, "b": 25}'), "It is 42."]
    ((code, told),) = reader("docs/start.md", replies, only="fsm-agent ask .*-m openai:gpt-5-mini")
    assert code == 0
    assert "It is 42." in told


@pytest.mark.system
def test_the_commands_of_the_page_on_the_command_line_read_a_pipe(reader: Any) -> None:
    ((code, told),) = reader("docs/cli.md", ["It is a question."], only='.*"Sum it up."', stdin="What?")
    assert code == 0
    assert "It is a question." in told


@pytest.mark.system
@needs_dot
def test_the_commands_of_the_page_on_the_command_line_draw_the_lifecycle(reader: Any, tmp_path: Path) -> None:
    ((code, _),) = reader("docs/cli.md", [], only="fsm-agent diagram")
    assert code == 0
    assert "One agent call" in (tmp_path / "call.svg").read_text()


def test_each_extra_is_on_the_first_page() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    shown = {
        name
        for row in re.findall(r"^\| (`.*?) \|", TEXTS["docs/start.md"], re.M)
        for name in re.findall(r"`([a-z0-9]+)`", row)
    }
    assert {*extras} - {"docs", "dev"} <= shown


@pytest.mark.system
def test_the_agent_of_the_page_on_services_is_served_by_its_command(
    reader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = [code for code, _ in EXAMPLE.findall(TEXTS["docs/service.md"]) if code.count("\n") == 4]
    (tmp_path / "shop.py").write_text(code)
    pytest.importorskip("starlette", reason="starlette is not installed")
    from starlette.testclient import TestClient

    served: list[Any] = []
    monkeypatch.setattr("uvicorn.Config", lambda page, **_: served.append(page))
    monkeypatch.setattr("uvicorn.Server", lambda _: SimpleNamespace(run=lambda: None, started=True))
    ((code_of_exit, told),) = reader("docs/service.md", [], only="fsm-agent serve")
    assert code_of_exit == 0, told
    assert "host at http://127.0.0.1:8000; Ctrl-C ends it" in told
    with TestClient(served[0], base_url="http://127.0.0.1:8000") as page:
        assert page.get("/").status_code == 200


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.skipif(programs() is None, reason=NOT_HERE)
def test_the_commands_of_the_page_on_runs_do_a_task_over_postgres(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a reader does it, each command in a separate OS process."""
    ((code, shown),) = re.findall(
        r"^```python\n([^`]*?Three bills[^`]*?)^```\n(?:(?!^## ).)*?^```console\n(.*?)^```",
        TEXTS["docs/runs.md"].partition("## Many machines")[2],
        re.M | re.S,
    )
    (tmp_path / "bills.py").write_text(code)
    told = re.split(r"^\$ ", shown, flags=re.M)[1:]
    assert [step.split()[0] for step in told] == ["pip", "export", "fsm-agent", "fsm-agent", "fsm-agent"]
    with closing(PostgresServer()) as server:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FSM_AGENT_STORE": server.url("orders")}
        for command, _, expected in (step.partition("\n") for step in told[2:]):
            ended = subprocess.run(
                [sys.executable, "-m", "fsm_agent", *shlex.split(command)[1:]],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            printed = re.sub(r"postgresql://\S+?'", "postgresql://…'", f"{ended.stdout}{ended.stderr}")
            assert ended.returncode == 0, printed
            for line in re.sub(r"postgresql://\S+?'", "postgresql://…'", expected).splitlines():
                assert line == "…" or re.sub(r"\d+", "N", line) in re.sub(r"\d+", "N", printed), (line, printed)
