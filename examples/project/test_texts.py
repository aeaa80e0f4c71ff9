"""Test the agent without a model."""

from pathlib import Path

import pytest
import texts_agent

from fsm_agent import CallFailed, build_agent
from fsm_agent.messages import FunctionResult
from fsm_agent.testing import Script, function_call

CONFIG = Path(__file__).with_name("texts.toml")


def test_it_counts_with_its_function_and_answers() -> None:
    script = Script(function_call("count_words", text="one two"), '{"text": "Two.", "confidence": 0.9}')
    agent = build_agent(texts_agent.Texts, CONFIG, client=script)
    answer = agent("How many words has 'one two'?")
    assert answer.text == "Two."
    assert script.requests[0].messages[0].text.startswith("You answer questions about texts.")
    assert script.requests[0].messages[1].text == "Answer this question: How many words has 'one two'?"
    results = [part.text for part in script.requests[1].messages[-1].parts if isinstance(part, FunctionResult)]
    assert results == ["2"]


def test_an_answer_that_cannot_be_used_is_asked_for_again() -> None:
    script = Script('{"text": "Two.", "confidence": 7}', '{"text": "Two.", "confidence": 0.7}')
    assert build_agent(texts_agent.Texts, CONFIG, client=script)("How many?").confidence == 0.7


def test_a_model_that_never_answers_is_a_failure() -> None:
    script = Script(*["nothing"] * 4)
    with pytest.raises(CallFailed):
        build_agent(texts_agent.Texts, CONFIG, client=script)("How many?")
