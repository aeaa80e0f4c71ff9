"""Does ``ask`` take pipes and types, print the answer alone, and keep a call that waits?"""

from __future__ import annotations

import json
import re
import shlex
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from command_line import CONTROLS, EVIL, KEY, MODEL, at_terminal, lines_of, ran, refused

from fsm_agent.cli.options import code_for, guesses
from fsm_agent.errors import AuthFailed
from fsm_agent.messages import Document, Image, Message, Reply, Text, Usage
from fsm_agent.testing import Script, function_call

TOOLS = f"""
from fsm_agent import Prompt, function
from fsm_agent.prompts import register_prompt

print("the tools are imported")

def add(a: int, b: int) -> int:
    "Add two integers."
    print("add is called")
    return a + b

register_prompt(Prompt("{{{{ n }}}}?", path="mine/sum", functions=[add]))

def log_in(user: str, password: str) -> str:
    "Log in."
    return "the key is {KEY}"

@function(needs_approval=True)
def remove(path: str) -> str:
    "Remove a file."
    return f"removed {{path}}"

@function(needs_approval=True)
def look() -> str:
    "Say what is kept."
    from fsm_agent.store import Runs
    return [*Runs("runs.db").export("tidy")][-1]
"""
ADD = ("--function", "tools:add")
REMOVE = ("--function", "tools:remove")
STORE = ("--store", "runs.db")


@pytest.fixture(autouse=True)
def _tools(here: Path) -> None:
    (here / "tools.py").write_text(TOOLS)


def ask(*words: str, **options: Any) -> Any:
    return ran("ask", *words, *MODEL, **options)


def said(script: Script, n: int = -1) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in script.requests[n].messages]


def test_the_answer_is_on_stdout_and_the_steps_on_stderr(model: Callable[..., Script]):
    script = model("Hello, world.")
    ended = ask("Say hello.", "--system", "Be brief.")
    assert ended.stdout == "Hello, world.\n"
    assert ended.stderr.splitlines() == ["Seeded → Calling (begun)", "Calling → Completed (answered)"]
    assert said(script) == [("system", "Be brief."), ("user", "Say hello.")]


def test_functions_that_a_person_names_are_called_and_print_beside_the_answer(model: Callable[..., Script]):
    for words in (ADD, (*REMOVE, "--prompt", "mine/sum", "--var", "n=17 + 25")):
        script = model(function_call("add", a=17, b=25), "It is 42.")
        ended = ask(*(["17 + 25?"] if words is ADD else []), *words)
        assert ended.stdout == "It is 42.\n"
        assert "add(a=17, b=25)\nadd is called\nadd → 42\n" in ended.stderr
        assert "the tools are imported" not in ended.stdout
        assert script.requests[-1].messages[-1].parts[0].text == "42"


def test_files_and_urls_are_attached(here: Path, model: Callable[..., Script]):
    (here / "plan.pdf").write_bytes(b"%PDF-1.4 plan")
    (here / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n dot")
    script = model("It is a plan.", "Both.")
    urls = ("https://example.com/cat.jpg?size=2", "https://example.com/terms")
    assert ran("ask", "Sum it up", "-a", "plan.pdf", "-a", "dot.png", *MODEL).stdout == "It is a plan.\n"
    ran("ask", "--prompt", "mine/sum", "--var", "n=1", *ADD, *[word for url in urls for word in ("-a", url)], *MODEL)
    plan, both = [request.messages[-1] for request in script.requests]
    assert [type(part) for part in plan.parts] == [Text, Document, Image]
    assert both.text == "1?"
    assert [(type(part), part.url) for part in both.parts[1:]] == [(Image, urls[0]), (Document, urls[1])]


@pytest.mark.parametrize(("name", "why"), [("none.pdf", "no file can be read from"), ("song.mp3", "got")])
def test_what_cannot_be_attached_is_refused_before_a_request(
    here: Path, model: Callable[..., Script], name: str, why: str
):
    (here / "song.mp3").write_bytes(b"\xff\xfb\x90")
    script = model()
    assert f"{why} '{name}'" in refused("ask", "Sum it up", "-a", name, *MODEL, code=2)
    assert script.requests == []


def test_approve_runs_what_requires_approval(model: Callable[..., Script]):
    model(function_call("remove", path="x"), "It is gone.")
    assert ask("?", *REMOVE, "--approve").stdout == "It is gone.\n"


def test_settings_and_limits_go_where_they_belong(model: Callable[..., Script]):
    script = model("ok")
    ask("?", "--set", "temperature=0", "--set", "max_tokens=99", "--set", 'stop=["x"]', "--set", "rounds=3")
    settings = script.requests[0].settings
    assert (settings.temperature, settings.max_tokens, settings.stop) == (0, 99, ("x",))
    model(Reply(message=Message.of("assistant", "ok"), usage=Usage(input_tokens=7, output_tokens=3)))
    last = lines_of(ask("?", "--json", "--set", "tokens=9", code=1))[-1]
    assert (last["reason"], last["detail"].split()[0]) == ("over budget", "limits.tokens")


def test_an_answer_that_was_cut_off_is_shown_and_said_to_be(model: Callable[..., Script]):
    model(Reply(message=Message.of("assistant", "The ans"), finish="length"))
    ended = ask("?")
    assert (ended.stdout, "max_tokens" in ended.stderr) == ("The ans\n", True)


def test_an_error_of_the_provider_tells_its_facts_once(model: Callable[..., Script]):
    model(AuthFailed("no such key", status=401, request_id="req-7"))
    ended = ask("?", "--quiet", code=1)
    assert ended.stderr.count("\n") == 1
    for fact in ("no such key", "status=401", "request_id=req-7"):
        assert ended.stderr.count(fact) == 1


def test_what_a_model_says_does_nothing_to_the_terminal(model: Callable[..., Script]):
    model(f"[red]{EVIL}:smile:")
    ended = ask("?")
    assert ended.stdout == "[red]a[31mred]0;title2Jbc:smile:\n"
    assert not CONTROLS.search(ended.output)
    model(EVIL)
    ended = ask("?", "--json")
    assert (lines_of(ended)[-1]["text"], ended.stdout.isascii()) == (EVIL, True)


def test_no_character_that_drives_a_terminal_or_reorders_text_is_left(model: Callable[..., Script]):
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10000), *range(0xE0000, 0xE0100)]))
    model(every)
    hidden = {*every} - {*ask("?").stdout}
    assert {c for c in hidden if unicodedata.category(c) == "Cc"} == {
        c for c in every if unicodedata.category(c) == "Cc" and c not in "\t\n"
    }
    marks = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    reordering = {c for c in every if unicodedata.bidirectional(c) in marks} | {*"\u061c\u200e\u200f"}
    assert {c for c in hidden if unicodedata.category(c) != "Cc"} == reordering | {*map(chr, range(0xE0000, 0xE0080))}


def test_a_person_decides_what_the_small_model_may_call_and_trusts_others(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("FSM_AGENT_LOCAL_MODEL", raising=False)
    (here / "other.gguf").write_bytes(b"GGUF")
    told = list[str]()
    screen: Any = SimpleNamespace(tell=told.append)
    assert guesses("local:", None)
    for approves, needs_approval in ((False, None), (True, False)):
        (offered,), _ = code_for("local:", None, ["tools:add"], None, screen, approve=approves)
        assert offered.needs_approval is needs_approval
    for model, base_url in (
        ("local:", "http://127.0.0.1:1/v1"),
        ("openai:m", None),
        (f"local:{here}/other.gguf", None),
    ):
        assert not guesses(model, base_url)
        (offered,), _ = code_for(model, base_url, ["tools:add"], None, screen)
        assert offered.needs_approval is False
    assert len(told) == 2, "each warning is of the model that guesses"
    monkeypatch.setenv("FSM_AGENT_LOCAL_MODEL", str(here / "other.gguf"))
    assert not guesses("local:", None)


@pytest.mark.skipif(sys.platform == "win32", reason="terminals are POSIX")
def test_whoever_sits_there_is_shown_all_that_is_asked_about_and_decides(
    model: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
):
    hidden, long = "x\x1b[2J\u202e\n\u200b  y", "x" * 1000 + "  REAL"
    script = model(
        [function_call("remove", path=hidden), function_call("remove", path=long), function_call("remove", path="z")],
        "One is gone.",
    )
    asked = at_terminal(monkeypatch, "ask", "?", *REMOVE, *MODEL, answers=["perhaps\n", "y\n", "n\n", "\n"])
    assert r"remove(path='x\x1b[2J\u202e\n\u200b  y')? [y/N]: " in asked
    assert f"remove(path='{long}')" in asked
    results = [part.text for message in script.requests[1].messages[2:] for part in message.parts]
    assert [result.startswith("removed x\x1b") for result in results] == [True, False, False]
    assert not [result for result in results[1:] if result.startswith("removed")]


class TestJson:
    """Each event is a line, without secrets, and the last line is the end."""

    def test_a_call_is_told_from_its_first_step_to_its_result(self, model: Callable[..., Script]):
        model(function_call("log_in", user="ann", password="swordfish"), "Done ✓.")
        ended = ask("?", "--json", "--function", "tools:log_in")
        told = lines_of(ended)
        kinds = [line["type"] for line in told]
        assert (kinds[0], kinds[-1], kinds.count("result")) == ("stepped", "result", 1)
        order = ["stepped", "request_started", "function_started", "function_ended", "text_delta"]
        assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)
        last = told[-1]
        assert (last["output"], last["state"], last["reason"], last["rounds"]) == (
            "Done ✓.",
            "Completed",
            "answered",
            1,
        )
        assert last["states"] == ["Calling", "ToolInterrupt", "Calling", "Completed"]
        assert last["function_calls"][0]["name"] == "log_in"
        assert ended.stdout.isascii()
        assert "ann" in ended.stdout
        assert "swordfish" not in ended.stdout
        assert KEY not in ended.stdout

    def test_only_the_output_is_whole_and_as_it_is(self, model: Callable[..., Script]):
        long = f"{KEY} {'x' * 100_000}"
        model(long)
        *before, last = lines_of(ask("?", "--json"))
        assert last["output"] == long
        assert KEY not in json.dumps(before)
        assert all(len(json.dumps(line)) < 100_000 for line in before)

    def test_of_a_failure_and_of_what_waits(self, model: Callable[..., Script]):
        model("")
        last = lines_of(ask("?", "--json", "--set", "parse_retries=0", code=1))[-1]
        assert (last["type"], last["exit_status"], last["reason"]) == ("failure", 1, "unparseable")
        (last,) = lines_of(ran("ask", "?", "--model", "gpt-5", "--json", code=1))
        assert (last["type"], "gpt-5" in last["error"]) == ("failure", True)
        model(function_call("remove", path="x"))
        last = lines_of(ask("?", "--json", *REMOVE, *STORE, "--run-id", "tidy", code=3))[-1]
        assert (last["type"], last["exit_status"], last["waits_for"]) == ("suspended", 3, ["ask:1.0"])
        assert last["answer_with"] == {"ask:1.0": "fsm-agent runs answer tidy --store runs.db ask:1.0 --approve"}
        model()
        again = lines_of(ran("runs", "resume", "tidy", *MODEL, *REMOVE, *STORE, "--json", code=3))
        assert again[-1]["type"] == "suspended"


class TestTask:
    def test_what_is_piped_in_comes_before_the_task(self, model: Callable[..., Script]):
        script = model("Short.", "Short.", "Hi.")
        for words in (["Sum it up."], ["-"], ["Hello"]):
            ask(*words, input=b"" if words == ["Hello"] else b"a long\nreport \xff\n")
        asked = [said(script, n)[0][1] for n in range(3)]
        assert asked == ["a long\nreport \ufffd\n\nSum it up.", "a long\nreport \ufffd", "Hello"]

    def test_what_is_piped_in_is_bounded_before_a_model_is_begun(self):
        ended = ran("ask", "Sum it up.", input=b"x" * 10_000_001, code=2)
        assert "10000000" in ended.stderr

    def test_a_type_makes_json(self, here: Path, model: Callable[..., Script]):
        (here / "people.py").write_text("import enum\nclass Mood(enum.Enum):\n    GOOD = 'good'\n    BAD = 'bad'\n")
        for named, answer, printed in (("people:Mood", "good", "good"), ("int", "42", 42)):
            model(answer)
            assert json.loads(ask("?", "--output", named).stdout) == printed
        assert "nothing" in refused("ask", "?", *MODEL, "--output", "nothing:here")


@pytest.mark.parametrize(
    ("words", "code", "at_fault"),
    [
        ([], 2, "task"),
        (["?", "--prompt", "nothing/here"], 2, "'nothing/here'"),
        (["?", "--prompt", "demo/task"], 2, "'task'"),
        (["?", "--set", "temprature=0"], 2, "'temperature'"),
        (["?", "--set", "rounds=-1"], 2, "rounds"),
        (["?", "--set", "max_tokens=1.5"], 2, "max_tokens"),
        (["?", "--set", "rounds=abc"], 2, "rounds"),
        (["?", "--set", "stop=1"], 2, "stop"),
        (["?", "--set", "seed={}"], 2, "seed"),
        (["?", "--set", "[red]x"], 2, "'[red]x'"),
        (["?", "--var", "a=1"], 2, "'a'"),
        (["?", "--run-id", "r"], 2, "--run-id"),
        (["?", "--function", "tools"], 2, "--function"),
        (["?", "--function", "no_module:f"], 1, "'no_module'"),
        (["?", "--model", "openia:gpt-5"], 1, "'openai'"),
        (["?", "--model", "local:/no/such.gguf"], 1, "'/no/such.gguf'"),
        (["?", "--model", "groq:x", "--base-url", "nope"], 1, "--base-url"),
    ],
)
def test_a_mistake_is_one_paragraph_that_names_what_is_wrong(words: list[str], code: int, at_fault: str):
    ended = ran("ask", *([] if "--model" in words else MODEL), *words, code=code)
    assert ended.stdout == ""
    assert at_fault in " ".join(ended.stderr.replace("│", " ").split())
    assert not re.search(r"base_url|limits\.|the document|resume\(|null|array", ended.stderr), "that is Python"
    if code == 1:
        assert ended.stderr.startswith("fsm-agent: ")
        assert ended.stderr.count("\n") == 1


def test_without_a_key_nothing_is_begun(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    told = refused("ask", "?", "--model", "openai:gpt-5", *STORE, "--run-id", "tidy")
    assert "OPENAI_API_KEY" in told
    assert "runs resume" not in told
    assert not json.loads(ran("runs", "list", *STORE, "--json").stdout)["runs"]


class TestFunctionsOfAModule:
    """Names of objects in modules, as every command takes them."""

    @pytest.mark.parametrize(
        ("module", "named", "at_fault"),
        [
            ("1 / 0", "mine:f", "ZeroDivisionError"),
            ("\nimport inner_here", "mine:f", "inner_here.py:2"),
            ("import no_such_module", "mine:f", "'no_such_module'"),
            ("raise GeneratorExit", "mine:f", "GeneratorExit"),
            ("def __getattr__(name): raise RuntimeError(name)", "mine:f", "RuntimeError"),
            ("", "mind:f", "'mine'"),
            ("def dumps(): ...", "mine:dump_s", "'dumps'"),
            ("1 / 0  # it is not even imported", "mine.py:f", "'mine:f'"),
        ],
    )
    def test_what_cannot_be_had_is_named(self, here: Path, module: str, named: str, at_fault: str):
        (here / "mine.py").write_text(module)
        (here / "inner_here.py").write_text("def f():\n    1 / 0\n\nf()")
        told = refused("ask", "?", *MODEL, "--function", named)
        assert at_fault in told

    def test_a_module_here_goes_before_what_is_installed_and_hides_nothing_later(
        self, here: Path, model: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
    ):
        (here / "colorsys.py").write_text("def of_here() -> str:\n    'Here.'\n    return 'here'\n")
        monkeypatch.delitem(sys.modules, "colorsys", raising=False)
        model(function_call("of_here"), "ok")
        assert "of_here → here" in ask("?", "--function", "colorsys:of_here").stderr
        assert str(here) not in sys.path[:-1]
        monkeypatch.delitem(sys.modules, "colorsys")

    def test_ctrl_c_in_a_module_is_one(self, here: Path):
        (here / "slow.py").write_text("raise KeyboardInterrupt")
        assert "interrupted" in refused("ask", "?", *MODEL, "--function", "slow:f", code=130)


class TestKept:
    def kept(self, model: Callable[..., Script], *words: str, name: str = "remove", **given: Any) -> Any:
        model(function_call(name, **given))
        return ask("?", *words, *STORE, "--run-id", "tidy", code=3)

    def resume(self, script: Script, *words: str, code: int = 0) -> Any:
        ended = ran("runs", "resume", "tidy", *STORE, *MODEL, *words, code=code)
        script.assert_exhausted()  # and by this command
        return ended

    def answer(self, key: str, *words: str) -> None:
        ran("runs", "answer", "tidy", key, *STORE, *words)

    def test_an_approval_lets_the_call_go_on(self, model: Callable[..., Script]):
        kept = self.kept(model, *REMOVE, "--set", "rounds=7", path="x")
        assert "waits for approval as ask:1.0: remove(path='x')\n" in kept.stderr
        self.answer("ask:1.0", "--approve")
        script = model("It is gone.")
        last = lines_of(self.resume(script, *REMOVE, "--json"))[-1]
        assert (last["output"], last["rounds"]) == ("It is gone.", 1)
        assert last["states"] == ["Calling", "ToolInterrupt", "ToolInterrupt", "Calling", "Completed"]
        assert script.requests[0].messages[-1].parts[0].text == "removed x"
        shown = json.loads(ran("runs", "show", "tidy", *STORE, "--json").stdout)
        assert shown["header"]["seed"]["limits"]["rounds"] == 7
        again = self.resume(model(), *REMOVE)
        assert (again.stdout, again.stderr) == ("It is gone.\n", "")

    def test_the_command_that_goes_on_can_be_typed_as_it_is(
        self, model: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
    ):
        model(function_call("remove", path="x"))
        words = ["?", *REMOVE, "--set", "temperature=0", "--set", "rounds=3", "--store", "my runs.db", *MODEL]
        monkeypatch.setattr("sys.argv", ["fsm-agent", "ask", *words])
        told = ran("ask", *words, code=3).stderr.splitlines()
        commands = [line[line.index("fsm-agent runs") :] for line in told if "fsm-agent runs" in line]
        assert len(commands) == 2
        model("It is done.")
        for command in reversed(commands):  # the last one answers
            done = ran(*shlex.split(command)[1:])
        assert done.stdout == "It is done.\n"

    def test_the_same_run_asked_again_goes_on_and_no_other_takes_its_name(self, model: Callable[..., Script]):
        self.kept(model, *REMOVE, path="x")
        self.answer("ask:1.0", "--approve")
        model("It is gone.")
        assert ask("?", *REMOVE, *STORE, "--run-id", "tidy").stdout == "It is gone.\n"
        assert "'tidy'" in refused("ask", "Something else?", *MODEL, *STORE, "--run-id", "tidy")

    def test_each_that_waits_is_shown_whole_and_answered_by_its_key(self, model: Callable[..., Script]):
        model([function_call("remove", path=path) for path in ("a", "b" * 1000, "c")])
        kept = ask("?", *REMOVE, *STORE, "--run-id", "tidy", code=3)
        assert f"as ask:1.1: remove(path='{'b' * 1000}')\n" in kept.stderr
        for key in ("ask:1.0", "ask:1.1", "ask:1.2"):
            assert f"fsm-agent runs answer tidy --store runs.db {key} --approve\n" in kept.stderr
        self.answer("ask:1.0", "--deny")
        self.answer("ask:1.2", "--deny", "--reason", "Not on Sundays.")
        assert "as ask:1.1: remove" in self.resume(model(), *REMOVE, code=3).stderr
        self.answer("ask:1.1", "--approve")
        script = model("b is gone.")
        self.resume(script, *REMOVE)
        results = [message.parts[0].text for message in script.requests[0].messages[2:]]
        assert results[1] == f"removed {'b' * 1000}"
        assert results[2].endswith("Not on Sundays.")

    def test_only_its_owner_can_read_it_and_no_key_is_in_it(
        self, here: Path, model: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", KEY)
        model("Hi.")
        ask("Hello", *STORE)
        assert (here / "runs.db").stat().st_mode & 0o777 == 0o600
        everything = b"".join([path.read_bytes() for path in here.glob("runs.db*") if path.is_file()])
        assert KEY.encode() not in everything

    @pytest.mark.parametrize("interruption", [KeyboardInterrupt, typer.Abort])
    def test_ctrl_c_and_ctrl_d_say_how_a_kept_call_goes_on(
        self, model: Callable[..., Script], interruption: type[BaseException]
    ):
        def interrupt(_: object) -> None:
            raise interruption

        model(interrupt)
        assert "to continue: fsm-agent runs resume tidy" in ask("?", *STORE, "--run-id", "tidy", code=130).stderr

    def test_without_a_store_nothing_is_kept(self, here: Path, model: Callable[..., Script]):
        model("Hi.", function_call("remove", path="x"))
        ask("Hello")
        assert "--store" in ask("?", *REMOVE, code=3).stderr
        assert {path.suffix for path in here.iterdir() if path.is_file()} == {".py"}

    def test_every_step_is_kept_before_the_next(self, model: Callable[..., Script]):
        self.kept(model, "--function", "tools:look", name="look")
        self.answer("ask:1.0", "--approve")
        script = model("ok")
        self.resume(script, "--function", "tools:look")
        assert '"kind":"approved"' in script.requests[0].messages[-1].parts[0].text

    def test_a_function_that_was_approved_and_is_gone_is_asked_about(self, model: Callable[..., Script]):
        self.kept(model, *REMOVE, path="x")
        self.answer("ask:1.0", "--approve")
        assert "'remove'" in self.resume(model(), code=1).stderr
        assert self.resume(model("It is gone."), *REMOVE).stdout == "It is gone.\n"

    @pytest.mark.parametrize(
        ("words", "code", "at_fault"),
        [
            (("other", *STORE), 1, "'other'"),
            (("tidy", "--store", "no.db"), 1, "'no.db'"),
            (("tidy", *STORE, "--set", "rounds=9"), 2, "limits"),
        ],
    )
    def test_what_cannot_be_resumed(self, model: Callable[..., Script], words: Any, code: int, at_fault: str):
        self.kept(model, *REMOVE, path="x")
        assert at_fault in refused("runs", "resume", *MODEL, *words, code=code)


def test_a_prompt_in_a_file_anywhere_includes_those_beside_it(here: Path, model: Callable[..., Script]):
    (here / "shop").mkdir()
    (here / "shop" / "task.jinja").write_text('{% include "_b.jinja" %} of {{ task }}')
    (here / "shop" / "_b.jinja").write_text("The price")
    script = model("9")
    ask("lamps", "--prompt", "shop/task.jinja")
    assert said(script, 0)[-1] == ("user", "The price of lamps")


def test_the_variable_names_the_store_of_every_command(model: Callable[..., Script], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FSM_AGENT_STORE", "runs.db")
    model(function_call("remove", path="x"))
    ask("?", *REMOVE, "--run-id", "tidy", code=3)
    ran("runs", "answer", "tidy", "ask:1.0", "--approve")
    model("It is gone.")
    assert ran("runs", "resume", "tidy", *MODEL, *REMOVE).stdout == "It is gone.\n"
