"""Does the orchestrator do what the specification's rows say, one by one?"""

from __future__ import annotations

import dataclasses
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from flow_runs import Driver, begun, everywhere
from orchestrations import FAIL, PASS, Ones, as_json, ended, new_steps, step, strategy

from fsm_agent import Agent, AgentBase, UsageError
from fsm_agent.call import Slept
from fsm_agent.errors import Overloaded
from fsm_agent.flows import FlowSuspended
from fsm_agent.flows.orchestrator import (
    Accept,
    Blueprint,
    GiveUp,
    Loop,
    Orchestrator,
    OrchestratorConfig,
    Reject,
    Strategy,
    Supply,
)
from fsm_agent.prompts import PromptModel
from fsm_agent.testing import Script

REFUSED = strategy(step("a", requires_validation=True))
TWO = strategy(step("a"), step("b", "Use {{ a }}", requires_validation=True))


class Report(PromptModel):
    """A report."""

    title: str


@dataclasses.dataclass(frozen=True)
class Plain:
    n: int


# 2.40 to 2.43


def test_a_model_plans_by_the_blueprint() -> None:
    planner, worker = Script("no plan", as_json(TWO)), Script("A", "B")
    agents = [Agent(worker, name="worker", system="can do all")]
    blueprint = Blueprint("first this", graph="graph TD; x-->y")
    validator = Agent(Script(PASS), name="validator")
    o = Orchestrator(agents, blueprint, planner=Agent(planner), validator=validator)
    result = o.call("the task")
    asked = planner.requests[0].messages[-1].text
    assert "first this" in asked
    assert "x-->y" in asked
    assert "worker: can do all" in asked
    assert len(planner.requests) == 2, "what is no plan is asked for again, by the call"
    assert (result.state, result.steps_executed, result.redesigns, result.output) == ("completed", 2, 0, "B")


def test_the_validator_is_there_and_passes() -> None:
    o = Orchestrator([Agent(Script("A", PASS), name="w")], strategy=REFUSED)
    assert o.agents == ["w", "validator"]
    assert o.call("x").is_success


def test_a_fail_of_the_validator_counts() -> None:
    ones = Ones("A", "better", validator=[FAIL, PASS], planner=["RETRY"], strategy=REFUSED)
    result = ones.call()
    assert (result.output, result.redesigns) == ("better", 1)
    assert "dull" in ones.decided[0]


def test_counts_are_true_after_a_failure() -> None:
    result = Ones("A", "B", "B", "B", validator=[FAIL] * 3, planner=["RETRY"] * 2, strategy=TWO).call()
    assert (result.state, result.steps_executed, result.redesigns) == ("step_spent", 1, 2)
    assert result.output == "A"
    assert "dull" in result.error
    assert result.failed_step == "b"


# 2.44


def test_a_transient_failure_is_retried_without_asking() -> None:
    ones = Ones(*[Overloaded("busy")] * 8, "A")
    ones.orchestrator = _with_limits(ones)
    result = ones.call()
    assert result.is_success
    assert result.redesigns == 1
    assert not ones.decided


def _with_limits(ones: Ones) -> Orchestrator:
    from fsm_agent import Limits

    agent = Agent(ones.worker, name="worker", limits=Limits(recalls=7))
    return Orchestrator([agent], strategy=strategy(step("a")), planner=Agent(ones.planner), validator=agent)


def test_a_tactical_redesign_keeps_what_is_done() -> None:
    planner = ["TACTICAL", new_steps(step("c", "Now {{ a }}"))]
    ones = Ones("A", "B", "C", validator=[FAIL], planner=planner, strategy=TWO)
    result = ones.call()
    assert ones.asked == ["do it", "Use A", "Now A"]
    assert result.context == {"a": "A", "c": "C"}
    assert (result.steps_executed, result.redesigns) == (2, 1)


def test_a_full_redesign_begins_anew() -> None:
    planner = ["RETRY", "FULL", as_json(TWO), "RETRY", "RETRY"]
    ones = Ones("A", "B", "B", "A2", "B", "B", "B", validator=[FAIL] * 5, planner=planner, strategy=TWO)
    result = ones.call()
    assert (result.state, result.redesigns, result.steps_executed) == ("step_spent", 4, 2)
    assert result.context == {"a": "A2"}
    assert "What it has done: a: A" in ones.decided[2]
    assert "dull" in ones.decided[2]


def test_no_decision_is_a_full_redesign() -> None:
    planner = [*["do not RETRY, FULL", "MAYBE", "WHO KNOWS", "NEVER"], as_json(strategy(step("z")))]
    result = Ones("A", "Z", validator=[FAIL], planner=planner, strategy=REFUSED).call()
    assert result.context == {"z": "Z"}
    assert result.redesigns == 1


def test_a_plan_is_asked_for_more_simply_once() -> None:
    said = ["no", "none", "not", "never"]
    result = Ones("A", planner=[*said, as_json(strategy(step("a")))], strategy=None).call()
    assert result.is_success
    result = Ones(planner=[*said, *said], strategy=None).call()
    assert (result.state, result.steps_executed) == ("unrecoverable", 0)
    assert result.error


@pytest.mark.parametrize(
    ("answer", "status", "context"),
    [
        (Supply("mine"), "completed", {"a": "A", "b": "mine"}),
        (strategy(step("z")), "completed", {"z": "Z"}),
        (GiveUp("enough"), "given_up", {"a": "A"}),
    ],
)
def test_a_person_is_asked(tmp_path: Path, answer: Any, status: str, context: Any) -> None:
    store = str(tmp_path / "runs.db")
    ones = Ones("A", "B", "Z", validator=[FAIL], planner=["ASK"], strategy=TWO, store=store)
    with pytest.raises(FlowSuspended):
        ones.orchestrator.call("x", run_id="r")
    result = ended(lambda: ones.orchestrator.runs.resume("r", {ones.orchestrator.asking: answer}))
    assert (result.state, result.context) == (status, context)


def test_without_new_steps_it_is_a_full_redesign() -> None:
    planner = ["TACTICAL", "no", "none", "not", "never", as_json(strategy(step("z")))]
    assert Ones("A", "Z", validator=[FAIL], planner=planner, strategy=REFUSED).call().context == {"z": "Z"}


def test_a_validator_without_a_verdict_fails_the_step() -> None:
    config = OrchestratorConfig(max_step_remediations=1)
    validator = ["perhaps", "maybe", "who knows", "never"]
    result = Ones("A", validator=validator, strategy=REFUSED, config=config).call()
    assert result.state == "step_spent"
    assert result.output is None


def test_what_is_left_is_decided_by_the_orchestrator(tmp_path: Path) -> None:
    garbage = ["no", "none", "not", "never"]  # an answer and three retries: all that the agent does about it
    planner = ["TACTICAL", new_steps(step("b")), "FULL", as_json(strategy(step("c"))), "ASK"]
    ones = Ones(*garbage * 3, output=Plain, planner=planner, store=str(tmp_path / "runs.db"))
    with pytest.raises(FlowSuspended):
        ones.orchestrator.call("x", run_id="r")
    result = ones.orchestrator.runs.resume("r", {ones.orchestrator.asking: Supply("mine")})
    assert [(entry.step_id, entry.status) for entry in result.journal] == [
        *[(name, "failed") for name in "abc"],
        ("c", "completed"),
    ]
    assert (result.output, result.redesigns) == ("mine", 2)
    assert all("Decide:" in ones.decided[number] for number in (0, 2, 4))
    assert all(entry.at_s > 0 for entry in result.journal), "that of the person as well"


# 2.45 to 2.47


@pytest.mark.parametrize("most", [1, 3])
def test_attempts_at_a_step(most: int) -> None:
    config = OrchestratorConfig(max_step_remediations=most)
    ones = Ones(*"AAAA", validator=[FAIL] * 4, planner=["RETRY"] * 4, strategy=REFUSED, config=config)
    result = ones.call()
    assert result.state == "step_spent"
    assert len(ones.asked) == most
    assert result.redesigns == most - 1


def test_the_limit_of_the_step_goes_first() -> None:
    config = OrchestratorConfig(max_step_remediations=2, max_total_redesigns=1)
    ones = Ones("A", "A", validator=[FAIL] * 2, planner=["RETRY"], strategy=REFUSED, config=config)
    assert ones.call().state == "step_spent"


@pytest.mark.parametrize(("decision", "attempts"), [("TACTICAL", 3), ("FULL", 6)])
def test_the_count_is_kept_by_a_tactical_redesign(decision: str, attempts: int) -> None:
    again = step("b", requires_validation=True)
    new = new_steps(again) if decision == "TACTICAL" else as_json(strategy(again))
    planner = [decision, new, decision, new, decision, new, "RETRY", "RETRY"]
    config = OrchestratorConfig(max_total_redesigns=5)
    ones = Ones(*"AAAAAA", validator=[FAIL] * 6, planner=planner, strategy=REFUSED, config=config)
    result = ones.call()
    assert len(ones.asked) == attempts
    assert result.state == "step_spent"


@pytest.mark.parametrize(("options", "most"), [({"max_total_redesigns": 2}, 2), ({}, 10)])
def test_redesigns_in_all(options: Any, most: int) -> None:
    planner = [text for _ in range(most) for text in ("FULL", as_json(REFUSED))]
    said = ["A"] * (most + 1)
    config = OrchestratorConfig(**options)
    ones = Ones(*said, validator=[FAIL] * len(said), planner=planner, strategy=REFUSED, config=config)
    result = ones.call()
    assert (result.state, result.redesigns, len(ones.asked)) == ("total_spent", most, most + 1)


def test_part_of_a_configuration() -> None:
    config = OrchestratorConfig(max_step_remediations=5)
    assert (config.max_step_remediations, config.max_total_redesigns) == (5, 10)
    assert dataclasses.replace(config, max_total_redesigns=15).max_step_remediations == 5


# 2.48 to 2.51, 2.57


def test_the_next_step_gets_the_readable_text() -> None:
    rendered = []

    class Counted(Report):
        def to_prompt(self, mode: Any = None) -> str:
            rendered.append(self.title)
            return f"A report on {self.title}"

    plan = strategy(step("a"), step("b", "{{ a }} and {{ a }}", depends_on=("a",)), step("c", "{{ a }}"))
    ones = Ones('{"title": "x"}', '{"title": "y"}', '{"title": "z"}', output=Counted, strategy=plan)
    ones.call()
    assert ones.asked[1:] == ["A report on x and A report on x", "A report on x"]
    assert rendered == ["x", "y", "z"]


def test_without_a_text_it_gets_json() -> None:
    ones = Ones('{"n": 1}', '{"n": 2}', output=Plain, strategy=strategy(step("a"), step("b", "{{ a }}")))
    ones.call()
    assert ones.asked[1] == '{"n":1}'


def test_placeholders() -> None:
    plan = strategy(step("a"), step("b", "{{ y }} {{x}} {{ y}} {c}"))
    config = OrchestratorConfig(llm_names=True, unmatched="empty")
    ones = Ones("A", "B", planner=['{"steps": {"y": "a", "x": "a"}}'], strategy=plan, config=config)
    assert ones.call().is_success
    assert "Names: y, x\n" in ones.decided[0]
    assert ones.asked[-1] == "A A A {c}"


def test_the_step_that_matches_best() -> None:
    earlier = [
        step("s1", description="list the market prices"),
        step("s2", description="market"),
        step("s3", description="a concept of the world"),
        step("s4", description="the concept, once more", output_key="key"),
    ]
    names = ["market_prices", "concept_content", "s3_output", "key", "previous_output"]
    none = ["content", "mark"]  # a word that says nothing, and no whole word
    plan = strategy(*earlier, step("last", " ".join(f"<{{{{ {name} }}}}>" for name in [*names, *none])))
    ones = Ones(*"1234", "end", strategy=plan, config=OrchestratorConfig(unmatched="empty"))
    assert ones.call().is_success
    assert ones.asked[-1] == "<1> <4> <3> <4> <4> <> <>"


def test_a_step_that_is_called_previous_output_is_meant_by_it() -> None:
    plan = strategy(step("a", output_key="previous_output"), step("b"), step("c", "{{ previous_output }}"))
    ones = Ones("A", "B", "C", strategy=plan)
    assert ones.call().is_success
    assert ones.asked[-1] == "A"


def test_of_agents_that_fit_equally_the_first_of_the_team_is_taken() -> None:
    for wanted, fit in [("paint", "ann"), ("paint with bob", "bob"), ("eve and bob", "bob")]:
        team = [Agent(Script("x"), name=name) for name in ("ann", "bob", "eve")]
        result = Orchestrator(team, strategy=strategy(step("a", description=wanted))).call("x")
        assert [entry.agent for entry in result.journal] == [fit]


def test_three_of_ten_outputs_are_given_whole() -> None:
    names = [f"n{number}" for number in range(10)]
    said = [name * 300 for name in names]
    last = step("end", "{{ n2 }}|{{ n5_output }}|{{ step_9_output }}|{{ task }}")
    ones = Ones(*said, "done", strategy=strategy(*map(step, names), last))
    assert ones.call().is_success
    assert ones.asked[-1] == "|".join([said[2], said[5], said[8], "the task"])
    assert not ones.decided


@pytest.mark.parametrize(("unmatched", "status"), [("error", "step_spent"), ("empty", "completed")])
def test_a_placeholder_without_an_output(unmatched: Any, status: str) -> None:
    config = OrchestratorConfig(unmatched=unmatched, max_step_remediations=1)
    ones = Ones("A", config=config, strategy=strategy(step("a", "<{{ nothing }}>")))
    result = ones.call()
    assert result.state == status
    assert ones.asked == ([] if unmatched == "error" else ["<>"])
    assert ("{{ nothing }}" in (result.error or "")) is (unmatched == "error")


@everywhere
def test_an_intent_that_is_empty_when_it_is_filled_is_a_failure_of_the_step(driven: Driver) -> None:
    """It is not the caller's error, whoever made the strategy."""
    config = OrchestratorConfig(unmatched="empty", max_step_remediations=1)
    ones = Ones(config=config, strategy=strategy(step("a", " {{ nothing }}")))
    run = ones.orchestrator.prepare("x")
    driven(ones.orchestrator.flow, run)
    result = run.result_so_far
    assert (result.state, ones.asked) == ("step_spent", [])
    assert "{{ nothing }}" in result.error


def test_outputs_by_step() -> None:
    plan = strategy(step("a"), step("b", requires_validation=True))
    config = OrchestratorConfig(max_step_remediations=1)
    ones = Ones("A", "B", "A2", "B2", validator=[PASS, FAIL], strategy=plan, config=config)
    one, two = ones.call(), ones.call()
    assert (one.step_output("b"), one.context) == ("B", {"a": "A", "b": "B"})
    assert two.context == {"a": "A2"}
    with pytest.raises(LookupError, match="'b'"):
        two.step_output("b")


def test_outputs_by_type() -> None:
    scripts = Script('{"title": "x"}', '{"title": "y"}'), Script("text")
    agents: list[Agent[Any, Any]] = [Agent(scripts[0], name="r", output=Report), Agent(scripts[1], name="t")]
    plan = strategy(*[step(name, assigned_agent=name[0]) for name in ("r1", "t1", "r2")])
    result = Orchestrator(agents, strategy=plan).call("x")
    assert result.output_of(Report) == Report(title="y")
    assert result.outputs_of(Report) == [Report(title="x"), Report(title="y")]
    assert result.output_of(str) == "text"
    with pytest.raises(LookupError, match="Plain"):
        result.output_of(Plain)


# 2.54


def test_a_strategy_is_only_generated() -> None:
    ones = Ones("A", planner=[as_json(TWO)], strategy=None)
    assert ones.orchestrator.plan("x") == TWO
    assert not ones.asked
    ones = Ones("A")
    assert ones.call().is_success
    assert not ones.decided


def test_the_journal_and_output_keys() -> None:
    plan = strategy(step("a", output_key="facts"), step("b", "{{ facts }}", requires_validation=True), step("c"))
    config = OrchestratorConfig(max_step_remediations=2)
    result = Ones("A", "B", "B", validator=[FAIL] * 2, planner=["RETRY"], strategy=plan, config=config).call()
    found = [(e.step_id, e.title, e.agent, e.status, e.output, e.error.rpartition(": ")[2]) for e in result.journal]
    failed = ("b", "the b", "worker", "failed", "", "dull")
    left = ("c", "the c", "", "pending", "", "")
    assert found == [("a", "the a", "worker", "completed", "A", ""), failed, failed, left]
    assert all(e.at_s > 0 for e in result.journal[:3])
    assert result.context == {"a": "A", "facts": "A"}


@pytest.mark.parametrize("at_once", [None, ()])
def test_a_least_interval(at_once: Any) -> None:
    config = OrchestratorConfig(min_step_interval_s=5.0)
    plan = strategy(*[step(name, depends_on=at_once) for name in "abc"])
    times = [entry.at_s for entry in Ones("A", "B", "C", strategy=plan, config=config).call().journal]
    assert [b - a for a, b in pairwise(times)] == [5.0, 5.0]


@pytest.mark.parametrize(
    "planner",
    [["RETRY"], ["TACTICAL", new_steps(step("z"))], ["FULL", as_json(strategy(step("z")))], ["ANOTHER_AGENT"]],
)
def test_the_interval_is_kept_after_each_remedy(planner: list[str]) -> None:
    config = OrchestratorConfig(min_step_interval_s=5.0)
    ones = Ones("A", "B", validator=[FAIL, PASS], others=["C"], planner=planner, strategy=REFUSED, config=config)
    times = [entry.at_s for entry in ones.call().journal]
    assert [b - a for a, b in pairwise(times)] == [5.0]


def test_loops_and_ends() -> None:
    plan = strategy(step("a"), step("b"), step("c"), loops=(Loop(("a", "b"), 3, until="good"),))
    assert Ones(*"ab", "a", "Now it is:\nGood.", "c", strategy=plan).call().steps_executed == 5
    counted = strategy(step("a"), step("b"), step("c"), loops=(Loop(("a", "b"), 3),))
    assert Ones(*"abababc", strategy=counted).call().steps_executed == 7, "no more than its limit"
    apart = strategy(step("a"), step("b"), step("c"), loops=(Loop(("b", "a"), 3),))
    assert Ones(*"abababc", strategy=apart).call().steps_executed == 7, "although its last step ends before the other"
    result = Ones("It is:\ndone", strategy=strategy(step("a", ends_if="done"), step("b"))).call()
    assert (result.state, result.steps_executed) == ("completed", 1)


@everywhere
def test_waves(driven: Driver) -> None:
    plan = strategy(
        step("a", depends_on=()), step("b", depends_on=()), step("c", "{{ a }}+{{ b }}", depends_on=("a", "b"))
    )
    ones = Ones("same", "same", "C", strategy=plan)
    flow = ones.orchestrator.flow
    run = ones.orchestrator.prepare("x")
    driven(flow, run)
    result = run.result_so_far
    assert result.is_success
    assert [entry.wave for entry in result.journal] == [0, 0, 1]
    assert ones.asked[-1] == "same+same"


@pytest.mark.parametrize(
    ("answer", "status", "output"),
    [(Accept(), "completed", "A"), (Accept("edited"), "completed", "edited"), (Reject("bad"), "step_spent", None)],
)
def test_a_step_waits_for_a_person(tmp_path: Path, answer: Any, status: str, output: Any) -> None:
    plan = strategy(step("a", requires_approval=True, requires_validation=True))
    config = OrchestratorConfig(max_step_remediations=1)
    store = str(tmp_path / "runs.db")

    def made(*said: str) -> Ones:
        return Ones(*said, validator=[PASS], strategy=plan, config=config, store=store)

    with pytest.raises(FlowSuspended):
        made("A").orchestrator.call("x", run_id="r")
    ones = made()  # as in another process: nothing is asked again
    result = ended(lambda: ones.orchestrator.runs.resume("r", {ones.orchestrator.reviewing: answer}))
    assert (result.state, result.output) == (status, output)
    assert not ones.asked
    assert ones.orchestrator.flow.runs.replay("r").record == result.run.record


def test_steps_have_a_time_limit_and_are_cancelled() -> None:
    config = OrchestratorConfig(step_timeout_s=30.0, max_step_remediations=1)
    ones = Ones("A", config=config, strategy=strategy(step("a")))
    late, stopped = _at_work(ones), _at_work(ones)
    (timer,) = [effect for effect in late.effects if effect.key.rpartition("/")[2].startswith("sleep:working")]
    late.advance(timer.key, Slept(at_s=late.deadline.at_s))
    assert (late.state, bool(late.data.error)) == ("step_spent", True)
    stopped.cancel("no more")
    assert ended(lambda: ones.orchestrator.run(stopped)).state == "Cancelled"


def _at_work(ones: Ones) -> Any:
    """Return a run whose agent has been asked, but has not answered."""
    run = ones.orchestrator.prepare("x")
    for _ in ones.orchestrator.stream(run):
        if any("working" in effect.key for effect in run.effects):
            return run
    raise AssertionError(run)


# 2.56


def test_at_most_so_many_steps_run_at_once() -> None:
    plan = strategy(*[step(name, depends_on=()) for name in "abcde"])
    run = begun(Ones(strategy=plan, config=OrchestratorConfig(parallel=3)).orchestrator, "x")
    assert [effect.key.partition("/run")[0] for effect in run.effects] == [f"executing#1/{n}" for n in range(3)]


def test_another_agent_does_the_step() -> None:
    ones = Ones("A", validator=[FAIL, PASS], others=["poem"], planner=["ANOTHER_AGENT"], strategy=REFUSED)
    result = ones.call()
    assert (result.output, result.redesigns) == ("poem", 1)
    assert [entry.agent for entry in result.journal] == ["worker", "other"]


def test_agents_are_chosen_by_what_they_can_do() -> None:
    class Poet(AgentBase):
        expertise = "Writes poems about the sea"

    counting = Agent(Script("3"), name="counter", system="Counts things")
    poet, plan = Poet(client=Script("o sea")), strategy(step("a", description="poems, please"))
    o = Orchestrator([counting, poet], strategy=plan)
    assert o.call("x").output == "o sea"


# Mistakes, pictures

GIVEN = ("config", "planner", "validator", "prompts", "name", "approve", "answer", "hooks", "environment")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Orchestrator([]), "agents"),
        (lambda: Orchestrator([Agent(Script()), Agent(Script())]), "'agent'"),
        (lambda: Orchestrator(["writer"]), "'writer'"),
        (lambda: Ones(strategy=strategy(step("a", assigned_agent="x"))), "'x'"),
        (lambda: strategy(), "step"),
        (lambda: strategy(step("a"), step("a")), "'a'"),
        (lambda: strategy(step("a", depends_on=("z",))), "'z'"),
        (lambda: strategy(step("a", depends_on=("b",)), step("b")), "'a', 'b'"),
        (lambda: Ones(strategy=strategy(step("a"), loops=(Loop(("a",), 10**9),))), "max_loop_iterations"),
        (lambda: strategy(step("a"), loops=(Loop(("z",), 2),)), "'z'"),
        (lambda: strategy(step("a"), loops=(Loop(("a",), 2), Loop(("a",), 2))), "loops"),
        (lambda: OrchestratorConfig(max_step_remediations=0), "max_step_remediations"),
        (lambda: OrchestratorConfig(parallel=True), "parallel"),
        (lambda: OrchestratorConfig(step_timeout_s=0), "step_timeout_s"),
        (lambda: OrchestratorConfig(unmatched="x"), "unmatched"),
        (lambda: Loop(("a",), 0), "max_iterations"),
        *[(partial(Orchestrator, [Agent(Script())], **{name: 5}), name) for name in GIVEN],
    ],
)
def test_mistakes_are_named(wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wrong()


def test_a_plan_of_lists_is_one_of_tuples() -> None:
    plan = Strategy("x", [step("a"), step("b", depends_on=["a"])], [Loop(["b"], 2)])  # type: ignore[arg-type]
    assert plan == Strategy("x", (step("a"), step("b", depends_on=("a",))), (Loop(("b",), 2),))
