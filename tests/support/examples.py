"""How many examples of a property are drawn: all in the long part of the tests, and a quarter in the short one."""

from __future__ import annotations

from hypothesis import settings

SHORT, FULL = "short", "full"  # names of profiles
FULL_COUNT = 100  # of a property that does not say how many
SHORT_PART = 4


def examples(full: int) -> settings:
    """Return the settings of a property that needs another number of examples.

    Args:
        full: How many the long part draws; each run of the short part draws a quarter of them, others each time.
    """
    is_short = settings.get_current_profile_name() == SHORT
    return settings(max_examples=full // SHORT_PART if is_short else full, deadline=None)
