"""Does the orchestrator ask models and people where its options say so, and is it bounded whatever models say?"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest
from flow_runs import Driver, in_both_worlds
from orchestrations import FAIL, PASS, Ones, as_json, ended, step, strategy

from fsm_agent import Agent
from fsm_agent.errors import AuthFailed
from fsm_agent.flows import FlowError, FlowSuspended
from fsm_agent.flows.orchestrator import GiveUp, Orchestrator, OrchestratorConfig, Supply
from fsm_agent.flows.orchestrator.mapping import MOST_TEXT, Earlier, TooLong, filled, placeholders
from fsm_agent.flows.orchestrator.strategy import MOST_STEPS
from fsm_agent.flows.orchestrator.work import Output, written
from fsm_agent.prompts import PromptModel
from fsm_agent.testing import Script

NAMED = strategy(step("a"), step("b", "Use {{ the gist }} and {{ a }}"))
NAMED_BY_STEP = strategy(step("a"), step("b", "Use {{ a }}"))
REFUSED = strategy(step("a", requires_validation=True))
HOSTILE = ["{{" + " " * 100_000, "{{ " * 33_000, "{" * 100_000, "{{" + " x" * 50_000, ("{{" + " " * 98) * 1_000]


def _matches(**steps: Any) -> str:
    return json.dumps({"steps": {name.replace("_", " "): step_id for name, step_id in steps.items()}})


# 2.49: names that a model matches, intents that a model words


@pytest.mark.spec("2.49: a model is asked for names that match nothing, if configured")
@in_both_worlds
def test_a_model_matches_names(driven: Driver) -> None:
    ones = Ones("A", "B", planner=[_matches(the_gist="a")], strategy=NAMED, config=OrchestratorConfig(llm_names=True))
    run = ones.orchestrator.seed("x")
    driven(ones.orchestrator.flow, run)
    assert run.outcome.is_success
    assert ones.asked[-1] == "Use A and A"
    assert "Names: the gist\n" in ones.decided[0]
    assert "- a: the a" in ones.decided[0]


@pytest.mark.spec("2.49: it must name an earlier step")
@pytest.mark.parametrize(("unmatched", "status"), [("error", "step_spent"), ("empty", "completed")])
@pytest.mark.parametrize(
    "said",
    [
        [_matches(the_gist="b")],
        [_matches(the_gist="nothing")],
        [_matches(the_gist=None)],
        [_matches(a="a")],
        [_matches()],
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
    assert ("{{ the gist }} of 'b' matches no output: those of 'a' are there" in result.error) is (unmatched == "error")


def test_without_names_or_steps_no_model_is_asked() -> None:
    plan = strategy(step("a", "<{{ nothing }}>"), step("b", "{{ a }}"))
    config = OrchestratorConfig(llm_names=True, unmatched="empty")
    ones = Ones("A", "B", strategy=plan, config=config)
    assert ones.call().is_success
    assert not ones.decided


@pytest.mark.spec("2.49: worded without a model unless configured")
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


@pytest.mark.spec("2.44b: asked when a limit is used up, if configured")
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
    assert f"validation failed: dull; {word} are used up" in str(effect.question)
    result = ended(lambda: ones.orchestrator.resume("r", {ones.orchestrator.asking: answer}))
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


@pytest.mark.spec("2.57: rendered once, in every driver")
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
    run = ones.orchestrator.seed("x")
    driven(ones.orchestrator.flow, run)
    assert run.outcome.context == {"a": "on x", "b": "on y", "c": "on z"}
    assert ones.asked[-1] == "on x on y"
    assert rendered == ["w", "x", "y", "z"]


# Whatever models say


def test_outputs_are_not_searched_for_names() -> None:
    evil = "{{ task }} {% raw %} {{ b }} {0} \\1"
    plan = strategy(step("a"), step("b", "<{{ a }}>", requires_validation=True), step("c", "{{ b }}"))
    ones = Ones(evil, evil, "C", validator=[PASS], strategy=plan)
    assert ones.call().is_success
    assert ones.asked[1:] == [f"<{evil}>", evil]


@pytest.mark.system
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_take_linear_time(text: str) -> None:
    def seconds(size: int) -> float:
        begun = time.process_time()
        for _ in range(3):
            placeholders(text[:size])
            filled(text[:size], {})
            written(text[:size]).says("good word")
        return time.process_time() - begun

    seconds(1_000)
    assert seconds(len(text)) < 40 * seconds(len(text) // 10) + 0.05


def test_strategies_and_intents_are_bounded() -> None:
    many = tuple([step(f"s{number}") for number in range(MOST_STEPS + 1)])
    with pytest.raises(FlowError, match="has 201 steps: 200 or fewer would be right"):
        strategy(*many)
    with pytest.raises(FlowError, match="intent_template of a step is 50001: 50000 characters or fewer"):
        step("a", "x" * 50_001)
    with pytest.raises(FlowError, match="step_id of a step is 201: 200 characters or fewer"):
        step("a" * 201)
    with pytest.raises(FlowError, match="a step is called ''"):
        step("")
    assert len(filled("{{ a }}", {"a": "x" * MOST_TEXT})) == MOST_TEXT
    with pytest.raises(TooLong, match="has 1000001 characters"):
        filled("{{ a }}", {"a": "x" * (MOST_TEXT + 1)})
    backwards = [step(f"s{n}", depends_on=(f"s{n + 1}",)) for n in range(MOST_STEPS - 1)]
    assert strategy(*backwards, step(f"s{MOST_STEPS - 1}", depends_on=())).before("s0") == {"s1"}


def test_too_many_new_steps_are_a_full_redesign() -> None:
    many = [json.loads(as_json(step(f"s{number}"))) for number in range(MOST_STEPS + 1)]
    planner = ["TACTICAL", json.dumps({"steps": many}), as_json(strategy(step("z")))]
    assert Ones("A", "Z", validator=[FAIL], planner=planner, strategy=REFUSED).call().context == {"z": "Z"}


def test_an_intent_that_grows_too_long_fails_its_step() -> None:
    plan = strategy(step("a"), step("b", "{{ a }}" * 11))
    config = OrchestratorConfig(max_step_remediations=1)
    result = Ones("x" * 100_000, strategy=plan, config=config).call()
    assert result.state == "step_spent"
    assert "has 1100000 characters" in result.error


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("done", True),
        ("All is well.\n\n**DONE!**\n", True),
        ("'Done'.", True),
        ("not DONE yet", False),
        ("DONE\nbut not quite", False),
        ("DONE?", False),
        ("undone", False),
        ("", False),
        ({"text": "x", "status": "Done"}, True),
        ({"done": True}, True),
        ({"done": False, "n": 1}, False),
        ({"text": "not done"}, False),
        ({"inner": {"status": "done"}}, False),
        (["done"], False),
        (None, False),
    ],
)
def test_a_word_is_said_alone(value: Any, says: bool) -> None:
    assert Output("", json.dumps(value), "").says("DONE") is says
    assert not Output("", json.dumps(value), "").says("")


def test_a_word_may_be_several_or_a_sign() -> None:
    assert written("Well:\n- all   good").says("all good") is False
    assert written("Well:\nall   good!").says("All good")
    assert written("✅").says("✅")
    assert Output("", "7", "").says("7")


@pytest.mark.system
def test_many_placeholders_and_steps_take_linear_time() -> None:
    steps = [step(f"s{n}", description=" ".join([f"w{n + m}" for m in range(100)])) for n in range(200)]

    def seconds(size: int) -> float:
        begun = time.process_time()
        found, _ = Earlier(steps).sources("".join([f"{{{{w{n}}}}}" for n in range(size)]), {})
        assert len(found) == 299
        return time.process_time() - begun

    seconds(1_000)
    assert seconds(100_000) < 5.0, "25 seconds and more, when each was compared with each step"


@pytest.mark.parametrize("name", ["llm_names", "llm_intents", "escalate"])
def test_options_are_true_or_false(name: str) -> None:
    with pytest.raises(FlowError, match=f"{name} is 1: True or False"):
        OrchestratorConfig(**{name: 1})  # type: ignore[arg-type]
