"""Does the adapter of the benchmark still do every piece of its work, and rightly?"""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.paths import TESTS

HERE = TESTS / "bench"
BENCH = HERE.parent.parent.parent / "shared" / "bench"

pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="the benchmark is not here: ../shared/bench")


@pytest.fixture
def w(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's workloads."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module("workloads")


@pytest.fixture
def adapter(w: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of what stands among the benchmark's implementations."""
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("fsm_agent_adapter")


@pytest.fixture
def base() -> Iterator[str]:
    """The address of the benchmark's server."""
    command = [sys.executable, "-B", str(BENCH / "stub.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdin
        assert stub.stdout
        yield f"http://127.0.0.1:{stub.stdout.readline().strip()}"
        stub.stdin.close()  # it ends


@pytest.mark.parametrize(("rounds", "width"), [(0, 1), (3, 1), (1, 16), (50, 1)])
def test_in_process(w: Any, adapter: Any, rounds: int, width: int) -> None:
    tools = w.Tools()
    for tool in (tools.add_async, tools.add_sync):
        tools.calls = 0
        tools.probe = width > 1 and tool is tools.add_async
        call = adapter.offline(w.Script(w.tool_turns(rounds, width)), tool, rounds + 2)
        assert asyncio.run(call()) == w.final_text(rounds)
        assert tools.calls == rounds * width
    assert width == 1 or tools.max_in_flight == width


@pytest.mark.parametrize("retry", [False, True])
def test_structured(w: Any, adapter: Any, retry: bool) -> None:
    order = w.order_model()
    call = adapter.structured(w.Script(w.structured_turns(retry)), order)
    assert asyncio.run(call()) == order.model_validate(w.ORDER)


def test_over_http(w: Any, adapter: Any, base: str) -> None:
    async def main() -> None:
        tools = w.Tools()
        assert await adapter.online(f"{base}/tools3/v1", tools.add_async, 5)() == w.final_text(3)
        calls = adapter.online_many(f"{base}/tools3-lat50/v1", tools.add_async, 5, 20)
        assert await asyncio.gather(*[call() for call in calls]) == [w.final_text(3)] * 20
        assert tools.calls == 3 * 21
        said: list[str] = []
        await adapter.stream(f"{base}/stream300/v1")(said.append)
        assert said == w.stream_deltas(300)

    asyncio.run(main())


def test_what_it_imports_is_enough(adapter: Any) -> None:
    exec(adapter.IMPORT, {})
