"""Random agents whose models, functions, approvers and checks are functions of their input and of a seed.

A call of these agents has the same result under every driver, however often it is stopped and resumed.  No id and no
time is shown to a model.  Functions that may fail the call run one at a time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import BaseModel

from fsm_agent import Agent, Approved, CallFailed, Context, Denied, Function, Limits, Prompt, Retries, Retry, handoff
from fsm_agent.call import Modified, Price, Request, Returned, RunAgain
from fsm_agent.context import Budget, compress, keep_last, shorten, summarize
from fsm_agent.errors import Overloaded
from fsm_agent.flows import Flow, end, execute, into, wait
from fsm_agent.flows import ask as asking
from fsm_agent.functions import Default
from fsm_agent.messages import Event, FunctionCall, Reply, ReplyCompleted, RequestStarted, Usage, Where
from fsm_agent.testing import FakeClock, Script, as_json, function_call

ID = "one"  # of each call and of each run
A_MOMENT_S = 0.002


class City(BaseModel):
    name: str
    people: int = 0


class Unknown(BaseModel):
    why: str


@dataclass(frozen=True)
class Trip:
    to: str
    text: str = ""


ANSWERS: dict[Any, list[str]] = {
    str: ["Fine.", "It is 42."],
    int: ["42", '{"value": 7}'],
    City: ['{"name": "Oslo", "people": 5}', 'Here: {"name": "Rome"}'],
    City | Unknown: ['{"name": "Oslo"}', '{"why": "nobody knows"}'],
    list[int]: ["[1, 2]", "[]"],
}
NO_ANSWERS = ["many", "{", '{"name": 3}', ""]
CONTEXTS: list[Any] = [
    [keep_last(1)],
    [shorten(50)],
    [compress(1)],
    [summarize(keep=1)],
    Budget(hard=4_000, soft=60),
]


class Lab:
    """The effects of one way of driving: the requests to models, the functions that ran, and the events."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.asked: Counter[str] = Counter()
        self.ran: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.counting = threading.Lock()

    def count(self, counted: Counter[str], *what: Any) -> None:
        with self.counting:
            counted[" ".join(map(str, what))] += 1

    def of_call(self, where: Where) -> Told:
        return Told(self, f"{where.agent} {where.path}")


class Told:
    """A hook of one call."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name

    def on_request_started(self, event: RequestStarted) -> None:
        self.lab.count(self.lab.told, self.name, event)

    def on_reply_completed(self, event: ReplyCompleted) -> None:
        self.lab.count(self.lab.told, self.name, event)

    def on_done(self, event: Event) -> None:
        if self.name == "top ":  # a flow inside may end by an answer given by hand, of which no hook is told
            self.lab.count(self.lab.told, "Done")


class Replying(Script):
    """A model whose reply depends on the request alone.

    Args:
        lab: Counts the requests.
        name: The name of the agent.
        seed: The seed.
        output: The output type of the requests.
    """

    def __init__(self, lab: Lab, name: str, seed: int, output: Any) -> None:
        super().__init__(name=name, clock=lab.clock)
        self.lab = lab
        self.seed = seed
        self.output = output

    @property
    def environment_defaults(self) -> dict[str, Any]:
        return {**super().environment_defaults, "new_id": lambda: ID}

    def _next(self, request: Request, timeout_s: float | None) -> tuple[Reply, None]:
        offered = [f.name for f in request.functions]
        shown = [*map(as_json, request.messages), repr((offered, request.mode, request.branch_length))]
        self.lab.count(self.lab.asked, self.name, *shown)
        chance = Random(" ".join([str(self.seed), self.name, *map(str, shown)]))
        if chance.random() < 0.03:
            raise Overloaded("busy", retry_after_s=7)
        usage = Usage(input_tokens=chance.randint(1, 30), output_tokens=chance.randint(1, 9))
        if request.functions and chance.random() < 0.75:
            calls = [self._call(chance, request) for _ in range(chance.choice([1, 1, 2, 3]))]
            return Reply.of(*calls).changed(usage=usage), None
        text = chance.choice(ANSWERS[self.output] if chance.random() < 0.75 else NO_ANSWERS)
        return Reply.of(text).changed(usage=usage), None

    def _call(self, chance: Random, request: Request) -> FunctionCall:
        if chance.random() < 0.05:
            return chance.choice([function_call("nowhere"), FunctionCall(name="add", arguments_json='{"a": ')])
        function = chance.choice(request.functions)
        if function.name == "give_final_answer":
            return FunctionCall(name=function.name, arguments_json=chance.choice(ANSWERS[self.output]))
        kinds = {"integer": [1, 2, "x"] if chance.random() < 0.1 else [1, 2], "string": ["a", "b"]}
        fields = function.parameters.get("properties", {})
        return function_call(
            function.name, **{name: chance.choice(kinds[field["type"]]) for name, field in fields.items()}
        )


class RandomAgents:
    """What draws the agent of a seed.

    Args:
        seed: The seed.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def agent(self, lab: Lab, **options: Any) -> Agent[Any, Any]:
        """Return a new agent with the name "top"."""
        self._chance = Random(self.seed)
        return self._agent(lab, "top", self._chance.choice([*ANSWERS]), depth=2, may_wait=True, **options)

    def answer(self, key: str, kind: str) -> Any:
        """Return what a person answers to a question of this key and kind."""
        chance = Random(f"{self.seed} {key}")
        if kind == "approval":
            return chance.choice([Approved(), Approved(), Denied(f"no {key}")])
        return RunAgain() if kind == "doubt" else Returned(text=chance.choice(["true", "false"]))

    def _is(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _agent(self, lab: Lab, name: str, output: Any, depth: int, may_wait: bool, **options: Any) -> Agent[Any, Any]:
        chance = self._chance
        functions = self._functions(lab, name, output, depth, may_wait)
        limits: dict[str, Any] = {"rounds": chance.randint(1, 4), "parse_retries": chance.randint(0, 3)}
        limits["on_limit"] = chance.choice(["final_prompt", "final_prompt", "stop", "fail"])
        limits["identical_rounds"], limits["on_loop"] = chance.choice([2, 3]), chance.choice(["tell", "warn", "stop"])
        limits["failures_per_function"] = chance.choice([None, 1])
        limits["deadline_s"] = chance.choice([None, 10_000])
        limits["tokens"] = None if any(f.delegate for f in functions) else chance.choice([None, None, 100])
        is_in_order = limits["tokens"] is not None or any(f.on_error == "fail" for f in functions)
        limits["parallel"] = 1 if is_in_order else chance.choice([None, None, 2])
        if self._is(0.5):
            options["system"] = f"You are {name}."
        if self._is(0.3):
            mode: Any = chance.choice(["native", "function", "prompted", "two_stage"])
            options["prompt"] = Prompt("Do this: {{ task }}", mode=mode)
        if self._is(0.3):
            options["check"] = self._check(lab, name)
        if not may_wait or self._is(0.3):
            options["approve"] = self._approver(may_wait)
        if self._is(0.4):
            options["context"] = chance.choice(CONTEXTS)
        if self._is(0.3):
            options["prices"] = Price(input_micro_usd=chance.randint(1, 99), output_micro_usd=500)
        model = Replying(lab, name, self.seed, output)
        made: dict[str, Any] = {"functions": functions, "output": output, "limits": Limits(**limits), "hooks": [lab]}
        return Agent(model, name=name, **made, **options)

    def _check(self, lab: Lab, name: str) -> Callable[..., Any]:
        salt = self._chance.random()

        def judged(output: Any, context: Context[Any]) -> Any:
            lab.count(lab.ran, "check of", name, repr(output), context.attempt)
            x = Random(f"{salt} {output!r} {context.attempt}").random()
            if x < 0.25:
                raise Retry(f"not {output!r}")
            return output + 1 if x < 0.5 and isinstance(output, int) else output

        async def judged_later(output: Any, context: Context[Any]) -> Any:
            await asyncio.sleep(0)
            return judged(output, context)

        return self._chance.choice([judged, judged_later])

    def _approver(self, may_wait: bool) -> Callable[..., Any]:
        salt = self._chance.random()

        def decided(f: FunctionCall) -> Any:
            x = Random(f"{salt} {f.name} {f.arguments_json}").random()
            if x < 0.1 and may_wait:
                return None
            if x < 0.2 and f.name == "add":
                return Modified('{"a": 1, "b": 1}')
            return True if x < 0.6 else Approved() if x < 0.8 else Denied("not today")

        async def decided_later(f: FunctionCall) -> Any:
            await asyncio.sleep(0)
            return decided(f)

        return self._chance.choice([decided, decided_later])

    def _functions(
        self, lab: Lab, owner: str, output: Any, depth: int, may_wait: bool
    ) -> list[Function[..., Any, Any]]:
        chance = self._chance
        made = []
        for function, policy in chance.sample(plain_functions(lab, owner), chance.randint(1, 4)):
            more = {"needs_approval": True} if self._is(0.15) else {}
            made.append(Function.of(function, **policy, **more))
        if may_wait and self._is(0.15):
            parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
            made.append(Function(name="elsewhere", description="Done elsewhere.", parameters=parameters))
        if not depth:
            return made
        if self._is(0.4):
            inner = self._agent(lab, f"{owner}-in", chance.choice([*ANSWERS]), depth - 1, may_wait)
            policies: list[dict[str, Any]] = [{}, {}, {"needs_approval": True}, {"on_error": "fail"}, {"max_calls": 1}]
            made.append(inner.as_function(description="It helps.", **chance.choice(policies)))
        if self._is(0.3):
            made.append(self._flow(lab, f"{owner}-flow", depth, may_wait).as_function())
        if self._is(0.3):
            other = self._agent(lab, f"{owner}-to", output, depth - 1, may_wait)
            made.append(handoff(other, description="It knows.", needs_approval=chance.choice([True, None])))
        if self._is(0.3):
            made.append(self._calling(lab, owner, self._agent(lab, f"{owner}-called", int, 0, may_wait=False)))
        return made

    def _flow(self, lab: Lab, name: str, depth: int, may_wait: bool) -> Flow[Trip]:
        @asking(self._agent(lab, f"{name}-first", str, depth - 1, may_wait))
        def first(trip: Trip) -> str:
            return f"Say where {trip.to} is."

        @execute
        def work(trip: Trip) -> str:
            lab.count(lab.ran, name, trip.text)
            return f"{trip.text}!"

        @wait(bool)
        def sure(trip: Trip) -> str:
            return "Sure?"

        over, lost = end("over"), end("lost", failed=True)
        asks = may_wait and self._is(0.4)
        rows = [first.done(work, do=into("text")), first.failed(lost)]
        rows += [work.done(sure, do=into("text")), sure.done(over)] if asks else [work.done(over, do=into("text"))]
        return Flow(name, Trip, start=first, rows=rows, hooks=[lab])

    def _calling(self, lab: Lab, owner: str, inner: Agent[Any, Any]) -> Function[..., Any, Any]:
        def ask(context: Context[Any], a: int) -> str:
            """Ask another."""
            lab.count(lab.ran, owner, "ask", a)
            try:
                return str(context.call(inner, f"How many are {a}?").output)
            except CallFailed as error:
                return str(error.reason)

        async def ask_later(context: Context[Any], a: int) -> str:
            """Ask another."""
            lab.count(lab.ran, owner, "ask", a)
            try:
                return str((await context.acall(inner, f"How many are {a}?")).output)
            except CallFailed as error:
                return str(error.reason)

        return Function.of(self._chance.choice([ask, ask_later]), name="ask")


def plain_functions(lab: Lab, owner: str) -> list[tuple[Callable[..., Any], dict[str, Any]]]:
    """Return functions of an agent, each with its policy."""

    def add(a: int, b: int) -> int:
        """Add."""
        lab.count(lab.ran, owner, "add", a, b)
        return a + b

    async def double(a: int) -> int:
        """Double."""
        lab.count(lab.ran, owner, "double", a)
        await asyncio.sleep(A_MOMENT_S * a)
        return 2 * a

    def look(where: str) -> str:
        """Look."""
        lab.count(lab.ran, owner, "look", where)
        time.sleep(A_MOMENT_S)
        return f"seen {where} " * 9

    def breaks(a: int) -> str:
        """Break."""
        lab.count(lab.ran, owner, "breaks", a)
        raise LookupError(f"no {a}")

    def fatal(a: int) -> str:
        """Break, perhaps."""
        lab.count(lab.ran, owner, "fatal", a)
        if a == 2:
            raise LookupError("all is lost")
        return "fine"

    def again(context: Context[Any], a: int) -> str:
        """Work at the second attempt."""
        lab.count(lab.ran, owner, "again", a, context.attempt)
        if context.attempt == 1:
            raise ConnectionError("not yet")
        return "at last"

    def picky(a: int) -> str:
        """Want two."""
        lab.count(lab.ran, owner, "picky", a)
        if a == 1:
            raise Retry("two, please")
        return "good"

    def pay(a: int) -> str:
        """Pay."""
        lab.count(lab.ran, owner, "pay", a)
        return f"paid {a}"

    def tell(context: Context[Any]) -> list[int]:
        """Tell."""
        lab.count(lab.ran, owner, "tell")
        context.emit("half")
        return [1]

    retries = Retries(attempts=2, delay_s=0, jitter=0)
    return [
        (add, {}),
        (double, {}),
        (look, {"repeatable": True}),
        (breaks, {"on_error": Default("nothing")}),
        (breaks, {"name": "breaks_once", "max_failures": 1}),
        (fatal, {"on_error": "fail"}),
        (again, {"retries": retries}),
        (picky, {"format": lambda value, call: f"<{value}>"}),
        (pay, {"once": True}),
        (tell, {"max_calls": 1, "blocking": False}),
    ]
