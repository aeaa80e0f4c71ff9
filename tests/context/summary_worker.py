"""An OS process that drives a call with summaries, and is killed right after one."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from fsm_agent import Agent, Limits, function
from fsm_agent.call import Request
from fsm_agent.context import summarize
from fsm_agent.store import SqliteStore
from fsm_agent.testing import Script, function_call

RUN, ROUNDS = "r1", 30


@function(repeatable=True)
def read(n: int) -> str:
    """Read a page."""
    return f"page {n}"


def is_for_summary(request: Request) -> bool:
    return len(request.messages) == 2 and request.messages[1].text.startswith(('{"task"', '{"role"'))


class Model(Script):
    """A model that derives its reply from the messages, and notes each request.

    Args:
        notes: A file with one line for each request.
        dies_at: The number of summaries after which a request kills the OS process, or 0 for never.
    """

    def __init__(self, notes: str, dies_at: int = 0) -> None:
        super().__init__()
        self.notes, self.dies_at = Path(notes), dies_at

    def _next(self, request: Request, timeout_s: float | None) -> Any:
        kind = "summary" if is_for_summary(request) else "reply"
        with self.notes.open("a") as file:
            print(kind, file=file)
        if kind == "summary":
            return self._make_reply("They read pages.", request, timeout_s)
        if self.dies_at and self.notes.read_text().count("summary") == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        newest = max([int(m.text.split()[1]) for m in request.messages if m.role == "tool"], default=0)
        return self._make_reply(function_call("read", n=newest + 1) if newest < ROUNDS else "done", request, timeout_s)


def reader(store: str, model: Model) -> Agent[Any, Any]:
    return Agent(
        model,
        name="reader",
        functions=[read],
        context=summarize(keep=12),
        limits=Limits(rounds=None),
        store=SqliteStore(store),
    )


if __name__ == "__main__":
    reader(sys.argv[1], Model(sys.argv[2], int(sys.argv[3]))).call("Read on.", run_id=RUN)
