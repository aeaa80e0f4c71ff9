"""Combine masking and processors into the view of a dialog.

A model is shown the whole dialog, unless the agent masks old results or has processors.  A view is made for one request
and discarded: the dialog itself stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsm_agent.lifecycle.context.masking import NOTHING_MASKED, MaskedView, Masker, Masking
from fsm_agent.lifecycle.context.window import Processor, applied
from fsm_agent.lifecycle.record import CallRecord
from fsm_agent.messages.event import ObservationsMasked
from fsm_agent.messages.message import Message


class View:
    """The views of one agent call: first old results are masked, then the processors select.

    Args:
        masking: When a result is old and large enough; None: never.
        processors: Each takes messages and returns those to be shown; pure.
    """

    __slots__ = ("_masker", "_masking", "_processors", "_reported", "_view")

    def __init__(self, masking: Masking | None, processors: tuple[Processor, ...] = ()) -> None:
        self._masking = masking
        self._masker: Masker | None = None
        self._view = MaskedView(())
        self._reported = NOTHING_MASKED
        self._processors = processors

    def __call__(self, r: CallRecord) -> Sequence[Message]:
        """Return the messages of the record's dialog that are shown."""
        messages: Sequence[Message] = r.dialog
        if self._masking is not None:
            self._view = self._of(r).view(messages, frozenset(r.released))
            messages = self._view.messages
        return applied(self._processors, messages)

    def masked_calls(self, r: CallRecord) -> frozenset[str]:
        """Return the ids of the calls whose results are not shown."""
        if self._masking is None:
            return frozenset()
        return frozenset(self._of(r).view(r.dialog, frozenset(r.released)).calls)

    def news(self) -> ObservationsMasked | None:
        """Return what the latest request masks and no earlier one did."""
        before, self._reported = self._reported, self._view.masked
        return self._view.since(before)

    def _of(self, r: CallRecord) -> Masker:
        if self._masker is None:
            assert self._masking is not None
            self._masker = Masker(self._masking, r.seeded_with)
        return self._masker
