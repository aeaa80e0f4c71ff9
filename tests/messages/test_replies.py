"""Do the facts about replies add up?"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fsm_agent.messages import Usage

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
