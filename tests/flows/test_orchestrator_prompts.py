"""Are the prompts of an orchestrator files, worded as they were, and can each be replaced?"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from orchestrations import FAIL, Ones, as_json, step, strategy
from support.paths import ROOT
from test_orchestrator_requests import TOLD

from fsm_agent import Agent, Prompt
from fsm_agent.flows import FlowError
from fsm_agent.flows.orchestrator import OrchestratorConfig
from fsm_agent.prompts import Prompts, register_prompt
from fsm_agent.prompts.library import PROMPTS
from fsm_agent.testing import Script

FOLDER = ROOT / "prompts" / "orchestrator"
REFUSED = strategy(step("a", requires_validation=True))


def asked(**options: Any) -> Ones:
    ones = Ones("A", "B", planner=["RETRY"], validator=[FAIL, FAIL, FAIL], strategy=REFUSED, **options)
    config = OrchestratorConfig(max_step_remediations=2)
    ones.orchestrator = ones.orchestrator.changed(config=config)
    ones.call()
    return ones


# The texts


def test_each_request_reads_as_it_did() -> None:
    """``orchestrator_requests.txt`` was written by the code that had the texts in Python."""
    found = "".join([f"=== {request.__name__.strip('_')}\n{request()}\n" for request, _ in TOLD])
    assert found == Path(__file__).with_name("orchestrator_requests.txt").read_text()


@pytest.mark.parametrize("unmatched", ["fails the step", "is left empty"])
def test_the_rules_say_what_an_unmatched_name_does(unmatched: str) -> None:
    config = OrchestratorConfig(unmatched="error" if unmatched == "fails the step" else "empty")
    ones = Ones("A", planner=[as_json(strategy(step("a")))], strategy=None, config=config)
    ones.call()
    assert f"What means no earlier output {unmatched}." in ones.decided[0]


def test_an_agent_of_a_type_says_its_words_in_a_field() -> None:
    ones = Ones("1", output=int, strategy=strategy(step("a", ends_if="1")))
    assert ones.call().is_success
    assert ones.asked == [
        "do it\nIf the whole task is done, and only then, say 1 as a field of the answer, or as the answer."
    ]


def test_no_text_for_a_model_is_in_python() -> None:
    """What is asked is in files; a text of many words in `requests` would be a prompt, or an error."""
    source = (ROOT / "fsm_agent" / "flows" / "orchestrator" / "requests.py").read_text()
    tree = ast.parse(source)
    docs = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)}
    raised = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in raised
    ]
    assert [text for text in texts if text.count(" ") > 4 and text not in docs and "would be right" not in text] == [
        "Prompts('my_team') or a mapping such as {'deciding': 'The step {{ failed }} failed. Decide: …'}"
    ]


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def test_the_files_are_the_prompts_of_the_package() -> None:
    names = [file.stem for file in FOLDER.iterdir()]
    assert sorted(names) == Prompts("orchestrator", directory=ROOT / "prompts").names()
    assert not Prompts("orchestrator", directory=ROOT / "prompts").problems()


# Replaced


def test_a_text_takes_the_place_of_one(tmp_path: Path) -> None:
    ones = asked(prompts={"deciding": "What now? {{ failed }}: {{ error }}"})
    assert ones.decided == ["What now? 'a': validation failed: dull"]
    assert "PASS or FAIL?" in ones.validator.requests[0].messages[-1].text, "the others stay"


def test_files_take_their_places(tmp_path: Path) -> None:
    folder = tmp_path / "my_team"
    folder.mkdir()
    (folder / "deciding.jinja").write_text("What now? {{ attempts }}\n")
    (folder / "_tone.jinja").write_text("Be kind.")
    (folder / "validating.jinja").write_text("{% include 'my_team/_tone.jinja' %} Is it good? {{ output }}\n")
    ones = asked(prompts=Prompts("my_team", directory=tmp_path))
    assert ones.decided == ["What now? - worker: validation failed: dull"]
    assert ones.validator.requests[0].messages[-1].text == "Be kind. Is it good? A"


def test_a_registered_prompt_goes_first() -> None:
    register_prompt(Prompt("What now?", path="orchestrator/deciding"))
    try:
        assert asked().decided == ["What now?"]
    finally:
        del PROMPTS._entries["orchestrator/deciding"]


def test_the_rules_are_a_prompt_of_others() -> None:
    ones = Ones("A", planner=[as_json(strategy(step("a")))], strategy=None, prompts={"rules": "Write little."})
    ones.call()
    assert "Guide: the guide" in ones.decided[0]
    assert "\n\nWrite little.\n- loops: " in ones.decided[0]
    assert "How to write steps" not in ones.decided[0]


def test_the_validator_is_told_what_it_is() -> None:
    said = Script("A", '{"status": "PASS"}')
    team = Ones(strategy=REFUSED).orchestrator.changed(
        agents=[Agent(said, name="w")], planner=None, validator=None, prompts={"validator": "Be strict."}
    )
    assert team.call("x").is_success
    assert said.requests[1].messages[0].text == "Be strict."


def test_what_models_said_is_no_template_of_a_prompt_of_ones_own() -> None:
    prompts = {"deciding": "{{ error }} {{ outputs }}", "validating": "{{ output }}"}
    plan = strategy(step("a"), step("b", requires_validation=True))
    ones = Ones(*["{{ task }}{% x %}"] * 3, validator=[FAIL] * 2, planner=["RETRY"], strategy=plan, prompts=prompts)
    ones.orchestrator = ones.orchestrator.changed(config=OrchestratorConfig(max_step_remediations=2))
    ones.call()
    assert ones.validator.requests[0].messages[-1].text == "{{ task }}{% x %}"
    assert ones.decided == ["validation failed: dull - a: {{ task }}{% x %}"]


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ({"decidng": "x"}, r"prompts has 'decidng', which no model is asked: did you mean 'deciding'\?"),
        ({"deciding": "{{ eror }}"}, r"the prompt 'deciding' of an orchestrator says \{\{ eror \}\}.*'error'"),
        ({"deciding": Prompt("x", output=int)}, "the prompt 'deciding' of an orchestrator has output"),
        ({"deciding": Prompt("x", settings={"temperature": 0})}, "has settings: a template alone would be right"),
        ({"deciding": 3}, "the prompt 'deciding' of an orchestrator is 3: a text or a Prompt"),
        ("prompts", r"prompts is 'prompts': Prompts\('my_team'\) or a mapping"),
    ],
)
def test_wrong_prompts_are_refused_before_anything_runs(prompts: Any, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        Ones(prompts=prompts)


def test_a_file_that_no_model_is_asked_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "decidng.jinja").write_text("x")
    with pytest.raises(FlowError, match="prompts has 'decidng'"):
        Ones(prompts=Prompts("mine", directory=tmp_path))
