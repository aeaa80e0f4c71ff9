"""Is the system prompt the agent's, on every call?"""

from __future__ import annotations

import asyncio
import pickle

import pytest

from fsm_agent import Agent, AgentCall, CallFailed, Dialog, Message, Prompt, UsageError, function
from fsm_agent.call import Limits, snapshot
from fsm_agent.errors import Overloaded
from fsm_agent.messages import FunctionCall, FunctionResult, Image
from fsm_agent.store import RunExists
from fsm_agent.testing import Script, function_call


def sent(script: Script, number: int = -1) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in script.requests[number].messages]


def systems(script: Script) -> list[list[str]]:
    return [[m.text for m in request.messages if m.role == "system"] for request in script.requests]


HI = Message.of("user", "hi")
TERSE, KIND = Message.of("system", "Be terse."), Message.of("system", "Be kind.")


class TestAlways:
    @pytest.mark.parametrize(
        "task",
        ["hi", HI, Prompt("hi"), Dialog().put("hi"), Dialog([KIND, HI]), [HI], [{"role": "user", "content": "hi"}]],
        ids=lambda task: type(task).__name__,
    )
    def test_every_task_is_answered_under_it(self, task):
        script = Script(*"abcd")
        agent = Agent(script, system="Be terse.")
        agent.call(task)
        asyncio.run(agent.acall(task))
        list(agent.stream(task))
        agent.run(agent.prepare(task))
        assert [sent(script, n) for n in range(4)] == [[("system", "Be terse."), ("user", "hi")]] * 4

    def test_it_is_neither_an_older_deployments_nor_another_agents(self):
        script = Script(*"abcdefg")
        old = Agent(script, system="Be terse.").call("hi")
        new = Agent(script, system="Be kind.")
        new.call("again", after=old)
        new.call(old.dialog.put("again"))
        new.call(Dialog.from_json(old.dialog.to_json()).put("again"))
        assert systems(script)[1:] == [["Be kind."]] * 3
        without = Agent(script)
        without.call("again", after=old)
        without.call(Dialog.from_json(old.dialog.to_json()).put("again"))
        assert systems(script)[4:] == [[], []]
        assert [role for role, _ in sent(script)] == ["user", "assistant", "user"]

    def test_it_is_kept_if_the_caller_says_so(self):
        script = Script(*"abcde")
        agent = Agent(script, system="Be terse.")
        first = agent.call([KIND, HI], keep_system=True)
        agent.call("again", after=first, keep_system=True)
        agent.call("again", after=first)
        agent.call("hi", keep_system=True)  # there is none to keep
        Agent(script).call("again", after=agent.prepare([KIND, HI]).result_so_far, keep_system=True)
        assert systems(script) == [["Be kind."], ["Be kind."], ["Be terse."], ["Be terse."], ["Be terse."]]

    def test_an_agent_without_one_leaves_what_the_caller_wrote(self):
        """In all later turns, too, and in JSON."""
        script = Script(*"abcd")
        agent = Agent(script)
        first = agent.call([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}])
        second = agent.call("again", after=first)
        agent.call(second.dialog.put("again"))
        agent.call("again", after=Dialog.from_json(second.dialog.to_json()))
        assert systems(script) == [["Be kind."]] * 4

    def test_so_it_is_after_a_call_was_pickled_resumed_or_restored(self, tmp_path):
        """All of them keep the origin of the system message, except the last, where it counts as an agent's."""
        for system, expected in (("Be terse.", []), ("", ["Be kind."])):
            agent = Agent(Script("a"), system=system, name="clerk", store=tmp_path / f"{len(system)}.db")
            task = "hi" if system else [KIND, HI]
            result = agent.call(task, run_id="r")
            copies = [
                pickle.loads(pickle.dumps(result)),
                agent.runs.resume("r"),
                AgentCall.seed(result.dialog, Prompt("x")).result_so_far,
            ]
            for copy in copies:
                script = Script("b")
                Agent(script).call("again", after=copy)
                assert systems(script) == [expected]
            script = Script("b")
            Agent(script).call("again", after=agent.restore(snapshot(result.call)).result_so_far)
            assert systems(script) == [[]]

    def test_new_function_calls_have_ids_of_their_own(self):
        """Without the system message, the old ones are at other places."""

        @function
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        old = Agent(Script(function_call("add", a=1, b=2), "3"), system="Be terse.", functions=[add]).call("1 + 2?")
        agent = Agent(Script(function_call("add", a=3, b=4), "7"), functions=[add])
        result = agent.call("3 + 4?", after=old)
        ids = [part.id for m in result.dialog for part in m.parts if isinstance(part, FunctionCall)]
        assert ids == ["1.0", "5.0"]
        assert [c.id for c in result.function_calls] == ["5.0"]


class TestVariables:
    def test_they_are_given_with_the_call(self):
        script = Script(*"abcde")
        agent = Agent(script, system=Prompt("You talk to {{ name }}."))
        first = agent.call("hi", system_args={"name": "Ada"})
        agent.call(Prompt("About {{ name }}")(name="the sea"), system_args={"name": "Ada"})
        agent.call("again", after=first)  # in memory, they are those of the turn before
        agent.call("again", after=first, system_args={"name": "Bob"})
        asyncio.run(agent.acall(agent.init_dialog(name="Eve").put("hi")))
        assert [texts[0] for texts in systems(script)] == [
            *["You talk to Ada."] * 3,
            "You talk to Bob.",
            "You talk to Eve.",
        ]
        assert sent(script, 1)[1] == ("user", "About the sea")

    @pytest.mark.parametrize(
        ("task", "options", "name"),
        [
            ("hi", {}, "guide.*name"),
            ([KIND, HI], {}, "keep_system"),
            ("hi", {"system_args": {"nme": 1}}, "nme.*name"),
            ("hi", {"system_args": "Ada"}, "system_args"),
            ("hi", {"system_args": {"name": Image(url="https://example.org/ada.png")}}, "guide.*system_args"),
            ([KIND, HI], {"system_args": {"name": "A"}, "keep_system": True}, "keep_system"),
            ([KIND, HI], {"keep_system": 1}, "keep_system"),
        ],
    )
    def test_what_is_wrong_with_them_is_told_before_any_request(self, task, options, name):
        script = Script()
        with pytest.raises(UsageError, match=name):
            Agent(script, system=Prompt("You talk to {{ name }}."), name="guide").call(task, **options)
        assert script.requests == []

    def test_a_text_has_none(self):
        for system in ("Be terse.", lambda deps: "x", ""):
            with pytest.raises(UsageError, match="system_args"):
                Agent(Script(), system=system).call("hi", system_args={"name": "Ada"})
        with pytest.raises(UsageError, match="system"):
            Agent(Script(), system="Be terse.").init_dialog(name="Ada")


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name


class TestOfDeps:
    def test_it_is_made_of_the_deps_of_each_call(self):
        script = Script(*"abcd")

        def system(shop: Shop) -> str:
            return f"You work for {shop.name}."

        agent = Agent[Shop, str](script, system=system)
        first = agent.call("hi", deps=Shop("Ada"))
        agent.call("again", after=first, deps=Shop("Bob"))
        asyncio.run(agent.acall([KIND, HI], deps=Shop("Eve")))
        list(agent.stream("hi", deps=Shop("Zoe")))
        assert [texts[0][13:-1] for texts in systems(script)] == ["Ada", "Bob", "Eve", "Zoe"]

    def test_a_request_that_comes_twice_is_the_same_under_another_system_prompt(self, tmp_path):
        """It may tell the time, or come from a newer deployment."""
        script, times = Script("a"), iter(["noon", "one o'clock"])
        agent = Agent(script, system=lambda: f"It is {next(times)}.", name="clerk", store=tmp_path / "runs.db")
        assert [agent.call("hi", run_id="r").output for _ in range(2)] == ["a", "a"]
        assert Agent(Script(), name="clerk", store=tmp_path / "runs.db").call("hi", run_id="r").output == "a"
        with pytest.raises(RunExists):
            agent.call([KIND, HI], run_id="r", keep_system=True)
        assert systems(script) == [["It is noon."]]

    @pytest.mark.parametrize(
        ("system", "deps", "name"),
        [(lambda shop: shop.name, None, "deps"), (lambda shop: 5, Shop("Ada"), "system")],
    )
    def test_what_is_wrong_is_told_before_any_request(self, system, deps, name):
        script = Script()
        with pytest.raises(UsageError, match=name):
            Agent(script, system=system).call("hi", deps=deps)
        assert script.requests == []


class TestAfter:
    def test_every_kind_of_task_may_follow(self):
        script = Script(*"abcd")
        agent = Agent(script)
        first = agent.call("hi")
        agent.call(Message.of("user", "again"), after=first)
        agent.call(Prompt("{{ word }}")(word="again"), after=first)
        list(agent.stream("again", after=first))
        assert [sent(script, n) for n in (1, 2, 3)] == [[("user", "hi"), ("assistant", "a"), ("user", "again")]] * 3

    def test_a_turn_that_failed_may_be_followed(self):
        script = Script(Overloaded("busy", status=503), "ok")
        agent = Agent(script, limits=Limits(recalls=0))
        with pytest.raises(CallFailed) as caught:
            agent.call("hi")
        agent.call("again", after=caught.value.call.result_so_far)
        assert sent(script) == [("user", "hi"), ("user", "again")]

    @pytest.mark.parametrize(
        ("after", "name"),
        [(5, "after"), ([5], "message"), (Dialog([Message.of("assistant", function_call("add", a=1, b=2))]), "'add'")],
    )
    def test_what_is_no_conversation_is_refused(self, after, name):
        script = Script()
        with pytest.raises(UsageError, match=name):
            Agent(script).call("hi", after=after)
        assert script.requests == []

    def test_a_result_of_no_call_is_refused(self):
        agent = Agent(Script("a"))
        with pytest.raises(UsageError, match=r"look_0.* in messages\[2\]"):
            agent.call(found("1.0"), after=agent.call("hi"))


def test_an_overview_has_a_line_for_each_message(script):
    dialog = Dialog(
        [
            TERSE,
            Message.of("user", "Look\x1b[2J\nat\u202e this:", Image(url="https://example.com/a.png")),
            Message.of("assistant", FunctionCall(name="f", arguments_json='{"a": 1}', id="2.0")),
            Message.of("tool", FunctionResult(id="2.0", name="f", text="x" * 1000)),
            Message.of("tool", FunctionResult(id="2.0", name="f", text="no", is_error=True)),
            Message.of("assistant"),
        ]
    )
    assert dialog.overview().splitlines() == [
        "  0 system    Be terse.",
        "  1 user      Look[2J at this: [image https://example.com/a.png]",
        '  2 assistant calls f({"a": 1})',
        "  3 tool      f returns: " + "x" * 49 + "…",
        "  4 tool      f fails: no",
        "  5 assistant",
    ]
    assert Dialog().overview() == ""


def asking(*ids: str) -> Message:
    calls = [FunctionCall(name=f"look_{id[-1]}", arguments_json="{}", id=id) for id in ids]
    return Message(role="assistant", parts=tuple(calls))


def found(*ids: str) -> Message:
    return Message(role="tool", parts=tuple([FunctionResult(id=id, name=f"look_{id[-1]}", text="x") for id in ids]))


@pytest.mark.parametrize("later", [(), (HI,), (HI, asking("5.3"), found("5.3"))])
@pytest.mark.parametrize(
    ("end", "missing"),
    [
        ((asking("1.0"),), "look_0"),
        ((asking("1.0", "1.1"), found("1.0")), "look_1"),
        ((asking("1.0", "1.1"), found("1.1")), "look_0"),
        ((asking("1.0", "1.1", "1.2"), found("1.0"), found("1.2")), "look_1"),
        ((found("1.0"),), "look_0"),
        ((asking("1.0"), found("1.1")), "look_1"),
        ((asking("1.0"), found("1.0"), found("1.0")), "look_0"),
        ((asking("1.0"), found("1.0"), HI, found("1.0")), "look_0"),
    ],
)
def test_a_dialog_in_which_calls_and_results_do_not_pair_is_refused_by_the_call(
    end: tuple[Message, ...], missing: str, later: tuple[Message, ...]
):
    agent, dialog = Agent(Script("ok")), [HI, *end, *later]
    with pytest.raises(UsageError, match=missing):
        agent.call("go", after=dialog)
    with pytest.raises(UsageError, match=missing):
        asyncio.run(agent.acall(Dialog(dialog)))


@pytest.mark.parametrize("results", [(found("1.0", "1.1"),), (found("1.1"), found("1.0"))])
def test_a_dialog_whose_rounds_have_their_results_goes_on(results: tuple[Message, ...]):
    dialog = [HI, asking("1.0", "1.1"), *results, asking("5.0"), found("5.0")]
    assert Agent(Script("ok")).call("go", after=dialog).output == "ok"
    assert Agent(Script("ok")).call(Dialog(dialog)).output == "ok"


def test_a_result_belongs_to_its_call_by_either_id() -> None:
    asked = FunctionCall(name="look", arguments_json="{}", id="1.0", provider_id="call_1")
    for ids in ({"id": "1.0"}, {"id": "", "provider_id": "call_1"}):
        result = Message(role="tool", parts=(FunctionResult(name="look", text="x", **ids),))
        assert Agent(Script("ok")).call("go", after=[HI, Message.of("assistant", asked), result]).output == "ok"
