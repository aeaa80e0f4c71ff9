"""Is each event a line of JSON, without secrets, and the last line the end?"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.stub_server import StubServer
from typer.testing import CliRunner

from fsm_agent._internal.values import field_names
from fsm_agent.cli import app
from fsm_agent.cli.json_lines import LineWriter, event_line
from fsm_agent.messages import FunctionCall, Message, Reply, Usage, Where
from fsm_agent.messages import event as events
from fsm_agent.messages.event_json import MAX_EVENT as MAX_LINE
from fsm_agent.messages.event_json import MAX_TEXT

KEY = "sk-abcdefghijklmnopqrstuvwx"
TOOLS = f"""
from fsm_agent import function

def log_in(user: str, password: str) -> str:
    "Log in."
    return "the key is {KEY}"

@function(needs_approval=True)
def remove(path: str) -> str:
    "Remove a file."
    return "gone"
"""
MODEL = ("--model", "openai-compatible:stub", "--base-url")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "tools_of_lines.py").write_text(TOOLS)
    yield tmp_path
    sys.modules.pop("tools_of_lines", None)


def asks_for(name: str, **arguments: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def lines(messages: list[Any], *arguments: str, code: int = 0, **options: Any) -> list[dict[str, Any]]:
    with StubServer(messages) as stub:
        ended = CliRunner().invoke(app, [*arguments, *MODEL, stub.base_url, "--json"], **options)
    assert ended.exit_code == code, ended.stderr
    assert ended.stdout.isascii()
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.system
def test_a_call_is_told_from_its_first_step_to_its_result(here: Path):
    given = ("--function", "tools_of_lines:log_in")
    told = lines([asks_for("log_in", user="ann", password="swordfish"), "Done ✓."], "ask", "?", *given)
    kinds = [line["type"] for line in told]
    assert (kinds[0], kinds[-1], kinds.count("result")) == ("stepped", "result", 1)
    order = ["stepped", "request_started", "function_call_started", "function_started", "function_ended", "text_delta"]
    assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)
    assert "".join([line["text"] for line in told if line["type"] == "text_delta"]) == "Done ✓."
    assert (told[-1]["output"], told[-1]["state"], told[-1]["rounds"]) == ("Done ✓.", "Completed", 1)


@pytest.mark.system
def test_no_line_has_a_secret(here: Path):
    given = ("--function", "tools_of_lines:log_in")
    told = json.dumps(lines([asks_for("log_in", user="ann", password="swordfish"), "Done."], "ask", "?", *given))
    assert "ann" in told
    assert "swordfish" not in told
    assert KEY not in told


def test_only_the_output_is_whole_and_as_it_is():
    said = f"{KEY} {'x' * MAX_TEXT}"
    shown = json.loads(event_line(events.TextDelta(said)))["text"]
    assert (len(shown), shown[-1], KEY in shown) == (MAX_TEXT, "…", False)


def test_the_last_line_is_whole(capsys: pytest.CaptureFixture[str]):
    said = f"{KEY} {'x' * MAX_TEXT}"
    LineWriter().end("result", output=said, detail=said)
    told = json.loads(capsys.readouterr().out)
    assert (told["output"] == said, len(told["detail"])) == (True, MAX_TEXT)


def test_an_event_is_bounded():
    event = events.FunctionProgress("c1", "f", [["x" * MAX_TEXT] * 100])
    line = event_line(event)
    assert len(line) < MAX_LINE
    assert json.loads(line)["type"] == "function_progress"
    assert "characters" in json.loads(line)["cut"]


def test_an_event_inside_has_its_path():
    event = events.Inside("run:1.0", events.Inside("ask:2", events.ArgumentsDelta(0, '{"password": "swordfish')))
    told = json.loads(event_line(event))
    assert (told["type"], told["path"]) == ("arguments_delta", "run:1.0/ask:2")
    assert told["arguments_json"] == '{"password": "***"'


def test_a_line_says_whose_it_is_where_that_is_known():
    where = Where("c1", "", "boss", "")
    for event in (events.TextDelta("x"), events.FunctionProgress("1.0", "f", [["x" * MAX_TEXT] * 100])):
        told = json.loads(event_line(event, where))
        assert (told["call"], told["agent"]) == ("c1", "boss")
    assert "call" not in json.loads(event_line(events.TextDelta("x")))


OF_THE_LAST_LINE = (events.Done, events.Suspended)
EVENTS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and kind.__module__ == events.__name__ and kind not in OF_THE_LAST_LINE
]


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_kind_of_event_has_a_line(kind: Any):
    message = Message.of("assistant", "Hi.")
    given: dict[str, Any] = {"usage": Usage(), "reply": Reply(message=message), "event": events.TextDelta("x")}
    fields = {name: given.get(name, "1") for name in field_names(kind) if name not in getattr(kind, "hidden", ())}
    told = json.loads(event_line(kind(**fields)))
    assert re.fullmatch("[a-z]+(_[a-z]+)*", told["type"])
    shown = {"text", "function_calls", "finish", "usage"} if kind is events.ReplyCompleted else {*fields}
    renamed = {"arguments_json"} if kind is events.ArgumentsDelta else set()
    assert {*told} - {"type"} - renamed >= shown - {"event"} - ({"text"} if renamed else set())
    assert not {"traceback", "shown"} & {*told}


def test_a_reply_has_its_calls():
    message = Message.of("assistant", "Hi.").changed(
        parts=[FunctionCall(name="f", arguments_json='{"api_key": "swordfish"}')]
    )
    told = json.loads(event_line(events.ReplyCompleted(Reply(message=message))))
    assert told["function_calls"] == [{"name": "f", "arguments_json": '{"api_key": "***"}'}]


class TestTheLastLine:
    @pytest.mark.system
    def test_of_a_failure(self):
        told = lines([""], "ask", "?", "--set", "parse_retries=0", code=1)[-1]
        assert (told["type"], told["exit_status"], told["reason"]) == ("failure", 1, "unparseable")
        assert told["error"].startswith("unparseable: the answer is empty")

    def test_of_what_went_wrong_before_the_call(self):
        ended = CliRunner().invoke(app, ["ask", "?", "--model", "gpt-5", "--json"])
        (told,) = [json.loads(line) for line in ended.stdout.splitlines()]
        assert (ended.exit_code, told["type"], told["exit_status"]) == (1, "failure", 1)
        assert "'gpt-5' names no provider" in told["error"]

    @pytest.mark.system
    def test_of_what_waits(self, here: Path):
        given = ("--function", "tools_of_lines:remove", "--store", "runs.db", "--run-id", "tidy")
        told = lines([asks_for("remove", path="x")], "ask", "?", *given, code=3)
        assert (told[-1]["type"], told[-1]["exit_status"], told[-1]["waits_for"]) == ("suspended", 3, ["ask:1.0"])
        command = "fsm-agent runs answer tidy --store runs.db ask:1.0 --approve"
        assert told[-1]["answer_with"] == {"ask:1.0": command}
        assert told[-1]["error"].endswith(f": answer with {command}")
        again = lines([], "runs", "resume", "tidy", *given[:-2], code=3)
        assert again[-1]["type"] == "suspended"

    @pytest.mark.system
    def test_of_each_turn_of_a_chat(self):
        told = lines(["One.", "Two."], "chat", input="a\nb\n")
        assert [line["output"] for line in told if line["type"] == "result"] == ["One.", "Two."]
        assert told[-1]["type"] == "result"

    @pytest.mark.system
    def test_of_a_wrong_command_line_there_is_none(self):
        assert lines([], "ask", "?", "--set", "temprature=0", code=2) == []
