"""Are functions, agents and flows tools of an MCP server, for every protocol, client and user?"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

pytest.importorskip("mcp")

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_shop import ANSWERED, DOT, KEY, LETTERS, SECRET, Shop, add, bad, pictures, weather

from fsm_agent import Agent, Context, Function, Limits, MemoryStore, UsageError, function, handoff
from fsm_agent.call import Approved, Cancelled, FunctionFailed, Modified, Returned, RunAgain
from fsm_agent.errors import OutcomeError
from fsm_agent.mcp import ToolServer, serve
from fsm_agent.mcp import served_calls as forms
from fsm_agent.mcp.served_calls import Progress
from fsm_agent.mcp.server import BoundedLines
from fsm_agent.messages import FunctionProgress, Question
from fsm_agent.testing import Script

MODES = ["auto", "legacy"]
APPROVE = {"approve": True}


class User:
    """A client's user, who fills in each form with the next answer; the last one is repeated."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[types.ElicitRequestFormParams] = []

    async def fill(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, types.ElicitResult):
            return answer
        if isinstance(answer, str):
            return types.ElicitResult(action=answer)  # type: ignore[arg-type]
        return types.ElicitResult(action="accept", content=answer)

    @property
    def words(self) -> list[str]:
        return [params.message for params in self.asked]


@contextlib.asynccontextmanager
async def client_of(server: ToolServer, user: User | None = None, mode: str = "auto") -> AsyncIterator[Client]:
    async with Client(server.official, elicitation_callback=user and user.fill, mode=mode) as client:
        yield client


def called(server: ToolServer, name: str, arguments: Any = None, user: User | None = None, mode: str = "auto") -> Any:
    async def main() -> Any:
        async with client_of(server, user, mode) as client:
            try:
                return await client.call_tool(name, arguments or {})
            except MCPError as error:  # which task groups would wrap
                return error

    result = asyncio.run(main())
    if isinstance(result, MCPError):
        raise result
    return result


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  # a store has no event
        await asyncio.sleep(0.01)


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
async def test_tools_are_what_a_model_is_told(mode, version):
    model = Script("Done.")
    shop = Shop()
    Agent(model, functions=[add, LETTERS, *shop.functions]).call("Nothing.")
    told = {f.name: (f.description, dict(f.parameters)) for f in model.requests[0].functions}

    async with client_of(serve("shop", [add, LETTERS, *shop.functions], store=MemoryStore()), mode=mode) as client:
        assert client.protocol_version == version
        tools = (await client.list_tools()).tools
    assert {tool.name: (tool.description, tool.input_schema) for tool in tools} == told
    once = [tool.name for tool in tools if tool.annotations and tool.annotations.destructive_hint]
    assert once == ["pay", "die"]


@pytest.mark.parametrize("mode", MODES)
def test_results_have_texts_pictures_and_documents(mode):
    server = serve("shop", [add, pictures])
    assert text_of(called(server, "add", {"a": 17, "b": 25}, mode=mode)) == "42"
    text, image, table, bill = called(server, "pictures", mode=mode).content
    assert (text.text.split()[0], base64.b64decode(image.data), image.mime_type) == ("see", DOT, "image/png")
    assert (table.resource.text, table.resource.mime_type) == ("a,b", "text/csv")
    assert (base64.b64decode(bill.resource.blob), bill.resource.uri) == (b"%PDF-1.7", "attachment:///my%20bill.pdf")


def test_errors_are_those_that_a_model_sees():
    server = Shop().server(MemoryStore())
    raised, failed = called(server, "bad"), called(server, "worse")
    refused = called(server, "add", {"a": "x"})
    assert raised.is_error
    assert text_of(raised).startswith("KeyError: 'no such thing, ")
    assert failed.is_error
    assert text_of(failed).startswith("function failed: worse: KeyError")
    assert refused.is_error
    assert "a: Input should be a valid integer" in text_of(refused)
    for result in (raised, failed):
        assert SECRET[6:] not in text_of(result)
        assert "Traceback" not in text_of(result)


def test_an_unknown_tool_is_an_error_of_the_protocol():
    with pytest.raises(MCPError, match="'nope'") as caught:
        called(serve("shop", [add]), "nope")
    assert caught.value.error.code == types.INVALID_PARAMS


def test_arguments_are_bounded():
    shop = Shop()
    result = called(shop.server(MemoryStore()), "refund", {"order": "x" * 1_000_000})
    assert result.is_error
    assert "the arguments: expected at most" in text_of(result)
    assert not shop.done


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (APPROVE, "refunded A-17"),
        ({"approve": False, "reason": "not today"}, "not today"),
        ({"approve": "true"}, "not allowed"),
        ({}, "not allowed"),
        ("decline", "the user has declined"),
        (types.ElicitResult(action="decline", content=APPROVE), "the user has declined"),
        ("cancel", "the user has declined"),
    ],
    ids=["yes", "no", "a text", "nothing", "declined", "declined in spite", "dismissed"],
)
def test_only_a_clear_approval_runs_the_function(mode, answer, end):
    shop, user = Shop(), User(answer)
    result = called(shop.server(MemoryStore()), "refund", {"order": "A-17"}, user, mode)
    assert user.words == ['Allow refund({"order":"A-17"})?']
    assert end in text_of(result)
    assert result.is_error is (answer != APPROVE)
    assert shop.done == (["refund A-17"] if answer == APPROVE else [])


def paying(done: list[Any]) -> Any:
    @function(needs_approval=True)
    def pay(order: str, amount: int, api_key: str = "", note: str = "") -> str:
        """Pay."""
        done.append((order, amount, api_key, note))
        return f"paid {amount}"

    return pay


PAYMENT = {"order": "A-17", "amount": 1, "api_key": "hunter2-hunter2", "note": "caf\u00e9"}
SHOWN = {**PAYMENT, "api_key": "***"}


@pytest.mark.parametrize(
    ("changes", "paid"),
    [
        ({}, PAYMENT),
        ({"amount": 30}, {**PAYMENT, "amount": 30}),
        ({"api_key": "another-key"}, {**PAYMENT, "api_key": "another-key"}),
        ({"order": "B", "note": ""}, {**PAYMENT, "order": "B", "note": ""}),
    ],
    ids=["none", "one", "the masked one", "two"],
)
def test_a_user_changes_the_arguments_of_what_is_approved(changes, paid):
    done = list[Any]()
    store = MemoryStore()
    user = User({"approve": True, "arguments": json.dumps({**SHOWN, **changes})})
    result = called(serve("shop", [paying(done)], store=store), "pay", PAYMENT, user)
    assert text_of(result) == f"paid {paid['amount']}"
    assert done == [tuple(paid.values())]
    field = user.asked[0].requested_schema["properties"]["arguments"]
    assert field["type"] == "string"
    assert json.loads(field["default"]) == SHOWN  # what a form shows has no secrets
    assert "caf\u00e9" in field["default"]
    assert user.asked[0].requested_schema["required"] == ["approve"]
    (run,) = store.list()
    decided = [entry for entry in map(json.loads, store.load(run.id, after=0).lines) if entry["key"].startswith("ask:")]
    assert [entry["outcome"]["kind"] for entry in decided] == ["modified" if changes else "approved"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"order": "A", "amount": "many", "api_key": "***"}', "amount"),
        ('{"order": "A"}', "amount"),
        ('["A"]', "an object"),
        ("a lot", "an object"),
        ("[" * 100_000, "an object"),
        ('{"amount": ' * 5_000 + "1" + "}" * 5_000, ""),
    ],
    ids=["wrong", "missing", "a list", "no JSON", "deep", "deep objects"],
)
def test_arguments_that_do_not_fit_approve_nothing(text, problem):
    done = list[Any]()
    server = serve("shop", [paying(done)], store=MemoryStore())
    result = called(server, "pay", PAYMENT, User({"approve": True, "arguments": text}))
    assert result.is_error
    assert problem in text_of(result)
    assert "hunter2" not in text_of(result)
    assert not done


def test_changed_arguments_approve_nothing_by_themselves():
    done = list[Any]()
    server, more = serve("shop", [paying(done)], store=MemoryStore()), json.dumps({**PAYMENT, "amount": 2})
    for filled in ({"arguments": more}, {"approve": False, "arguments": more}, {"approve": "true", "arguments": more}):
        assert called(server, "pay", PAYMENT, User(filled)).is_error
    assert not done


def test_a_change_from_true_to_one_is_a_change():
    question = Question("ask:1.0", "approval", json.dumps({"function": "f", "arguments": '{"a": true, "b": 1}'}))
    for text, outcome in [
        ('{"b": 1, "a": true}', Approved()),
        ("  ", Approved()),
        ('{"a": 1, "b": 1}', Modified('{"a": 1, "b": 1}')),
        ('{"a": true, "b": 1.0}', Modified('{"a": true, "b": 1.0}')),
    ]:
        filled = types.ElicitResult(action="accept", content={"approve": True, "arguments": text})
        assert forms.answer(question, filled) == ("ask:1.0", outcome)


@pytest.mark.parametrize(
    ("arguments", "is_offered"),
    [('{"a": "x"}', True), ("{}", False), ("", False), ("[1]", False), (json.dumps({"a": "x" * 2000}), False)],
)
def test_only_arguments_that_a_form_can_show_are_offered(arguments, is_offered):
    question = Question("ask:1.0", "approval", json.dumps({"function": "f", "arguments": arguments}))
    properties = forms.elicitation(question).params.requested_schema["properties"]
    assert ("arguments" in properties) is is_offered


def test_what_hides_in_arguments_is_shown_escaped():
    question = Question(
        "ask:1.0", "approval", json.dumps({"function": "f", "arguments": json.dumps({"a": "x\u202ey\u00e9"})})
    )
    shown = forms.elicitation(question).params.requested_schema["properties"]["arguments"]["default"]
    assert "\\u202e" in shown
    filled = types.ElicitResult(action="accept", content={"approve": True, "arguments": shown})
    assert forms.answer(question, filled) == ("ask:1.0", Approved())


@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_inside_asks_and_tells_its_progress(mode):
    shop, user, progress = Shop(), User(APPROVE), list[Any]()

    async def hear(number: float, total: float | None, text: str | None) -> None:
        progress.append((number, text))

    async with client_of(shop.server(MemoryStore()), user, mode) as client:
        counted = await client.call_tool("count", {"to": 2}, progress_callback=hear)
        asked = await client.call_tool("desk", {"task": "B-1"}, progress_callback=hear)
    assert (text_of(counted), text_of(asked)) == ("counted", "The money: refunded B-1")
    assert user.words == ['Allow refund({"order": "B-1"})?']
    assert progress[:2] == [(1, "1 of 2"), (2, "2 of 2")]
    assert (1, "desk: Calling") in progress
    assert progress[-1][1] == "desk: Completed"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("store", [MemoryStore, lambda: None], ids=["stored", "in memory"])
def test_a_function_without_a_callable_and_a_flow_ask_the_user(mode, store):
    user = User({"result": "rain"}, {"answer": True})
    server = serve("shop", [weather, LETTERS], store=store())
    assert text_of(called(server, "weather", {}, user, mode)) == "rain"
    ended = called(server, "letters", {"about": "the delay"}, user, mode)
    assert text_of(ended) == '{"about":"the delay","is_fit":true}'
    assert user.words == ["What is the result of weather({})?", "Is the letter about the delay fit to send?"]
    assert user.asked[1].requested_schema["properties"] == {"answer": {"type": "boolean"}}


@pytest.mark.parametrize("store", [MemoryStore, lambda: None], ids=["stored", "in memory"])
def test_a_wrong_or_declined_answer_is_none(store):
    server, letter = serve("shop", [LETTERS], store=store()), {"about": "x"}
    wrong = called(server, "letters", letter, User({"answer": "perhaps"}))
    assert wrong.is_error
    assert "does not fit" in text_of(wrong)
    declined = called(server, "letters", letter, User("decline"))
    assert declined.is_error
    assert "declined" in text_of(declined)


def test_a_client_that_cannot_ask_its_user_is_told_so_and_nothing_waits():
    shop, store = Shop(), MemoryStore()
    result = called(shop.server(store), "refund", {"order": "A"})
    assert result.is_error
    assert "elicitation" in text_of(result)
    (left,) = store.list()
    assert left.is_ended
    assert left.state == "Failed"
    assert not shop.done


def test_what_no_server_can_do_is_refused():
    with pytest.raises(UsageError, match="depends on bad"):
        serve("shop", [bad, Function.of(add, depends_on=["bad"])])
    with pytest.raises(UsageError, match="takes the conversation over"):
        serve("shop", [handoff(Agent(Script(), name="other"))])
    with pytest.raises(UsageError, match=r"signing_key: .*3 bytes"):
        serve("shop", [add], signing_key="abc")
    with pytest.raises(UsageError, match="answer_within_s"):
        serve("shop", [add], answer_within_s=0)
    for host in ("0.0.0.0", "::", "192.168.0.7", "example.com", "localhost.example.com", ""):
        with pytest.raises(UsageError, match=f"host: .*'{host}'"):
            serve("shop", [add]).run_http(host=host)


async def test_without_a_store_a_question_is_answered_once_and_what_has_ended_is_forgotten():
    shop = Shop()
    server = serve("shop", [*shop.functions, add])

    async with client_of(server, User(APPROVE)) as client:
        assert text_of(await client.call_tool("add", {"a": 1})) == "2"
        assert not server.agent.store.list()
        waits = await client.session.call_tool("refund", {"order": "C"}, allow_input_required=True)
        answered = {"input_responses": yes(), "request_state": waits.request_state}
        found = [text_of(await client.session.call_tool("refund", {"order": "C"}, **answered)) for _ in range(2)]
    assert found == ["refunded C", ANSWERED]
    assert shop.done == ["refund C"]


async def test_without_a_store_memory_does_not_grow_with_what_waits(monkeypatch):
    monkeypatch.setattr("fsm_agent.mcp.served_calls.MOST_WAITED", 2)
    server = serve("shop", Shop().functions)

    async with client_of(server, User(APPROVE)) as client:
        call = client.session.call_tool
        waits = [await call("refund", {"order": str(n)}, allow_input_required=True) for n in range(3)]
        found = [
            text_of(await call("refund", {"order": str(n)}, input_responses=yes(), request_state=one.request_state))
            for n, one in enumerate(waits)
        ]
    assert found == [ANSWERED, "refunded 1", "refunded 2"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_cancelled_request_cancels_the_call(mode, is_stored):
    shop, store = Shop(), MemoryStore()
    server = shop.server(store) if is_stored else serve("shop", [shop.functions[3]])

    async with client_of(server, mode=mode) as client:
        calling = asyncio.create_task(client.call_tool("hang", {}))
        await shop.begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(lambda: shop.left)
        if is_stored:
            await until(lambda: store.list()[0].is_ended)
        with pytest.raises(MCPError, match="'nope'"):  # it still answers
            await client.call_tool("nope")
    if is_stored:
        ending = server.agent.runs.replay(store.list()[0].id).record.ending
        assert (str(ending.reason), ending.detail) == ("cancelled", "cancelled by the client")


async def test_a_request_that_is_cancelled_while_its_user_is_asked_leaves_nothing_open():
    shop, store = Shop(), MemoryStore()
    asked = asyncio.Event()

    async def never(context: Any, params: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async with Client(shop.server(store).official, elicitation_callback=never, mode="legacy") as client:
        calling = asyncio.create_task(client.call_tool("refund", {"order": "A"}))
        await asked.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(lambda: store.list()[0].is_ended)
    assert not shop.done


class Meeting(MemoryStore):
    """A store in which two answers meet before either is written."""

    def __init__(self) -> None:
        super().__init__()
        self.barrier = threading.Barrier(2, timeout=30)

    def post(self, *args: Any, **options: Any) -> Any:
        self.barrier.wait()
        return super().post(*args, **options)


def yes(key: str = "ask:1.0") -> dict[str, Any]:
    return {key: types.ElicitResult(action="accept", content={"approve": True})}


async def test_two_clients_at_once_cannot_answer_one_state_twice():
    shop, store = Shop(), Meeting()
    server = shop.server(store)

    async with client_of(server, User(APPROVE)) as first, client_of(server, User(APPROVE)) as second:
        waits = await first.session.call_tool("refund", {"order": "C"}, allow_input_required=True)
        answered = {"input_responses": yes(), "request_state": waits.request_state}
        clients = [first.session.call_tool, second.session.call_tool]
        results = await asyncio.gather(*[answer("refund", {"order": "C"}, **answered) for answer in clients])
    assert sorted(map(text_of, results)) == sorted(["refunded C", ANSWERED])
    assert shop.done == ["refund C"]


async def test_a_state_is_bound_to_its_tool_its_arguments_its_server_and_its_key(caplog):
    shop, store = Shop(), MemoryStore()
    server, other = shop.server(store), serve("other", shop.functions, store=store, signing_key=KEY)
    stranger = serve("shop", shop.functions, store=store, signing_key="s" * 32)

    async with client_of(server, User(APPROVE)) as client:
        waits = await client.session.call_tool("refund", {"order": "C"}, allow_input_required=True)
    state = waits.request_state
    assert "shop" not in state
    assert len(state) < 1000
    for to, tool, order, sent in [
        (server, "refund", "D", state),
        (server, "die", "C", state),
        (server, "refund", "C", state[:-2] + ("yy" if state.endswith("xx") else "xx")),
        (server, "refund", "C", store.list()[0].id),
        (other, "refund", "C", state),
        (stranger, "refund", "C", state),
    ]:
        async with client_of(to, User(APPROVE)) as client:
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await client.session.call_tool(tool, {"order": order}, input_responses=yes(), request_state=sent)
    assert not shop.done


async def test_a_state_without_an_answer_shows_its_question_and_later_its_result():
    shop, store = Shop(), MemoryStore()

    async with client_of(shop.server(store), User(APPROVE)) as client:
        waits = await client.session.call_tool("refund", {"order": "C"}, allow_input_required=True)
    async with client_of(shop.server(store), User(APPROVE)) as client:  # another server, of the same store

        async def ask(**more: Any) -> Any:
            return await client.session.call_tool(
                "refund", {"order": "C"}, request_state=state, allow_input_required=True, **more
            )

        state = waits.request_state
        again = await ask()
        assert again.input_requests == waits.input_requests
        state = again.request_state
        assert text_of(await ask(input_responses={"ask:9.9": yes()["ask:1.0"]})) == ANSWERED
        assert text_of(await ask(input_responses=yes())) == "refunded C"
        assert text_of(await ask(input_responses=yes())) == ANSWERED
        assert text_of(await ask()) == "refunded C"
    assert shop.done == ["refund C"]


async def test_a_state_of_memory_is_nothing_to_another_server():
    first, second = (serve("shop", [weather], signing_key=KEY) for _ in range(2))
    rain = {"run:1.0": types.ElicitResult(action="accept", content={"result": "rain"})}

    async with client_of(first, User(APPROVE)) as client:
        waits = await client.session.call_tool("weather", {}, allow_input_required=True)
    async with client_of(second, User(APPROVE)) as client:
        found = await client.session.call_tool("weather", {}, input_responses=rain, request_state=waits.request_state)
    assert text_of(found) == ANSWERED


def test_a_fault_of_the_server_reaches_its_log_alone(caplog):
    class Broken(MemoryStore):
        def create(self, *args: Any, **options: Any) -> Any:
            raise OSError(f"the disk at {SECRET} is full")

    with pytest.raises(MCPError) as caught:
        called(Shop().server(Broken()), "add", {"a": 1})
    assert caught.value.error.code == types.INTERNAL_ERROR
    assert caught.value.error.message == "Internal server error; its log has the reason"
    assert "the disk at" in caplog.text


@pytest.mark.parametrize(
    ("content", "outcome"),
    [
        ({"outcome": "It was done", "text": "paid E"}, Returned(text="paid E")),
        ({"outcome": "It failed"}, FunctionFailed(text="a person reported that it failed")),
        ({"outcome": "It did nothing: run it again"}, RunAgain()),
    ],
)
def test_a_user_says_what_became_of_a_function_that_must_not_run_twice(content, outcome):
    about = '{"function":"pay","arguments":"{\\"order\\": \\"E\\", \\"token\\": \\"abcdefgh\\"}","idempotency_key":"x"}'
    question = Question("reconcile:1.0", "doubt", about, ("returned", "function_failed", "run_again"))
    form = forms.elicitation(question).params
    assert form.message.startswith('pay({"order": "E", "token": "***"}) had begun')
    assert forms.answer(question, types.ElicitResult(action="accept", content=content)) == ("reconcile:1.0", outcome)
    with pytest.raises(OutcomeError, match="outcome"):
        forms.answer(question, types.ElicitResult(action="accept", content={"outcome": "done"}))


FIELDS = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}, "age": {"type": "integer"}}}
TEXT = {"type": "string"}
HELD = {
    "type": "object",
    "properties": {"name": TEXT, "held": {"anyOf": [TEXT, {"type": "null"}]}},
    "required": ["name", "held"],
}
NESTED = {"type": "object", "properties": {"of": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"enum": [1, 2]}}}


@pytest.mark.parametrize(
    ("schema", "fields", "content", "text"),
    [
        (FIELDS, ["name", "age"], {"name": "Ann", "age": 3}, '{"name": "Ann", "age": 3}'),
        (FIELDS, ["name", "age"], {"name": "A"}, None),
        (HELD, ["name", "held"], {"name": "Ann"}, '{"name": "Ann", "held": null}'),
        (HELD, ["name", "held"], {"name": "", "held": None}, '{"name": "", "held": null}'),
        (HELD, ["name", "held"], {"name": "Ann", "held": ""}, '{"name": "Ann", "held": ""}'),
        (HELD, ["name", "held"], {"name": None, "held": "it"}, None),
        (HELD, ["name", "held"], {"held": "it"}, None),
        ({"type": "boolean"}, ["answer"], {"answer": False}, "false"),
        ({"type": "string", "enum": ["a", "b"]}, ["answer"], {"answer": "c"}, None),
        (NESTED, ["of"], {"of": "2"}, '{"of": 2}'),
        (NESTED, ["of"], {"of": "3"}, None),
        ({}, ["answer"], {"answer": "{"}, None),
        ({}, ["answer"], {}, None),
        (None, ["answer"], {"answer": "[1]"}, "[1]"),
    ],
)
def test_a_form_has_plain_fields_and_json_for_all_else(schema, fields, content, text):
    question = Question(
        "answer:review#1", "answer", '{"question":"Fit?"}', ("returned",), (schema and json.dumps(schema)) or ""
    )
    form = forms.elicitation(question).params
    assert [*form.requested_schema["properties"]] == fields
    filled = types.ElicitResult(action="accept", content=content)
    if text is None:
        with pytest.raises(OutcomeError):
            forms.answer(question, filled)
    else:
        assert forms.answer(question, filled) == ("answer:review#1", Returned(text=text))


def test_a_form_of_several_types_names_the_one_that_was_meant():
    schema = json.dumps({"anyOf": [{"type": "integer"}, {"type": "boolean"}]})
    about = '{"question":"Fit?","types":["int","bool"]}'
    question = Question("answer:review#1", "answer", about, ("returned",), schema)
    properties = forms.elicitation(question).params.requested_schema["properties"]
    assert properties["type"]["enum"] == ["int", "bool"]
    filled = types.ElicitResult(action="accept", content={"type": "bool", "answer": "true"})
    assert forms.answer(question, filled) == ("answer:review#1", Returned(text='["bool", true]'))
    with pytest.raises(OutcomeError):
        forms.answer(question, types.ElicitResult(action="accept", content={"type": "int", "answer": "[1]"}))


def test_a_user_has_a_stuck_call_tried_again_or_ended():
    question = Question("stuck", "stuck", '{"problem":"the code has changed"}', ("run_again", "cancelled"))
    outcomes = forms.elicitation(question).params.requested_schema["properties"]["outcome"]["enum"]
    for said, outcome in zip(outcomes, (RunAgain(), Cancelled()), strict=True):
        assert forms.answer(question, types.ElicitResult(action="accept", content={"outcome": said})) == (
            "stuck",
            outcome,
        )


async def test_a_slow_client_misses_the_oldest_reports_and_holds_nothing_up():
    sent = list[Any]()

    async def report(number: float, total: float | None, text: str | None) -> None:
        sent.append((number, text))

    progress = Progress(report, "count")
    for number in range(10 * 100):
        progress.hear(FunctionProgress("1.0", "count", {"at": number}))
    progress.end()
    await progress.send()
    assert len(sent) == 100
    assert sent[-1] == (10 * 100, '{"at":999}')


def test_a_line_that_is_too_long_is_no_message():
    sizes = list[int]()

    class File(io.BytesIO):
        def readline(self, size: Any = -1) -> bytes:
            sizes.append(size)
            return super().readline(size)

    lines = BoundedLines(File(b"12345\n" + b"x" * 200_000 + b"\n67\xff\n89"), max_bytes=6)
    assert [lines.readline() for _ in range(5)] == ["12345\n", "too long\n", "67\ufffd\n", "89", ""]
    assert 0 < min(sizes) <= max(sizes) <= 1 << 16  # never the whole of it


def test_hooks_limits_and_deps_are_those_of_any_agent():
    heard = list[str]()

    class Hook:
        def on_function_started(self, event: Any) -> None:
            heard.append(event.name)

    @function
    def whose(context: Context[str]) -> str:
        """Whose it is."""
        return context.deps

    server = serve("shop", [whose, *Shop().functions], deps="Ann", hooks=[Hook()], store=MemoryStore())
    assert text_of(called(server, "whose")) == "Ann"
    assert heard == ["whose"]
    short = serve("shop", [Shop().functions[3]], limits=Limits(deadline_s=0.01))
    late = called(short, "hang")
    assert late.is_error
    assert text_of(late).startswith("expired")


def test_a_question_that_is_cut_says_so() -> None:
    about = json.dumps({"function": "pay", "arguments": json.dumps({"note": "x" * 3000, "to": "Mallory"})})
    message = forms.elicitation(Question("ask:1.0", "approval", about, ("approved", "denied"))).params.message
    assert len(message) <= 2000
    assert re.search(r"… \(cut off: the whole has 3,\d{3} characters\)$", message)
