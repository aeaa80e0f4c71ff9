"""How much may one agent call use?"""

from __future__ import annotations

from dataclasses import dataclass, fields

from fsm_agent.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The budgets of one agent call.  They are the call's, not a round's; None: unlimited.

    A call asks a model at most ``1 + rounds + parse_retries + recalls`` times.
    """

    rounds: int | None = 5  # replies whose functions are run; at the limit comes the final prompt
    parse_retries: int | None = 3  # answers that may be refused by the parser and tried again
    recalls: int | None = 2  # failures of the model's transport that may be waited out
    depth: int | None = 3  # agent calls inside functions of agent calls; 1: none
    deadline_s: float | None = None  # seconds from the start to the end
    wait_s: float | None = 60.0  # the longest wait before a recall; a provider that asks for more ends the call
    identical_rounds: int | None = None  # so many rounds in a row that ask for just the same end the call; 2 or more

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
                raise UsageError(f"limits.{item.name} is {value!r}: a number from 0 on would be right, or None")
        if self.identical_rounds is not None and self.identical_rounds < 2:
            raise UsageError(f"limits.identical_rounds is {self.identical_rounds!r}: 2 or more would be right, or None")


def is_within(used: int, limit: int | None) -> bool:
    """Whether one more may be used."""
    return limit is None or used < limit
