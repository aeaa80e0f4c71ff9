"""Combine masking and processors into the view of a dialog.

Without masking and processors the model sees the whole dialog.  A view is made for one request and then discarded; the
dialog itself stays whole.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from fsm_agent._internal.values import Value
from fsm_agent.context.masking import NOTHING_MASKED, MaskedView, Masker, Masking
from fsm_agent.context.window import Processor, applied
from fsm_agent.errors import ErrorReport, UsageError
from fsm_agent.lifecycle.record import CallRecord
from fsm_agent.messages.event import ContextMeasured, ObservationsMasked
from fsm_agent.messages.message import Message


class ByRecord(Value, frozen=True):
    """A processor that chooses other processors for each request and applies them.

    Args:
        choose: Returns the processors for the current record of the call: its rounds, usage, phase.  Pure.
    """

    choose: Callable[[CallRecord], Sequence[Processor]]

    def __post_init__(self) -> None:
        if not callable(self.choose):
            raise UsageError(f"ByRecord({self.choose!r:.80}): a function of a CallRecord would be right")

    def __call__(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Raise: without a call there is no record to choose by.

        Raises:
            UsageError: Always.
        """
        raise UsageError("ByRecord chooses processors for the requests of an agent: there is no record of a call here")

    def chosen(self, r: CallRecord) -> Sequence[Processor]:
        """Return the processors for a request.

        Raises:
            UsageError: `choose` returned no list of processors.
        """
        chosen = self.choose(r)
        if not (isinstance(chosen, list | tuple) and all(map(callable, chosen))):
            right = "a list of processors such as [KeepLastN(20)] would be right"
            raise UsageError(f"{self.choose!r:.200} of ByRecord returned {chosen!r:.80}: {right}")
        return chosen


class Fit(Value, frozen=True):
    """The result of fitting a request into a `TokenBudget`.

    Attributes:
        messages: The messages that are left.
        measured: The tokens before and after, and the passes that were kept.
        refusal: The error, if the messages still do not fit.
    """

    messages: Sequence[Message]
    measured: ContextMeasured
    refusal: ErrorReport | None = None


class Fitting(Value, frozen=True):
    """A processor that reports what it did, and may refuse a request: `TokenBudget`."""

    @abstractmethod
    def fit(self, messages: Sequence[Message]) -> Fit:
        """Return the messages that are left, with measurements and perhaps a refusal."""


class View:
    """The views of one agent call: first old results are masked, then the processors select.

    Args:
        masking: The conditions for masking a result; None: nothing is masked.
        processors: Pure functions from messages to the messages to show.
    """

    __slots__ = ("_fits", "_masker", "_masking", "_processors", "_reported", "_view")

    def __init__(self, masking: Masking | None, processors: Sequence[Processor] = ()) -> None:
        self._masking = masking
        self._masker: Masker | None = None
        self._view = MaskedView(())
        self._reported = NOTHING_MASKED
        self._processors = tuple(processors)
        self._fits: list[Fit] = []

    def __call__(self, r: CallRecord) -> Sequence[Message]:
        """Return the messages of the record's dialog that are shown."""
        messages: Sequence[Message] = r.dialog
        if self._masking is not None:
            self._view = self._masker_of(r).view(messages, frozenset(r.released))
            messages = self._view.messages
        fits: list[Fit] = []
        for listed in self._processors:
            for processor in listed.chosen(r) if isinstance(listed, ByRecord) else (listed,):
                if isinstance(processor, Fitting):
                    fits.append(processor.fit(messages))
                    messages = fits[-1].messages
                else:
                    messages = applied((processor,), messages)
        self._fits = fits
        return messages

    @property
    def refusal(self) -> ErrorReport | None:
        """The error if the latest view exceeds a `TokenBudget`; None if it can be sent."""
        return next((fit.refusal for fit in self._fits if fit.refusal is not None), None)

    def masked_calls(self, r: CallRecord) -> frozenset[str]:
        """Return the ids of the calls whose results are not shown."""
        if self._masking is None:
            return frozenset()
        return frozenset(self._masker_of(r).view(r.dialog, frozenset(r.released)).calls)

    def news(self) -> list[ObservationsMasked | ContextMeasured]:
        """Return what the latest request newly masks, and its size if it exceeds a soft limit."""
        before, self._reported = self._reported, self._view.masked
        masked = self._view.since(before)
        news: list[ObservationsMasked | ContextMeasured] = [] if masked is None else [masked]
        return [*news, *[fit.measured for fit in self._fits if fit.measured.before > fit.measured.soft]]

    def _masker_of(self, r: CallRecord) -> Masker:
        if self._masker is None:
            assert self._masking is not None
            self._masker = Masker(self._masking, r.seeded_with)
        return self._masker
