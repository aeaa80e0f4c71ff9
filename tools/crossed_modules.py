"""Count the modules of the package that one call crosses: how much has to be read to follow it.

``PYTHONPATH=tests python tools/crossed_modules.py`` prints them by folder.  What is counted is the second call of its
kind, in all threads; imports, and what is made once, are done by then.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from types import FrameType

from support.stub_server import StubServer

import fsm_agent
from fsm_agent import Agent, function
from fsm_agent.clients import client_for
from fsm_agent.flows import Flow, ask, end, execute
from fsm_agent.store.sql.sqlite import SqliteStore
from fsm_agent.testing import Script

ROOT = Path(fsm_agent.__file__).parent
ASKED = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
TURNS = [{"role": "assistant", "content": None, "tool_calls": [ASKED]}, "It is 3."]


@function(blocking=False)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Crossed:
    """Calls of functions of the package, by module, while it counts."""

    def __init__(self) -> None:
        self.is_counting = False
        self.calls: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and self.is_counting and frame.f_code.co_name != "<module>":
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(ROOT) and ROOT / "testing" not in file.parents:
                self.calls[file.relative_to(ROOT).as_posix()] += 1


def crossed_by(once: Callable[[], object]) -> Counter[str]:
    """Return how many calls of functions each module has in the second of two calls, threads of the first included."""
    crossed, before = Crossed(), (sys.getprofile(), threading.getprofile())
    threading.setprofile(crossed)
    sys.setprofile(crossed)
    try:
        once()
        crossed.is_counting = True
        once()
        crossed.is_counting = False
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])  # type: ignore[arg-type]
    return crossed.calls


def by_an_agent() -> Counter[str]:
    """A call with one function, and so two requests over HTTP."""
    with StubServer(2 * TURNS) as server:
        client = client_for("openai-chat:stub", base_url=server.base_url, api_key="stub")
        agent = Agent(client, functions=[add])

        def once() -> None:
            assert agent.call("What is 1 + 2?").output == "It is 3."

        try:
            return crossed_by(once)
        finally:
            client.close()


def by_a_flow() -> Counter[str]:
    """A run of an agent's state and a function's, in a file of SQLite."""
    agent = Agent(Script("three", "three"), name="counter")

    @ask(agent)
    def asking(text: str) -> str:
        return "How many?"

    @execute
    def written(text: str) -> str:
        return text.upper()

    rows = [asking.done(written, do=lambda text, answer: answer), written.done(end("over"), do=lambda text, up: up)]
    with tempfile.TemporaryDirectory() as folder, closing(SqliteStore(Path(folder) / "runs.db")) as store:
        flow = Flow("counting", str, start=asking, rows=rows, store=store)
        names = iter("ab")

        def once() -> None:
            assert flow.call("", run_id=next(names)).output == "THREE"

        return crossed_by(once)


CALLS = {"an agent's call": by_an_agent, "a flow's": by_a_flow}


def main() -> None:
    """Print the modules of each call."""
    for name, count in CALLS.items():
        calls = count()
        print(f"{name}: {len(calls)} modules, {calls.total()} calls of functions")
        for folder, files in groupby(sorted(calls), lambda file: file.rpartition("/")[0]):
            print(f"  {folder or '.'}: {', '.join(f'{Path(file).stem} {calls[file]}' for file in files)}")


if __name__ == "__main__":
    main()
