"""A summary of the beginning of a dialog."""

from __future__ import annotations

from fsm_agent._internal.values import Value


class HistorySummary(Value, frozen=True):
    """A summary that stands for the beginning of the dialog in requests."""

    covers: int = 0  # how many messages of the dialog it stands for; 0: there is none yet
    text: str = ""
    made_at: int = -1  # the length of the dialog when it was made; -1: never
    failed_at: int = -1  # the length of the dialog when the next one could not be made; -1: it has not failed

    def inherited(self, shift: int = 0) -> HistorySummary | None:
        """Return what the next call of the dialog begins with; None: there is no summary yet.

        Args:
            shift: How many messages were added before the first.
        """
        return HistorySummary(self.covers + shift, self.text) if self.covers else None
