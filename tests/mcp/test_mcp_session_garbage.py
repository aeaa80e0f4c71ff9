"""Are none of our objects in a reference cycle when the session with a server has ended?

The packages anyio and mcp leave cycles for each session.  Our part in them must be small.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

import pytest
from mcp_sessions import end_sessions
from support.paths import TESTS

from fsm_agent import Agent
from fsm_agent.mcp import MCPServer, MCPServerError, MCPToolError
from fsm_agent.testing import Script, function_call

pytestmark = pytest.mark.nightly

pytest.importorskip("mcp")

HELD_BY_OTHERS = {"_Watched", "Secrets"}  # the wrapper of a stream, and what the logs of a session must not show


def server(kind: str = "new", timeout_s: float = 60.0) -> MCPServer:
    return MCPServer.stdio(sys.executable, str(TESTS / "mcp" / f"mcp_{kind}_server.py"), name=kind, timeout_s=timeout_s)


def use_and_close() -> None:
    with server() as one:
        assert one.functions
        assert one.call("add", a=41) == "42"


def use_an_old_one() -> None:
    with server("old") as one:
        assert one.functions
        assert int(one.call("pid"))


def forget() -> None:
    assert server().functions


def fail() -> None:
    with server() as one, pytest.raises(MCPToolError, match="no luck"):
        one.call("fail")


def take_too_long() -> None:
    with server(timeout_s=0.05) as one, pytest.raises(MCPToolError, match="did not answer"):
        one.call("wait")


def die() -> None:
    with server() as one, pytest.raises(MCPServerError, match="ended before"):
        one.call("die")


def serve_an_agent() -> None:
    with server() as one:
        script = Script([function_call("add", a=1), function_call("fail"), function_call("nobody")], "42")
        assert Agent(script, functions=one.functions).call("How many?").output == "42"


def garbage_of(work: Callable[[], object]) -> list[Any]:
    """The objects in reference cycles that the work leaves, and those that only they refer to."""
    gc.collect()
    gc.freeze()  # what is there already is none of its garbage
    gc.disable()
    try:
        work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [*gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def is_ours(kept: Any) -> bool:
    """Is it an object, a function or a frame of the package?"""
    if isinstance(kept, FrameType):
        return str(kept.f_globals.get("__name__")).startswith("fsm_agent")
    return str((kept if isinstance(kept, FunctionType) else type(kept)).__module__).startswith("fsm_agent")


def is_in_a_cycle(kept: Any, garbage: list[Any]) -> bool:
    """Does a way lead from it through other garbage back to itself?"""
    among, seen, coming = {id(other) for other in garbage}, set[int](), [kept]
    while coming:
        for other in gc.get_referents(coming.pop()):
            if other is kept:
                return True
            if id(other) in among and id(other) not in seen:
                seen.add(id(other))
                coming.append(other)
    return False


@pytest.mark.parametrize(
    "work",
    [use_an_old_one, use_and_close, forget, serve_an_agent, fail, take_too_long, die],
)
def test_no_cycle_goes_through_us(work: Callable[[], None]) -> None:
    def finished() -> None:
        work()
        end_sessions()

    finished()  # imports leave some
    garbage = garbage_of(finished)
    ours = [kept for kept in garbage if is_ours(kept)]
    assert [kept for kept in ours if is_in_a_cycle(kept, garbage)] == []
    types = {type(kept).__name__ for kept in ours if type(kept).__module__.startswith("fsm_agent")}
    assert types <= HELD_BY_OTHERS
