"""Are effects, outcomes and settings plain values, and do outcomes survive JSON?"""

from __future__ import annotations

import typing

import pytest

from fsm_agent._internal.values import from_json, to_json
from fsm_agent.errors import RateLimited, UsageError
from fsm_agent.functions import Function
from fsm_agent.lifecycle import (
    Approved,
    AskApproval,
    Begin,
    Begun,
    CallModel,
    Cancelled,
    Checked,
    CheckFailed,
    CheckOutput,
    CheckRefused,
    Denied,
    Expired,
    FindOut,
    FunctionFailed,
    Injected,
    Interrupted,
    ModelFailed,
    Modified,
    Outcome,
    Replied,
    Request,
    Returned,
    RunAgain,
    RunFunction,
    Settings,
    Sleep,
    Slept,
    Started,
    StartFunction,
    Stopped,
)
from fsm_agent.lifecycle.effects import TEXT, describe_effects
from fsm_agent.messages import FunctionCall, Message, Reply, TokenLogprob, Usage

CALL = FunctionCall(name="f", arguments_json='{"a": "{{ x }}"}')
REPLY = Reply(
    message=Message.of("assistant", "hi", CALL),
    usage=Usage(input_tokens=1),
    finish="tool_calls",
    logprobs=(TokenLogprob("a", -0.5, (("a", -0.5), ("b", -1.0))),),
)
OUTCOMES = [
    Begun(at_s=1.5, id="c"),
    Replied(reply=REPLY, at_s=2.0),
    ModelFailed(error=RateLimited("slow down", status=429, retry_after_s=1.0).report(), delay_s=1.0),
    Slept(at_s=3.0),
    Approved(),
    Modified('{"path": "tmp"}'),
    Denied(reason="no"),
    Returned(text="", is_error=True),
    FunctionFailed(text="the disk is full"),
    Started(at_s=5.0),
    Interrupted(at_s=6.0),
    RunAgain(),
    Checked(output_json="42"),
    CheckRefused("not even"),
    CheckFailed(text="KeyError: 'x'", name="verify"),
    Injected((Message.of("user", "Hurry."),)),
    Expired(at_s=4.0),
    Stopped(reason="enough"),
    Cancelled(reason="enough"),
]


class TestOutcomes:
    @pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.kind)
    def test_json_round_trip(self, outcome):
        assert from_json(to_json(outcome), Outcome) == outcome

    def test_every_kind_is_there(self):
        kinds = typing.get_args(Outcome)
        assert [type(outcome) for outcome in OUTCOMES] == list(kinds)
        assert len({outcome.kind for outcome in OUTCOMES}) == len(kinds)

    @pytest.mark.parametrize("document", ["{}", '{"kind": "waited"}'])
    def test_what_is_none_is_told(self, document):
        with pytest.raises(ValueError, match=r"kind|required"):
            from_json(document, Outcome)


class TestSettings:
    @pytest.mark.spec("0.5: a partial update keeps the rest")
    def test_an_override_changes_some_settings_alone(self):
        settings = Settings(temperature=0.0, stop=("END",))
        changed = settings.override({"temperature": 1.0, "seed": 5})
        assert changed == Settings(temperature=1.0, stop=("END",), seed=5)
        assert settings == Settings(temperature=0.0, stop=("END",))
        assert settings.override({}) == settings
        with pytest.raises(UsageError, match="there is no setting 'temprature'"):
            settings.override({"temprature": 1.0})

    def test_no_two_share_their_extra_body(self):
        assert Settings().extra_body is not Settings().extra_body

    def test_json_round_trip(self):
        settings = Settings(temperature=0.5, stop=("a",), extra_body={"x": {"y": [1]}})
        assert from_json(to_json(settings), Settings) == settings


class TestEffects:
    def test_they_are_values_with_a_key(self):
        function = Function(name="f")
        request = Request(messages=(Message.of("user", "hi"),))
        effects = [
            Begin("begin"),
            CallModel("model:0", request, 1),
            Sleep("sleep:1", 2.0),
            AskApproval("ask:1.0", CALL),
            StartFunction("start:1.0", CALL),
            RunFunction("run:1.0", CALL, function),
            FindOut("doubt:1.0", CALL, function),
            CheckOutput("check:1"),
        ]
        keys = ["begin", "model:0", "sleep:1", "ask:1.0", "start:1.0", "run:1.0", "doubt:1.0", "check:1"]
        assert [effect.key for effect in effects] == keys
        assert effects[0] == Begin("begin")
        with pytest.raises(AttributeError):
            effects[0].key = "again"

    @pytest.mark.spec("0.5: the choice of functions is automatic by default")
    def test_a_request_is_plain_text_by_default(self):
        request = Request(messages=())
        assert (request.functions, request.tool_choice, request.output, request.settings) == (
            (),
            "auto",
            TEXT,
            Settings(),
        )
        with pytest.raises(AttributeError, match="immutable"):
            request.messages = ()


def test_a_stop_that_is_one_string_is_a_mistake() -> None:
    with pytest.raises(UsageError, match=r"settings.stop is 'END': a tuple of sequences, \('END',\), would be right"):
        Settings(stop="END")


def test_what_is_waited_for_is_named_with_the_next_step():
    ask = AskApproval("ask:1.0", FunctionCall(name="erase", arguments_json='{"path": "x"}'))
    verdicts = "advance the call with Approved(), Denied(reason) or Modified(arguments_json)"
    assert describe_effects([ask]).startswith(f"""'ask:1.0' (approval of erase({{"path": "x"}})): {verdicts}""")
    outside = RunFunction("run:1.0", FunctionCall(name="look", arguments_json="{}"), Function(name="look"))
    says = "'run:1.0' (the result of look({})): the function has no callable; advance the call with Returned(text=…)"
    assert describe_effects([outside]).startswith(says)
    assert "as in error.call.advance('ask:1.0', Approved()); agent.run(error.call); or give the" in describe_effects(
        [ask]
    )
    assert "error.call.advance('run:1.0', Returned(text=…)); agent.run(error.call); or link()" in describe_effects(
        [outside]
    )
    assert describe_effects([]) == "nothing"
    assert describe_effects([Begin("begin")]) == "'begin': agent.run(call) continues it"


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path": "x", "password": "hunter2"}',
        '{"password":"hunter2", "path": "x"}',
        '{"path": "x", "login": {"user": "ann", "api_key": "hunter2 hunter2"}}',
        '{"path": "x", "DB_SECRET": "a\\"hunter2"}',
        '{"path": "x", "pin": 4711}',
        '{"path": "x", "header": "sk-abcdefghijklmnop-hunter2-4711"}',
        '{"path": "x", "password": "' + "hunter2" * 1000,  # as a model wrote it: cut off
        '{"path": "x\x1b[31m", "password": "hunter2"}',
    ],
)
def test_what_is_waited_for_shows_no_secrets(arguments: str):
    said = describe_effects([AskApproval("ask:1.0", FunctionCall(name="erase", arguments_json=arguments))])
    assert '"path": "x' in said
    assert not any(secret in said for secret in ("hunter2", "4711", "\x1b"))


def test_what_is_waited_for_is_about_more_than_secrets():
    plain = '{"account": "17", "author": "Ann", "tokens": 5, "max_token": 3, "passenger": "Bob", "spin": 1, "key": "c"}'
    call = FunctionCall(name="erase", arguments_json=plain)
    assert f"(approval of erase({plain}))" in describe_effects([AskApproval("ask:1.0", call)])


def test_what_is_waited_for_is_said_in_few_words():
    asks = [AskApproval(f"ask:1.{n}", FunctionCall(name="f", arguments_json="x" * 10**6)) for n in range(9)]
    said = describe_effects(asks)
    assert "'ask:1.2' (approval of f(xxx" in said
    assert "…), 6 more: advance" in said
    assert len(said) < 1000
