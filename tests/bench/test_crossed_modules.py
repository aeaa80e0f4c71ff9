"""Does one call cross no more modules than it did?  At most 35 of an agent's call and 40 of a flow's are the aim."""

from __future__ import annotations

import sys

import pytest

from bench.crossed_modules import CALLS

pytestmark = pytest.mark.system

MOST = {"an agent's call": 54, "a flow's": 64}  # November 2026


@pytest.mark.skipif(sys.getprofile() is not None, reason="what is profiled already")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_crosses_no_more_modules(name: str) -> None:
    crossed = CALLS[name]()
    assert {"lifecycle/table.py", "machine/rows.py", "runtime/reconciler.py"} <= crossed.keys()  # it does count
    assert len(crossed) <= MOST[name], sorted(crossed)
