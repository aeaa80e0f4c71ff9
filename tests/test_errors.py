"""Does every error say whose fault it is, and can it be stored, sent to another process, and retried when that may
help?
"""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import pytest

from fsm_agent import errors
from fsm_agent.call import CallFailed
from fsm_agent.errors import (
    RETRYABLE_STATUS,
    AuthFailed,
    BadReply,
    ConfigError,
    ContextTooLong,
    ErrorReport,
    FsmAgentError,
    IllegalTrigger,
    InboxFull,
    JournalError,
    OutcomeError,
    Overloaded,
    ParseError,
    ParseFailed,
    ProgramError,
    PromptChanged,
    PromptError,
    ProviderError,
    RateLimited,
    ReplayError,
    SnapshotError,
    TagNotFound,
    TimedOut,
    UsageError,
)
from fsm_agent.flows import FlowError
from fsm_agent.testing import as_json

PROVIDER_ERRORS = [ProviderError, RateLimited, Overloaded, TimedOut, AuthFailed, ContextTooLong, BadReply, ProgramError]
FACTS = {"status": 429, "code": "too_many", "request_id": "req_1", "retryable": False, "retry_after_s": 2.5}


def test_the_tree():
    every = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert all(issubclass(error, FsmAgentError) for error in every)
    usage = {PromptError, PromptChanged, ConfigError, OutcomeError, IllegalTrigger, FlowError}
    assert {error for error in every if UsageError in error.__bases__} == usage
    assert {error for error in every if ProviderError in error.__bases__} == {*PROVIDER_ERRORS} - {ProviderError}
    parse = {TagNotFound, ParseFailed}
    assert {error for error in every if ParseError in error.__bases__} == parse
    assert InboxFull.__bases__ == (OutcomeError,)
    values = {UsageError, *usage, InboxFull, ParseError, *parse, SnapshotError, JournalError, ReplayError}
    assert {error for error in every if issubclass(error, ValueError)} == values


@pytest.mark.parametrize("error", [TagNotFound("intent"), ParseFailed("Foo", "not Foo")])
def test_what_is_wrong_with_an_intent_survives_pickling(error):
    same = pickle.loads(pickle.dumps(error))
    assert (type(same), str(same), vars(same)) == (type(error), str(error), vars(error))


class TestProviderError:
    @pytest.mark.parametrize(
        ("error", "status", "is_retryable"),
        [
            (ProviderError, None, False),
            (ProviderError, 400, False),
            (ProviderError, 404, False),
            *[(ProviderError, status, True) for status in sorted(RETRYABLE_STATUS)],
            (ProviderError, 501, False),
            (RateLimited, 429, True),
            (RateLimited, 200, True),
            (Overloaded, None, True),
            (Overloaded, 400, True),
            (TimedOut, None, True),
            (BadReply, 200, True),
            (AuthFailed, 429, False),
            (ContextTooLong, 500, False),
        ],
    )
    def test_what_may_help(self, error, status, is_retryable):
        assert error("x", status=status).retryable is is_retryable
        assert error("x", status=status, retryable=not is_retryable).retryable is not is_retryable

    @pytest.mark.parametrize("error", PROVIDER_ERRORS)
    @pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
    def test_it_survives_being_copied_and_sent(self, error, again):
        same = again(error("x", **FACTS))
        assert type(same) is error
        assert vars(same) == vars(error("x", **FACTS))

    @pytest.mark.parametrize("error", PROVIDER_ERRORS)
    def test_as_data_and_back(self, error):
        report = error("x", **FACTS).report()
        assert report == ErrorReport(kind=error.__name__, message="x", **FACTS)
        again = ErrorReport(**as_json(report))
        assert again == report
        assert type(again.exception()) is error
        assert again.exception().report() == report

    def test_one_that_is_unknown_here(self):
        class Special(RateLimited):
            """A user's error."""

        error = Special("x", status=429).report().exception()
        assert type(error) is ProviderError
        assert error.retryable
        assert error.report().kind == "ProviderError"


class TestCallErrors:
    def test_what_failed_can_be_looked_at(self):
        record = SimpleNamespace(ending=SimpleNamespace(reason="refused"), trace=["step"])
        call = SimpleNamespace(record=record, journal=None, result_so_far="what came of it")
        error = CallFailed("refused: no", call=call)
        assert (error.call, error.reason, error.trace) == (call, "refused", ["step"])
        assert error.result == "what came of it"
