"""Do graphs that others have published do here what their authors mean?

Each module `p…` of this folder is a port of one graph.  Its docstring names the source and the differences.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import play, port

from fsm_agent.testing import explore

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("p[0-9]*.py"))
everyone = pytest.mark.parametrize("name", NAMES)


@everyone
def test_it_does_what_its_authors_mean(name: str, tmp_path: Path) -> None:
    """Over a file, with nothing of the day before but that file; every other port with asyncio."""
    days = port(name).days
    stands = [play(name, number, str(tmp_path), NAMES.index(name) % 2 == 1) for number in range(len(days))]
    assert stands == [day.at for day in days]


@everyone
def test_every_row_can_be_taken(name: str) -> None:
    made = port(name)
    found = explore(made.flow, made.start, made.gives)
    assert (found.missed, found.is_whole) == ((), True)
