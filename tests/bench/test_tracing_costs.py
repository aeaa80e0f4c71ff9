"""Do spans cost next to nothing where nobody records them, and little beside what the SDK takes for them?

What is missed is measured again before it is believed: machines are shared.
"""

from __future__ import annotations

import asyncio
import sys

import pytest

from bench.tracing_costs import measured

ATTEMPTS = 8
MOST_OF_INTERFACE = 0.10  # of W2
MOST_OF_OWN = 0.45  # of W2, beside what the SDK takes for the same eight spans, which is more than that


@pytest.mark.skipif(sys.gettrace() is not None or sys.getprofile() is not None, reason="what is traced takes longer")
def test_what_spans_cost() -> None:
    least: dict[str, float] = {}
    for _ in range(ATTEMPTS):
        for name, seconds in asyncio.run(measured(3)).items():
            least[name] = min(seconds, least.get(name, seconds))
        interface = least["interface"] / least["off"] - 1
        own = (least["recorded"] - least["by hand"]) / least["off"]
        if interface <= MOST_OF_INTERFACE and own <= MOST_OF_OWN:
            return
    assert (round(interface, 3), round(own, 3)) <= (MOST_OF_INTERFACE, MOST_OF_OWN)
    assert own <= MOST_OF_OWN
