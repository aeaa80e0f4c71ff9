"""Decide whether a model that failed is asked again, after a 429 say: guards of the table, and their actions.

How long to wait is part of the answer: what the provider said, or a delay of `fsm_agent.runtime.retry_delay`.
"""

from __future__ import annotations

from fsm_agent.lifecycle.interpret import TooLong
from fsm_agent.lifecycle.limits import is_within
from fsm_agent.lifecycle.outcomes import ModelFailed
from fsm_agent.lifecycle.record import CallRecord
from fsm_agent.prompts.prompt import Prompt


def may_recall(r: CallRecord, answer: ModelFailed, prompt: Prompt) -> bool:
    """Return whether the model is asked again: the failure may pass, and attempts and time are left for it."""
    patient = r.limits.wait_s is None or answer.delay_s <= r.limits.wait_s
    in_time = r.deadline_s is None or answer.at_s + answer.delay_s < r.deadline_s
    return answer.error.retryable and patient and in_time and is_within(r.recalls, r.limits.recalls)


def count_recall(r: CallRecord, answer: ModelFailed, prompt: Prompt) -> CallRecord:
    """Return the record of a call that waits for the next attempt."""
    return r.changed(recalls=r.recalls + 1, wake_at_s=answer.at_s + answer.delay_s)


def may_shorten(r: CallRecord, answer: TooLong, prompt: Prompt) -> bool:
    """Return whether a request that was too long is made again: once, and shorter."""
    is_new = r.shortened_at != _said(r)
    return answer.shorten_to is not None and is_new and is_within(r.recalls, r.limits.recalls)


def shorten(r: CallRecord, answer: TooLong, prompt: Prompt) -> CallRecord:
    """Return the record of a call whose requests are shorter from now on."""
    recalls, attempt = r.recalls + 1, r.attempt + 1
    return r.changed(recalls=recalls, attempt=attempt, shorten_to=answer.shorten_to, shortened_at=_said(r))


def _said(r: CallRecord) -> int:
    """Return how many messages have been said, which only grows: a branch that is pruned counts, too."""
    return len(r.dialog) + len(r.branch) + len(r.pruned)
