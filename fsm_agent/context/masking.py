"""Mask old results of functions in requests.

An old result stays in the dialog; a request shows a note in its place.  The note is the same in every later request:
the provider's cache of the dialog is invalidated only from the newly masked result on.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cache

from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function
from fsm_agent.messages.event import ObservationsMasked
from fsm_agent.messages.message import FunctionResult, Message, Part

PLACEHOLDER = (
    "[Masked — {name} result from iteration {round}, {tokens} tokens. "
    "Use result_cache tool if available, or re-invoke tool.]"
)
# Description, for the model, of the function with which it releases results before they are old.
CONTEXT_RELEASE = (
    "Free space in your context: what functions returned in these rounds, and is long, is shown to you only as a "
    "short note from now on. Do it when you have taken from it what you need. Each message in which you called "
    "functions is a round; the first one for the present task is round 1."
)
NOTHING_MASKED = ObservationsMasked(count=0, tokens_saved=0)


def estimated_tokens(text: str) -> int:
    """Return an estimate of the tokens in a text: one for every four characters, rounded up."""
    return -(-len(text) // 4)


@cache
def context_release() -> Function:
    """Return a function with which the model itself releases results that it no longer needs; see `Masking`."""

    def release(context: Context, rounds: list[int]) -> str:
        context.release(rounds)
        return "Released."

    return Function.of(release, name="context_release", description=CONTEXT_RELEASE)


class Masking(Value, frozen=True):
    """The age and size at which the result of a function is masked.

    A result with more than ``min_tokens`` is masked once its round is older than the newest ``keep_rounds`` rounds, or
    was released.  Errors are always shown.

    Attributes:
        keep_rounds: How many of the newest rounds of function calls are shown unchanged; 1 or more.
        min_tokens: Results of up to this many tokens are always shown.  Attachments do not count.
    """

    keep_rounds: int = 2
    min_tokens: int = 500

    def __post_init__(self) -> None:
        for name, least in (("keep_rounds", 1), ("min_tokens", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"masking.{name} is {value!r}: a whole number from {least} on would be right")


class MaskedView(Value, frozen=True):
    """A dialog as a request shows it.

    Attributes:
        messages: All messages of the dialog, with notes in place of masked results; the dialog's own sequence if none
            is masked.
        calls: Ids of the function calls whose results are masked.
        masked: The number of masked results, and the tokens that the notes save.
    """

    messages: Sequence[Message]
    calls: frozenset[str] = frozenset()
    masked: ObservationsMasked = NOTHING_MASKED

    def since(self, before: ObservationsMasked = NOTHING_MASKED) -> ObservationsMasked | None:
        """Return what has been masked since `masked` was ``before``; None if nothing."""
        count = self.masked.count - before.count
        return ObservationsMasked(count, self.masked.tokens_saved - before.tokens_saved) if count else None


class Masker:
    """Makes the views of one agent call.

    Its state only saves time: a view depends on the messages and the released rounds alone.  Each view copies the list
    and inspects only the messages since the previous one.  A masked message is the same object in all views.  Not
    thread-safe.

    Args:
        masking: The conditions.
        seeded_with: The number of messages before the call; their results belong to no round, and are never masked.
    """

    __slots__ = ("_large", "_masking", "_read", "_released", "_rounds", "_seeded_with", "_view", "_with_notes")

    def __init__(self, masking: Masking, seeded_with: int = 0) -> None:
        self._masking = masking
        self._seeded_with = seeded_with
        self._forget()

    def _forget(self) -> None:
        self._read: list[Message] = []  # the dialog at the latest view
        self._with_notes: list[Message] = []  # the same with notes
        self._large: list[tuple[int, int]] = []  # index and round of results that are large enough to be masked later
        self._rounds = 0
        self._released: Set[int] = frozenset()
        self._view = MaskedView(())

    def view(self, messages: Sequence[Message], released: Set[int] = frozenset()) -> MaskedView:
        """Return what the next request shows.

        Args:
            messages: The dialog.
            released: Rounds whose results are masked at any age.  Messages that call functions count rounds from 1.
        """
        dialog = list(messages)
        if (
            dialog[: len(self._read)] != self._read or not self._released <= released
        ):  # the dialog was forked or rewound
            self._forget()
        for index in range(len(self._read), len(dialog)):
            self._add(dialog[index], index)
        self._read, self._released = dialog, frozenset(released)
        oldest_kept = self._rounds + 1 - self._masking.keep_rounds  # the round being requested now is one more
        due, later = list[tuple[int, int]](), list[tuple[int, int]]()
        for index, round in self._large:
            (due if round < oldest_kept or round in released else later).append((index, round))
        if due:
            self._large = later
            self._mask(due)
        return self._view.changed(messages=tuple(self._with_notes) if self._view.masked.count else messages)

    def _add(self, message: Message, index: int) -> None:
        self._with_notes.append(message)
        if index < self._seeded_with:
            return
        if message.function_calls:
            self._rounds += 1
        elif self._rounds and any(self._is_large(part) for part in message.parts):
            self._large.append((index, self._rounds))

    def _is_large(self, part: Part) -> bool:
        if not isinstance(part, FunctionResult) or part.is_error:
            return False
        return estimated_tokens(part.text) > self._masking.min_tokens

    def _mask(self, due: Sequence[tuple[int, int]]) -> None:
        calls, count, saved = set(self._view.calls), self._view.masked.count, self._view.masked.tokens_saved
        for index, round in due:
            parts: list[Part] = []
            for part in self._with_notes[index].parts:
                if isinstance(part, FunctionResult) and self._is_large(part):
                    tokens = estimated_tokens(part.text)
                    note = PLACEHOLDER.format(name=part.name, round=round, tokens=tokens)
                    calls.add(part.id)
                    count, saved = count + 1, saved + tokens - estimated_tokens(note)
                    part = part.changed(text=note, attachments=())
                parts.append(part)
            self._with_notes[index] = self._with_notes[index].changed(parts=tuple(parts))
        self._view = MaskedView((), frozenset(calls), ObservationsMasked(count, saved))
