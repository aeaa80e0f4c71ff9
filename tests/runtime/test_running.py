"""Is one function run as its policy says, in both worlds?"""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import pydantic
import pytest
from support.drivers import Driver, Wait, anyhow, by_arun, ended_before, rest, seed

from fsm_agent import Agent, MemoryStore
from fsm_agent.call import AgentCall, CallSuspended, Denied, Limits, Reason, Returned, restore, snapshot
from fsm_agent.errors import Retry
from fsm_agent.flows import Flow, end, execute
from fsm_agent.functions import Context, Default, Function, Retries
from fsm_agent.messages import (
    Document,
    FunctionCall,
    FunctionEnded,
    FunctionProgress,
    Image,
    Payload,
    Reply,
    Text,
    Usage,
)
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import ResultPipeline
from fsm_agent.testing import FakeClock, Script, function_call


class Ran(NamedTuple):
    """The outcome of a requested function."""

    text: str
    is_error: bool
    asked: FunctionCall
    call: AgentCall
    events: list[Any]


def ran(
    driven: Driver, given: Any, arguments: dict[str, Any] | None = None, *, deps: Any = None, **environment: Any
) -> Ran:
    """Have a model ask for this function, and then answer."""
    prompt = Prompt("x", functions=(given if isinstance(given, Function) else Function.of(given),))
    one = seed(prompt, deps=deps)
    events = driven(one, Script(function_call(prompt.offers[0].name, **(arguments or {})), "done"), **environment)
    (asked,) = one.record.function_calls
    text = asked.result if asked.error is None else asked.error
    return Ran(str(text), asked.error is not None, asked, one, events)


class Fails:
    """A function that raises these, one after another, and returns then."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.runs = 0

    def plain(self) -> str:
        """Try."""
        self.runs += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def waiting(self) -> str:
        """Try."""
        return self.plain()

    def function(self, kind: str, **policy: Any) -> Function:
        return Function.of(self.plain if kind == "plain" else self.waiting, name="attempt", **policy)


kinds = pytest.mark.parametrize("kind", ["plain", "waiting"])
policies = pytest.mark.parametrize("policy", [{}, {"retries": Retries(attempts=1)}], ids=["plain", "governed"])


class TestContext:
    @anyhow
    def test_what_a_function_knows_of_its_call_at_each_attempt(self, driven: Driver):
        seen: list[Context[Any]] = []

        def look(context: Context[str], n: int) -> str:
            """Look."""
            seen.append(context)
            if context.attempt < 3:
                raise OSError
            return context.deps * n

        made = Function.of(look, retries=Retries(attempts=3))
        assert ran(driven, made, {"n": 2}, deps="ab").text == "abab"
        assert [(c.attempt, c.idempotency_key) for c in seen] == [(n, "call-1/2.0") for n in (1, 2, 3)]
        context = seen[-1]
        assert (context.deps, context.agent_call_id, context.depth) == ("ab", "call-1", 0)
        f = context.function_call
        assert (f.id, f.name, f.arguments) == ("2.0", "look", {"n": 2})
        assert "context" not in made.parameters["properties"]

    def test_what_it_emits_is_an_event(self):
        def work(context: Context) -> None:
            """Work."""
            context.emit(1)
            context.emit({"of": 2})

        told = [event for event in ran(by_arun, work).events if isinstance(event, FunctionProgress)]
        assert told == [FunctionProgress("2.0", "work", 1), FunctionProgress("2.0", "work", {"of": 2})]

    @pytest.mark.parametrize("number", [0, 2])
    def test_a_round_that_is_not_there_cannot_be_released(self, number: int):
        def work(context: Context) -> None:
            """Work."""
            context.release([number])

        ended = ran(by_arun, work)
        assert ended.is_error
        assert f"the round to release: expected 1 to 1, the present round, got {number}" in ended.text

    @pytest.mark.parametrize("error", [None, ValueError("no")])
    def test_what_it_releases_is_kept_whatever_its_end(self, error: Exception | None):
        def work(context: Context) -> None:
            """Work."""
            context.release([1])
            context.release({1})
            if error:
                raise error

        assert set(ran(by_arun, work).call.record.released) == {1}


class TestWhereItRuns:
    @pytest.mark.parametrize("blocking", [True, False])
    def test_under_asyncio_a_plain_function_holds_up_nobody(self, blocking: bool):
        names: list[bool] = []

        def work() -> None:
            """Work."""
            names.append(threading.current_thread() is threading.main_thread())

        ran(by_arun, Function.of(work, blocking=blocking))
        assert names == [not blocking]

    def test_under_asyncio_a_plain_function_behind_coroutine_middleware_holds_up_nobody(self):
        names: list[bool] = []

        def work() -> None:
            """Work."""
            names.append(threading.current_thread() is threading.main_thread())

        async def around(call: FunctionCall, following: Any) -> Any:
            names.append(threading.current_thread() is threading.main_thread())
            return await following(call)

        ran(by_arun, Function.of(work, middleware=[around]))
        assert names == [True, False]

    @anyhow
    @policies
    def test_context_variables_reach_every_function_and_do_not_come_back(self, driven: Driver, policy: dict[str, Any]):
        user: ContextVar[str] = ContextVar("user")
        user.set("ada")

        def who() -> str:
            """Who is it?"""
            seen = user.get()
            user.set("bob")
            return seen

        async def awho() -> str:
            """Who is it?"""
            return who()

        for given in (who, awho):
            assert ran(driven, Function.of(given, timeout_s=60, **policy)).text == "ada"
        assert user.get() == "ada"

    @anyhow
    def test_the_twin_is_for_asyncio(self, driven: Driver):
        def plain() -> str:
            """Plain."""
            return "plain"

        async def twin() -> str:
            return "twin"

        expected = "twin" if driven is by_arun else "plain"
        assert ran(driven, Function.of(plain, acall=twin)).text == expected
        assert ran(driven, Function.of(plain, acall=lambda: "twin")).text == expected


class TestRetries:
    @kinds
    def test_the_waits_double_and_jitter_by_chance_that_can_be_seeded(self, kind: str):
        fails, clock = Fails(*[OSError("busy")] * 5), FakeClock()
        made = fails.function(kind, retries=Retries(attempts=6, delay_s=0.1, max_delay_s=1.0, jitter=0.5))
        assert ran(by_arun, made, clock=clock, random=Random(7).random).text == "done"
        chance = Random(7)
        assert clock.sleeps == [min(0.1 * 2**n, 1.0) * (1 - 0.5 * chance.random()) for n in range(5)]
        assert fails.runs == 6

    def test_the_defaults_are_three_retries_of_at_most_five_seconds(self):
        for attempts, waits in ((Retries().attempts, [0.1, 0.2, 0.4]), (9, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])):
            fails, clock = Fails(*[OSError("busy")] * 9), FakeClock()
            made = fails.function("plain", retries=Retries(attempts=attempts))
            said = ran(by_arun, made, clock=clock, random=lambda: 0.0)
            assert (said.text, said.is_error, fails.runs) == ("OSError: busy", True, attempts)
            assert clock.sleeps == pytest.approx(waits)

    @kinds
    def test_a_predicate_says_what_is_worth_it(self, kind: str):
        fails = Fails(OSError("busy"), KeyError("no"))
        retries = Retries(attempts=9, retry_if=lambda error: isinstance(error, OSError))
        assert ran(by_arun, fails.function(kind, retries=retries)).text == "KeyError: 'no'"
        assert fails.runs == 2

    def test_very_many_attempts_are_no_error_of_their_own(self):
        fails = Fails(*[OSError("busy")] * 1100)
        retries = Retries(attempts=2000, delay_s=0.01, max_delay_s=1.0)
        assert ran(by_arun, fails.function("plain", blocking=False, retries=retries)).text == "done"

    @anyhow
    def test_nobody_retries_for_somebody_who_has_gone(self, driven: Driver):
        wait, fails = Wait(), Fails(OSError("busy"), OSError("busy"))
        retries = Retries(attempts=9, retry_if=lambda error: bool(wait.wait()))
        one = seed(Prompt("x", functions=(fails.function("plain", retries=retries),)))
        with rest(), ended_before(lambda: driven(one, Script(function_call("attempt"), "never")), wait.free):
            assert wait.begun.wait(20)
            one.cancel("enough")
        assert one.record.ending.reason is Reason.CANCELLED
        assert fails.runs == 1

    @kinds
    def test_a_function_that_asks_the_model_to_retry_is_not_run_again(self, kind: str):
        fails = Fails(Retry("Give the city with its country."))
        said = ran(by_arun, fails.function(kind, retries=Retries(), on_error="fail"))
        assert (said.text, said.is_error, fails.runs) == ("Give the city with its country.", True, 1)


class TestOnError:
    @anyhow
    @kinds
    @pytest.mark.parametrize(
        ("policy", "text", "is_error", "runs"),
        [
            ({"on_error": "tell"}, "OSError: busy", True, 1),
            ({"on_error": Default(None)}, "null", False, 1),
            ({"on_error": "retry"}, "OSError: busy", True, 4),
            ({"on_error": Default("empty"), "retries": Retries(attempts=2)}, "empty", False, 2),
        ],
        ids=lambda value: "",
    )
    def test_what_a_failure_means(
        self, driven: Driver, kind: str, policy: dict[str, Any], text: str, is_error: bool, runs: int
    ):
        fails = Fails(*[OSError("busy")] * 9)
        said = ran(driven, fails.function(kind, **policy))
        assert (said.text, said.is_error, fails.runs) == (text, is_error, runs)

    @pytest.mark.parametrize("raised", [KeyError("k"), OSError(), StopIteration()], ids=repr)
    def test_what_is_raised_is_told_by_type_and_text(self, raised: Exception):
        text = f"{type(raised).__name__}: {raised}".removesuffix(": ")
        assert ran(by_arun, Fails(raised).function("plain")).text == text

    @kinds
    def test_a_failure_that_is_the_calls(self, kind: str):
        fails = Fails(OSError("busy"), ValueError())
        ending = ran(by_arun, fails.function(kind, on_error="fail", retries=Retries(attempts=2))).call.record.ending
        assert (ending.reason, ending.function, fails.runs) == (Reason.FUNCTION_FAILED, "attempt", 2)
        assert "ValueError" in ending.detail

    @anyhow
    @kinds
    @policies
    def test_a_function_that_would_exit_has_failed(self, driven: Driver, kind: str, policy: dict[str, Any]):
        """Such as one that calls the `main` of a command; no driver ends, and no worker."""
        made = Fails(SystemExit(3)).function(kind, **policy)
        with ThreadPoolExecutor(1) as pool:  # not the main thread
            ended = pool.submit(ran, driven, made).result(20)
        assert ended.is_error
        assert "sys.exit(3)" in ended.text

    @anyhow
    @kinds
    def test_an_exit_in_the_main_thread_may_be_that_of_a_signal(self, driven: Driver, kind: str):
        """The handler of the signal runs there, whatever the thread is doing."""

        def stop(number: int, frame: Any) -> None:
            raise SystemExit(128 + number)

        def killed() -> str:
            """Be killed."""
            signal.raise_signal(signal.SIGTERM)
            return "done"

        async def akilled() -> str:
            """Be killed."""
            return killed()

        before = signal.signal(signal.SIGTERM, stop)
        try:
            with pytest.raises(SystemExit):
                ran(driven, Function.of(killed if kind == "plain" else akilled, blocking=False))
        finally:
            signal.signal(signal.SIGTERM, before)

    @anyhow
    @policies
    @pytest.mark.parametrize("blocking", [True, False])
    @kinds
    def test_a_cancellation_that_nobody_asked_for_is_an_error_of_the_function(
        self, driven: Driver, policy: dict[str, Any], blocking: bool, kind: str
    ):
        def gone() -> None:
            """Wait for what was cancelled."""
            raise asyncio.CancelledError

        async def agone() -> None:
            """Wait for what was cancelled."""
            task = asyncio.ensure_future(asyncio.Event().wait())
            task.cancel()
            await task

        work = gone if kind == "plain" else agone
        ended = ran(driven, Function.of(work, blocking=blocking, on_error="fail", **policy))
        assert ended.is_error
        assert "cancelled" in ended.text
        assert isinstance(ended.call.problem.__cause__, asyncio.CancelledError)


class TestMiddleware:
    @kinds
    @pytest.mark.parametrize("is_async", [False, True])
    def test_the_first_is_the_outermost(self, kind: str, is_async: bool):
        log: list[str] = []

        def noted(name: str) -> Any:
            def around(call: FunctionCall, following: Any) -> Any:
                log.append(f"{name}(")
                value = following(call)
                log.append(f"){name}")
                return value

            async def awaited(call: FunctionCall, following: Any) -> Any:
                log.append(f"{name}(")
                value = await following(call)
                log.append(f"){name}")
                return value

            return awaited if is_async else around

        def work() -> str:
            """Work."""
            log.append("work")
            return "done"

        async def awork() -> str:
            """Work."""
            return work()

        chosen = work if kind == "plain" or not is_async else awork
        assert ran(by_arun, Function.of(chosen, name="work", middleware=[noted(name) for name in "abc"])).text == "done"
        assert log == ["a(", "b(", "c(", "work", ")c", ")b", ")a"]

    @kinds
    def test_it_may_answer_itself_change_the_call_or_the_result(self, kind: str):
        def double(n: int) -> int:
            """Double it."""
            doubled.append(n)
            return 2 * n

        async def adouble(n: int) -> int:
            """Double it."""
            return double(n)

        def refuses(call: FunctionCall, following: Any) -> Any:
            return "no" if call.arguments["n"] > 9 else following(call)

        def one_more(call: FunctionCall, following: Any) -> Any:
            return following(call.changed(arguments_json=json.dumps({"n": call.arguments["n"] + 1})))

        doubled: list[int] = []
        chosen = Function.of(double if kind == "plain" else adouble, name="double", middleware=[refuses, one_more])
        assert ran(by_arun, chosen, {"n": 3}).text == "8"
        assert ran(by_arun, chosen, {"n": 10}).text == "no"
        assert doubled == [4]

    def test_what_it_raises_is_a_failure_like_the_functions_own(self):
        def stumbles(call: FunctionCall, following: Any) -> Any:
            tries.append(1)
            if len(tries) < 3:
                raise OSError("busy")
            return following(call)

        tries: list[int] = []
        fails = Fails()
        made = fails.function("plain", middleware=[stumbles], retries=Retries(attempts=3))
        assert ran(by_arun, made).text == "done"
        assert (len(tries), fails.runs) == (3, 1), "each attempt goes through all of it"

    def test_arguments_that_it_changed_to_wrong_ones_are_told(self):
        def wrong(call: FunctionCall, following: Any) -> Any:
            return following(call.changed(arguments_json='{"n": "x"}'))

        def double(n: int) -> int:
            """Double it."""
            return 2 * n

        said = ran(by_arun, Function.of(double, middleware=[wrong]), {"n": 3})
        assert said.is_error
        assert "n: " in said.text

    def test_a_layer_with_a_twin_is_used_as_it_fits(self):
        class Layer:
            def __call__(self, call: FunctionCall, following: Any) -> Any:
                return f"plain {following(call)}"

            async def acall(self, call: FunctionCall, following: Any) -> Any:
                return f"waiting {await following(call)}"

        fails = Fails()
        assert ran(by_arun, fails.function("plain", middleware=[Layer()])).text == "plain done"
        assert ran(by_arun, fails.function("waiting", middleware=[Layer()])).text == "waiting done"

    def test_a_plain_function_behind_coroutine_middleware_may_raise_what_no_future_can_hold(self):
        async def around(call: FunctionCall, following: Any) -> Any:
            return await following(call)

        ended = ran(by_arun, Function(name="f", call=lambda: next(iter(())), middleware=[around]))
        assert ended.is_error
        assert "StopIteration" in ended.text


INTEGER_N = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@dataclass
class Scan:
    page: Image


class ScanModel(pydantic.BaseModel):
    page: Image


class TestWhatItReturned:
    IMAGE = Image(data=b"png", media_type="image/png")
    DOCUMENT = Document(data=b"pdf", media_type="application/pdf")
    PAIR = (IMAGE, DOCUMENT)
    BOTH = '{"page":"[attachment 1]","of":{"bill":"[attachment 2]"}}'

    @pytest.mark.parametrize(
        ("value", "text", "attachments"),
        [
            ("as it is", "as it is", ()),
            (None, "null", ()),
            ([1, "two"], '[1,"two"]', ()),
            (IMAGE, "", (IMAGE,)),
            (("first", IMAGE, DOCUMENT), "first", PAIR),
            ((IMAGE, "first", {"page": IMAGE}), '[attachment 1]\nfirst\n{"page":"[attachment 2]"}', (IMAGE, IMAGE)),
            (("first", IMAGE, {"page": 2}, DOCUMENT), 'first\n[attachment 1]\n{"page":2}\n[attachment 2]', PAIR),
            (Payload((Text("first"), IMAGE, Text("second"))), "first\n[attachment 1]\nsecond", (IMAGE,)),
            (Payload.text("words alone"), "words alone", ()),
            ({"page": IMAGE, "of": {"bill": DOCUMENT}}, BOTH, PAIR),
            ([DOCUMENT, {"page": IMAGE}], '[attachment 1]\n{"page":"[attachment 2]"}', (DOCUMENT, IMAGE)),
            (Scan(page=IMAGE), '{"page":"[attachment 1]"}', (IMAGE,)),
            ([ScanModel(page=IMAGE)], '[{"page":"[attachment 1]"}]', (IMAGE,)),
        ],
    )
    def test_words_and_what_is_beside_them(self, value: Any, text: str, attachments: Any):
        said = ran(by_arun, Function(name="f", call=lambda: value))
        (result,) = self.told(said)
        assert (result.text, result.attachments, result.is_error) == (text, attachments, False)

    def test_a_format_says_it_all(self):
        def show(value: Any, call: FunctionCall) -> str:
            return f"{call.name}({call.arguments['n']}) gave {len(value)}"

        made = Function(name="draw", call=lambda n: [self.IMAGE] * n, parameters=INTEGER_N, format=show)
        (result,) = self.told(ran(by_arun, made, {"n": 2}))
        assert (result.text, len(result.attachments)) == ("draw(2) gave 2", 2)

    @staticmethod
    def told(said: Ran) -> list[Any]:
        return [message.parts[0] for message in said.call.record.dialog if message.role == "tool"]

    @pytest.mark.parametrize("policy", [{}, {"retries": Retries(attempts=3, delay_s=0)}], ids=["plain", "governed"])
    @pytest.mark.parametrize(("value", "error"), [(1, "UsageError"), ("secret", "AttributeError")])
    def test_a_result_whose_format_fails_is_not_shown(
        self, policy: Any, value: Any, error: str, caplog: pytest.LogCaptureFixture
    ):
        def show(value: Any, call: FunctionCall) -> Any:
            return value if value == 1 else value.missing

        runs: list[int] = []
        ended = ran(by_arun, Function(name="f", call=lambda: runs.append(1) or value, format=show, **policy))
        assert (ended.is_error, runs) == (True, [1])
        assert error in ended.text
        assert "secret" not in ended.text
        assert [record.levelname for record in caplog.records] == ["WARNING"]

    @pytest.mark.parametrize("on_error", ["tell", "retry", "fail", Default("all is well")])
    def test_a_result_that_the_pipeline_fails_on_is_not_shown(self, on_error: Any):
        runs: list[int] = []
        made = Function(name="f", call=lambda: runs.append(1) or "a secret", on_error=on_error)
        ended = ran(by_arun, made, results=ResultPipeline(processor=lambda name, text: text.index("missing")))
        assert (runs, ended.is_error) == ([1], True)
        assert "secret" not in str(ended.call.record)
        assert (ended.call.record.ending.reason is Reason.FUNCTION_FAILED) is (on_error == "fail")

    def test_a_pipeline_that_waits_for_what_is_cancelled_has_failed(self):
        async def summarize(name: str, text: str, query: str) -> str:
            task = asyncio.ensure_future(asyncio.Event().wait())
            task.cancel()
            await task
            return text

        pipeline = ResultPipeline(extractor=summarize, extraction_threshold=0)
        ended = ran(by_arun, Function(name="f", call=lambda: "a secret"), results=pipeline)
        assert (ended.is_error, "secret" in ended.text) == (True, False)

    @kinds
    @pytest.mark.parametrize("on_error", ["tell", "fail"])
    def test_an_exception_that_cannot_be_shown_is_a_failure_all_the_same(self, kind: str, on_error: Any):
        class Broken(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        ended = ran(by_arun, Fails(Broken()).function(kind, on_error=on_error))
        assert (ended.call.record.ending.reason is Reason.FUNCTION_FAILED) is (on_error == "fail")
        assert "Broken" in ended.text

    @pytest.mark.parametrize(
        ("value", "named"),
        [(object(), "object"), ({"rows": [object()]}, "object"), (b"\xff", "bytes"), (iter([object()]), "object")]
        + [(value, "") for value in ("text", 3, None, {"a": [1.5, {2}]}, b"text", Random(1).random(), (1, "x"))],
        ids=lambda value: type(value).__name__,
    )
    def test_what_json_cannot_express_is_warned_of(self, value: Any, named: str, caplog: pytest.LogCaptureFixture):
        """The model gets text such as ``<object object at 0x…>``, which says nothing, and nothing else would say so."""
        assert not ran(by_arun, Function(name="look", call=lambda: value)).is_error
        said = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
        assert [("'look'" in line, f"returned {named}," in line) for line in said] == [(True, True)] * bool(named)

    def test_what_no_text_can_be_made_of_is_an_error(self):
        class Shy(pydantic.BaseModel):
            @pydantic.model_serializer
            def fail(self) -> str:
                raise RuntimeError("no JSON")

            def __repr__(self) -> str:
                raise RuntimeError("no text")

        ended = ran(by_arun, Function(name="f", call=Shy))
        assert ended.is_error
        assert "RuntimeError" in ended.text

    @anyhow
    @kinds
    def test_what_is_done_to_results_is_done_to_this_one(self, driven: Driver, kind: str):
        pipeline = ResultPipeline(processor=lambda name, text: text.upper())
        said = ran(driven, Fails().function(kind), results=pipeline)
        assert said.text == "DONE"
        assert "ResultProcessed" in [type(event).__name__ for event in said.events]

    @kinds
    @pytest.mark.parametrize("on_error", ["tell", "fail"])
    def test_errors_and_failures_take_no_pipeline(self, kind: str, on_error: Any):
        pipeline = ResultPipeline(processor=lambda name, text: "changed")
        said = ran(by_arun, Fails(OSError("no")).function(kind, on_error=on_error), results=pipeline)
        assert "OSError: no" in said.text if on_error == "tell" else said.call.record.ending.detail


@anyhow
@pytest.mark.parametrize("policy", ["none", "retries", "middleware"])
@pytest.mark.parametrize("blocking", [True, False])
def test_a_plain_function_may_give_what_has_to_be_awaited(driven: Driver, policy: str, blocking: bool):
    async def lookup() -> str:
        return "found"

    @functools.wraps(lookup)
    def wrapped() -> Any:
        return lookup()

    async def around(call: FunctionCall, following: Any) -> Any:
        return await following(call)

    options: dict[str, Any] = {"none": {}, "retries": {"retries": Retries()}, "middleware": {"middleware": [around]}}
    assert ran(driven, Function.of(wrapped, blocking=blocking, **options[policy])).text == "found"


class TestWhatIsRecorded:
    """How long each call took, in which round, and whether it was denied."""

    @kinds
    def test_the_time_that_it_was_run_with_all_retries(self, kind: str):
        clock, fails = FakeClock(), Fails(OSError("busy"), OSError("busy"))
        given = fails.function(kind, retries=Retries(attempts=3, delay_s=2.0, jitter=0.0))
        found = ran(by_arun, given, clock=clock)
        assert found.asked.duration_s == sum(clock.sleeps) == 6
        assert [event.duration_s for event in found.events if isinstance(event, FunctionEnded)] == [6]

    @pytest.mark.parametrize("policy", [{}, {"on_error": "fail"}])
    def test_one_that_raised_took_time_too(self, policy: dict[str, Any]):
        clock = FakeClock()

        def wait() -> str:
            """Wait."""
            clock.sleep(3)
            raise OSError("no line")

        assert ran(by_arun, Function.of(wait, **policy), clock=clock).asked.duration_s == 3

    def test_the_round_and_the_denial_and_they_come_back_from_a_snapshot(self):
        def look() -> str:
            """Look."""
            return "seen"

        def erase() -> str:
            """Erase."""
            return "gone"

        functions = (Function.of(look), Function.of(erase, needs_approval=True))
        one = seed(Prompt("x", functions=functions))
        script = Script(
            [function_call("look"), function_call("look")], [function_call("erase"), function_call("nothing")], "done"
        )
        by_arun(one, script, approve=lambda asked: Denied("no"), clock=FakeClock())
        found = [(f.name, f.round, f.is_denied, f.duration_s) for f in one.record.function_calls]
        assert found == [
            ("look", 1, False, 0),
            ("look", 1, False, 0),
            ("erase", 2, True, 0),
            ("nothing", 2, False, 0),
        ]
        again = restore(snapshot(one), one.prompt)
        assert again.record.function_calls == one.record.function_calls

    def test_the_duration_survives_a_snapshot_and_is_not_compared(self):
        clock = FakeClock()
        found = ran(by_arun, Function.of(lambda: clock.sleep(2), name="wait", description="Wait."), clock=clock)
        (again,) = restore(snapshot(found.call), found.call.prompt).record.function_calls
        assert again.duration_s == 2
        assert again == again.changed(duration_s=5.0)
        assert again != again.changed(round=5)


class Crash(BaseException):
    """Ends a function without an outcome."""


@pytest.mark.parametrize("is_async", [False, True])
class TestCallsInside:
    """A call that a function makes is a part of the call around it."""

    def calling(self, is_async: bool, agents: Callable[[], list[Agent]], *replies: Any, **options: Any) -> Agent:
        """An agent whose function calls others, one after another."""
        self.results: list[Any] = []

        def ask(context: Context[Any]) -> str:
            """Ask."""
            self.results = [context.call(agent, "?") for agent in agents()]
            return str([result.output for result in self.results])

        async def aask(context: Context[Any]) -> str:
            """Ask."""
            self.results = [await context.acall(agent, "?") for agent in agents()]
            return str([result.output for result in self.results])

        function = Function.of(aask if is_async else ask, name="ask")
        return Agent(Script(*replies), name="outer", functions=[function], **options)

    def test_it_has_what_is_left_of_the_time_and_the_budget(self, is_async: bool):
        clock = FakeClock()

        def agents() -> list[Agent]:
            clock.advance(2.0)
            replies = [Reply.of("x").changed(usage=Usage(input_tokens=5)) for _ in range(3)]
            own = [Limits(), Limits(deadline_s=9.0, tokens=90), Limits(deadline_s=1.0, tokens=20)]
            return [Agent(Script(reply), limits=limits) for reply, limits in zip(replies, own, strict=True)]

        asks = Reply.of(function_call("ask")).changed(usage=Usage(input_tokens=30))
        limits = Limits(deadline_s=10.0, tokens=100)
        agent = self.calling(is_async, agents, asks, "Done.", limits=limits, environment={"clock": clock})
        result = asyncio.run(agent.acall("Go.")) if is_async else agent.call("Go.")
        inside = [one.record for one in self.results]
        left = [(r.depth, r.limits.deadline_s, r.limits.tokens) for r in inside]
        assert left == [(1, 8.0, 70), (1, 8.0, 65), (1, 1.0, 20)]
        assert result.usage_by_agent == {"": Usage(input_tokens=30), "run:1.0": Usage(input_tokens=15)}

    def test_what_it_is_in_doubt_about_is_asked_and_answered_outside(self, is_async: bool):
        store, paid = MemoryStore(), list[str]()

        def pay() -> str:
            """Pay."""
            paid.append("20 euros")
            raise Crash

        once = Function.of(pay, once=True)

        def made(*replies: Any, model: Any) -> Agent:
            payer = Agent(Script(*replies), name="payer", functions=[once])
            return self.calling(is_async, lambda: [Agent(Script("x"), name="first"), payer], *model, store=store)

        with suppress(Crash):
            made(function_call("pay"), model=[function_call("ask")]).call("Go.", run_id="r")
        later = made("Paid.", model=["Done."])
        for _ in range(2):  # to be driven once more changes nothing
            with pytest.raises(CallSuspended) as suspended:
                later.runs.resume("r")
            assert [effect.key for effect in suspended.value.call.effects] == ["run:1.0"]
            assert [question.key for question in store.get("r").waits] == ["run:1.0/2/reconcile:1.0"]
        answers = {"run:1.0/2/reconcile:1.0": Returned(text="it was paid")}
        result = asyncio.run(later.runs.aresume("r", answers)) if is_async else later.runs.resume("r", answers)
        assert (result.output, result.function_calls[0].result) == ("Done.", "['x', 'Paid.']")
        assert paid == ["20 euros"]
        assert {run.id: run.is_ended for run in store.list()} == {"r": True, "r/1.0/1": True, "r/1.0/2": True}

    def test_a_flow_lends_it_no_approver(self, is_async: bool):
        look = Function.of(lambda: "seen", name="look")
        asks = [function_call("look"), "Found."]

        @execute
        def work(data: str, context: Context[Any]) -> str:
            return str(context.call(Agent(Script(*asks), functions=[look]), data).output)

        @execute
        async def awork(data: str, context: Context[Any]) -> str:
            return str((await context.acall(Agent(Script(*asks), functions=[look]), data)).output)

        state = awork if is_async else work
        flow = Flow("f", str, start=state, rows=[state.done(end("over"), do=lambda data, text: text)])
        assert (asyncio.run(flow.acall("?")) if is_async else flow.call("?")).output == "Found."
