"""Does each part of the tests draw as many examples as it says, and does the long one draw those of each property?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import FULL_COUNT, SHORT_PART, examples


@given(st.integers())
def test_a_property(n: int) -> None:
    assert isinstance(n, int)


def drawn(chosen: settings | None) -> int:
    """Return how many examples a property has with these settings, or with none."""
    seen = list[int]()

    @given(st.integers())
    def draw(n: int) -> None:
        seen.append(n)

    (chosen(draw) if chosen else draw)()
    return len(seen)


def test_the_short_part_draws_a_quarter(request: pytest.FixtureRequest) -> None:
    if "not long" not in request.config.option.markexpr:
        pytest.skip("long tests run as well")
    assert (drawn(None), drawn(examples(40))) == (FULL_COUNT // SHORT_PART, 40 // SHORT_PART)


@pytest.mark.long
def test_the_long_part_draws_all_of_all_properties(request: pytest.FixtureRequest) -> None:
    assert (drawn(None), drawn(examples(40))) == (FULL_COUNT, 40)
    assert test_a_property.__name__ in {item.name for item in request.session.items if item.get_closest_marker("long")}
