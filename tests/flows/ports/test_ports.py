"""Do graphs that others have published do here what their authors mean?

Each module `p…` of this folder is one, written anew.  Its docstring names the source, and says what differs.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness import play, port
from support.programs import needs_dot

from fsm_agent.diagrams import render
from fsm_agent.flows import Flow, flow_diagram
from fsm_agent.flows.definition.reactions import EVERY
from fsm_agent.flows.definition.states import State, SubflowState
from fsm_agent.testing import explore

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("p[0-9]*.py"))
everyone = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def elsewhere() -> Generator[ProcessPoolExecutor]:
    """Another OS process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@everyone
def test_it_does_what_its_authors_mean(name: str, elsewhere: ProcessPoolExecutor, tmp_path: Path) -> None:
    """The even days are played here, the odd ones in another OS process; every other port with asyncio."""
    days, stands, is_async = port(name).days, list[str](), NAMES.index(name) % 2 == 1
    for number in range(len(days)):
        args = (name, number, str(tmp_path), is_async)
        stands.append(elsewhere.submit(play, *args).result(60) if number % 2 else play(*args))
    assert stands == [day.at for day in days]


@everyone
def test_every_row_can_be_taken(name: str) -> None:
    made = port(name)
    limit = {} if made.limit is None else {"limit": made.limit}
    found = explore(made.flow, made.start, made.gives, holds=made.holds, **limit)
    assert found.missed == ()
    assert found.is_whole is (made.limit is None)


@everyone
def test_its_picture_names_every_state(name: str) -> None:
    made = port(name)
    picture = render(flow_diagram(made.flow), "mermaid")
    named = {state.name for state in states_of(made.flow)}
    assert len(named) >= 2
    assert [word for word in named if word not in picture] == []


@pytest.mark.system
@needs_dot
@pytest.mark.parametrize("name", ["p02_reflexion", "p08_hierarchical_teams"])
def test_its_picture_has_the_label_of_every_edge(name: str) -> None:
    """Graphviz drops labels of edges that end in another box, unless ranks are found for all boxes together.

    It does so in these two.
    """
    drawn = flow_diagram(port(name).flow)
    edges = [edge.partition("</g>")[0] for edge in render(drawn, "svg").split('class="edge"')[1:]]
    assert sum("<text" in edge for edge in edges) == sum(bool(edge.lines) for edge in drawn.edges)


def states_of(flow: Flow[Any]) -> Iterator[State[Any]]:
    """Return the states that a flow's author wrote, with members and inner flows."""
    for state in [row.source for row in flow.rows] + [row.to for row in flow.rows]:
        if state is not EVERY:
            yield from inside(state)


def inside(state: State[Any]) -> Iterator[State[Any]]:
    yield state
    for member in getattr(state, "members", ()):
        yield from inside(member)
    if isinstance(state, SubflowState):
        yield from states_of(state.flow)
