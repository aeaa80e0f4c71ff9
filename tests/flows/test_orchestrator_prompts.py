"""Are the prompts of an orchestrator files, worded as they were, and can each be replaced?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from orchestrations import FAIL, Ones, as_json, step, strategy

from fsm_agent import Prompt
from fsm_agent.flows import FlowError
from fsm_agent.flows.orchestrator import OrchestratorConfig
from fsm_agent.prompts import Prompts, register_prompt
from fsm_agent.testing import registries

REFUSED = strategy(step("a", requires_validation=True))


def asked(**options: Any) -> Ones:
    ones = Ones("A", "B", planner=["RETRY"], validator=[FAIL, FAIL, FAIL], strategy=REFUSED, **options)
    config = OrchestratorConfig(max_step_remediations=2)
    ones.orchestrator = ones.orchestrator.changed(config=config)
    ones.call()
    return ones


def test_a_text_takes_the_place_of_one(tmp_path: Path) -> None:
    ones = asked(prompts={"deciding": "What now? {{ failed }}: {{ error }}"})
    assert ones.decided == ["What now? 'a': validation failed: dull"]
    assert "PASS" in ones.validator.requests[0].messages[-1].text, "the others stay"


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
    with registries():
        register_prompt(Prompt("What now?", path="orchestrator/deciding"))
        assert asked().decided == ["What now?"]


def test_the_rules_are_a_prompt_of_others() -> None:
    ones = Ones("A", planner=[as_json(strategy(step("a")))], strategy=None, prompts={"rules": "Write little."})
    ones.call()
    assert "the guide" in ones.decided[0]
    assert "Write little." in ones.decided[0]
    assert "{{ name }}" not in ones.decided[0]


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
        ({"decidng": "x"}, "'decidng'"),
        ({"deciding": "{{ eror }}"}, "eror"),
        ({"deciding": Prompt("x", output=int)}, "'deciding'.*output"),
        ({"deciding": Prompt("x", settings={"temperature": 0})}, "'deciding'.*settings"),
        ({"deciding": 3}, "'deciding'"),
        ("prompts", "'prompts'"),
    ],
)
def test_wrong_prompts_are_refused_before_anything_runs(prompts: Any, message: str) -> None:
    with pytest.raises(FlowError, match=message):
        Ones(prompts=prompts)


def test_a_file_that_no_model_is_asked_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "decidng.jinja").write_text("x")
    with pytest.raises(FlowError, match="'decidng'"):
        Ones(prompts=Prompts("mine", directory=tmp_path))
