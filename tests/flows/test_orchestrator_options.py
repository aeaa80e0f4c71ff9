"""Does the orchestrator ask models and people where its options say so, within its limits, whatever models say?"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from flow_runs import Driver, in_both_worlds
from orchestrations import FAIL, PASS, Ones, as_json, ended, step, strategy

from fsm_agent import Agent
from fsm_agent.errors import AuthFailed
from fsm_agent.flows import FlowError, FlowSuspended
from fsm_agent.flows.orchestrator import GiveUp, Orchestrator, OrchestratorConfig, Supply
from fsm_agent.prompts import PromptModel
from fsm_agent.testing import Script

NAMED = strategy(step("a"), step("b", "Use {{ the gist }} and {{ a }}"))
NAMED_BY_STEP = strategy(step("a"), step("b", "Use {{ a }}"))
REFUSED = strategy(step("a", requires_validation=True))
HOSTILE = ["{{" + " " * 100_000, "{{ " * 33_000, "{" * 100_000, "{{" + " x" * 50_000, ("{{" + " " * 98) * 1_000]


def _matches(**steps: Any) -> str:
    return json.dumps({"steps": {name.replace("_", " "): step_id for name, step_id in steps.items()}})


# 2.49: names that a model matches, intents that a model words


@in_both_worlds
def test_a_model_matches_names(driven: Driver) -> None:
    ones = Ones("A", "B", planner=[_matches(the_gist="a")], strategy=NAMED, config=OrchestratorConfig(llm_names=True))
    run = ones.orchestrator.prepare("x")
    driven(ones.orchestrator.flow, run)
    assert run.result_so_far.is_success
    assert ones.asked[-1] == "Use A and A"
    assert "Names: the gist\n" in ones.decided[0]
    assert "- a: the a" in ones.decided[0]


@pytest.mark.parametrize(("unmatched", "status"), [("error", "step_spent"), ("empty", "completed")])
@pytest.mark.parametrize(
    "said",
    [
        [_matches(the_gist="b")],
        [_matches(the_gist=None)],
        [_matches(a="a")],
        ["no", "none", "not", "never"],
    ],
)
def test_what_a_model_matches_must_be_there(said: list[str], unmatched: Any, status: str) -> None:
    config = OrchestratorConfig(llm_names=True, unmatched=unmatched, max_step_remediations=1)
    ones = Ones("A", "B", planner=said, strategy=NAMED, config=config)
    result = ones.call()
    assert result.state == status
    assert len(ones.decided) == len(said), "it is asked once"
    assert ones.asked == (["do it"] if unmatched == "error" else ["do it", "Use  and A"])
    assert ("{{ the gist }}" in (result.error or "")) is (unmatched == "error")


def test_a_model_words_the_intent() -> None:
    config = OrchestratorConfig(llm_intents=True)
    ones = Ones("A", "B", planner=["Please do it", "Work with {{ a }}, please"], strategy=NAMED_BY_STEP, config=config)
    assert ones.call().is_success
    assert ones.asked == ["Please do it", "Work with {{ a }}, please"], "its words are no template"
    assert "Use A" in ones.decided[1]
    assert "Agent: worker" in ones.decided[1]


def test_an_intent_that_is_not_worded_is_a_failure_of_the_step() -> None:
    config = OrchestratorConfig(llm_intents=True, max_step_remediations=1)
    result = Ones(planner=[AuthFailed("gone")], config=config).call()
    assert result.state == "step_spent"
    assert "gone" in result.error


# 2.44: a person, when a limit is used up


@pytest.mark.parametrize(
    ("limits", "word"),
    [({"max_step_remediations": 1}, "max_step_remediations"), ({"max_total_redesigns": 0}, "max_total_redesigns")],
)
@pytest.mark.parametrize(
    ("answer", "status", "output"), [(Supply("mine"), "completed", "mine"), (GiveUp("enough"), "given_up", None)]
)
def test_a_person_is_asked_at_a_limit(
    tmp_path: Path, limits: Any, word: str, answer: Any, status: str, output: Any
) -> None:
    plan = strategy(step("a", requires_validation=True))
    config = OrchestratorConfig(escalate=True, **limits)
    ones = Ones("A", validator=[FAIL], strategy=plan, config=config, store=str(tmp_path / "runs.db"))
    with pytest.raises(FlowSuspended) as waiting:
        ones.orchestrator.call("x", run_id="r")
    (effect,) = waiting.value.run.effects
    assert word in str(effect.question)
    result = ended(lambda: ones.orchestrator.runs.resume("r", {ones.orchestrator.asking: answer}))
    assert (result.state, result.output) == (status, output)
    assert not ones.decided


def test_of_several_failures_that_of_the_step_which_failed_most_often_is_told() -> None:
    plan = strategy(
        step("first", depends_on=()),
        step("late", "{{ nothing }}", depends_on=("first",)),
        step("often", "{{ nothing }}", depends_on=()),
    )
    config = OrchestratorConfig(max_step_remediations=2)
    result = Ones("A", planner=["RETRY"], strategy=plan, config=config).call()
    assert (result.state, result.failed_step) == ("step_spent", "often")


# Types of one shape


@dataclasses.dataclass(frozen=True)
class Cat:
    name: str


@dataclasses.dataclass(frozen=True)
class Dog:
    name: str


def test_types_of_several_agents_may_have_one_shape() -> None:
    said = '{"name": "x"}'
    agents: list[Agent[Any, Any]] = [
        Agent(Script(said), name="cats", output=Cat),
        Agent(Script(said), name="dogs", output=Dog),
        Agent(Script("[1]"), name="numbers", output=list[int]),
        Agent(Script('["1"]'), name="texts", output=list[str]),
    ]
    plan = strategy(*[step(name[0], assigned_agent=name) for name in ("cats", "dogs", "numbers", "texts")])
    result = Orchestrator(agents, strategy=plan).call("x")
    assert [result.step_output(name) for name in "cdnt"] == [Cat("x"), Dog("x"), [1], ["1"]]
    assert result.outputs_of(Dog) == [Dog("x")]
    assert result.context["d"] == '{"name":"x"}'


@in_both_worlds
def test_outputs_are_rendered_once(driven: Driver) -> None:
    rendered: list[str] = []

    class Note(PromptModel):
        title: str

        def to_prompt(self, mode: Any = None) -> str:
            rendered.append(self.title)
            return f"on {self.title}"

    plan = strategy(
        step("a", requires_validation=True), step("b", "{{ a }}, {{ a }}"), step("c", "{{ a }} {{ previous_output }}")
    )
    said = [f'{{"title": "{name}"}}' for name in "wxyz"]
    ones = Ones(*said, output=Note, validator=[FAIL, PASS], planner=["RETRY"], strategy=plan)
    run = ones.orchestrator.prepare("x")
    driven(ones.orchestrator.flow, run)
    assert run.result_so_far.context == {"a": "on x", "b": "on y", "c": "on z"}
    assert ones.asked[-1] == "on x on y"
    assert rendered == ["w", "x", "y", "z"]


# Whatever models say


def test_outputs_are_not_searched_for_names() -> None:
    evil = "{{ task }} {% raw %} {{ b }} {0} \\1"
    plan = strategy(step("a"), step("b", "<{{ a }}>", requires_validation=True), step("c", "{{ b }}"))
    ones = Ones(evil, evil, "C", validator=[PASS], strategy=plan)
    assert ones.call().is_success
    assert ones.asked[1:] == [f"<{evil}>", evil]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_take_no_longer_than_others(text: str) -> None:
    """A search that went back and forth in them would not end before this test is ended."""
    plan = strategy(step("a", text[:50_000], ends_if="good word"), step("b", "{{ a }}"))
    config = OrchestratorConfig(unmatched="empty", max_step_remediations=1)
    ones = Ones(text, "B", strategy=plan, config=config)
    ones.call()
    assert ones.asked


def test_strategies_and_intents_are_bounded() -> None:
    many = tuple([step(f"s{number}") for number in range(201)])
    with pytest.raises(FlowError, match="200"):
        strategy(*many)
    with pytest.raises(FlowError, match="intent_template"):
        step("a", "x" * 50_001)
    with pytest.raises(FlowError, match="step_id"):
        step("a" * 201)
    with pytest.raises(FlowError):
        step("")
    backwards = [step(f"s{n}", depends_on=(f"s{n + 1}",)) for n in range(199)]
    assert strategy(*backwards, step("s199", depends_on=())).before("s0") == {"s1"}


def test_too_many_new_steps_are_a_full_redesign() -> None:
    many = [json.loads(as_json(step(f"s{number}"))) for number in range(201)]
    planner = ["TACTICAL", json.dumps({"steps": many}), as_json(strategy(step("z")))]
    assert Ones("A", "Z", validator=[FAIL], planner=planner, strategy=REFUSED).call().context == {"z": "Z"}


def test_an_intent_that_grows_too_long_fails_its_step() -> None:
    plan = strategy(step("a"), step("b", "{{ a }}" * 11))
    config = OrchestratorConfig(max_step_remediations=1)
    result = Ones("x" * 100_000, strategy=plan, config=config).call()
    assert result.state == "step_spent"
    assert "1100000" in result.error


@pytest.mark.parametrize(
    ("output", "said", "says"),
    [
        (str, "done", True),
        (str, "All is well.\n\n**DONE!**\n", True),
        (str, "'Done'.", True),
        (str, "not DONE yet", False),
        (str, "DONE\nbut not quite", False),
        (str, "DONE?", False),
        (str, "undone", False),
        (dict[str, str], '{"text": "x", "status": "Done"}', True),
        (dict[str, bool], '{"done": true}', True),
        (dict[str, bool], '{"done": false}', False),
        (dict[str, dict[str, str]], '{"inner": {"status": "done"}}', False),
        (list[str], '["done"]', False),
    ],
)
def test_a_word_is_said_alone(output: Any, said: str, says: bool) -> None:
    plan = strategy(step("a", ends_if="DONE"), step("b"))
    result = Ones(said, said, output=output, strategy=plan).call()
    assert result.is_success
    assert result.steps_executed == (1 if says else 2)


@pytest.mark.parametrize(
    ("word", "said", "says"),
    [
        ("All good", "Well:\nall   good!", True),
        ("all good", "Well:\n- all   good", False),
        ("✅", "✅", True),
        ("7", "7", True),
    ],
)
def test_a_word_may_be_several_or_a_sign(word: str, said: str, says: bool) -> None:
    plan = strategy(step("a", ends_if=word), step("b"))
    assert Ones(said, "b", strategy=plan).call().steps_executed == (1 if says else 2)
