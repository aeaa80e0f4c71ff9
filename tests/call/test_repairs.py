"""Are all repairs visible in the trace, the record and the result, and do they stay in every fold?"""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from pydantic import BaseModel

from fsm_agent import Agent, ParseError, Prompt
from fsm_agent.call import AgentCall, CallFailed, State, restore, snapshot
from fsm_agent.errors import SnapshotError
from fsm_agent.messages import Message, Reply, TokenLogprob
from fsm_agent.prompts import Parsed, Parser, ParserInput, TagParser, parser
from fsm_agent.testing import Script, check_record


class Review(BaseModel):
    title: str


SEEN: list[ParserInput] = []


@parser
def picky(given: ParserInput) -> Parsed[str]:
    """Take the third answer, or a shouted one."""
    SEEN.append(given)
    if len(given.problems) < given.parser_args.get("patience", 2):
        raise ParseError(f"no number {len(given.problems) + 1}")
    return Parsed(given.text.lower(), (f"put in lower case after {len(given.problems)} problem(s)",))


@pytest.fixture(autouse=True)
def _forget():
    SEEN.clear()


@pytest.mark.parametrize(
    ("text", "repairs"),
    [
        ('{"title": "a"}', ()),
        ('Sure: {"title": "a"}', ("the JSON was found inside the answer",)),
        ("{'tittle': 'a'}", ("the JSON was repaired by json-repair", "the name 'tittle' was taken for 'title'")),
    ],
)
def test_repairs_of_a_typed_answer_are_in_the_trace_and_the_result(text, repairs):
    result = Agent(Script(text), output=Review).call("Review it.")
    assert result.output == Review(title="a")
    assert result.repairs == result.record.repairs == repairs
    assert result.trace[-1].detail == "; ".join(repairs)


def test_a_parser_sees_the_reply_and_the_problems_before_it():
    logprobs = (TokenLogprob(token="A", logprob=-0.5),)
    said = Reply(message=Message.of("assistant", "THREE"), finish="stop", logprobs=logprobs)
    result = Agent(Script("one", "two", said)).call(Prompt("?", parser=picky))
    assert result.output == "three"
    assert result.repairs == ("put in lower case after 2 problem(s)",)
    assert [given.problems for given in SEEN] == [(), ("no number 1",), ("no number 1", "no number 2")]
    assert SEEN[-1] == ParserInput(
        text="THREE", finish="stop", logprobs=logprobs, problems=("no number 1", "no number 2")
    )
    assert Agent(Script("ONE")).call(Prompt("?", parser=picky), parser_args={"patience": 0}).output == "one"


def test_what_pydantic_raises_in_a_parser_opens_the_branch():
    model = Script('{"name": "a"}', '{"title": "a"}')
    result = Agent(model).call(Prompt("?", parser=Review.model_validate_json))
    assert result.output == Review(title="a")
    assert "title\n  Field required" in model.requests[1].messages[-1].text


def test_a_restored_call_parses_the_same_again():
    prompt = Prompt("?", path="p", parser=picky)
    call = Agent(Script("one", "two", "THREE")).call(prompt).call
    again = restore(snapshot(call), prompt)
    assert again.record == call.record
    assert again.result_so_far.output == "three"
    assert SEEN[-1] == SEEN[-2]


def test_problems_of_one_branch_are_not_those_of_the_next():
    result = Agent(Script("x", "two", "{'title': 'a'}"), output=Review).call("?")
    assert len(result.record.problems) == 2
    with pytest.raises(CallFailed) as caught:
        Agent(Script("x", "y", "z", "w"), output=Review).call("?")
    record = caught.value.call.record
    assert (record.problems, record.repairs) == ((), ())


def test_plain_functions_get_the_text_and_may_report_repairs_as_well():
    assert Agent(Script("5")).call(Prompt("?", parser=int)).output == 5
    result = Agent(Script("5")).call(Prompt("?", parser=lambda text: Parsed(int(text), ("guessed",))))
    assert (result.output, result.repairs) == (5, ("guessed",))
    prompt = Prompt("?", parser=lambda text: Parsed(text, "guessed"))  # type: ignore[arg-type]
    with pytest.raises(CallFailed, match="'guessed'"):
        Agent(Script("5", "5", "5", "5")).call(prompt)


def test_older_snapshots_are_read_and_contradictions_are_refused():
    prompt = Prompt("?", path="p", output=Review)
    call = Agent(Script("So {'title': 'a'}")).call(prompt).call
    document = json.loads(snapshot(call))
    assert document["record"].pop("repairs") == ["the JSON was repaired by json-repair"]
    assert restore(json.dumps(document), prompt).result_so_far.repairs == ()
    document["record"]["problems"] = ["one too many"]
    with pytest.raises(SnapshotError, match="problem"):
        restore(json.dumps(document), prompt)
    failed = call.record.changed(ending=call.record.ending.changed(reason="stopped"))
    assert "an answer was repaired" in str(check_record(failed))


def test_parsers_can_be_called_pickled_and_told_apart():
    assert picky("A", patience=0) == "a"
    assert isinstance(picky, Parser)
    assert picky.__doc__ == "Take the third answer, or a shouted one."
    assert pickle.loads(pickle.dumps(picky)) is picky
    one, other = (Prompt("?", parser=TagParser(xml=[name])) for name in ("a", "b"))
    assert one.fingerprint != other.fingerprint
    assert Prompt("?", parser=picky).fingerprint != Prompt("?").fingerprint


def test_the_record_of_an_interrupted_branch_goes_on_with_its_problems():
    prompt = Prompt("?", path="p", parser=picky)
    agent = Agent(Script("one", "two", "THREE"))
    call: AgentCall[Any] = agent.prepare(prompt)
    for _ in agent.stream(call):
        if call.record.state is State.PARSE_EXCEPTION:
            break
    again = restore(snapshot(call), prompt)
    assert again.record.problems == ("no number 1",)
    assert Agent(Script("two", "THREE")).run(again).output == "three"
