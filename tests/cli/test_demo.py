"""Does the demo show what it should, and does it say so when it does not?"""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from fsm_agent.cli.demo.demo import (
    TEXTS,
    Classified,
    Person,
    add,
    build_demo,
    worked_turns,
)
from fsm_agent.cli.demo.items import Finding
from fsm_agent.cli.demo.screen import DemoScreen
from fsm_agent.cli.terminal import Screen
from fsm_agent.clients.local.model import SMOLLM2
from fsm_agent.errors import AuthFailed, CallFailed
from fsm_agent.functions.function import result_text
from fsm_agent.messages.message import FunctionResult, Message
from fsm_agent.messages.reply import Reply, TokenLogprob, Usage
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.testing import Script, call

MARIA = '{"name": "Maria Silva", "age": 34, "city": "Lisbon"}'


def judged(label: str, p: float = 0.8) -> Reply:
    """A one-token answer of a model that likes to say 'positive'."""
    other = {"positive": "negative", "negative": "positive"}[label]
    odds = {label: p, other: 1 - p}
    top = tuple(
        (f" {name.title()}", math.log(odds[name] * liking)) for name, liking in [("positive", 0.9), ("negative", 0.1)]
    )
    logprobs = (TokenLogprob("The", -9.0, top),)
    return Reply(
        message=Message.of("assistant", "The"), finish="length", logprobs=logprobs, usage=Usage(input_tokens=5)
    )


def good(**changes) -> list:
    """The replies of a model that does everything right; ``changes`` by the part's name."""
    parts = {
        "sum": [call("add", a=17, b=25), "The answer is 42."],
        "person": [MARIA],
        "count": ["A week has 7 days.", '{"value": 7}'],
        "labels": [judged(label) for _, label in TEXTS],
        **changes,
    }
    return [entry for part in parts.values() for entry in part]


def played(*entries, is_embedded=False) -> tuple[list[Finding], Script]:
    with Script(*entries) as script:
        return build_demo(script, is_embedded=is_embedded).call(), script


class TestGood:
    def test_every_part_succeeds(self):
        findings, _ = played(*good())
        assert [finding.problem for finding in findings] == [""] * 5
        assert [finding.output for finding in findings[:3]] == [
            "The answer is 42.",
            Person(name="Maria Silva", age=34, city="Lisbon"),
            7,
        ]
        assert [(label.text, label.label) for label in findings[3].output] == list(TEXTS)
        assert findings[4].note == "Left out: no other process can ask this model."

    def test_the_function_is_really_called(self):
        findings, script = played(*good())
        (f,) = findings[0].calls[0].record.function_calls
        assert (f.name, f.arguments, f.result) == ("add", {"a": 17, "b": 25}, "42")
        assert script.requests[1].messages[-1].parts[0].text == "42"

    def test_the_parse_error_is_shown_to_the_model_and_pruned(self):
        findings, script = played(*good())
        (one,) = findings[2].calls
        states = [str(step.to) for step in one.record.trace]
        assert states == ["Calling", "ParseException", "Completed"]
        free, held = script.requests[3], script.requests[4]
        assert free.output.schema is None
        assert held.output.schema is not None
        assert "there is no int" in held.messages[-1].text
        assert "A week has 7 days." not in [m.text for m in one.record.dialog]

    def test_labels_are_calibrated(self):
        findings, script = played(*good())
        assert all(isinstance(label, Classified) and label.is_right for label in findings[3].output)
        assert {(r.settings.max_tokens, r.settings.top_logprobs) for r in script.requests[5:]} == {(1, 20)}

    def test_a_model_that_answers_at_once_needs_no_exception_branch(self):
        findings, _ = played(*good(count=["7"]))
        assert (findings[2].output, findings[2].problem) == (7, "")
        assert "was not needed" in findings[2].note

    def test_a_model_without_logprobs_leaves_that_out(self):
        findings, _ = played(*good(labels=["Positive"]))
        assert (findings[3].output, findings[3].problem) == (None, "")
        assert findings[3].note == "Left out: the model gives no log probabilities."


class TestBad:
    def test_no_function_call(self):
        (finding, *_), _ = played(*good(sum=["It is 42."]))
        assert finding.problem == "the model did not call add(a=17, b=25)"

    def test_arguments_in_another_order_or_as_text_are_right_too(self):
        (finding, *_), _ = played(*good(sum=[call("add", a="25", b=17), "42"]))
        assert finding.problem == ""

    def test_a_wrong_answer(self):
        (finding, *_), _ = played(*good(sum=[call("add", a=17, b=25), "The answer is 43."]))
        assert finding.problem == "the answer 'The answer is 43.' does not say 42"

    def test_a_call_that_fails_is_a_problem_and_the_rest_goes_on(self):
        findings, _ = played(*good(person=["Maria"] * 4))
        assert findings[1].problem.startswith("unparseable: ")
        assert [finding.problem for finding in findings[2:]] == ["", "", ""]

    def test_a_model_that_cannot_be_asked_ends_it(self):
        with pytest.raises(CallFailed, match="wrong key"):
            played(AuthFailed("wrong key"))


class TestWorkedTurns:
    def test_they_are_what_the_machine_makes_of_a_sum(self):
        dialog = worked_turns(Dialog([Message.of("system", "s")]))
        assert [m.role for m in dialog] == ["system", *["user", "assistant", "tool", "assistant"] * 2]
        for asked, told, said in [dialog[2:5], dialog[6:9]]:
            (f,) = asked.function_calls
            (result,) = told.parts
            assert isinstance(result, FunctionResult)
            assert (result.id, result.text) == (f.id, result_text(add(**f.arguments)))
            assert said.text == f"The answer is {result.text}."


class TestAgent:
    def test_only_the_embedded_model_gets_its_settings(self):
        for is_embedded, expected in [(True, (0, 1, 48)), (False, (None, None, None))]:
            _, script = played(*good(), is_embedded=is_embedded)
            settings = script.requests[0].settings
            assert (settings.temperature, settings.seed, settings.max_tokens) == expected


class TestShown:
    def shown(self, capsys, *entries, as_json=False):
        with Screen(steps=as_json) as screen:
            shown = DemoScreen(screen, as_json=as_json)
            shown.introduce(SMOLLM2.name)
            for item in build_demo(Script(*entries), is_embedded=False).play():
                shown.show(item)
        return capsys.readouterr()

    def test_states_functions_and_text_in_their_order(self, capsys):
        lines = [line.strip() for line in self.shown(capsys, *good()).out.splitlines()]
        start = lines.index("asked: What is 17 + 25?")
        assert lines[start + 1 : start + 8] == [
            "Seeded → Calling (begun)",
            "Calling → ToolInterrupt (functions_asked)",
            "function: add(a=17, b=25)",
            "function: add → 42",
            "ToolInterrupt → Calling (returned)",
            "model: The answer is 42.",
            "Calling → Completed (answered)",
        ]
        assert "Calling → ParseException (parse_failed: there is no int in JSON in the answer)" in lines
        assert f"positive (0.80): {TEXTS[0][0]}" in lines
        assert "With 135 million parameters" in " ".join(lines)

    @pytest.mark.parametrize("width", [40, 80])
    def test_on_a_terminal_no_word_is_broken_and_no_template_is_shown(self, width):
        screen = Screen(steps=False)
        file = io.StringIO()
        screen.out = Console(file=file, force_terminal=True, width=width, no_color=True, highlight=False)
        shown, items = DemoScreen(screen), [*build_demo(Script(*good()), is_embedded=False).play()]
        shown.introduce(SMOLLM2.name)
        for item in items:
            shown.show(item)
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue()).splitlines()
        assert max(len(line) for line in lines if not line.startswith("   model: ")) <= width  # as it comes
        words = " ".join(line.strip() for line in lines)
        assert "the failed try is pruned from the dialog." in words
        assert f"Text: {TEXTS[0][0]} Sentiment:" in words
        assert "{{" not in words

    def test_the_picture_is_a_temporary_file_or_mermaid_and_nothing_is_written_here(
        self, capsys, tmp_path, monkeypatch
    ):
        findings, _ = played(*good())
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        dot = shutil.which("dot")
        for path in [os.environ["PATH"]] * bool(dot) + [str(tmp_path)]:  # in the second there is no dot
            monkeypatch.setenv("PATH", path)
            with Screen() as screen:
                DemoScreen(screen).finish("a model", findings, None)
            last = capsys.readouterr().out.splitlines()[-1]
            if path == str(tmp_path):
                assert last.startswith("    linkStyle ")
            else:
                assert last.startswith(f"{tmp_path}/fsm-agent-demo-")
                assert Path(last).read_text().startswith("<?xml")
        with Screen() as screen:
            DemoScreen(screen, as_json=True).finish("a model", findings, None)
        assert json.loads(capsys.readouterr().out)["diagrams"] == []
        assert not [*Path().iterdir()]
