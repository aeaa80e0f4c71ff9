"""Is a typed answer that is too long refused unread, and kept?"""

from __future__ import annotations

import json

import pytest

from fsm_agent import Agent, CallFailed, Limits, ParseError, Prompt, UsageError
from fsm_agent.prompts import Output, first_of, json_anywhere, verbatim
from fsm_agent.testing import Script


def test_the_limit_of_a_prompt_is_stated_and_the_answer_kept():
    prompt = Prompt("?", output=list[int], max_length=5)
    model = Script("[1, 2]", "[1,2]")
    result = Agent(model).call(prompt)
    assert result.output == [1, 2]
    assert " 6 " in model.requests[1].messages[-1].text
    with pytest.raises(CallFailed, match=r"6 .* 5 ") as caught:
        Agent(Script("[1, 2]"), limits=Limits(parse_retries=0)).call(prompt)
    assert caught.value.result.text == "[1, 2]"


def test_there_is_a_limit_by_default_and_texts_have_none():
    document = "[" + " " * 1_000_000 + "]"
    with pytest.raises(ParseError, match=r"1000002 .* 1000000 "):
        Output(list[int]).parse(document)
    assert Output(list[int], max_length=2_000_000).parse(document) == []
    assert Output().parse(document) == document
    assert Prompt("?", max_length=1).parse("ab") == "ab"
    assert Prompt("?", parser=first_of(verbatim), max_length=1).parse("ab") == "ab"


def test_a_limit_that_is_none_is_refused():
    for max_length in [0, 1.5, True, None]:
        with pytest.raises(UsageError, match="max_length of a prompt"):
            Prompt("?", max_length=max_length)


@pytest.mark.parametrize("is_long", [True, False])
def test_the_model_is_told_that_broken_json_was_too_long_to_repair(is_long):
    broken = json.dumps(["word"] * (20_000 if is_long else 2))[:-1]
    for read in (Output(list[int]).parse, first_of(json_anywhere, expect=list[int])):
        with pytest.raises(ParseError) as refused:
            read(broken)
        assert ("100000" in str(refused.value)) == is_long
