"""Does an agent choose among classes, on the machine of every call, and how sure is it?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import Agent, AgentBase, CallFailed, Dialog, Limits, Payload, Prompt, Reply, UsageError, function
from fsm_agent.agents import Calibration, Classification
from fsm_agent.clients import register_client
from fsm_agent.testing import Script, registries, token_reply

AB = ("a", "b")
FOUR = ("unhappy", "unsure", "dislike", "disagree")


class Silent(Script):
    """A model that reports no log probabilities, and says so."""

    reports_logprobs = False


def classified(*places: dict[str, float], classes: Any = AB, **options: Any) -> Classification[Any]:
    with Script(token_reply(*places)) as script:
        return Agent(script).classify("Which?", classes, **options)


def raw(found: Classification[Any]) -> dict[Any, float]:
    return {name: round(p, 6) for name, p in found.raw.items()}


# By probabilities


@pytest.mark.parametrize("is_async", [False, True])
def test_one_token_is_asked_for_with_log_probabilities(is_async: bool) -> None:
    with Script(token_reply({"a": 0.6, "b": 0.2})) as script:
        agent = Agent(script, system="Be fair.")
        found = asyncio.run(agent.aclassify("Which?", AB)) if is_async else agent.classify("Which?", AB)
    assert found.label == "a"
    assert found.probabilities == {"a": pytest.approx(0.75), "b": pytest.approx(0.25)}
    assert (found.coverage, found.is_calibrated, found.missing) == (pytest.approx(0.8), True, ())
    settings = script.requests[0].settings
    assert (settings.temperature, settings.max_tokens, settings.top_logprobs) == (0, 1, 20)
    system, asked = script.requests[0].messages
    assert system.text == "Be fair."
    assert asked.text.startswith("Which?")
    assert '"a"' in asked.text


@pytest.mark.parametrize("spelling", [" True", "TRUE", '"true', "\ntrue", "▁True", "**True", "True.", "Tr"])
def test_spellings_are_merged_and_other_tokens_ignored(spelling: str) -> None:
    others = dict.fromkeys(("maybe", "Truely", "", "</s>"), 0.05)
    found = classified({"True": 0.4, spelling: 0.2, "False": 0.1, **others}, classes=(True, False))
    assert (found.label, raw(found)) == (True, {True: 0.6, False: 0.1})


def test_case_counts_where_it_tells_classes_apart() -> None:
    assert raw(classified({"US": 0.6, "us": 0.3, "Us": 0.05}, classes=["US", "us"])) == {"US": 0.6, "us": 0.3}


def test_a_class_that_is_missing_has_no_probability_and_is_no_likelier_than_the_least() -> None:
    found = classified({"a": 0.9, "x": 0.01})
    assert (found.probabilities, found.missing, found.floor) == ({"a": 1.0, "b": 0.0}, ("b",), pytest.approx(0.01))


@pytest.mark.parametrize(
    ("classes", "places", "expected"),
    [
        (("unhappy", "unsure", "glad"), [{"un": 0.8, "glad": 0.2}, {"happy": 0.75, "sure": 0.25}], [0.6, 0.2, 0.2]),
        (("very good", "so so"), [{"very": 0.9, "so": 0.1}, {" ": 1.0}, {"good": 1.0}], [0.9, 0.1]),
        (("art", "artist"), [{"art": 1.0}, {"": 0.6, "ist": 0.4}], [0.6, 0.4]),
    ],
)
def test_classes_that_begin_alike_are_told_apart_by_the_next_tokens(classes: Any, places: Any, expected: Any) -> None:
    assert [*raw(classified(*places, classes=classes)).values()] == expected


@pytest.mark.parametrize("prompt", [None, "How is {{ text }}?"])
def test_what_the_answer_did_not_take_is_asked_about_unless_the_question_names_no_classes(prompt: str | None) -> None:
    first = token_reply({"un": 0.6, "dis": 0.4}, {"happy": 0.75, "sure": 0.25})
    second = [] if prompt else [token_reply({"dis": 1.0}, {"like": 0.9, "agree": 0.1})]
    with Script(first, *second) as script:
        found = Agent(script).classify("How?", FOUR, prompt=prompt)
    assert [*found.probabilities.values()] == pytest.approx([0.45, 0.15, *([0.2, 0.2] if prompt else [0.36, 0.04])])
    assert script.requests[0].settings.max_tokens == 5
    if not prompt:
        assert '"dislike"' in script.requests[1].messages[-1].text
        assert '"unsure"' not in script.requests[1].messages[-1].text


def test_binary() -> None:
    with Script(token_reply({"True": 0.6, "False": 0.2})) as script:
        assert Agent(script).binary_classify(Dialog().put("Is it?")) == pytest.approx(0.75)


# Asked again


def test_a_class_that_must_not_be_missing() -> None:
    with Script(token_reply({"a": 0.9, "x": 0.1}), token_reply({"a": 0.9, "b": 0.1})) as script:
        found = Agent(script).classify(Dialog().put("Which?"), AB, on_missing="error")
    assert found.missing == ()
    assert [message.role for message in found.dialog] == ["user", "user", "assistant"]
    assert [step.trigger for step in found.results[0].trace] == ["begun", "parse_failed", "answered"]


@pytest.mark.parametrize("wrong", ["maybe", "a or b", "", "ab"])
def test_an_answer_that_is_no_class_is_asked_for_again(wrong: str) -> None:
    said = token_reply({"a": 0.6, "b": 0.4}).changed(message=Reply.of(wrong).message)
    with Script(said, wrong, ' "B".\n') as script:
        found = Agent(script).classify("Which?", AB)
    assert (found.label, len(found.dialog)) == ("b", 2)


def test_it_may_never_be_one() -> None:
    with Script("x", "y") as script, pytest.raises(CallFailed):
        Agent(script, limits=Limits(parse_retries=1)).classify("Which?", AB)


def test_an_answer_that_is_cut_off_tells_by_its_alternatives() -> None:
    said = token_reply({"The": 0.9, "b": 0.05, "a": 0.01})
    with Script(said.changed(message=Reply.of("The").message, finish="length")) as script:
        found = Agent(script).classify("Which?", AB)
    assert (found.label, found.coverage) == ("b", pytest.approx(0.06))


# Without log probabilities


def test_a_model_that_reports_no_probabilities_is_not_calibrated() -> None:
    with Script("B.") as script:
        found = Agent(script).classify("Which?", AB)
    assert (found.label, found.probabilities, found.is_calibrated) == ("b", {"a": 0.0, "b": 1.0}, False)
    with Silent("B.") as script:
        assert asyncio.run(Agent(script).aclassify("Which?", AB, args={"temperature": 1})) == found
    (settings,) = [request.settings for request in script.requests]
    assert (settings.top_logprobs, settings.max_tokens, settings.temperature) == (None, None, 1)


# The call


def test_the_question_may_be_ones_own() -> None:
    prompt = Prompt("{{ text }} is {{ classes }}:", settings={"max_tokens": 3})
    with Script(token_reply({"a": 1.0}), token_reply({"a": 1.0})) as script:
        Agent(script).classify("This", AB, prompt=prompt)
        Agent(script).classify("This", AB, prompt="Which letter?")
    own, following = script.requests
    assert (own.messages[-1].text, own.settings.max_tokens) == ('This is "a" or "b":', 3)
    assert [message.text for message in following.messages] == ["This", "Which letter?"]


def test_whatever_is_classified() -> None:
    with Script("Hello.", *["a"] * 4) as script:
        agent = Agent(script)
        result = agent.call("Hi")
        for what in (result, result.dialog, Payload.text("x"), [{"role": "user", "content": "x"}]):
            assert agent.classify(what, AB).label == "a"
    assert [len(request.messages) for request in script.requests[1:]] == [3, 3, 2, 2]


def test_the_options_of_a_call_hold_and_what_concerns_other_answers_is_left_out() -> None:
    @function
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    others: Any = {"functions": [add], "output": int, "stop_when": lambda context: True, "check": lambda output: 7}
    with Script() as script, Script("a", name="other") as other:
        agent = Agent(script, system=Prompt("For {{ name }}."), **others)
        options = {"args": {"seed": 3}, "system_args": {"name": "Ada"}, "after": Dialog().put("x")}
        assert agent.classify("Which?", AB, model=other, **options).label == "a"
    request = other.requests[0]
    assert [message.text for message in request.messages][:2] == ["For Ada.", "x"]
    assert (request.settings.seed, request.functions) == (3, ())


def test_the_clients_of_models_are_those_that_the_agent_closes() -> None:
    closed = []
    with registries():
        made = dict[str, Script]()
        register_client("house", lambda model: made.setdefault(model, Script("a", "b")))
        with Agent("house:x") as agent:
            agent.classify("Which?", AB)
            agent.classify("Which?", AB, model="house:y")
            for name, script in made.items():
                script.close = lambda name=name: closed.append(name)  # type: ignore[method-assign]
    assert closed == ["x", "y"]


def test_runs_are_kept(tmp_path: Path) -> None:
    store = str(tmp_path / "runs.db")
    with Script(token_reply({"a": 0.6, "b": 0.2})) as script:
        found = Agent(script, name="clerk", store=store).classify("Which?", AB, run_id="x")
    agent = Agent(Script(), name="clerk", store=store)
    assert agent.classify("Which?", AB, run_id="x").probabilities == found.probabilities
    assert {item.id for item in agent.runs.all.store.list()} == {"x"}


def test_an_agent_of_a_class() -> None:
    class Judge(AgentBase[str], register=False):
        expertise = "You judge."

    class Pair(AgentBase[str], register=False):
        agent_group = ("one", "two")

        def call(self, task: Any, **kwargs: Any) -> str:
            return ""

    with Script(token_reply({"a": 0.9, "b": 0.1})) as script:
        assert Judge(client=script).classify("Which?", AB).label == "a"
    assert script.requests[0].messages[0].text == "You judge."
    with pytest.raises(UsageError, match="2 sub-agents"):
        Pair(client=Script()).classify("Which?", AB)


# Unsure, calibrated


def test_a_calibration_takes_a_liking_out() -> None:
    rows = [classified({"a": p, "b": 1 - p}) for p in (0.9, 0.8, 0.7, 0.6)]
    calibration = Calibration.of_prior(rows)
    assert [calibration.applied(row).label for row in rows] == ["a", "a", "b", "b"]
    assert Calibration.of_prior(rows[:1]).applied(rows[0]).p == pytest.approx(0.5), "one text alone tells nothing"
    found = classified({"a": 0.6, "b": 0.4}, calibration=calibration)
    assert (found.label, found.calibration) == ("b", calibration)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"classes": "ab"}, "classes"),
        ({"classes": ["a"]}, "classes"),
        ({"classes": ["a", "a"]}, "twice"),
        ({"classes": ["a", " "]}, "class"),
        ({"afer": 0}, "after"),
        ({"on_missing": "zeros"}, "on_missing"),
        ({"calibration": Calibration(bias={"x": 0.0, "y": 0.0})}, "calibration.*'x'"),
        ({"what": 5}, "classify"),
    ],
)
def test_mistakes(options: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError, match=name):
        Agent(Script("a")).classify(options.pop("what", "Which?"), options.pop("classes", AB), **options)
