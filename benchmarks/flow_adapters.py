"""The machine of `flow_steps.py`, written for each library; each is a function that returns its works by name.

Imported in an environment that has that library and perhaps no other, so each import stands where it is needed.  A work
takes its size, does all of it, and checks what came of it.

    loop     five states in a loop that count up to n, with a guard, in a type of data that is checked or frozen where
             the library has such
    members  n members at once, each of which doubles its number, and the sum of what they give, in their order
    models   a state that asks a model and counts, n times; the model is a function that answers at once
"""

import asyncio
import atexit
import json
import operator
import platform
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple, TypedDict

NAMES = ("one", "two", "three", "four", "five")
FOLLOWING = dict(zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True))
Work = Callable[[int], None]


@dataclass(frozen=True)
class Count:
    limit: int
    n: int = 0


def ahead(d: Count) -> int:
    return d.n + 1


def is_over(d: Count, n: int) -> bool:
    return n >= d.limit


def keep(d: Count, n: int) -> Count:
    return replace(d, n=n)


def doubled(number: int) -> int:
    return 2 * number


def model(prompt: str) -> str:
    """Answer as a model would: with the number after the one it was asked about."""
    return str(int(prompt) + 1)


def check(found: Any, right: Any) -> None:
    if found != right:
        raise AssertionError(f"{found!r} came of it, and {right!r} would be right")


def doubled_sum(n: int) -> int:
    return n * (n - 1)


def runner(work: Callable[[int], Coroutine[Any, Any, Any]]) -> Work:
    """Return a work of a coroutine function."""
    return lambda n: shared_runner().run(work(n))


@cache
def shared_runner() -> asyncio.Runner:
    """Return the event loop of all works: one of its own for each would cost more than they do."""
    made = asyncio.Runner()
    atexit.register(made.close)
    return made


# By hand: a table, frozen data, and a trace


class Step(NamedTuple):
    source: str
    to: str
    answer: Any
    at_s: float


def by_hand() -> Mapping[str, Work]:
    def walked(function: Callable[[Count], int], n: int) -> None:
        table = {name: (function, ((is_over, keep, "over"), (None, keep, FOLLOWING[name]))) for name in NAMES}
        data, state, trace = Count(n), NAMES[0], list[Step]()
        while state != "over":
            work, rows = table[state]
            answer = work(data)
            for guard, action, to in rows:
                if guard is None or guard(data, answer):
                    data = action(data, answer)
                    trace.append(Step(state, to, answer, time.time()))
                    state = to
                    break
        check((data.n, len(trace)), (n, n))

    def members(n: int) -> None:
        given, trace = list[int](), list[Step]()
        for number in range(n):
            given.append(doubled(number))
            trace.append(Step("members", "members", given[-1], time.time()))
        check((sum(given), len(trace)), (doubled_sum(n), n))

    return {
        "loop": lambda n: walked(ahead, n),
        "members": members,
        "models": lambda n: walked(lambda d: int(model(str(d.n))), n),
    }


def transitions() -> Mapping[str, Work]:
    from transitions import Machine

    class Model:
        def __init__(self, limit: int) -> None:
            self.limit, self.n = limit, 0

        def count(self) -> None:
            self.n += 1

        def asking(self) -> None:
            self.n = int(model(str(self.n)))

        def is_over(self) -> bool:
            return self.n + 1 >= self.limit

    def machine(action: str) -> Any:
        rows = []
        for name, following in FOLLOWING.items():
            rows.append({"trigger": "go", "source": name, "dest": "over", "conditions": "is_over", "before": action})
            rows.append({"trigger": "go", "source": name, "dest": following, "before": action})
        return Machine(model=None, states=[*NAMES, "over"], transitions=rows, initial="one", auto_transitions=False)

    machines = {action: machine(action) for action in ("count", "asking")}

    def walked(action: str, n: int) -> None:
        one: Any = Model(n)
        machines[action].add_model(one)
        while one.state != "over":
            one.go()
        machines[action].remove_model(one)
        check(one.n, n)

    return {"loop": lambda n: walked("count", n), "models": lambda n: walked("asking", n)}


def burr() -> Mapping[str, Work]:
    from burr.core import ApplicationBuilder, GraphBuilder, State, action, default, expr
    from burr.core.parallelism import MapStates

    @action(reads=["n"], writes=["n"])
    def count(state: State) -> State:
        return state.update(n=state["n"] + 1)

    @action(reads=["n"], writes=["n"])
    def asking(state: State) -> State:
        return state.update(n=int(model(str(state["n"]))))

    @action(reads=["n"], writes=[])
    def over(state: State) -> State:
        return state

    def looping(work: Any) -> Any:
        ways = []
        for name, following in FOLLOWING.items():
            ways += [(name, "over", expr("n >= limit")), (name, following, default)]
        names = {name: work.with_name(name) if hasattr(work, "with_name") else work for name in NAMES}
        return GraphBuilder().with_actions(**names, over=over).with_transitions(*ways).build()

    graphs = {"loop": looping(count), "models": looping(asking)}

    def walked(name: str, n: int) -> None:
        app = ApplicationBuilder().with_graph(graphs[name]).with_entrypoint("one").with_state(n=0, limit=n).build()
        _, _, state = app.run(halt_after=["over"])
        check(state["n"], n)

    @action(reads=["number"], writes=["given"])
    def double(state: State) -> State:
        return state.update(given=doubled(state["number"]))

    class Doubles(MapStates):
        def states(self, state: State, context: Any, inputs: Any) -> Any:
            for number in range(state["limit"]):
                yield state.update(number=number)

        def action(self, state: State, inputs: Any) -> Any:
            return double

        def reduce(self, state: State, results: Any) -> State:
            return state.update(total=sum(one["given"] for one in results))

        @property
        def reads(self) -> list[str]:
            return ["limit"]

        @property
        def writes(self) -> list[str]:
            return ["total"]

    def members(n: int) -> None:
        builder = ApplicationBuilder().with_actions(doubles=Doubles(), over=over).with_transitions(("doubles", "over"))
        _, _, state = builder.with_entrypoint("doubles").with_state(n=0, limit=n).build().run(halt_after=["doubles"])
        check(state["total"], doubled_sum(n))

    return {"loop": lambda n: walked("loop", n), "models": lambda n: walked("models", n), "members": members}


def pydantic_graph() -> Mapping[str, Work]:
    from pydantic_graph import GraphBuilder, StepContext, reduce_sum

    @dataclass
    class Counter:
        limit: int
        n: int = 0

    def looping(work: Callable[[Counter], int]) -> Any:
        g = GraphBuilder(state_type=Counter, output_type=int)

        def step(name: str) -> Any:
            async def counting(ctx: StepContext[Counter, None, Any]) -> bool:
                ctx.state.n = work(ctx.state)
                return ctx.state.n >= ctx.state.limit

            return g.step(node_id=name)(counting)

        @g.step
        async def over(ctx: StepContext[Counter, None, Any]) -> int:
            return ctx.state.n

        steps = {name: step(name) for name in NAMES}
        g.add(g.edge_from(g.start_node).to(steps["one"]), g.edge_from(over).to(g.end_node))
        for name, following in FOLLOWING.items():
            is_so = g.match(bool, matches=lambda value: value is True)
            decision = g.decision().branch(is_so.to(over)).branch(g.match(bool).to(steps[following]))
            g.add(g.edge_from(steps[name]).to(decision))
        return g.build()

    def counted(d: Counter) -> int:
        return d.n + 1

    def asked(d: Counter) -> int:
        return int(model(str(d.n)))

    loop, models = looping(counted), looping(asked)

    def walked(graph: Any) -> Work:
        async def once(n: int) -> None:
            check(await graph.run(state=Counter(n)), n)

        return runner(once)

    g = GraphBuilder(state_type=Counter, output_type=int)

    @g.step
    async def numbers(ctx: StepContext[Counter, None, None]) -> list[int]:
        return list(range(ctx.state.limit))

    @g.step
    async def double(ctx: StepContext[Counter, None, int]) -> int:
        return doubled(ctx.inputs)

    total = g.join(reduce_sum, initial=0)
    g.add(
        g.edge_from(g.start_node).to(numbers),
        g.edge_from(numbers).map().to(double),
        g.edge_from(double).to(total),
        g.edge_from(total).to(g.end_node),
    )
    fan = g.build()

    async def members(n: int) -> None:
        check(await fan.run(state=Counter(n)), doubled_sum(n))

    return {"loop": walked(loop), "models": walked(models), "members": runner(members)}


def langgraph(saver: bool = False) -> Mapping[str, Work]:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    class Counter(TypedDict):
        limit: int
        n: int

    def compiled(builder: Any) -> Any:
        return builder.compile(checkpointer=InMemorySaver() if saver else None)

    def looping(work: Callable[[Any], Any]) -> Any:
        builder = StateGraph(Counter)
        for name, following in FOLLOWING.items():
            builder.add_node(name, work)

            def route(state: Counter, to: str = following) -> str:
                return END if state["n"] >= state["limit"] else to

            builder.add_conditional_edges(name, route, [END, following])
        builder.add_edge(START, "one")
        return builder

    graphs = {
        "loop": looping(lambda state: {"n": state["n"] + 1}),
        "models": looping(lambda state: {"n": int(model(str(state["n"])))}),
    }

    def walked(name: str) -> Work:
        def once(n: int) -> None:
            graph = compiled(graphs[name])
            config: Any = {"recursion_limit": n + 1, "configurable": {"thread_id": "run"}}
            check(graph.invoke({"limit": n, "n": 0}, config)["n"], n)

        return once

    class Fan(TypedDict):
        limit: int
        given: Annotated[list[int], operator.add]

    builder: Any = StateGraph(Fan)
    builder.add_node("numbers", lambda state: {})
    builder.add_node("double", lambda state: {"given": [doubled(state["number"])]})
    builder.add_conditional_edges(
        "numbers", lambda state: [Send("double", {"number": number}) for number in range(state["limit"])], ["double"]
    )
    builder.add_edge(START, "numbers")

    def members(n: int) -> None:
        config: Any = {"configurable": {"thread_id": "run"}}
        check(sum(compiled(builder).invoke({"limit": n, "given": []}, config)["given"]), doubled_sum(n))

    return {"loop": walked("loop"), "models": walked("models"), "members": members}


def fsm_agent(way: str = "sync") -> Mapping[str, Work]:
    """The flows of this package.

    Args:
        way: "core" is `effects` and `advance` alone, what performs the effects is by hand; "sync" and "asyncio" are
            the drivers.
    """
    from fsm_agent import Agent, Message, Reply
    from fsm_agent.call import Begun, Replied, Returned
    from fsm_agent.flows import Flow, FlowLimits, ask, each, end, execute

    class Model:
        name = "in-process"

        def complete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
            return Reply(message=Message.of("assistant", model(request.messages[-1].text)))

        async def acomplete(self, request: Any, *, timeout_s: float | None = None) -> Reply:
            return self.complete(request)

    counter: Any = Agent(Model(), output=int)  # type: ignore[arg-type]  # it does not stream

    async def aahead(d: Count) -> int:
        return d.n + 1

    def question(d: Count) -> str:
        return str(d.n)

    def looping(name: str, states: list[Any]) -> Flow[Count]:
        over, rows = end("over"), list[Any]()
        for state, following in zip(states, [*states[1:], states[0]], strict=True):
            rows += [state.done(over, when=is_over, do=keep), state.done(following, do=keep)]
        return Flow(name, Count, start=states[0], rows=rows, limits=FlowLimits(steps=1_000_000))

    function = aahead if way == "asyncio" else ahead
    loop = looping("loop", [execute(name=name)(function) for name in NAMES])
    models = looping("models", [ask(counter, name=name)(question) for name in NAMES])
    members = each("members", execute(blocking=False)(doubled), lambda d: range(d.limit))
    row: Any = members.done(end("over"), do=lambda d, given: replace(d, n=sum(given)))
    fan = Flow("fan", Count, start=members, rows=[row], environment={"threads": 0})

    def performed(effect: Any, data: Count) -> Any:
        match effect.prefix:
            case "begin":
                return Begun(id="run", at_s=time.time())
            case "run":
                return Returned(text=str(effect.function.call(effect.data)), at_s=time.time())
        return Replied(reply=Model().complete(effect.request), at_s=time.time())

    def driven(flow: Flow[Count], right: Callable[[int], int]) -> Work:
        def core(n: int) -> None:
            run = flow.prepare(Count(n))
            while effects := run.effects:
                run.advance(effects[0].key, performed(effects[0], run.data))
            check(run.data.n, right(n))

        def sync(n: int) -> None:
            check(flow.call(Count(n)).output.n, right(n))

        async def under_asyncio(n: int) -> None:
            check((await flow.acall(Count(n))).output.n, right(n))

        return runner(under_asyncio) if way == "asyncio" else core if way == "core" else sync

    return {
        "loop": driven(loop, lambda n: n),
        "models": driven(models, lambda n: n),
        "members": driven(fan, doubled_sum),
    }


ADAPTERS: Mapping[str, Callable[[], Mapping[str, Work]]] = {
    "by hand": by_hand,
    "transitions": transitions,
    "fsm_agent, core": lambda: fsm_agent("core"),
    "fsm_agent, sync": fsm_agent,
    "fsm_agent, asyncio": lambda: fsm_agent("asyncio"),
    "burr": burr,
    "pydantic-graph": pydantic_graph,
    "langgraph": langgraph,
    "langgraph, InMemorySaver": lambda: langgraph(saver=True),
}
DISTRIBUTIONS = {  # whose versions are named, by the first word of an adapter
    "transitions": ("transitions",),
    "burr": ("apache-burr",),
    "pydantic-graph": ("pydantic-graph",),
    "langgraph": ("langgraph",),
}


def work_off(name: str) -> None:
    """Do what each line of the standard input says: a work, its size, how many seconds at least; print one each."""
    works = ADAPTERS[name]()
    named = [f"{found} {version(found)}" for found in DISTRIBUTIONS.get(name.partition(",")[0], ())]
    print(json.dumps([*named, f"Python {platform.python_version()}"]), flush=True)
    for line in sys.stdin:
        work, size, at_least_s = json.loads(line)
        if work not in works:
            print("null", flush=True)
            continue
        once_s = timed(works[work], size, 1)
        times = max(1, int(at_least_s / once_s))
        print(json.dumps(timed(works[work], size, times)), flush=True)


def timed(work: Work, size: int, times: int) -> float:
    """Return how many seconds of the processor a work takes."""
    began_s = time.process_time()
    for _ in range(times):
        work(size)
    return (time.process_time() - began_s) / times


if __name__ == "__main__":
    work_off(sys.argv[1])
