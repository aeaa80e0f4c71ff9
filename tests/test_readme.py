"""Is everything in the README and in docs true?"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from contextlib import ExitStack
from typing import Annotated, Any, Literal

import cost_table
import pytest
from provider_table import table
from pydantic import BaseModel, BeforeValidator, Field
from support.doc_examples import EXAMPLE, PAGES
from support.paths import ROOT
from support.stub_server import StubServer
from typer.testing import CliRunner

from fsm_agent import Agent, Context, Function, Limits, Reason, function, restore, snapshot
from fsm_agent._internal.values import field_names
from fsm_agent.agents.registry import AGENTS
from fsm_agent.cli import app
from fsm_agent.clients.registered import CLIENTS
from fsm_agent.diagrams import lifecycle
from fsm_agent.functions import Policy
from fsm_agent.functions.registered import FUNCTIONS
from fsm_agent.lifecycle import Begun, Replied, State
from fsm_agent.messages import Reply
from fsm_agent.prompts.library import PROMPTS
from fsm_agent.providers.catalog import PROVIDERS
from fsm_agent.testing import Script, call

README = ROOT / "README.md"
TEXTS = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}
ALL = "".join(TEXTS.values())
EXAMPLES = [(name, *found) for name, text in TEXTS.items() for found in EXAMPLE.findall(text)]
LINK = re.compile(r"(?:\]\(|^\[[^]]+\]: )(?!https?:)([^\s)#]*)(?:#([^\s)]+))?(?: \"([^\"]+)\")?", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINKS = [(name, *found) for name, text in TEXTS.items() for found in LINK.findall(CODE.sub("", text))]
TABLE_ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)


def title(example):
    name, code, _ = example
    return f"{name}: {code.strip().splitlines()[-1][:40]}"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs an example as a program of its own, in an empty folder at first."""

    def run(name, code):
        with ExitStack() as stack:
            for registry in (AGENTS, CLIENTS, FUNCTIONS, PROMPTS, PROVIDERS):  # other tests register what they please
                stack.enter_context(registry.scoped())
            exec(compile(code, name, "exec", dont_inherit=True), {"__name__": "readme"})  # without our future imports

    monkeypatch.chdir(tmp_path)
    with StubServer(["42"] * 16) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-readme")
        yield run


@pytest.mark.system
@pytest.mark.parametrize("example", EXAMPLES, ids=title)
def test_every_example_runs_and_prints_what_it_is_said_to_print(example, run, capsys, tmp_path):
    """Run again where it has left something, it goes on from that, or says it again."""
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
def test_the_commands_of_the_page_on_runs_do_what_it_says(monkeypatch, tmp_path):
    page = TEXTS["docs/runs.md"]
    (tmp_path / "shop.py").write_text(EXAMPLE.findall(page)[0][0].partition("try:")[0])
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
            shown[words[1]] = ended.stdout
    assert "ask:1.0 (approval)" in shown["list"]
    assert "ask:1.0 asks (approval): refund(order='A-17', amount=19.5)" in shown["show"]
    assert shown["resume"] == "The money is on its way.\n"
    sys.modules.pop("shop", None)


@pytest.mark.system
def test_the_test_of_the_docs_passes_with_the_installed_plugin(tmp_path):
    (code,) = [code for _, code, _ in EXAMPLES if "def test_" in code]
    (tmp_path / "test_readme_example.py").write_text(code)
    without = [f"-pno:{name}" for name in ("cacheprovider", "hypothesispytest", "respx", "xdist")]  # which take longer
    command = [sys.executable, "-m", "pytest", "-q", *without, "--fsm-coverage", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "MISSED" in done.stdout


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_suites_of_the_docs_pass_in_a_project_of_their_own(tmp_path):
    suites = [code for _, code, _ in EXAMPLES if "Conformance)" in code]
    assert len(suites) == 3
    for number, code in enumerate(suites):
        (tmp_path / f"test_suite_{number}.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 130


@pytest.mark.system
def test_the_ci_runs_the_command_of_the_readme():
    (command,) = re.findall(r"^\[ \.venv/dev .*$", TEXTS["README.md"], re.MULTILINE)
    shown = (ROOT / ".ci" / "run").read_text().replace("bash -c", "printf '%s\\n'")
    script = re.sub(r"^need .*$", "", shown, flags=re.MULTILINE)  # which would install what is missing
    done = subprocess.run(
        ["bash", "-c", script.replace('$(dirname "$0")/..', str(ROOT))], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [command, f"{command} -m long"]


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


def test_every_reason_to_use_it_is_proved():
    why = TEXTS["README.md"].partition("## Why\n")[2].partition("\n## ")[0]
    defined = re.findall(r"^\[([^]]+)\]: ", why, re.MULTILINE)
    facts = re.findall(r"^- .*?(?=^- |^\[|\Z)", why, re.DOTALL | re.MULTILINE)
    assert len(facts) == 5
    assert all(re.search(r"\]\(docs/|\]\[", fact) for fact in facts)
    assert set(re.findall(r"\]\[([^]]+)\]", why)) == {*defined}


def test_the_figures_of_the_readme_are_those_of_the_benchmark():
    (turn,) = [row for row in cost_table.ROWS if row.work == "one turn, µs"]
    others = [one / turn.by_hand for one in turn.peers]
    ours, by_hand = turn.ours
    why = " ".join(TEXTS["README.md"].split())
    assert f"A turn takes {ours / by_hand:.1f} times the processor time of the same work by hand" in why
    assert f"take {min(others):.0f} to {max(others):.0f} times" in why
    assert (len(others), "six other libraries" in why) == (6, True)


def test_the_readme_is_short_and_begins_with_how_to_install():
    """Every page is in the navigation of the site: see `test_site`."""
    text = TEXTS["README.md"]
    assert len(text.encode()) < 8_000
    assert text.index("pip install fsm-agent") < text.index("## ")


def test_the_states_are_those_of_the_machine():
    assert re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", states_table(), re.MULTILINE))) == [*State]


def states_table():
    return TEXTS["docs/design.md"].partition("| state | waits for |")[2].partition("\n\n")[0]


def test_the_table_of_providers_is_that_of_the_catalogue():
    assert table() in TEXTS["docs/providers.md"]


def test_every_limit_policy_and_reason_is_named():
    for name in (*field_names(Limits), *field_names(Policy), *[reason.name for reason in Reason]):
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", ALL), name


def test_the_words_of_the_glossary_are_those_of_the_package():
    source = "".join(path.read_text("utf-8") for path in (ROOT / "fsm_agent").rglob("*.py")).lower()
    _, *rows = TABLE_ROW.findall(TEXTS["docs/glossary.md"])
    names = {name for _, meaning in rows for name in re.findall(r"`(\w+)=?`", meaning)}
    assert {
        word for word in names | {word for word, _ in rows} if not re.search(rf"\b{word.lower()}s?\b", source)
    } == set()


def test_contributors_are_told_the_layers_in_the_order_in_which_they_are_checked():
    rows = "".join(word for word, _ in TABLE_ROW.findall(TEXTS["CONTRIBUTING.md"]))
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    shown = [name.removesuffix(".py") for name in re.findall(r"`([\w.]+)`", rows)]
    assert [name for name in shown if name != "fsm_agent"] == checked[::-1]


def test_the_ways_of_the_small_picture_are_ways_of_the_machine():
    picture = TEXTS["docs/design.md"].partition("```mermaid")[2].partition("```")[0]
    shown = set(re.findall(r"^ +(\w+) -[-.]+>(?:\|[^|]+\|)? (\w+)$", picture, re.MULTILINE))
    assert len(shown) == picture.count(">")
    assert shown <= {(edge.source, edge.target) for edge in lifecycle().edges}


def test_a_function_whose_time_is_up_runs_on_unheard():
    go_on, ended = threading.Event(), threading.Event()

    @function(timeout_s=0.5)  # in which it begins on a busy machine, too
    def search(context: Context) -> str:
        """Search."""
        assert go_on.wait(60)
        assert threading.current_thread().daemon
        assert context.is_cancelled()
        ended.set()
        return "too late"

    result = Agent(Script(call("search"), "Nothing."), functions=[search]).call("Where is it?")
    assert result.function_calls[0].error == "TimeoutError: search did not return within 0.5 s"
    go_on.set()
    assert ended.wait(60)
    assert result.function_calls[0].result is None


def test_a_function_is_run_again_under_its_key_when_its_result_was_lost():
    runs: list[str] = []

    @function
    def pay(context: Context) -> str:
        """Pay."""
        runs.append(context.idempotency_key)
        return "paid"

    agent = Agent(Script("Done.", "Done."), functions=[pay])
    asked = agent.seed("Pay.")
    asked.advance("begin", Begun(at_s=0.0, id="c1"))
    asked.advance("model:0", Replied(reply=Reply.of(call("pay"))))
    document = snapshot(asked)
    assert agent.run(asked).output == agent.run(restore(document, agent.prompt)).output == "Done."
    assert len(runs) == 2
    assert len(set(runs)) == 1


def test_an_agent_in_a_function_has_the_deps_of_the_call_that_asks():
    @function
    def who(context: Context[str]) -> str:
        """Who asks?"""
        return context.deps

    inner = Agent(Script(call("who"), lambda request: request.messages[-1].text), name="inner", functions=[who])
    result = Agent(Script(call("inner", task="go"), "ok"), functions=[inner.as_function()]).call("go", deps="Ada")
    assert result.function_calls[0].result == "Ada"


def test_what_a_hook_raises_ends_the_driver():
    class Broken:
        def on_stepped(self, event):
            raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        Agent(Script("hi"), hooks=[Broken()]).call("go")


looks: list[Any] = []


class Named(BaseModel):
    kind: Literal["here"] = "here"
    name: Annotated[str, BeforeValidator(lambda name: looks.append(name) or name)]


class Here(Named):
    child: Here | There | None = None


class There(Named):
    child: Here | There | None = None


class Told(Named):
    child: Annotated[Told | Other, Field(discriminator="kind")] | None = None


class Other(Named):
    kind: Literal["there"] = "there"  # type: ignore[assignment]
    child: Annotated[Told | Other, Field(discriminator="kind")] | None = None


@pytest.mark.parametrize(("tree", "expected"), [(Here, 2**10 - 1), (Told, 10)])
def test_a_recursive_union_without_a_discriminator_takes_exponential_time(tree, expected):
    def plant(tree: Any) -> str:
        """Plant a tree."""
        return "planted"

    plant.__annotations__["tree"] = tree
    value = None
    for _ in range(10):
        value = {"kind": "here", "name": "n", "child": value}
    looks.clear()
    Function.of(plant).bind(json.dumps({"tree": value}))
    assert len(looks) == expected
