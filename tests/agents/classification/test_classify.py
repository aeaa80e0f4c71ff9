"""Does an agent choose among classes, on the machine of every call?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from fsm_agent import (
    Agent,
    AgentBase,
    CallFailed,
    Dialog,
    FallbackClient,
    Limits,
    Payload,
    Prompt,
    Reply,
    UsageError,
    client_for,
    function,
)
from fsm_agent.agents import AsyncAgentBase, Calibration
from fsm_agent.agents.arguments import CALL_OPTIONS
from fsm_agent.agents.classification.asking import ClassificationRequest
from fsm_agent.agents.options import ClassifyOptions
from fsm_agent.clients import RateLimit, RateLimitedClient, register_client
from fsm_agent.clients.registered import CLIENTS
from fsm_agent.testing import Script, token_reply

AB = ("a", "b")
PROBLEM = 'Please respond with one and only one word from "a" or "b".'


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Size(Enum):
    SMALL = 1
    LARGE = 2


class Silent(Script):
    """A model that reports no log probabilities, and says so."""

    reports_logprobs = False


def cut(reply: Reply, text: str) -> Reply:
    """Return a reply that says something else and was cut off."""
    return reply.changed(message=Reply.of(text).message, finish="length")


@pytest.fixture(params=["sync", "asyncio"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A function that calls a method of an agent, or its twin for asyncio."""

    def ask(agent: Any, method: str, *args: Any, **options: Any) -> Any:
        if request.param == "sync":
            return getattr(agent, method)(*args, **options)
        return asyncio.run(getattr(agent, f"a{method}")(*args, **options))

    return ask


class TestClassify:
    @pytest.mark.spec("3.22: one token among the classes", "3.22: probabilities add up to one")
    def test_one_token_is_asked_for_with_log_probabilities(self, ask: Callable[..., Any]) -> None:
        with Script(token_reply({"a": 0.6, "b": 0.2})) as script:
            found = ask(Agent(script, system="Be fair."), "classify", "Which?", AB)
        assert found.label == "a"
        assert found.probabilities == {"a": pytest.approx(0.75), "b": pytest.approx(0.25)}
        assert (found.coverage, found.is_calibrated, found.missing) == (pytest.approx(0.8), True, ())
        assert found.raw == {"a": pytest.approx(0.6), "b": pytest.approx(0.2)}
        settings = script.requests[0].settings
        assert (settings.temperature, settings.max_tokens, settings.top_logprobs) == (0, 1, 20)
        system, asked = script.requests[0].messages
        assert system.text == "Be fair."
        assert asked.text.startswith(
            'Which?\n\nPlease respond with one and only one word from the following options: "a"'
        )

    @pytest.mark.spec("3.22: tokens of one class are merged", "3.22: other tokens are ignored")
    def test_spellings_are_merged_and_other_tokens_ignored(self) -> None:
        with Script(token_reply({" True": 0.4, "true": 0.2, "maybe": 0.3, "False": 0.1})) as script:
            found = Agent(script).classify("Is it?", (True, False))
        assert found.label is True
        assert found.probabilities == {True: pytest.approx(6 / 7), False: pytest.approx(1 / 7)}

    def test_a_class_that_is_missing_has_no_probability(self) -> None:
        with Script(token_reply({"a": 0.9, "x": 0.1})) as script:
            found = Agent(script).classify("Which?", AB)
        assert (found.probabilities, found.missing) == ({"a": 1.0, "b": 0.0}, ("b",))

    @pytest.mark.spec("3.22: a missing class is asked for again", "3.22: the dialog gets two messages")
    def test_a_class_that_must_not_be_missing(self, ask: Callable[..., Any]) -> None:
        with Script(token_reply({"a": 0.9, "x": 0.1}), token_reply({"a": 0.9, "b": 0.1})) as script:
            found = ask(Agent(script), "classify", Dialog().put("Which?"), AB, on_missing="error")
        assert found.missing == ()
        assert [message.text for message in script.requests[1].messages][2:] == ["a", PROBLEM]
        assert [message.role for message in found.dialog] == ["user", "user", "assistant"]
        steps = [step.trigger for step in found.results[0].trace]
        assert steps == ["begun", "parse_failed", "answered"]

    @pytest.mark.parametrize("wrong", ["maybe", "a or b", "", "ab"])
    def test_an_answer_that_is_no_class_is_asked_for_again(self, wrong: str) -> None:
        said = token_reply({"a": 0.6, "b": 0.4}).changed(message=Reply.of(wrong).message)
        with Script(said, wrong, "b") as script:
            found = Agent(script).classify("Which?", AB)
        assert (found.label, len(found.dialog)) == ("b", 2)

    def test_it_may_never_be_one(self) -> None:
        with Script("x", "y") as script, pytest.raises(CallFailed, match="Please respond with one and only one word"):
            Agent(script, limits=Limits(parse_retries=1)).classify("Which?", AB)

    def test_an_answer_that_is_cut_off_tells_by_its_alternatives(self) -> None:
        with Script(cut(token_reply({"The": 0.9, "b": 0.05, "a": 0.01}), "The")) as script:
            found = Agent(script).classify("Which?", AB)
        assert (found.label, found.coverage) == ("b", pytest.approx(0.06))

    @pytest.mark.spec("3.23: the share of true")
    def test_binary(self, ask: Callable[..., Any]) -> None:
        with Script(token_reply({"True": 0.6, "False": 0.2})) as script:
            assert ask(Agent(script), "binary_classify", Dialog().put("Is it?")) == pytest.approx(0.75)
        assert '"True" or "False"' in script.requests[0].messages[-1].text

    def test_the_question_may_be_ones_own(self) -> None:
        prompt = Prompt("{{ text }} is {{ classes }}:", settings={"max_tokens": 3})
        with Script(token_reply({"a": 1.0})) as script:
            Agent(script).classify("This", AB, prompt=prompt)
        assert script.requests[0].messages[-1].text == 'This is "a" or "b":'
        assert script.requests[0].settings.max_tokens == 3

    def test_a_question_without_the_text_follows_it(self) -> None:
        with Script(token_reply({"a": 1.0})) as script:
            Agent(script).classify("This", AB, prompt="Which letter?")
        assert [message.text for message in script.requests[0].messages] == ["This", "Which letter?"]

    def test_whatever_is_classified(self) -> None:
        with Script("Hello.", *["a"] * 4) as script:
            agent = Agent(script)
            result = agent.call("Hi")
            for what in (result, result.dialog, Payload.text("x"), [{"role": "user", "content": "x"}]):
                assert agent.classify(what, AB).label == "a"
        assert [len(request.messages) for request in script.requests[1:]] == [3, 3, 2, 2]

    def test_what_concerns_other_answers_is_left_out(self) -> None:
        @function
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        with Script("a") as script:
            agent = Agent(script, functions=[add], output=int, stop_when=lambda context: True, check=lambda output: 7)
            assert agent.classify("Which?", AB).label == "a"
        assert script.requests[0].functions == ()

    def test_the_clients_of_models_are_those_that_the_agent_closes(self) -> None:
        with CLIENTS.scoped():
            made = dict[str, Script]()
            register_client("house", lambda model: made.setdefault(model, Script("a", "b")))
            agent = Agent("house:x")
            assert agent.classify("Which?", AB).label == "a"
            assert agent.classify("Which?", AB, model="house:y").label == "a"
            assert [*agent._clients.values()] == [*made.values()]

    def test_the_options_of_a_call(self) -> None:
        with Script() as script, Script("a", name="other") as other:
            agent = Agent(script, system=Prompt("For {{ name }}."))
            options = {"args": {"seed": 3}, "system_args": {"name": "Ada"}, "after": Dialog().put("x")}
            agent.classify("Which?", AB, model=other, **options)
        request = other.requests[0]
        assert [message.text for message in request.messages][:2] == ["For Ada.", "x"]
        assert request.settings.seed == 3


class TestShared:
    NAMES = ("unhappy", "unsure", "dislike", "disagree")

    def test_what_the_answer_did_not_take_is_asked_about(self, ask: Callable[..., Any]) -> None:
        first = token_reply({"un": 0.6, "dis": 0.4}, {"happy": 0.75, "sure": 0.25})
        with Script(first, token_reply({"dis": 1.0}, {"like": 0.9, "agree": 0.1})) as script:
            found = ask(Agent(script), "classify", "How?", self.NAMES)
        assert found.probabilities == {
            name: pytest.approx(p) for name, p in zip(self.NAMES, (0.45, 0.15, 0.36, 0.04), strict=True)
        }
        assert '"dislike" or "disagree"' in script.requests[1].messages[-1].text
        assert script.requests[0].settings.max_tokens == 5
        assert len(found.results) == 2

    @pytest.mark.parametrize("prompt", ["How is {{ text }}?", None])
    def test_a_question_that_names_no_classes_is_not_asked_again(self, prompt: str | None) -> None:
        first = token_reply({"un": 0.6, "dis": 0.4}, {"happy": 1.0})
        with Script(first, *([] if prompt else [token_reply({"dis": 1.0}, {"like": 1.0})])) as script:
            found = Agent(script).classify("this", self.NAMES, prompt=prompt)
        assert found.probabilities["dislike"] == pytest.approx(0.2 if prompt else 0.4)

    def test_a_little_is_divided(self) -> None:
        with Script(token_reply({"un": 0.99, "dis": 0.01}, {"happy": 1.0})) as script:
            found = Agent(script).classify("How?", self.NAMES)
        assert found.probabilities["dislike"] == found.probabilities["disagree"] == pytest.approx(0.005)


class TestVotes:
    @pytest.mark.spec("3.22: without probabilities it says so")
    def test_one_vote(self) -> None:
        with Script("B.") as script:
            found = Agent(script).classify("Which?", AB)
        assert (found.label, found.probabilities, found.is_calibrated) == ("b", {"a": 0.0, "b": 1.0}, False)

    def test_several(self, ask: Callable[..., Any]) -> None:
        with Script("a", "b", "b", "b") as script:
            found = ask(Agent(script), "classify", "Which?", AB, votes=4)
        assert (found.probabilities, found.is_calibrated, len(found.results)) == ({"a": 0.25, "b": 0.75}, False, 4)

    def test_a_model_that_reports_none_is_not_asked_for_them(self) -> None:
        with Silent("a", "b", "a") as script:
            found = Agent(script).classify("Which?", AB, votes=3)
        assert found.probabilities["a"] == pytest.approx(2 / 3)
        settings = [request.settings for request in script.requests]
        assert {(s.top_logprobs, s.max_tokens, s.temperature) for s in settings} == {(None, None, 1.0)}

    def test_log_probabilities_need_no_votes(self) -> None:
        with Script(token_reply({"a": 1.0})) as script:
            assert Agent(script).classify("Which?", AB, votes=5).is_calibrated

    def test_clients_say_what_they_report(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{name}_API_KEY", "sk-test")
        with client_for("openai:gpt-4o") as openai, client_for("anthropic:claude-x") as anthropic:
            assert (openai.reports_logprobs, anthropic.reports_logprobs) == (True, False)
            assert not FallbackClient([openai, anthropic]).reports_logprobs
            assert RateLimitedClient(openai, RateLimit(requests_per_minute=9)).reports_logprobs


class TestUnsure:
    def test_below_the_threshold(self) -> None:
        with Script(*[token_reply({"red": 0.6, "blue": 0.4})] * 2) as script:
            found = Agent(script).choose(Color, "The sky?", threshold=0.7)
            assert (found.label, found.is_unsure, found.likeliest) == ("unsure", True, Color.RED)
            sure = Agent(script).choose(Color, "The sky?", threshold=0.6)
        assert (sure.label, sure.is_unsure) == (Color.RED, False)

    def test_another_agent_is_asked(self, ask: Callable[..., Any]) -> None:
        with Script(token_reply({"red": 0.6, "blue": 0.4})) as first, Script(token_reply({"blue": 0.55})) as other:
            classes = (color for color in Color)
            options = {"threshold": 0.7, "otherwise": Agent(other, name="expert"), "model": first}
            found = ask(Agent(first), "classify", "The sky?", classes, **options)
        assert (found.label, found.is_unsure, len(found.results)) == (Color.BLUE, False, 2)

    def test_it_is_not_asked_needlessly(self) -> None:
        with Script(token_reply({"red": 0.9, "blue": 0.1})) as first, Script() as other:
            assert Agent(first).choose(Color, "?", threshold=0.7, otherwise=Agent(other)).label is Color.RED

    def test_a_calibration_comes_first(self) -> None:
        calibration = Calibration(bias={"red": 3.0, "blue": -3.0})
        with Script(token_reply({"red": 0.9, "blue": 0.1})) as script:
            found = Agent(script).choose(Color, "?", calibration=calibration, threshold=0.9)
        assert (found.label, found.calibration) == (Color.BLUE, calibration)
        assert found.raw[Color.RED] == pytest.approx(0.9)


class TestMulti:
    def test_any_number_of_classes_applies(self, ask: Callable[..., Any]) -> None:
        def applies(request: Any) -> Reply:
            p = {"spam": 0.9, "offer": 0.6, "urgent": 0.2}
            name = next(name for name in p if f'"{name}"' in request.messages[-1].text)
            return token_reply({"True": p[name], "False": 1 - p[name]})

        with Script(*[applies] * 3) as script:
            found = ask(Agent(script), "multi_classify", "Buy!", ["urgent", "offer", "spam"])
        assert found.labels == ("spam", "offer")
        assert found.probabilities == {
            name: pytest.approx(p) for name, p in [("urgent", 0.2), ("offer", 0.6), ("spam", 0.9)]
        }
        assert found.is_calibrated

    def test_none_may_apply(self) -> None:
        with Script(token_reply({"False": 1.0})) as script:
            assert Agent(script).multi_classify("Hi", ["spam"]).labels == ()


class TestCalibrate:
    def test_by_texts_without_content(self, ask: Callable[..., Any]) -> None:
        with Script(*[token_reply({"a": 0.8, "b": 0.2})] * 4) as script:
            agent = Agent(script)
            calibration = ask(agent, "calibrate", AB)
            assert agent.classify("Which?", AB, calibration=calibration).p == pytest.approx(0.5)

    def test_by_examples(self, ask: Callable[..., Any]) -> None:
        def judged(request: Any) -> Reply:
            p = 0.9 if "good" in request.messages[-1].text else 0.6
            return token_reply({"red": p, "blue": 1 - p})

        with Script(*[judged] * 5) as script:
            agent = Agent(script)
            texts, labels = ["good 1", "bad 1", "good 2", "bad 2"], [Color.RED, Color.BLUE] * 2
            calibration = ask(agent, "calibrate", Color, texts, labels)
            assert agent.choose(Color, "bad 3", calibration=calibration).label is Color.BLUE


class TestKept:
    def test_a_run_that_has_ended_is_returned(self, tmp_path: Path) -> None:
        first = token_reply({"un": 0.6, "dis": 0.4}, {"happy": 0.75, "sure": 0.25})
        with Script(first, token_reply({"dis": 1.0}, {"like": 0.9, "agree": 0.1})) as script:
            agent = Agent(script, name="clerk", store=str(tmp_path / "runs.db"))
            found = agent.classify("How?", TestShared.NAMES, run_id="x")
        with Script() as nobody:
            again = Agent(nobody, name="clerk", store=str(tmp_path / "runs.db")).classify(
                "How?", TestShared.NAMES, run_id="x"
            )
        assert again.probabilities == found.probabilities

    def test_votes_have_runs_of_their_own(self, tmp_path: Path) -> None:
        with Script("a", "b", "b") as script:
            agent = Agent(script, name="clerk", store=str(tmp_path / "runs.db"))
            agent.classify("Which?", AB, votes=3, run_id="x")
            assert {item.id for item in agent.runs.store.list()} == {"x", "x.2", "x.3"}


class TestClasses:
    def test_of_one_agent(self, ask: Callable[..., Any]) -> None:
        class Judge(AgentBase[str], register=False):
            expertise = "You judge."

        with Script(token_reply({"a": 0.9, "b": 0.1})) as script:
            assert ask(Judge(client=script), "classify", "Which?", AB).label == "a"
        assert script.requests[0].messages[0].text == "You judge."

    def test_of_asyncio(self) -> None:
        class Judge(AsyncAgentBase[str], register=False):
            expertise = "You judge."

        with Script("red") as script:
            assert asyncio.run(Judge(client=script).achoose(Color, "Which?")).label is Color.RED

    def test_of_several(self) -> None:
        class Pair(AgentBase[str], register=False):
            agent_group = ("one", "two")

            def call(self, task: Any, **kwargs: Any) -> str:
                return ""

        with pytest.raises(UsageError, match=r"has 2 sub-agents: one of agents\['one'\], agents\['two'\] classifies"):
            Pair(client=Script()).classify("Which?", AB)

    def test_members_of_an_enum_without_texts_go_by_their_names(self) -> None:
        with Script("small") as script:
            assert Agent(script).choose(Size, "Which?").label is Size.SMALL


def test_the_options_are_those_that_there_are() -> None:
    """Those that decide the type of the label are in the signatures."""
    ours = {item.name for item in fields(ClassificationRequest)} - {"agent", "what", "classes", "values", "options"}
    assert ClassifyOptions.__optional_keys__ == {*ours, *CALL_OPTIONS} - {"threshold", "otherwise"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"classes": "ab"}, "classes is 'ab': two classes or more"),
        ({"classes": ["a"]}, "classes is ['a']: two classes or more"),
        ({"classes": ["a", "a"]}, "have one name twice"),
        ({"classes": ["a", " "]}, "a class is ' '"),
        ({"threshold": 70}, "threshold is 70: a probability from 0 to 1 would be right"),
        ({"votes": 0}, "votes is 0: 1 or more would be right"),
        ({"on_missing": "zeros"}, "on_missing is 'zeros': 'zero' or 'error' would be right"),
        ({"calibration": 1}, "calibration is 1: a Calibration"),
        ({"otherwise": "x"}, "otherwise is 'x': an agent, or None, would be right"),
        ({"treshold": 0.5}, "a classification has no option 'treshold'"),
        ({"what": 5}, "what is classified is 5: a text, a Payload or a Dialog would be right"),
        ({"calibration": Calibration(bias={"x": 0.0, "y": 0.0})}, "the calibration is of the classes 'x', 'y'"),
    ],
)
def test_mistakes(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as error:
        Agent(Script("a")).classify(options.pop("what", "Which?"), options.pop("classes", AB), **options)
    assert problem in str(error.value)
