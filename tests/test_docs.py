"""Do the examples of the README and of docs run, and do their links lead somewhere?"""

from __future__ import annotations

import json
import logging
import re
import shlex
import subprocess
import sys
from inspect import signature

import pytest
from support.doc_examples import EXAMPLE, PAGES
from support.paths import ROOT
from support.stub_server import StubServer
from typer.testing import CliRunner

from fsm_agent import Limits
from fsm_agent.call import Reason
from fsm_agent.cli import app
from fsm_agent.functions import Policy
from fsm_agent.testing import registries

README = ROOT / "README.md"
TEXTS = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}
ALL = "".join(TEXTS.values())
EXAMPLES = [(name, *found) for name, text in TEXTS.items() for found in EXAMPLE.findall(text)]
LINK = re.compile(r"(?:\]\(|^\[[^]]+\]: )(?!https?:)([^\s)#]*)(?:#([^\s)]+))?(?: \"([^\"]+)\")?", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINKS = [(name, *found) for name, text in TEXTS.items() for found in LINK.findall(CODE.sub("", text))]


# What an example does that is real: it asks a model over HTTP or by a command, serves, or sleeps
REAL = re.compile(
    r'"openai[:-]|CommandClient|echo:|HTTPServer|[^_]sleep\(|MCPServer\.|base_url=|RunFollower\(|TestClient'
)
MARKED = [pytest.param(example, marks=[pytest.mark.system] if REAL.search(example[1]) else []) for example in EXAMPLES]


def title(example):
    name, code, _ = example
    return f"{name}: {code.strip().splitlines()[-1][:40]}"


@pytest.fixture(autouse=True)
def _levels():
    """Undo what an example does to the levels of loggers."""
    before = {logger: logger.level for logger in map(logging.getLogger, ("fsm_agent", "transitions"))}
    yield
    for logger, level in before.items():
        logger.setLevel(level)


@pytest.fixture
def run(request, monkeypatch, tmp_path):
    """Run an example as a separate program, in an empty folder at first.  A real model may be asked over HTTP."""

    def run(name, code):
        with registries():
            exec(compile(code, name, "exec", dont_inherit=True), {"__name__": "readme"})  # without our future imports

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-readme")
    if request.node.get_closest_marker("system") is None:
        yield run
        return
    with StubServer(["42"] * 16) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        yield run


@pytest.mark.parametrize("example", MARKED, ids=title)
def test_every_example_runs_and_prints_what_it_is_said_to_print(example, run, capsys, tmp_path):
    """A second run continues from the files of the first, or prints the same again."""
    name, code, output = example
    run(name, code)
    if output:
        assert capsys.readouterr().out == output
    if any(tmp_path.iterdir()):
        run(name, code)
        assert not output or capsys.readouterr().out


@pytest.mark.system
def test_whoever_tries_one_example_after_the_other_in_one_folder_meets_no_run_of_another(run):
    kept = [(name, code) for name, code, _ in EXAMPLES if ".db" in code]
    assert len(kept) >= 10
    for name, code in kept:
        run(name, code)


def test_the_readme_shows_what_its_examples_print_and_needs_no_key_for_them():
    shown = [(code, output) for name, code, output in EXAMPLES if name == "README.md"]
    assert len(shown) >= 2
    assert all(output and "Script(" in code for code, output in shown)


@pytest.mark.system
def test_the_commands_of_the_page_on_runs_do_what_they_say(monkeypatch, tmp_path):
    page = TEXTS["docs/runs.md"].replace(" \\\n", " ")
    (example,) = [code for code, _ in EXAMPLE.findall(page) if "def refund(" in code]
    (tmp_path / "shop.py").write_text(example.partition("try:")[0])
    commands = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^fsm-agent .*$", page, re.MULTILINE)]
    assert len(commands) >= 8
    arguments = json.dumps({"order": "A-17", "amount": 19.5})
    asks = [{"id": "c1", "type": "function", "function": {"name": "refund", "arguments": arguments}}]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-readme")
    shown = {}
    with StubServer([{"role": "assistant", "content": None, "tool_calls": asks}, "The money is on its way."]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        for words in commands:
            once = ["--once"] if words[0] == "worker" and "--once" not in words else []  # or it would stay
            ended = CliRunner().invoke(app, [*words, *once], catch_exceptions=False)
            assert ended.exit_code == (3 if words[0] == "ask" else 0), ended.stderr  # it waits for somebody
            shown[words[0] if words[0] == "ask" else words[1]] = ended.stdout + ended.stderr
    assert "fsm-agent runs answer order-17 --store runs.db ask:1.0 --approve" in shown["ask"]
    assert "ask:1.0 (approval)" in shown["list"]
    assert "ask:1.0 asks (approval): refund(order='A-17', amount=19.5)" in shown["show"]
    assert "The money is on its way.\n" in shown["resume"]
    sys.modules.pop("shop", None)


@pytest.mark.system
def test_a_test_of_the_docs_passes_with_the_installed_plugin(tmp_path):
    (code,) = [code for _, code, _ in EXAMPLES if "def test_the_agent_adds(" in code]
    (tmp_path / "test_readme_example.py").write_text(code)
    without = [f"-pno:{name}" for name in ("cacheprovider", "hypothesispytest", "respx", "xdist")]  # which take longer
    command = [sys.executable, "-m", "pytest", "-q", *without, "--fsm-coverage", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "rows were taken" in done.stdout


def anchors(page):
    """What can be linked to in a page: its headings, as GitHub names them."""
    without_code = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_into_the_repository_lead_somewhere():
    assert len(LINKS) > 100
    for name, link, anchor, test in LINKS:
        page = (ROOT / name).parent / link if link else ROOT / name
        assert page.exists(), (name, link)
        assert not anchor or anchor in anchors(page), (name, link, anchor)
        assert not test or f"def {test}(" in page.read_text("utf-8"), (name, link, test)


def test_every_limit_policy_and_reason_is_named():
    for name in (*signature(Limits).parameters, *signature(Policy).parameters, *[reason.name for reason in Reason]):
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", ALL), name
