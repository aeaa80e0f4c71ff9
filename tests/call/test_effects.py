"""Are effects, outcomes and settings plain values, and do outcomes survive JSON?"""

from __future__ import annotations

import pytest

from fsm_agent.call import AskApproval, Reconcile, Request, RunFunction
from fsm_agent.call.effects import describe_effects
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, Settings

CALL = FunctionCall(name="f", arguments_json='{"a": "{{ x }}"}')


class TestSettings:
    def test_an_override_changes_some_settings_alone(self):
        settings = Settings(temperature=0.0, stop=("END",))
        changed = settings.override({"temperature": 1.0, "seed": 5})
        assert changed == Settings(temperature=1.0, stop=("END",), seed=5)
        assert settings == Settings(temperature=0.0, stop=("END",))
        assert settings.override({}) == settings
        with pytest.raises(UsageError, match="'temprature'"):
            settings.override({"temprature": 1.0})


class TestEffects:
    def test_a_request_is_plain_text_by_default(self):
        request = Request(messages=())
        assert (request.functions, request.tool_choice, request.output.type, request.settings) == (
            (),
            "auto",
            str,
            Settings(),
        )
        with pytest.raises(AttributeError, match="immutable"):
            request.messages = ()

    @pytest.mark.parametrize("types", [(), ("int",), ("int", "str")])
    def test_a_doubt_is_asked_with_the_types_of_its_answer(self, types: tuple[str, ...]):
        assert Reconcile("reconcile:1.0", CALL, Function(name="f"), types=types).question.types == types


def test_a_stop_that_is_one_string_is_a_mistake() -> None:
    with pytest.raises(UsageError, match=r"settings\.stop"):
        Settings(stop="END")


def test_what_is_waited_for_is_named_with_the_next_step():
    ask = AskApproval("ask:1.0", FunctionCall(name="erase", arguments_json='{"path": "x"}'))
    outside = RunFunction("run:1.0", FunctionCall(name="look", arguments_json="{}"), Function(name="look"))
    asked, looked = describe_effects([ask]), describe_effects([outside])
    facts = ("'ask:1.0'", 'erase({"path": "x"})', "Approved()", "Denied(", "Modified(")
    assert [fact for fact in facts if fact not in asked] == []
    assert [fact for fact in ("'run:1.0'", "look({})", "Returned(") if fact not in looked] == []
    long = [AskApproval(f"ask:1.{n}", FunctionCall(name="f", arguments_json="x" * 10**6)) for n in range(9)]
    assert len(describe_effects(long)) < 1000


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
