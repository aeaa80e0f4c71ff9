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

from fsm_agent.agents import Agent
from fsm_agent.agents.registry import AGENTS
from fsm_agent.cli.demo.demo import (
    TEXTS,
    Classified,
    Demo,
    Person,
    add,
    build_demo,
    diagram_of,
    worked_turns,
    write_diagrams,
)
from fsm_agent.cli.demo.items import Finding, PartStarted, Remark
from fsm_agent.cli.demo.screen import DemoScreen, report, summary
from fsm_agent.cli.terminal import Screen
from fsm_agent.clients.local.model import SMOLLM2
from fsm_agent.errors import AuthFailed, CallFailed, ConfigError, UsageError
from fsm_agent.functions.function import result_text
from fsm_agent.messages import FunctionResult, Message, Reply, Stepped, Suspended, TokenLogprob, Usage
from fsm_agent.prompts import Dialog
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
        demo = build_demo(script, is_embedded=is_embedded)
        return [item for item in demo.play() if isinstance(item, Finding)], script


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

    def test_one_wrong_label_is_forgiven(self):
        flipped = [judged("negative"), *(judged(label) for _, label in TEXTS[1:])]
        assert played(*good(labels=flipped))[0][3].problem == ""

    def test_a_model_that_answers_at_once_needs_no_exception_branch(self):
        findings, _ = played(*good(count=["7"]))
        assert (findings[2].output, findings[2].problem) == (7, "")
        assert "was not needed" in findings[2].note

    def test_a_model_without_logprobs_leaves_that_out(self):
        findings, _ = played(*good(labels=["Positive"]))
        assert (findings[3].output, findings[3].problem) == (None, "")
        assert findings[3].note == "Left out: the model gives no log probabilities."

    def test_a_model_that_cannot_be_asked_for_logprobs_leaves_that_out(self):
        def refuse(request):
            raise UsageError("this model takes no top_logprobs")

        findings, _ = played(*good(labels=[refuse]))
        assert (findings[3].problem, findings[3].note) == ("", "Left out: this model takes no top_logprobs")

    def test_it_counts(self):
        findings, _ = played(*good())
        assert [finding.rounds for finding in findings] == [1, 0, 0, 0, 0]
        assert findings[3].usage == Usage(input_tokens=5 * len(TEXTS))
        assert findings[0].duration_s == 0.0  # the script's clock stands still

    def test_other_sums(self):
        with Script(call("add", a=2, b=3), "It is 5.", MARIA, "7", *[judged(label) for _, label in TEXTS]) as script:
            played = [item for item in build_demo(script, is_embedded=False).play(2, 3) if isinstance(item, Finding)]
            assert played[0].problem == ""


class TestBad:
    def test_no_function_call(self):
        (finding, *_), _ = played(*good(sum=["It is 42."]))
        assert finding.problem == "the model did not call add(a=17, b=25)"

    def test_wrong_arguments(self):
        (finding, *_), _ = played(*good(sum=[call("add", a=17, b=26), "The answer is 42."]))
        assert finding.problem == "the model did not call add(a=17, b=25)"

    def test_arguments_in_another_order_or_as_text_are_right_too(self):
        (finding, *_), _ = played(*good(sum=[call("add", a="25", b=17), "42"]))
        assert finding.problem == ""

    def test_a_wrong_answer(self):
        (finding, *_), _ = played(*good(sum=[call("add", a=17, b=25), "The answer is 43."]))
        assert finding.problem == "the answer 'The answer is 43.' does not say 42"

    def test_a_wrong_person(self):
        findings, _ = played(*good(person=[MARIA.replace("34", "43")]))
        assert "age=43" in findings[1].problem

    def test_a_wrong_number(self):
        assert played(*good(count=["8"]))[0][2].problem == "the answer 8 is not 7"

    def test_a_call_that_fails_is_a_problem_and_the_rest_goes_on(self):
        findings, _ = played(*good(person=["Maria"] * 4))
        assert findings[1].problem.startswith("unparseable: ")
        assert [finding.problem for finding in findings[2:]] == ["", "", ""]

    def test_wrong_labels(self):
        wrong = [judged({"positive": "negative", "negative": "positive"}[label]) for _, label in TEXTS]
        assert played(*good(labels=wrong))[0][3].problem == f"only 0 of {len(TEXTS)} labels are right"

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

    def test_the_model_sees_them_first(self):
        _, script = played(*good())
        assert script.requests[0].messages[:-1] == (*worked_turns(Dialog(script.requests[0].messages[:1])),)


class TestAgent:
    def test_it_is_a_registered_agent(self):
        assert AGENTS["demo"] is Demo

    def test_only_the_embedded_model_gets_its_settings(self):
        for is_embedded, expected in [(True, (0, 1, 48)), (False, (None, None, None))]:
            _, script = played(*good(), is_embedded=is_embedded)
            settings = script.requests[0].settings
            assert (settings.temperature, settings.seed, settings.max_tokens) == expected

    def test_its_prompts_are_the_packages_whatever_is_in_the_working_directory(self, tmp_path, monkeypatch):
        (tmp_path / "prompts/demo").mkdir(parents=True)
        (tmp_path / "prompts/demo/task.jinja").write_text("mine")
        monkeypatch.chdir(tmp_path)
        _, script = played(*good())
        assert script.requests[0].messages[-1].text == "What is 17 + 25?"

    def test_parts_begin_and_end(self):
        items = list(build_demo(Script(*good()), is_embedded=False).play())
        scenes = [item.title for item in items if isinstance(item, PartStarted)]
        findings = [item.title for item in items if isinstance(item, Finding)]
        assert scenes == findings
        assert len(scenes) == 5
        steps = [f"{item.source} {item.to}" for item in items if isinstance(item, Stepped)]
        assert steps[:4] == ["Seeded Calling", "Calling ToolInterrupt", "ToolInterrupt Calling", "Calling Completed"]


class TestDiagrams:
    def test_the_suffix_says_how(self, tmp_path):
        diagram = diagram_of(played(*good())[0])
        assert write_diagrams(diagram, tmp_path / "run.mmd") == [tmp_path / "run.mmd"]
        drawn = (tmp_path / "run.mmd").read_text()
        assert "ToolInterrupt" in drawn
        assert "ParseException" in drawn
        assert "3 calls" in drawn  # those of the classification are no story
        assert write_diagrams(diagram, tmp_path / "run.dot") == [tmp_path / "run.dot"]
        assert (tmp_path / "run.dot").read_text().startswith("digraph")

    def test_a_directory_gets_what_can_be_drawn(self, tmp_path, monkeypatch):
        diagram = diagram_of(played(*good())[0])
        monkeypatch.setenv("PATH", str(tmp_path))  # no dot here
        assert write_diagrams(diagram, tmp_path / "new/one") == [tmp_path / "new/one/fsm-agent-demo.mmd"]

    @pytest.mark.system
    def test_what_cannot_be_written_or_drawn(self, tmp_path, monkeypatch):
        diagram = diagram_of(played(*good())[0])
        (tmp_path / "file").write_text("x")
        with pytest.raises(UsageError, match="is no directory"):
            write_diagrams(diagram, tmp_path / "file/below")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ConfigError, match="'dot'"):
            write_diagrams(diagram, tmp_path / "x.svg")


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

    def test_what_is_wrong_is_said(self, capsys):
        out = self.shown(capsys, *good(sum=["[red]\x1b[31mIt is 42."])).out
        assert "model: [red][31mIt is 42.\n" in out
        assert "not as it should be: the model did not call add(a=17, b=25)" in out

    def test_beside_json_steps_are_on_stderr(self, capsys):
        said = self.shown(capsys, *good(), as_json=True)
        assert said.out == ""
        assert "Calling → ToolInterrupt (functions_asked)\nadd(a=17, b=25)\nadd → 42\n" in said.err

    @pytest.mark.parametrize(
        ("as_json", "said"),
        [
            (False, "   suspended: it waits for 'ask:1.0'\n   it is still there\n   | from [31m elsewhere\n"),
            (True, "it is still there\n| from [31m elsewhere\n"),
        ],
    )
    def test_what_a_part_says_and_quotes(self, capsys, as_json, said):
        with Screen(steps=as_json) as screen:
            shown = DemoScreen(screen, as_json=as_json)
            for item in (Suspended(("ask:1.0",)), Remark("it is still there"), Remark("from \x1b[31m elsewhere", True)):
                shown.show(item)
        told = capsys.readouterr()
        assert (told.err if as_json else told.out) == said

    def test_the_table_names_every_part_and_its_verdict(self, capsys):
        findings, _ = played(*good(sum=["It is 42."], labels=["Positive"]))
        with Screen() as screen:
            screen.out.width = 120
            screen.show(summary(findings))
        rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
        verdicts = [row.split("│")[-2].strip() for row in rows]
        assert list(filter(None, verdicts)) == ["failed", "ok", "ok", "left out", "left out"]

    def test_on_a_narrow_terminal_the_table_is_a_list(self, capsys):
        findings, _ = played(*good(sum=["It is 42."], labels=["Positive"]))
        with Screen() as screen:
            screen.out.width = 40
            screen.show(summary(findings, 40))
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 40
        assert lines[:4] == [
            "What came of it",
            "A sum, through a function: failed",
            "   It is 42.",
            "   rounds: 0, tokens: 0, 0.0 s",
        ]

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

    @pytest.mark.system
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

    def test_the_report_is_json(self):
        findings, _ = played(*good(sum=["It is 42."]))
        said = json.loads(json.dumps(report("a model", findings, [Path("x.mmd")])))
        assert (said["model"], said["succeeded"], said["diagrams"]) == ("a model", False, ["x.mmd"])
        assert [part["problem"] is None for part in said["parts"]] == [False, True, True, True, True]
        assert said["parts"][1]["output"] == {"name": "Maria Silva", "age": 34, "city": "Lisbon"}
        assert said["parts"][2]["states"] == [["Calling", "ParseException", "Completed"]]


def test_the_function_is_a_function_still():
    assert Agent(Script(), functions=[add]).prompt.by_name["add"](17, 25) == 42
