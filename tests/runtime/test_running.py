"""Is one function run as its policy says, in both worlds?"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from random import Random
from typing import Any

import pydantic
import pytest
from support.agent_calls import begun, function_call, say

from fsm_agent.errors import Retry
from fsm_agent.functions import Context, Default, Function, Retries
from fsm_agent.lifecycle import FunctionFailed, Returned, RunFunction
from fsm_agent.messages import Document, FunctionCall, FunctionProgress, Image
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import ResultPipeline, World
from fsm_agent.runtime.abort import Aborted
from fsm_agent.runtime.run_function import FunctionExecution, arun_function, current_depth, current_run, run_function
from fsm_agent.runtime.thread_task import ThreadTask
from fsm_agent.testing import FakeClock, Script

Way = Callable[[FunctionExecution], Any]


def sync(run: FunctionExecution) -> Any:
    return run_function(run)


def asynchronous(run: FunctionExecution) -> Any:
    return asyncio.run(arun_function(run))  # type: ignore[arg-type]


both = pytest.mark.parametrize("way", [sync, asynchronous])


def run_of(
    given: Any, arguments: dict[str, Any] | None = None, *, deps: Any = None, tell: Any = None, **world
) -> FunctionExecution:
    """A run of this function, asked for by a model in a call of its own."""
    prompt = Prompt("x", functions=(given if isinstance(given, Function) else Function.of(given),))
    call = begun(prompt=prompt, deps=deps)
    say(call, function_call(prompt.offers[0].name, **(arguments or {})))
    (effect,) = call.effects
    assert isinstance(effect, RunFunction)
    return FunctionExecution(effect, call, World.of(Script(), **world), tell)


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


class TestContext:
    @pytest.mark.spec("1.31: functions share what the caller gives", "1.31: a function knows how deep it is")
    @both
    def test_what_a_function_knows_of_its_call(self, way: Way):
        seen: list[Context[Any]] = []

        def look(context: Context[str], n: int) -> str:
            """Look."""
            seen.append(context)
            return context.deps * n

        run = run_of(look, {"n": 2}, deps="ab")
        assert way(run).text == "abab"
        (context,) = seen
        assert (context.deps, context.agent_call_id, context.depth, context.attempt) == ("ab", "c1", 0, 1)
        f = context.function_call
        assert (f.id, f.name, f.arguments) == ("2.0", "look", {"n": 2})
        assert context.idempotency_key == "c1/2.0"
        assert "context" not in run.function.parameters["properties"]

    @both
    @kinds
    def test_each_attempt_has_its_own(self, way: Way, kind: str):
        attempts = []

        def look(context: Context) -> None:
            """Look."""
            attempts.append((context.attempt, context.idempotency_key))
            if context.attempt < 3:
                raise OSError

        async def alook(context: Context) -> None:
            """Look."""
            look(context)

        chosen = look if kind == "plain" else alook
        assert not way(run_of(Function.of(chosen, name="look", retries=Retries(attempts=3)))).is_error
        assert attempts == [(1, "c1/2.0"), (2, "c1/2.0"), (3, "c1/2.0")]

    @both
    def test_what_it_emits_is_an_event(self, way: Way):
        def work(context: Context) -> None:
            """Work."""
            context.emit(1)
            context.emit({"of": 2})

        told: list[Any] = []
        way(run_of(work, tell=told.append))
        assert told == [FunctionProgress("2.0", "work", 1), FunctionProgress("2.0", "work", {"of": 2})]
        way(run_of(work))

    @pytest.mark.spec("1.20: a round that is not there is refused")
    @both
    @pytest.mark.parametrize("number", [0, 2])
    def test_a_round_that_is_not_there_cannot_be_released(self, way: Way, number: int):
        def work(context: Context) -> None:
            """Work."""
            context.release([number])

        ended = way(run_of(work))
        assert (ended.is_error, ended.releases) == (True, ())
        assert f"there is no round {number} to release: this is round 1" in ended.text

    @pytest.mark.spec("1.20: a function releases rounds")
    @both
    @pytest.mark.parametrize("error", [None, ValueError("no")])
    def test_what_it_releases_is_told_whatever_its_end(self, way: Way, error: Exception | None):
        def work(context: Context) -> None:
            """Work."""
            context.release([1])
            context.release({1})
            if error:
                raise error

        assert way(run_of(work)).releases == (1, 1)

    @pytest.mark.spec("1.31: a function knows that it is cancelled")
    @both
    def test_it_hears_that_nobody_waits_any_more(self, way: Way):
        def work(context: Context) -> str:
            """Work."""
            before = context.is_cancelled()
            run.cancel()
            return f"{before} {context.is_cancelled()}"

        run = run_of(work)
        assert way(run).text == "False True"


class TestWhereItRuns:
    @both
    def test_the_run_and_its_depth_are_known_to_all_that_it_calls(self, way: Way):
        seen = []

        def look() -> None:
            """Look."""
            seen.append((current_run(), current_depth()))

        run = run_of(look)
        way(run)
        assert seen == [(run, 1)]
        assert (current_run(), current_depth()) == (None, 0)

    @pytest.mark.parametrize("blocking", [True, False])
    def test_under_asyncio_a_plain_function_holds_up_nobody(self, blocking: bool):
        names = []

        def work() -> None:
            """Work."""
            names.append(threading.current_thread() is threading.main_thread())

        asynchronous(run_of(Function.of(work, blocking=blocking)))
        assert names == [not blocking]

    def test_under_asyncio_a_plain_function_behind_coroutine_middleware_holds_up_nobody(self):
        names = []

        def work() -> None:
            """Work."""
            names.append(threading.current_thread() is threading.main_thread())

        async def around(call: FunctionCall, following: Any) -> Any:
            names.append(threading.current_thread() is threading.main_thread())
            return await following(call)

        asynchronous(run_of(Function.of(work, middleware=[around])))
        assert names == [True, False]

    @pytest.mark.spec("4.30: context variables reach functions")
    @both
    @pytest.mark.parametrize("policy", [{}, {"retries": Retries()}], ids=["plain", "governed"])
    def test_context_variables_reach_every_function(self, way: Way, policy: dict[str, Any]):
        user: ContextVar[str] = ContextVar("user")
        user.set("ada")

        def who() -> str:
            """Who is it?"""
            return user.get()

        async def awho() -> str:
            """Who is it?"""
            return user.get()

        for given in (who, awho):
            assert way(run_of(Function.of(given, **policy))).text == "ada"

    def test_the_twin_is_for_asyncio(self):
        def plain() -> str:
            """Plain."""
            return "plain"

        async def twin() -> str:
            return "twin"

        both_ways = Function.of(plain, acall=twin)
        assert sync(run_of(both_ways)).text == "plain"
        assert asynchronous(run_of(both_ways)).text == "twin"
        assert asynchronous(run_of(Function.of(plain, acall=lambda: "plain twin"))).text == "plain twin"

    def test_what_needs_a_thread(self):
        async def waiting() -> None:
            """Wait."""

        async def around(call: FunctionCall, following: Any) -> Any:
            return await following(call)

        def takes(given: Any, **policy: Any) -> tuple[bool, bool]:
            made = Function.of(given, name="f", **policy)
            return made.is_awaited, made.takes_thread

        assert takes(lambda: 1) == (False, True)
        assert takes(waiting) == (True, False)
        assert takes(lambda: 1, blocking=False) == (False, False)
        assert takes(lambda: 1, acall=waiting) == (False, False)
        assert takes(lambda: 1, middleware=[around]) == (True, False)


class TestRetries:
    @pytest.mark.spec("1.29: waits double, are bounded and jittered")
    @both
    @kinds
    def test_the_waits_double_and_jitter_by_chance_that_can_be_seeded(self, way: Way, kind: str):
        fails, clock = Fails(*[OSError("busy")] * 5), FakeClock()
        retries = Retries(attempts=6, delay_s=0.1, max_delay_s=1.0, jitter=0.5)
        run = run_of(fails.function(kind, retries=retries), clock=clock, random=Random(7).random)
        assert way(run).text == "done"
        chance = Random(7)
        assert clock.sleeps == [min(0.1 * 2**n, 1.0) * (1 - 0.5 * chance.random()) for n in range(5)]
        assert (fails.runs, run.attempt) == (6, 6)
        assert all(low <= s <= high for s, low, high in zip(clock.sleeps, (0.05, 0.1), (0.1, 0.2), strict=False))

    @pytest.mark.spec("1.29: a failed run is tried again, so many times", "1.33: retry and timeout around a function")
    @both
    def test_the_defaults(self, way: Way):
        fails, clock = Fails(*[OSError("busy")] * 9), FakeClock()
        said = way(run_of(fails.function("plain", retries=Retries()), clock=clock, random=lambda: 0.0))
        assert (said.text, said.is_error) == ("OSError: busy", True)
        assert (fails.runs, clock.sleeps) == (4, [0.1, 0.2, 0.4])

    @pytest.mark.spec("1.29: three retries from 0.1 to 5 s by default")
    def test_the_defaults_are_three_retries_of_at_most_five_seconds(self):
        for attempts, waits in ((Retries().attempts, [0.1, 0.2, 0.4]), (9, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])):
            fails, clock = Fails(*[OSError("busy")] * 9), FakeClock()
            sync(run_of(fails.function("plain", retries=Retries(attempts=attempts)), clock=clock, random=lambda: 0.0))
            assert clock.sleeps == pytest.approx(waits)

    @pytest.mark.spec("1.29: a predicate says what is tried again")
    @both
    @kinds
    def test_a_predicate_says_what_is_worth_it(self, way: Way, kind: str):
        fails, clock = Fails(OSError("busy"), KeyError("no")), FakeClock()
        retries = Retries(attempts=9, retry_if=lambda error: isinstance(error, OSError))
        assert way(run_of(fails.function(kind, retries=retries), clock=clock)).text == "KeyError: 'no'"
        assert fails.runs == 2

    def test_very_many_attempts_are_no_error_of_their_own(self):
        fails = Fails(*[OSError("busy")] * 1100)
        retries = Retries(attempts=2000, delay_s=0.01, max_delay_s=1.0)
        assert sync(run_of(fails.function("plain", retries=retries))).text == "done"

    @both
    @kinds
    def test_nobody_retries_for_somebody_who_has_gone(self, way: Way, kind: str):
        fails = Fails(OSError("busy"), OSError("busy"))

        def gone(error: Exception) -> bool:
            run.cancel()
            return True

        run = run_of(fails.function(kind, retries=Retries(attempts=9, retry_if=gone)))
        with pytest.raises(Aborted):
            way(run)
        assert (fails.runs, run.ended) == (1, None)

    @both
    @kinds
    def test_nor_behind_a_wait(self, way: Way, kind: str):
        class Clock(FakeClock):
            def sleep(self, delay_s: float) -> None:
                super().sleep(delay_s)
                run.cancel()

        fails = Fails(OSError("busy"))
        run = run_of(fails.function(kind, retries=Retries()), clock=Clock())
        with pytest.raises(Aborted):
            way(run)
        assert (fails.runs, run.attempt, run.ended) == (1, 1, None)

    def test_a_coroutine_that_is_left_behind_before_it_begins_is_closed(self, recwarn: pytest.WarningsRecorder):
        made = list[Any]()

        async def work() -> str:
            return "never"

        def make() -> Any:
            made.append(work())
            child.cancel()
            return made[0]

        child = ThreadTask[Any](lambda child: run_function(run_of(Function(name="make", call=make)), child))
        child.start().join(10)
        assert inspect.getcoroutinestate(made.pop()) == inspect.CORO_CLOSED
        gc.collect()
        assert [str(warning.message) for warning in recwarn] == []

    @both
    @kinds
    def test_a_function_that_asks_the_model_to_retry_is_not_run_again(self, way: Way, kind: str):
        fails = Fails(Retry("Give the city with its country."))
        said = way(run_of(fails.function(kind, retries=Retries(), on_error="fail")))
        assert said == Returned(text="Give the city with its country.", is_error=True, at_s=said.at_s)
        assert fails.runs == 1


class TestOnError:
    @pytest.mark.spec(
        "3.17: an exception is told to the model and the loop goes on",
        "4.19: failures of a function: tell, retry or a default",
    )
    @both
    @kinds
    @pytest.mark.parametrize(
        ("policy", "text", "is_error", "runs"),
        [
            ({}, "OSError: busy", True, 1),
            ({"on_error": "tell"}, "OSError: busy", True, 1),
            ({"on_error": Default("empty")}, "empty", False, 1),
            ({"on_error": Default(None)}, "null", False, 1),
            ({"on_error": "retry"}, "OSError: busy", True, 4),
            ({"on_error": Default(7), "retries": Retries(attempts=2)}, "7", False, 2),
        ],
    )
    def test_what_a_failure_means(
        self, way: Way, kind: str, policy: dict[str, Any], text: str, is_error: bool, runs: int
    ):
        fails = Fails(*[OSError("busy")] * 9)
        said = way(run_of(fails.function(kind, **policy)))
        assert (said.text, said.is_error, fails.runs) == (text, is_error, runs)

    @pytest.mark.spec("4.19: failures of a function that end the call")
    @both
    @kinds
    def test_a_failure_that_is_the_calls(self, way: Way, kind: str):
        fails = Fails(OSError("busy"), ValueError())
        said = way(run_of(fails.function(kind, on_error="fail", retries=Retries(attempts=2))))
        assert said == FunctionFailed(text="ValueError", at_s=said.at_s)

    @pytest.mark.parametrize("policy", [{}, {"on_error": Default(1), "retries": Retries()}], ids=["plain", "governed"])
    def test_an_interrupt_goes_to_the_driver(self, policy: dict[str, Any]):
        def interrupt() -> None:
            """Interrupt."""
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sync(run_of(Function.of(interrupt, **policy)))

    @both
    @kinds
    @pytest.mark.parametrize("policy", [{}, {"retries": Retries(attempts=1)}], ids=["plain", "governed"])
    def test_a_function_that_would_exit_has_failed(self, way: Way, kind: str, policy: dict[str, Any]):
        """Such as one that calls the `main` of a command; no driver ends, and no worker."""
        run = run_of(Fails(SystemExit(3)).function(kind, **policy))
        with ThreadPoolExecutor(1) as pool:  # not the main thread
            ended = pool.submit(way, run).result(20)
        assert (ended.is_error, ended.text) == (True, "RuntimeError: the function called sys.exit(3)")

    @both
    @kinds
    def test_an_exit_in_the_main_thread_may_be_that_of_a_signal(self, way: Way, kind: str):
        """Its handler runs there, wherever the thread is."""

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
                way(run_of(Function.of(killed if kind == "plain" else akilled, blocking=False)))
        finally:
            signal.signal(signal.SIGTERM, before)

    @both
    @pytest.mark.parametrize("policy", [{}, {"retries": Retries(attempts=1)}], ids=["plain", "governed"])
    @pytest.mark.parametrize("blocking", [True, False])
    def test_a_plain_function_whose_own_loop_was_cancelled_has_failed(
        self, way: Way, policy: dict[str, Any], blocking: bool
    ):
        def gone() -> None:
            """Wait for what was cancelled."""
            raise asyncio.CancelledError

        ended = way(run_of(Function.of(gone, blocking=blocking, **policy)))
        assert ended.text == "RuntimeError: what the function waited for was cancelled"

    @pytest.mark.system
    @both
    @pytest.mark.parametrize("policy", [{}, {"retries": Retries(attempts=1)}], ids=["plain", "governed"])
    def test_a_cancellation_that_nobody_asked_for_is_an_error_of_the_function(self, way: Way, policy: dict[str, Any]):
        async def gone() -> None:
            """Wait for what was cancelled."""
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

        assert (
            way(run_of(Function.of(gone, **policy))).text == "RuntimeError: what the function waited for was cancelled"
        )


class TestMiddleware:
    @staticmethod
    def noted(log: list[str], name: str) -> Any:
        def around(call: FunctionCall, following: Any) -> Any:
            log.append(f"{name}(")
            value = following(call)
            log.append(f"){name}")
            return value

        return around

    @staticmethod
    def anoted(log: list[str], name: str) -> Any:
        async def around(call: FunctionCall, following: Any) -> Any:
            log.append(f"{name}(")
            value = await following(call)
            log.append(f"){name}")
            return value

        return around

    @pytest.mark.spec("1.33: the first is the outermost", "4.32: code before and behind a run")
    @both
    def test_the_first_is_the_outermost(self, way: Way):
        log: list[str] = []

        def work() -> str:
            """Work."""
            log.append("work")
            return "done"

        layers = [self.noted(log, name) for name in "abc"]
        assert way(run_of(Function.of(work, middleware=layers))).text == "done"
        assert log == ["a(", "b(", "c(", "work", ")c", ")b", ")a"]

    @pytest.mark.spec("1.33: the first is the outermost")
    @both
    @kinds
    def test_coroutine_middleware_waits_for_what_it_surrounds(self, way: Way, kind: str):
        log: list[str] = []

        def work() -> str:
            """Work."""
            log.append("work")
            return "done"

        async def awork() -> str:
            """Work."""
            await asyncio.sleep(0)
            return work()

        chosen = work if kind == "plain" else awork
        layers = [self.anoted(log, name) for name in "ab"]
        assert way(run_of(Function.of(chosen, name="work", middleware=layers))).text == "done"
        assert log == ["a(", "b(", "work", ")b", ")a"]

    @pytest.mark.spec("1.33: approval around a function")
    @both
    @kinds
    def test_it_may_answer_itself_change_the_call_or_the_result(self, way: Way, kind: str):
        def double(n: int) -> int:
            """Double it."""
            ran.append(n)
            return 2 * n

        async def adouble(n: int) -> int:
            """Double it."""
            return double(n)

        def refuses(call: FunctionCall, following: Any) -> Any:
            return "no" if call.arguments["n"] > 9 else following(call)

        def one_more(call: FunctionCall, following: Any) -> Any:
            return following(call.changed(arguments_json=json.dumps({"n": call.arguments["n"] + 1})))

        ran: list[int] = []
        chosen = Function.of(double if kind == "plain" else adouble, name="double", middleware=[refuses, one_more])
        assert way(run_of(chosen, {"n": 3})).text == "8"
        assert way(run_of(chosen, {"n": 10})).text == "no"
        assert ran == [4]

    @both
    def test_what_it_raises_is_a_failure_like_the_functions_own(self, way: Way):
        def stumbles(call: FunctionCall, following: Any) -> Any:
            tries.append(1)
            if len(tries) < 3:
                raise OSError("busy")
            return following(call)

        tries: list[int] = []
        fails = Fails()
        run = run_of(fails.function("plain", middleware=[stumbles], retries=Retries(attempts=3)))
        assert way(run).text == "done"
        assert (len(tries), fails.runs) == (3, 1), "each attempt goes through all of it"

    @both
    def test_arguments_that_it_changed_to_wrong_ones_are_told(self, way: Way):
        def wrong(call: FunctionCall, following: Any) -> Any:
            return following(call.changed(arguments_json='{"n": "x"}'))

        def double(n: int) -> int:
            """Double it."""
            return 2 * n

        said = way(run_of(Function.of(double, middleware=[wrong]), {"n": 3}))
        assert said.is_error
        assert "n: Input should be a valid integer" in said.text

    @both
    def test_a_plain_function_behind_coroutine_middleware_may_raise_what_no_future_can_hold(self, way: Way):
        async def around(call: FunctionCall, following: Any) -> Any:
            return await following(call)

        ended = way(run_of(Function(name="f", call=lambda: next(iter(())), middleware=[around])))
        assert (ended.text, ended.is_error) == ("RuntimeError: coroutine raised StopIteration", True)

    @both
    def test_a_layer_with_a_twin_is_used_as_it_fits(self, way: Way):
        class Layer:
            def __call__(self, call: FunctionCall, following: Any) -> Any:
                return f"plain {following(call)}"

            async def acall(self, call: FunctionCall, following: Any) -> Any:
                return f"waiting {await following(call)}"

        fails = Fails()
        assert way(run_of(fails.function("plain", middleware=[Layer()]))).text == "plain done"
        assert way(run_of(fails.function("waiting", middleware=[Layer()]))).text == "waiting done"


class TestWhatItReturned:
    IMAGE = Image(data=b"png", media_type="image/png")
    DOCUMENT = Document(data=b"pdf", media_type="application/pdf")

    @both
    @pytest.mark.parametrize("policy", [{}, {"retries": Retries()}], ids=["plain", "governed"])
    @pytest.mark.parametrize(
        ("value", "text", "attachments"),
        [
            ("as it is", "as it is", ()),
            (7, "7", ()),
            (True, "true", ()),
            (None, "null", ()),
            ([1, "two"], '[1,"two"]', ()),
            (IMAGE, "", (IMAGE,)),
            ([IMAGE], "", (IMAGE,)),
            (["a cat", IMAGE], "a cat", (IMAGE,)),
            (("first", IMAGE, {"page": 2}, DOCUMENT), 'first\n{"page":2}', (IMAGE, DOCUMENT)),
        ],
    )
    def test_words_and_what_is_beside_them(self, way: Way, policy: Any, value: Any, text: str, attachments: Any):
        said = way(run_of(Function(name="f", call=lambda: value, **policy)))
        assert (said.text, said.attachments, said.is_error) == (text, attachments, False)

    @pytest.mark.spec("3.17: a function has its own format")
    @both
    def test_a_format_says_it_all(self, way: Way):
        def show(value: Any, call: FunctionCall) -> str:
            return f"{call.name}({call.arguments['n']}) gave {len(value)}"

        made = Function.of(lambda n: [self.IMAGE] * n, name="draw", format=show)
        said = way(run_of(made, {"n": 2}))
        assert (said.text, len(said.attachments)) == ("draw(2) gave 2", 2)

    @both
    @pytest.mark.parametrize("kind", ["plain", "governed"])
    def test_a_result_whose_format_fails_is_not_shown(self, way: Way, kind: str, caplog: pytest.LogCaptureFixture):
        def show(value: Any, call: FunctionCall) -> Any:
            return value if value == 1 else value.missing

        policy = {} if kind == "plain" else {"retries": Retries(attempts=3, delay_s=0)}
        for value, error in ((1, "UsageError"), ("secret", "AttributeError")):
            ran: list[int] = []
            made = Function(name="f", call=lambda value=value, ran=ran: ran.append(1) or value, format=show, **policy)
            ended = way(run_of(made))
            told = f"The function f was run, but its result could not be prepared ({error}). Go on without it."
            assert (ended.text, ended.is_error, ran) == (told, True, [1])
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
        assert "format of function 'f' returned 1: a text would be right" in caplog.text
        assert "has no attribute 'missing'" in caplog.text

    @both
    @pytest.mark.parametrize("on_error", ["tell", "retry", "fail", Default("all is well")])
    def test_a_result_that_the_pipeline_fails_on_is_not_shown(
        self, way: Way, on_error: Any, caplog: pytest.LogCaptureFixture
    ):
        ran: list[int] = []
        made = Function(name="f", call=lambda: ran.append(1) or "a secret", on_error=on_error)
        run = run_of(made, results=ResultPipeline(processor=lambda name, text: text.index("missing")))
        ended = way(run)
        assert "(ValueError)" in ended.text
        assert "secret" not in ended.text
        assert ran == [1]
        assert isinstance(ended, FunctionFailed) is isinstance(run.raised, ValueError) is (on_error == "fail")
        assert "substring not found" in caplog.text

    @pytest.mark.system
    @both
    def test_a_pipeline_that_waits_for_what_is_cancelled_has_failed(self, way: Way):
        async def summarize(name: str, text: str, query: str) -> str:
            task = asyncio.ensure_future(asyncio.sleep(30))
            task.cancel()
            await task
            return text

        pipeline = ResultPipeline(extractor=summarize, extraction_threshold=0)
        ended = way(run_of(Function(name="f", call=lambda: "a secret"), results=pipeline))
        assert (ended.is_error, "secret" in ended.text) == (True, False)

    @both
    @kinds
    @pytest.mark.parametrize("on_error", ["tell", "fail", "retry"])
    def test_an_exception_that_cannot_be_shown_is_a_failure_all_the_same(self, way: Way, kind: str, on_error: Any):
        class Broken(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        ended = way(run_of(Fails(*[Broken()] * 5).function(kind, on_error=on_error)))
        assert isinstance(ended, FunctionFailed) is (on_error == "fail")
        assert ended.text == "Broken"

    @both
    def test_what_no_text_can_be_made_of_is_an_error(self, way: Way):
        class Shy(pydantic.BaseModel):
            @pydantic.model_serializer
            def fail(self) -> str:
                raise RuntimeError("no JSON")

            def __repr__(self) -> str:
                raise RuntimeError("no text")

        ended = way(run_of(Function(name="f", call=Shy)))
        assert ended.is_error
        assert "its result could not be prepared (RuntimeError)" in ended.text

    @both
    def test_the_time_is_the_worlds(self, way: Way):
        clock = FakeClock(50.0)
        said = way(run_of(Function(name="f", call=lambda: clock.advance(2.0)), clock=clock))
        assert said.at_s == 52.0

    @pytest.mark.spec("1.13: it changes each result before the model sees it")
    @both
    @kinds
    def test_what_is_done_to_results_is_done_to_this_one(self, way: Way, kind: str):
        pipeline = ResultPipeline(processor=lambda name, text: text.upper())
        run = run_of(Fails().function(kind), results=pipeline)
        assert not run.is_plain
        assert way(run).text == "DONE"
        assert run.returned == "done"
        assert [type(event).__name__ for event in run.changes] == ["ResultProcessed"]

    @both
    def test_errors_and_failures_take_no_pipeline(self, way: Way):
        pipeline = ResultPipeline(processor=lambda name, text: "changed")
        assert way(run_of(Fails(OSError("no")).function("plain"), results=pipeline)).text == "OSError: no"
        for kind in ("plain", "waiting"):
            broken = Fails(OSError("no")).function(kind, on_error="fail")
            assert isinstance(way(run_of(broken, results=pipeline)), FunctionFailed)


@both
def test_a_plain_function_may_give_what_has_to_be_awaited(way: Way):
    async def lookup() -> str:
        return "found"

    @functools.wraps(lookup)
    def wrapped() -> Any:
        return lookup()

    async def around(call: FunctionCall, following: Any) -> Any:
        return await following(call)

    for policy in ({}, {"retries": Retries()}, {"middleware": [around]}):
        assert way(run_of(Function.of(wrapped, blocking=False, **policy))).text == "found"
        assert way(run_of(Function.of(wrapped, **policy))).text == "found"
