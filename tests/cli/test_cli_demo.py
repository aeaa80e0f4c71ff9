"""Does the demo show what it promises, and does it say so if a model does not comply?"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CONTROLS, MODEL, ran, refused
from typer.testing import CliRunner

from fsm_agent.cli import app
from fsm_agent.cli.demo import eraser
from fsm_agent.errors import AuthFailed, UsageError
from fsm_agent.messages import Message, Reply, TokenLogprob, Usage
from fsm_agent.testing import Script, function_call

MARIA = '{"name": "Maria Silva", "age": 34, "city": "Lisbon"}'
REFUSES = "I would rather not."  # and no other process is begun


def judged(label: str) -> Reply:
    """Return a one-token answer of a model that prefers 'positive'."""
    other = {"positive": "negative", "negative": "positive"}[label]
    odds = {label: 0.8, other: 0.2}
    liked = [("positive", 0.9), ("negative", 0.1)]
    top = tuple((f" {name.title()}", math.log(odds[name] * liking)) for name, liking in liked)
    return Reply(
        message=Message.of("assistant", "The"),
        finish="length",
        logprobs=(TokenLogprob("The", -9.0, top),),
        usage=Usage(input_tokens=5),
    )


def parts(**changes: list[Any]) -> list[Any]:
    """The replies of a model that does all but the last part right; ``changes`` by the name of the part."""
    right = {
        "sum": [function_call("add", a=17, b=25), "The answer is 42."],
        "person": [MARIA],
        "count": ["A week has 7 days.", '{"value": 7}'],
        "labels": ["Positive"],
        "erase": [REFUSES],
    }
    return [reply for replies in {**right, **changes}.values() for reply in replies]


def problems() -> list[str]:
    """Return the problem that each part reports, or empty."""
    shown = ran("demo", *MODEL, "--output", "run.mmd", code=1).stdout
    parts = re.split(r"^\d  ", shown, flags=re.MULTILINE)[1:]
    return [part.partition("not as it should be: ")[2].partition("\n")[0] for part in parts]


def test_states_functions_and_text_are_shown_in_their_order(model: Callable[..., Script], here: Path):
    script = model(*parts())
    shown = ran("demo", *MODEL, "--output", "run.mmd", code=1).stdout
    lines = [line.strip() for line in shown.splitlines()]
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
    assert any(line.startswith("Calling → ParseException (parse_failed: ") for line in lines)
    assert "ToolInterrupt" in (here / "run.mmd").read_text()
    assert "ParseException" in (here / "run.mmd").read_text()
    assert script.requests[1].messages[-1].parts[0].text == "42"
    free, held = script.requests[3], script.requests[4]
    assert (free.output.schema is None, held.output.schema is None) == (True, False)


@pytest.mark.parametrize(
    ("changes", "part", "problem"),
    [
        ({"sum": ["It is 42."]}, 0, "add(a=17, b=25)"),
        ({"sum": [function_call("add", a=17, b=26), "The answer is 42."]}, 0, "add(a=17, b=25)"),
        ({"sum": [function_call("add", a=17, b=25), "The answer is 43."]}, 0, "43"),
        ({"person": [MARIA.replace("34", "43")]}, 1, "age=43"),
        ({"person": ["Maria"] * 4}, 1, "unparseable"),
        ({"count": ["8"]}, 2, "8"),
        ({"labels": [judged("positive")] * 6}, 3, "labels"),
    ],
)
def test_what_is_wrong_is_told_and_the_rest_goes_on(
    changes: dict[str, list[Any]], part: int, problem: str, model: Callable[..., Script]
):
    model(*parts(**changes))
    told = problems()
    assert problem in told[part]
    assert [index for index, one in enumerate(told[:4]) if one] == [part]


@pytest.mark.parametrize(("wrong", "is_forgiven"), [(0, True), (1, True), (2, False)])
def test_one_label_may_be_wrong(wrong: int, is_forgiven: bool, model: Callable[..., Script]):
    right = ["positive", "negative"] * 3
    labels = ["negative" if label == "positive" and n < 2 * wrong else label for n, label in enumerate(right)]
    model(*parts(labels=[judged(label) for label in labels]))
    assert (problems()[3] == "") is is_forgiven


class Elsewhere:
    """A substitute for another OS process of the demo: the command, in a separate folder, in this process."""

    pid = 12345

    def __init__(self, words: list[str], *, cwd: Path, env: dict[str, str], **_: Any) -> None:
        before = Path.cwd()
        os.chdir(cwd)
        try:
            ended = CliRunner().invoke(app, words[3:], prog_name="fsm-agent", env=env)
        finally:
            os.chdir(before)
        self.stdout = ended.output.splitlines(keepends=True)
        self.returncode = ended.exit_code

    def __enter__(self) -> Elsewhere:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""


ERASE = [function_call("erase", path="notes.txt"), "It is gone."]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", Elsewhere)


@pytest.mark.usefixtures("elsewhere")
def test_what_is_approved_elsewhere_is_done_and_every_part_is_well(model: Callable[..., Script]):
    model(*parts(erase=ERASE))
    ended = ran("demo", *MODEL, "--output", "run.mmd")
    at = 0
    for shown in (
        "script",
        "to be approved: erase(path='notes.txt')",
        "notes.txt is still there",
        "fsm-agent runs answer tidy ask:10.0 --approve",
        "| posted approved",
        "fsm-agent runs resume tidy",
        "| It is gone.",
        "notes.txt is gone",
        "1 of 5 rounds",
        "run.mmd",
    ):
        at = ended.stdout.find(shown, at)
        assert at >= 0, f"{shown} is missing, or in another place"


@pytest.mark.usefixtures("elsewhere")
def test_what_went_wrong_elsewhere_is_the_problem(model: Callable[..., Script]):
    for replies, problem in (
        ([ERASE[0], AuthFailed("the key is old")], "the key is old"),
        ([function_call("erase", path="notes.md"), "It is gone."], "notes.txt is still there"),
    ):
        model(*parts(erase=replies))
        assert problem in problems()[4]


def test_what_a_model_cannot_do_is_left_out(model: Callable[..., Script]):
    def refuse(request: object) -> None:
        raise UsageError("this model takes no top_logprobs")

    for changes in ({"labels": [refuse]}, {"sum": [function_call("add", a="25", b=17), "42"], "count": ["7"]}):
        model(*parts(**changes))
        assert problems()[:4] == [""] * 4


def test_a_model_that_cannot_be_asked_ends_it(model: Callable[..., Script]):
    model(AuthFailed("wrong key"))
    assert "wrong key" in refused("demo", *MODEL)


def test_what_a_model_says_is_shown_plain(model: Callable[..., Script]):
    model(*parts(sum=["[red]\x1b[31mIt is 42."]))
    ended = ran("demo", *MODEL, "--output", "run.mmd", code=1)
    assert "model: [red][31mIt is 42.\n" in ended.stdout
    assert not CONTROLS.search(ended.output)


@pytest.mark.usefixtures("elsewhere")
def test_without_an_output_the_picture_is_a_temporary_file(
    model: Callable[..., Script], here: Path, monkeypatch: pytest.MonkeyPatch
):
    (here / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(here / "tmp"))
    monkeypatch.setenv("PATH", str(here))  # no dot here
    model(*parts())
    *_, last = ran("demo", *MODEL, code=1).stdout.splitlines()
    assert Path(last).parent == here / "tmp"
    assert "ToolInterrupt" in Path(last).read_text()


def test_its_function_erases_in_its_directory_only(here: Path):
    (here / "in").mkdir()
    for path in ("x", "in/x"):
        (here / path).touch()
    erase = eraser(here / "in")
    for path in ("../x", str(here / "x"), "..", ""):
        with pytest.raises((ValueError, OSError)):
            erase(path)
    erase("x")
    assert sorted(path.name for path in here.rglob("*")) == ["in", "x"]
