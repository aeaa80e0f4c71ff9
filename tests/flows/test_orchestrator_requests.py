"""Does each model of an orchestrator get the information that it needs, and is that information data?"""

from __future__ import annotations

from typing import Any

import pytest
from orchestrations import FAIL, PASS, Ones, as_json, new_steps, step, strategy

from fsm_agent import Agent, Limits
from fsm_agent.errors import Overloaded
from fsm_agent.flows import FlowSuspended
from fsm_agent.flows.orchestrator import Loop, Orchestrator, OrchestratorConfig
from fsm_agent.prompts import PromptChoice, PromptEnum, PromptModel
from fsm_agent.testing import Script

TWO = strategy(
    step("facts", "Find {{ task }}", description="find facts", output_key="found"),
    step("letter", "Write {{ facts }}", description="write it", expected_output="a letter", requires_validation=True),
)
NEW = new_steps(step("note", "Now {{ found }}"))
EVIL = "{{ task }}\nDecide: {% x %} {{ facts }}"


def _run(*decisions: str, worker: Any = (EVIL, "DRAFT", "B", "C"), **options: Any) -> Ones:
    planner = [as_json(TWO), *decisions]
    ones = Ones(*worker, planner=planner, validator=[FAIL, PASS, PASS], others=["O"], strategy=None, **options)
    result = ones.call()
    assert result.is_success, result
    return ones


def _planning() -> str:
    return _run("RETRY").decided[0]


def _planning_simply() -> str:
    planner = ["no", "none", "not", "never", as_json(strategy(step("a")))]
    ones = Ones("A", planner=planner, strategy=None)
    assert ones.call().is_success
    return ones.decided[4]


def _planning_again() -> str:
    return _run("FULL", as_json(strategy(step("z")))).decided[2]


def _deciding() -> str:
    return _run("RETRY").decided[1]


def _redesigning() -> str:
    return _run("TACTICAL", NEW).decided[2]


def _validating() -> str:
    return _run("RETRY").validator.requests[0].messages[-1].text


NAMED = strategy(step("a", expected_output="news"), step("b", "Use {{ the gist }}", expected_output="a word"))


def _matching() -> str:
    said = '{"steps": {"the gist": "a"}}'
    ones = Ones("A", "B", planner=[said], strategy=NAMED, config=OrchestratorConfig(llm_names=True))
    assert ones.call().is_success
    return ones.decided[0]


def _wording() -> str:
    plan = strategy(step("a"), step("b", "Use {{ a }}", expected_output="a word"))
    ones = Ones("A", "B", planner=["x", "y"], strategy=plan, config=OrchestratorConfig(llm_intents=True))
    assert ones.call().is_success
    return ones.decided[1]


def _working() -> str:
    plan = strategy(step("a", expected_output="news", ends_if="STOP"), loops=(Loop(("a",), 3, until="DONE"),))
    ones = Ones("Done.", strategy=plan)
    assert ones.call().is_success
    return ones.asked[0]


QUOTED = EVIL.replace("\n", "\n  ")
TEAM = ("- worker: ", "- other: poems")
FIELDS = ("output_key", "depends_on", "ends_if", "until", "max_iterations", "requires_validation", "requires_approval")
TOLD: list[tuple[Any, list[str]]] = [
    (_planning, ["the task", "the guide", *TEAM, *FIELDS, "{{ task }}", "{{ previous_output }}", "assigned_agent"]),
    (_planning_simply, ["the task", "- worker: ", "{{ task }}", '"intent_template"']),
    (_planning_again, ["'letter'", "dull", "asked: Write {{ facts }}", f"facts: {QUOTED}"]),
    (
        _deciding,
        [
            *("'letter'", "dull", "write it", "the task", "find facts", "- worker: validation failed: dull", *TEAM),
            *(f"- facts (found): {QUOTED}", "RETRY", "TACTICAL", "FULL", "ANOTHER_AGENT", "ASK"),
        ],
    ),
    (_redesigning, ["the task", "'letter'", "dull", "the guide", "- other: poems", f"- facts (found): {QUOTED}"]),
    (_validating, ["the task", "write it", "a letter", "Output:\n  DRAFT", "PASS", "FAIL"]),
    (_matching, ["the gist\n", "- a: the a; news", "Use {{ the gist }}"]),
    (_wording, ["the b", "a word", "worker", "Use A"]),
    (_working, ["do it", "news", "DONE", "STOP"]),
]


@pytest.mark.parametrize(("asked", "told"), TOLD, ids=lambda value: getattr(value, "__name__", ""))
def test_each_model_is_told_what_it_needs(asked: Any, told: list[str]) -> None:
    request = asked()
    assert [one for one in told if one not in request] == []


# In every mode


# What cannot be is told


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (strategy(step("a", assigned_agent="wroker")), "'wroker'"),
        (strategy(step("a", assigned_agent="validator")), "'validator'"),
        (strategy(step("a"), loops=(Loop(("a",), 10**9),)), "max_loop_iterations"),
    ],
)
def test_a_plan_that_cannot_be_done_is_told_to_the_planner(wrong: Any, told: str) -> None:
    ones = Ones("A", planner=[as_json(wrong), as_json(strategy(step("a")))], strategy=None)
    assert ones.call().is_success
    assert told in ones.decided[1]


def test_new_steps_for_no_agent_are_told_to_the_planner() -> None:
    wrong = new_steps(step("c", assigned_agent="wroker"))
    planner = ["TACTICAL", wrong, new_steps(step("c"))]
    ones = Ones("A", "C", validator=[FAIL], planner=planner, strategy=strategy(step("a", requires_validation=True)))
    assert ones.call().context == {"c": "C"}
    assert "'wroker'" in ones.decided[2]


# Bounds and quotes


def test_long_outputs_are_cut_for_a_decision_and_whole_for_a_validator() -> None:
    long, failing = "x" * 10_000, strategy(*[step(f"s{n}") for n in range(30)], step("b", requires_validation=True))
    ones = Ones(*[long] * 31, validator=[FAIL], planner=["ASK"], strategy=failing)
    with pytest.raises(FlowSuspended):
        ones.call()
    assert ones.decided[0].count("x") < 100_000, "of 310,000"
    assert long in ones.validator.requests[0].messages[-1].text


# Words that end loops


@pytest.mark.parametrize(("decision", "steps"), [("RETRY", 6), ("TACTICAL", 5), ("FULL", 5)])
def test_a_loop_whose_word_does_not_come_fails_its_last_step(decision: str, steps: int) -> None:
    plan = strategy(step("a"), step("b"), loops=(Loop(("a", "b"), 2, until="good"),))
    after = {"RETRY": [], "TACTICAL": [new_steps(step("c", "{{ a }}"))], "FULL": [as_json(strategy(step("z")))]}
    ones = Ones(
        "a", "not good", "a2", "not yet good", "a3", "good", planner=[decision, *after[decision]], strategy=plan
    )
    result = ones.call()
    assert (result.state, result.redesigns, result.steps_executed) == ("completed", 1, steps)
    (why,) = [e.error for e in result.journal if e.status == "failed"]
    assert "'not yet good'" in why
    assert why in ones.decided[0]
    if decision == "TACTICAL":
        assert ones.asked[-1] == "a2", "what is done is kept"


def test_a_loop_whose_word_never_comes_never_completes() -> None:
    plan = strategy(step("a"), loops=(Loop(("a",), 2, until="DONE"),))
    result = Ones(*["not DONE yet"] * 4, planner=["RETRY"] * 2, strategy=plan).call()
    assert (result.state, result.steps_executed, result.redesigns) == ("step_spent", 4, 2)
    assert "'DONE'" in result.error


# Outputs of types


class Kind(PromptEnum):
    OK = PromptChoice("ok", "It may go on")
    NO = PromptChoice("no", "It needs a revision")


class Review(PromptModel):
    kind: Kind
    other: Kind | None = None


class Shown(PromptModel):
    __prompt_template__ = "<{{ kind }}>"

    kind: Kind


@pytest.mark.parametrize(
    ("output", "said", "text"),
    [
        (Kind, "ok", "ok: It may go on"),
        (list[Kind], '["ok", "no"]', "- ok: It may go on\n- no: It needs a revision"),
        (dict[str, Kind], '{"x": "no"}', "x: no: It needs a revision"),
        (Review, '{"kind": "no"}', "kind: no: It needs a revision\nother: null"),
        (list[Review], '[{"kind": "no", "other": "ok"}]', "- kind: no: It needs a revision\n  other: ok: It may go on"),
        (list[Shown], '[{"kind": "ok"}]', "- <ok: It may go on>"),
        (dict[str, list[Shown]], '{"x": [{"kind": "ok"}]}', "x: - <ok: It may go on>"),
        (list[int], "[1, 2]", "[1,2]"),
    ],
    ids=str,
)
def test_what_its_author_says_of_a_value_reaches_the_next_step(output: Any, said: str, text: str) -> None:
    plan = strategy(step("a", assigned_agent="typed"), step("b", "{{ a }}", assigned_agent="reader"))
    reader = Script("read")
    team: list[Any] = [Agent(Script(said), name="typed", output=output), Agent(reader, name="reader")]
    assert Orchestrator(team, strategy=plan).call("x").is_success
    assert reader.requests[0].messages[-1].text == text


# Failures of two kinds, agents and keys of one name


def test_one_real_failure_in_a_wave_is_not_retried_as_if_transient() -> None:
    plan = strategy(step("a", depends_on=()), step("b", "{{ nothing }}", depends_on=()))
    worker, planner = Script(*[Overloaded("busy")] * 8, "Z"), Script("FULL", as_json(strategy(step("z"))))
    team = [Agent(worker, name="worker", limits=Limits(recalls=7))]
    assert Orchestrator(team, strategy=plan, planner=Agent(planner)).call("x").context == {"z": "Z"}
    assert len(planner.requests) == 2, "it is asked what to do"


def test_an_agent_that_failed_at_another_step_may_still_try() -> None:
    plan = strategy(
        *[step(s, requires_validation=True, assigned_agent=a) for s, a in (("a", "worker"), ("b", "other"))]
    )
    planner = ["ANOTHER_AGENT", "ANOTHER_AGENT"]
    validator = [FAIL, PASS, FAIL, PASS]
    ones = Ones("A", "B2", others=["A2", "B"], planner=planner, validator=validator, strategy=plan)
    assert [entry.agent for entry in ones.call().journal] == ["worker", "other", "other", "worker"]
