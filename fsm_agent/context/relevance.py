"""Show the part of a long dialog that is relevant to the current task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan

from fsm_agent._internal.values import Value
from fsm_agent.context.window import check_size, group_start, pinned
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Message


class KeepRelevant(Value, frozen=True):
    """A processor that shows the ``n`` most relevant groups of messages and the pinned ones, in their order.

    A group is a message, or a round of function calls with all its results; it is as relevant as its most relevant
    message.  The system messages at the beginning, the first and the newest user message, and the newest group are
    pinned.

    Args:
        n: The number of groups.
        score: Returns how relevant a message is to the text of the newest user message; higher is more relevant.  It
            must be pure, and is called for each message in each request: cache slow computations.
    """

    n: int
    score: Callable[[str, Message], float]

    def __post_init__(self) -> None:
        check_size("KeepRelevant", "n", self.n)
        if not callable(self.score):
            raise UsageError(f"KeepRelevant(score={self.score!r:.80}): a function of a text and a message is right")

    def __call__(self, dialog: Sequence[Message]) -> Sequence[Message]:
        messages = list(dialog)
        newest = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), None)
        query = "" if newest is None else messages[newest].text
        groups, end = list[range](), len(messages)
        while end > 0:
            begin = group_start(messages, end)
            groups.append(range(begin, end))
            end = begin
        kept = {*pinned(messages), *groups[0]} if groups else set[int]()
        if newest is not None:
            kept.add(newest)
        others = [group for group in groups if kept.isdisjoint(group)]
        others.sort(key=lambda group: max(self._score(query, messages[i]) for i in group), reverse=True)  # newest first
        kept.update(*others[: self.n])
        return dialog if len(kept) == len(messages) else [messages[i] for i in sorted(kept)]

    def _score(self, query: str, message: Message) -> float:
        score = self.score(query, message)
        if not isinstance(score, int | float) or isnan(score):
            raise UsageError(f"the score of KeepRelevant returned {score!r:.80}: a number would be right")
        return score
