"""How many examples of a property are drawn: all of them every night, and a quarter in the gate."""

from __future__ import annotations

from hypothesis import settings

GATE, NIGHTLY = "gate", "nightly"  # names of profiles
GATE_COUNT, NIGHTLY_COUNT = 25, 100  # of a property that does not say how many


def examples(full: int) -> settings:
    """Return the settings of a property that needs another number of examples.

    Args:
        full: How many are drawn every night.  The gate draws the same quarter of them each time.
    """
    is_gate = settings.get_current_profile_name() == GATE
    return settings(max_examples=full * GATE_COUNT // NIGHTLY_COUNT if is_gate else full)
