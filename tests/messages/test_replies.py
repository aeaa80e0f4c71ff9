"""Do the facts about replies add up?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.errors import UsageError
from fsm_agent.messages import Settings, Usage

usages = st.builds(Usage, **{name: st.none() | st.integers(0, 9) for name in Usage.__struct_fields__})


@given(usages, usages, usages)
def test_usage_adds_up_in_any_grouping(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a
    assert (a + b).total_tokens == a.total_tokens + b.total_tokens


def test_every_number_is_added_and_what_was_never_reported_stays_so():
    for name in Usage.__struct_fields__:
        three, four = Usage(**{name: 3}), Usage(**{name: 4})
        assert three + four == four + three == Usage(**{name: 7})
        assert three + Usage() == Usage() + three == three
        assert (three + four) - four == three
        assert (three.problem(), Usage(**{name: 10**18}).problem()) == (None, None)
        for wrong in (-1, True, 1.0, 10**18 + 1):
            assert f"Usage.{name}:" in str(Usage(**{name: wrong}).problem())


def test_a_cost_is_in_dollars():
    assert Usage(cost_pico_usd=1_500_000_000).cost_usd == 0.0015
    assert Usage(input_tokens=1).cost_usd is None


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("temperature", [0, 0.5, None], ["1", True, float("nan")]),
        ("top_p", [0, 0.5, None], ["1", float("inf")]),
        ("max_tokens", [1, None], [1.5, "1", True]),
        ("stop", [(), ("a",), ["a"]], ["a", None, (1,)]),
        ("tool_choice", ["none"], [None]),
        ("extra_body", [{}, {"a": 1}], [None, [1]]),
        ("hosted_tools", [()], [None, {}]),
    ],
)
def test_a_setting_of_another_type_is_named(name, right, wrong):
    for value in right:
        assert getattr(Settings(**{name: value}), name) == value
        assert Settings().override({name: value}) == Settings(**{name: value})
    for value in wrong:
        with pytest.raises(UsageError, match=rf"settings\.{name}\b"):
            Settings(**{name: value})


def test_an_unknown_setting_is_named_with_the_nearest():
    settings = Settings(temperature=0)
    assert settings.override({}) is settings
    with pytest.raises(UsageError, match=r"'max_token'.*'max_tokens'"):
        settings.override({"max_token": 1})
