"""OS processes that answer in one conversation, held up where a test wants them."""

from __future__ import annotations

from threading import Barrier
from typing import Any

from kill_worker import opened

from fsm_agent.agents import Agent
from fsm_agent.store import Conflict
from fsm_agent.testing import Script

NAME = "customer-17"
PATIENCE_S = 60.0


class Echo(Script):
    """A model that repeats what it is asked; the first time, it waits for the other OS process in between."""

    def __init__(self, *meetings: Barrier) -> None:
        super().__init__()
        self.meetings = list(meetings)
        self.seen: list[list[str]] = []

    def _next(self, request: Any, timeout_s: float | None) -> Any:
        self.seen.append([message.text for message in request.messages])
        while self.meetings:
            self.meetings.pop(0).wait(PATIENCE_S)
        return self._make_reply(f"Re: {request.messages[-1].text}", request, timeout_s)


def told(conversation: Any, text: str) -> str:
    """Return the answer, or the conflict that there is instead."""
    try:
        return str(conversation.call(text).output)
    except Conflict as error:
        return f"Conflict: {error}"


def at_once(path: str, text: str, meeting: Any, queue: Any) -> None:
    """Call when the other has read the conversation, too; the one that loses calls again when the winner has ended."""
    store = opened(path)
    model = Echo()
    conversation = Agent(model, system="Be terse.", name="clerk", store=store).conversation(NAME)
    create = store.create

    def created(*args: Any, **options: Any) -> Any:
        meeting.wait(PATIENCE_S)
        store.create = create
        return create(*args, **options)

    for number in range(3):
        store.create = created
        came = told(conversation, f"{text} {number}")
        asked = len(model.seen)
        meeting.wait(PATIENCE_S)
        again = told(conversation, f"{text} {number}") if came.startswith("Conflict") else ""
        meeting.wait(PATIENCE_S)
        queue.put((text, number, came, again, asked))
    store.close()


def first(path: str, is_asked: Any, is_tried: Any, queue: Any) -> None:
    """Have a model that is asked before, and answers after the other OS process has called."""
    store = opened(path)
    conversation = Agent(Echo(is_asked, is_tried), name="clerk", store=store).conversation(NAME)
    queue.put(("first", told(conversation, "one")))
    store.close()


def second(path: str, is_asked: Any, is_tried: Any, queue: Any) -> None:
    """Call while the model of the other OS process is asked."""
    store = opened(path)
    model = Echo()
    conversation = Agent(model, name="clerk", store=store).conversation(NAME)
    is_asked.wait(PATIENCE_S)
    came = told(conversation, "two")
    is_tried.wait(PATIENCE_S)
    queue.put(("second", came, len(model.seen)))
    store.close()
