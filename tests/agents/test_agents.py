"""Does an agent do what its user expects?"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import pickle
from contextlib import suppress
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from support.agent_calls import add, erase, parse
from tenacity import wait_incrementing

from fsm_agent import (
    Agent,
    Approved,
    CallFailed,
    CallSuspended,
    Context,
    Dialog,
    Function,
    Limits,
    MemoryStore,
    Message,
    Prompt,
    Settings,
    Toolset,
    UsageError,
    function,
    handoff,
)
from fsm_agent.call import Request, State, snapshot
from fsm_agent.errors import Overloaded
from fsm_agent.flows import Flow, end, pause
from fsm_agent.messages import (
    ArgumentsDelta,
    Done,
    FunctionCallCompleted,
    FunctionCallStarted,
    FunctionStarted,
    LoopDetected,
    Reply,
    Suspended,
    TextDelta,
)
from fsm_agent.testing import Script, function_call


def test_a_task_in_words(script):
    agent = Agent(script("42"), system="You are terse.")
    result = agent.call("What is 17 + 25?")
    assert result.output == "42"
    assert [(m.role, m.text) for m in result.dialog] == [
        ("system", "You are terse."),
        ("user", "What is 17 + 25?"),
        ("assistant", "42"),
    ]


@pytest.mark.parametrize("text", ["{", "{{ task }}", "{% raw %}", '{"a": 1}', "{{ 7 * 7 }}"])
def test_a_users_text_is_data_and_never_a_template(script, text):
    one = script("ok")
    Agent(one).call(text)
    assert one.requests[0].messages[-1].text == text


def test_no_argument_of_a_model_is_taken_for_the_deps(script):
    @function
    def whose(ctx: Context[str]) -> str:
        """Say whose."""
        return ctx.deps

    one = script(function_call("whose", ctx={"deps": "admin"}, deps="admin"), function_call("whose"), "ok")
    tried, asked = Agent(one, functions=[whose]).call("?", deps="guest").function_calls
    assert not one.requests[0].functions[0].parameters.get("properties")
    assert "admin" not in (tried.result or "")
    assert asked.result == "guest"


def test_a_dialogs_own_prompt_governs(script):
    agent = Agent(script("x", "42"))
    dialog = agent.init_dialog().put(Prompt("Number?", parser=parse, on_exception="Number! {{ error_message }}"))
    assert agent.call(dialog).output == 42


def test_functions_of_the_agent_are_the_prompts_unless_it_has_its_own(script):
    one = script("ok", "ok", "ok")
    agent = Agent(one, functions=[add])
    agent.call("hi")
    agent.call(Prompt("hi"))
    agent.call(Prompt("hi", functions=[erase]))
    assert [[f.name for f in r.functions] for r in one.requests] == [["add"], ["add"], ["erase"]]


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@pytest.mark.parametrize(
    ("output", "said", "expected"),
    [
        (Person, '{"name": "Ada", "age": 36}', Person(name="Ada", age=36)),
        (Person, 'Here it is:\n```json\n{"name": "Ada", "age": 36}\n```', Person(name="Ada", age=36)),
        (Mood, "good", Mood.GOOD),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (int | Literal["none"], "none", "none"),
        (str, "as it is", "as it is"),
    ],
)
def test_typed_output(script, output, said, expected):
    if output == int | Literal["none"]:
        said = f'"{said}"'
    one = script(said)
    assert Agent(one, output=output).call("?").output == expected
    assert one.requests[0].output.type == output


def test_what_is_wrong_with_an_output_is_what_the_model_is_told(script):
    one = script('{"name": "Ada", "age": 200}', '{"name": "Ada", "age": 36}')
    result = Agent(one, output=Person).call("Who?")
    assert result.output.age == 36
    told = one.requests[1].messages[-1].text
    assert "age" in told
    assert "200" in told
    assert len(result.dialog) == 2


def test_settings_of_the_agent_and_of_one_call(script):
    one = script("a", "b")
    agent = Agent(one, settings=Settings(temperature=0, seed=1))
    agent.call("?", args={"max_tokens": 9})
    agent.call("?")
    assert [r.settings for r in one.requests] == [
        Settings(temperature=0, seed=1, max_tokens=9),
        Settings(temperature=0, seed=1),
    ]
    with pytest.raises(UsageError, match="temprature"):
        agent.call("?", args={"temprature": 1})


EXTRA = {"ticket": 17, "tags": ["a", None], "of": {"user": "Ada", "share": 0.5, "is_new": True}}


class TestExtra:
    def test_the_result_has_it_and_the_model_does_not(self, script):
        one, task = script(*"abcdef"), "?"
        agent = Agent(one)
        results = [
            agent.call(task, extra=EXTRA),
            asyncio.run(agent.acall(task, extra=EXTRA)),
            list(agent.stream(task, extra=EXTRA))[-1].result,
            agent.run(agent.prepare(task, extra=EXTRA)),
        ]
        assert [result.extra for result in results] == [EXTRA] * 4
        assert "ticket" not in repr(one.requests)
        assert agent.call(task, extra=None).extra == agent.call(task).extra == {}

    def test_a_snapshot_has_it_and_so_has_a_pickled_result(self, script):
        agent = Agent(script("a"))
        one = agent.prepare("?", extra=EXTRA)
        assert agent.restore(snapshot(one)).record.extra == EXTRA
        assert pickle.loads(pickle.dumps(agent.run(one))).extra == EXTRA

    @pytest.mark.parametrize("is_awaited", [False, True])
    def test_the_messages_of_the_call_have_it_wherever_they_go(self, script, is_awaited):
        one = script(function_call("add", a=1, b=2), "3", "again")
        agent = Agent(one, functions=[add])
        result = asyncio.run(agent.acall("?", extra=EXTRA)) if is_awaited else agent.call("?", extra=EXTRA)
        assert [message.extra for message in result.new_messages] == [EXTRA] * 3
        assert result.message.extra == EXTRA
        later = agent.call("And now?", after=result)
        assert [message.extra for message in later.dialog] == [{}, *[EXTRA] * 3, {}, {}]
        assert "ticket" not in repr([request.messages for request in one.requests])

    def test_a_run_that_goes_on_from_its_store_has_it_on_all_messages(self, script, tmp_path):
        one, store = script(function_call("erase", path="x"), "done"), str(tmp_path / "runs.db")
        agent = Agent(one, functions=[erase], store=store, name="eraser")
        with pytest.raises(CallSuspended) as waiting:
            agent.call("?", extra=EXTRA, run_id="r")
        result = agent.runs.resume("r", {waiting.value.call.effects[0].key: Approved()})
        assert [message.extra for message in result.new_messages] == [EXTRA] * 3

    def test_an_agent_that_takes_the_dialog_over_says_it_with_the_callers_data(self, script):
        billing = Agent(script("Done."), name="billing")
        agent = Agent(script(function_call("transfer_to_billing")), functions=[handoff(billing)])
        result = agent.call("?", extra=EXTRA)
        assert result.message.extra == EXTRA
        assert [message.extra for message in result.new_messages] == [EXTRA] * 3

    def test_a_message_with_data_is_a_key_like_any_other(self):
        message = Message(role="user", extra=EXTRA)
        assert {message: 1}[Message(role="user", extra=dict(EXTRA))] == 1
        assert message != Message(role="user")

    def test_it_is_the_callers_no_longer(self, script):
        given = {"tags": ("a", "b")}
        one = Agent(script()).prepare("?", extra=given)
        given["tags"] += ("c",)
        assert one.record.extra == {"tags": ["a", "b"]}

    @pytest.mark.parametrize(
        ("extra", "place"),
        [
            (5, "extra"),
            ({"a": {"b": [1, object]}}, r"extra\['a'\]\['b'\]\[1\]"),
            ({1: 2}, "key of extra"),
            ({"a": float("nan")}, r"extra\['a'\]"),
            ({"a": 10**30}, r"extra\['a'\]"),
            ({"a": "\ud800"}, r"extra\['a'\]"),
            ({"\ud800": 1}, "key of extra"),
        ],
    )
    def test_what_json_cannot_hold_is_refused_by_name(self, script, extra, place):
        one = script()
        with pytest.raises(UsageError, match=place):
            Agent(one).call("?", extra=extra)
        assert one.requests == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads", "x"),
        ("threads", -1),
        ("threads", True),
        ("clock", 5),
        ("backoff", 5),
        ("new_id", "a"),
        ("random", 1),
        *[(name, wrong) for name in ("backoff", "new_id", "random") for wrong in (int, asyncio.to_thread)],
        (7, "x"),
    ],
)
def test_a_wrong_value_in_the_environment_is_refused_by_name(name, value):
    for owner in (lambda: Agent(Script(), environment={name: value}), lambda: letters(environment={name: value})):
        with pytest.raises(UsageError, match=str(name)):
            owner()


def letters(**options: Any) -> Flow:
    waiting = pause("waiting", 1)
    return Flow("letters", int, start=waiting, rows=[waiting.elapsed(end("over"))], **options)


@pytest.mark.parametrize(
    ("task", "options", "name"),
    [
        (Dialog(), {}, "dialog"),
        (Dialog([Message.of("assistant", function_call("add", a=1, b=2))]), {}, "'add'"),
        (None, {}, "task"),
        ("hi", {"afer": "Ada"}, "afer.*after"),
        (Prompt("{{ name }}"), {}, "name"),
        (Prompt("{{ name }}"), {"name": 1}, "name"),
    ],
)
def test_mistakes_of_the_caller_are_named_before_anything_is_sent(script, task, options, name):
    one = script()
    with pytest.raises(UsageError, match=name):
        Agent(one).call(task, **options)
    assert one.requests == []


def test_retries_wait_as_long_as_their_policy_says(script):
    one = script(*[Overloaded("busy")] * 3, "42")
    agent = Agent(one, limits=Limits(recalls=3), environment={"backoff": wait_incrementing(start=0.1, increment=0.1)})
    assert agent.call("?").output == "42"
    assert one.clock.sleeps == pytest.approx([0.1, 0.2, 0.3])
    with pytest.raises(CallFailed, match="busy"):
        Agent(script(*[Overloaded("busy")] * 4), limits=Limits(recalls=3)).call("?")


class States:
    """A hook that notes where the call stands at each step."""

    def __init__(self):
        self.call = None
        self.seen = []

    def on_stepped(self, event):
        assert event.to == self.call.state == self.call.record.state
        self.seen.append((str(event.to), self.call.record.ending is None))


@pytest.mark.parametrize(("said", "end"), [("42", "Completed"), ("none", "Failed")])
def test_the_state_says_idle_busy_done_or_failed(script, said, end):
    hook = States()
    agent = Agent(script(function_call("add", a=1, b=2), "none", said), hooks=[hook], limits=Limits(parse_retries=1))
    hook.call = agent.prepare(Prompt("Number?", parser=parse, functions=[add]))
    assert hook.call.state is State.SEEDED
    with suppress(CallFailed):
        agent.run(hook.call)
    busy = ["Calling", "ToolInterrupt", "Calling", "ParseException"]
    assert hook.seen == [*[(state, True) for state in busy], (end, False)]


def collect(stream, events):
    """Into a list that keeps what came before an error."""
    for event in stream:
        events.append(event)


def test_a_stream_ends_with_done_and_then_says_what_failed(script):
    agent = Agent(script("a"), limits=Limits(parse_retries=0))
    events = []
    with pytest.raises(CallFailed):
        collect(agent.stream(Prompt("Number?", parser=parse)), events)
    assert isinstance(events[-1], Done)
    with pytest.raises(CallFailed):
        _ = events[-1].result.output


def test_a_system_prompt_with_variables(script):
    one = script("ok")
    agent = Agent(one, system=Prompt("You are {{ who }}.", path="root"))
    dialog = agent.init_dialog(who="terse")
    assert (dialog.system, dialog.top_prompt.path) == ("You are terse.", "root")
    agent.call(dialog)
    assert one.requests[0].messages[0].text == "You are terse."


class Noted(Script):
    """A client that notes when it is closed."""

    closed = 0

    def close(self):
        self.closed += 1

    async def aclose(self):
        self.closed += 1


def test_a_client_that_an_agent_was_given_is_its_givers_to_close():
    client = Noted("ok")
    with Agent(client) as agent:
        agent.call("hi")
    asyncio.run(agent.aclose())
    assert client.closed == 0


def test_an_agent_closes_the_client_that_it_made():
    with Agent("openai-compatible:x") as agent:
        assert agent.client.name == "openai-compatible:x"
    with pytest.raises(UsageError, match="x"):
        agent.call("hi")

    async def main() -> None:
        async with Agent("openai-compatible:x") as agent:
            assert agent.client
        with pytest.raises(UsageError, match="x"):
            await agent.acall("hi")

    asyncio.run(main())


def test_a_client_is_made_of_the_models_name_on_first_use():
    agent = Agent("openai-compatible:some-model")
    assert agent.client.name == "openai-compatible:some-model"
    assert agent.client is agent.client


def test_the_stream_names_a_function_by_one_id_from_its_first_piece_to_its_result(script):
    class Sum(BaseModel):
        total: int

    refused = "not JSON"
    replies = [
        [function_call("add", a=1, b=2), function_call("add", a=3, b=4)],
        refused,
        [function_call("add", a=5, b=6)],
        '{"total": 21}',
    ]
    agent = Agent(script(*replies), functions=[add], output=Sum)
    dialog = agent.call("What is 1 + 1?", model=script('{"total": 2}')).dialog

    async def main() -> list[Any]:
        return [event async for event in Agent(script(*replies), functions=[add], output=Sum).astream(dialog)]

    for events in (list(agent.stream(dialog)), asyncio.run(main())):
        started = [event.id for event in events if isinstance(event, FunctionCallStarted)]
        assert started == [event.id for event in events if isinstance(event, FunctionStarted)]
        assert len({*started}) == 3
        pieces: dict[str, str] = {}
        for event in events:
            if isinstance(event, ArgumentsDelta):
                pieces[event.id] = pieces.get(event.id, "") + event.text
        calls = [event.call for event in events if isinstance(event, FunctionCallCompleted)]
        assert [one.id for one in calls] == started
        assert [one.arguments for one in calls] == [{"a": a, "b": a + 1} for a in (1, 3, 5)]
        assert [one.arguments_json for one in calls] == [*pieces.values()]


def test_a_suspended_stream_of_a_stored_call_names_its_run(script):
    model = script(function_call("erase", path="x"), "Done.")
    agent = Agent(model, functions=[erase], name="host", store=MemoryStore())
    *_, last = agent.stream("go")
    assert agent.runs.resume(last.run_id, Approved()).output == "Done."


def test_a_suspended_stream_ends_without_an_error_and_with_its_questions(script):
    agent = Agent(script(function_call("erase", path="x")), functions=[erase])
    last = list(agent.stream("go"))[-1]
    with pytest.raises(CallSuspended) as suspended:
        Agent(script(function_call("erase", path="x")), functions=[erase]).call("go")
    assert last == Suspended(("ask:1.0",), questions=(suspended.value.call.effects[0].question,))
    assert [(question.key, question.kind) for question in last.questions] == [("ask:1.0", "approval")]

    async def main() -> list[object]:
        other = Agent(script(function_call("erase", path="x")), functions=[erase])
        return [event async for event in other.astream("go")]

    assert asyncio.run(main())[-1] == last


class TestDeps:
    def test_a_restored_call_is_given_them_anew_and_no_snapshot_holds_them(self, script):
        @function(needs_approval=True)
        def who(context: Context) -> str:
            """Who is asking?"""
            return context.deps

        agent = Agent(script(function_call("who"), "ok"), functions=[who])
        with pytest.raises(CallSuspended) as caught:
            agent.call("?", deps="ada the secret")
        document = snapshot(caught.value.call)
        assert "secret" not in document
        restored = agent.restore(document, deps="grace")
        restored.advance(restored.effects[0].key, Approved())
        assert agent.run(restored).function_calls[0].result == "grace"


def offered(one: Script) -> list[list[str]]:
    return [[f.name for f in request.functions] for request in one.requests]


class TestToolsets:
    """What a call is offered is decided for that call, by its deps."""

    @staticmethod
    def guarded(asked: list) -> Toolset:
        def admits(f: Function, deps: str) -> bool:
            asked.append(deps)
            return f.name != "erase" or deps.startswith("admin")

        return Toolset([add, erase], name="files").filtered(admits)

    @pytest.mark.parametrize("listed", [True, False])
    def test_filters_are_asked_anew_for_each_call(self, script, listed):
        one, asked = script(*["ok"] * 3), []
        tools = self.guarded(asked)
        agent = Agent(one, functions=[tools] if listed else tools)
        for deps in ("admin", "guest", "admin 2"):
            agent.call("?", deps=deps)
        assert offered(one) == [["add", "erase"], ["add"], ["add", "erase"]]
        assert asked == ["admin"] * 2 + ["guest"] * 2 + ["admin 2"] * 2

    @pytest.mark.parametrize("deps", ["guest", "admin"])
    def test_one_that_is_not_offered_is_not_run(self, script, deps):
        one = script(function_call("erase", path="x"), "ok")
        agent = Agent(one, functions=self.guarded([]), approve=lambda f: True)
        (asked,) = agent.call("?", deps=deps).function_calls
        assert (asked.error is None) == (deps == "admin")

    def test_a_system_prompt_asks_no_filter_for_nobody(self, script):
        one, asked = script("ok", "ok", "ok"), []
        agent = Agent(one, system=Prompt("You are {{ who }}."), functions=self.guarded(asked))
        dialog = agent.init_dialog(who="terse")
        assert asked == []
        agent.call(dialog.append(Message.of("user", "?")), deps="guest")
        agent.call(dialog.put("?"), deps="admin")
        agent.call(dialog.append(Message.of("user", "?")), deps="admin")
        assert offered(one) == [["add"], ["add", "erase"], ["add", "erase"]]

    @pytest.mark.parametrize(
        ("go_on", "prompt"),
        [("put", None), ("append", Prompt("Do it.", output=int)), ("append", Prompt("{{ x }}", parser=int))],
    )
    def test_a_dialog_that_goes_on_is_offered_what_its_new_caller_may_use(self, script, go_on, prompt):
        one = script("1", "2", "3")
        agent = Agent(one, functions=self.guarded([]))
        task = prompt(x="Do it.") if prompt and prompt.parser else prompt or "Do it."
        dialog = agent.call(task, deps="admin").dialog
        for deps in ("guest", "admin"):
            more = dialog.put("more") if go_on == "put" else dialog.append(Message.of("user", "more"))
            dialog = agent.call(more, deps=deps).dialog
        assert offered(one) == [["add", "erase"], ["add"], ["add", "erase"]]

    def test_a_restored_call_is_offered_what_its_deps_may_use(self, script):
        agent = Agent(script(), functions=self.guarded([]))
        one = agent.prepare("?", deps="admin")
        restored = agent.restore(snapshot(one), deps="guest")
        assert [f.name for f in restored.prompt.offers] == ["add"]

    def test_shares_are_of_calls(self, script):
        one = script(*["ok"] * 4)
        old, new = [Function(name="find", version=v, call=lambda: 1) for v in "12"]
        points = iter([0.0, 0.95, 0.5, 0.89])
        tools = Toolset([old, new]).route("find", {"1": 0.9, "2": 0.1}, lambda: next(points))
        agent = Agent(one, system=Prompt("You search."), functions=tools)
        for _ in range(4):
            agent.call("?")
        assert [r.functions[0].version for r in one.requests] == ["1", "2", "1", "1"]

    def test_calls_at_once_do_not_mix_up_their_functions(self, script):
        agent = Agent(script(), functions=self.guarded([]))
        ones = [agent.prepare("?", deps=deps) for deps in ("admin", "guest", "admin")]
        assert [[f.name for f in one.prompt.offers] for one in ones] == [["add", "erase"], ["add"], ["add", "erase"]]


class TestNested:
    """An agent is a function of another."""

    @pytest.mark.parametrize("way", ["call", "acall"])
    def test_recursion_is_bounded_and_told_one_level_up(self, way):
        """0 -> 1 -> 2 are allowed with three levels; the fourth is an error of the third's function."""
        asked: list[int] = []

        def model(request):
            """Call an inner agent once, and then report its result."""
            last = request.messages[-1]
            if last.role == "user":
                asked.append(1)
                return function_call("deeper", task="go on")
            return last.text[:200]

        one = Script(*[model] * 6)
        inner: list[Agent] = []

        def deeper(context: Context, task: str) -> str:
            """Ask yourself."""
            return inner[0].call(task).text

        async def adeeper(context: Context, task: str) -> str:
            return (await inner[0].acall(task)).text

        ask = Function.of(deeper, acall=adeeper)
        agent = Agent(one, functions=[ask], limits=Limits(depth=3))
        inner.append(agent)
        result = agent.call("go") if way == "call" else asyncio.run(agent.acall("go"))
        assert "limits.depth" in result.output
        assert len(asked) == 3
        one.assert_exhausted()

    @pytest.mark.parametrize("way", ["call", "acall"])
    def test_siblings_do_not_add_up(self, way):
        helper = Agent(Script(*["fine"] * 8), limits=Limits(depth=2)).as_function("helper", "Help.")
        agent = Agent(Script([function_call("helper", task=str(n)) for n in range(4)], *["ok"]), functions=[helper])
        for _ in range(2):
            one = agent.prepare("go")
            agent.run(one) if way == "call" else asyncio.run(agent.arun(one))
            assert [f.result for f in one.record.function_calls] == ["fine"] * 4
            agent = Agent(Script([function_call("helper", task=f"{n}.") for n in range(4)], "ok"), functions=[helper])

    def test_its_output_is_the_result(self):
        inner = Agent(Script('{"name": "Ada", "age": 36}'), output=Person, name="person")
        outer = Agent(Script(function_call("person", task="Who?"), "ok"), functions=[inner.as_function(version="2")])
        (asked,) = outer.call("?").function_calls
        assert (asked.result, asked.version) == ('{"name":"Ada","age":36}', "2")

    def test_cancelled_from_outside_the_inner_one_is_cancelled(self):
        ended: list[str] = []

        async def main() -> None:
            began = asyncio.Event()

            class Stuck(Script):
                async def acomplete(self, request, *, timeout_s=None):
                    began.set()
                    try:
                        await asyncio.Event().wait()
                    finally:
                        ended.append("inner")
                    raise AssertionError

            inner = Agent(Stuck(), name="inner").as_function()
            task = asyncio.create_task(Agent(Script(function_call("inner", task="?")), functions=[inner]).acall("?"))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended == ["inner"], "before the loop ends all that is left"

        asyncio.run(main())


def test_a_plain_object_with_the_methods_of_a_client_serves_in_every_way() -> None:
    class Echo:
        name = "echo"

        async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
            return Reply.of(request.messages[-1].text.upper())

        async def astream(self, request: Request, *, timeout_s: float | None = None) -> Any:
            yield TextDelta(request.messages[-1].text.upper())
            yield await self.acomplete(request)

    agent: Agent[None, str] = Agent(Echo())
    assert agent.call("hello").output == "HELLO"
    assert asyncio.run(agent.acall("hello")).output == "HELLO"
    assert [event for event in agent.stream("hello") if isinstance(event, TextDelta)] == [TextDelta("HELLO")]

    async def heard() -> list[object]:
        return [event async for event in agent.astream("hello") if isinstance(event, TextDelta)]

    assert asyncio.run(heard()) == [TextDelta("HELLO")]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", [("auto", 1), ("auto", 1)]),
        ("required", [("required", 1), ("auto", 1)]),
        ("add", [("add", 1), ("auto", 1)]),
        ("none", [("auto", 0)]),
    ],
)
def test_tool_choice(script, choice, expected):
    replies = ["ok"] if choice == "none" else [function_call("add", a=1, b=2), "ok"]
    one = script(*replies)
    Agent(one, functions=[add], settings=Settings(tool_choice=choice)).call("?")
    assert [(r.tool_choice, len(r.functions)) for r in one.requests] == expected


@pytest.mark.parametrize(
    ("on_loop", "replies", "seen"),
    [("warn", 7, [3, 6]), ("tell", 7, [3, 6]), ("stop", 3, [3])],
)
def test_loops_are_seen_by_observers(on_loop, replies, seen):
    @function(repeatable=True)
    def poll() -> str:
        """Poll."""
        return "not yet"

    limits = Limits(rounds=None, identical_rounds=3, on_loop=on_loop)
    agent = Agent(Script(*[function_call("poll")] * replies, "gave up"), functions=[poll], limits=limits)
    events: list[object] = []

    with suppress(CallFailed):
        collect(agent.stream("?"), events)
    loops = [i for i, e in enumerate(events) if isinstance(e, LoopDetected)]
    assert [events[i] for i in loops] == [LoopDetected("poll", n, on_loop) for n in seen]
    assert all(events[i - 1].trigger == "functions_asked" for i in loops), "before anything is run"
    ran = sum(isinstance(e, FunctionStarted) for e in events)
    assert ran == (2 if on_loop == "stop" else replies)


def test_the_defaults_of_an_agent_and_what_a_copy_shares():
    agent = Agent("openai:gpt-5-mini")
    given = {
        name: getattr(agent, name) for name in ("stop_when", "check", "approve", "context", "finalizer", "results")
    }
    assert given == dict.fromkeys(given)
    assert (agent.functions, agent.hooks, agent.environment) == ((), (), {})
    assert (agent.system, agent.output, agent.name) == ("", str, "agent")
    assert (agent.limits, agent.settings) == (Limits(), Settings())
    agent = Agent(Script("ok"), functions=[add], stop_when=lambda context: None)
    other = dataclasses.replace(agent, limits=Limits(rounds=1))
    assert (other.stop_when, other.functions) == (agent.stop_when, agent.functions)
    assert (agent.limits.rounds, other.limits.rounds) == (5, 1)


def test_what_an_agent_shows_of_itself_holds_no_addresses_and_no_secrets():
    class Hook:
        def on_done(self, event) -> None: ...

    tools = Toolset([add], name="sums")
    agent = Agent(
        Script(), functions=[add, tools], stop_when=print, hooks=[Hook()], environment={"new_id": lambda: "secret"}
    )
    shown = repr(agent)
    assert "0x" not in shown
    assert "secret" not in shown
    assert "functions=[add, sums]" in shown
    assert "Limits(rounds=2" in repr(agent.changed(limits=Limits(rounds=2), output=int))
