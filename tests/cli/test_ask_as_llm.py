"""Does ``fsm-agent ask`` take pipes, files and types, go on with a conversation, and keep what was asked?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.stub_server import StubServer
from typer.testing import CliRunner

from fsm_agent import MemoryStore, Runs, SqliteStore
from fsm_agent.cli import app
from fsm_agent.cli.log_store import newest
from fsm_agent.cli.options import MAX_PIPED_BYTES
from fsm_agent.cli.schemas import schema_type
from fsm_agent.errors import UsageError
from fsm_agent.machine.journal import header_of

MODEL = ("--model", "openai-compatible:stub")
DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da6364f80f0001050101"
    "2718e3660000000049454e44ae426082"
)
SECRET = "sk-recognisable0123456789"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for data of users, in which calls are kept."""
    monkeypatch.delenv("FSM_AGENT_LOGS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data" / "fsm_agent" / "logs.db"


def ran(*words: str, input: str | None = None) -> Any:
    return CliRunner().invoke(app, [*words], input=input)


def asked(stub: StubServer, *words: str, input: str | None = None) -> Any:
    return ran("ask", *words, *MODEL, "--base-url", stub.base_url, input=input)


def sent(stub: StubServer, n: int = -1) -> list[Any]:
    messages: list[Any] = stub.requests[n]["messages"]
    return messages


class TestWhatIsPipedIn:
    @pytest.mark.system
    def test_it_comes_before_the_task(self):
        with StubServer(["Short."]) as stub:
            result = asked(stub, "Sum it up.", input="a long\nreport\n")
        assert (result.exit_code, result.stdout) == (0, "Short.\n")
        assert sent(stub)[0]["content"] == "a long\nreport\n\nSum it up."

    @pytest.mark.system
    def test_an_empty_pipe_adds_nothing(self):
        with StubServer(["Hi."]) as stub:
            assert asked(stub, "Hello", input="").exit_code == 0
        assert sent(stub)[0]["content"] == "Hello"

    def test_it_is_bounded(self):
        result = ran("ask", "Sum it up.", input="x" * (MAX_PIPED_BYTES + 1))
        assert result.exit_code == 2
        assert f"more than {MAX_PIPED_BYTES} bytes" in " ".join(result.stderr.split())

    @pytest.mark.system
    def test_in_an_os_process(self, tmp_path: Path):
        (tmp_path / "report.txt").write_text("Ann has three cats.")
        with StubServer(["Three."]) as stub:
            options = f"{' '.join(MODEL)} --base-url {stub.base_url}"
            command = f"cat report.txt | {sys.executable} -m fsm_agent ask 'How many?' {options}"
            where = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
            done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=True, **where)
        assert done.stdout == "Three.\n"
        assert sent(stub)[0]["content"] == "Ann has three cats.\n\nHow many?"


class TestFiles:
    @pytest.mark.system
    def test_pictures_pdfs_and_texts_are_known_by_their_bytes(self, tmp_path: Path):
        (tmp_path / "dot.data").write_bytes(DOT)
        (tmp_path / "bill").write_bytes(b"%PDF-1.7 a bill")
        (tmp_path / "notes.md").write_text("# Notes")
        files = [word for name in ("dot.data", "bill", "notes.md") for word in ("-a", str(tmp_path / name))]
        with StubServer(["Seen."]) as stub:
            result = asked(stub, "What is this?", *files, "-a", "https://example.org/cat.png")
        assert result.stdout == "Seen.\n"
        text, dot, bill, notes, cat = sent(stub)[0]["content"]
        assert text["text"] == "What is this?"
        assert dot["image_url"]["url"].startswith("data:image/png;base64,")
        assert "application/pdf" in json.dumps(bill)
        assert "# Notes" in json.dumps(notes)
        assert cat["image_url"]["url"] == "https://example.org/cat.png"

    @pytest.mark.parametrize(
        ("contents", "problem"),
        [
            (b"\x00\x01\x02", "is no file that models read"),
            (b"", "is no file that models read"),
            (None, "No such file"),
        ],
    )
    def test_what_no_model_reads_is_refused(self, tmp_path, contents, problem):
        path = tmp_path / "thing.bin"
        if contents is not None:
            path.write_bytes(contents)
        result = ran("ask", "What is this?", "-a", str(path))
        assert result.exit_code == 2
        assert problem in " ".join(result.stderr.replace("│", " ").split())

    def test_a_device_is_no_file(self):
        result = ran("ask", "What is this?", "-a", "/dev/zero")
        assert result.exit_code == 2
        assert "no regular file" in " ".join(result.stderr.replace("│", " ").split())


class TestTypes:
    @pytest.mark.system
    def test_fields_give_json(self):
        with StubServer(['{"name": "Ann", "age": 33}']) as stub:
            result = asked(stub, "Who?", "--schema", "name: the full name, age int")
        assert json.loads(result.stdout) == {"name": "Ann", "age": 33}
        schema = json.dumps(stub.requests[0])
        assert "the full name" in schema
        assert '"integer"' in schema

    @pytest.mark.system
    def test_a_file_with_a_schema(self, tmp_path):
        path = tmp_path / "person.json"
        path.write_text(
            '{"type": "object", "properties": {"of": {"$ref": "#/$defs/Age"}}, "required": ["of"],'
            ' "$defs": {"Age": {"type": "integer", "minimum": 1}}}'
        )
        with StubServer(['{"of": 0}', '{"of": 7}']) as stub:
            result = asked(stub, "Who?", "--schema", str(path))
        assert json.loads(result.stdout) == {"of": 7}
        assert len(stub.requests) == 2  # the first answer does not fit

    @pytest.mark.system
    def test_a_type_of_a_module(self, tmp_path, monkeypatch):
        (tmp_path / "people.py").write_text("import enum\nclass Mood(enum.Enum):\n    GOOD = 'good'\n    BAD = 'bad'\n")
        monkeypatch.chdir(tmp_path)
        for named, answer, printed in (("people:Mood", "good", '"good"\n'), ("int", "42", "42\n")):
            with StubServer([answer]) as stub:
                assert asked(stub, "?", "--output", named).stdout == printed

    @pytest.mark.parametrize(
        ("words", "problem"),
        [
            (["--schema", "{"], "is no JSON"),
            (["--schema", ""], "the schema is empty"),
            (["--schema", "age whole"], "the field 'age whole' is none"),
            (["--schema", "age, age"], "is there twice"),
            (["--schema", '{"$ref": "#/$defs/X", "$defs": {"X": {"$ref": "#/$defs/X"}}}'], "leads to itself"),
            (["--schema", '{"$ref": "#/$defs/Y"}'], "leads nowhere"),
            (["--output", "nothing:here"], "there is no module"),
            (["--output", "int", "--schema", "a"], "given twice"),
            (["--output", "int", "--extract"], "code blocks are in text"),
        ],
    )
    def test_what_is_no_type(self, words, problem):
        result = ran("ask", "?", *words)
        assert result.exit_code in (1, 2)
        assert problem in " ".join(result.stderr.replace("│", " ").split())

    def test_references_do_not_multiply(self):
        layers = {f"L{n}": {"type": "array", "items": [{"$ref": f"#/$defs/L{n + 1}"}] * 9} for n in range(30)}
        schema = {"$ref": "#/$defs/L0", "$defs": {**layers, "L30": {"type": "integer"}}}
        with pytest.raises(UsageError, match="more than 5000 parts"):
            schema_type(json.dumps(schema))


BLOCKS = "Here:\n```python\nprint(1)\n```\nor\n```\nprint(2)\n```\n"


class TestWhatIsShown:
    @pytest.mark.system
    @pytest.mark.parametrize(
        ("answer", "printed"),
        [
            (BLOCKS, "print(1)\n"),
            ("~~~~\na ``` b\n~~~~", "a ``` b\n"),
            ("````\n```\ninner\n```\n````", "```\ninner\n```\n"),
            ("```python\ncut off", "cut off\n"),
            ("``` not a fence ```\n```\n1\n```", "1\n"),
        ],
    )
    def test_the_first_code_block(self, answer, printed):
        with StubServer([answer]) as stub:
            result = asked(stub, "Write it.", "-x")
        assert (result.stdout, "no code block" in result.stderr) == (printed, False)

    @pytest.mark.system
    def test_without_a_code_block_it_is_all_of_it(self):
        with StubServer(["None."]) as stub:
            result = asked(stub, "Write it.", "--extract")
        assert result.stdout == "None.\n"
        assert "the answer has no code block" in result.stderr

    @pytest.mark.system
    def test_usage_is_told_beside_the_answer(self):
        with StubServer(["Hi."]) as stub:
            result = asked(stub, "Hello", "--usage", "--quiet")
        assert result.stdout == "Hi.\n"
        assert "tokens in, " in result.stderr


class TestWhatIsKept:
    @pytest.mark.system
    def test_the_last_conversation_goes_on(self, logs: Path):
        with StubServer(["Hello, Ann.", "Ann.", "No idea."]) as stub:
            assert asked(stub, "I am Ann.", "--system", "Be brief.").exit_code == 0
            assert ran("ask", "Who am I?", "-c", "--base-url", stub.base_url).stdout == "Ann.\n"  # of the same model
            assert asked(stub, "Who am I?").stdout == "No idea.\n"
        assert {request["model"] for request in stub.requests} == {"stub"}
        roles = [[(message["role"], message["content"]) for message in sent(stub, n)] for n in range(3)]
        first = [("system", "Be brief."), ("user", "I am Ann.")]
        assert roles == [
            first,
            [*first, ("assistant", "Hello, Ann."), ("user", "Who am I?")],
            [("user", "Who am I?")],
        ]

    @pytest.mark.system
    def test_it_is_listed_shown_and_searched(self, logs: Path):
        with StubServer(["Rome is far.", "Paris is near."]) as stub:
            asked(stub, "Where is Rome?")
            asked(stub, "And the other town?")
        lines = ran("logs").stdout.splitlines()
        assert [line.split("  ", 3)[2:] for line in lines] == [
            ["Completed", "And the other town?"],
            ["Completed", "Where is Rome?"],
        ]
        found = json.loads(ran("logs", "search", "PARIS", "town", "--json").stdout)
        assert [row["question"] for row in found] == ["And the other town?"]
        assert ran("logs", "search", "nothing").stdout == ran("logs", "search", "paris", "rome").stdout == ""
        shown = ran("logs", "show", lines[1].split()[2]).stdout
        assert shown.split("\n")[1:] == ["user:", "Where is Rome?", "assistant:", "Rome is far.", ""]
        assert ran("logs", "show", "--answer").stdout == "Paris is near.\n"
        assert ran("logs", "path").stdout == f"{logs}\n"

    def test_all_of_it_is_looked_through(self):
        runs = Runs(MemoryStore())
        for n in range(205):  # pages have 100
            runs.store.create(str(n), "{}", agent="ask")
        assert [int(run.id) for run in newest(runs)] == [*reversed(range(205))]

    @pytest.mark.system
    def test_only_its_owner_can_read_it_and_no_key_is_in_it(self, logs: Path, monkeypatch):
        monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", SECRET)
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        with StubServer(["Hi."]) as stub:
            words = ("--model", "openai-chat:stub", "--base-url", stub.base_url)
            assert ran("ask", "Hello", *words).exit_code == 0
        assert (logs.stat().st_mode & 0o777, logs.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        everything = b"".join([path.read_bytes() for path in logs.parent.rglob("*") if path.is_file()])
        assert SECRET.encode() not in everything

    @pytest.mark.system
    @pytest.mark.parametrize("off", ["--no-log", "variable"])
    def test_nothing_is_kept_if_it_is_off(self, logs: Path, off, monkeypatch):
        if off == "variable":
            monkeypatch.setenv("FSM_AGENT_LOGS", "off")
        with StubServer(["Hi."]) as stub:
            assert asked(stub, "Hello", *([off] if off == "--no-log" else [])).stdout == "Hi.\n"
        assert not logs.exists()

    @pytest.mark.system
    def test_what_cannot_be_kept_is_told_and_answered_all_the_same(self, logs: Path):
        logs.parent.parent.write_text("no folder")
        with StubServer(["Hi."]) as stub:
            result = asked(stub, "Hello")
            assert (result.exit_code, result.stdout) == (0, "Hi.\n")
            assert "this call is not kept" in result.stderr
            assert asked(stub, "Hello", "-c").exit_code == 1

    def test_without_a_conversation_there_is_none_to_go_on_with(self, logs: Path):
        result = ran("ask", "Hello", "-c")
        assert result.exit_code == 1
        assert "there is no conversation to continue" in " ".join(result.stderr.split())
        assert ran("logs", "show").exit_code == 1

    @pytest.mark.system
    def test_another_store(self, logs: Path, tmp_path):
        with StubServer(["Hello, Ann.", "Ann."]) as stub:
            asked(stub, "I am Ann.", "--store", "mine.db")
            assert asked(stub, "Who am I?", "-c", "--store", "mine.db").stdout == "Ann.\n"
        assert len(sent(stub)) == 3
        assert not logs.exists()
        assert len(ran("logs", "list", "--store", "mine.db").stdout.splitlines()) == 2

    @pytest.mark.system
    def test_a_typed_turn_and_files_go_on(self, logs: Path, tmp_path):
        (tmp_path / "notes.txt").write_text("Ann is 33.")
        with StubServer(["Read.", '{"age": 33}']) as stub:
            asked(stub, "Read this.", "-a", "notes.txt")
            assert json.loads(asked(stub, "Fill in.", "-c", "--schema", "age int").stdout) == {"age": 33}
        assert "Ann is 33." in json.dumps(sent(stub))


SHOP = """
from dataclasses import dataclass
from fsm_agent import Agent
from fsm_agent.flows import Flow, end, execute
from fsm_agent.testing import Script

clerk = Agent(Script("Sorted."), name="clerk")

@dataclass(frozen=True)
class Letter:
    about: str

@execute
def send(letter: Letter) -> str:
    return letter.about

letters = Flow("letters", Letter, start=send, rows=[send.done(end("over"))])
"""


class TestSubmit:
    @pytest.fixture(autouse=True)
    def _shop(self, tmp_path, monkeypatch):
        (tmp_path / "shop_of_submit.py").write_text(SHOP)
        monkeypatch.chdir(tmp_path)

    def submit(self, *words: str, input: str | None = None) -> Any:
        return ran("submit", *words, "--store", "work.db", "--agents", "shop_of_submit", "--create", input=input)

    def test_a_worker_does_it(self):
        assert self.submit("Sort it.", "--agent", "clerk", "--run-id", "r1", "--extra", "ticket=17").stdout == "r1\n"
        assert self.submit("Sort it.", "--agent", "clerk", "--run-id", "r1", "--extra", "ticket=17").stdout == "r1\n"
        assert self.submit('{"about": "rain"}', "--agent", "letters", "--run-id", "r2", "--after", "r1").exit_code == 0
        done = ran("worker", "--store", "work.db", "--agents", "shop_of_submit", "--once")
        assert done.exit_code == 0
        rows = json.loads(ran("runs", "list", "--store", "work.db", "--json").stdout)
        listed = rows["runs"] if isinstance(rows, dict) else rows
        assert {row["id"]: row["is_ended"] for row in listed} == {"r1": True, "r2": True}
        with closing(SqliteStore("work.db")) as store:
            assert header_of(store.load("r1", after=None).header).extra == {"ticket": "17"}

    def test_the_task_may_be_piped_in(self):
        run = self.submit("Sort it.", "--agent", "clerk", input="a list").stdout.strip()
        assert "a list" in ran("runs", "show", run, "--store", "work.db").stdout

    @pytest.mark.parametrize(
        ("words", "problem"),
        [
            (["Sort it."], "--agent names one of clerk, letters"),
            (["Sort it.", "--agent", "clark"], "did you mean 'clerk'?"),
            (["--agent", "clerk"], "give a task"),
            (["rain", "--agent", "letters"], "JSON of this form would be right"),
            (["x", "--agent", "clerk", "--delay", "soon"], "no span of time"),
            (["x", "--agent", "clerk", "--after", "r9"], "there is no run 'r9'"),
        ],
    )
    def test_what_cannot_be_submitted(self, words, problem):
        result = self.submit(*words)
        assert result.exit_code in (1, 2)
        assert problem in " ".join(result.stderr.replace("│", " ").split())
